//! What is done beside calls, by time and by the administrator: it is waited for before everything is written down for another
//! process, and kept away from then on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

/// How long what is being done is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether everything but calls stands still.
#[derive(Default)]
pub(crate) struct Standstill {
    is_on: AtomicBool,
    /// Held by whoever does something.
    doing: RwLock<()>,
}

impl Standstill {
    /// To be held while something is done; `None` when nothing may be.
    pub(crate) fn doing(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.is_on() {
            return None;
        }
        let doing = self.doing.read();
        (!self.is_on()).then_some(doing)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Has nothing begin from now on, and waits for what is being done. False when that lasts too long: a disk may keep it.
    pub(crate) fn begin(&self) -> bool {
        self.is_on.store(true, Ordering::SeqCst);
        self.doing.try_write_for(PATIENCE).is_some()
    }

    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn what_is_being_done_is_waited_for_and_nothing_else_begins() {
        let standstill = Arc::new(Standstill::default());
        let doing = standstill.doing().unwrap();
        let waiting = thread::spawn({
            let standstill = Arc::clone(&standstill);
            move || standstill.begin()
        });
        while !standstill.is_on() {
            thread::yield_now();
        }
        assert!(standstill.doing().is_none(), "it begins");
        thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "something is being done");
        drop(doing);
        assert!(waiting.join().unwrap());
        assert!(standstill.doing().is_none());
        standstill.end();
        let _doing = standstill.doing().unwrap();
        assert!(!standstill.begin(), "it is not waited for for ever");
    }
}
