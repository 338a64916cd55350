//! Who takes part: each from its own file, which makes its configuration and starts it in the foreground.

mod echo;
mod ganesha;
mod holdfast;
mod nfs3_server;

pub(crate) use echo::serve as serve_echo;

use crate::arena::wait_for;
use crate::cpu;
use crate::plan::ClientKind;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to accept connections.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end when asked to.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long it is watched doing nothing.
const IDLE_WATCH: Duration = Duration::from_millis(500);

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// NFS-Ganesha with its VFS back end, Debian's package, its defaults.
    Ganesha,
    /// The same, set up for speed.
    GaneshaTuned,
    /// Holdfast with `--async`: the fair comparison, as Ganesha forces no metadata to disk.
    HoldfastAsync,
    /// The same with `--local none`: it may remember what it listed, as Ganesha does without being told.
    HoldfastAlone,
    /// Holdfast as it is by default.
    HoldfastSync,
    /// The published server over the crate `nfs3_server`, mirroring a directory: NFSv3 alone.
    Nfs3Server,
}

impl Contender {
    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ganesha => "ganesha",
            Self::GaneshaTuned => "ganesha-tuned",
            Self::HoldfastAsync => "holdfast-async",
            Self::HoldfastAlone => "holdfast-alone",
            Self::HoldfastSync => "holdfast-sync",
            Self::Nfs3Server => "nfs3-server",
        }
    }

    /// Whether it can be asked by that client at all.
    pub(crate) fn speaks(self, client: ClientKind) -> bool {
        self != Self::Nfs3Server || client != ClientKind::Raw41
    }

    /// Whether all that is asked of it must succeed. Where not, what it cannot do is a result like others.
    pub(crate) fn must_succeed(self) -> bool {
        self != Self::Nfs3Server
    }

    /// What it says its version is; empty when it does not say.
    pub(crate) fn version(self) -> String {
        let asked = match self {
            Self::Ganesha | Self::GaneshaTuned => Ok(ganesha::version_command()),
            Self::Nfs3Server => nfs3_server::version_command(),
            Self::HoldfastAsync | Self::HoldfastAlone | Self::HoldfastSync => holdfast::version_command(),
        };
        let said = asked.ok().and_then(|mut command| command.output().ok());
        let said =
            said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        said.lines().next().unwrap_or_default().trim().trim_end_matches(':').to_owned()
    }

    /// Starts it over `export`, with its files in `scratch` (an own, empty directory), and waits until it is
    /// ready.
    ///
    /// Errors when it cannot be started, ends at once, or is not ready in time; the message holds what it said.
    pub(crate) fn start(self, export: &Path, scratch: &Path) -> Result<Server> {
        let mut server = self.start_again(export, scratch)?;
        server.watch_idle()?;
        Ok(server)
    }

    /// The same without watching what it does by itself: for a server whose start is being timed.
    ///
    /// Errors likewise.
    pub(crate) fn start_again(self, export: &Path, scratch: &Path) -> Result<Server> {
        self.start_on(Ipv4Addr::LOCALHOST, export, scratch)
    }

    /// The same on another address of this host.
    ///
    /// Errors likewise.
    pub(crate) fn start_on(self, host: Ipv4Addr, export: &Path, scratch: &Path) -> Result<Server> {
        let ports = Ports::on(host);
        match self {
            Self::Ganesha | Self::GaneshaTuned => {
                let is_tuned = self == Self::GaneshaTuned;
                let settings = if is_tuned { ganesha::Settings::Tuned } else { ganesha::Settings::Default };
                Server::start(
                    self.name(),
                    ganesha::command(export, scratch, ports, settings)?,
                    scratch,
                    ports,
                )
            }
            Self::Nfs3Server => {
                let ports = Ports { mount: ports.nfs, ..ports };
                Server::start(self.name(), nfs3_server::command(export, ports)?, scratch, ports)
            }
            Self::HoldfastAsync | Self::HoldfastAlone | Self::HoldfastSync => {
                let ports = Ports { mount: ports.nfs, ..ports };
                let flags: &[&str] = match self {
                    Self::HoldfastAlone => &["--async", "--local", "none"],
                    Self::HoldfastAsync => &["--async"],
                    _ => &[],
                };
                Server::start(self.name(), holdfast::command(export, scratch, ports, flags)?, scratch, ports)
            }
        }
    }
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// NFS.
    pub(crate) nfs: SocketAddrV4,
    /// MOUNT version 3.
    pub(crate) mount: SocketAddrV4,
}

