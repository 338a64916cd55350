//! How costs grow with connections, clients, opens, locks, directories and files: the server's CPU time an operation
//! and the rate, as curves. In each round every server in turn, on one volume, whose large directories and files are
//! made once.

mod connections;
mod directory;
mod figures;
mod file;
mod held;
mod names;
mod plot;
mod stand;

pub(crate) use directory::{fill, list};

use anyhow::{Context, Result, ensure};
use figures::{Failure, Sample};
use serde::Serialize;
use stand::Stand;
use std::fs;
use std::time::{Duration, Instant};

use crate::arena;
use crate::arguments::Ground;
use crate::plan::ClientKind;
use crate::rival::Contender;
use crate::volume::Volume;

/// What `growth` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct GrowthArguments {
    /// Servers
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ganesha,holdfast-async,holdfast-alone,holdfast-sync"
    )]
    servers: Vec<Contender>,
    /// Curves (all, when not given)
    #[arg(long, value_delimiter = ',')]
    curves: Vec<Curve>,
    /// Rounds: in each every server has its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// The most connections
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,
    /// The most clients that make, look at and remove names
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=256))]
    clients: u64,
    /// Directories, files, and directories of a tree, of each client
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    items: u64,
    /// The most opens, and locks; each open takes a descriptor of the server's
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    held: u64,
    /// The most entries of a directory
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// The largest file, in MiB; the smaller ones take up to as much again
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    file_mib: u64,
    /// Milliseconds of each timed burst
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    ms: u64,
    #[command(flatten)]
    ground: Ground,
}

/// Against what a cost is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Curve {
    /// GETATTR, 8 calls in flight on each of so many connections
    Connections,
    /// Names made, looked at and removed as by mdtest: by so many clients, each in a directory of its own
    Clients,
    /// The same, all in one directory
    ClientsShared,
    /// OPEN, and what else is asked, beside so many opens
    Opens,
    /// LOCK, and what else is asked, beside so many locks on one file
    Locks,
    /// The same, beside so many locks on 256 files
    LocksSpread,
    /// Entries of directories: a whole listing with attributes, first and again, and a CREATE
    Directory,
    /// READ and WRITE of 4 KiB at random, in 64 MiB of a file of so many
    File,
}

impl Curve {
    const ALL: [Self; 8] = [
        Self::Connections,
        Self::Clients,
        Self::ClientsShared,
        Self::Opens,
        Self::Locks,
        Self::LocksSpread,
        Self::Directory,
        Self::File,
    ];

    /// What the axis along is of.
    const fn axis(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Clients => "clients, a directory each",
            Self::ClientsShared => "clients in one directory",
            Self::Opens => "opens held",
            Self::Locks => "locks held on one file",
            Self::LocksSpread => "locks held on 256 files",
            Self::Directory => "entries of the directory",
            Self::File => "MiB of the file",
        }
    }

    /// By which of our clients it is taken.
    const fn client(self) -> ClientKind {
        match self {
            Self::Opens | Self::Locks | Self::LocksSpread => ClientKind::Raw41,
            _ => ClientKind::Raw3,
        }
    }
}

/// What all rounds brought.
#[derive(Debug, Default, Serialize)]
struct Harvest {
    samples: Vec<Sample>,
    failures: Vec<Failure>,
}

