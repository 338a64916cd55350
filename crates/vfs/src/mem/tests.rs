//! Rules of the in-memory backend, and that no sequence of calls breaks its invariants.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use holdfast_base::{Cookie, Entropy, SeededEntropy, Timestamp};

use super::{MemBackend, MemOptions};
use crate::*;

const ROOT: fn() -> Caller = Caller::root;

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Arc::new([]) }
}

fn cx(caller: &Caller) -> Cx<'_> {
    Cx::new(caller, Wait::Yes)
}

fn name(bytes: &str) -> Name<'_> {
    Name::new(bytes.as_bytes()).unwrap()
}

fn open_to_all() -> MemBackend {
    MemBackend::new(&MemOptions { root_mode: 0o777, ..MemOptions::deterministic() })
}

fn how(mode: CreateMode, set: &SetAttrs) -> CreateHow<'_> {
    CreateHow { mode, set, open: None, want: AttrMask::ALL }
}

fn file(fs: &MemBackend, caller: &Caller, at: &str, mode: u32) -> Handle {
    let set = SetAttrs { mode: Some(mode), ..SetAttrs::default() };
    let root = fs.root().unwrap();
    fs.create(&cx(caller), &root, name(at), &how(CreateMode::Guarded, &set)).unwrap().node.handle
}

fn write(fs: &MemBackend, caller: &Caller, file: &Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
    let at = WriteAt { offset, stability: Stability::Unstable, want_change: false };
    fs.write(&cx(caller), File::Stateless(file), at, data).map(|w| w.bytes)
}

#[test]
fn the_owner_may_write_what_he_made_read_only_and_others_may_not() {
    let fs = open_to_all();
    let f = file(&fs, &user(1), "a", 0o444);
    assert_eq!(write(&fs, &user(1), &f, 0, b"x"), Ok(1));
    assert_eq!(write(&fs, &user(2), &f, 0, b"x"), Err(FsError::Access));
    let strict = OpenMode { read: false, write: true, nfs_exceptions: false };
    assert_eq!(fs.open(&cx(&user(1)), &f, strict).err(), Some(FsError::Access));
}

#[test]
fn plain_times_stand_still_and_go_back_as_their_clock_does() {
    for has_plain_times in [false, true] {
        let seconds = Arc::new(AtomicI64::new(100));
        let clock = Arc::clone(&seconds);
        let now = Arc::new(move || Timestamp { seconds: clock.load(Ordering::Relaxed), nanos: 0 });
        let options = MemOptions { now, root_mode: 0o777, has_plain_times, ..MemOptions::deterministic() };
        let fs = MemBackend::new(&options);
        let f = file(&fs, &user(1), "a", 0o644);
        let ctime = |at| {
            seconds.store(at, Ordering::Relaxed);
            write(&fs, &user(1), &f, 0, b"x").unwrap();
            fs.getattr(&cx(&user(1)), &f, AttrMask::ALL).unwrap().ctime
        };
        let (first, again, back) = (ctime(200), ctime(200), ctime(150));
        assert_eq!((first == again, back < again), (has_plain_times, has_plain_times));
    }
}

#[test]
fn who_may_execute_may_read_without_a_stateful_open() {
    let fs = open_to_all();
    let f = file(&fs, &user(1), "a", 0o711);
    write(&fs, &user(1), &f, 0, b"code").unwrap();
    let mut out = [0; 8];
    let read = fs.read(&cx(&user(2)), File::Stateless(&f), 0, &mut out);
    assert_eq!(read, Ok(Read { bytes: 4, is_eof: true }));
}

#[test]
fn an_exclusive_create_finds_its_own_work_until_the_first_setattr() {
    let fs = open_to_all();
    let (root, caller) = (fs.root().unwrap(), user(1));
    let set = SetAttrs::default();
    let create = |v: u8| {
        let mode = CreateMode::Exclusive(Exclusive([v; 8]));
        fs.create(&cx(&caller), &root, name("x"), &how(mode, &set)).map(|c| (c.is_new, c.node.handle))
    };
    let (is_new, handle) = create(1).unwrap();
    assert!(is_new);
    assert_eq!(create(1), Ok((false, handle)));
    assert_eq!(create(2), Err(FsError::Exists));
    let mode = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
    fs.setattr(&cx(&caller), File::Stateless(&handle), &mode, None).unwrap();
    assert_eq!(create(1), Err(FsError::Exists));
}

