//! What a mount costs those who work on it: loads of names and of data over a link with an added round trip, on one
//! file system, by the mount as it is, by synchronous clients, and by other network file systems. Every load ends with
//! what makes it durable, where the contender has such a thing.

mod bare;
mod ceph;
mod goals;
mod guest;
mod link;
mod load;
mod project;
mod rivals;
mod stand;

use crate::arena;
use crate::report::Figure;
use anyhow::{Context, Result};
use holdfast_lab::Way;
use link::Road;
use load::{Load, Scale, Told};
use serde::Serialize;
use stand::Stand;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How much is done.
#[derive(Debug, clap::Args)]
pub(crate) struct MountArguments {
    /// Microseconds that the relay adds to a round trip
    #[arg(long, default_value_t = 500)]
    round_trip_us: u64,
    /// Megabits a second that the relay lets through each way; 0: all that the machine can do
    #[arg(long, default_value_t = 1000)]
    link_mbit: u64,
    #[command(flatten)]
    scale: Scale,
    /// Rounds: in each every contender has its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Only these contenders
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<Side>,
    /// Where the results go, as JSON
    #[arg(long, default_value = "target/bench/mount.json")]
    out: PathBuf,
}

impl MountArguments {
    fn way(&self) -> Way {
        let rate = (self.link_mbit > 0).then_some(self.link_mbit * 1_000_000 / 8);
        Way { round_trip: Duration::from_micros(self.round_trip_us), rate }
    }

    fn rate_in_words(&self) -> String {
        match self.link_mbit {
            0 => "as fast as the machine".into(),
            mbit => format!("{mbit} Mbit/s"),
        }
    }
}

/// The daemon of a file system in memory.
#[derive(Debug, clap::Args)]
pub(crate) struct BareArguments {
    /// Where
    at: PathBuf,
}

/// What one contender does by itself, where another process measures it.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadsArguments {
    /// Where
    at: PathBuf,
    #[command(flatten)]
    scale: Scale,
}

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    /// The mount as it is, of a Holdfast server.
    Holdfast,
    /// The same with nothing cached and nothing put off.
    Synchronous,
    /// The kernel's NFSv4.2 client, in a guest, of the same server.
    Kernel,
    /// This client, over NFS-Ganesha.
    Ganesha,
    /// SSHFS, over a server of its own: nothing of it is forced to disk.
    Sshfs,
    /// GlusterFS, one brick: files are forced to disk, names are not.
    Gluster,
    /// CephFS by `ceph-fuse`, over a cluster without replicas, at the far end of a link that carries packets.
    Ceph,
    /// FUSE itself: a file system in memory with nothing behind it.
    Fuse,
    /// The file system itself, without a network.
    Local,
    /// The way between mount and server, with a stream on it and no file system at its ends.
    Link,
    /// The same of Ceph's way.
    PacketLink,
}

impl Side {
    const ALL: [Self; 11] = [
        Self::Holdfast,
        Self::Synchronous,
        Self::Kernel,
        Self::Ganesha,
        Self::Sshfs,
        Self::Gluster,
        Self::Ceph,
        Self::Fuse,
        Self::Local,
        Self::Link,
        Self::PacketLink,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Holdfast => "holdfast",
            Self::Synchronous => "cache=none",
            Self::Kernel => "kernel 4.2",
            Self::Ganesha => "ganesha",
            Self::Sshfs => "sshfs",
            Self::Gluster => "glusterfs",
            Self::Ceph => "ceph-fuse",
            Self::Fuse => "fuse alone",
            Self::Local => "local",
            Self::Link => "link",
            Self::PacketLink => "packet link",
        }
    }
}

/// What came of a load.
#[derive(Clone, Copy, Debug, Serialize)]
struct Outcome {
    seconds: f64,
    /// How often the mount asked its server, where that is counted.
    round_trips: Option<u64>,
}

/// What came of each load, a round each, by contender.
type Results = BTreeMap<Load, BTreeMap<Side, Vec<Outcome>>>;

