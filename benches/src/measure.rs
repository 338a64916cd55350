//! One contender's turn: the operations of a client in a shape, each with the server's CPU time taken around it.

use crate::bout::Bout;
use crate::client::echo::EchoLoad;
use crate::client::libnfs::Program;
use crate::client::target::Target;
use crate::client::{Amount, Burst, call, pump};
use crate::perf::Perf;
use crate::plan::{ClientKind, Op, Shape};
use crate::rival::{Contender, Ports, Server};
use crate::volume::Volume;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::time::Duration;

/// What is to be done in every turn.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Clients, one after the other.
    pub(crate) clients: Vec<ClientKind>,
    /// Shapes of the load.
    pub(crate) shapes: Vec<Shape>,
    /// Operations, in the order of [`Op::ALL`].
    pub(crate) ops: Vec<Op>,
    /// The time of each timed operation but listings.
    pub(crate) time: Duration,
    /// The time of listings, at least: one that has begun is brought to its end.
    pub(crate) listing_time: Duration,
    /// The number of each counted operation.
    pub(crate) count: u64,
    /// Processes of a client; when not given, one, and two where one is the limit.
    pub(crate) processes: Option<usize>,
    /// Users that call in turn; none: root.
    pub(crate) users: u32,
}

impl Plan {
    /// The operations of a shape, in their order, without those that come to the same as in an earlier shape.
    pub(crate) fn ops_in(&self, shape: Shape) -> impl Iterator<Item = Op> {
        let earlier = self.shapes.iter().take_while(move |earlier| **earlier != shape);
        let is_known = move |op: &Op| earlier.clone().any(|earlier| earlier.for_op(*op) == shape.for_op(*op));
        self.ops.iter().copied().filter(move |op| !is_known(op))
    }

    /// Every client in every shape; shapes outermost, so that what the clients show of one lies together.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        let of = |&shape| self.clients.iter().map(move |&client| Workload { client, shape });
        self.shapes.iter().flat_map(of).collect()
    }
}

/// A client in a shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// The client.
    pub(crate) client: ClientKind,
    /// Connections x depth.
    pub(crate) shape: Shape,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.client.name(), self.shape)
    }
}

/// One operation measured once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// The contender's name, or `echo`.
    pub(crate) contender: &'static str,
    /// The client's name.
    pub(crate) client: &'static str,
    /// Connections x depth.
    pub(crate) shape: String,
    /// The operation's name.
    pub(crate) op: &'static str,
    /// The round, from 1.
    pub(crate) round: usize,
    /// Processes of the client.
    pub(crate) processes: usize,
    /// Operations done (entries, for listings).
    pub(crate) units: u64,
    /// Operations a second.
    pub(crate) rate: f64,
    /// µs of the server's CPU time an operation, what it costs idle being taken off.
    pub(crate) server_cpu_us: f64,
    /// µs of the client's CPU time an operation.
    pub(crate) client_cpu_us: f64,
    /// Latency of a call, median, µs.
    pub(crate) p50_us: f64,
    /// Latency of a call, 99th percentile, µs.
    pub(crate) p99_us: f64,
}

/// A server under load, wherever it runs.
pub(crate) trait Measured {
    /// Where it listens.
    fn ports(&self) -> Ports;

    /// CPU time that it has used so far.
    ///
    /// Errors when it is gone.
    fn cpu_time(&self) -> Result<Duration>;

    /// CPU time that `elapsed` costs it without clients.
    fn idle_cost(&self, elapsed: Duration) -> Duration;

    /// Its process, for a profiler.
    ///
    /// Errors when it is none of this host.
    fn pid(&self) -> Result<u32>;
}

impl Measured for Server {
    fn ports(&self) -> Ports {
        self.ports
    }

    fn cpu_time(&self) -> Result<Duration> {
        Self::cpu_time(self)
    }

    fn idle_cost(&self, elapsed: Duration) -> Duration {
        Self::idle_cost(self, elapsed)
    }

    fn pid(&self) -> Result<u32> {
        Ok(Self::pid(self))
    }
}

/// What every turn needs.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// What is to be done.
    pub(crate) plan: &'a Plan,
    /// Where a turn's own files may lie.
    pub(crate) scratch: &'a Path,
    /// The client over libnfs, where the plan has it.
    pub(crate) libnfs: Option<&'a Program>,
    /// The profiler, when asked for.
    pub(crate) perf: Option<&'a Perf>,
}

/// What a turn brought.
#[derive(Debug, Default)]
pub(crate) struct Harvest {
    /// What was measured.
    pub(crate) samples: Vec<Sample>,
    /// What could not be.
    pub(crate) failures: Vec<Failure>,
}

/// One operation that could not be measured once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    /// The contender's name.
    pub(crate) contender: &'static str,
    /// The client's name.
    pub(crate) client: &'static str,
    /// Connections x depth.
    pub(crate) shape: String,
    /// The operation's name.
    pub(crate) op: &'static str,
    /// The round, from 1.
    pub(crate) round: usize,
    /// Why.
    pub(crate) why: String,
}

