//! Threads that keep something back for a moment, to let it go together with what they do next, and what they do next,
//! which may take to waiting. One knows nothing of the other: this is where they meet.

use std::cell::Cell;

thread_local! {
    static KEEPER: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Has this thread call `let_go` whenever something on it is about to wait for somebody else. The last one holds.
pub fn let_go_before_waiting(let_go: fn()) {
    KEEPER.set(Some(let_go));
}

/// To be called before waiting for somebody else: a client, a promise to be given back. Nothing that `let_go` may want
/// is to be locked.
pub fn about_to_wait() {
    if let Some(let_go) = KEEPER.get() {
        let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_keeps_something_back_lets_go() {
        thread_local! {
            static LET_GO: Cell<u32> = const { Cell::new(0) };
        }
        about_to_wait();
        assert_eq!(LET_GO.get(), 0);
        let_go_before_waiting(|| LET_GO.set(LET_GO.get() + 1));
        about_to_wait();
        std::thread::spawn(|| {
            about_to_wait();
            assert_eq!(LET_GO.get(), 0);
        })
        .join()
        .unwrap();
        assert_eq!(LET_GO.get(), 1);
    }
}
