//! One server on its volume, and what is asked of it there.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{Curve, Point};
use crate::client::call;
use crate::client::nfs3::Nfs3Load;
use crate::client::target::Target;
use crate::client::{Amount, Burst, pump};
use crate::plan::{Op, Shape};
use crate::rival::{Contender, Server};
use crate::volume::Volume;

/// Names that are made at each point.
const NAMES: u64 = 2000;

/// One server, and where it stands.
pub(super) struct Stand<'a> {
    pub(super) server: Contender,
    pub(super) volume: &'a Volume,
    pub(super) scratch: &'a Path,
    pub(super) time: Duration,
}

/// What is asked of the server, and what it took.
pub(super) struct Watched<'s> {
    server: &'s Server,
    cpu: Duration,
}

impl<'s> Watched<'s> {
    pub(super) fn begin(server: &'s Server) -> Result<Self> {
        Ok(Self { server, cpu: server.cpu_time()? })
    }

    /// µs of CPU each of so many took.
    pub(super) fn end(&self, (units, elapsed): (u64, Duration)) -> Result<f64> {
        ensure!(units > 0, "nothing was done");
        let spent = self.server.cpu_time()?.saturating_sub(self.cpu);
        let spent = spent.saturating_sub(self.server.idle_cost(elapsed));
        Ok(spent.as_secs_f64() * 1e6 / units as f64)
    }
}

impl Stand<'_> {
    pub(super) fn start(&self, name: &str) -> Result<Server> {
        self.volume.begin_turn(64)?;
        let scratch = self.scratch.join(name);
        fs::create_dir(&scratch).with_context(|| scratch.display().to_string())?;
        self.server.start(&self.volume.export(), &scratch)
    }

    pub(super) fn point(&self, curve: Curve, op: &'static str, at: u64, (cpu_us, rate): (f64, f64)) -> Point {
        Point { curve, op, server: self.server.name(), at, cpu_us, rate, memory_bytes: None }
    }

    /// One operation over NFSv3, in a shape.
    pub(super) fn measure(
        &self,
        server: &Server,
        target: &Target,
        (op, shape): (Op, Shape),
    ) -> Result<(f64, f64)> {
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
}

pub(super) fn rate(burst: &Burst) -> f64 {
    burst.units as f64 / burst.elapsed.as_secs_f64()
}
