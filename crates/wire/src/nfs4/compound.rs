//! The frame of a COMPOUND, and one operation with its arguments for whoever *sends* compounds (clients,
//! tests, fuzzers). A server reads each operation's number as a `u32`, then that operation's `Args`, one at a
//! time: a bad operation must not spoil those before it (RFC 8881 section 16.2.3).

use holdfast_base::limits::COMPOUND_TAG_BYTES_MAX;
use holdfast_xdr::{Decode, Encode, Writer};

use super::{NfsStat4, OpNum4};
use super::{client::*, file::*, layout::*, lock::*, open::*, session::*, v42::*};

/// How COMPOUND's arguments begin; `ops` times a number and its arguments follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CompoundArgsHeader<'a> {
    /// Repeated in the reply.
    #[xdr(max = COMPOUND_TAG_BYTES_MAX)]
    pub tag: &'a [u8],
    /// The minor version.
    pub minorversion: u32,
    /// How many operations follow.
    pub ops: u32,
}

/// How the results of COMPOUND and CB_COMPOUND begin; `ops` times a [`ResOpHeader`] and that result's body
/// follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CompoundResHeader<'a> {
    /// The last operation's status.
    pub status: NfsStat4,
    /// The request's.
    #[xdr(max = COMPOUND_TAG_BYTES_MAX)]
    pub tag: &'a [u8],
    /// How many results follow.
    pub ops: u32,
}

/// How each result begins; what the status calls for follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ResOpHeader {
    /// The operation's number; `OP_ILLEGAL` for one unknown.
    pub op: u32,
    /// What came of it.
    pub status: NfsStat4,
}

