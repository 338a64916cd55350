//! The kernel as somebody who believes what the volume told.

use holdfast_fuse::{NodeId, Notifier};
use holdfast_volume::Invalidate;
use holdfast_volume::cache::Forget;

/// Notifies the kernel.
pub(crate) struct KernelSide(Notifier);

impl KernelSide {
    pub(crate) fn new(notifier: Notifier) -> Self {
        Self(notifier)
    }
}

impl Invalidate for KernelSide {
    fn forget(&self, what: &Forget) {
        // Whatever the kernel did not know it does not believe; and when the connection is gone nobody does.
        let _ = match what {
            Forget::Attrs(node) => self.0.inval_attributes(NodeId(node.0)),
            Forget::Data(node) => self.0.inval_data(NodeId(node.0), 0, 0),
            Forget::Pages(node, from, to) => self.0.inval_data(NodeId(node.0), *from, to - from),
            Forget::Entry(dir, name) => self.0.inval_entry(NodeId(dir.0), name.as_bytes()),
        };
    }
}
