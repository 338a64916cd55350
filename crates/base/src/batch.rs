//! Calls that came together: read from one connection at once, and handled one after the other on one thread that waits
//! in between for a file system's journal at most. Whatever is seen of a file system while one of them runs was seen after all of them had come, and before
//! any of the later ones is answered; so it may be told to all. Who reads calls and who looks at files are crates that do
//! not know of each other.

use std::cell::Cell;
use std::num::NonZero;

/// The calls at hand: no others of this thread ever have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch(NonZero<u64>);

thread_local! {
    static CURRENT: Cell<Option<Batch>> = const { Cell::new(None) };
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// While it lives, what this thread does is done for calls that came before it was made.
#[derive(Debug)]
#[must_use]
pub struct Handling {
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

/// To be called once calls have been read, before the first of them is handled.
pub fn handling() -> Handling {
    let number = NonZero::<u64>::MIN.saturating_add(LAST.get());
    LAST.set(number.get());
    CURRENT.set(Some(Batch(number)));
    Handling { _of_this_thread: std::marker::PhantomData }
}

/// What this thread is at work on; `None` where calls are taken one by one.
#[must_use]
pub fn current() -> Option<Batch> {
    CURRENT.get()
}

impl Drop for Handling {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::{current, handling};

    #[test]
    fn each_batch_is_another_and_ends() {
        assert_eq!(current(), None);
        let first = {
            let _handling = handling();
            assert_eq!(current(), current());
            std::thread::spawn(|| assert_eq!(current(), None)).join().unwrap();
            current()
        };
        assert_eq!(current(), None);
        let _handling = handling();
        assert!(current().is_some() && current() != first);
    }
}
