//! Delegations: noted when they come, used, and given back.

use std::sync::Arc;

use holdfast_base::Seqid;
use holdfast_wire::nfs4::{
    ArgOp, Attr, Bitmap4, DelegReturn4Args, Fattr4, NfsStat4, OpNum4, Open4Args, Open4Ok, OpenClaim4,
    OpenDelegation4, OpenFlag4, SetAttr4Args, StateOwner4, Stateid4,
};
use holdfast_xdr::{Encode, Writer};

use crate::attributes::Time;
use crate::client::Inner;
use crate::run::Manner;
use crate::state::{Delegation, Open, OpenStatus};
use crate::{Client, Cred, Cx, DelegationKind, Error, Handle, OpenFile, Recall, Result};

/// What a delegation that is gone is returned with.
const GONE: Error = Error::Nfs(NfsStat4::BadStateid);

/// Ends the claiming of an open that needs none any more; never seen outside.
const KNOWN_ALREADY: Error = Error::Protocol("the open is known already");

/// A delegation as an OPEN brings it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    stateid: Stateid4,
    pub(crate) kind: DelegationKind,
    has_times: bool,
    /// It is wanted back already.
    is_recalled: bool,
}

/// A delegation as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// What it allows.
    pub kind: DelegationKind,
    /// Its place in the order of grants and recalls of this client.
    pub number: u64,
}

/// Reads what an OPEN says about delegations.
pub(crate) fn granted(delegation: &OpenDelegation4<'_>) -> Option<Granted> {
    let granted = |stateid, kind, has_times, is_recalled| Granted { stateid, kind, has_times, is_recalled };
    match delegation {
        OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
        OpenDelegation4::Read(d) => Some(granted(d.stateid, DelegationKind::Read, false, d.recall)),
        OpenDelegation4::ReadAttrsDeleg(d) => Some(granted(d.stateid, DelegationKind::Read, true, d.recall)),
        OpenDelegation4::Write(d) => Some(granted(d.stateid, DelegationKind::Write, false, d.recall)),
        OpenDelegation4::WriteAttrsDeleg(d) => {
            Some(granted(d.stateid, DelegationKind::Write, true, d.recall))
        }
    }
}

impl Client {
    /// Opens a file that a delegation covers, as the same user that got it, without asking the server. Nothing when no
    /// delegation allows it.
    #[must_use]
    pub fn open_local(&self, cx: Cx<'_>, file: &Handle, access: u32) -> Option<OpenFile> {
        let inner = self.inner();
        inner.files.open_local(file, access, (cx.cred, false)).map(|open| OpenFile::new(open, inner))
    }

