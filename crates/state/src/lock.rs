//! LOCK. A lock is taken in two steps, as the backend must agree: `lock_prepare` reserves the range here
//! without weakening anything the owner has, the edge asks the backend, then `lock_commit` or `lock_abort`.

use holdfast_base::limits::LOCK_HOLDERS_PER_FILE_MAX;
use holdfast_base::{ByteRange, ClientId, FileKey, Instant, Seqid};

use crate::check::Caller;
use crate::deadlock::Circle;
use crate::deed::DelegationKind;
use crate::engine::{Engine, Kind, LockOwnerFile, Standing, State, StateKey};
use crate::error::StateError;
use crate::file::Holder;
use crate::grace::Claim;
use crate::lock_conflict::{Conflict, WantedLock};
use crate::lock_room::Payer;
use crate::lock_set::LockKind;
use crate::names::{LockToken, OwnerName};
use crate::owner::OwnerKind;
use crate::share::Access;
use crate::stateid::{StateId, StateIdForm};
use crate::waiters::{Manner, Party, Waiter};

/// How LOCK names the lock-owner.
#[derive(Clone, Copy, Debug)]
pub enum LockBy<'a> {
    /// By name, with the open it locks through (`open_to_lock_owner4`).
    Open {
        /// The open.
        open: StateId,
        /// The lock-owner.
        owner: &'a [u8],
        /// 4.0: `lock_seqid`, which the lock-owner's numbers begin with; `None` in 4.1 and later.
        first_seqid: Option<Seqid>,
        /// 4.0: the client that the lock-owner is said to be of; in 4.1 and later the session's is.
        client: Option<ClientId>,
    },
    /// By the locks it has (`exist_lock_owner4`).
    Lock(StateId),
}

/// What becomes of a lock that is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The client does not wait, or polls.
    No,
    /// The client waits (READW, WRITEW) and can be notified: it is put in line.
    Notify,
    /// The client waits by asking from time to time: remembered for a while, so that deadlocks are seen.
    Poll,
}

/// The arguments of LOCK.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    /// Whose request.
    pub caller: Caller,
    /// The file.
    pub file: FileKey,
    /// By whom.
    pub by: LockBy<'a>,
    /// Which bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// On what grounds.
    pub claim: Claim,
    /// What becomes of it when denied.
    pub wait: Wait,
}

/// Why a lock is not had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// `NFS4ERR_DENIED`.
    Denied(Conflict),
    /// Anything else.
    Error(StateError),
}

impl From<StateError> for LockRefusal {
    fn from(error: StateError) -> Self {
        Self::Error(error)
    }
}

/// A change of locks under way. The lock-owner can do nothing else with this file until it is committed or
/// aborted, so that the backend sees changes in the order the engine does.
#[derive(Debug)]
#[must_use = "the lock-owner stays busy until commit or abort"]
pub struct LockTicket {
    pub(crate) state: StateKey,
    pub(crate) file: FileKey,
    pub(crate) range: ByteRange,
    /// What the range becomes; `None` for unlocked.
    pub(crate) becomes: Option<LockKind>,
    /// What the owner had within the range.
    pub(crate) before: Vec<(ByteRange, LockKind)>,
    pub(crate) is_new: bool,
    /// 4.0: where the lock-owner's numbers begin, or go on.
    pub(crate) first_seqid: Option<Seqid>,
    pub(crate) access: Access,
}

impl LockTicket {
    /// Under which the backend's locks of this owner on this file are kept.
    #[must_use]
    pub const fn token(&self) -> LockToken {
        self.state.token()
    }

    /// The same, to be taken back for a request that is run again: it has not counted for its lock-owner yet.
    pub fn uncounted(self) -> Self {
        Self { first_seqid: None, ..self }
    }

    /// What the open locked through can do: the lock's descriptor must do no less.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// What the backend is to make of the range: a lock, or `None` to unlock it.
    #[must_use]
    pub const fn becomes(&self) -> Option<LockKind> {
        self.becomes
    }

    /// Which bytes.
    #[must_use]
    pub const fn range(&self) -> ByteRange {
        self.range
    }
}

