//! Promises hold as long as the lease, and no longer than the server says that they go on. Who has had no such word for that
//! long may have been given up, and what was promised to it may be others' by now: the server need not wait for an answer to
//! a recall any longer. Nothing is relied on then until it says so again.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_client::BootTime;

use crate::nfs::NfsServer;

/// Behind the end of the lease it is looked at again.
const MOMENT: Duration = Duration::from_millis(5);

/// So long before the end of the lease nothing is relied on any more: the thread may wake late, and the kernel has to be
/// told what to forget before others may be given it.
const AHEAD: Duration = Duration::from_millis(100);

/// The thread looks at least so often whether it is still needed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What became of promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// None may be relied on.
    Over,
    /// Those given from now on may be.
    Back,
}

/// Starts a thread that watches how long promises hold, and says to `holder` each time they may be over, and when what is
/// promised holds again. It ends with either of the two.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn watch<T: Send + Sync + 'static>(
    server: &Arc<NfsServer>,
    holder: &Arc<T>,
    changed: impl Fn(&T, Trust) + Send + 'static,
) -> io::Result<()> {
    let (server, holder) = (Arc::downgrade(server), Arc::downgrade(holder));
    std::thread::Builder::new().name("lease".into()).spawn(move || run(&server, &holder, &changed)).map(drop)
}

fn run<T>(server: &Weak<NfsServer>, holder: &Weak<T>, changed: &impl Fn(&T, Trust)) {
    let mut is_over = false;
    loop {
        let (Some(serving), Some(holding)) = (server.upgrade(), holder.upgrade()) else { return };
        let left = serving.client().promises_left().saturating_sub(AHEAD);
        match (std::mem::replace(&mut is_over, left.is_zero()), is_over) {
            (false, true) => {
                tracing::warn!(
                    "no word with the server for a lease, or none that its promises go on: none is relied on"
                );
                changed(&holding, Trust::Over);
            }
            (true, false) => changed(&holding, Trust::Back),
            _ => {}
        }
        drop((serving, holding));
        sleep(if is_over { LOOK_EVERY } else { LOOK_EVERY.min(left + MOMENT) });
    }
}

/// Sleeps by the clock that leases run by: who wakes with the machine wakes at once.
fn sleep(time: Duration) {
    let until = BootTime::now().since_start_and(time);
    let until = rustix::thread::Timespec {
        tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: until.subsec_nanos().into(),
    };
    // Who is woken early looks once more than need be.
    if rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Boottime, &until)
        .is_err_and(|error| error != rustix::io::Errno::INTR)
    {
        std::thread::sleep(time);
    }
}
