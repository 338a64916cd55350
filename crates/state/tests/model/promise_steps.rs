//! Steps of the random histories that concern delegations and other doors.

use holdfast_base::FileKey;
use holdfast_state::*;

use super::Run;
use super::reference::grace::Asked;
use super::reference::line::{Had, Manner, Wait as Waiting};
use super::reference::promises::{KINDS, deed_of_lock, excludes};
use super::reference::{CLIENTS, FILES, FIRST_40, FOREIGN, Lock, Open};
use super::world::*;

const DIRECTORY: usize = FILES;
const DEEDS: [Deed; 12] = [
    Deed::ReadData,
    Deed::LookAttrs,
    Deed::WriteData,
    Deed::Truncate,
    Deed::ChangeAttrs,
    Deed::ChangeName,
    Deed::ChangeEntries(EntryKinds::ADD),
    Deed::ChangeEntries(EntryKinds::REMOVE),
    Deed::ChangeEntries(EntryKinds::RENAME),
    Deed::ChangeEntries(EntryKinds::UNKNOWN),
    Deed::OpenRead,
    Deed::OpenWrite,
];

impl Run {
    pub(crate) fn promise_step(&mut self, client: usize) {
        let file = self.pick(FILES + 1);
        let who = CLIENTS + self.pick(FOREIGN);
        match self.pick(26) {
            0..=7 => self.delegate(client, file),
            8..=10 => self.give_back(client, file),
            11 | 12 => self.contend(file),
            13 => {
                self.is_asked = true;
                self.model.flush(client, file, self.world.now);
                self.world.engine.holder_flushed(FileKey(file as u128), self.ids[client], 0, self.world.now);
            }
            14 | 15 => self.delegated_io(client, file),
            16 => self.free_revoked(client),
            17.. if self.is_nfs4_alone => self.delegate(client, file),
            17..=20 => {
                let kind = if self.pick(2) == 0 { LockKind::Read } else { LockKind::Write };
                let (byte, last) = self.span();
                let new = Lock { client: who, owner: 0, file: file % FILES, byte, kind };
                drop(self.foreign_lock((new, last), Asked::Anew));
            }
            21 | 22 => self.foreign_unlock(who, file % FILES),
            23 => self.foreign_share(who, file % FILES),
            24 => self.foreign_leave(who, file % FILES),
            _ => self.foreign_cancel(),
        }
    }

    pub(crate) fn delegate(&mut self, client: usize, file: usize) {
        self.renew(client);
        let kind = match (file, self.pick(2)) {
            (DIRECTORY, 0) => DelegationKind::Directory,
            (DIRECTORY, _) => {
                let kinds = KINDS.into_iter().filter(|_| self.pick(2) == 0);
                DelegationKind::NotifiedDirectory(kinds.fold(EntryKinds::NONE, EntryKinds::union))
            }
            (_, 0) => DelegationKind::Read,
            _ => DelegationKind::Write,
        };
        let is_refused = self.model.refused(client, Asked::Anew, false).is_some();
        let allowed = !is_refused && self.model.can_delegate(client, file, kind, self.world.now);
        match self.world.offer(self.ids[client], file as u128, kind, Grounds::Want).unwrap() {
            Offer::Declined(why) => assert!(!allowed, "{why:?}"),
            Offer::Offered(ticket) => {
                assert!(allowed);
                self.take_offer(ticket, (client, file), kind, Asked::Anew);
            }
        }
    }

    /// A delegation is asked for as one held before. Whether it is granted and taken; or why not.
    pub(crate) fn reclaim_delegation(
        &mut self,
        (client, file): (usize, usize),
        kind: DelegationKind,
    ) -> Result<bool, StateError> {
        self.renew(client);
        let grounds = Grounds::Reclaim(self.recorded(client));
        let offer = self.world.offer(self.ids[client], file as u128, kind, grounds);
        let expected = self.model.judge_reclaimed_delegation(client, file, kind);
        let offered = offer.as_ref().map(|offer| matches!(offer, Offer::Offered(_)));
        assert_eq!(offered.map_err(|error| *error), expected, "{client} {file} {kind:?}");
        let Offer::Offered(ticket) = offer? else {
            self.count("delegation: kept back");
            return Ok(false);
        };
        Ok(self.take_offer(ticket, (client, file), kind, Asked::Again))
    }

