//! The callback program (RFC 7530 section 17, RFC 8881 section 20, RFC 7862 section 16).

use holdfast_base::limits::{
    COMPOUND_TAG_BYTES_MAX, LAYOUT_BODY_BYTES_MAX, NOTIFY_CHANGES_MAX, REFERRING_CALLS_MAX,
    WIRE_HANDLE4_BYTES_MAX, WIRE_NAME_BYTES_MAX,
};

use holdfast_base::{Cookie, Length, Offset, Seqid, SessionId, SlotId};
use holdfast_xdr::{Decode, Encode, Writer};

use super::{
    Bitmap4, DeviceId4, Fattr4, Fsid4, LayoutType4, OpenDelegation4, StateOwner4, Stateid4, Verifier4,
    WriteResponse4,
};

use crate::number::numbered;

/// The callback program of 4.0; 4.1 takes the number the client gave.
pub const NFS4_CALLBACK_PROGRAM: u32 = 0x4000_0000;
/// Its version.
pub const NFS_CB_V4_0: u32 = 1;
/// Does nothing.
pub const CB_NULL: u32 = 0;
/// Does everything else.
pub const CB_COMPOUND: u32 = 1;

numbered! {
    /// A callback operation's number (`nfs_cb_opnum4`).
    CbOpNum4 {
        GetAttr = 3, "CB_GETATTR", "`OP_CB_GETATTR`.";
        Recall = 4, "CB_RECALL", "`OP_CB_RECALL`.";
        LayoutRecall = 5, "CB_LAYOUTRECALL", "`OP_CB_LAYOUTRECALL`.";
        Notify = 6, "CB_NOTIFY", "`OP_CB_NOTIFY`.";
        PushDeleg = 7, "CB_PUSH_DELEG", "`OP_CB_PUSH_DELEG`.";
        RecallAny = 8, "CB_RECALL_ANY", "`OP_CB_RECALL_ANY`.";
        RecallableObjAvail = 9, "CB_RECALLABLE_OBJ_AVAIL", "`OP_CB_RECALLABLE_OBJ_AVAIL`.";
        RecallSlot = 10, "CB_RECALL_SLOT", "`OP_CB_RECALL_SLOT`.";
        Sequence = 11, "CB_SEQUENCE", "`OP_CB_SEQUENCE`.";
        WantsCancelled = 12, "CB_WANTS_CANCELLED", "`OP_CB_WANTS_CANCELLED`.";
        NotifyLock = 13, "CB_NOTIFY_LOCK", "`OP_CB_NOTIFY_LOCK`.";
        NotifyDeviceId = 14, "CB_NOTIFY_DEVICEID", "`OP_CB_NOTIFY_DEVICEID`.";
        Offload = 15, "CB_OFFLOAD", "`OP_CB_OFFLOAD`.";
        Illegal = 10044, "CB_ILLEGAL", "`OP_CB_ILLEGAL`.";
    }
}

/// How CB_COMPOUND's arguments begin; `ops` times a number and its arguments follow ([`CbArgOp`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbCompoundArgsHeader<'a> {
    /// Repeated in the reply.
    #[xdr(max = COMPOUND_TAG_BYTES_MAX)]
    pub tag: &'a [u8],
    /// The minor version.
    pub minorversion: u32,
    /// From SETCLIENTID; 0 in 4.1.
    pub callback_ident: u32,
    /// How many operations follow.
    pub ops: u32,
}

/// The arguments of CB_GETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbGetAttr4Args<'a> {
    /// The file.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub fh: &'a [u8],
    /// Which attributes.
    pub attr_request: Bitmap4,
}

/// CB_GETATTR succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbGetAttr4Ok<'a> {
    /// The attributes.
    pub obj_attributes: Fattr4<'a>,
}

/// The arguments of CB_RECALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbRecall4Args<'a> {
    /// The delegation.
    pub stateid: Stateid4,
    /// The file will be truncated: flush nothing.
    pub truncate: bool,
    /// The file.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub fh: &'a [u8],
}

/// `layoutrecall_file4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutRecallFile4<'a> {
    /// The file.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub fh: &'a [u8],
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes.
    pub length: Length,
    /// The layout.
    pub stateid: Stateid4,
}

/// `layoutrecall4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum LayoutRecall4<'a> {
    /// Of a file.
    #[xdr(case = 1)]
    File(LayoutRecallFile4<'a>),
    /// Of a file system.
    #[xdr(case = 2)]
    Fsid(Fsid4),
    /// All.
    #[xdr(case = 3)]
    All,
}

