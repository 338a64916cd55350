//! Arguments and results of all procedures but BATCH.

use holdfast_base::limits::{
    CALLER_GROUPS_MAX, CAPS_FAILED_MAX, CAPS_ITEMS_MAX, CAPS_POOL_CALL_MAX, DIRECTORY_ENTRIES_MAX,
    SAME_HOST_PATH_BYTES_MAX, WIRE_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use holdfast_base::{CapSet, Cookie, SessionId};
use holdfast_xdr::{Decode, Encode};

use super::types::{Attrs, Features, Grant, Handle, Limits, Res, SetAttrs, Ticket, TxnId};
use crate::number::numbered;

/// HELLO: who calls, on every new connection and after BADTICKET. Binds the connection for recalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct HelloArgs {
    /// A session of the client's, which says whose lease and grace this goes by.
    pub session: SessionId,
    /// Random; the same for as long as the mount lives. Transactions are numbered in it.
    pub incarnation: [u8; 16],
    /// What the client can do.
    pub features: Features,
    /// The client will not send this transaction again, nor any before it.
    pub done_through: TxnId,
}

/// What HELLO gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct HelloOk {
    /// To be shown with every call.
    pub ticket: Ticket,
    /// Another than at the HELLO before when the client has lost capabilities since: then it holds none, but for what
    /// it reclaims.
    pub epoch: u64,
    /// What both can do.
    pub features: Features,
    /// The time to answer a recall in, in seconds: a lease, or less.
    pub lease_seconds: u32,
    /// RECLAIM is to be used now; everything else but BATCH's refusals has to wait.
    pub in_grace: bool,
    /// Whether the server knows this incarnation's transactions, from `done_through` on. When it does not, what was sent
    /// and not heard to be stable may have been executed or not.
    pub is_known: bool,
    /// How much the server takes.
    pub limits: Limits,
    /// The last transaction of which all is executed.
    pub executed_through: TxnId,
    /// The last of which all is durable.
    pub stable_through: TxnId,
}

/// ACQUIRE: capabilities, and attributes under them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AcquireArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// Of what.
    #[xdr(max = CAPS_ITEMS_MAX)]
    pub items: Vec<AcquireItem<'a>>,
}

/// One object of an ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AcquireItem<'a> {
    /// The object.
    pub handle: Handle<'a>,
    /// What the client would like to hold in all.
    pub want: CapSet,
}

/// What an ACQUIRE or RECLAIM gives for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Acquired {
    /// What is held now.
    pub grant: Grant,
    /// Attributes, looked at after the grant.
    pub attrs: Attrs,
}

/// What ACQUIRE and RECLAIM give: a result an item, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AcquireOk {
    /// Results.
    #[xdr(max = CAPS_ITEMS_MAX)]
    pub items: Vec<Res<Acquired>>,
}

/// RELEASE: what is kept of what was held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReleaseArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// Of what.
    #[xdr(max = CAPS_ITEMS_MAX)]
    pub items: Vec<ReleaseItem<'a>>,
}

/// One object of a RELEASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReleaseItem<'a> {
    /// The object.
    pub handle: Handle<'a>,
    /// What stays; everything else is given back.
    pub keep: CapSet,
    /// The highest number that the client has seen in a grant or recall of it.
    pub seq: u64,
}

/// What RELEASE gives: what is held now, an item each, in order. CROSSED leaves it as it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReleaseOk {
    /// Results.
    #[xdr(max = CAPS_ITEMS_MAX)]
    pub items: Vec<Res<Grant>>,
}

/// LOOKUP: a name, and capabilities on what it names and on the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LookupArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// The directory.
    pub dir: Handle<'a>,
    /// The name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
    /// Wanted on the directory.
    pub want_dir: CapSet,
    /// Wanted on the object.
    pub want: CapSet,
}

/// An object with what is held of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NodeAt<'a> {
    /// Its handle.
    pub handle: Handle<'a>,
    /// Its attributes.
    pub attrs: Attrs,
    /// What is held of it.
    pub grant: Grant,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Looked<'a> {
    /// Nothing. With FILE_S on the directory this stays true until it is recalled.
    #[xdr(case = 0)]
    Absent,
    /// This.
    #[xdr(case = 1)]
    Present(NodeAt<'a>),
}

