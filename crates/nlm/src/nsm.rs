//! The NSM program: hosts tell of their restarts; programs of this machine have hosts watched.

use std::sync::Arc;

use holdfast_rpc::{Call, Mode, Outcome, Program};
use holdfast_wire::nlm4::NLM_PROGRAM;
use holdfast_wire::nsm::{
    Mon, MonId, MyId, NSM_PROGRAM, NSM_V1, SM_MON, SM_NOTIFY, SM_NULL, SM_SIMU_CRASH, SM_STAT, SM_UNMON,
    SM_UNMON_ALL, SmName, SmStat, SmStatRes, StatChange,
};
use holdfast_xdr::{Decode, Encode, Writer};

use crate::lockd::Lockd;

/// The network status monitor, version 1.
#[derive(Clone, Debug)]
pub struct Nsm(pub Arc<Lockd>);

impl Program for Nsm {
    fn number(&self) -> u32 {
        NSM_PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (NSM_V1, NSM_V1)
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        match call.procedure {
            SM_NULL => return Outcome::Reply,
            SM_NOTIFY => return self.notify(call),
            SM_STAT..=SM_SIMU_CRASH => {}
            _ => return Outcome::NoProcedure,
        }
        // Whom this machine watches, and that it shall, is nobody else's business. A datagram from elsewhere cannot
        // bear this machine's address: the kernel drops such.
        let is_local = call.connection.peer().ip().is_loopback() && call.connection.peer().port() < 1024;
        self.local(call, is_local, reply).unwrap_or(Outcome::Garbage)
    }
}

impl Nsm {
    /// A host restarted; only from its own address is that believed.
    fn notify(&self, call: &mut Call<'_>) -> Outcome {
        if call.mode == Mode::Inline {
            return Outcome::Offload;
        }
        let Ok(StatChange { mon_name, state }) = StatChange::decode(&mut call.args) else {
            return Outcome::Garbage;
        };
        let ip = call.connection.peer().ip();
        // Unanswered, it is said again.
        let Some(_turn) = self.0.turn() else { return Outcome::Silent };
        self.0.host_restarted(ip, mon_name, Some(state));
        self.0.tell_watchers(ip, mon_name, state);
        Outcome::Reply
    }

    /// What programs of this machine ask for.
    fn local(
        &self,
        call: &mut Call<'_>,
        is_local: bool,
        reply: &mut Writer,
    ) -> holdfast_xdr::Result<Outcome> {
        let state = self.0.nsm_state();
        match call.procedure {
            SM_STAT => {
                let SmName { name } = SmName::decode(&mut call.args)?;
                let failed = !is_local || !self.0.monitors.lock().watches(name);
                SmStatRes { failed, state }.encode(reply);
            }
            SM_MON => {
                let mon = Mon::decode(&mut call.args)?;
                let failed = !is_local
                    || mon.mon_id.my_id.my_prog != NLM_PROGRAM
                    || !self.0.monitors.lock().watch(&mon);
                SmStatRes { failed, state }.encode(reply);
            }
            SM_UNMON => {
                let id = MonId::decode(&mut call.args)?;
                if is_local {
                    self.0.monitors.lock().unwatch(&id);
                }
                SmStat { state }.encode(reply);
            }
            SM_UNMON_ALL => {
                let my = MyId::decode(&mut call.args)?;
                if is_local {
                    self.0.monitors.lock().unwatch_all(&my);
                }
                SmStat { state }.encode(reply);
            }
            // Our locks and our clients know of no crash that did not happen.
            _ if is_local => {}
            _ => return Ok(Outcome::WeakAuth),
        }
        Ok(Outcome::Reply)
    }
}