    /// Whether what is offered is granted in the end.
    fn take_offer(
        &mut self,
        ticket: DelegationTicket,
        (client, file): (usize, usize),
        kind: DelegationKind,
        asked: Asked,
    ) -> bool {
        let (token, is_upgrade) = (ticket.token(), ticket.is_upgrade());
        if !is_upgrade {
            assert!(self.delegation_tokens.insert(token), "a token given out twice");
        }
        self.check("with an offer out");
        if self.pick(8) == 0 {
            self.world.engine.delegation_abort(ticket, self.world.now);
            if !is_upgrade {
                self.delegation_tokens.remove(&token);
            }
            return false;
        }
        // What is reclaimed stands in others' way all the time.
        let is_reclaim = asked == Asked::Again;
        if is_reclaim {
            self.model.delegate(client, file, kind);
        }
        let overtaken = self.pick(4) == 0 && self.overtake(client, file, kind);
        if overtaken && is_reclaim {
            self.count("delegation: recalled while it is given back");
        }
        let overtaken = overtaken && !is_reclaim;
        let granted = self.world.engine.delegation_commit(ticket, self.world.now);
        assert_eq!(granted.is_ok(), !overtaken, "{granted:?}");
        let Ok(of) = granted else { return false };
        if !is_reclaim {
            self.model.delegate(client, file, kind);
        }
        // Only what is reclaimed is granted to one that cannot be called back, or against somebody's deed, and asked back by
        // the same reply.
        let is_recalled = self.model.delegation(client, file).is_some_and(|d| d.recalled.is_some());
        assert_eq!((of.token, of.kind, of.is_recalled), (token, kind, is_recalled));
        self.delegations.insert((client, file), of);
        self.granted_to(client, asked);
        true
    }

    /// Somebody does something while an offer is out; whether that overtakes it.
    fn overtake(&mut self, client: usize, file: usize, kind: DelegationKind) -> bool {
        let deed = DEEDS[self.pick(DEEDS.len())];
        let by = Some(self.pick(CLIENTS + 1)).filter(|by| *by < CLIENTS);
        self.contend_with(file, deed, by);
        let overtaken = by != Some(client) && excludes(kind, deed);
        if overtaken {
            self.model.recent[file] = Some(self.world.now);
        }
        overtaken
    }

    pub(crate) fn contend(&mut self, file: usize) {
        let deed = DEEDS[self.pick(DEEDS.len())];
        let by = Some(self.pick(CLIENTS + 1)).filter(|by| *by < CLIENTS);
        self.contend_with(file, deed, by);
    }

    fn contend_with(&mut self, file: usize, deed: Deed, by: Option<usize>) {
        self.is_asked = true;
        let waits = self.world.contend(file as u128, deed, by.map(|by| self.ids[by]));
        let expected = self.model.contend(file, deed, by, self.world.now);
        assert_eq!(waits, expected, "{deed:?} by {by:?} on {file}");
    }

    fn give_back(&mut self, client: usize, file: usize) {
        let Some(of) = self.delegations.get(&(client, file)).copied() else { return };
        self.renew(client);
        let (caller, key) = (self.caller(client), FileKey(file as u128));
        self.world.engine.delegation_return(caller, of.stateid, key, self.world.now).unwrap();
        self.delegations.remove(&(client, file));
        if self.model.delegation(client, file).is_some_and(|d| d.recalled.is_some()) {
            self.model.recent[file] = Some(self.world.now);
        }
        self.model.delegations.retain(|d| (d.client, d.file) != (client, file));
        self.model.let_in();
    }

