//! Hosts, their lock-owners, and what these have open: who is who, and how many there may be.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::limits::{
    NLM_BLOCKED_MAX, NLM_BLOCKED_PER_SITE_MAX, NLM_HOST_IDLE_MS, NLM_HOSTS_MAX, NLM_HOSTS_PER_SITE_MAX,
    NLM_OWNER_FILES_MAX, NLM_OWNER_FILES_PER_SITE_MAX, NLM_RANGES_PER_SITE_MAX,
};
use holdfast_base::{FileKey, Instant};
use holdfast_state::{Door, ForeignOwner};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::held::{Held, OwnerFile};
use crate::names::{HostName, OwnerName};
use crate::outside::Site;
use crate::records::HostRecord;
use crate::sites::Sites;

/// A host that has, or lately had, locks.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) local: IpAddr,
    /// It has a record, which says of `has_lost` what is so.
    pub(crate) is_recorded: bool,
    /// A record of it failed to be written: it may have one, which may say either.
    pub(crate) is_in_doubt: bool,
    /// Something was taken from it that it may believe to hold. As it might reclaim that, it may reclaim nothing while it has
    /// anything.
    pub(crate) has_lost: bool,
    /// It was on record when the server started, and grace is not over.
    pub(crate) may_reclaim: bool,
    /// The same, as one that is to hear of the restart and may reclaim nothing.
    pub(crate) is_barred: bool,
    pub(crate) has_reclaimed: bool,
    /// The state of its monitor, as far as it told: a notice of the same state is one heard before.
    pub(crate) state: Option<i32>,
    active_at: Instant,
    /// Ordered, as clients choose the names: many of one hash would take long to tell apart.
    owners: BTreeMap<OwnerName, u64>,
}

impl Host {
    fn new(local: IpAddr, now: Instant) -> Self {
        Self {
            local,
            is_recorded: false,
            is_in_doubt: false,
            has_lost: false,
            may_reclaim: false,
            is_barred: false,
            has_reclaimed: false,
            state: None,
            active_at: now,
            owners: BTreeMap::new(),
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_awaited = self.may_reclaim || self.is_barred;
        self.owners.is_empty() && !is_awaited && now.ms_since(self.active_at) > NLM_HOST_IDLE_MS
    }
}

/// Ranges that a lock adds at most: itself, and what it cuts in two.
const RANGES_OF_A_LOCK: usize = 3;

struct Owner {
    host: HostName,
    name: OwnerName,
    files: FxHashMap<FileKey, Arc<OwnerFile>>,
}

/// Everything by name. Its lock is held for lookups alone.
#[derive(Default)]
pub(crate) struct Table {
    /// Ordered for the same reason.
    pub(crate) hosts: BTreeMap<HostName, Host>,
    owners: FxHashMap<u64, Owner>,
    /// Bounds each site's part of all.
    sites: Sites,
    /// Owner-files with requests that wait, by these requests' numbers.
    waiting: FxHashMap<u64, Arc<OwnerFile>>,
    last_owner: u64,
    last_blocked: u64,
    files: usize,
}

/// A bound was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Table {
    /// A table that knows the hosts on record; in a grace that is on they may reclaim, but for those that have lost something.
    pub(crate) fn of(records: &[HostRecord], is_in_grace: bool, now: Instant) -> Self {
        let mut table = Self::default();
        for record in records.iter().take(NLM_HOSTS_MAX) {
            let has_lost = record.has_lost;
            let (may_reclaim, is_barred) = (is_in_grace && !has_lost, is_in_grace && has_lost);
            let new = Host::new(record.local, now);
            let host = Host { is_recorded: true, has_lost, may_reclaim, is_barred, ..new };
            table.hosts.insert(record.host.clone(), host);
            table.sites.change(record.host.ip, |load| load.hosts += 1);
        }
        table
    }

    /// The host, made when it is new.
    pub(crate) fn host(&mut self, name: &HostName, local: IpAddr, now: Instant) -> Result<&mut Host, Full> {
        if !self.hosts.contains_key(name) {
            let of_site = self.sites.of(name.ip).hosts;
            if self.hosts.len() >= NLM_HOSTS_MAX || of_site >= NLM_HOSTS_PER_SITE_MAX {
                return Err(Full);
            }
            self.sites.change(name.ip, |load| load.hosts += 1);
        }
        let host = self.hosts.entry(name.clone()).or_insert_with(|| Host::new(local, now));
        host.local = local;
        host.active_at = now;
        Ok(host)
    }

