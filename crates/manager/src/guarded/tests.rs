use std::sync::Arc;

use holdfast_base::{CapSet, ClientId, Cookie, FileKey, ManualClock, SeededEntropy};
use holdfast_state::{BootInstance, Config, Deed, DelegationKind, DelegationToken, EntryKinds, Grace};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use holdfast_vfs::suite::{Abilities, TestBackend, run};
use holdfast_vfs::{
    AccessMask, AttrMask, Backend, Caller, CopySpan, CreateHow, CreateMode, Cx, DirListing, Exclusive, File,
    FileObject, Flow, FsError, Handle, Name, NewNode, OpenMode, Region, RemoveKind, RenameFlags, Seek,
    SetAttrs, SetTime, Stability, Wait, WriteAt, XattrMode,
};

use super::{ADDS, Guarded, REMOVES};
use crate::Unreclaimed;
use crate::manager::{Manager, Parts};

pub(super) const HOLDER: ClientId = ClientId(7);

const RENAMES: Deed = Deed::ChangeEntries(EntryKinds::RENAME);
/// Of a name.
const ANY: Deed = Deed::ChangeEntries(EntryKinds::UNKNOWN);

pub(crate) fn manager(pool_threads: usize) -> Arc<Manager> {
    let engine = Config { boot: BootInstance::from_counter(1), lease_ms: 60_000, grace: Grace::Over };
    let (entropy, clock) = (Box::new(SeededEntropy(1)), Arc::new(ManualClock::default()));
    Manager::new(Parts { engine, entropy, clock, pool_threads })
}

fn name(bytes: &'static [u8]) -> Name<'static> {
    Name::new(bytes).unwrap()
}

/// A guarded file system with a directory `d`, files `a` and `b` in it, and `c` at the top.
pub(super) struct World {
    pub(super) manager: Arc<Manager>,
    pub(super) guarded: Arc<Guarded>,
    pub(super) caller: Caller,
    root: Handle,
    dir: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    open: Arc<dyn FileObject>,
}

impl World {
    pub(super) fn new() -> Self {
        let manager = manager(0);
        let fs: Arc<dyn Backend> = Arc::new(MemBackend::new(&MemOptions::deterministic()));
        let guarded = Guarded::new(fs, &manager);
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let root = guarded.root().unwrap();
        let set = SetAttrs { mode: Some(0o777), ..SetAttrs::default() };
        let dir = guarded.make(&cx, &root, name(b"d"), NewNode::Directory, &set).unwrap().0.handle;
        let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
        let create = |dir, n| guarded.create(&cx, dir, name(n), &how).unwrap().node.handle;
        let (a, b, c) = (create(&dir, b"a"), create(&dir, b"b"), create(&root, b"c"));
        let open = guarded.open(&cx, &a, BOTH).unwrap();
        Self { manager, caller, root, dir, a, b, c, open, guarded }
    }

    pub(super) fn cx(&self) -> Cx<'_> {
        Cx::new(&self.caller, Wait::Yes)
    }

    /// Promises something, so that everybody must look.
    fn promise(&self, object: &Handle, kind: DelegationKind) -> DelegationToken {
        let token = DelegationToken(object.key().0 as u64);
        assert!(self.manager.put_in_force((object.key(), HOLDER), (token, kind)));
        token
    }

    /// What a call asks, by the names of its objects.
    fn asked<R>(
        &self,
        call: impl FnOnce(&Guarded, &Cx<'_>) -> Result<R, FsError>,
    ) -> Vec<(&'static str, Deed)> {
        self.manager.promises().asked.lock().clear();
        call(&self.guarded, &self.cx()).map(drop).unwrap();
        let asked = std::mem::take(&mut *self.manager.promises().asked.lock());
        asked.into_iter().map(|(file, deed)| (self.called(file), deed)).collect()
    }

    fn key_of(&self, dir: &Handle, name: &[u8]) -> FileKey {
        self.manager.name_key(dir, Name::new(name).unwrap()).name
    }

    fn called(&self, file: FileKey) -> &'static str {
        let all = [(&self.root, "/"), (&self.dir, "d"), (&self.a, "a"), (&self.b, "b"), (&self.c, "c")];
        let object = all.into_iter().find(|(handle, _)| handle.key() == file);
        let names = [
            (&self.root, "e", "/e"),
            (&self.root, "a2", "/a2"),
            (&self.root, "c", "/c"),
            (&self.root, "d", "/d"),
            (&self.dir, "a", "d/a"),
            (&self.dir, "b", "d/b"),
            (&self.dir, "new", "d/new"),
            (&self.dir, "newer", "d/newer"),
        ];
        let name = names.into_iter().find(|(dir, name, _)| self.key_of(dir, name.as_bytes()) == file);
        object.map(|(_, called)| called).or(name.map(|(.., called)| called)).unwrap_or("new")
    }
}

