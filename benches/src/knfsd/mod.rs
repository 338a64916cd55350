//! The kernel's own NFS server and Holdfast, in turn in one guest, over the same directory, loaded from outside.
//!
//! knfsd has no process whose CPU clock could be read: it works in kernel threads. So both are charged with all the CPU
//! time that this host spends on the guest, its kernel included (`clock`).

mod agent;
mod clock;
mod orders;
mod server;

pub(crate) use agent::{AgentArguments, run as run_agent};

use crate::arena;
use crate::arguments::LoadArguments;
use crate::client;
use crate::measure::{Harvest, Measured, Stage};
use crate::plan::ClientKind;
use crate::report::{Names, Party, Scene, Summary};
use crate::rival::{Contender, Ports};
use crate::volume::FsKind;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use clock::GroupClock;
use holdfast_lab::{Guest, Kernel};
use orders::Orders;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Where the agent listens in the guest.
const AGENT_PORT: u16 = 20_600;
/// How long the guest may take until its agent is there, the volume filled.
const BOOT_PATIENCE: Duration = Duration::from_secs(600);
/// How long it may run in all.
const GUEST_TIME: Duration = Duration::from_secs(6 * 3600);
/// How long a server is left alone after its start, and then watched doing nothing.
const SETTLE: Duration = Duration::from_millis(300);
const IDLE_WATCH: Duration = Duration::from_secs(1);
/// System calls by which their cost is known.
const CALLS: u32 = 20_000;
const NAMES: Names = Names { json: "knfsd.json", table: "knfsd.txt", plot: "knfsd.svg" };

/// `nfsdcld` remembers the clients of 4.1: without it every start begins with a grace period that cannot be ended.
const SCRIPT: &str = r#"
modprobe -qa loop ext4 nfsd || true
grep -qw nfsd /proc/filesystems || { echo "this guest's kernel has no nfsd" >&2; exit 1; }
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
mkdir -p /run/rpc_pipefs /tmp/clients
mount -t rpc_pipefs rpc /run/rpc_pipefs
rpcbind -w
nfsdcld -p /run/rpc_pipefs -s /tmp/clients
"$BENCH" knfsd-agent --listen "$GUEST:$AGENT_PORT" --fs "$FS" --entries "$ENTRIES"
"#;

/// What `knfsd` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct KnfsdArguments {
    /// Servers; holdfast-async and -alone are compared with knfsd-async, holdfast-sync with knfsd-sync
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "knfsd-async,holdfast-async,holdfast-alone,knfsd-sync,holdfast-sync"
    )]
    servers: Vec<Side>,
    #[command(flatten)]
    load: LoadArguments,
    /// The guest's kernel
    #[arg(long, value_enum, default_value_t = KernelKind::Newest)]
    kernel: KernelKind,
    /// The file system below, in the guest's memory; the guests' kernels have no XFS
    #[arg(long, value_enum, default_value_t = FsKind::Ext4)]
    fs: FsKind,
    /// The guest's memory
    #[arg(long, default_value = "2G")]
    memory: String,
}

/// The kernels that the lab has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelKind {
    /// What `make kernel` builds.
    Newest,
    /// Debian's package `user-mode-linux`.
    Debian,
}

/// A contender in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// knfsd, the export `async`.
    KnfsdAsync,
    /// knfsd, the export `sync`, which is its default.
    KnfsdSync,
    /// Holdfast with `--async`.
    HoldfastAsync,
    /// The same with `--local none`.
    HoldfastAlone,
    /// Holdfast as it is by default.
    HoldfastSync,
    /// The echo server, in every round: what any server outside of the kernel costs there at least.
    #[value(skip)]
    Echo,
}

/// How a side is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Knfsd { sync: bool },
    Program(Contender),
    Echo,
}

impl Side {
    /// As people write it, and as the agent is asked for it.
    fn name(self) -> &'static str {
        match self.start() {
            Start::Knfsd { sync: false } => "knfsd-async",
            Start::Knfsd { sync: true } => "knfsd-sync",
            Start::Program(contender) => contender.name(),
            Start::Echo => "echo",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        let known = Self::value_variants().iter().copied().chain([Self::Echo]);
        known.into_iter().find(|side| side.name() == name)
    }

