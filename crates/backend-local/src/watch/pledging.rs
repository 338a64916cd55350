//! Making a pledge: a mark for what only fanotify tells, then a lease for the data of a file.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::limits::LOCAL_PLEDGES_DIRECTORIES_PART;
use holdfast_vfs::{
    FileKind, FileObject, FsError, FsResult, Handle, HeldPledge, LocalDeed, NobodyThere, Pledge, Wait,
};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::events::{self, Fid};
use super::overlap;
use super::thread::Listening;
use super::{Guard, Held, Lease, Pledged, Shared, Table};
use crate::errors::fs_error;
use crate::filesystem::HandleKind;
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
    /// The lease is not to stay: it shows that nobody else has the file open, and fanotify tells from then on.
    is_proof: bool,
    /// Others may have the file open for writing: without the lease fanotify tells what they write.
    may_be_busy: bool,
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
        if !matches!(what, Pledge::ReadFile | Pledge::ReadWritten) {
            // From here on its attributes may be the holder's to tell: what shows ours is to be written anew.
            drop(Changing::of(&object));
        }
        if !self.can_be_pledged(&object, what)? {
            return Ok(None);
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
            // The word that no local process uses it says nothing about other hosts.
            (LocalUse::None, _) => {
                let is_alone = object.fs.nature.is_of_this_host_alone();
                return Ok(is_alone.then(|| Box::new(NobodyThere) as HeldPledge));
            }
            (LocalUse::Strict, Pledge::Directory) => return Ok(None),
            _ => {}
        }
        // Nothing can be promised of what has no name any more, nor asked of whoever answers for it elsewhere.
        if object.look()?.stx_nlink == 0 || object.fs.nature.kind.may_be_remote() {
            return Ok(None);
        }
        self.identity.as_server();
        if matches!(what, Pledge::ReadFile | Pledge::ReadWritten)
            && let Some(joined) = shared.join_writer(handle, what)
        {
            return Ok(joined);
        }
        let leasing = match what {
            Pledge::Directory => None,
            // What a link says never changes, and of a device nothing but its attributes is promised: a mark tells of those.
            Pledge::ReadFile if object.kind != FileKind::Regular => None,
            Pledge::ReadFile | Pledge::ReadWritten => match self.leasing_to_read(&object, open)? {
                None => return Ok(None),
                Some(leasing) => {
                    let may_be_busy = what == Pledge::ReadWritten && shared.local == LocalUse::Lazy;
                    Some(Leasing { may_be_busy, ..leasing })
                }
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

    /// Whether this may be promised of such an object at all; an error where it is of another kind.
    fn can_be_pledged(&self, object: &Arc<Object>, what: Pledge) -> FsResult<bool> {
        match what {
            Pledge::Directory => {
                object.must_be_dir()?;
                // Also where there is nobody else: the client itself could not tell its names apart.
                return Ok(!self.ignores_case(object)?);
            }
            Pledge::ReadFile if object.kind == FileKind::Directory => return Err(FsError::IsDir),
            Pledge::ReadFile => {}
            Pledge::ReadWritten | Pledge::WriteFile => object.must_be_file()?,
        }
        Ok(true)
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
                return Ok(Some(Leasing {
                    fd: Arc::clone(&open.fd),
                    lease,
                    is_proof: false,
                    may_be_busy: false,
                }));
            }
            // A lease to read cannot be had beside what is written and not on disk yet.
            if open.mode.write && !open.is_shared && self.watch.0.local == LocalUse::Lazy {
                object.close_reader();
                let lease = Lease { kind: LeaseKind::Write, can_read: true, can_write: true };
                return Ok(Some(Leasing {
                    fd: Arc::clone(&open.fd),
                    lease,
                    is_proof: true,
                    may_be_busy: false,
                }));
            }
        }
        // Each lease keeps a file open.
        let is_proof = self.watch.0.local == LocalUse::Lazy && !self.watch.0.has_descriptors_for_readers();
        match self.sparing(|| object.io(For::Reading, &self.proc_fd)) {
            Ok(fd) => Ok(Some(Leasing { fd, lease, is_proof, may_be_busy: false })),
            // A local process's lease, or an ordinary user's write-only file.
            Err(FsError::Delay | FsError::Access) => Ok(None),
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
    // Who is delegated the file may come to need an open to read it while this lease is being broken; and a second
    // descriptor would end it.
    if !is_readable(&open.fd) {
        return Ok(None);
    }
    open.object.close_reader();
    if !open.object.is_dirty.load(Ordering::SeqCst) {
        open.object.close_writer();
    }
    let lease = Lease { kind: LeaseKind::Write, can_read: true, can_write: true };
    Ok(Some(Leasing { fd: Arc::clone(&open.fd), lease, is_proof: false, may_be_busy: false }))
}

/// Whether a descriptor that is for writing is for reading too.
pub(super) fn is_readable(fd: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

impl Shared {
    /// A reader's pledge beside a writer's, which guards against more; when that goes, [`Shared::sink`] sees to what is
    /// left. The outer `None`: nobody has pledged to write. The inner one: not beside this.
    fn join_writer(self: &Arc<Self>, handle: &Handle, what: Pledge) -> Option<Option<HeldPledge>> {
        let mut table = self.table.lock();
        let held = table.held.get(handle)?;
        if !held.pledges.iter().any(|pledged| pledged.what == Pledge::WriteFile) {
            return None;
        }
        // What is left of a lease is told of too late for a strict export.
        if held.is_broken || self.local != LocalUse::Lazy {
            return Some(None);
        }
        Some(self.guard(&mut table, handle, what))
    }

    /// One more pledge on an object that is guarded.
    fn guard(self: &Arc<Self>, table: &mut Table, handle: &Handle, what: Pledge) -> Option<HeldPledge> {
        table.last += 1;
        let (id, is_broken) = (table.last, Arc::new(AtomicBool::new(false)));
        let held = table.held.get_mut(handle)?;
        held.pledges.push(Pledged { id, what, is_broken: Arc::clone(&is_broken) });
        // Who has just found it knows better: that its last name was gone is a guess where somebody gives it one meanwhile.
        held.is_removed = false;
        Some(Box::new(Guard { shared: Arc::clone(self), handle: *handle, id, is_broken }))
    }

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
            None if !self.has_room(&table, what) => return None,
            None => {
                let held = self.hold(&mut table, object, leasing)?;
                table.descriptors += usize::from(held.fd.is_some());
                table.held.insert(handle, held);
            }
        }
        self.guard(&mut table, &handle, what)
    }

    /// Whether one object more may be guarded.
    fn has_room(&self, table: &Table, what: Pledge) -> bool {
        let beyond = match what {
            Pledge::Directory => self.pledges_max / LOCAL_PLEDGES_DIRECTORIES_PART,
            Pledge::ReadFile | Pledge::ReadWritten | Pledge::WriteFile => 0,
        };
        table.held.len() < self.pledges_max + beyond
    }

    /// Begins to guard an object: first the mark, so that nothing is missed before the lease stands.
    fn hold(&self, table: &mut Table, object: &Object, leasing: Option<Leasing>) -> Option<Held> {
        let is_leased = leasing.as_ref().is_some_and(|leasing| !leasing.is_proof);
        let has_handle = object.fs.handles == HandleKind::Kernel;
        if (is_leased || !has_handle) && table.descriptors >= self.descriptors_max {
            return None;
        }
        let fd = match &leasing {
            Some(leasing) if is_leased => Some(Arc::clone(&leasing.fd)),
            _ if has_handle => None,
            _ => Some(Arc::new(rustix::io::fcntl_dupfd_cloexec(object.fd(), 0).ok()?)),
        };
        let fid = Fid::of(object)?;
        let mask = match &leasing {
            None if object.kind == FileKind::Directory => events::DIRECTORY,
            None => events::FILE,
            Some(leasing) if leasing.is_proof => events::FILE | events::INSTEAD_OF_LEASE,
            Some(_) => events::FILE,
        };
        match &leasing {
            Some(leasing) => self.mark_open(&*leasing.fd, Mark::Add, mask),
            None => self.mark(object.fd(), Mark::Add, mask),
        }
        .ok()?;
        let fs = Arc::clone(&object.fs);
        let mut held = Held {
            pledges: Vec::new(),
            is_broken: false,
            is_removed: false,
            fd,
            fs,
            lease: None,
            fid: fid.clone(),
            mask,
        };
        if let Some(leasing) = leasing {
            let leased = match leasing.is_proof {
                true => self.prove(&leasing),
                false => self.take_lease(table, &object.handle, &leasing),
            };
            match leased {
                Leased::Yes if leasing.is_proof => {}
                Leased::Yes => held.lease = Some(leasing.lease),
                Leased::Unavailable
                    if self.local == LocalUse::Lazy && self.watch_data(&mut held, object.fd()) => {}
                Leased::Busy if leasing.may_be_busy && self.watch_data(&mut held, object.fd()) => {}
                Leased::Busy | Leased::Unavailable => {
                    let unused = table.leave_inode(&fid, &object.handle, mask);
                    self.unmark(object.fd(), unused);
                    return None;
                }
            }
        }
        table.by_fid.entry(fid).or_default().push(object.handle);
        Some(held)
    }

    /// That nobody has the file open in a way that forbids the lease. Whoever opens it from now on is told of by the mark
    /// that stands.
    fn prove(&self, Leasing { fd, lease, .. }: &Leasing) -> Leased {
        let Some(Some(listening)) = self.listening.get() else { return Leased::Unavailable };
        // A signal comes when it is broken in this moment, and the one that comes by default would end us.
        if sys_notify::signal_thread(&**fd, listening.thread).is_err() {
            return Leased::Unavailable;
        }
        let leased = leased(sys_notify::set_lease(&**fd, lease.kind));
        if matches!(leased, Leased::Yes) {
            let _ = sys_notify::set_lease(&**fd, LeaseKind::None);
        }
        leased
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
        leased(taken)
    }

    /// From readers' pledges on a file, kept by fanotify since there is a writer of ours, to the writer's: then a lease
    /// can be had again, if what the readers' stood on is closed. If not, all stays as it is.
    fn rise(&self, table: &mut Table, handle: &Handle, leasing: Leasing) -> Option<()> {
        if table.descriptors >= self.descriptors_max {
            return None;
        }
        match self.take_lease(table, handle, &leasing) {
            Leased::Yes => {
                let held = table.held.get_mut(handle)?;
                held.lease = Some(leasing.lease);
                let had_none = held.fd.replace(leasing.fd).is_none();
                table.descriptors += usize::from(had_none);
                // The mark stays as it is: it breaks nothing that the lease would not.
                Some(())
            }
            Leased::Busy | Leased::Unavailable => None,
        }
    }

    /// Whether a reader's lease may be kept, which keeps a file open. Half of the descriptors are left to writers': those can do
    /// nothing without, and readers with a mark alone.
    fn has_descriptors_for_readers(&self) -> bool {
        self.table.lock().descriptors < self.descriptors_max / 2
    }

    /// Ends a lease whose place marks have taken: lets breakers go on, and the file be closed.
    pub(super) fn let_file_go(&self, table: &mut Table, handle: &Handle) {
        let Some(held) = table.held.get_mut(handle) else { return };
        let Some(fd) = held.fd.take() else { return };
        held.fd = match held.fs.handles {
            HandleKind::Kernel => None,
            HandleKind::Table => Some(self.path_of(&fd).unwrap_or_else(|| Arc::clone(&fd))),
        };
        table.descriptors -= usize::from(held.fd.is_none());
        table.by_lease.remove(&fd.as_raw_fd());
        self.drop_lease(&fd);
    }

    /// Names the inode by a descriptor that nobody has to reckon with. `None` where it cannot be had: then the file stays
    /// open, which hinders later leases and nothing else.
    fn path_of(&self, fd: &OwnedFd) -> Option<Arc<OwnedFd>> {
        let listening = self.listening.get()?.as_ref()?;
        let name = FdName::new(fd);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat(&listening.proc_fd, name.as_c_str(), flags, Mode::empty()).ok().map(Arc::new)
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
        self.let_file_go(table, handle);
    }

    /// Marks a file for what its lease told.
    fn watch_data(&self, held: &mut Held, fd: impl AsFd) -> bool {
        let is_marked = self.mark(fd, Mark::Add, events::INSTEAD_OF_LEASE).is_ok();
        if is_marked {
            held.mask |= events::INSTEAD_OF_LEASE;
        }
        is_marked
    }

    /// The same while the lease stands: false when it is being broken at this moment.
    pub(super) fn watch_instead(&self, held: &mut Held, kind: LeaseKind) -> bool {
        let Some(fd) = held.fd.clone() else { return false };
        self.watch_data(held, &*fd) && sys_notify::lease_target(&*fd) == kind
    }

    /// By any descriptor, also one that is no more than a path: it is walked to through `/proc`.
    fn mark(&self, fd: impl AsFd, what: Mark, mask: u64) -> FsResult<()> {
        let (listening, group) = self.marking()?;
        let name = FdName::new(fd);
        let there = (&listening.proc_fd, Some(name.as_c_str()));
        sys_notify::fanotify_mark(group, what, mask, there).map_err(fs_error)
    }

    /// The same by one that is open to read or write, without a walk.
    fn mark_open(&self, fd: impl AsFd, what: Mark, mask: u64) -> FsResult<()> {
        let (_, group) = self.marking()?;
        sys_notify::fanotify_mark(group, what, mask, (fd, None)).map_err(fs_error)
    }

    fn marking(&self) -> FsResult<(&Listening, &OwnedFd)> {
        let listening = self.listening.get().and_then(Option::as_ref).ok_or(FsError::NotSupported)?;
        Ok((listening, listening.fanotify.as_ref().ok_or(FsError::NotSupported)?))
    }

    pub(super) fn unmark(&self, fd: impl AsFd, mask: u64) {
        if mask == 0 {
            return;
        }
        // The kernel has taken it already when the inode is gone.
        let _ = self.mark(fd, Mark::Remove, mask);
    }
}

fn leased(taken: Result<(), Errno>) -> Leased {
    match taken {
        Ok(()) => Leased::Yes,
        Err(Errno::AGAIN | Errno::NOMEM) => Leased::Busy,
        Err(_) => Leased::Unavailable,
    }
}

impl Held {
    /// Whether one more pledge can stand on what guards the object: several may read, one may write.
    fn can_join(&self, what: Pledge) -> bool {
        let holds = |has: Pledge| has == what || (has, what) == (Pledge::ReadFile, Pledge::ReadWritten);
        what != Pledge::WriteFile && self.pledges.iter().all(|pledged| holds(pledged.what))
    }

    /// Whether the one who reads may become the one who writes.
    fn can_rise(&self, what: Pledge) -> bool {
        let are_readers = self.pledges.iter().all(|pledged| pledged.what == Pledge::ReadFile);
        what == Pledge::WriteFile && are_readers && self.lease.is_none()
    }
}
