//! Client ids, sessions and slots of 4.1 (RFC 8881 sections 18.33-18.37, 18.46-18.51).

use holdfast_base::limits::{
    FLAVORS_MAX, GSS_TOKEN_BYTES_MAX, OID_BYTES_MAX, OWNER_BYTES_MAX, SSV_ITEMS_MAX, TEST_STATEIDS_MAX,
    WIRE_NAME_BYTES_MAX,
};

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_xdr::{Decode, Encode};

use super::{Bitmap4, NfsStat4, NfsTime4, RpcGssSvc, Stateid4, Verifier4};
use crate::rpc::{AUTH_NONE, AUTH_SYS, AuthSys, RPCSEC_GSS};

/// `gss_cb_handles4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GssCbHandles4<'a> {
    /// The service.
    pub service: RpcGssSvc,
    /// The server's handle.
    #[xdr(max = GSS_TOKEN_BYTES_MAX)]
    pub handle_from_server: &'a [u8],
    /// The client's handle.
    #[xdr(max = GSS_TOKEN_BYTES_MAX)]
    pub handle_from_client: &'a [u8],
}

/// `callback_sec_parms4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum CallbackSecParms4<'a> {
    /// AUTH_NONE.
    #[xdr(case = AUTH_NONE)]
    None,
    /// AUTH_SYS, with the credential to call back as.
    #[xdr(case = AUTH_SYS)]
    Sys(AuthSys<'a>),
    /// RPCSEC_GSS.
    #[xdr(case = RPCSEC_GSS)]
    Gss(GssCbHandles4<'a>),
}

/// The arguments of BACKCHANNEL_CTL.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BackchannelCtl4Args<'a> {
    /// The callback program's number.
    pub cb_program: u32,
    /// How to authenticate callbacks.
    #[xdr(max = FLAVORS_MAX)]
    pub sec_parms: Vec<CallbackSecParms4<'a>>,
}

/// `channel_dir_from_client4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum ChannelDirFromClient4 {
    /// The fore channel.
    Fore = 1,
    /// The back channel.
    Back = 2,
    /// The fore channel, or both.
    ForeOrBoth = 3,
    /// The back channel, or both.
    BackOrBoth = 7,
}

/// `channel_dir_from_server4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum ChannelDirFromServer4 {
    /// The fore channel.
    Fore = 1,
    /// The back channel.
    Back = 2,
    /// Both.
    Both = 3,
}

/// The arguments of BIND_CONN_TO_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BindConnToSession4Args {
    /// The session.
    pub sessionid: SessionId,
    /// Which channels.
    pub dir: ChannelDirFromClient4,
    /// Step up to RDMA.
    pub use_conn_in_rdma_mode: bool,
}

/// BIND_CONN_TO_SESSION succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BindConnToSession4Ok {
    /// The session.
    pub sessionid: SessionId,
    /// Which channels.
    pub dir: ChannelDirFromServer4,
    /// Step up to RDMA.
    pub use_conn_in_rdma_mode: bool,
}

/// Referrals are understood.
pub const EXCHGID4_FLAG_SUPP_MOVED_REFER: u32 = 0x0000_0001;
/// Migration is understood.
pub const EXCHGID4_FLAG_SUPP_MOVED_MIGR: u32 = 0x0000_0002;
/// The client may ask for fencing (RFC 7862).
pub const EXCHGID4_FLAG_SUPP_FENCE_OPS: u32 = 0x0000_0004;
/// State is bound to its principal.
pub const EXCHGID4_FLAG_BIND_PRINC_STATEID: u32 = 0x0000_0100;
/// A server without pNFS.
pub const EXCHGID4_FLAG_USE_NON_PNFS: u32 = 0x0001_0000;
/// A pNFS metadata server.
pub const EXCHGID4_FLAG_USE_PNFS_MDS: u32 = 0x0002_0000;
/// A pNFS data server.
pub const EXCHGID4_FLAG_USE_PNFS_DS: u32 = 0x0004_0000;
/// The three above.
pub const EXCHGID4_FLAG_MASK_PNFS: u32 = 0x0007_0000;
/// Argument: update the confirmed record.
pub const EXCHGID4_FLAG_UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
/// Result: the client id is confirmed.
pub const EXCHGID4_FLAG_CONFIRMED_R: u32 = 0x8000_0000;

/// `client_owner4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ClientOwner4<'a> {
    /// Changes when the client restarts.
    pub verifier: Verifier4,
    /// The client's name.
    #[xdr(max = OWNER_BYTES_MAX)]
    pub ownerid: &'a [u8],
}

/// `server_owner4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ServerOwner4<'a> {
    /// Same major and minor: sessions can be trunked.
    pub minor_id: u64,
    /// Same major: client ids can be trunked.
    #[xdr(max = OWNER_BYTES_MAX)]
    pub major_id: &'a [u8],
}

