//! One COMPOUND between its operations: what it is about, how far it came, and what must happen before its reply
//! may leave. It owns all it needs, so that it can go on on another thread.

use std::sync::Arc;

use holdfast_base::limits::{COMPOUND_OPS_MAX, RECORD_BYTES_MAX};
use holdfast_export::{Export, Object};
use holdfast_ledger::Undertaking;
use holdfast_rpc::reply_cache::{Key, Token};
use holdfast_rpc::{Auth, Call, Connection};
use holdfast_state::StateId;
use holdfast_vfs::{Backend, Caller, FileSpan, FsResult, Touched};
use holdfast_wire::nfs4::{CompoundArgsHeader, NFS4_PROGRAM, NfsStat4, OpNum4};
use holdfast_xdr::{Decode, Encode, Mark, Reader, Writer};

use crate::desc::Minor;
use crate::memory::Written;
use crate::service::Service;
use crate::slot::{SlotUse, digest};
use crate::stand_in::StandIns;

/// Bytes of an RPC reply before the results, without a record mark: what sessions count in their limits. A
/// verifier other than AUTH_NONE's would add to it.
pub(crate) const RPC_REPLY_HEADER_BYTES: usize = 24;

/// An object with the state id that belongs to it (RFC 8881 section 16.2.3.1.2).
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) object: Object,
    pub(crate) stateid: Option<StateId>,
    /// Whether the peer may use the object's export at all.
    pub(crate) is_admitted: bool,
}

/// The first operation that changed what is to be made durable: the one to blame when that fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstTouch {
    pub(crate) op: OpNum4,
    pub(crate) index: u32,
    pub(crate) result_at: usize,
}

pub(crate) struct Compound {
    // Constant.
    pub(crate) service: Arc<Service>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) xid: u32,
    pub(crate) minor: Minor,
    pub(crate) ops: u32,
    pub(crate) request_bytes: usize,
    pub(crate) digest: u64,
    /// Where the results begin in the reply.
    pub(crate) start: usize,
    pub(crate) status: Mark,
    pub(crate) count: Mark,
    // How far it came.
    pub(crate) index: u32,
    pub(crate) op: OpNum4,
    pub(crate) result_at: usize,
    pub(crate) current: Option<Place>,
    pub(crate) saved: Option<Place>,
    pub(crate) slot: Option<SlotUse>,
    /// SEQUENCE tells of a restart, and nothing that belongs to reclaiming follows.
    pub(crate) tells_of_restart: bool,
    /// The most the reply may grow to, counted from `start`.
    pub(crate) reply_bytes_max: usize,
    /// The status of the last operation.
    pub(crate) outcome: NfsStat4,
    /// Where the second operation's status stands, and where it ends.
    pub(crate) second: Option<(Mark, usize)>,
    /// 4.0: how the cache of replies knows this request, and the duty to tell it the reply once something is
    /// about to change. Sessions have their slots for that.
    pub(crate) key: Option<Key>,
    pub(crate) token: Option<Token>,
    /// The request's record in the journal, once something is about to change.
    pub(crate) undertaking: Option<Undertaking>,
    caller: Option<(Arc<Export>, Caller)>,
    // What must happen before the reply leaves.
    pub(crate) touched: Vec<(Arc<dyn Backend>, Vec<Touched>)>,
    pub(crate) first_touch: Option<FirstTouch>,
    /// What the journal is told in place of what the reply says.
    pub(crate) stand_ins: StandIns,
    /// Places of the reply for the write verifiers of backends, once all is forced.
    pub(crate) verifiers: Vec<([Mark; 2], Arc<dyn Backend>)>,
    /// What memory is to be freed of then.
    pub(crate) dropped: Vec<Written>,
    /// Pieces of advice it has followed.
    pub(crate) advised: usize,
    /// A stretch of a file that belongs at this place of the reply.
    pub(crate) file: Option<(usize, FileSpan)>,
}

/// What came of reading a compound's frame.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub(crate) enum Begun {
    /// It can be run. In place: most end before they would have to be anywhere else.
    Run(Compound),
    /// It was answered.
    Answered,
    /// Not even a frame could be read.
    Garbage,
}

