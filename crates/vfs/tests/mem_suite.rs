//! The in-memory backend passes the suite that every backend passes.

use std::sync::Arc;

use holdfast_vfs::suite::{Abilities, TestBackend, run};
use holdfast_vfs::{MemBackend, MemOptions};

#[test]
fn the_in_memory_backend_conforms() {
    run(&|| TestBackend {
        backend: Arc::new(MemBackend::new(&MemOptions::deterministic())),
        abilities: Abilities {
            acts_as_callers: true,
            makes_devices: true,
            has_outside_locks: true,
            keeps_handles_of_open_removed: true,
        },
        reopen: None,
        keep: Box::new(()),
    });
}
