//! How long who waits for the machine waits for a server that says nothing (`soft`): its own calls have a time each, and what
//! goes out in the background is sent again and again for as long as it takes.

use std::time::{Duration, Instant};

use holdfast_cache::Fh;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// What the kernel reads ahead in vain it asks for once more, on behalf of the same call: so long afterwards at the longest, on a
/// busy machine.
const ONCE_MORE: Duration = Duration::from_millis(500);

/// The time that is waited, and when the server was last heard of by what goes out in the background.
#[derive(Debug)]
pub(crate) struct Patience {
    time: Option<Duration>,
    heard: Mutex<Instant>,
    /// Opens through which a read has just been waited for long enough.
    in_vain: Mutex<FxHashMap<Fh, Instant>>,
}

impl Patience {
    pub(crate) fn new(time: Option<Duration>) -> Self {
        Self { time, heard: Mutex::new(Instant::now()), in_vain: Mutex::default() }
    }

    /// The server has answered: what is slow because there is much of it goes on.
    pub(crate) fn heard(&self) {
        if self.time.is_some() {
            *self.heard.lock() = Instant::now();
        }
    }

    /// When who waits since then has waited long enough, as far as it is known by now.
    pub(crate) fn over(&self, since: Instant) -> Option<Instant> {
        self.time.map(|time| since.max(*self.heard.lock()) + time)
    }

    /// A read has failed as the server said nothing.
    pub(crate) fn read_in_vain(&self, fh: Fh) {
        if self.time.is_some() {
            let mut in_vain = self.in_vain.lock();
            in_vain.retain(|_, since| since.elapsed() < ONCE_MORE);
            in_vain.insert(fh, Instant::now());
        }
    }

    /// Whether a read that begins now is, by all appearances, the one that has just failed: who waits has waited long enough, and
    /// would have to again. Said once.
    pub(crate) fn was_in_vain(&self, fh: Fh) -> bool {
        if self.time.is_none() {
            return false;
        }
        let since = self.in_vain.lock().remove(&fh);
        since.is_some_and(|since| since.elapsed() < ONCE_MORE && *self.heard.lock() < since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_when_nothing_was_heard_for_its_time() {
        let since = Instant::now();
        assert_eq!(Patience::new(None).over(since), None);
        let patience = Patience::new(Some(Duration::from_secs(5)));
        let later = since + Duration::from_secs(60);
        assert_eq!(patience.over(later), Some(later + Duration::from_secs(5)), "as long as it waits itself");
        patience.heard();
        assert!(patience.over(since) >= Some(since + Duration::from_secs(5)));
        *patience.heard.lock() = later;
        assert_eq!(patience.over(since), Some(later + Duration::from_secs(5)));
    }

    #[test]
    fn a_read_in_vain_is_not_waited_for_twice_unless_the_server_was_heard_of() {
        let (one, other) = (Fh(1), Fh(2));
        let patience = Patience::new(Some(Duration::from_secs(5)));
        patience.read_in_vain(one);
        assert!(!patience.was_in_vain(other), "another file");
        assert!(patience.was_in_vain(one));
        assert!(!patience.was_in_vain(one), "who tries again by himself waits again");
        patience.read_in_vain(one);
        patience.heard();
        assert!(!patience.was_in_vain(one), "it is back");
        let hard = Patience::new(None);
        hard.read_in_vain(one);
        assert!(!hard.was_in_vain(one));
    }
}
