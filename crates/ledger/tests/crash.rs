//! Every kind of mutation over the in-memory backend, cut short by the death of the process or of the machine, and
//! sent again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use std::sync::Arc;

use holdfast_base::{ExportId, SessionId, SlotId};
use holdfast_export::{Export, ExportOptions, Force};
use holdfast_journal::{BootId, Config, Keep};
use holdfast_ledger::{Ledger, Mutation, Remembered, Undertaking};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FsError, FsResult, Handle, MemBackend,
    MemOptions, Name, NewNode, RemoveKind, RenameFlags, SetAttrs, Wait, XattrMode,
};
use tempfile::TempDir;

const SLOT: (SessionId, SlotId) = (SessionId([7; 16]), SlotId(3));
const SMALL: Config = Config { bytes: 1 << 20, entries_max: 64 };
const BOOT: BootId = BootId([1; 16]);
const HASH: u64 = 0xfeed;

/// A file system, and a ledger that dies and comes back.
struct World {
    fs: MemBackend,
    export: Arc<Export>,
    dir: TempDir,
    ledger: Option<Arc<Ledger>>,
    remembered: Vec<Remembered>,
    boot: BootId,
    caller: Caller,
}

/// A mutation as a protocol would make it.
type Change = fn(&World, Mutation<'_>) -> FsResult<()>;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

impl World {
    fn new() -> Self {
        let fs = MemBackend::new(&MemOptions { root_mode: 0o777, ..MemOptions::system() });
        let options = ExportOptions::default();
        let backend = Arc::new(fs.clone());
        let export = Arc::new(Export { id: ExportId(9), path: vec![b"e".to_vec()], backend, options });
        let (dir, caller) = (tempfile::tempdir().unwrap(), Caller::root());
        let mut world = Self { fs, export, dir, ledger: None, remembered: Vec::new(), boot: BOOT, caller };
        world.restart(BOOT);
        world
    }

    /// What is in memory is gone; on which boot of the machine it comes back.
    fn restart(&mut self, boot: BootId) {
        self.ledger = None;
        let exports = [Arc::clone(&self.export)];
        let path = self.dir.path().join("journal");
        let (ledger, remembered) = Ledger::open_on_boot(&path, &SMALL, &exports, boot).unwrap();
        (self.ledger, self.remembered, self.boot) = (Some(ledger), remembered, boot);
    }

    /// Another process goes on in this one's place.
    fn replace(&mut self) {
        let told = self.ledger().cut_short();
        self.ledger = None;
        let now = || holdfast_base::Timestamp { seconds: 0, nanos: 0 };
        let path = self.dir.path().join("journal");
        let (ledger, remembered) =
            Ledger::go_on_with(&path, &SMALL, (self.boot, Arc::new(now)), told).unwrap();
        (self.ledger, self.remembered) = (Some(ledger), remembered);
    }

    fn ledger(&self) -> &Arc<Ledger> {
        self.ledger.as_ref().unwrap()
    }

    fn cx(&self) -> Cx<'_> {
        Cx::new(&self.caller, Wait::Yes)
    }

    fn root(&self) -> Handle {
        self.fs.root().unwrap()
    }

    fn find(&self, text: &str) -> Option<Handle> {
        self.fs.lookup(&self.cx(), &self.root(), name(text), AttrMask::NONE).ok().map(|node| node.handle)
    }

    /// Runs a change in a request under this number; `reply` when it comes that far.
    fn run(&self, seqid: u32, change: Change, reply: Option<&[u8]>) -> FsResult<()> {
        let mut undertaking = Undertaking::on_slot(self.ledger(), SLOT, seqid, HASH);
        let result = change(self, self.mutation(&mut undertaking));
        if let Some(reply) = reply {
            undertaking.finish(reply);
        }
        result
    }

    fn mutation<'a>(&'a self, undertaking: &'a mut Undertaking) -> Mutation<'a> {
        Mutation { backend: &self.fs, cx: self.cx(), export: self.export.id, record: Some(undertaking) }
    }

    /// What stands there before each change.
    fn furnish(&self) {
        let (cx, root) = (self.cx(), self.root());
        let set = SetAttrs::default();
        for file in ["old", "target"] {
            let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::NONE };
            self.fs.create(&cx, &root, name(file), &how).unwrap();
        }
        self.fs.make(&cx, &root, name("dir"), NewNode::Directory, &set).unwrap();
        let old = self.find("old").unwrap();
        self.fs.setxattr(&cx, &old, b"user.old", b"value", XattrMode::Create).unwrap();
    }
}

