//! System calls that older kernels have not: a kernel that was seen to lack one is not asked for it again. What does without it the
//! caller knows.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// Whether the kernel was seen to lack a call. What forbids it otherwise may let it through another time.
pub(crate) struct Newer {
    is_lacking: AtomicBool,
}

impl Newer {
    pub(crate) const fn new() -> Self {
        Self { is_lacking: AtomicBool::new(false) }
    }

    /// What the call gives: `ENOSYS`, without asking, where it gave that once.
    pub(crate) fn ask<R>(&self, call: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
        if self.is_lacking.load(Ordering::Relaxed) {
            return Err(Errno::NOSYS);
        }
        let told = call();
        if matches!(told, Err(Errno::NOSYS)) {
            self.is_lacking.store(true, Ordering::Relaxed);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_lacks_a_call_is_asked_for_it_once_and_one_that_has_it_each_time() {
        let (newer, mut asked) = (Newer::new(), 0);
        let mut ask = |answer| {
            let told = newer.ask(|| {
                asked += 1;
                answer
            });
            (told, asked)
        };
        assert_eq!(ask(Ok(7)), (Ok(7), 1));
        assert_eq!(ask(Err(Errno::PERM)), (Err(Errno::PERM), 2));
        assert_eq!(ask(Err(Errno::NOSYS)), (Err(Errno::NOSYS), 3));
        assert_eq!(ask(Ok(7)), (Err(Errno::NOSYS), 3));
    }
}
