//! The server under test: the `holdfast` binary, started and ended as a person or an init system would.

use crate::kernel::{checkout, target_dir};
use crate::missing::Missing;
use crate::port::Port;
use crate::process::{self, tail};
use crate::rival;
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to say that it is ready.
const READY_PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A protocol version as a mount names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NfsVersion {
    /// NFSv3 with MOUNT on the same port.
    V3,
    /// NFSv4.0.
    V40,
    /// NFSv4.1.
    V41,
    /// NFSv4.2.
    V42,
}

impl NfsVersion {
    /// Every version.
    pub const ALL: [Self; 4] = [Self::V3, Self::V40, Self::V41, Self::V42];

    /// As `mount -o vers=` takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V3 => "3",
            Self::V40 => "4.0",
            Self::V41 => "4.1",
            Self::V42 => "4.2",
        }
    }
}

impl fmt::Display for NfsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.as_str())
    }
}

/// Which server a run is about, from `HOLDFAST_LAB_TARGET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The `holdfast` binary (the default).
    Holdfast,
    /// NFS-Ganesha (`ganesha`), NFSv4 only: to tell a test's fault from the server's.
    Ganesha,
}

impl Target {
    /// Reads `HOLDFAST_LAB_TARGET`.
    pub fn from_env() -> Self {
        match std::env::var("HOLDFAST_LAB_TARGET").as_deref() {
            Ok("ganesha") => Self::Ganesha,
            _ => Self::Holdfast,
        }
    }
}

/// How a server is to be started; see [`ServerUnderTest::builder`].
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    target: Target,
    directory: PathBuf,
    listen_on: String,
    state_dir: Option<PathBuf>,
    port: Option<u16>,
    lease_seconds: u32,
    squash: String,
    has_portmap: bool,
    has_grace: bool,
    arguments: Vec<String>,
    config: Option<PathBuf>,
    environment: Vec<(String, String)>,
    keeps_listener: bool,
    is_supervised: bool,
    meminfo: Option<PathBuf>,
}

/// A running (or stopped, or killed) server over one directory. Dropped, it is killed.
#[derive(Debug)]
pub struct ServerUnderTest {
    spec: ServerBuilder,
    port: u16,
    /// Ours while the server is away, too, where nobody has fixed it.
    _kept_port: Option<Port>,
    scratch: Scratch,
    child: Option<Child>,
    /// Kept open while the server is away, as a service manager does.
    listener: Option<OwnedFd>,
}

/// Finds the `holdfast` binary: `HOLDFAST_BIN`, else the newer of the release and debug builds.
///
/// Errors with [`Missing`] when there is none.
pub fn holdfast_binary() -> Result<PathBuf, Missing> {
    if let Some(given) = std::env::var_os("HOLDFAST_BIN") {
        let path = PathBuf::from(given);
        return crate::missing::file(&path, "HOLDFAST_BIN names it").map(|()| path);
    }
    let mut folders = vec![target_dir(), checkout().join("target")];
    folders.dedup();
    folders
        .iter()
        .flat_map(|folder| ["release", "debug"].map(|profile| folder.join(profile).join("holdfast")))
        .filter(|candidate| candidate.is_file())
        .max_by_key(|found| found.metadata().and_then(|meta| meta.modified()).ok())
        .ok_or_else(|| Missing::new("the holdfast binary", "cargo build --release --bin holdfast"))
}

impl ServerBuilder {
    /// Has clients find its programs on port 111: through the host's rpcbind, or the server's own port mapper. One
    /// server of a host at a time can.
    pub fn with_portmap(mut self) -> Self {
        self.has_portmap = true;
        self
    }

    /// Has NFS-Ganesha, which begins at once elsewhere, let its clients reclaim what they had first; Holdfast always does.
    pub fn with_grace(mut self) -> Self {
        self.has_grace = true;
        self
    }

    /// The lease, and so the grace time, in seconds (10 where a test does not say).
    pub fn lease_seconds(mut self, seconds: u32) -> Self {
        self.lease_seconds = seconds;
        self
    }

