//! Opens and locks that stay, of several clients with a session each: what one more costs, and what others' calls cost
//! beside them.

use anyhow::Result;

use super::figures::Sample;
use super::stand::{Stand, watch};
use super::{Curve, decades};
use crate::client::nfs41::{Beside, Fleet, Held};
use crate::client::target::Target;
use crate::client::{Amount, pump};
use crate::plan::Shape;
use crate::volume::SMALL_FILES;

/// The least that is held where anything is asked.
const LEAST: u64 = 100;
/// Clients, and calls in flight of each.
const SHAPE: Shape = Shape { connections: 4, depth: 8 };

impl Stand<'_> {
    pub(super) fn held(&self, curve: Curve, most: u64) -> Result<Vec<Sample>> {
        let (what, name, op, open_files) = match curve {
            Curve::Locks => (Held::Locks, "locks", "lock", 0),
            Curve::LocksSpread => (Held::LocksOfSmallFiles, "locks-spread", "lock", SMALL_FILES),
            _ => (Held::Opens, "opens", "open", 0),
        };
        let server = self.start(name)?;
        let target = Target::find(server.ports, 0)?;
        let mut fleet = Fleet::with_small_files_open(server.ports.nfs, SHAPE, &target, open_files)?;
        let streams = fleet.take_streams();
        let (mut samples, mut held) = (Vec::new(), 0);
        for number in decades(LEAST, most) {
            let memory = server.memory_bytes()?;
            let amount = Amount::Calls(number - held);
            let mut load = fleet.hold(what, held);
            let taken = watch(&server, || pump::run(&streams, SHAPE.depth, amount, &mut load))?;
            let more = (server.memory_bytes()? - memory) as f64 / (number - held) as f64;
            let sample = self.sample((curve, op), number, taken);
            samples.push(Sample { memory_bytes: Some(more), ..sample });
            held = number;
            for beside in Beside::ALL {
                let taken = self.burst(&server, (&streams, SHAPE.depth), &mut fleet.beside(beside)?)?;
                samples.push(self.sample((curve, beside.name()), number, taken));
            }
        }
        Ok(samples)
    }
}
