//! The disk cut: the image of a mounted file system is copied at the moment a commit returns, mounted, and holds
//! everything the commit acknowledged. Without the commit, something is missing: else the test would prove nothing.
//! What is in the image need not have been on the medium, had there been one: so each commit is seen to flush the
//! device's cache, too.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use disk::Disk;
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FsError, FsResult, Handle, Name, NewNode,
    OpenMode, Region, RemoveKind, RenameFlags, SetAttrs, Stability, Touched, Wait, WriteAt, XattrMode,
};

const MANY: usize = 60;

struct World {
    backend: LocalBackend,
    caller: Caller,
    touched: Vec<Touched>,
}

fn name(n: &str) -> Name<'_> {
    Name::new(n.as_bytes()).unwrap()
}

fn bytes_of(i: usize) -> Vec<u8> {
    (0..20_000 + 1000 * i).map(|b| (b * 7 + i) as u8).collect()
}

impl World {
    fn cx(&self) -> Cx<'_> {
        Cx::new(&self.caller, Wait::Yes)
    }

    fn touch(&mut self, handle: Handle, data: bool) {
        let touched = Touched { handle, data };
        if !self.touched.contains(&touched) {
            self.touched.push(touched);
        }
    }

    fn mkdir(&mut self, dir: &Handle, n: &str) -> Handle {
        let set = SetAttrs { mode: Some(0o755), ..SetAttrs::default() };
        let made = self.backend.make(&self.cx(), dir, name(n), NewNode::Directory, &set);
        self.touch(*dir, false);
        made.unwrap().0.handle
    }

    fn create(&mut self, dir: &Handle, n: &str, data: &[u8]) -> Handle {
        let set = SetAttrs { mode: Some(0o640), ..SetAttrs::default() };
        let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
        let file = self.backend.create(&self.cx(), dir, name(n), &how).unwrap().node.handle;
        self.touch(*dir, false);
        if !data.is_empty() {
            let at = WriteAt { offset: 0, stability: Stability::FileSync, want_change: false };
            self.backend.write(&self.cx(), File::Stateless(&file), at, data).unwrap();
            self.touch(file, true);
        }
        file
    }

    fn commit(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        let mut results: Vec<FsResult<()>> = vec![Err(FsError::Io); touched.len()];
        self.backend.commit(&touched, &mut results);
        assert_eq!(results, vec![Ok(()); touched.len()]);
    }

    /// As [`Self::commit`], and the device is told to put its cache on the medium before it returns.
    fn commit_to_the_medium(&mut self, disk: &Disk) {
        let flushes = disk.flushes();
        self.commit();
        assert!(disk.flushes() > flushes, "the commit left what it acknowledged in the device's cache");
    }
}

fn open(root: &Path, state: &Path) -> World {
    let backend = LocalBackend::open(root, LocalOptions::new(state.to_owned())).unwrap();
    World { backend, caller: Caller::root(), touched: Vec::new() }
}

/// What is there before, and durable.
fn prepare(w: &mut World) -> (Handle, Handle) {
    let root = w.backend.root().unwrap();
    let old = w.mkdir(&root, "old");
    let new = w.mkdir(&root, "new");
    for i in 0..MANY {
        w.create(&old, &format!("moves{i}"), b"moved content");
        w.create(&old, &format!("goes{i}"), b"");
        w.create(&old, &format!("stays{i}"), b"");
    }
    w.commit();
    (old, new)
}

