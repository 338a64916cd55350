//! The whole engine as plain data, for a planned restart: what is thawed goes on exactly where it was, replies of
//! slots and owners, offers and lines of waiters included. What follows from something else is left out and made anew.

use holdfast_base::{ByteRange, ClientId, Entropy, FileKey, Instant, SessionId};
use serde::{Deserialize, Serialize};

use crate::caps::Caps;
use crate::caps_freeze::FrozenCaps;
use crate::census::Tally;
use crate::client::{ClientIncarnation, Records};
use crate::delegation_want::Want;
use crate::engine::{Config, Engine, Kind, LastTenant, OwnerKey, Standing, State, StateKey};
use crate::file::{File, Holder};
use crate::foreign::ForeignOwner;
use crate::grace::Grace;
use crate::invariant;
use crate::lock_set::LockKind;
use crate::looked::CalendarSeen;
use crate::owner::{Owner, OwnerKind};
use crate::policy::Policy;
use crate::session::Session;
use crate::share::Share;
use crate::slab::Slab;
use crate::stateid::BootInstance;
use crate::waiters::Waiter;

/// A frozen engine. A form that names its fields lets a later version add some: the new ones then need a default. Its
/// moments are those of the clock that the engine was run by: the clock of whoever thaws it must
/// go on from there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Frozen {
    boot: BootInstance,
    grace: Grace,
    policy: Policy,
    next_client: (u32, bool),
    clients: Vec<FrozenClient>,
    sessions: Vec<FrozenSession>,
    states: Slab<State, LastTenant>,
    owners: Slab<Owner, ()>,
    files: Vec<FrozenFile>,
    #[serde(with = "crate::plain")]
    owners_swept_at: Instant,
    tickets: u64,
    #[serde(with = "crate::plain")]
    recent_recalls: Vec<(FileKey, Instant)>,
    wants: Vec<FrozenWant>,
    foreign_busy: Vec<FrozenBusy>,
    #[serde(default)]
    caps: FrozenCaps,
    #[serde(default)]
    calendar: CalendarSeen,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenClient {
    #[serde(with = "crate::plain")]
    id: ClientId,
    client: ClientIncarnation,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenSession {
    #[serde(with = "crate::plain")]
    id: SessionId,
    session: Session,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenFile {
    #[serde(with = "crate::plain")]
    key: FileKey,
    opens: Vec<StateKey>,
    locks: Vec<FrozenLock>,
    waiters: Vec<Waiter>,
    delegations: Vec<StateKey>,
    foreign_shares: Vec<(ForeignOwner, Share)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenLock {
    holder: Holder,
    #[serde(with = "crate::plain")]
    range: ByteRange,
    kind: LockKind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenWant {
    #[serde(with = "crate::plain")]
    client: ClientId,
    #[serde(with = "crate::plain")]
    file: FileKey,
    want: Want,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenBusy {
    number: u64,
    owner: ForeignOwner,
    #[serde(with = "crate::plain")]
    file: FileKey,
}

/// A frozen engine that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frozen state is inconsistent: {0}")]
pub struct Unsound(String);

impl Frozen {
    /// The run whose state this is: it goes on under the same number, or stateids would be stale.
    #[must_use]
    pub const fn boot(&self) -> BootInstance {
        self.boot
    }
}

impl Engine {
    /// Whether nothing is under way: no open, lock or delegation reserved and not yet committed, no operation of a 4.0
    /// owner or of a slot running. Who thaws what was frozen otherwise has no tickets to end it with.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let is_busy = |state: &State| match &state.kind {
            Kind::Open(open) => !open.pending.is_empty(),
            Kind::Lock(lock) => lock.is_busy,
            Kind::Delegation(delegation) => delegation.offered.is_some(),
        };
        let is_running = |owner: &Owner| owner.sequence.as_ref().is_some_and(|s| s.is_running());
        self.foreign_busy.is_empty()
            && self.caps.is_quiet()
            && !self.states.iter().any(|(_, state)| state.standing == Standing::Good && is_busy(state))
            && !self.owners.iter().any(|(_, owner)| is_running(owner))
            && !self.sessions.iter().any(|(_, session)| session.slots.running() > 0)
    }

    /// The engine as plain data. Effects are to be taken and run before: they are not part of it.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        let clients = self.clients.by_id.iter();
        let mut clients: Vec<_> =
            clients.map(|(id, client)| FrozenClient { id: *id, client: client.clone() }).collect();
        clients.sort_unstable_by_key(|frozen| frozen.id);
        let sessions = self.sessions.iter();
        let mut sessions: Vec<_> =
            sessions.map(|(id, session)| FrozenSession { id, session: session.clone() }).collect();
        sessions.sort_unstable_by_key(|frozen| frozen.id);
        let mut files: Vec<_> = self.files.iter().map(|(key, file)| freeze_file(*key, file)).collect();
        files.sort_unstable_by_key(|frozen| frozen.key);
        let wants = self.wants.0.iter();
        let busy = self.foreign_busy.iter();
        Frozen {
            boot: self.config.boot,
            grace: self.grace,
            policy: self.policy,
            next_client: self.clients.next_id(),
            clients,
            sessions,
            states: self.states.clone(),
            owners: self.owners.clone(),
            files,
            owners_swept_at: self.owners_swept_at,
            tickets: self.tickets,
            recent_recalls: self.recent_recalls.order.iter().copied().collect(),
            wants: wants
                .map(|((client, file), want)| FrozenWant { client: *client, file: *file, want: *want })
                .collect(),
            foreign_busy: busy
                .map(|((owner, file), number)| FrozenBusy { number: *number, owner: *owner, file: *file })
                .collect(),
            caps: self.caps.freeze(),
            calendar: self.calendar,
        }
    }

    /// The engine that was frozen. Of `config` the lease counts; the run's number and grace are the frozen ones.
    ///
    /// # Errors
    /// [`Unsound`] when the data contradicts itself, as it may when it was not made by this version.
    pub fn thaw(frozen: Frozen, config: Config, entropy: Box<dyn Entropy>) -> Result<Self, Unsound> {
        let config = Config { boot: frozen.boot, grace: frozen.grace, ..config };
        let mut engine = Self::new(config, entropy);
        engine.policy = frozen.policy;
        engine.calendar = frozen.calendar;
        engine.states = frozen.states;
        engine.owners = frozen.owners;
        engine.owners_swept_at = frozen.owners_swept_at;
        engine.tickets = frozen.tickets;
        engine.clients.continue_from(frozen.next_client);
        for FrozenSession { id, session } in frozen.sessions {
            engine.sessions.insert(id, session);
        }
        for FrozenClient { id, client } in frozen.clients {
            engine.thaw_client(id, client);
        }
        engine.index_states();
        for file in frozen.files {
            engine.thaw_file(file);
        }
        for (file, at) in frozen.recent_recalls {
            engine.recent_recalls.note(file, at);
        }
        let wants = frozen.wants.into_iter();
        engine.wants.0 = wants.map(|frozen| ((frozen.client, frozen.file), frozen.want)).collect();
        let busy = frozen.foreign_busy.into_iter();
        engine.foreign_busy = busy.map(|frozen| ((frozen.owner, frozen.file), frozen.number)).collect();
        engine.caps = Caps::thaw(frozen.caps, engine.caps.names.secret);
        invariant::agrees(&engine).map_err(Unsound)?;
        Ok(engine)
    }

    /// After a handover: who is outside, holding locks that only the backend knows, is met anew. Those who wait in line for one
    /// of them are told, and ask again.
    pub fn meet_outsiders_anew(&mut self, now: Instant) {
        for file in self.waiting.iter().copied().collect::<Vec<_>>() {
            self.freed_outside(file, ByteRange::ALL, now);
        }
    }

    /// After a handover: calls to clients that were under way have lost whoever waited for their answers, so what was
    /// not accepted is recalled again at the next tick.
    pub fn recall_unanswered(&mut self, now: Instant) {
        for key in self.recalls.iter().copied().collect::<Vec<_>>() {
            let Ok(delegation) = self.delegation_mut(key) else { continue };
            if let Some(recall) = delegation.recall.as_mut().filter(|recall| !recall.is_accepted) {
                recall.retry_at = recall.retry_at.or(Some(now));
            }
        }
    }

    fn thaw_client(&mut self, id: ClientId, client: ClientIncarnation) {
        let names = &mut self.clients.by_name[client.dialect() as usize];
        let records: &mut Records = names.entry(client.identity.name.clone()).or_default();
        let place = if client.is_confirmed { &mut records.confirmed } else { &mut records.unconfirmed };
        *place = Some(id);
        if !client.is_confirmed {
            self.clients.unconfirmed.add(client.site, id);
        }
        self.clients.sites.add(client.site);
        self.clients.by_id.insert(id, client);
    }

    /// Everything that can be found out from the states and owners themselves.
    fn index_states(&mut self) {
        self.tally = Tally::taken(self);
        for (key, owner) in self.owners.iter() {
            let Some(client) = self.clients.by_id.get_mut(&owner.client) else { continue };
            let names = match owner.kind {
                OwnerKind::Open => &mut client.open_owners,
                OwnerKind::Lock => &mut client.lock_owners,
            };
            names.insert(owner.name.clone(), OwnerKey(key));
        }
        for (key, state) in self.states.iter() {
            let key = StateKey(key);
            if let Some(client) = self.clients.by_id.get_mut(&state.client) {
                client.states.insert(key);
                if state.standing.is_revoked() {
                    client.loses(state.owner, state.file);
                }
            }
            if state.standing != Standing::Good {
                continue;
            }
            if let Some(owner) = state.owner {
                self.by_owner_file.insert((owner, state.file), key);
            }
            if let Kind::Delegation(delegation) = &state.kind {
                self.delegations += 1;
                if delegation.recall.is_some() {
                    self.recalls.insert(key);
                }
            }
        }
    }

    fn thaw_file(&mut self, frozen: FrozenFile) {
        let FrozenFile { key, opens, locks, waiters, delegations, foreign_shares } = frozen;
        // Those may be such locks: that is looked at where it matters.
        let mut file = File { delegations, locks_outlast_opens: !locks.is_empty(), ..File::default() };
        for open in &opens {
            if let Ok(open) = self.open_of(*open) {
                file.sums.add(open.share);
            }
        }
        foreign_shares.iter().for_each(|(_, share)| file.sums.add(*share));
        (file.opens, file.foreign_shares) = (opens, foreign_shares);
        self.denying += usize::from(!file.held_by_opens(&crate::share::ShareSums::default()).deny.is_none());
        self.files.insert(key, file);
        for FrozenLock { holder, range, kind } in locks {
            self.change_locks(key, holder, |locks| locks.set(holder, range, kind));
        }
        for waiter in waiters {
            self.thaw_waiter(key, waiter);
        }
    }
}

fn freeze_file(key: FileKey, file: &File) -> FrozenFile {
    let locks = file.locks.iter().flat_map(|(holder, ranges)| {
        ranges.iter().map(move |(range, kind)| FrozenLock { holder, range, kind })
    });
    FrozenFile {
        key,
        opens: file.opens.clone(),
        locks: locks.collect(),
        waiters: file.waiters.clone(),
        delegations: file.delegations.clone(),
        foreign_shares: file.foreign_shares.clone(),
    }
}
