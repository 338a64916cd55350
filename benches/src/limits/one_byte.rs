//! What writes of one byte cost the journal of the file system: what XFS counts of its own.

use anyhow::{Context, Result, ensure};
use holdfast_base::Offset;
use holdfast_lab::Mount;
use holdfast_wire::nfs3::{Fh3, Proc3, StableHow, Write3Args};
use holdfast_xdr::{Encode as _, Writer};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::bouts::{Figures, Stand, connect};
use crate::client::call::header_after_xid;
use crate::client::nfs41::Fleet;
use crate::client::pump::{self, Lane, Load, succeeded};
use crate::client::target::{Handle, Target, nfs3};
use crate::client::{Amount, Burst};
use crate::plan::Shape;
use crate::rival::{Contender, Server};
use crate::volume::{EXPORT_NAME, FsKind, Volume, WRITE_FILE};
use crate::wanted::Wanted;

const WRITES: u64 = 20_000;
/// What a WRITE may take more than a local program's does, bytes of the journal.
const BYTES_MORE_MAX: f64 = 0.5;
/// And transactions.
const TRANSACTIONS_MORE_MAX: f64 = 0.01;
const BLOCK_BYTES: u64 = 512;
/// What `dd` writes: nobody else has it open.
const DD_FILE: &str = "bytes";

/// What XFS has counted since it was mounted.
#[derive(Clone, Copy)]
struct Counts {
    bytes: u64,
    transactions: u64,
}

/// The same of each write.
#[derive(Clone, Copy)]
struct Cost {
    bytes: f64,
    transactions: f64,
}

struct Journal {
    counts: PathBuf,
    top: File,
}

impl Stand<'_> {
    /// Of each client, and of a local program that writes as fast as that client.
    pub(super) fn one_byte(&self) -> Result<Figures> {
        if self.fs != FsKind::Xfs {
            eprintln!("  XFS alone counts what its journal takes: nothing is measured");
            return Ok(Figures::new());
        }
        let journal = Journal::of(self.volume)?;
        let file = File::options().write(true).open(self.volume.export().join(WRITE_FILE))?;
        let server = self.start(Contender::HoldfastSync)?;
        let target = Target::find(server.ports, 0)?;
        let mut figures = Figures::new();
        for depth in [1, 32] {
            let shape = Shape { connections: 1, depth };
            let streams = connect(&server, shape)?;
            let mut load = ByteLoad::new(&target.write_file);
            let three = journal.cost_of(|| run(&streams, shape, &mut load))?;
            // The times in each reply are asked for, whether the client wants them or not.
            figures.extend(three.beside(
                &journal,
                &file,
                &format!("v3, {depth} in flight"),
                Wanted::Shown,
            )?);
            let mut fleet = Fleet::new(server.ports.nfs, shape, &target)?;
            let streams = fleet.take_streams();
            let four = journal.cost_of(|| run(&streams, shape, &mut fleet.bytes(false)))?;
            let wanted = Wanted::AtMost(TRANSACTIONS_MORE_MAX);
            figures.extend(four.beside(&journal, &file, &format!("4.1, {depth} in flight"), wanted)?);
            let asking = journal.cost_of(|| run(&streams, shape, &mut fleet.bytes(true)))?;
            figures.extend(asking.cost.shown(&format!("4.1 with a GETATTR of change, {depth} in flight")));
        }
        figures.extend(self.one_byte_over_mounts(&journal, &server)?);
        let looking = journal.cost_of(|| {
            (0..WRITES).try_for_each(|at| {
                file.write_all_at(b"x", at)?;
                file.metadata().map(drop)
            })?;
            Ok(Duration::ZERO)
        })?;
        figures.extend(looking.cost.shown("a local program that looks at the file after each"));
        Ok(figures)
    }

    /// `dd` on this host, over a mount as it is, and over one that puts nothing off.
    fn one_byte_over_mounts(&self, journal: &Journal, server: &Server) -> Result<Figures> {
        let export = self.volume.export();
        fs::write(export.join(DD_FILE), vec![0x5a; WRITES as usize])?;
        let local = journal.cost_of(|| dd(&export))?;
        let mut figures = local.cost.shown("dd bs=1, local");
        let none_more = Wanted::AtMost(TRANSACTIONS_MORE_MAX);
        for (options, name, wanted) in [
            ("nolocal", "dd bs=1, mounted", none_more),
            ("nolocal,cache=none", "dd bs=1, cache=none", Wanted::Shown),
        ] {
            let mount = Mount::new(server.ports.nfs.port(), &format!("/{EXPORT_NAME}"), options)?;
            let before = mount.round_trips()?;
            let mounted = journal.cost_of(|| {
                let took = dd(&mount.path())?;
                mount.sync()?;
                Ok(took)
            })?;
            let asked = (mount.round_trips()? - before) as f64 / WRITES as f64;
            mount.unmount(&[])?;
            figures.push(mounted.cost.bytes_over(local.cost, name));
            let more = mounted.cost.transactions - local.cost.transactions;
            figures.push((format!("{name}: transactions a write over a local program's"), wanted, more));
            figures.extend(mounted.cost.shown(name));
            figures.push((format!("  {name}: round trips a write"), Wanted::Shown, asked));
        }
        Ok(figures)
    }
}

