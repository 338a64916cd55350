//! What is done in a round for each limit.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::slow_disk::{Missing, SlowDisk};
use super::{Limit, Taken};
use crate::client::call;
use crate::client::echo::EchoLoad;
use crate::client::nfs3::Nfs3Load;
use crate::client::target::{self, Target};
use crate::client::{Amount, Burst, pump};
use crate::growth::{fill, list};
use crate::plan::{Op, Shape};
use crate::rival::{Contender, Server};
use crate::volume::{CHANGING, Volume};
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
            Limit::Directory => self.directory(),
        };
        let figures = figures?.into_iter();
        Ok(figures.map(|(what, wanted, value)| Taken { limit, what, wanted, value }).collect())
    }

    fn start(&self, server: Contender) -> Result<Server> {
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

    fn echo(&self) -> Result<Figures> {
        let shapes = [
            ("GETATTR, 4 connections of 8: CPU over an echo's", Shape { connections: 4, depth: 8 }),
            ("GETATTR, one call at a time: CPU over an echo's", Shape { connections: 1, depth: 1 }),
        ];
        let server = self.start(Contender::HoldfastAsync)?;
        let target = Target::find(server.ports, 0)?;
        let own = shapes.map(|(_, shape)| self.getattr(&server, &target, shape));
        drop(server);
        let echo = self.start_echo()?;
        let (mut figures, mut load) = (Vec::new(), EchoLoad::GETATTR);
        for ((what, shape), own) in shapes.into_iter().zip(own) {
            let echoed = self.run(&echo, shape, &mut load)?;
            figures.push((what, Wanted::AtMost(3.0), own?.cpu_us / echoed.cpu_us));
        }
        Ok(figures)
    }

    fn iperf(&self) -> Result<Figures> {
        let server = self.start(Contender::HoldfastAsync)?;
        let target = Target::find(server.ports, 0)?;
        let shape = Shape { connections: 4, depth: 4 };
        let read = self.run(&server, shape, &mut Nfs3Load::new(Op::Read1m, &target, shape))?;
        drop(server);
        let bytes = read.rate() * f64::from(Op::Read1m.data_bytes());
        let iperf = iperf_bytes(self.time.max(Duration::from_secs(1)))?;
        Ok(vec![
            ("READ of 1 MiB: bytes a second over iperf3's", Wanted::AtLeast(0.7), bytes / iperf),
            ("  iperf3, GB/s", Wanted::Shown, iperf / 1e9),
        ])
    }

    fn creates(&self) -> Result<Figures> {
        let flushes = self.volume.flushes()?;
        let local = local_creates(&self.volume.export().join(CHANGING).join("local"))?;
        let local_flushes = self.volume.flushes()? - flushes;
        // The program's files and the server's, records and all, on the same disk.
        let round = self.scratch.file_name().unwrap_or_default().to_string_lossy();
        let on_volume = self.volume.beside(&round);
        fs::create_dir(&on_volume)?;
        let (same, cpu, same_flushes) = self.durable_creates(&on_volume, 0)?;
        fs::remove_dir_all(&on_volume)?;
        let (other, ..) = self.durable_creates(self.scratch, 1)?;
        let over = |took: Duration| took.as_secs_f64() / local.as_secs_f64();
        Ok(vec![
            (
                "1,000 durable creates, 32 in flight: time over a local program's",
                Wanted::AtMost(1.3),
                over(same),
            ),
            ("  its records on another file system", Wanted::Shown, over(other)),
            ("  the local program's, ms", Wanted::Shown, local.as_secs_f64() * 1e3),
            (
                "  flushes of the disk over its",
                Wanted::Shown,
                same_flushes as f64 / local_flushes.max(1) as f64,
            ),
            ("  CPU of the server, us a create", Wanted::Shown, cpu.as_secs_f64() * 1e6 / CREATES as f64),
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
        let [few, many] = [16, 1000].map(|connections| Shape { connections, depth: 8 });
        let server = self.start(Contender::HoldfastAsync)?;
        let target = Target::find(server.ports, 0)?;
        let own = [self.getattr(&server, &target, few)?, self.getattr(&server, &target, many)?];
        drop(server);
        let echo = self.start_echo()?;
        let mut load = EchoLoad::GETATTR;
        let echoed = [self.run(&echo, few, &mut load)?, self.run(&echo, many, &mut load)?];
        let kept = |[few, many]: &[Spent; 2]| (many.rate() / few.rate(), few.cpu_us / many.cpu_us);
        let ((rate, cpu), (echo_rate, echo_cpu)) = (kept(&own), kept(&echoed));
        Ok(vec![
            ("GETATTR: rate over 1,000 connections over that of 16", Wanted::AtLeast(0.8), rate),
            ("  the same of the echo server", Wanted::Shown, echo_rate),
            ("  the one over the other", Wanted::AtLeast(0.8), rate / echo_rate),
            ("  CPU an operation at 16 over that at 1,000", Wanted::Shown, cpu),
            ("  that of the echo server", Wanted::Shown, echo_cpu),
        ])
    }

    fn slow_disk(&self) -> Result<Figures> {
        let server = self.start(Contender::HoldfastAsync)?;
        let target = Target::find(server.ports, 0)?;
        // One call at a time on each: what is measured is no queue of the client's own.
        let shape = Shape { connections: 2, depth: 1 };
        let quiet = self.getattr(&server, &target, shape)?;
        let warm = Target { read_file: target.write_file.clone(), ..target.clone() };
        let mut load = Nfs3Load::new(Op::Read4k, &warm, shape);
        self.run(&server, shape, &mut load)?;
        let disk = SlowDisk::under(self.volume, &server)?;
        let reading = disk.read_meanwhile(&server, &target, self.time * 3, Missing::All)?;
        let others = self.getattr(&server, &target, shape)?;
        let reads = self.run(&server, shape, &mut load)?;
        let slow = reading.end()?;
        let reading = disk.read_meanwhile(&server, &target, self.time * 3 / 2, Missing::Middle)?;
        let beside_large = self.getattr(&server, &target, shape)?;
        let slow_large = reading.end()?;
        let ms = |spent: &Spent| spent.burst.p99_us / 1e3;
        Ok(vec![
            ("GETATTR beside a READ that waits for a disk: p99, ms", Wanted::AtMost(1.0), ms(&others)),
            ("cached READ beside it: p99, ms", Wanted::AtMost(1.0), ms(&reads)),
            ("GETATTR over the same connection: p99, ms", Wanted::AtMost(1.0), slow.own_p99_ms),
            (
                "GETATTR beside a READ of 1 MiB whose middle waits: p99, ms",
                Wanted::AtMost(1.0),
                ms(&beside_large),
            ),
            ("  GETATTR with nothing beside it: p99, ms", Wanted::Shown, ms(&quiet)),
            ("  READs that waited", Wanted::Shown, slow.reads as f64),
            ("  half of them at most, ms", Wanted::Shown, slow.median_ms),
            ("  READs of 1 MiB that waited", Wanted::Shown, slow_large.reads as f64),
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
        Ok(vec![
            (
                "a listing's entry, of all over of a tenth of the entries: time",
                Wanted::AtMost(1.5),
                large / small,
            ),
            ("  of all, µs an entry", Wanted::Shown, large),
        ])
    }
}

type Figures = Vec<(&'static str, Wanted, f64)>;

fn connect(server: &Server, shape: Shape) -> Result<Vec<std::net::TcpStream>> {
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
