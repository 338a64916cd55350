//! ONC RPC version 2 (RFC 5531): calls, replies, and the credentials of AUTH_SYS.

use holdfast_base::limits::{AUTH_BYTES_MAX, AUTH_SYS_GROUPS_MAX, AUTH_SYS_NAME_BYTES_MAX};
use holdfast_xdr::{Decode, Encode};

/// The RPC version that everybody speaks.
pub const RPC_VERSION: u32 = 2;

/// Flavor: no credential.
pub const AUTH_NONE: u32 = 0;
/// Flavor: user and groups as the client states them ([`AuthSys`]).
pub const AUTH_SYS: u32 = 1;
/// Flavor: a server's shorthand for an earlier credential; never given out by us.
pub const AUTH_SHORT: u32 = 2;
/// Flavor: RFC 2203.
pub const RPCSEC_GSS: u32 = 6;
/// Flavor: the probe for RPC-with-TLS (RFC 9289).
pub const AUTH_TLS: u32 = 7;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum MsgType {
    /// A call.
    Call = 0,
    /// A reply.
    Reply = 1,
}

/// A credential or verifier, not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpaqueAuth<'a> {
    /// One of the flavors, or one unknown.
    pub flavor: u32,
    /// What the flavor says.
    #[xdr(max = AUTH_BYTES_MAX)]
    pub body: &'a [u8],
}

impl OpaqueAuth<'static> {
    /// The credential, or verifier, of AUTH_NONE.
    pub const NONE: Self = Self { flavor: AUTH_NONE, body: &[] };
}

/// How every message begins; a [`CallBody`] or [`ReplyBody`] follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Prefix {
    /// The caller's number of the call, which the reply repeats.
    pub xid: u32,
    /// Call or reply.
    pub mtype: MsgType,
}

/// The rest of a call's header; the procedure's arguments follow. `rpcvers` stands first so that a caller of
/// another version can be answered: look at it (`Reader` can be cloned) before the rest is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CallBody<'a> {
    /// Version of RPC: [`RPC_VERSION`], or the answer is RPC_MISMATCH.
    pub rpcvers: u32,
    /// The program.
    pub prog: u32,
    /// The program's version.
    pub vers: u32,
    /// The procedure.
    pub proc: u32,
    /// Who calls.
    pub cred: OpaqueAuth<'a>,
    /// What proves it.
    pub verf: OpaqueAuth<'a>,
}

/// A whole call header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CallHeader<'a> {
    /// The caller's number of the call.
    pub xid: u32,
    /// [`MsgType::Call`].
    pub mtype: MsgType,
    /// The rest.
    pub body: CallBody<'a>,
}

/// A whole reply header; results follow when it is accepted with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReplyHeader<'a> {
    /// The call's number.
    pub xid: u32,
    /// [`MsgType::Reply`].
    pub mtype: MsgType,
    /// The rest.
    pub body: ReplyBody<'a>,
}

/// Whether the call was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum ReplyBody<'a> {
    /// `MSG_ACCEPTED`.
    Accepted(AcceptedReply<'a>),
    /// `MSG_DENIED`.
    Denied(RejectedReply),
}

/// An accepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AcceptedReply<'a> {
    /// What proves the server.
    pub verf: OpaqueAuth<'a>,
    /// What came of it.
    pub stat: AcceptStat,
}

/// What came of an accepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum AcceptStat {
    /// `SUCCESS`: the results follow.
    Success,
    /// `PROG_UNAVAIL`: no such program here.
    ProgUnavail,
    /// `PROG_MISMATCH`: the program has other versions.
    ProgMismatch(VersionRange),
    /// `PROC_UNAVAIL`: no such procedure.
    ProcUnavail,
    /// `GARBAGE_ARGS`: the arguments could not be decoded.
    GarbageArgs,
    /// `SYSTEM_ERR`: the server ran out of something.
    SystemErr,
}

/// Versions supported, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct VersionRange {
    /// The lowest.
    pub low: u32,
    /// The highest.
    pub high: u32,
}

/// Why a call was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum RejectedReply {
    /// `RPC_MISMATCH`: other RPC versions are spoken.
    RpcMismatch(VersionRange),
    /// `AUTH_ERROR`: the credential was not accepted.
    AuthError(AuthStat),
}

/// Why a credential was not accepted (RFC 5531 section 9, RFC 2203 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum AuthStat {
    /// Nothing is wrong.
    Ok = 0,
    /// Bad credential (seal broken).
    BadCred = 1,
    /// The client must begin a new session.
    RejectedCred = 2,
    /// Bad verifier (seal broken).
    BadVerf = 3,
    /// The verifier expired or was replayed.
    RejectedVerf = 4,
    /// Rejected for security reasons.
    TooWeak = 5,
    /// Bogus response verifier (client side).
    InvalidResp = 6,
    /// The client does not know why.
    Failed = 7,
    /// Kerberos v4.
    KerbGeneric = 8,
    /// Kerberos v4.
    TimeExpire = 9,
    /// Kerberos v4.
    TktFile = 10,
    /// Kerberos v4.
    Decode = 11,
    /// Kerberos v4.
    NetAddr = 12,
    /// The server has no such GSS context (any more).
    GssCredProblem = 13,
    /// The GSS context has a problem.
    GssCtxProblem = 14,
}

/// The body of an AUTH_SYS credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AuthSys<'a> {
    /// An arbitrary number.
    pub stamp: u32,
    /// The client's name, as it says.
    #[xdr(max = AUTH_SYS_NAME_BYTES_MAX)]
    pub machine_name: &'a [u8],
    /// The user.
    pub uid: u32,
    /// The first group.
    pub gid: u32,
    /// Further groups.
    pub gids: Groups,
}

/// At most 16 groups, kept in place so that decoding a credential allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Groups {
    gids: [u32; AUTH_SYS_GROUPS_MAX],
    len: usize,
}

impl Groups {
    /// The first 16 of `gids`: more cannot be said in AUTH_SYS.
    #[must_use]
    pub fn new(gids: &[u32]) -> Self {
        let len = gids.len().min(AUTH_SYS_GROUPS_MAX);
        let mut out = Self { gids: [0; AUTH_SYS_GROUPS_MAX], len };
        out.gids[..len].copy_from_slice(&gids[..len]);
        out
    }

    /// The groups.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.gids[..self.len]
    }
}

impl Encode for Groups {
    fn encode(&self, w: &mut holdfast_xdr::Writer) {
        w.list(self.as_slice());
    }
}

impl Decode<'_> for Groups {
    fn decode(r: &mut holdfast_xdr::Reader<'_>) -> holdfast_xdr::Result<Self> {
        let mut out = Self { gids: [0; AUTH_SYS_GROUPS_MAX], len: r.length(AUTH_SYS_GROUPS_MAX)? };
        for gid in &mut out.gids[..out.len] {
            *gid = r.u32()?;
        }
        Ok(out)
    }
}
