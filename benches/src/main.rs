//! `holdfast-bench`: Holdfast against NFS-Ganesha, the same load from the same clients on the same directory of the
//! same file system, in interleaved rounds of one run. Every figure that is printed for comparison is a ratio taken
//! within a round; `docs/bench.md` says how to read them.

mod arena;
mod client;
mod cpu;
mod growth;
mod histogram;
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

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use measure::{Harvest, Plan, Stage};
use plan::{ClientKind, Op, Shape};
use rival::Contender;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use volume::{FsKind, Volume};

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
        /// Its port on the loopback address.
        port: u16,
    },
    /// How long an open waits for a recall, and clients for a restart, planned and killed.
    State {
        /// Restarts of each kind
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
        restarts: u64,
    },
    /// How costs grow: with connections, clients, opens, locks, directories and files
    Growth(growth::GrowthArguments),
    /// What the machine can do: an echo server, iperf3, a local program, a slow disk beside
    Limits(limits::LimitsArguments),
    /// Loads of names and data on `holdfast mount`, over a link with an added round trip.
    Mount(mount::MountArguments),
    /// Random reads and writes by a mount that shares a host with its server.
    SameHost(same_host::SameHostArguments),
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
        default_value = "ganesha,holdfast-async,holdfast-alone,holdfast-sync"
    )]
    servers: Vec<Contender>,
    /// Clients
    #[arg(long, value_delimiter = ',', default_value = "libnfs,raw3,raw41")]
    clients: Vec<ClientKind>,
    /// Operations (all, when not given); rename and unlink bring what they need along
    #[arg(long, value_delimiter = ',')]
    ops: Vec<Op>,
    /// Connections x calls in flight on each
    #[arg(long, value_delimiter = ',', default_value = "4x8")]
    shapes: Vec<Shape>,
    /// Rounds: in each every server has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Milliseconds of each timed operation
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    ms: u64,
    /// Number of each operation that makes or removes names
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// Entries of the directory that is listed
    #[arg(long, default_value_t = 10_000)]
    entries: usize,
    /// The file system below
    #[arg(long, value_enum, default_value_t = FsKind::Xfs)]
    fs: FsKind,
    /// Directory for results.json, table.txt and plot.svg
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Profile every operation of every server with perf, into OUT/perf; the figures are then worth little
    #[arg(long)]
    perf: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.role {
        Some(Role::EchoServer { port }) => rival::serve_echo(port).map(|()| true),
        Some(Role::State { restarts }) => wait_for_state(restarts).map(|()| true),
        Some(Role::Growth(arguments)) => growth::run(&arguments).map(|()| true),
        Some(Role::Limits(arguments)) => limits::run(&arguments).map(|()| true),
        Some(Role::Mount(arguments)) => mount::run(&arguments).map(|()| true),
        Some(Role::SameHost(arguments)) => same_host::run(&arguments).map(|()| true),
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

fn wait_for_state(restarts: u64) -> Result<()> {
    let _arena = arena::enter()?;
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    state::run(usize::try_from(restarts)?, scratch.path())
}

/// Gives whether everything could be measured.
fn run(arguments: &RunArguments) -> Result<bool> {
    let _arena = arena::enter()?;
    ensure!(!arguments.servers.is_empty(), "no servers");
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let volume = Volume::new(arguments.fs, scratch.path(), arguments.entries)?;
    let plan = Plan {
        clients: arguments.clients.clone(),
        shapes: arguments.shapes.clone(),
        ops: with_what_they_need(&arguments.ops),
        time: Duration::from_millis(arguments.ms),
        count: arguments.count,
    };
    let libnfs = plan.clients.contains(&ClientKind::Libnfs);
    let libnfs = libnfs.then(|| client::libnfs::Program::compile(scratch.path())).transpose()?;
    fs::create_dir_all(&arguments.out).with_context(|| arguments.out.display().to_string())?;
    let perf = arguments.perf.then(|| perf::Perf::new(&arguments.out.join("perf"))).transpose()?;
    let stage = Stage {
        plan: &plan,
        volume: &volume,
        scratch: scratch.path(),
        libnfs: libnfs.as_ref(),
        perf: perf.as_ref(),
    };
    let harvest = play(&stage, arguments)?;
    drop(volume);
    let summary = report::Summary::new(&plan, &arguments.servers, arguments.fs, &harvest);
    summary.write(&arguments.out)?;
    print!("{}", summary.table());
    Ok(harvest.failures.is_empty())
}

fn play(stage: &Stage<'_>, arguments: &RunArguments) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    let rounds = usize::try_from(arguments.rounds)?;
    for round in 1..=rounds {
        // The order turns by one each round, so that nobody always comes first.
        let turned = (0..arguments.servers.len()).map(|n| (n + round - 1) % arguments.servers.len());
        for contender in turned.map(|n| arguments.servers[n]) {
            eprintln!("round {round} of {rounds}: {}", contender.name());
            stage
                .turn(contender, round, &mut harvest)
                .with_context(|| format!("the turn of {} in round {round}", contender.name()))?;
        }
        stage.echo_turn(round, &mut harvest).context("the echo server's turn")?;
    }
    Ok(harvest)
}

/// In the order of a turn; names must be made to be renamed, and renamed to be removed under their new name.
fn with_what_they_need(wanted: &[Op]) -> Vec<Op> {
    let is_wanted = |op: &Op| match op {
        Op::Create => wanted.iter().any(|w| matches!(w, Op::Create | Op::Rename | Op::Unlink)),
        Op::Rename => wanted.iter().any(|w| matches!(w, Op::Rename | Op::Unlink)),
        op => wanted.contains(op),
    };
    Op::ALL.into_iter().filter(|op| wanted.is_empty() || is_wanted(op)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_bring_along_what_they_need() {
        assert_eq!(with_what_they_need(&[]), Op::ALL);
        assert_eq!(with_what_they_need(&[Op::Unlink]), [Op::Create, Op::Rename, Op::Unlink]);
        assert_eq!(with_what_they_need(&[Op::Mkdir, Op::Getattr]), [Op::Getattr, Op::Mkdir]);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
