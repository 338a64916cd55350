//! Batches: order, results, references, guards, trees.

use holdfast_export::{ExportOptions, Squash};
use holdfast_vfs::{AttrMask, FsError, Name, NewNode, RemoveKind, SetAttrs as VfsSetAttrs};
use holdfast_wire::caps::*;
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
    let args = |txn, ops| BatchArgs { ticket, txn: TxnId(txn), how: BatchHow::FIRST, done_through, ops };
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
        BatchOp::Data { object: own(1), offset: 5, data: b" world" },
        BatchOp::SetAttr { object: own(1), set },
        BatchOp::SetXattr { object: own(1), how: SetXattrHow::Create, name: b"user.k", value: b"v" },
        BatchOp::RemoveXattr { object: own(1), name: b"user.k" },
        BatchOp::Rename {
            from: own(0),
            from_name: b"f",
            to: at(&root),
            to_name: b"moved",
            how: RenameHow::Replace,
            victim: Some(own(1)),
            over: None,
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
    // A directory takes the directory that is there; what is no directory keeps its name.
    assert!(made(&ok.results[2]).other_name.starts_with(b"taken-"));
}

#[test]
fn what_is_not_as_it_was_seen_is_not_touched() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ok = client.batch(1, vec![create(at(&root), "a", b""), create(at(&root), "b", b"")]).unwrap();
    let b = made(&ok.results[1]);
    let ops =
        vec![unlink(at(&root), "a", Some(at(b.handle.0))), unlink(at(&root), "b", Some(at(b.handle.0)))];
    let ok = client.batch(2, ops).unwrap();
    assert_eq!(ok.results.iter().map(refused).collect::<Vec<_>>(), [Some(CapsStat::Changed), None]);
    assert_eq!(server.names(), ["a"]);
}

#[test]
fn a_rename_replaces_what_its_caller_has_seen_or_nothing() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let all = ["new", "old", "seen", "taken"].map(|name| create(at(&root), name, name.as_bytes()));
    let ok = client.batch(1, all.to_vec()).unwrap();
    let [new, old, seen, _] = [0, 1, 2, 3].map(|i| made(&ok.results[i]).handle);
    let rename = |from: &'static str, to: &'static str, victim: Handle<'static>, over: Handle<'static>| {
        let (from_name, to_name) = (from.as_bytes(), to.as_bytes());
        let (victim, over) = (Some(at(victim.0)), Some(at(over.0)));
        BatchOp::Rename {
            from: at(&root),
            from_name,
            to: at(&root),
            to_name,
            how: RenameHow::Replace,
            victim,
            over,
        }
    };
    let ops = vec![
        rename("new", "taken", new, seen),
        rename("new", "seen", new, seen),
        // What was seen is gone, and another has the name; and nobody has it.
        rename("old", "taken", old, seen),
        rename("old", "free", old, seen),
    ];
    let ok = client.batch(2, ops).unwrap();
    let exist = Some(CapsStat::Exist);
    assert_eq!(ok.results.iter().map(refused).collect::<Vec<_>>(), [exist, None, exist, None]);
    assert_eq!(server.names(), ["free", "seen", "taken"]);
    let read = |name| String::from_utf8(server.read(name)).unwrap();
    assert_eq!(["free", "seen", "taken"].map(read), ["old", "new", "taken"]);
}

