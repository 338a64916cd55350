//! Batches that are answered when they are durable.

use holdfast_base::limits::{CAPS_FORCED_BYTES_MAX, CAPS_STABLE_WAITERS_MAX};
use holdfast_caps::Stuck;
use holdfast_export::{ExportOptions, Squash};
use holdfast_vfs::FsError;
use holdfast_wire::caps::*;
use holdfast_xdr::from_bytes;

use crate::world::*;

fn pump(server: &Server) {
    server.running.committer.pump();
}

/// How far an answer says that all is executed, and durable; and what has failed.
fn told(ok: &ForcedOk<'_>) -> (u64, u64, Vec<(u64, u32)>) {
    let failed = ok.failed.iter().map(|of| (of.txn.0, of.op)).collect();
    (ok.batch.executed_through.0, ok.batch.stable_through.0, failed)
}

#[test]
fn the_answer_alone_waits_for_the_disk() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    a.batch(1, vec![create(at(&root), "before", b"")]).unwrap();
    let forced = a.force(2, BatchHow::FIRST, vec![create(at(&root), "a", b"data"), mkdir(at(&root), "a")]);
    assert!(a.reply(forced).is_none(), "nothing is on the disk");
    assert_eq!(server.read("a"), b"data");
    let ok = b.batch(1, vec![unlink(at(&root), "before", None)]).unwrap();
    assert_eq!(refused(&ok.results[0]), None, "others change what it changed");
    // What comes behind it goes on.
    let behind = a.batch(3, vec![create(at(&root), "behind", b"")]).unwrap();
    assert_eq!((behind.executed_through, behind.stable_through), (TxnId(3), TxnId(0)));
    pump(&server);
    let ok = a.forced(forced).expect("it is on the disk").unwrap();
    assert_eq!(told(&ok), (3, 2, vec![]));
    assert!(!made(&ok.batch.results[0]).handle.0.is_empty());
    assert_eq!(refused(&ok.batch.results[1]), Some(CapsStat::Exist));
    assert_eq!(ok.batch.dirs.len(), 1);
    // One force for all that wait.
    let both =
        [4, 5].map(|txn| a.force(txn, BatchHow::FIRST, vec![create(at(&root), &format!("f{txn}"), b"")]));
    let asked = StableArgs { ticket: a.ticket, through: TxnId(5), done_through: TxnId(2) };
    let asked = a.post(CapsProc::Stable, &asked);
    let before = server.running.committer.groups();
    while both.iter().any(|xid| !a.has_reply(*xid)) {
        pump(&server);
    }
    assert!(server.running.committer.groups() - before <= 2);
    assert!(a.reply(asked).is_some());
    assert_eq!(server.uncommitted(), []);
}

#[test]
fn what_could_not_be_made_durable_is_told_until_its_client_is_done_with_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ops = || vec![create(at(&root), "a", b""), create(at(&root), "b", b"")];
    server.fail_next_commit(FsError::Io);
    let first = client.force(1, BatchHow::FIRST, ops());
    pump(&server);
    let failed = (1, 1, vec![(1, 0), (1, 1)]);
    assert_eq!(told(&client.forced(first).unwrap().unwrap()), failed);
    // It may not have been heard.
    assert_eq!(client.batch_again(1, ops()).unwrap().stable_through, TxnId(0), "nobody tells it so");
    let again = client.force(1, BatchHow::AGAIN, ops());
    assert_eq!(told(&client.forced(again).unwrap().unwrap()), failed);
    // Nor is it swallowed by what comes behind it.
    let next = client.force(2, BatchHow::FIRST, vec![create(at(&root), "c", b"")]);
    pump(&server);
    assert_eq!(told(&client.forced(next).unwrap().unwrap()), (2, 2, failed.2));
    let args = StableArgs { ticket: client.ticket, through: TxnId(2), done_through: TxnId(2) };
    assert_eq!(client.call::<StableOk>(CapsProc::Stable, &args).unwrap().failed, []);
}

