//! Promises hold as long as the lease. Who has had no word with the server for that long may have been given up, and what
//! was promised to it may be others' by now: the server need not wait for an answer to a recall any longer, and cannot
//! say so. Nothing is relied on then until the next answer brings it back.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::nfs::NfsServer;

/// Behind the end of the lease it is looked at again.
const MOMENT: Duration = Duration::from_millis(5);

/// So long before the end of the lease nothing is relied on any more: the thread may wake late, and the kernel has to be
/// told what to forget before others may be given it.
const AHEAD: Duration = Duration::from_millis(100);

/// The thread looks at least so often whether it is still needed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Starts a thread that watches the lease, and says to `holder` each time it may be over. It ends with either of the two.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn watch<T: Send + Sync + 'static>(
    server: &Arc<NfsServer>,
    holder: &Arc<T>,
    over: impl Fn(&T) + Send + 'static,
) -> io::Result<()> {
    let (server, holder) = (Arc::downgrade(server), Arc::downgrade(holder));
    std::thread::Builder::new().name("lease".into()).spawn(move || run(&server, &holder, &over)).map(drop)
}

fn run<T>(server: &Weak<NfsServer>, holder: &Weak<T>, over: &impl Fn(&T)) {
    let mut is_over = false;
    loop {
        let (Some(serving), Some(holding)) = (server.upgrade(), holder.upgrade()) else { return };
        let left = serving.client().lease_left().saturating_sub(AHEAD);
        if !std::mem::replace(&mut is_over, left.is_zero()) && is_over {
            tracing::warn!("no word with the server for a lease: none of its promises is relied on");
            over(&holding);
        }
        drop((serving, holding));
        std::thread::sleep(if is_over { LOOK_EVERY } else { LOOK_EVERY.min(left + MOMENT) });
    }
}
