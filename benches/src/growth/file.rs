//! Files of many blocks.

use anyhow::Result;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::stand::Stand;
use super::{Curve, Point, decades};
use crate::client::target::{self, Target};
use crate::plan::{Op, Shape};
use crate::volume::CHANGING;

/// How far apart blocks lie that are really there.
const BLOCK_EVERY: u64 = 64 << 10;

impl Stand<'_> {
    pub(super) fn file(&self, most_mib: u64) -> Result<Vec<Point>> {
        let server = self.start("file")?;
        let target = Target::find(server.ports, 0)?;
        let mut points = Vec::new();
        for mib in decades(1, most_mib) {
            let name = format!("file-{mib}");
            make_file(&self.volume.export().join(CHANGING).join(&name), mib << 20)?;
            let file = target::find(server.ports, &[CHANGING, &name])?;
            let target =
                Target { read_file: file.clone(), write_file: file, data_bytes: mib << 20, ..target.clone() };
            let shape = Shape { connections: 4, depth: 8 };
            for op in [Op::Read4k, Op::Write4k] {
                let taken = self.measure(&server, &target, (op, shape))?;
                points.push(self.point(Curve::File, op.name(), mib, taken));
            }
        }
        Ok(points)
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
