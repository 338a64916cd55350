//! Granting capabilities: as for delegations, the engine, the index and the backend must all agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_base::limits::{BESIDE_ROUNDS_MAX, RECALL_WAIT_MS};
use holdfast_base::{CapSet, ClientId, FileKey, Instant};
use holdfast_state::{CapGrant, CapOffer, CapRequest, CapTicket, Contention, Engine, StateError};
use holdfast_vfs::{Backend, Caller, Cx, FileKind, FileObject, Handle, HeldPledge, OpenMode, Pledge, Wait};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::index::Promised;
use crate::manager::Manager;

/// The object that capabilities are asked of.
#[derive(Clone, Copy)]
pub struct CapsOn<'a> {
    /// The export's backend.
    pub backend: &'a Arc<dyn Backend>,
    /// The object.
    pub handle: &'a Handle,
    /// What it is.
    pub kind: FileKind,
    /// Open for writing, of a file that was made a moment ago: what it is guarded by can stand on that.
    pub file: Option<&'a Arc<dyn FileObject>>,
}

/// All capabilities that are in force, beside what the index has.
#[derive(Default)]
pub(crate) struct CapsInForce {
    entries: Mutex<FxHashMap<(ClientId, FileKey), Entry>>,
    /// How many of them have something exclusive.
    exclusive: AtomicUsize,
    /// When some may be asked back again, as leases are running out. Held by whoever does it.
    pub(crate) leased_asked_next: Mutex<Option<Instant>>,
}

/// What one client has of one object.
#[derive(Default)]
struct Entry {
    pledge: Option<CapsPledge>,
    is_exclusive: bool,
}

