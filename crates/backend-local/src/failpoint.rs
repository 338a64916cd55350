//! The place within a create at which the crash tests kill the server: a file is there, and not yet all that was asked for.
//! Without the feature `failpoints` nothing is left of it.

#[cfg(feature = "failpoints")]
static HALF_MADE: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// Has `then` called at each passing. The first caller's stands.
#[cfg(feature = "failpoints")]
pub fn when_half_made(then: fn()) {
    let _ = HALF_MADE.set(then);
}

/// Is passed.
#[cfg(feature = "failpoints")]
pub(crate) fn pass() {
    if let Some(then) = HALF_MADE.get() {
        then();
    }
}

/// Does nothing: the feature `failpoints` is off.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) const fn pass() {}
