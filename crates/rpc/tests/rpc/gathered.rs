//! Replies that one thread of the pool sends together wait for nobody else.

use std::sync::{Arc, Condvar, Mutex};

use holdfast_rpc::server::{Limits, Server, listen};
use holdfast_rpc::{Call, Mode, Outcome, Program};
use holdfast_xdr::Writer;

use crate::client::{Client, call, marked, word};
use crate::program::PROGRAM;

const AT_ONCE: u32 = 1;
/// Waits for the first gate, and says so.
const TELLS: u32 = 2;
/// Waits for the second gate, as for a disk.
const HANGS: u32 = 3;
/// Waits for the first gate likewise.
const HANGS_LATER: u32 = 4;

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

#[derive(Default)]
struct Gates([Gate; 2]);

impl Program for Gates {
    fn number(&self) -> u32 {
        PROGRAM
    }
    fn versions(&self) -> (u32, u32) {
        (1, 1)
    }
    fn call(&self, call: &mut Call<'_>, _: &mut Writer) -> Outcome {
        match (call.mode, call.procedure) {
            (Mode::Inline, _) => return Outcome::Offload,
            (_, TELLS) => {
                holdfast_base::waiting::about_to_wait();
                self.0[0].pass();
            }
            (_, HANGS) => self.0[1].pass(),
            (_, HANGS_LATER) => self.0[0].pass(),
            _ => {}
        }
        Outcome::Reply
    }
}

/// A server with one thread in its pool, which hangs in a call of the client's.
fn with_a_hanging_pool(test: impl FnOnce(&Gates, Client, &mut dyn FnMut() -> Client)) {
    let gates = Arc::new(Gates::default());
    let runtime = holdfast_rpc::runtime::runtime(std::num::NonZero::new(2)).unwrap();
    let limits = Limits { pool_threads: 1, ..Limits::default() };
    let inside = runtime.enter();
    let any = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::start(vec![any], vec![gates.clone()], limits).unwrap();
    drop(inside);
    let address = server.addresses()[0];
    let mut client = Client::connect(address);
    client.send(&call(0, HANGS, &[]));
    test(&gates, client, &mut || Client::connect(address));
    gates.0.iter().for_each(Gate::open);
    runtime.block_on(server.shutdown(crate::client::PATIENCE));
}

/// Once what was sent is queued.
fn queued() {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

#[test]
fn a_reply_is_sent_before_the_next_job_waits_for_somebody() {
    with_a_hanging_pool(|gates, mut client, _| {
        let together: Vec<u8> = [(1, AT_ONCE), (2, AT_ONCE), (3, TELLS), (4, AT_ONCE)]
            .iter()
            .flat_map(|(xid, procedure)| marked(&call(*xid, *procedure, &[])))
            .collect();
        std::io::Write::write_all(&mut client.0, &together).unwrap();
        queued();
        gates.0[1].open();
        for xid in 0..3 {
            assert_eq!(word(&client.receive(), 0), xid, "comes while call 3 waits");
        }
        gates.0[0].open();
        assert_eq!([3, 4].map(|_| word(&client.receive(), 0)), [3, 4]);
    });
}

#[test]
fn a_reply_is_sent_before_another_connections_job_is_begun() {
    with_a_hanging_pool(|gates, mut client, connect| {
        let mut other = connect();
        client.send(&call(1, AT_ONCE, &[]));
        queued();
        other.send(&call(2, HANGS_LATER, &[]));
        other.send(&call(3, AT_ONCE, &[]));
        queued();
        gates.0[1].open();
        assert_eq!([0, 1].map(|_| word(&client.receive(), 0)), [0, 1]);
        gates.0[0].open();
        assert_eq!([2, 3].map(|_| word(&other.receive(), 0)), [2, 3]);
    });
}

#[test]
fn replies_to_a_hundred_calls_come_in_order_and_once_each() {
    with_a_hanging_pool(|gates, mut client, _| {
        for xid in 1..=100 {
            client.send(&call(xid, AT_ONCE, &[]));
        }
        queued();
        gates.0[1].open();
        let xids: Vec<u32> = (0..=100).map(|_| word(&client.receive(), 0)).collect();
        assert!(xids.into_iter().eq(0..=100));
    });
}
