//! What the hosts of one site have between them: hosts name themselves, so a bound on each would bound nobody.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_rpc::server::site_of;

/// What one site has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) hosts: usize,
    pub(crate) files: usize,
    pub(crate) blocked: usize,
    /// Byte ranges, as they were counted last.
    pub(crate) ranges: usize,
}

/// All sites that have something.
#[derive(Default)]
pub(crate) struct Sites(BTreeMap<IpAddr, Load>);

impl Sites {
    pub(crate) fn of(&self, ip: IpAddr) -> Load {
        self.0.get(&site_of(ip)).copied().unwrap_or_default()
    }

    pub(crate) fn change(&mut self, ip: IpAddr, change: impl FnOnce(&mut Load)) {
        let load = self.0.entry(site_of(ip)).or_default();
        change(load);
        if *load == Load::default() {
            self.0.remove(&site_of(ip));
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
