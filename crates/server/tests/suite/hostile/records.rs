//! Streams that are no records.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::attack;
use crate::client::{Client, LAST, NFS3, Noise, call, marked, words};

#[test]
fn garbage_is_answered_or_ends_the_connection() {
    attack(32, |server| {
        let mut noise = Noise(0x1234_5678_9abc_def1);
        for round in 0..300 {
            let mut client = Client::connect(server.address);
            let garbage = noise.bytes(64 << 10);
            // Bare, as a record, and behind a good header.
            let sent = match round % 3 {
                0 => garbage,
                1 => marked(&garbage),
                _ => marked(&call(1, NFS3, round % 22, &garbage)),
            };
            client.push(&sent);
            // It may be closed already.
            let _ = client.0.shutdown(Shutdown::Write);
            assert!(client.is_closed(), "round {round}");
        }
    });
}

#[test]
fn four_gibibytes_announced_end_the_connection() {
    attack(8, |server| {
        for header in [u32::MAX, LAST | 0x7fff_ffff, 0x7fff_ffff, LAST | (2 << 20)] {
            let mut client = Client::connect(server.address);
            client.0.write_all(&words(&[header])).unwrap();
            assert!(client.is_closed(), "{header:#x}");
        }
    });
}

#[test]
fn endless_fragments_end_the_connection() {
    attack(8, |server| {
        for fragment in
            [words(&[0]), words(&[4, 0x6161_6161]), words(&[1])[..].iter().chain(b"x").copied().collect()]
        {
            let mut client = Client::connect(server.address);
            let many = fragment.repeat(10_000);
            client.push(&many);
            assert!(client.is_closed(), "fragments of {} bytes", fragment.len());
        }
    });
}

#[test]
fn a_call_in_tiny_fragments_is_a_call() {
    attack(8, |server| {
        let mut client = Client::connect(server.address);
        for byte in call(5, NFS3, 0, &[])[..59].iter() {
            client.0.write_all(&words(&[1])).unwrap();
            client.0.write_all(&[*byte]).unwrap();
        }
        client.0.write_all(&words(&[LAST | 1])).unwrap();
        client.0.write_all(&[0]).unwrap();
        assert_eq!(client.try_receive().unwrap(), words(&[5, 1, 0, 0, 0, 0]));
    });
}

#[test]
fn half_a_record_is_held_for_a_minute_and_costs_what_came() {
    // 300 connections with 64 KiB of a megabyte each.
    attack(64, |server| {
        let mut stuck: Vec<_> = (0..300)
            .map(|_| {
                let mut client = Client::connect(server.address);
                client.0.write_all(&words(&[LAST | (1 << 20)])).unwrap();
                client.0.write_all(&vec![b'h'; 64 << 10]).unwrap();
                client
            })
            .collect();
        let since = Instant::now();
        stuck
            .iter_mut()
            .for_each(|client| client.0.set_read_timeout(Some(Duration::from_secs(100))).unwrap());
        assert!(stuck.iter_mut().all(Client::is_closed), "a minute is long enough for a record");
        eprintln!("all {} were dropped within {:?}", stuck.len(), since.elapsed());
    });
}
