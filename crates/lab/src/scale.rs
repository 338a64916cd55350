//! How much a run does: `test` is small enough for every change, `soak` is whole.

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

    /// The name, as scripts read it.
    pub fn name(self) -> &'static str {
        self.pick("test", "soak")
    }
}