    /// The number of an owner; `None` when it has nothing.
    pub(crate) fn owner(&self, host: &HostName, name: &OwnerName) -> Option<ForeignOwner> {
        let id = *self.hosts.get(host)?.owners.get(name)?;
        Some(ForeignOwner { door: Door::Nlm, id })
    }

    /// A number that no owner has or will have.
    pub(crate) fn nobody(&mut self) -> ForeignOwner {
        self.last_owner += 1;
        ForeignOwner { door: Door::Nlm, id: self.last_owner }
    }

    /// Who an owner is.
    pub(crate) fn name_of(&self, owner: ForeignOwner) -> Option<(&HostName, &OwnerName)> {
        self.owners.get(&owner.id).map(|owner| (&owner.host, &owner.name))
    }

    /// What an owner has of a file, if anything.
    pub(crate) fn file(&self, host: &HostName, name: &OwnerName, file: FileKey) -> Option<Arc<OwnerFile>> {
        let owner = self.owner(host, name)?;
        self.file_of(owner, file)
    }

    pub(crate) fn file_of(&self, owner: ForeignOwner, file: FileKey) -> Option<Arc<OwnerFile>> {
        self.owners.get(&owner.id)?.files.get(&file).cloned()
    }

    /// The same, made when it is new. The host is known.
    pub(crate) fn file_or_new(
        &mut self,
        (host_name, name): (&HostName, &OwnerName),
        file: FileKey,
        site: &Site,
    ) -> Result<Arc<OwnerFile>, Full> {
        if let Some(known) = self.file(host_name, name, file) {
            return Ok(known);
        }
        let host = self.hosts.get_mut(host_name).ok_or(Full)?;
        let of_site = self.sites.of(host_name.ip).files;
        if self.files >= NLM_OWNER_FILES_MAX || of_site >= NLM_OWNER_FILES_PER_SITE_MAX {
            return Err(Full);
        }
        let id = *host.owners.entry(name.clone()).or_insert_with(|| {
            self.last_owner += 1;
            self.last_owner
        });
        self.sites.change(host_name.ip, |load| load.files += 1);
        self.files += 1;
        let new = Arc::new(OwnerFile {
            owner: ForeignOwner { door: Door::Nlm, id },
            host: host_name.clone(),
            name: name.clone(),
            file,
            site: site.clone(),
            held: Mutex::new(Held::default()),
        });
        let fresh = || Owner { host: host_name.clone(), name: name.clone(), files: FxHashMap::default() };
        self.owners.entry(id).or_insert_with(fresh).files.insert(file, Arc::clone(&new));
        Ok(new)
    }

    /// The last numbers given to an owner and to a request that waits.
    pub(crate) const fn numbers(&self) -> (u64, u64) {
        (self.last_owner, self.last_blocked)
    }

    /// Numbers begin after these.
    pub(crate) fn set_numbers(&mut self, owner: u64, blocked: u64) {
        self.last_owner = self.last_owner.max(owner);
        self.last_blocked = self.last_blocked.max(blocked);
    }

    /// Puts back an owner-file of another process, whose host is known; whether it could.
    pub(crate) fn restore_file(&mut self, of: OwnerFile) -> bool {
        let Some(host) = self.hosts.get_mut(&of.host) else { return false };
        host.owners.insert(of.name.clone(), of.owner.id);
        self.files += 1;
        let fresh = || Owner { host: of.host.clone(), name: of.name.clone(), files: FxHashMap::default() };
        let owner = self.owners.entry(of.owner.id).or_insert_with(fresh);
        let numbers: Vec<u64> = of.held.lock().blocked.iter().map(|blocked| blocked.number).collect();
        let counted = of.held.lock().counted;
        self.sites.change(of.host.ip, |load| {
            load.files += 1;
            load.blocked += numbers.len();
            load.ranges += counted;
        });
        let of = Arc::new(of);
        owner.files.insert(of.file, Arc::clone(&of));
        self.waiting.extend(numbers.into_iter().map(|number| (number, Arc::clone(&of))));
        true
    }

    /// An owner-file has other ranges than were counted.
    pub(crate) fn count_ranges(&mut self, of: &OwnerFile, from: usize, to: usize) {
        self.sites.change(of.host.ip, |load| load.ranges = (load.ranges + to).saturating_sub(from));
    }

