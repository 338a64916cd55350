//! What it is worth that client and server share a host: random reads and writes of one file, over plain loopback, by the file system
//! itself, by a mount whose files are passed through, by one that has the server's descriptors, and by one that goes over the
//! network. The export is on tmpfs; and, for what goes past all caches (`O_DIRECT`), on XFS on a disk image.

use crate::report::Figure;
use crate::wanted::Wanted;
use anyhow::{Context, Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, LoopFs, Mount, ServerUnderTest};
use rustix::fs::{Advice, OFlags};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How much is done.
#[derive(Debug, clap::Args)]
pub(crate) struct SameHostArguments {
    /// MiB of the file: each piece of it is read, or written, once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    data_mib: u64,
    /// Rounds: in each every contender has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Where the results go, as JSON
    #[arg(long, default_value = "target/bench/same-host.json")]
    out: PathBuf,
}

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Side {
    Local,
    Passthrough,
    Descriptors,
    Network,
}

impl Side {
    const ALL: [Self; 4] = [Self::Local, Self::Passthrough, Self::Descriptors, Self::Network];

    const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Passthrough => "passthrough",
            Self::Descriptors => "descriptors",
            Self::Network => "network",
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough",
            Self::Network => "nolocal",
            Self::Local | Self::Descriptors => "",
        }
    }
}

/// What the export lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ground {
    /// Memory, with all caches.
    Tmpfs,
    /// XFS on a disk image, past all caches.
    Direct,
}

/// One kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    ground: Ground,
    bytes: usize,
    threads: usize,
    writes: bool,
}

impl Load {
    fn all() -> impl Iterator<Item = Self> {
        [Ground::Tmpfs, Ground::Direct].into_iter().flat_map(Self::on)
    }

    fn on(ground: Ground) -> impl Iterator<Item = Self> {
        [4 << 10, 128 << 10].into_iter().flat_map(move |bytes| {
            [1, 16].into_iter().flat_map(move |threads| {
                [false, true].into_iter().map(move |writes| Self { ground, bytes, threads, writes })
            })
        })
    }

    fn name(self) -> String {
        let what = if self.writes { "write" } else { "read" };
        format!(
            "{what} {} KiB, {} thread{}{}",
            self.bytes >> 10,
            self.threads,
            if self.threads > 1 { "s" } else { "" },
            if self.ground == Ground::Direct { ", O_DIRECT" } else { "" }
        )
    }
}

/// Microseconds of one access, a round each, by load and contender.
type Results = BTreeMap<String, BTreeMap<Side, Vec<f64>>>;

/// Measures and prints.
///
/// Errors when the server or a mount fails.
pub(crate) fn run(arguments: &SameHostArguments) -> Result<()> {
    let tmpfs = Tmpfs::new()?;
    let bytes = arguments.data_mib << 20;
    let disk = LoopFs::new(FsType::Xfs, DISK_LEAST_BYTES.max(2 * bytes))?;
    let mut results = Results::new();
    for (ground, place) in [(Ground::Tmpfs, tmpfs.0.path()), (Ground::Direct, &disk.path())] {
        let share = place.join("share");
        std::fs::create_dir(&share)?;
        let server = ServerUnderTest::builder(&share).target(Target::Holdfast).start()?;
        for round in 1..=arguments.rounds {
            eprintln!("{ground:?}: round {round} of {}", arguments.rounds);
            for side in Side::ALL {
                let turn = side.turn(&server, &share, bytes, ground)?;
                turn.into_iter().for_each(|(load, took)| {
                    results.entry(load.name()).or_default().entry(side).or_default().push(took);
                });
            }
        }
    }
    print!("{}", table(&results, arguments));
    if let Some(folder) = arguments.out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&arguments.out, serde_json::to_vec_pretty(&results)?)?;
    Ok(())
}

/// XFS has a least size.
const DISK_LEAST_BYTES: u64 = 512 << 20;

impl Side {
    /// All loads on one file of `bytes` in `share`, which is there already, as most files are.
    fn turn(
        self,
        server: &ServerUnderTest,
        share: &Path,
        bytes: u64,
        ground: Ground,
    ) -> Result<Vec<(Load, f64)>> {
        let mount = (self != Self::Local)
            .then(|| Mount::new(server.port(), &server.export(), self.options()))
            .transpose()?;
        let at = mount.as_ref().map_or_else(|| share.to_owned(), Mount::path);
        fill(&share.join(self.name()), bytes)?;
        let took: Result<Vec<_>> =
            Load::on(ground).map(|load| Ok((load, load.run(&at.join(self.name()), bytes)?))).collect();
        if let Some(mount) = mount {
            mount.unmount(&[])?;
        }
        std::fs::remove_file(share.join(self.name()))?;
        took
    }
}

