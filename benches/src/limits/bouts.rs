//! What is done in a round for each limit.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Limit, Taken};
use crate::client::call;
use crate::client::echo::EchoLoad;
use crate::client::nfs3::Nfs3Load;
use crate::client::target::{self, Target};
use crate::client::{Amount, Burst, pump};
use crate::growth::{fill, list};
use crate::plan::{Op, Shape};
use crate::rival::{Contender, Server};
use crate::volume::{CHANGING, FsKind, Volume};
use crate::wanted::Wanted;

/// Creates of [`Limit::Creates`], and how many share a force.
const CREATES: u64 = 1000;
const CREATES_IN_FLIGHT: usize = 32;
/// Where iperf3 listens.
const IPERF_PORT: u16 = 5201;
const IPERF_PATIENCE: Duration = Duration::from_secs(5);

/// Where everything stands in one round.
pub(super) struct Stand<'a> {
    pub(super) volume: &'a Volume,
    pub(super) scratch: &'a Path,
    pub(super) time: Duration,
    pub(super) entries: u64,
    pub(super) fs: FsKind,
    /// From 1.
    pub(super) round: u64,
}

/// A burst, and what it took of the server's CPU time; µs an operation.
struct Spent {
    burst: Burst,
    cpu_us: f64,
}

impl Spent {
    fn rate(&self) -> f64 {
        self.burst.units as f64 / self.burst.elapsed.as_secs_f64()
    }
}

