//! Records that nobody has confirmed yet, by the host they came from: anybody may ask for any number of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdfast_base::ClientId;
use holdfast_base::limits::{CLIENTS_UNCONFIRMED_MAX, CLIENTS_UNCONFIRMED_PER_SITE_MAX};

/// Unconfirmed records. Ids go up, so the least of a site is its oldest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unconfirmed {
    by_site: BTreeMap<IpAddr, BTreeSet<ClientId>>,
    total: usize,
}

impl Unconfirmed {
    pub(crate) const fn len(&self) -> usize {
        self.total
    }

    pub(crate) fn add(&mut self, site: IpAddr, id: ClientId) {
        self.total += usize::from(self.by_site.entry(site).or_default().insert(id));
    }

    pub(crate) fn remove(&mut self, site: IpAddr, id: ClientId) {
        let Some(ids) = self.by_site.get_mut(&site) else { return };
        self.total -= usize::from(ids.remove(&id));
        if ids.is_empty() {
            self.by_site.remove(&site);
        }
    }

    /// Which record goes when another of this site comes: its own oldest, where it has its share; where all have used
    /// up the room, the oldest of the site that has most. So one host that asks without end is in nobody's way but
    /// its own, and a record that is confirmed within moments, as clients do, is never lost to it.
    pub(crate) fn in_the_way_of(&self, site: IpAddr) -> Option<ClientId> {
        let own = self.by_site.get(&site).filter(|ids| ids.len() >= CLIENTS_UNCONFIRMED_PER_SITE_MAX);
        let ids = match own {
            Some(ids) => ids,
            None if self.total < CLIENTS_UNCONFIRMED_MAX => return None,
            None => self.by_site.values().max_by_key(|ids| ids.len())?,
        };
        ids.first().copied()
    }
}
