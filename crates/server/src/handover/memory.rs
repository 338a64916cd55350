//! Files in memory, which go from one program to the next by their descriptors.

use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use holdfast_base::limits::HANDOVER_IMAGE_BYTES_MAX;
use rustix::fs::MemfdFlags;
use serde::Serialize;

/// Bytes that go to such a file at once: all that is there need not be in memory twice.
const AT_ONCE: usize = 256 << 10;

/// An empty one.
pub(super) fn file(name: &str) -> Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).context("no memory for the image")?.into())
}

/// Writes a head, and behind it a value with the names of its fields.
pub(super) fn write(file: &File, head: &[u8], value: &impl Serialize) -> Result<()> {
    let mut to = BufWriter::with_capacity(AT_ONCE, file);
    to.write_all(head).context("no memory for the image")?;
    rmp_serde::encode::write_named(&mut to, value)?;
    to.flush().context("no memory for the image")?;
    drop(to);
    let bytes = file.metadata()?.len();
    if bytes > HANDOVER_IMAGE_BYTES_MAX as u64 {
        bail!("there are {bytes} bytes to be handed over, which are too many");
    }
    Ok(())
}

/// All of one.
pub(super) fn read(file: OwnedFd) -> Result<Vec<u8>> {
    let mut file = File::from(file);
    file.rewind()?;
    let len = file.metadata()?.len().min(HANDOVER_IMAGE_BYTES_MAX as u64);
    let mut bytes = Vec::with_capacity(usize::try_from(len)?);
    file.take(HANDOVER_IMAGE_BYTES_MAX as u64).read_to_end(&mut bytes).context("the image cannot be read")?;
    Ok(bytes)
}
