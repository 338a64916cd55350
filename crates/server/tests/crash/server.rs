//! The server as a process of its own, and the world around it that outlives it.

use std::cell::{Cell, RefCell};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdfast_ledger::failpoint::{self, ARM_VARIABLE, POINT_VARIABLE, Point};
use holdfast_server::{ClientRule, Config, ExportConfig, ExportOptions, ServeOptions, Squash};
use tempfile::TempDir;

use crate::wire::{self, Line, Procedure};

/// Tells this binary that it is the server, and where its world lies.
const WORLD_VARIABLE: &str = "HOLDFAST_CRASH_WORLD";

/// Whether its export is synchronous: 0 or 1.
const SYNC_VARIABLE: &str = "HOLDFAST_CRASH_SYNC";

/// Its lease in seconds.
const LEASE_VARIABLE: &str = "HOLDFAST_CRASH_LEASE";

/// Short, as a client of 4.0 that is not heard of again holds grace open for its time.
const SHORT_LEASE_SECONDS: u32 = 1;

/// Longer than any test that needs its clients to keep what they hold.
const LONG_LEASE_SECONDS: u32 = 300;

const SIGKILL: i32 = 9;

/// Serves the world named by the environment, if any is.
pub(crate) fn serve_if_told() {
    let Some(world) = env::var_os(WORLD_VARIABLE).map(PathBuf::from) else { return };
    holdfast_backend_local::failpoint::when_half_made(|| failpoint::pass(Point::HalfMade));
    let is_sync = env::var(SYNC_VARIABLE).as_deref() != Ok("0");
    let (squash, clients) = (Squash::None, vec![ClientRule::All]);
    let rules = ExportOptions { squash, clients, is_sync, ..ExportOptions::default() };
    let share = format!("{}:/export", world.join("files").display()).parse().unwrap();
    let config = Config {
        listen: ["127.0.0.1:0", "127.0.0.2:0"].map(|address| address.parse().unwrap()).to_vec(),
        state_dir: Some(world.join("state")),
        lease: env::var(LEASE_VARIABLE).ok().and_then(|seconds| seconds.parse().ok()),
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
    lease_seconds: u32,
    server: RefCell<Option<Child>>,
    addresses: Cell<[SocketAddr; 2]>,
    xid: Cell<u32>,
    kills: Cell<usize>,
    /// How often the machine came up again.
    boots: Cell<u32>,
}

impl World {
    pub(crate) fn new(point: Point, is_sync: bool) -> Self {
        Self::begin(None, point, is_sync, SHORT_LEASE_SECONDS)
    }

    /// One with a lease of so many seconds.
    pub(crate) fn of_lease(point: Point, is_sync: bool, seconds: u32) -> Self {
        Self::begin(None, point, is_sync, seconds)
    }

    /// One whose two directories lie on a disk mounted here; the exported one may be there already.
    pub(crate) fn on(disk: &Path, point: Point, is_sync: bool) -> Self {
        Self::begin(Some(disk), point, is_sync, SHORT_LEASE_SECONDS)
    }

    /// One in which nobody's lease ends, however busy the machine is; on a disk where one is given.
    pub(crate) fn lasting(disk: Option<&Path>, point: Point, is_sync: bool) -> Self {
        Self::begin(disk, point, is_sync, LONG_LEASE_SECONDS)
    }

    fn begin(disk: Option<&Path>, point: Point, is_sync: bool, lease_seconds: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = disk.unwrap_or(dir.path()).to_owned();
        fs::create_dir_all(base.join("files")).unwrap();
        let addresses = Cell::new(["127.0.0.1:0".parse().unwrap(); 2]);
        let (server, xid, kills, boots) = (RefCell::default(), Cell::new(1), Cell::new(0), Cell::new(0));
        let world = Self { dir, base, point, is_sync, lease_seconds, server, addresses, xid, kills, boots };
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

    /// The server's own directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    fn armed(&self) -> PathBuf {
        self.dir.path().join("armed")
    }

    /// This binary, on the boot of the machine that it is by now.
    fn program(&self) -> Command {
        let this = env::current_exe().unwrap();
        if self.boots.get() == 0 {
            return Command::new(this);
        }
        let boot = self.dir.path().join("boot");
        fs::write(&boot, format!("{:08x}-0000-4000-8000-000000000000\n", self.boots.get())).unwrap();
        // By this file alone a server knows one boot of the machine from another.
        let bind = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "sh", "-c", bind]).arg(boot).arg(this);
        command
    }

    fn start(&self) {
        let mut server = self
            .program()
            .args(["--exact", "as_a_server", "--nocapture"])
            .env(WORLD_VARIABLE, &self.base)
            .env(SYNC_VARIABLE, if self.is_sync { "1" } else { "0" })
            .env(LEASE_VARIABLE, self.lease_seconds.to_string())
            .env(POINT_VARIABLE, self.point.name())
            .env(ARM_VARIABLE, self.armed())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).filter_map(|line| {
            let said = line.split_once("nfs ")?.1;
            said.strip_suffix(" ready").map(|address| address.parse().unwrap())
        });
        let addresses: Vec<_> = ready.take(2).collect();
        self.server.replace(Some(server));
        self.addresses.set(addresses.try_into().expect("the server says of both addresses that it is ready"));
    }

    /// A call of root's under a new number.
    pub(crate) fn call(&self, procedure: Procedure, args: &[u8]) -> Vec<u8> {
        self.call_as(0, procedure, args)
    }

    /// The same, of another user's.
    pub(crate) fn call_as(&self, uid: u32, procedure: Procedure, args: &[u8]) -> Vec<u8> {
        self.xid.set(self.xid.get() + 1);
        wire::call(self.xid.get(), uid, procedure, args)
    }

    /// A connection to the first of its addresses, or to the second.
    pub(crate) fn connect(&self, which: usize) -> Line {
        Line::connect(self.addresses.get()[which]).expect("the server listens")
    }

    /// Sends a call on a connection of its own and gives its results.
    pub(crate) fn exchange(&self, record: &[u8]) -> Vec<u8> {
        self.connect(0).exchange(record).expect("a reply")
    }

    /// Sends a call, on the way of which the server dies, and starts the server anew. Gives the results where the
    /// call did not come by the point.
    pub(crate) fn kill_with(&self, record: &[u8]) -> Option<Vec<u8>> {
        self.kill_at(1, record, || ())
    }

    /// As [`Self::kill_with`], the how manieth passing of the point being the last, with something done before the server is
    /// started anew.
    pub(crate) fn kill_at(&self, nth: usize, record: &[u8], between: impl FnOnce()) -> Option<Vec<u8>> {
        fs::write(self.armed(), nth.to_string()).unwrap();
        let results = self.connect(0).exchange(record);
        fs::remove_file(self.armed()).unwrap();
        if results.is_none() {
            self.bury();
            between();
            self.start();
        }
        results
    }

    /// Kills the server wherever it is, and starts it anew on another boot of the machine, once something else is done.
    pub(crate) fn lose_power(&self, between: impl FnOnce()) {
        self.kill_and(|| {
            self.boots.set(self.boots.get() + 1);
            between();
        });
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
