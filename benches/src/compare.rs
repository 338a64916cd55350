//! The comparison with other servers: who takes part, in which order, and what it leaves.
//!
//! What alternates is one client in one shape: a server is started for its operations and ended, then the next server has
//! the same. So what is compared lies seconds apart and not minutes, in which a shared machine may become another one; and
//! no two servers run at a time, of which one would pay for what the other is told about.

use crate::arguments::LoadArguments;
use crate::measure::{Harvest, Plan, Stage, Workload};
use crate::plan::{ClientKind, Shape};
use crate::report::{Names, Party, Scene, Summary};
use crate::rival::Contender;
use crate::volume::{FsKind, Volume};
use crate::{arena, client, perf};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Instant;

/// What it leaves.
const NAMES: Names = Names { json: "results.json", table: "table.txt", plot: "plot.svg" };

/// What the comparison takes.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArguments {
    /// Servers; the first is what the others are compared with
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ganesha,ganesha-tuned,holdfast-async,holdfast-alone,holdfast-sync,nfs3-server"
    )]
    servers: Vec<Contender>,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    also: AlsoArguments,
    /// The file system below
    #[arg(long, value_enum, default_value_t = FsKind::Xfs)]
    fs: FsKind,
    /// Profile every operation of every server with perf, into OUT/perf; the figures are then worth little
    #[arg(long)]
    perf: bool,
}

/// Further shapes: to have all servers in all of them in all rounds would take hours.
#[derive(Debug, clap::Args)]
struct AlsoArguments {
    /// Further shapes, for --also-servers alone and in the first --also-rounds rounds
    #[arg(long, value_delimiter = ',')]
    also_shapes: Vec<Shape>,
    /// Those of --servers that are measured in further shapes
    #[arg(long, value_delimiter = ',', default_value = "ganesha,holdfast-async")]
    also_servers: Vec<Contender>,
    /// The rounds in which they are
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    also_rounds: u64,
}

impl CompareArguments {
    fn plan(&self) -> Plan {
        let mut plan = self.load.plan();
        let further = self.also.also_shapes.iter().filter(|shape| !self.load.shapes.contains(shape));
        plan.shapes.extend(further);
        plan
    }

    /// Whether a server is measured in a shape in a round.
    fn has(&self, contender: Contender, shape: Shape, round: usize) -> bool {
        let is_among_all = self.load.shapes.contains(&shape);
        is_among_all || self.also.also_servers.contains(&contender) && round as u64 <= self.also.also_rounds
    }
}

/// Gives whether everything could be measured.
///
/// Errors when the volume or a server cannot be had.
pub(crate) fn run(arguments: &CompareArguments) -> Result<bool> {
    let began = Instant::now();
    let _arena = arena::enter()?;
    ensure!(!arguments.servers.is_empty(), "no servers");
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let volume = Volume::new(arguments.fs, scratch.path(), arguments.load.entries)?;
    let plan = arguments.plan();
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
    eprintln!("that took {} s", began.elapsed().as_secs());
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

fn play(stage: &Stage<'_>, volume: &Volume, arguments: &CompareArguments) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    let plan = stage.plan;
    for (round, contenders) in arguments.load.turns(&arguments.servers) {
        for &shape in &plan.shapes {
            let mut contenders = contenders.clone();
            contenders.retain(|contender| arguments.has(*contender, shape, round));
            if contenders.is_empty() {
                continue;
            }
            for workload in plan.clients.iter().map(|&client| Workload { client, shape }) {
                eprintln!("round {round} of {}: {workload}", arguments.load.rounds);
                for contender in contenders.iter().filter(|contender| contender.speaks(workload.client)) {
                    stage.turn(*contender, volume, workload, round, &mut harvest).with_context(|| {
                        format!("the turn of {} with {workload} in round {round}", contender.name())
                    })?;
                }
            }
            stage.echo_turn(shape, round, &mut harvest).context("the echo server's turn")?;
        }
    }
    Ok(harvest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(args_override_self = true)]
    struct Line {
        #[command(flatten)]
        compare: CompareArguments,
    }

    fn read(line: &str) -> CompareArguments {
        Line::parse_from(line.split(' ')).compare
    }

    #[test]
    fn further_shapes_are_for_some_servers_in_some_rounds() {
        let arguments = read("bench --shapes 4x8 --also-shapes 1x1,4x8 --also-rounds 2");
        let (first, further) = (arguments.plan().shapes[0], arguments.plan().shapes[1]);
        assert_eq!(arguments.plan().shapes.len(), 2, "none is there twice");
        assert!(arguments.has(Contender::HoldfastSync, first, 5));
        assert!(arguments.has(Contender::HoldfastAsync, further, 2));
        assert!(!arguments.has(Contender::HoldfastAsync, further, 3));
        assert!(!arguments.has(Contender::HoldfastSync, further, 1));
    }

    #[test]
    fn what_is_said_last_counts() {
        let arguments = read("bench --entries 100000 --rounds 7 --entries 7");
        assert_eq!((arguments.load.entries, arguments.load.rounds), (7, 7));
    }
}
