//! What there is, for administrators: who the clients are and what each of them holds. Walks all it reports of, so not
//! for the hot path.

use std::collections::BTreeSet;

use holdfast_base::{ByteRange, CapSet, ClientId, FileKey, Instant};

use crate::client::{Callback, ClientIncarnation};
use crate::deed::DelegationKind;
use crate::engine::{Engine, Kind, Standing, StateKey};
use crate::error::StateError;
use crate::file::Holder;
use crate::foreign::ForeignOwner;
use crate::lock_set::LockKind;
use crate::names::{Dialect, OwnerName, Principal};
use crate::share::Share;
use crate::stateid::StateId;
use crate::waiters::Party;

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientReport {
    /// Its id.
    pub id: ClientId,
    /// As it calls itself.
    pub name: OwnerName,
    /// As whom it came.
    pub principal: Principal,
    /// Whose rules it plays by.
    pub dialect: Dialect,
    /// Whether it has confirmed that it is there.
    pub is_confirmed: bool,
    /// Milliseconds left of its lease; `None` when it ran out.
    pub lease_left_ms: Option<u64>,
    /// Since when its lease is known to have run out, while it keeps its state by courtesy.
    pub courteous_since: Option<Instant>,
    /// Where a 4.0 client is called back.
    pub callback: Option<Callback>,
    /// Whether it can be called back, as far as is known.
    pub can_be_called: bool,
    /// Its sessions.
    pub sessions: usize,
    /// Connections of these.
    pub connections: usize,
    /// Files open, by each of its open-owners.
    pub opens: usize,
    /// Files locked, by each of its lock-owners.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Those being recalled.
    pub recalled: usize,
    /// Objects that it holds capabilities of.
    pub capabilities: usize,
    /// Of those, how many it is to give something back of.
    pub capabilities_recalled: usize,
    /// States revoked and not yet freed.
    pub revoked: usize,
}

/// Who holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderReport {
    /// A client of NFSv4, by itself or for an owner of its own.
    Nfs4 {
        /// The client.
        client: ClientId,
        /// The open-owner or lock-owner; none for delegations.
        owner: Option<OwnerName>,
        /// The name of what is held; none for what is only waited for.
        stateid: Option<StateId>,
    },
    /// Somebody who came through another door.
    Foreign(ForeignOwner),
}

/// What is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// The file is open, or reserved through NLM.
    Open(Share),
    /// Bytes are locked; none yet, or not any more, when empty.
    Locks(Vec<(ByteRange, LockKind)>),
    /// A lock is waited for.
    Waiting(ByteRange, LockKind),
    /// A delegation.
    Delegation {
        /// Which.
        kind: DelegationKind,
        /// Since when it is being recalled, and when it will be revoked.
        recalled: Option<(Instant, Instant)>,
    },
    /// Capabilities of a mount.
    Capabilities {
        /// Which.
        held: CapSet,
        /// Since when some are being recalled, and when all of the client's will be revoked.
        recalled: Option<(Instant, Instant)>,
    },
    /// Something that was revoked, and that its client has not freed yet.
    Revoked,
}

/// One thing that somebody holds of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Who.
    pub holder: HolderReport,
    /// Of which file.
    pub file: FileKey,
    /// What.
    pub held: Held,
    /// Since when, where that is known.
    pub since: Option<Instant>,
}

impl Engine {
    /// Every client, by id.
    #[must_use]
    pub fn report_clients(&self, now: Instant) -> Vec<ClientReport> {
        let clients = self.clients.by_id.iter();
        let mut all: Vec<_> = clients.map(|(id, client)| self.report_client(*id, client, now)).collect();
        all.sort_unstable_by_key(|report| report.id);
        all
    }

    fn report_client(&self, id: ClientId, client: &ClientIncarnation, now: Instant) -> ClientReport {
        let lease_left_ms = self.lease_left_ms(id, client, now);
        let sessions = client.sessions.iter().filter_map(|id| self.sessions.get(*id));
        let mut report = ClientReport {
            id,
            name: client.identity.name.clone(),
            principal: client.identity.principal.clone(),
            dialect: client.dialect(),
            is_confirmed: client.is_confirmed,
            lease_left_ms,
            courteous_since: client.courteous_since.filter(|_| lease_left_ms.is_none()),
            callback: self.callback(id).cloned(),
            can_be_called: self.can_call_back(id),
            sessions: client.sessions.len(),
            connections: sessions.map(crate::session::Session::connections).sum(),
            opens: 0,
            locks: 0,
            delegations: 0,
            recalled: 0,
            capabilities: self.caps.count_of(id),
            capabilities_recalled: self.caps.recalled_of(id),
            revoked: 0,
        };
        for state in client.states.iter().filter_map(|key| self.states.get(key.0)) {
            let count = match (&state.kind, state.standing) {
                (_, Standing::Closed) => continue,
                (_, Standing::AdminRevoked | Standing::DelegationRevoked) => &mut report.revoked,
                (Kind::Open(_), Standing::Good) => &mut report.opens,
                (Kind::Lock(_), Standing::Good) => &mut report.locks,
                (Kind::Delegation(delegation), Standing::Good) => {
                    report.recalled += usize::from(delegation.recall.is_some());
                    &mut report.delegations
                }
            };
            *count += 1;
        }
        report
    }

