//! Granting: the engine, the index and the backend must all agree, and none is kept waiting by another's lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::{ByteRange, ChangeId, ClientId, FileKey};
use holdfast_state::{Deed, Delegated, DelegationKind, DelegationRequest, DelegationTicket, DelegationToken};
use holdfast_state::{EntryKinds, Grounds, Offer, StateError, WhyNone};
use holdfast_vfs::{Backend, FileObject, FsResult, Handle, HeldPledge, LocalDeed, LocalListener, Pledge};

use crate::index::Promised;
use crate::manager::Manager;

/// Where a promise is to be held against processes on the server's host.
#[derive(Clone, Copy)]
pub struct PledgeOn<'a> {
    /// The export's backend.
    pub backend: &'a dyn Backend,
    /// The object.
    pub handle: &'a Handle,
    /// The client's open file, for a write delegation: open for writing.
    pub open: Option<&'a Arc<dyn FileObject>>,
    /// Looks at the object's change attribute, as the client: its own offer is not in its way. Needed where an OPEN brings
    /// the delegation.
    pub change: Option<&'a dyn Fn() -> FsResult<ChangeId>>,
}

/// What came of asking for a delegation.
#[derive(Debug, PartialEq, Eq)]
pub enum Granted {
    /// It is granted, and in force.
    Delegated(Delegated),
    /// It is not.
    Declined(WhyNone),
}

impl Manager {
    /// Grants a delegation, where the state engine agrees, no change is in flight, and the backend can hold it against
    /// local processes; on any failure nothing of it is left. Waits for no client, but perhaps for a disk.
    ///
    /// What is reclaimed is granted all the same where the backend cannot hold it, and to be returned at once.
    ///
    /// # Errors
    /// Those of [`holdfast_state::Engine::delegation_prepare`]; `Delay` of a reclaim that meets a change in flight. What comes
    /// in between meanwhile is no error otherwise: nothing is granted then.
    pub fn delegate(&self, request: &DelegationRequest, on: &PledgeOn<'_>) -> Result<Granted, StateError> {
        let ticket = match self.step(|engine, now| engine.delegation_prepare(request, now)) {
            Ok(Ok(Offer::Offered(ticket))) => ticket,
            Ok(Ok(Offer::Declined(why))) => return Ok(Granted::Declined(why)),
            Ok(Err(error)) => return Err(error),
            // No record is written for a delegation.
            Err(_) => return Ok(Granted::Declined(WhyNone::Resource)),
        };
        let (token, kind, is_upgrade) = (ticket.token(), ticket.kind(), ticket.is_upgrade());
        let if_change_is = ticket.if_change_is();
        let mut offered =
            Offered { manager: self, ticket: Some(ticket), file: request.file, is_entered: false };
        let is_reclaim = matches!(request.grounds, Grounds::Reclaim(_));
        let declined =
            if is_reclaim { Err(StateError::Delay) } else { Ok(Granted::Declined(WhyNone::Contention)) };
        offered.is_entered = self.put_in_force((request.file, request.client), (token, kind));
        if !offered.is_entered {
            return declined;
        }
        let guard = match on.backend.pledge(on.handle, pledge_of(kind), on.open) {
            Ok(Some(guard)) if !guard.is_broken() => Some(guard),
            // It cannot be held, or did not hold until now.
            broken if is_reclaim => {
                self.take_unwelcome(&offered);
                broken.ok().flatten()
            }
            Ok(_) | Err(_) => return declined,
        };
        // Nobody changes it unnoticed from here on.
        if if_change_is.is_some_and(|change| on.change.is_none_or(|look| look() != Ok(change))) {
            return Ok(Granted::Declined(WhyNone::OpenBefore));
        }
        let former = guard.and_then(|guard| self.pledges.lock().insert(token, guard));
        let Some(ticket) = offered.ticket.take() else { return declined };
        match self.step(|engine, now| engine.delegation_commit(ticket, now)) {
            Ok(Ok(delegated)) => Ok(Granted::Delegated(delegated)),
            Ok(Err(_)) | Err(_) => {
                self.take_back(request.file, token, former.filter(|_| is_upgrade));
                declined
            }
        }
    }

    fn take_unwelcome(&self, offered: &Offered<'_>) {
        let Some(ticket) = &offered.ticket else { return };
        // It touches no client's record.
        let _ = self.step(|engine, _| engine.delegation_unwelcome(ticket));
    }

    /// Puts a delegation into force against clients that the engine has from a former process. False when it cannot be:
    /// it is to be recalled ([`Manager::recall`]) once clients can be called.
    pub fn adopt(&self, token: DelegationToken) -> bool {
        let delegation = self.look(|engine| engine.delegation_of(token));
        delegation.is_some_and(|(client, file, kind, _)| self.put_in_force((file, client), (token, kind)))
    }

    /// Guards it against local processes as well. Once clients can be called, for what keeps it from being guarded may
    /// be told as a local deed and have it recalled. False when it cannot be: it is to be recalled.
    pub fn guard_adopted(&self, token: DelegationToken, on: &PledgeOn<'_>) -> bool {
        let Some((_, _, kind, _)) = self.look(|engine| engine.delegation_of(token)) else { return true };
        let Ok(Some(guard)) = on.backend.pledge(on.handle, pledge_of(kind), on.open) else { return false };
        let is_held = !guard.is_broken();
        // One that a local process is breaking already, too: it keeps that process waiting until the delegation ends.
        self.keep_pledge(token, guard);
        // Given back meanwhile, by a client that was quick, it needs none.
        is_held || self.look(|engine| engine.delegation_of(token)).is_none()
    }

