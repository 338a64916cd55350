//! What is called over many connections.

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
}
