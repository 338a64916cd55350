//! What there is one of on a host, a port or a device: cases that need it wait for each other, those of other runs included.

use anyhow::{Context, Result};
use std::fs::File;

/// A turn at something. Dropped, it is the next one's; it ends with its process as well.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for the turn at what has this name.
    ///
    /// Errors when the file for it cannot be made.
    pub fn at(what: &str) -> Result<Self> {
        let dir = std::env::temp_dir().join("holdfast-lab.turns");
        std::fs::create_dir_all(&dir)?;
        let lock = File::create(dir.join(what)).with_context(|| format!("a turn at {what}"))?;
        lock.lock()?;
        Ok(Self { _lock: lock })
    }
}
