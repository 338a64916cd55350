//! The file systems below the export: met when a lookup crosses into them, remembered in the state directory so
//! that handles to them resolve after a restart, and so that one without a lasting id keeps the id it was given.

use std::cell::Cell;
use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::batch::{self, Batch};
use holdfast_base::limits::FILE_SYSTEMS_MAX;
use holdfast_vfs::{FsError, FsId, FsResult};
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, openat, statx};

use crate::errors::{OpenError, fs_error};
use crate::filesystem::{FileSystem, LOOK, Nature, dev_of, hash_id};
use crate::procfd::ProcFd;

const HEAD: &str = "holdfast file systems 1";

/// One line of the state file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    id: FsId,
    magic: u64,
    statfs_id: u64,
    /// Which boot of the machine `statfs_id` belongs to.
    boot: String,
    /// Where it was met, below the export; empty for the export itself.
    path: Vec<u8>,
}

/// All file systems met or remembered.
pub(crate) struct Mounts {
    proc_fd: Arc<ProcFd>,
    file: PathBuf,
    boot: String,
    /// Of the exported directory ([`crate::filesystem::root_tag`]).
    root_tag: Option<u64>,
    by_key: RwLock<FxHashMap<u64, Arc<FileSystem>>>,
    by_mount: RwLock<FxHashMap<u64, Arc<FileSystem>>>,
    remembered: Mutex<Vec<Remembered>>,
    points: Mutex<Option<MountPoints>>,
}

/// The kernel's table of mounts, as far as one question goes: which mounts have others on them.
struct MountPoints {
    /// `/proc/self/mountinfo`. Polling it tells, once for each change, that the table is another.
    table: fs::File,
    /// Mounts that have others on them.
    covered: FxHashSet<u64>,
}

impl MountPoints {
    fn open() -> io::Result<Self> {
        let mut points =
            Self { table: fs::File::open("/proc/self/mountinfo")?, covered: FxHashSet::default() };
        points.read()?;
        Ok(points)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut text = Vec::new();
        self.table.rewind()?;
        self.table.read_to_end(&mut text)?;
        self.covered = covered_mounts(&text);
        Ok(())
    }

    /// Reads the table again if it changed.
    fn refresh(&mut self) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let changed = PollFlags::PRI | PollFlags::ERR;
        let mut asked = [PollFd::new(&self.table, changed)];
        poll(&mut asked, Some(&now))?;
        if asked[0].revents().intersects(changed) { self.read() } else { Ok(()) }
    }
}

/// The second field of each line of `mountinfo`: the mount that it lies on.
fn covered_mounts(text: &[u8]) -> FxHashSet<u64> {
    let second = |line: &[u8]| std::str::from_utf8(line.split(|b| *b == b' ').nth(1)?).ok()?.parse().ok();
    text.split(|b| *b == b'\n').filter_map(second).collect()
}

impl Mounts {
    /// Reads what was remembered and meets the export's own file system.
    pub(crate) fn open(
        state: &Path,
        proc_fd: &Arc<ProcFd>,
        root_tag: Option<u64>,
    ) -> Result<Self, OpenError> {
        let file = state.join("file-systems");
        let remembered = match fs::read_to_string(&file) {
            Ok(text) => parse(&text)
                .map_err(|reason| OpenError::Damaged { path: file.clone(), reason: reason.to_owned() })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(OpenError::state(&file, e)),
        };
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        Ok(Self {
            proc_fd: Arc::clone(proc_fd),
            file,
            boot,
            root_tag,
            by_key: RwLock::default(),
            by_mount: RwLock::default(),
            remembered: Mutex::new(remembered),
            points: Mutex::new(MountPoints::open().ok()),
        })
    }

    /// Whether no other mount lies on this one, so that none of its names leads elsewhere. Asked once for calls that came
    /// together.
    pub(crate) fn is_bare(&self, mount_id: u64) -> bool {
        thread_local! {
            static TOLD: Cell<Option<(Batch, u64, bool)>> = const { Cell::new(None) };
        }
        let batch = batch::current();
        if let (Some(batch), Some((of, mount, is_bare))) = (batch, TOLD.get())
            && (of, mount) == (batch, mount_id)
        {
            return is_bare;
        }
        let mut points = self.points.lock();
        let is_bare = points.as_mut().is_some_and(|p| p.refresh().is_ok() && !p.covered.contains(&mount_id));
        TOLD.set(batch.map(|batch| (batch, mount_id, is_bare)));
        is_bare
    }

    /// The file system of a handle's key, once it has been met.
    pub(crate) fn met(&self, key: u64) -> Option<Arc<FileSystem>> {
        self.by_key.read().get(&key).cloned()
    }

