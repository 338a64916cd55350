//! 4.0's sequence numbers of owners (RFC 7530 section 9.1.7), as an adapter around operations that know nothing of
//! them: `begin_owner` before, `end_owner` after.

use holdfast_base::limits::{OWNER_REPLY_BYTES_MAX, OWNER_SKIPPED_MAX};
use holdfast_base::{ClientId, FileKey, Instant, Seqid};
use serde::{Deserialize, Serialize};

use crate::check::Caller;
use crate::engine::{Engine, Kind, OwnerKey, Standing, StateKey};
use crate::error::StateError;
use crate::names::Dialect;
use crate::owner::OwnerKind;
use crate::stateid::{StateId, StateIdForm};

/// The operations that carry an owner's sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerOp {
    /// OPEN.
    Open,
    /// `OPEN_CONFIRM`.
    OpenConfirm,
    /// `OPEN_DOWNGRADE`.
    OpenDowngrade,
    /// CLOSE.
    Close,
    /// LOCK.
    Lock,
    /// LOCKU.
    Unlock,
}

/// How an operation names the owner whose sequence number it carries.
#[derive(Clone, Copy, Debug)]
pub enum OwnerOf<'a> {
    /// By name: OPEN.
    Open {
        /// The client.
        client: ClientId,
        /// The open-owner.
        name: &'a [u8],
    },
    /// By something it holds: all others. LOCK with a new lock-owner names the open, and the open's sequence
    /// number is the one that counts.
    Stateid(StateId),
}

/// What is to be done with an operation.
#[derive(Debug, PartialEq, Eq)]
pub enum OwnerTurn {
    /// Execute it, then call `end_owner`, whatever came of it.
    Run(OwnerTicket),
    /// It was executed: send this result of the operation again.
    Replay(Vec<u8>),
    /// An operation of this owner runs: answer `NFS4ERR_DELAY`, or park.
    Busy,
}

/// Leave to execute one operation of an owner.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an owner stays busy until end_owner"]
pub struct OwnerTicket {
    owner: OwnerKey,
    seqid: Seqid,
    op: OwnerOp,
}

/// Where one owner stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnerSequence {
    /// Of the last operation executed; `None` when nothing was, so that any number may begin.
    #[serde(with = "crate::plain")]
    last: Option<(Seqid, OwnerOp)>,
    #[serde(with = "crate::plain::bytes")]
    reply: Vec<u8>,
    running: bool,
    /// Operations begun: a client sends one only when it has the reply to the one before.
    #[serde(default)]
    turns: u64,
    /// An open-owner: OPEN_CONFIRM was said. A lock-owner is born confirmed, as its open is.
    pub(crate) is_confirmed: bool,
    /// An open-owner: it has reclaimed an open.
    #[serde(default)]
    pub(crate) has_reclaimed: bool,
}

impl OwnerSequence {
    pub(crate) fn new(kind: OwnerKind) -> Self {
        Self {
            last: None,
            reply: Vec::new(),
            running: false,
            turns: 0,
            is_confirmed: kind == OwnerKind::Lock,
            has_reclaimed: false,
        }
    }

    pub(crate) const fn is_running(&self) -> bool {
        self.running
    }

    /// The operation that runs, to be told from all others of this owner.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.running.then_some(self.turns)
    }

    /// Whether the client has sent another operation since, and so has the reply to that one.
    pub(crate) const fn has_gone_on_from(&self, turn: u64) -> bool {
        self.turns > turn
    }

    fn judge(&mut self, seqid: Seqid, op: OwnerOp) -> Result<Turn, StateError> {
        if self.running {
            return Ok(Turn::Busy);
        }
        match self.last {
            None => {}
            Some((last, last_op)) if last == seqid => {
                return if last_op == op { Ok(Turn::Replay) } else { Err(StateError::BadSeqid) };
            }
            // An unconfirmed owner that opens again has lost its first reply: it begins anew (section 16.18.5).
            Some(_) if !self.is_confirmed && op == OwnerOp::Open => {}
            // Clients may or may not skip 0 at the wrap (section 9.1.3).
            Some((last, _)) if last.next() == seqid || last.next_nonzero() == seqid => {}
            Some((last, _)) if self.has_reclaimed && is_little_ahead(last, seqid) => {}
            Some(_) => return Err(StateError::BadSeqid),
        }
        self.running = true;
        self.turns += 1;
        Ok(Turn::Run)
    }

    /// A lock-owner first named, or named anew, in a LOCK that its open's sequence number guards.
    pub(crate) fn begin_at(&mut self, seqid: Seqid) {
        self.last = Some((seqid, OwnerOp::Lock));
        self.reply.clear();
    }

    /// Whether a LOCK that names an existing lock-owner as new carries its next number.
    pub(crate) fn is_next(&self, seqid: Seqid) -> bool {
        self.last.is_none_or(|(last, _)| last.next() == seqid || last.next_nonzero() == seqid)
    }
}

/// Linux loses count while it recovers: a LOCK that began when its lock-owner was not reclaimed yet is sent with the reclaimed
/// state, without the open-owner's number, and its reply counts one up all the same (`nfs4_lock_prepare` leaves
/// `res.open_seqid` behind when it finds no slot and is begun again; 6.1 and 7.3 alike). To refuse what follows, as
/// section 9.1.7 has it, is EIO to a program that has done nothing wrong: SQLite, which asks for one lock while it has another.
/// What is behind stays refused, and a client sends a number only when the one before was answered: nothing is run twice.
const fn is_little_ahead(last: Seqid, seqid: Seqid) -> bool {
    let skipped = seqid.0.wrapping_sub(last.next().0);
    skipped <= OWNER_SKIPPED_MAX
}

