//! Capabilities over the wire: grants, recalls, releases that cross, loss; and what NFS clients see of it.

use holdfast_state::{Grace, Memory};
use holdfast_vfs::{AttrMask, FsError, LocalDeed, Name, Pledge};
use holdfast_wire::caps::*;

use crate::world::*;

#[test]
fn a_ticket_is_had_by_a_session_that_lives_and_by_nothing_else() {
    let server = Server::new();
    let mut client = Client::stranger(&server, "a");
    assert_eq!(client.acquire(&server.root_handle(), CapSet::NONE), Err(CapsStat::BadTicket));
    let session = std::mem::replace(&mut client.session, holdfast_base::SessionId([9; 16]));
    assert_eq!(client.hello(TxnId(0)), Err(CapsStat::BadSession));
    client.session = session;
    let first = client.hello(TxnId(0)).unwrap();
    assert!(!first.is_known && !first.in_grace);
    let all = [
        Features::APPEND,
        Features::NAMES,
        Features::POOL,
        Features::LISTS,
        Features::RESERVE,
        Features::FORCE,
    ];
    assert_eq!(first.features, Features(all.iter().fold(0, |bits, one| bits | one.0)));
    let again = client.hello(TxnId(0)).unwrap();
    assert_eq!((again.ticket, again.epoch, again.is_known), (first.ticket, first.epoch, true));
}

#[test]
fn a_directory_held_exclusively_is_flushed_before_a_neighbour_lists_it() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let grant = a.acquire(&root, CapSet::FILE_X).unwrap().grant;
    assert_eq!(grant.held, CapSet::FILE_X);
    assert!(grant.flags.contains(GrantFlags::PLAIN));
    assert_eq!(b.list(&root), Err(CapsStat::Delay));
    a.look();
    let [(handle, keep, seq)] = &a.recalls[..] else { panic!("{:?}", a.recalls) };
    assert_eq!((&handle[..], *keep), (&root[..], CapSet::FILE_S));
    assert!(*seq > grant.seq);
    // What it had not sent.
    a.batch(1, vec![create(at(&root), "late", b"data")]).unwrap();
    assert_eq!(b.list(&root), Err(CapsStat::Delay), "until it is released");
    a.give_back();
    let listed = b.list(&root).unwrap();
    assert_eq!(listed.entries.iter().map(|e| e.name).collect::<Vec<_>>(), [b"late"]);
    assert!(listed.eof);
    assert_eq!(listed.dir.grant.held, CapSet::FILE_S);
    // Absence is covered too: the next create of a's has it recalled.
    assert_eq!(b.lookup(&root, "other").unwrap().found, Looked::Absent);
    assert_eq!(a.batch(2, vec![create(at(&root), "other", b"")]), Err(CapsStat::Delay));
    b.give_back();
    a.batch(2, vec![create(at(&root), "other", b"")]).unwrap();
    assert!(matches!(b.lookup(&root, "other").unwrap().found, Looked::Present(_)));
}