    /// The file system of a handle's key. One that is remembered and not met yet is looked for below `root`.
    pub(crate) fn by_key(&self, key: u64, root: BorrowedFd<'_>) -> FsResult<Arc<FileSystem>> {
        if let Some(found) = self.by_key.read().get(&key) {
            return Ok(Arc::clone(found));
        }
        let path = {
            let remembered = self.remembered.lock();
            remembered.iter().find(|r| self.key_of(r.id) == key).map(|r| r.path.clone())
        };
        // Handles are signed, so it was one of ours: of another directory exported in this one's place, or made
        // with another state directory.
        let path = path.ok_or(FsError::Stale)?;
        let top = open_below(root, &path).map_err(|_| FsError::Stale)?;
        let st = statx(&top, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?;
        let found = self.of_object(top.as_fd(), &st, root)?;
        if found.key == key { Ok(found) } else { Err(FsError::Stale) }
    }

    /// What handles of a file system begin with. Bound to the exported directory: when the export is pointed at
    /// another one, whoever holds handles of the old one's files must not reach them through the new one.
    fn key_of(&self, id: FsId) -> u64 {
        self.root_tag.map_or(id.major, |tag| hash_id(&[&id.major.to_le_bytes(), &tag.to_le_bytes()]).major)
    }

    /// The file system an object lies on, meeting it if it is new. Needs the server's own rights when it is.
    pub(crate) fn of_object(
        &self,
        object: BorrowedFd<'_>,
        st: &Statx,
        root: BorrowedFd<'_>,
    ) -> FsResult<Arc<FileSystem>> {
        if let Some(found) = self.known(st) {
            return Ok(found);
        }
        self.meet(object, st, root)
    }

    /// The file system of an object when it was met before. Each mount counts for itself, since one file system
    /// may be mounted below the export twice, here to be written and there not; a btrfs subvolume has another
    /// device number and the same mount.
    pub(crate) fn known(&self, st: &Statx) -> Option<Arc<FileSystem>> {
        // The number is not given to another mount while ours lives: the file system's `top` holds it.
        self.by_mount.read().get(&st.stx_mnt_id).cloned()
    }

    /// Whether the same file system was met at another mount, where its files have other handles.
    pub(crate) fn has_twin(&self, fs: &FileSystem) -> bool {
        self.by_key.read().values().any(|other| other.key != fs.key && other.top_dev == fs.top_dev)
    }

    fn meet(&self, object: BorrowedFd<'_>, st: &Statx, root: BorrowedFd<'_>) -> FsResult<Arc<FileSystem>> {
        let top = self.open_top(object)?;
        let path = self.proc_fd.path_below(object, root)?;
        let nature = Nature::of(&top)?;
        if nature.is_kernel_interface() {
            return Err(FsError::Access);
        }
        let mut remembered = self.remembered.lock();
        // Somebody else may have met it while we waited for the lock.
        if let Some(found) = self.known(st) {
            return Ok(found);
        }
        if self.by_key.read().len() >= FILE_SYSTEMS_MAX {
            return Err(FsError::Delay);
        }
        let id = self.identify(&nature, (&path, st), root, &remembered);
        let met = Arc::new(FileSystem::new(self.key_of(id), id, nature, top, st));
        self.by_key.write().insert(met.key, Arc::clone(&met));
        self.by_mount.write().insert(st.stx_mnt_id, Arc::clone(&met));
        let line = Remembered {
            id,
            magic: nature.magic,
            statfs_id: nature.statfs_id,
            boot: self.boot.clone(),
            path,
        };
        if !remembered.contains(&line) {
            remembered.retain(|r| r.id != id && (r.path != line.path || r.magic != line.magic));
            remembered.push(line);
            // Handles work without it until the next restart, so serving goes on.
            if let Err(e) = write_whole(&self.file, &remembered) {
                tracing::error!(file = %self.file.display(), error = %e, "file systems not remembered");
            }
        }
        Ok(met)
    }

    /// A descriptor to resolve handles with: the kernel wants one that is really open, which an ordinary user
    /// may lack the permission for; the table does without.
    fn open_top(&self, object: BorrowedFd<'_>) -> FsResult<OwnedFd> {
        match self.proc_fd.reopen(object, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(fd) => Ok(fd),
            Err(FsError::Access) => self.proc_fd.reopen(object, OFlags::PATH),
            Err(e) => Err(e),
        }
    }

    fn identify(
        &self,
        nature: &Nature,
        (path, st): (&[u8], &Statx),
        root: BorrowedFd<'_>,
        remembered: &[Remembered],
    ) -> FsId {
        let same = |r: &&Remembered| {
            r.path == path
                && r.magic == nature.magic
                && (r.statfs_id == nature.statfs_id || r.boot != self.boot)
        };
        let Some(lasting) = nature.lasting_id() else {
            return match remembered.iter().find(same) {
                Some(known) => known.id,
                None => hash_id(&[self.boot.as_bytes(), path, &nature.statfs_id.to_le_bytes()]),
            };
        };
        // Two mounts of one file system, or two mounted copies of one image, have one id: the first that was met
        // has it, now and after a restart, and the other is known by where it is.
        let by_place = hash_id(&[&lasting.major.to_le_bytes(), &lasting.minor.to_le_bytes(), path]);
        let is_taken = self.by_key.read().contains_key(&self.key_of(lasting))
            || remembered.iter().any(|r| r.id == lasting && r.path != path && is_mount(root, &r.path, st));
        if is_taken || remembered.iter().any(|r| r.id == by_place) { by_place } else { lasting }
    }
}

/// Whether another mount of the object's file system is at `path` at this moment.
fn is_mount(root: BorrowedFd<'_>, path: &[u8], of: &Statx) -> bool {
    let found =
        open_below(root, path).and_then(|top| statx(&top, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error));
    found.is_ok_and(|st| dev_of(&st) == dev_of(of) && st.stx_mnt_id != of.stx_mnt_id)
}

/// Opens a path of components below `root`, never through a symbolic link.
pub(crate) fn open_below(root: BorrowedFd<'_>, path: &[u8]) -> FsResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = openat(root, ".", flags, Mode::empty()).map_err(fs_error)?;
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        here = openat(&here, name, flags, Mode::empty()).map_err(fs_error)?;
    }
    Ok(here)
}

