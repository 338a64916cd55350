//! One descriptor of the server's, and what was written through it and is not known to be on disk.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A descriptor of the server's.
#[derive(Debug)]
pub(super) struct Lent<D> {
    pub(super) descriptor: D,
    pub(super) writes: bool,
    /// Rises with every write, before it begins and once it has ended: what is written while the file is put on disk is
    /// not there for that.
    written: AtomicU64,
    /// What `written` was when the file was last put on disk.
    synced: AtomicU64,
    /// Held by who puts it on disk: whoever else wants that waits, as it is not there before.
    syncing: Mutex<()>,
    /// It could not be put there: the error number, to be told once.
    failed: Mutex<Option<i32>>,
    /// How often, whoever was told.
    failures: AtomicU64,
}

impl<D> Lent<D> {
    pub(super) const fn new(descriptor: D, writes: bool) -> Self {
        let (written, synced) = (AtomicU64::new(0), AtomicU64::new(0));
        let (syncing, failed, failures) = (Mutex::new(()), Mutex::new(None), AtomicU64::new(0));
        Self { descriptor, writes, written, synced, syncing, failed, failures }
    }

    /// Something is about to be written, or was.
    pub(super) fn writing(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether something was written that is not known to be on disk.
    pub(super) fn is_unsynced(&self) -> bool {
        self.written.load(Ordering::SeqCst) != self.synced.load(Ordering::SeqCst)
    }

    /// Whether somebody still has to hear of it.
    pub(super) fn is_owing(&self) -> bool {
        self.is_unsynced() || self.failed.lock().is_some()
    }

    /// Puts on disk what was written before this was called. An error is noted; whoever commits next is told.
    pub(super) fn sync(&self, force: impl FnOnce(&D) -> Result<(), i32>) {
        let _turn = self.syncing.lock();
        let written = self.written.load(Ordering::SeqCst);
        if written == self.synced.load(Ordering::SeqCst) {
            return;
        }
        if let Err(errno) = force(&self.descriptor) {
            *self.failed.lock() = Some(errno);
            self.failures.fetch_add(1, Ordering::SeqCst);
        }
        // After the error: one of the two is seen by who asks whether anything is owing.
        self.synced.store(written, Ordering::SeqCst);
    }

    /// How often it could not be put on disk. What was written between two looks at it that tell the same, and is not unsynced, is
    /// there, though another may have been told of an error meanwhile.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// The error noted, told once.
    pub(super) fn take_failure(&self) -> Option<i32> {
        self.failed.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_while_the_file_is_put_on_disk_is_owing_still() {
        let lent = Lent::new((), true);
        lent.writing();
        lent.sync(|()| {
            assert!(lent.is_owing(), "not before it is there");
            // A write that began before has ended meanwhile.
            lent.writing();
            Ok(())
        });
        assert!(lent.is_owing());
        lent.sync(|()| Ok(()));
        assert!(!lent.is_owing());
        lent.sync(|()| panic!("there is nothing to be put on disk"));
    }

    #[test]
    fn that_it_failed_is_seen_by_who_wrote_though_another_was_told() {
        let lent = Lent::new((), true);
        let before = lent.failures();
        lent.writing();
        lent.sync(|()| Err(5));
        assert_eq!(lent.take_failure(), Some(5), "another is told");
        lent.sync(|()| panic!("there is nothing to be put on disk"));
        assert!(!lent.is_owing());
        assert_ne!(lent.failures(), before);
    }

    #[test]
    fn whoever_wants_it_on_disk_waits_for_who_is_putting_it_there() {
        let lent = &Lent::new((), true);
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (go_on, gone_on) = std::sync::mpsc::channel::<()>();
        lent.writing();
        std::thread::scope(|scope| {
            let first = scope.spawn(move || {
                lent.sync(|()| {
                    begun.send(()).unwrap();
                    gone_on.recv().unwrap();
                    Err(5)
                });
            });
            has_begun.recv().unwrap();
            let second = scope.spawn(|| {
                lent.sync(|()| panic!("the first does it"));
                lent.take_failure()
            });
            assert!(!second.is_finished());
            go_on.send(()).unwrap();
            first.join().unwrap();
            assert_eq!(second.join().unwrap(), Some(5));
        });
        assert!(!lent.is_owing(), "told once");
    }
}
