//! Whatever is sent, nothing panics, nobody is let in, and others go on.

use holdfast_base::{Entropy, SeededEntropy};
use holdfast_wire::caps::*;
use holdfast_xdr::{Encode, to_bytes};

use crate::world::*;

#[test]
fn arbitrary_arguments_of_every_procedure_do_no_harm() {
    let server = Server::new();
    let (mut client, mut neighbour) = (Client::new(&server, "a"), Client::new(&server, "b"));
    let root = server.root_handle();
    let mut entropy = SeededEntropy(5);
    for round in 0..20_000u32 {
        let mut args = Vec::new();
        // A good ticket gets behind the door.
        if round % 4 > 0 {
            args.extend_from_slice(&to_bytes(&client.ticket));
        }
        for _ in 0..entropy.u64() % 40 {
            let n = entropy.u64();
            match n % 16 {
                0..=6 => args.extend_from_slice(&0u32.to_be_bytes()),
                7..=11 => args.extend_from_slice(&((n >> 32) as u32 % 8).to_be_bytes()),
                12 => args.extend_from_slice(&to_bytes(&Handle(&root))),
                _ => args.extend_from_slice(&((n >> 32) as u32).to_be_bytes()),
            }
        }
        client.post_bytes(round % 13, &args);
        if client.acquire(&root, CapSet::NONE) == Err(CapsStat::BadTicket) {
            client.hello(TxnId(0)).unwrap();
        }
    }
    client.give_back();
    assert!(neighbour.acquire(&root, CapSet::ALL_S).is_ok());
}

#[test]
fn a_list_without_end_is_refused_before_anything_is_allocated() {
    let server = Server::new();
    let mut client = Client::new(&server, "a");
    let mut args = to_bytes(&client.ticket);
    u32::MAX.encode_into(&mut args);
    client.post_bytes(CapsProc::Acquire.as_u32(), &args);
    assert!(client.acquire(&server.root_handle(), CapSet::NONE).is_ok());
}

#[test]
fn nobody_acts_under_anothers_ticket_with_more_rights_than_his_own() {
    let server = Server::new();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    let mut b = Client::new(&server, "b");
    let ok = a.batch(1, vec![mkdir(at(&root), "private")]).unwrap();
    b.ticket = a.ticket;
    b.auth = user(1000);
    let dir = made(&ok.results[0]).handle;
    let refused_as = refused(&b.batch(2, vec![create(at(dir.0), "x", b"")]).unwrap().results[0]);
    assert_eq!(refused_as, Some(CapsStat::Access));
}

trait EncodeInto {
    fn encode_into(&self, into: &mut Vec<u8>);
}

impl<T: Encode> EncodeInto for T {
    fn encode_into(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&to_bytes(self));
    }
}
