//! Promises hold as long as the lease. Who has had no word with the server for that long may have been given up, and what
//! was promised to it may be others' by now: the server need not wait for an answer to a recall any longer, and cannot
//! say so. Nothing is relied on then until the next answer brings it back.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Inner;

/// Behind the end of the lease it is looked at again.
const MOMENT: Duration = Duration::from_millis(5);

/// The thread looks at least so often whether it is still needed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Starts the thread that watches the lease. It ends with the server.
pub(super) fn watch(inner: &Arc<Inner>) -> io::Result<()> {
    let watched = Arc::downgrade(inner);
    std::thread::Builder::new().name("lease".into()).spawn(move || run(&watched)).map(drop)
}

fn run(inner: &Weak<Inner>) {
    let mut is_over = false;
    while let Some(inner) = inner.upgrade() {
        let left = inner.nfs.client().lease_left();
        if !std::mem::replace(&mut is_over, left.is_zero()) && is_over {
            inner.lease_over();
        }
        drop(inner);
        std::thread::sleep(if is_over { LOOK_EVERY } else { LOOK_EVERY.min(left + MOMENT) });
    }
}

impl Inner {
    fn lease_over(&self) {
        let Some(promises) = self.promises() else { return };
        tracing::warn!("no word with the server for a lease: none of its promises is relied on");
        if let Some(neighbour) = self.neighbour.get() {
            neighbour.lose_all();
        }
        promises.lapsed();
    }
}