const BOTH: OpenMode = OpenMode { read: true, write: true, nfs_exceptions: false };
const READ: OpenMode = OpenMode { read: true, write: false, nfs_exceptions: false };

fn size(size: u64) -> SetAttrs {
    SetAttrs { size: Some(size), ..SetAttrs::default() }
}

fn create(
    w: &World,
    at: (&Handle, &'static [u8]),
    how: (CreateMode, SetAttrs, Option<OpenMode>),
) -> Vec<(&'static str, Deed)> {
    let (mode, set, open) = how;
    w.asked(|g, cx| {
        g.create(cx, at.0, name(at.1), &CreateHow { mode, set: &set, open, want: AttrMask::NONE })
    })
}

/// A world in which something is promised that none of its files is about.
fn careful() -> World {
    let w = World::new();
    let reason = FileKey(1);
    assert!(w.manager.put_in_force((reason, HOLDER), (DelegationToken(1), DelegationKind::Read)));
    w
}

#[test]
fn every_change_of_data_and_attributes_asks_for_what_it_does() {
    use Deed::{ChangeAttrs, LookXattrs, ReadData, Truncate, WriteData};
    let w = careful();
    let a = File::Open(&w.a, &w.open);
    let b = File::Stateless(&w.b);
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    let write = w.asked(|g, cx| g.write(cx, a, at, b"some data"));
    assert_eq!(write, [("a", WriteData)]);
    let first = |set: SetAttrs| w.asked(|g, cx| g.write_first(cx, b, b"some data", &set));
    assert_eq!(first(SetAttrs::default()), [("b", WriteData)]);
    let timed = SetAttrs { mtime: Some(SetTime::Now), ..SetAttrs::default() };
    assert_eq!(first(timed), [("b", WriteData), ("b", ChangeAttrs)]);
    assert_eq!(w.asked(|g, cx| g.read(cx, a, 0, &mut [0; 4])), [("a", ReadData)]);
    assert_eq!(w.asked(|g, cx| g.read_span(cx, a, 0, 4)), [("a", ReadData)]);
    assert_eq!(w.asked(|g, cx| g.seek(cx, a, 0, Seek::Data)), [("a", ReadData)]);
    assert_eq!(w.asked(|g, cx| g.region(cx, a, 0, 4, Region::Allocate)), [("a", WriteData)]);
    let span = CopySpan { from: 0, to: 0, bytes: 4 };
    assert_eq!(w.asked(|g, cx| g.copy(cx, a, b, span)), [("a", ReadData), ("b", WriteData)]);
    let span = CopySpan { bytes: 0, ..span };
    assert_eq!(w.asked(|g, cx| g.clone_range(cx, a, b, span)), [("a", ReadData), ("b", WriteData)]);
    let set = |set: SetAttrs| w.asked(|g, cx| g.setattr(cx, b, &set, None));
    assert_eq!(set(size(0)), [("b", Truncate)]);
    assert_eq!(set(size(5)), [("b", WriteData)]);
    assert_eq!(set(SetAttrs { mode: Some(0o600), ..size(1) }), [("b", WriteData), ("b", ChangeAttrs)]);
    assert_eq!(set(SetAttrs { mtime: Some(SetTime::Now), ..SetAttrs::default() }), [("b", ChangeAttrs)]);
    assert_eq!(set(SetAttrs::default()), [("b", ChangeAttrs)]);
    let setxattr = |g: &Guarded, cx: &Cx<'_>| g.setxattr(cx, &w.b, b"user.x", b"1", XattrMode::Either);
    assert_eq!(w.asked(setxattr), [("b", ChangeAttrs)]);
    assert_eq!(w.asked(|g, cx| g.getxattr(cx, &w.b, b"user.x")), [("b", LookXattrs)]);
    assert_eq!(w.asked(|g, cx| g.listxattr(cx, &w.b)), [("b", LookXattrs)]);
    assert_eq!(w.asked(|g, cx| g.access_lists(cx, File::Stateless(&w.b))), [("b", LookXattrs)]);
    assert_eq!(w.asked(|g, cx| g.removexattr(cx, &w.b, b"user.x")), [("b", ChangeAttrs)]);
}

#[test]
fn every_change_of_names_asks_for_its_directories_then_for_what_lies_behind_the_names_then_for_those() {
    use Deed::ChangeName;
    let w = careful();
    let none = SetAttrs::default();
    let make = w.asked(|g, cx| g.make(cx, &w.root, name(b"e"), NewNode::Directory, &none));
    assert_eq!(make, [("/", ADDS), ("/e", ANY)]);
    let link = w.asked(|g, cx| g.link(cx, &w.a, &w.root, name(b"a2")));
    assert_eq!(link, [("/", ADDS), ("a", ChangeName), ("/a2", ANY)]);
    let rename =
        w.asked(|g, cx| g.rename(cx, (&w.dir, name(b"a")), (&w.root, name(b"c")), RenameFlags::Replace));
    let names = [("d/a", ANY), ("/c", ANY)];
    assert_eq!(rename[..4], [("d", REMOVES), ("/", ADDS), ("a", ChangeName), ("c", ChangeName)]);
    assert_eq!(rename[4..], names);
    let remove = w.asked(|g, cx| g.remove(cx, &w.dir, name(b"b"), RemoveKind::NonDirectory));
    assert_eq!(remove, [("d", REMOVES), ("b", ChangeName), ("d/b", ANY)]);
    let rmdir = w.asked(|g, cx| g.remove(cx, &w.root, name(b"d"), RemoveKind::Directory));
    assert_eq!(rmdir, [("/", REMOVES), ("d", ChangeName), ("/d", ANY)]);
}

#[test]
fn a_rename_asks_for_each_directory_as_it_is_told() {
    let w = World::new();
    let rename = |from, to, flags| w.asked(|g, cx| g.rename(cx, from, to, flags));
    let [a, b, c] = [(&w.dir, name(b"a")), (&w.dir, name(b"b")), (&w.root, name(b"c"))];
    assert_eq!(rename(a, (&w.dir, name(b"new")), RenameFlags::NoReplace), [("d", RENAMES), ("d", RENAMES)]);
    assert_eq!(rename(b, c, RenameFlags::Exchange), [("d", ADDS), ("/", ADDS)]);
    assert_eq!(rename(c, (&w.dir, name(b"newer")), RenameFlags::Replace), [("/", REMOVES), ("d", ADDS)]);
}

#[test]
fn a_create_asks_for_the_directory_or_for_what_is_there() {
    use CreateMode::{Guarded as MustBeNew, MustExist, Unchecked};
    use Deed::{LookEntries, OpenRead, OpenWrite, Truncate};
    let (w, none) = (careful(), SetAttrs::default());
    let new = create(&w, (&w.dir, b"new"), (Unchecked, size(0), Some(BOTH)));
    assert_eq!(new, [("d", ADDS), ("d/new", ANY)]);
    let newer = create(&w, (&w.dir, b"newer"), (MustBeNew, none, None));
    assert_eq!(newer, [("d", ADDS), ("d/newer", ANY)]);
    let made = w.asked(|g, cx| g.make_file(cx, &w.root, name(b"e"), (&none, Some(BOTH))));
    assert_eq!(made, [("/", ADDS), ("/e", ANY)]);
    assert_eq!(
        create(&w, (&w.dir, b"a"), (MustExist, none, Some(READ))),
        [("d", LookEntries), ("a", OpenRead)]
    );
    assert_eq!(create(&w, (&w.dir, b"a"), (Unchecked, none, None)), [("d", LookEntries)]);
    let cut = create(&w, (&w.dir, b"a"), (Unchecked, size(0), None));
    assert_eq!(cut, [("d", LookEntries), ("a", Truncate)]);
    let cut = create(&w, (&w.dir, b"a"), (Unchecked, size(0), Some(BOTH)));
    assert_eq!(cut, [("d", LookEntries), ("a", Truncate), ("a", OpenWrite)]);
}

#[test]
fn looking_around_asks_for_what_it_looks_at() {
    use Deed::{LookAttrs, LookEntries, LookRights, OpenRead, OpenWrite};
    let w = careful();
    assert_eq!(w.asked(|g, cx| g.getattr(cx, &w.a, AttrMask::STAT)), [("a", LookAttrs)]);
    assert_eq!(w.asked(|g, cx| g.getattr(cx, &w.dir, AttrMask::STAT)), [("d", LookAttrs)]);
    let lookup = |want| w.asked(|g, cx| g.lookup(cx, &w.dir, name(b"a"), want));
    assert_eq!(lookup(AttrMask::STAT), [("d", LookEntries), ("a", LookAttrs)]);
    assert_eq!(lookup(AttrMask::NONE), [("d", LookEntries)]);
    assert_eq!(w.asked(|g, cx| g.parent(cx, &w.dir, AttrMask::STAT)), []);
    assert_eq!(w.asked(|g, cx| g.access(cx, &w.a, AccessMask::READ)), [("a", LookRights)]);
    assert_eq!(w.asked(|g, cx| g.usage(cx, &w.a)), []);
    assert_eq!(w.asked(|g, cx| g.open(cx, &w.a, READ)), [("a", OpenRead)]);
    assert_eq!(w.asked(|g, cx| g.open(cx, &w.a, BOTH)), [("a", OpenWrite)]);
    let list = |want| DirListing { dir: &w.dir, from: Cookie(0), want };
    let names = w.asked(|g, cx| g.readdir(cx, list(None), &mut |_| Flow::Continue));
    assert_eq!(names, [("d", LookEntries)]);
    let all = w.asked(|g, cx| g.readdir(cx, list(Some(AttrMask::STAT)), &mut |_| Flow::Continue));
    assert_eq!(all, [("d", LookEntries), ("a", LookAttrs), ("b", LookAttrs)]);
}

#[test]
fn while_nothing_is_promised_nothing_behind_names_is_looked_for() {
    let w = World::new();
    let remove = w.asked(|g, cx| g.remove(cx, &w.dir, name(b"b"), RemoveKind::NonDirectory));
    assert_eq!(remove, [("d", REMOVES)]);
    assert_eq!(w.asked(|g, cx| g.read(cx, File::Stateless(&w.a), 0, &mut [0; 4])), []);
}

#[test]
fn what_is_promised_to_another_is_not_done_and_ones_own_is() {
    let w = World::new();
    let token = w.promise(&w.b, DelegationKind::Read);
    let remove = |by| w.guarded.remove(&w.cx().by(by), &w.dir, name(b"b"), RemoveKind::NonDirectory);
    assert_eq!(remove(None).err(), Some(FsError::Delay));
    assert_eq!(remove(Some(ClientId(8))).err(), Some(FsError::Delay));
    let impatient = Cx { wait: Wait::No, ..w.cx() };
    let hasty = w.guarded.remove(&impatient, &w.dir, name(b"b"), RemoveKind::NonDirectory);
    assert_eq!(hasty.err(), Some(FsError::WouldBlock));
    assert!(w.guarded.read(&w.cx(), File::Stateless(&w.b), 0, &mut [0; 4]).is_ok());
    assert!(remove(Some(HOLDER)).is_ok());
    w.manager.end_promise(w.b.key(), token);
    assert!(w.manager.promises().is_empty());
    assert!(!w.manager.has_promises());
}

#[test]
fn a_name_promised_by_itself_is_changed_by_nobody_else_and_other_names_by_everybody() {
    let w = World::new();
    let promised = |dir: &Handle, n: &'static [u8]| {
        assert!(w.manager.put_caps_in_force((HOLDER, w.key_of(dir, n)), CapSet::FILE_S));
    };
    promised(&w.dir, b"a");
    promised(&w.dir, b"free");
    let by = |client| w.cx().by(client);
    let (cx, own) = (by(Some(ClientId(8))), by(Some(HOLDER)));
    let (g, none) = (&w.guarded, SetAttrs::default());
    let (a, free, c) = ((&w.dir, name(b"a")), (&w.dir, name(b"free")), (&w.root, name(b"c")));
    let put_off = Some(FsError::Delay);
    assert_eq!(g.remove(&cx, a.0, a.1, RemoveKind::NonDirectory).err(), put_off);
    assert_eq!(g.remove_seen(&cx, a.0, a.1, RemoveKind::NonDirectory, &w.a).err(), put_off);
    assert_eq!(g.rename(&cx, a, c, RenameFlags::Replace).err(), put_off);
    assert_eq!(g.rename(&cx, c, a, RenameFlags::Replace).err(), put_off);
    assert_eq!(g.rename(&cx, c, a, RenameFlags::Exchange).err(), put_off);
    assert_eq!(g.link(&cx, &w.c, free.0, free.1).err(), put_off);
    let spare = g.make_spare(&cx, &w.dir).unwrap();
    assert_eq!(g.place(&cx, &spare, free.0, free.1, &none).err(), put_off);
    assert_eq!(g.make(&cx, free.0, free.1, NewNode::Directory, &none).err(), put_off);
    assert_eq!(g.make_file(&cx, free.0, free.1, (&none, None)).err(), put_off);
    for mode in [CreateMode::Guarded, CreateMode::Unchecked] {
        let how = CreateHow { mode, set: &none, open: None, want: AttrMask::NONE };
        assert_eq!(g.create(&cx, free.0, free.1, &how).err(), put_off);
    }
    // What is there is opened by name, and other names come and go.
    let how = CreateHow { mode: CreateMode::Unchecked, set: &none, open: None, want: AttrMask::NONE };
    assert!(g.create(&cx, a.0, a.1, &how).is_ok());
    assert!(g.create(&cx, &w.dir, name(b"other"), &how).is_ok());
    assert!(g.remove(&cx, &w.dir, name(b"b"), RemoveKind::NonDirectory).is_ok());
    assert!(g.link(&cx, &w.a, &w.dir, name(b"a2")).is_ok());
    // A name of the same spelling in another directory is another name.
    assert!(g.link(&cx, &w.a, &w.root, name(b"a")).is_ok());
    assert!(g.rename(&own, a, free, RenameFlags::Replace).is_ok(), "one's own promise is not in the way");
    w.manager.settle_caps((HOLDER, w.key_of(&w.dir, b"a")));
    assert!(g.rename(&cx, c, a, RenameFlags::Replace).is_ok());
    w.manager.settle_caps((HOLDER, w.key_of(&w.dir, b"free")));
    assert!(w.manager.promises().is_empty() && !w.manager.has_promises());
}

