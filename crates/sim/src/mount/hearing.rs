//! Until when a mount's promises are known to have gone on, and whether it has had anything still to be sent since: if they are
//! lost, that is what others could not ask for. The mount itself knows nothing of this; it is for who judges.

use std::cell::Cell;

use holdfast_cache::Machine;

/// What is known of whether promises go on.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// They went on when the server was asked then.
    sure_at: Cell<u64>,
    /// When something was still to be sent, at the latest.
    more_at: Cell<Option<u64>>,
    /// When the mount ceased to rely on them, and nothing that was asked since was answered.
    lapsed_at: Cell<Option<u64>>,
}

/// Whether anything has still to reach the server's disk.
pub(super) fn has_more(machine: &Machine) -> bool {
    let pending = machine.pending();
    pending.mutations > 0 || pending.bytes > 0
}

impl Hearing {
    /// Before and after each touch of the machine, for between two of them nothing changes.
    pub(super) fn looks(&self, now: u64, machine: &Machine) {
        if has_more(machine) {
            self.more_at.set(Some(now));
        }
    }

    /// The mount relies on nothing any more.
    pub(super) fn lapses(&self, now: u64) {
        self.lapsed_at.set(Some(now));
    }

    /// What was asked at `sent` was answered as it is only while promises go on. What was asked before the mount ceased to rely
    /// on them says nothing of what has become of them since.
    pub(super) fn hears(&self, sent: u64) {
        self.sure_at.set(self.sure_at.get().max(sent));
        if self.lapsed_at.get().is_some_and(|at| sent > at) {
            self.lapsed_at.set(None);
        }
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.lapsed_at.get().is_some()
    }

    /// When they were last known to go on, and whether anything was still to be sent then or since.
    pub(super) fn last(&self) -> (u64, bool) {
        let sure_at = self.sure_at.get();
        (sure_at, self.more_at.get().is_some_and(|at| at >= sure_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_before_the_lapse_says_nothing_of_what_has_become_of_promises_since() {
        let hearing = Hearing::default();
        hearing.more_at.set(Some(40));
        hearing.lapses(50);
        hearing.hears(45);
        assert!(hearing.is_in_doubt());
        assert_eq!(hearing.last(), (45, false), "nothing was left to be sent when they were still there");
        hearing.hears(51);
        assert!(!hearing.is_in_doubt());
    }

    #[test]
    fn what_was_sent_before_promises_were_known_to_go_on_is_not_owed() {
        let hearing = Hearing::default();
        hearing.hears(10);
        hearing.more_at.set(Some(10));
        assert_eq!(hearing.last(), (10, true));
        hearing.hears(11);
        assert_eq!(hearing.last(), (11, false));
    }
}
