//! Who is to know what the server says by the way: the volume's machine.

use holdfast_cache::{CapSet, Handle, Shown};

use crate::volume::Shared;

/// The machine behind its lock.
pub(in crate::nfs) trait Holder: Send + Sync {
    /// Nothing of this object may be relied on any more, as of this place in the order of grants and recalls; what was
    /// kept back is sent, and then a release comes.
    fn recalled(&self, object: &Handle, number: u64);
    /// Nothing of anything may be relied on, until answers say again what is held.
    fn lost(&self);
    /// A file as it is here.
    fn shown(&self, object: &Handle) -> Option<Shown>;
    /// Whether what is open goes on existing after its last name was removed.
    fn preserves_unlinked(&self, does: bool);
    /// What nothing was done with for so long, the longest first.
    fn unused(&self, idle_ms: u64) -> Vec<Handle>;
}

impl Holder for Shared {
    fn recalled(&self, object: &Handle, number: u64) {
        let mut machine = self.machine.lock();
        machine.recalled(object, CapSet::NONE, number, self.now());
        self.look_for_work(machine);
    }

    fn lost(&self) {
        let mut machine = self.machine.lock();
        machine.caps_lost(self.now());
        self.look_for_work(machine);
    }

    fn shown(&self, object: &Handle) -> Option<Shown> {
        self.machine.lock().shown(object)
    }

    fn preserves_unlinked(&self, does: bool) {
        self.machine.lock().settings_mut().preserves_unlinked = does;
    }

    fn unused(&self, idle_ms: u64) -> Vec<Handle> {
        self.machine.lock().unused(self.now(), idle_ms)
    }
}
