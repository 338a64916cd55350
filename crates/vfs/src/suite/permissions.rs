//! Whose permissions count. Backends that serve everybody as one user are asked none of this.

use std::sync::Arc;

use holdfast_base::{Cookie, Timestamp};

use super::TestBackend;
use super::world::{BOTH, READ, WRITE, World, at, cx, how, mode, name, user};
use crate::attrs::{AccessMask, AttrMask, SetAttrs, SetTime};
use crate::caller::Caller;
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::listing::{DirListing, Flow};
use crate::making::NewNode;
use crate::open::{CreateMode, File, OpenMode, RemoveKind};

const OWNER: u32 = 4001;
const OTHER: u32 = 4002;

/// A world, a directory all may write to, and a file of `OWNER`'s in it.
fn owned(t: TestBackend, bits: u32) -> Option<(World, Handle, Handle)> {
    if !t.abilities.acts_as_callers {
        return None;
    }
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o777);
    let made = w.b().create(&cx(&user(OWNER)), &dir, name("file"), &how(CreateMode::Guarded, &mode(0o600)));
    let file = made.unwrap().node.handle;
    w.write(&file, 0, b"content");
    w.set(&file, &mode(bits)).unwrap();
    Some((w, dir, file))
}

fn open(w: &World, caller: &Caller, file: &Handle, m: OpenMode) -> FsResult<()> {
    w.b().open(&cx(caller), file, m).map(drop)
}

fn write(w: &World, caller: &Caller, file: &Handle) -> FsResult<usize> {
    w.b().write(&cx(caller), File::Stateless(file), at(0), b"C").map(|done| done.bytes)
}

pub(super) fn the_kernels_permission_bits_are_judged_for_the_caller(t: TestBackend) {
    let Some((w, dir, file)) = owned(t, 0o640) else { return };
    let other = user(OTHER);
    assert_eq!(open(&w, &user(OWNER), &file, BOTH), Ok(()));
    assert_eq!(open(&w, &other, &file, READ), Err(FsError::Access));
    assert_eq!(w.read_as(&other, File::Stateless(&file)), Err(FsError::Access));
    assert_eq!(write(&w, &other, &file), Err(FsError::Access));
    let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
    let cut = w.b().setattr(&cx(&other), File::Stateless(&file), &cut, None);
    assert_eq!(cut.map(drop), Err(FsError::Access));
    w.set(&dir, &mode(0o755)).unwrap();
    let made = w.b().create(&cx(&other), &dir, name("new"), &how(CreateMode::Guarded, &mode(0o600)));
    assert_eq!(made.map(drop).unwrap_err(), FsError::Access);
    let removed = w.b().remove(&cx(&other), &dir, name("file"), RemoveKind::Any);
    assert_eq!(removed.map(drop), Err(FsError::Access));
    // The superuser is asked nothing.
    assert_eq!(open(&w, &Caller::root(), &file, BOTH), Ok(()));
}

pub(super) fn group_membership_counts(t: TestBackend) {
    let Some((w, _, file)) = owned(t, 0o640) else { return };
    let member = |gid, groups: &[u32]| Caller { uid: OTHER, gid, groups: groups.into() };
    assert_eq!(open(&w, &member(OWNER, &[]), &file, READ), Ok(()));
    assert_eq!(open(&w, &member(1, &[2, 3, OWNER]), &file, READ), Ok(()));
    assert_eq!(open(&w, &member(1, &[2, 3]), &file, READ), Err(FsError::Access));
    assert_eq!(open(&w, &member(1, &[OWNER]), &file, WRITE), Err(FsError::Access));
    assert_eq!(open(&w, &member(1, &[]), &file, READ), Err(FsError::Access));
}

