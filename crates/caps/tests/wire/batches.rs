//! Batches: order, results, references, guards, trees.

use holdfast_base::ChangeId;
use holdfast_export::{ExportOptions, Squash};
use holdfast_vfs::{Name, RemoveKind};
use holdfast_wire::caps::{CapSet, *};
use holdfast_xdr::from_bytes;

use crate::world::*;

#[test]
fn a_hundred_files_with_their_data_in_one_call() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let names: Vec<_> = (0..100).map(|n| format!("f{n:02}")).collect();
    let ops = names.iter().map(|name| create(at(&root), name, b"ten bytes!")).collect();
    let ok = client.batch(1, ops).unwrap();
    assert_eq!(server.names(), names);
    for (result, name) in ok.results.iter().zip(&names) {
        let made = made(result);
        let attrs = made.attrs.unwrap();
        assert_eq!((attrs.size, attrs.mode, attrs.kind), (10, 0o644, NodeKind::Regular));
        assert_eq!(
            client.lookup(&root, name).unwrap().found,
            Looked::Present(NodeAt {
                handle: made.handle,
                attrs,
                grant: client.acquire(made.handle.0, CapSet::NONE).unwrap().grant,
            })
        );
    }
    assert_eq!(server.read("f42"), b"ten bytes!");
    assert_eq!((ok.executed_through, ok.stable_through), (TxnId(1), TxnId(0)));
    assert_eq!(ok.dirs.len(), 1);
    assert_eq!(ok.dirs[0].dir.0, root);
    assert_eq!(client.stable(&server, 1).unwrap().stable_through, TxnId(1));
}

#[test]
fn what_is_sent_again_is_answered_again_and_done_once() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ops = || vec![create(at(&root), "a", b"1"), create(at(&root), "a", b"2")];
    let first = client.batch(1, ops()).unwrap();
    assert_eq!(refused(&first.results[1]), Some(CapsStat::Exist));
    let again = client.batch(1, ops()).unwrap();
    assert_eq!(again.results, first.results);
    assert_eq!(server.read("a"), b"1");
    assert_eq!(client.batch(1, vec![create(at(&root), "b", b"")]), Err(CapsStat::Mixed));
    assert_eq!(client.batch(100, ops()), Err(CapsStat::Misordered));
}

#[test]
fn a_batch_waits_for_the_one_before_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let (ticket, done_through) = (client.ticket, TxnId(0));
    let args = |txn, ops| BatchArgs { ticket, txn: TxnId(txn), is_resent: false, done_through, ops };
    let made = Ref::Made { txn: TxnId(1), op: 0 };
    let second = client.post(CapsProc::Batch, &args(2, vec![create(made, "inside", b"x")]));
    assert!(client.reply(second).is_none());
    let first = client.post(CapsProc::Batch, &args(1, vec![mkdir(at(&root), "d")]));
    for xid in [first, second] {
        let reply = client.reply(xid).unwrap();
        let ok = from_bytes::<Res<BatchOk<'_>>>(&reply).unwrap().into_result().unwrap();
        assert!(ok.results.iter().all(|result| refused(result).is_none()), "{ok:?}");
    }
}

#[test]
fn a_failure_stops_nothing_but_what_depends_on_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let failed = Ref::Made { txn: TxnId(1), op: 1 };
    let never = Ref::Made { txn: TxnId(1), op: 9 };
    let ops = vec![
        create(at(&root), "a", b""),
        create(at(&root), "a", b""),
        create(failed, "below", b""),
        create(never, "below", b""),
        create(at(b"no handle"), "x", b""),
        create(at(&root), "b/c", b""),
        unlink(at(&root), "a", Some(Ref::Made { txn: TxnId(1), op: 0 })),
        create(at(&root), "a", b"second"),
    ];
    let ok = client.batch(1, ops).unwrap();
    let refusals: Vec<_> = ok.results.iter().map(refused).collect();
    use CapsStat::{BadHandle, BadName, BadRef, Depends, Exist};
    let expected =
        [None, Some(Exist), Some(Depends), Some(BadRef), Some(BadHandle), Some(BadName), None, None];
    assert_eq!(refusals, expected);
    assert_eq!(made(&ok.results[0]).attrs, None, "gone by the end of the batch");
    assert_eq!(server.read("a"), b"second");
}