/// `nfs_impl_id4`: for people, never for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NfsImplId4<'a> {
    /// Who made it.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub domain: &'a [u8],
    /// What it is.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
    /// When it was built.
    pub date: NfsTime4,
}

/// `state_protect_ops4`: sets of operation numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StateProtectOps4 {
    /// These need the machine's credential.
    pub must_enforce: Bitmap4,
    /// These may use it.
    pub must_allow: Bitmap4,
}

/// `ssv_sp_parms4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SsvSpParms4<'a> {
    /// Which operations.
    pub ops: StateProtectOps4,
    /// Hashes the client can use.
    #[xdr(max = SSV_ITEMS_MAX)]
    pub hash_algs: Vec<SecOid4<'a>>,
    /// Ciphers the client can use.
    #[xdr(max = SSV_ITEMS_MAX)]
    pub encr_algs: Vec<SecOid4<'a>>,
    /// Versions of the SSV to remember.
    pub window: u32,
    /// GSS handles wanted.
    pub num_gss_handles: u32,
}

/// `sec_oid4`, for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SecOid4<'a> {
    /// The object identifier.
    #[xdr(max = OID_BYTES_MAX)]
    pub oid: &'a [u8],
}

/// `gsshandle4_t`, for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GssHandle4<'a> {
    /// The handle.
    #[xdr(max = GSS_TOKEN_BYTES_MAX)]
    pub handle: &'a [u8],
}

/// `state_protect4_a`: what the client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum StateProtect4A<'a> {
    /// SP4_NONE.
    #[xdr(case = 0)]
    None,
    /// SP4_MACH_CRED.
    #[xdr(case = 1)]
    MachCred(StateProtectOps4),
    /// SP4_SSV.
    #[xdr(case = 2)]
    Ssv(SsvSpParms4<'a>),
}

/// The arguments of EXCHANGE_ID.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeId4Args<'a> {
    /// Who it is.
    pub clientowner: ClientOwner4<'a>,
    /// `EXCHGID4_FLAG_*`.
    pub flags: u32,
    /// How state is protected.
    pub state_protect: StateProtect4A<'a>,
    /// What the client is.
    pub client_impl_id: Option<NfsImplId4<'a>>,
}

/// `ssv_prot_info4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SsvProtInfo4<'a> {
    /// Which operations.
    pub ops: StateProtectOps4,
    /// Index of the hash chosen.
    pub hash_alg: u32,
    /// Index of the cipher chosen.
    pub encr_alg: u32,
    /// Bytes of the SSV.
    pub ssv_len: u32,
    /// Versions of the SSV remembered.
    pub window: u32,
    /// GSS handles.
    #[xdr(max = SSV_ITEMS_MAX)]
    pub handles: Vec<GssHandle4<'a>>,
}

/// `state_protect4_r`: what the server does.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum StateProtect4R<'a> {
    /// SP4_NONE.
    #[xdr(case = 0)]
    None,
    /// SP4_MACH_CRED.
    #[xdr(case = 1)]
    MachCred(StateProtectOps4),
    /// SP4_SSV.
    #[xdr(case = 2)]
    Ssv(SsvProtInfo4<'a>),
}

/// EXCHANGE_ID succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeId4Ok<'a> {
    /// The client's id.
    pub clientid: ClientId,
    /// To be used in CREATE_SESSION.
    pub sequenceid: Seqid,
    /// `EXCHGID4_FLAG_*`.
    pub flags: u32,
    /// How state is protected.
    pub state_protect: StateProtect4R<'a>,
    /// Who the server is.
    pub server_owner: ServerOwner4<'a>,
    /// Where handles and ids mean the same.
    #[xdr(max = OWNER_BYTES_MAX)]
    pub server_scope: &'a [u8],
    /// What the server is.
    pub server_impl_id: Option<NfsImplId4<'a>>,
}

/// The reply cache outlives a restart.
pub const CREATE_SESSION4_FLAG_PERSIST: u32 = 1;
/// This connection carries the back channel.
pub const CREATE_SESSION4_FLAG_CONN_BACK_CHAN: u32 = 2;
/// Step up to RDMA.
pub const CREATE_SESSION4_FLAG_CONN_RDMA: u32 = 4;

/// `channel_attrs4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ChannelAttrs4 {
    /// Padding of headers, bytes.
    pub headerpadsize: u32,
    /// Largest request, bytes.
    pub maxrequestsize: u32,
    /// Largest reply, bytes.
    pub maxresponsesize: u32,
    /// Largest reply that is cached, bytes.
    pub maxresponsesize_cached: u32,
    /// Operations in a compound.
    pub maxoperations: u32,
    /// Slots.
    pub maxrequests: u32,
    /// RDMA read queue depth.
    pub rdma_ird: Option<u32>,
}

