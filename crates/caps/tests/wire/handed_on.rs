//! Another process that goes on with what clients were told by the one before, and may not know all of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_base::ClientId;
use holdfast_caps::Neighbours;
use holdfast_wire::caps::*;
use holdfast_xdr::{Encode, to_bytes};

use crate::world::*;

/// A place on this host where nobody comes.
struct Nobody;

impl Neighbours for Nobody {
    fn path(&self) -> &[u8] {
        b"/nowhere"
    }
    fn invite(&self, _: ClientId) -> Option<[u8; 16]> {
        None
    }
    fn is_here(&self, _: ClientId) -> bool {
        false
    }
    fn keep(&self, _: ClientId, _: OwnedFd) -> Option<[u8; 16]> {
        None
    }
    fn forget(&self, _: ClientId) {}
    fn tidy(&self) {}
}

/// A call of a later program: it asks for an answer in a way that is not known here.
#[derive(Encode)]
struct LaterBatch {
    ticket: Ticket,
    txn: TxnId,
    how: u32,
}

/// Of a later program, too.
const LATER_PROCEDURE: u32 = 999;

#[test]
fn who_was_told_of_what_the_next_program_does_not_know_says_hello_again() {
    for is_known in [true, false] {
        let server = Server::new();
        server.running.caps.meet(Arc::new(Nobody));
        let (client, root) = (Client::new(&server, "a"), server.root_handle());
        let (ticket, image) = (client.ticket, server.running.caps.freeze().unwrap());
        let mount = client.unplug();
        let server = server.replace();
        if is_known {
            server.running.caps.meet(Arc::new(Nobody));
        }
        // Of the same number, as it is the first there as well.
        let mut client = mount.again(&server, "a");
        // Its engine knows the client already: that comes along, too.
        client.hello(TxnId(0)).unwrap();
        server.running.caps.thaw(image);
        client.ticket = ticket;
        let asked = client.acquire(&root, CapSet::NONE).map(drop);
        assert_eq!(asked, if is_known { Ok(()) } else { Err(CapsStat::BadTicket) });
        // What it sends cannot be read.
        let args = LaterBatch { ticket, txn: TxnId(1), how: 1 << 31 };
        if !is_known {
            assert_eq!(client.call::<()>(CapsProc::Batch, &args), Err(CapsStat::BadTicket));
            // Nor is it known what it is.
            let xid = client.post_bytes(LATER_PROCEDURE, &to_bytes(&args));
            assert_eq!(client.result::<()>(xid), Err(CapsStat::BadTicket));
            let features = client.hello(TxnId(0)).unwrap().features;
            assert!(!features.contains(Features::SAME_HOST));
        }
        client.batch(1, vec![create(at(&root), "a", b"")]).unwrap();
    }
}
