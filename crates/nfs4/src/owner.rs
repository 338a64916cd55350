//! 4.0's sequence numbers of owners, as an adapter: operations that carry one run inside [`in_turn`] and know
//! nothing of it (RFC 7530 section 9.1.7). In 4.1 and later slots do this work, and nothing happens here.

use std::sync::Arc;

use holdfast_base::Seqid;
use holdfast_base::limits::WIRE_HANDLE_BYTES_MAX;
use holdfast_export::Object;
use holdfast_state::{OwnerOf, OwnerOp, OwnerTicket, OwnerTurn};
use holdfast_wire::nfs4::NfsStat4;
use holdfast_xdr::{Encode, Reader, Writer};

use crate::cx::Cx;
use crate::error::{Failure, OpResult, fit, from_fs, from_state};
use crate::op::Encoded;
use crate::service::Service;

/// Whose turn an operation needs.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// The owner.
    pub(crate) of: OwnerOf<'a>,
    /// Its sequence number.
    pub(crate) seqid: Seqid,
    /// The operation, as a number used twice must name one and the same.
    pub(crate) op: OwnerOp,
}

/// Runs an operation when it is its owner's next one; a retry gets the first one's result, the object that it made
/// current included.
///
/// # Errors
/// NFS4ERR_BAD_SEQID, those of the stateid or client that names the owner, and the operation's own.
pub(crate) fn in_turn<R: Encode>(
    cx: &mut Cx<'_>,
    turn: Turn<'_>,
    run: impl FnOnce(&mut Cx<'_>) -> OpResult<R>,
) -> OpResult<Encoded> {
    if cx.minor().has_sessions() {
        run(cx)?.encode(cx.reply);
        return Ok(Encoded);
    }
    let begun = cx.state(|engine, now| Ok(engine.begin_owner(turn.of, turn.seqid, turn.op, now)?))?;
    let running = match begun {
        OwnerTurn::Run(ticket) => Running { service: Arc::clone(cx.service()), ticket: Some(ticket) },
        OwnerTurn::Replay(kept) => return replay(cx, &kept),
        OwnerTurn::Busy => return Err(NfsStat4::Delay.into()),
    };
    let body_at = cx.reply.len();
    let result = run(cx);
    let kept = match &result {
        Ok(ok) => {
            ok.encode(cx.reply);
            Some(keep(cx, NfsStat4::Ok, body_at))
        }
        Err(failure) => status_of(failure).and_then(|(status, has_body)| {
            let status = fit(status, cx.compound.op, cx.minor());
            let body_at = if has_body { body_at } else { cx.reply.len() };
            steps(status).then(|| keep(cx, status, body_at))
        }),
    };
    running.end(kept.as_deref());
    result.map(|_| Encoded)
}

/// An owner's turn, which ends with this: also when a backend panics, or the owner would be busy for ever.
struct Running {
    service: Arc<Service>,
    /// Gone once ended.
    ticket: Option<OwnerTicket>,
}

impl Running {
    fn end(mut self, kept: Option<&[u8]>) {
        self.end_once(kept);
    }

    fn end_once(&mut self, kept: Option<&[u8]>) {
        let Some(ticket) = self.ticket.take() else { return };
        // Ending cannot fail; were the state engine's effects to, the operation's own result is worth more.
        let _ = self.service.state(|engine, _| {
            engine.end_owner(&ticket, kept);
            Ok(())
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_once(None);
    }
}

/// A result as it is kept: the handle that became current, the status, what follows it.
fn keep(cx: &Cx<'_>, status: NfsStat4, body_at: usize) -> Vec<u8> {
    let mut kept = Writer::new();
    match cx.current() {
        Ok(object) => kept.opaque(cx.config().namespace.seal(object).as_bytes()),
        Err(_) => kept.opaque(b""),
    }
    kept.u32(status.as_u32());
    kept.put(&cx.reply.as_slice()[body_at..]);
    kept.into_vec()
}

fn replay(cx: &mut Cx<'_>, kept: &[u8]) -> OpResult<Encoded> {
    // What was too long to keep is empty, and its status forgotten.
    let lost = |_| Failure::Status(NfsStat4::ServerFault);
    let mut kept = Reader::new(kept);
    let handle = kept.opaque(WIRE_HANDLE_BYTES_MAX).map_err(lost)?;
    let status = kept.u32().map_err(lost)?;
    if !handle.is_empty() {
        let object: Object = cx.config().namespace.open(handle)?;
        cx.set_current(object)?;
    }
    cx.reply.put(kept.rest());
    match NfsStat4::from_u32(status) {
        Some(NfsStat4::Ok) => Ok(Encoded),
        status => Err(Failure::WithBody(status.unwrap_or(NfsStat4::ServerFault))),
    }
}

/// The status of a failure and whether a body goes with it; `None` when the operation will be run again.
const fn status_of(failure: &Failure) -> Option<(NfsStat4, bool)> {
    match failure {
        Failure::Status(status) => Some((*status, false)),
        Failure::WithBody(status) => Some((*status, true)),
        Failure::Fs(error) => Some((from_fs(*error), false)),
        Failure::State(error) => Some((from_state(*error), false)),
        Failure::Wait | Failure::Turn(_) => None,
    }
}

/// Whether a status steps the owner's number (RFC 7530 section 9.1.7).
const fn steps(status: NfsStat4) -> bool {
    !matches!(
        status,
        NfsStat4::StaleClientId
            | NfsStat4::StaleStateid
            | NfsStat4::BadStateid
            | NfsStat4::BadSeqid
            | NfsStat4::BadXdr
            | NfsStat4::Resource
            | NfsStat4::NoFileHandle
            | NfsStat4::Moved
    )
}
