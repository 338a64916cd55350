//! What is called over many connections, and by many clients.

use anyhow::Result;

use super::Curve;
use super::figures::Sample;
use super::stand::Stand;
use crate::client::target::Target;
use crate::plan::{Op, Shape};

impl Stand<'_> {
    pub(super) fn connections(&self, most: u64) -> Result<Vec<Sample>> {
        let server = self.start("connections")?;
        let target = Target::find(server.ports, 0)?;
        let numbers = [1, 4, 16, 64, 250].into_iter().filter(|n| *n < most).chain([most]);
        let mut samples = Vec::new();
        for number in numbers {
            let shape = Shape { connections: usize::try_from(number)?, depth: 8 };
            let taken = self.measure(&server, &target, (Op::Getattr, shape))?;
            samples.push(self.sample((Curve::Connections, "getattr"), number, taken));
        }
        Ok(samples)
    }

    pub(super) fn clients(&self) -> Result<Vec<Sample>> {
        let server = self.start("clients")?;
        let mut samples = Vec::new();
        for (folder, clients) in [1, 2, 4, 8, 16, 32].into_iter().enumerate() {
            let target = Target::find(server.ports, folder)?;
            let shape = Shape { connections: clients, depth: 1 };
            for op in [Op::Mkdir, Op::Create, Op::Getattr, Op::Rename, Op::Unlink] {
                let taken = self.measure(&server, &target, (op, shape))?;
                samples.push(self.sample((Curve::Clients, op.name()), clients as u64, taken));
            }
        }
        Ok(samples)
    }
}
