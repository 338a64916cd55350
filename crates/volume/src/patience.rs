//! How long who waits for the machine waits for a server that says nothing (`soft`): its own calls have a time each, and what
//! goes out in the background is sent again and again for as long as it takes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time that is waited, and when the server was last heard of by what goes out in the background.
#[derive(Debug)]
pub(crate) struct Patience {
    time: Option<Duration>,
    heard: Mutex<Instant>,
}

impl Patience {
    pub(crate) fn new(time: Option<Duration>) -> Self {
        Self { time, heard: Mutex::new(Instant::now()) }
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
}
