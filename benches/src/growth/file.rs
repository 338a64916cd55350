//! Files of many blocks, all of them there. What is read and written of one is never more than lies in memory, or the
//! disk would be what is measured; it lies evenly apart over the whole file.

use anyhow::{Context, Result, ensure};
use holdfast_base::Offset;
use holdfast_wire::nfs3::{Fattr3, Fh3, Proc3, Read3Args, StableHow, Write3Args};
use holdfast_xdr::{Decode, Encode, Writer};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::figures::Sample;
use super::stand::Stand;
use super::{Curve, decades};
use crate::client::Dice;
use crate::client::call::{connect, header_after_xid};
use crate::client::pump::{Lane, Load, succeeded};
use crate::client::target::{self, Handle, nfs3};
use crate::volume::Volume;

/// Bytes of a READ and of a WRITE.
const BLOCK_BYTES: u32 = 4 << 10;
/// Blocks of a file that are read and written, at most: 64 MiB of it, as in the comparison with other servers.
const BLOCKS_MAX: u64 = 16 << 10;
/// Connections, and calls in flight on each.
const SHAPE: (usize, usize) = (4, 8);

/// Makes the files.
pub(super) fn prepare(volume: &Volume, most_mib: u64) -> Result<()> {
    decades(1, most_mib).into_iter().try_for_each(|mib| {
        let path = volume.export().join(name(mib));
        make_file(&path, mib).with_context(|| path.display().to_string())
    })
}

/// What the volume must hold for them.
pub(super) fn bytes(most_mib: u64) -> u64 {
    decades(1, most_mib).iter().sum::<u64>() << 20
}

fn name(mib: u64) -> String {
    format!("mib-{mib}")
}

fn make_file(path: &Path, mib: u64) -> Result<()> {
    let mut file = File::create(path)?;
    // Not zeros, so that no file system has reason to be clever.
    let block: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..mib {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(())
}

/// The blocks of a file that are read and written.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// How many.
    count: u64,
    /// Of so many that the file has.
    of: u64,
}

impl Blocks {
    fn of(bytes: u64) -> Self {
        let of = bytes / u64::from(BLOCK_BYTES);
        Self { count: of.min(BLOCKS_MAX), of }
    }

    /// Where one begins.
    fn offset(self, number: u64) -> u64 {
        number * self.of / self.count * u64::from(BLOCK_BYTES)
    }

    /// Brings them to memory, and nothing beside them.
    fn keep(self, path: &Path) -> Result<()> {
        let file = File::open(path)?;
        fadvise(&file, 0, None, Advice::Random)?;
        let mut block = [0; BLOCK_BYTES as usize];
        (0..self.count).try_for_each(|number| Ok(file.read_exact_at(&mut block, self.offset(number))?))
    }
}

/// READ or WRITE of those blocks, at random.
struct BlocksLoad<'a> {
    procedure: Proc3,
    header: Vec<u8>,
    file: &'a Handle,
    blocks: Blocks,
    dice: Dice,
    data: Vec<u8>,
}

impl<'a> BlocksLoad<'a> {
    fn new(procedure: Proc3, file: &'a Handle, blocks: Blocks) -> Self {
        let (header, data) = (header_after_xid(nfs3(procedure)), vec![0x5a; BLOCK_BYTES as usize]);
        Self { procedure, header, file, blocks, dice: Dice::new(), data }
    }
}

impl Load for BlocksLoad<'_> {
    fn encode(&mut self, _: Lane, w: &mut Writer) {
        w.put(&self.header);
        let (file, count) = (Fh3(self.file), BLOCK_BYTES);
        let offset = Offset(self.blocks.offset(self.dice.below(self.blocks.count)));
        if self.procedure == Proc3::Read {
            Read3Args { file, offset, count }.encode(w);
        } else {
            Write3Args { file, offset, count, stable: StableHow::Unstable, data: &self.data }.encode(w);
        }
    }

    fn check(&mut self, _: Lane, reply: &[u8]) -> Result<u64> {
        let mut results = succeeded(reply)?;
        if self.procedure == Proc3::Read {
            let _attributes = Option::<Fattr3>::decode(&mut results)?;
            ensure!(results.u32()? == BLOCK_BYTES, "a READ came back short");
        }
        Ok(1)
    }
}

impl Stand<'_> {
    pub(super) fn file(&self, most_mib: u64) -> Result<Vec<Sample>> {
        let server = self.start("file")?;
        let (connections, depth) = SHAPE;
        let streams = (0..connections).map(|_| connect(server.ports.nfs)).collect::<Result<Vec<_>>>()?;
        let mut samples = Vec::new();
        for mib in decades(1, most_mib) {
            let file = target::find(server.ports, &[&name(mib)])?;
            let blocks = Blocks::of(mib << 20);
            blocks.keep(&self.volume.export().join(name(mib)))?;
            for (procedure, op) in [(Proc3::Read, "read4k"), (Proc3::Write, "write4k")] {
                let mut load = BlocksLoad::new(procedure, &file, blocks);
                let taken = self.burst(&server, (&streams, depth), &mut load)?;
                samples.push(self.sample((Curve::File, op), mib, taken));
            }
        }
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_apart_over_the_whole_file_and_are_no_more_than_memory_holds() {
        for mib in [1, 10, 64, 100, 1000, 4096] {
            let blocks = Blocks::of(mib << 20);
            let offsets: Vec<_> = (0..blocks.count).map(|number| blocks.offset(number)).collect();
            assert!(blocks.count <= BLOCKS_MAX, "{mib} MiB");
            assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] >= u64::from(BLOCK_BYTES)), "{mib} MiB");
            let end = offsets[offsets.len() - 1] + u64::from(BLOCK_BYTES);
            assert!(end <= mib << 20 && end > (mib << 20) * 99 / 100, "{mib} MiB: to {end}");
        }
        assert_eq!(Blocks::of(1 << 20).count, 256, "all of a small file");
    }

    #[test]
    fn a_file_has_all_its_blocks() {
        use std::os::unix::fs::MetadataExt as _;
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        make_file(&path, 2).unwrap();
        let made = path.metadata().unwrap();
        assert_eq!((made.len(), made.blocks() * 512 >= 2 << 20), (2 << 20, true));
        Blocks::of(2 << 20).keep(&path).unwrap();
    }
}
