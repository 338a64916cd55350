//! What many operations share: one force of the disk, one word that they are on it, grants that come with the making and
//! go with the removing; and how much of a client's past is remembered.

use holdfast_base::limits::CAPS_TICKETS_PER_CLIENT_MAX;
use holdfast_state::Engine;
use holdfast_vfs::Pledge;
use holdfast_wire::caps::*;

use crate::world::*;

fn wanting<'a>(dir: Ref<'a>, name: &'a str, want: CapSet) -> BatchOp<'a> {
    let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
    BatchOp::Create { dir, name: name.as_bytes(), if_taken: IfTaken::Fail, set, want, data: b"ten bytes!" }
}

#[test]
fn batches_that_are_waited_for_together_are_forced_once() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let names: Vec<_> = (0..500).map(|n| format!("f{n:03}")).collect();
    for (txn, names) in (1..).zip(names.chunks(250)) {
        client
            .batch(txn, names.iter().map(|name| wanting(at(&root), name, CapSet::ALL_S)).collect())
            .unwrap();
    }
    assert_eq!(server.running.committer.groups(), 0, "a batch waits for no disk");
    assert_eq!(client.stable(&server, 2).unwrap().stable_through, TxnId(2));
    assert_eq!(server.running.committer.groups(), 1);
    assert_eq!(client.hints, [], "who asked has his answer");
}

#[test]
fn what_was_forced_without_being_asked_for_is_told() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    client.batch(1, vec![create(at(&root), "a", b"")]).unwrap();
    client.batch(2, vec![create(at(&root), "b", b"")]).unwrap();
    server.running.caps.tick();
    server.running.committer.pump();
    client.look();
    assert_eq!(client.hints, [TxnId(2)]);
    server.running.caps.tick();
    server.running.committer.pump();
    client.look();
    assert_eq!(client.hints, [TxnId(2)], "once");
    client.batch(3, vec![create(at(&root), "c", b"")]).unwrap();
    server.running.caps.tick();
    server.running.committer.pump();
    client.look();
    assert_eq!(client.hints, [TxnId(2), TxnId(3)]);
}

#[test]
fn what_a_batch_makes_is_granted_with_it_and_ends_with_its_last_name() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    assert!(client.acquire(&root, CapSet::ALL_X).unwrap().grant.held.contains(CapSet::FILE_X));
    let ops = vec![wanting(at(&root), "s", CapSet::ALL_S), wanting(at(&root), "x", CapSet::ALL_X)];
    let ok = client.batch(1, ops).unwrap();
    let [shared, exclusive] = [0, 1].map(|op| made(&ok.results[op]));
    assert_eq!((shared.grant.held, exclusive.grant.held), (CapSet::ALL_S, CapSet::ALL_X));
    let pledged = |made: &Made<'_>| server.pledges_held(&object(&server, made.handle.0));
    assert_eq!(
        (&*pledged(&shared), &*pledged(&exclusive)),
        (&[Pledge::ReadFile][..], &[Pledge::WriteFile][..])
    );
    // Its writer is done with it: what is left is guarded before the guard goes.
    let kept = client.release(exclusive.handle.0, CapSet::ALL_S, exclusive.grant.seq).unwrap();
    assert_eq!((kept.held, &*pledged(&exclusive)), (CapSet::ALL_S, &[Pledge::ReadFile][..]));
    let link = BatchOp::Link { object: at(shared.handle.0), dir: at(&root), name: b"other" };
    client.batch(2, vec![link]).unwrap();
    let victim = |made: &Made<'static>| Some(at(made.handle.0));
    let gone = vec![unlink(at(&root), "s", victim(&shared)), unlink(at(&root), "x", victim(&exclusive))];
    client.batch(3, gone).unwrap();
    let held = server.running.manager.look(Engine::caps_held);
    let held: Vec<_> = held.iter().map(|(_, file, _)| *file).collect();
    let mut left = [object(&server, shared.handle.0).key(), server.root().key()];
    left.sort_unstable();
    assert_eq!(held, left, "of what has another name it is not over");
    assert_eq!(client.release(exclusive.handle.0, CapSet::NONE, u64::MAX).unwrap().held, CapSet::NONE);
}

#[test]
fn of_a_link_all_is_given_but_that_it_may_be_changed_unseen() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let (set, want, if_taken) = (SetAttrs::default(), CapSet::ALL_X, IfTaken::Fail);
    let ops = vec![
        BatchOp::Symlink { dir: at(&root), name: b"link", if_taken, set, want, target: b"some/where" },
        BatchOp::Mknod {
            dir: at(&root),
            name: b"pipe",
            if_taken,
            set,
            want,
            kind: NodeKind::Fifo,
            rdev_major: 0,
            rdev_minor: 0,
        },
    ];
    let ok = client.batch(1, ops).unwrap();
    for result in &ok.results {
        let made = made(result);
        assert_eq!(made.grant.held, CapSet(CapSet::ALL_X.0 & !128));
        assert_eq!(client.acquire(made.handle.0, CapSet::ALL_X).unwrap().grant.held, made.grant.held);
        assert_eq!(server.pledges_held(&object(&server, made.handle.0)), [Pledge::ReadFile]);
    }
    // Whoever renames it takes what stands for its name.
    let mut other = Client::new(&server, "b");
    let name = &b"link"[..];
    let (from, to) = (at(&root), at(&root));
    let rename = BatchOp::Rename {
        from,
        from_name: name,
        to,
        to_name: b"moved",
        how: RenameHow::NoReplace,
        victim: None,
        over: None,
    };
    assert_eq!(other.batch(1, vec![rename.clone()]), Err(CapsStat::Delay));
    client.give_back();
    assert!(refused(&other.batch(1, vec![rename]).unwrap().results[0]).is_none());
    assert!(
        !client
            .acquire(made(&ok.results[0]).handle.0, CapSet::NONE)
            .unwrap()
            .grant
            .held
            .contains(CapSet::LINK_S)
    );
}

#[test]
fn a_client_is_remembered_by_no_more_incarnations_than_it_may_have_mounts() {
    let server = Server::new();
    let root = server.root_handle();
    let mut first = Client::new(&server, "a");
    let (session, most) = (first.session, CAPS_TICKETS_PER_CLIENT_MAX as u8);
    first.batch(1, vec![create(at(&root), "first", b"")]).unwrap();
    let hello = |n: u8| {
        server.pass(1);
        let mut mount = Client::stranger_like(&server, "a", session, [n; 16]);
        (mount.hello(TxnId(0)), mount)
    };
    for n in 1..most {
        hello(n).0.unwrap();
    }
    assert_eq!(hello(most).0, Err(CapsStat::Delay), "so many mounts at once");
    // It loses all, and its mounts come again with others: tickets of the past count no more, transactions are kept for
    // as many incarnations.
    first.acquire(&root, CapSet::ALL_X).unwrap();
    let client = server.running.manager.look(Engine::caps_held)[0].0;
    server.running.manager.step(|engine, now| engine.caps_revoke(client, now)).unwrap();
    assert!(hello(1).0.unwrap().is_known, "one that was there before makes no room");
    assert!(!hello(most).0.unwrap().is_known);
    // The one that had not said HELLO for the longest is gone, with what it had made.
    let mut again = Client::stranger_like(&server, "a", session, first.incarnation);
    assert!(!again.hello(TxnId(0)).unwrap().is_known);
    let result = again.batch(1, vec![create(at(&root), "first", b"")]).unwrap().results[0];
    assert_eq!(refused(&result), Some(CapsStat::Exist), "it is not known any more as its own");
    assert!(hello(3).0.unwrap().is_known);
}
