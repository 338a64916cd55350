//! Batches across the server's death: what was done is not done again.

use std::time::Duration;

use holdfast_state::Grace;
use holdfast_wire::caps::*;

use crate::world::*;

#[test]
fn a_batch_of_a_former_life_is_answered_as_it_was() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ops = || {
        vec![
            create(at(&root), "a", b"first"),
            create(at(&root), "a", b"refused"),
            unlink(at(&root), "a", Some(Ref::Made { txn: TxnId(1), op: 0 })),
            mkdir(at(&root), "d"),
            create(Ref::Made { txn: TxnId(1), op: 3 }, "inside", b"data"),
        ]
    };
    let before = client.batch(1, ops()).unwrap();
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let mut client = mount.again(&server, "a");
    let hello = client.hello(TxnId(0)).unwrap();
    assert!(hello.is_known);
    assert_eq!(hello.executed_through, TxnId(0), "all is to be sent again");
    let after = client.batch(1, ops()).unwrap();
    assert_eq!(after.results, before.results);
    assert_eq!(server.names(), ["d"]);
    // And the next goes on from there.
    let next = vec![create(Ref::Made { txn: TxnId(1), op: 3 }, "more", b"")];
    assert!(refused(&client.batch(2, next).unwrap().results[0]).is_none());
}

#[test]
fn removals_of_a_former_life_are_answered_as_they_were_and_not_done_again() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let made = |op| Ref::Made { txn: TxnId(1), op };
    let making =
        || vec![create(at(&root), "a", b""), create(at(&root), "b", b""), create(at(&root), "c", b"")];
    let removing = || {
        vec![
            unlink(at(&root), "a", Some(made(0))),
            unlink(at(&root), "b", Some(made(2))),
            unlink(at(&root), "none", Some(made(1))),
            unlink(at(&root), "b", Some(made(1))),
            create(at(&root), "a", b"new"),
            unlink(at(&root), "c", Some(made(2))),
        ]
    };
    client.batch(1, making()).unwrap();
    let before = client.batch(2, removing()).unwrap();
    let refusals: Vec<_> = before.results.iter().map(refused).collect();
    assert_eq!(refusals, [None, Some(CapsStat::Changed), Some(CapsStat::NoEnt), None, None, None]);
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    client.batch(1, making()).unwrap();
    let after = client.batch(2, removing()).unwrap();
    assert_eq!(after.results, before.results);
    assert_eq!(server.names(), ["a"]);
    assert_eq!(server.read("a"), b"new");
}

#[test]
fn data_is_written_again_in_its_order() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let own = Ref::Made { txn: TxnId(1), op: 0 };
    let first =
        || vec![create(at(&root), "a", b"aaaa"), BatchOp::Data { object: own, offset: 0, data: b"bb" }];
    let second = || vec![BatchOp::Data { object: own, offset: 1, data: b"c" }, unlink(at(&root), "b", None)];
    client.batch(1, first()).unwrap();
    client.batch(2, second()).unwrap();
    assert_eq!(server.read("a"), b"bcaa");
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    client.batch(1, first()).unwrap();
    client.batch(2, second()).unwrap();
    assert_eq!(server.read("a"), b"bcaa");
}

/// A file written once more and shorter, as by `O_TRUNC`: what cuts it is on record, what is written is not.
fn written_anew(client: &mut Client, root: &[u8]) {
    let own = Ref::Made { txn: TxnId(1), op: 0 };
    let time =
        |seconds| SetAttrs { mtime: Some(SetTime::At(Time { seconds, nanos: 0 })), ..SetAttrs::default() };
    let first = vec![
        create(at(root), "a", b""),
        BatchOp::Data { object: own, offset: 0, data: b"the longer one" },
        BatchOp::SetAttr { object: own, set: time(1) },
    ];
    let second = vec![
        BatchOp::SetAttr { object: own, set: SetAttrs { size: Some(0), ..SetAttrs::default() } },
        BatchOp::Data { object: own, offset: 0, data: b"short" },
        BatchOp::SetAttr { object: own, set: time(2) },
    ];
    for (txn, ops) in [(1, first), (2, second)] {
        assert!(client.batch(txn, ops).unwrap().results.iter().all(|result| refused(result).is_none()));
    }
}

