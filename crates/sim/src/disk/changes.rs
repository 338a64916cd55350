//! The change attribute of a process of the server: the local backend's own, over times as coarse as a kernel's. What it counts
//! is lost with the process, and what a power cut takes is lost with its time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use holdfast_backend_local::change::{Changes, nanos};
use holdfast_base::{ChangeId, Timestamp};
use holdfast_vfs::{Attrs, Change, FsResult, Node};

/// How often the kernel's time for files moves on, in nanoseconds (at 100 Hz).
const TICK: u32 = 10_000_000;

/// A time as the kernel gives it to files.
pub(super) const fn coarse(now: Timestamp) -> Timestamp {
    Timestamp { seconds: now.seconds, nanos: now.nanos - now.nanos % TICK }
}

/// Change attributes as one process gives them.
pub(super) struct Shown {
    changes: Changes,
    /// A defect: what files written since had before.
    stuck: Option<Mutex<BTreeMap<u64, ChangeId>>>,
}

impl Shown {
    pub(super) fn new(is_stuck: bool) -> Self {
        Self { changes: Changes::default(), stuck: is_stuck.then(Mutex::default) }
    }

    fn value(&self, fileid: u64, ctime: Timestamp) -> ChangeId {
        let stuck = self.stuck.as_ref().map(|stuck| stuck.lock().unwrap_or_else(PoisonError::into_inner));
        let stuck = stuck.and_then(|stuck| stuck.get(&fileid).copied());
        stuck.unwrap_or_else(|| self.changes.value((0, fileid), nanos(ctime)))
    }

    /// Attributes as this process shows them.
    pub(super) fn attrs(&self, attrs: Attrs) -> Attrs {
        Attrs { change: self.value(attrs.fileid, attrs.ctime), ..attrs }
    }

    pub(super) fn node(&self, node: Node) -> Node {
        Node { attrs: self.attrs(node.attrs), ..node }
    }

    pub(super) fn listed(&self, node: Option<FsResult<Node>>) -> Option<FsResult<Node>> {
        node.map(|node| node.map(|node| self.node(node)))
    }

    /// This process has changed an object, which is so now.
    pub(super) fn note(&self, attrs: &Attrs) {
        self.changes.note((0, attrs.fileid), nanos(attrs.ctime));
    }

    /// An object before and after this process changed it.
    pub(super) fn change(&self, mut change: Change) -> Change {
        change.before.change = self.value(change.after.fileid, change.before.ctime);
        self.note(&change.after);
        change.after = self.attrs(change.after);
        change
    }

    /// This process is about to write to a file that is so.
    pub(super) fn writes(&self, before: &Attrs) {
        if let Some(stuck) = &self.stuck {
            let value = self.value(before.fileid, before.ctime);
            stuck.lock().unwrap_or_else(PoisonError::into_inner).entry(before.fileid).or_insert(value);
        }
    }
}