impl Stand<'_> {
    /// The figures of one limit.
    pub(super) fn take(&self, limit: Limit) -> Result<Vec<Taken>> {
        self.volume.begin_turn(2)?;
        let figures = match limit {
            Limit::Echo => self.echo(),
            Limit::Iperf => self.iperf(),
            Limit::Creates => self.creates(),
            Limit::Connections => self.connections(),
            Limit::SlowDisk => self.slow_disk(),
            Limit::SlowJournal => self.slow_journal(),
            Limit::OneByte => self.one_byte(),
            Limit::Directory => self.directory(),
        };
        let figures = figures?.into_iter();
        Ok(figures.map(|(what, wanted, value)| Taken { limit, what, wanted, value }).collect())
    }

    pub(super) fn start(&self, server: Contender) -> Result<Server> {
        let scratch = self.scratch.join(server.name());
        fs::create_dir(&scratch)?;
        server.start(&self.volume.export(), &scratch)
    }

    fn start_echo(&self) -> Result<Server> {
        let scratch = self.scratch.join("echo");
        fs::create_dir(&scratch)?;
        Server::start_echo(&scratch)
    }

    fn run(&self, server: &Server, shape: Shape, load: &mut dyn pump::Load) -> Result<Spent> {
        let streams = connect(server, shape)?;
        pump::run(&streams, shape.depth, Amount::For(self.time / 5), load)?;
        let before = server.cpu_time()?;
        let burst = pump::run(&streams, shape.depth, Amount::For(self.time), load)?;
        ensure!(burst.units > 0, "nothing was done");
        let spent = server.cpu_time()?.saturating_sub(before);
        let spent = spent.saturating_sub(server.idle_cost(burst.elapsed));
        Ok(Spent { cpu_us: spent.as_secs_f64() * 1e6 / burst.units as f64, burst })
    }

    fn getattr(&self, server: &Server, target: &Target, shape: Shape) -> Result<Spent> {
        self.run(server, shape, &mut Nfs3Load::new(Op::Getattr, target, shape))
    }

    /// Ours and what it is compared with: who comes first changes from round to round.
    fn both<A, B>(
        &self,
        ours: impl FnOnce() -> Result<A>,
        reference: impl FnOnce() -> Result<B>,
    ) -> Result<(A, B)> {
        if self.round % 2 == 1 {
            let ours = ours()?;
            return Ok((ours, reference()?));
        }
        let reference = reference()?;
        Ok((ours()?, reference))
    }

    /// GETATTR, and echoes as long, in these shapes.
    fn getattr_and_echo<const N: usize>(&self, shapes: [Shape; N]) -> Result<([Spent; N], [Spent; N])> {
        let all = |spent: Vec<Spent>| <[Spent; N]>::try_from(spent).ok().context("a figure is missing");
        let ours = || {
            let server = self.start(Contender::HoldfastAsync)?;
            let target = Target::find(server.ports, 0)?;
            all(shapes.iter().map(|shape| self.getattr(&server, &target, *shape)).collect::<Result<_>>()?)
        };
        let echo = || {
            let (server, mut load) = (self.start_echo()?, EchoLoad::GETATTR);
            all(shapes.iter().map(|shape| self.run(&server, *shape, &mut load)).collect::<Result<_>>()?)
        };
        self.both(ours, echo)
    }

    fn echo(&self) -> Result<Figures> {
        let shapes = [Shape { connections: 4, depth: 8 }, Shape { connections: 1, depth: 1 }];
        let (ours, echoed) = self.getattr_and_echo(shapes)?;
        let words = ["4 connections of 8", "one call at a time"];
        let over = words.into_iter().zip(ours.iter().zip(&echoed)).map(|(words, (own, echoed))| {
            let what = format!("GETATTR, {words}: CPU over an echo's");
            (what, Wanted::AtMost(3.0), own.cpu_us / echoed.cpu_us)
        });
        Ok(over.collect())
    }

    fn iperf(&self) -> Result<Figures> {
        let ours = || {
            let server = self.start(Contender::HoldfastAsync)?;
            let target = Target::find(server.ports, 0)?;
            let shape = Shape { connections: 4, depth: 4 };
            let read = self.run(&server, shape, &mut Nfs3Load::new(Op::Read1m, &target, shape))?;
            Ok(read.rate() * f64::from(Op::Read1m.data_bytes()))
        };
        let (bytes, iperf) = self.both(ours, || iperf_bytes(self.time.max(Duration::from_secs(1))))?;
        Ok(vec![
            ("READ of 1 MiB: bytes a second over iperf3's".into(), Wanted::AtLeast(0.7), bytes / iperf),
            ("  iperf3, GB/s".into(), Wanted::Shown, iperf / 1e9),
        ])
    }

    fn creates(&self) -> Result<Figures> {
        let ours = || {
            // The program's files and the server's, records and all, on the same disk.
            let on_volume = self.volume.beside(&self.round.to_string());
            fs::create_dir(&on_volume)?;
            let same = self.durable_creates(&on_volume, 0)?;
            fs::remove_dir_all(&on_volume)?;
            let (other, ..) = self.durable_creates(self.scratch, 1)?;
            Ok((same, other))
        };
        let local = || {
            let flushes = self.volume.flushes()?;
            let took = local_creates(&self.volume.export().join(CHANGING).join("local"))?;
            Ok((took, self.volume.flushes()? - flushes))
        };
        let (((same, cpu, same_flushes), other), (local, local_flushes)) = self.both(ours, local)?;
        let over = |took: Duration| took.as_secs_f64() / local.as_secs_f64();
        let flushes = same_flushes as f64 / local_flushes.max(1) as f64;
        let what = "1,000 durable creates, 32 in flight: time over a local program's";
        let cpu = cpu.as_secs_f64() * 1e6 / CREATES as f64;
        Ok(vec![
            (what.into(), Wanted::AtMost(1.3), over(same)),
            ("  its records on another file system".into(), Wanted::Shown, over(other)),
            ("  the local program's, ms".into(), Wanted::Shown, local.as_secs_f64() * 1e3),
            ("  flushes of the disk over its".into(), Wanted::Shown, flushes),
            ("  CPU of the server, us a create".into(), Wanted::Shown, cpu),
        ])
    }

    /// Time, CPU time of the server and flushes of the volume that as many creates take in a folder, of a server with its
    /// records below `at`.
    fn durable_creates(&self, at: &Path, folder: usize) -> Result<(Duration, Duration, u64)> {
        let server = Contender::HoldfastSync.start(&self.volume.export(), at)?;
        let target = Target::find(server.ports, folder)?;
        let shape = Shape { connections: 1, depth: CREATES_IN_FLIGHT };
        let streams = connect(&server, shape)?;
        let mut load = Nfs3Load::new(Op::Create, &target, shape);
        let (before, flushes) = (server.cpu_time()?, self.volume.flushes()?);
        let burst = pump::run(&streams, shape.depth, Amount::Calls(CREATES), &mut load)?;
        Ok((burst.elapsed, server.cpu_time()?.saturating_sub(before), self.volume.flushes()? - flushes))
    }

    fn connections(&self) -> Result<Figures> {
        let shapes = [16, 1000].map(|connections| Shape { connections, depth: 8 });
        let (own, echoed) = self.getattr_and_echo(shapes)?;
        let kept = |[few, many]: &[Spent; 2]| (many.rate() / few.rate(), few.cpu_us / many.cpu_us);
        let ((rate, cpu), (echo_rate, echo_cpu)) = (kept(&own), kept(&echoed));
        let what = "GETATTR: rate over 1,000 connections over that of 16";
        Ok(vec![
            (what.into(), Wanted::AtLeast(0.8), rate),
            ("  the same of the echo server".into(), Wanted::Shown, echo_rate),
            ("  the one over the other".into(), Wanted::AtLeast(0.8), rate / echo_rate),
            ("  CPU an operation at 16 over that at 1,000".into(), Wanted::Shown, cpu),
            ("  that of the echo server".into(), Wanted::Shown, echo_cpu),
        ])
    }

    fn directory(&self) -> Result<Figures> {
        let mut cost = [0.0; 2];
        for (cost, entries) in cost.iter_mut().zip([self.entries / 10, self.entries]) {
            let name = format!("of-{entries}");
            fill(&self.volume.export().join(CHANGING).join(&name), entries)?;
            let scratch = self.scratch.join(&name);
            fs::create_dir(&scratch)?;
            let server = Contender::HoldfastAsync.start(&self.volume.export(), &scratch)?;
            let dir = target::find(server.ports, &[CHANGING, &name])?;
            let (listed, elapsed) = list(server.ports.nfs, &dir)?;
            ensure!(listed == entries + 2, "{listed} entries were listed of {entries}");
            *cost = elapsed.as_secs_f64() * 1e6 / entries as f64;
        }
        let [small, large] = cost;
        let what = "a listing's entry, of all over of a tenth of the entries: time";
        Ok(vec![
            (what.into(), Wanted::AtMost(1.5), large / small),
            ("  of all, µs an entry".into(), Wanted::Shown, large),
        ])
    }
}