#[test]
fn a_mutation_is_uncommitted_until_its_objects_are_committed() {
    let fs = open_to_all();
    let root = fs.root().unwrap();
    let f = file(&fs, &user(1), "a", 0o644);
    assert_eq!(fs.uncommitted(), [Touched { handle: root, data: false }]);
    write(&fs, &user(1), &f, 0, b"x").unwrap();
    let all = fs.uncommitted();
    assert_eq!(all, [Touched { handle: root, data: false }, Touched { handle: f, data: true }]);
    let mut results = [Ok(()); 2];
    fs.commit(&all, &mut results);
    assert_eq!(fs.uncommitted(), []);
    assert_eq!(fs.commits(), all);
    let verifier = fs.write_verifier();
    fs.fail_next_commit(FsError::Io);
    fs.commit(&all[..1], &mut results[..1]);
    assert_eq!(results[0], Err(FsError::Io));
    assert_ne!(fs.write_verifier(), verifier);
}

#[test]
fn a_name_taken_away_leaves_the_open_file_alive() {
    let fs = open_to_all();
    let (root, caller) = (fs.root().unwrap(), user(1));
    let f = file(&fs, &caller, "a", 0o600);
    let open =
        fs.open(&cx(&caller), &f, OpenMode { read: true, write: true, nfs_exceptions: false }).unwrap();
    fs.remove(&cx(&caller), &root, name("a"), RemoveKind::Any).unwrap();
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    assert_eq!(fs.write(&cx(&caller), File::Open(&f, &open), at, b"x").map(|w| w.bytes), Ok(1));
    assert_eq!(fs.open_files(), 1);
    drop(open);
    assert_eq!(fs.getattr(&cx(&caller), &f, AttrMask::STAT), Err(FsError::Stale));
    fs.check().unwrap();
}

#[test]
fn space_and_quota_are_told_apart_and_partial_writes_say_how_much_fit() {
    let fs =
        MemBackend::new(&MemOptions { bytes_max: 8 * 4096, root_mode: 0o777, ..MemOptions::deterministic() });
    let f = file(&fs, &user(1), "a", 0o600);
    assert_eq!(write(&fs, &user(1), &f, 100, &[1; 10 * 4096]), Ok(8 * 4096 - 100));
    assert_eq!(write(&fs, &user(1), &f, 8 * 4096, b"x"), Err(FsError::NoSpace));
    let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
    fs.setattr(&cx(&user(1)), File::Stateless(&f), &cut, None).unwrap();
    fs.set_quota(1, 4096);
    assert_eq!(write(&fs, &user(1), &f, 0, &[1; 2 * 4096]), Ok(4096));
    assert_eq!(write(&fs, &user(1), &f, 4096, b"x"), Err(FsError::Quota));
    let region = fs.region(&cx(&user(1)), File::Stateless(&f), 4096, 1 << 60, Region::Allocate);
    assert_eq!(region, Err(FsError::Quota));
    fs.check().unwrap();
}

#[test]
fn cookies_stay_while_other_entries_come_and_go() {
    let fs = open_to_all();
    let (root, caller) = (fs.root().unwrap(), ROOT());
    for i in 0..200 {
        file(&fs, &caller, &format!("f{i}"), 0o600);
    }
    let (mut seen, mut from, mut end) = (Vec::new(), Cookie(0), ListEnd::Stopped);
    while end == ListEnd::Stopped {
        let mut taken = 0;
        let listing = DirListing { dir: &root, from, want: None };
        end = fs
            .readdir(&cx(&caller), listing, &mut |e| {
                if taken == 7 {
                    return Flow::Stop;
                }
                taken += 1;
                seen.push(String::from_utf8(e.name.to_vec()).unwrap());
                from = e.next;
                Flow::Continue
            })
            .unwrap();
        // What was listed may go, what is new may come.
        let gone = seen.last().unwrap().clone();
        if let Some(n) = gone.strip_prefix('f') {
            fs.remove(&cx(&caller), &root, name(&gone), RemoveKind::Any).unwrap();
            if n.len() < 3 {
                file(&fs, &caller, &format!("g{n}"), 0o600);
            }
        }
    }
    for i in 0..200 {
        assert_eq!(seen.iter().filter(|s| **s == format!("f{i}")).count(), 1, "f{i}");
    }
}