/// The arguments of CB_LAYOUTRECALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbLayoutRecall4Args<'a> {
    /// Of which type.
    pub layout_type: LayoutType4,
    /// `LAYOUTIOMODE4_*`.
    pub iomode: u32,
    /// The layout changes: send I/O again.
    pub changed: bool,
    /// What is recalled.
    pub recall: LayoutRecall4<'a>,
}

/// Notification, a bit: an entry's attributes.
pub const NOTIFY4_CHANGE_CHILD_ATTRS: u32 = 0;
/// Notification, a bit: the directory's attributes.
pub const NOTIFY4_CHANGE_DIR_ATTRS: u32 = 1;
/// Notification, a bit: an entry went.
pub const NOTIFY4_REMOVE_ENTRY: u32 = 2;
/// Notification, a bit: an entry came.
pub const NOTIFY4_ADD_ENTRY: u32 = 3;
/// Notification, a bit: an entry was renamed.
pub const NOTIFY4_RENAME_ENTRY: u32 = 4;
/// Notification, a bit: the cookie verifier changed.
pub const NOTIFY4_CHANGE_COOKIE_VERIFIER: u32 = 5;
/// Asked for, a bit: the client knows what rfc8881bis adds, and does not go by the order of entries unless it says that
/// as well ([`NOTIFY4_CFLAG_ORDER`]; rfc8881bis section 16.2.13). This bit and all after it are of rfc8881bis.
pub const NOTIFY4_GFLAG_EXTEND: u32 = 6;
/// Notification, a bit: of who may do what, `AUFLAG_VALID`.
pub const NOTIFY4_AUFLAG_VALID: u32 = 7;
/// Notification, a bit: of who may do what, `AUFLAG_USER`.
pub const NOTIFY4_AUFLAG_USER: u32 = 8;
/// Notification, a bit: of who may do what, `AUFLAG_GROUP`.
pub const NOTIFY4_AUFLAG_GROUP: u32 = 9;
/// Notification, a bit: of who may do what, `AUFLAG_OTHER`.
pub const NOTIFY4_AUFLAG_OTHER: u32 = 10;
/// Notification, a bit: of who may do what, `CHANGE_AUTH`.
pub const NOTIFY4_CHANGE_AUTH: u32 = 11;
/// Asked for, a bit: the client goes by the order of entries, and is to hear their cookies and what stands before them
/// (rfc8881bis sections 16.2.13 and 27.4.5).
pub const NOTIFY4_CFLAG_ORDER: u32 = 12;
/// Notification, a bit: `AUFLAG_GANOW`.
pub const NOTIFY4_AUFLAG_GANOW: u32 = 13;
/// Notification, a bit: `AUFLAG_GALATER`.
pub const NOTIFY4_AUFLAG_GALATER: u32 = 14;
/// Notification, a bit: `CHANGE_GA`.
pub const NOTIFY4_CHANGE_GA: u32 = 15;
/// Notification, a bit: `CHANGE_AMASK`.
pub const NOTIFY4_CHANGE_AMASK: u32 = 16;
/// Device notification, a bit: changed.
pub const NOTIFY_DEVICEID4_CHANGE: u32 = 1;
/// Device notification, a bit: deleted.
pub const NOTIFY_DEVICEID4_DELETE: u32 = 2;

/// `notify_entry4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyEntry4<'a> {
    /// The name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub file: &'a [u8],
    /// Its attributes.
    pub attrs: Fattr4<'a>,
}

/// `prev_entry4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct PrevEntry4<'a> {
    /// The entry before it in READDIR's order.
    pub prev_entry: NotifyEntry4<'a>,
    /// That entry's cookie.
    pub prev_entry_cookie: Cookie,
}

/// `notify_remove4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyRemove4<'a> {
    /// What went.
    pub old_entry: NotifyEntry4<'a>,
    /// Its cookie.
    pub old_entry_cookie: Cookie,
}

/// `notify_add4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyAdd4<'a> {
    /// What it replaced.
    pub old_entry: Option<NotifyRemove4<'a>>,
    /// What came.
    pub new_entry: NotifyEntry4<'a>,
    /// Its cookie.
    pub new_entry_cookie: Option<Cookie>,
    /// What stands before it.
    pub prev_entry: Option<PrevEntry4<'a>>,
    /// It stands last.
    pub last_entry: bool,
}

