//! What the client holds at the server: opens, locks and delegations, by file.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use holdfast_base::Seqid;
use holdfast_wire::nfs4::{OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_WRITE, Stateid4};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::client::Inner;
use crate::lockers::{Locker, Lockers};
use crate::{Cred, DelegationKind, Error, Handle, Result, Whose};

/// Names of open owners are taken from a pool, so that the server meets few.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    free: Vec<u64>,
    made: u64,
}

impl Owners {
    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            self.made
        })
    }
}

/// All files that something is held of.
#[derive(Debug, Default)]
pub(crate) struct Files {
    table: Mutex<FxHashMap<Handle, Arc<FileState>>>,
    owners: Mutex<Owners>,
    uses: AtomicU64,
    lockers: AtomicU64,
    /// Of grants and recalls, in the order in which the server made them.
    numbers: AtomicU64,
}

/// What is held of one file.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) handle: Handle,
    pub(crate) held: Mutex<Held>,
}

#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) opens: Vec<Arc<Open>>,
    pub(crate) locks: Lockers,
    pub(crate) delegation: Option<Delegation>,
}

/// A delegation.
#[derive(Clone, Debug)]
pub(crate) struct Delegation {
    pub(crate) stateid: Stateid4,
    pub(crate) kind: DelegationKind,
    /// Times may be told with its return (RFC 9754).
    pub(crate) has_times: bool,
    pub(crate) is_returning: bool,
    /// The server wants it back.
    pub(crate) is_recalled: bool,
    pub(crate) cred: Cred,
    /// For what the server has let this credential in (`OPEN4_SHARE_ACCESS_*`): RFC 8881 section 10.4 has every user
    /// judged by the server.
    pub(crate) admitted: u32,
    pub(crate) last_use: u64,
    /// Its place in the order of grants and recalls.
    pub(crate) number: u64,
}

/// An open, as the server knows it.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) handle: Handle,
    pub(crate) owner: u64,
    pub(crate) cred: Cred,
    /// For what it was opened, as `cred`.
    opened: AtomicU32,
    /// For what it was opened once more, for a lock, and as whom: `cred` might be refused that.
    widened: Mutex<Option<(u32, Cred)>>,
    pub(crate) deny: u32,
    pub(crate) status: Mutex<OpenStatus>,
    /// Nothing new is asked for through it: it is being closed.
    pub(crate) is_closing: AtomicBool,
    /// It is to be closed once what is asked for through it is answered.
    pub(crate) is_to_close: AtomicBool,
}

/// How an open stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenStatus {
    /// The server knows it by this.
    Known(Stateid4),
    /// It lives on a delegation.
    Local,
    /// It was lost, and could not be had again.
    Lost,
    /// Closed.
    Closed,
}

impl Open {
    /// One that the server does not know yet.
    pub(crate) fn new((handle, owner): (Handle, u64), cred: Cred, (access, deny): (u32, u32)) -> Self {
        let (opened, status) = (AtomicU32::new(access), Mutex::new(OpenStatus::Local));
        let widened = Mutex::default();
        let (is_closing, is_to_close) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { handle, owner, cred, opened, widened, deny, status, is_closing, is_to_close }
    }

    /// The whole access.
    pub(crate) fn access(&self) -> u32 {
        self.opened() | self.widened.lock().as_ref().map_or(0, |(access, _)| *access)
    }

    /// What of it was asked for by who opened it.
    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::SeqCst)
    }

    /// What was asked for beside that, and as whom.
    pub(crate) fn widened(&self) -> Option<(u32, Cred)> {
        self.widened.lock().clone()
    }

    /// It has this access besides, as somebody.
    pub(crate) fn widen(&self, access: u32, cred: &Cred) {
        *self.widened.lock() = Some((access, cred.clone()));
    }

    /// It has this access and no other.
    pub(crate) fn reopened(&self, access: u32) {
        self.opened.store(access, Ordering::SeqCst);
        *self.widened.lock() = None;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    pub(crate) fn stateid(&self) -> Option<Stateid4> {
        match *self.status.lock() {
            OpenStatus::Known(stateid) => Some(stateid),
            _ => None,
        }
    }

    pub(crate) fn set(&self, status: OpenStatus) {
        *self.status.lock() = status;
    }

    /// The name of its owner, as it travels.
    pub(crate) fn owner_name(&self) -> [u8; 16] {
        owner_name(self.owner)
    }
}