    /// Everything that a client of NFSv4 holds, by file.
    #[must_use]
    pub fn report_holdings(&self, client: ClientId) -> Vec<Holding> {
        let Some(of) = self.clients.by_id.get(&client) else { return Vec::new() };
        let mut all: Vec<_> = of.states.iter().filter_map(|key| self.holding(*key)).collect();
        let waited: BTreeSet<_> = self.waits.of_client(client).into_iter().collect();
        for file in waited {
            let waits = self.waiting_on(file);
            all.extend(waits.into_iter().filter(
                |wait| matches!(&wait.holder, HolderReport::Nfs4 { client: its, .. } if *its == client),
            ));
        }
        all.sort_by_key(|holding| holding.file);
        all
    }

    /// Everything that anybody holds of a file.
    #[must_use]
    pub fn report_file(&self, file: FileKey) -> Vec<Holding> {
        let Some(of) = self.files.get(&file) else { return Vec::new() };
        let mut all: Vec<_> = of.opens.iter().filter_map(|key| self.holding(*key)).collect();
        all.extend(of.delegations.iter().filter_map(|key| self.holding(*key)));
        for (holder, ranges) in of.locks.iter() {
            match holder {
                Holder::State(key) => all.extend(self.holding(key)),
                Holder::Foreign(owner) => {
                    let held = Held::Locks(ranges.iter().collect());
                    all.push(Holding { holder: HolderReport::Foreign(owner), file, held, since: None });
                }
            }
        }
        for (owner, share) in &of.foreign_shares {
            let holder = HolderReport::Foreign(*owner);
            all.push(Holding { holder, file, held: Held::Open(*share), since: None });
        }
        all.extend(self.waiting_on(file));
        all
    }

    /// Every file of which somebody holds or awaits something, in order of their keys.
    #[must_use]
    pub fn report_files(&self) -> Vec<FileKey> {
        let mut all: Vec<_> = self.files.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Every object of which somebody holds capabilities, in order of their keys. Names that are promised by themselves are none.
    #[must_use]
    pub fn report_caps_files(&self) -> Vec<FileKey> {
        let objects = self.caps.by_file.keys().filter(|key| !self.caps.names.is_name(**key));
        let mut all: Vec<_> = objects.copied().collect();
        all.sort_unstable();
        all
    }

    /// Capabilities of an object, by client.
    #[must_use]
    pub fn report_caps(&self, file: FileKey) -> Vec<Holding> {
        let holds = self.caps.by_file.get(&file).map(Vec::as_slice).unwrap_or_default();
        let one = |hold: &crate::caps::CapHold| Holding {
            holder: HolderReport::Nfs4 { client: hold.client, owner: None, stateid: None },
            file,
            held: Held::Capabilities {
                held: hold.held,
                recalled: hold.recall.map(|recall| (recall.since, recall.until)),
            },
            since: None,
        };
        let mut all: Vec<_> = holds.iter().filter(|hold| !hold.held.is_empty()).collect();
        all.sort_unstable_by_key(|hold| hold.client);
        all.into_iter().map(one).collect()
    }

    fn waiting_on(&self, file: FileKey) -> Vec<Holding> {
        let waiters = self.files.get(&file).map(|of| of.waiters.as_slice()).unwrap_or_default();
        let one = |waiter: &crate::waiters::Waiter| {
            let holder = match &waiter.party {
                Party::Foreign(owner) => HolderReport::Foreign(*owner),
                Party::Nfs4 { client, owner } => {
                    HolderReport::Nfs4 { client: *client, owner: Some(owner.clone()), stateid: None }
                }
            };
            let held = Held::Waiting(waiter.range, waiter.kind);
            Holding { holder, file, held, since: Some(waiter.asked_at) }
        };
        waiters.iter().map(one).collect()
    }

    fn holding(&self, key: StateKey) -> Option<Holding> {
        let state = self.states.get(key.0)?;
        let owner = state.owner.and_then(|owner| self.owners.get(owner.0)).map(|owner| owner.name.clone());
        let stateid = self.stateid(key).ok();
        let held = match (&state.kind, state.standing) {
            (_, Standing::Closed) => return None,
            (_, Standing::AdminRevoked | Standing::DelegationRevoked) => Held::Revoked,
            (Kind::Open(open), Standing::Good) => Held::Open(open.share),
            (Kind::Lock(_), Standing::Good) => {
                let ranges = self.files.get(&state.file)?.locks.of(Holder::State(key));
                Held::Locks(ranges.map(|ranges| ranges.iter().collect()).unwrap_or_default())
            }
            (Kind::Delegation(delegation), Standing::Good) => Held::Delegation {
                kind: delegation.granted?,
                recalled: delegation.recall.map(|recall| (recall.since, recall.until)),
            },
        };
        let holder = HolderReport::Nfs4 { client: state.client, owner, stateid };
        Some(Holding { holder, file: state.file, held, since: Some(state.since) })
    }

    /// Takes a state from its holder as an administrator's decision; a client of 4.1 learns of it by
    /// `AdminRevoked`. With an open go its locks.
    ///
    /// # Errors
    /// `BadStateid`; `Delay` when it cannot be put on record now, without which nothing is taken.
    pub fn revoke_state(&mut self, stateid: StateId, now: Instant) -> Result<(), StateError> {
        let (boot, key) = stateid.parts();
        let key = StateKey(key);
        let state = self.state(key)?;
        if boot != self.config.boot.get() || state.standing != Standing::Good {
            return Err(StateError::BadStateid);
        }
        if self.revoke_key(key, Standing::AdminRevoked, now) { Ok(()) } else { Err(StateError::Delay) }
    }
}