#[test]
fn an_nfs_client_sees_a_directory_held_exclusively_after_its_recall() {
    let server = Server::new();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    a.acquire(&root, CapSet::ALL_X).unwrap();
    let dir = server.root();
    let lookup = |mask| {
        server
            .as_nfs(|fs, cx| fs.lookup(cx, &dir, Name::new(b"x").unwrap(), mask).map(|node| node.attrs.size))
    };
    assert_eq!(lookup(AttrMask::STAT), Err(FsError::Delay));
    a.batch(1, vec![create(at(&root), "x", b"12345")]).unwrap();
    a.give_back();
    assert_eq!(lookup(AttrMask::STAT), Ok(5));
    // Of the file likewise: its maker may have more of it.
    let LookupOk { found: Looked::Present(node), .. } = a.lookup(&root, "x").unwrap() else { panic!() };
    assert!(a.acquire(node.handle.0, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    assert_eq!(lookup(AttrMask::STAT), Err(FsError::Delay));
    a.batch(2, vec![BatchOp::Data { object: at(node.handle.0), offset: 5, data: b"67" }]).unwrap();
    a.give_back();
    assert_eq!(lookup(AttrMask::STAT), Ok(7));
}

#[test]
fn of_what_is_removed_while_its_holder_is_waited_for_a_look_finds_nothing() {
    let server = Server::patient();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let made = a.batch(1, vec![create(at(&root), "x", b"")]).unwrap();
    a.acquire(super::world::made(&made.results[0]).handle.0, CapSet::FILE_X).unwrap();
    let (ticket, dir) = (b.ticket, Handle(&root));
    let args = LookupArgs { ticket, dir, name: b"x", want_dir: CapSet::NONE, want: CapSet::FILE_S };
    let looked: LookupOk<'_> = std::thread::scope(|scope| {
        let looking = scope.spawn(|| b.call(CapsProc::Lookup, &args).unwrap());
        while !a.is_called() {
            std::thread::yield_now();
        }
        a.batch(2, vec![unlink(at(&root), "x", None)]).unwrap();
        a.give_back();
        looking.join().unwrap()
    });
    assert_eq!(looked.found, Looked::Absent);
}

#[test]
fn who_has_a_directory_can_still_change_the_name_that_he_is_asked_to_give_it_back_for() {
    let server = Server::patient();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    a.acquire(&root, CapSet::FILE_X).unwrap();
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(|| {
            server.as_recorded(b"a call", |m| {
                let (name, set) = (Name::new(b"lock").unwrap(), holdfast_vfs::SetAttrs::default());
                m.make(&server.root(), name, holdfast_vfs::NewNode::Directory, &set).map(drop)
            })
        });
        while !a.is_called() {
            std::thread::yield_now();
        }
        // What it has not sent yet.
        let sent = a.batch(1, vec![mkdir(at(&root), "lock")]).unwrap();
        assert_eq!(refused(&sent.results[0]), None);
        // First what keeps others from looking, then the rest.
        while !making.is_finished() {
            a.give_back();
            std::thread::yield_now();
        }
        making.join().unwrap()
    });
    assert_eq!(made, Err(FsError::Exists));
}

#[test]
fn what_is_granted_while_a_release_is_still_being_noted_can_be_recalled() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let grant = a.acquire(&root, CapSet::FILE_S).unwrap().grant;
    // Another thread of the mount's asks for it again, and the server is slow with the end of the release.
    let mut asking = Client::stranger_like(&server, "a", a.session, a.incarnation);
    asking.ticket = a.ticket;
    let object = root.clone();
    server.running.early.once_left(move || {
        assert_eq!(asking.acquire(&object, CapSet::FILE_S).unwrap().grant.held, CapSet::FILE_S);
    });
    a.release(&root, CapSet::NONE, grant.seq).unwrap();
    assert_eq!(server.running.caps.held().len(), 1, "and it is known under which handle");
    assert_eq!(b.batch(1, vec![create(at(&root), "new", b"")]), Err(CapsStat::Delay));
    a.look();
    assert_eq!(a.recalls.len(), 1, "else it would go on believing that the name is absent");
    a.give_back();
    b.batch(1, vec![create(at(&root), "new", b"")]).unwrap();
    assert!(server.running.caps.held().is_empty());
}

#[test]
fn grants_recalls_and_releases_cross() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let first = a.acquire(&root, CapSet::FILE_S).unwrap().grant;
    let second = a.acquire(&root, CapSet::FILE_X).unwrap().grant;
    // A release from before the second grant arrived.
    assert_eq!(a.release(&root, CapSet::NONE, first.seq), Err(CapsStat::Crossed));
    assert_eq!(a.acquire(&root, CapSet::NONE).unwrap().grant.held, second.held);
    // A release that does not know of the recall yet counts.
    assert_eq!(b.list(&root), Err(CapsStat::Delay));
    assert_eq!(a.release(&root, CapSet::FILE_S, second.seq).unwrap().held, CapSet::FILE_S);
    b.list(&root).unwrap();
    a.give_back();
    assert_eq!(
        a.acquire(&root, CapSet::NONE).unwrap().grant.held,
        CapSet::FILE_S,
        "the late answer took nothing"
    );
}

