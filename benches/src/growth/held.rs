//! Opens and locks that stay.

use anyhow::Result;

use super::stand::{Stand, Watched, rate};
use super::{Curve, Point, decades};
use crate::client::nfs41::{Fleet, Held};
use crate::client::target::Target;
use crate::client::{Amount, pump};
use crate::plan::Shape;

impl Stand<'_> {
    pub(super) fn held(&self, curve: Curve, most: u64) -> Result<Vec<Point>> {
        let (what, name) = match curve {
            Curve::Locks => (Held::Locks, "lock"),
            _ => (Held::Opens, "open"),
        };
        let server = self.start(name)?;
        let target = Target::find(server.ports, 0)?;
        let shape = Shape { connections: 1, depth: 8 };
        let mut fleet = Fleet::new(server.ports.nfs, shape, &target)?;
        let streams = fleet.take_streams();
        let (mut points, mut held) = (Vec::new(), 0);
        for number in decades(100, most) {
            let (memory, watched) = (server.memory_bytes()?, Watched::begin(&server)?);
            let amount = Amount::Calls(number - held);
            let burst = pump::run(&streams, shape.depth, amount, &mut fleet.hold(what, held))?;
            let taken = (watched.end((burst.units, burst.elapsed))?, rate(&burst));
            let more = server.memory_bytes()?.saturating_sub_unsigned(memory.unsigned_abs());
            let memory_bytes = Some(more / i64::try_from(number - held)?);
            points.push(Point { memory_bytes, ..self.point(curve, name, number, taken) });
            held = number;
        }
        Ok(points)
    }
}
