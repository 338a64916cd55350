//! The state engine's part of a handover. It is the greater half of what many clients have, so it is written and read
//! on a thread of its own, beside the rest, in a memory file of its own, which goes along as one more descriptor.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result, anyhow};
use holdfast_base::SystemEntropy;
use holdfast_manager::Manager;
use holdfast_state::{BootInstance, Config, Engine, Frozen, Grace};
use holdfast_vfs::handover::Outgoing;
use serde::{Deserialize, Serialize};

use super::{image, memory};

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct Part {
    /// The lease in force.
    lease_ms: u64,
    engine: Frozen,
}

/// The engine, while it is written down.
pub(crate) struct Leaving {
    /// The file's number among the descriptors.
    pub(super) descriptor: u32,
    writing: JoinHandle<Result<()>>,
}

impl Leaving {
    /// Begins to write. Nothing may happen to the engine until [`Leaving::end`], or what was written counts for nothing.
    pub(crate) fn begin(manager: &Arc<Manager>, outgoing: &mut Outgoing) -> Result<Self> {
        let file = memory::file("holdfast-engine")?;
        let descriptor = outgoing.add(file.try_clone().context("no descriptor for the state")?.into());
        let manager = Arc::clone(manager);
        let write = move || {
            let part = Part { lease_ms: manager.lease_ms(), engine: manager.look(Engine::freeze) };
            memory::write(&file, &[], &part).context("the state cannot be written down")
        };
        let writing = Builder::new().name("freeze".into()).spawn(write).context("cannot start threads")?;
        Ok(Self { descriptor, writing })
    }

    /// Waits until it is written.
    pub(super) fn end(self) -> Result<()> {
        self.writing.join().map_err(|_| anyhow!("writing the state down failed"))?
    }
}

/// The engine, while it is read.
pub(crate) struct Arriving(JoinHandle<Result<Engine>>);

impl Arriving {
    /// Begins to read.
    pub(super) fn from_file(file: OwnedFd) -> Result<Self> {
        Self::begin(move || {
            let bytes = memory::read(file)?;
            image::unpacked(&bytes)
        })
    }

    /// That of an image which had it within itself.
    pub(super) fn from_image(engine: Frozen, lease_ms: u64) -> Result<Self> {
        Self::begin(move || Ok(Part { lease_ms, engine }))
    }

    fn begin(read: impl FnOnce() -> Result<Part> + Send + 'static) -> Result<Self> {
        let thaw = move || {
            let Part { lease_ms, engine } = read()?;
            let config = Config { boot: engine.boot(), lease_ms, grace: Grace::Over };
            let entropy = Box::new(SystemEntropy::new().context("/dev/urandom")?);
            Ok(Engine::thaw(engine, config, entropy)?)
        };
        let reading = Builder::new().name("thaw".into()).spawn(thaw).context("cannot start threads")?;
        Ok(Self(reading))
    }

    /// Waits for it; it must be that of start number `epoch`.
    pub(crate) fn end(self, epoch: u64) -> Result<Engine> {
        let engine = self.0.join().map_err(|_| anyhow!("reading the state failed"))??;
        let is_its = engine.boot() == BootInstance::from_counter(epoch);
        is_its.then_some(engine).context("the state is of another start than the rest")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file as [`Leaving`] writes it.
    pub(in crate::handover) fn file_with(engine: &Engine, lease_ms: u64) -> OwnedFd {
        let file = memory::file("engine").unwrap();
        memory::write(&file, &[], &Part { lease_ms, engine: engine.freeze() }).unwrap();
        file.into()
    }

    #[test]
    fn a_file_that_is_damaged_is_no_state() {
        let config = Config { boot: BootInstance::from_counter(7), lease_ms: 60_000, grace: Grace::Over };
        let engine = Engine::new(config, Box::new(SystemEntropy::new().unwrap()));
        let whole = memory::read(file_with(&engine, 60_000)).unwrap();
        assert!(Arriving::from_file(file_with(&engine, 60_000)).unwrap().end(7).is_ok());
        for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
            let file = memory::file("engine").unwrap();
            std::io::Write::write_all(&mut &file, &whole[..cut]).unwrap();
            assert!(Arriving::from_file(file.into()).unwrap().end(7).is_err(), "cut at {cut}");
        }
    }
}
