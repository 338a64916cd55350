//! Hosts: on record before their first lock, asked back after a restart of ours, relieved of their locks after one of
//! theirs.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_base::limits::RECORD_WAIT_MS;
use holdfast_store::StoreError;
use holdfast_wire::nlm4::NlmStat4;

use crate::held::{Held, OwnerFile};
use crate::lockd::Lockd;
use crate::locks::How;
use crate::names::HostName;
use crate::records::HostRecord;
use crate::table::Host;

impl Lockd {
    /// Puts a host on record, where that is asked for, unless it is: before it hears that it has a lock or waits for
    /// one, and not for a refusal, which anybody may provoke. Waits for the disk, but of those who come while it hangs one
    /// alone: the others are told to come again.
    pub(crate) fn keep_host(&self, host: &HostName, local: IpAddr, how: How) -> Result<(), NlmStat4> {
        let is_settled = || self.table.lock().hosts.get(host).is_some_and(|of| of.is_recorded);
        if is_settled() || !how.is_monitored {
            return Ok(());
        }
        let wait_ms = if self.is_record_late.load(Ordering::Relaxed) { 0 } else { RECORD_WAIT_MS };
        let Some(_turn) = self.record_turn.try_lock_for(Duration::from_millis(wait_ms)) else {
            self.is_record_late.store(true, Ordering::Relaxed);
            return Err(NlmStat4::DeniedGracePeriod);
        };
        self.is_record_late.store(false, Ordering::Relaxed);
        if is_settled() {
            return Ok(());
        }
        let has_lost = self.table.lock().hosts.get(host).is_some_and(|of| of.has_lost);
        if let Err(error) = self.records.keep(&HostRecord { host: host.clone(), local, has_lost }) {
            tracing::error!(%error, "a host cannot be put on record: it gets no locks");
            if let Some(known) = self.table.lock().hosts.get_mut(host) {
                known.is_in_doubt = true;
            }
            return Err(NlmStat4::DeniedNoLocks);
        }
        match self.table.lock().host(host, local, self.now()) {
            // Where it restarted in this moment, its next lock has it recorded anew.
            Ok(known) => (known.is_recorded, known.is_in_doubt) = (known.has_lost == has_lost, false),
            Err(_) => return Err(NlmStat4::DeniedNoLocks),
        }
        Ok(())
    }

    /// Whether a host may have a lock.
    pub(crate) fn admit_host(&self, host: &HostName, local: IpAddr, reclaims: bool) -> Result<(), NlmStat4> {
        let is_in_grace = self.is_in_grace();
        let mut table = self.table.lock();
        let known = table.host(host, local, self.now()).map_err(|_| NlmStat4::DeniedNoLocks)?;
        if reclaims && !known.may_reclaim {
            // Nothing says that it had anything, or others may have had it since.
            return Err(if is_in_grace { NlmStat4::Denied } else { NlmStat4::DeniedGracePeriod });
        }
        known.has_reclaimed |= reclaims;
        Ok(())
    }

    /// Ends grace for the lock manager, before the engine is told: hosts that reclaimed nothing, or might not, are forgotten,
    /// so that they cannot after another restart reclaim what others have had since. Waits for the disk.
    ///
    /// # Errors
    /// Those of the store; grace must then not end.
    pub fn end_grace(&self) -> Result<(), StoreError> {
        let _turn = self.record_turn.lock();
        let (missed, barred) = {
            let table = self.table.lock();
            let those = |which: fn(&Host) -> bool| -> Vec<HostName> {
                let hosts = table.hosts.iter().filter(|(_, host)| which(host));
                hosts.map(|(name, _)| name.clone()).collect()
            };
            (those(|host| host.may_reclaim && !host.has_reclaimed), those(|host| host.is_barred))
        };
        // From here on none of them reclaims; should the records stay, grace does, and they may again.
        self.set_may_reclaim(&missed, false);
        let gone = [missed.as_slice(), &barred].concat();
        if let Err(error) = self.records.forget(&gone) {
            self.set_may_reclaim(&missed, true);
            return Err(error);
        }
        let mut table = self.table.lock();
        for host in &gone {
            if let Some(host) = table.hosts.get_mut(host) {
                (host.is_recorded, host.has_lost) = (false, false);
            }
        }
        for host in table.hosts.values_mut() {
            (host.may_reclaim, host.is_barred) = (false, false);
        }
        drop(table);
        self.is_in_grace.store(false, Ordering::Release);
        Ok(())
    }