/// One of each mutation, many times, in an order that leaves no directory the last one touched for long.
fn mutate(w: &mut World, old: &Handle, new: &Handle) {
    for i in 0..MANY {
        w.create(new, &format!("file{i}"), &bytes_of(i));
        let (from, to) = (format!("moves{i}"), format!("moved{i}"));
        w.backend.rename(&w.cx(), (old, name(&from)), (new, name(&to)), RenameFlags::Replace).unwrap();
        w.backend.remove(&w.cx(), old, name(&format!("goes{i}")), RemoveKind::Any).unwrap();
        let stays =
            w.backend.lookup(&w.cx(), old, name(&format!("stays{i}")), AttrMask::STAT).unwrap().handle;
        let set = SetAttrs { mode: Some(0o604), uid: Some(77), size: Some(12_345), ..SetAttrs::default() };
        w.backend.setattr(&w.cx(), File::Stateless(&stays), &set, None).unwrap();
        let value = i.to_string();
        w.backend.setxattr(&w.cx(), &stays, b"user.cut", value.as_bytes(), XattrMode::Either).unwrap();
        w.backend.link(&w.cx(), &stays, new, name(&format!("linked{i}"))).unwrap();
        w.backend
            .make(&w.cx(), new, name(&format!("link{i}")), NewNode::Symlink(b"../text"), &SetAttrs::default())
            .unwrap();
        let below = w.mkdir(new, &format!("dir{i}"));
        w.create(&below, "inside", b"small");
        w.touch(*old, false);
        w.touch(*new, false);
        w.touch(stays, false);
    }
}

/// What of the mutations is missing at `root`; empty when all is there.
fn missing(root: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let (old, new) = (root.join("old"), root.join("new"));
    let mut missing = Vec::new();
    let mut check = |is_there: bool, what: String| {
        if !is_there {
            missing.push(what);
        }
    };
    let holds = |path: &Path, data: &[u8]| std::fs::read(path).is_ok_and(|d| d == data);
    for i in 0..MANY {
        check(holds(&new.join(format!("file{i}")), &bytes_of(i)), format!("data of file{i}"));
        check(holds(&new.join(format!("moved{i}")), b"moved content"), format!("moved{i}"));
        check(!old.join(format!("moves{i}")).exists(), format!("removal of moves{i}"));
        check(!old.join(format!("goes{i}")).exists(), format!("removal of goes{i}"));
        let set = std::fs::metadata(old.join(format!("stays{i}")));
        let is_set =
            set.is_ok_and(|m| (m.mode() & 0o7777, m.uid(), m.size(), m.nlink()) == (0o604, 77, 12_345, 2));
        check(is_set, format!("attributes of stays{i}"));
        let mut value = [0; 8];
        let xattr = rustix::fs::getxattr(new.join(format!("linked{i}")), "user.cut", &mut value[..]);
        check(xattr.is_ok_and(|n| value[..n] == *i.to_string().as_bytes()), format!("xattr of linked{i}"));
        let text = std::fs::read_link(new.join(format!("link{i}")));
        check(text.is_ok_and(|t| t == Path::new("../text")), format!("link{i}"));
        check(holds(&new.join(format!("dir{i}/inside")), b"small"), format!("dir{i}/inside"));
    }
    missing
}

fn survives_a_cut(kind: &str, mkfs: &[&str], cut_options: &str) {
    let disk = Disk::make(kind, mkfs);
    let root = disk.fresh();
    let below = root.strip_prefix(&disk.mount).unwrap().to_owned();
    let state = tempfile::tempdir().unwrap();
    let mut w = open(&root, state.path());
    let (old, new) = prepare(&mut w);
    mutate(&mut w, &old, &new);
    let before = Disk::cut(&disk, cut_options);
    w.commit_to_the_medium(&disk);
    let after = Disk::cut(&disk, cut_options);
    assert_eq!(missing(&root), [] as [String; 0], "{kind}: the test itself");
    assert_eq!(missing(&after.mount.join(&below)), [] as [String; 0], "{kind}: acknowledged and lost");
    let lost = missing(&before.mount.join(&below));
    assert!(!lost.is_empty(), "{kind}: nothing is missing without a commit, so this proves nothing");
}