impl Engine {
    /// What a lock-owner held on a file before a change under way: for the edge to take it once more with another
    /// descriptor.
    #[must_use]
    pub fn held_before(&self, ticket: &LockTicket) -> Vec<(ByteRange, LockKind)> {
        let Some(file) = self.files.get(&ticket.file) else { return ticket.before.clone() };
        let below = ticket.range.first().checked_sub(1).and_then(|last| ByteRange::from_bounds(0, last));
        let above = ticket.range.last().checked_add(1).and_then(|f| ByteRange::from_bounds(f, u64::MAX));
        let outside = below.into_iter().chain(above);
        let outside = outside.flat_map(|part| file.locks.within(Holder::State(ticket.state), part));
        outside.chain(ticket.before.iter().copied()).collect()
    }

    /// What a request would lock through, before it is judged: under which token its owner has locks of the file already, and what
    /// the open can do. `None` where its state id names nothing that it could be.
    #[must_use]
    pub fn locks_through(&self, request: &LockRequest<'_>) -> Option<(Option<LockToken>, Access)> {
        let (open, lock) = match request.by {
            LockBy::Lock(stateid) => {
                let key = self.key_of_stateid(stateid)?;
                let Kind::Lock(lock) = &self.state(key).ok()?.kind else { return None };
                (lock.open, Some(key))
            }
            LockBy::Open { open, owner, .. } => {
                let open = self.key_of_stateid(open)?;
                let owner = self.find_owner(self.state(open).ok()?.client, OwnerKind::Lock, owner);
                (open, owner.and_then(|owner| self.by_owner_file.get(&(owner, request.file)).copied()))
            }
        };
        Some((lock.map(StateKey::token), self.open_of(open).ok()?.obtained.union().access))
    }

    /// Reserves a lock.
    ///
    /// # Errors
    /// `Denied` by the first lock in the way, in which case the request may be put in line. Else those of a
    /// stateid, `StaleClientid` in place of `StaleStateid` where a client with sessions reclaims, `OpenMode`, `Grace`,
    /// `NoGrace`, `ReclaimBad`, `ReclaimConflict`, `BadSeqid`, `Resource`, `Deadlock` when the wait would never end, and
    /// `Delay` while another change of this owner's locks on this file is under way.
    pub fn lock_prepare(
        &mut self,
        request: &LockRequest<'_>,
        now: Instant,
    ) -> Result<LockTicket, LockRefusal> {
        let party = self.locker(request, now).map_err(|e| self.cut_off(request, e))?;
        let prepared = self.lock_prepare_for(&party, request, now);
        if let Err(refusal) = &prepared {
            self.count_refused(&party, refusal);
        }
        prepared
    }

    /// In 4.0 a refused LOCK counts for a lock-owner that it names as new as well, when the server knows that one:
    /// RFC 7530 section 9.1.7 excepts only these errors, and Linux counts so.
    fn count_refused(&mut self, party: &Locker, refusal: &LockRefusal) {
        let is_counted = !matches!(
            refusal,
            LockRefusal::Error(StateError::Resource | StateError::BadStateid | StateError::BadSeqid)
        );
        let known = self.find_owner(party.client, OwnerKind::Lock, party.owner.as_bytes());
        let sequence = known.and_then(|key| self.owners.get_mut(key.0)?.sequence.as_mut());
        if let (true, Some(sequence), Some(first)) = (is_counted, sequence, party.first_seqid) {
            sequence.begin_at(first);
        }
    }