impl CapsInForce {
    fn note_exclusive(&self, entry: &mut Entry, is_exclusive: bool) {
        match (std::mem::replace(&mut entry.is_exclusive, is_exclusive), is_exclusive) {
            (false, true) => drop(self.exclusive.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.exclusive.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Who holds what that stands on a lease of this backend's.
    pub(crate) fn leased(&self, backend: &Arc<dyn Backend>) -> Vec<(ClientId, FileKey)> {
        let is_one =
            |pledge: &CapsPledge| pledge.what == Pledge::WriteFile && Arc::ptr_eq(&pledge.backend, backend);
        let entries = self.entries.lock();
        let leased = entries.iter().filter(|(_, entry)| entry.pledge.as_ref().is_some_and(is_one));
        leased.map(|(key, _)| *key).collect()
    }
}

/// How an attempt to grant something has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With all that can be had now.
    Told,
    /// Somebody was changing the file.
    Met,
    /// Local processes would not be noticed.
    Unguarded,
}

/// What holds it against local processes.
struct CapsPledge {
    guard: HeldPledge,
    what: Pledge,
    backend: Arc<dyn Backend>,
    handle: Handle,
}

impl Manager {
    /// Grants what can be had of what is wanted. What others hold in its way is recalled, and waited for until `until`
    /// at the longest, where this thread may wait; what is not given is no error. Returns what the client holds.
    ///
    /// # Errors
    /// Those of [`holdfast_state::Engine::caps_prepare`].
    pub fn acquire_caps(
        &self,
        request: &CapRequest,
        on: &CapsOn<'_>,
        until: Option<Instant>,
    ) -> Result<CapGrant, StateError> {
        if let Some(until) = until {
            self.clear_the_way(request, until);
        }
        if request.is_beside_writers && until.is_some() {
            return self.acquire_beside_writers(request, on);
        }
        let (grant, end) = self.acquire_guarded(request, on)?;
        if !request.want.contains(CapSet::FILE_X) {
            return Ok(grant);
        }
        self.heed_scarce_leases(on);
        if end != End::Unguarded || request.reclaim.is_some() {
            return Ok(grant);
        }
        // What nobody may look at unseen cannot be had (a local process has it open, descriptors are short): less may.
        let want = request.want.without(CapSet::FILE_X_ALONE);
        self.acquire_guarded(&CapRequest { want, ..*request }, on).map(|(grant, _)| grant)
    }

    /// The same where others write: between two changes, and behind those who wait to make one.
    fn acquire_beside_writers(&self, request: &CapRequest, on: &CapsOn<'_>) -> Result<CapGrant, StateError> {
        let mut rounds = BESIDE_ROUNDS_MAX;
        while rounds > 0 && self.changers.has_other(request.client, request.file) {
            rounds -= 1;
            self.recalls.wait(self.recalls.count(), 1);
        }
        loop {
            let (grant, end) = self.acquire_guarded(request, on)?;
            if end != End::Met || rounds == 0 {
                return Ok(grant);
            }
            rounds -= 1;
            self.recalls.wait(self.recalls.count(), 1);
        }
    }

    /// Says as well how it ended.
    fn acquire_guarded(&self, request: &CapRequest, on: &CapsOn<'_>) -> Result<(CapGrant, End), StateError> {
        let key = (request.client, request.file);
        self.acquire_offered(key, request.is_beside_writers, on, |engine, now| {
            engine.caps_prepare(request, now)
        })
    }

    /// Puts into force what the engine offers a client, guards it, and has it granted.
    pub(crate) fn acquire_offered(
        &self,
        key: (ClientId, FileKey),
        is_beside_writers: bool,
        on: &CapsOn<'_>,
        prepare: impl FnOnce(&mut Engine, Instant) -> Result<CapOffer, StateError>,
    ) -> Result<(CapGrant, End), StateError> {
        let offer = match self.step(prepare) {
            Ok(offer) => offer?,
            // No record is written for capabilities.
            Err(_) => return Ok((CapGrant::default(), End::Told)),
        };
        let ticket = match offer {
            CapOffer::Offered(ticket) => ticket,
            CapOffer::Held(grant) => return Ok((grant, End::Told)),
        };
        let mut offered = Offered { manager: self, key, ticket: Some(ticket) };
        let held = || self.look(|engine| engine.caps_of(key.0, key.1));
        let Some(all) = offered.ticket.as_ref().map(CapTicket::all) else { return Ok((held(), End::Told)) };
        if !self.put_caps_in_force(key, all) {
            return Ok((held(), End::Met));
        }
        if !self.pledge_caps(key, (all, is_beside_writers), on) {
            drop(offered);
            return Ok((held(), End::Unguarded));
        }
        let Some(ticket) = offered.ticket.take() else { return Ok((held(), End::Told)) };
        match self.step(|engine, _| engine.caps_commit(ticket)) {
            Ok(Ok(grant)) => Ok((grant, End::Told)),
            Ok(Err(_)) | Err(_) => {
                self.settle_caps(key);
                Ok((held(), End::Met))
            }
        }
    }

    /// Puts into force against clients what one holds by a former process' engine. False when it cannot be: it is to be
    /// recalled ([`Manager::recall`]) once clients can be called.
    pub fn adopt_caps(&self, client: ClientId, file: FileKey) -> bool {
        let all = self.look(|engine| engine.caps_in_force(client, file));
        all.is_empty() || self.put_caps_in_force((client, file), all)
    }

    /// Guards it against local processes as well. Once clients can be called, for what keeps it from being guarded may be
    /// told as a local deed and have it recalled. False when it cannot be: it is to be recalled.
    pub fn guard_adopted_caps(&self, client: ClientId, file: FileKey, on: &CapsOn<'_>) -> bool {
        let all = || self.look(|engine| engine.caps_in_force(client, file));
        let held = all();
        // Given back meanwhile, by a client that was quick, it needs none.
        held.is_empty() || self.pledge_caps((client, file), (held, false), on) || all().is_empty()
    }

    /// How long from now on a call may wait for what it has recalled, all together.
    #[must_use]
    pub fn caps_patience(&self) -> Instant {
        self.clock().now().after_ms(RECALL_WAIT_MS)
    }

    /// Recalls what stands in the way of a wish, and waits a little, counted from the recall's begin: behind who does not answer
    /// nobody is to wait again and again.
    fn clear_the_way(&self, request: &CapRequest, until: Instant) {
        let CapRequest { client, file, want, .. } = *request;
        loop {
            let seen = self.recalls.count();
            let asked = self.step(|engine, now| (engine.caps_contend(file, want, client, now), now));
            let Ok((Contention::Recalling { since }, now)) = asked else { return };
            let left = until.ms_since(now).min(RECALL_WAIT_MS.saturating_sub(now.ms_since(since)));
            if left == 0 || !self.recalls.wait(seen, left) {
                return;
            }
        }
    }

    /// Enters what is about to be granted where deeds are judged. Under the table's lock, so that whoever narrows the
    /// same entry has either seen the offer or is done.
    pub(crate) fn put_caps_in_force(&self, (client, file): (ClientId, FileKey), all: CapSet) -> bool {
        let Some(reason) = self.names.promise() else { return false };
        let mut entries = self.caps.entries.lock();
        match self.index.promise_caps(file, all, client) {
            Promised::New => reason.keep(),
            Promised::Widened => drop(reason),
            Promised::Refused => return false,
        }
        let entry = entries.entry((client, file)).or_default();
        self.caps.note_exclusive(entry, all.is_exclusive());
        true
    }

    /// Holds capabilities against local processes. False when that cannot be done.
    fn pledge_caps(
        &self,
        key: (ClientId, FileKey),
        (all, is_beside_writers): (CapSet, bool),
        on: &CapsOn<'_>,
    ) -> bool {
        let what = pledge_of(on.kind, all, is_beside_writers);
        let former = {
            let mut entries = self.caps.entries.lock();
            let Some(entry) = entries.get_mut(&key) else { return false };
            if let Some(pledge) = entry.pledge.as_ref().filter(|pledge| holds(pledge.what, what)) {
                return !pledge.guard.is_broken();
            }
            entry.pledge.take()
        };
        let had_one = former.is_some();
        // A reader's lease would stand in the way of a writer's.
        drop(former);
        if let Some(guard) = pledge(key.0, (on.backend, on.handle, on.file), what) {
            let pledge = CapsPledge { guard, what, backend: Arc::clone(on.backend), handle: *on.handle };
            return self.keep_caps_pledge(key, pledge, true);
        }
        if had_one {
            self.pledge_less(key, (on.backend, on.handle));
        }
        false
    }

    /// Keeps a guard with the entry it is for; `is_newer`: than what may have come to be there meanwhile. Guards are
    /// dropped outside the lock. False when the entry is gone.
    fn keep_caps_pledge(&self, key: (ClientId, FileKey), pledge: CapsPledge, is_newer: bool) -> bool {
        let mut entries = self.caps.entries.lock();
        let (is_there, spare) = match entries.get_mut(&key) {
            Some(entry) if is_newer || entry.pledge.is_none() => (true, entry.pledge.replace(pledge)),
            Some(_) => (true, Some(pledge)),
            None => (false, Some(pledge)),
        };
        drop(entries);
        drop(spare);
        is_there
    }

    /// Brings index and guard in line with what the engine says that a client holds or is offered: less was given than
    /// was thought of, or something was given back.
    pub(crate) fn settle_caps(&self, key: (ClientId, FileKey)) {
        let (client, file) = key;
        let mut entries = self.caps.entries.lock();
        let left = self.look(|engine| engine.caps_in_force(client, file));
        let is_over = self.index.leave_caps(file, left, client);
        let mut entry = entries.remove(&key).unwrap_or_default();
        self.caps.note_exclusive(&mut entry, left.is_exclusive());
        let is_due = |pledge: &CapsPledge| {
            left.is_empty() || (pledge.what == Pledge::WriteFile && !left.contains(CapSet::FILE_X))
        };
        let former = if entry.pledge.as_ref().is_some_and(is_due) { entry.pledge.take() } else { None };
        if !left.is_empty() {
            entries.insert(key, entry);
        }
        drop(entries);
        if is_over {
            self.names.release();
        }
        if let Some(CapsPledge { guard, backend, handle, .. }) = former {
            // While the stronger one stands the weaker may stand on the same ground.
            let less = || pledge(key.0, (&backend, &handle, None), Pledge::ReadFile);
            let beside = if left.is_empty() { None } else { less() };
            drop(guard);
            match beside {
                _ if left.is_empty() => {}
                Some(guard) => {
                    let pledge = CapsPledge { guard, what: Pledge::ReadFile, backend, handle };
                    self.keep_caps_pledge(key, pledge, false);
                }
                None => self.pledge_less(key, (&backend, &handle)),
            }
        }
        self.recalls.end();
    }

    /// What is left after a file may not be changed unseen any more is held against fewer local deeds. Where that cannot
    /// be, it is recalled.
    fn pledge_less(&self, key: (ClientId, FileKey), (backend, handle): (&Arc<dyn Backend>, &Handle)) {
        let what = Pledge::ReadFile;
        match pledge(key.0, (backend, handle, None), what) {
            Some(guard) => {
                let pledge = CapsPledge { guard, what, backend: Arc::clone(backend), handle: *handle };
                self.keep_caps_pledge(key, pledge, false);
            }
            None => self.recall(key.1),
        }
    }

    /// Whether any client may have changed anything unseen.
    pub(crate) fn has_exclusive_caps(&self) -> bool {
        self.caps.exclusive.load(Ordering::Relaxed) > 0
    }
}

/// An offer that is taken back unless it is committed, also when a backend panics.
struct Offered<'m> {
    manager: &'m Manager,
    key: (ClientId, FileKey),
    ticket: Option<CapTicket>,
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        // An abort touches no client's record.
        let _ = self.manager.step(|engine, _| engine.caps_abort(ticket));
        self.manager.settle_caps(self.key);
    }
}