#[test]
fn a_name_is_not_promised_while_it_is_being_changed() {
    let w = careful();
    let index = w.manager.promises();
    let key = w.key_of(&w.dir, b"a");
    let entered = index.enter(key, ANY, None).unwrap();
    assert!(!w.manager.put_caps_in_force((HOLDER, key), CapSet::FILE_S));
    drop(entered);
    assert!(w.manager.put_caps_in_force((HOLDER, key), CapSet::FILE_S));
}

#[test]
fn nothing_is_promised_while_it_is_being_changed() {
    let w = World::new();
    let index = w.manager.promises();
    let entered = index.enter(w.a.key(), Deed::WriteData, None).unwrap();
    let wanted = ((w.a.key(), HOLDER), (DelegationToken(3), DelegationKind::Read));
    assert!(!w.manager.put_in_force(wanted.0, wanted.1));
    drop(entered);
    assert!(w.manager.put_in_force(wanted.0, wanted.1));
    assert!(index.enter(w.a.key(), Deed::WriteData, None).is_err());
    assert!(index.enter(w.a.key(), Deed::WriteData, Some(HOLDER)).is_ok());
}

#[test]
fn a_guarded_backend_is_a_backend() {
    run(&|| {
        let fs: Arc<dyn Backend> = Arc::new(MemBackend::new(&MemOptions::deterministic()));
        let manager = manager(0);
        let reason = (FileKey(1), HOLDER);
        assert!(manager.put_in_force(reason, (DelegationToken(1), DelegationKind::Read)));
        TestBackend {
            backend: Guarded::new(fs, &manager),
            abilities: Abilities {
                acts_as_callers: true,
                makes_devices: true,
                has_outside_locks: false,
                keeps_handles_of_open_removed: true,
            },
            reopen: None,
            neighbour: None,
            keep: Box::new(manager),
        }
    });
}

