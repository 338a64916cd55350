//! What a mount costs those who work on it: loads of names and of data over a link with an added round trip, on one
//! file system, by the mount as it is, by synchronous clients, and by other network file systems. Every load ends with
//! what makes it durable, where the contender has such a thing.

mod guest;
mod load;
mod project;
mod rivals;
mod stand;

use anyhow::{Context, Result};
use load::{Load, Scale};
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
    /// The file system itself, without a network.
    Local,
}

impl Side {
    const ALL: [Self; 7] = [
        Self::Holdfast,
        Self::Synchronous,
        Self::Kernel,
        Self::Ganesha,
        Self::Sshfs,
        Self::Gluster,
        Self::Local,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Holdfast => "holdfast",
            Self::Synchronous => "cache=none",
            Self::Kernel => "kernel 4.2",
            Self::Ganesha => "ganesha",
            Self::Sshfs => "sshfs",
            Self::Gluster => "glusterfs",
            Self::Local => "local",
        }
    }
}

/// Seconds that each load took, a round each, by contender.
type Results = BTreeMap<Load, BTreeMap<Side, Vec<f64>>>;

/// Measures and prints.
///
/// Errors when a server or a mount fails.
pub(crate) fn run(arguments: &MountArguments) -> Result<()> {
    let mut results = Results::new();
    let sides =
        if arguments.contenders.is_empty() { Side::ALL.to_vec() } else { arguments.contenders.clone() };
    let round_trip = Duration::from_micros(arguments.round_trip_us);
    for round in 1..=arguments.rounds {
        for &side in &sides {
            eprintln!("round {round} of {}: {}", arguments.rounds, side.name());
            let told = &mut |load: Load, took: Duration| {
                eprintln!("  {:12} {:8.3} s", load.name(), took.as_secs_f64());
                results.entry(load).or_default().entry(side).or_default().push(took.as_secs_f64());
            };
            turn(side, round_trip, &arguments.scale, told)
                .with_context(|| format!("the turn of {}", side.name()))?;
        }
    }
    print!("{}", table(&results, &sides, arguments));
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
    load::play(&arguments.at, &sync, &arguments.scale, &mut |load, took| {
        println!("{} {}", load.argument(), took.as_secs_f64());
    })
}

fn turn(side: Side, round_trip: Duration, scale: &Scale, told: &mut dyn FnMut(Load, Duration)) -> Result<()> {
    if side == Side::Kernel {
        return guest::turn(round_trip, scale, told);
    }
    let stand = Stand::raise(side, round_trip)?;
    load::play(&stand.path(), &|| stand.sync(), scale, told)?;
    stand.take_down()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Medians in seconds, and how many times the first contender each takes.
fn table(results: &Results, sides: &[Side], arguments: &MountArguments) -> String {
    use std::fmt::Write as _;
    let mut text = format!("medians of {} rounds, {} us added\n", arguments.rounds, arguments.round_trip_us);
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
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        let mut results = Results::new();
        let by_side = results.entry(Load::Create).or_default();
        by_side.insert(Side::Holdfast, vec![1.0]);
        by_side.insert(Side::Synchronous, vec![30.0]);
        let arguments = MountArguments {
            round_trip_us: 500,
            scale: Scale::tiny(),
            rounds: 1,
            contenders: vec![],
            out: "x".into(),
        };
        let shown = table(&results, &[Side::Holdfast, Side::Synchronous], &arguments);
        assert!(shown.contains("30.0 x"), "{shown}");
    }
}
