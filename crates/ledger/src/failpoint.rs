//! Places at which the crash tests kill the server. Without the feature `failpoints` nothing is left of them.

/// A place between two steps of a request that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The intent is recorded, the file system untouched.
    BeforeMutation,
    /// In the midst of a create: a file is there, and not yet all that was asked for. Passed more than once.
    HalfMade,
    /// The file system is changed, the reply not recorded.
    AfterMutation,
    /// The reply is recorded, nothing forced.
    AfterJournal,
    /// All is forced, the entry not sealed.
    AfterCommit,
    /// All is done, the reply has not left.
    BeforeSend,
}

impl Point {
    /// Those that every request passes, in that order.
    pub const ALL: [Self; 5] =
        [Self::BeforeMutation, Self::AfterMutation, Self::AfterJournal, Self::AfterCommit, Self::BeforeSend];

    /// Its name in the environment.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeMutation => "before-mutation",
            Self::HalfMade => "half-made",
            Self::AfterMutation => "after-mutation",
            Self::AfterJournal => "after-journal",
            Self::AfterCommit => "after-commit",
            Self::BeforeSend => "before-send",
        }
    }
}

/// Names the point at which to die.
pub const POINT_VARIABLE: &str = "HOLDFAST_FAILPOINT";

/// Names a file: only while it is there does the point kill, so that a test can prepare what it needs. A number in it says
/// with the how manieth passing since then; an empty one is the first.
pub const ARM_VARIABLE: &str = "HOLDFAST_FAILPOINT_ARMED";

#[cfg(feature = "failpoints")]
thread_local! {
    static WATCHER: std::cell::RefCell<Option<Watcher>> = const { std::cell::RefCell::new(None) };
}

/// Told of every point that its thread passes.
#[cfg(feature = "failpoints")]
pub type Watcher = std::rc::Rc<dyn Fn(Point)>;

/// Has this thread's passing of points told to `watcher`: a simulation takes its picture of what a server killed
/// there leaves behind.
#[cfg(feature = "failpoints")]
pub fn watch(watcher: Option<Watcher>) {
    WATCHER.set(watcher);
}

/// Kills this process when it is to die here.
#[cfg(feature = "failpoints")]
pub fn pass(point: Point) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static PASSED: AtomicU32 = AtomicU32::new(0);

    if let Some(watcher) = WATCHER.with_borrow(Clone::clone) {
        watcher(point);
    }

    static TARGET: OnceLock<Option<(String, std::path::PathBuf)>> = OnceLock::new();
    let target = TARGET
        .get_or_init(|| Some((std::env::var(POINT_VARIABLE).ok()?, std::env::var_os(ARM_VARIABLE)?.into())));
    let Some((_, armed)) = target.as_ref().filter(|(name, _)| name == point.name()) else { return };
    let Ok(nth) = std::fs::read_to_string(armed) else {
        PASSED.store(0, Ordering::Relaxed);
        return;
    };
    if PASSED.fetch_add(1, Ordering::Relaxed) + 1 == nth.parse().unwrap_or(1) {
        let own = rustix::process::getpid();
        // Nothing is left to do when a process cannot kill itself but to end it in the next best way.
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        std::process::abort();
    }
}

/// Does nothing: the feature `failpoints` is off.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn pass(_: Point) {}