/// What was written, and how long that took.
struct Written {
    cost: Cost,
    took: Duration,
}

impl Written {
    /// Over what a local program takes that writes at the same pace: the kernel gives a file a new time with each tick of
    /// its clock, however many writes that are.
    fn beside(&self, journal: &Journal, file: &File, who: &str, transactions: Wanted) -> Result<Figures> {
        let local = journal.cost_of(|| {
            let (began, pace) = (Instant::now(), self.took / WRITES as u32);
            for at in 0..WRITES {
                file.write_all_at(b"x", at)?;
                while began.elapsed() < pace * (at + 1) as u32 {
                    std::hint::spin_loop();
                }
            }
            Ok(began.elapsed())
        })?;
        let mut figures = vec![self.cost.bytes_over(local.cost, who)];
        let more = self.cost.transactions - local.cost.transactions;
        figures.push((format!("{who}: transactions a WRITE over a local program's"), transactions, more));
        figures.extend(self.cost.shown(who));
        Ok(figures)
    }
}

impl Cost {
    fn bytes_over(self, local: Self, who: &str) -> (String, Wanted, f64) {
        let what = format!("{who}: bytes of the journal a WRITE over a local program's");
        (what, Wanted::AtMost(BYTES_MORE_MAX), self.bytes - local.bytes)
    }

    fn shown(self, who: &str) -> Figures {
        vec![
            (format!("  {who}: bytes a write"), Wanted::Shown, self.bytes),
            (format!("  {who}: transactions a write"), Wanted::Shown, self.transactions),
        ]
    }
}

impl Journal {
    fn of(volume: &Volume) -> Result<Self> {
        let top = File::open(volume.root())?;
        let device = top.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let device = fs::read_link(format!("/sys/dev/block/{major}:{minor}"))?;
        let name = device.file_name().context("a device without a name")?;
        Ok(Self { counts: Path::new("/sys/fs/xfs").join(name).join("stats/stats"), top })
    }

    /// When everything is on disk, what it has counted.
    fn counted(&self) -> Result<Counts> {
        rustix::fs::syncfs(&self.top)?;
        let told = fs::read_to_string(&self.counts).with_context(|| self.counts.display().to_string())?;
        let blocks = count(&told, "log", 1).context("no count of the journal's blocks")?;
        let transactions = count(&told, "trans", 1).context("no count of transactions")?;
        Ok(Counts { bytes: blocks * BLOCK_BYTES, transactions })
    }

    fn cost_of(&self, write: impl FnOnce() -> Result<Duration>) -> Result<Written> {
        let before = self.counted()?;
        let took = write()?;
        let after = self.counted()?;
        let each = |before: u64, after: u64| (after - before) as f64 / WRITES as f64;
        let cost = Cost {
            bytes: each(before.bytes, after.bytes),
            transactions: each(before.transactions, after.transactions),
        };
        Ok(Written { cost, took })
    }
}

/// A number of a line of XFS's counts (Documentation/admin-guide/xfs.rst of Linux; `trans` and `log`: writes, blocks of 512
/// bytes and so on).
fn count(told: &str, line: &str, place: usize) -> Option<u64> {
    let mut lines = told.lines().map(str::split_whitespace);
    let mut numbers = lines.find_map(|mut words| (words.next() == Some(line)).then_some(words))?;
    numbers.nth(place)?.parse().ok()
}

fn run(streams: &[std::net::TcpStream], shape: Shape, load: &mut dyn Load) -> Result<Duration> {
    let Burst { units, elapsed, .. } = pump::run(streams, shape.depth, Amount::Calls(WRITES), load)?;
    ensure!(units == WRITES, "{units} were written");
    Ok(elapsed)
}

fn dd(at: &Path) -> Result<Duration> {
    let began = Instant::now();
    let to = format!("of={}", at.join(DD_FILE).display());
    let count = format!("count={WRITES}");
    let arguments = ["if=/dev/zero", &to, "bs=1", &count, "conv=notrunc", "status=none"];
    let done = Command::new("dd").args(arguments).status().context("dd")?;
    ensure!(done.success(), "dd ended with {done}");
    Ok(began.elapsed())
}

/// Unstable WRITEs of NFSv3, one behind the other in a file.
struct ByteLoad<'a> {
    file: &'a Handle,
    header: Vec<u8>,
    next: u64,
}

impl<'a> ByteLoad<'a> {
    fn new(file: &'a Handle) -> Self {
        Self { file, header: header_after_xid(nfs3(Proc3::Write)), next: 0 }
    }
}

impl Load for ByteLoad<'_> {
    fn encode(&mut self, _: Lane, w: &mut Writer) {
        w.put(&self.header);
        let (file, offset, stable) = (Fh3(self.file), Offset(self.next), StableHow::Unstable);
        self.next += 1;
        Write3Args { file, offset, count: 1, stable, data: b"x" }.encode(w);
    }

    fn check(&mut self, _: Lane, reply: &[u8]) -> Result<u64> {
        succeeded(reply).map(|_| 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_their_line() {
        let told = "trans 0 2643447 0\nig 1 2\nlog 5095 324925 2014 43 78\n";
        assert_eq!(count(told, "log", 1), Some(324_925));
        assert_eq!(count(told, "trans", 1), Some(2_643_447));
        assert_eq!(count(told, "attr", 0), None);
    }
}
