//! Client records: who the clients are, by name and by id, which incarnation of each is confirmed.

use std::collections::{BTreeMap, BTreeSet};

use std::net::IpAddr;

use holdfast_base::limits::CLIENTS_MAX;
use holdfast_base::{ClientId, FileKey, Instant, Seqid, SessionId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::engine::{OwnerKey, StateKey};
use crate::error::StateError;
use crate::image::ClientImage;
use crate::names::{Dialect, OwnerName, Principal, Verifier};
use crate::stateid::BootInstance;

mod create_session;
mod exchange;
mod leave;
mod setclientid;
mod sites;
mod unconfirmed;

pub use create_session::{CreateSession, CreatedSession};
pub use exchange::{ExchangeId, ExchangeIntent, ExchangedId};
pub use setclientid::{Callback, SetClientId};
pub(crate) use sites::Sites;
pub(crate) use unconfirmed::Unconfirmed;

/// What a client says of itself, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) name: OwnerName,
    pub(crate) verifier: Verifier,
    pub(crate) principal: Principal,
}

/// The part of a record that only one dialect has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Side {
    V40(setclientid::Side40),
    V41(create_session::Side41),
}

/// Whether callbacks reach a client, as far as is known; of one of 4.1 its sessions know more.
/// Handed over as whether they do: what does not is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub(crate) enum CallbackPath {
    /// It has said where it is to be called, and no answer has come from there yet.
    #[default]
    Untried,
    Up,
    Down,
}

impl From<bool> for CallbackPath {
    fn from(is_up: bool) -> Self {
        if is_up { Self::Up } else { Self::Untried }
    }
}

impl From<CallbackPath> for bool {
    fn from(path: CallbackPath) -> Self {
        path == CallbackPath::Up
    }
}

/// One incarnation of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientIncarnation {
    // Constant.
    pub(crate) identity: Identity,
    /// Where it was when it asked to be known.
    pub(crate) site: IpAddr,
    /// When it came, if it surely knew nothing of this server before; of one that may have, none.
    #[serde(with = "crate::plain", default)]
    pub(crate) new_at: Option<Instant>,
    // Changing.
    pub(crate) side: Side,
    pub(crate) is_confirmed: bool,
    /// Last sign of life outside SEQUENCE; sessions keep their own.
    #[serde(with = "crate::plain")]
    pub(crate) renewed_at: Instant,
    #[serde(with = "crate::plain")]
    pub(crate) sessions: Vec<SessionId>,
    #[serde(skip)]
    pub(crate) open_owners: BTreeMap<OwnerName, OwnerKey>,
    #[serde(skip)]
    pub(crate) lock_owners: BTreeMap<OwnerName, OwnerKey>,
    #[serde(skip)]
    pub(crate) states: BTreeSet<StateKey>,
    /// Of what revoked ones were, by owner (without one: delegations) and file, and how many of each.
    #[serde(skip)]
    pub(crate) lost: BTreeMap<(Option<OwnerKey>, FileKey), u32>,
    /// How many of `states` were revoked and wait for FREE_STATEID.
    pub(crate) revoked: u32,
    /// How many delegations it has, offers included.
    pub(crate) delegations: u32,
    /// How many delegations were revoked and wait for FREE_STATEID.
    pub(crate) delegations_revoked: u32,
    #[serde(rename = "is_callback_up")]
    pub(crate) callbacks: CallbackPath,
    /// Since when its lease is known to have run out.
    #[serde(with = "crate::plain")]
    pub(crate) courteous_since: Option<Instant>,
    /// Its record is being forgotten; at the next tick it goes. Nobody may use it any more.
    pub(crate) is_leaving: bool,
    /// What its locks hold against local processes was let go.
    #[serde(default)]
    pub(crate) has_locks_aside: bool,
    /// It has asked for its id in this life of the server: in sessions that it makes since, it reclaims from the beginning.
    #[serde(default)]
    pub(crate) has_begun_anew: bool,
    /// When it was last asked to give back delegations of its choice.
    #[serde(with = "crate::plain")]
    pub(crate) recall_any_at: Option<Instant>,
}

impl ClientIncarnation {
    pub(crate) fn new(identity: Identity, site: IpAddr, side: Side, now: Instant) -> Self {
        Self {
            identity,
            site,
            new_at: None,
            side,
            is_confirmed: false,
            renewed_at: now,
            sessions: Vec::new(),
            open_owners: BTreeMap::new(),
            lock_owners: BTreeMap::new(),
            states: BTreeSet::new(),
            lost: BTreeMap::new(),
            revoked: 0,
            delegations: 0,
            delegations_revoked: 0,
            callbacks: CallbackPath::Untried,
            courteous_since: None,
            is_leaving: false,
            has_locks_aside: false,
            has_begun_anew: false,
            recall_any_at: None,
        }
    }