    /// Opens a file under a delegation that the server wants back, and has the server know of it (CLAIM_DELEG_CUR_FH):
    /// any other open it may put off until the delegation is returned. Nothing where there is none that covers it, or the
    /// return was faster.
    ///
    /// # Errors
    /// Those of every operation; ACCESS where the server does not let this user in.
    pub fn open_recalled(&self, cx: Cx<'_>, file: &Handle, access: u32) -> Result<Option<OpenFile>> {
        let inner = self.inner();
        if !self.is_recalled(file) {
            return Ok(None);
        }
        let Some(open) = inner.files.open_local(file, access, (cx.cred, true)) else { return Ok(None) };
        let file = OpenFile::new(Arc::clone(&open), inner);
        match inner.make_known(cx, &open) {
            Ok(()) => Ok(Some(file)),
            Err(Error::Nfs(status)) if !matches!(status, NfsStat4::Access | NfsStat4::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a delegation back; opens that live on it become known to the server first. What it covers must have been
    /// flushed. Does nothing where there is none.
    ///
    /// # Errors
    /// Those of every operation; the delegation is kept then.
    pub fn return_delegation(&self, cx: Cx<'_>, file: &Handle) -> Result<()> {
        self.inner().return_delegation(cx, file, None)
    }

    /// The same, and tells the times that the holder has kept (RFC 9754), where the delegation came with them.
    ///
    /// # Errors
    /// Those of [`Client::return_delegation`].
    pub fn return_delegation_with(
        &self,
        cx: Cx<'_>,
        file: &Handle,
        accessed: Option<Time>,
        modified: Option<Time>,
    ) -> Result<()> {
        self.inner().return_delegation(cx, file, Some((accessed, modified)))
    }
}

impl Inner {
    /// Notes what an OPEN for `access` brought, and says what is held now: the delegation that came, or the one that was
    /// there already.
    pub(crate) fn note_delegation(
        &self,
        file: &Handle,
        (cred, access): (&Cred, u32),
        granted: Option<Granted>,
    ) -> Option<Delegated> {
        let delegated = self.files.change(file, |held| {
            if let Some(known) = held.delegation.as_mut().filter(|known| known.cred == *cred) {
                known.admitted |= access;
            }
            let granted = granted?;
            // The same told again has its place in the order already.
            let same = held
                .delegation
                .as_ref()
                .filter(|known| known.stateid.other == granted.stateid.other && known.kind == granted.kind);
            let (number, is_returning) = match same {
                Some(known) => (known.number, known.is_returning),
                None => (self.files.next_number(), false),
            };
            let before = held.delegation.as_ref().filter(|known| known.cred == *cred);
            held.delegation = Some(Delegation {
                stateid: granted.stateid,
                kind: granted.kind,
                has_times: granted.has_times,
                is_returning,
                is_recalled: granted.is_recalled || same.is_some_and(|known| known.is_recalled),
                cred: cred.clone(),
                admitted: access | before.map_or(0, |known| known.admitted),
                last_use: self.files.next_use(),
                number,
            });
            Some(Delegated { kind: granted.kind, number })
        });
        if let Some(granted) = granted.filter(|granted| granted.is_recalled) {
            self.recall_later(file, granted.kind);
        }
        delegated
    }

    /// Notes a delegation that was reclaimed: what its holder knows of it stays as it was. Another kind than before is
    /// of no use to it and goes back; as does one that was not held, which Linux gives with any open that is reclaimed.
    pub(crate) fn note_reclaimed(&self, file: &Handle, cred: &Cred, granted: &Granted) {
        let is_same = self.files.change(file, |held| {
            let known = held.delegation.as_mut()?;
            known.stateid = granted.stateid;
            known.has_times = granted.has_times;
            // No CB_RECALL follows (RFC 8881 section 10.2.1); and one that came before the restart is still being heeded.
            known.is_recalled |= granted.is_recalled;
            Some(std::mem::replace(&mut known.kind, granted.kind) == granted.kind)
        });
        let Some(is_same) = is_same else { return self.note_unasked(file, cred, Some(*granted)) };
        if granted.is_recalled || !is_same {
            self.recall_later(file, granted.kind);
        }
    }

    /// Notes a delegation that nobody asked for, and gives it back: nobody is there to be told what it covers, nor to give it back
    /// when it is in somebody's way. One that is held already is told again.
    pub(crate) fn note_unasked(&self, file: &Handle, cred: &Cred, unasked: Option<Granted>) {
        let Some(granted) = unasked else { return };
        if self.delegation_stateid(file).is_some() {
            self.note_delegation(file, (cred, 0), Some(granted));
            return;
        }
        self.files.change(file, |held| {
            held.delegation = Some(Delegation {
                stateid: granted.stateid,
                kind: granted.kind,
                has_times: false,
                is_returning: false,
                // So nobody relies on it.
                is_recalled: true,
                cred: cred.clone(),
                admitted: 0,
                last_use: self.files.next_use(),
                number: self.files.next_number(),
            });
        });
        let file = file.clone();
        self.chores.add(Box::new(move |inner| {
            let cx = Cx { cred: &inner.options.machine, cancel: &inner.quit };
            if let Err(error) = inner.return_delegation(cx, &file, None) {
                tracing::debug!(%error, "a delegation that was not asked for is kept");
            }
        }));
    }

    /// Tells the user to give a delegation back, from a thread that may be waited for.
    pub(crate) fn recall_later(&self, file: &Handle, kind: DelegationKind) {
        let (file, number) = (file.clone(), self.files.next_number());
        let recall = Recall { kind, truncate: false, number };
        self.chores.add(Box::new(move |inner| inner.callbacks.recall(&file, recall)));
    }

    /// Notes the delegation of a directory.
    pub(crate) fn note_directory(&self, dir: &Handle, cred: &Cred, stateid: Stateid4) -> Delegated {
        let kind = DelegationKind::Directory;
        self.files.change(dir, |held| {
            let number = self.files.next_number();
            held.delegation = Some(Delegation {
                stateid,
                kind,
                has_times: false,
                is_returning: false,
                is_recalled: false,
                cred: cred.clone(),
                admitted: 0,
                last_use: self.files.next_use(),
                number,
            });
            Delegated { kind, number }
        })
    }

    fn return_delegation(
        &self,
        cx: Cx<'_>,
        file: &Handle,
        times: Option<(Option<Time>, Option<Time>)>,
    ) -> Result<()> {
        // From here on nothing new lives on it.
        let found = self.files.look(file, |_| ()).and_then(|()| {
            self.files.change(file, |held| {
                let delegation = held.delegation.as_mut()?;
                delegation.is_returning = true;
                Some((delegation.clone(), held.opens.clone()))
            })
        });
        let Some((delegation, opens)) = found else { return Ok(()) };
        let claimed =
            opens.iter().filter(|open| *open.status.lock() == OpenStatus::Local).try_for_each(|open| {
                match self.claim_local(cx, open) {
                    // The file is gone, or closed to its user: one open less, and others go on waiting for the return.
                    Err(Error::Nfs(status)) => {
                        tracing::warn!(?status, "an open file is lost with its delegation");
                        open.set(OpenStatus::Lost);
                        Ok(())
                    }
                    other => other,
                }
            });
        let returned = claimed.and_then(|()| self.send_back(cx, file, &delegation, times));
        self.files.change(file, |held| {
            // Another one may have come meanwhile, with an OPEN that the server has seen after the return.
            let Some(current) = held.delegation.as_mut().filter(|current| current.is_returning) else {
                return;
            };
            match &returned {
                Ok(()) => held.delegation = None,
                Err(_) => current.is_returning = false,
            }
        });
        returned
    }

    /// Has the server know an open, for what it must know it for.
    pub(crate) fn make_known(&self, cx: Cx<'_>, open: &Arc<Open>) -> Result<()> {
        if *open.status.lock() != OpenStatus::Local {
            return Ok(());
        }
        self.claim_local(cx, open)
    }

    /// The delegation's stateid of now: a recovery may have brought another one.
    fn delegation_stateid(&self, file: &Handle) -> Option<Stateid4> {
        self.files.look(file, |held| held.delegation.as_ref().map(|delegation| delegation.stateid))?
    }

    /// Makes an open that lives on a delegation known to the server.
    fn claim_local(&self, cx: Cx<'_>, open: &Arc<Open>) -> Result<()> {
        let cx = Cx { cred: &open.cred, ..cx };
        let stateid = self.run(
            cx,
            &Manner::once(2),
            |compound| {
                // Recovery may have made it known already, or lost it.
                let stateid = match *open.status.lock() {
                    OpenStatus::Local => self.delegation_stateid(&open.handle).ok_or(Error::Lost)?,
                    OpenStatus::Known(_) => return Err(KNOWN_ALREADY),
                    OpenStatus::Lost | OpenStatus::Closed => return Err(Error::Lost),
                };
                compound.uses(&open.handle, stateid);
                let clientid = self.gate.identity().map(|known| known.client).unwrap_or_default();
                compound.put(&open.handle).op(&ArgOp::Open(Open4Args {
                    seqid: Seqid(0),
                    share_access: open.access(),
                    share_deny: open.deny,
                    owner: StateOwner4 { clientid, owner: &open.owner_name() },
                    openhow: OpenFlag4::NoCreate,
                    claim: OpenClaim4::DelegCurFh(stateid),
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(answer.next::<Open4Ok<'_>>(OpNum4::Open)?.stateid)
            },
        );
        let stateid = match stateid {
            Err(e) if e == KNOWN_ALREADY => return Ok(()),
            other => other?,
        };
        let mut status = open.status.lock();
        if *status == OpenStatus::Local {
            *status = OpenStatus::Known(stateid);
        }
        Ok(())
    }

    fn send_back(
        &self,
        cx: Cx<'_>,
        file: &Handle,
        delegation: &Delegation,
        times: Option<(Option<Time>, Option<Time>)>,
    ) -> Result<()> {
        let cx = Cx { cred: &delegation.cred, ..cx };
        let times = times.filter(|_| delegation.has_times).map(|(accessed, modified)| {
            let (mut mask, mut w) = (Bitmap4::EMPTY, Writer::new());
            for (attr, time) in [(Attr::TimeDelegAccess, accessed), (Attr::TimeDelegModify, modified)] {
                if let Some(time) = time {
                    mask = mask.with_attr(attr);
                    time.encode(&mut w);
                }
            }
            (mask, w.into_vec())
        });
        let told = times.as_ref().filter(|(mask, _)| !mask.is_empty());
        let returned = self.run(
            cx,
            &Manner::once(2),
            |compound| {
                let stateid = self.delegation_stateid(file).ok_or(GONE)?;
                compound.put(file);
                if let Some((mask, values)) = told {
                    let obj_attributes = Fattr4 { mask: *mask, values };
                    compound.op(&ArgOp::SetAttr(SetAttr4Args { stateid, obj_attributes }));
                }
                // Where it is not known any more, recovery knows whether it was told another one.
                compound.uses(file, stateid);
                let args = DelegReturn4Args { deleg_stateid: stateid };
                compound.op(&ArgOp::DelegReturn(args));
                Ok(())
            },
            |answer| {
                answer.put()?;
                if told.is_some() {
                    answer.next::<holdfast_wire::nfs4::SetAttr4Res>(OpNum4::SetAttr)?;
                }
                answer.ok(OpNum4::DelegReturn)
            },
        );
        match returned {
            // It is gone, and that is what was wanted.
            Err(Error::Nfs(
                NfsStat4::BadStateid
                | NfsStat4::OldStateid
                | NfsStat4::StaleStateid
                | NfsStat4::Expired
                | NfsStat4::AdminRevoked
                | NfsStat4::DelegRevoked
                | NfsStat4::Stale,
            )) => Ok(()),
            // Times are a courtesy; the return is not.
            Err(Error::Nfs(_)) if told.is_some() => self.send_back(cx, file, delegation, None),
            other => other,
        }
    }
}
