//! The server as a child, started from a file of its own, so that the file can be replaced.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_server::supervisor;
use holdfast_server::{ClientRule, Config, ExportConfig, ExportOptions, ServeOptions, Squash};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const WORLD: &str = "HOLDFAST_HANDOVER_WORLD";

/// Set, the child keeps a server as a child of its own.
const SUPERVISED: &str = "HOLDFAST_HANDOVER_SUPERVISED";

/// Not a test: what a child runs.
#[test]
#[ignore = "serves, when another test starts it"]
fn serve() {
    let Some(world) = env::var_os(WORLD).map(PathBuf::from) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let options =
        ExportOptions { clients: vec![ClientRule::All], squash: Squash::None, ..ExportOptions::default() };
    let share = |dir: &str, path: &str| {
        let share = format!("{}:{path}", world.join(dir).display()).parse().unwrap();
        ExportConfig::from_share(share, &options)
    };
    let mut exports = vec![share("files", "/export")];
    if world.join("others").is_dir() {
        exports.push(share("others", "/other"));
    }
    let config = Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        state_dir: Some(world.join("state")),
        rpcbind: Some(false),
        exports,
        // What a test made there says how much memory there is.
        memory_told_below: Some(world.join("host")).filter(|host| host.is_dir()),
        ..Config::default()
    };
    if env::var_os(SUPERVISED).is_some() && supervisor::is_wanted() {
        let Err(error) = supervisor::supervise() else { return };
        eprintln!("{error:#}");
        std::process::exit(1);
    }
    holdfast_server::serve(ServeOptions { config, config_file: None, exports: Vec::new() }).unwrap();
}

/// A running server, killed when dropped.
pub(crate) struct Server {
    world: TempDir,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Self {
        let world = tempfile::tempdir().unwrap();
        fs::create_dir(world.path().join("files")).unwrap();
        fs::copy(env::current_exe().unwrap(), world.path().join("program")).unwrap();
        Self::start_in(world, spawn)
    }

    /// With a second export, `/other`, of `others`.
    pub(crate) fn with_another_export() -> Self {
        let world = tempfile::tempdir().unwrap();
        for dir in ["files", "others"] {
            fs::create_dir(world.path().join(dir)).unwrap();
        }
        fs::copy(env::current_exe().unwrap(), world.path().join("program")).unwrap();
        Self::start_in(world, spawn)
    }

    /// With a parent that starts it again.
    pub(crate) fn supervised() -> Self {
        let world = tempfile::tempdir().unwrap();
        fs::create_dir(world.path().join("files")).unwrap();
        fs::copy(env::current_exe().unwrap(), world.path().join("program")).unwrap();
        Self::start_in(world, |command| spawn(command.env(SUPERVISED, "1")))
    }

    /// The server behind its parent.
    pub(crate) fn behind(&self) -> Pid {
        let parent = self.child.id();
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).unwrap();
        // Of whichever thread the test runs on there.
        let children = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap());
        let all = children.collect::<String>();
        Pid::from_raw(all.trim().parse().unwrap()).unwrap()
    }

    /// Waits for its end, whatever that is.
    pub(crate) fn status(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Starts it in a world that may have been served before, by whatever way `spawn` goes.
    pub(crate) fn start_in(world: TempDir, spawn: impl FnOnce(&mut Command) -> Child) -> Self {
        let mut command = Command::new(world.path().join("program"));
        command.args(["--exact", "server::serve", "--ignored", "--nocapture"]);
        command.env(WORLD, world.path()).env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
        let log = fs::File::options().append(true).create(true).open(world.path().join("log")).unwrap();
        let mut child = spawn(command.stdout(Stdio::piped()).stderr(log));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut server = Self { world, child, lines, address: "127.0.0.1:0".parse().unwrap() };
        server.address = server.is_ready();
        server
    }

    /// Waits until it says that it serves.
    pub(crate) fn is_ready(&mut self) -> SocketAddr {
        let said = self.lines.by_ref().map_while(Result::ok).find_map(|line| {
            let address = line.split_once("nfs ")?.1.strip_suffix(" ready")?;
            Some(address.parse().unwrap())
        });
        said.unwrap_or_else(|| panic!("the server did not start: {}", self.log()))
    }

    /// Has it replaced by what lies at its path, and waits until that serves.
    pub(crate) fn replace(&mut self) {
        self.signal(Signal::USR2);
        assert_eq!(self.is_ready(), self.address, "the same port");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Puts another program where it was started from.
    pub(crate) fn install(&self, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let new = self.path("program.new");
        fs::write(&new, script).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, self.path("program")).unwrap();
    }

    /// Waits until its log has this line's part.
    pub(crate) fn says(&self, part: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.log().contains(part) {
            assert!(Instant::now() < until, "the server never says {part:?}: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// What the new programs measured: milliseconds for which nothing was served, each.
    pub(crate) fn stills(&self) -> Vec<u64> {
        let log = self.log();
        let each = log.split("still_ms=").skip(1);
        each.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect()
    }

    /// Whether a peer that is gone costs an error (SIGPIPE is number 13) and not the process.
    pub(crate) fn ignores_broken_pipes(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 << 12 != 0
    }

    /// Lets it open so many more and no others.
    pub(crate) fn leave_descriptors(&self, count: u64) {
        let resource = rustix::process::Resource::Nofile;
        let maximum = rustix::process::getrlimit(resource).maximum;
        let current = Some(self.descriptors() as u64 + count);
        let limit = rustix::process::Rlimit { current, maximum };
        rustix::process::prlimit(Some(Pid::from_child(&self.child)), resource, limit).unwrap();
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.path().join(name)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.world.path().join("files").join(name)
    }

    /// Kills it, and gives the world it served.
    pub(crate) fn killed(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let empty = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.world, empty)
    }

    /// Waits for its end, and gives the world it served.
    pub(crate) fn ended(mut self) -> TempDir {
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
        let empty = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.world, empty)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, which the test has told.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log: {}", self.log());
        } else {
            assert!(!self.log().contains("panicked"), "the log tells of a panic: {}", self.log());
        }
    }
}

/// Starts a program that was just written. A child of another test, forked meanwhile, may have it open for writing until
/// it runs a program of its own.
pub(crate) fn spawn(command: &mut Command) -> Child {
    loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(5));
            }
            child => return child.unwrap(),
        }
    }
}

/// The handle of the exported directory, by MOUNT.
pub(crate) fn root(client: &mut crate::client::Client) -> Vec<u8> {
    client.mount(b"/export")
}

/// Whether a path is there: for `Path` in messages.
pub(crate) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
