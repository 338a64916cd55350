//! Watches: hints that something changed. A watcher reads the store to learn what.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use holdfast_base::limits::{STORE_WATCH_KEYS_MAX, STORE_WATCHES_MAX};
use parking_lot::{Condvar, Mutex};

use crate::{Result, StoreError};

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// This key was set or deleted, perhaps several times.
    Key(Vec<u8>),
    /// More changed than the watch holds: look at the whole prefix.
    Many,
}

#[derive(Default)]
struct Queue {
    keys: VecDeque<Vec<u8>>,
    overflowed: bool,
}

struct Shared {
    prefix: Vec<u8>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A watch on a prefix; dropping it ends it.
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// The next change, waiting at most `timeout` for it. Changes of one key that were not fetched yet are
    /// told once.
    #[must_use]
    pub fn next(&self, timeout: Duration) -> Option<Seen> {
        let until = Instant::now() + timeout;
        let mut queue = self.shared.queue.lock();
        loop {
            if std::mem::take(&mut queue.overflowed) {
                queue.keys.clear();
                return Some(Seen::Many);
            }
            if let Some(key) = queue.keys.pop_front() {
                return Some(Seen::Key(key));
            }
            if self.shared.changed.wait_until(&mut queue, until).timed_out() {
                return queue.keys.pop_front().map(Seen::Key);
            }
        }
    }
}

/// All watches of one store, for its implementation.
#[derive(Default)]
pub struct Watchers {
    list: Mutex<Vec<Weak<Shared>>>,
}

impl Watchers {
    /// Adds a watch.
    ///
    /// # Errors
    /// [`StoreError::Bounds`] when there are [`STORE_WATCHES_MAX`] already.
    pub fn add(&self, prefix: &[u8]) -> Result<Watch> {
        let mut list = self.list.lock();
        list.retain(|w| w.strong_count() > 0);
        if list.len() >= STORE_WATCHES_MAX {
            return Err(StoreError::Bounds("the number of watches"));
        }
        let shared =
            Arc::new(Shared { prefix: prefix.to_vec(), queue: Mutex::default(), changed: Condvar::new() });
        list.push(Arc::downgrade(&shared));
        Ok(Watch { shared })
    }

    /// Tells every watch on a prefix of `key`.
    pub fn tell(&self, key: &[u8]) {
        let list = self.list.lock();
        for shared in list.iter().filter_map(Weak::upgrade).filter(|s| key.starts_with(&s.prefix)) {
            let mut queue = shared.queue.lock();
            if queue.keys.iter().any(|k| k == key) {
                continue;
            }
            if queue.keys.len() == STORE_WATCH_KEYS_MAX {
                queue.overflowed = true;
            } else {
                queue.keys.push_back(key.to_vec());
            }
            shared.changed.notify_all();
        }
    }
}
