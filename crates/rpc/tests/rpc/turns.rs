//! Calls that take turns hold nobody up for long.

use holdfast_rpc::Turn;
use holdfast_rpc::server::Limits;

use crate::client::{Client, call, marked, word};
use crate::hanging::{HANGS, Host, PASSES, STICKS, WAITS};

#[test]
fn what_hangs_holds_up_neither_those_behind_it_nor_the_replies_before_it() {
    let host = Host::new(Some(Turn(1)), Limits { pool_threads: 8, ..Limits::default() });
    let mut client = Client::connect(host.address());
    // In one piece, so that those of each kind follow one another; the last hangs with replies before it.
    let (p, h) = (PASSES, HANGS);
    let calls = [(1, p), (2, p), (3, h), (4, p), (5, h), (6, p), (7, p), (8, h)];
    let all: Vec<u8> =
        calls.iter().flat_map(|(xid, procedure)| marked(&call(*xid, *procedure, &[]))).collect();
    std::io::Write::write_all(&mut client.0, &all).unwrap();
    let mut xids: Vec<u32> = (0..5).map(|_| word(&client.try_receive().unwrap(), 0)).collect();
    xids.sort_unstable();
    assert_eq!(xids, [1, 2, 4, 6, 7]);
    host.go_on();
    let mut xids: Vec<u32> = (0..3).map(|_| word(&client.try_receive().unwrap(), 0)).collect();
    xids.sort_unstable();
    assert_eq!(xids, [3, 5, 8]);
    host.shutdown();
}

/// Calls until one was run by the worker that read it.
fn until_on_worker(host: &Host, client: &mut Client) {
    let before = host.in_turn();
    for xid in 0..100 {
        client.send(&call(xid, PASSES, &[]));
        assert_eq!(word(&client.try_receive().unwrap(), 0), xid);
        if host.in_turn() > before {
            return;
        }
    }
    panic!("no worker takes a turn");
}

#[test]
fn a_worker_that_hangs_in_its_turn_holds_up_no_other_connection() {
    let host = Host::with_workers(8, Some(Turn(1)), Limits { pool_threads: 8, ..Limits::default() });
    let (mut hung, mut other) = (Client::connect(host.address()), Client::connect(host.address()));
    until_on_worker(&host, &mut other);
    until_on_worker(&host, &mut hung);
    let before = host.in_turn();
    hung.send(&call(1000, HANGS, &[]));
    // Not before it does: two that come together have another worker woken anyhow.
    while host.in_turn() == before {
        std::thread::yield_now();
    }
    let answers: Vec<_> = (0..20)
        .map_while(|xid| {
            other.send(&call(xid, PASSES, &[]));
            Some(word(&other.try_receive().ok()?, 0))
        })
        .collect();
    host.go_on();
    assert_eq!(answers, Vec::from_iter(0..20));
    assert_eq!(word(&hung.try_receive().unwrap(), 0), 1000);
    host.shutdown();
}

#[test]
fn a_worker_that_hangs_is_stood_in_for() {
    let host = Host::with_workers(8, None, Limits { pool_threads: 8, ..Limits::default() });
    let mut other = Client::connect(host.address());
    let mut stuck: Vec<_> = (0..4).map(|_| Client::connect(host.address())).collect();
    for (xid, client) in (0..).zip(&mut stuck) {
        client.send(&call(xid, STICKS, &[]));
        other.send(&call(xid, PASSES, &[]));
        assert_eq!(word(&other.try_receive().unwrap(), 0), xid);
    }
    host.go_on();
    for (xid, client) in (0..).zip(&mut stuck) {
        assert_eq!(word(&client.try_receive().unwrap(), 0), xid);
    }
    host.shutdown();
}

#[test]
fn one_worker_has_the_turn_whichever_connections_ask_for_it() {
    let host = Host::with_workers(8, Some(Turn(1)), Limits { pool_threads: 8, ..Limits::default() });
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(host.address())).collect();
    for xid in 0..200 {
        let sent = marked(&call(xid, PASSES, &[])).repeat(4);
        clients.iter_mut().for_each(|client| std::io::Write::write_all(&mut client.0, &sent).unwrap());
        for client in &mut clients {
            (0..4).for_each(|_| assert_eq!(word(&client.try_receive().unwrap(), 0), xid));
        }
    }
    let (all, in_turn) = (200 * 4 * 4, host.in_turn());
    assert!(2 * in_turn > all, "{in_turn} of {all} were done where they were read");
    host.shutdown();
}

#[test]
fn what_is_to_wait_after_all_is_done_by_the_pool_and_answered_once() {
    let host = Host::with_workers(8, Some(Turn(1)), Limits { pool_threads: 8, ..Limits::default() });
    let mut client = Client::connect(host.address());
    until_on_worker(&host, &mut client);
    for (xid, procedure) in [(1, WAITS), (2, PASSES), (3, WAITS), (4, PASSES)] {
        client.send(&call(xid, procedure, &[]));
        assert_eq!(word(&client.try_receive().unwrap(), 0), xid);
    }
    host.shutdown();
}
