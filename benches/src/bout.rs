//! One operation of one client in one shape: warmed up, then measured with the server's CPU time taken around it; by as
//! many processes of the client as it takes.

use crate::client::nfs3::Nfs3Load;
use crate::client::nfs41::Fleet;
use crate::client::pump::{self, Load, Part};
use crate::client::target::Target;
use crate::client::{Amount, Burst, libnfs};
use crate::measure::{Measured, Sample, Stage, connect_all, sample};
use crate::plan::{ClientKind, Op, Shape};
use anyhow::{Context, Result};
use std::net::TcpStream;
use std::time::Duration;

/// How much of the time of its processes a client may work: beyond, its rate is no figure of the server's.
const CLIENT_LIMIT: f64 = 0.8;

/// What is to be measured.
pub(crate) struct Bout<'a> {
    /// The run that it is part of.
    pub(crate) stage: &'a Stage<'a>,
    /// The server.
    pub(crate) server: &'a dyn Measured,
    /// What is on it.
    pub(crate) target: &'a Target,
    /// The client.
    pub(crate) client: ClientKind,
    /// The operation.
    pub(crate) op: Op,
    /// The shape, as it is for the operation.
    pub(crate) shape: Shape,
    /// What a profile is called.
    pub(crate) label: String,
}

/// What one process of the client does of a bout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Its connections, and the calls in flight on each.
    pub(crate) shape: Shape,
    /// How much it does.
    pub(crate) amount: Amount,
    /// The number of its first name.
    pub(crate) first: u64,
    /// Users that call in turn; none: root. Not of libnfs, which would make its credential anew for every call.
    pub(crate) users: u32,
}

impl Bout<'_> {
    /// Measures it with the processes that were asked for; where none were, with one, and where that is the limit, with two:
    /// then the higher rate counts. What can be done once only is not repeated.
    ///
    /// Errors when a call fails.
    pub(crate) fn measure(&self) -> Result<Sample> {
        let asked_for = self.stage.plan.processes;
        let taken = self.measure_by(asked_for.unwrap_or(1))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let may_have_more = asked_for.is_none() && cores > 1 && self.shape.connections > 1;
        let is_limit = is_client_limit(taken.client_cpu_us, taken.rate, taken.processes);
        if !may_have_more || !is_limit || self.op.is_counted() {
            return Ok(taken);
        }
        let again = self.measure_by(2)?;
        Ok(if again.rate > taken.rate { again } else { taken })
    }

    fn measure_by(&self, processes: usize) -> Result<Sample> {
        let (address, op, shape) = (self.server.ports().nfs, self.op, self.shape);
        let shares = shares(shape, self.amount(), processes, self.stage.plan.users);
        let taken = match self.client {
            ClientKind::Raw3 => {
                let streams = connect_all(address, shape)?;
                self.warm_up(&streams)?;
                let load = |share: &Share| Nfs3Load::new(op, self.target, share.shape).of_share(share);
                let mut loads: Vec<_> = shares.iter().map(load).collect();
                self.watch(|| pump::run_parts(parts(&shares, &streams, &mut loads)))
            }
            ClientKind::Raw41 => {
                let mut fleet = Fleet::new(address, shape, self.target)?;
                let streams = fleet.take_streams();
                if !op.is_counted() {
                    let streams = self.warming(&streams);
                    pump::run(streams, shape.depth, self.warming_time(), &mut fleet.load(op))?;
                }
                let mut loads = fleet.loads(op, &shares);
                self.watch(|| pump::run_parts(parts(&shares, &streams, &mut loads)))
            }
            ClientKind::Libnfs => {
                let program = self.stage.libnfs.context("the client over libnfs was not compiled")?;
                self.warm_up(&connect_all(address, shape)?)?;
                let ready = shares.iter().map(|share| program.ready(address, op, *share, self.target));
                let ready = ready.collect::<Result<Vec<_>>>()?;
                self.watch(|| libnfs::run(ready))
            }
        };
        Ok(Sample { processes: shares.len(), ..taken? })
    }

    fn amount(&self) -> Amount {
        if self.op.is_counted() { Amount::Calls(self.stage.plan.count) } else { Amount::For(self.time()) }
    }

    fn time(&self) -> Duration {
        let plan = self.stage.plan;
        if self.op == Op::Readdir { plan.listing_time } else { plan.time }
    }

    fn warming_time(&self) -> Amount {
        Amount::For(self.time() / 5)
    }

    /// A little of the same first, so that caches are full. Not of what can be done once only.
    fn warm_up(&self, streams: &[TcpStream]) -> Result<()> {
        if !self.op.is_counted() {
            let mut load = Nfs3Load::new(self.op, self.target, self.shape);
            pump::run(self.warming(streams), self.shape.depth, self.warming_time(), &mut load)?;
        }
        Ok(())
    }

    /// Of a listing one connection is enough: it is brought to its end, and then the server knows the directory.
    fn warming<'s>(&self, streams: &'s [TcpStream]) -> &'s [TcpStream] {
        if self.op == Op::Readdir { &streams[..1] } else { streams }
    }

    fn watch(&self, work: impl FnOnce() -> Result<Burst>) -> Result<Sample> {
        let perf = self.stage.perf;
        let watching = perf.map(|perf| perf.start(self.server.pid()?, &self.label)).transpose()?;
        let before = self.server.cpu_time()?;
        let burst = work()?;
        let taken = sample(self.server, before, &burst);
        if let Some(watching) = watching {
            watching.finish()?;
        }
        taken
    }
}

