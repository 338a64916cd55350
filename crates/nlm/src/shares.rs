//! SHARE and UNSHARE: reservations of whole files, as DOS clients make them.

use holdfast_state::{ForeignClaim, Share};
use holdfast_wire::nlm4::NlmStat4;

use crate::lockd::Lockd;
use crate::locks::{Asked, How, status_of_state};

impl Lockd {
    /// SHARE: in place of the reservation that the owner had.
    pub(crate) fn share(&self, asked: &Asked, share: Share, how: How) -> NlmStat4 {
        if let Err(stat) = self.admit_host(&asked.host, asked.local, how.reclaim) {
            return stat;
        }
        let claim = if how.reclaim { ForeignClaim::Reclaim } else { ForeignClaim::New };
        loop {
            let named = (&asked.host, &asked.owner);
            let of = self.table.lock().file_or_new(named, asked.file, &asked.site);
            let Ok(of) = of else { return NlmStat4::DeniedNoLocks };
            let mut held = of.held.lock();
            // Only for as long as others take turns in letting go of it.
            if held.is_gone {
                continue;
            }
            let shared = self.step(|engine, now| engine.foreign_share(of.owner, of.file, share, claim, now));
            let stat = match shared {
                Some(Ok(())) => match self.keep_host(&asked.host, asked.local, how) {
                    Ok(()) => {
                        held.has_share = true;
                        NlmStat4::Granted
                    }
                    // It had none before, or would be on record.
                    Err(stat) => {
                        let _ = self.step(|engine, _| engine.foreign_unshare(of.owner, of.file));
                        stat
                    }
                },
                Some(Err(error)) => status_of_state(error),
                None => NlmStat4::Failed,
            };
            self.forget_if_idle(&of, &mut held);
            return stat;
        }
    }

    /// UNSHARE. What was not reserved is free already.
    pub(crate) fn unshare(&self, asked: &Asked) -> NlmStat4 {
        let found = self.table.lock().file(&asked.host, &asked.owner, asked.file);
        let Some(of) = found else { return NlmStat4::Granted };
        let mut held = of.held.lock();
        let _ = self.step(|engine, _| engine.foreign_unshare(of.owner, of.file));
        held.has_share = false;
        self.forget_if_idle(&of, &mut held);
        NlmStat4::Granted
    }
}
