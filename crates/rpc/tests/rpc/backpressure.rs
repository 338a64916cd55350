use std::io::{Read, Write};
use std::time::Duration;

use holdfast_rpc::server::Limits;

use crate::client::{Client, call, marked, results, word, words};
use crate::program::*;

const MIB: usize = 1 << 20;

/// Sends `calls` calls for `bytes` each without reading; returns how many the server has run when it stands still,
/// then reads all the answers.
fn flood(host: &Host, procedure: u32, calls: u32, bytes: usize) -> usize {
    let mut client = Client::connect(host.address());
    let mut sender = client.0.try_clone().unwrap();
    let feeder = std::thread::spawn(move || {
        for xid in 0..calls {
            sender.write_all(&marked(&call(xid, procedure, &words(&[bytes as u32], b"")))).unwrap();
        }
    });
    let mut before = usize::MAX;
    eventually("the server stops", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = host.calls();
        std::mem::replace(&mut before, now) == now && now > 0
    });
    let stopped_at = host.calls();
    let mut seen = vec![false; calls as usize];
    for _ in 0..calls {
        let reply = client.receive();
        let xid = word(&reply, 0);
        assert!(!std::mem::replace(&mut seen[xid as usize], true), "answered once");
        let data = results(&reply);
        assert!(data.len() == bytes && data.iter().all(|b| *b == xid as u8));
    }
    feeder.join().unwrap();
    stopped_at
}

#[test]
fn a_client_that_never_reads_stops_being_served_and_loses_nothing() {
    let host = Host::with(Everything::default(), Limits { output_bytes: 4 * MIB, ..Limits::default() });
    let run = flood(&host, BIG, 1000, MIB);
    // The queue's bound, the socket's buffers at both ends, and the call that overstepped.
    assert!((4..40).contains(&run), "{run} MiB were made for a client that took none");
}

#[test]
fn the_pool_makes_no_replies_for_a_client_that_never_reads() {
    let host = Host::with(Everything::default(), Limits { pool_threads: 4, ..Limits::default() });
    let run = flood(&host, BIG_ON_POOL, 300, MIB);
    // Each call counts twice, inline and on the pool; up to 256 get in flight, few are run.
    assert!(run < 256 + 40, "{run} runs");
}

