//! How many records each host has, confirmed or not: one that comes under ever new names must leave room to others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_base::limits::CLIENTS_PER_SITE_MAX;
use holdfast_base::{ClientId, Instant};

use super::ClientIncarnation;
use crate::engine::Engine;
use crate::error::StateError;

/// Records by the host they came from, as far as that is known: of what outlived a restart it is not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sites(BTreeMap<IpAddr, usize>);

impl Sites {
    pub(crate) fn add(&mut self, site: IpAddr) {
        *self.0.entry(site).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, site: IpAddr) {
        if let Some(count) = self.0.get_mut(&site) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&site);
            }
        }
    }

    fn count(&self, site: IpAddr) -> usize {
        self.0.get(&site).copied().unwrap_or(0)
    }
}

impl Engine {
    /// Takes in a record that is not confirmed yet. Where its host has its share, or nobody has room, one whom only
    /// courtesy keeps goes first: of that host, or of all.
    ///
    /// # Errors
    /// `Resource` where none is left to go.
    pub(super) fn take_in(
        &mut self,
        client: ClientIncarnation,
        now: Instant,
    ) -> Result<ClientId, StateError> {
        let site = client.site;
        // A new life of a client that the host has already is let in beside the former, which goes when it confirms.
        let former = self.clients.records(client.dialect(), client.identity.name.as_bytes()).confirmed;
        let is_again = former.and_then(|id| self.clients.by_id.get(&id)).is_some_and(|of| of.site == site);
        if !is_again
            && self.clients.sites.count(site) >= CLIENTS_PER_SITE_MAX
            && !self.make_room_among(|other| other.site == site, now)
        {
            return Err(StateError::Resource);
        }
        if self.clients.is_full() {
            self.make_room(now);
        }
        self.clients.add(client)
    }
}
