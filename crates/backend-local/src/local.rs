//! The backend's parts, and the way from a handle to an object. What each method does stands in the module of its
//! subject.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use holdfast_vfs::{Cx, FsError, FsResult, Handle, Wait};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, openat, statx};
use rustix::io::Errno;

use crate::bindings::Bindings;
use crate::cache::Cache;
use crate::change::Changes;
use crate::credentials::Identity;
use crate::dirty::Dirty;
use crate::errors::{OpenError, fs_error};
use crate::filesystem::{FileSystem, HandleKind, LOOK, dev_of, root_tag};
use crate::handles::{self, Inner};
use crate::lend::Lending;
use crate::listing::Listings;
use crate::mounts::Mounts;
use crate::object::Object;
use crate::options::LocalOptions;
use crate::pages::Pages;
use crate::procfd::ProcFd;
use crate::sys;
use crate::table::Table;
use crate::watch::Watch;

/// Locks under which a directory is changed when nobody else may come between its two looks.
const STRIPES: usize = 256;

/// Whether an object that was found stays in the descriptor cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Always,
    /// Only if nothing has to go for it.
    IfRoom,
}

/// A directory of this machine, served.
pub struct LocalBackend {
    pub(crate) options: LocalOptions,
    pub(crate) identity: Identity,
    pub(crate) proc_fd: Arc<ProcFd>,
    pub(crate) mounts: Mounts,
    pub(crate) table: Table,
    pub(crate) cache: Arc<Cache>,
    pub(crate) changes: Changes,
    pub(crate) dirty: Dirty,
    pub(crate) listings: Listings,
    pub(crate) bindings: Bindings,
    pub(crate) pages: Pages,
    pub(crate) watch: Watch,
    pub(crate) lending: Lending,
    pub(crate) verifier_bumps: AtomicU64,
    pub(crate) stripes: Box<[Mutex<()>]>,
    /// Never thrown out.
    pub(crate) root: Arc<Object>,
}

impl LocalBackend {
    /// Serves a directory. Sets the process's umask to 0, because modes come from callers, and raises its limit of
    /// descriptors as far as it may and as is of use.
    ///
    /// # Errors
    /// [`OpenError`], naming the path and the way out.
    pub fn open(root: &Path, options: LocalOptions) -> Result<Self, OpenError> {
        rustix::process::umask(Mode::empty());
        make_state_dir(&options.state_dir)?;
        let root_error = |e: std::io::Error| OpenError::Root { path: root.to_owned(), source: e };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let top = openat(CWD, root, flags, Mode::empty()).map_err(|e| root_error(e.into()))?;
        let st = statx(&top, "", AtFlags::EMPTY_PATH, LOOK).map_err(|e| root_error(e.into()))?;
        if u32::from(st.stx_mode) & libc::S_IFMT != libc::S_IFDIR {
            return Err(OpenError::NotADirectory { path: root.to_owned() });
        }
        let as_io = |e: FsError| std::io::Error::from_raw_os_error(e.to_errno());
        let proc_fd = Arc::new(ProcFd::open()?);
        let identity = Identity::probe(options.keep_credentials);
        identity.as_server();
        let mounts = Mounts::open(&options.state_dir, &proc_fd, root_tag(&top, &st))?;
        let table = Table::open(&options.state_dir)?;
        let allowed = descriptors_allowed(options.descriptors_max.max(options.leases_max));
        let cache = Arc::new(Cache::new(options.descriptors_max.min(allowed)));
        let fs = mounts.of_object(top.as_fd(), &st, top.as_fd()).map_err(|e| root_error(as_io(e)))?;
        if fs.handles == HandleKind::Table {
            table.ready()?;
        }
        let handle = top_handle(&table, &fs, &top).map_err(|e| root_error(as_io(e)))?;
        let root = Arc::new(Object::new(handle, fs, top, &st, cache.tally()));
        let path = proc_fd.path_of(root.fd()).map_err(|e| root_error(as_io(e)))?;
        Ok(Self {
            identity,
            proc_fd,
            mounts,
            table,
            cache,
            changes: Changes::start(),
            dirty: Dirty::default(),
            listings: Listings::default(),
            bindings: Bindings::default(),
            pages: Pages::default(),
            watch: Watch::new(&options, (path, identity), options.leases_max.min(allowed)),
            lending: Lending::default(),
            verifier_bumps: AtomicU64::new(0),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            root,
            options,
        })
    }

    /// Whether callers are told apart. If not, everybody is served as the user who runs the server.
    #[must_use]
    pub const fn acts_as_callers(&self) -> bool {
        self.identity.can_switch()
    }

    /// Whether handles of the exported directory are the kernel's; if not, they are rows of a table in the state
    /// directory, and files that local processes rename get stale.
    #[must_use]
    pub fn has_kernel_handles(&self) -> bool {
        self.root.fs.handles == HandleKind::Kernel
    }

