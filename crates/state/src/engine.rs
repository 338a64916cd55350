//! The engine: its tables, and the few steps that every part shares.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use holdfast_base::{ClientId, Entropy, FileKey, Instant, Seqid};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::caps::Caps;
use crate::census::Tally;
use crate::client::Clients;
use crate::contention::RecentRecalls;
use crate::delegation::Delegation;
use crate::delegation_want::Wants;
use crate::descriptors::Descriptors;
use crate::effect::Effect;
use crate::error::StateError;
use crate::file::File;
use crate::foreign::ForeignOwner;
use crate::grace::Grace;
use crate::lock_room::Account;
use crate::looked::CalendarSeen;
use crate::looked::Looked;
use crate::names::{Dialect, LockToken};
use crate::owner::Owner;
use crate::policy::Policy;
use crate::session::Sessions;
use crate::share::{Obtained, Share};
use crate::slab::{Key, Slab};
use crate::stateid::{BootInstance, StateId};
use crate::waiters::Waits;
use crate::witness::{NoRecords, Witness};

/// Which open or lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct StateKey(pub(crate) Key);

impl StateKey {
    pub(crate) const fn token(self) -> LockToken {
        LockToken(self.0.to_u64())
    }
}

/// Which open-owner or lock-owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OwnerKey(pub(crate) Key);

/// Whether a stateid is still good for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Standing {
    Good,
    /// Closed by a 4.0 client: remembered so that a retry of CLOSE finds its owner.
    Closed,
    /// Taken by the administrator; remembered until FREE_STATEID.
    AdminRevoked,
    /// A delegation that was not returned in time; remembered until FREE_STATEID.
    DelegationRevoked,
}

impl Standing {
    pub(crate) const fn is_revoked(self) -> bool {
        matches!(self, Self::AdminRevoked | Self::DelegationRevoked)
    }
}

/// Whose a state was that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastTenant(#[serde(with = "crate::plain")] pub(crate) ClientId);

/// What one owner holds of one file, under one stateid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    // Constant.
    #[serde(with = "crate::plain")]
    pub(crate) client: ClientId,
    #[serde(with = "crate::plain")]
    pub(crate) file: FileKey,
    /// None for delegations, which are the client's.
    pub(crate) owner: Option<OwnerKey>,
    #[serde(with = "crate::plain")]
    pub(crate) since: Instant,
    // Changing.
    #[serde(with = "crate::plain")]
    pub(crate) seqid: Seqid,
    pub(crate) standing: Standing,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Open(OpenOwnerFile),
    Lock(LockOwnerFile),
    Delegation(Delegation),
}

/// An open-owner's open of a file: all its OPENs together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OpenOwnerFile {
    /// Reserved against others: what was granted, and what OPENs under way ask for.
    pub(crate) share: Share,
    /// Granted.
    pub(crate) obtained: Obtained,
    /// What OPENs under way ask for, each as often as it is asked for.
    pub(crate) pending: Vec<Share>,
    /// The backend's descriptors.
    pub(crate) descriptors: Descriptors,
    /// Lock states made from this open: they end with it.
    pub(crate) locks: Vec<StateKey>,
    /// How the file was after its OPENs.
    #[serde(default = "Looked::unknown")]
    pub(crate) looked: Looked,
}

impl OpenOwnerFile {
    /// What must be reserved.
    pub(crate) fn union(&self) -> Share {
        self.pending.iter().fold(self.obtained.union(), |all, share| all.union(*share))
    }
}

/// A lock-owner's locks on a file; the ranges are with the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LockOwnerFile {
    /// The open it was made from.
    pub(crate) open: StateKey,
    /// A ticket is out.
    pub(crate) is_busy: bool,
}

/// What the engine is told once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The number of this run.
    pub boot: BootInstance,
    /// How long a client's state lives without a sign of life, in milliseconds.
    pub lease_ms: u64,
    /// Whether reclaims are served at first.
    pub grace: Grace,
}