    /// Has everything on a file recalled, whoever holds it, as if somebody outside had changed it.
    pub fn recall(&self, file: FileKey) {
        self.local_deed(file, LocalDeed::Unknown);
    }

    /// Enters a promise where deeds are judged.
    pub(crate) fn put_in_force(
        &self,
        (file, client): (FileKey, ClientId),
        (token, kind): (DelegationToken, DelegationKind),
    ) -> bool {
        let Some(reason) = self.names.promise() else { return false };
        // Counted first: what is changed once it is in force is to be told.
        let telling = usize::from(is_told(kind));
        self.told.fetch_add(telling, Ordering::SeqCst);
        match self.index.promise(file, kind, client, token) {
            Promised::New => {
                reason.keep();
                true
            }
            promised => {
                self.told.fetch_sub(telling, Ordering::SeqCst);
                promised == Promised::Widened
            }
        }
    }

    /// Undoes what was entered for an offer that came to nothing. Of an upgrade the former delegation stays.
    fn take_back(&self, file: FileKey, token: DelegationToken, former: Option<HeldPledge>) {
        match self.look(|engine| engine.delegation_of(token)) {
            Some((.., kind, _)) => {
                self.index.narrow(file, token, kind);
                if let Some(former) = former {
                    self.keep_pledge(token, former);
                }
                self.recalls.end();
            }
            None => self.end_promise(file, token),
        }
    }

    /// Keeps what holds a promise against local processes, unless its delegation has ended meanwhile: whoever ended it
    /// found nothing to let go. Guards are dropped outside the lock.
    fn keep_pledge(&self, token: DelegationToken, guard: HeldPledge) {
        let before = self.pledges.lock().insert(token, guard);
        drop(before);
        if self.look(|engine| engine.delegation_of(token)).is_none() {
            let guard = self.pledges.lock().remove(&token);
            drop(guard);
        }
    }

    /// Takes a promise out of force, lets local processes go on, and wakes who waits for that.
    pub(crate) fn end_promise(&self, file: FileKey, token: DelegationToken) {
        if let Some(kind) = self.index.release(file, token) {
            self.names.release();
            self.told.fetch_sub(usize::from(is_told(kind)), Ordering::SeqCst);
        }
        self.questions.forget(token);
        let guard = self.pledges.lock().remove(&token);
        drop(guard);
        self.recalls.end();
    }
}

/// An offer that is taken back unless it is committed, also when a backend panics: it would stand in others' way, and
/// keep the server from being handed over.
struct Offered<'m> {
    manager: &'m Manager,
    /// Gone once it is to be committed.
    ticket: Option<DelegationTicket>,
    file: FileKey,
    /// It stands in the index.
    is_entered: bool,
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let token = ticket.token();
        // An abort touches no client's record.
        let _ = self.manager.step(|engine, now| engine.delegation_abort(ticket, now));
        self.manager.recalls.end();
        if self.is_entered {
            self.manager.take_back(self.file, token, None);
        }
    }
}

const fn is_told(kind: DelegationKind) -> bool {
    matches!(kind, DelegationKind::NotifiedDirectory(_))
}

const fn pledge_of(kind: DelegationKind) -> Pledge {
    match kind {
        DelegationKind::Read => Pledge::ReadFile,
        DelegationKind::Write => Pledge::WriteFile,
        DelegationKind::Directory | DelegationKind::NotifiedDirectory(_) => Pledge::Directory,
    }
}

/// What a local process's deed is among all deeds. What was missed may have been anything: it stands against all.
const fn deed_of(deed: LocalDeed) -> Deed {
    match deed {
        LocalDeed::OpenToRead => Deed::OpenRead,
        LocalDeed::OpenToWrite => Deed::OpenWrite,
        LocalDeed::Wrote => Deed::WriteData,
        LocalDeed::ChangedAttrs => Deed::ChangeAttrs,
        LocalDeed::ChangedName | LocalDeed::Unknown => Deed::ChangeName,
        // Which, nobody could tell.
        LocalDeed::ChangedEntries => Deed::ChangeEntries(EntryKinds::UNKNOWN),
    }
}

impl LocalListener for Manager {
    fn local_deed(&self, file: FileKey, deed: LocalDeed) {
        // The local process waits in the kernel, or has been there already: nobody waits here. Recalls touch no
        // client's record.
        let _ = self.step(|engine, now| {
            match deed {
                // It breaks what guards a file that may be changed unseen; the guard against writers that follows is
                // whole.
                LocalDeed::OpenToRead => drop(engine.contend(file, Deed::OpenRead, None, now)),
                _ => engine.contend_outside(file, deed_of(deed), now),
            }
            engine.waits_outside(file, now);
        });
    }

    fn local_unlock(&self, file: FileKey, range: ByteRange) {
        for agent in self.agents() {
            agent.local_unlock(file, range);
        }
    }
}
