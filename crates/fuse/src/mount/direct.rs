//! By `mount(2)` and `umount2(2)`.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::{MountError, MountOptions, Unmount, open_device};

pub(super) fn mount(at: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let unsuitable = |error| MountError::Mountpoint(at.to_path_buf(), error);
    let mode = std::fs::metadata(at).map_err(unsuitable)?.mode();
    let device = open_device()?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        mode & libc::S_IFMT,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    let failed = |errno| MountError::Mount(at.to_path_buf(), errno);
    // Numbers and fixed words: no NUL can be among them.
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(&*options.source, at, &*kind, flags(options), &*data).map_err(failed)?;
    Ok(device)
}

pub(super) fn remount(at: &Path, options: &MountOptions) -> Result<(), MountError> {
    rustix::mount::mount_remount(at, flags(options), c"")
        .map_err(|errno| MountError::Mount(at.to_path_buf(), errno))
}

fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.is_read_only);
    flags.set(MountFlags::NOSUID, !options.allows_suid);
    flags.set(MountFlags::NODEV, !options.allows_devices);
    flags.set(MountFlags::NOEXEC, !options.allows_exec);
    flags.set(MountFlags::NOATIME, options.no_atime);
    flags
}

pub(super) fn unmount(at: &Path, how: Unmount) -> Result<(), MountError> {
    let flags = match how {
        Unmount::Plain => UnmountFlags::empty(),
        Unmount::Lazy | Unmount::Force => UnmountFlags::DETACH,
    };
    rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW)
        .map_err(|errno| MountError::Unmount(at.to_path_buf(), errno))
}

/// A forced unmount aborts the connection and then fails while the mount is used, which is what is wanted.
pub(super) fn abort(at: &Path) -> Result<(), Errno> {
    match rustix::mount::unmount(at, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(errno) => Err(errno),
    }
}
