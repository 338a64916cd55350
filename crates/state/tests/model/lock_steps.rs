//! Steps of the random histories that concern byte-range locks.

use holdfast_base::FileKey;
use holdfast_state::*;

use super::reference::grace::Asked;
use super::reference::grace::LockAnswer;
use super::reference::line::{Had, Manner};
use super::reference::{BYTES, Lock, LockState, OWNERS};
use super::world::*;
use super::{OWNER_NAMES, Run};

impl Run {
    /// LOCKT: as LOCK, but nothing changes.
    pub(crate) fn test_lock(&mut self, client: usize, owner: usize, file: usize) {
        self.renew(client);
        let kind = if self.pick(2) == 0 { LockKind::Read } else { LockKind::Write };
        let (first, last) = self.span();
        let test = LockTest {
            client: self.ids[client],
            owner: OWNER_NAMES[owner].as_bytes(),
            file: FileKey(file as u128),
            range: bytes(first as u64, last as u64),
            kind,
        };
        let now = self.world.now;
        let result = self.world.engine.lock_test(&test, now);
        if self.model.is_grace() {
            return assert_eq!(result, Err(StateError::Grace.into()));
        }
        let free = self.model.can_lock(Lock { client, owner, file, byte: first, kind }, last, now);
        assert!(matches!(result, Ok(()) | Err(LockRefusal::Denied(_))), "{result:?}");
        assert_eq!(result.is_ok(), free, "{test:?}: {result:?}");
    }

    pub(crate) fn span(&mut self) -> (usize, usize) {
        let (a, b) = (self.pick(BYTES), self.pick(BYTES));
        (a.min(b), a.max(b))
    }

    pub(crate) fn lock(&mut self, client: usize, owner: usize, file: usize) {
        let open_owner = self.pick(OWNERS);
        if !self.opens.contains_key(&(client, open_owner, file)) {
            return;
        }
        let mut kind = if self.pick(2) == 0 { LockKind::Read } else { LockKind::Write };
        let (mut first, mut last) = self.span();
        let waits_for = self.model.waited_for((client, owner), file);
        if let Some((lock, end)) = waits_for.filter(|_| self.pick(3) > 0) {
            // Told or not, it asks for the same again.
            (kind, first, last) = (lock.kind, lock.byte, end);
        }
        let new = Lock { client, owner, file, byte: first, kind };
        drop(self.ask_lock((new, last), open_owner, Asked::Anew));
    }

    /// Asks for a lock through an open that there is. Whether it is granted, and the backend has it; or why not.
    pub(crate) fn ask_lock(
        &mut self,
        (new, last): Had,
        open_owner: usize,
        asked: Asked,
    ) -> Result<bool, LockRefusal> {
        let Lock { client, owner, file, byte: first, kind } = new;
        let open = self.opens[&(client, open_owner, file)];
        self.renew(client);
        let by = match self.locks.get(&(client, owner, file)).copied() {
            Some(lock) if self.pick(2) == 0 => LockBy::Lock(lock),
            _ => LockBy::Open { open, owner: OWNER_NAMES[owner].as_bytes(), first_seqid: None, client: None },
        };
        let claim = if asked == Asked::Again { Claim::Reclaim(self.recorded(client)) } else { Claim::New };
        let request = LockRequest {
            caller: self.caller(client),
            by,
            claim,
            wait: [Wait::No, Wait::Notify, Wait::Notify, Wait::Poll][self.pick(4)],
            ..lock_by(self.ids[client], file as u128, open, "", bytes(first as u64, last as u64), kind)
        };
        // By an existing lock stateid it is the open behind that which must allow the lock.
        let behind =
            self.model.lock_states.iter().find(|s| (s.client, s.owner, s.file) == (client, owner, file));
        let through = match (by, behind) {
            (LockBy::Lock(_), Some(state)) => state.open_owner,
            _ => open_owner,
        };
        let manner = match request.wait {
            Wait::No => None,
            Wait::Notify => Some(Manner::Told),
            Wait::Poll => Some(Manner::Polls),
        };
        let result = self.world.engine.lock_prepare(&request, self.world.now);
        let expected = self.model.judge_lock((new, last), through, asked, manner);
        match (&result, expected) {
            (Ok(_), LockAnswer::Granted) | (Err(LockRefusal::Denied(_)), LockAnswer::Denied) => {}
            (Err(LockRefusal::Error(error)), LockAnswer::Refused(expected)) => assert_eq!(*error, expected),
            (other, expected) => panic!("{other:?}, not {expected:?}: {new:?}..{last} {asked:?}"),
        }
        if expected == LockAnswer::Refused(StateError::Grace) {
            self.count("new lock: Grace");
        }
        let ticket = result?;
        self.tokens.insert(ticket.token());
        let is_had = self.finish_lock(ticket, new, last, open_owner);
        if is_had {
            self.granted_to(client, asked);
        }
        Ok(is_had)
    }

    fn finish_lock(&mut self, ticket: LockTicket, new: Lock, last: usize, open_owner: usize) -> bool {
        self.check("between prepare and the end");
        let before = self.model.locks.clone();
        self.model.strengthen(new, last);
        self.model.waits_no_more(new, last);
        self.model.let_in();
        if self.pick(6) == 0 {
            assert!(self.world.engine.lock_abort(ticket, self.world.now));
            let is_its = |l: &Lock| (l.party(), l.file) == (new.party(), new.file);
            self.model.locks.retain(|lock| !is_its(lock));
            self.model.locks.extend(before.into_iter().filter(is_its));
            self.model.let_in();
            return false;
        }
        let stateid = self.world.engine.lock_commit(ticket, self.world.now).unwrap();
        self.model.lock(new, last);
        let Lock { client, owner, file, .. } = new;
        if self.locks.insert((client, owner, file), stateid).is_none() {
            self.model.lock_states.push(LockState { client, owner, file, open_owner });
        }
        true
    }

    pub(crate) fn unlock(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.locks.get(&(client, owner, file)).copied() else { return };
        self.renew(client);
        let (first, last) = self.span();
        let range = bytes(first as u64, last as u64);
        let stateid = self.world.unlock(self.caller(client), stateid, file as u128, range).unwrap();
        self.model.unlock(Lock { client, owner, file, byte: first, kind: LockKind::Read }, last);
        self.locks.insert((client, owner, file), stateid);
    }
}