/// The name of an open owner, as it travels.
pub(crate) fn owner_name(owner: u64) -> [u8; 16] {
    let mut name = *b"holdfast\0\0\0\0\0\0\0\0";
    name[8..].copy_from_slice(&owner.to_be_bytes());
    name
}

/// The same stateid, whatever its number is now: what was asked before a change of the state is answered all the same
/// (RFC 8881 section 8.2.2).
pub(crate) const fn newest(stateid: Stateid4) -> Stateid4 {
    Stateid4 { seqid: Seqid(0), other: stateid.other }
}

/// A file that is open. Clones are the same open; when the last one is dropped it is closed in the background.
#[derive(Clone, Debug)]
pub struct OpenFile(Arc<Holder>);

#[derive(Debug)]
struct Holder {
    open: Arc<Open>,
    client: Weak<Inner>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        if *self.open.status.lock() != OpenStatus::Closed
            && let Some(client) = self.client.upgrade()
        {
            client.close_later(Arc::clone(&self.open));
        }
    }
}

impl OpenFile {
    pub(crate) fn new(open: Arc<Open>, client: &Arc<Inner>) -> Self {
        Self(Arc::new(Holder { open, client: Arc::downgrade(client) }))
    }

    /// The file.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.0.open.handle
    }

    /// `OPEN4_SHARE_ACCESS_*`.
    #[must_use]
    pub fn access(&self) -> u32 {
        self.0.open.access()
    }

    /// Whether somebody else has it as well: a clone of it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether the server has lost it for good: every use of it answers [`Error::Lost`].
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.0.open.status.lock() == OpenStatus::Lost
    }

    /// Whether it lives on a delegation, and the server does not know of it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        *self.0.open.status.lock() == OpenStatus::Local
    }

    pub(crate) fn open(&self) -> &Arc<Open> {
        &self.0.open
    }
}

impl Files {
    /// A name for the owner of a new open.
    pub(crate) fn take_owner(&self) -> u64 {
        self.owners.lock().take()
    }

    /// Takes back an owner's name after its open is gone.
    pub(crate) fn free_owner(&self, owner: u64) {
        self.owners.lock().free.push(owner);
    }

    pub(crate) fn find(&self, file: &Handle) -> Option<Arc<FileState>> {
        self.table.lock().get(file).cloned()
    }

    /// Changes what is held of a file; what holds nothing any more is forgotten.
    pub(crate) fn change<T>(&self, file: &Handle, change: impl FnOnce(&mut Held) -> T) -> T {
        let mut table = self.table.lock();
        let state = table
            .entry(file.clone())
            .or_insert_with(|| Arc::new(FileState { handle: file.clone(), held: Mutex::default() }));
        let state = Arc::clone(state);
        let mut held = state.held.lock();
        let value = change(&mut held);
        if held.opens.is_empty() && held.locks.is_empty() && held.delegation.is_none() {
            table.remove(file);
        }
        value
    }

    /// Reads what is held of a file.
    pub(crate) fn look<T>(&self, file: &Handle, look: impl FnOnce(&Held) -> T) -> Option<T> {
        let state = self.find(file)?;
        let held = state.held.lock();
        Some(look(&held))
    }

    /// All files.
    pub(crate) fn all(&self) -> Vec<Arc<FileState>> {
        self.table.lock().values().cloned().collect()
    }

