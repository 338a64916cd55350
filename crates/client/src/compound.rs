//! One COMPOUND: built operation by operation, and its answer read in the same order.

use bytes::Bytes;
use holdfast_base::Offset;
use holdfast_rpc::link::Reply;
use holdfast_wire::nfs4::{
    ArgOp, Bitmap4, CompoundResHeader, Fattr4, GetAttr4Args, GetAttr4Ok, GetFh4Ok, NfsStat4, OpNum4,
    PutFh4Args, ResOpHeader, Sequence4Args, StableHow4, Stateid4,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use crate::session::SlotHeld;
use crate::{Attributes, Error, Handle, Result};

/// The operations of a compound, without the SEQUENCE that goes before them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compound {
    parts: Vec<Bytes>,
    last: Writer,
    count: u32,
    /// Stateids that the compound rests on, to be looked after when the server refuses one.
    pub(crate) used: Vec<(Handle, Stateid4)>,
    /// A state of ours is named: that one may be what has expired, and not the lease.
    pub(crate) names_state: bool,
    /// The first file that it names.
    pub(crate) about: Option<Handle>,
}

impl Compound {
    pub(crate) fn new() -> Self {
        Self { last: Writer::from_vec(Vec::with_capacity(256)), ..Self::default() }
    }

    /// Appends an operation.
    pub(crate) fn op(&mut self, op: &ArgOp<'_>) -> &mut Self {
        self.names_state |= names_state(op);
        op.encode(&mut self.last);
        self.count += 1;
        self
    }

    /// PUTFH.
    pub(crate) fn put(&mut self, file: &Handle) -> &mut Self {
        self.about.get_or_insert_with(|| file.clone());
        self.op(&ArgOp::PutFh(PutFh4Args { object: file.as_bytes() }))
    }

    /// GETATTR.
    pub(crate) fn attributes(&mut self, want: Bitmap4) -> &mut Self {
        self.op(&ArgOp::GetAttr(GetAttr4Args { attr_request: want }))
    }

    /// GETFH and GETATTR.
    pub(crate) fn node(&mut self, want: Bitmap4) -> &mut Self {
        self.op(&ArgOp::GetFh).attributes(want)
    }

    /// WRITE, whose data is not copied.
    pub(crate) fn write(&mut self, stateid: Stateid4, offset: u64, stable: StableHow4, data: Bytes) {
        let w = &mut self.last;
        w.u32(OpNum4::Write as u32);
        stateid.encode(w);
        Offset(offset).0.encode(w);
        stable.encode(w);
        w.length(data.len());
        let padding = data.len().wrapping_neg() & 3;
        let before = std::mem::replace(w, Writer::from_vec(Vec::with_capacity(64)));
        w.put(&[0; 3][..padding]);
        self.parts.push(before.into_vec().into());
        self.parts.push(data);
        self.count += 1;
    }

    /// Notes a stateid that an operation names.
    pub(crate) fn uses(&mut self, file: &Handle, stateid: Stateid4) -> Stateid4 {
        self.used.push((file.clone(), stateid));
        self.names_state = true;
        stateid
    }

    /// The arguments, ready to be sent, after this SEQUENCE.
    pub(crate) fn finish(&self, minor: u32, sequence: Option<Sequence4Args>) -> Vec<Bytes> {
        let first = self.parts.first().map_or(self.last.as_slice(), |first| first);
        let mut w = Writer::from_vec(Vec::with_capacity(64 + first.len()));
        w.opaque(b"");
        w.u32(minor);
        w.u32(self.count + u32::from(sequence.is_some()));
        if let Some(sequence) = sequence {
            ArgOp::Sequence(sequence).encode(&mut w);
        }
        w.put(first);
        let mut parts = vec![Bytes::from(w.into_vec())];
        if !self.parts.is_empty() {
            parts.extend(self.parts[1..].iter().cloned());
            parts.push(Bytes::copy_from_slice(self.last.as_slice()));
        }
        parts
    }
}

/// Whether an operation is about one state, whether or not the compound rests on it. I/O may name none: see [`Compound::uses`].
const fn names_state(op: &ArgOp<'_>) -> bool {
    matches!(
        op,
        ArgOp::Close(_)
            | ArgOp::DelegReturn(_)
            | ArgOp::FreeStateid(_)
            | ArgOp::Lock(_)
            | ArgOp::OffloadCancel(_)
            | ArgOp::OffloadStatus(_)
    )
}