/// `nfs_argop4`: one operation with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ArgOp<'a> {
    /// ACCESS.
    #[xdr(case = OpNum4::Access as u32)]
    Access(Access4Args),
    /// CLOSE.
    #[xdr(case = OpNum4::Close as u32)]
    Close(Close4Args),
    /// COMMIT.
    #[xdr(case = OpNum4::Commit as u32)]
    Commit(Commit4Args),
    /// CREATE.
    #[xdr(case = OpNum4::Create as u32)]
    Create(Create4Args<'a>),
    /// DELEGPURGE.
    #[xdr(case = OpNum4::DelegPurge as u32)]
    DelegPurge(DelegPurge4Args),
    /// DELEGRETURN.
    #[xdr(case = OpNum4::DelegReturn as u32)]
    DelegReturn(DelegReturn4Args),
    /// GETATTR.
    #[xdr(case = OpNum4::GetAttr as u32)]
    GetAttr(GetAttr4Args),
    /// GETFH.
    #[xdr(case = OpNum4::GetFh as u32)]
    GetFh,
    /// LINK.
    #[xdr(case = OpNum4::Link as u32)]
    Link(Link4Args<'a>),
    /// LOCK.
    #[xdr(case = OpNum4::Lock as u32)]
    Lock(Lock4Args<'a>),
    /// LOCKT.
    #[xdr(case = OpNum4::Lockt as u32)]
    Lockt(Lockt4Args<'a>),
    /// LOCKU.
    #[xdr(case = OpNum4::Locku as u32)]
    Locku(Locku4Args),
    /// LOOKUP.
    #[xdr(case = OpNum4::Lookup as u32)]
    Lookup(Lookup4Args<'a>),
    /// LOOKUPP.
    #[xdr(case = OpNum4::Lookupp as u32)]
    Lookupp,
    /// NVERIFY.
    #[xdr(case = OpNum4::Nverify as u32)]
    Nverify(Nverify4Args<'a>),
    /// OPEN.
    #[xdr(case = OpNum4::Open as u32)]
    Open(Open4Args<'a>),
    /// OPENATTR.
    #[xdr(case = OpNum4::OpenAttr as u32)]
    OpenAttr(OpenAttr4Args),
    /// OPEN_CONFIRM.
    #[xdr(case = OpNum4::OpenConfirm as u32)]
    OpenConfirm(OpenConfirm4Args),
    /// OPEN_DOWNGRADE.
    #[xdr(case = OpNum4::OpenDowngrade as u32)]
    OpenDowngrade(OpenDowngrade4Args),
    /// PUTFH.
    #[xdr(case = OpNum4::PutFh as u32)]
    PutFh(PutFh4Args<'a>),
    /// PUTPUBFH.
    #[xdr(case = OpNum4::PutPubFh as u32)]
    PutPubFh,
    /// PUTROOTFH.
    #[xdr(case = OpNum4::PutRootFh as u32)]
    PutRootFh,
    /// READ.
    #[xdr(case = OpNum4::Read as u32)]
    Read(Read4Args),
    /// READDIR.
    #[xdr(case = OpNum4::ReadDir as u32)]
    ReadDir(ReadDir4Args),
    /// READLINK.
    #[xdr(case = OpNum4::ReadLink as u32)]
    ReadLink,
    /// REMOVE.
    #[xdr(case = OpNum4::Remove as u32)]
    Remove(Remove4Args<'a>),
    /// RENAME.
    #[xdr(case = OpNum4::Rename as u32)]
    Rename(Rename4Args<'a>),
    /// RENEW.
    #[xdr(case = OpNum4::Renew as u32)]
    Renew(Renew4Args),
    /// RESTOREFH.
    #[xdr(case = OpNum4::RestoreFh as u32)]
    RestoreFh,
    /// SAVEFH.
    #[xdr(case = OpNum4::SaveFh as u32)]
    SaveFh,
    /// SECINFO.
    #[xdr(case = OpNum4::SecInfo as u32)]
    SecInfo(SecInfo4Args<'a>),
    /// SETATTR.
    #[xdr(case = OpNum4::SetAttr as u32)]
    SetAttr(SetAttr4Args<'a>),
    /// SETCLIENTID.
    #[xdr(case = OpNum4::SetClientId as u32)]
    SetClientId(SetClientId4Args<'a>),
    /// SETCLIENTID_CONFIRM.
    #[xdr(case = OpNum4::SetClientIdConfirm as u32)]
    SetClientIdConfirm(SetClientIdConfirm4Args),
    /// VERIFY.
    #[xdr(case = OpNum4::Verify as u32)]
    Verify(Verify4Args<'a>),
    /// WRITE.
    #[xdr(case = OpNum4::Write as u32)]
    Write(Write4Args<'a>),
    /// RELEASE_LOCKOWNER.
    #[xdr(case = OpNum4::ReleaseLockOwner as u32)]
    ReleaseLockOwner(ReleaseLockOwner4Args<'a>),
    /// BACKCHANNEL_CTL.
    #[xdr(case = OpNum4::BackchannelCtl as u32)]
    BackchannelCtl(BackchannelCtl4Args<'a>),
    /// BIND_CONN_TO_SESSION.
    #[xdr(case = OpNum4::BindConnToSession as u32)]
    BindConnToSession(BindConnToSession4Args),
    /// EXCHANGE_ID.
    #[xdr(case = OpNum4::ExchangeId as u32)]
    ExchangeId(ExchangeId4Args<'a>),
    /// CREATE_SESSION.
    #[xdr(case = OpNum4::CreateSession as u32)]
    CreateSession(CreateSession4Args<'a>),
    /// DESTROY_SESSION.
    #[xdr(case = OpNum4::DestroySession as u32)]
    DestroySession(DestroySession4Args),
    /// FREE_STATEID.
    #[xdr(case = OpNum4::FreeStateid as u32)]
    FreeStateid(FreeStateid4Args),
    /// GET_DIR_DELEGATION.
    #[xdr(case = OpNum4::GetDirDelegation as u32)]
    GetDirDelegation(GetDirDelegation4Args),
    /// GETDEVICEINFO.
    #[xdr(case = OpNum4::GetDeviceInfo as u32)]
    GetDeviceInfo(GetDeviceInfo4Args),
    /// GETDEVICELIST.
    #[xdr(case = OpNum4::GetDeviceList as u32)]
    GetDeviceList(GetDeviceList4Args),
    /// LAYOUTCOMMIT.
    #[xdr(case = OpNum4::LayoutCommit as u32)]
    LayoutCommit(LayoutCommit4Args<'a>),
    /// LAYOUTGET.
    #[xdr(case = OpNum4::LayoutGet as u32)]
    LayoutGet(LayoutGet4Args),
    /// LAYOUTRETURN.
    #[xdr(case = OpNum4::LayoutReturn as u32)]
    LayoutReturn(LayoutReturn4Args<'a>),
    /// SECINFO_NO_NAME.
    #[xdr(case = OpNum4::SecInfoNoName as u32)]
    SecInfoNoName(SecInfoNoName4Args),
    /// SEQUENCE.
    #[xdr(case = OpNum4::Sequence as u32)]
    Sequence(Sequence4Args),
    /// SET_SSV.
    #[xdr(case = OpNum4::SetSsv as u32)]
    SetSsv(SetSsv4Args<'a>),
    /// TEST_STATEID.
    #[xdr(case = OpNum4::TestStateid as u32)]
    TestStateid(TestStateid4Args),
    /// WANT_DELEGATION.
    #[xdr(case = OpNum4::WantDelegation as u32)]
    WantDelegation(WantDelegation4Args),
    /// DESTROY_CLIENTID.
    #[xdr(case = OpNum4::DestroyClientId as u32)]
    DestroyClientId(DestroyClientId4Args),
    /// RECLAIM_COMPLETE.
    #[xdr(case = OpNum4::ReclaimComplete as u32)]
    ReclaimComplete(ReclaimComplete4Args),
    /// ALLOCATE.
    #[xdr(case = OpNum4::Allocate as u32)]
    Allocate(Allocate4Args),
    /// COPY.
    #[xdr(case = OpNum4::Copy as u32)]
    Copy(Copy4Args<'a>),
    /// COPY_NOTIFY.
    #[xdr(case = OpNum4::CopyNotify as u32)]
    CopyNotify(CopyNotify4Args<'a>),
    /// DEALLOCATE.
    #[xdr(case = OpNum4::Deallocate as u32)]
    Deallocate(Deallocate4Args),
    /// IO_ADVISE.
    #[xdr(case = OpNum4::IoAdvise as u32)]
    IoAdvise(IoAdvise4Args),
    /// LAYOUTERROR.
    #[xdr(case = OpNum4::LayoutError as u32)]
    LayoutError(LayoutError4Args),
    /// LAYOUTSTATS.
    #[xdr(case = OpNum4::LayoutStats as u32)]
    LayoutStats(LayoutStats4Args<'a>),
    /// OFFLOAD_CANCEL.
    #[xdr(case = OpNum4::OffloadCancel as u32)]
    OffloadCancel(OffloadCancel4Args),
    /// OFFLOAD_STATUS.
    #[xdr(case = OpNum4::OffloadStatus as u32)]
    OffloadStatus(OffloadStatus4Args),
    /// READ_PLUS.
    #[xdr(case = OpNum4::ReadPlus as u32)]
    ReadPlus(ReadPlus4Args),
    /// SEEK.
    #[xdr(case = OpNum4::Seek as u32)]
    Seek(Seek4Args),
    /// WRITE_SAME.
    #[xdr(case = OpNum4::WriteSame as u32)]
    WriteSame(WriteSame4Args<'a>),
    /// CLONE.
    #[xdr(case = OpNum4::Clone as u32)]
    Clone(Clone4Args),
    /// GETXATTR.
    #[xdr(case = OpNum4::GetXattr as u32)]
    GetXattr(GetXattr4Args<'a>),
    /// SETXATTR.
    #[xdr(case = OpNum4::SetXattr as u32)]
    SetXattr(SetXattr4Args<'a>),
    /// LISTXATTRS.
    #[xdr(case = OpNum4::ListXattrs as u32)]
    ListXattrs(ListXattrs4Args),
    /// REMOVEXATTR.
    #[xdr(case = OpNum4::RemoveXattr as u32)]
    RemoveXattr(RemoveXattr4Args<'a>),
    /// A number that is no operation; nothing after it can be decoded.
    #[xdr(default)]
    Illegal(u32),
}

/// Writes a COMPOUND's arguments.
pub fn encode_compound(w: &mut Writer, tag: &[u8], minorversion: u32, ops: &[ArgOp<'_>]) {
    w.opaque(tag);
    w.u32(minorversion);
    w.list(ops);
}