    /// The stateid for I/O: that of the owner's locks, of the open, of a delegation, or none.
    ///
    /// # Errors
    /// [`Error::Lost`], when the open was lost, or locks of the owner's, who may be any.
    pub(crate) fn stateid_for_io(
        &self,
        file: &Handle,
        open: Option<&Open>,
        owner: Whose<'_>,
        writes: bool,
    ) -> Result<Stateid4> {
        let status = open.map(|open| *open.status.lock());
        if matches!(status, Some(OpenStatus::Lost | OpenStatus::Closed)) {
            return Err(Error::Lost);
        }
        let found = self.look(file, |held| {
            // The server refuses what names a lock that it has given to somebody else, though it be on its way for long; what names
            // an open, which may have outlived the lock, it does.
            let through = |lock: &&Locker| open.is_some_and(|open| std::ptr::eq(&raw const *lock.open, open));
            let holds = |lock: &&Locker| !lock.ranges.is_empty();
            let lock = match owner {
                Whose::Of(owner) => {
                    held.locks.iter().find(|lock| lock.owner == owner && (lock.is_lost || holds(lock)))
                }
                Whose::Unknown => held.locks.iter().filter(through).find(holds),
                Whose::Nobodys => None,
            };
            let is_lost = lock.is_some_and(|lock| lock.is_lost);
            if is_lost || (owner == Whose::Unknown && held.locks.has_lost()) {
                return Err(Error::Lost);
            }
            let delegation = held.delegation.as_ref().filter(|delegation| {
                let covers = match delegation.kind {
                    DelegationKind::Write => true,
                    DelegationKind::Read => !writes,
                    DelegationKind::Directory => false,
                };
                !delegation.is_returning && covers
            });
            match (lock.and_then(Locker::stateid), status, delegation) {
                (Some(lock), _, _) => Ok(Some(newest(lock))),
                (_, Some(OpenStatus::Known(stateid)), _) => Ok(Some(newest(stateid))),
                (_, _, Some(delegation)) => Ok(Some(newest(delegation.stateid))),
                _ => Ok(None),
            }
        });
        Ok(found.transpose()?.flatten().unwrap_or(Stateid4::ANONYMOUS))
    }

    /// Notes that a delegation was used, and says what it allows.
    pub(crate) fn use_delegation(&self, file: &Handle) -> Option<DelegationKind> {
        let state = self.find(file)?;
        let mut held = state.held.lock();
        let delegation = held.delegation.as_mut().filter(|delegation| !delegation.is_returning)?;
        delegation.last_use = self.next_use();
        Some(delegation.kind)
    }

    /// Makes an open that lives on a delegation. With `is_claimed` the server judges it, as it is claimed at once; else
    /// it must have let this credential in before.
    pub(crate) fn open_local(
        &self,
        file: &Handle,
        access: u32,
        (cred, is_claimed): (&Cred, bool),
    ) -> Option<Arc<Open>> {
        let state = self.find(file)?;
        let mut held = state.held.lock();
        let delegation = held.delegation.as_mut().filter(|delegation| !delegation.is_returning)?;
        let access = access & OPEN4_SHARE_ACCESS_BOTH;
        let writes = access & OPEN4_SHARE_ACCESS_WRITE != 0;
        let covers = match delegation.kind {
            DelegationKind::Write => true,
            DelegationKind::Read => !writes,
            DelegationKind::Directory => false,
        };
        let is_let_in = is_claimed || (delegation.cred == *cred && access & !delegation.admitted == 0);
        if !covers || !is_let_in {
            return None;
        }
        delegation.last_use = self.next_use();
        let open = Arc::new(Open::new((file.clone(), self.take_owner()), cred.clone(), (access, 0)));
        held.opens.push(Arc::clone(&open));
        Some(open)
    }

    /// Counts uses of delegations.
    pub(crate) fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// What tells an owner of locks from all others.
    pub(crate) fn next_locker(&self) -> u64 {
        self.lockers.fetch_add(1, Ordering::Relaxed)
    }

    /// The next number in the order of grants and recalls.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Delegations, the one unused for longest first.
    pub(crate) fn delegations(&self) -> Vec<(Handle, DelegationKind)> {
        let mut all: Vec<_> = self
            .all()
            .iter()
            .filter_map(|state| {
                let held = state.held.lock();
                let delegation = held.delegation.as_ref()?;
                Some((delegation.last_use, state.handle.clone(), delegation.kind))
            })
            .collect();
        all.sort_unstable_by_key(|(last_use, _, _)| *last_use);
        all.into_iter().map(|(_, file, kind)| (file, kind)).collect()
    }
}
