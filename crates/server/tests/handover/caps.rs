//! What a Holdfast mount holds goes on: tickets, capabilities, what guards them, and transactions.

use std::time::Duration;

use holdfast_wire::caps::*;

use crate::client::{Client, NFS3, opaque, word};
use crate::mount::Mount;
use crate::nfs4::Nfs4;
use crate::server::{Server, root};

/// NFS3ERR_JUKEBOX.
const JUKEBOX: u32 = 10008;

/// NFSv3's LOOKUP in the root, until nothing is in its way.
fn look_up(client: &mut Client, dir: &[u8], name: &[u8]) -> u32 {
    loop {
        let results = client.ask(NFS3, 3, &[opaque(dir), opaque(name)].concat());
        if word(&results, 0) != JUKEBOX {
            return word(&results, 0);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_mount_keeps_what_it_holds_and_what_it_has_sent() {
    let mut server = Server::start();
    let session = Nfs4::new(server.address, "mount", 1);
    let mut other = Client::connect(server.address);
    let root = root(&mut other);
    let mut mount = Mount::new(&server, session.session());
    let held = mount.acquire(&root, CapSet::ALL_X);
    assert!(held.held.contains(CapSet::FILE_X));
    let (made, grant) = mount.create(&root);
    assert!(grant.held.contains(CapSet::FILE_S), "{grant:?}");
    // What changed within a tick cannot be told from what a local process changed in the next.
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..2 {
        server.replace();
        assert_eq!(mount.create(&root).0, made, "sent again, it is answered as before");
        let kept = mount.acquire(&root, CapSet::NONE);
        assert_eq!((kept.held, kept.seq), (held.held, held.seq));
        assert_eq!(mount.acquire(&made, CapSet::NONE).held, grant.held);
    }
    assert!(mount.calls.is_empty(), "nothing was recalled");
    let args = StableArgs { ticket: mount.ticket, through: TxnId(1), done_through: TxnId(0) };
    let stable: StableOk = mount.ask(CapsProc::Stable, &args).unwrap();
    assert_eq!((stable.stable_through, stable.failed.len()), (TxnId(1), 0));
    // Against other clients it holds as before, and recalls come over the same connection.
    let looking = std::thread::spawn({
        let root = root.clone();
        move || look_up(&mut other, &root, b"made")
    });
    let asked = mount.next_recall();
    assert!(asked.iter().any(|(handle, _, seq)| *handle == root && *seq > held.seq));
    mount.release(&asked);
    assert_eq!(looking.join().unwrap(), 0);
    assert_eq!(std::fs::read(server.file("made")).unwrap(), b"ten bytes!");
}

/// Whether it is executed by the one process or by the next: it is answered when it is on the disk, and sent again it is told as it was.
#[test]
fn a_batch_that_waits_for_the_disk_is_answered_over_a_planned_restart() {
    let mut server = Server::start();
    let session = Nfs4::new(server.address, "mount", 1);
    let root = root(&mut Client::connect(server.address));
    let mut mount = Mount::new(&server, session.session());
    for txn in 1..=4 {
        let name = format!("forced-{txn}");
        mount.force((txn, name.as_bytes()), &root, BatchHow::FIRST);
        // One is under way when the server is told, another was read before, or is read by the next process.
        std::thread::sleep(Duration::from_millis(txn % 2 * 5));
        server.replace();
        let (made, stable) = mount.forced();
        assert_eq!(stable, TxnId(txn));
        mount.force((txn, name.as_bytes()), &root, BatchHow::AGAIN);
        assert_eq!(mount.forced(), (made, stable));
        assert_eq!(std::fs::read(server.file(&name)).unwrap(), b"ten bytes!");
    }
}

#[test]
fn what_local_processes_do_meanwhile_and_afterwards_is_recalled() {
    let mut server = Server::start();
    let session = Nfs4::new(server.address, "mount", 1);
    let root = root(&mut Client::connect(server.address));
    let mut mount = Mount::new(&server, session.session());
    std::fs::write(server.file("file"), "content").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(mount.acquire(&root, CapSet::ALL_X).held.contains(CapSet::FILE_X));
    std::thread::sleep(Duration::from_millis(100));
    server.replace();
    assert!(mount.acquire(&root, CapSet::NONE).held.contains(CapSet::FILE_X));
    std::fs::write(server.file("local"), "a local process's").unwrap();
    let asked = mount.next_recall();
    assert_eq!(asked.iter().map(|(handle, ..)| handle).collect::<Vec<_>>(), [&root]);
}