pub(super) type Figures = Vec<(String, Wanted, f64)>;

pub(super) fn connect(server: &Server, shape: Shape) -> Result<Vec<std::net::TcpStream>> {
    (0..shape.connections).map(|_| call::connect(server.ports.nfs)).collect()
}

/// What a program on this host does: as many creates, one after the other, and one force of the journal for each 32.
fn local_creates(dir: &Path) -> Result<Duration> {
    fs::create_dir(dir)?;
    let opened = File::open(dir)?;
    opened.sync_all()?;
    let began = Instant::now();
    for number in 1..=CREATES {
        File::create_new(dir.join(format!("c{number}")))?;
        if number % CREATES_IN_FLIGHT as u64 == 0 || number == CREATES {
            rustix::fs::fsync(opened.as_fd())?;
        }
    }
    Ok(began.elapsed())
}

/// Bytes a second that iperf3 moves over loopback.
fn iperf_bytes(time: Duration) -> Result<f64> {
    let port = IPERF_PORT.to_string();
    let mut server = Command::new("iperf3")
        .args(["--server", "--bind", "127.0.0.1", "--port", &port])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("starting iperf3 (scripts/install-bench installs it)")?;
    let seconds = time.as_secs().max(1).to_string();
    let deadline = Instant::now() + IPERF_PATIENCE;
    // It takes a connection for a test: only its own client can tell whether it listens.
    let measured = loop {
        let measured = iperf_client(&port, &seconds);
        if measured.is_ok() || Instant::now() > deadline {
            break measured;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    // That it is gone already is what is wanted.
    let _ = server.kill();
    let _ = server.wait();
    measured
}

fn iperf_client(port: &str, seconds: &str) -> Result<f64> {
    let client = Command::new("iperf3")
        .args(["--client", "127.0.0.1", "--port", port, "--time", seconds, "--json"])
        .output()?;
    ensure!(client.status.success(), "iperf3: {}", String::from_utf8_lossy(&client.stdout).trim());
    let said: serde_json::Value = serde_json::from_slice(&client.stdout)?;
    let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 8.0).context("iperf3 says no rate")
}
