//! Promises against processes on this host: leases where the kernel makes such a process wait, fanotify marks where it
//! only tells. `docs/design/local-processes.md` says which promise rests on what, and how soon a deed is noticed.
//!
//! Marks are on the inodes that something was promised of and on no others, so that nothing else gets slower. One
//! thread a backend reads what the kernel tells; it starts with the first pledge.

mod events;
pub(crate) mod listed;
mod overlap;
mod pledging;
#[cfg(test)]
mod tests;
mod thread;
mod unlocks;

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use holdfast_base::FileKey;
use holdfast_base::limits::LEASES_SPARE_PART;
use holdfast_vfs::{Handle, LocalDeed, LocalListener, OpenMode, Pledge, PledgeGuard};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::credentials::Identity;
use crate::filesystem::{FileSystem, HandleKind};
use crate::handles::{self, Inner};
use crate::locks::Lockers;
use crate::object::Object;
use crate::options::{LocalOptions, LocalUse};
use crate::sys;
use crate::sys_notify::{self, LeaseKind};
use events::Fid;
use pledging::is_readable;
use thread::{Listening, going_on};
use unlocks::Unlocks;

/// Everything about local processes, as the backend, its guards and its thread share it.
pub(crate) struct Shared {
    local: LocalUse,
    /// Guards are dropped, and leases given up, on threads that may be anybody.
    identity: Identity,
    /// The exported directory, where it was when it was opened.
    root: PathBuf,
    pledges_max: usize,
    /// Of those, how many may have a descriptor.
    descriptors_max: usize,
    /// Guarded by itself; nothing is called under it but the kernel.
    table: Mutex<Table>,
    /// Objects with a lease of ours: 0 lets every open pass without a look at the table.
    leases: AtomicUsize,
    listener: RwLock<Option<Weak<dyn LocalListener>>>,
    /// What is to be told that did not come from the kernel.
    to_tell: Mutex<Vec<(FileKey, LocalDeed)>>,
    unlocks: Mutex<Unlocks>,
    pub(crate) lockers: Arc<Lockers>,
    listening: OnceLock<Option<Listening>>,
    is_over: AtomicBool,
}

/// The backend's end of it: with it goes the thread.
pub(crate) struct Watch(pub(crate) Arc<Shared>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.wake();
    }
}

#[derive(Default)]
struct Table {
    held: FxHashMap<Handle, Held>,
    /// One inode has several handles where a file system is mounted twice below the export, and one mark.
    by_fid: FxHashMap<Fid, Vec<Handle>>,
    by_lease: FxHashMap<RawFd, Handle>,
    /// How many of those held have a descriptor.
    descriptors: usize,
    last: u64,
}

/// One object that something is pledged of.
struct Held {
    pledges: Vec<Pledged>,
    /// Whether a deed has broken something: nothing more is pledged until all guards are gone.
    is_broken: bool,
    /// The object has lost its last name, as far as was seen: with it goes its mark.
    is_removed: bool,
    /// Names the inode: the leased file, or the object itself. `None` where its handle is enough for what is left to be
    /// done, so that what only marks guard costs no descriptor.
    fd: Option<Arc<OwnedFd>>,
    fs: Arc<FileSystem>,
    lease: Option<Lease>,
    fid: Fid,
    mask: u64,
}

struct Pledged {
    id: u64,
    what: Pledge,
    is_broken: Arc<AtomicBool>,
}

/// A lease of ours, on [`Held::fd`].
struct Lease {
    kind: LeaseKind,
    can_read: bool,
    can_write: bool,
}

impl Table {
    /// Forgets an inode's handle. Gives the part of its mark that no other handle of the inode needs.
    fn leave_inode(&mut self, fid: &Fid, handle: &Handle, mask: u64) -> u64 {
        let Some(handles) = self.by_fid.get_mut(fid) else { return mask };
        handles.retain(|other| other != handle);
        let others = handles.iter().filter_map(|other| self.held.get(other)).fold(0, |all, h| all | h.mask);
        if handles.is_empty() {
            self.by_fid.remove(fid);
        }
        mask & !others
    }
}

impl Held {
    /// A descriptor of the inode; `None` when it is gone, and its marks with it.
    fn named(&self, handle: &Handle) -> Option<Arc<OwnedFd>> {
        if let Some(fd) = &self.fd {
            return Some(Arc::clone(fd));
        }
        let Ok((_, Inner::Kernel(kernel))) = handles::decode(handle) else { return None };
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        sys::open_by_handle(&self.fs.top, &kernel, flags).ok().map(Arc::new)
    }

