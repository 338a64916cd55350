//! Connections, each with calls in flight; they stay while more come.

use anyhow::Result;

use super::Curve;
use super::figures::Sample;
use super::stand::Stand;
use crate::client::call::connect;
use crate::client::nfs3::Nfs3Load;
use crate::client::target::Target;
use crate::plan::{Op, Shape};

/// Calls in flight on each.
const DEPTH: usize = 8;
/// What fewer new ones took of the server's memory says nothing: it asks for that in larger pieces.
const MEMORY_OF_AT_LEAST: usize = 32;

impl Stand<'_> {
    pub(super) fn connections(&self, most: u64) -> Result<Vec<Sample>> {
        let server = self.start("connections")?;
        let target = Target::find(server.ports, 0)?;
        let numbers = [1, 4, 16, 64, 250].into_iter().filter(|n| *n < most).chain([most]);
        let (mut samples, mut streams) = (Vec::new(), Vec::new());
        for number in numbers {
            let (before, memory) = (streams.len(), server.memory_bytes()?);
            let connections = usize::try_from(number)?;
            while streams.len() < connections {
                streams.push(connect(server.ports.nfs)?);
            }
            let mut load = Nfs3Load::new(Op::Getattr, &target, Shape { connections, depth: DEPTH });
            let taken = self.burst(&server, (&streams, DEPTH), &mut load)?;
            let (new, more) = (connections - before, server.memory_bytes()? - memory);
            let memory_bytes = (new >= MEMORY_OF_AT_LEAST).then_some(more as f64 / new as f64);
            let sample = self.sample((Curve::Connections, "getattr"), number, taken);
            samples.push(Sample { memory_bytes, ..sample });
        }
        Ok(samples)
    }
}
