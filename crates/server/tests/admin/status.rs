//! How the server is, what it did, and what it does when told.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_admin::report::{Counters, HoldingKind, LogLevels, Reloaded, Status, Upgrading};
use holdfast_admin::request::{Code, Request};
use holdfast_admin::{AskError, socket};

use crate::client::{Client, NFS3, opaque};
use crate::nfs4::Nfs4;
use crate::server::{Server, root, spawn};
use crate::{ask, kinds, locks, of_client};

fn status(server: &Server) -> Status {
    ask(server).ask(Request::Status).unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, AskError>) -> Code {
    match answer {
        Err(AskError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_operation_is_counted_once_by_name_by_client_and_by_export() {
    let server = Server::start();
    let mut client = Client::connect(server.address);
    let dir = opaque(&root(&mut client));
    for _ in 0..100 {
        client.ask(NFS3, 1, &dir);
    }
    client.ask(NFS3, 3, &[dir.clone(), opaque(b"nothing")].concat());
    let mut nfs4 = Nfs4::new(server.address, "holder", 1);
    nfs4.open("a");
    let counters: Counters = ask(&server).ask(Request::Counters).unwrap();
    let of = |protocol: &str, name: &str| {
        let op = counters.operations.iter().find(|op| op.protocol == protocol && op.name == name);
        op.map_or((0, 0), |op| (op.count, op.errors))
    };
    assert_eq!([of("nfs3", "GETATTR"), of("nfs3", "LOOKUP")], [(100, 0), (1, 1)]);
    assert_eq!([of("nfs4", "OPEN"), of("nfs4", "EXCHANGE_ID"), of("nfs4", "LOCK")], [(1, 0), (1, 0), (0, 0)]);
    let [host] = &counters.clients[..] else { panic!("one host") };
    assert_eq!((&*host.name, &*host.known_as), ("127.0.0.1", &["holder".to_owned()][..]));
    assert!(host.look >= 101 && host.state >= 4 && host.errors == 1);
    let export = counters.exports.iter().find(|export| export.name == "/export").unwrap();
    // A handle with its length, and what GETATTR says: 21 words and a status.
    assert!(export.received_bytes >= 100 * dir.len() as u64, "{export:?}");
    assert!(export.sent_bytes >= 100 * 88, "{export:?}");
    let status = status(&server);
    let all: u64 = counters.operations.iter().map(|op| op.count).sum();
    assert_eq!((status.totals.operations, status.totals.errors), (all, 1));
    let text: String = ask(&server).ask(Request::Metrics).unwrap();
    let line = r#"holdfast_operations_total{protocol="nfs3",operation="GETATTR"} 100"#;
    assert!(text.lines().any(|l| l == line), "{text}");
}

#[test]
fn the_status_tells_what_there_is() {
    let server = Server::start();
    let mut nfs4 = Nfs4::new(server.address, "holder", 1);
    nfs4.open("a");
    let status = status(&server);
    assert_eq!((status.listen, status.lease_ms), (vec![server.address.to_string()], 60_000));
    assert_eq!(status.state_dir, server.path("state").canonicalize().unwrap().display().to_string());
    assert_eq!((status.connections, status.grace.is_active), (1, false));
    let [export] = &status.exports[..] else { panic!("one export") };
    assert_eq!(export.path, "/export");
    assert_eq!(export.source.as_deref(), server.path("files").to_str());
    assert!(export.rules.contains("read-write"), "{export:?}");
    let count = |name: &str| status.state.iter().find(|count| count.name == name).unwrap().count;
    assert_eq!([count("clients"), count("sessions"), count("opens")], [1, 1, 1]);
    assert!(status.process.resident_bytes > 1 << 20 && status.process.descriptors > 5);
}

#[test]
fn grace_is_explained_while_it_lasts() {
    let server = Server::start();
    let mut nfs4 = Nfs4::new(server.address, "holder of old", 1);
    nfs4.open("a");
    let server = Server::start_in(server.killed(), spawn);
    let grace = status(&server).grace;
    assert!(grace.is_active && grace.reason.is_some(), "{grace:?}");
    assert_eq!((&*grace.awaited, grace.awaited_count), (&["holder of old".to_owned()][..], 1));
    assert!(grace.ends_in_ms.is_some_and(|ms| ms > 30_000 && ms <= 60_000), "{grace:?}");
}

#[test]
fn grace_ends_at_a_word_and_who_did_not_come_back_is_waited_for_by_the_next_run_alone() {
    let server = Server::start();
    assert_eq!(code(ask(&server).ask::<()>(Request::EndGrace)), Code::NotFound, "there is none");
    Nfs4::new(server.address, "holder of old", 1).open("a");
    let server = Server::start_in(server.killed(), spawn);
    assert!(status(&server).grace.is_active);
    ask(&server).ask::<()>(Request::EndGrace).unwrap();
    let grace = status(&server).grace;
    assert!(!grace.is_active && grace.awaited.is_empty(), "{grace:?}");
    Nfs4::new(server.address, "somebody else", 1).open("a");
    // Who was waited for may not reclaim any more, but acts on what it has cached until it hears of that: another kill
    // waits for both, and is over with the first of them that has nothing to say but that.
    let server = Server::start_in(server.killed(), spawn);
    assert_eq!(status(&server).grace.awaited, ["holder of old", "somebody else"]);
    Nfs4::new(server.address, "holder of old", 1);
    assert_eq!(status(&server).grace.awaited, ["somebody else"]);
}

#[test]
fn the_socket_is_private_and_a_second_server_leaves_it_alone() {
    let server = Server::start();
    let path = socket::path_in(&server.path("state"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let before = status(&server).instance;
    let second = Command::new(server.path("program"))
        .args(["--exact", "server::serve", "--ignored", "--nocapture"])
        .env("HOLDFAST_HANDOVER_WORLD", server.path(""))
        .output()
        .unwrap();
    assert!(!second.status.success());
    let text = String::from_utf8_lossy(&second.stderr) + String::from_utf8_lossy(&second.stdout);
    assert!(text.contains("another server is using this state directory"), "{text}");
    assert_eq!(status(&server).instance, before);
}

#[test]
fn without_an_admin_socket_clients_are_served_all_the_same() {
    let world = Server::start().killed();
    let path = socket::path_in(&world.path().join("state"));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "in the way").unwrap();
    let server = Server::start_in(world, spawn);
    server.says("no admin socket");
    Nfs4::new(server.address, "client", 1).open("a");
    assert_eq!(std::fs::read(&path).unwrap(), b"in the way");
}

#[test]
fn what_a_server_cannot_do_is_refused_with_a_reason() {
    let server = Server::start();
    assert_eq!(code(ask(&server).ask::<Reloaded>(Request::Reload)), Code::NotPossible, "no file was named");
    assert_eq!(code(ask(&server).ask::<LogLevels>(Request::Log { levels: None })), Code::NotPossible);
    ask(&server).ask::<()>(Request::DropCaches).unwrap();
    server.install("#!/bin/sh\nexit 1\n");
    assert_eq!(code(ask(&server).ask::<Upgrading>(Request::Upgrade)), Code::Failed);
    assert_eq!(status(&server).connections, 0, "it serves on");
}

#[test]
fn after_an_upgrade_another_instance_answers_and_what_was_held_is_still_shown() {
    let mut server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let open = holder.open("a");
    holder.lock("a", open).unwrap();
    let before = locks(&server, of_client("holder"));
    let instance = status(&server).instance;
    let begun: Upgrading = ask(&server).ask(Request::Upgrade).unwrap();
    assert_eq!(begun.instance, instance);
    server.is_ready();
    let until = Instant::now() + Duration::from_secs(20);
    while status(&server).instance == begun.instance {
        assert!(Instant::now() < until, "nothing was handed over: {}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let after = locks(&server, of_client("holder"));
    assert_eq!(kinds(&after), [HoldingKind::Lock, HoldingKind::Open]);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((&before.id, &before.path, &before.ranges), (&after.id, &after.path, &after.ranges));
        let moved = before.since_unix_ms.unwrap().abs_diff(after.since_unix_ms.unwrap());
        assert!(moved < 1000, "held since the same moment: {moved} ms");
    }
}
