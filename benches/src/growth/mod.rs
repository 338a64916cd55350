//! How costs grow with connections, clients, opens, locks, directories and files: the server's CPU time an operation,
//! as curves. Every server in turn, on a fresh volume.

mod clients;
mod directory;
mod file;
mod held;
mod plot;
mod stand;

pub(crate) use directory::{fill, list};

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::time::Duration;

use crate::arena;
use crate::arguments::Ground;
use crate::rival::Contender;
use crate::volume::Volume;

/// What `growth` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct GrowthArguments {
    /// Servers
    #[arg(long, value_delimiter = ',', default_value = "ganesha,holdfast-async,holdfast-alone")]
    servers: Vec<Contender>,
    /// Curves (all, when not given)
    #[arg(long, value_delimiter = ',')]
    curves: Vec<Curve>,
    /// The most connections
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,
    /// The most opens, and locks; each open takes a descriptor of the server's
    #[arg(long, default_value_t = 10_000)]
    held: u64,
    /// The most entries of a directory
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// The largest file, in MiB
    #[arg(long, default_value_t = 1024)]
    file_mib: u64,
    /// Milliseconds of each timed point
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
    /// Names made, looked at and removed by so many clients, one call in flight each
    Clients,
    /// An OPEN beside so many
    Opens,
    /// A LOCK beside so many on one file
    Locks,
    /// Entries of directories: a whole listing with attributes, first and again, and a CREATE
    Directory,
    /// READ and WRITE of 4 KiB at random in a file of so many MiB
    File,
}

impl Curve {
    const ALL: [Self; 6] =
        [Self::Connections, Self::Clients, Self::Opens, Self::Locks, Self::Directory, Self::File];

    /// What the axis along is of.
    pub(crate) const fn axis(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Clients => "clients",
            Self::Opens => "opens held",
            Self::Locks => "locks held on one file",
            Self::Directory => "entries of the directory",
            Self::File => "MiB of the file",
        }
    }
}

/// One point of a curve.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// The curve.
    pub(crate) curve: Curve,
    /// Of several in one plot, which operation.
    pub(crate) op: &'static str,
    /// The contender's name.
    pub(crate) server: &'static str,
    /// Along the axis.
    pub(crate) at: u64,
    /// µs of the server's CPU time an operation (listings: an entry).
    pub(crate) cpu_us: f64,
    /// Operations a second.
    pub(crate) rate: f64,
    /// Bytes of the server's memory that came along, for what is held.
    pub(crate) memory_bytes: Option<i64>,
}

/// Takes all points, and writes them.
///
/// Errors when a server or the volume cannot be had, or a call fails.
pub(crate) fn run(arguments: &GrowthArguments) -> Result<()> {
    let _arena = arena::enter()?;
    let wanted = if arguments.curves.is_empty() { &Curve::ALL[..] } else { &arguments.curves[..] };
    let mut points = Vec::new();
    for &server in &arguments.servers {
        let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
        let volume = Volume::new(arguments.ground.fs, scratch.path(), 1)?;
        let stand = stand::Stand {
            server,
            volume: &volume,
            scratch: scratch.path(),
            time: Duration::from_millis(arguments.ms),
        };
        for &curve in wanted {
            eprintln!("{}: {}", server.name(), curve.axis());
            let taken = match curve {
                Curve::Connections => stand.connections(arguments.connections),
                Curve::Clients => stand.clients(),
                Curve::Opens | Curve::Locks => stand.held(curve, arguments.held),
                Curve::Directory => stand.directory(arguments.entries),
                Curve::File => stand.file(arguments.file_mib),
            };
            points.extend(taken.with_context(|| format!("{}: {}", server.name(), curve.axis()))?);
        }
    }
    fs::create_dir_all(&arguments.ground.out)?;
    let text = table(&points);
    fs::write(arguments.ground.out.join("growth.json"), serde_json::to_string_pretty(&points)?)?;
    fs::write(arguments.ground.out.join("growth.txt"), &text)?;
    fs::write(arguments.ground.out.join("growth.svg"), plot::svg(&points))?;
    print!("{text}");
    Ok(())
}

fn table(points: &[Point]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("CPU: µs of server CPU time an operation (listings: an entry).\n\n");
    for point in points {
        let Point { curve, op, server, at, cpu_us, rate, memory_bytes } = point;
        let memory = memory_bytes.map_or(String::new(), |bytes| format!("  {bytes} bytes of memory each"));
        let axis = curve.axis();
        let _ =
            writeln!(text, "{at:>8} {axis:<24} {op:<14} {server:<16} {cpu_us:>9.2} {rate:>9.0}/s{memory}");
    }
    text
}

/// 1, 10, 100 and so on, to `most` and with it.
pub(crate) fn decades(least: u64, most: u64) -> Vec<u64> {
    let mut all: Vec<_> = std::iter::successors(Some(least.min(most)), |n| n.checked_mul(10))
        .take_while(|n| *n < most)
        .collect();
    all.push(most);
    all
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
}
