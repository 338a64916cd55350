//! Byte-range locks: taken, waited for, let go of.

use holdfast_base::{Length, Offset};
use holdfast_wire::nfs4::*;

use super::{BLOCK, BLOCKS, LOCK_POLL_MS, LOCK_TRIES, Process};
use crate::client::recover::lock_owner;
use crate::client::v4::{Acted, Open};
use crate::oracle::grants::{GrantId, What};
use crate::wire::Ops;

impl Process {
    pub(super) async fn lock_and_use(&self, open: &Open) {
        // The whole file now and then, as flock has it.
        let (first, blocks) =
            if self.percent(20) { (0, BLOCKS) } else { (self.below(BLOCKS) * BLOCK, 1 + self.below(2)) };
        let last = first + BLOCK * blocks - 1;
        let is_write = open.access == 3 && self.percent(70);
        if !self.lock(open, (first, last, is_write)).await {
            return;
        }
        if open.access == 3 && is_write {
            self.write(open).await;
        }
        self.read(open).await;
        let ms = self.below(1_500);
        self.client.world.exec.sleep(ms).await;
        // What was written under a lock is to be seen by the next who has it.
        self.commit(open).await;
        if self.percent(85) {
            self.unlock(open, (first, last)).await;
        }
    }

    async fn lock(&self, open: &Open, (first, last, is_write): (u64, u64, bool)) -> bool {
        let client = &self.client;
        // It may come to be a shared lock in the place of an exclusive one.
        self.give_up(open, (first, last));
        for _ in 0..LOCK_TRIES {
            let kind = if is_write { "exclusively" } else { "shared" };
            let excluded_others = client.excludes_locks(open.file, is_write);
            let was_its_own = open.locks.borrow().may_have((first, last, is_write));
            self.doing(format!("locks {first} to {last} of file {} {kind}", open.file));
            let acted = client
                .act_counted(
                    || {
                        let handle = open.handle.borrow();
                        let ops = client.lock_ops(open, &handle, (first, last, is_write), (false, true));
                        ops.filter(|_| !open.is_lost.get())
                    },
                    (&[OpNum4::PutFh], || client.lock_owners(open)),
                )
                .await;
            let Some(Acted { mut reply, sent, deaths, is_repeated, .. }) = acted else { return false };
            let status = reply.status;
            reply.skip(&[OpNum4::PutFh]);
            let now = client.world.now();
            if let Some(ok) = reply.next::<Lock4Ok>(OpNum4::Lock) {
                {
                    let mut locks = open.locks.borrow_mut();
                    locks.stateid = Some(ok.lock_stateid);
                    locks.told.push((first, last, is_write));
                }
                if client.kind.minor == 0 && !is_repeated {
                    client.renewed(sent);
                }
                // Who has a delegation that excludes it may lock in grace, and an owner what it has locked: that says nothing
                // of what others may reclaim.
                if !excluded_others && !was_its_own && !client.excludes_locks(open.file, is_write) {
                    client.world.oracles.reclaims(|reclaims| {
                        reclaims.granted(now, deaths);
                        Ok(())
                    });
                }
                let grant = self.granted(open.file, What::Lock { first, last, is_write });
                open.locks.borrow_mut().held.push((first, last, is_write, grant));
                return true;
            }
            if status != NfsStat4::Denied {
                self.refused(open, "LOCK", status);
                return false;
            }
            self.await_lock().await;
        }
        false
    }

    /// What is held of a range is believed in no more, and what sticks out of it neither: it stays locked until the file
    /// is closed.
    fn give_up(&self, open: &Open, (first, last): (u64, u64)) {
        let gone: Vec<_> = {
            let mut locks = open.locks.borrow_mut();
            let (gone, rest) = locks.held.drain(..).partition(|(f, l, _, _)| *f <= last && first <= *l);
            locks.held = rest;
            gone
        };
        self.client.world.oracles.grants(|grants| {
            gone.iter().for_each(|(_, _, _, grant): &(u64, u64, bool, GrantId)| grants.end(*grant));
            Ok(())
        });
    }

    async fn await_lock(&self) {
        let until = self.client.world.now() + LOCK_POLL_MS;
        while self.client.world.now() < until {
            if self.client.is_notified.replace(false) {
                return;
            }
            self.client.world.exec.sleep(100).await;
        }
    }

    async fn unlock(&self, open: &Open, (first, last): (u64, u64)) {
        self.doing(format!("unlocks {first} to {last} of file {}", open.file));
        let (client, owner) = (&self.client, lock_owner(&open.owner));
        self.give_up(open, (first, last));
        let acted = client
            .act_counted(
                || {
                    let unlock = Locku4Args {
                        locktype: LockType4::Write,
                        seqid: client.seqid(&owner),
                        lock_stateid: open.locks.borrow().stateid?,
                        offset: Offset(first),
                        length: Length(last - first + 1),
                    };
                    let handle = open.handle.borrow();
                    let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                    (!open.is_lost.get()).then(|| Ops::new(&[put, ArgOp::Locku(unlock)]))
                },
                (&[OpNum4::PutFh], || vec![owner.clone()]),
            )
            .await;
        let Some(Acted { mut reply, is_excused, .. }) = acted else { return };
        let Some(()) = reply.skip(&[OpNum4::PutFh]) else { return };
        match reply.next::<Locku4Ok>(OpNum4::Locku) {
            Some(ok) => open.locks.borrow_mut().stateid = Some(ok.lock_stateid),
            None if is_excused => {}
            None => self.refused(open, "LOCKU", reply.status),
        }
    }
}
