use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use holdfast_rpc::client::{Caller, call_once};
use holdfast_rpc::{Auth, CallError, OutgoingCall};

use crate::client::{Client, call, results, words};
use crate::program::*;

#[test]
fn a_shutdown_answers_what_is_in_flight_and_takes_no_more() {
    let host = Host::new();
    let address = host.address();
    let mut client = Client::connect(address);
    client.send(&call(1, SLEEP, &words(&[400], b"")));
    eventually("it runs", || host.calls() == 2);
    let started = Instant::now();
    assert_eq!(host.shutdown(Duration::from_secs(10)), 0);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(results(&client.receive()), words(&[400], b""));
    assert!(client.is_dropped());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_shutdown_waits_neither_for_parked_calls_nor_beyond_its_time() {
    let host = Host::new();
    let mut parked = Client::connect(host.address());
    parked.send(&call(1, PARK, b""));
    eventually("it is parked", || host.program.parked.lock().unwrap().len() == 1);
    let mut slow = Client::connect(host.address());
    slow.send(&call(1, SLEEP, &words(&[3000], b"")));
    eventually("it runs", || host.calls() == 3);
    let started = Instant::now();
    assert_eq!(host.shutdown(Duration::from_millis(200)), 1, "the slow one is dropped");
    assert!(started.elapsed() < Duration::from_millis(2500));
    assert!(parked.is_dropped() && slow.is_dropped());
}

#[test]
fn a_shutdown_waits_for_replies_that_wait_for_no_peer() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    client.send(&call(1, PARK_SURELY, b""));
    let parked = std::sync::Arc::clone(&host.program.parked);
    eventually("it is parked", || parked.lock().unwrap().len() == 1);
    let disk = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        for mut pending in std::mem::take(&mut *parked.lock().unwrap()) {
            pending.writer().u32(9);
            pending.send();
        }
    });
    assert_eq!(host.shutdown(Duration::from_secs(10)), 0);
    disk.join().unwrap();
    assert_eq!(results(&client.receive()), words(&[7, 9], b""));
    assert!(client.is_dropped());
}

#[test]
fn a_client_that_shuts_down_its_half_still_gets_its_answers() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    client.send(&call(1, SLEEP, &words(&[800], b"")));
    client.send(&call(2, ECHO, b"quick..."));
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(results(&client.receive()), b"quick...");
    assert_eq!(results(&client.receive()), words(&[800], b""));
    assert!(client.is_dropped());
}

#[test]
fn a_reply_to_a_connection_long_gone_goes_nowhere() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    client.send(&call(1, PARK, b""));
    eventually("it is parked", || host.program.parked.lock().unwrap().len() == 1);
    drop(client);
    eventually("it is gone", || host.server.connections().is_empty());
    assert_eq!(Client::connect(host.address()).ask(2, RELEASE, b""), words(&[1], b""));
}

#[test]
fn the_thin_caller_calls_and_gives_up_in_time() {
    let host = Host::new();
    let big = vec![1; 100 << 10];
    let call =
        |procedure, args| OutgoingCall { program: PROGRAM, version: 1, procedure, auth: &Auth::None, args };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    host.runtime.block_on(async {
        let second = Duration::from_secs(5);
        let mut caller = Caller::connect(host.address(), second).await.unwrap();
        assert_eq!(caller.call(&call(ECHO, b"one."), second).await, Ok(b"one.".to_vec()));
        assert!(matches!(caller.call(&call(999, b""), second).await, Err(CallError::NotRun(_))));
        assert_eq!(caller.call(&call(ECHO, &big), second).await, Err(CallError::Garbled), "bounded");
        assert_eq!(caller.call(&call(NULL, b""), second).await, Err(CallError::Closed));
        let address = silent.local_addr().unwrap();
        let short = Duration::from_millis(50);
        assert_eq!(call_once(address, &call(NULL, b""), short).await, Err(CallError::TimedOut));
        assert_eq!(call_once(host.address(), &call(NULL, b""), second).await, Ok(Vec::new()));
    });
    drop(silent);
}