#[test]
fn one_that_is_sent_again_is_done_once_and_forced_if_it_is_not_yet_durable() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ops = || vec![BatchOp::Append { object: at(&root), data: b"x" }, create(at(&root), "a", b"")];
    let first = client.force(1, BatchHow::FIRST, ops());
    let again = client.force(1, BatchHow::AGAIN, ops());
    // Who needs to know what came of it does not wait for the disk.
    let unforced = client.batch_again(1, ops()).unwrap();
    assert_eq!(unforced.stable_through, TxnId(0));
    assert!(!client.has_reply(first) && !client.has_reply(again));
    pump(&server);
    let answers = [first, again].map(|xid| client.forced(xid).unwrap().unwrap());
    for ok in &answers {
        assert_eq!(told(ok), (1, 1, vec![]));
        assert_eq!(made(&ok.batch.results[1]).handle, made(&unforced.results[1]).handle);
    }
}

/// Its turn comes when the other is done, and what has failed meanwhile is found where it stands.
#[test]
fn one_that_is_told_again_while_another_is_executed_is_told_behind_that() {
    let server = Server::patient();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let ops = || vec![create(at(&root), "one", b"data"), mkdir(at(&root), "dir")];
    server.fail_next_commit(FsError::Io);
    let first = a.force(1, BatchHow::FIRST, ops());
    let dir = match b.lookup(&root, "dir").unwrap().found {
        Looked::Present(node) => node.handle.0.to_vec(),
        Looked::Absent => panic!("it was made"),
    };
    assert!(b.acquire(&dir, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    let mut again = Client::stranger_like(&server, "c", a.session, a.incarnation);
    again.hello(TxnId(0)).unwrap();
    let args = BatchArgs {
        ticket: again.ticket,
        txn: TxnId(1),
        how: BatchHow::AGAIN,
        done_through: TxnId(0),
        ops: ops(),
    };
    let told = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let ok = a.batch(2, vec![create(at(&dir), "two", b"")]).unwrap();
            assert_eq!(refused(&ok.results[0]), None);
        });
        while !b.is_called() {
            std::thread::yield_now();
        }
        let told = again.post(CapsProc::Batch, &args);
        assert!(!again.has_reply(told), "the other is at it");
        pump(&server);
        assert!(!again.has_reply(told));
        while !other.is_finished() {
            b.give_back();
            std::thread::yield_now();
        }
        other.join().unwrap();
        told
    });
    let told_again: Res<BatchOk<'_>> = from_bytes(again.reply(told).unwrap().leak()).unwrap();
    let told_again = told_again.into_result().unwrap();
    assert_eq!((told_again.executed_through, told_again.stable_through), (TxnId(2), TxnId(0)));
    let forced = a.forced(first).unwrap().unwrap();
    assert_eq!(forced.failed.iter().map(|of| (of.txn.0, of.op)).collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    for place in 0..2 {
        let handles = [&forced.batch, &told_again].map(|ok| made(&ok.results[place]).handle);
        assert_eq!(handles[0], handles[1]);
    }
    assert_eq!(server.read("one"), b"data");
}

#[test]
fn who_only_looks_does_not_wait_for_the_disk() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    a.acquire(&root, CapSet::FILE_X).unwrap();
    let forced = a.force(1, BatchHow::FIRST, vec![create(at(&root), "a", b"")]);
    assert!(!a.has_reply(forced));
    assert_eq!(b.list(&root), Err(CapsStat::Delay));
    // Its client may wait for this answer before it gives anything back.
    let ok = a.forced(forced).expect("a recall has it answered").unwrap();
    assert_eq!(told(&ok), (1, 0, vec![]), "but not as durable");
    // The same where the recall was there first.
    server.fail_next_commit(FsError::Io);
    let forced = a.force(2, BatchHow::FIRST, vec![create(at(&root), "b", b"")]);
    assert_eq!(told(&a.forced(forced).unwrap().unwrap()), (2, 0, vec![]));
    a.give_back();
    assert_eq!(b.list(&root).unwrap().entries.len(), 2);
    // A failure is not lost by that.
    pump(&server);
    pump(&server);
    let told = a.stable(&server, 2).unwrap();
    assert_eq!((told.stable_through, told.failed.is_empty()), (TxnId(2), false));
}