    fn start(self) -> Start {
        match self {
            Self::KnfsdAsync => Start::Knfsd { sync: false },
            Self::KnfsdSync => Start::Knfsd { sync: true },
            Self::HoldfastAsync => Start::Program(Contender::HoldfastAsync),
            Self::HoldfastAlone => Start::Program(Contender::HoldfastAlone),
            Self::HoldfastSync => Start::Program(Contender::HoldfastSync),
            Self::Echo => Start::Echo,
        }
    }

    /// Whom it is compared with: the one that promises the same about what is on disk.
    fn against(self) -> Option<Self> {
        match self {
            Self::HoldfastAsync | Self::HoldfastAlone => Some(Self::KnfsdAsync),
            Self::HoldfastSync => Some(Self::KnfsdSync),
            Self::KnfsdAsync | Self::KnfsdSync | Self::Echo => None,
        }
    }

    fn ports(self, host: Ipv4Addr) -> Ports {
        match self.start() {
            Start::Knfsd { .. } => Ports::on(host),
            Start::Program(_) => Ports { mount: Ports::on(host).nfs, ..Ports::on(host) },
            Start::Echo => Ports::of_echo(host),
        }
    }
}

/// Gives whether everything could be measured.
///
/// Errors when the guest, or a server in it, cannot be started.
pub(crate) fn run(arguments: &KnfsdArguments) -> Result<bool> {
    let _arena = arena::enter()?;
    ensure!(!arguments.servers.is_empty(), "no servers");
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let plan = arguments.load.plan();
    let libnfs = plan.clients.contains(&ClientKind::Libnfs);
    let libnfs = libnfs.then(|| client::libnfs::Program::compile(scratch.path())).transpose()?;
    fs::create_dir_all(&arguments.load.out).with_context(|| arguments.load.out.display().to_string())?;
    let stage = Stage { plan: &plan, scratch: scratch.path(), libnfs: libnfs.as_ref(), perf: None };
    let clock = GroupClock::new()?;
    let guest = clock.within(|| boot(arguments))?;
    guest.wait_for("listening\n", BOOT_PATIENCE)?;
    let mut orders = Orders::connect(SocketAddrV4::new(guest.address(), AGENT_PORT))?;
    let inside = Inside { host: guest.address(), clock: &clock, stage: &stage };
    let call = inside.cost_of_a_call(&mut orders)?;
    let harvest = play(&inside, &mut orders, arguments)?;
    let kernel = orders.kernel().to_owned();
    drop(orders);
    guest.wait()?.success()?;
    let machine = format!(
        "a guest (User Mode Linux {kernel}, one core, where a system call costs {:.2} us of CPU time)",
        call.as_secs_f64() * 1e6
    );
    let scene = Scene { fs: arguments.fs, machine };
    let parties = arguments.servers.iter().map(|side| party(*side, &arguments.servers, &kernel));
    let summary = Summary::new(&plan, parties.collect(), scene, &harvest);
    summary.write(&arguments.load.out, NAMES)?;
    print!("{}", summary.table());
    Ok(harvest.failures.is_empty())
}

fn party(side: Side, servers: &[Side], kernel: &str) -> Party {
    let version = match side.start() {
        Start::Program(contender) => contender.version(),
        Start::Knfsd { .. } | Start::Echo => kernel.to_owned(),
    };
    let against = side.against().filter(|base| servers.contains(base)).map(Side::name);
    Party { name: side.name(), against, version, deaf_to: Vec::new() }
}

