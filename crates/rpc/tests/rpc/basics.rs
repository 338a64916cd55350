use std::collections::HashSet;
use std::io::Write;
use std::time::{Duration, Instant};

use holdfast_rpc::server::Limits;
use holdfast_xdr::Writer;

use crate::client::{Client, call, marked, results, word, words};
use crate::program::*;

#[test]
fn a_call_in_many_fragments_and_bytewise_is_one_call() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    let record = call(1, ECHO, b"fragment");
    let mut stream = Vec::new();
    for part in record.chunks(7) {
        stream.extend((part.len() as u32).to_be_bytes());
        stream.extend(part);
    }
    stream.extend([0x80, 0, 0, 0]);
    for byte in &stream {
        client.0.write_all(&[*byte]).unwrap();
    }
    assert_eq!(results(&client.receive()), b"fragment");
    client.0.write_all(&stream.repeat(3)).unwrap();
    for _ in 0..3 {
        assert_eq!(results(&client.receive()), b"fragment");
    }
}

#[test]
fn connections_within_the_host_are_not_paced() {
    let host = Host::new();
    let listening = host.server.listening();
    let name = socket2::SockRef::from(&listening[0]).tcp_congestion().unwrap();
    // What is accepted has the listener's. Where the system's choice does not pace, this holds anyhow.
    assert!(!name.starts_with(b"bbr"), "{}", String::from_utf8_lossy(&name));
}

#[test]
fn a_mebibyte_of_arguments_arrives_whole() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    let args: Vec<u8> = (0..1 << 20).map(|n: u32| (n * 7 + n / 251) as u8).collect();
    for xid in 0..3 {
        assert!(client.ask(xid, ECHO, &args) == args);
    }
}

#[test]
fn fast_calls_overtake_slow_ones() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    let started = Instant::now();
    let mut batch = Vec::new();
    for xid in 0..8 {
        batch.extend(marked(&call(xid, SLEEP, &words(&[1000], b""))));
    }
    for xid in 100..300 {
        batch.extend(marked(&call(xid, NULL, b"")));
    }
    client.0.write_all(&batch).unwrap();
    let order: Vec<u32> = (0..208).map(|_| word(&client.receive(), 0)).collect();
    let first: HashSet<u32> = order[..200].iter().copied().collect();
    assert_eq!(first, (100..300).collect(), "the fast ones first");
    let last: HashSet<u32> = order[200..].iter().copied().collect();
    assert_eq!(last, (0..8).collect());
    assert!(started.elapsed() < Duration::from_millis(8 * 1000), "the slow ones ran beside each other");
}

#[test]
fn a_call_goes_on_on_the_pool_where_it_stopped() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    assert_eq!(client.ask(1, RESUME, b""), words(&[1, 2], b""));
}

#[test]
fn a_parked_call_is_answered_when_released_from_another_connection() {
    let host = Host::new();
    let mut waiting = Client::connect(host.address());
    let mut other = Client::connect(host.address());
    waiting.send(&call(1, PARK, b""));
    assert_eq!(waiting.ask(2, NULL, b""), b"", "the connection goes on meanwhile");
    assert_eq!(other.ask(3, RELEASE, b""), words(&[1], b""));
    let reply = waiting.receive();
    assert_eq!((word(&reply, 0), results(&reply)), (1, &words(&[7, 8], b"")[..]));
}

#[test]
fn a_panic_costs_one_call_only() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    for (xid, procedure) in [(1, PANIC), (2, PANIC_ON_POOL), (3, DROP)] {
        client.send(&call(xid, procedure, b""));
        let reply = client.receive();
        assert_eq!(reply, words(&[xid, 1, 0, 0, 0, 5], b""), "SYSTEM_ERR");
        assert_eq!(client.ask(10 + xid, ECHO, b"fine"), b"fine");
    }
}