#[test]
fn every_nth_impatient_call_would_block_and_changes_nothing() {
    let fs = open_to_all();
    let (root, caller) = (fs.root().unwrap(), ROOT());
    fs.block_every(2);
    let no = Cx::new(&caller, Wait::No);
    assert!(fs.getattr(&no, &root, AttrMask::STAT).is_ok());
    let made = fs.make(&no, &root, name("d"), NewNode::Directory, &SetAttrs::default());
    assert_eq!(made.err(), Some(FsError::WouldBlock));
    assert_eq!(fs.lookup(&cx(&caller), &root, name("d"), AttrMask::STAT).err(), Some(FsError::NotFound));
}

#[test]
fn outside_locks_conflict_and_open_files_give_theirs_back() {
    let fs = open_to_all();
    let f = file(&fs, &ROOT(), "a", 0o600);
    let range = |a, b| holdfast_base::ByteRange::from_bounds(a, b).unwrap();
    let open =
        fs.open(&cx(&ROOT()), &f, OpenMode { read: true, write: true, nfs_exceptions: false }).unwrap();
    fs.lock(&open, range(0, 9), LockKind::Write).unwrap();
    fs.unlock(&open, range(3, 5)).unwrap();
    assert_eq!(fs.locks_held(&f), [(range(0, 2), LockKind::Write), (range(6, 9), LockKind::Write)]);
    assert_eq!(fs.lock_outside(&f, range(2, 3), LockKind::Read), Err(FsError::Locked));
    fs.lock_outside(&f, range(3, 5), LockKind::Read).unwrap();
    assert_eq!(fs.lock(&open, range(4, 4), LockKind::Write), Err(FsError::Locked));
    assert_eq!(fs.lock(&open, range(4, 4), LockKind::Read), Ok(()));
    let met = fs.test_lock(&open, range(0, 99), LockKind::Write).unwrap();
    assert_eq!(met, Some(LockedBy { range: range(3, 5), kind: LockKind::Read }));
    drop(open);
    assert_eq!(fs.locks_held(&f), []);
}

#[test]
fn a_directory_never_goes_below_itself() {
    let fs = open_to_all();
    let (root, caller) = (fs.root().unwrap(), ROOT());
    let mkdir = |dir: &Handle, n: &str| {
        fs.make(&cx(&caller), dir, name(n), NewNode::Directory, &SetAttrs::default()).unwrap().0.handle
    };
    let a = mkdir(&root, "a");
    let b = mkdir(&a, "b");
    let moved = fs.rename(&cx(&caller), (&root, name("a")), (&b, name("c")), RenameFlags::Replace);
    assert_eq!(moved.err(), Some(FsError::Invalid));
    let swapped = fs.rename(&cx(&caller), (&a, name("b")), (&root, name("a")), RenameFlags::Exchange);
    assert_eq!(swapped.err(), Some(FsError::Invalid));
    fs.check().unwrap();
}

fn done<T>(_: T) {}

