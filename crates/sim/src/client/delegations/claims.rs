//! Opens by right of a delegation (CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH): what its holder has opened by itself and tells the
//! server of before it gives the delegation back (RFC 8881 section 10.4).

use holdfast_wire::nfs4::*;

use super::{Delegation, look};
use crate::client::app::{AT_ROOT, FILES, IN_DIRECTORY, file_name};
use crate::client::v4::Client4;
use crate::oracle::grants::{GrantId, HOLDER, What};
use crate::wire::Ops;

/// An open that was made of a delegation about to be given back.
pub(super) struct Claimed {
    owner: Vec<u8>,
    stateid: Stateid4,
    grant: GrantId,
}

/// A delegation by right of which a file is opened, and whether the OPEN names the file by its handle.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    stateid: Stateid4,
    pub(crate) grant: GrantId,
    pub(crate) is_by_handle: bool,
}

impl Claim {
    /// What comes before the OPEN.
    pub(crate) const fn before(self) -> &'static [OpNum4] {
        if self.is_by_handle { &IN_DIRECTORY } else { &AT_ROOT }
    }
}

impl Client4 {
    fn claim(&self, held: &Delegation) -> Claim {
        let is_by_handle = self.kind.minor > 0 && self.rng.borrow_mut().percent(50);
        Claim { stateid: held.stateid, grant: held.grant, is_by_handle }
    }

    /// Now and then, where the client has a delegation by which it may open the file so, that one.
    pub(crate) fn opens_by(&self, file: usize, (access, deny): (u32, u32)) -> Option<Claim> {
        let held = self.delegations.borrow();
        let held = held.get(&file).filter(|held| deny == 0 && (held.is_write || access == 1))?;
        let claim = self.claim(held);
        let goes_by_it = self.rng.borrow_mut().percent(50);
        (goes_by_it && self.still_held(held, claim)).then_some(claim)
    }

    /// Whether the client still has the delegation.
    pub(crate) fn still_opens_by(&self, file: usize, claim: &Claim) -> bool {
        self.delegations.borrow().get(&file).is_some_and(|held| self.still_held(held, *claim))
    }

    fn still_held(&self, held: &Delegation, claim: Claim) -> bool {
        let (now, mut is_believed) = (self.world.now(), false);
        self.world.oracles.grants(|grants| {
            is_believed = grants.is_believed(now, held.grant);
            Ok(())
        });
        is_believed && held.stateid == claim.stateid && held.epoch == self.epoch.get()
    }

    /// OPEN by right of a delegation.
    pub(crate) fn claiming_ops(&self, (file, owner, access): (usize, &[u8], u32), by: Claim) -> Option<Ops> {
        let name = file_name(file);
        let claim = if by.is_by_handle {
            OpenClaim4::DelegCurFh(by.stateid)
        } else {
            let (delegate_stateid, file) = (by.stateid, name.as_bytes());
            OpenClaim4::DelegateCur(OpenClaimDelegateCur4 { delegate_stateid, file })
        };
        let open = Open4Args {
            seqid: self.seqid(owner),
            share_access: access,
            share_deny: 0,
            owner: StateOwner4 { clientid: self.client_id.get()?, owner },
            openhow: OpenFlag4::NoCreate,
            claim,
        };
        let export = ArgOp::Lookup(Lookup4Args { objname: b"export" });
        let file = ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
        let open = ArgOp::Open(open);
        Some(if by.is_by_handle {
            Ops::new(&[ArgOp::PutRootFh, export, file, open, ArgOp::GetFh, look()])
        } else {
            Ops::new(&[ArgOp::PutRootFh, export, open, ArgOp::GetFh, look()])
        })
    }

    /// Now and then a process has the file open by right of the delegation alone: the server hears of it while it waits.
    pub(super) async fn open_before_return(
        &self,
        (file, delegation): (usize, &Delegation),
        epoch: u64,
    ) -> Option<Claimed> {
        if file >= FILES || delegation.is_doubtful || !self.rng.borrow_mut().percent(30) {
            return None;
        }
        let (owner, claim) = (format!("holder of {file}").into_bytes(), self.claim(delegation));
        let access = if delegation.is_write { 3 } else { 1 };
        let is_still = || self.epoch.get() == epoch;
        let make = || is_still().then(|| self.claiming_ops((file, &owner, access), claim)).flatten();
        let acted = self.act_counted(make, (claim.before(), || vec![owner.clone()])).await?;
        let mut reply = acted.reply;
        self.world
            .tell(|| format!("{}: OPEN by its delegation of file {file}: {:?}", self.name(), reply.status));
        if reply.status != NfsStat4::Ok {
            self.claim_refused(claim.grant, reply.status);
            return None;
        }
        reply.skip(claim.before())?;
        let Open4Ok { mut stateid, rflags, .. } = reply.next(OpNum4::Open)?;
        if rflags & OPEN4_RESULT_CONFIRM != 0 {
            stateid = self.confirm(&owner, &delegation.handle, stateid).await?;
        }
        if !is_still() {
            return None;
        }
        let (now, mut grant) = (self.world.now(), 0);
        self.world.oracles.grants(|grants| {
            let what = (file, What::Open { access, deny: 0 });
            grant = grants.begin(now, (self.host, HOLDER), what)?;
            Ok(())
        });
        Some(Claimed { owner, stateid, grant })
    }

    /// The server does not let the client open by a delegation: what its own processes deny each other is their affair.
    pub(crate) fn claim_refused(&self, delegation: GrantId, status: NfsStat4) {
        let now = self.world.now();
        if status != NfsStat4::ShareDenied {
            self.world.oracles.grants(|grants| grants.denied(now, delegation));
        }
    }

    /// A recovery: what was opened so is not reclaimed, for it was about to be closed. Whoever hears only now that he has it
    /// hears it of the life before.
    pub(crate) fn forget_claimed(&self) {
        self.world.oracles.grants(|grants| {
            grants.end_claimed(self.host);
            Ok(())
        });
    }

    /// The delegation was given back, and the open ends too.
    pub(super) async fn close_after_return(&self, open: Claimed, handle: &[u8], epoch: u64) {
        let ms = self.rng.borrow_mut().below(500);
        self.world.exec.sleep(ms).await;
        self.disbelieve(open.grant);
        let make = || {
            let close = Close4Args { seqid: self.seqid(&open.owner), open_stateid: open.stateid };
            let put = ArgOp::PutFh(PutFh4Args { object: handle });
            // After a recovery, in which it is not reclaimed, it is no more.
            (self.epoch.get() == epoch).then(|| Ops::new(&[put, ArgOp::Close(close)]))
        };
        self.act_counted(make, (&[OpNum4::PutFh], || vec![open.owner.clone()])).await;
    }
}