#[test]
fn who_does_not_answer_loses_all_and_learns_of_it_with_its_next_call() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    a.acquire(&root, CapSet::FILE_X).unwrap();
    assert_eq!(b.list(&root), Err(CapsStat::Delay));
    // Both live, but a does not release.
    for _ in 0..4 {
        server.pass(LEASE_MS / 4);
        let _ = a.acquire(&root, CapSet::NONE);
        let _ = b.acquire(&root, CapSet::NONE);
        server.running.manager.tick();
    }
    b.list(&root).unwrap();
    assert_eq!(a.acquire(&root, CapSet::NONE), Err(CapsStat::BadTicket));
    let epoch = a.epoch;
    let hello = a.hello(TxnId(0)).unwrap();
    assert!(hello.epoch != epoch && hello.is_known, "its transactions are known all the same");
    assert_eq!(a.acquire(&root, CapSet::NONE).unwrap().grant.held, CapSet::NONE);
}

#[test]
fn a_recall_that_finds_no_connection_goes_over_the_next() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    a.acquire(&root, CapSet::FILE_X).unwrap();
    let (session, incarnation) = (a.session, a.incarnation);
    a.close();
    assert_eq!(b.list(&root), Err(CapsStat::Delay));
    let mut a = Client::stranger_like(&server, "a", session, incarnation);
    a.hello(TxnId(0)).unwrap();
    a.give_back();
    b.list(&root).unwrap();
}

/// Else a local process that opens a file to write waits in the kernel for a lease that stays as long as anything is
/// held, and after any deed nothing more is ever granted, for the broken guard stays as well.
#[test]
fn a_local_process_takes_all_of_an_object_and_all_of_it_can_be_had_again() {
    let server = Server::new();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    let made_by = a.batch(1, vec![create(at(&root), "x", b"12345")]).unwrap();
    let file = made(&made_by.results[0]).handle.0.to_vec();
    let (dir, object) = (server.root(), object(&server, &file));
    let deeds = [
        (&object, &file, LocalDeed::OpenToWrite, Pledge::ReadFile),
        (&object, &file, LocalDeed::ChangedAttrs, Pledge::ReadFile),
        (&object, &file, LocalDeed::ChangedName, Pledge::ReadFile),
        (&object, &file, LocalDeed::Unknown, Pledge::ReadFile),
        (&dir, &root, LocalDeed::ChangedEntries, Pledge::Directory),
        (&dir, &root, LocalDeed::ChangedAttrs, Pledge::Directory),
    ];
    for (object, handle, deed, pledge) in deeds {
        assert_eq!(a.acquire(handle, CapSet::ALL_S).unwrap().grant.held, CapSet::ALL_S, "{deed:?}");
        assert_eq!(server.pledges_held(object), [pledge]);
        server.deed_outside(object, deed);
        a.look();
        let keeps: Vec<_> = a.recalls.iter().map(|(_, keep, _)| *keep).collect();
        assert_eq!(keeps, [CapSet::NONE], "{deed:?}");
        assert_eq!(server.pledges_held(object), [pledge], "until it is released");
        a.give_back();
        assert_eq!(server.pledges_held(object), [], "{deed:?}");
        server.pass(3_000);
    }
    // Who reads a file that a client may change unseen is let go on when that is over; the rest stays.
    assert_eq!(a.acquire(&file, CapSet::ALL_X).unwrap().grant.held, CapSet::ALL_X);
    server.deed_outside(&object, LocalDeed::OpenToRead);
    a.give_back();
    assert_eq!(server.pledges_held(&object), [Pledge::ReadFile]);
    assert!(a.acquire(&file, CapSet::NONE).unwrap().grant.held.contains(CapSet::FILE_S));
}

