use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use holdfast_rpc::server::Limits;

use crate::client::{Client, marked, words};
use crate::program::*;

fn still_serves(host: &Host) {
    assert_eq!(Client::connect(host.address()).ask(1, ECHO, b"well"), b"well");
}

#[test]
fn four_gibibytes_announced_end_the_connection() {
    let host = Host::new();
    let mut client = Client::connect(host.address());
    client.0.write_all(&[0xff; 4]).unwrap();
    assert!(client.is_dropped());
    still_serves(&host);
}

#[test]
fn garbage_ends_the_connection_or_is_answered() {
    let host = Host::new();
    let mut seed = 0x1234_5678_9abc_def1_u64;
    for _ in 0..50 {
        let garbage: Vec<u8> = (0..500)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect();
        let mut client = Client::connect(host.address());
        client.0.write_all(&marked(&garbage)).unwrap();
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        while client.try_receive().is_ok() {}
    }
    eventually("all are gone", || host.server.connections().is_empty());
    still_serves(&host);
}

#[test]
fn what_is_no_rpc_message_ends_the_connection() {
    let host = Host::new();
    for record in [&b""[..], b"abc", &words(&[1, 2, 3], b"")] {
        let mut client = Client::connect(host.address());
        client.send(record);
        assert!(client.is_dropped());
    }
    still_serves(&host);
}

#[test]
fn half_a_record_ends_the_connection_in_time_and_holds_little() {
    let limits = Limits { record_seconds: 1, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut stuck = Client::connect(host.address());
    stuck.0.write_all(&words(&[0x8000_0000 | (1 << 20)], b"and no more")).unwrap();
    let mut idle = Client::connect(host.address());
    let mut trickling = Client::connect(host.address());
    let mut trickle = trickling.0.try_clone().unwrap();
    let feeder = std::thread::spawn(move || {
        trickle.write_all(&words(&[0x8000_0000 | 1000], b"")).unwrap();
        while trickle.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(stuck.is_dropped());
    assert!(trickling.is_dropped(), "a trickle buys no time");
    feeder.join().unwrap();
    assert_eq!(idle.ask(1, ECHO, b"here"), b"here", "between records there is no hurry");
}

#[test]
fn a_thousand_connections_are_served() {
    let wanted = rustix::process::Rlimit { current: Some(4096), maximum: None };
    let now = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if now.current.is_some_and(|n| n < 4096) {
        let limit = rustix::process::Rlimit { maximum: now.maximum, ..wanted };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    }
    let host = Host::new();
    let mut clients: Vec<_> = (0..1000).map(|_| Client::connect(host.address())).collect();
    for round in 0..2 {
        for (n, client) in clients.iter_mut().enumerate() {
            let word = (n as u32 + round).to_be_bytes();
            assert_eq!(client.ask(n as u32, ECHO, &word), word);
        }
    }
    assert_eq!(host.server.connections().len(), 1000);
    drop(clients);
    eventually("all are gone", || host.server.connections().is_empty());
    assert_eq!(host.program.closed.load(std::sync::atomic::Ordering::SeqCst), 1000);
}

#[test]
fn one_address_gets_its_share_of_connections_only() {
    let host = Host::with(Everything::default(), Limits { connections_per_address: 2, ..Limits::default() });
    let mut clients: Vec<_> = (0..2).map(|_| Client::connect(host.address())).collect();
    for client in &mut clients {
        assert_eq!(client.ask(1, NULL, b""), b"");
    }
    assert!(Client::connect(host.address()).is_dropped());
    drop(clients.pop());
    eventually("there is room again", || {
        let Ok(stream) = TcpStream::connect(host.address()) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut client = Client(stream);
        client.0.write_all(&marked(&crate::client::call(1, NULL, b""))).is_ok()
            && client.try_receive().is_ok()
    });
    assert_eq!(clients[0].ask(2, NULL, b""), b"");
}

#[test]
fn when_all_connections_are_taken_the_idle_one_makes_room() {
    let limits = Limits { connections: 2, connection_idle_seconds: 2, ..Limits::default() };
    let host = Host::with(Everything::default(), limits);
    let mut idle = Client::connect(host.address());
    idle.ask(1, NULL, b"");
    let mut busy = Client::connect(host.address());
    busy.ask(1, NULL, b"");
    assert!(Client::connect(host.address()).is_dropped(), "nobody is idle yet");
    std::thread::sleep(Duration::from_millis(1600));
    busy.ask(2, NULL, b"");
    std::thread::sleep(Duration::from_millis(1600));
    assert_eq!(Client::connect(host.address()).ask(1, ECHO, b"in"), b"in");
    assert!(idle.is_dropped());
    assert_eq!(busy.ask(3, NULL, b""), b"");
}