impl Ports {
    /// Those of a contender that has one for each, on an address.
    pub(crate) fn on(host: Ipv4Addr) -> Self {
        Self { nfs: SocketAddrV4::new(host, 20_490), mount: SocketAddrV4::new(host, 20_048) }
    }

    /// Those of the echo server.
    pub(crate) fn of_echo(host: Ipv4Addr) -> Self {
        let nfs = SocketAddrV4::new(host, 20_500);
        Self { nfs, mount: nfs }
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) ports: Ports,
    /// CPU seconds a second that it spends without clients.
    idle_rate: f64,
}

impl Server {
    /// Starts the echo server: the least that a server of RPC messages can cost.
    ///
    /// Errors as [`Contender::start`].
    pub(crate) fn start_echo(scratch: &Path) -> Result<Self> {
        let mut server = Self::start_echo_on(Ipv4Addr::LOCALHOST, scratch)?;
        server.watch_idle()?;
        Ok(server)
    }

    /// The same on another address of this host, without watching what it does by itself.
    ///
    /// Errors likewise.
    pub(crate) fn start_echo_on(host: Ipv4Addr, scratch: &Path) -> Result<Self> {
        let ports = Ports::of_echo(host);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["echo-server", &ports.nfs.to_string()]);
        Self::start("echo", command, scratch, ports)
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        // That it is gone already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks Holdfast to put the program on disk in its own place.
    ///
    /// Errors when it is gone.
    pub(crate) fn upgrade(&self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::USR2).context("the server is gone")
    }

    fn start(name: &str, mut command: Command, scratch: &Path, ports: Ports) -> Result<Self> {
        let log_path = scratch.join("log");
        let log = File::create(&log_path)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let server = Self { child, ports, idle_rate: 0.0 };
        server.become_ready().with_context(|| {
            let said = std::fs::read_to_string(&log_path).unwrap_or_default();
            let last: Vec<_> = said.lines().rev().take(20).collect();
            format!("{name}, which said:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"))
        })?;
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time used since it began.
    ///
    /// Errors when it is gone.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        cpu::of_process(self.pid()).context("the server is gone")
    }

    /// Bytes of memory that it has to itself.
    ///
    /// Errors when it is gone.
    pub(crate) fn memory_bytes(&self) -> Result<i64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kib: i64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib << 10)
    }

    /// CPU time that `elapsed` costs it without clients.
    pub(crate) fn idle_cost(&self, elapsed: Duration) -> Duration {
        elapsed.mul_f64(self.idle_rate)
    }

    fn become_ready(&self) -> Result<()> {
        for address in [self.ports.nfs, self.ports.mount] {
            wait_for(address, READY_PATIENCE)?;
        }
        Ok(())
    }

    fn watch_idle(&mut self) -> Result<()> {
        // What starting left to do must not count as idling.
        std::thread::sleep(Duration::from_millis(300));
        ensure!(self.child.try_wait()?.is_none(), "the server ended by itself");
        let (started, before) = (Instant::now(), self.cpu_time()?);
        std::thread::sleep(IDLE_WATCH);
        self.idle_rate = (self.cpu_time()? - before).as_secs_f64() / started.elapsed().as_secs_f64();
        Ok(())
    }
}

impl Drop for Server {
    /// Asks first, so that a server that registered with rpcbind can take its registration back.
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let deadline = Instant::now() + END_PATIENCE;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
