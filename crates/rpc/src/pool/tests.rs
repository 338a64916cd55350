use std::sync::atomic::AtomicU32;

use holdfast_xdr::Writer;

use super::*;
use crate::detached::Detached;
use crate::message;
use crate::server::Limits;
use crate::service::{InLane, Mode, Outcome};

/// A pool whose jobs are run by the test.
fn pool() -> Arc<Pool> {
    let (state, overseer) = (Mutex::default(), Condvar::new());
    let seats = vec![Seat::default(), Seat::default()];
    Arc::new(Pool { state, seats, overseer, queue_max: 100, lane_threads: 2, workers: None })
}

fn client() -> Detached {
    Detached::new(vec![], Limits::default()).unwrap()
}

/// A call that takes turns for 7, and does this.
fn call(client: &Detached, xid: u32, run: impl FnOnce() + Send + 'static) -> Job {
    let mut reply = Writer::new();
    message::begin_reply(&mut reply, xid);
    let rest = move |_: &mut Writer, _: Mode| {
        run();
        Outcome::Reply
    };
    let resume = Box::new(InLane { lane: Some(Lane(1)), turn: Some(Turn(7)), is_brief: true, rest });
    Job::Call { work: Work::Resume { resume, reply, xid }, ticket: Ticket::in_flight(client.connection(), 0) }
}

fn pop(pool: &Pool, thread: usize) -> Option<Task> {
    pool.state.lock().pop(2, thread)
}

fn xid(task: &Task) -> u32 {
    match &task.job {
        Job::Call { work: Work::Resume { xid, .. }, .. } => *xid,
        _ => panic!("another job"),
    }
}

fn end(pool: &Pool, task: &Task) {
    pool.state.lock().finish(task.lane, task.claim);
}

#[test]
fn of_those_who_take_turns_one_is_out_at_a_time_and_they_come_in_order() {
    let (pool, client) = (pool(), client());
    (1..=3).for_each(|xid| pool.push(call(&client, xid, || {})));
    pool.push(Job::Run(Box::new(|| {})));
    let first = pop(&pool, 0).unwrap();
    assert_eq!(xid(&first), 1);
    assert!(matches!(pop(&pool, 1).unwrap().job, Job::Run(_)), "others are not held up");
    assert!(pop(&pool, 1).is_none());
    assert_eq!(pool.state.lock().len(), 2);
    end(&pool, &first);
    let second = pop(&pool, 0).unwrap();
    assert_eq!(xid(&second), 2);
    end(&pool, &second);
    let third = pop(&pool, 0).unwrap();
    end(&pool, &third);
    assert!(!pool.state.lock().turns.may_hold_up(), "nothing is left behind");
}

#[test]
fn those_of_one_turn_that_never_ends_let_others_in() {
    let (pool, client) = (pool(), client());
    (0..40).for_each(|xid| pool.push(call(&client, xid, || {})));
    pool.push(Job::Run(Box::new(|| {})));
    let before = (0..).take_while(|_| {
        let task = pop(&pool, 0).unwrap();
        end(&pool, &task);
        task.claim.is_some()
    });
    // The first stood before it in the queue; then it waits for as many as may come in a row.
    assert!(before.count() <= 1 + holdfast_base::limits::TURN_REPLIES_MAX);
}

#[test]
fn who_keeps_a_turn_from_one_look_to_the_next_loses_it() {
    let (pool, client) = (pool(), client());
    (1..=4).for_each(|xid| pool.push(call(&client, xid, || {})));
    assert!(pool.state.lock().relieve(false).is_empty(), "nobody has begun");
    let first = pop(&pool, 1).unwrap();
    assert!(pool.state.lock().relieve(false).is_empty());
    assert_eq!(pool.state.lock().relieve(false), [Runner::Thread(1)]);
    let second = pop(&pool, 0).unwrap();
    assert_eq!(xid(&second), 2);
    // It has lost its turn: that it ends is nothing to those who have it since.
    end(&pool, &first);
    assert!(pop(&pool, 1).is_none());
    end(&pool, &second);
    assert_eq!(pop(&pool, 1).map(|task| xid(&task)), Some(3));
}

#[test]
fn where_looks_are_late_more_have_a_turn_at_once_and_one_again_when_they_are_not() {
    let (pool, client) = (pool(), client());
    (1..=100).for_each(|xid| pool.push(call(&client, xid, || {})));
    let begin_all = || std::iter::from_fn(|| pool.state.lock().pop(200, 0)).collect::<Vec<_>>();
    let look = |is_late| pool.state.lock().relieve(is_late).len();
    let mut out = begin_all();
    assert_eq!(out.len(), 1);
    // How many lose it, having been seen before, and how many come: 2, 4, then 8 have it.
    for (lose, come) in [(0, 1), (1, 3), (1, 5), (3, 3)] {
        assert_eq!(look(true), lose);
        let lets_in = begin_all();
        assert_eq!(lets_in.len(), come);
        out.extend(lets_in);
    }
    while let Some(task) = out.pop() {
        end(&pool, &task);
        out.extend(begin_all());
    }
    (0..100).for_each(|_| assert_eq!(look(false), 0));
    (1..=3).for_each(|xid| pool.push(call(&client, xid, || {})));
    assert_eq!(begin_all().len(), 1);
}

#[test]
fn who_waits_for_a_peer_gives_its_turn_away_and_what_it_has_to_send() {
    let (pool, client) = (pool(), client());
    POOL.set(Some((Arc::clone(&pool), 0)));
    waiting::tell(step_aside);
    let shelf = &pool.seats[0].shelf;
    together::has_shelf(shelf);
    let seen = Arc::new(AtomicU32::new(0));
    let (there, all, connection) = (Arc::clone(&seen), Arc::clone(&pool), Arc::clone(client.connection()));
    pool.push(call(&client, 1, || {}));
    pool.push(call(&client, 2, move || {
        waiting::about_to_wait();
        let next = pop(&all, 1).unwrap();
        there.store(xid(&next), Ordering::Relaxed);
        assert_eq!(connection.output.chunks(), 1, "the reply before it has left");
        end(&all, &next);
    }));
    pool.push(call(&client, 3, || {}));
    for _ in 1..=2 {
        let task = pop(&pool, 0).unwrap();
        drop(pool.run_task(pool.state.lock(), task, shelf));
    }
    assert_eq!(seen.load(Ordering::Relaxed), 3);
    assert!(pop(&pool, 0).is_none());
    POOL.set(None);
}

#[test]
fn replies_to_one_client_that_follow_one_another_leave_together_and_alone_at_once() {
    let (pool, one, other) = (pool(), client(), client());
    let shelf = &pool.seats[0].shelf;
    together::has_shelf(shelf);
    let run = || {
        while let Some(task) = pop(&pool, 0) {
            drop(pool.run_task(pool.state.lock(), task, shelf));
        }
    };
    (0..10).for_each(|xid| pool.push(call(&one, xid, || {})));
    pool.push(call(&other, 10, || {}));
    run();
    // Each would be one by itself; a thread that is stopped for a while sends what it has.
    assert!(one.connection().output.chunks() < 10, "{}", one.connection().output.chunks());
    assert_eq!(other.connection().output.chunks(), 1);
    assert_eq!(one.connection().unanswered(), (0, 0));
}
