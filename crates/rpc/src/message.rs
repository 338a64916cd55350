//! The headers of calls and replies (RFC 5531 section 9): read, checked, and written in place.

use std::sync::LazyLock;

use holdfast_wire::rpc::{
    AcceptStat, AcceptedReply, AuthStat, CallBody, MsgType, OpaqueAuth, Prefix, RPC_VERSION, RejectedReply,
    ReplyBody, ReplyHeader, VersionRange,
};
use holdfast_xdr::{Decode, Encode, Error, Mark, Reader, Writer};

use crate::auth::Auth;
use crate::callback::{CallError, OutgoingCall};
use crate::record;

/// Where the results begin in a reply: behind the record's header and an accepted reply's, with an empty verifier.
pub(crate) const RESULTS_AT: usize = 28;

/// The place of the header of a record that a writer begins with.
static RECORD_HEADER: LazyLock<Mark> = LazyLock::new(|| Writer::new().mark());

/// What a record is.
pub(crate) enum Message<'a> {
    Call(CallHeader<'a>),
    /// An answer to a call of ours, with its results.
    Reply(u32, Result<&'a [u8], CallError>),
}

/// A call up to its arguments.
pub(crate) struct CallHeader<'a> {
    pub(crate) xid: u32,
    pub(crate) body: CallBody<'a>,
    pub(crate) args: Reader<'a>,
}

/// Why a record is no message that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Not even whose answer it would be can be told.
    NotRpc,
    /// It can be answered with this.
    Answer(u32, Failure),
}

/// How a call fails before or beside its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Accepted(AcceptStat),
    Denied(RejectedReply),
}

impl Failure {
    pub(crate) const GARBAGE: Self = Self::Accepted(AcceptStat::GarbageArgs);
    pub(crate) const SYSTEM: Self = Self::Accepted(AcceptStat::SystemErr);
    pub(crate) const NO_PROGRAM: Self = Self::Accepted(AcceptStat::ProgUnavail);
    pub(crate) const NO_PROCEDURE: Self = Self::Accepted(AcceptStat::ProcUnavail);

    pub(crate) const fn auth(stat: AuthStat) -> Self {
        Self::Denied(RejectedReply::AuthError(stat))
    }

    pub(crate) const fn no_version(low: u32, high: u32) -> Self {
        Self::Accepted(AcceptStat::ProgMismatch(VersionRange { low, high }))
    }
}

/// Reads a record's header.
pub(crate) fn read(record: &[u8]) -> Result<Message<'_>, HeaderError> {
    let mut r = Reader::new(record);
    let prefix = Prefix::decode(&mut r).map_err(|_| HeaderError::NotRpc)?;
    match prefix.mtype {
        MsgType::Call => {
            read_call(prefix.xid, r).map(Message::Call).map_err(|e| HeaderError::Answer(prefix.xid, e))
        }
        MsgType::Reply => Ok(Message::Reply(prefix.xid, read_reply(r))),
    }
}

fn read_call(xid: u32, mut r: Reader<'_>) -> Result<CallHeader<'_>, Failure> {
    // Another RPC version may continue differently, so it is looked at before the rest.
    if r.clone().u32() != Ok(RPC_VERSION) {
        let versions = VersionRange { low: RPC_VERSION, high: RPC_VERSION };
        return Err(Failure::Denied(RejectedReply::RpcMismatch(versions)));
    }
    let body = CallBody::decode(&mut r).map_err(|e| match e {
        Error::TooLong { .. } => Failure::auth(AuthStat::BadCred),
        _ => Failure::GARBAGE,
    })?;
    // AUTH_NONE and AUTH_SYS, all that is served yet, go with an empty verifier.
    if body.verf != OpaqueAuth::NONE {
        return Err(Failure::auth(AuthStat::BadVerf));
    }
    Ok(CallHeader { xid, body, args: r })
}

/// Reads a reply up to its results.
fn read_reply(mut r: Reader<'_>) -> Result<&[u8], CallError> {
    match ReplyBody::decode(&mut r).map_err(|_| CallError::Garbled)? {
        ReplyBody::Accepted(AcceptedReply { stat: AcceptStat::Success, .. }) => Ok(r.rest()),
        ReplyBody::Accepted(AcceptedReply { stat, .. }) => Err(CallError::NotRun(stat)),
        ReplyBody::Denied(why) => Err(CallError::Denied(why)),
    }
}

/// Starts a reply over: what stands before the results of a call that succeeds. The record's header is filled in
/// by [`seal`].
#[inline]
pub(crate) fn begin_reply(w: &mut Writer, xid: u32) {
    w.truncate(0);
    // The accepted reply with an empty verifier, once for all: everything but these two words is zero.
    let mut head = [0; RESULTS_AT];
    head[4..8].copy_from_slice(&xid.to_be_bytes());
    head[8..12].copy_from_slice(&(MsgType::Reply as u32).to_be_bytes());
    w.put(&head);
}

/// Fills in the header of the record that `w` begins with, of which `more` bytes follow elsewhere.
pub(crate) fn seal(w: &mut Writer, more: usize) {
    let bytes = w.len().saturating_sub(4) + more;
    w.fill(*RECORD_HEADER, u32::from_be_bytes(record::header_of(bytes)));
}

/// Writes a whole reply of failure, sealed.
pub(crate) fn write_failed(w: &mut Writer, xid: u32, failure: Failure) {
    w.truncate(0);
    w.u32(0);
    let body = match failure {
        Failure::Accepted(stat) => ReplyBody::Accepted(AcceptedReply { verf: OpaqueAuth::NONE, stat }),
        Failure::Denied(why) => ReplyBody::Denied(why),
    };
    ReplyHeader { xid, mtype: MsgType::Reply, body }.encode(w);
    seal(w, 0);
}

/// Writes a whole call of ours, sealed.
pub(crate) fn write_call(w: &mut Writer, xid: u32, call: &OutgoingCall<'_>) {
    w.truncate(0);
    for word in [0, xid, MsgType::Call as u32, RPC_VERSION, call.program, call.version, call.procedure] {
        w.u32(word);
    }
    call.auth.encode(w);
    Auth::None.encode(w);
    w.put(call.args);
    seal(w, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_reply_is_what_the_wire_types_say() {
        let mut quick = Writer::new();
        begin_reply(&mut quick, 77);
        seal(&mut quick, 0);
        let accepted = AcceptedReply { verf: OpaqueAuth::NONE, stat: AcceptStat::Success };
        let header = ReplyHeader { xid: 77, mtype: MsgType::Reply, body: ReplyBody::Accepted(accepted) };
        let mut slow = Writer::new();
        slow.u32(0x8000_0018);
        header.encode(&mut slow);
        assert_eq!(quick.as_slice(), slow.as_slice());
        assert_eq!(quick.len(), RESULTS_AT);
    }

    #[test]
    fn a_call_cut_anywhere_is_answered_or_refused() {
        let mut w = Writer::new();
        let call = OutgoingCall { program: 1, version: 2, procedure: 3, auth: &Auth::None, args: &[] };
        write_call(&mut w, 5, &call);
        let record = &w.as_slice()[4..];
        assert!(matches!(read(record), Ok(Message::Call(c)) if c.xid == 5 && c.body.proc == 3));
        for cut in 0..record.len() {
            match read(&record[..cut]) {
                Err(HeaderError::NotRpc) => assert!(cut < 8),
                Err(HeaderError::Answer(5, _)) => assert!(cut >= 8),
                _ => panic!("cut at {cut}"),
            }
        }
    }
}
