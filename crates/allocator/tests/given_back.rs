//! What was freed in the middle of the heap is given back. Alone in its program, for it is about the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use holdfast_allocator::Surplus;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_many_threads_needed_for_a_while_is_given_back() {
    let mut surplus = Surplus::default();
    let start = Instant::now();
    surplus.tick(start);
    // Small pieces of several arenas, of which one in a hundred stays: no arena ends with what is free.
    let rest: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let piece = |n: usize| vec![n as u8; 1000];
        let work =
            move || (0..30_000).map(piece).collect::<Vec<_>>().into_iter().step_by(100).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let before = resident_kib();
    surplus.tick(start + Duration::from_secs(1));
    assert!(resident_kib() + 10_000 > before, "it is looked at now and then");
    surplus.tick(start + Duration::from_secs(6));
    let after = resident_kib();
    assert!(after + 60_000 < before, "{before} KiB before, {after} after");
    assert_eq!(rest.len(), 1200);
}