fn write_whole(file: &Path, lines: &[Remembered]) -> io::Result<()> {
    let mut text = format!("{HEAD}\n");
    for r in lines {
        let path: String = r.path.iter().map(|b| format!("{b:02x}")).collect();
        let boot = if r.boot.is_empty() { "-" } else { &r.boot };
        text += &format!(
            "{:016x}{:016x} {:x} {:x} {boot} /{path}\n",
            r.id.major, r.id.minor, r.magic, r.statfs_id
        );
    }
    let new = file.with_extension("new");
    // Made anew, for us alone: never what somebody else put there.
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn parse(text: &str) -> Result<Vec<Remembered>, &'static str> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Err("its first line is not that of this version");
    }
    lines.map(|line| parse_line(line).ok_or("a line does not hold five fields")).collect()
}

fn parse_line(line: &str) -> Option<Remembered> {
    let mut fields = line.split(' ');
    let id = fields.next().filter(|f| f.len() == 32 && f.is_ascii())?;
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let id = FsId { major: hex(&id[..16])?, minor: hex(&id[16..])? };
    let (magic, statfs_id) = (hex(fields.next()?)?, hex(fields.next()?)?);
    let boot = fields.next()?.trim_matches('-').to_owned();
    let path = fields.next()?.strip_prefix('/').filter(|p| p.is_ascii() && p.len() % 2 == 0)?;
    let path = (0..path.len() / 2)
        .map(|i| u8::from_str_radix(&path[2 * i..2 * i + 2], 16).ok())
        .collect::<Option<_>>()?;
    fields.next().is_none().then_some(Remembered { id, magic, statfs_id, boot, path })
}

/// The path of `object` relative to `root`, both as absolute paths.
pub(crate) fn relative(object: &Path, root: &Path) -> Option<Vec<u8>> {
    Some(object.strip_prefix(root).ok()?.as_os_str().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_bare_until_another_lies_on_it() {
        let text = b"21 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n22 21 0:5 / /proc rw - proc proc rw\n\n";
        assert_eq!(covered_mounts(text), [1, 21].into_iter().collect());
        assert!(MountPoints::open().unwrap().refresh().is_ok());
    }

    #[test]
    fn what_is_remembered_is_read_back_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file-systems");
        let line = |path: &[u8], boot: &str| Remembered {
            id: FsId { major: 0xfeed, minor: u64::MAX },
            magic: 0xef53,
            statfs_id: 7,
            boot: boot.to_owned(),
            path: path.to_vec(),
        };
        let lines = vec![line(b"", "b-1"), line(b"a b/\xff\n", "")];
        write_whole(&file, &lines).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(parse(&text).unwrap(), lines);
        assert!(parse(&text[..text.len() - 4]).is_err());
        assert!(parse("something else").is_err());
    }
}