enum Turn {
    Run,
    Replay,
    Busy,
}

impl Engine {
    /// Judges the sequence number of a 4.0 operation.
    ///
    /// # Errors
    /// `BadSeqid`; those of an unknown client or stateid; `Resource` when the owner would be one too many.
    pub fn begin_owner(
        &mut self,
        of: OwnerOf<'_>,
        seqid: Seqid,
        op: OwnerOp,
        now: Instant,
    ) -> Result<OwnerTurn, StateError> {
        let owner = match of {
            OwnerOf::Open { client, name } => {
                self.live_client(client, Dialect::V40, now)?;
                self.owner_for(client, OwnerKind::Open, name, now)?
            }
            OwnerOf::Stateid(stateid) => self.owner_of_stateid(stateid, now)?,
        };
        let Some(of) = self.owners.get_mut(owner.0) else { return Err(StateError::BadStateid) };
        of.used_at = now;
        let Some(sequence) = &mut of.sequence else { return Err(StateError::BadStateid) };
        let is_anew =
            op == OwnerOp::Open && !sequence.is_confirmed && sequence.last.is_some_and(|(n, _)| n != seqid);
        match sequence.judge(seqid, op)? {
            Turn::Busy => Ok(OwnerTurn::Busy),
            Turn::Replay => Ok(OwnerTurn::Replay(sequence.reply.clone())),
            Turn::Run => {
                if is_anew {
                    self.drop_states_of(owner, now);
                } else {
                    self.forget_last_closed(owner, now);
                }
                Ok(OwnerTurn::Run(OwnerTicket { owner, seqid, op }))
            }
        }
    }

    /// Ends an operation of an owner. `reply`: the operation's result, kept for a retry; `None` when it failed in
    /// a way that does not step the sequence number (RFC 7530 section 9.1.7: `STALE_CLIENTID`, `STALE_STATEID`,
    /// `BAD_STATEID`, `BAD_SEQID`, `BADXDR`, `RESOURCE`, `NOFILEHANDLE`, `MOVED`). A reply longer than
    /// [`OWNER_REPLY_BYTES_MAX`] is kept as an empty one.
    pub fn end_owner(&mut self, ticket: &OwnerTicket, reply: Option<&[u8]>) {
        let OwnerTicket { owner, seqid, op } = *ticket;
        let Some(sequence) = self.owners.get_mut(owner.0).and_then(|owner| owner.sequence.as_mut()) else {
            return;
        };
        sequence.running = false;
        if let Some(reply) = reply {
            sequence.last = Some((seqid, op));
            sequence.reply.clear();
            if reply.len() <= OWNER_REPLY_BYTES_MAX {
                sequence.reply.extend_from_slice(reply);
            }
        }
    }

    /// OPEN_CONFIRM (RFC 7530 section 16.18).
    ///
    /// # Errors
    /// Those of a stateid; `BadStateid` also when there is nothing to confirm.
    pub fn open_confirm(
        &mut self,
        stateid: StateId,
        file: FileKey,
        now: Instant,
    ) -> Result<StateId, StateError> {
        let key = self.resolve_unconfirmed(Caller::V40, stateid, file, now)?;
        let state = self.state(key)?;
        if !matches!(state.kind, Kind::Open(_)) {
            return Err(StateError::BadStateid);
        }
        let owner = state.owner.ok_or(StateError::BadStateid)?;
        let sequence = self.owners.get_mut(owner.0).and_then(|owner| owner.sequence.as_mut());
        let sequence = sequence.ok_or(StateError::BadStateid)?;
        if std::mem::replace(&mut sequence.is_confirmed, true) {
            return Err(StateError::BadStateid);
        }
        self.bump(key)
    }

    /// The owner behind a stateid of any age: its seqid is judged after the owner's number (section 9.1.9).
    fn owner_of_stateid(&mut self, stateid: StateId, now: Instant) -> Result<OwnerKey, StateError> {
        if stateid.form() != StateIdForm::Ordinary {
            return Err(StateError::BadStateid);
        }
        let key = self.locate(Caller::V40, stateid)?;
        let state = self.state(key)?;
        let (owner, client) = (state.owner.ok_or(StateError::BadStateid)?, state.client);
        self.live_client(client, Dialect::V40, now)?;
        Ok(owner)
    }

    /// A new operation of an owner: its last CLOSE cannot be retried any more.
    fn forget_last_closed(&mut self, owner: OwnerKey, now: Instant) {
        let closed = self.owners.get_mut(owner.0).and_then(|owner| owner.last_closed.take());
        if let Some(state) = closed {
            self.drop_state(state, now);
        }
    }

    fn drop_states_of(&mut self, owner: OwnerKey, now: Instant) {
        let Some(of) = self.owners.get_mut(owner.0) else { return };
        of.last_closed = None;
        let client = of.client;
        let Some(client) = self.clients.by_id.get(&client) else { return };
        let is_its = |key: &&StateKey| self.states.get(key.0).is_some_and(|state| state.owner == Some(owner));
        let states: Vec<_> = client.states.iter().filter(is_its).copied().collect();
        for state in states {
            self.drop_state(state, now);
        }
    }

    /// Leaves the name of a state that a 4.0 client closed, for a retry of CLOSE.
    pub(crate) fn remember_closed(&mut self, key: StateKey, now: Instant) -> Result<(), StateError> {
        let owner = self.state(key)?.owner.ok_or(StateError::BadStateid)?;
        self.detach(key, Standing::Closed, now);
        let former = self.owners.get_mut(owner.0).and_then(|owner| owner.last_closed.replace(key));
        if let Some(former) = former.filter(|former| *former != key) {
            self.drop_state(former, now);
        }
        Ok(())
    }
}