/// RFC 1813 section 4.4: the owner passed the check when he opened the file, before he took the right away.
pub(super) fn the_owner_reads_and_writes_whatever_the_mode_says(t: TestBackend) {
    let Some((w, _, file)) = owned(t, 0o000) else { return };
    let (owner, other) = (user(OWNER), user(OTHER));
    assert_eq!(w.read_as(&owner, File::Stateless(&file)).unwrap(), b"content");
    assert_eq!(write(&w, &owner, &file), Ok(1));
    let cut = SetAttrs { size: Some(3), ..SetAttrs::default() };
    w.b().setattr(&cx(&owner), File::Stateless(&file), &cut, None).unwrap();
    assert_eq!(w.read(&file), b"Con");
    // An open that checks by itself is judged as POSIX does.
    assert_eq!(open(&w, &owner, &file, READ), Err(FsError::Access));
    assert_eq!(open(&w, &owner, &file, WRITE), Err(FsError::Access));
    let excepted = |m| OpenMode { nfs_exceptions: true, ..m };
    assert_eq!(open(&w, &owner, &file, excepted(BOTH)), Ok(()));
    assert_eq!(open(&w, &other, &file, excepted(READ)), Err(FsError::Access));
    assert_eq!(write(&w, &other, &file), Err(FsError::Access));
}

/// To run a file over NFS is to read it (RFC 1813 section 4.4).
pub(super) fn who_may_execute_may_read(t: TestBackend) {
    let Some((w, _, file)) = owned(t, 0o711) else { return };
    let other = user(OTHER);
    assert_eq!(w.read_as(&other, File::Stateless(&file)).unwrap(), b"content");
    assert_eq!(open(&w, &other, &file, OpenMode { nfs_exceptions: true, ..READ }), Ok(()));
    assert_eq!(open(&w, &other, &file, READ), Err(FsError::Access));
    assert_eq!(open(&w, &other, &file, OpenMode { nfs_exceptions: true, ..BOTH }), Err(FsError::Access));
    assert_eq!(write(&w, &other, &file), Err(FsError::Access));
}

pub(super) fn new_objects_belong_to_the_caller(t: TestBackend) {
    let Some((w, dir, file)) = owned(t, 0o600) else { return };
    let caller = Caller { uid: OTHER, gid: 77, groups: Arc::new([88]) };
    let attrs = w.attrs(&file);
    assert_eq!((attrs.uid, attrs.gid), (OWNER, OWNER));
    for (n, what) in [("d", NewNode::Directory), ("l", NewNode::Symlink(b"x")), ("f", NewNode::Fifo)] {
        let (node, _) = w.b().make(&cx(&caller), &dir, name(n), what, &mode(0o755)).unwrap();
        assert_eq!((node.attrs.uid, node.attrs.gid), (OTHER, 77), "{n}");
    }
    let set = SetAttrs { gid: Some(88), ..mode(0o644) };
    let made = w.b().create(&cx(&caller), &dir, name("g"), &how(CreateMode::Guarded, &set)).unwrap();
    assert_eq!((made.node.attrs.uid, made.node.attrs.gid, made.node.attrs.mode), (OTHER, 88, 0o644));
    let set = SetAttrs { uid: Some(OWNER), ..mode(0o644) };
    let made = w.b().create(&cx(&caller), &dir, name("h"), &how(CreateMode::Guarded, &set));
    assert_eq!(made.map(drop).unwrap_err(), FsError::Perm);
    assert_eq!(w.find(&dir, "h").unwrap_err(), FsError::NotFound, "what failed leaves nothing");
    let set = SetAttrs { uid: Some(OTHER), gid: Some(99), ..mode(0o6755) };
    let made = w.b().create(&w.cx(), &dir, name("i"), &how(CreateMode::Guarded, &set)).unwrap();
    assert_eq!((made.node.attrs.uid, made.node.attrs.gid, made.node.attrs.mode), (OTHER, 99, 0o6755));
}

