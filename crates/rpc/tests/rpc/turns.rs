//! Calls that take turns hold nobody up for long.

use std::sync::{Arc, Condvar, Mutex};

use holdfast_rpc::server::{Limits, Server, listen};
use holdfast_rpc::{Call, Mode, Outcome, Program, Turn};
use holdfast_xdr::{Reader, Writer};

use crate::client::{Client, PATIENCE, call, marked, word};
use crate::program::PROGRAM;

/// All calls take one turn. Those of procedure 2 hang until told.
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
    fn turn(&self, _: u32, _: Reader<'_>) -> Option<Turn> {
        Some(Turn(1))
    }
    fn call(&self, call: &mut Call<'_>, _: &mut Writer) -> Outcome {
        if call.mode == Mode::Inline {
            return Outcome::Offload;
        }
        if call.procedure == 2 {
            let goes_on = self.goes_on.lock().unwrap();
            drop(self.told.wait_while(goes_on, |goes_on| !*goes_on).unwrap());
        }
        Outcome::Reply
    }
}

#[test]
fn what_hangs_holds_up_neither_those_behind_it_nor_the_replies_before_it() {
    let program = Arc::new(Hanging::default());
    let runtime = holdfast_rpc::runtime::runtime(std::num::NonZero::new(2)).unwrap();
    let limits = Limits { pool_threads: 8, ..Limits::default() };
    let inside = runtime.enter();
    let any = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::start(vec![any], vec![program.clone()], limits).unwrap();
    drop(inside);
    let mut client = Client::connect(server.addresses()[0]);
    // In one piece, so that those of each kind follow one another; the last hangs with replies before it.
    let calls = [(1, 1), (2, 1), (3, 2), (4, 1), (5, 2), (6, 1), (7, 1), (8, 2)];
    let all: Vec<u8> =
        calls.iter().flat_map(|(xid, procedure)| marked(&call(*xid, *procedure, &[]))).collect();
    std::io::Write::write_all(&mut client.0, &all).unwrap();
    let mut xids: Vec<u32> = (0..5).map(|_| word(&client.try_receive().unwrap(), 0)).collect();
    xids.sort_unstable();
    assert_eq!(xids, [1, 2, 4, 6, 7]);
    *program.goes_on.lock().unwrap() = true;
    program.told.notify_all();
    let mut xids: Vec<u32> = (0..3).map(|_| word(&client.try_receive().unwrap(), 0)).collect();
    xids.sort_unstable();
    assert_eq!(xids, [3, 5, 8]);
    runtime.block_on(server.shutdown(PATIENCE));
}