/// `notify_attr4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyAttr4<'a> {
    /// What changed; the name is empty for the directory itself.
    pub changed_entry: NotifyEntry4<'a>,
}

/// `notify_rename4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyRename4<'a> {
    /// The old name.
    pub old_entry: NotifyRemove4<'a>,
    /// The new name.
    pub new_entry: NotifyAdd4<'a>,
}

/// `notify_verifier4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyVerifier4 {
    /// The old one.
    pub old_cookieverf: Verifier4,
    /// The new one.
    pub new_cookieverf: Verifier4,
}

/// `notify4`: the notifications of the mask's bits, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Notify4<'a> {
    /// Which.
    pub mask: Bitmap4,
    /// The values.
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub values: &'a [u8],
}

/// The arguments of CB_NOTIFY.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CbNotify4Args<'a> {
    /// The delegation.
    pub stateid: Stateid4,
    /// The directory.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub fh: &'a [u8],
    /// What happened, in order.
    #[xdr(max = NOTIFY_CHANGES_MAX)]
    pub changes: Vec<Notify4<'a>>,
}

/// The arguments of CB_PUSH_DELEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbPushDeleg4Args<'a> {
    /// The file.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub fh: &'a [u8],
    /// What is delegated.
    pub delegation: OpenDelegation4<'a>,
}

/// CB_RECALL_ANY, a bit: read delegations.
pub const RCA4_TYPE_MASK_RDATA_DLG: u32 = 0;
/// CB_RECALL_ANY, a bit: write delegations.
pub const RCA4_TYPE_MASK_WDATA_DLG: u32 = 1;
/// CB_RECALL_ANY, a bit: directory delegations.
pub const RCA4_TYPE_MASK_DIR_DLG: u32 = 2;
/// CB_RECALL_ANY, a bit: file layouts.
pub const RCA4_TYPE_MASK_FILE_LAYOUT: u32 = 3;
/// CB_RECALL_ANY, a bit: block layouts.
pub const RCA4_TYPE_MASK_BLK_LAYOUT: u32 = 4;
/// CB_RECALL_ANY, a bit: flexible file layouts for reading (RFC 8435).
pub const RCA4_TYPE_MASK_FF_LAYOUT_READ: u32 = 16;
/// CB_RECALL_ANY, a bit: flexible file layouts for writing (RFC 8435).
pub const RCA4_TYPE_MASK_FF_LAYOUT_RW: u32 = 17;

/// The arguments of CB_RECALL_ANY; CB_RECALLABLE_OBJ_AVAIL has the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbRecallAny4Args {
    /// How many the client may keep.
    pub objects_to_keep: u32,
    /// Of which kinds.
    pub type_mask: Bitmap4,
}

/// The arguments of CB_RECALL_SLOT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbRecallSlot4Args {
    /// The highest slot to use from now on.
    pub target_highest_slotid: SlotId,
}

/// `referring_call4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReferringCall4 {
    /// The slot's number then.
    pub sequenceid: Seqid,
    /// The slot.
    pub slotid: SlotId,
}

/// `referring_call_list4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReferringCallList4 {
    /// The session.
    pub sessionid: SessionId,
    /// Calls whose replies must be awaited first.
    #[xdr(max = REFERRING_CALLS_MAX)]
    pub calls: Vec<ReferringCall4>,
}

/// The arguments of CB_SEQUENCE.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CbSequence4Args {
    /// The session.
    pub sessionid: SessionId,
    /// The slot's number, one more each time.
    pub sequenceid: Seqid,
    /// The slot of the back channel.
    pub slotid: SlotId,
    /// The highest slot in use.
    pub highest_slotid: SlotId,
    /// The reply should be cached.
    pub cachethis: bool,
    /// Calls this one refers to.
    #[xdr(max = REFERRING_CALLS_MAX)]
    pub referring_call_lists: Vec<ReferringCallList4>,
}

/// CB_SEQUENCE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbSequence4Ok {
    /// The session.
    pub sessionid: SessionId,
    /// The slot's number.
    pub sequenceid: Seqid,
    /// The slot.
    pub slotid: SlotId,
    /// The highest the client keeps.
    pub highest_slotid: SlotId,
    /// The highest the client would like in use.
    pub target_highest_slotid: SlotId,
}