/// A method with a default body that is not passed on would silently do nothing for every export.
#[test]
fn every_method_of_a_backend_is_passed_on() {
    let methods = |text: &'static str, from: &str| -> Vec<&str> {
        let body = text.split_once(from).unwrap().1.split_once("\n}\n").unwrap().0;
        let lines = body.lines().filter_map(|line| line.strip_prefix("    fn "));
        lines.map(|line| line.split_once('(').unwrap().0).collect()
    };
    let all = methods(include_str!("../../../vfs/src/backend.rs"), "pub trait Backend");
    let passed_on = methods(include_str!("mod.rs"), "impl Backend for Guarded");
    assert!(all.len() > 30);
    let left_out: Vec<_> = all.into_iter().filter(|method| !passed_on.contains(method)).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn while_delegations_may_be_reclaimed_nothing_is_changed_that_they_might_forbid() {
    let w = World::new();
    let none = SetAttrs::default();
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    let remove = |n| w.guarded.remove(&w.cx(), &w.dir, name(n), RemoveKind::NonDirectory).map(drop);
    let flags = RenameFlags::Replace;
    let rename = || w.guarded.rename(&w.cx(), (&w.dir, name(b"a")), (&w.dir, name(b"b")), flags).map(drop);
    let make = || w.guarded.make(&w.cx(), &w.root, name(b"e"), NewNode::Directory, &none).map(drop);
    let how = CreateHow { mode: CreateMode::Guarded, set: &none, open: None, want: AttrMask::NONE };
    let changes: [&dyn Fn() -> Result<(), FsError>; 9] = [
        &|| w.guarded.write(&w.cx(), File::Stateless(&w.a), at, b"x").map(drop),
        &|| w.guarded.setattr(&w.cx(), File::Stateless(&w.a), &size(0), None).map(drop),
        &|| w.guarded.setattr(&w.cx(), File::Stateless(&w.a), &size(7), None).map(drop),
        &|| w.guarded.link(&w.cx(), &w.a, &w.root, name(b"l")).map(drop),
        &make,
        &|| w.guarded.create(&w.cx(), &w.root, name(b"n"), &how).map(drop),
        &rename,
        &|| remove(b"b"),
        &|| remove(b"none"),
    ];
    w.manager.await_reclaims(Unreclaimed::Capabilities);
    w.manager.await_reclaims(Unreclaimed::Capabilities);
    for change in changes {
        assert_eq!(change(), Err(FsError::Delay));
    }
    assert!(w.guarded.read(&w.cx(), File::Stateless(&w.a), 0, &mut [0; 4]).is_ok());
    w.manager.await_no_more_than(Unreclaimed::Nothing);
    for change in changes.into_iter().take(6) {
        assert_eq!(change(), Ok(()));
    }
    assert_eq!((rename(), remove(b"b"), remove(b"none")), (Ok(()), Ok(()), Err(FsError::NotFound)));
    assert!(!w.manager.has_promises());
}

