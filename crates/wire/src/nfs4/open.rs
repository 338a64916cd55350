//! OPEN and its kin, and what they say about delegations (RFC 8881 section 18.16, RFC 9754).

use holdfast_base::limits::WIRE_NAME_BYTES_MAX;
use holdfast_base::{ClientId, Seqid};
use holdfast_xdr::{Decode, Encode};

use super::{Bitmap4, ChangeInfo4, Fattr4, NfsAce4, StateOwner4, Stateid4, Verifier4};

/// Share access: read.
pub const OPEN4_SHARE_ACCESS_READ: u32 = 1;
/// Share access: write.
pub const OPEN4_SHARE_ACCESS_WRITE: u32 = 2;
/// Share access: both.
pub const OPEN4_SHARE_ACCESS_BOTH: u32 = 3;
/// Share deny: nothing.
pub const OPEN4_SHARE_DENY_NONE: u32 = 0;
/// Share deny: reading.
pub const OPEN4_SHARE_DENY_READ: u32 = 1;
/// Share deny: writing.
pub const OPEN4_SHARE_DENY_WRITE: u32 = 2;
/// Share deny: both.
pub const OPEN4_SHARE_DENY_BOTH: u32 = 3;
/// The part of share_access that says which delegation is wanted.
pub const OPEN4_SHARE_ACCESS_WANT_DELEG_MASK: u32 = 0xff00;
/// Want: no preference.
pub const OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE: u32 = 0;
/// Want: a read delegation.
pub const OPEN4_SHARE_ACCESS_WANT_READ_DELEG: u32 = 0x100;
/// Want: a write delegation.
pub const OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG: u32 = 0x200;
/// Want: any delegation.
pub const OPEN4_SHARE_ACCESS_WANT_ANY_DELEG: u32 = 0x300;
/// Want: none.
pub const OPEN4_SHARE_ACCESS_WANT_NO_DELEG: u32 = 0x400;
/// Want: cancel an earlier want.
pub const OPEN4_SHARE_ACCESS_WANT_CANCEL: u32 = 0x500;
/// Signal when there are resources for one.
pub const OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL: u32 = 0x1_0000;
/// Push one when nobody contends.
pub const OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED: u32 = 0x2_0000;
/// Delegate the timestamps too (RFC 9754).
pub const OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS: u32 = 0x10_0000;
/// With a delegation no open state id is needed (RFC 9754).
pub const OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION: u32 = 0x20_0000;
/// The 4.0 open owner must confirm.
pub const OPEN4_RESULT_CONFIRM: u32 = 0x02;
/// Locks may be split and merged.
pub const OPEN4_RESULT_LOCKTYPE_POSIX: u32 = 0x04;
/// The file stays when removed while open.
pub const OPEN4_RESULT_PRESERVE_UNLINKED: u32 = 0x08;
/// The open state id is void, the delegation counts (RFC 9754).
pub const OPEN4_RESULT_NO_OPEN_STATEID: u32 = 0x10;
/// The server may send CB_NOTIFY_LOCK.
pub const OPEN4_RESULT_MAY_NOTIFY_LOCK: u32 = 0x20;

/// `createhow4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum CreateHow4<'a> {
    /// Make it, or open what is there.
    #[xdr(case = 0)]
    Unchecked(Fattr4<'a>),
    /// Make it, or fail with NFS4ERR_EXIST.
    #[xdr(case = 1)]
    Guarded(Fattr4<'a>),
    /// Make it exactly once, the verifier telling a retry.
    #[xdr(case = 2)]
    Exclusive(Verifier4),
    /// The same, with attributes.
    #[xdr(case = 3)]
    Exclusive41(CreateVerfAttr<'a>),
}

/// `creatverfattr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CreateVerfAttr<'a> {
    /// Tells a retry.
    pub verf: Verifier4,
    /// Attributes of the new file.
    pub attrs: Fattr4<'a>,
}

/// `openflag4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum OpenFlag4<'a> {
    /// The file must exist.
    #[xdr(case = 0)]
    NoCreate,
    /// Make it if need be.
    #[xdr(case = 1)]
    Create(CreateHow4<'a>),
}

/// `open_delegation_type4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum OpenDelegationType4 {
    /// None.
    None = 0,
    /// Read.
    Read = 1,
    /// Write.
    Write = 2,
    /// None, and why.
    NoneExt = 3,
    /// Read, with the timestamps (RFC 9754).
    ReadAttrsDeleg = 4,
    /// Write, with the timestamps (RFC 9754).
    WriteAttrsDeleg = 5,
}

/// `open_claim_delegate_cur4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenClaimDelegateCur4<'a> {
    /// The delegation.
    pub delegate_stateid: Stateid4,
    /// The name in the current directory.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub file: &'a [u8],
}

/// `open_claim4`: by what right, and which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum OpenClaim4<'a> {
    /// A plain open of this name.
    #[xdr(case = 0)]
    Null(#[xdr(max = WIRE_NAME_BYTES_MAX)] &'a [u8]),
    /// Reclaim after a restart of the server, of the current file.
    #[xdr(case = 1)]
    Previous(OpenDelegationType4),
    /// Under a delegation, by name.
    #[xdr(case = 2)]
    DelegateCur(OpenClaimDelegateCur4<'a>),
    /// Under a delegation of the client's earlier life, by name.
    #[xdr(case = 3)]
    DelegatePrev(#[xdr(max = WIRE_NAME_BYTES_MAX)] &'a [u8]),
    /// A plain open of the current file.
    #[xdr(case = 4)]
    Fh,
    /// Under a delegation, of the current file.
    #[xdr(case = 5)]
    DelegCurFh(Stateid4),
    /// Under a delegation of the client's earlier life, of the current file.
    #[xdr(case = 6)]
    DelegPrevFh,
}

/// The arguments of OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Open4Args<'a> {
    /// The 4.0 open owner's number; ignored in 4.1.
    pub seqid: Seqid,
    /// Access and wants.
    pub share_access: u32,
    /// What others may not do.
    pub share_deny: u32,
    /// The open owner.
    pub owner: StateOwner4<'a>,
    /// Whether to create.
    pub openhow: OpenFlag4<'a>,
    /// Which file, and by what right.
    pub claim: OpenClaim4<'a>,
}

/// `nfs_space_limit4`: up to where a write delegation's data need no flush at CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum SpaceLimit4 {
    /// Up to this file size.
    #[xdr(case = 1)]
    Size(u64),
    /// Up to so many blocks.
    #[xdr(case = 2)]
    Blocks(ModifiedLimit4),
}

