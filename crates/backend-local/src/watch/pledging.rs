//! Making a pledge: a mark for what only fanotify tells, then a lease for the data of a file.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_vfs::{FileObject, FsResult, Handle, HeldPledge, LocalDeed, NobodyThere, Pledge, Wait};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::events::{self, Fid};
use super::overlap;
use super::{Guard, Held, Lease, Pledged, Shared, Table};
use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::marks::Changing;
use crate::object::{For, Object};
use crate::opening::local_file;
use crate::options::LocalUse;
use crate::procfd::{FdName, ProcFd};
use crate::sys_notify::{self, LeaseKind, Mark};

/// What a lease is to be taken on.
struct Leasing {
    fd: Arc<OwnedFd>,
    lease: Lease,
}

/// How it went.
enum Leased {
    Yes,
    /// Somebody has the file open.
    Busy,
    /// There are no leases here, or not for us.
    Unavailable,
}

impl LocalBackend {
    /// See [`holdfast_vfs::Backend::pledge`].
    pub(crate) fn do_pledge(
        &self,
        handle: &Handle,
        what: Pledge,
        open: Option<&Arc<dyn FileObject>>,
    ) -> FsResult<Option<HeldPledge>> {
        let object = self.resolve(Wait::Yes, handle)?;
        if what != Pledge::ReadFile {
            // From here on its attributes may be the holder's to tell: what shows ours is to be written anew.
            drop(Changing::of(&object));
        }
        match what {
            Pledge::Directory => object.must_be_dir()?,
            Pledge::ReadFile | Pledge::WriteFile => object.must_be_file()?,
        }
        if let Some(open) = open
            && let Some(guard) = local_file(open)?.breaking.lock().take()
        {
            return Ok(Some(Box::new(guard)));
        }
        let shared = &self.watch.0;
        // Whatever the option says: it is not local processes that are not seen there.
        if overlap::has_another(&shared.root) || self.mounts.has_twin(&object.fs) {
            return Ok(None);
        }
        match (shared.local, what) {
            (LocalUse::None, _) => return Ok(Some(Box::new(NobodyThere))),
            (LocalUse::Strict, Pledge::Directory) => return Ok(None),
            _ => {}
        }
        // Nothing can be promised of what has no name any more, nor asked of whoever answers for it elsewhere.
        if object.look()?.stx_nlink == 0 || object.fs.nature.kind.may_be_remote() {
            return Ok(None);
        }
        self.identity.as_server();
        let leasing = match what {
            Pledge::Directory => None,
            Pledge::ReadFile => match self.leasing_to_read(&object, open)? {
                None => return Ok(None),
                some => some,
            },
            Pledge::WriteFile => match leasing_to_write(open)? {
                None => return Ok(None),
                some => some,
            },
        };
        let held = shared.pledge(&object, (what, leasing), &self.proc_fd);
        // One that came to be exported meanwhile has not broken what was not there yet.
        Ok(held.filter(|_| !overlap::has_another(&shared.root)))
    }

