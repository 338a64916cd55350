//! Who holds what, and taking it away.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_admin::AskError;
use holdfast_admin::report::{Holding, HoldingKind, Page, Range, Taken};
use holdfast_admin::request::{Code, LocksWanted, Request, Which};
use holdfast_base::limits::ADMIN_ROWS_MAX;
use holdfast_wire::nfs4::NfsStat4;

use crate::nfs4::Nfs4;
use crate::server::Server;
use crate::{ask, kinds, locks, of_client, on};

#[test]
fn opens_locks_and_delegations_are_shown_with_path_client_and_time() {
    let server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder of a", 1);
    let open = holder.open("a");
    holder.lock("a", open).unwrap();
    let mut other = Nfs4::new(server.address, "other\nclient", 0);
    other.open("b");
    let held = locks(&server, on(&server.file("a")));
    assert_eq!(kinds(&held), [HoldingKind::Lock, HoldingKind::Open]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    for held in &held {
        assert_eq!(held.client_name, "holder of a");
        assert_eq!((&*held.addresses, &*held.protocol), (&["127.0.0.1".to_owned()][..], "NFSv4.1+"));
        assert_eq!(held.export.as_deref(), Some("/export"));
        assert_eq!(held.path.as_deref(), server.file("a").to_str());
        assert!(!held.is_deleted && !held.is_courteous && !held.is_revoked);
        let since = held.since_unix_ms.unwrap();
        assert!(since <= now && now - since < 60_000, "{since} {now}");
    }
    let [lock] = &locks(&server, Which { kinds: vec![HoldingKind::Lock], ..Which::default() })[..] else {
        panic!("one lock")
    };
    assert_eq!(lock.ranges, [Range { kind: "write".into(), first: 0, last: None }]);
    assert_eq!(lock.owner.as_deref(), Some("locker"));
    let [open] = &locks(&server, of_client(r"other\nclient"))[..] else { panic!("one open") };
    assert_eq!((&*open.protocol, open.path.as_deref()), ("NFSv4.0", server.file("b").to_str()));
    assert_eq!((open.access.as_deref(), open.deny.as_deref()), (Some("both"), Some("none")));
    assert_eq!(locks(&server, on(&server.path("files"))).len(), 3, "a directory means what is below it");
    assert_eq!(
        locks(&server, Which { id: Some(open.id.clone()), ..Which::default() }),
        std::slice::from_ref(open)
    );
}

#[test]
fn a_delegation_is_shown_and_taken_when_that_is_asked_for() {
    let server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let (open, delegation) = holder.open_delegated("a").unwrap();
    assert!(delegation.is_some(), "granted");
    assert_eq!(holder.close("a", open), NfsStat4::Ok);
    let held = locks(&server, of_client("holder"));
    assert_eq!(kinds(&held), [HoldingKind::Delegation]);
    assert_eq!(held[0].path.as_deref(), server.file("a").to_str());
    assert!(matches!(held[0].access.as_deref(), Some("read" | "write")));
    let which = Which { kinds: vec![HoldingKind::Delegation], ..on(&server.file("a")) };
    let taken: Taken = ask(&server).ask(Request::Release(which)).unwrap();
    assert_eq!(taken.holdings, 1);
    assert!(locks(&server, of_client("holder")).iter().all(|held| held.is_revoked));
}

#[test]
fn more_than_fits_a_page_is_shown_whole_and_once() {
    let server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let opens = ADMIN_ROWS_MAX + 100;
    // Of one file, and of another.
    holder.open("a");
    for n in 1..opens {
        holder.open_as("b", &n.to_string());
    }
    let first: Page<Holding> = ask(&server).ask(Request::Locks(LocksWanted::default())).unwrap();
    assert_eq!((first.rows.len(), first.next.is_some()), (ADMIN_ROWS_MAX, true));
    let held = locks(&server, Which::default());
    let ids: HashSet<_> = held.iter().map(|held| &held.id).collect();
    assert_eq!((held.len(), ids.len()), (opens, opens));
    let which = Which { kinds: vec![HoldingKind::Open], ..on(&server.file("b")) };
    let taken: Taken = ask(&server).ask(Request::Release(which)).unwrap();
    assert_eq!(taken.holdings, opens as u64 - 1);
    assert_eq!(locks(&server, Which::default()).len(), 1);
}

#[test]
fn a_file_without_a_name_is_shown_as_deleted_under_its_last_one() {
    let server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    holder.open("gone");
    std::fs::remove_file(server.file("gone")).unwrap();
    let [open] = &locks(&server, of_client("holder"))[..] else { panic!("one open") };
    assert_eq!((open.path.as_deref(), open.is_deleted), (server.file("gone").to_str(), true));
    assert_eq!(locks(&server, on(&server.file("gone"))).len(), 1);
}

#[test]
fn released_by_path_a_lock_goes_to_whoever_asks_next_and_its_holder_is_told() {
    let server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let mut next = Nfs4::new(server.address, "next", 1);
    let (a, b) = (holder.open("a"), next.open("a"));
    let lock = holder.lock("a", a).unwrap();
    assert_eq!(next.lock("a", b).unwrap_err(), NfsStat4::Denied);
    let waiting = Which { kinds: vec![HoldingKind::Waiting], ..on(&server.file("a")) };
    assert_eq!(locks(&server, waiting.clone())[0].client_name, "next");
    match ask(&server).ask::<Taken>(Request::Release(waiting)) {
        Err(AskError::Refused(refusal)) => assert_eq!(refusal.code, Code::NotPossible),
        other => panic!("{other:?}"),
    }
    let taken: Taken = ask(&server).ask(Request::Release(on(&server.file("a")))).unwrap();
    assert_eq!((taken.holdings, &*taken.clients), (1, &[][..]));
    next.lock("a", b).unwrap();
    assert_eq!(holder.unlock("a", lock), NfsStat4::AdminRevoked);
    let opens = locks(&server, Which { kinds: vec![HoldingKind::Open], ..on(&server.file("a")) });
    assert_eq!(opens.len(), 2, "opens are not taken unless that is asked for");
}

#[test]
fn what_one_client_has_locked_is_released_whatever_its_version() {
    for minor in [0, 1] {
        let server = Server::start();
        let mut holder = Nfs4::new(server.address, "holder", minor);
        let mut next = Nfs4::new(server.address, "next", 1);
        for name in ["a", "b"] {
            let (held, other) = (holder.open(name), next.open(name));
            holder.lock(name, held).unwrap();
            assert_eq!(next.lock(name, other).unwrap_err(), NfsStat4::Denied);
        }
        let taken: Taken = ask(&server).ask(Request::Release(of_client("holder"))).unwrap();
        assert_eq!(taken.holdings, 2);
        for name in ["a", "b"] {
            let open = next.open(name);
            next.lock(name, open).unwrap();
        }
        let kept = locks(&server, of_client("holder"));
        let opens = kept.iter().filter(|held| held.kind == HoldingKind::Open).count();
        assert_eq!(opens, 2, "opens are not taken unless that is asked for");
    }
}

#[test]
fn nothing_is_released_by_mistake() {
    let server = Server::with_another_export();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let mut other = Nfs4::new(server.address, "other", 1);
    other.export = "other";
    for holder in [&mut holder, &mut other] {
        let open = holder.open("a");
        holder.lock("a", open).unwrap();
    }
    let mut admin = ask(&server);
    let mut refused = |which: Which| match admin.ask::<Taken>(Request::Release(which)) {
        Err(AskError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Which::default()), Code::BadRequest, "everything is not to be had by saying nothing");
    let only_a_kind = Which { kinds: vec![HoldingKind::Lock], ..Which::default() };
    assert_eq!(refused(only_a_kind), Code::BadRequest);
    assert_eq!(refused(on(&server.file("b"))), Code::NotFound);
    assert_eq!(refused(of_client("nobody")), Code::NotFound);
    assert_eq!(refused(Which { export: Some("/none".into()), ..Which::default() }), Code::NotFound);
    // A name that another begins with is not meant.
    let prefix = server.path("files").join("");
    assert_eq!(refused(on(&prefix.with_file_name("file"))), Code::NotFound);
    let elsewhere = Which { export: Some("/other".into()), ..of_client("holder") };
    assert_eq!(refused(elsewhere), Code::NotFound, "each word narrows what the others mean");
    let locked = || -> Vec<_> {
        let held = locks(&server, Which { kinds: vec![HoldingKind::Lock], ..Which::default() });
        held.into_iter().map(|held| (held.client_name, held.export)).collect()
    };
    assert_eq!(locked().len(), 2);
    let taken: Taken =
        admin.ask(Request::Release(Which { export: Some("/export".into()), ..Which::default() })).unwrap();
    assert_eq!(taken.holdings, 1);
    assert_eq!(locked(), [("other".to_owned(), Some("/other".to_owned()))], "the other export's stays");
}
