//! The kernel as somebody who believes what the volume told.

use holdfast_fuse::{NodeId, Notifier, Told};
use holdfast_volume::Invalidate;
use holdfast_volume::cache::{self, Forget};

/// Notifies the kernel.
pub(crate) struct KernelSide(Notifier);

impl KernelSide {
    pub(crate) fn new(notifier: Notifier) -> Self {
        Self(notifier)
    }
}

impl Invalidate for KernelSide {
    fn forget(&self, what: &Forget) -> bool {
        tracing::trace!(?what, "to be forgotten");
        // Whatever the kernel did not know it does not believe; and when the connection is gone nobody does. What it does not take
        // of a file's data it asks for.
        let told = match what {
            Forget::Attrs(node) => self.0.inval_attributes(NodeId(node.0)),
            Forget::Data(node) => self.0.inval_data(NodeId(node.0), 0, 0),
            Forget::Pages(node, from, to) => self.0.inval_data(NodeId(node.0), *from, to - from),
            Forget::Entry(dir, name) => self.0.inval_entry(NodeId(dir.0), name.as_bytes()),
            Forget::Store(node, whole) => self.0.store(NodeId(node.0), 0, &whole.data),
            Forget::Listing(dir) => {
                // It leads nowhere, and waits for those who read the directory as any name does.
                let _ = self.0.inval_entry(NodeId(dir.0), b".");
                self.0.inval_data(NodeId(dir.0), 0, 0)
            }
        };
        told == Told::Done
    }

    fn forget_names(&self, dirs: &[cache::NodeId]) {
        // As above.
        let _ = self.0.inc_epoch();
        for dir in dirs {
            let _ = self.0.inval_data(NodeId(dir.0), 0, 0);
        }
    }
}
