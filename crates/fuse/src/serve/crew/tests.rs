use super::*;

/// A crew whose threads exist on paper alone: the test plays them.
fn crew(threads_max: usize, readers: (usize, usize)) -> Crew {
    let crew = Crew::new(threads_max, readers, Box::new(|| true));
    assert!(crew.open());
    crew
}

#[test]
fn one_thread_reads_and_serves_while_operations_are_quick() {
    let crew = crew(8, (1, 4));
    let duty = crew.join();
    for unique in 0..100 {
        assert!(crew.begin(&duty, unique * 2, Some(&[])));
        assert_eq!(crew.end(&duty), Next::Read);
    }
    assert_eq!(crew.counts(), (1, 1));
}

#[test]
fn a_thread_that_waits_is_replaced_once() {
    let crew = crew(8, (1, 4));
    let duty = crew.join();
    assert!(crew.begin(&duty, 2, Some(&[])));
    crew.will_wait(&duty);
    crew.will_wait(&duty);
    assert_eq!(crew.counts(), (2, 1));
}

#[test]
fn a_request_that_lasts_is_noticed_by_the_watcher() {
    let crew = crew(8, (1, 4));
    let duty = crew.join();
    assert!(crew.begin(&duty, 2, Some(&[])));
    let mut seen = Vec::new();
    crew.relieve(&mut crew.state.lock(), &mut seen);
    assert_eq!(crew.counts(), (1, 1), "seen for the first time");
    crew.relieve(&mut crew.state.lock(), &mut seen);
    crew.fill(crew.state.lock());
    assert_eq!(crew.counts(), (2, 1));
    // Another request by the next tick is a quick one.
    let other = crew.join();
    for unique in [4, 6, 8] {
        assert!(crew.begin(&other, unique, Some(&[])));
        crew.relieve(&mut crew.state.lock(), &mut seen);
        assert_eq!(crew.end(&other), Next::Read);
    }
}

#[test]
fn the_last_thread_queues_what_it_reads() {
    let crew = crew(2, (1, 4));
    let (one, two) = (crew.join(), crew.join());
    assert!(crew.begin(&one, 2, Some(&[])), "another thread can still be had");
    crew.will_wait(&one);
    assert_eq!(crew.counts(), (2, 1));
    assert!(!crew.begin(&two, 4, Some(&[1])));
    assert_eq!(crew.end(&two), Next::Read);
    assert!(!crew.begin(&two, 6, Some(&[2])));
    assert_eq!(crew.end(&one), Next::Serve(vec![1]), "in order");
    assert!(crew.begin(&one, 4, None));
    assert_eq!(crew.end(&one), Next::Serve(vec![2]));
    crew.close();
    assert_eq!(crew.end(&one), Next::End);
    assert!(!crew.leave(&one));
    assert!(crew.leave(&two), "the last one of a closed crew");
}

#[test]
fn of_two_that_read_one_serves_when_no_other_can_be_had() {
    let crew = crew(3, (2, 2));
    let (one, two, three) = (crew.join(), crew.join(), crew.join());
    assert!(crew.begin(&one, 2, Some(&[])));
    crew.will_wait(&one);
    assert_eq!(crew.counts(), (3, 2));
    assert!(crew.begin(&two, 4, Some(&[])), "three is free");
    assert!(!crew.begin(&three, 6, Some(&[7])), "two may come to wait as well");
    crew.will_wait(&two);
    assert_eq!(crew.counts(), (3, 1));
    assert_eq!(crew.end(&two), Next::Serve(vec![7]));
}

#[test]
fn a_free_thread_gives_leave_to_serve() {
    let crew = crew(2, (1, 1));
    let (one, two) = (crew.join(), crew.join());
    assert!(crew.begin(&one, 2, Some(&[])));
    crew.will_wait(&one);
    assert!(!crew.begin(&two, 4, Some(&[])));
    assert_eq!(crew.queued(|queue| queue.pop_front()), Some(Vec::new()));
    // One comes free; here it is parked on paper.
    {
        let mut state = crew.state.lock();
        one.serving.store(0, Ordering::SeqCst);
        state.parked += 1;
        crew.update(&state);
    }
    assert!(crew.begin(&two, 6, Some(&[])));
}

#[test]
fn the_queue_is_bounded_in_bytes() {
    let crew = crew(2, (1, 1));
    let (one, two) = (crew.join(), crew.join());
    assert!(crew.begin(&one, 2, Some(&[])));
    crew.will_wait(&one);
    assert!(!crew.begin(&two, 4, Some(&vec![0; FUSE_QUEUE_BYTES_MAX])));
    assert!(crew.begin(&two, 6, Some(&[7])), "it is served, and what comes after it waits");
}

#[test]
fn backlog_brings_readers_and_quiet_takes_them_away() {
    let crew = crew(8, (1, 3));
    let mut state = crew.state.lock();
    for _ in 0..10 {
        crew.backlog.store(BACKLOG, Ordering::Relaxed);
        assert_eq!(crew.adapt(&mut state, 5), 0);
    }
    assert_eq!(state.wanted, 3, "up to the bound");
    let mut quiet = 0;
    for _ in 0..10 * QUIET_TICKS {
        quiet = crew.adapt(&mut state, quiet);
    }
    assert_eq!(state.wanted, 1, "down to the least");
}

#[test]
fn a_system_that_gives_no_more_threads_is_lived_with() {
    let left = AtomicUsize::new(1);
    let start = move || left.fetch_sub(1, Ordering::SeqCst) == 1;
    let crew = Crew::new(8, (1, 4), Box::new(start));
    assert!(crew.open());
    let duty = crew.join();
    assert!(crew.begin(&duty, 2, Some(&[])));
    crew.will_wait(&duty);
    assert_eq!(crew.counts(), (1, 0), "nobody reads until it returns");
    assert_eq!(crew.end(&duty), Next::Read);
    assert_eq!(crew.counts(), (1, 1));
}
