//! What root's daemon gives up before it writes to files of the server's for others.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Has the kernel treat a write by this thread, and by those that it starts, as an ordinary user's: it takes set-id bits
/// away, and goes no further than quotas and the room that is not reserved.
pub(crate) fn give_up() {
    let dropped = capabilities(None).and_then(|mut sets| {
        sets.effective.remove(CapabilitySet::FSETID | CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, sets)
    });
    if let Err(error) = dropped {
        // An ordinary user's daemon has none.
        tracing::debug!(%error, "capabilities stay as they are");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

    #[test]
    fn a_write_takes_set_id_bits_away() {
        let file = tempfile::tempfile().unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o6755)).unwrap();
        // On a thread of its own: other tests keep what they have.
        let written = || {
            give_up();
            file.write_at(b"x", 0)
        };
        std::thread::scope(|scope| scope.spawn(written).join().unwrap()).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    }
}