    /// A descriptor for a read lease. Writers of our own that nobody uses are closed: they would forbid it.
    fn leasing_to_read(
        &self,
        object: &Arc<Object>,
        open: Option<&Arc<dyn FileObject>>,
    ) -> FsResult<Option<Leasing>> {
        if !object.is_dirty.load(Ordering::SeqCst) {
            object.close_writer();
        }
        let lease = Lease { kind: LeaseKind::Read, can_read: true, can_write: false };
        if let Some(open) = open {
            let open = local_file(open)?;
            if open.mode.read && !open.mode.write && !open.is_shared {
                return Ok(Some(Leasing { fd: Arc::clone(&open.fd), lease }));
            }
        }
        match self.sparing(|| object.io(For::Reading, &self.proc_fd)) {
            Ok(fd) => Ok(Some(Leasing { fd, lease })),
            // A local process's lease, or an ordinary user's write-only file.
            Err(holdfast_vfs::FsError::Delay | holdfast_vfs::FsError::Access) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The descriptor for a write lease: the only one there may be, so idle ones of our own are closed.
fn leasing_to_write(open: Option<&Arc<dyn FileObject>>) -> FsResult<Option<Leasing>> {
    let Some(open) = open else { return Ok(None) };
    let open = local_file(open)?;
    if !open.mode.write {
        return Ok(None);
    }
    open.object.close_reader();
    if !open.object.is_dirty.load(Ordering::SeqCst) {
        open.object.close_writer();
    }
    let lease = Lease { kind: LeaseKind::Write, can_read: open.mode.read, can_write: true };
    Ok(Some(Leasing { fd: Arc::clone(&open.fd), lease }))
}

impl Shared {
    fn pledge(
        self: &Arc<Self>,
        object: &Object,
        (what, leasing): (Pledge, Option<Leasing>),
        proc_fd: &ProcFd,
    ) -> Option<HeldPledge> {
        self.listening(proc_fd)?;
        let handle = object.handle;
        let mut table = self.table.lock();
        match table.held.get(&handle) {
            Some(held) if held.is_broken => return None,
            Some(held) if held.can_join(what) => {}
            Some(held) if held.can_rise(what) => self.rise(&mut table, &handle, leasing?)?,
            Some(_) => return None,
            None if table.held.len() >= self.pledges_max => return None,
            None => {
                let held = self.hold(&mut table, object, leasing)?;
                table.held.insert(handle, held);
            }
        }
        table.last += 1;
        let (id, is_broken) = (table.last, Arc::new(AtomicBool::new(false)));
        let held = table.held.get_mut(&handle)?;
        held.pledges.push(Pledged { id, what, is_broken: Arc::clone(&is_broken) });
        drop(table);
        Some(Box::new(Guard { shared: Arc::clone(self), handle, id, is_broken }))
    }

    /// Begins to guard an object: first the mark, so that nothing is missed before the lease stands.
    fn hold(&self, table: &mut Table, object: &Object, leasing: Option<Leasing>) -> Option<Held> {
        let fd = match &leasing {
            Some(leasing) => Arc::clone(&leasing.fd),
            None => Arc::new(rustix::io::fcntl_dupfd_cloexec(object.fd(), 0).ok()?),
        };
        let fid = Fid::of(object.fd())?;
        let mask = if leasing.is_some() { events::FILE } else { events::DIRECTORY };
        self.mark(&fd, Mark::Add, mask).ok()?;
        let mut held =
            Held { pledges: Vec::new(), is_broken: false, fd, lease: None, fid: fid.clone(), mask };
        if let Some(leasing) = leasing {
            match self.take_lease(table, &object.handle, &leasing) {
                Leased::Yes => held.lease = Some(leasing.lease),
                Leased::Unavailable if self.local == LocalUse::Lazy && self.watch_data(&mut held) => {}
                Leased::Busy | Leased::Unavailable => {
                    let unused = table.leave_inode(&fid, &object.handle, mask);
                    self.unmark(&held.fd, unused);
                    return None;
                }
            }
        }
        table.by_fid.entry(fid).or_default().push(object.handle);
        Some(held)
    }

    fn take_lease(&self, table: &mut Table, handle: &Handle, leasing: &Leasing) -> Leased {
        let Some(Some(listening)) = self.listening.get() else { return Leased::Unavailable };
        if sys_notify::signal_thread(&*leasing.fd, listening.thread).is_err() {
            return Leased::Unavailable;
        }
        // Counted before it stands: an open that comes right after it must look.
        self.leases.fetch_add(1, Ordering::SeqCst);
        let taken = sys_notify::set_lease(&*leasing.fd, leasing.lease.kind);
        if taken.is_ok() {
            table.by_lease.insert(leasing.fd.as_raw_fd(), *handle);
        } else {
            self.leases.fetch_sub(1, Ordering::SeqCst);
        }
        match taken {
            Ok(()) => Leased::Yes,
            Err(Errno::AGAIN | Errno::NOMEM) => Leased::Busy,
            Err(_) => Leased::Unavailable,
        }
    }

    /// From readers' pledges on a file, kept by fanotify since there is a writer of ours, to the writer's: then a lease
    /// can be had again, if what the readers' stood on is closed. If not, all stays as it is.
    fn rise(&self, table: &mut Table, handle: &Handle, leasing: Leasing) -> Option<()> {
        let held = table.held.get_mut(handle)?;
        held.fd = Arc::clone(&leasing.fd);
        match self.take_lease(table, handle, &leasing) {
            Leased::Yes => {
                let held = table.held.get_mut(handle)?;
                held.lease = Some(leasing.lease);
                // The mark stays as it is: it breaks nothing that the lease would not.
                Some(())
            }
            Leased::Busy | Leased::Unavailable => {
                self.let_file_go(table.held.get_mut(handle)?);
                None
            }
        }
    }

    /// Names the inode by a descriptor that nobody has to reckon with, once there is no lease on the file.
    pub(super) fn let_file_go(&self, held: &mut Held) {
        let Some(Some(listening)) = self.listening.get() else { return };
        let name = FdName::new(&*held.fd);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        // Where it cannot be had the file stays open, which hinders later leases and nothing else.
        if let Ok(fd) = openat(&listening.proc_fd, name.as_c_str(), flags, Mode::empty()) {
            held.fd = Arc::new(fd);
        }
    }

    /// The way back, when the writer's pledge goes and readers' stay: whoever reads is not to wait for them.
    pub(super) fn sink(&self, table: &mut Table, handle: &Handle) {
        let Some(held) = table.held.get_mut(handle) else { return };
        let is_written = held.pledges.iter().any(|pledged| pledged.what == Pledge::WriteFile);
        if is_written || held.lease.as_ref().is_none_or(|lease| lease.kind != LeaseKind::Write) {
            return;
        }
        if !self.watch_instead(held, LeaseKind::Write) {
            held.suffer(LocalDeed::Unknown);
            self.to_tell.lock().push((handle.key(), LocalDeed::Unknown));
            self.wake();
        }
        held.lease = None;
        let fd = Arc::clone(&held.fd);
        self.let_file_go(held);
        table.by_lease.remove(&fd.as_raw_fd());
        self.drop_lease(&fd);
    }

    /// Marks a file for what its lease told.
    fn watch_data(&self, held: &mut Held) -> bool {
        let is_marked = self.mark(&held.fd, Mark::Add, events::INSTEAD_OF_LEASE).is_ok();
        if is_marked {
            held.mask |= events::INSTEAD_OF_LEASE;
        }
        is_marked
    }

    /// The same while the lease stands: false when it is being broken at this moment.
    pub(super) fn watch_instead(&self, held: &mut Held, kind: LeaseKind) -> bool {
        self.watch_data(held) && sys_notify::lease_target(&*held.fd) == kind
    }

    fn mark(&self, fd: &OwnedFd, what: Mark, mask: u64) -> FsResult<()> {
        let listening =
            self.listening.get().and_then(Option::as_ref).ok_or(holdfast_vfs::FsError::NotSupported)?;
        let group = listening.fanotify.as_ref().ok_or(holdfast_vfs::FsError::NotSupported)?;
        let name = FdName::new(fd);
        sys_notify::fanotify_mark(group, what, mask, (&listening.proc_fd, name.as_c_str())).map_err(fs_error)
    }

    pub(super) fn unmark(&self, fd: &OwnedFd, mask: u64) {
        if mask == 0 {
            return;
        }
        // The kernel has taken it already when the inode is gone.
        let _ = self.mark(fd, Mark::Remove, mask);
    }
}

impl Held {
    /// Whether one more pledge can stand on what guards the object: several may read, one may write.
    fn can_join(&self, what: Pledge) -> bool {
        what != Pledge::WriteFile && self.pledges.iter().all(|pledged| pledged.what == what)
    }

    /// Whether the one who reads may become the one who writes.
    fn can_rise(&self, what: Pledge) -> bool {
        let are_readers = self.pledges.iter().all(|pledged| pledged.what == Pledge::ReadFile);
        what == Pledge::WriteFile && are_readers && self.lease.is_none()
    }
}
