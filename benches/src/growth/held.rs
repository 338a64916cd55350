//! Opens and locks that stay.

use anyhow::Result;

use super::figures::Sample;
use super::stand::{Stand, watch};
use super::{Curve, decades};
use crate::client::nfs41::{Fleet, Held};
use crate::client::target::Target;
use crate::client::{Amount, pump};
use crate::plan::Shape;

impl Stand<'_> {
    pub(super) fn held(&self, curve: Curve, most: u64) -> Result<Vec<Sample>> {
        let (what, name) = match curve {
            Curve::Locks => (Held::Locks, "lock"),
            _ => (Held::Opens, "open"),
        };
        let server = self.start(name)?;
        let target = Target::find(server.ports, 0)?;
        let shape = Shape { connections: 1, depth: 8 };
        let mut fleet = Fleet::new(server.ports.nfs, shape, &target)?;
        let streams = fleet.take_streams();
        let (mut samples, mut held) = (Vec::new(), 0);
        for number in decades(100, most) {
            let memory = server.memory_bytes()?;
            let amount = Amount::Calls(number - held);
            let mut load = fleet.hold(what, held);
            let taken = watch(&server, || pump::run(&streams, shape.depth, amount, &mut load))?;
            let more = (server.memory_bytes()? - memory) as f64 / (number - held) as f64;
            let sample = self.sample((curve, name), number, taken);
            samples.push(Sample { memory_bytes: Some(more), ..sample });
            held = number;
        }
        Ok(samples)
    }
}