impl Stage<'_> {
    /// A contender's turn with one client in one shape, started for that; an operation that fails does not end it.
    ///
    /// Errors when the server cannot be started, or the volume not be made ready.
    pub(crate) fn turn(
        &self,
        contender: Contender,
        volume: &Volume,
        workload: Workload,
        round: usize,
        harvest: &mut Harvest,
    ) -> Result<()> {
        volume.begin_turn(1)?;
        let scratch = self.own_scratch(&format!("{}-{workload}-{round}", contender.name()))?;
        let server = contender.start(&volume.export(), &scratch)?;
        self.bouts((contender.name(), &server), &[workload], round, harvest)
    }

    /// Every operation of some workloads, each in a folder of its own; one that fails is written down.
    ///
    /// Errors when the server does not even show what lies on the volume.
    pub(crate) fn bouts(
        &self,
        (name, server): (&'static str, &dyn Measured),
        workloads: &[Workload],
        round: usize,
        harvest: &mut Harvest,
    ) -> Result<()> {
        for (folder, workload @ &Workload { client, shape }) in workloads.iter().enumerate() {
            let target = Target::find(server.ports(), folder)?;
            for op in self.plan.ops_in(shape) {
                let label = format!("{name}-{workload}-{}", op.name());
                let (stage, target) = (self, &target);
                let bout = Bout { stage, server, target, client, op, shape: shape.for_op(op), label };
                let (contender, client, shape, op) = (name, client.name(), shape.to_string(), op.name());
                match bout.measure() {
                    Ok(taken) => {
                        harvest.samples.push(Sample { contender, client, shape, op, round, ..taken });
                    }
                    Err(e) => {
                        let why = format!("{e:#}");
                        harvest.failures.push(Failure { contender, client, shape, op, round, why });
                    }
                }
            }
        }
        Ok(())
    }

    /// The echo server's turn in one shape, for reference.
    ///
    /// Errors when it does not work.
    pub(crate) fn echo_turn(&self, shape: Shape, round: usize, harvest: &mut Harvest) -> Result<()> {
        let server = Server::start_echo(&self.own_scratch(&format!("echo-{shape}-{round}"))?)?;
        self.echo_bouts(&server, &[shape], round, harvest)
    }

    /// Some shapes with an echo server.
    ///
    /// Errors when it does not work.
    pub(crate) fn echo_bouts(
        &self,
        server: &dyn Measured,
        shapes: &[Shape],
        round: usize,
        harvest: &mut Harvest,
    ) -> Result<()> {
        for &shape in shapes {
            let streams = connect_all(server.ports().nfs, shape)?;
            let mut load = EchoLoad::GETATTR;
            pump::run(&streams, shape.depth, Amount::For(self.plan.time / 5), &mut load)?;
            let before = server.cpu_time()?;
            let burst = pump::run(&streams, shape.depth, Amount::For(self.plan.time), &mut load)?;
            let taken = sample(server, before, &burst)?;
            harvest.samples.push(Sample { shape: shape.to_string(), round, ..taken });
        }
        Ok(())
    }

    fn own_scratch(&self, name: &str) -> Result<std::path::PathBuf> {
        let path = self.scratch.join(name);
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// As many connections as a shape has.
///
/// Errors when one is refused.
pub(crate) fn connect_all(server: SocketAddrV4, shape: Shape) -> Result<Vec<TcpStream>> {
    (0..shape.connections).map(|_| call::connect(server)).collect()
}

/// What a burst came to, as a sample of the echo server; whose it is else, the caller fills in.
pub(crate) fn sample(server: &dyn Measured, cpu_before: Duration, burst: &Burst) -> Result<Sample> {
    ensure!(burst.units > 0, "nothing was done");
    let spent = server.cpu_time()?.saturating_sub(cpu_before);
    let spent = spent.saturating_sub(server.idle_cost(burst.elapsed));
    let each_us = |time: Duration| time.as_secs_f64() * 1e6 / burst.units as f64;
    Ok(Sample {
        contender: "echo",
        client: ClientKind::Raw3.name(),
        shape: String::new(),
        op: "echo",
        round: 0,
        processes: 1,
        units: burst.units,
        rate: burst.units as f64 / burst.elapsed.as_secs_f64(),
        server_cpu_us: each_us(spent),
        client_cpu_us: each_us(burst.client_cpu),
        p50_us: burst.p50_us,
        p99_us: burst.p99_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_the_same_in_two_shapes_is_measured_in_the_first() {
        let shape = |connections, depth| Shape { connections, depth };
        let plan = Plan {
            clients: Vec::new(),
            shapes: vec![shape(4, 8), shape(4, 32), shape(4, 1), shape(16, 32)],
            ops: vec![Op::Getattr, Op::Readdir, Op::Read1m],
            time: Duration::ZERO,
            listing_time: Duration::ZERO,
            count: 0,
            processes: None,
            users: 0,
        };
        let ops_in = |connections, depth| plan.ops_in(shape(connections, depth)).collect::<Vec<_>>();
        assert_eq!(ops_in(4, 8), plan.ops);
        assert_eq!(ops_in(4, 32), [Op::Getattr], "listings as 4x1, transfers as 4x4");
        assert_eq!(ops_in(4, 1), [Op::Getattr, Op::Read1m]);
        assert_eq!(ops_in(16, 32), plan.ops);
    }
}
