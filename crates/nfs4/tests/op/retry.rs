//! Retries of what still runs: one execution, the same answer to all.

use holdfast_base::SlotId;
use holdfast_ledger::Ledger;
use holdfast_rpc::detached::Detached;
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Session, at, open_create};
use crate::world::{Making, World};

fn mkdir(name: &[u8]) -> ArgOp<'_> {
    let none = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
    ArgOp::Create(Create4Args { objtype: CreateType4::Dir, objname: name, createattrs: none })
}

fn results(records: &[Vec<u8>]) -> Vec<&[u8]> {
    records.iter().map(|record| Detached::results(record).unwrap()).collect()
}

#[test]
fn a_retry_on_a_slot_that_runs_waits_for_the_one_answer() {
    let world = World::sync();
    let mut client = Session::open(&world, 1, 1);
    client.seqid = client.seqid.next();
    let ops = [vec![ArgOp::Sequence(client.sequence())], at(&[]), vec![mkdir(b"d")]].concat();
    let args = client.peer.args(&ops);
    world.gate.close();
    for _ in 0..3 {
        assert_eq!(client.peer.send(&args), Vec::<Vec<u8>>::new(), "nothing leaves before the disk has it");
    }
    world.gate.open();
    let records = client.peer.receive(3);
    let answers = results(&records);
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(answers[0][..4], [0; 4], "and it is a success");
    world.check();
}

#[test]
fn a_request_whose_connection_is_lost_while_it_waits_for_a_thread_is_answered_to_its_retry() {
    let world = World::sync();
    let mut client = Session::open(&world, 1, 1);
    client.cachethis = true;
    client.seqid = client.seqid.next();
    let args = [vec![ArgOp::Sequence(client.sequence())], at(&[]), vec![mkdir(b"d")]].concat();
    let args = client.peer.args(&args);
    let lost = std::mem::replace(&mut client.peer, Peer::new(&world, 1, 1));
    lost.post_and_lose(&args);
    let mut reply = client.peer.exchange(&args);
    reply.ok::<Sequence4Ok>(OpNum4::Sequence);
    assert_eq!(reply.status, NfsStat4::Ok, "it was made once, and the retry is told so");
    assert_eq!(client.peer.exchange(&args).bytes, reply.bytes);
    world.check();
}

#[test]
fn a_retry_may_name_another_highest_slot() {
    let world = World::sync();
    let mut client = Session::open(&world, 1, 1);
    client.cachethis = true;
    client.seqid = client.seqid.next();
    let sequence = client.sequence();
    let encoded = |client: &Session, highest| {
        let sequence = Sequence4Args { highest_slotid: highest, ..sequence };
        client.peer.args(&[vec![ArgOp::Sequence(sequence)], at(&[]), vec![mkdir(b"d")]].concat())
    };
    let (first, again) = (encoded(&client, SlotId(0)), encoded(&client, SlotId(3)));
    let reply = client.peer.exchange(&first);
    assert_eq!(reply.status, NfsStat4::Ok);
    assert_eq!(client.peer.exchange(&again).bytes, reply.bytes, "as Linux sends it after a lost connection");
}

#[test]
fn a_session_is_not_destroyed_while_its_requests_run() {
    let world = World::sync();
    let mut client = Session::open(&world, 1, 1);
    client.seqid = client.seqid.next();
    let sequence = ArgOp::Sequence(client.sequence());
    let args = client.peer.args(&[vec![sequence], at(&[]), vec![mkdir(b"d")]].concat());
    world.gate.close();
    client.peer.send(&args);
    client.peer.send(&args);
    let destroy = ArgOp::DestroySession(DestroySession4Args { sessionid: client.id });
    let mut other = Peer::new(&world, 1, 1);
    other.compound(&[destroy]).fails::<()>(OpNum4::DestroySession, NfsStat4::Delay);
    world.gate.open();
    assert_eq!(client.peer.receive(2).len(), 2);
}

#[test]
fn in_v40_a_retry_is_known_by_its_transaction_id() {
    let world = World::sync();
    let mut peer = Peer::new(&world, 1, 0);
    let args = peer.args(&[at(&[]), vec![mkdir(b"d")]].concat());
    world.gate.close();
    assert_eq!(peer.send(&args), Vec::<Vec<u8>>::new());
    assert_eq!(peer.send_again(&args), Vec::<Vec<u8>>::new());
    world.gate.open();
    let records = peer.receive(2);
    let answers = results(&records);
    assert_eq!((answers.len(), answers[0]), (2, *answers.last().unwrap()));
    assert_eq!(answers[0][..4], [0; 4]);
    // Done, and sent once more: the same again. Under another id it is another request.
    let again = peer.send_again(&args);
    assert_eq!(results(&again), [answers[0]]);
    assert_eq!(peer.exchange(&args).status, NfsStat4::Exist);
}

#[test]
fn without_room_in_the_journal_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1 };
    let (ledger, _) = Ledger::open(&dir.path().join("journal"), &size, &[]).unwrap();
    let world = World::made(Making { ledger: Some(ledger.clone()), ..Making::default() });
    let mut client = Session::with(&world, 1, 1, |mut args| {
        args.flags = CREATE_SESSION4_FLAG_PERSIST;
        args
    });
    client.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let ops = [at(&[]), vec![ArgOp::Open(open_create(b"f", b"o", OPEN4_SHARE_ACCESS_READ))]].concat();
    let other = ledger.journal().note(b"another", holdfast_journal::Keep::Latest, b"").unwrap();
    assert_eq!(client.run(&ops).status, NfsStat4::Delay);
    assert_eq!(client.run(&at(&[b"f"])).status, NfsStat4::NoEnt);
    ledger.journal().forget(other);
    assert_eq!(client.run(&ops).status, NfsStat4::Ok);
    assert_eq!(ledger.journal().usage().entries, 1, "the change is recorded");
}
