use std::sync::Arc;

use holdfast_xdr::Writer;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::connection::Ticket;
use crate::detached::Detached;
use crate::dispatch::Work;
use crate::message;
use crate::pool::turns::Runner;
use crate::pool::{Job, Seat};
use crate::server::Limits;
use crate::service::{InLane, Lane, Outcome};
use crate::together::Shelf;

const TURN: Turn = Turn(7);

/// No connection of these tests has that number.
const OTHER: u64 = 99;

/// A pool whose jobs are run by the test, with the workers of a runtime: two may have turns.
fn pool() -> (Arc<Pool>, Runtime) {
    pool_of(2)
}

/// The same with so many hands at work.
fn pool_of(hands: usize) -> (Arc<Pool>, Runtime) {
    let runtime = Builder::new_multi_thread().worker_threads(2 * TURN_WORKERS_PART).build().unwrap();
    let crew = Crew::new(runtime.handle(), 2 * TURN_WORKERS_PART);
    (1..hands).for_each(|_| crew.lend_one());
    let workers = Some(Workers::of(&crew));
    let (state, overseer, seats) = (Mutex::default(), Condvar::new(), vec![Seat::default()]);
    let pool = Pool { state, seats, overseer, queue_max: 100, lane_threads: 2, workers };
    (Arc::new(pool), runtime)
}

/// Pushes a call that takes the turn.
fn push(pool: &Pool, client: &Detached) {
    let mut reply = Writer::new();
    message::begin_reply(&mut reply, 1);
    let rest = |_: &mut Writer, _| Outcome::Reply;
    let resume = Box::new(InLane { lane: Some(Lane(1)), turn: Some(TURN), is_brief: true, rest });
    let ticket = Ticket::in_flight(client.connection(), 0);
    pool.push(Job::Call { work: Work::Resume { resume, reply, xid: 1 }, ticket });
}

/// The pool's one thread does all that there is.
fn run_all(pool: &Pool) {
    let mut state = pool.state.lock();
    while let Some(task) = state.pop(2, 0) {
        state = pool.run_task(state, task, &Shelf::default());
    }
}

fn is_taken_by(pool: &Pool, turn: Turn, connection: u64) -> bool {
    pool.take_turn(turn, connection).map(|mine| mine.end(true)).is_some()
}

#[test]
fn a_worker_has_a_turn_that_is_free_and_soon_done_with_and_no_other() {
    let (pool, _runtime) = pool();
    assert!(!is_taken_by(&pool, TURN, 1), "of which nothing is known");
    pool.state.lock().turns.remember(TURN);
    let mine = pool.take_turn(TURN, 1).unwrap();
    assert!(!is_taken_by(&pool, TURN, 1), "that somebody has");
    assert!(!is_taken_by(&pool, Turn(8), 1));
    mine.end(true);
    assert!(is_taken_by(&pool, TURN, OTHER));
    pool.take_turn(TURN, 1).unwrap().end(false);
    assert!(!is_taken_by(&pool, TURN, 1), "in which the last one had to wait");
}

#[test]
fn workers_enough_are_left_to_the_others() {
    let (pool, _runtime) = pool();
    (1..=3).for_each(|turn| pool.state.lock().turns.remember(Turn(turn)));
    let (first, second) = (pool.take_turn(Turn(1), 1), pool.take_turn(Turn(2), 2));
    assert!(first.is_some() && second.is_some());
    assert!(!is_taken_by(&pool, Turn(3), 3));
    drop(second);
    assert!(is_taken_by(&pool, Turn(3), 3));
}

#[test]
fn where_several_are_at_work_the_pool_is_and_again_a_worker_once_one_has_it_to_himself() {
    let ((pool, _runtime), client) = (pool(), Detached::new(vec![], Limits::default()).unwrap());
    pool.state.lock().turns.remember(TURN);
    let own = client.connection().id();
    let mine = pool.take_turn(TURN, own).unwrap();
    push(&pool, &client);
    mine.end(true);
    assert!(!is_taken_by(&pool, TURN, own), "while the pool has it");
    run_all(&pool);
    assert!(is_taken_by(&pool, TURN, own), "his own calls are nobody else's");
    let mine = pool.take_turn(TURN, OTHER).unwrap();
    push(&pool, &client);
    mine.end(true);
    run_all(&pool);
    assert!(!is_taken_by(&pool, TURN, own));
    while !is_taken_by(&pool, TURN, own) {
        push(&pool, &client);
        run_all(&pool);
    }
    assert_eq!(client.connection().unanswered(), (0, 0));
}

#[test]
fn a_worker_that_hangs_loses_its_turn_and_no_other_tries_that() {
    let ((pool, _runtime), client) = (pool(), Detached::new(vec![], Limits::default()).unwrap());
    pool.state.lock().turns.remember(TURN);
    let mine = pool.take_turn(TURN, client.connection().id()).unwrap();
    push(&pool, &client);
    assert!(pool.state.lock().relieve(false).is_empty());
    assert_eq!(pool.state.lock().relieve(false), [Runner::Worker]);
    assert!(pool.state.lock().pop(2, 0).is_some());
    mine.end(true);
    assert!(!is_taken_by(&pool, TURN, OTHER));
}

#[test]
fn a_worker_alone_has_the_turn_beside_the_pool_whoever_asks_for_it() {
    let ((pool, _runtime), client) = (pool_of(1), Detached::new(vec![], Limits::default()).unwrap());
    pool.state.lock().turns.remember(TURN);
    push(&pool, &client);
    let mine = pool.take_turn(TURN, OTHER).unwrap();
    assert!(!is_taken_by(&pool, TURN, OTHER), "once");
    mine.end(true);
    run_all(&pool);
    assert!(is_taken_by(&pool, TURN, OTHER), "though two have asked for it");
    assert_eq!(client.connection().unanswered(), (0, 0));
}
