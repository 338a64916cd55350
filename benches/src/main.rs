//! `holdfast-bench`: Holdfast against NFS-Ganesha, the same load from the same clients on the same directory of the
//! same file system, in interleaved rounds of one run. Every figure that is printed for comparison is a ratio taken
//! within a round; `docs/bench.md` says how to read them.

mod arena;
mod arguments;
mod bout;
mod client;
mod compare;
mod cpu;
mod figure;
mod goals;
mod growth;
mod histogram;
mod knfsd;
mod limits;
mod measure;
mod mount;
mod page;
mod perf;
mod plan;
mod plot;
mod report;
mod rival;
mod same_host;
mod state;
mod volume;
mod wakeful;
mod wanted;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::net::SocketAddrV4;
use std::process::ExitCode;

/// Holdfast against other NFS servers, in interleaved rounds of one run (needs the superuser).
#[derive(Debug, Parser)]
#[command(name = "holdfast-bench", args_conflicts_with_subcommands = true, args_override_self = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    compare: compare::CompareArguments,
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
    /// One page of the plots that runs have left in a directory.
    Page(page::PageArguments),
    /// What starts servers in that guest.
    #[command(hide = true)]
    KnfsdAgent(knfsd::AgentArguments),
    /// The loads of `mount`, here; what it runs in a guest.
    #[command(hide = true)]
    MountLoads(mount::LoadsArguments),
    /// The daemon of the file system in memory that `mount` compares with.
    #[command(hide = true)]
    BareMount(mount::BareArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let _wakeful = wakeful::ask();
    let done = match arguments.role {
        Some(Role::EchoServer { address }) => rival::serve_echo(address).map(|()| true),
        Some(Role::State(arguments)) => wait_for_state(&arguments).map(|()| true),
        Some(Role::Growth(arguments)) => growth::run(&arguments).map(|()| true),
        Some(Role::Limits(arguments)) => limits::run(&arguments),
        Some(Role::Mount(arguments)) => mount::run(&arguments).map(|()| true),
        Some(Role::SameHost(arguments)) => same_host::run(&arguments).map(|()| true),
        Some(Role::Knfsd(arguments)) => knfsd::run(&arguments),
        Some(Role::Page(arguments)) => page::run(&arguments).map(|()| true),
        Some(Role::KnfsdAgent(arguments)) => knfsd::run_agent(&arguments).map(|()| true),
        Some(Role::MountLoads(arguments)) => mount::run_loads(&arguments).map(|()| true),
        Some(Role::BareMount(arguments)) => mount::run_bare(&arguments).map(|()| true),
        None => compare::run(&arguments.compare),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
