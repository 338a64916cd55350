//! The server as a process of its own, and the world around it that outlives it.

use std::cell::{Cell, RefCell};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdfast_ledger::failpoint::{ARM_VARIABLE, POINT_VARIABLE, Point};
use holdfast_server::{ClientRule, Config, ExportConfig, ExportOptions, ServeOptions, Squash};
use tempfile::TempDir;

use crate::wire::{self, Procedure};

/// Tells this binary that it is the server, and where its world lies.
const WORLD_VARIABLE: &str = "HOLDFAST_CRASH_WORLD";

/// Whether its export is synchronous: 0 or 1.
const SYNC_VARIABLE: &str = "HOLDFAST_CRASH_SYNC";

/// Short, as a client of 4.0 that is not heard of again holds grace open for its time.
const LEASE_SECONDS: u32 = 1;

const SIGKILL: i32 = 9;

/// Serves the world named by the environment, if any is.
pub(crate) fn serve_if_told() {
    let Some(world) = env::var_os(WORLD_VARIABLE).map(PathBuf::from) else { return };
    let is_sync = env::var(SYNC_VARIABLE).as_deref() != Ok("0");
    let (squash, clients) = (Squash::None, vec![ClientRule::All]);
    let rules = ExportOptions { squash, clients, is_sync, ..ExportOptions::default() };
    let share = format!("{}:/export", world.join("files").display()).parse().unwrap();
    let config = Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        state_dir: Some(world.join("state")),
        lease: Some(LEASE_SECONDS),
        rpcbind: Some(false),
        exports: vec![ExportConfig::from_share(share, &rules)],
        ..Config::default()
    };
    holdfast_server::serve(ServeOptions { config, config_file: None, exports: Vec::new() }).unwrap();
}

/// A directory, a state directory, and a server that dies at one point when told to.
pub(crate) struct World {
    dir: TempDir,
    /// Where both directories are.
    base: PathBuf,
    point: Point,
    is_sync: bool,
    server: RefCell<Option<Child>>,
    address: Cell<SocketAddr>,
    xid: Cell<u32>,
    kills: Cell<usize>,
}

impl World {
    pub(crate) fn new(point: Point, is_sync: bool) -> Self {
        Self::on(None, point, is_sync)
    }

    /// One whose two directories lie on a disk mounted here.
    pub(crate) fn on(disk: Option<&Path>, point: Point, is_sync: bool) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = disk.unwrap_or(dir.path()).to_owned();
        fs::create_dir(base.join("files")).unwrap();
        let address = Cell::new("127.0.0.1:0".parse().unwrap());
        let (server, xid, kills) = (RefCell::default(), Cell::new(1), Cell::new(0));
        let world = Self { dir, base, point, is_sync, server, address, xid, kills };
        world.start();
        world
    }

    /// How often the server was killed.
    pub(crate) fn kills(&self) -> usize {
        self.kills.get()
    }

    /// The exported directory, as a local process sees it.
    pub(crate) fn files(&self) -> PathBuf {
        self.base.join("files")
    }

    fn armed(&self) -> PathBuf {
        self.dir.path().join("armed")
    }

    fn start(&self) {
        let mut server = Command::new(env::current_exe().unwrap())
            .args(["--exact", "as_a_server", "--nocapture"])
            .env(WORLD_VARIABLE, &self.base)
            .env(SYNC_VARIABLE, if self.is_sync { "1" } else { "0" })
            .env(POINT_VARIABLE, self.point.name())
            .env(ARM_VARIABLE, self.armed())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| {
            let said = line.split_once("nfs ")?.1;
            said.strip_suffix(" ready").map(|address| address.parse().unwrap())
        });
        self.server.replace(Some(server));
        self.address.set(address.expect("the server says that it is ready"));
    }

    /// A call under a new number.
    pub(crate) fn call(&self, procedure: Procedure, args: &[u8]) -> Vec<u8> {
        self.xid.set(self.xid.get() + 1);
        wire::call(self.xid.get(), procedure, args)
    }

    /// Sends a call and gives its results.
    pub(crate) fn exchange(&self, record: &[u8]) -> Vec<u8> {
        wire::exchange(self.address.get(), record).expect("a reply")
    }

    /// Sends a call, on the way of which the server dies, and starts the server anew. Gives the results where the
    /// call did not come by the point.
    pub(crate) fn kill_with(&self, record: &[u8]) -> Option<Vec<u8>> {
        fs::write(self.armed(), b"").unwrap();
        let results = wire::exchange(self.address.get(), record);
        fs::remove_file(self.armed()).unwrap();
        if results.is_none() {
            self.restart();
        }
        results
    }

    /// Where the server is to be found now.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.get()
    }

    /// Does something over which the server dies at its point, which it must say, and starts it anew.
    pub(crate) fn kill_over(&self, act: impl FnOnce() -> bool) {
        fs::write(self.armed(), b"").unwrap();
        assert!(act(), "the server dies");
        fs::remove_file(self.armed()).unwrap();
        self.restart();
    }

    /// Kills the server wherever it is, and starts it anew.
    pub(crate) fn kill(&self) {
        self.kill_and(|| ());
    }

    /// Kills the server wherever it is, and starts it anew once something else is done.
    pub(crate) fn kill_and(&self, between: impl FnOnce()) {
        self.server.borrow_mut().as_mut().unwrap().kill().unwrap();
        self.bury();
        between();
        self.start();
    }

    fn restart(&self) {
        self.bury();
        self.start();
    }

    fn bury(&self) {
        let status = self.server.borrow_mut().as_mut().unwrap().wait().unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "{status}");
        self.kills.set(self.kills.get() + 1);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.get_mut().take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            let kept = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap()).keep();
            eprintln!("left for a look: {}", kept.display());
        }
    }
}

/// The names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