    /// A local process does this: breaks what it breaks.
    fn suffer(&mut self, deed: LocalDeed) {
        for pledged in self.pledges.iter().filter(|pledged| deed.breaks(pledged.what)) {
            pledged.is_broken.store(true, Ordering::SeqCst);
            self.is_broken = true;
        }
    }
}

impl Watch {
    pub(crate) fn new(
        options: &LocalOptions,
        (root, identity): (PathBuf, Identity),
        descriptors_max: usize,
    ) -> Self {
        let local = if options.is_sole_writer { LocalUse::None } else { options.local };
        let shared = Arc::new(Shared {
            local,
            identity,
            root,
            pledges_max: options.pledges_max,
            descriptors_max,
            table: Mutex::default(),
            leases: AtomicUsize::new(0),
            listener: RwLock::new(None),
            to_tell: Mutex::default(),
            unlocks: Mutex::default(),
            lockers: Arc::new(Lockers::new(local != LocalUse::None)),
            listening: OnceLock::new(),
            is_over: AtomicBool::new(false),
        });
        for other in overlap::enter(shared.root.clone(), Arc::downgrade(&shared)) {
            other.break_all();
        }
        Self(shared)
    }

    pub(crate) fn listen(&self, listener: Weak<dyn LocalListener>) {
        *self.0.listener.write() = Some(listener);
    }

    /// How long the kernel makes a breaker of leases wait.
    pub(crate) fn lease_seconds(&self) -> Option<u64> {
        if self.0.local == LocalUse::None {
            return None;
        }
        let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok()?;
        text.trim().parse().ok()
    }

    /// Whether few leases more may be kept, each of which keeps a file open. Nothing is to be heeded where who gives up a writer's keeps a
    /// descriptor for the reader's that is left: on a strict export, and of what has no handles of the kernel's.
    pub(crate) fn leases_are_scarce(&self, handles: HandleKind) -> bool {
        if !self.is_used() || self.0.local != LocalUse::Lazy || handles != HandleKind::Kernel {
            return false;
        }
        let most = self.0.descriptors_max;
        self.0.table.lock().descriptors >= most - most / LEASES_SPARE_PART
    }

    pub(crate) fn has_leases(&self) -> bool {
        self.0.leases.load(Ordering::SeqCst) > 0
    }

    /// Whether anything was ever pledged.
    pub(crate) fn is_used(&self) -> bool {
        self.0.listening.get().is_some()
    }

    /// Whether anything is pledged of an object.
    pub(crate) fn has_pledged(&self, handle: &Handle) -> bool {
        self.is_used() && self.0.table.lock().held.contains_key(handle)
    }

    /// The file that our write lease is on, when it can do this: a second open would break the lease.
    pub(crate) fn leased(&self, handle: &Handle, reads: bool, writes: bool) -> Option<Arc<OwnedFd>> {
        if !self.has_leases() {
            return None;
        }
        let table = self.0.table.lock();
        let held = table.held.get(handle)?;
        let lease = held.lease.as_ref().filter(|lease| lease.kind == LeaseKind::Write)?;
        held.fd.clone().filter(|_| (lease.can_read || !reads) && (lease.can_write || !writes))
    }

    /// Goes on with a lease that another process of this server took on an open file, and that somebody else is waiting
    /// for: nothing more is promised on it, but it stays until the guard goes. `None` where that cannot be told from
    /// another's; then it stays until the file is closed.
    pub(crate) fn adopt_breaking(&self, object: &Object, fd: &Arc<OwnedFd>, mode: OpenMode) -> Option<Guard> {
        let what = if mode.write { Pledge::WriteFile } else { Pledge::ReadFile };
        let kind = if mode.write { LeaseKind::Write } else { LeaseKind::Read };
        let lease = Some(Lease { kind, can_read: mode.read || is_readable(fd), can_write: mode.write });
        let fid = Fid::of(object)?;
        let (handle, shared) = (object.handle, &self.0);
        let mut table = shared.table.lock();
        if table.held.contains_key(&handle) {
            return None;
        }
        table.last += 1;
        let (id, is_broken) = (table.last, Arc::new(AtomicBool::new(true)));
        let pledges = vec![Pledged { id, what, is_broken: Arc::clone(&is_broken) }];
        let (named, fs) = (Some(Arc::clone(fd)), Arc::clone(&object.fs));
        let held = Held {
            pledges,
            is_broken: true,
            is_removed: false,
            fd: named,
            fs,
            lease,
            fid: fid.clone(),
            mask: 0,
        };
        table.descriptors += 1;
        table.held.insert(handle, held);
        table.by_fid.entry(fid).or_default().push(handle);
        table.by_lease.insert(fd.as_raw_fd(), handle);
        shared.leases.fetch_add(1, Ordering::SeqCst);
        Some(Guard { shared: Arc::clone(shared), handle, id, is_broken })
    }