    fn set_may_reclaim(&self, hosts: &[HostName], may: bool) {
        let mut table = self.table.lock();
        for host in hosts {
            if let Some(host) = table.hosts.get_mut(host) {
                host.may_reclaim = may;
            }
        }
    }

    /// A host says that it restarted: its locks go. `state` is its monitor's new state, where it told.
    pub(crate) fn host_restarted(&self, ip: IpAddr, name: &[u8], state: Option<i32>) {
        let restarted = {
            let mut table = self.table.lock();
            let mut here: Vec<HostName> = table.hosts.keys().filter(|host| host.ip == ip).cloned().collect();
            // A host alone at its address is meant, whatever it calls itself by now.
            if here.len() > 1 {
                here.retain(|host| host.is_called(name));
            }
            here.retain(|host| {
                let Some(known) = table.hosts.get_mut(host) else { return false };
                // Said again: the locks it has by now are new ones.
                let is_news = state.is_none() || known.state != state;
                known.state = state;
                if is_news && std::mem::take(&mut known.has_lost) {
                    // Its record says otherwise: the next lock has it written anew.
                    known.is_recorded = false;
                }
                is_news
            });
            here
        };
        for host in restarted {
            tracing::info!(ip = %host.ip, name = %host.caller.escape_ascii(), "a client restarted: its locks are free");
            self.free(&host, state);
        }
    }

    /// Has it on record that a host may reclaim nothing, before something is taken from it: NLM has no word to tell it, and
    /// after a restart it would reclaim that with the rest. It stays on record, for of the restart it must hear, and nobody
    /// may have what it believes to hold before it could. Whether that is so. Waits for the disk.
    pub(crate) fn bar_reclaims(&self, host: &HostName) -> bool {
        let _turn = self.record_turn.lock();
        let recorded = {
            let table = self.table.lock();
            let known = table.hosts.get(host).filter(|known| known.is_recorded || known.is_in_doubt);
            known.map(|known| HostRecord { host: host.clone(), local: known.local, has_lost: true })
        };
        let kept = recorded.map_or(Ok(()), |record| self.records.keep(&record));
        let mut table = self.table.lock();
        let Some(known) = table.hosts.get_mut(host) else { return kept.is_ok() };
        match kept {
            Ok(()) => (known.may_reclaim, known.has_lost, known.is_in_doubt) = (false, true, false),
            Err(error) => {
                tracing::error!(%error, "a host's record cannot be changed: nothing is taken from it");
                (known.is_recorded, known.is_in_doubt) = (false, true);
                return false;
            }
        }
        true
    }

    /// Takes everything from a host but what it got since its monitor has this state.
    fn free(&self, host: &HostName, state: Option<i32>) {
        let files = self.table.lock().files_of(host);
        for of in files {
            let mut held = of.held.lock();
            let is_new = held.state != 0 && state == Some(held.state);
            if !is_new {
                self.let_go_of(&of, &mut held);
            }
        }
    }

    /// Takes everything that an owner has of a file; whether it had anything.
    pub(crate) fn let_go_of(&self, of: &OwnerFile, held: &mut Held) -> bool {
        if held.is_gone {
            return false;
        }
        held.is_gone = true;
        self.count_ranges(of, held);
        for blocked in std::mem::take(&mut held.blocked) {
            self.leave_line(of, &blocked);
        }
        held.outside.close();
        let _ = self.step(|engine, now| engine.foreign_leave(of.owner, of.file, now));
        self.table.lock().forget_file(of, self.now());
        true
    }

    /// Forgets hosts that have had nothing for long, here and on record. Waits for the disk.
    pub fn forget_idle_hosts(&self) {
        let now = self.now();
        let idle = self.table.lock().idle_hosts(now);
        if idle.is_empty() {
            return;
        }
        let _turn = self.record_turn.lock();
        let mut table = self.table.lock();
        let gone: Vec<_> = idle.into_iter().filter(|host| table.forget_host(host, now)).collect();
        drop(table);
        // Not removed, a record costs one needless notice after a restart.
        if let Err(error) = self.records.forget(&gone) {
            tracing::warn!(%error, "records of hosts without locks cannot be removed");
        }
    }
}
