//! A thread's word, before it waits for somebody else, to who gave it its work: so that what would come after it is done
//! by others meanwhile. Who waits and who gives work are crates that do not know of each other.

use std::cell::Cell;

thread_local! {
    static TOLD: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Has this function called whenever this thread is about to wait. One a thread; it is called on that thread.
pub fn tell(told: fn()) {
    TOLD.set(Some(told));
}

/// To be called by who is about to wait for what takes longer than work does: a peer's answer, not a disk. Nobody may hold a
/// lock then that other work needs.
pub fn about_to_wait() {
    if let Some(told) = TOLD.get() {
        told();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{about_to_wait, tell};

    thread_local! {
        static TIMES: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn who_gave_a_thread_its_work_is_told_and_nobody_elses_is() {
        about_to_wait();
        tell(|| TIMES.set(TIMES.get() + 1));
        about_to_wait();
        std::thread::spawn(about_to_wait).join().unwrap();
        assert_eq!(TIMES.get(), 1);
    }
}