/// The state engine.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) grace: Grace,
    pub(crate) sessions: Sessions,
    pub(crate) clients: Clients,
    /// A place remembers whose its last tenant was.
    pub(crate) states: Slab<State, LastTenant>,
    pub(crate) owners: Slab<Owner, ()>,
    pub(crate) by_owner_file: FxHashMap<(OwnerKey, FileKey), StateKey>,
    pub(crate) files: FxHashMap<FileKey, File>,
    /// Files with waiters.
    pub(crate) waiting: BTreeSet<FileKey>,
    pub(crate) owners_swept_at: Instant,
    pub(crate) policy: Policy,
    pub(crate) calendar: CalendarSeen,
    /// Delegations offered or granted.
    pub(crate) delegations: usize,
    pub(crate) tally: Tally,
    /// Offers and foreign tickets made so far.
    pub(crate) tickets: u64,
    /// Delegations being recalled.
    pub(crate) recalls: BTreeSet<StateKey>,
    pub(crate) recent_recalls: RecentRecalls,
    pub(crate) wants: Wants,
    pub(crate) caps: Caps,
    /// Foreign owners with a ticket out, by file, and its number.
    pub(crate) foreign_busy: BTreeMap<(ForeignOwner, FileKey), u64>,
    /// Files that an open denies something of.
    pub(crate) denying: usize,
    /// Byte ranges held.
    pub(crate) lock_ranges: Account,
    /// Who waits for locks of which files.
    pub(crate) waits: Waits,
    pub(crate) effects: Vec<Effect>,
    pub(crate) witness: Arc<dyn Witness>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).field("census", &self.census()).finish()
    }
}

impl Engine {
    /// An engine without clients. `entropy` makes session ids, confirmation verifiers, and what names are known by.
    #[must_use]
    pub fn new(config: Config, mut entropy: Box<dyn Entropy>) -> Self {
        let mut caps = Caps::default();
        caps.names.secret = [entropy.u64(), entropy.u64()];
        Self {
            config,
            entropy,
            grace: config.grace,
            sessions: Sessions::default(),
            clients: Clients::new(config.boot),
            states: Slab::new(),
            owners: Slab::new(),
            by_owner_file: FxHashMap::default(),
            files: FxHashMap::default(),
            waiting: BTreeSet::new(),
            owners_swept_at: Instant::default(),
            policy: Policy::default(),
            calendar: CalendarSeen::default(),
            delegations: 0,
            tally: Tally::default(),
            tickets: 0,
            recalls: BTreeSet::new(),
            recent_recalls: RecentRecalls::default(),
            wants: Wants::default(),
            caps,
            foreign_busy: BTreeMap::new(),
            denying: 0,
            lock_ranges: Account::default(),
            waits: Waits::default(),
            effects: Vec::new(),
            witness: Arc::new(NoRecords),
        }
    }

    /// Names whom to ask before what a client held may be another's. Nobody is asked till then.
    pub fn set_witness(&mut self, witness: Arc<dyn Witness>) {
        self.witness = witness;
    }

    /// The effects of calls since they were last taken. To be taken after every call that changes anything, run in
    /// order after the engine is let go of, and before the reply leaves; also when the call failed.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Starts, prolongs or ends grace.
    pub fn set_grace(&mut self, grace: Grace) {
        self.grace = grace;
    }

    /// The grace obeyed now.
    #[must_use]
    pub const fn grace(&self) -> Grace {
        self.grace
    }

    /// How long a client's state lives without a sign of life, in milliseconds.
    #[must_use]
    pub const fn lease_ms(&self) -> u64 {
        self.config.lease_ms
    }

    /// The number of this run.
    #[must_use]
    pub const fn boot(&self) -> BootInstance {
        self.config.boot
    }

    /// The sessions, for reading.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The sessions: SEQUENCE, completion, connections.
    pub const fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// A confirmed client, whatever its dialect, noting the sign of life a 4.0 client gives by any use of its id.
    pub(crate) fn live_client(
        &mut self,
        id: ClientId,
        dialect: Dialect,
        now: Instant,
    ) -> Result<(), StateError> {
        self.clients.confirmed(id, dialect)?;
        if dialect == Dialect::V40 { self.note_life(id, now) } else { Ok(()) }
    }

    /// Apart, so that what clients with sessions do all the time stays short.
    #[inline(never)]
    fn note_life(&mut self, id: ClientId, now: Instant) -> Result<(), StateError> {
        self.clients.get_mut(id)?.renewed_at = now;
        self.want_locks_back(id);
        Ok(())
    }

    /// The dialect of a known client.
    pub(crate) fn dialect_of(&self, id: ClientId) -> Option<Dialect> {
        self.clients.by_id.get(&id).map(crate::client::ClientIncarnation::dialect)
    }

    pub(crate) fn state(&self, key: StateKey) -> Result<&State, StateError> {
        self.states.get(key.0).ok_or(StateError::BadStateid)
    }

    pub(crate) fn state_mut(&mut self, key: StateKey) -> Result<&mut State, StateError> {
        self.states.get_mut(key.0).ok_or(StateError::BadStateid)
    }