#[test]
fn a_server_that_holds_still_hands_none_on() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    server.fail_next_commit(FsError::Io);
    let forced = client.force(1, BatchHow::FIRST, vec![create(at(&root), "a", b"")]);
    server.hold();
    client.look();
    assert!(!client.has_reply(forced), "the force is waited for: the next process would not hear of its end");
    pump(&server);
    assert_eq!(told(&client.forced(forced).expect("it has ended").unwrap()), (1, 1, vec![(1, 0)]));
    let image = server.running.caps.freeze().unwrap();
    let text = format!("{image:?}");
    assert!(text.contains("failed: [(1, 0, 5)]"), "and what has failed is: {text}");
}

/// One that was begun by the tick, or whose answer went out early.
#[test]
fn a_force_that_nobody_waits_for_is_not_handed_on_either() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    client.batch(1, vec![create(at(&root), "a", b"")]).unwrap();
    server.fail_next_commit(FsError::Io);
    server.running.caps.tick();
    server.hold();
    assert_eq!(server.running.caps.freeze().err(), Some(Stuck::Forcing), "the disk is at it");
    pump(&server);
    let text = format!("{:?}", server.running.caps.freeze().unwrap());
    assert!(text.contains("failed: [(1, 0, 5)]"), "{text}");
}

#[test]
fn what_waits_is_bounded() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let (mut waiting, mut one) = (Vec::new(), 0);
    for txn in 1..=20 {
        let names: Vec<_> = (0..100).map(|n| format!("{txn}-{n}")).collect();
        let xid = client.force(
            txn,
            BatchHow::FIRST,
            names.iter().map(|name| create(at(&root), name, b"")).collect(),
        );
        match client.reply(xid) {
            None => waiting.push(xid),
            Some(early) => {
                let ok: Res<ForcedOk<'_>> = from_bytes(&early).unwrap();
                assert_eq!(told(&ok.into_result().unwrap()), (txn, 0, vec![]), "it is executed");
                one = early.len();
            }
        }
    }
    let mut bytes = 0;
    for xid in waiting {
        while !client.has_reply(xid) {
            pump(&server);
        }
        bytes += client.reply(xid).unwrap().len();
    }
    // Where an answer stands in its reply is of no account here.
    let room = CAPS_FORCED_BYTES_MAX - one..CAPS_FORCED_BYTES_MAX + one;
    assert!(one > 0 && room.contains(&bytes), "{bytes} bytes waited, in answers of {one}");
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let waits = (1..=CAPS_STABLE_WAITERS_MAX as u64 + 3).filter(|txn| {
        let xid = client.force(*txn, BatchHow::FIRST, vec![create(at(&root), &format!("f{txn}"), b"")]);
        client.reply(xid).is_none()
    });
    assert_eq!(waits.count(), CAPS_STABLE_WAITERS_MAX);
}

#[test]
fn who_has_gone_leaves_nothing_that_waits() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let forced = client.force(1, BatchHow::FIRST, vec![create(at(&root), "a", b"")]);
    client.call::<()>(CapsProc::Bye, &ByeArgs { ticket: client.ticket }).unwrap();
    assert_eq!(client.forced(forced), Some(Err(CapsStat::BadTicket)));
    // One whose connection is lost, and who comes over another.
    let mut client = Client::new(&server, "b");
    client.force(1, BatchHow::FIRST, vec![create(at(&root), "b", b"")]);
    let (session, incarnation) = (client.session, client.incarnation);
    client.close();
    let mut client = Client::stranger_like(&server, "c", session, incarnation);
    let ok = client.hello(TxnId(0)).unwrap();
    assert_eq!((ok.is_known, ok.executed_through, ok.stable_through), (true, TxnId(1), TxnId(0)));
    let again = client.force(1, BatchHow::AGAIN, vec![create(at(&root), "b", b"")]);
    pump(&server);
    assert_eq!(told(&client.forced(again).unwrap().unwrap()), (1, 1, vec![]));
}

#[test]
fn where_nothing_has_to_be_durable_it_is_answered_at_once() {
    let server =
        Server::with(&ExportOptions { is_sync: false, squash: Squash::None, ..ExportOptions::default() });
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let forced = client.force(1, BatchHow::FIRST, vec![create(at(&root), "a", b"")]);
    assert_eq!(told(&client.forced(forced).expect("nobody waits for a disk").unwrap()), (1, 1, vec![]));
}
