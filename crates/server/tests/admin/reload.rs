//! A server with a configuration file: what the file says, read again, and a lease short enough to run out.

use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_admin::AskError;
use holdfast_admin::report::{Client, HoldingKind, Reloaded, Status};
use holdfast_admin::request::{ClientsWanted, Code, Request};
use holdfast_server::{Config, ServeOptions};
use holdfast_wire::nfs4::NfsStat4;
use rustix::process::Signal;

use crate::nfs4::Nfs4;
use crate::server::Server;
use crate::{ask, kinds, locks, of_client};

const FILE: &str = "HOLDFAST_ADMIN_CONFIG";

/// Not a test: what a child runs.
#[test]
#[ignore = "serves, when another test starts it"]
fn serve() {
    let Some(file) = env::var_os(FILE).map(PathBuf::from) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let config = Config::read(&file).unwrap();
    holdfast_server::serve(ServeOptions { config, config_file: Some(file), exports: Vec::new() }).unwrap();
}

const HEAD: &str =
    "listen = [\"127.0.0.1:0\"]\nrpcbind = false\nlease = 1\n[metrics]\nlisten = \"127.0.0.1:0\"\n";

/// A server of `files` at these paths, with numbers of their own.
fn start(exports: &[&str]) -> Server {
    let world = tempfile::tempdir().unwrap();
    let at = world.path().to_owned();
    fs::create_dir(at.join("files")).unwrap();
    let state_dir = format!("state_dir = {:?}\n", at.join("state"));
    fs::write(at.join("config"), state_dir + HEAD + &tables(&at, exports)).unwrap();
    Server::start_in(world, |command| {
        // What was prepared is for a server without a file; only its log is taken over.
        let log = fs::File::options().append(true).open(at.join("log")).unwrap();
        let _ = command;
        let mut own = Command::new(env::current_exe().unwrap());
        own.args(["--exact", "reload::serve", "--ignored", "--nocapture"]);
        own.env(FILE, at.join("config")).env_remove("NOTIFY_SOCKET");
        own.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap()
    })
}

fn tables(at: &std::path::Path, exports: &[&str]) -> String {
    let table = |path: &&str| {
        format!(
            "[[export]]\nsource = {:?}\npath = \"{path}\"\nclients = [\"all\"]\nsquash = \"none\"\n",
            at.join("files")
        )
    };
    exports.iter().map(table).collect()
}

/// Writes the file anew, as one step.
fn rewrite(server: &Server, text: &str) {
    let state_dir = format!("state_dir = {:?}\n", server.path("state"));
    fs::write(server.path("config.new"), state_dir + text).unwrap();
    fs::rename(server.path("config.new"), server.path("config")).unwrap();
}

fn exports(server: &Server) -> Vec<String> {
    let status: Status = ask(server).ask(Request::Status).unwrap();
    status.exports.into_iter().map(|export| export.path).collect()
}

#[test]
fn a_reload_tells_what_it_did_and_what_is_wrong() {
    let server = start(&["/export"]);
    let more = HEAD.replace("lease = 1", "lease = 2") + &tables(&server.path(""), &["/export", "/more"]);
    rewrite(&server, &more);
    let reloaded: Reloaded = ask(&server).ask(Request::Reload).unwrap();
    assert_eq!((reloaded.exports, &*reloaded.needs_restart), (2, &["lease".to_owned()][..]));
    assert_eq!(reloaded.file, server.path("config").display().to_string());
    assert_eq!(exports(&server), ["/export", "/more"]);
    rewrite(&server, "lease = \"long\"\n");
    let error = ask(&server).ask::<Reloaded>(Request::Reload).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    assert!(matches!(error, AskError::Refused(refusal) if refusal.code == Code::Failed));
    assert_eq!(exports(&server), ["/export", "/more"], "the old exports stay");
}

#[test]
fn of_reloads_that_overlap_the_newest_file_is_what_stays() {
    let server = start(&["/export"]);
    for round in 0..20 {
        let path = format!("/export{round}");
        for path in ["/other", &path] {
            rewrite(&server, &(HEAD.to_owned() + &tables(&server.path(""), &["/export", path])));
            server.signal(Signal::HUP);
        }
        // One that is asked for waits for those under way, and reads what is there after them.
        let _: Reloaded = ask(&server).ask(Request::Reload).unwrap();
        assert_eq!(exports(&server), ["/export".to_owned(), path.clone()]);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(exports(&server), ["/export".to_owned(), path], "no older one comes after it");
    }
}

#[test]
fn a_client_whose_lease_ran_out_is_shown_as_courteous_until_somebody_asks() {
    let server = start(&["/export"]);
    let mut silent = Nfs4::new(server.address, "silent", 1);
    let open = silent.open("a");
    silent.lock("a", open).unwrap();
    let client = || {
        let wanted = ClientsWanted { client: Some("silent".into()), after: None };
        ask(&server).clients(wanted).ok().and_then(|clients| clients.first().cloned())
    };
    let until = Instant::now() + Duration::from_secs(30);
    let is_courteous = |client: &Option<Client>| client.as_ref().is_some_and(|client| client.is_courteous);
    while !is_courteous(&client()) {
        assert!(Instant::now() < until, "{:?}", client());
        std::thread::sleep(Duration::from_millis(100));
    }
    let shown = client().unwrap();
    assert_eq!(shown.lease_left_ms, None);
    assert!(shown.idle_ms.is_some_and(|ms| ms >= 1000), "{shown:?}");
    let held = locks(&server, of_client("silent"));
    assert_eq!(kinds(&held), [HoldingKind::Lock, HoldingKind::Open]);
    assert!(held.iter().all(|held| held.is_courteous), "{held:?}");
    let mut next = Nfs4::new(server.address, "next", 1);
    let open = next.open("a");
    next.lock("a", open).unwrap();
    assert_eq!(client(), None, "it lost what it had to who asked");
    assert_eq!(next.close("a", open), NfsStat4::Ok);
}

#[test]
fn metrics_are_served_where_the_file_says() {
    let server = start(&["/export"]);
    let status: Status = ask(&server).ask(Request::Status).unwrap();
    let mut stream = TcpStream::connect(status.metrics.expect("an address")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.lines().any(|line| line == "holdfast_grace 0"), "{answer}");
}
