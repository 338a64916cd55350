//! WRITEs of one byte, one behind the other in a file.

use super::session::Session;
use super::{COMPOUND, put};
use crate::client::call::header_after_xid;
use crate::client::pump::{Lane, Load, succeeded};
use crate::client::target::Target;
use anyhow::Result;
use holdfast_base::Offset;
use holdfast_wire::nfs4::*;
use holdfast_xdr::Writer;

/// Such WRITEs, unstable, of the file that is written.
#[derive(Debug)]
pub(crate) struct ByteLoad<'a> {
    asks_for_change: bool,
    header: Vec<u8>,
    sessions: &'a mut [Session],
    target: &'a Target,
    next: u64,
}

impl<'a> ByteLoad<'a> {
    /// With a GETATTR of `change` behind each, or without.
    pub(super) fn new(asks_for_change: bool, sessions: &'a mut [Session], target: &'a Target) -> Self {
        Self { asks_for_change, header: header_after_xid(COMPOUND), sessions, target, next: 0 }
    }
}

impl Load for ByteLoad<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(&self.header);
        let session = &mut self.sessions[lane.connection];
        let (sequence, stateid) = (session.sequence(lane.slot), session.write_state);
        let (offset, stable) = (Offset(self.next), StableHow4::Unstable);
        self.next += 1;
        let write = ArgOp::Write(Write4Args { stateid, offset, stable, data: b"x" });
        let mut ops = vec![ArgOp::Sequence(sequence), put(&self.target.write_file), write];
        if self.asks_for_change {
            let attr_request = Bitmap4::of(&[Attr::Change]);
            ops.push(ArgOp::GetAttr(GetAttr4Args { attr_request }));
        }
        encode_compound(w, b"", 1, &ops);
    }

    fn check(&mut self, _: Lane, reply: &[u8]) -> Result<u64> {
        succeeded(reply).map(|_| 1)
    }
}
