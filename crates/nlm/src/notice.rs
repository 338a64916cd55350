//! After a restart: hosts on record are told, again and again until they have heard or it is too late (SM_NOTIFY).

use holdfast_base::Instant;
use holdfast_base::limits::{NSM_NOTIFY_AT_ONCE_MAX, NSM_NOTIFY_MS};
use holdfast_wire::nsm::{NSM_PROGRAM, NSM_V1, SM_NOTIFY, StatChange};
use holdfast_xdr::to_bytes;

use crate::lockd::{Lockd, Work};
use crate::names::HostName;
use crate::peers::{NoAnswer, PeerCall};
use crate::records::HostRecord;

/// Until a host that did not answer is told again; twice as long each time after.
const PAUSE_MS: u64 = 1000;

/// The longest such pause.
const PAUSE_MS_MAX: u64 = 60_000;

#[derive(Debug)]
struct Notice {
    to: HostRecord,
    next_at: Instant,
    pause_ms: u64,
    is_under_way: bool,
}

/// Hosts that have not heard yet.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    open: Vec<Notice>,
    ends_at: Instant,
}

impl Notices {
    pub(crate) fn of(records: Vec<HostRecord>, now: Instant) -> Self {
        let new = |to| Notice { to, next_at: now, pause_ms: PAUSE_MS, is_under_way: false };
        Self { open: records.into_iter().map(new).collect(), ends_at: now.after_ms(NSM_NOTIFY_MS) }
    }

    /// Those who have not heard yet.
    pub(crate) fn untold(&self) -> impl Iterator<Item = &HostRecord> {
        self.open.iter().map(|notice| &notice.to)
    }

    /// Whom to tell now.
    fn take_due(&mut self, now: Instant) -> Vec<HostRecord> {
        if now >= self.ends_at {
            self.open.clear();
        }
        let under_way = self.open.iter().filter(|notice| notice.is_under_way).count();
        let due = self.open.iter_mut().filter(|notice| !notice.is_under_way && notice.next_at <= now);
        let due = due.take(NSM_NOTIFY_AT_ONCE_MAX.saturating_sub(under_way));
        due.map(|notice| {
            notice.is_under_way = true;
            notice.to.clone()
        })
        .collect()
    }

    fn answered(&mut self, host: &HostName, is_told: bool, now: Instant) {
        let Some(at) = self.open.iter().position(|notice| notice.to.host == *host) else { return };
        if is_told {
            self.open.swap_remove(at);
            return;
        }
        let notice = &mut self.open[at];
        notice.is_under_way = false;
        notice.next_at = now.after_ms(notice.pause_ms);
        notice.pause_ms = (2 * notice.pause_ms).min(PAUSE_MS_MAX);
    }
}

impl Lockd {
    /// Tells hosts of our restart.
    pub(crate) fn send_notices(&self) {
        let due = self.notices.lock().take_due(self.now());
        for HostRecord { host, local, .. } in due {
            let args = to_bytes(&StatChange { mon_name: &self.parts.name, state: self.nsm_state() });
            let call = PeerCall {
                peer: host.ip,
                from: local,
                program: NSM_PROGRAM,
                version: NSM_V1,
                procedure: SM_NOTIFY,
                args,
            };
            let queue = self.due();
            let answered = move |result: Result<Vec<u8>, NoAnswer>| {
                queue.push(Work::Notified { host, is_told: result.is_ok() });
            };
            self.parts.peers.call(call, Box::new(answered));
        }
    }

    pub(crate) fn notified(&self, host: &HostName, is_told: bool) {
        tracing::debug!(ip = %host.ip, is_told, "told a client of our restart");
        self.notices.lock().answered(host, is_told, self.now());
    }

    /// Hosts that have not heard of our restart yet.
    #[must_use]
    pub fn untold(&self) -> usize {
        self.notices.lock().open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: u8) -> HostRecord {
        let host = HostName { ip: [192, 0, 2, n].into(), caller: vec![n] };
        HostRecord { host, local: [192, 0, 2, 254].into(), has_lost: false }
    }

    #[test]
    fn a_host_is_told_until_it_has_heard_at_growing_distances() {
        let mut notices = Notices::of(vec![record(1)], Instant(0));
        let mut told_at = Vec::new();
        for second in 0..20 {
            let now = Instant(1000 * second);
            for to in notices.take_due(now) {
                told_at.push(second);
                notices.answered(&to.host, false, now);
            }
        }
        assert_eq!(told_at, [0, 1, 3, 7, 15]);
        let now = Instant(40_000);
        assert_eq!(notices.take_due(now).len(), 1);
        assert_eq!(notices.take_due(now).len(), 0, "it is being told");
        notices.answered(&record(1).host, true, now);
        assert!(notices.open.is_empty());
    }

    #[test]
    fn so_many_are_told_at_once_and_nobody_when_it_is_too_late() {
        let mut notices = Notices::of((0..200).map(record).collect(), Instant(0));
        assert_eq!(notices.take_due(Instant(0)).len(), NSM_NOTIFY_AT_ONCE_MAX);
        assert_eq!(notices.take_due(Instant(0)).len(), 0);
        assert_eq!(notices.take_due(Instant(NSM_NOTIFY_MS)).len(), 0);
        assert!(notices.open.is_empty());
    }
}