#[test]
fn every_kind_of_operation_does_what_it_says() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let own = |op| Ref::Made { txn: TxnId(1), op };
    let set = SetAttrs { mode: Some(0o600), ..SetAttrs::default() };
    let time = Time { seconds: 1_000_000, nanos: 5 };
    let timed = SetAttrs { mtime: Some(SetTime::At(time)), mode: Some(0o644), ..SetAttrs::default() };
    let nothing = SetAttrs::default();
    let (fail, want) = (IfTaken::Fail, CapSet::NONE);
    let ops = vec![
        mkdir(at(&root), "d"),
        BatchOp::Create { dir: own(0), name: b"f", if_taken: fail, set: timed, want, data: b"hello" },
        BatchOp::Symlink { dir: at(&root), name: b"s", if_taken: fail, set: nothing, want, target: b"d/f" },
        BatchOp::Mknod {
            dir: at(&root),
            name: b"p",
            if_taken: fail,
            set,
            want,
            kind: NodeKind::Fifo,
            rdev_major: 0,
            rdev_minor: 0,
        },
        BatchOp::Link { object: own(1), dir: at(&root), name: b"hard" },
        BatchOp::Data { object: own(1), offset: 5, guard: None, data: b" world" },
        BatchOp::SetAttr { object: own(1), set, guard: None },
        BatchOp::SetXattr { object: own(1), how: SetXattrHow::Create, name: b"user.k", value: b"v" },
        BatchOp::RemoveXattr { object: own(1), name: b"user.k" },
        BatchOp::Rename {
            from: own(0),
            from_name: b"f",
            to: at(&root),
            to_name: b"moved",
            how: RenameHow::Replace,
            victim: Some(own(1)),
        },
        BatchOp::Rmdir { dir: at(&root), name: b"d", victim: Some(own(0)) },
    ];
    let ok = client.batch(1, ops).unwrap();
    assert!(ok.results.iter().all(|result| refused(result).is_none()), "{:?}", ok.results);
    assert_eq!(server.names(), ["hard", "moved", "p", "s"]);
    assert_eq!(server.read("moved"), b"hello world");
    let attrs = made(&ok.results[1]).attrs.unwrap();
    assert_eq!((attrs.mode, attrs.nlink), (0o600, 2));
    let timed_only =
        BatchOp::Create { dir: at(&root), name: b"t", if_taken: fail, set: timed, want, data: b"x" };
    let ok = client.batch(2, vec![timed_only]).unwrap();
    assert_eq!(made(&ok.results[0]).attrs.unwrap().mtime, time, "writing the data has not moved it");
}

#[test]
fn a_name_that_somebody_else_took_is_left_to_him_and_ours_kept_beside_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    client.batch(1, vec![create(at(&root), "taken", b"theirs"), mkdir(at(&root), "dir")]).unwrap();
    let (set, want) = (SetAttrs::default(), CapSet::NONE);
    let keep = IfTaken::KeepBoth;
    let ok = client
        .batch(
            2,
            vec![
                BatchOp::Create { dir: at(&root), name: b"taken", if_taken: keep, set, want, data: b"ours" },
                BatchOp::Mkdir { dir: at(&root), name: b"dir", if_taken: IfTaken::Share, set, want },
                BatchOp::Mkdir { dir: at(&root), name: b"taken", if_taken: IfTaken::Share, set, want },
            ],
        )
        .unwrap();
    let other = String::from_utf8(made(&ok.results[0]).other_name.to_vec()).unwrap();
    assert!(other.starts_with("taken-") && other.ends_with('Z'), "{other}");
    assert_eq!((server.read("taken"), server.read(&other)), (b"theirs".to_vec(), b"ours".to_vec()));
    assert!(made(&ok.results[1]).other_name.is_empty());
    assert_eq!(refused(&ok.results[2]), Some(CapsStat::Exist));
}

#[test]
fn what_is_not_as_it_was_seen_is_not_touched() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ok = client.batch(1, vec![create(at(&root), "a", b""), create(at(&root), "b", b"")]).unwrap();
    let (a, b) = (made(&ok.results[0]), made(&ok.results[1]));
    let change = a.attrs.unwrap().change;
    let wrong = Some(ChangeId(change.0 ^ 1));
    let set = SetAttrs { mode: Some(0), ..SetAttrs::default() };
    let ops = vec![
        unlink(at(&root), "a", Some(at(b.handle.0))),
        BatchOp::SetAttr { object: at(a.handle.0), set, guard: wrong },
        BatchOp::Data { object: at(a.handle.0), offset: 0, guard: wrong, data: b"x" },
        BatchOp::Data { object: at(a.handle.0), offset: 0, guard: Some(change), data: b"x" },
    ];
    let ok = client.batch(2, ops).unwrap();
    let changed = Some(CapsStat::Changed);
    assert_eq!(ok.results.iter().map(refused).collect::<Vec<_>>(), [changed, changed, changed, None]);
    assert_eq!(server.read("a"), b"x");
}