/// Measures and prints.
///
/// Errors when a server or a mount fails.
pub(crate) fn run(arguments: &MountArguments) -> Result<()> {
    let _arena = arena::enter()?;
    let mut results = Results::new();
    let sides =
        if arguments.contenders.is_empty() { Side::ALL.to_vec() } else { arguments.contenders.clone() };
    let way = arguments.way();
    let echoes = echoes(&sides, way)?;
    eprintln!("{echoes}");
    for round in 1..=arguments.rounds {
        for &side in &sides {
            eprintln!("round {round} of {}: {}", arguments.rounds, side.name());
            let told = &mut |load: Load, took: Duration, round_trips: Option<u64>| {
                let asked = round_trips.map(|asked| format!(", {asked} round trips")).unwrap_or_default();
                eprintln!("  {:12} {:8.3} s{asked}", load.name(), took.as_secs_f64());
                let outcome = Outcome { seconds: took.as_secs_f64(), round_trips };
                results.entry(load).or_default().entry(side).or_default().push(outcome);
            };
            turn(side, way, &arguments.scale, told)
                .with_context(|| format!("the turn of {}", side.name()))?;
        }
    }
    print!("{}{echoes}\n\n{}", table(&results, &sides, arguments), goals::judged(&results, &arguments.scale));
    if let Some(folder) = arguments.out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&arguments.out, serde_json::to_vec_pretty(&results)?)?;
    Ok(())
}

/// Does the loads below a directory, and prints a line each: its name, and its seconds.
///
/// Errors of the loads.
pub(crate) fn run_loads(arguments: &LoadsArguments) -> Result<()> {
    let sync = || stand::sync_file_system(&arguments.at);
    load::play(&arguments.at, &sync, &arguments.scale, &|| Ok(None), &mut |load, took, _| {
        println!("{} {}", load.argument(), took.as_secs_f64());
    })
}

/// Serves a file system in memory until it is unmounted.
///
/// Errors when it cannot be mounted.
pub(crate) fn run_bare(arguments: &BareArguments) -> Result<()> {
    bare::serve(&arguments.at)
}

fn turn(side: Side, way: Way, scale: &Scale, told: &mut Told<'_>) -> Result<()> {
    match side {
        Side::Kernel => return guest::turn(way, scale, told),
        Side::Link => return link::turn(&Road::relayed(way)?, scale, told),
        Side::PacketLink => return link::turn(&Road::linked(way)?, scale, told),
        _ => {}
    }
    let stand = Stand::raise(side, way)?;
    load::play(&stand.path(), &|| stand.sync(), scale, &|| stand.round_trips(), told)?;
    stand.take_down()
}

/// How long an echo takes by the ways that these contenders have, and without one: what is added to a round trip in truth.
fn echoes(sides: &[Side], way: Way) -> Result<String> {
    let has_packets = sides.iter().any(|side| matches!(side, Side::Ceph | Side::PacketLink));
    let mut echoes = vec![("loopback", Road::plain()?.echo()?), ("the relay", Road::relayed(way)?.echo()?)];
    if has_packets {
        echoes.push(("the packet link", Road::linked(way)?.echo()?));
    }
    let shown: Vec<_> =
        echoes.iter().map(|(by, took)| format!("{:.0} us by {by}", took.as_secs_f64() * 1e6)).collect();
    Ok(format!("a byte there and back: {}", shown.join(", ")))
}

fn median(outcomes: &[Outcome]) -> f64 {
    let seconds = outcomes.iter().map(|outcome| outcome.seconds).collect();
    Figure::of(seconds).map_or(f64::NAN, |figure| figure.median)
}

/// Medians in seconds, and how many times the first contender each takes.
fn table(results: &Results, sides: &[Side], arguments: &MountArguments) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "medians of {} rounds, {} us added, {}\n",
        arguments.rounds,
        arguments.round_trip_us,
        arguments.rate_in_words()
    );
    let _ = write!(text, "{:14}", "load");
    for side in sides {
        let _ = write!(text, "{:>22}", side.name());
    }
    text.push('\n');
    for (load, by_side) in results {
        let first = sides.first().and_then(|side| by_side.get(side)).map_or(f64::NAN, |took| median(took));
        let _ = write!(text, "{:14}", load.name());
        for side in sides {
            let took = by_side.get(side).map_or(f64::NAN, |took| median(took));
            let _ = write!(text, "{:>12.3} s {:6.1} x", took, took / first);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_are_shown_by_contender() {
        let one = |seconds| Outcome { seconds, round_trips: None };
        assert!((median(&[one(3.0), one(1.0), one(2.0)]) - 2.0).abs() < 1e-9);
        let mut results = Results::new();
        let by_side = results.entry(Load::Create).or_default();
        by_side.insert(Side::Holdfast, vec![one(1.0)]);
        by_side.insert(Side::Synchronous, vec![one(30.0)]);
        let arguments = MountArguments {
            round_trip_us: 500,
            link_mbit: 1000,
            scale: Scale::tiny(),
            rounds: 1,
            contenders: vec![],
            out: "x".into(),
        };
        let shown = table(&results, &[Side::Holdfast, Side::Synchronous], &arguments);
        assert!(shown.contains("30.0 x"), "{shown}");
    }
}