    /// The address to listen on, as `--listen` takes it before the port (`0.0.0.0` where a test does not say).
    pub fn listen_on(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen_on);
        self
    }

    /// `none` (the default here, as most suites act as root), `root` or `all`.
    pub fn squash(mut self, squash: &str) -> Self {
        squash.clone_into(&mut self.squash);
        self
    }

    /// A state directory that outlives the fixture; without it, one that goes with it.
    pub fn state_dir(mut self, dir: &Path) -> Self {
        self.state_dir = Some(dir.to_path_buf());
        self
    }

    /// More arguments of `holdfast serve`.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&word| word.to_owned()));
        self
    }

    /// A configuration file, which names the exports: the directory is served if it does.
    pub fn config(mut self, file: &Path) -> Self {
        self.config = Some(file.to_path_buf());
        self
    }

    /// A variable for the server's environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The server to start, whatever `HOLDFAST_LAB_TARGET` says.
    pub fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// A fixed port; without it, a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Keeps the listening socket open while the server is away, as systemd does for a `.socket` unit: who connects
    /// waits instead of being refused.
    pub fn keep_listener(mut self) -> Self {
        self.keeps_listener = true;
        self
    }

    /// Leaves the server its parent that starts it again, as who runs `holdfast serve` has it.
    pub fn supervised(mut self) -> Self {
        self.is_supervised = true;
        self
    }

    /// Has the server take this file, which may be written in place, for its host's `/proc/meminfo`. As root.
    pub fn meminfo(mut self, file: &Path) -> Self {
        self.meminfo = Some(file.to_path_buf());
        self
    }

    /// Starts the server and waits until it is ready.
    ///
    /// Errors when the binary is missing, when it ends early, and when it is not ready in time; the message
    /// holds what it said.
    pub fn start(self) -> Result<ServerUnderTest> {
        let (port, kept_port) = match self.port {
            Some(fixed) => (fixed, None),
            None => Port::take().map(|port| (port.number(), Some(port)))?,
        };
        let scratch = Scratch::new("server")?;
        let listener = self.keeps_listener.then(|| kept_listener(port)).transpose()?;
        let mut server =
            ServerUnderTest { spec: self, port, _kept_port: kept_port, scratch, child: None, listener };
        server.restart()?;
        Ok(server)
    }
}

impl ServerUnderTest {
    /// A server over `directory` with root not squashed, all clients allowed and a lease of ten seconds.
    pub fn builder(directory: &Path) -> ServerBuilder {
        ServerBuilder {
            target: Target::from_env(),
            directory: directory.to_path_buf(),
            listen_on: "0.0.0.0".to_owned(),
            state_dir: None,
            port: None,
            lease_seconds: 10,
            squash: "none".to_owned(),
            has_portmap: false,
            has_grace: false,
            arguments: Vec::new(),
            config: None,
            environment: Vec::new(),
            keeps_listener: false,
            is_supervised: false,
            meminfo: None,
        }
    }

    /// Kills the server behind its parent, and waits until the next one is ready.
    ///
    /// Errors when there is none, and when no other comes.
    pub fn kill_supervised(&mut self) -> Result<()> {
        let parent = self.child.as_ref().context("the server is not running")?.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let server = children.split_whitespace().next().context("the server is not supervised")?;
        let said_before = self.log().len();
        let killed = Command::new("kill").args(["-KILL", server]).status()?;
        ensure!(killed.success(), "kill {server}: {killed}");
        self.wait_ready(said_before)
    }

    /// The TCP port, the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The export's path: `/` and the directory's last component.
    pub fn export(&self) -> String {
        let name = self.spec.directory.file_name().unwrap_or_default();
        format!("/{}", name.to_string_lossy())
    }

    /// The directory served.
    pub fn directory(&self) -> &Path {
        &self.spec.directory
    }