fn mode(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode), ..SetAttrs::default() }
}

fn guarded(world: &World, m: Mutation<'_>) -> FsResult<()> {
    let set = mode(0o640);
    let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
    let created = m.create(&world.root(), name("new"), &how)?;
    assert_eq!((created.node.attrs.mode, created.is_new), (0o640, true));
    Ok(())
}

fn mkdir(world: &World, m: Mutation<'_>) -> FsResult<()> {
    let (node, _) = m.make(&world.root(), name("new"), NewNode::Directory, &mode(0o750))?;
    assert_eq!(node.attrs.mode, 0o750);
    Ok(())
}

fn symlink(world: &World, m: Mutation<'_>) -> FsResult<()> {
    m.make(&world.root(), name("new"), NewNode::Symlink(b"text"), &SetAttrs::default()).map(drop)
}

fn remove(world: &World, m: Mutation<'_>) -> FsResult<()> {
    m.remove(&world.root(), name("old"), RemoveKind::NonDirectory).map(drop)
}

fn rmdir(world: &World, m: Mutation<'_>) -> FsResult<()> {
    m.remove(&world.root(), name("dir"), RemoveKind::Directory).map(drop)
}

fn rename(world: &World, m: Mutation<'_>) -> FsResult<()> {
    let root = world.root();
    m.rename((&root, name("old")), (&root, name("target")), RenameFlags::Replace).map(drop)
}

fn link(world: &World, m: Mutation<'_>) -> FsResult<()> {
    let object = world.find("target").unwrap();
    m.link(&object, &world.root(), name("new")).map(drop)
}

fn chmod(world: &World, m: Mutation<'_>) -> FsResult<()> {
    m.setattr(File::Stateless(&world.find("old").unwrap()), &mode(0o600), None).map(drop)
}

fn make_xattr(world: &World, m: Mutation<'_>) -> FsResult<()> {
    m.setxattr(&world.find("old").unwrap(), b"user.new", b"value", XattrMode::Create).map(drop)
}

fn remove_xattr(world: &World, m: Mutation<'_>) -> FsResult<()> {
    m.removexattr(&world.find("old").unwrap(), b"user.old").map(drop)
}

const ALL: [(&str, Change); 10] = [
    ("create", guarded),
    ("mkdir", mkdir),
    ("symlink", symlink),
    ("remove", remove),
    ("rmdir", rmdir),
    ("rename", rename),
    ("link", link),
    ("chmod", chmod),
    ("make xattr", make_xattr),
    ("remove xattr", remove_xattr),
];

#[test]
fn a_change_without_its_reply_is_told_as_done_when_it_comes_again() {
    for (what, change) in ALL {
        for boot in [BOOT, BootId([2; 16])] {
            let mut world = World::new();
            world.furnish();
            assert_eq!(world.run(5, change, None), Ok(()), "{what}");
            world.ledger().force().unwrap();
            world.restart(boot);
            let expected =
                Remembered::Slot { session: SLOT.0, slot: SLOT.1, seqid: 5, call_hash: HASH, reply: None };
            assert_eq!(world.remembered, [expected], "{what}");
            assert_eq!(world.run(5, change, Some(b"done")), Ok(()), "{what}, again");
            world.restart(boot);
            assert!(
                matches!(&world.remembered[..], [Remembered::Slot { reply: Some(r), .. }] if r == b"done"),
                "{what}: {:?}",
                world.remembered
            );
        }
    }
}