#[test]
fn calls_that_cannot_be_served_are_told_why() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    let mut check = |call: &[u32], reply: &[u32]| {
        client.send(&words(call, b""));
        assert_eq!(client.receive(), words(reply, b""), "{call:?}");
    };
    check(&[1, 0, 3, PROGRAM, 1, 0, 0, 0, 0, 0], &[1, 1, 1, 0, 2, 2]);
    check(&[2, 0, 2, 77, 1, 0, 0, 0, 0, 0], &[2, 1, 0, 0, 0, 1]);
    check(&[3, 0, 2, PROGRAM, 2, 0, 0, 0, 0, 0], &[3, 1, 0, 0, 0, 2, 1, 3]);
    check(&[4, 0, 2, PROGRAM, 1, 999, 0, 0, 0, 0], &[4, 1, 0, 0, 0, 3]);
    check(&[5, 0, 2, PROGRAM, 1, SLEEP, 0, 0, 0, 0], &[5, 1, 0, 0, 0, 4]);
    check(&[6, 0, 2, PROGRAM, 1, 0, 6, 0, 0, 0], &[6, 1, 1, 1, 1]);
    check(&[7, 0, 2, PROGRAM, 1, 0, 0, 0, 1, 0], &[7, 1, 1, 1, 3]);
    check(&[8, 0, 2, PROGRAM, 1, 0, 0, 401], &[8, 1, 1, 1, 1]);
    check(&[9, 0, 2, PROGRAM], &[9, 1, 0, 0, 0, 4]);
}

#[test]
fn auth_sys_reaches_the_program() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    for uid in [1000, 0, 1000] {
        let mut w = Writer::new();
        [uid, 0, 2, PROGRAM, 1, WHO].iter().for_each(|n| w.u32(*n));
        w.u32(1);
        let length = w.mark();
        w.u32(0);
        w.opaque(b"client");
        w.u32(uid);
        w.u32(100);
        w.list(&[4u32, 5]);
        let n = w.since(length);
        w.fill(length, n as u32);
        w.u64(0);
        client.send(w.as_slice());
        assert_eq!(results(&client.receive()), words(&[uid, 0], b""));
    }
}

#[test]
fn both_families_are_served_on_one_port() {
    let v4 = Host::on(&["0.0.0.0:0".parse().unwrap()], Everything::default(), Limits::default());
    let port = v4.address().port();
    let v6 = Host::on(&[format!("[::]:{port}").parse().unwrap()], Everything::default(), Limits::default());
    let who = |address: String| Client::connect(address.parse().unwrap()).ask(1, WHO, b"");
    assert_eq!(word(&who(format!("127.0.0.1:{port}")), 1), 0);
    assert_eq!(word(&who(format!("[::1]:{port}")), 1), 1);
    assert_eq!((v4.calls(), v6.calls()), (1, 1));
}

#[test]
fn the_client_is_called_back_over_its_connection() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    client.send(&call(5, CALL_BACK, b"recall!!"));
    client.send(&call(6, ECHO, b"meanwhile..."));
    let (mut back, mut meanwhile) = (client.receive(), client.receive());
    if word(&back, 1) != 0 {
        std::mem::swap(&mut back, &mut meanwhile);
    }
    assert_eq!(results(&meanwhile), b"meanwhile...");
    assert_eq!([2, CALLBACK_PROGRAM, 1, 1, 0, 0, 0, 0], [2, 3, 4, 5, 6, 7, 8, 9].map(|n| word(&back, n)));
    assert_eq!(&back[40..], b"recall!!");
    client.send(&words(&[word(&back, 0), 1, 0, 0, 0, 0], b"returned"));
    assert_eq!(results(&client.receive()), b"returned");
    // An answer that nobody waits for any more disturbs nothing.
    client.send(&words(&[word(&back, 0), 1, 0, 0, 0, 0], b"again..."));
    assert_eq!(client.ask(7, ECHO, b"fine"), b"fine");
}

#[test]
fn a_callback_without_answer_ends_in_time_and_a_denied_one_at_once() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    client.send(&call(5, CALL_BACK, b""));
    client.receive();
    assert_eq!(results(&client.receive()), b"TimedOut");
    client.send(&call(6, CALL_BACK, b""));
    let back = client.receive();
    client.send(&words(&[word(&back, 0), 1, 0, 0, 0, 1], b""));
    assert_eq!(results(&client.receive()), b"NotRun(ProgUnavail)");
}