/// What LOOKUP gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LookupOk<'a> {
    /// Held of the directory, and its attributes.
    pub dir: Acquired,
    /// What the name stands for.
    pub found: Looked<'a>,
}

/// What FIND, whose arguments are LOOKUP's, gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct FindOk<'a> {
    /// As LOOKUP.
    pub looked: LookupOk<'a>,
    /// The name is promised by itself: what it stands for stays so until the promise is recalled.
    pub promise: Option<NamePromise<'a>>,
}

/// A name that is promised by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NamePromise<'a> {
    /// What stands for it in RECALL and RELEASE, where a handle would. Not looked into by clients.
    pub token: Handle<'a>,
    /// As in a grant.
    pub seq: u64,
}

/// LIST: a stretch of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ListArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// The directory.
    pub dir: Handle<'a>,
    /// After this entry; 0 from the beginning.
    pub cookie: Cookie,
    /// Bytes of results, at most.
    pub bytes_max: u32,
    /// Wanted on the directory.
    pub want_dir: CapSet,
    /// Wanted on each object.
    pub want: CapSet,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ListEntry<'a> {
    /// Its name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
    /// Go on after it with this.
    pub cookie: Cookie,
    /// The number of what it names.
    pub fileid: u64,
    /// What it names; DELAY where others hold what makes its attributes uncertain.
    pub node: Res<NodeAt<'a>>,
}

/// What LIST gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ListOk<'a> {
    /// Held of the directory, and its attributes from before the first entry.
    pub dir: Acquired,
    /// The entries.
    #[xdr(max = DIRECTORY_ENTRIES_MAX, chain)]
    pub entries: Vec<ListEntry<'a>>,
    /// The last of them is the directory's last.
    pub eof: bool,
}

/// STABLE: waits until these transactions are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StableArgs {
    /// Whose.
    pub ticket: Ticket,
    /// All up to this; it must have been executed.
    pub through: TxnId,
    /// As in BATCH.
    pub done_through: TxnId,
}

/// An operation whose effect could not be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct FailedOp {
    /// The transaction.
    pub txn: TxnId,
    /// The operation's place, from 0; or [`Self::ALL`].
    pub op: u32,
    /// Why.
    pub status: u32,
}

impl FailedOp {
    /// In an operation's stead: every operation of the transaction. So it is told where one by one there is no room.
    pub const ALL: u32 = u32::MAX;
}

/// What STABLE gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StableOk {
    /// The last transaction of which all is durable, but for what failed.
    pub stable_through: TxnId,
    /// What failed to be written back since the client's `done_through`.
    #[xdr(max = CAPS_FAILED_MAX)]
    pub failed: Vec<FailedOp>,
}

/// RECLAIM: what the client held before the server restarted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReclaimArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// Of what.
    #[xdr(max = CAPS_ITEMS_MAX)]
    pub items: Vec<ReclaimItem<'a>>,
}

/// One object of a RECLAIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReclaimItem<'a> {
    /// The object.
    pub handle: Handle<'a>,
    /// What was held.
    pub held: CapSet,
}

/// WHOAMI: as whom the caller acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WhoAmIArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// In the export of this object.
    pub handle: Handle<'a>,
}

/// What WHOAMI gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WhoAmIOk {
    /// What the caller makes is owned by this user.
    pub uid: u32,
    /// And by this group, where the directory does not say otherwise.
    pub gid: u32,
    /// Further groups.
    #[xdr(max = CALLER_GROUPS_MAX)]
    pub groups: Vec<u32>,
    /// Not whom the credential named: squashed, or served by a server that is an ordinary user.
    pub is_mapped: bool,
    /// Nothing may be changed here.
    pub is_read_only: bool,
}

/// BYE: the client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ByeArgs {
    /// Whose.
    pub ticket: Ticket,
}

