//! What the edge must do after it has let go of the engine, and before it replies.

use holdfast_base::{ByteRange, CapSet, ClientId, FileKey, SessionId, SlotId};

use crate::deed::DelegationKind;
use crate::delegation::DelegationToken;
use crate::foreign::ForeignOwner;
use crate::image::ClientImage;
use crate::lock_set::LockKind;
use crate::names::{LockToken, OpenId, OwnerName};
use crate::stateid::StateId;

/// One thing to do. The order of effects is the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Close this backend descriptor: no open uses it any more.
    CloseFile(OpenId),
    /// Give up every backend lock kept under this token, by closing its descriptor. There may be none.
    ReleaseLocks(LockToken),
    /// Let go of what this client's locks hold against local processes, unless by then they are to hold again
    /// ([`Engine::are_locks_aside`](crate::Engine::are_locks_aside)).
    LocksAside {
        /// Whose lease has run out.
        client: ClientId,
    },
    /// Have them hold again, revoke those that cannot be had, and call `locks_are_back`.
    LocksWanted {
        /// Who is back.
        client: ClientId,
    },
    /// Put this record on stable storage before the reply leaves: the client may reclaim after a restart.
    PersistClient(ClientImage),
    /// This client, whose record is on stable storage, is back: who keeps the records hears of it before the reply leaves.
    ClientReturned(ClientImage),
    /// The client has said that it goes (DESTROY_CLIENTID): it believes nothing any more. Its record is forgotten next.
    ClientLeft(ClientId),
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
    /// Ask a delegation back (CB_RECALL), then call `recall_answered`. Comes again while that says it did not arrive.
    Recall {
        /// Whose.
        client: ClientId,
        /// Which.
        token: DelegationToken,
        /// Its name.
        stateid: StateId,
        /// Of what.
        file: FileKey,
        /// The file is about to be cut to nothing: the holder need not flush.
        truncates: bool,
    },
    /// A delegation is over (returned, revoked, expired), or an offer of one was overtaken: drop what was promised
    /// for it elsewhere, wake who waits for it.
    DelegationEnded {
        /// Which.
        token: DelegationToken,
        /// Of what.
        file: FileKey,
        /// Whose it was.
        client: ClientId,
        /// What it was.
        kind: DelegationKind,
    },
    /// Ask a client for capabilities, then call `caps_recall_answered`. Comes again, under another number, while that says
    /// that it did not arrive.
    CapRecall {
        /// Whose.
        client: ClientId,
        /// Of what.
        file: FileKey,
        /// What may stay.
        keep: CapSet,
        /// The recall's number.
        seq: u64,
    },
    /// A client holds less of an object than it did: released, revoked or expired. What was promised elsewhere beyond
    /// that is to be dropped, and who waits for it woken.
    CapsLeft {
        /// Whose.
        client: ClientId,
        /// Of what.
        file: FileKey,
        /// What is left.
        held: CapSet,
    },
    /// A client did not release in time what it was asked for: for people to know; what follows of it comes by other effects.
    CapRecallOver {
        /// Who.
        client: ClientId,
        /// Of what.
        file: FileKey,
        /// What it was to release.
        what: CapSet,
        /// Milliseconds since it was first asked.
        waited_ms: u64,
        /// It has answered that it knows.
        is_heard: bool,
    },
    /// A client has lost all its capabilities, or is gone: whatever it says under its former name for them is to be refused.
    CapsLost {
        /// Who.
        client: ClientId,
    },
    /// A client was deprived of something it had of a file: a delegation not returned in time, or whatever the
    /// administrator took. To be on stable storage before the effects behind it are run, and before the reply leaves:
    /// after a restart the client, who may not have heard of it, must not reclaim (RFC 8881 section 8.4.3).
    StateRevoked {
        /// Whom.
        client: ClientId,
        /// Of what.
        file: FileKey,
    },
    /// A client has acknowledged every revocation (FREE_STATEID; in 4.0 DELEGRETURN): it believes no more than it has.
    RevocationsAcknowledged {
        /// Who.
        client: ClientId,
    },
    /// Ask a client to give some delegations back, of its own choice (CB_RECALL_ANY).
    RecallAny {
        /// Whom.
        client: ClientId,
        /// How many it may keep.
        keep: u32,
        /// Whether delegations of files are meant.
        files: bool,
        /// Whether delegations of directories are meant.
        directories: bool,
    },
    /// Ask a client to use fewer slots (CB_RECALL_SLOT); SEQUENCE replies say so as well.
    RecallSlots {
        /// In which session.
        session: SessionId,
        /// The highest slot it may use.
        target: SlotId,
    },
    /// Tell a client that delegations it was refused may be had now (CB_RECALLABLE_OBJ_AVAIL).
    ObjectAvailable {
        /// Whom.
        client: ClientId,
    },
    /// A delegation that a client wants can be had: prepare it, offer it (CB_PUSH_DELEG), commit it when taken.
    PushDelegation {
        /// Whom.
        client: ClientId,
        /// Of what.
        file: FileKey,
        /// Which.
        kind: DelegationKind,
    },
    /// Wishes of a client were dropped and will not be fulfilled (CB_WANTS_CANCELLED).
    WantsCancelled {
        /// Whose.
        client: ClientId,
        /// Some that waited to be given a delegation.
        pushes: bool,
        /// Some that waited to be told of one.
        signals: bool,
    },
    /// The administrator took the locks of a foreign owner on a file: its service gives up the backend's.
    ForeignRevoked {
        /// Whose.
        owner: ForeignOwner,
        /// On which file.
        file: FileKey,
    },
    /// A lock that somebody at another door waited for is held now: take it on the backend and tell its owner, or give
    /// it back with `foreign_unlock`.
    ForeignGranted {
        /// Whose.
        owner: ForeignOwner,
        /// On which file.
        file: FileKey,
        /// Which bytes.
        range: ByteRange,
        /// Shared or exclusive.
        kind: LockKind,
    },
}