/// Data alone, again and again in the same files: appended, rewritten in place, punched, in reserved space, through
/// an open file; each round committed by itself.
fn data_survives_a_cut(kind: &str, mkfs: &[&str], cut_options: &str) {
    let disk = Disk::make(kind, mkfs);
    let root = disk.fresh();
    let below = root.strip_prefix(&disk.mount).unwrap().to_owned();
    let state = tempfile::tempdir().unwrap();
    let mut w = open(&root, state.path());
    let top = w.backend.root().unwrap();
    let file = w.create(&top, "file", &[1; 200_000]);
    w.commit();
    let mode = OpenMode { read: true, write: true, nfs_exceptions: false };
    let open = w.backend.open(&w.cx(), &file, mode).unwrap();
    w.backend.region(&w.cx(), File::Open(&file, &open), 1 << 20, 1 << 20, Region::Allocate).unwrap();
    w.touch(file, true);
    w.commit();
    for round in 2..5_u8 {
        for offset in [50_000, 1 << 20, 3_000_000 + u64::from(round) * 100_000] {
            let at = WriteAt { offset, stability: Stability::DataSync, want_change: false };
            w.backend.write(&w.cx(), File::Open(&file, &open), at, &[round; 70_000]).unwrap();
        }
        w.backend
            .region(&w.cx(), File::Open(&file, &open), 4096 * u64::from(round), 4096, Region::Punch)
            .unwrap();
        w.touch(file, true);
        w.commit_to_the_medium(&disk);
        let cut = Disk::cut(&disk, cut_options);
        let (now, then) = (
            std::fs::read(root.join("file")).unwrap(),
            std::fs::read(cut.mount.join(&below).join("file")).unwrap(),
        );
        assert_eq!(now.len(), then.len(), "{kind}, round {round}");
        assert!(now == then, "{kind}, round {round}: the data differs");
    }
}

#[test]
fn what_ext4_acknowledged_survives_a_cut() {
    survives_a_cut("ext4", &[], "");
    data_survives_a_cut("ext4", &[], "");
}

#[test]
fn what_ext4_with_fast_commits_acknowledged_survives_a_cut() {
    survives_a_cut("ext4", &["-O", "fast_commit"], "");
    data_survives_a_cut("ext4", &["-O", "fast_commit"], "");
}

#[test]
fn what_ext4_without_a_journal_acknowledged_of_data_survives_a_cut() {
    data_survives_a_cut("ext4", &["-O", "^has_journal"], "");
}

#[test]
fn what_xfs_acknowledged_survives_a_cut() {
    survives_a_cut("xfs", &[], ",nouuid");
    data_survives_a_cut("xfs", &[], ",nouuid");
}

#[test]
fn what_btrfs_acknowledged_survives_a_cut() {
    // btrfs refuses a second mount of one UUID, so the first must be gone; see `btrfs_cut`.
    btrfs_cut();
}

/// As [`survives_a_cut`], with the copies mounted after the original was unmounted.
fn btrfs_cut() {
    let disk = Disk::make("btrfs", &[]);
    let root = disk.fresh();
    let below = root.strip_prefix(&disk.mount).unwrap().to_owned();
    let state = tempfile::tempdir().unwrap();
    let mut w = open(&root, state.path());
    let (old, new) = prepare(&mut w);
    mutate(&mut w, &old, &new);
    let before = disk.copy_image();
    w.commit_to_the_medium(&disk);
    let after = disk.copy_image();
    drop(w);
    drop(disk);
    let look = |copy: Disk| missing(&copy.mounted("").mount.join(&below));
    assert_eq!(look(after), [] as [String; 0], "btrfs: acknowledged and lost");
    assert!(!look(before).is_empty(), "btrfs: nothing is missing without a commit, so this proves nothing");
}

/// A local process that has written to a file and lets nobody open it, until this is dropped.
struct Writer(Child);

