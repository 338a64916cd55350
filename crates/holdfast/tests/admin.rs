//! The commands that ask a running server, as they are run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../server/tests/suite/client.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod client;
#[path = "../../server/tests/handover/nfs4.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod nfs4;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");

/// A running server, killed when dropped.
struct Server {
    dir: TempDir,
    child: Child,
    address: SocketAddr,
    /// Kept open: who writes to a closed pipe ends.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Self {
        Self::with("[[export]]\nsource = \"mem:\"\n")
    }

    fn with(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config"), config).unwrap();
        let mut command = Command::new(HOLDFAST);
        command
            .env("HOLDFAST_NO_SUPERVISE", "true")
            .args(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--config"])
            .arg(dir.path().join("config"));
        command.arg("--state-dir").arg(dir.path().join("state")).env_remove("NOTIFY_SOCKET");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.ends_with(" ready\n") {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the server did not start");
        }
        let address = line.trim_end().strip_suffix(" ready").and_then(|said| said.split_once("nfs "));
        let address = address.expect("the line names an address").1.parse().unwrap();
        Self { dir, child, address, _stdout: stdout }
    }

    fn run(&self, args: &[&str]) -> Output {
        run(args, &self.dir)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, which the test has told.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(args: &[&str], dir: &TempDir) -> Output {
    let mut command = Command::new(HOLDFAST);
    command.args(args).env("HOLDFAST_STATE_DIR", dir.path().join("state"));
    command.output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn said(output: &Output) -> String {
    assert_eq!(code(output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn commands_answer_and_their_exit_codes_tell_how_it_went() {
    let server = Server::start();
    let status = said(&server.run(&["status"]));
    assert!(status.starts_with(concat!("holdfast ", env!("CARGO_PKG_VERSION"), ", process ")), "{status}");
    assert!(status.contains("/mem from mem:: read-write"), "{status}");
    let json: serde_json::Value = serde_json::from_str(&said(&server.run(&["status", "--json"]))).unwrap();
    assert_eq!((&json["exports"][0]["path"], &json["grace"]["is_active"]), (&"/mem".into(), &false.into()));
    assert!(said(&server.run(&["status", "--prometheus"])).contains("\nholdfast_connections 0\n"));
    assert_eq!(said(&server.run(&["clients"])), "no clients\n");
    assert_eq!(said(&server.run(&["locks", "--json"])), "[]\n");
    assert!(said(&server.run(&["reload"])).ends_with("config read: 1 export served\n"));
    assert_eq!(said(&server.run(&["log"])), "info\n");
    assert_eq!(said(&server.run(&["log", "warn,holdfast_nfs4=debug"])), "holdfast_nfs4=debug,warn\n");
    assert_eq!(said(&server.run(&["drop-caches"])), "");
    let looks = said(&server.run(&["top", "--json", "--interval", "0.1", "--count", "2"]));
    assert_eq!(
        looks.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count(),
        2
    );
    for (args, expected) in [
        (&["clients", "nobody"][..], 4),
        (&["clients", "revoke", "nobody"], 4),
        (&["locks", "release", "--path", "/nothing"], 4),
        (&["locks", "--export", "/nothing"], 4),
        (&["grace", "end"], 4),
        (&["log", "loud"], 1),
        (&["log", "a=b=c"], 1),
        (&["locks", "release"], 2),
    ] {
        let output = server.run(args);
        assert_eq!(code(&output), expected, "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_held_goes_when_it_is_released_or_its_holder_revoked_and_nothing_else_does() {
    let server = Server::with("[[export]]\nsource = \"mem:\"\npath = \"/export\"\nclients = [\"all\"]\n");
    let mut holders = ["one", "two", "three"].map(|name| nfs4::Nfs4::new(server.address, name, 1));
    for (holder, file) in holders.iter_mut().zip(["a", "b", "c"]) {
        let open = holder.open(file);
        holder.lock(file, open).unwrap();
    }
    let names = |args: &[&str], of: &str| -> Vec<String> {
        let rows: serde_json::Value = serde_json::from_str(&said(&server.run(args))).unwrap();
        let rows = rows.as_array().unwrap();
        let mut names: Vec<_> = rows.iter().map(|row| row[of].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let locked = || names(&["locks", "--kind", "lock", "--json"], "client_name");
    assert_eq!(locked(), ["one", "three", "two"]);
    let release = ["locks", "release", "--client", "one"];
    said(&server.run(&release));
    assert_eq!(locked(), ["three", "two"]);
    assert_eq!(code(&server.run(&release)), 4, "nothing is left of it");
    said(&server.run(&["clients", "revoke", "two"]));
    assert_eq!(locked(), ["three"]);
    assert_eq!(names(&["clients", "--json"], "name"), ["one", "three"]);
    let opens = names(&["locks", "--kind", "open", "--json"], "client_name");
    assert_eq!(opens, ["one", "three"], "what was not meant is still there");
}

#[test]
fn what_cannot_be_served_is_told_with_the_file_and_the_export() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    let shown = file.display().to_string();
    for name in ["a/d", "b/d"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let source = |name: &str| dir.path().join(name).display().to_string();
    let export = |name: &str, more: &str| format!("[[export]]\nsource = \"{}\"\n{more}\n", source(name));
    let stands = |name: &str| format!("{shown}: the [[export]] with source = \"{}\"", source(name));
    let twice = export("a/d", "") + &export("b/d", "");
    let nested = export("a/d", "path = \"/x\"") + &export("b/d", "path = \"/x/y\"");
    let same_id = export("a/d", "id = 7\npath = \"/x\"") + &export("b/d", "id = 7\npath = \"/y\"");
    for (text, told) in [
        (String::new(), vec![shown.clone(), "nothing to serve".to_owned()]),
        (export("a/d", "") + &export("none", ""), vec![stands("none"), "No such file".to_owned()]),
        (twice, vec![stands("a/d"), stands("b/d"), "two exports are named /d".to_owned()]),
        (nested, vec![stands("a/d"), stands("b/d"), "lies below".to_owned()]),
        (same_id, vec![stands("a/d"), stands("b/d"), "the same id 7".to_owned()]),
        (
            "listen = [\"localhost:2049\"]".to_owned(),
            vec![shown.clone(), "no IP address and port".to_owned()],
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = run(&["check", &shown], &dir);
        assert_eq!(code(&output), 1);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(told.iter().all(|part| said.contains(part.as_str())), "{said}");
    }
    let state = source("state");
    let named = run(&["serve", "d:export", "--no-supervise", "--no-rpcbind", "--state-dir", &state], &dir);
    let said = String::from_utf8(named.stderr).unwrap();
    assert!(said.contains("d:export of the command line") && said.contains("write d:/export"), "{said}");
}

#[test]
fn without_a_server_the_way_out_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["status", "top", "clients", "locks", "reload", "log", "drop-caches"] {
        let output = run(&[command], &dir);
        assert_eq!(code(&output), 3, "{command}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("no server runs with the state directory") && text.contains("--state-dir"),
            "{text}"
        );
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let server = Server::start();
    let mut command = Command::new(HOLDFAST);
    command.args(["status", "--prometheus"]).env("HOLDFAST_STATE_DIR", server.dir.path().join("state"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &*output.stderr), (0, &b""[..]));
}

#[test]
fn an_upgrade_that_cannot_be_is_refused_and_the_server_serves_on() {
    let server = Server::start();
    let output = server.run(&["reload", "--upgrade"]);
    // What lies in memory goes with the process, so this server refuses.
    assert_eq!(code(&output), 1);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not handed over"), "{output:?}");
    assert_eq!(code(&server.run(&["status"])), 0, "it serves on");
}
