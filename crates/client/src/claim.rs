//! One open that is had again, or closed, by recovery: what becomes of it is for those who know of the file's other state.

use std::sync::Arc;

use holdfast_base::Seqid;
use holdfast_wire::nfs4::{
    ArgOp, Close4Args, OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OpNum4, Open4Args, Open4Ok, OpenClaim4,
    OpenDelegationType4, OpenFlag4, StateOwner4, Stateid4,
};

use crate::client::Inner;
use crate::compound::Compound;
use crate::recover::Setback;
use crate::session::Session;
use crate::state::{Open, OpenStatus};
use crate::{Cred, Error};

/// How an open is had again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// In grace, as it was.
    Previous(OpenDelegationType4),
    /// Anew, as anybody might.
    Anew,
}

impl Inner {
    /// Has the whole of an open again: what it was opened for, and then what a lock has added, as whom that was added for. Where that
    /// alone is refused, the locks that need it are, too, and the rest is kept. And whether a delegation came with it.
    pub(crate) fn claim(
        &self,
        session: &Arc<Session>,
        open: &Open,
        claim: Claim,
    ) -> Result<(Stateid4, bool), Setback> {
        let (stateid, is_delegated) = self.claim_as(session, open, (open.opened(), &open.cred), claim)?;
        let Some((access, cred)) = open.widened() else { return Ok((stateid, is_delegated)) };
        let more = match claim {
            Claim::Previous(_) => Claim::Previous(OpenDelegationType4::None),
            Claim::Anew => Claim::Anew,
        };
        match self.claim_as(session, open, (access, &cred), more) {
            Ok((stateid, is_also)) => Ok((stateid, is_delegated || is_also)),
            Err(Setback::Because(Error::Nfs(status))) => {
                tracing::warn!(?status, "what a lock has added to an open is lost");
                open.reopened(open.opened());
                Ok((stateid, is_delegated))
            }
            Err(e) => Err(e),
        }
    }

    /// OPEN without a name, for an open that we know of, as somebody.
    fn claim_as(
        &self,
        session: &Arc<Session>,
        open: &Open,
        (access, cred): (u32, &Cred),
        claim: Claim,
    ) -> Result<(Stateid4, bool), Setback> {
        let (want, claim4) = match claim {
            Claim::Previous(kind @ OpenDelegationType4::None) => {
                (OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OpenClaim4::Previous(kind))
            }
            Claim::Previous(kind) => (0, OpenClaim4::Previous(kind)),
            Claim::Anew => (OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OpenClaim4::Fh),
        };
        let mut compound = Compound::new();
        compound.put(&open.handle).op(&ArgOp::Open(Open4Args {
            seqid: Seqid(0),
            share_access: access | want,
            share_deny: open.deny,
            owner: StateOwner4 { clientid: session.client, owner: &open.owner_name() },
            openhow: OpenFlag4::NoCreate,
            claim: claim4,
        }));
        self.ask(session, cred, &compound, |answer| {
            answer.put()?;
            let ok: Open4Ok<'_> = answer.next(OpNum4::Open)?;
            let (stateid, delegation) = (ok.stateid, crate::delegation::granted(&ok.delegation));
            match (claim, delegation) {
                (Claim::Previous(_), Some(granted)) => {
                    self.note_reclaimed(&open.handle, cred, &granted);
                }
                (Claim::Anew, granted) => self.note_unasked(&open.handle, cred, granted),
                (Claim::Previous(_), None) => {}
            }
            Ok((stateid, delegation.is_some()))
        })
    }

    /// Notes that an open was had again, or closes it when it was closed meanwhile.
    pub(crate) fn settle(
        &self,
        session: &Arc<Session>,
        open: &Open,
        stateid: Stateid4,
    ) -> Result<(), Setback> {
        let mut status = open.status.lock();
        if *status != OpenStatus::Closed {
            *status = OpenStatus::Known(stateid);
            return Ok(());
        }
        drop(status);
        self.close_on(session, open, stateid)
    }

    pub(crate) fn open_one_anew(&self, session: &Arc<Session>, open: &Open) -> Result<(), Setback> {
        match self.claim(session, open, Claim::Anew) {
            Ok((stateid, _)) => self.settle(session, open, stateid)?,
            Err(Setback::Because(Error::Nfs(status))) => {
                tracing::warn!(?status, "an open file is lost");
                open.set(OpenStatus::Lost);
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Opens anew what lived on a delegation that is gone. Not before the server was told that all was reclaimed: in its grace it
    /// refuses any other open (RFC 8881 section 18.51.3). Found by looking, so that nothing is forgotten where recovery is cut short.
    pub(crate) fn open_stranded(&self, session: &Arc<Session>) -> Result<(), Setback> {
        for file in self.files.all() {
            let opens = {
                let held = file.held.lock();
                if held.delegation.is_some() { Vec::new() } else { held.opens.clone() }
            };
            for open in opens.iter().filter(|open| *open.status.lock() == OpenStatus::Local) {
                self.open_one_anew(session, open)?;
            }
        }
        Ok(())
    }

    pub(crate) fn close_on(
        &self,
        session: &Arc<Session>,
        open: &Open,
        stateid: Stateid4,
    ) -> Result<(), Setback> {
        let mut compound = Compound::new();
        let args = Close4Args { seqid: Seqid(0), open_stateid: stateid };
        compound.put(&open.handle).op(&ArgOp::Close(args));
        match self.ask(session, &open.cred, &compound, |_| Ok(())) {
            Err(Setback::Because(Error::Nfs(_))) => Ok(()),
            other => other,
        }
    }
}
