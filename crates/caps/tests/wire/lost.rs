//! What was executed and could not be made durable: no reply says that it is on the disk before STABLE has told.

use holdfast_base::limits::CAPS_FAILED_MAX;
use holdfast_vfs::FsError;
use holdfast_wire::caps::*;

use crate::world::*;

/// The tick commits what nobody asked for.
fn tick(server: &Server) {
    server.running.caps.tick();
    server.running.committer.pump();
}

fn batch(client: &mut Client, (txn, done): (u64, u64), ops: Vec<BatchOp<'_>>) -> BatchOk<'static> {
    let (txn, done_through) = (TxnId(txn), TxnId(done));
    let args = BatchArgs { ticket: client.ticket, txn, how: BatchHow::FIRST, done_through, ops };
    client.call(CapsProc::Batch, &args).unwrap()
}

fn stable(client: &mut Client, server: &Server, (through, done): (u64, u64)) -> StableOk {
    let (through, done_through) = (TxnId(through), TxnId(done));
    let args = StableArgs { ticket: client.ticket, through, done_through };
    let xid = client.post(CapsProc::Stable, &args);
    client.look();
    server.running.committer.pump();
    let reply: &'static [u8] = client.reply(xid).expect("an answer").leak();
    holdfast_xdr::from_bytes::<Res<StableOk>>(reply).unwrap().into_result().unwrap()
}

fn failed(txn: u64, op: u32) -> FailedOp {
    FailedOp { txn: TxnId(txn), op, status: CapsStat::Io.as_u32() }
}

#[test]
fn nothing_but_stable_passes_what_was_lost_until_its_client_is_done_with_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    batch(&mut client, (1, 0), vec![create(at(&root), "a", b"")]);
    tick(&server);
    batch(&mut client, (2, 0), vec![create(at(&root), "b", b"")]);
    server.fail_next_commit(FsError::Io);
    tick(&server);
    client.look();
    assert_eq!(client.hints, [TxnId(1)]);
    let ok = batch(&mut client, (3, 0), vec![create(at(&root), "c", b"")]);
    assert_eq!((ok.executed_through, ok.stable_through), (TxnId(3), TxnId(1)), "nobody has told of it");
    let ok = client.hello(TxnId(0)).unwrap();
    assert_eq!((ok.executed_through, ok.stable_through), (TxnId(3), TxnId(1)));
    // Whoever did not hear the answer asks again.
    for _ in 0..2 {
        let told = stable(&mut client, &server, (3, 0));
        assert_eq!(told, StableOk { stable_through: TxnId(3), failed: vec![failed(2, 0)] });
        assert_eq!(client.hello(TxnId(0)).unwrap().stable_through, TxnId(1), "it may not have heard");
    }
    let ok = batch(&mut client, (4, 2), vec![create(at(&root), "d", b"")]);
    assert_eq!(ok.stable_through, TxnId(3), "it is done with it, so it has heard");
    assert_eq!(stable(&mut client, &server, (4, 2)), StableOk { stable_through: TxnId(4), failed: vec![] });
    client.look();
    assert_eq!(client.hints, [TxnId(1)], "it has asked for the rest");
}

/// Of three batches the last does not fit.
const EACH: usize = CAPS_FAILED_MAX * 2 / 5;

#[test]
fn more_than_one_answer_has_room_for_is_told_by_whole_transactions() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let names: Vec<_> = (0..3 * EACH).map(|n| format!("f{n}")).collect();
    for (txn, names) in (1..).zip(names.chunks(EACH)) {
        batch(&mut client, (txn, 0), names.iter().map(|name| create(at(&root), name, b"")).collect());
    }
    server.fail_next_commit(FsError::Io);
    tick(&server);
    let told = stable(&mut client, &server, (3, 0));
    assert_eq!(told.stable_through, TxnId(3));
    assert!(told.failed.len() <= CAPS_FAILED_MAX);
    for op in 0..EACH as u32 {
        for txn in [1, 2, 3] {
            let is_told = |of: &FailedOp| of.txn == TxnId(txn) && (of.op == op || of.op == FailedOp::ALL);
            assert!(told.failed.iter().any(is_told), "{txn} {op}");
        }
    }
    // What there is room for is told one by one.
    batch(&mut client, (4, 3), vec![create(at(&root), "x", b""), create(at(&root), "y", b"")]);
    server.fail_next_commit(FsError::Io);
    tick(&server);
    assert_eq!(stable(&mut client, &server, (4, 3)).failed, [failed(4, 0), failed(4, 1)]);
}

#[test]
fn what_could_not_be_written_back_is_not_believed_after_the_machine_has_died() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ops = || vec![create(at(&root), "a", b"data"), mkdir(at(&root), "d")];
    batch(&mut client, (1, 0), ops());
    server.fail_next_commit(FsError::Io);
    tick(&server);
    let mount = client.unplug();
    let server = server.restart_after_power_loss(holdfast_state::Grace::Over);
    server.write("a", b"");
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    batch(&mut client, (1, 0), ops());
    assert_eq!(server.read("a"), b"data");
    assert_eq!(stable(&mut client, &server, (1, 0)), StableOk { stable_through: TxnId(1), failed: vec![] });
    assert_eq!(server.uncommitted(), []);
}

#[test]
fn what_left_nothing_to_force_does_not_vouch_for_what_came_before_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let created = batch(&mut client, (1, 0), vec![create(at(&root), "a", b"")]);
    let a = made(&created.results[0]).handle.0.to_vec();
    stable(&mut client, &server, (1, 0));
    let data = || vec![BatchOp::Data { object: at(&a), offset: 0, data: b"data" }];
    batch(&mut client, (2, 1), data());
    // A refusal is on record, and touches nothing; another's change has the record forced.
    let said = batch(&mut client, (3, 1), vec![mkdir(at(&root), "a")]);
    assert!(refused(&said.results[0]).is_some());
    let mut other = Client::new(&server, "b");
    batch(&mut other, (1, 0), vec![create(at(&root), "b", b"")]);
    stable(&mut other, &server, (1, 0));
    drop(other.unplug());
    let mount = client.unplug();
    let server = server.restart_after_power_loss(holdfast_state::Grace::Over);
    server.write("a", b"");
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(1)).unwrap();
    batch(&mut client, (2, 1), data());
    assert_eq!(server.read("a"), b"data");
}