#[test]
fn when_memory_runs_short_capabilities_are_recalled_and_can_be_had_again_afterwards() {
    let server = Server::new();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    let names: Vec<String> = (0..30).map(|n| format!("file-{n}")).collect();
    let made_by = a.batch(1, names.iter().map(|name| create(at(&root), name, b"")).collect()).unwrap();
    let files: Vec<Vec<u8>> = made_by.results.iter().map(|result| made(result).handle.0.to_vec()).collect();
    for file in &files {
        assert_eq!(a.acquire(file, CapSet::ALL_S).unwrap().grant.held, CapSet::ALL_S);
    }
    let manager = &server.running.manager;
    let capabilities = || manager.look(|engine| engine.in_use().capabilities);
    let memory = |available| Memory { total: 8 << 30, available };
    manager.heed(memory(8 << 30));
    manager.tick();
    a.look();
    assert_eq!((capabilities(), a.recalls.len()), (30, 0));
    let mut asked = Vec::new();
    for _ in 0..30 {
        manager.heed(memory(0));
        manager.tick();
        a.look();
        // One call at a time: what waited for the first to be answered.
        a.look();
        asked.extend(a.recalls.iter().map(|(handle, ..)| handle.clone()));
        a.give_back();
        server.pass(1000);
    }
    asked.sort();
    let mut all = files.clone();
    all.sort();
    assert_eq!((asked, capabilities()), (all, 0), "each once");
    assert_eq!(server.pledges_held(&object(&server, &files[0])), [], "and what guarded it is gone");
    // What it asks for now it is not given, and is served all the same.
    assert_eq!(a.acquire(&files[0], CapSet::ALL_S).unwrap().grant.held, CapSet::NONE);
    assert_eq!(a.lookup(&root, "file-0").unwrap().dir.grant.held, CapSet::NONE);
    manager.heed(memory(8 << 30));
    assert_eq!(a.acquire(&files[0], CapSet::ALL_X).unwrap().grant.held, CapSet::ALL_X);
}

#[test]
fn goodbye_gives_everything_back() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    a.acquire(&root, CapSet::ALL_X).unwrap();
    let (ticket, args) = (a.ticket, ByeArgs { ticket: a.ticket });
    a.call::<()>(CapsProc::Bye, &args).unwrap();
    b.list(&root).unwrap();
    a.ticket = ticket;
    assert_eq!(a.acquire(&root, CapSet::NONE), Err(CapsStat::BadTicket));
}

#[test]
fn in_grace_capabilities_are_reclaimed_and_nothing_else_is_served() {
    let server = Server::new();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    a.acquire(&root, CapSet::ALL_X).unwrap();
    let epoch = a.epoch;
    let mount = a.unplug();
    let server = server.restart(Grace::Until(holdfast_base::Instant(u64::MAX)));
    let mut a = mount.again(&server, "a");
    let hello = a.hello(TxnId(0)).unwrap();
    assert!(hello.in_grace && hello.epoch != epoch);
    assert_eq!(a.acquire(&root, CapSet::ALL_S), Err(CapsStat::Grace));
    assert_eq!(a.batch(1, vec![create(at(&root), "x", b"")]), Err(CapsStat::Grace));
    let items = vec![ReclaimItem { handle: Handle(&root), held: CapSet::ALL_X }];
    let ok: AcquireOk = a.call(CapsProc::Reclaim, &ReclaimArgs { ticket: a.ticket, items }).unwrap();
    assert_eq!(ok.items[0].into_result().unwrap().grant.held, CapSet::ALL_X);
    let mut b = Client::stranger(&server, "b");
    b.hello(TxnId(0)).unwrap();
    let items = vec![ReclaimItem { handle: Handle(&root), held: CapSet::FILE_S }];
    let ok: AcquireOk = b.call(CapsProc::Reclaim, &ReclaimArgs { ticket: b.ticket, items }).unwrap();
    assert_eq!(ok.items[0].into_result().unwrap_err(), CapsStat::NotHeld, "a has it");
}
