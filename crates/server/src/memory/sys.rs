//! The allocator.
#![allow(unsafe_code)]

/// Gives memory that was freed back to the kernel, as far as the allocator keeps it for later. Milliseconds for each GiB.
pub(super) fn return_freed() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it has no preconditions, and takes the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}