    /// Whether a lock more may be too much for what one site may have: it may cut another in two.
    pub(crate) fn has_room_for_ranges(&self, of: &OwnerFile) -> bool {
        self.sites.of(of.host.ip).ranges + RANGES_OF_A_LOCK <= NLM_RANGES_PER_SITE_MAX
    }

    /// Forgets an owner-file, which its owner then has nothing of. To be called while its `held` is locked.
    pub(crate) fn forget_file(&mut self, of: &OwnerFile, now: Instant) {
        let Some(owner) = self.owners.get_mut(&of.owner.id) else { return };
        if owner.files.remove(&of.file).is_none() {
            return;
        }
        self.files -= 1;
        self.sites.change(of.host.ip, |load| load.files -= 1);
        let is_last = owner.files.is_empty();
        if is_last {
            self.owners.remove(&of.owner.id);
        }
        if let Some(host) = self.hosts.get_mut(&of.host) {
            host.active_at = now;
            if is_last {
                host.owners.remove(&of.name);
            }
        }
    }

    /// A number for a request that is to wait.
    pub(crate) fn enter_waiting(&mut self, of: &Arc<OwnerFile>) -> Result<u64, Full> {
        let of_site = self.sites.of(of.host.ip).blocked;
        if self.waiting.len() >= NLM_BLOCKED_MAX || of_site >= NLM_BLOCKED_PER_SITE_MAX {
            return Err(Full);
        }
        self.last_blocked += 1;
        self.waiting.insert(self.last_blocked, Arc::clone(of));
        self.sites.change(of.host.ip, |load| load.blocked += 1);
        Ok(self.last_blocked)
    }

    /// A request waits no more.
    pub(crate) fn leave_waiting(&mut self, number: u64) {
        if let Some(of) = self.waiting.remove(&number) {
            self.sites.change(of.host.ip, |load| load.blocked -= 1);
        }
    }

    /// The owner-file that a request of this number waits for.
    pub(crate) fn waiting(&self, number: u64) -> Option<&Arc<OwnerFile>> {
        self.waiting.get(&number)
    }

    /// All requests that wait, those first that came first.
    pub(crate) fn all_waiting(&self) -> Vec<(u64, Arc<OwnerFile>)> {
        let mut all: Vec<_> = self.waiting.iter().map(|(number, of)| (*number, Arc::clone(of))).collect();
        all.sort_by_key(|(number, _)| *number);
        all
    }

    /// All that a host has.
    pub(crate) fn files_of(&self, host: &HostName) -> Vec<Arc<OwnerFile>> {
        let Some(host) = self.hosts.get(host) else { return Vec::new() };
        let owners = host.owners.values().filter_map(|id| self.owners.get(id));
        owners.flat_map(|owner| owner.files.values().cloned()).collect()
    }

    /// Hosts that have had nothing for long.
    pub(crate) fn idle_hosts(&self, now: Instant) -> Vec<HostName> {
        self.hosts.iter().filter(|(_, host)| host.is_idle(now)).map(|(name, _)| name.clone()).collect()
    }

    /// Forgets a host that still has nothing; whether it did.
    pub(crate) fn forget_host(&mut self, name: &HostName, now: Instant) -> bool {
        let is_idle = self.hosts.get(name).is_some_and(|host| host.is_idle(now));
        if is_idle {
            self.hosts.remove(name);
            self.sites.change(name.ip, |load| load.hosts -= 1);
        }
        is_idle
    }

    /// Owner-files and waiting requests: for tests and the status page.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.files, self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(ip: u8, n: usize) -> HostName {
        HostName { ip: [192, 0, 2, ip].into(), caller: n.to_string().into_bytes() }
    }

    #[test]
    fn an_address_of_many_names_leaves_room_to_others() {
        let (mut table, local, start) = (Table::default(), [192, 0, 2, 254].into(), Instant(0));
        for n in 0..NLM_HOSTS_PER_SITE_MAX {
            assert!(table.host(&name(1, n), local, start).is_ok());
        }
        assert!(table.host(&name(1, NLM_HOSTS_PER_SITE_MAX), local, start).is_err());
        assert!(table.host(&name(1, 7), local, start).is_ok(), "one that is known");
        assert!(table.host(&name(2, 0), local, start).is_ok());
        let later = start.after_ms(NLM_HOST_IDLE_MS + 1);
        for host in table.idle_hosts(later) {
            assert!(table.forget_host(&host, later));
        }
        assert!(table.sites.is_empty() && table.hosts.is_empty());
    }
}
