//! Getting back what the server lost: reclaiming in its grace after a restart (RFC 8881 section 8.4.2), opening again
//! what a lost lease took, and telling what could not be had again.

use std::sync::Arc;

use holdfast_base::limits::CLIENT_STATEIDS_TESTED_AT_ONCE;
use holdfast_base::{Offset, Seqid};
use holdfast_wire::nfs4::{
    ArgOp, DelegReturn4Args, ExistLockOwner4, FreeStateid4Args, Lock4Args, Lock4Ok, LockType4, Locker4,
    NfsStat4, OpNum4, OpenDelegationType4, OpenToLockOwner4, ReclaimComplete4Args, StateOwner4, Stateid4,
    TestStateid4Args, TestStateid4Ok,
};

use crate::claim::Claim;
use crate::client::Inner;
use crate::compound::Compound;
use crate::lockers::Locker;
use crate::recover::Setback;
use crate::session::Session;
use crate::state::{Delegation, FileState, Open, OpenStatus};
use crate::todo::Reclaim;
use crate::{Cred, DelegationKind, Error, Event, Handle};

impl Inner {
    /// After a restart of the server: other programs' state first, then every file's, then the server is told that
    /// this was all, and what it did not give back is asked for anew.
    pub(crate) fn reclaim_all(&self, session: &Arc<Session>) -> Result<(), Setback> {
        self.gate.close();
        let files = self.files.all();
        let has_state = !files.is_empty();
        if has_state {
            self.tell(&Event::Restarted);
        }
        // What was claimed may have been so of a life that is over.
        let broke = |_: &_| self.todo.work.lock().reclaim = Reclaim::Underway;
        let reclaim_each = |files: &[_]| self.reclaim_each(session, files).inspect_err(broke);
        let mut lost = reclaim_each(&files)?;
        if lost.is_none() {
            // It may have restarted again meanwhile, behind a session that outlives that.
            lost = reclaim_each(&self.files.all())?;
        }
        let Some(lost) = lost else {
            broke(&Setback::Again);
            self.lose_session(session);
            return Err(Setback::Again);
        };
        self.todo.change(|work| (work.must_reclaim, work.reclaim) = (false, Reclaim::Done));
        if !lost.is_empty() {
            self.tell(&Event::StateLost);
        }
        // Should it be cut short, what the server did not give back is found by looking: it gives nothing back any more.
        lost.iter()
            .try_for_each(|file| self.open_anew(session, file))
            .inspect_err(|_| self.todo.work.lock().must_look = true)
    }

