//! Promises come and go while threads change everything: while one is in force, nothing about its file changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::{CapSet, ClientId, Entropy, SeededEntropy, Timestamp};
use holdfast_state::{DelegationKind, DelegationToken};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FsResult, Handle, Name, NewNode, RemoveKind,
    RenameFlags, SetAttrs, SetTime, Stability, Wait, WriteAt,
};

use super::Guarded;
use super::tests::manager;
use crate::manager::Manager;

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

struct Race {
    /// Directories and names in use.
    among: (usize, usize),
    manager: Arc<Manager>,
    bare: MemBackend,
    guarded: Arc<Guarded>,
    dirs: [Handle; 2],
    is_over: AtomicBool,
    tokens: AtomicU64,
    kept: AtomicU64,
    names_kept: AtomicU64,
    changes: AtomicU64,
}

fn pick(entropy: &mut SeededEntropy, of: usize) -> usize {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    (u64::from_le_bytes(bytes) >> 16) as usize % of
}

impl Race {
    fn new(among: (usize, usize)) -> Self {
        let (manager, ticks) = (manager(0), AtomicU64::new(0));
        // Threads meet at the file system's lock, between looking a name up and changing it.
        let now = Arc::new(move || {
            std::thread::yield_now();
            Timestamp { seconds: ticks.fetch_add(1, Ordering::Relaxed) as i64, nanos: 0 }
        });
        let bare = MemBackend::new(&MemOptions { now, root_mode: 0o777, ..MemOptions::system() });
        let guarded = Guarded::new(Arc::new(bare.clone()), &manager);
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let (root, set) = (bare.root().unwrap(), SetAttrs::default());
        let dirs = [b"x", b"y"].map(|dir: &[u8; 1]| {
            let name = Name::new(dir).unwrap();
            bare.make(&cx, &root, name, NewNode::Directory, &set).unwrap().0.handle
        });
        let zero = || AtomicU64::new(0);
        let (is_over, tokens, kept, changes) = (AtomicBool::new(false), zero(), zero(), zero());
        let names_kept = zero();
        Self { among, manager, bare, guarded, dirs, is_over, tokens, kept, names_kept, changes }
    }

    /// Whether there were promises beside changes to speak of.
    fn has_seen_enough(&self) -> bool {
        let has_seen = |count: &AtomicU64, enough| count.load(Ordering::Relaxed) > enough;
        has_seen(&self.kept, 100) && has_seen(&self.names_kept, 30) && has_seen(&self.changes, 100)
    }

