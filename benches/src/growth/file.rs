//! Files of many blocks.

use anyhow::Result;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::figures::Sample;
use super::stand::Stand;
use super::{Curve, decades};
use crate::client::target::{self, Target};
use crate::plan::{Op, Shape};
use crate::volume::Volume;

/// How far apart blocks lie that are really there.
const BLOCK_EVERY: u64 = 64 << 10;

/// Makes the files that are read and written.
pub(super) fn prepare(volume: &Volume, most_mib: u64) -> Result<()> {
    decades(1, most_mib)
        .into_iter()
        .try_for_each(|mib| make_file(&volume.export().join(name(mib)), mib << 20))
}

fn name(mib: u64) -> String {
    format!("mib-{mib}")
}

impl Stand<'_> {
    pub(super) fn file(&self, most_mib: u64) -> Result<Vec<Sample>> {
        let server = self.start("file")?;
        let target = Target::find(server.ports, 0)?;
        let mut samples = Vec::new();
        for mib in decades(1, most_mib) {
            let file = target::find(server.ports, &[&name(mib)])?;
            let target =
                Target { read_file: file.clone(), write_file: file, data_bytes: mib << 20, ..target.clone() };
            let shape = Shape { connections: 4, depth: 8 };
            for op in [Op::Read4k, Op::Write4k] {
                let taken = self.measure(&server, &target, (op, shape))?;
                samples.push(self.sample((Curve::File, op.name()), mib, taken));
            }
        }
        Ok(samples)
    }
}

/// A file whose blocks lie apart, so that it has as many extents as it is large.
fn make_file(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    let block = [0x5a; 4096];
    for at in (0..bytes).step_by(BLOCK_EVERY as usize) {
        file.write_all_at(&block, at)?;
    }
    file.sync_all()?;
    Ok(())
}