    /// What an owner had of a file, or the delegation of it, was revoked.
    pub(crate) fn loses(&mut self, owner: Option<OwnerKey>, file: FileKey) {
        *self.lost.entry((owner, file)).or_default() += 1;
    }

    /// It has taken note of one that was.
    pub(crate) fn takes_note(&mut self, owner: Option<OwnerKey>, file: FileKey) {
        let Some(count) = self.lost.get_mut(&(owner, file)) else { return };
        *count -= 1;
        if *count == 0 {
            self.lost.remove(&(owner, file));
        }
    }

    pub(crate) const fn dialect(&self) -> Dialect {
        match self.side {
            Side::V40(_) => Dialect::V40,
            Side::V41(_) => Dialect::V41,
        }
    }

    /// Whether it said RECLAIM_COMPLETE; `None` for 4.0, which cannot.
    pub(crate) const fn is_reclaim_done(&self) -> Option<bool> {
        match &self.side {
            Side::V40(_) => None,
            Side::V41(side) => Some(side.is_reclaim_done),
        }
    }

    pub(crate) fn owners(&self) -> usize {
        self.open_owners.len() + self.lock_owners.len()
    }
}

/// The records under one name: at most one of each, and the two may have one id (RFC 7530 section 16.33.5, a
/// callback update, which is kept within the confirmed record here).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) confirmed: Option<ClientId>,
    pub(crate) unconfirmed: Option<ClientId>,
}

/// All client records.
#[derive(Debug)]
pub(crate) struct Clients {
    boot: BootInstance,
    next: u32,
    /// All ids of this run were issued once.
    has_wrapped: bool,
    pub(crate) by_id: FxHashMap<ClientId, ClientIncarnation>,
    // Ordered maps, as the keys are the clients' to choose: a fast hash could be made to collide.
    pub(crate) by_name: [BTreeMap<OwnerName, Records>; 2],
    pub(crate) unconfirmed: Unconfirmed,
    pub(crate) sites: Sites,
}

impl Clients {
    pub(crate) fn new(boot: BootInstance) -> Self {
        Self {
            boot,
            next: 1,
            has_wrapped: false,
            by_id: FxHashMap::default(),
            by_name: Default::default(),
            unconfirmed: Unconfirmed::default(),
            sites: Sites::default(),
        }
    }

    pub(crate) fn records(&self, dialect: Dialect, name: &[u8]) -> Records {
        self.by_name[dialect as usize].get(name).copied().unwrap_or_default()
    }

    /// Whether no more records fit.
    pub(crate) fn is_full(&self) -> bool {
        self.by_id.len() >= CLIENTS_MAX
    }

    /// Adds an unconfirmed record under a new id, in place of an older one where there are too many: nothing is lost
    /// with that but the time of a client that takes long to confirm, which is told that its id is stale.
    pub(crate) fn add(&mut self, client: ClientIncarnation) -> Result<ClientId, StateError> {
        if let Some(oldest) = self.unconfirmed.in_the_way_of(client.site) {
            self.remove(oldest);
        }
        if self.is_full() {
            return Err(StateError::Resource);
        }
        let id = self.new_id();
        let dialect = client.dialect() as usize;
        self.by_name[dialect].entry(client.identity.name.clone()).or_default().unconfirmed = Some(id);
        self.unconfirmed.add(client.site, id);
        self.sites.add(client.site);
        self.by_id.insert(id, client);
        Ok(id)
    }

    /// Where ids go on, and whether all were issued once.
    pub(crate) const fn next_id(&self) -> (u32, bool) {
        (self.next, self.has_wrapped)
    }

    /// Goes on with ids from there.
    pub(crate) const fn continue_from(&mut self, (next, has_wrapped): (u32, bool)) {
        (self.next, self.has_wrapped) = (next, has_wrapped);
    }

    /// Whether an id was given out before the server's last start that was not planned.
    pub(crate) const fn is_of_former_life(&self, id: ClientId) -> bool {
        id.0 >> 32 != self.boot.get() as u64
    }