#[test]
fn what_a_crash_cut_short_is_known_after_a_planned_restart_as_it_was_found() {
    for (what, change) in ALL {
        let mut world = World::new();
        world.furnish();
        assert_eq!(world.run(5, change, None), Ok(()), "{what}");
        world.restart(BOOT);
        world.replace();
        assert_eq!(world.run(5, change, None), Ok(()), "{what}");
    }
    // What did not outlive the machine is done when it comes again, though its reply is in the journal.
    let mut world = World::new();
    world.furnish();
    assert_eq!(world.run(5, guarded, Some(b"made")), Ok(()));
    world.ledger().force().unwrap();
    world.fs.remove(&world.cx(), &world.root(), name("new"), RemoveKind::Any).unwrap();
    world.restart(BootId([2; 16]));
    assert_eq!(world.ledger().cut_short().len(), 1);
    world.replace();
    assert_eq!(world.ledger().cut_short().len(), 1, "it is still to come");
    assert_eq!(world.run(5, guarded, Some(b"made")), Ok(()));
    assert!(world.find("new").is_some());
    // What others have changed since does not count: it was looked at before them.
    let mut world = World::new();
    assert_eq!(world.run(5, guarded, None), Ok(()));
    world.restart(BOOT);
    world.fs.remove(&world.cx(), &world.root(), name("new"), RemoveKind::Any).unwrap();
    world.replace();
    assert_eq!(
        world.run(5, guarded, Some(b"made")),
        Err(FsError::NotFound),
        "it was made, and is gone again"
    );
    assert!(world.find("new").is_none());
}

#[test]
fn done_again_without_a_record_these_changes_fail() {
    // What the test above would show of a ledger that does nothing.
    for (what, change) in ALL.iter().filter(|(what, _)| !matches!(*what, "chmod")) {
        let mut world = World::new();
        world.furnish();
        assert_eq!(world.run(5, *change, None), Ok(()), "{what}");
        world.restart(BOOT);
        assert!(world.run(6, *change, None).is_err(), "{what}");
    }
}

#[test]
fn a_change_that_did_not_happen_is_made_when_it_comes_again() {
    let refuse: Change = |world, m| {
        // The intent is left, and the process dies before the file system is asked.
        let nobody = Caller { uid: 99, gid: 99, groups: Arc::new([]) };
        let m = Mutation { cx: Cx::new(&nobody, Wait::Yes), ..m };
        m.setattr(File::Stateless(&world.find("old").unwrap()), &mode(0o600), None).map(drop)
    };
    let mut world = World::new();
    world.furnish();
    assert_eq!(world.run(5, refuse, None), Err(FsError::Perm));
    world.restart(BOOT);
    assert_eq!(world.run(5, chmod, Some(b"done")), Ok(()));
    let attrs = world.fs.getattr(&world.cx(), &world.find("old").unwrap(), AttrMask::STAT).unwrap();
    assert_eq!(attrs.mode, 0o600);
}

#[test]
fn a_reply_is_believed_after_the_machine_died_only_when_its_effect_is_there() {
    let mut world = World::new();
    world.furnish();
    assert_eq!(world.run(5, guarded, Some(b"made")), Ok(()));
    world.ledger().force().unwrap();
    // The write-back of the name did not come that far.
    world.fs.remove(&world.cx(), &world.root(), name("new"), RemoveKind::Any).unwrap();
    world.restart(BootId([2; 16]));
    assert!(matches!(&world.remembered[..], [Remembered::Slot { reply: None, .. }]));
    assert_eq!(world.run(5, guarded, Some(b"made")), Ok(()));
    assert!(world.find("new").is_some());
}

#[test]
fn a_sealed_reply_is_believed_whatever_happened_since() {
    let mut world = World::new();
    world.furnish();
    let mut undertaking = Undertaking::on_slot(world.ledger(), SLOT, 5, HASH);
    guarded(&world, world.mutation(&mut undertaking)).unwrap();
    undertaking.finish(b"made");
    undertaking.seal();
    drop(undertaking);
    world.ledger().force().unwrap();
    world.fs.remove(&world.cx(), &world.root(), name("new"), RemoveKind::Any).unwrap();
    world.restart(BootId([2; 16]));
    assert!(matches!(&world.remembered[..], [Remembered::Slot { reply: Some(r), .. }] if r == b"made"));
}

