//! The points of each curve.

use anyhow::{Context, Result, ensure};
use holdfast_base::Cookie;
use holdfast_wire::nfs3::{Fh3, Proc3, ReadDirPlus3Args, ReadDirPlus3Ok, Verifier3};
use holdfast_xdr::{Decode, Reader};
use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Curve, Point, decades};
use crate::client::call::{self, Caller};
use crate::client::nfs3::Nfs3Load;
use crate::client::nfs41::{Fleet, Held};
use crate::client::target::{self, Handle, Target};
use crate::client::{Amount, Burst, pump};
use crate::plan::{Op, Shape};
use crate::rival::{Contender, Server};
use crate::volume::{CHANGING, Volume};

/// Names that are made at each point.
const NAMES: u64 = 2000;
/// Bytes of one listing reply, as Linux asks for them.
const LISTING_BYTES: u32 = 64 << 10;
/// In files that are read and written, how far apart blocks lie that are really there.
const BLOCK_EVERY: u64 = 64 << 10;

/// One server, and where it stands.
pub(super) struct Stand<'a> {
    pub(super) server: Contender,
    pub(super) volume: &'a Volume,
    pub(super) scratch: &'a Path,
    pub(super) time: Duration,
}

/// What is asked of the server, and what it took.
struct Watched<'s> {
    server: &'s Server,
    cpu: Duration,
}

impl<'s> Watched<'s> {
    fn begin(server: &'s Server) -> Result<Self> {
        Ok(Self { server, cpu: server.cpu_time()? })
    }

    /// µs of CPU each of so many took.
    fn end(&self, (units, elapsed): (u64, Duration)) -> Result<f64> {
        ensure!(units > 0, "nothing was done");
        let spent = self.server.cpu_time()?.saturating_sub(self.cpu);
        let spent = spent.saturating_sub(self.server.idle_cost(elapsed));
        Ok(spent.as_secs_f64() * 1e6 / units as f64)
    }
}

impl Stand<'_> {
    fn start(&self, name: &str) -> Result<Server> {
        self.volume.begin_turn(64)?;
        let scratch = self.scratch.join(name);
        fs::create_dir(&scratch).with_context(|| scratch.display().to_string())?;
        self.server.start(&self.volume.export(), &scratch)
    }

    fn point(&self, curve: Curve, op: &'static str, at: u64, (cpu_us, rate): (f64, f64)) -> Point {
        Point { curve, op, server: self.server.name(), at, cpu_us, rate, memory_bytes: None }
    }

    /// One operation over NFSv3, in a shape.
    fn measure(&self, server: &Server, target: &Target, (op, shape): (Op, Shape)) -> Result<(f64, f64)> {
        let connect = |_| call::connect(server.ports.nfs);
        let streams = (0..shape.connections).map(connect).collect::<Result<Vec<_>>>()?;
        let mut load = Nfs3Load::new(op, target, shape);
        if !op.is_counted() {
            pump::run(&streams, shape.depth, Amount::For(self.time / 4), &mut load)?;
        }
        let amount = if op.is_counted() { Amount::Calls(NAMES) } else { Amount::For(self.time) };
        let watched = Watched::begin(server)?;
        let burst = pump::run(&streams, shape.depth, amount, &mut load)?;
        Ok((watched.end((burst.units, burst.elapsed))?, rate(&burst)))
    }

    pub(super) fn connections(&self, most: u64) -> Result<Vec<Point>> {
        let server = self.start("connections")?;
        let target = Target::find(server.ports, 0)?;
        let numbers = [1, 4, 16, 64, 250].into_iter().filter(|n| *n < most).chain([most]);
        let mut points = Vec::new();
        for number in numbers {
            let shape = Shape { connections: usize::try_from(number)?, depth: 8 };
            let taken = self.measure(&server, &target, (Op::Getattr, shape))?;
            points.push(self.point(Curve::Connections, "getattr", number, taken));
        }
        Ok(points)
    }

    pub(super) fn clients(&self) -> Result<Vec<Point>> {
        let server = self.start("clients")?;
        let mut points = Vec::new();
        for (folder, clients) in [1, 2, 4, 8, 16, 32].into_iter().enumerate() {
            let target = Target::find(server.ports, folder)?;
            let shape = Shape { connections: clients, depth: 1 };
            for op in [Op::Mkdir, Op::Create, Op::Getattr, Op::Rename, Op::Unlink] {
                let taken = self.measure(&server, &target, (op, shape))?;
                points.push(self.point(Curve::Clients, op.name(), clients as u64, taken));
            }
        }
        Ok(points)
    }

    pub(super) fn held(&self, curve: Curve, most: u64) -> Result<Vec<Point>> {
        let (what, name) = match curve {
            Curve::Locks => (Held::Locks, "lock"),
            _ => (Held::Opens, "open"),
        };
        let server = self.start(name)?;
        let target = Target::find(server.ports, 0)?;
        let shape = Shape { connections: 1, depth: 8 };
        let mut fleet = Fleet::new(server.ports.nfs, shape, &target)?;
        let streams = fleet.take_streams();
        let (mut points, mut held) = (Vec::new(), 0);
        for number in decades(100, most) {
            let (memory, watched) = (server.memory_bytes()?, Watched::begin(&server)?);
            let amount = Amount::Calls(number - held);
            let burst = pump::run(&streams, shape.depth, amount, &mut fleet.hold(what, held))?;
            let taken = (watched.end((burst.units, burst.elapsed))?, rate(&burst));
            let more = server.memory_bytes()?.saturating_sub_unsigned(memory.unsigned_abs());
            let memory_bytes = Some(more / i64::try_from(number - held)?);
            points.push(Point { memory_bytes, ..self.point(curve, name, number, taken) });
            held = number;
        }
        Ok(points)
    }

    pub(super) fn directory(&self, most: u64) -> Result<Vec<Point>> {
        let server = self.start("directory")?;
        let mut points = Vec::new();
        let target = Target::find(server.ports, 0)?;
        for entries in decades(1000, most) {
            let folder = entries.to_string();
            let path = self.volume.export().join(CHANGING).join(&folder);
            fill(&path, entries)?;
            let dir = target::find(server.ports, &[CHANGING, &folder])?;
            for op in ["first listing", "listing again"] {
                let watched = Watched::begin(&server)?;
                let (listed, elapsed) = list(server.ports.nfs, &dir)?;
                ensure!(listed == entries + 2, "{listed} entries were listed of {entries}");
                let rate = listed as f64 / elapsed.as_secs_f64();
                points.push(self.point(
                    Curve::Directory,
                    op,
                    entries,
                    (watched.end((listed, elapsed))?, rate),
                ));
            }
            let target = Target { changing: dir, ..target.clone() };
            let shape = Shape { connections: 4, depth: 8 };
            let taken = self.measure(&server, &target, (Op::Create, shape))?;
            points.push(self.point(Curve::Directory, "create", entries, taken));
        }
        Ok(points)
    }

    pub(super) fn file(&self, most_mib: u64) -> Result<Vec<Point>> {
        let server = self.start("file")?;
        let target = Target::find(server.ports, 0)?;
        let mut points = Vec::new();
        for mib in decades(1, most_mib) {
            let name = format!("file-{mib}");
            make_file(&self.volume.export().join(CHANGING).join(&name), mib << 20)?;
            let file = target::find(server.ports, &[CHANGING, &name])?;
            let target =
                Target { read_file: file.clone(), write_file: file, data_bytes: mib << 20, ..target.clone() };
            let shape = Shape { connections: 4, depth: 8 };
            for op in [Op::Read4k, Op::Write4k] {
                let taken = self.measure(&server, &target, (op, shape))?;
                points.push(self.point(Curve::File, op.name(), mib, taken));
            }
        }
        Ok(points)
    }
}