#[test]
fn a_tree_goes_in_one_operation_where_its_remover_has_seen_all_of_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let own = |op| Ref::Made { txn: TxnId(1), op };
    let ops =
        vec![mkdir(at(&root), "t"), mkdir(own(0), "u"), create(own(0), "x", b""), create(own(1), "y", b"")];
    let ok = client.batch(1, ops).unwrap();
    let dirs = [made(&ok.results[0]).handle, made(&ok.results[1]).handle];
    let seen = |client: &mut Client, want| {
        let dirs = dirs.map(|dir| (dir, client.acquire(dir.0, want).unwrap()));
        dirs.map(|(dir, acquired)| DirSeen { dir, change: acquired.attrs.change }).to_vec()
    };
    let remove = |dirs| BatchOp::RemoveTree { dir: at(&root), name: b"t", dirs };
    let nothing_held = seen(&mut client, CapSet::NONE);
    let ok = client.batch(2, vec![remove(nothing_held)]).unwrap();
    assert_eq!(refused(&ok.results[0]), Some(CapsStat::NotHeld));
    let mut held = seen(&mut client, CapSet::FILE_X);
    held[1].change = ChangeId(held[1].change.0 ^ 1);
    let ok = client.batch(3, vec![remove(held.clone())]).unwrap();
    assert_eq!(refused(&ok.results[0]), Some(CapsStat::Changed));
    assert_eq!(server.names(), ["t"], "nothing was removed");
    let held = seen(&mut client, CapSet::FILE_X);
    let ok = client.batch(4, vec![remove(held.clone())]).unwrap();
    assert_eq!(ok.results[0], Res::Ok(OpResult::Tree(TreeRemoved { removed: 4, left: 0 })));
    assert!(server.names().is_empty());
    assert_eq!(client.batch(4, vec![remove(held)]).unwrap().results, ok.results, "and again");
}

#[test]
fn the_exports_rules_hold() {
    let server = Server::with(&ExportOptions { squash: Squash::Root, ..ExportOptions::default() });
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ok = client.batch(1, vec![create(at(&root), "a", b"")]).unwrap();
    assert_eq!(made(&ok.results[0]).attrs.unwrap().uid, 65534);
    let who = |client: &mut Client| -> WhoAmIOk {
        let args = WhoAmIArgs { ticket: client.ticket, handle: Handle(&root) };
        client.call(CapsProc::WhoAmI, &args).unwrap()
    };
    let root_is = who(&mut client);
    assert!(root_is.is_mapped && root_is.uid == 65534);
    client.auth = user(1000);
    let named = who(&mut client);
    assert!(!named.is_mapped && named.uid == 1000 && !named.is_read_only);
    let ok = client.batch(2, vec![unlink(at(&root), "a", None), create(at(&root), "b", b"")]).unwrap();
    assert_eq!(made(&ok.results[1]).attrs.unwrap().uid, 1000);

    let server = Server::with(&ExportOptions { is_read_only: true, ..ExportOptions::default() });
    let mut client = Client::new(&server, "a");
    let ok = client.batch(1, vec![create(at(&server.root_handle()), "a", b"")]).unwrap();
    assert_eq!(refused(&ok.results[0]), Some(CapsStat::Rofs));
    let held = client.acquire(&server.root_handle(), CapSet::ALL_X).unwrap().grant.held;
    assert_eq!(held, CapSet::ALL_S, "nothing exclusive where nothing can be changed");
}

#[test]
fn what_was_forgotten_is_not_asked_for_again() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    client.batch(1, vec![create(at(&root), "a", b"")]).unwrap();
    client.stable(&server, 1).unwrap();
    let ops = vec![create(Ref::Made { txn: TxnId(1), op: 0 }, "x", b"")];
    let args =
        BatchArgs { ticket: client.ticket, txn: TxnId(2), is_resent: false, done_through: TxnId(1), ops };
    let ok: BatchOk<'_> = client.call(CapsProc::Batch, &args).unwrap();
    assert_eq!(refused(&ok.results[0]), Some(CapsStat::BadRef));
    assert_eq!(client.batch(1, vec![create(at(&root), "a", b"")]), Err(CapsStat::Forgotten));
}

#[test]
fn a_batch_that_meets_anothers_promise_stops_there_and_goes_on_when_it_comes_again() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let ok = a.batch(1, vec![mkdir(at(&root), "d")]).unwrap();
    let dir = made(&ok.results[0]).handle;
    assert!(b.acquire(dir.0, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    let ops = || vec![create(at(&root), "first", b""), create(at(dir.0), "second", b"")];
    assert_eq!(a.batch(2, ops()), Err(CapsStat::Delay));
    assert_eq!(server.names(), ["d", "first"]);
    b.give_back();
    let ok = a.batch(2, ops()).unwrap();
    assert!(
        ok.results.iter().all(|result| refused(result).is_none()),
        "the first was not done twice: {ok:?}"
    );
    server.as_nfs(|fs, cx| {
        fs.remove(cx, &object(&server, dir.0), Name::new(b"second").unwrap(), RemoveKind::Any).unwrap();
    });
}