/// `nfs_modified_limit4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ModifiedLimit4 {
    /// Blocks.
    pub num_blocks: u32,
    /// Bytes of each.
    pub bytes_per_block: u32,
}

/// `open_read_delegation4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenReadDelegation4<'a> {
    /// The delegation.
    pub stateid: Stateid4,
    /// Being recalled already.
    pub recall: bool,
    /// Who needs no ACCESS.
    pub permissions: NfsAce4<'a>,
}

/// `open_write_delegation4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenWriteDelegation4<'a> {
    /// The delegation.
    pub stateid: Stateid4,
    /// Being recalled already.
    pub recall: bool,
    /// When to flush.
    pub space_limit: SpaceLimit4,
    /// Who needs no ACCESS.
    pub permissions: NfsAce4<'a>,
}

/// `open_none_delegation4`: why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum OpenNoneDelegation4 {
    /// Not wanted.
    #[xdr(case = 0)]
    NotWanted,
    /// Somebody contends; whether the server will push one later.
    #[xdr(case = 1)]
    Contention(bool),
    /// No resources; whether the server will signal.
    #[xdr(case = 2)]
    Resource(bool),
    /// Not for this type of file.
    #[xdr(case = 3)]
    NotSuppFtype,
    /// No write delegation for this type of file.
    #[xdr(case = 4)]
    WriteDelegNotSuppFtype,
    /// No upgrade.
    #[xdr(case = 5)]
    NotSuppUpgrade,
    /// No downgrade.
    #[xdr(case = 6)]
    NotSuppDowngrade,
    /// The want was cancelled.
    #[xdr(case = 7)]
    Cancelled,
    /// A directory.
    #[xdr(case = 8)]
    IsDir,
}

/// `open_delegation4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum OpenDelegation4<'a> {
    /// None.
    #[xdr(case = 0)]
    None,
    /// Read.
    #[xdr(case = 1)]
    Read(OpenReadDelegation4<'a>),
    /// Write.
    #[xdr(case = 2)]
    Write(OpenWriteDelegation4<'a>),
    /// None, and why.
    #[xdr(case = 3)]
    NoneExt(OpenNoneDelegation4),
    /// Read, with the timestamps (RFC 9754).
    #[xdr(case = 4)]
    ReadAttrsDeleg(OpenReadDelegation4<'a>),
    /// Write, with the timestamps (RFC 9754).
    #[xdr(case = 5)]
    WriteAttrsDeleg(OpenWriteDelegation4<'a>),
}

/// OPEN succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Open4Ok<'a> {
    /// The open.
    pub stateid: Stateid4,
    /// The directory before and after.
    pub cinfo: ChangeInfo4,
    /// `OPEN4_RESULT_*`.
    pub rflags: u32,
    /// Which attributes were set.
    pub attrset: Bitmap4,
    /// What was delegated.
    pub delegation: OpenDelegation4<'a>,
}

/// The arguments of OPEN_CONFIRM (4.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenConfirm4Args {
    /// The open.
    pub open_stateid: Stateid4,
    /// The open owner's number.
    pub seqid: Seqid,
}

/// OPEN_CONFIRM succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenConfirm4Ok {
    /// The open.
    pub open_stateid: Stateid4,
}

/// The arguments of OPEN_DOWNGRADE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenDowngrade4Args {
    /// The open.
    pub open_stateid: Stateid4,
    /// The 4.0 open owner's number.
    pub seqid: Seqid,
    /// The access that remains.
    pub share_access: u32,
    /// The denial that remains.
    pub share_deny: u32,
}

/// OPEN_DOWNGRADE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenDowngrade4Ok {
    /// The open.
    pub open_stateid: Stateid4,
}

/// The arguments of CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Close4Args {
    /// The 4.0 open owner's number.
    pub seqid: Seqid,
    /// The open.
    pub open_stateid: Stateid4,
}

/// CLOSE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Close4Ok {
    /// Void; [`Stateid4::INVALID`] in 4.1.
    pub open_stateid: Stateid4,
}

/// The arguments of DELEGPURGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DelegPurge4Args {
    /// The client.
    pub clientid: ClientId,
}

/// The arguments of DELEGRETURN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DelegReturn4Args {
    /// The delegation.
    pub deleg_stateid: Stateid4,
}

/// `deleg_claim4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum DelegClaim4 {
    /// Reclaim after a restart of the server.
    #[xdr(case = 1)]
    Previous(OpenDelegationType4),
    /// A new delegation.
    #[xdr(case = 4)]
    Fh,
    /// One of the client's earlier life.
    #[xdr(case = 6)]
    DelegPrevFh,
}

/// The arguments of WANT_DELEGATION; its result is an [`OpenDelegation4`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WantDelegation4Args {
    /// `OPEN4_SHARE_ACCESS_WANT_*`.
    pub want: u32,
    /// By what right.
    pub claim: DelegClaim4,
}
