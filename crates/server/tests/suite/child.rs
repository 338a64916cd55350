//! The server as a child: this very test program, started again with a request to serve. So its memory can be
//! told from the tests', and no other binary is needed; `HOLDFAST_BIN` names one to be used instead.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_server::{ClientRule, Config, ExportConfig, ExportOptions, ServeOptions, Squash};

const SOURCE: &str = "HOLDFAST_SUITE_SOURCE";
const STATE: &str = "HOLDFAST_SUITE_STATE";

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Kept open: who writes to a closed pipe ends.
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
    scratch: PathBuf,
}

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) now: u64,
    /// The most that ever was resident.
    pub(crate) peak: u64,
}

/// Not a test: what a child runs.
#[test]
#[ignore = "serves, when another test starts it"]
fn serve() {
    let (Ok(source), Some(state)) = (env::var(SOURCE), env::var_os(STATE)) else { return };
    let options = ExportOptions {
        clients: vec![ClientRule::All],
        squash: Squash::None,
        is_sync: false,
        ..ExportOptions::default()
    };
    let config = Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        state_dir: Some(state.into()),
        rpcbind: Some(false),
        exports: vec![ExportConfig::from_share(source.parse().unwrap(), &options)],
        ..Config::default()
    };
    holdfast_server::serve(ServeOptions { config, config_file: None, exports: Vec::new() }).unwrap();
}

fn command(source: &str, state: &OsString) -> Command {
    if let Some(binary) = env::var_os("HOLDFAST_BIN") {
        let mut command = Command::new(binary);
        command.args([
            "serve",
            source,
            "--listen",
            "127.0.0.1:0",
            "--no-rpcbind",
            "--squash",
            "none",
            "--allow",
            "all",
        ]);
        command.env("HOLDFAST_NO_SUPERVISE", "true");
        command.args(["--async", "--state-dir"]).arg(state);
        return command;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child::serve", "--ignored", "--nocapture"]);
    command.env(SOURCE, source).env(STATE, state);
    command
}

impl Server {
    /// Serves a source as the command line writes it, `async` and without squashing.
    pub(crate) fn start(source: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let scratch = env::temp_dir().join(format!("holdfast-suite-{}-{n}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        let log = fs::File::create(scratch.join("log")).unwrap();
        let mut command = command(source, &scratch.join("state").into_os_string());
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = stdout.by_ref().lines().map_while(Result::ok);
        let address =
            lines.find_map(|line| Some(line.split("nfs ").nth(1)?.strip_suffix(" ready")?.parse().ok()));
        let Some(Some(address)) = address else {
            let log = fs::read_to_string(scratch.join("log")).unwrap_or_default();
            panic!("the server did not start: {log}");
        };
        Self { child, _stdout: stdout, address, scratch }
    }

    pub(crate) fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let field = |name: &str| {
            let line =
                status.lines().find_map(|line| line.strip_prefix(name)).expect("a running process's status");
            line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
        };
        Memory { now: field("VmRSS:"), peak: field("VmHWM:") }
    }

    /// Seconds of processor time used so far, both kinds.
    pub(crate) fn processor_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        let ticks: u64 =
            after_name.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum();
        ticks as f64 / 100.0
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, which the test has told.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = fs::read_to_string(self.scratch.join("log")).unwrap_or_default();
        let _ = fs::remove_dir_all(&self.scratch);
        if !std::thread::panicking() {
            assert!(!log.contains("panicked"), "the server's log tells of a panic: {log}");
        }
    }
}
