//! The network lock manager, version 4 (RFC 1813 appendix II, X/Open XNFS): locks of NFSv3 clients.

use holdfast_base::limits::{NLM_NAME_BYTES_MAX, NLM_OBJECT_BYTES_MAX};
use holdfast_base::{Length, Offset};
use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

/// The lock manager's program.
pub const NLM_PROGRAM: u32 = 100_021;
/// Its version for NFSv3.
pub const NLM_V4: u32 = 4;

numbered! {
    /// A procedure's number. A `_MSG` returns nothing; its result comes as a call of the `_RES` back.
    NlmProc4 {
        Null = 0, "NULL", "Does nothing.";
        Test = 1, "TEST", "`TestArgs4` to `TestRes4`.";
        Lock = 2, "LOCK", "`LockArgs4` to `NlmRes4`.";
        Cancel = 3, "CANCEL", "`CancelArgs4` to `NlmRes4`.";
        Unlock = 4, "UNLOCK", "`UnlockArgs4` to `NlmRes4`.";
        Granted = 5, "GRANTED", "`TestArgs4` to `NlmRes4`; called by the server.";
        TestMsg = 6, "TEST_MSG", "`TestArgs4`.";
        LockMsg = 7, "LOCK_MSG", "`LockArgs4`.";
        CancelMsg = 8, "CANCEL_MSG", "`CancelArgs4`.";
        UnlockMsg = 9, "UNLOCK_MSG", "`UnlockArgs4`.";
        GrantedMsg = 10, "GRANTED_MSG", "`TestArgs4`; called by the server.";
        TestRes = 11, "TEST_RES", "`TestRes4`.";
        LockRes = 12, "LOCK_RES", "`NlmRes4`.";
        CancelRes = 13, "CANCEL_RES", "`NlmRes4`.";
        UnlockRes = 14, "UNLOCK_RES", "`NlmRes4`.";
        GrantedRes = 15, "GRANTED_RES", "`NlmRes4`; called by the client.";
        Share = 20, "SHARE", "`ShareArgs4` to `ShareRes4`.";
        Unshare = 21, "UNSHARE", "`ShareArgs4` to `ShareRes4`.";
        NmLock = 22, "NM_LOCK", "`LockArgs4` to `NlmRes4`: a lock that is not monitored.";
        FreeAll = 23, "FREE_ALL", "`Notify4` to nothing: the client restarted.";
    }
}

numbered! {
    /// `nlm4_stats`.
    NlmStat4 {
        Granted = 0, "NLM4_GRANTED", "Done.";
        Denied = 1, "NLM4_DENIED", "A lock is in the way.";
        DeniedNoLocks = 2, "NLM4_DENIED_NOLOCKS", "The server ran out of something.";
        Blocked = 3, "NLM4_BLOCKED", "It will be granted later.";
        DeniedGracePeriod = 4, "NLM4_DENIED_GRACE_PERIOD", "The server is in its grace period.";
        Deadlck = 5, "NLM4_DEADLCK", "Waiting would deadlock.";
        Rofs = 6, "NLM4_ROFS", "The file system is read-only.";
        StaleFh = 7, "NLM4_STALE_FH", "The handle is stale.";
        Fbig = 8, "NLM4_FBIG", "The range is beyond what the server can hold.";
        Failed = 9, "NLM4_FAILED", "The server failed.";
    }
}

/// `nlm4_lock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NlmLock4<'a> {
    /// The client's name.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub caller_name: &'a [u8],
    /// The file.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub fh: &'a [u8],
    /// The owner.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub oh: &'a [u8],
    /// The owner's process.
    pub svid: i32,
    /// Where it begins.
    pub offset: Offset,
    /// Bytes; 0 to the end.
    pub length: Length,
}

/// `nlm4_holder`: the lock in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Holder4<'a> {
    /// Exclusive.
    pub exclusive: bool,
    /// The owner's process.
    pub svid: i32,
    /// The owner.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub oh: &'a [u8],
    /// Where it begins.
    pub offset: Offset,
    /// Bytes; 0 to the end.
    pub length: Length,
}

/// `nlm4_testrply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum TestReply4<'a> {
    /// Such a lock is in the way.
    #[xdr(case = NlmStat4::Denied as u32)]
    Denied(Holder4<'a>),
    /// Another [`NlmStat4`].
    #[xdr(default)]
    Other(u32),
}

/// `nlm4_testres`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct TestRes4<'a> {
    /// The call's.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// What came of it.
    pub reply: TestReply4<'a>,
}

/// `nlm4_res`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NlmRes4<'a> {
    /// The call's.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// What came of it.
    pub stat: NlmStat4,
}

/// `nlm4_lockargs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LockArgs4<'a> {
    /// Repeated in the result.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// Wait for it.
    pub block: bool,
    /// Exclusive.
    pub exclusive: bool,
    /// Which.
    pub lock: NlmLock4<'a>,
    /// Reclaimed after a restart of the server.
    pub reclaim: bool,
    /// The client's state of NSM.
    pub state: i32,
}

/// `nlm4_cancargs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CancelArgs4<'a> {
    /// Repeated in the result.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// As in the lock.
    pub block: bool,
    /// As in the lock.
    pub exclusive: bool,
    /// Which.
    pub lock: NlmLock4<'a>,
}

/// `nlm4_testargs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct TestArgs4<'a> {
    /// Repeated in the result.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// Exclusive.
    pub exclusive: bool,
    /// Which.
    pub lock: NlmLock4<'a>,
}

/// `nlm4_unlockargs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct UnlockArgs4<'a> {
    /// Repeated in the result.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// Which.
    pub lock: NlmLock4<'a>,
}

/// `nlm4_share`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Share4<'a> {
    /// The client's name.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub caller_name: &'a [u8],
    /// The file.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub fh: &'a [u8],
    /// The owner.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub oh: &'a [u8],
    /// What others may not do (`fsh4_mode`): 1 read, 2 write.
    pub mode: u32,
    /// What the owner does (`fsh4_access`): 1 read, 2 write.
    pub access: u32,
}

/// `nlm4_shareargs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ShareArgs4<'a> {
    /// Repeated in the result.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// Which.
    pub share: Share4<'a>,
    /// Reclaimed after a restart of the server.
    pub reclaim: bool,
}

/// `nlm4_shareres`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ShareRes4<'a> {
    /// The call's.
    #[xdr(max = NLM_OBJECT_BYTES_MAX)]
    pub cookie: &'a [u8],
    /// What came of it.
    pub stat: NlmStat4,
    /// Of no use.
    pub sequence: i32,
}

/// `nlm4_notify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Notify4<'a> {
    /// The client's name.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub name: &'a [u8],
    /// Its new state.
    pub state: i32,
}
