//! Gates at which operations of the double can be made to wait.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use holdfast_fuse::{Request, Result};
use parking_lot::Mutex;

/// An operation that waits at its gate, and whether it says so.
#[derive(Default)]
pub(crate) struct Gates {
    closed: Mutex<HashMap<&'static str, bool>>,
    waiting: Mutex<HashSet<(&'static str, u64)>>,
}

impl Gates {
    pub(crate) fn close(&self, operation: &'static str, says_so: bool) {
        self.closed.lock().insert(operation, says_so);
    }

    pub(crate) fn open(&self, operation: &'static str) {
        self.closed.lock().remove(operation);
    }

    pub(crate) fn is_closed(&self, operation: &'static str) -> bool {
        self.closed.lock().contains_key(operation)
    }

    pub(crate) fn waiting(&self, operation: &'static str) -> usize {
        self.waiting.lock().iter().filter(|(name, _)| *name == operation).count()
    }

    pub(crate) fn pass(&self, operation: &'static str, request: &Request<'_>) -> Result<()> {
        let Some(says_so) = self.closed.lock().get(operation).copied() else { return Ok(()) };
        if says_so {
            request.will_wait();
        }
        let interrupt = request.interrupt();
        self.waiting.lock().insert((operation, request.unique()));
        let mut is_interrupted = false;
        while self.is_closed(operation) && !is_interrupted {
            is_interrupted = interrupt.sleep(Duration::from_millis(5));
        }
        self.waiting.lock().remove(&(operation, request.unique()));
        interrupt.check()
    }
}