    /// The next id that nobody has. After 2^32 of them within one run they come again, those that were given up longest
    /// ago first: a host that asks for ids without end must not end up as the last that got one.
    fn new_id(&mut self) -> ClientId {
        loop {
            let id = ClientId(u64::from(self.boot.get()) << 32 | u64::from(self.next));
            self.next = self.next.checked_add(1).unwrap_or_else(|| {
                self.has_wrapped = true;
                1
            });
            // Far fewer are in use than there are.
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    /// Marks a record confirmed. The caller has removed the one it replaces.
    pub(crate) fn confirm(&mut self, id: ClientId) {
        let Some(client) = self.by_id.get_mut(&id) else { return };
        if client.is_confirmed {
            return;
        }
        client.is_confirmed = true;
        self.unconfirmed.remove(client.site, id);
        let dialect = client.dialect() as usize;
        let records = self.by_name[dialect].entry(client.identity.name.clone()).or_default();
        *records = Records { confirmed: Some(id), unconfirmed: None };
    }

    /// An id was taken over from outside: it must not be given to another, should it be of this run.
    pub(crate) fn never_issue(&mut self, id: ClientId) {
        if id.0 >> 32 == u64::from(self.boot.get()) {
            self.next = self.next.max((id.0 as u32).saturating_add(1));
        }
    }

    pub(crate) fn remove(&mut self, id: ClientId) -> Option<ClientIncarnation> {
        let client = self.by_id.remove(&id)?;
        let names = &mut self.by_name[client.dialect() as usize];
        if let Some(records) = names.get_mut(&client.identity.name) {
            let place = if client.is_confirmed { &mut records.confirmed } else { &mut records.unconfirmed };
            // While a record is being replaced its place is its successor's already.
            if *place == Some(id) {
                *place = None;
            }
            if *records == Records::default() {
                names.remove(&client.identity.name);
            }
        }
        self.unconfirmed.remove(client.site, id);
        self.sites.remove(client.site);
        Some(client)
    }

    /// Why an id names no client: it was ours and its lease ran out, or it never was ours in this run.
    pub(crate) fn absence(&self, id: ClientId, dialect: Dialect) -> StateError {
        let is_issued = id.0 as u32 != 0 && (self.has_wrapped || (id.0 as u32) < self.next);
        let is_of_this_run = id.0 >> 32 == u64::from(self.boot.get()) && is_issued;
        match dialect {
            Dialect::V40 if is_of_this_run => StateError::Expired,
            _ => StateError::StaleClientid,
        }
    }

    /// A confirmed client of this dialect.
    pub(crate) fn confirmed(&self, id: ClientId, dialect: Dialect) -> Result<&ClientIncarnation, StateError> {
        match self.by_id.get(&id) {
            Some(client) if client.is_confirmed && client.dialect() == dialect && !client.is_leaving => {
                Ok(client)
            }
            Some(client) if client.is_leaving => Err(self.absence(id, dialect)),
            Some(_) => Err(StateError::StaleClientid),
            None => Err(self.absence(id, dialect)),
        }
    }

    pub(crate) fn get_mut(&mut self, id: ClientId) -> Result<&mut ClientIncarnation, StateError> {
        self.by_id.get_mut(&id).ok_or(StateError::StaleClientid)
    }
}

/// The sequence number a new client begins CREATE_SESSION with. Any would do.
pub(crate) const FIRST_CREATE_SESSION: Seqid = Seqid(1);

/// The 4.1 part of a record that outlived a restart; what it held did not, so it is to reclaim.
pub(crate) fn restored_side(image: &ClientImage) -> Side {
    Side::V41(create_session::Side41 {
        seqid: image.create_seqid,
        reply: image.created.ok_or(StateError::SeqMisordered),
        is_reclaim_done: false,
    })
}

#[cfg(test)]
mod tests {
    use holdfast_base::{Instant, SeededEntropy};

    use super::*;
    use crate::grace::Grace;
    use crate::{Config, Engine, ExchangeId, ExchangeIntent};

    #[test]
    fn ids_come_again_when_all_were_issued_but_never_one_in_use() {
        let config = Config { boot: BootInstance::from_counter(1), lease_ms: 1000, grace: Grace::Over };
        let mut engine = Engine::new(config, Box::new(SeededEntropy(1)));
        let principal = Principal::new(b"root");
        let ask = |engine: &mut Engine, owner: &[u8]| {
            let intent = ExchangeIntent::Establish;
            let site = std::net::Ipv4Addr::LOCALHOST.into();
            let request =
                ExchangeId { owner, verifier: Verifier([1; 8]), principal: &principal, site, intent };
            engine.exchange_id(&request, Instant(1)).unwrap().client.0 as u32
        };
        assert_eq!(ask(&mut engine, b"a"), 1);
        engine.clients.next = u32::MAX;
        let later: Vec<u32> =
            [&b"b"[..], b"c", b"d"].into_iter().map(|name| ask(&mut engine, name)).collect();
        assert_eq!(later, [u32::MAX, 2, 3]);
        crate::invariant::check(&engine).unwrap();
    }
}