#[test]
fn data_that_was_cut_off_since_is_not_there_again() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    written_anew(&mut client, &root);
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    written_anew(&mut client, &root);
    assert_eq!(server.read("a"), b"short");
    // Nor what others wrote since: it is done, and is not done again.
    server.write("a", b"others");
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    written_anew(&mut client, &root);
    assert_eq!(server.read("a"), b"others");
    client.stable(&server, 2).unwrap();
    assert_eq!(server.uncommitted(), []);
}

#[test]
fn an_attribute_that_was_removed_since_is_not_there_again() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let own = Ref::Made { txn: TxnId(1), op: 0 };
    let ops = || {
        let (how, name, value) = (SetXattrHow::Either, &b"user.k"[..], &b"v"[..]);
        let set = BatchOp::SetXattr { object: own, how, name, value };
        vec![create(at(&root), "a", b""), set, BatchOp::RemoveXattr { object: own, name }]
    };
    let before = client.batch(1, ops()).unwrap();
    let file = object(&server, made(&before.results[0]).handle.0);
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    let after = client.batch(1, ops()).unwrap();
    assert!(after.results.iter().all(|result| refused(result).is_none()), "{after:?}");
    assert!(server.as_nfs(|fs, cx| fs.getxattr(cx, &file, b"user.k")).is_err(), "it is gone, and stays so");
}

#[test]
fn data_that_went_with_the_machine_and_finds_no_room_is_told_as_lost() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let own = Ref::Made { txn: TxnId(1), op: 0 };
    let ops = || {
        let data = BatchOp::Data { object: own, offset: 0, data: b"data" };
        vec![create(at(&root), "a", b""), data, mkdir(at(&root), "d")]
    };
    client.batch(1, ops()).unwrap();
    let mount = client.unplug();
    server.write("a", b"");
    let server = server.restart_after_power_loss(Grace::Over);
    server.disk().set_quota(0, 0);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    let told: Vec<_> = client.batch(1, ops()).unwrap().results.iter().map(refused).collect();
    assert_eq!(told, [None, Some(CapsStat::Dquot), None]);
    assert_eq!(server.read("a"), b"");
}

#[test]
fn what_is_stable_after_the_servers_death_is_on_the_disk_with_its_data() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let own = Ref::Made { txn: TxnId(1), op: 1 };
    let ops = || {
        vec![
            create(at(&root), "a", b"data"),
            create(at(&root), "b", b""),
            BatchOp::Data { object: own, offset: 0, data: b"more" },
            mkdir(at(&root), "d"),
        ]
    };
    let before = client.batch(1, ops()).unwrap();
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    assert_ne!(server.uncommitted(), [], "data is nobody's affair yet");
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    let after = client.batch(1, ops()).unwrap();
    assert_eq!(after.results.len(), before.results.len());
    assert_eq!(client.stable(&server, 1).unwrap().stable_through, TxnId(1));
    assert_eq!(server.uncommitted(), []);
}

#[test]
fn data_that_went_with_the_machine_is_written_again_though_its_file_is_there() {
    for deaths in [1, 2] {
        let server = Server::new();
        let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
        let own = Ref::Made { txn: TxnId(1), op: 1 };
        let ops = || {
            vec![
                create(at(&root), "a", b"data"),
                create(at(&root), "b", b""),
                BatchOp::Data { object: own, offset: 0, data: b"more" },
                mkdir(at(&root), "d"),
            ]
        };
        client.batch(1, ops()).unwrap();
        let mut mount = client.unplug();
        let mut server = server;
        if deaths == 2 {
            // The server alone, at first; names are on the disk then.
            server = server.restart(Grace::Over);
            let mut client = mount.again(&server, "a");
            client.hello(TxnId(0)).unwrap();
            mount = client.unplug();
        }
        server.write("a", b"");
        server.write("b", b"");
        let server = server.restart_after_power_loss(Grace::Over);
        let mut client = mount.again(&server, "a");
        client.hello(TxnId(0)).unwrap();
        let again = client.batch(1, ops()).unwrap();
        assert!(again.results.iter().all(|result| refused(result).is_none()), "{again:?}");
        assert_eq!((server.read("a"), server.read("b")), (b"data".to_vec(), b"more".to_vec()));
        // On the disk it is not touched again.
        client.stable(&server, 1).unwrap();
        assert_eq!(server.uncommitted(), []);
        server.write("a", b"others");
        server.write("b", b"others");
        let mount = client.unplug();
        let server = server.restart_after_power_loss(Grace::Over);
        let mut client = mount.again(&server, "a");
        client.hello(TxnId(0)).unwrap();
        client.batch(1, ops()).unwrap();
        assert_eq!((server.read("a"), server.read("b")), (b"others".to_vec(), b"others".to_vec()));
    }
}