#[test]
fn calls_in_flight_are_bounded_and_all_are_answered() {
    let limits = Limits { calls_in_flight: 8, pool_threads: 2, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut client = Client::connect(host.address());
    let batch: Vec<u8> = (0..40).flat_map(|xid| marked(&call(xid, SLEEP, &words(&[20], b"")))).collect();
    client.0.write_all(&batch).unwrap();
    let mut xids: Vec<u32> = (0..40).map(|_| word(&client.receive(), 0)).collect();
    xids.sort_unstable();
    assert_eq!(xids, (0..40).collect::<Vec<_>>());
    assert_eq!(host.program.sleeping_max.load(std::sync::atomic::Ordering::SeqCst), 8);
}

#[test]
fn a_full_pool_makes_connections_wait_and_loses_nothing() {
    let limits = Limits { pool_queue: 2, pool_threads: 2, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(host.address())).collect();
    let batch: Vec<u8> = (0..20).flat_map(|xid| marked(&call(xid, SLEEP, &words(&[1], b"")))).collect();
    for client in &mut clients {
        client.0.write_all(&batch).unwrap();
    }
    for client in &mut clients {
        let mut xids: Vec<u32> = (0..20).map(|_| word(&client.receive(), 0)).collect();
        xids.sort_unstable();
        assert_eq!(xids, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn under_pressure_the_others_are_still_served() {
    let limits = Limits { transport_bytes: MIB, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut hog = Client::connect(host.address());
    for xid in 0..20 {
        hog.send(&call(xid, BIG, &words(&[MIB as u32], b"")));
    }
    std::thread::sleep(Duration::from_millis(700));
    let mut other = Client::connect(host.address());
    for xid in 0..100 {
        assert_eq!(other.ask(xid, ECHO, b"served"), b"served");
    }
    for _ in 0..20 {
        assert_eq!(results(&hog.receive()).len(), MIB);
    }
}

#[test]
fn a_client_that_takes_nothing_is_dropped_in_the_end() {
    let limits = Limits { output_stall_seconds: 1, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut client = Client::connect(host.address());
    for xid in 0..64 {
        client.send(&call(xid, BIG, &words(&[MIB as u32], b"")));
    }
    eventually("it is dropped", || host.server.connections().is_empty());
}

#[test]
fn parked_calls_are_bounded_in_bytes_and_reading_goes_on_after_them() {
    let limits = Limits { parked_bytes: 100 << 10, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut client = Client::connect(host.address());
    let mut sender = client.0.try_clone().unwrap();
    let feeder = std::thread::spawn(move || {
        for xid in 0..20 {
            sender.write_all(&marked(&call(xid, PARK, &[0; 50 << 10]))).unwrap();
        }
    });
    // Twice the bound, and the call that overstepped it: programs are to ask before.
    eventually("it stops", || host.calls() == 4);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(host.calls(), 4);
    let mut other = Client::connect(host.address());
    let mut released = 0;
    while released < 20 {
        released += word(&other.ask(1, RELEASE, b""), 0);
    }
    feeder.join().unwrap();
    let mut xids: Vec<u32> = (0..20).map(|_| word(&client.receive(), 0)).collect();
    xids.sort_unstable();
    assert_eq!(xids, (0..20).collect::<Vec<_>>());
}

#[test]
fn under_pressure_who_leaves_his_replies_lying_goes_and_who_holds_little_stays() {
    let limits = Limits { transport_bytes: 2 * MIB, record_seconds_under_pressure: 1, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut hog = Client::connect(host.address());
    let mut honest = Client::connect(host.address());
    for xid in 0..24 {
        hog.send(&call(xid, BIG, &words(&[MIB as u32], b"")));
    }
    // He takes a little, again and again, which is not enough.
    let mut takes = hog.0.try_clone().unwrap();
    let taker = std::thread::spawn(move || {
        let mut some = [0; 1000];
        while takes.read(&mut some).is_ok_and(|n| n > 0) && host.server.connections().len() > 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        host
    });
    // A call in flight is no reason not to be read: the slow one does not hold up the quick one behind it.
    for xid in (0..10).step_by(2) {
        honest.send(&call(xid, SLEEP, &words(&[800], b"")));
        honest.send(&call(xid + 1, ECHO, b"quick..."));
        let reply = honest.receive();
        assert_eq!((word(&reply, 0), results(&reply)), (xid + 1, &b"quick..."[..]));
        assert_eq!(word(&honest.receive(), 0), xid);
    }
    let host = taker.join().unwrap();
    assert_eq!(host.server.connections().len(), 1, "the hog is gone");
    assert_eq!(honest.ask(99, ECHO, b"here"), b"here");
}

#[test]
fn the_time_in_which_a_record_is_not_read_is_not_its_senders() {
    // Long enough that a worker that gets no processor for a while, beside other tests, is not taken for a slow peer.
    let limits = Limits { record_seconds: 6, output_bytes: MIB, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut client = Client::connect(host.address());
    // Half a record comes in behind calls whose replies then stop the reading, the other half's too.
    let last = marked(&call(99, ECHO, b"late but whole"));
    let mut bytes = Vec::new();
    for xid in 0..64 {
        bytes.extend(marked(&call(xid, BIG_ON_POOL, &words(&[MIB as u32], b""))));
    }
    bytes.extend_from_slice(&last[..20]);
    client.0.write_all(&bytes).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    client.0.write_all(&last[20..]).unwrap();
    std::thread::sleep(Duration::from_secs(9));
    let late = (0..=64).map(|_| client.receive()).find(|reply| word(reply, 0) == 99);
    assert_eq!(results(&late.expect("it is answered")), b"late but whole");
}

/// Sends `calls` calls of all kinds while reading slowly and fast in turn; each must be answered once.
fn mixed_load(host: &Host, calls: u32) {
    let mut client = Client::connect(host.address());
    let mut sender = client.0.try_clone().unwrap();
    let feeder = std::thread::spawn(move || {
        for xid in 0..calls {
            let record = match xid % 7 {
                0 => call(xid, NULL, b""),
                1 => call(xid, ECHO, &[7; 9000]),
                2 => call(xid, SLEEP, &words(&[0], b"")),
                3 => call(xid, BIG, &words(&[20_000], b"")),
                4 => call(xid, FILE, &words(&[11, 40_001], b"")),
                5 => call(xid, RESUME, b""),
                _ => call(xid, BIG_ON_POOL, &words(&[50_000], b"")),
            };
            sender.write_all(&marked(&record)).unwrap();
        }
    });
    let sizes = [0, 9000, 4, 20_000, 4 + 40_004 + 4, 8, 50_000];
    let mut seen = vec![false; calls as usize];
    for n in 0..calls {
        if n % 500 == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        let reply = client.receive();
        let xid = word(&reply, 0) as usize;
        assert!(!std::mem::replace(&mut seen[xid], true), "answered once");
        assert_eq!(results(&reply).len(), sizes[xid % 7]);
    }
    feeder.join().unwrap();
}

#[test]
fn with_the_tightest_bounds_no_wake_up_is_lost() {
    let limits = Limits {
        calls_in_flight: 3,
        call_bytes_in_flight: 20_000,
        output_bytes: 64 << 10,
        output_chunks: 4,
        pool_queue: 2,
        pool_threads: 3,
        transport_bytes: 200 << 10,
        ..Limits::default()
    };
    let host = Host::with(Everything::with_file(&[3; 50_000]), limits);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| mixed_load(&host, 3000));
        }
    });
}
