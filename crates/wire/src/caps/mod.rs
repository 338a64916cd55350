//! The caps program: what a Holdfast mount and server say to each other beside NFSv4.1. `docs/design/caps-protocol.md`
//! is the specification.

mod batch;
mod calls;
mod status;
mod types;

pub use batch::{
    Appended, BatchArgs, BatchHow, BatchOk, BatchOp, BatchOpKind, DirState, ForcedOk, IfTaken, Made,
    OpResult, Ref, RenameHow, SetXattrHow, Until,
};
pub use calls::{
    AccessListArgs, AccessListOk, AcquireArgs, AcquireItem, AcquireOk, Acquired, ByeArgs, DescriptorArgs,
    DescriptorOk, FailedOp, FindOk, HelloArgs, HelloOk, LendHow, ListArgs, ListEntry, ListOk, Looked,
    LookupArgs, LookupOk, NamePromise, NamelessArgs, NamelessOk, NodeAt, PoolArgs, PoolOk, Pooled,
    RecallArgs, RecallItem, ReclaimArgs, ReclaimItem, ReleaseArgs, ReleaseItem, ReleaseOk, SameHostArgs,
    SameHostOk, StableArgs, StableHint, StableOk, WhichList, WhoAmIArgs, WhoAmIOk,
};
pub use holdfast_base::CapSet;
pub use status::CapsStat;
pub use types::{
    Attrs, Features, Grant, GrantFlags, Handle, Limits, NodeKind, Res, SetAttrs, SetTime, Ticket, Time, TxnId,
};

use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

/// `sr_status_flags` of SEQUENCE, told to clients of this program alone: what they hold may soon be taken from them. A bit that
/// RFC 8881 section 18.46.3 leaves free.
pub const SEQ4_STATUS_CAPS_IN_DOUBT: u32 = 0x4000_0000;

/// The caps program, which the client calls.
pub const CAPS_PROGRAM: u32 = 0x2048_4643;
/// Its version.
pub const CAPS_V1: u32 = 1;
/// The program that the server calls, over the connections on which the client said HELLO.
pub const CAPS_CALLBACK_PROGRAM: u32 = 0x2048_4644;
/// Its version.
pub const CAPS_CALLBACK_V1: u32 = 1;

numbered! {
    /// A procedure's number. All but NULL give a [`Res`] of what is named here.
    CapsProc {
        Null = 0, "NULL", "Does nothing.";
        Hello = 1, "HELLO", "`HelloArgs` to `HelloOk`.";
        Acquire = 2, "ACQUIRE", "`AcquireArgs` to `AcquireOk`.";
        Release = 3, "RELEASE", "`ReleaseArgs` to `ReleaseOk`.";
        Lookup = 4, "LOOKUP", "`LookupArgs` to `LookupOk`.";
        List = 5, "LIST", "`ListArgs` to `ListOk`.";
        Batch = 6, "BATCH", "`BatchArgs` to `BatchOk`, or `ForcedOk`.";
        Stable = 7, "STABLE", "`StableArgs` to `StableOk`.";
        Reclaim = 8, "RECLAIM", "`ReclaimArgs` to `AcquireOk`.";
        WhoAmI = 9, "WHOAMI", "`WhoAmIArgs` to `WhoAmIOk`.";
        Pool = 10, "POOL", "`PoolArgs` to `PoolOk`.";
        Bye = 11, "BYE", "`ByeArgs` to nothing: everything is given back.";
        SameHost = 12, "SAMEHOST", "`SameHostArgs` to `SameHostOk`.";
        Descriptor = 13, "DESCRIPTOR", "`DescriptorArgs` to `DescriptorOk`.";
        Nameless = 14, "NAMELESS", "`NamelessArgs` to `NamelessOk`.";
        Find = 15, "FIND", "`LookupArgs` to `FindOk`: a name, which may be promised by itself.";
        AccessList = 16, "ACCESS_LIST", "`AccessListArgs` to `AccessListOk`.";
    }
}

numbered! {
    /// A procedure of the callback program. All are answered at once, with nothing.
    CapsCallbackProc {
        Null = 0, "NULL", "Does nothing.";
        Recall = 1, "RECALL", "`RecallArgs`.";
        Stable = 2, "STABLE", "`StableHint`.";
    }
}