    fn delegated_io(&mut self, client: usize, file: usize) {
        let Some(of) = self.delegations.get(&(client, file)).copied() else { return };
        self.renew(client);
        let access = if self.pick(2) == 0 { R } else { W };
        let result = self.world.io(self.caller(client), of.stateid, file as u128, access);
        let expected = match (self.model.delegation(client, file).unwrap().kind, access) {
            (kind, _) if kind.is_directory() => Some(StateError::BadStateid),
            (DelegationKind::Read, W) => Some(StateError::OpenMode),
            _ => None,
        };
        assert_eq!(result.err(), expected);
        match result {
            Ok(IoGrant::Delegation(token)) => {
                assert_eq!(token, of.token);
                let mut open = self.world.engine.descriptors_under(token, access);
                assert!(open.all(|id| self.descriptors.contains(&id)));
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
    }

    fn free_revoked(&mut self, client: usize) {
        let Some(at) = self.revoked.iter().position(|(holder, ..)| *holder == client) else { return };
        self.renew(client);
        let (_, file, stateid) = self.revoked.remove(at);
        let (id, now) = (self.ids[client], self.world.now);
        let engine = &mut self.world.engine;
        if client < FIRST_40 {
            assert_eq!(engine.test_stateid(id, stateid), Err(StateError::DelegRevoked));
            assert_eq!(engine.free_stateid(id, stateid, now), Ok(()));
        } else {
            let key = FileKey(file as u128);
            assert_eq!(engine.delegation_return(Caller::V40, stateid, key, now), Err(StateError::Expired));
        }
        let freed = self.model.revoked.iter().position(|of| *of == (client, file)).unwrap();
        self.model.revoked.remove(freed);
    }

    fn owner(who: usize) -> ForeignOwner {
        ForeignOwner { door: Door::Nlm, id: (who - CLIENTS) as u64 }
    }

    /// Whether it is granted, and the backend has it; or why not.
    pub(crate) fn foreign_lock(&mut self, (new, last): Had, asked: Asked) -> Result<bool, ForeignRefusal> {
        self.is_asked = true;
        let Lock { client: who, file, byte: first, kind, .. } = new;
        let wait = if self.pick(3) == 0 { ForeignWait::No } else { ForeignWait::InLine };
        let request = ForeignRequest {
            owner: Self::owner(who),
            file: FileKey(file as u128),
            range: bytes(first as u64, last as u64),
            kind,
            claim: Self::foreign_claim(asked),
            wait,
        };
        let now = self.world.now;
        let result = self.world.engine.foreign_prepare(&request, now);
        if let Some(error) = self.model.refused_foreign(asked) {
            assert_eq!(result, Err(error.into()));
            return Ok(false);
        }
        let mut free = self.model.can_lock(new, last, now);
        let mut promised = false;
        if free || wait == ForeignWait::InLine {
            promised = self.model.contend(file, deed_of_lock(kind), None, now);
            free = self.model.can_lock(new, last, now);
        }
        match &result {
            Ok(_) => assert!(free && !promised, "{new:?}..{last}"),
            Err(ForeignRefusal::Denied(_)) => assert!(!free && wait == ForeignWait::No),
            Err(ForeignRefusal::Error(StateError::Delay)) => {
                assert!(free && promised && wait == ForeignWait::No);
            }
            Err(ForeignRefusal::Error(StateError::Deadlock)) => {
                assert!((!free || promised) && wait == ForeignWait::InLine);
                assert!(self.model.would_deadlock(new, last));
            }
            Err(ForeignRefusal::Waiting) => {
                assert!((!free || promised) && wait == ForeignWait::InLine);
                assert!(!self.model.would_deadlock(new, last));
                self.model.wait(Waiting::new(new, last, Manner::Given, now));
            }
            Err(other) => panic!("{other:?}"),
        }
        Ok(self.finish_foreign_lock(result?, (new, last)))
    }

    fn finish_foreign_lock(&mut self, ticket: ForeignTicket, (new, last): Had) -> bool {
        self.check("with a foreign ticket out");
        self.model.waits.retain(|wait| (wait.lock, wait.last) != (new, last));
        let is_had = self.pick(6) > 0;
        if is_had {
            assert!(self.world.engine.foreign_commit(ticket, self.world.now));
            self.model.lock(new, last);
        } else {
            assert!(self.world.engine.foreign_abort(ticket, self.world.now));
        }
        self.model.let_in();
        is_had
    }

    fn foreign_unlock(&mut self, who: usize, file: usize) {
        self.is_asked = true;
        let (first, last) = self.span();
        let range = bytes(first as u64, last as u64);
        let key = FileKey(file as u128);
        self.world.engine.foreign_unlock(Self::owner(who), key, range, self.world.now);
        self.model.unlock(Lock { client: who, owner: 0, file, byte: first, kind: LockKind::Read }, last);
        self.model.let_in();
    }

    fn foreign_share(&mut self, who: usize, file: usize) {
        if self.pick(2) == 0 {
            self.is_asked = true;
            let had = self.world.engine.foreign_unshare(Self::owner(who), FileKey(file as u128));
            assert_eq!(had, self.model.share(who, 0, file).is_some());
            return self.model.opens.retain(|open| (open.client, open.file) != (who, file));
        }
        let deny = if self.pick(3) == 0 { self.access(true) } else { NONE };
        let share = share(self.access(false), deny);
        let _ = self.ask_foreign_share(Open { client: who, owner: 0, file, share }, Asked::Anew);
    }

    pub(crate) fn ask_foreign_share(&mut self, new: Open, asked: Asked) -> Result<(), StateError> {
        self.is_asked = true;
        let Open { client: who, file, share: wanted, .. } = new;
        let (owner, claim, now) = (Self::owner(who), Self::foreign_claim(asked), self.world.now);
        let result = self.world.engine.foreign_share(owner, FileKey(file as u128), wanted, claim, now);
        let expected = self.model.judge_foreign_share(new, asked);
        assert_eq!(result, expected, "{new:?} {asked:?}");
        if result.is_ok() {
            self.model.opens.retain(|open| (open.client, open.file) != (who, file));
            self.model.opens.push(new);
        }
        result
    }

    fn foreign_claim(asked: Asked) -> ForeignClaim {
        if asked == Asked::Again { ForeignClaim::Reclaim } else { ForeignClaim::New }
    }

    fn foreign_leave(&mut self, who: usize, file: usize) {
        self.is_asked = true;
        self.world.engine.foreign_leave(Self::owner(who), FileKey(file as u128), self.world.now);
        self.model.opens.retain(|open| (open.client, open.file) != (who, file));
        self.model.waits.retain(|wait| (wait.lock.client, wait.lock.file) != (who, file));
        self.model.locks.retain(|lock| (lock.client, lock.file) != (who, file));
        self.model.let_in();
    }

    fn foreign_cancel(&mut self) {
        let foreign = self.model.waits.iter().enumerate().filter(|(_, wait)| wait.manner == Manner::Given);
        let foreign: Vec<_> = foreign.map(|(at, _)| at).collect();
        if foreign.is_empty() {
            return;
        }
        self.is_asked = true;
        let at = self.pick(foreign.len());
        let Waiting { lock, last, .. } = self.model.waits.remove(foreign[at]);
        let range = bytes(lock.byte as u64, last as u64);
        let (owner, key) = (Self::owner(lock.client), FileKey(lock.file as u128));
        assert!(self.world.engine.foreign_cancel(owner, key, range, lock.kind, self.world.now));
        self.model.let_in();
    }

    pub(crate) fn everybody_leaves(&mut self) {
        for who in CLIENTS..CLIENTS + FOREIGN {
            for file in 0..FILES {
                self.foreign_leave(who, file);
                self.settle();
            }
        }
        self.note_lost();
    }
}