/// Takes all points, and writes them.
///
/// Errors when the volume cannot be had, and, once all is written, when a server could not be started or a call failed.
pub(crate) fn run(arguments: &GrowthArguments) -> Result<()> {
    let _arena = arena::enter()?;
    ensure!(!arguments.servers.is_empty(), "no servers");
    let began = Instant::now();
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let has_files = arguments.wanted().contains(&Curve::File);
    let bytes = if has_files { file::bytes(arguments.file_mib) } else { 0 };
    let volume = Volume::with_more(arguments.ground.fs, scratch.path(), 1, bytes)?;
    arguments.prepare(&volume).context("filling the file system")?;
    let mut harvest = Harvest::default();
    for round in 1..=arguments.rounds {
        // The order turns by one each round, so that nobody always comes first.
        let mut servers = arguments.servers.clone();
        servers.rotate_left((round as usize - 1) % arguments.servers.len());
        for server in servers {
            let time = Duration::from_millis(arguments.ms);
            let stand = Stand { server, round, volume: &volume, scratch: scratch.path(), time };
            arguments.turn(&stand, &mut harvest);
        }
    }
    drop(volume);
    arguments.write(&harvest)?;
    eprintln!("taken in {} s", began.elapsed().as_secs());
    let must_succeed = arguments.servers.iter().filter(|server| server.must_succeed());
    let must_succeed: Vec<_> = must_succeed.map(|server| server.name()).collect();
    let failed = harvest.failures.iter().filter(|failure| must_succeed.contains(&failure.server)).count();
    ensure!(failed == 0, "{failed} curves could not be taken (above)");
    Ok(())
}

impl GrowthArguments {
    fn wanted(&self) -> &[Curve] {
        if self.curves.is_empty() { &Curve::ALL } else { &self.curves }
    }

    /// Makes what all servers find there.
    fn prepare(&self, volume: &Volume) -> Result<()> {
        if self.wanted().contains(&Curve::Directory) {
            eprintln!("making directories");
            directory::prepare(volume, self.entries)?;
        }
        if self.wanted().contains(&Curve::File) {
            eprintln!("making files");
            file::prepare(volume, self.file_mib)?;
        }
        Ok(())
    }

    /// Every curve of one server in one round; one that fails is written down.
    fn turn(&self, stand: &Stand<'_>, harvest: &mut Harvest) {
        let (server, round) = (stand.server.name(), stand.round);
        for &curve in self.wanted().iter().filter(|curve| stand.server.speaks(curve.client())) {
            eprintln!("round {round} of {}: {server}: {}", self.rounds, curve.axis());
            let taken = match curve {
                Curve::Connections => stand.connections(self.connections),
                Curve::Clients | Curve::ClientsShared => stand.names(curve, (self.clients, self.items)),
                Curve::Opens | Curve::Locks | Curve::LocksSpread => stand.held(curve, self.held),
                Curve::Directory => stand.directory(self.entries),
                Curve::File => stand.file(self.file_mib),
            };
            match taken {
                Ok(samples) => harvest.samples.extend(samples),
                Err(e) => {
                    let why = format!("{e:#}");
                    eprintln!("{why}");
                    harvest.failures.push(Failure { curve, server, round, why });
                }
            }
        }
    }

    fn write(&self, harvest: &Harvest) -> Result<()> {
        let out = &self.ground.out;
        fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        let points = figures::points(&harvest.samples);
        let text = figures::table(&points, &harvest.failures);
        let json = serde_json::json!({ "points": points, "harvest": harvest });
        fs::write(out.join("growth.json"), serde_json::to_string_pretty(&json)?)?;
        fs::write(out.join("growth.txt"), &text)?;
        fs::write(out.join("growth.svg"), plot::svg(&points))?;
        print!("{text}");
        Ok(())
    }
}

/// 1, 10, 100 and so on, to `most` and with it.
fn decades(least: u64, most: u64) -> Vec<u64> {
    let mut all: Vec<_> = std::iter::successors(Some(least.min(most)), |n| n.checked_mul(10))
        .take_while(|n| *n < most)
        .collect();
    all.push(most);
    all
}

/// 1, 2, 4 and so on, to `most` and with it.
fn doublings(most: u64) -> Vec<u64> {
    let all = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most);
    all.chain([most]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_end_with_the_most() {
        assert_eq!(decades(1000, 1_000_000), [1000, 10_000, 100_000, 1_000_000]);
        assert_eq!(decades(10, 250), [10, 100, 250]);
        assert_eq!(decades(1000, 50), [50]);
    }

    #[test]
    fn doublings_end_with_the_most() {
        assert_eq!(doublings(8), [1, 2, 4, 8]);
        assert_eq!(doublings(12), [1, 2, 4, 8, 12]);
        assert_eq!(doublings(1), [1]);
    }
}
