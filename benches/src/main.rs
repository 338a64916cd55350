//! `holdfast-bench`: Holdfast against NFS-Ganesha, the same load from the same clients on the same directory of the
//! same file system, in interleaved rounds of one run. Every figure that is printed for comparison is a ratio taken
//! within a round; `docs/bench.md` says how to read them.

mod arena;
mod arguments;
mod client;
mod cpu;
mod growth;
mod histogram;
mod knfsd;
mod limits;
mod measure;
mod mount;
mod perf;
mod plan;
mod plot;
mod report;
mod rival;
mod same_host;
mod state;
mod volume;
mod wanted;

use anyhow::{Context, Result, ensure};
use arguments::LoadArguments;
use clap::{Parser, Subcommand};
use measure::{Harvest, Stage};
use plan::ClientKind;
use report::{Names, Party, Scene, Summary};
use rival::Contender;
use std::fs;
use std::net::SocketAddrV4;
use std::process::ExitCode;
use volume::{FsKind, Volume};

/// What the run against other servers leaves.
const NAMES: Names = Names { json: "results.json", table: "table.txt", plot: "plot.svg" };

/// Holdfast against other NFS servers, in interleaved rounds of one run (needs the superuser).
#[derive(Debug, Parser)]
#[command(name = "holdfast-bench", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The echo server that the bench starts for reference.
    #[command(hide = true)]
    EchoServer {
        /// Its address and port.
        address: SocketAddrV4,
    },
    /// How long an open waits for a recall, and a client with state for a restart, planned and killed
    State(state::StateArguments),
    /// How costs grow: with connections, clients, opens, locks, directories and files
    Growth(growth::GrowthArguments),
    /// What the machine can do: an echo server, iperf3, a local program, a slow disk beside
    Limits(limits::LimitsArguments),
    /// Loads of names and data on `holdfast mount`, over a link with an added round trip.
    Mount(mount::MountArguments),
    /// Random reads and writes by a mount that shares a host with its server.
    SameHost(same_host::SameHostArguments),
    /// The kernel's own server and Holdfast, both in one guest.
    Knfsd(knfsd::KnfsdArguments),
    /// What starts servers in that guest.
    #[command(hide = true)]
    KnfsdAgent(knfsd::AgentArguments),
    /// The loads of `mount`, here; what it runs in a guest.
    #[command(hide = true)]
    MountLoads(mount::LoadsArguments),
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// Servers; the first is what the others are compared with
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ganesha,holdfast-async,holdfast-alone,holdfast-sync,nfs3-server"
    )]
    servers: Vec<Contender>,
    #[command(flatten)]
    load: LoadArguments,
    /// The file system below
    #[arg(long, value_enum, default_value_t = FsKind::Xfs)]
    fs: FsKind,
    /// Profile every operation of every server with perf, into OUT/perf; the figures are then worth little
    #[arg(long)]
    perf: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.role {
        Some(Role::EchoServer { address }) => rival::serve_echo(address).map(|()| true),
        Some(Role::State(arguments)) => wait_for_state(&arguments).map(|()| true),
        Some(Role::Growth(arguments)) => growth::run(&arguments).map(|()| true),
        Some(Role::Limits(arguments)) => limits::run(&arguments),
        Some(Role::Mount(arguments)) => mount::run(&arguments).map(|()| true),
        Some(Role::SameHost(arguments)) => same_host::run(&arguments).map(|()| true),
        Some(Role::Knfsd(arguments)) => knfsd::run(&arguments),
        Some(Role::KnfsdAgent(arguments)) => knfsd::run_agent(&arguments).map(|()| true),
        Some(Role::MountLoads(arguments)) => mount::run_loads(&arguments).map(|()| true),
        None => run(&arguments.run),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("holdfast-bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn wait_for_state(arguments: &state::StateArguments) -> Result<()> {
    let _arena = arena::enter()?;
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    state::run(arguments, scratch.path())
}

/// Gives whether everything could be measured.
fn run(arguments: &RunArguments) -> Result<bool> {
    let _arena = arena::enter()?;
    ensure!(!arguments.servers.is_empty(), "no servers");
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let volume = Volume::new(arguments.fs, scratch.path(), arguments.load.entries)?;
    let plan = arguments.load.plan();
    let libnfs = plan.clients.contains(&ClientKind::Libnfs);
    let libnfs = libnfs.then(|| client::libnfs::Program::compile(scratch.path())).transpose()?;
    fs::create_dir_all(&arguments.load.out).with_context(|| arguments.load.out.display().to_string())?;
    let perf = arguments.perf.then(|| perf::Perf::new(&arguments.load.out.join("perf"))).transpose()?;
    let stage = Stage { plan: &plan, scratch: scratch.path(), libnfs: libnfs.as_ref(), perf: perf.as_ref() };
    let harvest = play(&stage, &volume, arguments)?;
    drop(volume);
    let scene = Scene::here(arguments.fs);
    let summary = Summary::new(&plan, parties(&arguments.servers, &plan.clients), scene, &harvest);
    summary.write(&arguments.load.out, NAMES)?;
    print!("{}", summary.table());
    let must_succeed = arguments.servers.iter().filter(|server| server.must_succeed());
    let must_succeed: Vec<_> = must_succeed.map(|server| server.name()).collect();
    Ok(!harvest.failures.iter().any(|failure| must_succeed.contains(&failure.contender)))
}

/// All are compared with the first.
fn parties(servers: &[Contender], clients: &[ClientKind]) -> Vec<Party> {
    let deaf_to = |server: Contender| clients.iter().copied().filter(move |client| !server.speaks(*client));
    let party = |(place, server): (usize, &Contender)| Party {
        name: server.name(),
        against: servers.first().filter(|_| place > 0).map(|first| first.name()),
        version: server.version(),
        deaf_to: deaf_to(*server).collect(),
    };
    servers.iter().enumerate().map(party).collect()
}

fn play(stage: &Stage<'_>, volume: &Volume, arguments: &RunArguments) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    for (round, contenders) in arguments.load.turns(&arguments.servers) {
        for contender in contenders {
            eprintln!("round {round} of {}: {}", arguments.load.rounds, contender.name());
            stage
                .turn(contender, volume, round, &mut harvest)
                .with_context(|| format!("the turn of {} in round {round}", contender.name()))?;
        }
        stage.echo_turn(round, &mut harvest).context("the echo server's turn")?;
    }
    Ok(harvest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
