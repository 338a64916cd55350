//! The reference's restarts: what everybody believes to hold when the server has lost it all, who may ask for that again, what is
//! refused until they have, and who has missed his time.

use std::collections::BTreeSet;

use holdfast_base::Instant;
use holdfast_state::{DelegationKind, LockKind, Share, StateError};

use super::line::Party;
use super::promises::{Callbacks, Delegation, deed_of_lock, deed_of_share, excludes};
use super::{CLIENTS, FIRST_40, Lock, LockState, Model, Open};

/// On what grounds something is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Anew,
    /// As what was had before the restart.
    Again,
    /// Under a delegation of its client's that allows it.
    Delegated,
}

/// What a LOCK is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAnswer {
    Granted,
    Denied,
    Refused(StateError),
}

/// What is believed to be held, though the server does not know of it.
#[derive(Debug, Default)]
pub(crate) struct Beliefs {
    pub(crate) opens: Vec<Open>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) lock_states: Vec<LockState>,
    /// Client, file and which.
    pub(crate) delegations: Vec<(usize, usize, DelegationKind)>,
}

impl Beliefs {
    pub(crate) fn give_up(&mut self, client: usize) {
        self.opens.retain(|open| open.client != client);
        self.locks.retain(|lock| lock.client != client);
        self.lock_states.retain(|state| state.client != client);
        self.delegations.retain(|(holder, ..)| *holder != client);
    }

    /// Whether somebody believes to hold anything.
    pub(crate) fn has_any(&self, client: usize) -> bool {
        self.opens.iter().any(|open| open.client == client)
            || self.locks.iter().any(|lock| lock.client == client)
            || self.delegations.iter().any(|(holder, ..)| *holder == client)
    }
}

/// What a restart is survived by.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Until when nothing but reclaims is served.
    pub(crate) grace_until: Option<Instant>,
    pub(crate) beliefs: Beliefs,
    /// They are on record: there is an incarnation that was confirmed and has not lost everything.
    pub(crate) is_on_record: [bool; CLIENTS],
    /// They have been granted something since they came: it is on record that they may hold something.
    pub(crate) may_hold: [bool; CLIENTS],
    /// Others may have had what they believe to hold: something was revoked in a life before, or grace ended too soon for them.
    pub(crate) missed: [bool; CLIENTS],
    /// They may reclaim in this life of the server, while grace is on.
    pub(crate) may_reclaim: [bool; CLIENTS],
    /// They have said RECLAIM_COMPLETE in this life; 4.0 cannot.
    pub(crate) is_done: [bool; CLIENTS],
}

impl Model {
    pub(crate) fn is_grace(&self) -> bool {
        self.recovery.grace_until.is_some_and(|until| self.now < until)
    }

    /// What a request is answered by its grounds alone. `has_it`: it reclaims what its client has by now, and was cut short.
    pub(crate) fn refused(&self, client: usize, asked: Asked, has_it: bool) -> Option<StateError> {
        let (is_done, can_say_so) = (self.recovery.is_done[client], client < FIRST_40);
        match asked {
            Asked::Delegated => None,
            Asked::Anew => (self.is_grace() || can_say_so && !is_done).then_some(StateError::Grace),
            Asked::Again if has_it && can_say_so && !is_done => None,
            Asked::Again if is_done || !self.is_grace() => Some(StateError::NoGrace),
            Asked::Again => (!self.recovery.may_reclaim[client]).then_some(StateError::ReclaimBad),
        }
    }

    /// Whether a client that has reclaimed all it had asks for a lock that it has, or that its delegation excludes of others.
    pub(crate) fn is_its_own(&self, new: Lock, has_it: bool) -> bool {
        let Lock { client, file, kind, .. } = new;
        let in_way = match kind {
            LockKind::Read => LockKind::Write,
            LockKind::Write => LockKind::Read,
        };
        let is_kept =
            self.delegation(client, file).is_some_and(|own| excludes(own.kind, deed_of_lock(in_way)));
        (has_it || is_kept) && (self.recovery.is_done[client] || client >= FIRST_40)
    }

