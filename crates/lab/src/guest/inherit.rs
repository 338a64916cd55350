//! Handing descriptors to a child under numbers known beforehand.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets `command`'s child inherit `descriptors` under the numbers they have here.
///
/// The close-on-exec flag is taken off in the child, after the fork: taken off here, another guest started at
/// the same time by another thread would inherit them too, and their ends would never be seen.
pub(super) fn pass_descriptors(command: &mut Command, descriptors: Vec<OwnedFd>) {
    // SAFETY: between fork and exec only `fcntl` is called, which is async-signal-safe (signal-safety(7)), and
    // no memory is allocated or freed: the closure owns the descriptors, and its drop happens in the parent.
    unsafe {
        command.pre_exec(move || {
            for descriptor in &descriptors {
                if libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}