    /// Reclaims what is held of these and says that this was all; the files that the server does not give back. `None` where it
    /// answers that with DEADSESSION, though SEQUENCE did not: what was reclaimed may have been so in an earlier life of the server,
    /// and is to be reclaimed again. The session lives, and with it what is on its way there, which another one would have done twice.
    fn reclaim_each(
        &self,
        session: &Arc<Session>,
        files: &[Arc<FileState>],
    ) -> Result<Option<Vec<Arc<FileState>>>, Setback> {
        self.claim_programs(session)?;
        let mut lost = Vec::new();
        for file in files {
            if !self.reclaim(session, file)? {
                lost.push(Arc::clone(file));
            }
        }
        let mut compound = Compound::new();
        compound.op(&ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false }));
        let is_noted = self.ask(session, &self.options.machine, &compound, |answer| {
            match answer.ok(OpNum4::ReclaimComplete) {
                Err(Error::Nfs(NfsStat4::DeadSession)) => Ok(false),
                noted => noted.map(|()| true),
            }
        });
        match is_noted {
            Ok(false) => Ok(None),
            // Done already, or not known: what follows tells.
            Ok(true) | Err(Setback::Because(Error::Nfs(_))) => Ok(Some(lost)),
            Err(e) => Err(e),
        }
    }

    /// Reclaims what is held of one file; false when the server does not give it back.
    fn reclaim(&self, session: &Arc<Session>, file: &FileState) -> Result<bool, Setback> {
        let (opens, locks, delegation) = {
            let held = file.held.lock();
            let locks: Vec<_> = held.locks.iter().cloned().collect();
            (held.opens.clone(), locks, held.delegation.clone())
        };
        let mut wanted =
            delegation.as_ref().map_or(OpenDelegationType4::None, |delegation| match delegation.kind {
                DelegationKind::Read => OpenDelegationType4::Read,
                DelegationKind::Write => OpenDelegationType4::Write,
                // RFC 8881 section 10.9.5: those of directories cannot be reclaimed.
                DelegationKind::Directory => OpenDelegationType4::None,
            });
        if delegation.as_ref().is_some_and(|delegation| delegation.kind == DelegationKind::Directory) {
            self.lose_delegation(&file.handle);
            return Ok(true);
        }
        let mut is_delegated = delegation.is_none();
        let known: Vec<_> = opens.iter().filter(|open| open.stateid().is_some()).collect();
        if known.is_empty()
            && let Some(delegation) = &delegation
        {
            // A delegation is reclaimed by an open, which is not needed for longer.
            return self.reclaim_delegation_alone(session, &file.handle, delegation, wanted);
        }
        for open in known {
            match self.claim(session, open, Claim::Previous(wanted)) {
                Ok((stateid, has_delegation)) => {
                    is_delegated |= has_delegation;
                    self.settle(session, open, stateid)?;
                }
                Err(Setback::Because(Error::Nfs(_))) => return Ok(false),
                Err(e) => return Err(e),
            }
            wanted = OpenDelegationType4::None;
        }
        if !is_delegated {
            // The open was given back, the delegation was not. What lived on that is opened anew once the server was told that this
            // was all (`open_stranded`); nothing was locked through it, as a lock makes an open known first.
            self.lose_delegation(&file.handle);
        }
        // What is closed takes with it what was locked through it.
        let is_wanted = |lock: &&Locker| !lock.is_lost && *lock.open.status.lock() != OpenStatus::Closed;
        for lock in locks.iter().filter(is_wanted) {
            match self.reclaim_locks(session, file, lock) {
                Ok(()) => {}
                Err(Setback::Because(Error::Nfs(_))) => self.lose_locks(&file.handle, &lock.owner),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn reclaim_delegation_alone(
        &self,
        session: &Arc<Session>,
        file: &Handle,
        delegation: &Delegation,
        wanted: OpenDelegationType4,
    ) -> Result<bool, Setback> {
        let owner = self.files.take_owner();
        let access = if delegation.kind == DelegationKind::Write { 3 } else { 1 };
        let open = Arc::new(Open::new((file.clone(), owner), delegation.cred.clone(), (access, 0)));
        let claimed = self.claim(session, &open, Claim::Previous(wanted));
        self.files.free_owner(owner);
        match claimed {
            Ok((stateid, has_delegation)) => {
                self.close_on(session, &open, stateid)?;
                Ok(has_delegation)
            }
            Err(Setback::Because(Error::Nfs(_))) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn reclaim_locks(&self, session: &Arc<Session>, file: &FileState, lock: &Locker) -> Result<(), Setback> {
        let open = lock.open.stateid().ok_or(Setback::Because(Error::Nfs(NfsStat4::BadStateid)))?;
        let mut stateid = None;
        for (range, exclusive) in lock.ranges.iter() {
            let locker = match stateid {
                Some(lock_stateid) => Locker4::Exist(ExistLockOwner4 { lock_stateid, lock_seqid: Seqid(0) }),
                None => Locker4::New(OpenToLockOwner4 {
                    open_seqid: Seqid(0),
                    open_stateid: open,
                    lock_seqid: Seqid(0),
                    lock_owner: StateOwner4 { clientid: session.client, owner: &lock.name },
                }),
            };
            let mut compound = Compound::new();
            compound.put(&file.handle).op(&ArgOp::Lock(Lock4Args {
                locktype: if exclusive { LockType4::Write } else { LockType4::Read },
                reclaim: true,
                offset: Offset(range.first()),
                length: range.nfs4_length(),
                locker,
            }));
            let got = self.ask(session, &lock.open.cred, &compound, |answer| {
                answer.put()?;
                match answer.next::<Lock4Ok>(OpNum4::Lock) {
                    // The open was reclaimed in a life that is over, behind a session that is not: from the opens on once more,
                    // in the same session, for the sake of what is on its way there.
                    Err(Error::Nfs(NfsStat4::StaleClientId)) => Ok(None),
                    got => got.map(Some),
                }
            })?;
            stateid = Some(got.ok_or(Setback::Again)?.lock_stateid);
        }
        self.files.change(&file.handle, |held| match stateid {
            Some(stateid) => held.locks.reclaimed(lock.id, stateid),
            None => held.locks.forget_unlocked(&lock.owner),
        });
        Ok(())
    }

    /// Opens a file anew whose state is gone. What was locked others may have had: its owners are told.
    fn open_anew(&self, session: &Arc<Session>, file: &FileState) -> Result<(), Setback> {
        let (opens, locks, had_delegation) = {
            let mut held = file.held.lock();
            let locks: Vec<_> = held.locks.iter().cloned().collect();
            (held.opens.clone(), locks, held.delegation.take().is_some())
        };
        if had_delegation {
            self.callbacks.delegation_gone(&file.handle, self.files.next_number());
        }
        for lock in locks.iter().filter(|lock| !lock.is_lost) {
            self.lose_locks(&file.handle, &lock.owner);
        }
        let wanting =
            |open: &&Arc<Open>| matches!(*open.status.lock(), OpenStatus::Known(_) | OpenStatus::Local);
        for open in opens.iter().filter(wanting) {
            self.open_one_anew(session, open)?;
        }
        Ok(())
    }

    fn lose_delegation(&self, file: &Handle) {
        self.files.change(file, |held| held.delegation = None);
        self.callbacks.delegation_gone(file, self.files.next_number());
    }

    fn lose_locks(&self, file: &Handle, owner: &[u8]) {
        let has_lost = self.files.change(file, |held| held.locks.lose(owner));
        self.lockers.wake_all();
        if has_lost {
            self.callbacks.locks_lost(file, owner);
        }
    }

    /// Looks at all state: some of it may have been revoked.
    pub(crate) fn look_at_all(&self, session: &Arc<Session>) -> Result<(), Setback> {
        let mut all = Vec::new();
        for file in self.files.all() {
            let held = file.held.lock();
            let stateids = held.opens.iter().filter_map(|open| open.stateid());
            let known = held.locks.iter().filter(|lock| !lock.is_lost).filter_map(Locker::stateid);
            let stateids = stateids.chain(known);
            let stateids = stateids.chain(held.delegation.iter().map(|delegation| delegation.stateid));
            all.extend(stateids.map(|stateid| (file.handle.clone(), stateid)));
        }
        self.look_at(session, &all)
    }

    /// Asks which of these the server still knows, and sets right what it does not.
    pub(crate) fn look_at(
        &self,
        session: &Arc<Session>,
        suspects: &[(Handle, Stateid4)],
    ) -> Result<(), Setback> {
        let suspects: Vec<_> = suspects
            .iter()
            .filter_map(|(file, stateid)| self.current(file, stateid).map(|now| (file.clone(), now)))
            .collect();
        let mut is_told = false;
        for some in suspects.chunks(CLIENT_STATEIDS_TESTED_AT_ONCE) {
            let mut compound = Compound::new();
            let stateids = some.iter().map(|(_, stateid)| *stateid).collect();
            compound.op(&ArgOp::TestStateid(TestStateid4Args { stateids }));
            let looked = self.ask(session, &self.options.machine, &compound, |answer| {
                answer.next::<TestStateid4Ok>(OpNum4::TestStateid)
            });
            let statuses = match looked {
                Ok(looked) => looked.status_codes,
                // A server that cannot tell has refused one of them: all are had again.
                Err(Setback::Because(Error::Nfs(_))) => vec![NfsStat4::BadStateid; some.len()],
                Err(e) => return Err(e),
            };
            if self.todo.work.lock().is_reclaim_due() {
                // It has lost all of them, and gives them back.
                return Err(Setback::Again);
            }
            for ((file, stateid), status) in some.iter().zip(statuses) {
                if matches!(status, NfsStat4::Ok | NfsStat4::OldStateid) {
                    continue;
                }
                if !std::mem::replace(&mut is_told, true) {
                    self.tell(&Event::StateLost);
                }
                self.replace(session, file, (*stateid, status))?;
            }
        }
        Ok(())
    }

    /// The stateid as it is known now, when it still is.
    fn current(&self, file: &Handle, stateid: &Stateid4) -> Option<Stateid4> {
        self.files.look(file, |held| {
            let opens = held.opens.iter().filter_map(|open| open.stateid());
            let locks = held.locks.iter().filter(|lock| !lock.is_lost).filter_map(Locker::stateid);
            let delegation = held.delegation.iter().map(|delegation| delegation.stateid);
            opens.chain(locks).chain(delegation).find(|known| known.other == stateid.other)
        })?
    }

    /// A stateid is gone: acknowledges it where the server waits for that, and has again what can be had.
    fn replace(
        &self,
        session: &Arc<Session>,
        file: &Handle,
        (gone, status): (Stateid4, NfsStat4),
    ) -> Result<(), Setback> {
        tracing::info!(?status, "the server has revoked state");
        if matches!(status, NfsStat4::Expired | NfsStat4::AdminRevoked | NfsStat4::DelegRevoked) {
            let mut compound = Compound::new();
            compound.op(&ArgOp::FreeStateid(FreeStateid4Args { stateid: gone }));
            match self.ask(session, &self.options.machine, &compound, |a| a.ok(OpNum4::FreeStateid)) {
                Ok(()) | Err(Setback::Because(Error::Nfs(_))) => {}
                Err(e) => return Err(e),
            }
        }
        let Some(state) = self.files.find(file) else { return Ok(()) };
        let (open, lock, had_delegation) = {
            let mut held = state.held.lock();
            let is = |stateid: Option<Stateid4>| stateid.is_some_and(|stateid| stateid.other == gone.other);
            let had_delegation = is(held.delegation.as_ref().map(|delegation| delegation.stateid));
            if had_delegation {
                held.delegation = None;
            }
            let open = held.opens.iter().find(|open| is(open.stateid())).cloned();
            let lock = held.locks.iter().find(|lock| is(lock.stateid())).map(|lock| lock.owner.clone());
            (open, lock, had_delegation)
        };
        if let Some(owner) = lock {
            self.lose_locks(file, &owner);
        }
        if had_delegation {
            self.callbacks.delegation_gone(file, self.files.next_number());
        }
        if let Some(open) = open {
            // The locks through it went with it.
            let through: Vec<_> = {
                let held = state.held.lock();
                let is_lost = |lock: &&Locker| Arc::ptr_eq(&lock.open, &open) && !lock.is_lost;
                held.locks.iter().filter(is_lost).map(|lock| lock.owner.clone()).collect()
            };
            through.iter().for_each(|owner| self.lose_locks(file, owner));
            self.open_one_anew(session, &open)?;
        }
        Ok(())
    }

    /// Before the end: returns delegations and closes opens, as far as the server answers.
    pub(crate) fn give_everything_back(&self, session: &Arc<Session>) {
        for file in self.files.all() {
            let (opens, delegation) = {
                let mut held = file.held.lock();
                held.locks.clear();
                (std::mem::take(&mut held.opens), held.delegation.take())
            };
            for open in opens {
                if let Some(stateid) = open.stateid()
                    && self.close_on(session, &open, stateid).is_err()
                {
                    return;
                }
                open.set(OpenStatus::Closed);
            }
            if let Some(delegation) = delegation {
                let mut compound = Compound::new();
                let args = DelegReturn4Args { deleg_stateid: delegation.stateid };
                compound.put(&file.handle).op(&ArgOp::DelegReturn(args));
                let cred: &Cred = &delegation.cred;
                if self.ask(session, cred, &compound, |_| Ok(())).is_err() {
                    return;
                }
            }
        }
    }
}