    /// The same for those of other doors, whose services know who may reclaim.
    pub(crate) fn refused_foreign(&self, asked: Asked) -> Option<StateError> {
        match asked {
            Asked::Again => (!self.is_grace()).then_some(StateError::NoGrace),
            Asked::Anew | Asked::Delegated => self.is_grace().then_some(StateError::Grace),
        }
    }

    /// The server dies and comes again. What was held is believed to be held, what was waited for is not waited for any more.
    pub(crate) fn crash(&mut self, grace_ms: u64) {
        for client in 0..CLIENTS {
            let has_lost = self.revoked.iter().any(|(holder, _)| *holder == client);
            self.recovery.missed[client] |= has_lost;
            let Recovery { is_on_record, may_hold, missed, .. } = &self.recovery;
            let may_reclaim = is_on_record[client] && may_hold[client] && !missed[client];
            self.recovery.may_reclaim[client] = may_reclaim;
        }
        self.waits.clear();
        let parties: BTreeSet<_> = self.opens.iter().map(|open| open.client).collect();
        let parties = parties.into_iter().chain(0..CLIENTS).chain(self.locks.iter().map(|lock| lock.client));
        parties.collect::<Vec<_>>().into_iter().for_each(|client| self.forget(client));
        self.recovery.is_done = [false; CLIENTS];
        self.callbacks = Default::default();
        self.gone = [true; CLIENTS];
        self.leaving.clear();
        self.recent = Default::default();
        self.recovery.grace_until = Some(self.now.after_ms(grace_ms));
    }

    /// What the server does not know of any more is believed in until its client hears of that.
    pub(crate) fn believe(&mut self, client: usize) {
        let beliefs = &mut self.recovery.beliefs;
        beliefs.opens.extend(self.opens.iter().filter(|open| open.client == client));
        beliefs.locks.extend(self.locks.iter().filter(|lock| lock.client == client));
        beliefs.lock_states.extend(self.lock_states.iter().filter(|state| state.client == client));
        // Delegations of directories are not reclaimed.
        let files = self.delegations.iter().filter(|d| d.client == client && !d.kind.is_directory());
        beliefs.delegations.extend(files.map(|d| (d.client, d.file, d.kind)));
        let revoked = self.revoked.iter().filter(|(holder, file)| *holder == client && *file < super::FILES);
        beliefs.delegations.extend(revoked.map(|(holder, file)| (*holder, *file, DelegationKind::Read)));
    }

    /// Grace is over. Who has not come to the end has missed it; so have those of other doors, whose right to reclaim ends.
    pub(crate) fn grace_ends(&mut self) {
        self.recovery.grace_until = None;
        for client in 0..CLIENTS {
            self.recovery.missed[client] |= !self.has_come_to_the_end(client);
        }
        (CLIENTS..CLIENTS + super::FOREIGN).for_each(|who| self.recovery.beliefs.give_up(who));
    }

    /// Whether a client needs no grace: it has reclaimed everything, or has nothing to reclaim by right.
    pub(crate) fn has_come_to_the_end(&self, client: usize) -> bool {
        match client {
            0..FIRST_40 => self.recovery.is_done[client],
            _ => !self.recovery.beliefs.has_any(client),
        }
    }

    /// Whether grace has nobody to wait for.
    pub(crate) fn is_everybody_done(&self) -> bool {
        let is_awaited =
            |client: usize| self.recovery.may_reclaim[client] && !self.has_come_to_the_end(client);
        !(0..CLIENTS).any(is_awaited)
            && !(CLIENTS..CLIENTS + super::FOREIGN).any(|who| self.recovery.beliefs.has_any(who))
    }

    /// A client agrees with the server again on what it holds: it has said so, or (4.0) asked for something new.
    pub(crate) fn agree(&mut self, client: usize) {
        self.recovery.missed[client] = false;
        self.recovery.beliefs.give_up(client);
    }

    /// A client makes itself known, for the first time or after it was off the record.
    pub(crate) fn put_on_record(&mut self, client: usize) {
        self.recovery.is_on_record[client] = true;
        self.recovery.may_hold[client] = false;
        self.recovery.missed[client] = false;
        self.recovery.may_reclaim[client] = false;
    }

