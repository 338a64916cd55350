//! How much a run does: `test` is small enough for every change, `soak` is whole.

use crate::NfsVersion;

/// The size of a run, from the environment variable `HOLDFAST_SCALE` (`test`, the default, or `soak`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Small trees and short runs, for `make test`.
    Test,
    /// Whole trees and long runs, for `make soak`.
    Soak,
}

impl Scale {
    /// Reads `HOLDFAST_SCALE`; anything but `soak` is [`Scale::Test`].
    pub fn from_env() -> Self {
        match std::env::var("HOLDFAST_SCALE").as_deref() {
            Ok("soak") => Self::Soak,
            _ => Self::Test,
        }
    }

    /// Chooses between the two sizes of one quantity.
    pub fn pick<T>(self, test: T, soak: T) -> T {
        match self {
            Self::Test => test,
            Self::Soak => soak,
        }
    }

    /// Which of `versions`, the oldest first, a long case is tried with on a kernel: in a test run all on the oldest kernel, and
    /// only the last, which exercises most, on the newest.
    pub fn versions(self, is_oldest_kernel: bool, versions: &[NfsVersion]) -> &[NfsVersion] {
        let from = if is_oldest_kernel { 0 } else { versions.len().saturating_sub(1) };
        &versions[self.pick(from, 0)..]
    }

    /// The name, as scripts read it.
    pub fn name(self) -> &'static str {
        self.pick("test", "soak")
    }
}
