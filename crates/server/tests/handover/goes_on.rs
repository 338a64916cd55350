//! What clients hold goes on: connections, half-sent requests, opens, locks, waiters, replies.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_wire::nfs4::NfsStat4;

use crate::client::{Client, NFS3, call, marked, opaque, word};
use crate::load::Neighbour;
use crate::nfs4::Nfs4;
use crate::prober::{Prober, is_free};
use crate::server::{Server, root};

/// `CB_RECALL` and `CB_NOTIFY_LOCK`.
const RECALL: u32 = 4;
const NOTIFY_LOCK: u32 = 13;

#[test]
fn a_connection_goes_on_in_the_middle_of_a_request() {
    let mut server = Server::start();
    let mut client = Client::connect(server.address);
    let handle = root(&mut client);
    let request = marked(&call(5, NFS3, 1, &opaque(&handle)));
    client.0.write_all(&request[..request.len() / 2]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    server.replace();
    client.0.write_all(&request[request.len() / 2..]).unwrap();
    let reply = client.try_receive().unwrap();
    assert_eq!([0, 1, 2, 5, 6].map(|n| word(&reply, n)), [5, 1, 0, 0, 0], "GETATTR is answered");
    assert!(client.ask(NFS3, 1, &opaque(&handle)).starts_with(&[0; 4]));
}

#[test]
fn opens_locks_and_unstable_data_go_on_and_no_local_process_gets_the_lock() {
    for minor in [0, 1, 2] {
        let mut server = Server::start();
        let mut client = Nfs4::new(server.address, "holder", minor);
        let open = client.open("held");
        let lock = client.lock("held", open).unwrap();
        let verifier = client.write("held", lock, b"written before").unwrap();
        assert!(!is_free(&server.file("held")));
        let prober = Prober::of(&server.file("held"));
        let neighbour = Neighbour::of(&server);
        for round in 0..3 {
            server.replace();
            assert_eq!(client.read("held", open).as_deref(), Ok(&b"written before"[..]), "round {round}");
        }
        assert_eq!(client.write("held", lock, b"written after.").unwrap(), verifier, "nothing was lost");
        assert_eq!(client.commit("held"), verifier);
        let (tried, had) = prober.end();
        assert_eq!(had, 0, "4.{minor}: a local process got the lock");
        let stall = neighbour.end();
        println!(
            "4.{minor}: {tried} tries of a local process; stall {stall:?}, in the server {:?} ms",
            server.stills()
        );
        assert_eq!(client.unlock("held", lock), NfsStat4::Ok);
        assert!(is_free(&server.file("held")), "the lock ended with its owner's word");
        assert_eq!(client.close("held", open), NfsStat4::Ok);
        assert_eq!(std::fs::read(server.file("held")).unwrap(), b"written after.");
    }
}

#[test]
fn a_waiter_for_a_lock_is_called_by_the_new_process() {
    let mut server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let mut waiter = Nfs4::new(server.address, "waiter", 1);
    let (open, other) = (holder.open("file"), waiter.open("file"));
    let lock = holder.lock("file", open).unwrap();
    assert_eq!(waiter.lock("file", other), Err(NfsStat4::Denied));
    server.replace();
    assert_eq!(holder.unlock("file", lock), NfsStat4::Ok);
    assert_eq!(waiter.next_call(), NOTIFY_LOCK);
    assert!(waiter.lock("file", other).is_ok());
    assert_eq!(holder.lock("file", open), Err(NfsStat4::Denied));
}

#[test]
fn a_request_sent_again_after_the_handover_is_answered_as_before() {
    let mut server = Server::start();
    let mut client = Nfs4::new(server.address, "again", 1);
    let open = client.open("file");
    client.write("file", open, b"once").unwrap();
    let answered = client.ask(&[]);
    server.replace();
    assert_eq!(client.repeat(), answered);
    assert_eq!(client.close("file", open), NfsStat4::Ok);
}

#[test]
fn a_file_removed_while_open_can_still_be_read() {
    let mut server = Server::start();
    let mut client = Nfs4::new(server.address, "removed", 1);
    let open = client.open("file");
    client.write("file", open, b"content").unwrap();
    let descriptors = server.descriptors();
    std::fs::rename(server.file("file"), server.file("moved")).unwrap();
    server.replace();
    assert_eq!(client.read("moved", open).as_deref(), Ok(&b"content"[..]));
    assert_eq!(client.close("moved", open), NfsStat4::Ok);
    for _ in 0..3 {
        server.replace();
    }
    assert!(server.descriptors() <= descriptors + 4, "descriptors pile up: {}", server.descriptors());
}

#[test]
fn a_delegation_goes_on_and_is_recalled_by_the_new_process() {
    let mut server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let mut other = Nfs4::new(server.address, "other", 1);
    std::fs::write(server.file("file"), "content").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (open, delegation) = holder.open_delegated("file").unwrap();
    let delegation = delegation.expect("nobody else has it open");
    std::thread::sleep(Duration::from_millis(100));
    server.replace();
    assert_eq!(holder.read("file", delegation).as_deref(), Ok(&b"content"[..]));
    assert_eq!(holder.calls_waiting(), 0, "nothing stands against it: it is not recalled");
    assert_eq!(other.open_delegated("file").map(|_| ()), Err(NfsStat4::Delay));
    assert_eq!(holder.next_call(), RECALL);
    assert_eq!(holder.return_delegation("file", delegation), NfsStat4::Ok);
    let (theirs, _) = other.open_delegated("file").unwrap();
    assert!(other.write("file", theirs, b"changed").is_ok());
    assert_eq!(holder.close("file", open), NfsStat4::Ok);
}

#[test]
fn of_two_opens_that_share_a_descriptor_one_outlives_the_others_close() {
    let mut server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    std::fs::write(server.file("file"), "content").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (one, delegation) = holder.open_delegated("file").unwrap();
    let delegation = delegation.expect("whose lease a second descriptor would break");
    let other = holder.open_under("file", "another owner", delegation);
    server.replace();
    assert_eq!(holder.close("file", other), NfsStat4::Ok);
    // These may get the numbers that have become free.
    let names = ["a", "b", "c", "d"];
    let strangers = names.map(|name| holder.open(name));
    assert!(holder.write("file", one, b"changed").is_ok());
    assert_eq!(holder.read("file", one).as_deref(), Ok(&b"changed"[..]));
    for (name, stranger) in names.into_iter().zip(strangers) {
        assert_eq!(std::fs::read(server.file(name)).unwrap(), b"");
        assert_eq!(holder.close(name, stranger), NfsStat4::Ok);
    }
    assert_eq!(holder.close("file", one), NfsStat4::Ok);
}

#[test]
fn a_delegation_of_what_a_local_process_changes_meanwhile_is_recalled() {
    let mut server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    std::fs::write(server.file("file"), "content").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (open, delegation) = holder.open_delegated("file").unwrap();
    let delegation = delegation.expect("nobody else has it open");
    // No open of it, so that no lease is broken: the change comes in the moment when nothing guards it.
    let (file, ends) = (server.file("file"), Arc::new(AtomicBool::new(false)));
    let until = Arc::clone(&ends);
    let changer = std::thread::spawn(move || {
        for mode in [0o644, 0o666].into_iter().cycle() {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            if until.load(Ordering::Relaxed) {
                return;
            }
        }
    });
    server.replace();
    ends.store(true, Ordering::Relaxed);
    changer.join().unwrap();
    assert_eq!(holder.next_call(), RECALL);
    assert_eq!(holder.return_delegation("file", delegation), NfsStat4::Ok);
    assert_eq!(holder.close("file", open), NfsStat4::Ok);
}