impl Writer {
    fn start(file: &Path) -> Self {
        let script = "import fcntl, os, signal, sys\n\
                      signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
                      fd = os.open(sys.argv[1], os.O_RDWR)\n\
                      os.write(fd, b'new' * 30000)\n\
                      fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
                      print('held', flush=True)\n\
                      sys.stdin.read()\n";
        let mut writer = Command::new("python3");
        writer.args(["-c", script]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut writer = writer.spawn().expect("this test needs python3");
        let mut said = String::new();
        BufReader::new(writer.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Self(writer)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn data_of_what_cannot_be_opened_survives_a_cut() {
    for (kind, mkfs) in [("ext4", &[][..]), ("ext4", &["-O", "^has_journal"]), ("xfs", &[]), ("btrfs", &[])] {
        let disk = Disk::make(kind, mkfs);
        let root = disk.fresh();
        let below = root.strip_prefix(&disk.mount).unwrap().join("file");
        std::fs::write(root.join("file"), "old").unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut w = open(&root, state.path());
        let file = w.backend.lookup(&w.cx(), &w.backend.root().unwrap(), name("file"), AttrMask::STAT);
        let file = file.unwrap().handle;
        rustix::fs::syncfs(std::fs::File::open(&root).unwrap()).unwrap();
        let writer = Writer::start(&root.join("file"));
        let before = disk.copy_image();
        w.touch(file, true);
        w.commit();
        let after = disk.copy_image();
        drop((writer, w));
        drop(disk);
        let look = |copy: Disk| std::fs::read(copy.mounted("").mount.join(&below)).unwrap();
        assert!(look(after) == b"new".repeat(30000), "{kind} {mkfs:?}: acknowledged and lost");
        assert_eq!(
            look(before),
            b"old",
            "{kind} {mkfs:?}: it is there without a commit, so this proves nothing"
        );
    }
}

/// A file of the server's own, of which room is reserved; and what it must hold.
fn own_file(dir: &Path) -> std::fs::File {
    let own = std::fs::File::options().read(true).write(true).create_new(true).open(dir.join("own")).unwrap();
    rustix::fs::fallocate(&own, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    own.sync_all().unwrap();
    own
}

fn own_data() -> Vec<u8> {
    bytes_of(40)
}

/// A commit that takes along what was written to a file of the server's own just before.
fn takes_an_own_file_along(kind: &str, cut_options: &str) {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;
    let disk = Disk::make(kind, &[]);
    let root = disk.fresh();
    let below = root.strip_prefix(&disk.mount).unwrap().to_owned();
    let state = tempfile::tempdir().unwrap();
    let mut w = open(&root, state.path());
    let top = w.backend.root().unwrap();
    let own = own_file(&disk.mount);
    own.write_all_at(&own_data(), 8192).unwrap();
    w.create(&top, "file", b"data");
    let touched = std::mem::take(&mut w.touched);
    let mut results = vec![Err(FsError::Io); touched.len()];
    let (before, flushes) = (Disk::cut(&disk, cut_options), disk.flushes());
    assert_eq!(w.backend.commit_with(own.as_fd(), &touched, &mut results), Some(Ok(())));
    assert_eq!(results, vec![Ok(()); touched.len()]);
    assert!(disk.flushes() > flushes, "{kind}: what was written is left in the device's cache");
    let after = Disk::cut(&disk, cut_options);
    let own_of =
        |cut: &Disk| std::fs::read(cut.mount.join("own")).unwrap()[8192..][..own_data().len()].to_vec();
    assert!(own_of(&after) == own_data(), "{kind}: the server's own data is lost");
    assert_eq!(std::fs::read(after.mount.join(&below).join("file")).unwrap(), b"data", "{kind}");
    assert!(own_of(&before) != own_data(), "{kind}: it is there without a commit, so this proves nothing");
}

#[test]
fn a_commit_takes_what_was_written_to_a_file_of_the_servers_own_along() {
    takes_an_own_file_along("ext4", "");
    takes_an_own_file_along("xfs", ",nouuid");
}

#[test]
fn a_commit_does_not_say_that_it_took_along_what_it_does_not_reach() {
    use std::os::fd::AsFd as _;
    let elsewhere = tempfile::tempdir().unwrap();
    let own = own_file(elsewhere.path());
    for kind in ["ext4", "btrfs"] {
        let disk = Disk::make(kind, &[]);
        let mut w = open(&disk.mount, &elsewhere.path().join(kind));
        let top = w.backend.root().unwrap();
        w.create(&top, "file", b"data");
        let mut results = vec![Ok(()); w.touched.len()];
        assert_eq!(w.backend.commit_with(own.as_fd(), &w.touched, &mut results), None, "another file system");
        let gone = w.create(&top, "gone", b"");
        w.backend.remove(&w.cx(), &top, name("gone"), RemoveKind::Any).unwrap();
        let on_it = own_file(&disk.mount);
        // Its data is meant, so it is looked for; for names alone the whole would be forced without a look.
        let nothing = [Touched { handle: gone, data: true }];
        let done = w.backend.commit_with(on_it.as_fd(), &nothing, &mut results[..1]);
        assert_eq!(done, None, "{kind}: nothing is left to commit, or no force reaches both");
        w.commit();
    }
}