    /// The object of a handle. The thread may have the server's rights afterwards.
    pub(crate) fn resolve(&self, wait: Wait, handle: &Handle) -> FsResult<Arc<Object>> {
        let object = match self.cache.find(handle) {
            Some(object) => object,
            None if *handle == self.root.handle => Arc::clone(&self.root),
            None => return self.resolve_cold(wait, handle),
        };
        // Even a look at an inode in memory may wait there: for a daemon (FUSE) or another server (NFS).
        if !wait.may_last() && object.fs.nature.kind.may_be_remote() {
            return Err(FsError::WouldBlock);
        }
        Ok(object)
    }

    fn resolve_cold(&self, wait: Wait, handle: &Handle) -> FsResult<Arc<Object>> {
        let (key, inner) = handles::decode(handle)?;
        self.identity.as_server();
        let fs = self.mounts.by_key(key, self.root.fd())?;
        if !wait.may_last() && !fs.nature.kind.is_in_memory() {
            return Err(FsError::WouldBlock);
        }
        let fd = match inner {
            Inner::Kernel(kernel) => self.sparing(|| {
                sys::open_by_handle(&fs.top, &kernel, libc::O_PATH | libc::O_NOFOLLOW).map_err(|e| match e {
                    // What the file system does not take as one of its handles.
                    Errno::INVAL | Errno::NOENT => FsError::Stale,
                    e => fs_error(e),
                })
            })?,
            Inner::Row(row) => self.sparing(|| self.table.resolve(&fs, row))?,
        };
        let st = statx(&fd, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?;
        Ok(self.cache.insert(Object::new(*handle, fs, fd, &st, self.cache.tally())))
    }

    /// The file system of a handle, once it has been met: asks nobody.
    pub(crate) fn filesystem_of(&self, handle: &Handle) -> Option<Arc<FileSystem>> {
        if *handle == self.root.handle {
            return Some(Arc::clone(&self.root.fs));
        }
        let (key, _) = handles::decode(handle).ok()?;
        self.mounts.met(key)
    }

    /// Does something that needs descriptors; when they have run out, throws half of the idle ones away and
    /// tries once more.
    pub(crate) fn sparing<T>(&self, open: impl Fn() -> FsResult<T>) -> FsResult<T> {
        match open() {
            Err(FsError::Delay) => {
                // A lease of a local process says "later" too, and says it as often as a client asks.
                if self.lacks_descriptors() {
                    self.listings.clear();
                    self.cache.shed(50);
                }
                open()
            }
            other => other,
        }
    }

    /// Whether one more descriptor is not to be had, of this process or of the whole machine.
    fn lacks_descriptors(&self) -> bool {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        matches!(openat(self.proc_fd.dir(), ".", flags, Mode::empty()), Err(Errno::MFILE | Errno::NFILE))
    }

    /// Takes in an object that was found by name, with a look at it: `fd` is `O_PATH`, the thread has any rights.
    pub(crate) fn take_in(
        &self,
        parent: &Object,
        name: &[u8],
        fd: OwnedFd,
        keep: Keep,
    ) -> FsResult<(Arc<Object>, Statx)> {
        let st = statx(&fd, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?;
        self.take_in_seen((parent, name), (fd, st), keep)
    }

    /// The same of what was looked at.
    pub(crate) fn take_in_seen(
        &self,
        (parent, name): (&Object, &[u8]),
        (fd, st): (OwnedFd, Statx),
        keep: Keep,
    ) -> FsResult<(Arc<Object>, Statx)> {
        let fs = match self.mounts.known(&st) {
            Some(fs) => fs,
            None => {
                if !self.options.cross_mounts {
                    return Err(FsError::Access);
                }
                self.identity.as_server();
                self.mounts.of_object(fd.as_fd(), &st, self.root.fd())?
            }
        };
        if !Arc::ptr_eq(&fs, &parent.fs) && !self.options.cross_mounts {
            return Err(FsError::Access);
        }
        let handle = match fs.handles {
            HandleKind::Kernel => {
                if fs.nature.kind.numbers_are_unique()
                    && let Some(object) = self.cache.find_number(fs.key, st.stx_ino)
                {
                    object.note_use();
                    return Ok((object, st));
                }
                handles::of_kernel(&fs, &handles::kernel_of(&fd).map_err(fs_error)?)?
            }
            HandleKind::Table => self.table.enter(&fs, parent, name, &st)?,
        };
        if handle == self.root.handle {
            return Ok((Arc::clone(&self.root), st));
        }
        let object = Object::new(handle, fs, fd, &st, self.cache.tally());
        let object = match keep {
            Keep::IfRoom if !self.cache.has_room() => Arc::new(object),
            Keep::IfRoom | Keep::Always => self.cache.insert(object),
        };
        Ok((object, st))
    }

    /// The same for the directory above `below`.
    pub(crate) fn take_in_parent(&self, below: &Object, fd: OwnedFd) -> FsResult<Arc<Object>> {
        let st = statx(&fd, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?;
        self.identity.as_server();
        // A local process may have moved `below` out of the export since its handle was made.
        if !self.is_below_root(&fd, &st)? {
            return Err(FsError::Stale);
        }
        let fs = self.mounts.of_object(fd.as_fd(), &st, self.root.fd())?;
        let handle = match fs.handles {
            HandleKind::Kernel => handles::of_kernel(&fs, &handles::kernel_of(&fd).map_err(fs_error)?)?,
            // We came through it, so it has a row unless a local process moved `below` elsewhere.
            HandleKind::Table => self.table.find(&fs, &st).ok_or(FsError::Stale)?,
        };
        if handle == self.root.handle || below.handle == handle {
            return Ok(Arc::clone(&self.root));
        }
        Ok(self.cache.insert(Object::new(handle, fs, fd, &st, self.cache.tally())))
    }

    /// Whether a directory lies in the export at this moment: it is the exported one, or below it.
    fn is_below_root(&self, dir: &OwnedFd, st: &Statx) -> FsResult<bool> {
        match self.proc_fd.path_below(dir, self.root.fd()) {
            Ok(_) => return Ok(true),
            Err(FsError::Stale) => return Ok(false),
            // Deeper than a path may be long: go up step by step.
            Err(FsError::NameTooLong) => {}
            Err(e) => return Err(e),
        }
        let place = |st: &Statx| (dev_of(st), st.stx_ino, st.stx_mnt_id);
        let (root, mut here) = (place(&self.root.look()?), place(st));
        let mut above = openat(dir, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(fs_error)?;
        loop {
            if here == root {
                return Ok(true);
            }
            above = openat(&above, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(fs_error)?;
            let next = place(&statx(&above, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?);
            // The root of everything is its own parent.
            if next == here {
                return Ok(false);
            }
            here = next;
        }
    }

    /// Refuses to begin what may wait for a journal when waiting is not allowed.
    pub(crate) fn may_wait(&self, cx: &Cx<'_>, object: &Object) -> FsResult<()> {
        if cx.wait == Wait::No && !object.fs.nature.kind.is_in_memory() {
            return Err(FsError::WouldBlock);
        }
        Ok(())
    }

    pub(crate) fn root_fd(&self) -> BorrowedFd<'_> {
        self.root.fd()
    }
}

fn top_handle(table: &Table, fs: &Arc<FileSystem>, top: &OwnedFd) -> FsResult<Handle> {
    match fs.handles {
        HandleKind::Kernel => handles::of_kernel(fs, &handles::kernel_of(top).map_err(fs_error)?),
        HandleKind::Table => table.enter_top(fs),
    }
}

fn make_state_dir(dir: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    let state = |e| OpenError::state(dir, e);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(state)?;
    // It may have been there with other rights, and the files in it are made under a umask of 0.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(state)
}

/// A quarter of what the process may open, after asking for as much as is needed or may be had: the usual soft
/// limit of 1,024 is there for programs that use select(2). `wanted` descriptors are wanted here.
fn descriptors_allowed(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let enough = (wanted as u64).saturating_mul(4);
    let raised = limit.maximum.map(|hard| hard.max(enough));
    // Beyond the hard limit goes only who has CAP_SYS_RESOURCE. When either is refused, what there is must do.
    if setrlimit(Resource::Nofile, Rlimit { current: raised, maximum: raised }).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n / 4).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use holdfast_vfs::{AttrMask, Backend as _, Caller, Name};

    use super::*;

    #[test]
    fn a_try_again_that_is_no_lack_of_descriptors_empties_no_cache() {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut options = LocalOptions::new(state.path().to_owned());
        // So many more than files that each part of the cache has room for as many as may come to it.
        options.descriptors_max = 64 * 64;
        let backend = LocalBackend::open(dir.path(), options).unwrap();
        let caller = Caller { uid: rustix::process::geteuid().as_raw(), ..Caller::root() };
        let cx = Cx::new(&caller, Wait::Yes);
        for n in 0..64 {
            let name = format!("f{n}");
            std::fs::write(dir.path().join(&name), "").unwrap();
            let name = Name::new(name.as_bytes()).unwrap();
            backend.lookup(&cx, &backend.root.handle, name, AttrMask::STAT).unwrap();
        }
        let held = backend.cache.tally().count();
        assert!(held >= 64, "{held} descriptors are kept");
        let asked = Cell::new(0);
        let told: FsResult<()> = backend.sparing(|| {
            asked.set(asked.get() + 1);
            Err(FsError::Delay)
        });
        assert_eq!((told, asked.get()), (Err(FsError::Delay), 2));
        assert_eq!(backend.cache.tally().count(), held);
    }
}
