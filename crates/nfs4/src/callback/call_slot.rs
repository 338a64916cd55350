//! Our side of the slots of back channels: what number a call has, and what the end of a call, or its loss, makes of its
//! slot. Sends nothing.

use std::sync::Arc;

use holdfast_base::Seqid;
use holdfast_rpc::CallError;
use holdfast_state::ConnId;
use holdfast_wire::nfs4::NfsStat4;

use super::{Answer, CallbackError, answer};

/// Our side of one slot of a back channel.
#[derive(Clone, Default)]
pub(super) struct CallSlot {
    pub(super) seqid: Seqid,
    pub(super) phase: Phase,
}

#[derive(Clone, Default)]
pub(super) enum Phase {
    #[default]
    Free,
    /// By a call under way.
    Taken(Arc<[u8]>),
    /// Its call got no answer on this connection. Nobody knows what the client counts, so the same call is made once
    /// more, on another connection, before the slot is used again (RFC 8881 section 2.10.6.2).
    Lost(Arc<[u8]>, ConnId),
}

/// A call as it was sent.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) args: Arc<[u8]>,
    pub(super) on: ConnId,
    /// Whether the client may have had it before.
    pub(super) is_again: bool,
}

impl Sent {
    pub(super) fn read<'a>(&self, result: Result<&'a [u8], CallError>) -> Result<Answer<'a>, CallbackError> {
        let results = result.map_err(CallbackError::Lost)?;
        match (self.is_step(), self.is_again) {
            (true, _) => answer::read_sequence(results),
            (false, true) => answer::read_again(results),
            (false, false) => answer::read(results, true),
        }
    }

    /// Whether it is CB_SEQUENCE alone.
    fn is_step(&self) -> bool {
        // After an empty tag, the minor version and the ident stands how many operations there are.
        self.args.get(12..16) == Some(&1_u32.to_be_bytes())
    }
}

/// No connection has this number.
pub(super) const NOWHERE: ConnId = ConnId(0);

impl CallSlot {
    /// The number of a slot's first call.
    pub(super) const FIRST: Seqid = Seqid(1);

    /// One of which nobody knows how far it was counted: `step` finds out, and brings both sides to [`CallSlot::FIRST`].
    pub(super) const fn unsure(step: Arc<[u8]>) -> Self {
        Self { seqid: Self::FIRST, phase: Phase::Lost(step, NOWHERE) }
    }

    pub(super) const fn is_free(&self) -> bool {
        matches!(self.phase, Phase::Free)
    }

    /// The call of this slot has ended.
    pub(super) fn end(&mut self, error: Option<CallbackError>, sent: Sent) {
        self.phase = match error {
            Some(CallbackError::Lost(CallError::TimedOut | CallError::Closed)) => {
                Phase::Lost(sent.args, sent.on)
            }
            // This time it did not count; whether it did before is as unknown as ever. Linux puts off what it is at.
            Some(CallbackError::Lost(_) | CallbackError::Refused(NfsStat4::Delay)) if sent.is_again => {
                Phase::Lost(sent.args, NOWHERE)
            }
            // The client did not get to CB_SEQUENCE, or put it off: it counts as before.
            Some(CallbackError::Lost(_) | CallbackError::Refused(NfsStat4::Delay)) => {
                self.seqid = Seqid(self.seqid.0.wrapping_sub(1));
                Phase::Free
            }
            _ => Phase::Free,
        };
    }

    pub(super) fn is_lost_on(&self, connection: u64) -> bool {
        matches!(&self.phase, Phase::Lost(_, on) if on.0 == connection)
    }
}
