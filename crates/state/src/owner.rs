//! Open-owners and lock-owners: on whose behalf, within a client, something is held.

use holdfast_base::limits::{OWNER_BYTES_MAX, OWNERS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, Instant};
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, OwnerKey, StateKey};
use crate::error::StateError;
use crate::names::{Dialect, OwnerName};
use crate::owner_sequence::OwnerSequence;

/// Of which sort an owner is; the two have separate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OwnerKind {
    Open,
    Lock,
}

/// An owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Owner {
    // Constant.
    #[serde(with = "crate::plain")]
    pub(crate) client: ClientId,
    pub(crate) name: OwnerName,
    pub(crate) kind: OwnerKind,
    // Changing.
    /// States of any standing that name it.
    pub(crate) states: u32,
    /// Only 4.0 owners have one.
    pub(crate) sequence: Option<OwnerSequence>,
    /// The last state a 4.0 open-owner closed, remembered for a retry of its CLOSE.
    pub(crate) last_closed: Option<StateKey>,
    #[serde(with = "crate::plain")]
    pub(crate) used_at: Instant,
}

impl Engine {
    pub(crate) fn find_owner(&self, client: ClientId, kind: OwnerKind, name: &[u8]) -> Option<OwnerKey> {
        let client = self.clients.by_id.get(&client)?;
        match kind {
            OwnerKind::Open => client.open_owners.get(name).copied(),
            OwnerKind::Lock => client.lock_owners.get(name).copied(),
        }
    }

    /// The owner of that name, made if need be.
    pub(crate) fn owner_for(
        &mut self,
        id: ClientId,
        kind: OwnerKind,
        name: &[u8],
        now: Instant,
    ) -> Result<OwnerKey, StateError> {
        if let Some(key) = self.find_owner(id, kind, name) {
            return Ok(key);
        }
        if name.len() > OWNER_BYTES_MAX {
            return Err(StateError::Inval);
        }
        let client = self.clients.get_mut(id)?;
        let dialect = client.dialect();
        if client.owners() >= OWNERS_PER_CLIENT_MAX {
            return Err(StateError::Resource);
        }
        let name = OwnerName::new(name);
        let sequence = (dialect == Dialect::V40).then(|| OwnerSequence::new(kind));
        let owner = Owner {
            client: id,
            name: name.clone(),
            kind,
            states: 0,
            sequence,
            last_closed: None,
            used_at: now,
        };
        let key = OwnerKey(self.owners.insert(owner));
        let client = self.clients.get_mut(id)?;
        match kind {
            OwnerKind::Open => client.open_owners.insert(name, key),
            OwnerKind::Lock => client.lock_owners.insert(name, key),
        };
        Ok(key)
    }

    /// Counts down the states of an owner. Without any, an owner of 4.1 goes; one of 4.0 stays for a lease, as its
    /// sequence number and last reply are wanted for retries (RFC 7530 section 9.1.10).
    pub(crate) fn owner_lost_state(&mut self, key: OwnerKey, now: Instant) {
        let Some(owner) = self.owners.get_mut(key.0) else { return };
        owner.states -= 1;
        owner.used_at = now;
        self.drop_owner_if_unused(key);
    }

    /// Removes an owner of 4.1 that has no state.
    pub(crate) fn drop_owner_if_unused(&mut self, key: OwnerKey) {
        let is_unused = |owner: &Owner| owner.states == 0 && owner.sequence.is_none();
        if self.owners.get(key.0).is_some_and(is_unused) {
            self.drop_owner(key);
        }
    }

    /// Removes an owner that has no state.
    pub(crate) fn drop_owner(&mut self, key: OwnerKey) {
        let Some(owner) = self.owners.remove(key.0, ()) else { return };
        let Some(client) = self.clients.by_id.get_mut(&owner.client) else { return };
        match owner.kind {
            OwnerKind::Open => client.open_owners.remove(&owner.name),
            OwnerKind::Lock => client.lock_owners.remove(&owner.name),
        };
    }

    /// Removes owners of 4.0 that hold nothing and were idle for a lease. Looks at all owners, so only once a lease.
    pub(crate) fn drop_idle_owners(&mut self, now: Instant) {
        let lease_ms = self.config.lease_ms;
        if now.ms_since(self.owners_swept_at) < lease_ms {
            return;
        }
        self.owners_swept_at = now;
        let is_idle = |owner: &Owner| {
            let closed = u32::from(owner.last_closed.is_some());
            let is_running = owner.sequence.as_ref().is_some_and(OwnerSequence::is_running);
            owner.states == closed && !is_running && now.ms_since(owner.used_at) > lease_ms
        };
        let idle = self.owners.iter().filter(|(_, owner)| is_idle(owner));
        let idle: Vec<_> = idle.map(|(key, owner)| (OwnerKey(key), owner.last_closed)).collect();
        for (key, last_closed) in idle {
            if let Some(state) = last_closed {
                self.drop_state(state, now);
            }
            self.drop_owner(key);
        }
    }
}