    /// Changes something at random, as nobody in particular.
    fn change(&self, entropy: &mut SeededEntropy) -> FsResult<()> {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let (dir, other) = (&self.dirs[pick(entropy, self.among.0)], &self.dirs[pick(entropy, self.among.0)]);
        let [name, to] = [0; 2].map(|_| Name::new(NAMES[pick(entropy, self.among.1)]).unwrap());
        let g = &self.guarded;
        let file = |name| g.lookup(&cx, dir, name, AttrMask::NONE).map(|node| node.handle);
        match pick(entropy, 9) {
            7 | 8 => g.rename(&cx, (dir, name), (other, to), RenameFlags::Replace).map(drop),
            0 => g.remove(&cx, dir, name, RemoveKind::Any).map(drop),
            1 => g.rename(&cx, (dir, name), (other, to), RenameFlags::Replace).map(drop),
            2 => g.link(&cx, &file(name)?, other, to).map(drop),
            3 => {
                let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
                g.write(&cx, File::Stateless(&file(name)?), at, b"x").map(drop)
            }
            4 => {
                let set = SetAttrs { mtime: Some(SetTime::Now), ..SetAttrs::default() };
                g.setattr(&cx, File::Stateless(&file(name)?), &set, None).map(drop)
            }
            _ => {
                let set = SetAttrs { size: Some(0), ..SetAttrs::default() };
                let how =
                    CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::NONE };
                g.create(&cx, dir, name, &how).map(drop)
            }
        }
    }

    /// Promises a file's or a directory's staying the same, and sees to it.
    fn hold(&self, entropy: &mut SeededEntropy, holder: ClientId) -> FsResult<()> {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let dir = &self.dirs[pick(entropy, self.among.0)];
        if pick(entropy, 3) == 0 {
            self.hold_name(entropy, holder, dir);
            return Ok(());
        }
        let (object, kind) = match pick(entropy, 4) {
            0 => (*dir, DelegationKind::Directory),
            _ => {
                let name = Name::new(NAMES[pick(entropy, self.among.1)]).unwrap();
                (self.bare.lookup(&cx, dir, name, AttrMask::NONE)?.handle, DelegationKind::Write)
            }
        };
        let (key, token) = (object.key(), DelegationToken(self.tokens.fetch_add(1, Ordering::Relaxed)));
        if !self.manager.put_in_force((key, holder), (token, kind)) {
            return Ok(());
        }
        let look = || self.bare.getattr(&cx, &object, AttrMask::STAT | AttrMask::CHANGE);
        let before = look();
        for _ in 0..pick(entropy, 20) {
            std::thread::yield_now();
        }
        let after = look();
        self.manager.end_promise(key, token);
        // Another's promise of the same object is no change; a removal before this one is.
        assert_eq!(before.is_ok(), after.is_ok(), "{kind:?} of {object:?} vanished");
        if let (Ok(before), Ok(after)) = (before, after) {
            assert_eq!(before, after, "{kind:?} of {object:?}");
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Promises a name's staying the same, and sees to it.
    fn hold_name(&self, entropy: &mut SeededEntropy, holder: ClientId, dir: &Handle) {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let name = Name::new(NAMES[pick(entropy, self.among.1)]).unwrap();
        let key = self.manager.name_key(dir, name).name;
        if !self.manager.put_caps_in_force((holder, key), CapSet::FILE_S) {
            return;
        }
        let look = || self.bare.lookup(&cx, dir, name, AttrMask::NONE).map(|node| node.handle);
        let before = look();
        for _ in 0..pick(entropy, 20) {
            std::thread::yield_now();
        }
        let after = look();
        self.manager.settle_caps((holder, key));
        assert_eq!(before, after, "{name:?} of {dir:?}");
        self.names_kept.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn while_promises_are_in_force_nobody_changes_their_objects() {
    race_with(3, 0, (2, 6));
}

#[test]
fn nor_when_promises_are_few_and_mostly_none_is_in_force() {
    race_with(1, 300, (1, 2));
}

/// How many promises each holder makes at most when enough is never seen: very many times as many as enough would take.
const ROUNDS_MAX: u32 = 100_000;

/// Changes beside so many holders, who rest so long after every promise, in microseconds; in so many directories, of so
/// many names. For some seconds, and on a machine that is busy until enough was seen.
fn race_with(holders: u64, rest: u64, among: (usize, usize)) {
    let race = Race::new(among);
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for n in 0..3 {
            let race = &race;
            scope.spawn(move || {
                let mut entropy = SeededEntropy(n);
                while !race.is_over.load(Ordering::Relaxed) {
                    if race.change(&mut entropy).is_ok() {
                        race.changes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let holders: Vec<_> = (10..10 + holders)
            .map(|n| {
                let race = &race;
                scope.spawn(move || {
                    let mut entropy = SeededEntropy(n);
                    let mut rounds = 0;
                    while Instant::now() < until || (!race.has_seen_enough() && rounds < ROUNDS_MAX) {
                        rounds += 1;
                        let _ = race.hold(&mut entropy, ClientId(n));
                        std::thread::sleep(Duration::from_micros(rest));
                    }
                })
            })
            .collect();
        let ended: Vec<_> = holders.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        race.is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let is_enough = race.has_seen_enough();
    let (kept, changes) = (race.kept.into_inner(), race.changes.into_inner());
    assert!(is_enough, "{kept} promises kept beside {changes} changes");
    assert!(race.manager.promises().is_empty());
}
