//! Replies that a group commit answers leave together.

use std::io::ErrorKind;
use std::time::Duration;

use holdfast_base::limits::REPLIES_TOGETHER_CONNECTIONS_MAX;
use holdfast_rpc::{PendingReply, together};

use crate::client::{Client, call, word};
use crate::program::{Host, PARK, eventually};

/// So many clients, each with so many calls that wait; and what their replies are sent with.
fn parked(host: &Host, clients: usize, calls: u32) -> (Vec<Client>, Vec<PendingReply>) {
    let mut connected: Vec<_> = (0..clients).map(|_| Client::connect(host.address())).collect();
    for client in &mut connected {
        (0..calls).for_each(|xid| client.send(&call(xid, PARK, b"")));
    }
    let all = clients * calls as usize;
    eventually("all are parked", || host.program.parked.lock().unwrap().len() == all);
    let mut pending = std::mem::take(&mut *host.program.parked.lock().unwrap());
    pending.sort_by_key(|reply| (reply.connection().id(), reply.xid()));
    (connected, pending)
}

fn has_anything(client: &Client) -> bool {
    client.0.set_nonblocking(true).unwrap();
    let peeked = client.0.peek(&mut [0]);
    client.0.set_nonblocking(false).unwrap();
    !matches!(peeked, Err(e) if e.kind() == ErrorKind::WouldBlock)
}

#[test]
fn replies_sent_together_leave_when_the_last_was_made_in_their_order() {
    let host = Host::new();
    let (mut clients, pending) = parked(&host, 2, 20);
    let mut pending = pending.into_iter();
    together(&mut || {
        pending.by_ref().for_each(PendingReply::send);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!clients.iter().any(has_anything), "none leaves by itself");
    });
    for client in &mut clients {
        let xids: Vec<u32> = (0..20).map(|_| word(&client.receive(), 0)).collect();
        assert!(xids.into_iter().eq(0..20));
    }
    assert_eq!(host.shutdown(Duration::from_secs(5)), 0, "no call counts as on its way");
}

#[test]
fn replies_to_many_connections_are_not_held_back_for_one_another() {
    let host = Host::new();
    let (mut clients, pending) = parked(&host, REPLIES_TOGETHER_CONNECTIONS_MAX + 1, 1);
    let mut pending = pending.into_iter();
    together(&mut || {
        pending.by_ref().for_each(PendingReply::send);
        eventually("the first reply is there", || clients.iter().any(has_anything));
    });
    clients.iter_mut().for_each(|client| assert_eq!(word(&client.receive(), 0), 0));
}

#[test]
fn a_panic_among_those_who_answer_costs_none_of_those_answered() {
    let host = Host::new();
    let (mut clients, pending) = parked(&host, 1, 3);
    let mut pending = pending.into_iter();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        together(&mut || {
            pending.by_ref().take(2).for_each(PendingReply::send);
            panic!("as asked");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!([0, 1].map(|_| word(&clients[0].receive(), 0)), [0, 1]);
    // Nothing is left behind on this thread.
    pending.for_each(PendingReply::send);
    assert_eq!(word(&clients[0].receive(), 0), 2);
}