/// Whether a guard for the one will do for the other.
fn holds(has: Pledge, needed: Pledge) -> bool {
    has == needed
        || matches!(
            (has, needed),
            (Pledge::WriteFile, Pledge::ReadFile)
                | (Pledge::ReadFile | Pledge::WriteFile, Pledge::ReadWritten)
                // What is had beside it needs no more.
                | (Pledge::ReadWritten, Pledge::ReadFile)
        )
}

const fn pledge_of(kind: FileKind, all: CapSet, is_beside_writers: bool) -> Pledge {
    match kind {
        FileKind::Directory => Pledge::Directory,
        _ if all.contains(CapSet::FILE_X) => Pledge::WriteFile,
        FileKind::Regular if is_beside_writers => Pledge::ReadWritten,
        _ => Pledge::ReadFile,
    }
}

fn pledge(
    client: ClientId,
    (backend, handle, file): (&Arc<dyn Backend>, &Handle, Option<&Arc<dyn FileObject>>),
    what: Pledge,
) -> Option<HeldPledge> {
    let opened = match what {
        Pledge::WriteFile if file.is_none() => {
            // The backend takes its lease on an open file. What is promised to the client is not in its own way.
            let root = Caller::root();
            let cx = Cx::new(&root, Wait::Yes).by(Some(client));
            let mode = OpenMode { read: true, write: true, nfs_exceptions: true };
            Some(backend.open(&cx, handle, mode).ok()?)
        }
        Pledge::WriteFile | Pledge::ReadFile | Pledge::ReadWritten | Pledge::Directory => None,
    };
    let open = file.or(opened.as_ref());
    backend.pledge(handle, what, open).ok()?.filter(|guard| !guard.is_broken())
}
