//! More connections than anybody needs.

use std::net::Ipv4Addr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::attack;
use crate::client::{Client, NFS3};

/// Connections tried.
const MANY: usize = 10_000;

/// Connections that one address may have (`CONNECTIONS_PER_ADDRESS_MAX`).
const OF_ONE_ADDRESS: usize = 1024;

/// Connections that it tries beyond.
const BEYOND: usize = 1976;

/// Raises this process's limit of descriptors as far as it goes, which must be far enough for so many connections here and
/// in the server.
fn needs(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let needed = connections + 500;
    let enough = limit.maximum.is_none_or(|most| most >= needed as u64);
    assert!(
        enough,
        "this test needs a hard limit of {needed} descriptors (ulimit -Hn): it is {:?}",
        limit.maximum
    );
}

#[test]
fn ten_thousand_connections_from_many_addresses_are_served_in_bounded_memory() {
    needs(MANY);
    attack(160, |server| {
        let mut open = Vec::new();
        for i in 0..MANY {
            let source = Ipv4Addr::new(127, 0, 1, (i % 20) as u8 + 1);
            let client = Client::connect_from(source, server.address);
            open.push(client.unwrap_or_else(|e| panic!("connection {i}: {e}")));
        }
        // A call on each: none was forgotten.
        open.iter_mut().for_each(|client| assert_eq!(client.ask(NFS3, 0, &[]), b""));
        assert!(server.descriptors() >= MANY);
        drop(open);
        let since = std::time::Instant::now();
        while server.descriptors() > 200 {
            assert!(
                since.elapsed() < crate::client::PATIENCE,
                "{} descriptors stay open",
                server.descriptors()
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
}

#[test]
fn one_address_gets_its_share_of_connections_and_no_more() {
    needs(OF_ONE_ADDRESS + BEYOND);
    attack(64, |server| {
        let source = Ipv4Addr::new(127, 0, 2, 1);
        let mut open: Vec<_> = (0..OF_ONE_ADDRESS + BEYOND)
            .map(|_| Client::connect_from(source, server.address).unwrap())
            .collect();
        let refused = open.split_off(OF_ONE_ADDRESS);
        open.iter_mut().for_each(|client| assert_eq!(client.ask(NFS3, 0, &[]), b""));
        assert!(refused.into_iter().all(|mut client| client.is_closed()), "the rest is closed");
        let other = Client::connect_from(Ipv4Addr::new(127, 0, 2, 2), server.address);
        assert_eq!(other.unwrap().ask(NFS3, 0, &[]), b"", "another address is served");
        drop(open);
        // Its room comes back.
        let since = std::time::Instant::now();
        loop {
            let mut again = Client::connect_from(source, server.address).unwrap();
            again.send(&crate::client::call(1, NFS3, 0, &[]));
            if again.try_receive().is_ok() {
                break;
            }
            assert!(since.elapsed() < crate::client::PATIENCE, "connections that ended are still counted");
        }
    });
}