pub(super) fn a_setgid_directory_hands_its_group_down(t: TestBackend) {
    let Some((w, dir, _)) = owned(t, 0o600) else { return };
    w.set(&dir, &SetAttrs { gid: Some(55), ..SetAttrs::default() }).unwrap();
    w.set(&dir, &mode(0o2777)).unwrap();
    let caller = user(OTHER);
    let made = w.b().create(&cx(&caller), &dir, name("f"), &how(CreateMode::Guarded, &mode(0o644))).unwrap();
    assert_eq!(made.node.attrs.gid, 55);
    let (below, _) = w.b().make(&cx(&caller), &dir, name("d"), NewNode::Directory, &mode(0o755)).unwrap();
    assert_eq!((below.attrs.gid, below.attrs.mode), (55, 0o2755));
    // A caller outside the group does not get a set-gid file of it.
    let made = w.b().create(&cx(&caller), &dir, name("s"), &how(CreateMode::Guarded, &mode(0o2755))).unwrap();
    assert_eq!((made.node.attrs.gid, made.node.attrs.mode), (55, 0o755));
}

pub(super) fn the_sticky_bit_protects_others_files(t: TestBackend) {
    let Some((w, dir, _)) = owned(t, 0o666) else { return };
    w.set(&dir, &mode(0o1777)).unwrap();
    let remove = |uid| w.b().remove(&cx(&user(uid)), &dir, name("file"), RemoveKind::Any).map(drop);
    assert_eq!(remove(OTHER), Err(FsError::Perm));
    assert_eq!(remove(OWNER), Ok(()));
}

pub(super) fn writing_clears_set_id_bits(t: TestBackend) {
    let Some((w, _, file)) = owned(t, 0o6777) else { return };
    assert_eq!(write(&w, &user(OTHER), &file), Ok(1));
    assert_eq!(w.attrs(&file).mode, 0o777);
    w.set(&file, &mode(0o6777)).unwrap();
    let open = w.b().open(&cx(&user(OTHER)), &file, WRITE).unwrap();
    w.b().write(&cx(&user(OTHER)), File::Open(&file, &open), at(0), b"x").unwrap();
    assert_eq!(w.attrs(&file).mode, 0o777);
    w.set(&file, &mode(0o6777)).unwrap();
    w.set(&file, &SetAttrs { uid: Some(OTHER), ..SetAttrs::default() }).unwrap();
    assert_eq!(w.attrs(&file).mode, 0o777, "a new owner gets no set-id program");
}

pub(super) fn only_the_owner_changes_mode_and_times(t: TestBackend) {
    let Some((w, _, file)) = owned(t, 0o666) else { return };
    let set =
        |uid, set: &SetAttrs| w.b().setattr(&cx(&user(uid)), File::Stateless(&file), set, None).map(drop);
    let past = SetTime::At(Timestamp { seconds: 1000, nanos: 0 });
    let times = SetAttrs { mtime: Some(past), ..SetAttrs::default() };
    assert_eq!(set(OTHER, &mode(0o777)), Err(FsError::Perm));
    assert_eq!(set(OTHER, &times), Err(FsError::Perm));
    assert_eq!(set(OWNER, &mode(0o600)), Ok(()));
    assert_eq!(set(OWNER, &times), Ok(()));
    assert_eq!(w.attrs(&file).mtime.seconds, 1000);
}

/// RFC 1813 section 3.3.2: as O_TRUNC does it, with one time or both.
pub(super) fn who_may_write_sets_times_to_now(t: TestBackend) {
    let Some((w, _, file)) = owned(t, 0o622) else { return };
    let now = Some(SetTime::Now);
    let set = |set: &SetAttrs| w.b().setattr(&cx(&user(OTHER)), File::Stateless(&file), set, None).map(drop);
    assert_eq!(set(&SetAttrs { mtime: now, ..SetAttrs::default() }), Ok(()));
    assert_eq!(set(&SetAttrs { mtime: now, atime: now, size: Some(0), ..SetAttrs::default() }), Ok(()));
    w.set(&file, &mode(0o644)).unwrap();
    assert!(set(&SetAttrs { mtime: now, ..SetAttrs::default() }).is_err());
}

