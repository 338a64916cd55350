//! A batch that a disk keeps waiting for longer than others wait for what its client has.

use std::sync::mpsc;

use holdfast_base::limits::RECALL_STRETCH_MAX;
use holdfast_state::Policy;
use holdfast_vfs::{File, FsError};
use holdfast_wire::caps::*;

use crate::world::*;

fn data<'a>(file: &'a [u8], data: &'a [u8]) -> Vec<BatchOp<'a>> {
    vec![BatchOp::Data { object: at(file), offset: 0, data }]
}

/// Stretched as far as it goes it is shorter than a lease.
const RECALL_MS: u64 = LEASE_MS / (RECALL_STRETCH_MAX + 2);

/// What others met while it was being written.
struct Met {
    granted: Result<(), CapsStat>,
    read: Result<(), FsError>,
    beside: Result<(), CapsStat>,
}

#[test]
fn what_hangs_for_longer_than_a_recall_comes_before_the_next_holder() {
    let server = Server::new();
    server.running.manager.quiet(|engine, _| {
        let policy = Policy { recall_ms: Some(RECALL_MS), ..*engine.policy() };
        engine.set_policy(policy);
    });
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    let made_x = a.batch(1, vec![create(at(&root), "x", b"old")]).unwrap();
    let x = made(&made_x.results[0]).handle.0.to_vec();
    assert!(a.acquire(&x, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    // A second stream of the same mount.
    let mut beside = Client::stranger_like(&server, "a", a.session, [7; 16]);
    beside.hello(TxnId(0)).unwrap();
    let mut b = Client::new(&server, "b");
    assert_eq!(b.acquire(&x, CapSet::FILE_S).map(drop), Err(CapsStat::Delay), "it is asked for");
    let (tell, told) = mpsc::channel();
    let (file, handle, running) = (x.clone(), object(&server, &x), &server.running);
    let (manager, export, clock) = (running.manager.clone(), running.export.clone(), server.clock.clone());
    server.disk().before_next_write(move || {
        clock.advance(std::time::Duration::from_millis(RECALL_MS * (RECALL_STRETCH_MAX + 1)));
        manager.tick();
        let granted = b.acquire(&file, CapSet::FILE_S).map(drop);
        let (root, mut into) = (holdfast_vfs::Caller::root(), [0; 8]);
        let cx = holdfast_vfs::Cx::new(&root, holdfast_vfs::Wait::Yes);
        let read = export.backend.read(&cx, File::Stateless(&handle), 0, &mut into).map(drop);
        let beside = beside.batch(1, data(&file, b"beside")).map(drop);
        tell.send((b, Met { granted, read, beside })).unwrap();
    });
    a.batch(2, data(&x, b"new")).unwrap();
    let (mut b, met) = told.recv().unwrap();
    assert_eq!(
        met.granted,
        Err(CapsStat::Delay),
        "what is being written would come behind the next holder's back"
    );
    assert_eq!(met.read, Err(FsError::Delay), "who looks comes again, and holds no thread");
    assert_eq!(met.beside, Err(CapsStat::Delay), "nothing joins it");
    // It is done, and long past the end.
    assert!(b.acquire(&x, CapSet::FILE_S).unwrap().grant.held.contains(CapSet::FILE_S));
    assert_eq!(server.read("x"), b"new");
    assert_eq!(a.batch(3, data(&x, b"late")).map(drop), Err(CapsStat::BadTicket));
    a.hello(TxnId(0)).unwrap();
    assert_eq!(a.batch(3, data(&x, b"late")).map(drop), Err(CapsStat::Delay), "b has it now");
    b.give_back();
    a.batch(3, data(&x, b"late")).unwrap();
}
