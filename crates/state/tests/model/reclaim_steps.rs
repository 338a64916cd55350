//! Steps of the random histories in which clients reclaim what they had before a restart, or try to have more.

use holdfast_state::*;

use super::Run;
use super::reference::grace::Asked;
use super::reference::promises::Callbacks;
use super::reference::{BYTES, FILES, FIRST_40, Lock, OWNERS, Open};
use super::world::*;

/// What a LOCK was refused for.
fn refused(result: &Result<bool, LockRefusal>) -> Option<StateError> {
    match result {
        Ok(_) => None,
        Err(LockRefusal::Error(error)) => Some(*error),
        // Of a reclaim another error says so.
        Err(LockRefusal::Denied(conflict)) => panic!("{conflict:?}"),
    }
}

impl Run {
    /// Whether a client has come back and is still to reclaim, or to find out that it cannot.
    pub(crate) fn is_recovering(&self, client: usize) -> bool {
        !self.model.has_come_to_the_end(client)
    }

    /// One step of a client on its way to what it had: opens first, as locks are made through them.
    pub(crate) fn recover(&mut self, client: usize) {
        let beliefs = &self.model.recovery.beliefs;
        let opens: Vec<_> = beliefs.opens.iter().filter(|of| of.client == client).copied().collect();
        let delegations: Vec<_> = beliefs.delegations.iter().filter(|of| of.0 == client).copied().collect();
        let lock = beliefs.locks.iter().find(|of| of.client == client).copied();
        match (opens.len(), delegations.len(), lock) {
            _ if self.pick(8) == 0 => self.recover_again(client),
            _ if self.pick(16) == 0 => self.finish(client),
            (0, 0, None) if self.pick(2) == 0 => self.recover_again(client),
            (0, 0, None) => self.finish(client),
            (0, 0, Some(lock)) => self.recover_lock(lock),
            (0, count, _) => {
                let of = delegations[self.pick(count)];
                self.recover_delegation(of);
            }
            (count, ..) => {
                let of = opens[self.pick(count)];
                self.recover_open(of);
            }
        }
    }

    /// Its recovery was cut off: a client begins again, with what it has by now. A liar asks for a little more.
    fn recover_again(&mut self, client: usize) {
        let opens: Vec<_> = self.model.opens.iter().filter(|of| of.client == client).copied().collect();
        let locks: Vec<_> = self.model.locks.iter().filter(|of| of.client == client).copied().collect();
        let lies = !self.is_rightful(client) && self.pick(2) == 0;
        match (opens.len(), locks.len()) {
            (0, _) => {}
            (count, locked) if locked == 0 || self.pick(3) == 0 => {
                let of = opens[self.pick(count)];
                let error = self.ask_open(of, Asked::Again).err();
                self.judge_rightful(client, error, "open again");
            }
            (_, count) => {
                let Lock { owner, file, byte, kind, .. } = locks[self.pick(count)];
                let kind = if lies { LockKind::Write } else { kind };
                let last = if lies { BYTES.min(byte + 2) - 1 } else { byte };
                let states = &self.model.lock_states;
                let state = states.iter().find(|of| (of.client, of.owner, of.file) == (client, owner, file));
                let through = state.unwrap().open_owner;
                let lock = Lock { client, owner, file, byte, kind };
                let error = refused(&self.ask_lock((lock, last), through, Asked::Again));
                self.judge_rightful(client, error, "lock again");
            }
        }
    }

    /// Whether a client reclaims as it may, and nobody has claimed what he did not have.
    fn is_rightful(&self, client: usize) -> bool {
        let recovery = &self.model.recovery;
        let may = recovery.may_reclaim[client] && !recovery.is_done[client];
        may && self.model.is_grace() && !self.has_liars
    }

    /// What comes of a reclaim by right: whatever was held together fits together again, in whatever order it comes.
    fn judge_rightful(&mut self, client: usize, error: Option<StateError>, what: &'static str) {
        if self.is_rightful(client) {
            assert!(matches!(error, None | Some(StateError::OpenMode)), "{what} of {client}: {error:?}");
        }
        self.count_reclaim(what, error);
    }

    fn recover_open(&mut self, of: Open) {
        let result = self.ask_open(of, Asked::Again);
        self.judge_rightful(of.client, result.err(), "open");
        let beliefs = &mut self.model.recovery.beliefs;
        match result {
            Ok(true) => {
                let at = beliefs.opens.iter().position(|other| *other == of);
                at.map(|at| beliefs.opens.swap_remove(at));
            }
            Ok(false) | Err(StateError::Delay) => {}
            Err(_) => beliefs.opens.retain(|other| !other.is_same_state(&of)),
        }
    }

    fn recover_delegation(&mut self, of: (usize, usize, DelegationKind)) {
        let (client, file, kind) = of;
        let result = self.reclaim_delegation((client, file), kind);
        self.judge_rightful(client, result.err(), "delegation");
        let is_had = self.delegations.contains_key(&(client, file));
        if result.is_err() || is_had {
            self.model.recovery.beliefs.delegations.retain(|other| *other != of);
        }
    }