#[test]
fn an_exclusive_create_is_known_again_while_nothing_may_be_made() {
    let w = World::new();
    let none = SetAttrs::default();
    let create = |n, verifier| {
        let mode = CreateMode::Exclusive(Exclusive([verifier; 8]));
        let how = CreateHow { mode, set: &none, open: None, want: AttrMask::NONE };
        w.guarded.create(&w.cx(), &w.root, name(n), &how).map(|created| (created.node.handle, created.is_new))
    };
    let (made, _) = create(b"x", 7).unwrap();
    w.manager.await_reclaims(Unreclaimed::Capabilities);
    assert_eq!(create(b"x", 7), Ok((made, false)));
    assert_eq!(create(b"x", 8), Err(FsError::Exists));
    assert_eq!(create(b"y", 7), Err(FsError::Delay));
    w.manager.await_no_more_than(Unreclaimed::Nothing);
    assert_eq!(create(b"x", 7), Ok((made, false)));
    assert!(create(b"y", 7).is_ok_and(|(_, is_new)| is_new));
}

#[test]
fn where_nobody_can_have_had_a_directory_alone_things_are_made_in_it_while_delegations_may_be_reclaimed() {
    let w = World::new();
    let none = SetAttrs::default();
    let create = |name, mode| {
        let how = CreateHow { mode, set: &none, open: None, want: AttrMask::NONE };
        w.guarded.create(&w.cx(), &w.root, name, &how).map(drop)
    };
    let make = |n| w.guarded.make(&w.cx(), &w.root, name(n), NewNode::Directory, &none).map(drop);
    let remove = |n| w.guarded.remove(&w.cx(), &w.dir, name(n), RemoveKind::NonDirectory).map(drop);
    w.manager.await_reclaims(Unreclaimed::Delegations);
    assert_eq!(make(b"directory"), Ok(()));
    assert_eq!(create(name(b"guarded"), CreateMode::Guarded), Ok(()));
    assert_eq!(create(name(b"exclusive"), CreateMode::Exclusive(Exclusive([7; 8]))), Ok(()));
    assert_eq!(remove(b"none"), Err(FsError::NotFound));
    assert_eq!(remove(b"b"), Err(FsError::Delay), "it may be delegated");
    // The same once the last mount has come back.
    w.manager.await_reclaims(Unreclaimed::Capabilities);
    assert_eq!(make(b"another"), Err(FsError::Delay));
    w.manager.await_no_more_than(Unreclaimed::Delegations);
    assert_eq!((make(b"another"), remove(b"b")), (Ok(()), Err(FsError::Delay)));
    // Who has seen less of it before the end changes nothing after it.
    w.manager.await_no_more_than(Unreclaimed::Nothing);
    w.manager.await_no_more_than(Unreclaimed::Delegations);
    assert_eq!(remove(b"b"), Ok(()));
    assert!(!w.manager.has_promises());
}

