//! What the thread that mends has before it, and what is known of lease and promises.

use std::time::{Duration, Instant};

use holdfast_wire::nfs4::Stateid4;
use parking_lot::{Condvar, Mutex};

use crate::Handle;
use crate::boot::BootTime;
use crate::exchange::Orphan;
use crate::moved::Missing;
use crate::run::REFUSALS_MAX;

/// What is left to do.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) work: Mutex<Work>,
    pub(crate) is_filled: Condvar,
}

/// It.
#[derive(Default)]
pub(crate) struct Work {
    /// Something changed that the thread should look at.
    pub(crate) is_awake: bool,
    pub(crate) is_over: bool,
    /// The server restarted: what it knew must be told it again.
    pub(crate) must_reclaim: bool,
    pub(crate) reclaim: Reclaim,
    /// Of the time that other programs have to claim theirs, what they have had.
    pub(crate) claimed_for: Duration,
    /// So often recovery was told that the lease was over, and began anew, since it last came to an end.
    pub(crate) leases_lost: u32,
    /// State may have been revoked.
    pub(crate) must_look: bool,
    /// The back channel does not work.
    pub(crate) must_rebind: bool,
    /// The back channel's slots are out of step, for good.
    pub(crate) must_replace: bool,
    /// It is said to lie elsewhere.
    pub(crate) missing: Option<Missing>,
    /// Where else the mount's files are was not asked yet, over this connection.
    pub(crate) must_ask_for_others: bool,
    /// State that the server refused.
    pub(crate) suspects: Vec<(Handle, Stateid4)>,
    pub(crate) orphans: Vec<Orphan>,
    pub(crate) renewed: Option<BootTime>,
    /// When the last request was sent whose answer did not put promises in doubt.
    pub(crate) promised: Option<BootTime>,
    /// How long what is promised may be relied on after that, where that is less than a lease.
    pub(crate) reliance: Option<Duration>,
    pub(crate) looked: Option<Instant>,
    pub(crate) rebound: Option<Instant>,
    /// When it was last asked where the file system is, because a file system has moved.
    pub(crate) sought: Option<Instant>,
    pub(crate) replaced: Option<Instant>,
}

/// How far reclaiming is, in a recovery that is not over: whether an answer that tells of a restart tells anything new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reclaim {
    /// It was not begun: whichever answer says so tells of a restart.
    #[default]
    Not,
    /// Every answer says so, until RECLAIM_COMPLETE.
    Underway,
    /// The same, and other programs have claimed theirs of this life of the server: what it promises goes on.
    Claimed,
    /// What operations still hear may have been said before; what recovery itself asks is asked now.
    Done,
}

impl Work {
    /// The server restarted, and nothing makes sense before it was told what it knew.
    pub(crate) const fn is_reclaim_due(&self) -> bool {
        self.must_reclaim && !matches!(self.reclaim, Reclaim::Underway | Reclaim::Claimed)
    }

    /// Whether recovery begins anew with another lease. A server that says of each that it is over means something else.
    pub(crate) const fn may_lose_lease(&mut self) -> bool {
        self.leases_lost += 1;
        self.leases_lost <= REFUSALS_MAX
    }

    /// How long promises are relied on without another word, with this lease.
    pub(crate) fn promises_last(&self, lease: Duration) -> Duration {
        self.reliance.map_or(lease, |reliance| reliance.min(lease))
    }
}

impl Todo {
    /// Has the thread look after connections and the session.
    pub(crate) fn wake(&self) {
        self.change(|work| work.is_awake = true);
    }

    /// [`Todo::wake`], unless there is no need.
    pub(crate) fn wake_unless(&self, is_fine: bool) {
        if !is_fine {
            self.wake();
        }
    }

    /// Ends the thread.
    pub(crate) fn quit(&self) {
        self.change(|work| work.is_over = true);
    }

    /// Notes a request whose end is not known.
    pub(crate) fn orphan(&self, orphan: Orphan) {
        self.change(|work| work.orphans.push(orphan));
    }

    /// The lease was renewed by a request sent then.
    pub(crate) fn renewed(&self, sent: BootTime) {
        let mut work = self.work.lock();
        if work.renewed.is_none_or(|renewed| renewed < sent) {
            work.renewed = Some(sent);
        }
    }

    /// What is promised goes on, as was said to a request sent then. By a server that `has_restarted`, and was not told what it had
    /// promised, nothing is said of that.
    pub(crate) fn promised(&self, sent: BootTime, has_restarted: bool) {
        let mut work = self.work.lock();
        if !has_restarted || work.reclaim == Reclaim::Claimed {
            work.promised = work.promised.max(Some(sent));
        }
    }

    /// Promises may be relied on for so long without another word.
    pub(crate) fn rely_for(&self, at_most: Duration) {
        self.change(|work| work.reliance = Some(at_most));
    }

    /// How long promises may still be relied on, with this lease.
    pub(crate) fn promises_left(&self, lease: Duration) -> Duration {
        let work = self.work.lock();
        let left = |since: Option<BootTime>, all: Duration| {
            since.map_or(Duration::ZERO, |since| all.saturating_sub(since.elapsed()))
        };
        left(work.renewed, lease).min(left(work.promised, work.promises_last(lease)))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Work)) {
        change(&mut self.work.lock());
        self.is_filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_hold_for_so_long_after_the_last_word_that_did_not_put_them_in_doubt() {
        let (todo, lease, second) = (Todo::default(), Duration::from_secs(600), Duration::from_secs(1));
        let now = BootTime::now();
        let earlier = now.before(10 * second);
        todo.renewed(now);
        assert_eq!(todo.promises_left(lease), Duration::ZERO, "nothing was said of them");
        todo.promised(earlier, true);
        assert_eq!(todo.promises_left(lease), Duration::ZERO, "nor of what was before a restart");
        todo.promised(earlier, false);
        assert!(todo.promises_left(lease) > 300 * second);
        todo.rely_for(200 * second);
        let left = todo.promises_left(lease);
        assert!(left > 100 * second && left <= 190 * second, "{left:?}");
        // The lease is renewed, and they are in doubt.
        todo.renewed(BootTime::now());
        assert!(todo.promises_left(lease) <= left);
        todo.change(|work| work.reclaim = Reclaim::Underway);
        todo.promised(now, true);
        assert!(todo.promises_left(lease) <= left, "nothing was claimed of it");
        todo.change(|work| work.reclaim = Reclaim::Claimed);
        todo.promised(now, true);
        todo.promised(earlier, true);
        assert!(todo.promises_left(lease) > left, "nor does an older word count");
    }
}