/// The answer to a compound, up to where it was read. Keeps the slot taken until it is dropped, so that what it brought
/// is noted before the server can believe that we know of it.
#[derive(Debug)]
pub(crate) struct Answer {
    reply: Reply,
    at: usize,
    left: u32,
    /// The compound's status: that of its last operation.
    pub(crate) status: NfsStat4,
    /// Operations answered with success so far as they were read.
    pub(crate) done: u32,
    /// Operations of the compound that were answered.
    pub(crate) count: u32,
    slot: Option<SlotHeld>,
}

impl Answer {
    /// Reads the header.
    pub(crate) fn new(reply: Reply) -> Result<Self> {
        let results = reply.results();
        let mut r = Reader::new(results);
        let header = CompoundResHeader::decode(&mut r)?;
        let (at, status, left) = (r.position(), header.status, header.ops);
        Ok(Self { reply, at, left, status, done: 0, count: left, slot: None })
    }

    /// Whether it is that of a request that was carried out before and whose reply was not kept: the operation behind SEQUENCE
    /// says so (RFC 8881 section 2.10.6.1.3).
    pub(crate) fn was_not_kept(&self) -> bool {
        self.status == NfsStat4::RetryUncachedRep
    }

    /// Keeps a slot until the answer is dropped.
    pub(crate) fn hold(&mut self, slot: SlotHeld) {
        self.slot = Some(slot);
    }

    /// Lets the slot go before the answer is read: there is nothing in it to note.
    pub(crate) fn release(&mut self) {
        self.slot = None;
    }

    /// The next result of this operation.
    ///
    /// # Errors
    /// [`Error::Nfs`] with the operation's status, or that of an earlier one; [`Error::Protocol`].
    pub(crate) fn next<'a, T: Decode<'a>>(&'a mut self, op: OpNum4) -> Result<T> {
        self.check(op)?;
        let Self { reply, at, .. } = self;
        let mut r = Reader::new(&reply.results()[*at..]);
        let value = T::decode(&mut r)?;
        *at += r.position();
        Ok(value)
    }

    /// The next result, which is a status alone.
    pub(crate) fn ok(&mut self, op: OpNum4) -> Result<()> {
        self.check(op)
    }

    /// Where the results begin that are not read yet; for what follows a failing status.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.reply.results()[self.at..]
    }

    /// The answer's record, to keep parts of while it is read.
    pub(crate) fn record(&self) -> Reply {
        self.reply.clone()
    }

    fn check(&mut self, op: OpNum4) -> Result<()> {
        if self.left == 0 {
            let status = self.status;
            return Err(if status == NfsStat4::Ok {
                Error::Protocol("fewer results than operations")
            } else {
                Error::Nfs(status)
            });
        }
        let mut r = Reader::new(&self.reply.results()[self.at..]);
        let header = ResOpHeader::decode(&mut r)?;
        self.at += r.position();
        self.left -= 1;
        if header.status != NfsStat4::Ok {
            self.left = 0;
            return Err(Error::Nfs(header.status));
        }
        if header.op != op as u32 {
            return Err(Error::Protocol("the result of another operation"));
        }
        self.done += 1;
        Ok(())
    }

    /// PUTFH's result.
    pub(crate) fn put(&mut self) -> Result<()> {
        self.ok(OpNum4::PutFh)
    }

    /// GETATTR's result.
    pub(crate) fn attributes(&mut self) -> Result<Attributes> {
        let ok: GetAttr4Ok<'_> = self.next(OpNum4::GetAttr)?;
        Attributes::decode(&ok.obj_attributes)
    }

    /// GETATTR's result, read by somebody else.
    pub(crate) fn attributes_as<T>(&mut self, read: impl FnOnce(&Fattr4<'_>) -> Result<T>) -> Result<T> {
        let ok: GetAttr4Ok<'_> = self.next(OpNum4::GetAttr)?;
        read(&ok.obj_attributes)
    }

    /// GETFH's result.
    pub(crate) fn handle(&mut self) -> Result<Handle> {
        let ok: GetFh4Ok<'_> = self.next(OpNum4::GetFh)?;
        Ok(Handle::new(ok.object))
    }

    /// The results of GETFH and GETATTR.
    pub(crate) fn node(&mut self) -> Result<crate::Node> {
        let handle = self.handle()?;
        Ok(crate::Node { handle, attributes: self.attributes()? })
    }
}
