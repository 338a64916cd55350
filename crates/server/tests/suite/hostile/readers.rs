//! Clients that ask more than they listen.

use std::io::Write;
use std::time::{Duration, Instant};

use super::attack;
use crate::client::{Client, NFS3, call, marked, opaque, word, words};

const MIB: u32 = 1 << 20;

/// A file of one MiB; its handle.
fn large_file(client: &mut Client) -> Vec<u8> {
    let root = client.mount(b"/mem");
    let mut args = opaque(&root);
    args.extend(opaque(b"large"));
    // UNCHECKED, with no attribute set.
    args.extend(words(&[0, 0, 0, 0, 0, 0, 0]));
    let results = client.ask(NFS3, 8, &args);
    assert_eq!([word(&results, 0), word(&results, 1)], [0, 1], "CREATE");
    let n = word(&results, 2) as usize;
    let handle = results[12..12 + n].to_vec();
    let mut args = opaque(&handle);
    args.extend(words(&[0, 0, MIB, 0]));
    args.extend(opaque(&vec![b'l'; MIB as usize]));
    assert_eq!(word(&client.ask(NFS3, 7, &args), 0), 0, "WRITE");
    handle
}

fn read(xid: u32, file: &[u8]) -> Vec<u8> {
    let mut args = opaque(file);
    args.extend(words(&[0, 0, MIB]));
    marked(&call(xid, NFS3, 6, &args))
}

#[test]
fn a_reader_that_never_reads_is_not_read_from_and_costs_its_queue() {
    // 20 connections with a queue of 4 MiB each, the last reply beyond it, and what is just being answered.
    attack(20 * 6 + 32, |server| {
        let file = large_file(&mut Client::connect(server.address));
        // 24 MB of calls: more than the buffers of both sockets hold.
        let asks: Vec<u8> = (0..200_000).flat_map(|xid| read(xid, &file)).collect();
        let mut deaf: Vec<_> = (0..20).map(|_| Client::connect(server.address)).collect();
        for client in &mut deaf {
            let taken = client.push(&asks);
            assert!(taken < asks.len(), "the server took {taken} bytes of calls whose replies nobody reads");
        }
        std::thread::sleep(Duration::from_secs(2));
        if std::env::var("HOLDFAST_SCALE").as_deref() == Ok("soak") {
            // They stall for two minutes, and then are dropped: what was sent before is still there to be read.
            std::thread::sleep(Duration::from_secs(125));
            assert!(deaf.iter_mut().all(Client::is_closed), "two minutes without progress end a connection");
        }
    });
}

#[test]
fn calls_that_come_faster_than_replies_are_read_are_all_answered() {
    const CALLS: u32 = 200_000;
    attack(32, |server| {
        let mut client = Client::connect(server.address);
        let root = client.mount(b"/mem");
        let asks: Vec<u8> = (0..CALLS).flat_map(|xid| marked(&call(xid, NFS3, 1, &opaque(&root)))).collect();
        let mut sender = client.0.try_clone().unwrap();
        sender.set_write_timeout(None).unwrap();
        let sender = std::thread::spawn(move || sender.write_all(&asks).unwrap());
        // Let the replies pile up as far as they go.
        std::thread::sleep(Duration::from_secs(2));
        let since = Instant::now();
        let mut seen = vec![false; CALLS as usize];
        for _ in 0..CALLS {
            let reply = client.try_receive().unwrap();
            assert_eq!(word(&reply, 6), 0, "GETATTR");
            assert!(!std::mem::replace(&mut seen[word(&reply, 0) as usize], true), "answered twice");
        }
        sender.join().unwrap();
        eprintln!("{CALLS} calls in {:?}", since.elapsed());
    });
}