/// What `rm -r` of a tree sends: names of one directory after the other, then the directory.
#[test]
fn of_a_tree_nothing_goes_that_its_remover_has_not_seen() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let own = |op| Ref::Made { txn: TxnId(1), op };
    let ops = vec![
        mkdir(at(&root), "t"),
        mkdir(own(0), "u"),
        create(own(0), "x", b"x"),
        create(own(1), "y", b"y"),
        create(own(1), "z", b"z"),
    ];
    let ok = client.batch(1, ops).unwrap();
    let below = object(&server, made(&ok.results[1]).handle.0);
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    // Somebody else puts another file in the place of one, and one more beside it.
    server.as_nfs(|fs, cx| {
        fs.remove(cx, &below, name("y"), RemoveKind::Any).unwrap();
        for new in ["y", "more"] {
            fs.make(cx, &below, name(new), NewNode::Fifo, &VfsSetAttrs::default()).unwrap();
        }
    });
    let removal = || {
        let rmdir = |dir, name, victim| BatchOp::Rmdir { dir, name, victim: Some(victim) };
        vec![
            unlink(own(1), "y", Some(own(3))),
            unlink(own(1), "z", Some(own(4))),
            unlink(own(1), "gone", Some(own(4))),
            unlink(own(0), "x", Some(own(2))),
            rmdir(own(0), b"u", own(1)),
            rmdir(at(&root), b"t", own(0)),
        ]
    };
    let ok = client.batch(2, removal()).unwrap();
    use CapsStat::{Changed, NoEnt, NotEmpty};
    let refusals: Vec<_> = ok.results.iter().map(refused).collect();
    assert_eq!(refusals, [Some(Changed), None, Some(NoEnt), None, Some(NotEmpty), Some(NotEmpty)]);
    server.as_nfs(|fs, cx| {
        for left in ["y", "more"] {
            fs.remove(cx, &below, name(left), RemoveKind::Any).unwrap();
        }
        assert_eq!(fs.lookup(cx, &below, name("z"), AttrMask::NONE).map(drop), Err(FsError::NotFound));
    });
    assert_eq!(client.batch(2, removal()).unwrap().results, ok.results, "done once, whatever is there now");
    assert_eq!(server.names(), ["t"]);
    let rest = vec![
        BatchOp::Rmdir { dir: own(0), name: b"u", victim: Some(own(1)) },
        BatchOp::Rmdir { dir: at(&root), name: b"t", victim: Some(own(0)) },
    ];
    let ok = client.batch(3, rest).unwrap();
    assert!(ok.results.iter().all(|result| refused(result).is_none()), "{ok:?}");
    assert!(server.names().is_empty());
}

#[test]
fn removals_that_stand_together_share_a_record_of_the_journal() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let names: Vec<_> = (0..100).map(|n| format!("f{n:02}")).collect();
    client.batch(1, names.iter().map(|name| create(at(&root), name, b"")).collect()).unwrap();
    let before = server.journal_entries();
    let victim = |op| Some(Ref::Made { txn: TxnId(1), op });
    let ops = (0..).zip(&names).map(|(op, name)| unlink(at(&root), name, victim(op)));
    let ok = client.batch(2, ops.collect()).unwrap();
    assert!(ok.results.iter().all(|result| refused(result).is_none()));
    assert!(server.names().is_empty());
    assert_eq!(server.journal_entries(), before + 1);
    client.stable(&server, 2).unwrap();
    let args = BatchArgs {
        ticket: client.ticket,
        txn: TxnId(3),
        how: BatchHow::FIRST,
        done_through: TxnId(2),
        ops: Vec::new(),
    };
    let ok: BatchOk<'_> = client.call(CapsProc::Batch, &args).unwrap();
    assert_eq!((ok.executed_through, server.journal_entries()), (TxnId(3), 0), "and it goes with its batch");
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
        BatchArgs { ticket: client.ticket, txn: TxnId(2), how: BatchHow::FIRST, done_through: TxnId(1), ops };
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

fn exchange<'a>(root: &'a [u8], one: &'a str, other: &'a str) -> BatchOp<'a> {
    let (from_name, to_name, how) = (one.as_bytes(), other.as_bytes(), RenameHow::Exchange);
    BatchOp::Rename { from: at(root), from_name, to: at(root), to_name, how, victim: None, over: None }
}

#[test]
fn an_exchange_takes_what_others_hold_of_both_and_is_done_once() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let ok = a.batch(1, vec![create(at(&root), "one", b"1"), mkdir(at(&root), "two")]).unwrap();
    let both = [0, 1].map(|place| made(&ok.results[place]).handle);
    for handle in both {
        let held = b.acquire(handle.0, CapSet::ALL_S | CapSet::LINK_X).unwrap().grant.held;
        assert!(held.contains(CapSet::LINK_X), "{held:?}");
    }
    let mut tries = 0;
    let ok = loop {
        match a.batch(2, vec![exchange(&root, "one", "two")]) {
            Ok(ok) => break ok,
            Err(stat) => assert_eq!(stat, CapsStat::Delay),
        }
        tries += 1;
        assert!(tries < 4);
        b.give_back();
    };
    assert_eq!(refused(&ok.results[0]), None);
    assert!(tries > 0, "what b held was recalled first");
    for handle in both {
        let held = b.acquire(handle.0, CapSet::NONE).unwrap().grant.held;
        assert!(!held.contains(CapSet::LINK_S), "{held:?}");
    }
    assert_eq!(server.read("two"), b"1");
    let again = a.batch(2, vec![exchange(&root, "one", "two")]).unwrap();
    assert_eq!((again.results, server.read("two")), (ok.results, b"1".to_vec()), "and not back again");
    // One name is free: nothing is exchanged, and nothing replaced.
    let none = a.batch(3, vec![exchange(&root, "two", "three")]).unwrap();
    assert_eq!((refused(&none.results[0]), server.names().len()), (Some(CapsStat::NoEnt), 2));
}

