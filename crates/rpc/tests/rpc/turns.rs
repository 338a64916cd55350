//! Calls that take turns hold nobody up for long.

use holdfast_rpc::Turn;
use holdfast_rpc::server::Limits;

use crate::client::{Client, call, marked, word};
use crate::hanging::{HANGS, Host, PASSES};

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
