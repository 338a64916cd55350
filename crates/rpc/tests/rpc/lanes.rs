//! A backend that hangs leaves threads to the others; strangers are kept short.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_rpc::server::{Limits, Server, listen};
use holdfast_rpc::{Call, Outcome, Program};
use holdfast_xdr::Writer;

use crate::client::{Client, call, word};
use crate::hanging::{HANGS, Host, PASSES};
use crate::program::PROGRAM;

#[test]
fn a_lane_that_hangs_takes_neither_all_threads_nor_all_of_the_queue() {
    let host = Host::new(None, Limits { pool_threads: 4, pool_queue: 32, ..Limits::default() });
    let address = host.address();
    // Many more than threads and places, from several connections.
    let mut hanging: Vec<_> = (0..4).map(|_| Client::connect(address)).collect();
    for xid in 0..30 {
        hanging.iter_mut().for_each(|client| client.send(&call(xid, HANGS, &1u32.to_be_bytes())));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut other = Client::connect(address);
    for xid in 0..100 {
        other.send(&call(xid, PASSES, &2u32.to_be_bytes()));
        assert_eq!(word(&other.try_receive().unwrap(), 0), xid);
    }
    host.go_on();
    for client in &mut hanging {
        let mut xids: Vec<u32> = (0..30).map(|_| word(&client.try_receive().unwrap(), 0)).collect();
        xids.sort_unstable();
        assert!(xids.into_iter().eq(0..30), "every call is answered once");
    }
    host.shutdown();
}

/// Has something for nobody, or for everybody.
struct Picky(bool);

impl Program for Picky {
    fn number(&self) -> u32 {
        PROGRAM
    }
    fn versions(&self) -> (u32, u32) {
        (1, 1)
    }
    fn serves(&self, _: IpAddr) -> Option<bool> {
        Some(self.0)
    }
    fn call(&self, _: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        reply.put(&[0; 64 << 10]);
        Outcome::Reply
    }
}

/// How many calls are answered with a large reply each while nobody reads, as the peer finds when it does read: those
/// whose calls were not taken leave the connection's input full.
fn bytes_kept_back(serves: bool) -> usize {
    let runtime = holdfast_rpc::runtime::runtime(std::num::NonZero::new(2)).unwrap();
    let inside = runtime.enter();
    let any = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::start(vec![any], vec![Arc::new(Picky(serves))], Limits::default()).unwrap();
    drop(inside);
    let mut client = Client::connect(server.addresses()[0]);
    (0..400).for_each(|xid| client.send(&call(xid, 1, &[])));
    let mut kept = 0;
    crate::program::eventually("it stands still", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = server.connections().iter().map(|connection| connection.output_bytes()).sum();
        std::mem::replace(&mut kept, now) == now && now > 0
    });
    drop(client);
    runtime.block_on(server.shutdown(std::time::Duration::ZERO));
    kept
}

#[test]
fn fewer_replies_are_kept_back_for_a_stranger() {
    let (stranger, known) = (bytes_kept_back(false), bytes_kept_back(true));
    // The bound, and the replies of the wake-up in which it was passed.
    assert!(stranger <= (64 << 10) + (512 << 10), "{stranger}");
    assert!(known > 2 << 20, "{known}");
}