#[test]
fn what_was_done_with_is_forgotten_and_what_was_not_is_known() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    client.batch(1, vec![create(at(&root), "a", b"")]).unwrap();
    client.batch(2, vec![create(at(&root), "b", b"")]).unwrap();
    client.stable(&server, 1).unwrap();
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let mut client = mount.again(&server, "a");
    let hello = client.hello(TxnId(1)).unwrap();
    assert_eq!((hello.is_known, hello.executed_through), (true, TxnId(1)));
    let again = client.batch(2, vec![create(at(&root), "b", b"")]).unwrap();
    assert!(refused(&again.results[0]).is_none(), "not EXIST: it is its own");
    assert_eq!(client.batch(1, vec![create(at(&root), "a", b"")]), Err(CapsStat::Forgotten));
}

#[test]
fn who_was_given_up_while_it_was_cut_off_is_answered_as_before_when_it_is_back() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ops = || {
        let own = Ref::Made { txn: TxnId(1), op: 0 };
        vec![create(at(&root), "a", b"x"), create(at(&root), "b", b""), unlink(at(&root), "a", Some(own))]
    };
    let before = client.batch(1, ops()).unwrap();
    let mount = client.unplug();
    let all = server.running.manager.step(|engine, now| {
        let all: Vec<_> = engine.report_clients(now).iter().map(|client| client.id).collect();
        all.iter().all(|id| engine.revoke_client(*id, now))
    });
    assert!(all.unwrap(), "given up");
    let mut client = mount.again(&server, "a");
    let hello = client.hello(TxnId(0)).unwrap();
    assert_eq!((hello.is_known, hello.executed_through), (true, TxnId(1)));
    assert_eq!(client.batch(1, ops()).unwrap().results, before.results);
    assert_eq!(server.names(), ["b"], "done once");
    assert!(refused(&client.batch(2, vec![create(at(&root), "c", b"")]).unwrap().results[0]).is_none());
}

/// By that a client knows whether the server may have been in the middle of what it had sent.
#[test]
fn who_claims_is_told_what_was_changed_while_the_server_was_dead() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let ok = client.batch(1, vec![create(at(&root), "ours", b"data"), create(at(&root), "theirs", b"data")]);
    let files: Vec<_> = ok.unwrap().results.iter().map(|of| made(of).handle.0.to_vec()).collect();
    let claims = |client: &mut Client| {
        let items = files.iter().map(|file| ReclaimItem { handle: Handle(file), held: CapSet::ALL_X });
        let args = ReclaimArgs { ticket: client.ticket, items: items.collect() };
        let ok: AcquireOk = client.call(CapsProc::Reclaim, &args).unwrap();
        let is_told = |of: &Res<Acquired>| {
            let grant = of.into_result().unwrap().grant;
            assert!(grant.held.contains(CapSet::FILE_X));
            grant.flags.contains(GrantFlags::CHANGED_SINCE)
        };
        ok.items.iter().map(is_told).collect::<Vec<_>>()
    };
    let mount = client.unplug();
    std::thread::sleep(Duration::from_millis(150));
    server.write("theirs", b"else");
    let grace = Grace::Until(holdfast_base::Instant(u64::MAX));
    let server = server.restart(grace);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    assert_eq!(claims(&mut client), [false, true]);
    // One that dies before it has done anything does not hide it.
    let mount = client.unplug();
    let server = server.restart(grace);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    assert_eq!(claims(&mut client), [false, true]);
    // When the machine died nobody knows.
    let mount = client.unplug();
    let server = server.restart_after_power_loss(grace);
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    assert_eq!(claims(&mut client), [false, false]);
}