impl Compound {
    /// Reads the frame and writes that of the reply, whose tag is the request's. The tag's bytes are not looked
    /// at: it is the client's own, and Linux does not look either.
    pub(crate) fn begin(service: &Arc<Service>, call: &mut Call<'_>, reply: &mut Writer) -> Begun {
        let args = call.args.rest();
        let key = is_v0(args).then(|| Key::of(NFS4_PROGRAM, call));
        let Ok(header) = CompoundArgsHeader::decode(&mut call.args) else { return Begun::Garbage };
        let start = reply.len();
        let status = reply.mark();
        reply.opaque(header.tag);
        let count = reply.mark();
        let refuse = |reply: &mut Writer, why: NfsStat4| {
            reply.fill(status, why.as_u32());
            Begun::Answered
        };
        let Some(minor) = Minor::from_u32(header.minorversion).filter(|m| service.serves(*m)) else {
            return refuse(reply, NfsStat4::MinorVersMismatch);
        };
        if header.ops as usize > COMPOUND_OPS_MAX {
            let too_many = if minor.has_sessions() { NfsStat4::TooManyOps } else { NfsStat4::Resource };
            return refuse(reply, too_many);
        }
        Begun::Run(Self {
            service: Arc::clone(service),
            auth: Arc::clone(call.auth),
            connection: Arc::clone(call.connection),
            xid: call.xid,
            minor,
            ops: header.ops,
            request_bytes: call.record.bytes().len(),
            digest: digest(behind_sequence(call.args.rest()), call.auth),
            start,
            status,
            count,
            index: 0,
            op: OpNum4::Illegal,
            result_at: reply.len(),
            current: None,
            saved: None,
            slot: None,
            tells_of_restart: false,
            reply_bytes_max: RECORD_BYTES_MAX - RPC_REPLY_HEADER_BYTES,
            outcome: NfsStat4::Ok,
            second: None,
            key,
            token: None,
            undertaking: None,
            caller: None,
            touched: Vec::new(),
            first_touch: None,
            stand_ins: StandIns::default(),
            verifiers: Vec::new(),
            dropped: Vec::new(),
            advised: 0,
            file: None,
        })
    }

    /// Bytes of the results so far.
    pub(crate) fn reply_bytes(&self, reply: &Writer) -> usize {
        let in_file = self.file.as_ref().map_or(0, |(_, span)| span.bytes.next_multiple_of(4));
        reply.len() - self.start + in_file
    }

    /// The request's record for the operation at hand, where requests are recorded.
    pub(crate) fn undertaking(&mut self) -> Option<&mut Undertaking> {
        if self.undertaking.is_none() {
            let ledger = self.service.config.ledger.as_ref()?;
            self.undertaking = match (&self.slot, &self.token) {
                // A slot that dies with the server gets no retry afterwards.
                (Some(slot), _) if !slot.is_persistent => None,
                (Some(slot), _) => {
                    let place = (slot.session, slot.slot);
                    Some(Undertaking::on_slot(ledger, place, slot.seqid.0, self.digest))
                }
                (None, Some(token)) => {
                    let mut key = Writer::new();
                    token.key().encode(&mut key);
                    Some(Undertaking::of_call(ledger, key.as_slice(), self.xid))
                }
                (None, None) => None,
            };
        }
        let undertaking = self.undertaking.as_mut()?;
        undertaking.at_operation(self.index);
        Some(undertaking)
    }

    /// Who calls, on this export. The last answer is kept: compounds seldom leave an export.
    ///
    /// # Errors
    /// Those of [`Export::caller`].
    pub(crate) fn caller(&mut self, export: &Arc<Export>) -> FsResult<Caller> {
        match &self.caller {
            Some((of, caller)) if Arc::ptr_eq(of, export) => Ok(caller.clone()),
            _ => {
                let caller = crate::caller::caller(export, &self.auth, self.service.config.groups.as_ref())?;
                self.caller = Some((Arc::clone(export), caller.clone()));
                Ok(caller)
            }
        }
    }
}

/// Whether the arguments are a compound of 4.0: asked ahead, as the cache's key is made of unread arguments and
/// would be a waste for the others.
fn is_v0(args: &[u8]) -> bool {
    CompoundArgsHeader::decode(&mut Reader::new(args)).is_ok_and(|header| header.minorversion == 0)
}

impl Drop for Compound {
    /// A compound that ends without a reply (a panic in a backend) must not hold its slot for ever.
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take()
            && self.service.complete(&slot, &[])
        {
            self.service.answer_retries(&slot, &[]);
        }
    }
}

/// The operations after SEQUENCE, where it comes first. What SEQUENCE says is left out of comparing a retry with the
/// original: Linux encodes a request anew when its connection was lost, with the highest slot in use by then.
fn behind_sequence(ops: &[u8]) -> &[u8] {
    /// Its number, session, sequence number, slot, highest slot, and whether to keep the reply.
    const SEQUENCE_BYTES: usize = 4 + 16 + 4 * 4;
    match ops.split_at_checked(SEQUENCE_BYTES) {
        Some((sequence, rest)) if sequence.starts_with(&OpNum4::Sequence.as_u32().to_be_bytes()) => rest,
        _ => ops,
    }
}
