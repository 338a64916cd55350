//! Compounds and replies, as clients of the simulation write and read them.

use holdfast_wire::nfs4::{ArgOp, CompoundResHeader, NfsStat4, OpNum4, ResOpHeader, Sequence4Args};
use holdfast_xdr::{Decode, Encode, Reader, Result, Writer};

/// Operations ready to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ops {
    bytes: Vec<u8>,
    count: u32,
    changes: bool,
}

impl Ops {
    pub(crate) fn new(ops: &[ArgOp<'_>]) -> Self {
        let mut w = Writer::new();
        ops.iter().for_each(|op| op.encode(&mut w));
        let changes = |op: &ArgOp<'_>| {
            matches!(op, ArgOp::Write(_) | ArgOp::Create(_) | ArgOp::Remove(_) | ArgOp::Rename(_))
        };
        Self { bytes: w.into_vec(), count: ops.len() as u32, changes: ops.iter().any(changes) }
    }

    /// Whether they change data or names, so that it matters how often they are done.
    pub(crate) const fn changes(&self) -> bool {
        self.changes
    }

    /// The compound around them.
    pub(crate) fn compound(&self, minor: u32, sequence: Option<Sequence4Args>) -> Vec<u8> {
        let mut w = Writer::new();
        w.opaque(b"");
        w.u32(minor);
        w.u32(self.count + u32::from(sequence.is_some()));
        if let Some(sequence) = sequence {
            ArgOp::Sequence(sequence).encode(&mut w);
        }
        w.put(&self.bytes);
        w.into_vec()
    }
}

/// A reply, read from front to end.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: NfsStat4,
    bytes: Vec<u8>,
    at: usize,
}

impl Reply {
    pub(crate) fn read(results: &[u8]) -> Result<Self> {
        let mut r = Reader::new(results);
        let header = CompoundResHeader::decode(&mut r)?;
        let at = results.len() - r.rest().len();
        Ok(Self { status: header.status, bytes: results.to_vec(), at })
    }

    /// The next result, when it is a success of this operation; `None` when it is a failure.
    pub(crate) fn next<'a, T: Decode<'a>>(&'a mut self, op: OpNum4) -> Option<T> {
        let mut r = Reader::new(&self.bytes[self.at..]);
        let head = ResOpHeader::decode(&mut r).ok()?;
        if head.op != op.as_u32() || head.status != NfsStat4::Ok {
            return None;
        }
        let body = T::decode(&mut r).ok()?;
        self.at = self.bytes.len() - r.rest().len();
        Some(body)
    }

    /// Steps over results without a body.
    pub(crate) fn skip(&mut self, ops: &[OpNum4]) -> Option<()> {
        ops.iter().try_for_each(|op| self.next::<()>(*op))
    }
}