#[test]
fn another_call_under_the_same_number_is_not_taken_for_the_interrupted_one() {
    let mut world = World::new();
    world.furnish();
    assert_eq!(world.run(5, guarded, None), Ok(()));
    world.restart(BOOT);
    let mut other = Undertaking::on_slot(world.ledger(), SLOT, 5, HASH + 1);
    assert_eq!(guarded(&world, world.mutation(&mut other)), Err(FsError::Exists));
}

#[test]
fn what_came_before_the_interrupted_operation_of_a_compound_is_told_as_done() {
    let mut world = World::new();
    world.furnish();
    let both = |world: &World| -> FsResult<()> {
        let mut undertaking = Undertaking::on_slot(world.ledger(), SLOT, 5, HASH);
        undertaking.at_operation(2);
        remove(world, world.mutation(&mut undertaking))?;
        undertaking.at_operation(3);
        let early = world.mutation(&mut undertaking);
        let (early, _) = early.make(&world.root(), name("early"), NewNode::Directory, &mode(0o711))?;
        assert_eq!((Some(early.handle), early.attrs.mode), (world.find("early"), 0o711));
        undertaking.at_operation(4);
        mkdir(world, world.mutation(&mut undertaking))
    };
    assert_eq!(both(&world), Ok(()));
    world.restart(BOOT);
    assert_eq!(both(&world), Ok(()));
}

#[test]
fn without_room_nothing_is_changed() {
    let world = World::new();
    world.furnish();
    for n in 0..64u8 {
        world.ledger().journal().note(&[b'x', n], Keep::Latest, b"").unwrap();
    }
    assert_eq!(world.run(5, guarded, None), Err(FsError::Delay));
    assert!(world.find("new").is_none());
}

#[test]
fn a_call_that_never_comes_again_is_given_up() {
    let mut world = World::new();
    world.furnish();
    let mut undertaking = Undertaking::of_call(world.ledger(), b"a call", 77);
    guarded(&world, world.mutation(&mut undertaking)).unwrap();
    drop(undertaking);
    world.restart(BOOT);
    assert_eq!(world.remembered, []);
    assert_eq!(world.ledger().journal().usage().entries, 1);
    world.ledger().give_up_calls();
    assert_eq!(world.ledger().journal().usage().entries, 0);
}

#[test]
fn a_session_takes_its_slots_along() {
    let mut world = World::new();
    world.furnish();
    assert_eq!(world.run(5, guarded, Some(b"made")), Ok(()));
    world.ledger().forget_session(SLOT.0, 4);
    world.restart(BOOT);
    assert_eq!(world.remembered, []);
}

#[test]
fn what_others_have_put_in_its_place_is_not_what_was_made() {
    let again: [(&str, Change); 2] = [
        ("mkdir", |world, m| {
            let (made, _) = m.make(&world.root(), name("new"), NewNode::Directory, &mode(0o750))?;
            assert_ne!(Some(made.handle), world.find("new"));
            Ok(())
        }),
        ("create", |world, m| {
            let set = mode(0o640);
            let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
            let made = m.create(&world.root(), name("new"), &how)?;
            assert_ne!(Some(made.node.handle), world.find("new"));
            Ok(())
        }),
    ];
    for ((what, again), (_, first)) in
        again.into_iter().zip([("mkdir", mkdir as Change), ("create", guarded)])
    {
        for is_replaced in [false, true] {
            let mut world = World::new();
            assert_eq!(world.run(5, first, None), Ok(()), "{what}");
            world.restart(BOOT);
            let (cx, root) = (world.cx(), world.root());
            world.fs.remove(&cx, &root, name("new"), RemoveKind::Any).unwrap();
            if is_replaced {
                world.fs.make(&cx, &root, name("new"), NewNode::Directory, &mode(0o700)).unwrap();
            }
            assert_eq!(world.run(5, again, Some(b"made")), Ok(()), "{what}: it was made");
            let there = world
                .find("new")
                .map(|there| world.fs.getattr(&world.cx(), &there, AttrMask::STAT).unwrap().mode);
            assert_eq!(there, is_replaced.then_some(0o700), "{what}: and the other's is as it was");
        }
    }
}