    fn recover_lock(&mut self, lock: Lock) {
        let Lock { client, owner, file, .. } = lock;
        let (of, last) = self.model.believed_lock((client, owner), file).unwrap();
        let states = &self.model.recovery.beliefs.lock_states;
        let state = states.iter().find(|of| (of.client, of.owner, of.file) == (client, owner, file));
        let through = state.map(|state| state.open_owner).into_iter().chain(0..OWNERS);
        let through = through.into_iter().find(|through| self.opens.contains_key(&(client, *through, file)));
        let is_over = match through {
            None => true,
            Some(through) => {
                let result = self.ask_lock((of, last), through, Asked::Again);
                self.judge_rightful(client, refused(&result), "lock");
                result != Ok(false)
            }
        };
        if is_over {
            self.disbelieve(of, last);
        }
    }

    fn disbelieve(&mut self, of: Lock, last: usize) {
        let is_it = |lock: &Lock| {
            (lock.party(), lock.file) == (of.party(), of.file) && (of.byte..=last).contains(&lock.byte)
        };
        self.model.recovery.beliefs.locks.retain(|lock| !is_it(lock));
    }

    /// A client reclaims no more.
    fn finish(&mut self, client: usize) {
        self.renew(client);
        let id = self.ids[client];
        if client < FIRST_40 {
            let expected =
                if self.model.recovery.is_done[client] { Err(StateError::CompleteAlready) } else { Ok(()) };
            assert_eq!(self.world.engine.reclaim_complete(id), expected);
            self.model.recovery.is_done[client] = true;
            self.model.agree(client);
        } else {
            self.model.recovery.beliefs.give_up(client);
        }
        self.world.engine.callback_path(id, true);
        self.model.callbacks[client] = Callbacks::Arrive;
    }

    /// A client begins to reclaim from the beginning, and asks for what was taken from it since.
    pub(crate) fn reclaim_revoked(&mut self, client: usize) {
        let mut revoked = self.revoked.iter().filter(|(holder, file, _)| *holder == client && *file < FILES);
        let Some((_, file, _)) = revoked.next().copied() else { return };
        let kind = [DelegationKind::Read, DelegationKind::Write][self.pick(2)];
        let error = self.reclaim_delegation((client, file), kind).err();
        self.count_reclaim("revoked delegation", error);
    }

    /// A party of another door reclaims something that it had, if there is anything.
    pub(crate) fn recover_foreign(&mut self, who: usize) {
        let beliefs = &self.model.recovery.beliefs;
        let share = beliefs.opens.iter().find(|open| open.client == who).copied();
        let lock = beliefs.locks.iter().find(|lock| lock.client == who).copied();
        if let Some(of) = share {
            let error = self.ask_foreign_share(of, Asked::Again).err();
            assert!(self.has_liars || error.is_none(), "{of:?}: {error:?}");
            self.count_reclaim("foreign share", error);
            self.model.recovery.beliefs.opens.retain(|open| *open != of);
        } else if let Some(lock) = lock {
            let (of, last) = self.model.believed_lock(lock.party(), lock.file).unwrap();
            let result = self.foreign_lock((of, last), Asked::Again);
            assert!(self.has_liars || result.is_ok(), "{of:?}: {result:?}");
            self.count_reclaim("foreign lock", None);
            if result != Ok(false) {
                self.disbelieve(of, last);
            }
        }
    }

    /// Somebody claims to have had what he may not have had: of those who may reclaim at all, liars alone do that.
    pub(crate) fn claim(&mut self, client: usize, owner: usize, file: usize) {
        if self.is_rightful(client) {
            return;
        }
        match self.pick(4) {
            0 => {
                let deny = if self.pick(4) == 0 { self.access(true) } else { NONE };
                let share = share(self.access(false), deny);
                let error = self.ask_open(Open { client, owner, file, share }, Asked::Again).err();
                self.count_reclaim("claimed open", error);
            }
            1 => {
                let kind = [DelegationKind::Read, DelegationKind::Write][self.pick(2)];
                let error = self.reclaim_delegation((client, file), kind).err();
                self.count_reclaim("claimed delegation", error);
            }
            2 if self.opens.contains_key(&(client, owner, file)) => {
                let kind = [LockKind::Read, LockKind::Write][self.pick(2)];
                let (byte, last) = self.span();
                let lock = Lock { client, owner: self.pick(OWNERS), file, byte, kind };
                let error = refused(&self.ask_lock((lock, last), owner, Asked::Again));
                self.count_reclaim("claimed lock", error);
            }
            3 if client < FIRST_40 && self.model.recovery.is_done[client] => self.finish(client),
            _ => {}
        }
    }

    /// The same at another door.
    pub(crate) fn claim_foreign(&mut self, who: usize, file: usize) {
        if self.model.is_grace() && !self.has_liars {
            return;
        }
        if self.pick(2) == 0 {
            let share = share(self.access(false), NONE);
            let _ = self.ask_foreign_share(Open { client: who, owner: 0, file, share }, Asked::Again);
        } else {
            let kind = [LockKind::Read, LockKind::Write][self.pick(2)];
            let (byte, last) = self.span();
            drop(self.foreign_lock((Lock { client: who, owner: 0, file, byte, kind }, last), Asked::Again));
        }
    }

    fn count_reclaim(&mut self, what: &'static str, error: Option<StateError>) {
        let outcome = error.map_or("granted".to_owned(), |error| format!("{error:?}"));
        *self.counts.entry(format!("{what}: {outcome}")).or_default() += 1;
    }
}