    pub(crate) fn open_of(&self, key: StateKey) -> Result<&OpenOwnerFile, StateError> {
        match &self.state(key)?.kind {
            Kind::Open(open) => Ok(open),
            _ => Err(StateError::BadStateid),
        }
    }

    pub(crate) fn open_mut(&mut self, key: StateKey) -> Result<&mut OpenOwnerFile, StateError> {
        match &mut self.state_mut(key)?.kind {
            Kind::Open(open) => Ok(open),
            _ => Err(StateError::BadStateid),
        }
    }

    pub(crate) fn lock_mut(&mut self, key: StateKey) -> Result<&mut LockOwnerFile, StateError> {
        match &mut self.state_mut(key)?.kind {
            Kind::Lock(lock) => Ok(lock),
            _ => Err(StateError::BadStateid),
        }
    }

    /// The stateid of a state as it is now.
    pub(crate) fn stateid(&self, key: StateKey) -> Result<StateId, StateError> {
        Ok(StateId::new(self.config.boot, key.0, self.state(key)?.seqid))
    }

    /// Counts a change of a state and returns its new stateid.
    pub(crate) fn bump(&mut self, key: StateKey) -> Result<StateId, StateError> {
        let state = self.state_mut(key)?;
        state.seqid = state.seqid.next_nonzero();
        self.stateid(key)
    }

    /// Adds a state of an owner who has none on this file. The caller has checked limits.
    pub(crate) fn add_state(&mut self, state: State) -> StateKey {
        let (client, owner, file) = (state.client, state.owner, state.file);
        self.tally.came(&state.kind);
        let key = StateKey(self.states.insert(state));
        if let Some(owner) = owner {
            self.by_owner_file.insert((owner, file), key);
            if let Some(owner) = self.owners.get_mut(owner.0) {
                owner.states += 1;
            }
        }
        if let Some(client) = self.clients.by_id.get_mut(&client) {
            client.states.insert(key);
        }
        key
    }

    /// Takes away what a state stands for, and leaves the name with `standing`. Its locks go first.
    pub(crate) fn detach(&mut self, key: StateKey, standing: Standing, now: Instant) {
        let Some(state) = self.states.get_mut(key.0) else { return };
        if state.standing != Standing::Good {
            return;
        }
        state.standing = standing;
        let file = state.file;
        match &mut state.kind {
            Kind::Open(open) => {
                let open = std::mem::take(open);
                for lock in open.locks {
                    self.drop_state(lock, now);
                }
                self.effects.extend(open.descriptors.each().map(Effect::CloseFile));
                self.change_shares(file, |of| of.remove_open(key, open.share));
            }
            Kind::Delegation(_) => self.end_delegation(key, now),
            Kind::Lock(_) => {
                self.effects.push(Effect::ReleaseLocks(key.token()));
                self.release_holder(file, crate::file::Holder::State(key), now);
            }
        }
        let Some(state) = self.states.get(key.0) else { return };
        if let (Some(owner), of) = (state.owner, state.file) {
            self.by_owner_file.remove(&(owner, of));
        }
    }

    /// Removes a state and its name.
    pub(crate) fn drop_state(&mut self, key: StateKey, now: Instant) {
        self.detach(key, Standing::Closed, now);
        let Some(client) = self.states.get(key.0).map(|state| state.client) else { return };
        let Some(state) = self.states.remove(key.0, LastTenant(client)) else { return };
        self.tally.went(&state.kind);
        self.count_revoked((client, state.owner, state.file), state.standing, false);
        if let Kind::Lock(lock) = &state.kind
            && let Ok(open) = self.open_mut(lock.open)
        {
            open.locks.retain(|other| *other != key);
        }
        if let Some(client) = self.clients.by_id.get_mut(&client) {
            client.states.remove(&key);
        }
        if let Some(owner) = state.owner {
            self.owner_lost_state(owner, now);
        }
    }

    /// Changes the share reservations of a file, and counts whether any denies.
    pub(crate) fn change_shares(&mut self, key: FileKey, change: impl FnOnce(&mut File)) {
        let denies = |engine: &Self| {
            engine
                .files
                .get(&key)
                .is_some_and(|of| !of.held_by_opens(&crate::share::ShareSums::default()).deny.is_none())
        };
        self.denying -= usize::from(denies(self));
        self.leave_file(key, change);
        self.denying += usize::from(denies(self));
    }

    /// Changes a file and forgets it when nothing is left.
    pub(crate) fn leave_file(&mut self, key: FileKey, change: impl FnOnce(&mut File)) {
        let Some(file) = self.files.get_mut(&key) else { return };
        change(file);
        if file.is_idle() {
            self.files.remove(&key);
        }
    }
}