/// A file system in memory, unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", dir.path(), "tmpfs", flags, None).context("mounting a tmpfs")?;
        Ok(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

fn fill(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path)?;
    let piece = vec![0x5a; 1 << 20];
    for at in (0..bytes).step_by(piece.len()) {
        file.write_all_at(&piece, at)?;
    }
    Ok(file.sync_all()?)
}

/// Each number below `count` once, in an order that jumps about.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    // Odd, so that it shares no factor with a power of two; what is beyond is passed over.
    let whole = count.next_power_of_two();
    let step = (whole / 8 * 5 + 1) | 1;
    (0..whole).map(move |n| n.wrapping_mul(step) & (whole - 1)).filter(move |n| *n < count)
}

impl Load {
    /// Microseconds an access, as one who waits for all of it sees it; writes end with `fsync`.
    fn run(self, path: &Path, bytes: u64) -> Result<f64> {
        let flags = if self.ground == Ground::Direct { OFlags::DIRECT } else { OFlags::empty() };
        let mut options = std::fs::OpenOptions::new();
        let file =
            options.read(true).write(self.writes).custom_flags(flags.bits().cast_signed()).open(path)?;
        // Nothing of it is in the mount's own pages, and nothing is read ahead.
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
        let count = bytes / self.bytes as u64;
        let places: Vec<u64> = shuffled(count).map(|n| n * self.bytes as u64).collect();
        let share = places.len().div_ceil(self.threads);
        let started = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                places.chunks(share).map(|places| scope.spawn(|| self.at(&file, places))).collect();
            let worked = |worker: std::thread::ScopedJoinHandle<'_, std::io::Result<()>>| {
                worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))
            };
            workers.into_iter().try_for_each(|worker| anyhow::Ok(worked(worker)??))
        })?;
        if self.writes {
            file.sync_all()?;
        }
        let took = started.elapsed();
        ensure!(!places.is_empty(), "the file is smaller than one access");
        Ok(took.as_secs_f64() * 1e6 / places.len() as f64)
    }

    fn at(self, file: &File, places: &[u64]) -> std::io::Result<()> {
        // What goes past the caches begins at a page.
        let mut room = vec![0x5a; self.bytes + PAGE_BYTES];
        let begin = room.as_ptr().align_offset(PAGE_BYTES);
        let buffer = &mut room[begin..begin + self.bytes];
        places.iter().try_for_each(|at| {
            if self.writes { file.write_all_at(buffer, *at) } else { file.read_exact_at(buffer, *at) }
        })
    }
}

const PAGE_BYTES: usize = 4096;

fn median(values: &[f64]) -> f64 {
    Figure::of(values.to_vec()).map_or(f64::NAN, |figure| figure.median)
}

/// Medians in microseconds an access, and how many times the local file system each takes.
fn table(results: &Results, arguments: &SameHostArguments) -> String {
    use std::fmt::Write as _;
    let mut text = format!("medians of {} rounds, us an access\n{:34}", arguments.rounds, "load");
    for side in Side::ALL {
        let _ = write!(text, "{:>22}", side.name());
    }
    text.push('\n');
    for load in Load::all() {
        let by_side = results.get(&load.name());
        let of = |side: Side| by_side.and_then(|by| by.get(&side)).map_or(f64::NAN, |took| median(took));
        let _ = write!(text, "{:34}", load.name());
        for side in Side::ALL {
            let _ = write!(text, "{:>12.2}  {:6.2} x", of(side), of(side) / of(Side::Local));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "\n{:70}  wanted", "passed through");
    for load in Load::on(Ground::Tmpfs) {
        let Some(by_side) = results.get(&load.name()) else { continue };
        let of = |side: Side| by_side.get(&side).map_or(f64::NAN, |took| median(took));
        let mut judge = |words: &str, value: f64, wanted: Wanted| {
            let what = format!("{}, {words}", load.name());
            let _ = writeln!(text, "{what:60}{value:>10.2}  {}", wanted.verdict(value));
        };
        let through = of(Side::Passthrough);
        judge("of the local file system's rate", of(Side::Local) / through, Wanted::AtLeast(0.9));
        if load.bytes == 4 << 10 {
            judge("times the rate over the network", of(Side::Network) / through, Wanted::AtLeast(10.0));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_visited_once_and_not_in_order() {
        for count in [1, 2, 7, 512, 1000, 16384] {
            let mut places: Vec<u64> = shuffled(count).collect();
            assert!(count < 3 || !places.is_sorted(), "{count}");
            places.sort_unstable();
            assert_eq!(places, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn loads_are_told_apart_by_their_names() {
        let names: std::collections::BTreeSet<_> = Load::all().map(Load::name).collect();
        assert_eq!(names.len(), 16);
    }
}