    fn lock_prepare_for(
        &mut self,
        party: &Locker,
        request: &LockRequest<'_>,
        now: Instant,
    ) -> Result<LockTicket, LockRefusal> {
        let needed = match request.kind {
            LockKind::Read => Access::READ,
            LockKind::Write => Access::WRITE,
        };
        let open = self.open_of(party.open)?;
        let access = open.obtained.union().access;
        if !access.contains(needed) {
            return Err(StateError::OpenMode.into());
        }
        let done =
            self.clients.by_id.get(&party.client).and_then(crate::client::ClientIncarnation::is_reclaim_done);
        let is_reclaim = matches!(request.claim, Claim::Reclaim(_));
        let is_again = is_reclaim
            && party.state.is_some_and(|lock| {
                self.has_reclaimed_lock((party.client, lock), request.file, (request.range, request.kind))
            });
        let is_its_own = self.grace.is_on(now)
            && request.claim == Claim::New
            && done != Some(false)
            && self.is_its_own(party, request);
        if !is_again && !is_its_own {
            request.claim.admit(request.file, self.grace, now, done)?;
        }
        let owner = || self.find_owner(party.client, OwnerKind::Lock, party.owner.as_bytes());
        let has_lost = |owner| self.has_lost(party.client, Some(owner), request.file);
        if is_reclaim && owner().is_some_and(has_lost) {
            return Err(StateError::ReclaimConflict.into());
        }
        let wanted = WantedLock {
            file: request.file,
            holder: party.state.map(Holder::State),
            asking: Some((party.client, party.owner.as_bytes())),
            range: request.range,
            kind: request.kind,
        };
        if let Some(conflict) = self.find_conflict(&wanted, now) {
            if is_reclaim {
                return Err(StateError::ReclaimConflict.into());
            }
            if self.is_of_one_leaving(&conflict) {
                return Err(StateError::Delay.into());
            }
            self.wait_in_line(party, request, now)?;
            return Err(LockRefusal::Denied(conflict));
        }
        Ok(self.reserve(party, request, access, now)?)
    }

    /// Whether nobody else can have had what is asked for, so that grace does not stand in its way (RFC 8881 section 8.4.2.1
    /// allows what cannot conflict with a reclaim). The owner has locked all of it, as much or more: a program that has
    /// written goes on to let others read. Or the client has a delegation of the file beside which nobody can have locked
    /// so: its processes' locks it sends before it returns that; refused, it would keep the delegation until grace ends,
    /// and with it whoever waits for that and has not come to the end of his own reclaims.
    fn is_its_own(&self, party: &Locker, request: &LockRequest<'_>) -> bool {
        let (range, kind) = (request.range, request.kind);
        party.state.is_some_and(|lock| self.has_locked(lock, request.file, (range, kind)))
            || match self.holds_delegation(party.client, request.file) {
                Some(DelegationKind::Write) => true,
                // A write lock of others, of any door, would have had it recalled.
                Some(DelegationKind::Read) => kind == LockKind::Read,
                _ => false,
            }
    }

    /// A denied request of a client that waits is remembered.
    fn wait_in_line(
        &mut self,
        locker: &Locker,
        request: &LockRequest<'_>,
        now: Instant,
    ) -> Result<(), StateError> {
        let manner = match request.wait {
            Wait::No => return Ok(()),
            Wait::Notify => Manner::Notified,
            Wait::Poll => Manner::Polls,
        };
        let (file, range, kind) = (request.file, request.range, request.kind);
        let party = Party::Nfs4 { client: locker.client, owner: locker.owner.clone() };
        match self.circle(&party, file, (range, kind), now) {
            Circle::Open => {}
            Circle::Closed => {
                self.forget_waiter(file, &party, ByteRange::ALL, now);
                return Err(StateError::Deadlock);
            }
            // It is denied all the same, and asks again.
            Circle::Unknown => return Ok(()),
        }
        self.enqueue_waiter(file, Waiter { party, range, kind, manner, asked_at: now, kept_until: None });
        Ok(())
    }