    /// An object has lost its last name, and gets no other: whatever guards it is taken down without a search for it. While somebody
    /// has it open its mark is left to tell us what nobody asks for.
    pub(crate) fn removed(&self, handle: &Handle) {
        if self.is_used()
            && let Some(held) = self.0.table.lock().held.get_mut(handle)
        {
            held.is_removed = true;
        }
    }

    /// Gives up a lease of ours that an open of our own, about to come, would break and wait for. Says whether there
    /// was one. A lazy export goes on with fanotify: as the lease stood until now, no local process has the file open
    /// in a way that could hurt, and whoever opens it from now on is told of. A strict one cannot: the pledge is
    /// broken, and the listener is told.
    pub(crate) fn make_way(&self, handle: &Handle, writes: bool) -> bool {
        if !self.has_leases() {
            return false;
        }
        self.0.identity.as_server();
        let mut table = self.0.table.lock();
        let Some(held) = table.held.get_mut(handle) else { return false };
        let Some(lease) = held.lease.take_if(|lease| writes || lease.kind == LeaseKind::Write) else {
            return false;
        };
        let deed = if writes { LocalDeed::OpenToWrite } else { LocalDeed::OpenToRead };
        let goes_on = self.0.local == LocalUse::Lazy && self.0.watch_instead(held, lease.kind);
        if !goes_on {
            held.suffer(deed);
        }
        self.0.let_file_go(&mut table, handle);
        drop(table);
        if !goes_on {
            self.0.to_tell.lock().push((handle.key(), deed));
            self.0.wake();
        }
        true
    }
}

impl Shared {
    /// Nothing that was promised can be relied on any more.
    fn break_all(&self) {
        let deed = LocalDeed::Unknown;
        let mut broken = Vec::new();
        for (handle, held) in &mut self.table.lock().held {
            held.suffer(deed);
            broken.push((handle.key(), deed));
        }
        self.to_tell.lock().append(&mut broken);
        self.wake();
    }

    /// Lets breakers go on. Under the table's lock, so that nobody takes a lease anew meanwhile.
    fn drop_lease(&self, fd: &OwnedFd) {
        self.leases.fetch_sub(1, Ordering::SeqCst);
        // It may be gone already: the kernel takes what is not given up in time.
        let _ = sys_notify::set_lease(fd, LeaseKind::None);
    }

    /// Lets go of one pledge, and of the object with the last.
    fn release(&self, handle: &Handle, id: u64) {
        self.identity.as_server();
        let mut table = self.table.lock();
        let Some(held) = table.held.get_mut(handle) else { return };
        held.pledges.retain(|pledged| pledged.id != id);
        if !held.pledges.is_empty() {
            return self.sink(&mut table, handle);
        }
        let Some(held) = table.held.remove(handle) else { return };
        table.descriptors -= usize::from(held.fd.is_some());
        if let (true, Some(fd)) = (held.lease.is_some(), &held.fd) {
            table.by_lease.remove(&fd.as_raw_fd());
            self.drop_lease(fd);
        }
        let unused = table.leave_inode(&held.fid, handle, held.mask);
        if unused != 0
            && !held.is_removed
            && let Some(fd) = held.named(handle)
        {
            self.unmark(&fd, unused);
        }
        drop(table);
        // Closed outside the lock: that may write back.
        drop(held);
    }

    /// Tells the listener, once for each deed; nothing of ours is locked.
    fn tell(&self, mut deeds: Vec<(FileKey, LocalDeed)>) {
        if deeds.is_empty() {
            return;
        }
        let Some(listener) = self.current_listener() else { return };
        let mut last = None;
        deeds.retain(|deed| last.replace(*deed) != Some(*deed));
        deeds.into_iter().for_each(|(key, deed)| going_on(|| listener.local_deed(key, deed)));
    }

    fn current_listener(&self) -> Option<Arc<dyn LocalListener>> {
        self.listener.read().as_ref()?.upgrade()
    }

    fn wake(&self) {
        if let Some(Some(listening)) = self.listening.get() {
            listening.wake();
        }
    }
}

/// A pledge that was made.
pub(crate) struct Guard {
    shared: Arc<Shared>,
    handle: Handle,
    id: u64,
    is_broken: Arc<AtomicBool>,
}

impl PledgeGuard for Guard {
    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.release(&self.handle, self.id);
    }
}
