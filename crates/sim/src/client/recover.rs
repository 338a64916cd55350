//! How a client of NFSv4 comes to a client id and a session, and to what it held, after whatever happened
//! (RFC 8881 section 8.4.2.1, RFC 7530 section 9.6).

use std::rc::Rc;

use holdfast_base::{ClientId, Length, Offset};
use holdfast_wire::nfs4::*;

use super::delegations::{look, seen_in};
use super::v4::{Client4, Open};
use crate::wire::{Ops, Reply};

impl Client4 {
    /// Recovers, unless another task has since `epoch`.
    pub(crate) async fn recover(&self, epoch: u64) {
        self.recovering.take().await;
        if self.epoch.get() == epoch {
            self.in_doubt();
            self.keep_what_can_be_reclaimed();
            if self.kind.minor == 0 {
                self.recover_without_session().await;
            } else {
                self.recover_session().await;
            }
        }
        self.recovering.pass();
    }

    async fn pause(&self) {
        let ms = self.rng.borrow_mut().between(20, 400);
        self.world.exec.sleep(ms).await;
    }

    async fn recover_session(&self) {
        loop {
            if self.session.borrow().is_none() && self.make_session().await.is_none() {
                self.pause().await;
                continue;
            }
            // What is under way may bring an open of the former life, which is to be reclaimed with the others.
            while self.is_busy() {
                self.world.exec.sleep(5).await;
            }
            if self.session.borrow().is_none() {
                continue;
            }
            self.bind().await;
            self.epoch.set(self.epoch.get() + 1);
            let is_known = !self.must_reclaim.replace(false);
            if !self.mount_greets(!is_known).await {
                // As `client` with one connection: RECLAIM_COMPLETE does not follow over another what broke with this.
                self.world.tell(|| format!("{}: recovery begins again", self.name()));
                self.must_reclaim.set(!is_known);
                continue;
            }
            let (deaths, life) = (self.deaths(), self.world.lives());
            if self.reclaim_all().await.is_none() {
                self.world.tell(|| format!("{}: recovery begins again", self.name()));
                continue;
            }
            if self.deaths() != deaths {
                // A persistent session hides a second restart: what was reclaimed before it is gone, and a
                // RECLAIM_COMPLETE sent again tells the new life that nothing more will come. What the server may
                // still hold goes when the client comes as one that was restarted.
                self.lose_all("the server died once more during recovery");
                self.drop_delegations();
                self.mount_begins_anew();
                self.amnesias.set(self.amnesias.get() + 1);
                self.counted.set(None);
                *self.session.borrow_mut() = None;
                continue;
            }
            self.sure_of.set(life);
            return;
        }
    }

    /// How often the server has died.
    pub(super) fn deaths(&self) -> u64 {
        let mut deaths = 0;
        self.world.oracles.reclaims(|reclaims| {
            deaths = reclaims.deaths();
            Ok(())
        });
        deaths
    }

    async fn recover_without_session(&self) {
        // As with sessions; an OPEN whose file was made before the server died is answered as it was in that life.
        while self.under_way.get() > 0 {
            self.world.exec.sleep(5).await;
        }
        loop {
            let life = self.world.lives();
            let Some(client) = self.set_client_id().await else {
                self.pause().await;
                continue;
            };
            self.world.tell(|| format!("{}: client id {:x}", self.name(), client.0));
            // The same id is the same client, with all its owners (RFC 7530 section 16.33.5): their numbers go on.
            if self.client_id.replace(Some(client)) != Some(client) {
                self.seqids.borrow_mut().clear();
            }
            self.epoch.set(self.epoch.get() + 1);
            self.must_reclaim.set(false);
            if self.reclaim_all().await.is_some() {
                self.sure_of.set(life);
                return;
            }
        }
    }

    pub(super) async fn set_client_id(&self) -> Option<ClientId> {
        let id = self.owner_id();
        // The address of its host, and any port that a client may have.
        let at = format!("192.0.2.{}.8.1", self.host + 1);
        let set = SetClientId4Args {
            client: NfsClientId4 { verifier: self.verifier(), id: &id },
            callback: CbClient4 {
                cb_program: NFS4_CALLBACK_PROGRAM,
                cb_location: NetAddr4 { netid: b"tcp", addr: at.as_bytes() },
            },
            callback_ident: 1,
        };
        let (mut reply, _) = self.without_session(&Ops::new(&[ArgOp::SetClientId(set)])).await;
        let SetClientId4Ok { clientid, setclientid_confirm } = reply.next(OpNum4::SetClientId)?;
        let confirm = SetClientIdConfirm4Args { clientid, setclientid_confirm };
        let (reply, _) = self.without_session(&Ops::new(&[ArgOp::SetClientIdConfirm(confirm)])).await;
        (reply.status == NfsStat4::Ok).then_some(clientid)
    }

