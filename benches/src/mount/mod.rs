//! What a mount costs those who work on it: loads of names and of data over a link with an added round trip, on one
//! server, by the mount as it is and by the same mount with nothing cached (which is how a synchronous client works),
//! and over NFS-Ganesha. Every load ends with what makes it durable.

mod load;

use anyhow::{Context, Result};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, LoopFs, Mount, Relay, ServerUnderTest};
use load::Load;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// How much is done.
#[derive(Debug, clap::Args)]
pub(crate) struct MountArguments {
    /// Microseconds that the relay adds to a round trip
    #[arg(long, default_value_t = 500)]
    round_trip_us: u64,
    /// Small files made and removed in one directory
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// Files of the source tree that is unpacked and removed
    #[arg(long, default_value_t = 20_000)]
    tree_files: usize,
    /// MiB written and read in order
    #[arg(long, default_value_t = 1024)]
    data_mib: usize,
    /// Rounds: in each every contender has its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Only these loads
    #[arg(long, value_delimiter = ',')]
    loads: Vec<Load>,
    /// Only these contenders
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<Side>,
    /// Where the results go, as JSON
    #[arg(long, default_value = "target/bench/mount.json")]
    out: std::path::PathBuf,
}

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    /// The mount as it is, of a Holdfast server.
    Holdfast,
    /// The same with nothing cached and nothing put off.
    Synchronous,
    /// This client, over NFS-Ganesha.
    Ganesha,
    /// The file system itself, without a network.
    Local,
}

impl Side {
    const ALL: [Self; 4] = [Self::Holdfast, Self::Synchronous, Self::Ganesha, Self::Local];

    fn name(self) -> &'static str {
        match self {
            Self::Holdfast => "holdfast",
            Self::Synchronous => "cache=none",
            Self::Ganesha => "ganesha",
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
    for round in 1..=arguments.rounds {
        for &side in &sides {
            eprintln!("round {round} of {}: {}", arguments.rounds, side.name());
            turn(side, arguments, &mut results).with_context(|| format!("the turn of {}", side.name()))?;
        }
    }
    print!("{}", table(&results, &sides, arguments));
    if let Some(folder) = arguments.out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&arguments.out, serde_json::to_vec_pretty(&results)?)?;
    Ok(())
}

fn turn(side: Side, arguments: &MountArguments, results: &mut Results) -> Result<()> {
    // Each turn begins with a fresh file system: nobody works in what another left.
    let filesystem = LoopFs::new(FsType::Xfs, 8 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    if side == Side::Local {
        return play(side, &share, &|| Ok(()), arguments, results);
    }
    let target = if side == Side::Ganesha { Target::Ganesha } else { Target::Holdfast };
    let server = ServerUnderTest::builder(&share)
        .target(target)
        .lease_seconds(60)
        .environment("HOLDFAST_NO_SUPERVISE", "true")
        .start()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let relay = Relay::start(address, Duration::from_micros(arguments.round_trip_us))?;
    let options = if side == Side::Synchronous { "cache=none" } else { "" };
    let mount = Mount::new(relay.port(), &server.export(), options)?;
    play(side, &mount.path(), &|| mount.sync(), arguments, results)?;
    mount.unmount(&[])
}

/// All loads in the order in which they need each other.
fn play(
    side: Side,
    at: &Path,
    sync: &dyn Fn() -> Result<()>,
    arguments: &MountArguments,
    results: &mut Results,
) -> Result<()> {
    let scale = load::Scale {
        files: arguments.files,
        tree_files: arguments.tree_files,
        data_bytes: (arguments.data_mib as u64) << 20,
    };
    for load in Load::ALL {
        let is_wanted = |wanted: &Load| load.is_needed_by(*wanted);
        if !arguments.loads.is_empty() && !arguments.loads.iter().any(is_wanted) {
            continue;
        }
        let took = load.run(at, &scale, sync).with_context(|| load.name())?;
        eprintln!("  {:12} {:8.3} s", load.name(), took.as_secs_f64());
        results.entry(load).or_default().entry(side).or_default().push(took.as_secs_f64());
    }
    Ok(())
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
            files: 1,
            tree_files: 1,
            data_mib: 1,
            rounds: 1,
            loads: vec![],
            contenders: vec![],
            out: "x".into(),
        };
        let shown = table(&results, &[Side::Holdfast, Side::Synchronous], &arguments);
        assert!(shown.contains("30.0 x"), "{shown}");
    }
}