    /// Whose locks a request is about.
    fn locker(&mut self, request: &LockRequest<'_>, now: Instant) -> Result<Locker, StateError> {
        let party = match request.by {
            LockBy::Lock(stateid) => {
                let key = self.resolve(request.caller, stateid, request.file, now)?;
                let state = self.state(key)?;
                let Kind::Lock(lock) = &state.kind else { return Err(StateError::BadStateid) };
                let owner = state.owner.and_then(|owner| self.owners.get(owner.0));
                let owner = owner.ok_or(StateError::BadStateid)?.name.clone();
                Locker { client: state.client, owner, open: lock.open, state: Some(key), first_seqid: None }
            }
            LockBy::Open { open, owner, first_seqid, client: claimed } => {
                let open = self.resolve(request.caller, open, request.file, now)?;
                if !matches!(self.state(open)?.kind, Kind::Open(_)) {
                    return Err(StateError::BadStateid);
                }
                let client = self.state(open)?.client;
                if claimed.is_some_and(|claimed| claimed != client) {
                    return Err(StateError::BadStateid);
                }
                let known = self.find_owner(client, OwnerKind::Lock, owner);
                // One that holds nothing begins anew, where it likes: Linux 6.1 gives the name of an owner that was only ever
                // refused to the next one, who counts from 0. A retry is told by the open-owner's number.
                let counting = known.and_then(|key| self.owners.get(key.0)).filter(|owner| owner.states > 0);
                let sequence = counting.and_then(|owner| owner.sequence.as_ref());
                if let (Some(sequence), Some(seqid)) = (sequence, first_seqid)
                    && !sequence.is_next(seqid)
                {
                    return Err(StateError::BadSeqid);
                }
                let state = known.and_then(|known| self.by_owner_file.get(&(known, request.file)).copied());
                Locker { client, owner: OwnerName::new(owner), open, state, first_seqid }
            }
        };
        self.check_locks_are_back(request.caller, party.client)?;
        if let Some(key) = party.state {
            self.check_not_busy(key)?;
        }
        Ok(party)
    }

    /// What a LOCK hears whose locker cannot be told. A reclaim through what was reclaimed in the life before this one, which
    /// ended between the two: STALE_STATEID would have Linux give these locks up for lost (`nfs4_reclaim_open_state`; the
    /// processes hear EIO), as it takes that for news of this one owner and not of the server. STALE_CLIENTID has it begin to
    /// reclaim from the opens on, as it must; RFC 8881 section 15.2 does not list it for LOCK.
    ///
    /// And a new one without an open, of a client that has yet to reclaim: Linux has the file open under a delegation alone, and
    /// forgets that as soon as it hears of the restart. BAD_STATEID would have it give up all that its processes have locked.
    fn cut_off(&self, request: &LockRequest<'_>, error: StateError) -> StateError {
        let is_without_open =
            matches!(request.by, LockBy::Open { open, .. } if open.form() == StateIdForm::Anonymous);
        match (request.caller, request.claim, error) {
            (Caller::V41(_), Claim::Reclaim(_), StateError::StaleStateid) => StateError::StaleClientid,
            (Caller::V41(client), Claim::New, StateError::BadStateid)
                if is_without_open && self.has_to_reclaim(client) =>
            {
                StateError::Grace
            }
            _ => error,
        }
    }

    /// A change must not be under way.
    pub(crate) fn check_not_busy(&mut self, key: StateKey) -> Result<(), StateError> {
        if self.lock_mut(key)?.is_busy { Err(StateError::Delay) } else { Ok(()) }
    }

    fn reserve(
        &mut self,
        party: &Locker,
        request: &LockRequest<'_>,
        access: Access,
        now: Instant,
    ) -> Result<LockTicket, StateError> {
        let (payer, holder) = (Payer::Client(party.client), party.state.map(Holder::State));
        self.check_room_for_lock(request.file, holder, payer)?;
        let key = match party.state {
            Some(key) => key,
            None => self.new_lock_state(party, request.file, now)?,
        };
        let state = self.lock_mut(key)?;
        state.is_busy = true;
        // An owner's locks on a file are one state, of the open that the first was made through: this one may be closed
        // before it.
        let is_through_another = state.open != party.open;
        let holder = Holder::State(key);
        let before = self.change_locks(request.file, holder, |locks| {
            let before = locks.within(holder, request.range);
            locks.strengthen(holder, request.range, request.kind);
            before
        });
        if is_through_another && let Some(file) = self.files.get_mut(&request.file) {
            file.locks_outlast_opens = true;
        }
        let waited = Party::Nfs4 { client: party.client, owner: party.owner.clone() };
        self.forget_waiter(request.file, &waited, request.range, now);
        Ok(LockTicket {
            state: key,
            file: request.file,
            range: request.range,
            becomes: Some(request.kind),
            before,
            is_new: party.state.is_none(),
            first_seqid: party.first_seqid,
            access,
        })
    }