    /// Starts it, where it is not running: on the same port, with the same state directory.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "the server is running already");
        let log = File::options().create(true).append(true).open(self.log_file())?;
        let said_before = self.log().len();
        let mut command = self.command()?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.envs(self.spec.environment.iter().map(|(name, value)| (name, value)));
        self.child = Some(command.spawn().with_context(|| format!("starting {command:?}"))?);
        self.wait_ready(said_before)
    }

    /// The server's process id.
    ///
    /// Errors when it is not running.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the server is not running")?.id())
    }

    /// Bytes of memory it holds resident.
    pub fn resident_bytes(&self) -> Result<u64> {
        process::resident_bytes(self.pid()?)
    }

    /// CPU time that it has used since its start.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid()?)
    }

    /// Ends it as a crash would (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the server is not running")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Has it replaced by the program on disk, without its clients noticing (SIGUSR2), and waits until that is ready.
    pub fn replace(&mut self) -> Result<()> {
        let said_before = self.log().len();
        self.send(rustix::process::Signal::USR2)?;
        self.wait_ready(said_before)
    }

    /// Has it read its configuration again (SIGHUP), and waits until it has.
    ///
    /// Errors when it has not within 30 s.
    pub fn reload(&self) -> Result<()> {
        let said_before = self.log().len();
        self.send(rustix::process::Signal::HUP)?;
        let deadline = Instant::now() + READY_PATIENCE;
        while !self.log().get(said_before..).is_some_and(|said| said.contains("exports reloaded")) {
            ensure!(Instant::now() < deadline, "not reloaded\n{}", tail(&self.log(), 40));
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Holds it still (SIGSTOP), as an overloaded host might; its connections stay open. Nothing of it runs any more when this
    /// returns.
    pub fn pause(&self) -> Result<()> {
        self.send(rustix::process::Signal::STOP)?;
        let deadline = Instant::now() + READY_PATIENCE;
        // A thread on another processor runs on until that hears of it.
        while !process::is_stopped(self.pid()?)? {
            ensure!(Instant::now() < deadline, "it goes on after SIGSTOP");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Lets it go on after [`ServerUnderTest::pause`].
    pub fn resume(&self) -> Result<()> {
        self.send(rustix::process::Signal::CONT)
    }

    fn send(&self, signal: rustix::process::Signal) -> Result<()> {
        let child = self.child.as_ref().context("the server is not running")?;
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal)?;
        Ok(())
    }

    /// Ends it as an administrator would (SIGTERM), and gives its exit status.
    ///
    /// Errors when it has not ended after `patience`; it is then killed.
    pub fn stop(&mut self, patience: Duration) -> Result<ExitStatus> {
        self.send(rustix::process::Signal::TERM)?;
        let mut child = self.child.take().context("the server is not running")?;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
        child.kill()?;
        child.wait()?;
        bail!("the server did not end within {patience:?} of SIGTERM\n{}", tail(&self.log(), 40))
    }

    /// Errors when the server has ended by itself: a crash that a client's retries might hide.
    pub fn check_alive(&mut self) -> Result<()> {
        let child = self.child.as_mut().context("the server is not running")?;
        if let Some(status) = child.try_wait()? {
            bail!("the server ended by itself with {status}\n{}", tail(&self.log(), 40));
        }
        Ok(())
    }

    /// All that it said on both its outputs, over all its starts.
    pub fn log(&self) -> String {
        let said = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    fn state_dir(&self) -> PathBuf {
        self.spec.state_dir.clone().unwrap_or_else(|| self.scratch.path().join("state"))
    }

    /// What a command of the administrator's says of it: `["status", "--json"]`.
    ///
    /// Errors when the command fails; the message holds what it said.
    pub fn ask(&self, command: &[&str]) -> Result<String> {
        let asked = Command::new(holdfast_binary()?)
            .args(command)
            .arg("--state-dir")
            .arg(self.state_dir())
            .output()
            .with_context(|| format!("holdfast {command:?}"))?;
        let said = String::from_utf8_lossy(&asked.stderr);
        ensure!(asked.status.success(), "holdfast {command:?}: {}\n{said}", asked.status);
        Ok(String::from_utf8(asked.stdout)?)
    }

    fn command(&self) -> Result<Command> {
        let spec = &self.spec;
        let state_dir = self.state_dir();
        if spec.target == Target::Ganesha {
            return rival::ganesha_command(
                self.scratch.path(),
                &spec.directory,
                self.port,
                (spec.lease_seconds, spec.has_grace),
            );
        }
        let mut command = match &spec.meminfo {
            Some(meminfo) => among_mounts_of_its_own(meminfo, &holdfast_binary()?),
            None => Command::new(holdfast_binary()?),
        };
        command
            // What a test kills is the server.
            .envs((!spec.is_supervised).then_some(("HOLDFAST_NO_SUPERVISE", "true")))
            .arg("serve")
            .args(["--listen", &format!("{}:{}", spec.listen_on, self.port)]);
        match &spec.config {
            Some(file) => command.arg("--config").arg(file),
            None => command.arg(&spec.directory).args(["--allow", "all", "--squash", &spec.squash]),
        };
        command
            .args(["--lease", &spec.lease_seconds.to_string()])
            .args((!spec.has_portmap).then_some("--no-rpcbind"))
            .arg("--state-dir")
            .arg(&state_dir)
            .args(&spec.arguments);
        Ok(match &self.listener {
            Some(listener) => passing(listener, &command),
            None => command,
        })
    }

    /// Ready is what the server says itself, in a line that names its port; a rival is ready when it accepts.
    fn wait_ready(&mut self, said_before: usize) -> Result<()> {
        let deadline = Instant::now() + READY_PATIENCE;
        let port = format!(":{} ", self.port);
        let says_ready =
            |said: &str| said.lines().any(|line| line.contains(&port) && line.ends_with("ready"));
        loop {
            self.check_alive()?;
            let is_ready = match self.spec.target {
                Target::Holdfast => self.log().get(said_before..).is_some_and(says_ready),
                Target::Ganesha => std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok(),
            };
            if is_ready {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the server was not ready after {READY_PATIENCE:?}\n{}",
                tail(&self.log(), 40)
            );
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for ServerUnderTest {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A listening socket that outlives the server.
fn kept_listener(port: u16) -> Result<OwnedFd> {
    let socket = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    // Out of the way of the number that it is passed under, and open in the programs that are started.
    let kept = rustix::io::fcntl_dupfd_cloexec(&socket, 100)?;
    rustix::io::fcntl_setfd(&kept, rustix::io::FdFlags::empty())?;
    Ok(kept)
}

/// The program to be run where another file lies at `/proc/meminfo`, as the process that is started.
fn among_mounts_of_its_own(meminfo: &Path, program: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "bash", "-c", "mount --bind \"$0\" /proc/meminfo && exec \"$@\""]);
    unshare.arg(meminfo).arg(program);
    unshare
}

/// The command with the socket passed as a service manager does: descriptor 3, told of in the environment.
fn passing(listener: &OwnedFd, command: &Command) -> Command {
    let mut shell = Command::new("bash");
    let script = format!("exec 3<&{0}; export LISTEN_PID=$$; exec \"$0\" \"$@\"", listener.as_raw_fd());
    shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    shell.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "holdfast.socket");
    shell
}