pub(super) fn giving_a_file_away_is_the_superusers(t: TestBackend) {
    let Some((w, _, file)) = owned(t, 0o644) else { return };
    let caller = Caller { uid: OWNER, gid: OWNER, groups: Arc::new([66]) };
    let give = |set: &SetAttrs| w.b().setattr(&cx(&caller), File::Stateless(&file), set, None).map(drop);
    assert_eq!(give(&SetAttrs { uid: Some(OTHER), ..SetAttrs::default() }), Err(FsError::Perm));
    assert_eq!(give(&SetAttrs { gid: Some(67), ..SetAttrs::default() }), Err(FsError::Perm));
    assert_eq!(give(&SetAttrs { gid: Some(66), ..SetAttrs::default() }), Ok(()));
    let both = SetAttrs { uid: Some(OTHER), size: Some(0), ..SetAttrs::default() };
    assert_eq!(give(&both), Err(FsError::Perm));
    assert_eq!(w.attrs(&file).size, 7, "a refused set leaves all as it was");
}

pub(super) fn access_tells_the_same_as_the_attempt(t: TestBackend) {
    use AccessMask as A;
    let Some((w, dir, file)) = owned(t, 0o000) else { return };
    let all = A::from_wire(0x3f);
    let access = |caller: &Caller, object| w.b().access(&cx(caller), object, all).unwrap().granted;
    for bits in 0..8 {
        w.set(&file, &mode(bits)).unwrap();
        w.set(&dir, &mode(bits)).unwrap();
        let (on_file, on_dir) = (access(&user(OTHER), &file), access(&user(OTHER), &dir));
        let (r, wr, x) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
        let has = |mask: A, right| mask.contains(right);
        assert_eq!((has(on_file, A::READ), has(on_file, A::MODIFY), has(on_file, A::EXTEND)), (r, wr, wr));
        assert_eq!((has(on_file, A::EXECUTE), has(on_file, A::LOOKUP)), (x, false));
        assert_eq!((has(on_dir, A::READ), has(on_dir, A::LOOKUP)), (r, x));
        assert_eq!((has(on_dir, A::MODIFY), has(on_dir, A::DELETE)), (wr && x, wr && x));
    }
    let root = access(&Caller::root(), &file);
    assert!(root.contains(A::READ | A::MODIFY));
    let asked = w.b().access(&cx(&Caller::root()), &file, A::READ).unwrap();
    assert_eq!((asked.meaningful, asked.granted), (A::READ, A::READ), "only what was asked is told");
    let meaningful = |object| w.b().access(&cx(&user(OTHER)), object, all).unwrap().meaningful;
    assert_eq!(meaningful(&file), A::READ | A::MODIFY | A::EXTEND | A::EXECUTE);
    assert_eq!(meaningful(&dir), A::READ | A::LOOKUP | A::MODIFY | A::EXTEND | A::DELETE);
}

pub(super) fn listing_needs_read_and_searching_needs_execute(t: TestBackend) {
    let Some((w, dir, _)) = owned(t, 0o644) else { return };
    let other = user(OTHER);
    let list = || {
        let listing = DirListing { dir: &dir, from: Cookie(0), want: None };
        w.b().readdir(&cx(&other), listing, &mut |_| Flow::Continue).map(drop)
    };
    let find = || w.b().lookup(&cx(&other), &dir, name("file"), AttrMask::STAT).map(drop);
    w.set(&dir, &mode(0o744)).unwrap();
    assert_eq!((list(), find()), (Ok(()), Err(FsError::Access)));
    w.set(&dir, &mode(0o711)).unwrap();
    assert_eq!((list(), find()), (Err(FsError::Access), Ok(())));
    w.set(&dir, &mode(0o700)).unwrap();
    assert_eq!((list(), find()), (Err(FsError::Access), Err(FsError::Access)));
    // Also when the superuser has just found the same name.
    w.find(&dir, "file").unwrap();
    assert_eq!(find(), Err(FsError::Access));
}