/// A name of a directory, and what it stands for.
type Told = (FileKey, Vec<u8>, Option<Handle>);

/// What those who are told of entries heard.
#[derive(Default)]
struct Heard(parking_lot::Mutex<Vec<Told>>);

impl crate::Agent for Heard {
    fn run(&self, _: &holdfast_state::Effect) -> Result<(), crate::NotKept> {
        Ok(())
    }

    fn entries_changed(&self, change: &crate::EntryChange<'_>) {
        let crate::Entry::Added { name, node, replaces: true } = change.what else {
            panic!("{change:?}: nothing is gone, and nothing is new")
        };
        let node = node.map(|node| node.handle);
        assert_eq!(change.by, Some(HOLDER));
        self.0.lock().push((change.dir, name.as_bytes().to_vec(), node));
    }
}

#[test]
fn of_names_that_change_places_each_is_told_to_stand_for_what_the_other_did() {
    let w = World::new();
    let heard = Arc::new(Heard::default());
    let agent: Arc<dyn crate::Agent> = Arc::clone(&heard) as _;
    w.manager.register(Arc::downgrade(&agent));
    w.promise(&w.dir, DelegationKind::NotifiedDirectory(EntryKinds::ADD));
    let by_holder = Cx::new(&w.caller, Wait::Yes).by(Some(HOLDER));
    for to in [(&w.dir, name(b"b")), (&w.root, name(b"c"))] {
        w.guarded.rename(&by_holder, (&w.dir, name(b"a")), to, RenameFlags::Exchange).unwrap();
    }
    let key = w.dir.key();
    let expected = [
        (key, b"a".to_vec(), Some(w.b)),
        (key, b"b".to_vec(), Some(w.a)),
        (key, b"a".to_vec(), Some(w.c)),
        (w.root.key(), b"c".to_vec(), Some(w.b)),
    ];
    assert_eq!(*heard.0.lock(), expected);
}