    /// A new incarnation believes nothing.
    pub(crate) fn begin_anew(&mut self, client: usize) {
        self.put_on_record(client);
        self.recovery.beliefs.give_up(client);
        self.recovery.is_done[client] = client < FIRST_40;
        self.gone[client] = false;
        self.callbacks[client] = Callbacks::Arrive;
        self.leaving.remove(&client);
    }

    /// A client is off the record.
    pub(crate) fn lose(&mut self, client: usize) {
        self.gone[client] = true;
        self.recovery.is_on_record[client] = false;
        self.recovery.may_reclaim[client] = false;
    }

    /// Whether an owner has what it asks for as reclaimed, or more.
    pub(crate) fn has_share(&self, of: Open) -> bool {
        let Some(Share { access, deny }) = self.share(of.client, of.owner, of.file) else { return false };
        access.contains(of.share.access) && deny.contains(of.share.deny)
    }

    pub(crate) fn has_locked(&self, of: Lock, last: usize) -> bool {
        (of.byte..=last).all(|byte| {
            let mut own =
                self.locks.iter().filter(|l| (l.party(), l.file, l.byte) == (of.party(), of.file, byte));
            own.any(|own| own.kind >= of.kind)
        })
    }

    /// What a client hears that asks for a delegation as one held before: an error; or whether it is given one.
    pub(crate) fn judge_reclaimed_delegation(
        &self,
        client: usize,
        file: usize,
        kind: DelegationKind,
    ) -> Result<bool, StateError> {
        let own = self.delegation(client, file);
        let has_it = own.is_some_and(|own| own.kind == kind);
        if let Some(error) = self.refused(client, Asked::Again, has_it) {
            return Err(error);
        }
        // Revoked for somebody else's deed, and not yet freed.
        if self.revoked.contains(&(client, file)) {
            return Err(StateError::ReclaimConflict);
        }
        match own {
            Some(Delegation { recalled: Some(_), .. }) => return Err(StateError::Delay),
            Some(own) if (own.kind, kind) != (DelegationKind::Read, DelegationKind::Write) => {
                return Ok(false);
            }
            _ => {}
        }
        let is_other = |holder: usize| holder != client;
        let mut delegations = self.delegations.iter().filter(|d| d.file == file && is_other(d.client));
        let mut opens = self.opens.iter().filter(|open| open.file == file && is_other(open.client));
        let mut locks = self.locks.iter().filter(|lock| lock.file == file && is_other(lock.client));
        let alone = |other: DelegationKind| kind == DelegationKind::Write || other == DelegationKind::Write;
        let is_in_way = delegations.any(|d| alone(d.kind))
            || opens.any(|open| excludes(kind, deed_of_share(open.share)))
            || locks.any(|lock| excludes(kind, deed_of_lock(lock.kind)))
            || self.is_awaited(file);
        Ok(!is_in_way)
    }

    /// What a share of another door is answered.
    pub(crate) fn judge_foreign_share(&mut self, new: Open, asked: Asked) -> Result<(), StateError> {
        if let Some(error) = self.refused_foreign(asked) {
            return Err(error);
        }
        if !self.can_share(new.file, new.share, |_| true, |open| open.client != new.client, self.now) {
            return Err(StateError::ShareDenied);
        }
        let waits = self.contend(new.file, deed_of_share(new.share), None, self.now);
        if waits { Err(StateError::Delay) } else { Ok(()) }
    }

    /// A stretch of bytes that a lock-owner believes to have locked alike, if any.
    pub(crate) fn believed_lock(&self, party: Party, file: usize) -> Option<(Lock, usize)> {
        let its = |lock: &&Lock| (lock.party(), lock.file) == (party, file);
        let locks = || self.recovery.beliefs.locks.iter().filter(its);
        let first = *locks().min_by_key(|lock| lock.byte)?;
        let is_more = |byte: usize| locks().any(|lock| (lock.byte, lock.kind) == (byte, first.kind));
        let last = (first.byte..).take_while(|byte| is_more(*byte)).last()?;
        Some((first, last))
    }
}