    fn new_lock_state(
        &mut self,
        party: &Locker,
        file: FileKey,
        now: Instant,
    ) -> Result<StateKey, StateError> {
        self.check_room(party.client, now)?;
        if self.files.get(&file).is_some_and(|file| file.locks.len() >= LOCK_HOLDERS_PER_FILE_MAX) {
            return Err(StateError::Resource);
        }
        let owner = self.owner_for(party.client, OwnerKind::Lock, party.owner.as_bytes(), now)?;
        let state = State {
            client: party.client,
            file,
            owner: Some(owner),
            since: now,
            // Its first commit makes it 1.
            seqid: Seqid(0),
            standing: Standing::Good,
            kind: Kind::Lock(LockOwnerFile { open: party.open, is_busy: false }),
        };
        let key = self.add_state(state);
        self.open_mut(party.open)?.locks.push(key);
        Ok(key)
    }

    /// Makes a prepared change final, after the backend agreed. Returns the lock stateid.
    ///
    /// # Errors
    /// `BadStateid` when the state went meanwhile (CLOSE, expiry, revocation): the edge gives up the backend locks
    /// of the token, as [`crate::Effect::ReleaseLocks`] may have run before it took them.
    pub fn lock_commit(&mut self, ticket: LockTicket, now: Instant) -> Result<StateId, StateError> {
        let LockTicket { state: key, file, range, becomes, before, first_seqid, .. } = ticket;
        let state = self.state(key)?;
        if state.standing != Standing::Good {
            return Err(StateError::BadStateid);
        }
        let owner = state.owner;
        self.lock_mut(key)?.is_busy = false;
        let holder = Holder::State(key);
        self.change_locks(file, holder, |locks| match becomes {
            Some(kind) => locks.set(holder, range, kind),
            None => locks.clear(holder, range),
        });
        if becomes.is_some() {
            self.met_nobody_outside(file, range, now);
        }
        // Anything weaker than before lets others in.
        if before.into_iter().any(|(_, had)| Some(had) > becomes) {
            self.wake_waiters(file, Some(range), now);
        }
        let owner = owner.and_then(|owner| self.owners.get_mut(owner.0));
        let sequence = owner.and_then(|owner| owner.sequence.as_mut());
        if let (Some(sequence), Some(first)) = (sequence, first_seqid) {
            sequence.begin_at(first);
        }
        self.bump(key)
    }

    /// Takes a prepared change back, after the backend refused. Returns whether its state is there still; else the
    /// edge gives up the backend locks of the token, as after `lock_commit`. In 4.0 the refusal counts for the
    /// lock-owner, as one of `lock_prepare` does.
    pub fn lock_abort(&mut self, ticket: LockTicket, now: Instant) -> bool {
        if self.state(ticket.state).map(|state| state.standing) != Ok(Standing::Good) {
            return false;
        }
        let owner = self.state(ticket.state).ok().and_then(|state| state.owner);
        let sequence = owner.and_then(|owner| self.owners.get_mut(owner.0)?.sequence.as_mut());
        if let (Some(sequence), Some(first)) = (sequence, ticket.first_seqid) {
            sequence.begin_at(first);
        }
        if ticket.is_new {
            self.drop_state(ticket.state, now);
            return true;
        }
        if let Ok(lock) = self.lock_mut(ticket.state) {
            lock.is_busy = false;
        }
        let holder = Holder::State(ticket.state);
        // Never stronger than the reservation, so that nobody can be in the way.
        self.change_locks(ticket.file, holder, |locks| {
            locks.clear(holder, ticket.range);
            for (part, kind) in ticket.before {
                locks.set(holder, part, kind);
            }
        });
        self.wake_waiters(ticket.file, Some(ticket.range), now);
        true
    }
}

/// A lock-owner as a request presents it.
#[derive(Debug)]
pub(crate) struct Locker {
    pub(crate) client: ClientId,
    pub(crate) owner: OwnerName,
    open: StateKey,
    state: Option<StateKey>,
    first_seqid: Option<Seqid>,
}
