//! A lock granted to a waiter whose client has not said yet that it knows: what the client may believe because of it,
//! and what may still be heard of it.

use holdfast_base::limits::NLM_GRANTED_PATIENCE_MS;
use holdfast_base::{ByteRange, Instant};
use holdfast_state::{LockKind, RangeMap};

/// Locks by range, all within one range.
pub(crate) fn whole(range: ByteRange, kind: LockKind) -> RangeMap<LockKind> {
    let mut map = RangeMap::default();
    map.set(range, kind);
    map
}

/// Adds a lock to others: the stronger counts.
pub(crate) fn strengthen(map: &mut RangeMap<LockKind>, (range, kind): (ByteRange, LockKind)) {
    let stronger = map.within(range).into_iter().filter(|(_, had)| *had > kind);
    let stronger: Vec<_> = stronger.collect();
    map.set(range, kind);
    stronger.into_iter().for_each(|(part, had)| map.set(part, had));
}

/// What of a range is not in a map.
pub(crate) fn gaps(map: &RangeMap<LockKind>, range: ByteRange) -> Vec<ByteRange> {
    let mut gaps = RangeMap::default();
    gaps.set(range, ());
    map.within(range).into_iter().for_each(|(part, _)| gaps.clear(part));
    gaps.iter().map(|(gap, ())| gap).collect()
}

/// What becomes of a grant next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its client is told until it has heard.
    Wanted,
    /// Its client has asked for something else of these bytes since it may have heard. To tell it again would give it what
    /// it let go; should it not have heard, it asks again by itself.
    Torn,
    /// Nothing more will be heard: its client refused, or was not heard of, and may have taken an earlier call. Until
    /// `next_at` it may cancel; then it has the lock.
    Doubted,
    /// Its client has cancelled while a call was on its way to it.
    Cancelled,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) since: Instant,
    /// When something is to be done about it, should nothing be heard until then.
    pub(crate) next_at: Instant,
    pub(crate) tries: u32,
    /// Calls under way.
    pub(crate) calls: u32,
    /// The client may have taken a call whose answer was lost: it then refuses the next one.
    pub(crate) may_be_known: bool,
    pub(crate) standing: Standing,
    /// What its client has of it, should it have heard: all, but what it has asked for since.
    pub(crate) claim: RangeMap<LockKind>,
}

impl Granted {
    pub(crate) fn new(now: Instant, (range, kind): (ByteRange, LockKind)) -> Self {
        Self {
            since: now,
            next_at: now,
            tries: 0,
            calls: 0,
            may_be_known: false,
            standing: Standing::Wanted,
            claim: whole(range, kind),
        }
    }

    /// Whether its client may have heard of it.
    pub(crate) const fn is_told(&self) -> bool {
        self.may_be_known || self.calls > 0
    }

    /// Nothing more is to be heard of it.
    pub(crate) const fn doubt(&mut self, now: Instant) {
        self.standing = Standing::Doubted;
        self.next_at = now.after_ms(NLM_GRANTED_PATIENCE_MS);
    }

    /// Whether it is all there, as it was granted.
    pub(crate) fn is_whole(&self, range: ByteRange, kind: LockKind) -> bool {
        self.claim == whole(range, kind)
    }

    /// Its client has got something of a range by asking for it, or has let go of it: should it have heard of this grant,
    /// then before that.
    pub(crate) fn yield_to(&mut self, range: ByteRange) {
        if self.is_told() && self.claim.overlapping(range).next().is_some() {
            self.claim.clear(range);
            if self.standing == Standing::Wanted {
                self.standing = Standing::Torn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> ByteRange {
        ByteRange::from_bounds(first, last).unwrap()
    }

    #[test]
    fn what_a_client_asked_for_before_it_can_have_heard_takes_nothing_from_a_grant() {
        let mut untold = Granted::new(Instant(0), (range(0, 9), LockKind::Write));
        untold.yield_to(range(0, 4));
        assert!(untold.is_whole(range(0, 9), LockKind::Write) && untold.standing == Standing::Wanted);
    }

    #[test]
    fn what_a_client_asked_for_since_it_may_have_heard_counts_instead() {
        let untold = Granted::new(Instant(0), (range(0, 9), LockKind::Write));
        let mut granted = Granted { calls: 1, ..untold };
        granted.yield_to(range(0, 4));
        assert_eq!(granted.claim.iter().collect::<Vec<_>>(), [(range(5, 9), LockKind::Write)]);
        assert_eq!(granted.standing, Standing::Torn);
    }

    #[test]
    fn adding_a_weaker_lock_leaves_what_is_stronger() {
        let mut map = whole(range(3, 5), LockKind::Write);
        strengthen(&mut map, (range(0, 9), LockKind::Read));
        let parts = [(0, 2, LockKind::Read), (3, 5, LockKind::Write), (6, 9, LockKind::Read)];
        let parts: Vec<_> = parts.into_iter().map(|(a, b, kind)| (range(a, b), kind)).collect();
        assert_eq!(map.iter().collect::<Vec<_>>(), parts);
        assert_eq!(gaps(&map, range(8, 12)), [range(10, 12)]);
    }
}
