//! Why the engine refuses. Each variant is one `NFS4ERR_*` of RFC 8881 section 15.1 or RFC 7530 section 13.1;
//! the conversion lives with the protocol.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A refusal by the state engine. Nothing was changed by the call that returns it, except that clients whose
/// lease had run out may have been expired on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
pub enum StateError {
    /// `NFS4ERR_BAD_STATEID`: names nothing, or not what the operation needs, or has a seqid from the future.
    #[error("stateid names no state of this client and file")]
    BadStateid,
    /// `NFS4ERR_OLD_STATEID`: its seqid was overtaken.
    #[error("stateid is older than the state it names")]
    OldStateid,
    /// `NFS4ERR_STALE_STATEID`: made by an earlier server instance (4.0 only).
    #[error("stateid was made before the server restarted")]
    StaleStateid,
    /// `NFS4ERR_EXPIRED`: the lease it lived under ran out.
    #[error("the client's lease ran out and its state was released")]
    Expired,
    /// `NFS4ERR_ADMIN_REVOKED`: the administrator took the state away.
    #[error("state was revoked by the administrator")]
    AdminRevoked,
    /// `NFS4ERR_DELEG_REVOKED`: the delegation was not returned in time (4.1 and later; 4.0 hears `Expired`).
    #[error("delegation was revoked")]
    DelegRevoked,
    /// `NFS4ERR_DEADLOCK`: waiting for the lock would never end.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// `NFS4ERR_STALE_CLIENTID`: no such client, or one of an earlier server instance.
    #[error("client id is not known to this server instance")]
    StaleClientid,
    /// `NFS4ERR_CLID_INUSE`: the client's name belongs to another principal.
    #[error("client name is in use by another principal")]
    ClidInuse,
    /// `NFS4ERR_NOENT`: an update of a client record that is not there.
    #[error("no confirmed client record to update")]
    NoEnt,
    /// `NFS4ERR_NOT_SAME`: an update with another incarnation's verifier.
    #[error("client record belongs to another incarnation")]
    NotSame,
    /// `NFS4ERR_PERM`: an update by another principal.
    #[error("client record belongs to another principal")]
    Perm,
    /// `NFS4ERR_CLIENTID_BUSY`: the client still has sessions or state.
    #[error("client still has sessions or state")]
    ClientidBusy,
    /// `NFS4ERR_COMPLETE_ALREADY`: RECLAIM_COMPLETE was said before.
    #[error("reclaim was already complete")]
    CompleteAlready,
    /// `NFS4ERR_BADSESSION`: no such session.
    #[error("no such session")]
    BadSession,
    /// `NFS4ERR_BADSLOT`: slot beyond the session's table.
    #[error("slot is beyond the session's slot table")]
    BadSlot,
    /// `NFS4ERR_BAD_HIGH_SLOT`: the request's own slot lies above its highest slot.
    #[error("highest slot is below the slot in use, or beyond the table")]
    BadHighSlot,
    /// `NFS4ERR_SEQ_MISORDERED`: neither the next request on the slot nor a retry of the last.
    #[error("sequence id is neither the next nor the last")]
    SeqMisordered,
    /// `NFS4ERR_SEQ_FALSE_RETRY`: the sequence of a retry on another request.
    #[error("sequence id of the last request on a different request")]
    SeqFalseRetry,
    /// `NFS4ERR_RETRY_UNCACHED_REP`: a retry whose reply was not kept.
    #[error("reply to the retried request was not kept")]
    RetryUncachedRep,
    /// `NFS4ERR_TOOSMALL`: channel attributes with which nothing could be sent.
    #[error("channel attributes too small to be of use")]
    TooSmall,
    /// `NFS4ERR_BAD_SEQID`: a 4.0 owner's sequence number out of order.
    #[error("owner sequence id is neither the next nor the last")]
    BadSeqid,
    /// `NFS4ERR_GRACE`: only reclaims are served now.
    #[error("only reclaims are served during grace")]
    Grace,
    /// `NFS4ERR_NO_GRACE`: a reclaim outside grace, or after the client said it was done.
    #[error("reclaims are not served now")]
    NoGrace,
    /// `NFS4ERR_RECLAIM_BAD`: a reclaim by a client without a record.
    #[error("client is not recorded as one that may reclaim")]
    ReclaimBad,
    /// `NFS4ERR_RECLAIM_CONFLICT`: a reclaim against somebody else's state.
    #[error("reclaim conflicts with state held by another")]
    ReclaimConflict,
    /// `NFS4ERR_SHARE_DENIED`: conflicts with a share reservation.
    #[error("denied by a share reservation")]
    ShareDenied,
    /// `NFS4ERR_LOCKED`: I/O against a share reservation.
    #[error("I/O denied by a share reservation")]
    Locked,
    /// `NFS4ERR_LOCKS_HELD`: the state still holds locks.
    #[error("byte-range locks are still held")]
    LocksHeld,
    /// `NFS4ERR_OPENMODE`: the open does not allow this.
    #[error("not allowed by the mode of the open")]
    OpenMode,
    /// `NFS4ERR_INVAL`: arguments that contradict each other or the state.
    #[error("arguments do not fit the state")]
    Inval,
    /// `NFS4ERR_RESOURCE` (4.0) or `NFS4ERR_DELAY` (4.1+, which has no RESOURCE): a named limit is reached.
    #[error("a limit on state is reached")]
    Resource,
    /// `NFS4ERR_DELAY`: another request is at work on this state; ask again.
    #[error("state is busy, ask again")]
    Delay,
}
