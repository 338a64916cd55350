//! A request as the volume sees it: who asks, and until when.

use std::cell::OnceCell;
use std::sync::OnceLock;
use std::time::Duration;

use holdfast_fuse::{Interrupt, Request, Watch};
use holdfast_volume::cache::Caller;
use holdfast_volume::{Cancel, Waiting};
use parking_lot::{Condvar, Mutex};

/// Which signals end a waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// Those that end the process: a file system's calls are not interrupted by others (signal(7)).
    Deadly,
    /// All: for waiting on locks.
    Any,
    /// The process may be ending already, and is then sent no signal any more: it must not wait at all.
    MayBeOver,
}

/// One request.
pub(super) struct Call<'a> {
    request: &'a Request<'a>,
    ends: Ends,
    umask: u32,
    whole: OnceCell<Caller>,
    cancel: OnceCell<(Cancel, Watch)>,
}

impl<'a> Call<'a> {
    pub(super) fn new(request: &'a Request<'a>) -> Self {
        Self::ended_by(request, Ends::Deadly)
    }

    pub(super) fn ended_by(request: &'a Request<'a>, ends: Ends) -> Self {
        Self { request, ends, umask: 0, whole: OnceCell::new(), cancel: OnceCell::new() }
    }

    /// One that makes something.
    pub(super) fn making(request: &'a Request<'a>, umask: u32) -> Self {
        Self { umask: umask & 0o777, ..Self::new(request) }
    }

    fn watched(&self) -> (Cancel, Watch) {
        self.request.will_wait();
        let cancel = Cancel::new();
        if self.ends == Ends::MayBeOver && self.request.is_caller_exiting() {
            cancel.cancel();
        }
        let (told, pid, ends) = (cancel.clone(), self.request.pid(), self.ends);
        let interrupt = self.request.interrupt();
        let asked = interrupt.clone();
        let watch = interrupt.watch(move || {
            if ends == Ends::Any || is_dying(pid) {
                told.cancel();
            } else {
                // The kernel says no more, even when the process is killed afterwards.
                lingering().add(pid, told, asked);
            }
        });
        (cancel, watch)
    }
}

impl Waiting for Call<'_> {
    fn caller(&self) -> Caller {
        Caller::new(self.request.uid(), self.request.gid())
    }

    fn whole_caller(&self) -> Caller {
        let whole =
            || Caller { uid: self.request.uid(), gid: self.request.gid(), groups: self.request.groups() };
        self.whole.get_or_init(whole).clone()
    }

    fn umask(&self) -> u32 {
        self.umask
    }

    fn cancel(&self) -> Cancel {
        self.cancel.get_or_init(|| self.watched()).0.clone()
    }
}

/// Whether a thread has been sent a signal that ends it: the kernel then marks SIGKILL as pending for each thread of the
/// process. One that cannot be looked at counts as dying, for it could not be freed otherwise.
fn is_dying(pid: u32) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    let pending = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    [pending("SigPnd:"), pending("ShdPnd:")].into_iter().flatten().any(|mask| mask & SIGKILL != 0)
}

/// Requests whose caller was sent a signal that does not end it. The kernel tells of one signal for each request, so
/// that a later one that does end it has to be looked for.
#[derive(Default)]
struct Lingering {
    waiting: Mutex<Vec<(u32, Cancel, Interrupt)>>,
    some: Condvar,
}

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn lingering() -> &'static Lingering {
    static LINGERING: OnceLock<Lingering> = OnceLock::new();
    static WATCHER: OnceLock<()> = OnceLock::new();
    let lingering = LINGERING.get_or_init(Lingering::default);
    WATCHER.get_or_init(|| {
        let watching = std::thread::Builder::new().name("signals".into()).spawn(|| lingering_loop(lingering));
        if let Err(error) = watching {
            tracing::warn!(%error, "processes that are killed while they wait may have to wait on");
        }
    });
    lingering
}

impl Lingering {
    fn add(&self, pid: u32, cancel: Cancel, interrupt: Interrupt) {
        self.waiting.lock().push((pid, cancel, interrupt));
        self.some.notify_one();
    }
}

fn lingering_loop(lingering: &Lingering) {
    loop {
        let mut waiting = lingering.waiting.lock();
        while waiting.is_empty() {
            lingering.some.wait(&mut waiting);
        }
        // An interrupt is not set any more once its request was answered.
        waiting.retain(|(pid, cancel, interrupt)| {
            let goes_on = interrupt.is_set();
            if goes_on && is_dying(*pid) {
                cancel.cancel();
                return false;
            }
            goes_on
        });
        drop(waiting);
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_not_dying_and_one_that_is_gone_counts_as_such() {
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(u32::MAX));
    }
}