fn rate(burst: &Burst) -> f64 {
    burst.units as f64 / burst.elapsed.as_secs_f64()
}

/// A new directory of so many empty files.
///
/// Errors when they cannot be made.
pub(crate) fn fill(dir: &Path, entries: u64) -> Result<()> {
    fs::create_dir(dir).with_context(|| dir.display().to_string())?;
    for number in 0..entries {
        File::create(dir.join(format!("entry-{number:07}")))?;
    }
    Ok(())
}

/// A file whose blocks lie apart, so that it has as many extents as it is large.
fn make_file(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    let block = [0x5a; 4096];
    for at in (0..bytes).step_by(BLOCK_EVERY as usize) {
        file.write_all_at(&block, at)?;
    }
    file.sync_all()?;
    Ok(())
}

/// Lists a directory once, from its beginning to its end: entries, and how long it took.
///
/// Errors when a call fails.
pub(crate) fn list(server: SocketAddrV4, dir: &Handle) -> Result<(u64, Duration)> {
    let mut caller = Caller::connect(server)?;
    let (mut cookie, mut cookieverf): (Cookie, Verifier3) = (Cookie(0), [0; 8]);
    let (started, mut entries) = (Instant::now(), 0);
    loop {
        let (dircount, maxcount) = (LISTING_BYTES, LISTING_BYTES);
        let arguments = ReadDirPlus3Args { dir: Fh3(dir), cookie, cookieverf, dircount, maxcount };
        let results = caller.call(target::nfs3(Proc3::ReadDirPlus), &arguments)?;
        let mut r = Reader::new(&results);
        let status = r.u32()?;
        ensure!(status == 0, "READDIRPLUS answers with status {status}");
        let listing = ReadDirPlus3Ok::decode(&mut r)?;
        entries += listing.entries.len() as u64;
        if listing.eof {
            return Ok((entries, started.elapsed()));
        }
        cookie = listing.entries.last().context("a listing without end and entries")?.entry.cookie;
        cookieverf = listing.header.cookieverf;
    }
}