fn boot(arguments: &KnfsdArguments) -> Result<Guest> {
    let kernel = match arguments.kernel {
        KernelKind::Newest => Kernel::newest()?,
        KernelKind::Debian => Kernel::Debian61,
    };
    let bench = std::env::current_exe()?;
    let mut environment = vec![
        ("BENCH", bench.display().to_string()),
        ("AGENT_PORT", AGENT_PORT.to_string()),
        ("FS", arguments.fs.name().to_owned()),
        ("ENTRIES", arguments.load.entries.to_string()),
    ];
    if let Some(binary) = std::env::var_os("HOLDFAST_BIN") {
        environment.push(("HOLDFAST_BIN", binary.to_string_lossy().into_owned()));
    }
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let guest = Guest::builder().kernel(kernel).memory(&arguments.memory).timeout(GUEST_TIME);
    guest.start(SCRIPT, &environment)
}

fn play(inside: &Inside<'_>, orders: &mut Orders, arguments: &KnfsdArguments) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    for (round, sides) in arguments.load.turns(&arguments.servers) {
        for side in sides.into_iter().chain([Side::Echo]) {
            eprintln!("round {round} of {}: {}", arguments.load.rounds, side.name());
            inside
                .turn(side, orders, round, &mut harvest)
                .with_context(|| format!("the turn of {} in round {round}", side.name()))?;
        }
    }
    Ok(harvest)
}

/// The guest, as turns need it.
struct Inside<'a> {
    host: Ipv4Addr,
    clock: &'a GroupClock,
    stage: &'a Stage<'a>,
}

impl Inside<'_> {
    /// CPU time of a system call that does nothing: what makes a server dear there that is a program.
    fn cost_of_a_call(&self, orders: &mut Orders) -> Result<Duration> {
        let before = self.clock.read()?;
        orders.calls(CALLS)?;
        Ok((self.clock.read()? - before) / CALLS)
    }

    fn turn(&self, side: Side, orders: &mut Orders, round: usize, harvest: &mut Harvest) -> Result<()> {
        let workloads = self.stage.plan.workloads();
        orders.start(side, workloads.len())?;
        let served = Served::watch(side.ports(self.host), self.clock)?;
        match side.start() {
            Start::Echo => self.stage.echo_bouts(&served, &self.stage.plan.shapes, round, harvest)?,
            // All that are started there speak to all clients.
            Start::Knfsd { .. } | Start::Program(_) => {
                self.stage.bouts((side.name(), &served), &workloads, round, harvest)?;
            }
        }
        orders.stop()
    }
}

/// A server in the guest, which is charged with all that the guest does.
struct Served<'a> {
    ports: Ports,
    clock: &'a GroupClock,
    /// CPU seconds a second that the guest spends while nobody calls.
    idle_rate: f64,
}

impl<'a> Served<'a> {
    fn watch(ports: Ports, clock: &'a GroupClock) -> Result<Self> {
        std::thread::sleep(SETTLE);
        let (started, before) = (Instant::now(), clock.read()?);
        std::thread::sleep(IDLE_WATCH);
        let idle_rate = (clock.read()? - before).as_secs_f64() / started.elapsed().as_secs_f64();
        Ok(Self { ports, clock, idle_rate })
    }
}

impl Measured for Served<'_> {
    fn ports(&self) -> Ports {
        self.ports
    }

    fn cpu_time(&self) -> Result<Duration> {
        self.clock.read()
    }

    fn idle_cost(&self, elapsed: Duration) -> Duration {
        elapsed.mul_f64(self.idle_rate)
    }

    fn pid(&self) -> Result<u32> {
        anyhow::bail!("what runs in a guest is no process of this host")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_found_by_the_name_that_it_goes_by() {
        for side in Side::value_variants().iter().copied().chain([Side::Echo]) {
            assert_eq!(Side::by_name(side.name()), Some(side));
            let written = side.to_possible_value();
            assert!(written.is_none_or(|value| value.get_name() == side.name()), "{side:?}");
        }
        assert_eq!(Side::by_name("ganesha"), None);
    }

    #[test]
    fn holdfast_stands_against_the_export_that_promises_the_same() {
        let all = [Side::KnfsdAsync, Side::HoldfastAlone, Side::HoldfastSync];
        assert_eq!(party(Side::HoldfastAlone, &all, "").against, Some("knfsd-async"));
        assert_eq!(party(Side::HoldfastSync, &all, "").against, None, "knfsd-sync takes no part");
    }
}