/// Whether the client's processes work nearly all the time.
pub(crate) fn is_client_limit(client_cpu_us: f64, rate: f64, processes: usize) -> bool {
    client_cpu_us * rate / 1e6 > CLIENT_LIMIT * processes as f64
}

/// Connections, and names, are divided evenly; no process is without a connection.
fn shares(shape: Shape, amount: Amount, processes: usize, users: u32) -> Vec<Share> {
    let processes = processes.clamp(1, shape.connections);
    let amount = match amount {
        Amount::For(time) => Amount::For(time),
        Amount::Calls(count) => Amount::Calls(count / processes as u64),
    };
    let share = |number: usize| {
        let connections = shape.connections / processes + usize::from(number < shape.connections % processes);
        let first = match amount {
            // What is gone through in order is begun elsewhere by each.
            Amount::For(_) => number as u64 * 31,
            Amount::Calls(count) => number as u64 * count,
        };
        Share { shape: Shape { connections, ..shape }, amount, first, users }
    };
    (0..processes).map(share).collect()
}

fn parts<'a, L: Load + Send>(
    shares: &[Share],
    mut streams: &'a [TcpStream],
    loads: &'a mut [L],
) -> Vec<Part<'a>> {
    let part = |(share, load): (&Share, &'a mut L)| {
        let (own, others) = streams.split_at(share.shape.connections);
        streams = others;
        Part { streams: own, depth: share.shape.depth, amount: share.amount, load }
    };
    shares.iter().zip(loads).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_connections_and_names_and_none_has_no_connection() {
        let shape = Shape { connections: 3, depth: 8 };
        let shared = shares(shape, Amount::Calls(100), 2, 0);
        assert_eq!(shared.iter().map(|share| share.shape.connections).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(shared.iter().map(|share| share.first).collect::<Vec<_>>(), [0, 50]);
        assert!(shared.iter().all(|share| share.amount == Amount::Calls(50)));
        assert_eq!(shares(shape, Amount::Calls(100), 9, 0).len(), 3);
    }

    #[test]
    fn a_client_is_the_limit_that_works_nearly_all_the_time() {
        assert!(is_client_limit(0.9, 1e6, 1));
        assert!(!is_client_limit(0.7, 1e6, 1));
        assert!(!is_client_limit(0.9, 1e6, 2));
    }
}