#[test]
fn what_was_refused_is_nobodys_work_when_others_do_it() {
    let mut world = World::new();
    world.furnish();
    let (cx, dir) = (world.cx(), world.find("dir").unwrap());
    world.fs.make(&cx, &dir, name("inside"), NewNode::Fifo, &SetAttrs::default()).unwrap();
    // The process dies before the reply is recorded.
    assert_eq!(world.run(1, rmdir, None), Err(FsError::NotEmpty));
    world.fs.remove(&world.cx(), &dir, name("inside"), RemoveKind::NonDirectory).unwrap();
    world.fs.remove(&world.cx(), &world.root(), name("dir"), RemoveKind::Directory).unwrap();
    world.restart(BOOT);
    assert_eq!(world.run(1, rmdir, Some(b"")), Err(FsError::NotFound));
}

/// Who takes a file by renaming it away, or a lock by making a directory, must be alone, though the server die in that moment.
#[cfg(feature = "failpoints")]
#[test]
fn of_two_that_change_one_name_at_once_only_one_is_told_that_it_did() {
    use std::cell::Cell;
    use std::rc::Rc;

    use holdfast_ledger::failpoint::{Point, watch};

    const OTHERS: (SessionId, SlotId) = (SessionId([8; 16]), SlotId(0));
    fn others(world: &World, change: Change, wait: Wait) -> FsResult<()> {
        let mut undertaking = Undertaking::on_slot(world.ledger(), OTHERS, 1, HASH);
        let cx = Cx::new(&world.caller, wait);
        change(world, Mutation { cx, ..world.mutation(&mut undertaking) })
    }

    fn seen(world: &World, m: Mutation<'_>) -> FsResult<()> {
        // As from before: whoever sends this has seen it there.
        let victim = world.find("old").unwrap_or_else(|| world.root());
        match m.remove_seen(&world.root(), name("old"), RemoveKind::NonDirectory, &victim)? {
            Some(_) => Ok(()),
            None => Err(FsError::NotFound),
        }
    }

    fn exclusive(world: &World, m: Mutation<'_>) -> FsResult<()> {
        let set = SetAttrs::default();
        let mode = CreateMode::Exclusive(holdfast_vfs::Exclusive([5; 8]));
        let how = CreateHow { mode, set: &set, open: None, want: AttrMask::NONE };
        m.create(&world.root(), name("new"), &how).map(drop)
    }

    fn is_of_names(&(what, _): &(&str, Change)) -> bool {
        !what.contains("xattr") && what != "chmod"
    }
    let same = ALL.into_iter().filter(is_of_names).chain([("remove_seen", seen as Change)]);
    let same = same.map(|(what, change)| (what, change, change));
    for (what, change, other) in same.chain([("create, exclusive", guarded as Change, exclusive as Change)]) {
        let world = World::new();
        world.furnish();
        let (world, came) = (Rc::new(world), Rc::new(Cell::new(None)));
        let (own, noted) = (Rc::clone(&world), Rc::clone(&came));
        watch(Some(Rc::new(move |point| {
            if point == Point::BeforeMutation && noted.get().is_none() {
                noted.set(Some(Ok(())));
                noted.set(Some(others(&own, other, Wait::No)));
            }
        })));
        let first = world.run(1, change, None);
        watch(None);
        assert_eq!((first, came.get()), (Ok(()), Some(Err(FsError::WouldBlock))), "{what}");
        let mut world = Rc::into_inner(world).unwrap();
        world.restart(BOOT);
        let told = [world.run(1, change, Some(b"")), others(&world, other, Wait::Yes)];
        assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 1, "{what}: {told:?}");
    }
}
