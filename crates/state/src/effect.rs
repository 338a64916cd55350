//! What the edge must do after it has let go of the engine, and before it replies.

use holdfast_base::{ClientId, FileKey, SessionId};

use crate::image::ClientImage;
use crate::names::{LockToken, OpenId, OwnerName};

/// One thing to do. The order of effects is the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Close this backend descriptor: no open uses it any more.
    CloseFile(OpenId),
    /// Give up every backend lock kept under this token, by closing its descriptor. There may be none.
    ReleaseLocks(LockToken),
    /// Put this record on stable storage before the reply leaves: the client may reclaim after a restart.
    PersistClient(ClientImage),
    /// The record of this client is not needed any more.
    ForgetClient(ClientId),
    /// The client has reclaimed all it wants to (RECLAIM_COMPLETE).
    ReclaimDone(ClientId),
    /// Tell the client that a lock it waits for can be had now (CB_NOTIFY_LOCK): it asks again.
    NotifyLock {
        /// Who waits.
        client: ClientId,
        /// On which file.
        file: FileKey,
        /// For which lock-owner.
        owner: OwnerName,
    },
    /// The session is gone: wake its parked requests, drop its back channel and its journal.
    SessionGone(SessionId),
}