    /// Sends a compound of the recovery; `None` when recovery must begin again.
    pub(crate) async fn step(
        &self,
        make: impl Fn() -> Option<Ops>,
        (after, owners): (&[OpNum4], impl Fn() -> Vec<Vec<u8>>),
    ) -> Option<(Reply, u64)> {
        loop {
            let (sent, ops) = (self.world.now(), make()?);
            let reply = if self.kind.minor == 0 {
                self.without_session(&ops).await.0
            } else {
                self.on_slot(&ops, true).await.ok()?.0
            };
            self.count_after(&reply, after, &owners);
            if reply.status != NfsStat4::Ok {
                self.world.tell(|| format!("{}: in recovery hears {:?}", self.name(), reply.status));
            }
            match reply.status {
                NfsStat4::Delay | NfsStat4::Resource | NfsStat4::ServerFault => self.pause().await,
                // RECLAIM_COMPLETE in a life that this client has not heard of: as Linux, it finds it out by itself.
                NfsStat4::StaleClientId | NfsStat4::DeadSession => return None,
                // In 4.1 and later Linux takes it for the loss of what was named.
                NfsStat4::StaleStateid if self.kind.minor == 0 => return None,
                _ => return Some((reply, sent)),
            }
        }
    }

    async fn reclaim_all(&self) -> Option<()> {
        self.forget_claimed();
        let opens: Vec<Rc<Open>> = self.opens.borrow().values().cloned().collect();
        for open in opens.iter().filter(|open| !open.is_lost.get()) {
            if open.is_closing.get() {
                // It may have been closed, and another have had since what stands against it: as Linux, it does not say
                // that it has it still.
                self.lose(open, "it was being closed");
                continue;
            }
            self.reclaim(open, self.deaths()).await?;
        }
        self.reclaim_delegations().await?;
        self.mount_reclaims().await?;
        if self.kind.minor > 0 {
            let done = ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false });
            let (reply, _) =
                self.step(|| Some(Ops::new(std::slice::from_ref(&done))), (&[], Vec::new)).await?;
            if !matches!(reply.status, NfsStat4::Ok | NfsStat4::CompleteAlready) {
                let what = format!("{}: RECLAIM_COMPLETE answered {:?}", self.name(), reply.status);
                self.world.oracles.violated(what);
            }
            let who = (self.host, self.starts);
            self.world.oracles.reclaims(|reclaims| {
                reclaims.done(who);
                Ok(())
            });
        }
        Some(())
    }

    async fn reclaim(&self, open: &Rc<Open>, deaths: u64) -> Option<()> {
        let handle = open.handle.borrow().clone();
        let held = self.to_be_reclaimed_with(open);
        let (share, owner) = ((open.access, open.deny), &open.owner);
        let make = || self.reclaiming_ops((&handle, owner), share, held);
        let what = (Some(owner.clone()), open.file);
        self.tries_to_reclaim(what.clone());
        let (mut reply, sent) = self.step(make, (&[OpNum4::PutFh], || vec![owner.clone()])).await?;
        let status = reply.status;
        reply.skip(&[OpNum4::PutFh]);
        let mut opened = reply.clone();
        let Some(Open4Ok { stateid, delegation, .. }) = opened.next(OpNum4::Open) else {
            self.lose(open, &format!("its reclaim was answered {status:?}"));
            return Some(());
        };
        reply.next::<Open4Ok<'_>>(OpNum4::Open);
        open.stateid.set(stateid);
        let now = self.world.now();
        self.was_entitled(what, (sent, deaths));
        if held != OpenDelegationType4::None {
            self.delegation_reclaimed(open.file, &delegation, seen_in(&mut reply));
        }
        self.world.oracles.grants(|grants| grants.reclaimed(now, open.grant.get()));
        self.reclaim_locks(open, &handle).await
    }

    /// OPEN of what was open, and of what was delegated, before the restart.
    pub(super) fn reclaiming_ops(
        &self,
        (handle, owner): (&[u8], &[u8]),
        (share_access, share_deny): (u32, u32),
        held: OpenDelegationType4,
    ) -> Option<Ops> {
        let args = Open4Args {
            seqid: self.seqid(owner),
            share_access,
            share_deny,
            owner: StateOwner4 { clientid: self.client_id.get()?, owner },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Previous(held),
        };
        Some(Ops::new(&[ArgOp::PutFh(PutFh4Args { object: handle }), ArgOp::Open(args), look()]))
    }

    async fn reclaim_locks(&self, open: &Rc<Open>, handle: &[u8]) -> Option<()> {
        let held = open.locks.borrow().held.clone();
        let has_locks = !held.is_empty();
        {
            let mut locks = open.locks.borrow_mut();
            locks.stateid = None;
            locks.told = held.iter().map(|(first, last, is_write, _)| (*first, *last, *is_write)).collect();
        }
        for (first, last, is_write, grant) in held {
            let make = || self.lock_ops(open, handle, (first, last, is_write), (true, false));
            let (mut reply, _) = self.step(make, (&[OpNum4::PutFh], || self.lock_owners(open))).await?;
            let status = reply.status;
            reply.skip(&[OpNum4::PutFh]);
            let now = self.world.now();
            match reply.next::<Lock4Ok>(OpNum4::Lock) {
                Some(ok) => {
                    open.locks.borrow_mut().stateid = Some(ok.lock_stateid);
                    self.world.oracles.grants(|grants| grants.reclaimed(now, grant));
                }
                None => {
                    if status == NfsStat4::StaleStateid {
                        // The open was reclaimed a moment before: another restart is told of otherwise.
                        let what =
                            format!("{}: a lock of file {} is lost by a restart", self.name(), open.file);
                        self.world.oracles.violated(what);
                    }
                    self.lose(open, &format!("the reclaim of a lock was answered {status:?}"));
                    // The file itself is open again, and would stand in the way of others: who had it open hears of an error,
                    // and closes it.
                    return self.close_in_recovery(handle, &open.owner, open.stateid.get()).await;
                }
            }
        }
        // As Linux may, where another LOCK waited meanwhile: it counts one too far.
        if has_locks && self.seqid(&open.owner).0.is_multiple_of(2) {
            self.count(&open.owner, NfsStat4::Ok);
        }
        Some(())
    }

    /// CLOSE of what was reclaimed and is not wanted.
    pub(super) async fn close_in_recovery(
        &self,
        handle: &[u8],
        owner: &[u8],
        open_stateid: Stateid4,
    ) -> Option<()> {
        let close = || {
            let close = Close4Args { seqid: self.seqid(owner), open_stateid };
            let put = ArgOp::PutFh(PutFh4Args { object: handle });
            Some(Ops::new(&[put, ArgOp::Close(close)]))
        };
        self.step(close, (&[OpNum4::PutFh], || vec![owner.to_vec()])).await?;
        Some(())
    }

    /// LOCK of a range through an open.
    pub(crate) fn lock_ops(
        &self,
        open: &Open,
        handle: &[u8],
        (first, last, is_write): (u64, u64, bool),
        (reclaim, waits): (bool, bool),
    ) -> Option<Ops> {
        let owner = lock_owner(&open.owner);
        let clientid = self.client_id.get()?;
        let locker = match open.locks.borrow().stateid {
            Some(lock_stateid) => {
                Locker4::Exist(ExistLockOwner4 { lock_stateid, lock_seqid: self.seqid(&owner) })
            }
            None => Locker4::New(OpenToLockOwner4 {
                open_seqid: self.seqid(&open.owner),
                open_stateid: open.stateid.get(),
                lock_seqid: self.seqid(&owner),
                lock_owner: StateOwner4 { clientid, owner: &owner },
            }),
        };
        let locktype = match (is_write, waits) {
            (true, true) => LockType4::WriteWait,
            (true, false) => LockType4::Write,
            (false, true) => LockType4::ReadWait,
            (false, false) => LockType4::Read,
        };
        let (offset, length) = (Offset(first), Length(last - first + 1));
        let lock = Lock4Args { locktype, reclaim, offset, length, locker };
        Some(Ops::new(&[ArgOp::PutFh(PutFh4Args { object: handle }), ArgOp::Lock(lock)]))
    }

    /// In 4.0, by whose numbers a LOCK counts: its first by the open's owner's as well.
    pub(crate) fn lock_owners(&self, open: &Open) -> Vec<Vec<u8>> {
        let mut owners = vec![lock_owner(&open.owner)];
        if open.locks.borrow().stateid.is_none() {
            owners.push(open.owner.clone());
        }
        owners
    }
}

/// The owner of locks through an open of this owner.
pub(crate) fn lock_owner(open_owner: &[u8]) -> Vec<u8> {
    [open_owner, b" locks"].concat()
}