/// Who gave up waiting for another's promise must not find it done an hour later.
#[test]
fn what_was_given_up_before_anything_of_it_was_done_can_be_replaced_and_comes_too_late_then() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    a.batch(1, vec![create(at(&root), "one", b"1"), create(at(&root), "two", b"2")]).unwrap();
    assert!(b.acquire(&root, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    let given_up = || vec![exchange(&root, "one", "two")];
    assert_eq!(a.batch(2, given_up()), Err(CapsStat::Delay));
    let nothing = a.batch(2, Vec::new()).unwrap();
    assert_eq!((nothing.results.len(), nothing.executed_through), (0, TxnId(2)));
    b.give_back();
    assert_eq!(a.batch(2, given_up()), Err(CapsStat::Mixed), "it was on its way all the time");
    assert_eq!(server.read("one"), b"1");
    // What was done is not replaced.
    let done = a.batch(3, given_up()).unwrap();
    assert_eq!((refused(&done.results[0]), server.read("one")), (None, b"2".to_vec()));
    assert_eq!(a.batch(3, Vec::new()), Err(CapsStat::Mixed));
}

#[test]
fn what_was_begun_is_done_to_its_end_though_the_export_moves_meanwhile() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let first = vec![create(at(&root), "one", b"1"), create(at(&root), "two", b"2"), mkdir(at(&root), "d")];
    let dir = made(&a.batch(1, first).unwrap().results[2]).handle.0.to_vec();
    assert!(b.acquire(&root, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    let ops = || vec![mkdir(at(&dir), "first"), exchange(&root, "one", "two")];
    assert_eq!(a.batch(2, ops()).map(drop), Err(CapsStat::Delay));
    server.move_away();
    b.give_back();
    let done = a.batch(2, ops()).unwrap();
    assert!(done.results.iter().all(|result| refused(result).is_none()), "{:?}", done.results);
    assert_eq!((server.read("one"), done.executed_through), (b"2".to_vec(), TxnId(2)));
    assert_eq!(a.stable(&server, 2).unwrap().stable_through, TxnId(2));
    assert_eq!(a.batch(3, vec![exchange(&root, "one", "two")]).map(drop), Err(CapsStat::Moved));
    assert_eq!(server.read("one"), b"2");
}

#[test]
fn of_what_lies_on_another_server_the_whole_call_says_so_and_nothing_is_executed() {
    let moved_to = vec!["192.0.2.7".parse().unwrap()];
    let server = Server::with(&ExportOptions { squash: Squash::None, moved_to, ..ExportOptions::default() });
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    assert_eq!(client.acquire(&root, CapSet::ALL_S).map(drop), Err(CapsStat::Moved));
    assert_eq!(client.lookup(&root, "a").map(drop), Err(CapsStat::Moved));
    assert_eq!(client.list(&root).map(drop), Err(CapsStat::Moved));
    for _ in 0..2 {
        let ops = vec![create(at(&root), "a", b""), create(at(&root), "b", b"")];
        assert_eq!(client.batch(1, ops).map(drop), Err(CapsStat::Moved));
    }
    assert_eq!(server.names(), Vec::<String>::new());
    // What is settled with it can be settled, and given back.
    assert_eq!(client.release(&root, CapSet::NONE, 1).map(|grant| grant.held), Ok(CapSet::NONE));
    let hello = client.hello(TxnId(0)).unwrap();
    assert_eq!((hello.executed_through, hello.is_known), (TxnId(0), true));
}
