//! What is done in a round for each limit.

use anyhow::{Context, Result, ensure};
use std::fs;
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
    pub(super) fn both<A, B>(
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
