//! CREATE_SESSION through a kill: its answer is lost and asked for again, or its client counts on by itself.

use std::rc::Rc;

use holdfast_base::{Seqid, SessionId};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};

use crate::nfs4::{Client, create_session, status};
use crate::restart::flags;
use crate::server::World;

const FLAGS: u32 = CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN;

/// The server dies when a session is stored and the answer has not left.
fn world() -> Rc<World> {
    Rc::new(World::lasting(None, Point::BeforeSend, true))
}

fn create(client: &Client, number: u32) -> Vec<u8> {
    let args = CreateSession4Args { flags: FLAGS, ..create_session(client.id, Seqid(number)) };
    client.compound(&[ArgOp::CreateSession(args)])
}

/// The result of a compound's only operation.
fn only<T: Decode<'static>>(results: &[u8]) -> T {
    let mut r = Reader::new(results.to_vec().leak());
    let header = CompoundResHeader::decode(&mut r).unwrap();
    assert_eq!(header.status, NfsStat4::Ok);
    ResOpHeader::decode(&mut r).unwrap();
    T::decode(&mut r).unwrap()
}

fn made(results: &[u8], number: u32) -> SessionId {
    let made: CreateSession4Ok = only(results);
    assert_eq!((made.sequence, made.flags), (Seqid(number), FLAGS));
    made.sessionid
}

/// The number that EXCHANGE_ID names to a client that is known.
fn named(client: &Client) -> Seqid {
    let results = client.world.exchange(&client.compound(&[client.who_it_is()]));
    let known: ExchangeId4Ok<'static> = only(&results);
    assert_eq!(known.clientid, client.id);
    assert_ne!(known.flags & EXCHGID4_FLAG_CONFIRMED_R, 0);
    known.sequenceid
}

#[test]
fn a_session_whose_answer_is_lost_is_told_of_in_every_life() {
    let world = world();
    let mut client = Client::new(&world, "client", 1);
    // As Linux does that finds something wrong with the first.
    let second = create(&client, 2);
    assert_eq!(world.kill_with(&second), None, "the server dies");
    let answer = world.exchange(&second);
    let session = made(&answer, 2);
    assert_ne!(session, client.session());
    assert_eq!(world.exchange(&second), answer);
    assert_eq!(named(&client), Seqid(3));
    world.kill();
    assert_eq!(world.exchange(&second), answer);
    assert_eq!(status(&world.exchange(&create(&client, 4))), NfsStat4::SeqMisordered);
    client.goes_on_in(session);
    assert_ne!(flags(&mut client) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, 0);
    client.complete_reclaims();
    assert_eq!(flags(&mut client) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, 0);
}

#[test]
fn a_client_counts_its_sessions_through_lives_of_the_server() {
    let world = world();
    let mut client = Client::new(&world, "client", 1);
    for number in 2..5 {
        world.kill();
        assert_eq!(status(&world.exchange(&create(&client, number + 1))), NfsStat4::SeqMisordered);
        let results = world.exchange(&create(&client, number));
        client.goes_on_in(made(&results, number));
        assert_ne!(flags(&mut client) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, 0, "told in the new one");
        client.complete_reclaims();
    }
    assert_eq!(named(&client), Seqid(5));
}

#[test]
fn the_first_session_of_a_client_is_made_once() {
    let world = world();
    let mut client = Client::unconfirmed(&world, "client");
    let first = create(&client, 1);
    assert_eq!(world.kill_with(&first), None, "the server dies");
    let answer = world.exchange(&first);
    client.goes_on_in(made(&answer, 1));
    assert_eq!(world.exchange(&first), answer);
    let ask = |op| status(&world.exchange(&client.compound(&[op])));
    let destroy_client = ArgOp::DestroyClientId(DestroyClientId4Args { clientid: client.id });
    assert_eq!(ask(destroy_client.clone()), NfsStat4::ClientIdBusy);
    let destroy = ArgOp::DestroySession(DestroySession4Args { sessionid: client.session() });
    assert_eq!(ask(destroy), NfsStat4::Ok);
    assert_eq!(world.exchange(&first), answer, "of a session that is gone as well");
    assert_eq!(ask(destroy_client), NfsStat4::Ok, "there was no other");
}