/// The arguments of CB_WANTS_CANCELLED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbWantsCancelled4Args {
    /// Wants that waited for contention to end.
    pub contended_wants_cancelled: bool,
    /// Wants that waited for resources.
    pub resourced_wants_cancelled: bool,
}

/// The arguments of CB_NOTIFY_LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbNotifyLock4Args<'a> {
    /// The file.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub fh: &'a [u8],
    /// Who waited.
    pub lock_owner: StateOwner4<'a>,
}

/// `notify_deviceid_delete4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyDeviceIdDelete4 {
    /// Of which type.
    pub layout_type: LayoutType4,
    /// The device.
    pub deviceid: DeviceId4,
}

/// `notify_deviceid_change4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NotifyDeviceIdChange4 {
    /// Of which type.
    pub layout_type: LayoutType4,
    /// The device.
    pub deviceid: DeviceId4,
    /// At once, not with the next layout.
    pub immediate: bool,
}

/// The arguments of CB_NOTIFY_DEVICEID.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CbNotifyDeviceId4Args<'a> {
    /// What happened, in order.
    #[xdr(max = NOTIFY_CHANGES_MAX)]
    pub changes: Vec<Notify4<'a>>,
}

/// `offload_info4`: how an asynchronous operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum OffloadInfo4 {
    /// It succeeded.
    #[xdr(case = 0)]
    Done(WriteResponse4),
    /// The `nfsstat4`, and the bytes copied before it.
    #[xdr(default)]
    Failed(u32, Length),
}

/// The arguments of CB_OFFLOAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbOffload4Args<'a> {
    /// The destination.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub fh: &'a [u8],
    /// The asynchronous operation.
    pub stateid: Stateid4,
    /// How it ended.
    pub info: OffloadInfo4,
}

/// `nfs_cb_argop4`: one callback operation with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum CbArgOp<'a> {
    /// CB_GETATTR.
    #[xdr(case = CbOpNum4::GetAttr as u32)]
    GetAttr(CbGetAttr4Args<'a>),
    /// CB_RECALL.
    #[xdr(case = CbOpNum4::Recall as u32)]
    Recall(CbRecall4Args<'a>),
    /// CB_LAYOUTRECALL.
    #[xdr(case = CbOpNum4::LayoutRecall as u32)]
    LayoutRecall(CbLayoutRecall4Args<'a>),
    /// CB_NOTIFY.
    #[xdr(case = CbOpNum4::Notify as u32)]
    Notify(CbNotify4Args<'a>),
    /// CB_PUSH_DELEG.
    #[xdr(case = CbOpNum4::PushDeleg as u32)]
    PushDeleg(CbPushDeleg4Args<'a>),
    /// CB_RECALL_ANY.
    #[xdr(case = CbOpNum4::RecallAny as u32)]
    RecallAny(CbRecallAny4Args),
    /// CB_RECALLABLE_OBJ_AVAIL.
    #[xdr(case = CbOpNum4::RecallableObjAvail as u32)]
    RecallableObjAvail(CbRecallAny4Args),
    /// CB_RECALL_SLOT.
    #[xdr(case = CbOpNum4::RecallSlot as u32)]
    RecallSlot(CbRecallSlot4Args),
    /// CB_SEQUENCE.
    #[xdr(case = CbOpNum4::Sequence as u32)]
    Sequence(CbSequence4Args),
    /// CB_WANTS_CANCELLED.
    #[xdr(case = CbOpNum4::WantsCancelled as u32)]
    WantsCancelled(CbWantsCancelled4Args),
    /// CB_NOTIFY_LOCK.
    #[xdr(case = CbOpNum4::NotifyLock as u32)]
    NotifyLock(CbNotifyLock4Args<'a>),
    /// CB_NOTIFY_DEVICEID.
    #[xdr(case = CbOpNum4::NotifyDeviceId as u32)]
    NotifyDeviceId(CbNotifyDeviceId4Args<'a>),
    /// CB_OFFLOAD.
    #[xdr(case = CbOpNum4::Offload as u32)]
    Offload(CbOffload4Args<'a>),
    /// A number that is no callback operation; nothing after it can be decoded.
    #[xdr(default)]
    Illegal(u32),
}

/// Writes a CB_COMPOUND's arguments.
pub fn encode_cb_compound(w: &mut Writer, minorversion: u32, callback_ident: u32, ops: &[CbArgOp<'_>]) {
    w.opaque(b"");
    w.u32(minorversion);
    w.u32(callback_ident);
    w.list(ops);
}
