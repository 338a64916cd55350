use std::sync::atomic::AtomicU32;

use super::*;

fn counted() -> (Arc<AtomicU32>, impl FnOnce() + Send + 'static) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    (count, move || {
        counted.fetch_add(1, Ordering::SeqCst);
    })
}

#[test]
fn an_interrupt_reaches_the_request_that_is_served_and_no_other() {
    let board = Board::default();
    let (one, other) = (board.join(), board.join());
    assert!(board.begin(&one, 2).is_empty());
    assert!(board.begin(&other, 4).is_empty());
    assert!(board.interrupt(4, 5).is_empty());
    assert!(!Interrupt::new(Arc::clone(&one), 2).is_set());
    let struck = Interrupt::new(Arc::clone(&other), 4);
    assert_eq!(struck.check(), Err(Errno::INTR));
    board.end(&other);
    assert!(board.begin(&other, 6).is_empty());
    assert!(!Interrupt::new(Arc::clone(&other), 6).is_set(), "the next request is another");
}

#[test]
fn an_interrupt_that_comes_before_its_request_waits_for_it() {
    let board = Board::default();
    let slot = board.join();
    assert!(board.interrupt(2, 3).is_empty());
    assert!(board.begin(&slot, 4).is_empty());
    assert!(!Interrupt::new(Arc::clone(&slot), 4).is_set());
    board.end(&slot);
    assert!(board.begin(&slot, 2).is_empty());
    assert!(Interrupt::new(Arc::clone(&slot), 2).is_set());
    assert_eq!(board.early_count.load(Ordering::SeqCst), 0, "it is used up");
}

#[test]
fn interrupts_beyond_the_bound_go_back_to_the_kernel_oldest_first() {
    let board = Board::default();
    for i in 1..=FUSE_EARLY_INTERRUPTS_MAX as u64 {
        assert!(board.interrupt(2 * i, 2 * i + 1).is_empty());
    }
    assert_eq!(board.interrupt(100_000, 100_001), [3]);
}

#[test]
fn interrupts_whose_request_never_comes_go_back_in_time() {
    let board = Board::default();
    let slot = board.join();
    assert!(board.interrupt(2, 3).is_empty());
    let past = Instant::now().checked_sub(Duration::from_secs(9)).expect("a time");
    board.early.lock()[0].at = past;
    assert_eq!(board.begin(&slot, 8), [3]);
}

#[test]
fn a_watch_is_woken_once_and_not_after_it_ended() {
    let board = Board::default();
    let slot = board.join();
    let _ = board.begin(&slot, 2);
    let interrupt = Interrupt::new(Arc::clone(&slot), 2);
    let ((kept, keep), (dropped, drop_it)) = (counted(), counted());
    let watch = interrupt.watch(keep);
    drop(interrupt.watch(drop_it));
    let _ = board.interrupt(2, 3);
    let _ = board.interrupt(2, 3);
    assert_eq!((kept.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 0));
    let (late, wake) = counted();
    let _late = interrupt.watch(wake);
    assert_eq!(late.load(Ordering::SeqCst), 1, "at once when it is set already");
    drop(watch);
}

#[test]
fn a_watch_that_outlives_its_request_is_not_woken_for_the_next() {
    let board = Board::default();
    let slot = board.join();
    let _ = board.begin(&slot, 2);
    let (count, wake) = counted();
    let _watch = Interrupt::new(Arc::clone(&slot), 2).watch(wake);
    board.end(&slot);
    let _ = board.begin(&slot, 4);
    let _ = board.interrupt(4, 5);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_sleep_ends_with_the_interrupt_or_the_time() {
    let board = Board::default();
    let slot = board.join();
    let _ = board.begin(&slot, 2);
    let interrupt = Interrupt::new(Arc::clone(&slot), 2);
    assert!(!interrupt.sleep(Duration::from_millis(1)));
    let sleeper = std::thread::spawn(move || interrupt.sleep(Duration::from_secs(60)));
    let _ = board.interrupt(2, 3);
    assert!(sleeper.join().expect("no panic"));
}

#[test]
fn begin_and_interrupt_that_race_always_meet() {
    for unique in (2..1000).step_by(2) {
        let board = Arc::new(Board::default());
        let slot = board.join();
        let from = Arc::clone(&board);
        let interrupter = std::thread::spawn(move || {
            let _ = from.interrupt(unique, unique + 1);
        });
        let _ = board.begin(&slot, unique);
        interrupter.join().expect("no panic");
        assert!(Interrupt::new(Arc::clone(&slot), unique).is_set());
    }
}