/// SAMEHOST: where client and server may meet, if they share a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SameHostArgs {
    /// Whose.
    pub ticket: Ticket,
}

/// What SAMEHOST gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SameHostOk<'a> {
    /// The server's socket, as its own host names it.
    #[xdr(max = SAME_HOST_PATH_BYTES_MAX)]
    pub path: &'a [u8],
    /// To be said there, once: who knows it is the client that asked.
    pub nonce: [u8; 16],
}

numbered! {
    /// What a descriptor is for.
    LendHow {
        Read = 0, "READ", "To read by, while the client holds `FILE_S`.";
        Write = 1, "WRITE", "To read and write by, while the client holds `FILE_X`.";
        Path = 2, "PATH", "To be opened anew, as a process of the host opens a file: an `O_PATH` descriptor.";
    }
}

/// DESCRIPTOR: a descriptor of a regular file, which then waits at the server's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DescriptorArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// Of which file.
    pub handle: Handle<'a>,
    /// For what.
    pub how: LendHow,
}

/// What DESCRIPTOR gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DescriptorOk {
    /// To be said at the socket, once, by the client that asked.
    pub token: [u8; 16],
}

/// NAMELESS: a regular file without a name, as if it were made in a directory. The server keeps it for a moment, until the
/// client has it open; from then on for as long as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NamelessArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// The directory that it has its file system, group, access list and project from.
    pub dir: Handle<'a>,
    /// Its attributes.
    pub set: SetAttrs,
}

/// What NAMELESS gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NamelessOk<'a> {
    /// The file.
    pub handle: Handle<'a>,
    /// How it looks: without links.
    pub attrs: Attrs,
}

numbered! {
    /// One of an object's two access lists.
    WhichList {
        Access = 0, "ACCESS", "Who may do what with it.";
        Default = 1, "DEFAULT", "Of a directory: what is handed on to what is made in it.";
    }
}

impl WhichList {
    /// The extended attribute that it is on Linux.
    #[must_use]
    pub const fn xattr(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }
}

/// ACCESS_LIST: a list beside the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AccessListArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// Of what.
    pub handle: Handle<'a>,
    /// Which.
    pub which: WhichList,
}

/// What ACCESS_LIST gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AccessListOk<'a> {
    /// As Linux has it in an extended attribute: version 2, numbers little-endian. Empty where there is none.
    #[xdr(max = XATTR_VALUE_BYTES_MAX)]
    pub list: &'a [u8],
}

/// POOL: files for creates to come in a directory, each known by handle and number before it has a name. Those that are not
/// needed any more are given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct PoolArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// The directory in which they are to be made.
    pub dir: Handle<'a>,
    /// How many are wanted; 0 to give back only.
    pub count: u32,
    /// What is given back, of whatever directory.
    #[xdr(max = CAPS_ITEMS_MAX)]
    pub back: Vec<Handle<'a>>,
}

/// What POOL gives: as many as there is room for, perhaps none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct PoolOk<'a> {
    /// For the operation PLACE of a batch.
    #[xdr(max = CAPS_POOL_CALL_MAX)]
    pub files: Vec<Pooled<'a>>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Pooled<'a> {
    /// The file.
    pub handle: Handle<'a>,
    /// Its number, as its attributes will have it.
    pub fileid: u64,
}

/// The callback RECALL: asks capabilities back. Answered at once; a RELEASE of each item follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RecallArgs<'a> {
    /// As HELLO gave it: another is of no concern any more.
    pub epoch: u64,
    /// Of what.
    #[xdr(max = CAPS_ITEMS_MAX)]
    pub items: Vec<RecallItem<'a>>,
}

/// One object of a RECALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RecallItem<'a> {
    /// The object.
    pub handle: Handle<'a>,
    /// What may stay, at most.
    pub keep: CapSet,
    /// This recall's number.
    pub seq: u64,
}

/// The callback STABLE: a hint that spares the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StableHint {
    /// As HELLO gave it.
    pub epoch: u64,
    /// The last transaction of which all is durable.
    pub through: TxnId,
}
