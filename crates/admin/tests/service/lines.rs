//! The protocol as a script sees it: lines in, lines out.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use holdfast_admin::report::{LogLevels, Reloaded, Status, Taken};
use holdfast_admin::request::{Code, Request, Which};
use holdfast_admin::{AdminClient, AskError, socket};
use holdfast_base::limits::{ADMIN_CONNECTIONS_MAX, ADMIN_REQUEST_BYTES_MAX};

use crate::fake::{Fake, Scene, scene};

fn connect(scene: &Scene) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(socket::path_in(scene.dir.path())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    BufReader::new(stream)
}

fn ask(stream: &mut BufReader<UnixStream>, line: &str) -> serde_json::Value {
    stream.get_mut().write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn a_connection_may_ask_again_and_again_and_errors_do_not_end_it() {
    let scene = scene(Fake::default());
    let mut stream = connect(&scene);
    let status = ask(&mut stream, "{\"ask\":\"status\"}\n");
    assert_eq!(
        (&status["v"], &status["ok"]["version"], &status["ok"]["pid"]),
        (&1.into(), &"1.2.3".into(), &7.into())
    );
    let wrong = ask(&mut stream, "what?\n");
    assert_eq!(wrong["error"]["code"], "bad_request");
    let other = ask(&mut stream, "{\"v\":9,\"ask\":\"status\"}\n");
    assert_eq!(other["error"]["code"], "bad_version");
    let nobody = ask(&mut stream, "{\"ask\":\"revoke\",\"client\":\"x\"}\n");
    assert_eq!(nobody["error"]["code"], "not_found");
    let grace = ask(&mut stream, "{\"ask\":\"end_grace\"}\n");
    assert_eq!(grace["error"]["code"], "not_found");
    let caches = ask(&mut stream, "{\"v\":1,\"ask\":\"drop_caches\"}\n");
    assert!(caches["ok"].is_null() && caches.get("error").is_none());
    assert_eq!(*scene.server.done.lock(), ["drop caches"]);
}

#[test]
fn a_request_that_comes_in_pieces_and_one_without_a_newline_are_answered() {
    let scene = scene(Fake::default());
    let mut stream = connect(&scene);
    stream.get_mut().write_all(b"{\"ask\":").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(ask(&mut stream, "\"metrics\"}\n")["ok"], "holdfast_x 1\n");
    stream.get_mut().write_all(b"{\"ask\":\"counters\"}").unwrap();
    stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"at_unix_ms\":1") && rest.ends_with('\n'));
}

#[test]
fn a_request_beyond_the_bound_is_refused_and_its_connection_closed() {
    let scene = scene(Fake::default());
    let mut stream = connect(&scene);
    let long = "x".repeat(ADMIN_REQUEST_BYTES_MAX);
    assert_eq!(ask(&mut stream, &long)["error"]["code"], "bad_request");
    let mut rest = Vec::new();
    // Closed, or reset for what was not read.
    assert!(stream.read_to_end(&mut rest).is_err() || rest.is_empty());
}

#[test]
fn connections_beyond_the_bound_are_told_so_and_find_room_again() {
    let scene = scene(Fake::default());
    let mut all: Vec<_> = (0..ADMIN_CONNECTIONS_MAX).map(|_| connect(&scene)).collect();
    all.iter_mut().for_each(|stream| assert!(ask(stream, "{\"ask\":\"status\"}\n")["ok"].is_object()));
    let mut refused = String::new();
    connect(&scene).read_line(&mut refused).unwrap();
    assert!(refused.contains("\"busy\""), "{refused}");
    all.clear();
    let found = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let mut again = AdminClient::connect(scene.dir.path()).unwrap();
        again.ask::<Status>(Request::Status).is_ok()
    });
    assert!(found, "places of closed connections are free again");
}

#[test]
fn what_does_not_work_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let error = AdminClient::connect(dir.path()).unwrap_err();
    assert!(matches!(error, AskError::NoServer(_)));
    let text = error.to_string();
    assert!(text.contains(&dir.path().display().to_string()) && text.contains("--state-dir"), "{text}");
    drop(std::os::unix::net::UnixListener::bind(socket::path_in(dir.path())).unwrap());
    assert!(matches!(AdminClient::connect(dir.path()).unwrap_err(), AskError::NoServer(_)), "a stale socket");
    let nowhere = dir.path().join("missing");
    assert!(matches!(AdminClient::connect(&nowhere).unwrap_err(), AskError::NoServer(_)));
}

#[test]
fn every_request_reaches_the_server_and_its_answer_comes_back() {
    let scene = scene(Fake::default());
    let mut client = AdminClient::connect(scene.dir.path()).unwrap();
    let taken: Taken = client.ask(Request::Revoke { client: "here".into() }).unwrap();
    assert_eq!(taken, Taken { clients: vec!["here".into()], holdings: 2 });
    let which = Which { path: Some("/a".into()), ..Which::default() };
    let _: Taken = client.ask(Request::Release(which)).unwrap();
    let error = client.ask::<Reloaded>(Request::Reload).unwrap_err();
    assert!(matches!(&error, AskError::Refused(refusal) if refusal.code == Code::Failed));
    assert_eq!(error.to_string(), "line 3: no");
    let levels: LogLevels = client.ask(Request::Log { levels: Some("debug".into()) }).unwrap();
    assert_eq!(levels.levels, "debug");
    assert_eq!(*scene.server.done.lock(), ["revoke here", "release Some(\"/a\")"]);
}

#[test]
fn when_the_service_ends_its_socket_goes_and_nobody_is_answered() {
    let Scene { dir, server, service } = scene(Fake::default());
    let mut client = AdminClient::connect(dir.path()).unwrap();
    drop(service);
    assert!(matches!(AdminClient::connect(dir.path()).unwrap_err(), AskError::NoServer(_)));
    drop(server);
    assert!(matches!(client.ask::<Status>(Request::Status).unwrap_err(), AskError::Lost(_)));
}
