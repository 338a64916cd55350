//! The in-memory backend passes the suite that every backend passes.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::any::Any;
use std::sync::Arc;

use holdfast_base::ByteRange;
use holdfast_vfs::suite::{Abilities, Neighbour, NeighbourDeed, TestBackend, run};
use holdfast_vfs::{FsResult, Handle, LocalDeed, LockKind, MemBackend, MemOptions};

/// Nobody can be beside it, so the neighbour is played.
struct Played(MemBackend);

/// Lets go of what the neighbour holds of a file.
struct Held(MemBackend, Handle);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.unlock_outside(&self.1);
    }
}

impl Neighbour for Played {
    fn begin(&self, deed: NeighbourDeed, object: &Handle, _: &str) -> Box<dyn FnOnce()> {
        let deed = match deed {
            NeighbourDeed::Read => LocalDeed::OpenToRead,
            NeighbourDeed::Append => LocalDeed::Wrote,
            NeighbourDeed::ChangeMode => LocalDeed::ChangedAttrs,
            NeighbourDeed::Rename => LocalDeed::ChangedName,
            NeighbourDeed::MakeEntry => LocalDeed::ChangedEntries,
        };
        self.0.deed_outside(object, deed);
        Box::new(|| {})
    }

    fn lock(&self, file: &Handle, _: &str, range: ByteRange, kind: LockKind) -> FsResult<Box<dyn Any>> {
        self.0.lock_outside(file, range, kind)?;
        Ok(Box::new(Held(self.0.clone(), *file)))
    }
}

#[test]
fn the_in_memory_backend_conforms() {
    run(&|| {
        let backend = MemBackend::new(&MemOptions::deterministic());
        TestBackend {
            backend: Arc::new(backend.clone()),
            abilities: Abilities {
                acts_as_callers: true,
                makes_devices: true,
                has_outside_locks: true,
                keeps_handles_of_open_removed: true,
            },
            reopen: None,
            neighbour: Some(Box::new(Played(backend))),
            keep: Box::new(()),
        }
    });
}
