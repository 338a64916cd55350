//! One server on the volume, in one round, and what is asked of it there.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use super::Curve;
use super::figures::Sample;
use crate::client::call;
use crate::client::nfs3::Nfs3Load;
use crate::client::pump::{self, Load};
use crate::client::target::Target;
use crate::client::{Amount, Burst};
use crate::cpu;
use crate::plan::{Op, Shape};
use crate::rival::{Contender, Server};
use crate::volume::Volume;

/// Names that are made at each point.
pub(super) const NAMES: u64 = 2000;
/// Folders of changing names that are there when a server starts.
const FOLDERS: usize = 64;

/// One server, and where it stands.
pub(super) struct Stand<'a> {
    pub(super) server: Contender,
    pub(super) round: u64,
    pub(super) volume: &'a Volume,
    pub(super) scratch: &'a Path,
    pub(super) time: Duration,
}

/// What one operation of a burst took (of a listing: an entry).
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// µs of the server's CPU time.
    pub(super) cpu_us: f64,
    /// µs of the client's.
    pub(super) client_us: f64,
    /// How many a second.
    pub(super) rate: f64,
}

/// The server and this process, watched while something is asked.
pub(super) struct Watched<'s> {
    server: &'s Server,
    cpu: Duration,
    client_cpu: Duration,
}

impl<'s> Watched<'s> {
    pub(super) fn begin(server: &'s Server) -> Result<Self> {
        Ok(Self { server, cpu: server.cpu_time()?, client_cpu: cpu::of_self()? })
    }

    /// What each of so many took.
    pub(super) fn end(&self, (units, elapsed): (u64, Duration)) -> Result<Taken> {
        ensure!(units > 0, "nothing was done");
        let spent = self.server.cpu_time()?.saturating_sub(self.cpu);
        let spent = spent.saturating_sub(self.server.idle_cost(elapsed));
        let each_us = |time: Duration| time.as_secs_f64() * 1e6 / units as f64;
        Ok(Taken {
            cpu_us: each_us(spent),
            client_us: each_us(cpu::of_self()?.saturating_sub(self.client_cpu)),
            rate: units as f64 / elapsed.as_secs_f64(),
        })
    }
}

impl Stand<'_> {
    /// Starts the server, with nothing of an earlier turn there.
    pub(super) fn start(&self, name: &str) -> Result<Server> {
        self.volume.begin_turn(FOLDERS)?;
        let scratch = self.scratch.join(format!("{}-{name}-{}", self.server.name(), self.round));
        fs::create_dir(&scratch).with_context(|| scratch.display().to_string())?;
        self.server.start(&self.volume.export(), &scratch)
    }

    pub(super) fn sample(&self, (curve, op): (Curve, &'static str), at: u64, taken: Taken) -> Sample {
        Sample {
            curve,
            op,
            server: self.server.name(),
            round: self.round,
            at,
            cpu_us: taken.cpu_us,
            client_us: taken.client_us,
            rate: taken.rate,
            memory_bytes: None,
        }
    }

    /// One operation over NFSv3, over connections of its own.
    pub(super) fn measure(
        &self,
        server: &Server,
        target: &Target,
        (op, shape): (Op, Shape),
    ) -> Result<Taken> {
        let connect = |_| call::connect(server.ports.nfs);
        let streams = (0..shape.connections).map(connect).collect::<Result<Vec<_>>>()?;
        let mut load = Nfs3Load::new(op, target, shape);
        if op.is_counted() {
            return watch(server, || pump::run(&streams, shape.depth, Amount::Calls(NAMES), &mut load));
        }
        self.burst(server, (&streams, shape.depth), &mut load)
    }

    /// As much of a load as the time allows, after a quarter of that uncounted.
    pub(super) fn burst(
        &self,
        server: &Server,
        (streams, depth): (&[TcpStream], usize),
        load: &mut dyn Load,
    ) -> Result<Taken> {
        pump::run(streams, depth, Amount::For(self.time / 4), load)?;
        watch(server, || pump::run(streams, depth, Amount::For(self.time), load))
    }
}

/// What each operation of a burst takes.
pub(super) fn watch(server: &Server, work: impl FnOnce() -> Result<Burst>) -> Result<Taken> {
    let watched = Watched::begin(server)?;
    let burst = work()?;
    watched.end((burst.units, burst.elapsed))
}
