//! The kernel's own handles of objects.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_uint};
use rustix::io::Errno;

use super::{Result, check};

/// Bytes of the largest kernel handle that is taken as it is: what a backend handle holds beside our own fields.
pub(crate) const KERNEL_HANDLE_BYTES_MAX: usize = 40;

/// What `name_to_handle_at` gives.
#[derive(Clone, Copy)]
pub(crate) struct KernelHandle {
    pub(crate) kind: i32,
    pub(crate) mount_id: i32,
    len: u8,
    bytes: [u8; KERNEL_HANDLE_BYTES_MAX],
}

impl KernelHandle {
    pub(crate) fn new(kind: i32, from: &[u8]) -> Option<Self> {
        let mut bytes = [0; KERNEL_HANDLE_BYTES_MAX];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { kind, mount_id: -1, len: u8::try_from(from.len()).ok()?, bytes })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// `struct file_handle` with room for the largest one we take.
#[repr(C)]
struct RawHandle {
    bytes_count: c_uint,
    kind: c_int,
    bytes: [u8; KERNEL_HANDLE_BYTES_MAX],
}

/// The kernel's handle of `name` below `dir`, not following a symbolic link; of `dir` itself when `name` is empty.
pub(crate) fn name_to_handle(dir: impl AsFd, name: &CStr) -> Result<KernelHandle> {
    name_to_handle_with(dir, name, 0)
}

/// The kernel's handle of an open object as fanotify gives it: not for opening, so there is one on more file systems.
pub(crate) fn handle_for_identity(object: impl AsFd) -> Result<KernelHandle> {
    const AT_HANDLE_FID: c_int = 0x200;
    match name_to_handle_with(&object, c"", AT_HANDLE_FID) {
        // Before Linux 6.5.
        Err(Errno::INVAL) => name_to_handle(object, c""),
        other => other,
    }
}

fn name_to_handle_with(dir: impl AsFd, name: &CStr, flags: c_int) -> Result<KernelHandle> {
    let mut raw = RawHandle {
        bytes_count: KERNEL_HANDLE_BYTES_MAX as c_uint,
        kind: 0,
        bytes: [0; KERNEL_HANDLE_BYTES_MAX],
    };
    let mut mount_id: c_int = 0;
    let flags = flags | if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: the name is NUL-terminated; `raw` is a file_handle with as many bytes behind its head as it says,
    // and `mount_id` an int; both outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_fd().as_raw_fd(),
            name.as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            flags,
        )
    })?;
    let len = u8::try_from(raw.bytes_count).map_err(|_| Errno::OVERFLOW)?;
    Ok(KernelHandle { kind: raw.kind, mount_id, len, bytes: raw.bytes })
}

/// Another descriptor of the same object, `O_PATH`. Half of what the way through `/proc` costs.
pub(crate) fn open_same_path(object: impl AsFd) -> Result<OwnedFd> {
    let flags = libc::AT_EMPTY_PATH | libc::O_CLOEXEC;
    // SAFETY: an empty path, which the kernel only reads.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_open_tree, object.as_fd().as_raw_fd(), c"".as_ptr(), flags)
    })?;
    // SAFETY: the kernel has just given us this descriptor, nobody else owns it, and it fits an int.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Opens the object of a kernel handle. Needs `CAP_DAC_READ_SEARCH`.
pub(crate) fn open_by_handle(mount: impl AsFd, handle: &KernelHandle, flags: c_int) -> Result<OwnedFd> {
    let mut raw = RawHandle { bytes_count: c_uint::from(handle.len), kind: handle.kind, bytes: handle.bytes };
    // SAFETY: `raw` is a file_handle with at least as many bytes as it says and outlives the call.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_fd().as_raw_fd(),
            &raw mut raw,
            flags | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: the kernel has just given us this descriptor, nobody else owns it, and it fits an int.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}
