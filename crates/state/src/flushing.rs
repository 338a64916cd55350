//! How long a recall goes on while its holder flushes: as long as that makes progress. It decides on times alone, and never what is
//! flushed.

use holdfast_base::Instant;
use holdfast_base::limits::{RECALL_FLUSH_BYTES_MAX, RECALL_FLUSH_BYTES_PER_S, RECALL_STRETCH_MAX};
use serde::{Deserialize, Serialize};

/// What a holder has flushed since a recall began, and who waits for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flushing {
    /// Bytes that have come from it.
    bytes: u64,
    /// Since when a local process may be waiting in the kernel, which lets it go after a time of its own.
    #[serde(with = "crate::plain")]
    waits_outside: Option<Instant>,
}

impl Flushing {
    /// A local process may wait in the kernel from now on.
    pub(crate) fn waits_outside(&mut self, now: Instant) {
        self.waits_outside.get_or_insert(now);
    }

    /// So many bytes have come: until when the recall goes on, which had begun at `since` and would have ended at `until`.
    ///
    /// Whoever sends nothing for a recall's time is at its end. Whoever does send has [`RECALL_STRETCH_MAX`] times that, and longer by
    /// the time that what he sent takes at the least rate: so a flush goes on over a slow line, and by bytes that trickle nobody is held
    /// up for ever. Who has sent [`RECALL_FLUSH_BYTES_MAX`] has sent all that he can have kept, and something else by now: his time is
    /// not made longer any more. And where a local process may be waiting, all is over before the kernel lets it go.
    pub(crate) fn come(
        &mut self,
        bytes: u64,
        (since, until): (Instant, Instant),
        (now, recall_ms): (Instant, u64),
    ) -> Instant {
        self.bytes = self.bytes.saturating_add(bytes).min(RECALL_FLUSH_BYTES_MAX);
        let stretched_ms = recall_ms.saturating_mul(RECALL_STRETCH_MAX);
        if self.bytes == RECALL_FLUSH_BYTES_MAX {
            return until;
        }
        let sending_ms = self.bytes * 1000 / RECALL_FLUSH_BYTES_PER_S;
        let bound = since.after_ms(stretched_ms.saturating_add(sending_ms));
        let bound = self.waits_outside.map_or(bound, |at| bound.min(at.after_ms(stretched_ms)));
        until.max(now.after_ms(recall_ms).min(bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECALL_MS: u64 = 10_000;

    /// When a recall ends of who sends so many bytes each second, for so long.
    fn ends_at(bytes_each: u64, seconds: u64, waits_outside: Option<u64>) -> u64 {
        let (mut flushing, since) = (Flushing::default(), Instant(0));
        let mut until = since.after_ms(RECALL_MS);
        for second in 1..=seconds {
            let now = Instant(second * 1000);
            if waits_outside == Some(second) {
                flushing.waits_outside(now);
            }
            if until <= now {
                break;
            }
            until = flushing.come(bytes_each, (since, until), (now, RECALL_MS));
        }
        until.0
    }

    #[test]
    fn who_flushes_over_a_slow_line_has_the_time_that_it_takes() {
        for mbit in [1, 2, 5, 40] {
            let each = mbit * RECALL_FLUSH_BYTES_PER_S;
            for bytes in [1 << 20, 64 << 20, 256 << 20] {
                let seconds: u64 = bytes / each;
                let end = ends_at(each, seconds, None);
                assert!(end >= seconds * 1000, "{bytes} bytes by {mbit} Mbit/s: {end}");
                assert!(end <= seconds * 1000 + RECALL_MS, "and is not waited for longer: {end}");
            }
        }
    }

    #[test]
    fn who_trickles_has_no_longer_than_who_sends_nothing_that_counts() {
        assert_eq!(ends_at(0, 1000, None), RECALL_STRETCH_MAX * RECALL_MS);
        assert_eq!(ends_at(1, 1000, None), RECALL_STRETCH_MAX * RECALL_MS);
        let slow = RECALL_FLUSH_BYTES_PER_S / 2;
        assert_eq!(ends_at(slow, 1000, None), RECALL_STRETCH_MAX * RECALL_MS * 2 - 1000);
    }

    #[test]
    fn who_sends_without_end_comes_to_one() {
        for each in [RECALL_FLUSH_BYTES_PER_S, 1 << 20, 100 << 20] {
            let seconds = (RECALL_FLUSH_BYTES_MAX - 1) / each;
            assert_eq!(ends_at(each, 1_000_000, None), seconds * 1000 + RECALL_MS, "{each} bytes a second");
        }
    }

    #[test]
    fn the_kernel_lets_no_local_process_go_before() {
        for second in [1, 25, 100] {
            let end = ends_at(1 << 20, 1_000_000, Some(second));
            assert_eq!(end, second * 1000 + RECALL_STRETCH_MAX * RECALL_MS);
        }
    }
}