/// The arguments of CREATE_SESSION.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CreateSession4Args<'a> {
    /// The client.
    pub clientid: ClientId,
    /// From EXCHANGE_ID, then one more each time.
    pub sequence: Seqid,
    /// `CREATE_SESSION4_FLAG_*`.
    pub flags: u32,
    /// Wishes for the fore channel.
    pub fore_chan_attrs: ChannelAttrs4,
    /// Wishes for the back channel.
    pub back_chan_attrs: ChannelAttrs4,
    /// The callback program's number.
    pub cb_program: u32,
    /// How to authenticate callbacks.
    #[xdr(max = FLAVORS_MAX)]
    pub sec_parms: Vec<CallbackSecParms4<'a>>,
}

/// CREATE_SESSION succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CreateSession4Ok {
    /// The session.
    pub sessionid: SessionId,
    /// The argument's.
    pub sequence: Seqid,
    /// What was granted.
    pub flags: u32,
    /// The fore channel.
    pub fore_chan_attrs: ChannelAttrs4,
    /// The back channel.
    pub back_chan_attrs: ChannelAttrs4,
}

/// The arguments of DESTROY_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DestroySession4Args {
    /// The session.
    pub sessionid: SessionId,
}

/// The arguments of FREE_STATEID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct FreeStateid4Args {
    /// The state to forget.
    pub stateid: Stateid4,
}

/// The arguments of SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Sequence4Args {
    /// The session.
    pub sessionid: SessionId,
    /// The slot's number, one more each time.
    pub sequenceid: Seqid,
    /// The slot.
    pub slotid: SlotId,
    /// The highest slot in use.
    pub highest_slotid: SlotId,
    /// The reply should be cached.
    pub cachethis: bool,
}

/// No back channel at all.
pub const SEQ4_STATUS_CB_PATH_DOWN: u32 = 0x0001;
/// GSS contexts of the back channel expire soon.
pub const SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRING: u32 = 0x0002;
/// GSS contexts of the back channel have expired.
pub const SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED: u32 = 0x0004;
/// The lease expired: all state is gone.
pub const SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED: u32 = 0x0008;
/// The lease expired: some state is gone.
pub const SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED: u32 = 0x0010;
/// State was revoked by the administrator.
pub const SEQ4_STATUS_ADMIN_STATE_REVOKED: u32 = 0x0020;
/// Delegations or layouts were revoked.
pub const SEQ4_STATUS_RECALLABLE_STATE_REVOKED: u32 = 0x0040;
/// A file system has moved.
pub const SEQ4_STATUS_LEASE_MOVED: u32 = 0x0080;
/// The server restarted: reclaim.
pub const SEQ4_STATUS_RESTART_RECLAIM_NEEDED: u32 = 0x0100;
/// This session has no back channel.
pub const SEQ4_STATUS_CB_PATH_DOWN_SESSION: u32 = 0x0200;
/// The client answers callbacks out of order.
pub const SEQ4_STATUS_BACKCHANNEL_FAULT: u32 = 0x0400;
/// Device ids changed.
pub const SEQ4_STATUS_DEVID_CHANGED: u32 = 0x0800;
/// Device ids were deleted.
pub const SEQ4_STATUS_DEVID_DELETED: u32 = 0x1000;

/// SEQUENCE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Sequence4Ok {
    /// The session.
    pub sessionid: SessionId,
    /// The slot's number.
    pub sequenceid: Seqid,
    /// The slot.
    pub slotid: SlotId,
    /// The highest the server keeps.
    pub highest_slotid: SlotId,
    /// The highest the server would like in use.
    pub target_highest_slotid: SlotId,
    /// `SEQ4_STATUS_*`.
    pub status_flags: u32,
}

/// The arguments of SET_SSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetSsv4Args<'a> {
    /// To be XORed into the SSV.
    #[xdr(max = GSS_TOKEN_BYTES_MAX)]
    pub ssv: &'a [u8],
    /// Keyed hash of the request's SEQUENCE arguments.
    #[xdr(max = GSS_TOKEN_BYTES_MAX)]
    pub digest: &'a [u8],
}

/// SET_SSV succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetSsv4Ok<'a> {
    /// Keyed hash of the reply's SEQUENCE result.
    #[xdr(max = GSS_TOKEN_BYTES_MAX)]
    pub digest: &'a [u8],
}

/// The arguments of TEST_STATEID.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TestStateid4Args {
    /// The states to ask about.
    #[xdr(max = TEST_STATEIDS_MAX)]
    pub stateids: Vec<Stateid4>,
}

/// TEST_STATEID succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TestStateid4Ok {
    /// One for each, in order.
    #[xdr(max = TEST_STATEIDS_MAX)]
    pub status_codes: Vec<NfsStat4>,
}

/// The arguments of DESTROY_CLIENTID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DestroyClientId4Args {
    /// The client.
    pub clientid: ClientId,
}

/// The arguments of RECLAIM_COMPLETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReclaimComplete4Args {
    /// Only for the current file system.
    pub one_fs: bool,
}
