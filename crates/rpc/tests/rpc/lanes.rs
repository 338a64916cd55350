//! A backend that hangs leaves threads to the others; strangers are kept short.

use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex};

use holdfast_rpc::server::{Limits, Server, listen};
use holdfast_rpc::{Call, Lane, Mode, Outcome, Program};
use holdfast_xdr::{Reader, Writer};

use crate::client::{Client, call, word};
use crate::program::PROGRAM;

/// Every call goes to the pool, in the lane that it names. Those of lane 1 hang until told.
#[derive(Default)]
struct Hanging {
    goes_on: Mutex<bool>,
    told: Condvar,
}

impl Program for Hanging {
    fn number(&self) -> u32 {
        PROGRAM
    }
    fn versions(&self) -> (u32, u32) {
        (1, 1)
    }
    fn lane(&self, _: u32, mut args: Reader<'_>) -> Option<Lane> {
        args.u32().ok().map(|lane| Lane(u64::from(lane)))
    }
    fn call(&self, call: &mut Call<'_>, _: &mut Writer) -> Outcome {
        if call.mode == Mode::Inline {
            return Outcome::Offload;
        }
        if call.args.u32() == Ok(1) {
            let goes_on = self.goes_on.lock().unwrap();
            drop(self.told.wait_while(goes_on, |goes_on| !*goes_on).unwrap());
        }
        Outcome::Reply
    }
}

#[test]
fn a_lane_that_hangs_takes_neither_all_threads_nor_all_of_the_queue() {
    let program = Arc::new(Hanging::default());
    let runtime = holdfast_rpc::runtime::runtime(std::num::NonZero::new(2)).unwrap();
    let limits = Limits { pool_threads: 4, pool_queue: 32, ..Limits::default() };
    let inside = runtime.enter();
    let any = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::start(vec![any], vec![program.clone()], limits).unwrap();
    drop(inside);
    let address = server.addresses()[0];
    // Many more than threads and places, from several connections.
    let mut hanging: Vec<_> = (0..4).map(|_| Client::connect(address)).collect();
    for xid in 0..30 {
        hanging.iter_mut().for_each(|client| client.send(&call(xid, 1, &1u32.to_be_bytes())));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut other = Client::connect(address);
    for xid in 0..100 {
        other.send(&call(xid, 1, &2u32.to_be_bytes()));
        assert_eq!(word(&other.try_receive().unwrap(), 0), xid);
    }
    *program.goes_on.lock().unwrap() = true;
    program.told.notify_all();
    for client in &mut hanging {
        let mut xids: Vec<u32> = (0..30).map(|_| word(&client.try_receive().unwrap(), 0)).collect();
        xids.sort_unstable();
        assert!(xids.into_iter().eq(0..30), "every call is answered once");
    }
    runtime.block_on(server.shutdown(crate::client::PATIENCE));
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