/// One random call; what it answers does not matter here.
fn step(
    fs: &MemBackend,
    e: &mut SeededEntropy,
    handles: &mut Vec<Handle>,
    opens: &mut Vec<(Handle, Arc<dyn FileObject>)>,
) {
    let callers = [ROOT(), user(1), user(2)];
    let caller = &callers[e.u64() as usize % 3];
    let cx = cx(caller);
    let mut pick = || handles[e.u64() as usize % handles.len()];
    let (a, b) = (pick(), pick());
    let names = ["a", "b", "c", "d"];
    let (n, m) = (name(names[e.u64() as usize % 4]), name(names[e.u64() as usize % 4]));
    let odd = [0, 1, 4095, 4096, 10_000, 1 << 40, i64::MAX as u64, u64::MAX - 1, u64::MAX];
    let (x, y) = (odd[e.u64() as usize % odd.len()], odd[e.u64() as usize % odd.len()]);
    let open = opens.get(e.u64() as usize % (opens.len() + 1)).map(|(h, o)| (*h, o.clone()));
    let f = open.as_ref().map_or(File::Stateless(&a), |(h, o)| File::Open(h, o));
    let mut r = |n: u64| e.u64() % n;
    let set = SetAttrs {
        mode: (r(2) == 0).then(|| r(0o10000) as u32),
        uid: (r(4) == 0).then(|| r(3) as u32),
        gid: (r(4) == 0).then(|| r(3) as u32),
        size: (r(4) == 0).then_some(x),
        mtime: (r(4) == 0).then_some(SetTime::Now),
        ..SetAttrs::default()
    };
    let mut keep = |node: Node| handles.push(node.handle);
    match r(18) {
        0 | 1 => {
            let mode = [CreateMode::Unchecked, CreateMode::Guarded, CreateMode::Exclusive(Exclusive([1; 8]))]
                [r(3) as usize];
            let mode_open = OpenMode { read: true, write: r(2) == 0, nfs_exceptions: r(2) == 0 };
            let how =
                CreateHow { mode, set: &set, open: (r(2) == 0).then_some(mode_open), want: AttrMask::ALL };
            if let Ok(made) = fs.create(&cx, &a, n, &how) {
                keep(made.node);
                opens.extend(made.file.map(|o| (made.node.handle, o)));
            }
        }
        2 | 3 => {
            let what = [NewNode::Directory, NewNode::Symlink(b"text"), NewNode::Fifo][r(3) as usize];
            if let Ok((node, _)) = fs.make(&cx, &a, n, what, &set) {
                keep(node);
            }
        }
        4 => done(fs.link(&cx, &a, &b, n)),
        5 | 6 => {
            let flags = [RenameFlags::Replace, RenameFlags::NoReplace, RenameFlags::Exchange][r(3) as usize];
            done(fs.rename(&cx, (&a, n), (&b, m), flags));
        }
        7 => done(fs.remove(&cx, &a, n, [RemoveKind::Any, RemoveKind::Directory][r(2) as usize])),
        8 => done(fs.setattr(&cx, f, &set, None)),
        9 | 10 => {
            let at = WriteAt { offset: x, stability: Stability::Unstable, want_change: true };
            done(fs.write(&cx, f, at, &[7; 9000][..r(9000) as usize]));
        }
        11 => done(fs.read(&cx, f, x, &mut [0; 5000])),
        12 => {
            let what =
                [Region::Allocate, Region::AllocateKeepSize, Region::Punch, Region::Zero][r(4) as usize];
            done(fs.region(&cx, f, x, y, what));
        }
        13 => done(fs.copy(&cx, f, File::Stateless(&b), CopySpan { from: x, to: y, bytes: r(20_000) })),
        14 => {
            done(fs.clone_range(&cx, f, File::Stateless(&b), CopySpan { from: x, to: y, bytes: r(3) << 12 }));
        }
        15 => done(fs.setxattr(&cx, &a, b"user.x", &[1; 9000][..r(9000) as usize], XattrMode::Either)),
        16 => done(fs.seek(&cx, f, x, if r(2) == 0 { Seek::Data } else { Seek::Hole })),
        _ if opens.is_empty() => done(fs.removexattr(&cx, &a, b"user.x")),
        _ => done(opens.swap_remove(r(opens.len() as u64) as usize)),
    }
}

#[test]
fn no_sequence_of_calls_panics_or_breaks_the_invariants() {
    for seed in 0..40 {
        let options = MemOptions { bytes_max: 1 << 20, objects_max: 50, ..MemOptions::deterministic() };
        let fs = MemBackend::new(&MemOptions { root_mode: 0o777, ..options });
        let mut entropy = SeededEntropy(seed);
        let (mut handles, mut opens) = (vec![fs.root().unwrap()], Vec::new());
        for i in 0..800 {
            step(&fs, &mut entropy, &mut handles, &mut opens);
            if handles.len() > 60 {
                handles.swap_remove(1 + entropy.u64() as usize % 59);
            }
            fs.check().unwrap_or_else(|what| panic!("seed {seed}, step {i}: {what}"));
        }
        drop(opens);
        fs.check().unwrap();
    }
}
