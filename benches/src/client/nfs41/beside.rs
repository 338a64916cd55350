//! What is asked beside state that stays: of what is held, any.

use super::session::Session;
use super::{ATTRIBUTES, COMPOUND, put};
use crate::client::Dice;
use crate::client::call::header_after_xid;
use crate::client::pump::{Lane, Load, succeeded};
use anyhow::{Result, ensure};
use holdfast_base::Offset;
use holdfast_wire::nfs4::*;
use holdfast_xdr::Writer;

/// Bytes asked for of a file.
const READ_BYTES: u32 = 4096;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// SEQUENCE alone: what each compound begins with.
    Sequence,
    /// GETATTR of a file that is open or locked.
    Getattr,
    /// READ by an open, or by the state of a lock, of what is there in 4 KiB.
    Read,
}

impl Beside {
    /// All that may be asked.
    pub(crate) const ALL: [Self; 3] = [Self::Sequence, Self::Getattr, Self::Read];

    /// As people write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Getattr => "getattr",
            Self::Read => "read",
        }
    }
}

/// One of them as a load: each client asks by what it holds itself.
#[derive(Debug)]
pub(crate) struct BesideLoad<'a> {
    what: Beside,
    header: Vec<u8>,
    sessions: &'a mut [Session],
    dice: Dice,
}

impl<'a> BesideLoad<'a> {
    pub(super) fn new(what: Beside, sessions: &'a mut [Session]) -> Result<Self> {
        ensure!(sessions.iter().all(|session| !session.held.is_empty()), "a client that holds nothing");
        Ok(Self { what, header: header_after_xid(COMPOUND), sessions, dice: Dice::new() })
    }
}

impl Load for BesideLoad<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(&self.header);
        let session = &mut self.sessions[lane.connection];
        let sequence = ArgOp::Sequence(session.sequence(lane.slot));
        let any = self.dice.below(session.held.len() as u64) as usize;
        let (file, stateid) = &session.held[any];
        match self.what {
            Beside::Sequence => encode_compound(w, b"", 1, &[sequence]),
            Beside::Getattr => {
                let want = ArgOp::GetAttr(GetAttr4Args { attr_request: ATTRIBUTES });
                encode_compound(w, b"", 1, &[sequence, put(file), want]);
            }
            Beside::Read => {
                let read = Read4Args { stateid: *stateid, offset: Offset(0), count: READ_BYTES };
                encode_compound(w, b"", 1, &[sequence, put(file), ArgOp::Read(read)]);
            }
        }
    }

    fn check(&mut self, _: Lane, reply: &[u8]) -> Result<u64> {
        succeeded(reply).map(|_| 1)
    }
}