/// Names that came to a directory and went from it.
#[derive(Default)]
struct Entries(parking_lot::Mutex<Vec<(char, Vec<u8>)>>);

impl crate::Agent for Entries {
    fn run(&self, _: &holdfast_state::Effect) -> Result<(), crate::NotKept> {
        Ok(())
    }

    fn entries_changed(&self, change: &crate::EntryChange<'_>) {
        let told = match change.what {
            crate::Entry::Added { name, node: Some(_), replaces: false } => ('+', name.as_bytes().to_vec()),
            crate::Entry::Removed { name } => ('-', name.as_bytes().to_vec()),
            _ => panic!("{change:?}"),
        };
        self.0.lock().push(told);
    }
}

#[test]
fn what_is_made_and_removed_without_a_look_is_told_to_whoever_is_told_of_entries() {
    let w = World::new();
    let heard = Arc::new(Entries::default());
    let agent: Arc<dyn crate::Agent> = Arc::clone(&heard) as _;
    w.manager.register(Arc::downgrade(&agent));
    let by_holder = Cx::new(&w.caller, Wait::Yes).by(Some(HOLDER));
    let (g, none, new) = (&w.guarded, SetAttrs::default(), name(b"new"));
    let both = || {
        let made = g.make_file(&by_holder, &w.dir, new, (&none, None)).unwrap();
        let removed = g.remove_seen(&by_holder, &w.dir, new, RemoveKind::NonDirectory, &made.handle);
        assert_eq!(removed.unwrap().map(|removed| removed.is_gone), Some(true));
        assert_eq!(g.remove_seen(&by_holder, &w.dir, name(b"a"), RemoveKind::NonDirectory, &w.b), Ok(None));
    };
    both();
    assert!(heard.0.lock().is_empty(), "there is nobody to be told");
    w.promise(&w.dir, DelegationKind::NotifiedDirectory(EntryKinds::ADD.union(EntryKinds::REMOVE)));
    both();
    assert_eq!(*heard.0.lock(), [('+', b"new".to_vec()), ('-', b"new".to_vec())]);
}
