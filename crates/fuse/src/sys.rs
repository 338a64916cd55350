//! The ioctls of `/dev/fuse` for passthrough: the only place where the compiler has to be told that it is right.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

const MAGIC: u8 = 229;

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(MAGIC, 1);
const BACKING_CLOSE: Opcode = opcode::write::<u32>(MAGIC, 2);

/// Registers a file for passthrough; answers its number.
pub(crate) fn open_backing(device: impl AsFd, file: BorrowedFd<'_>) -> Result<i32, Errno> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: FUSE_DEV_IOC_BACKING_OPEN reads one `struct fuse_backing_map`, which BackingMap is field by field, and
    // writes nothing. The descriptor is borrowed during the call; the kernel takes a reference of its own.
    unsafe { ioctl(device, BackingOpen(map)) }
}

/// Gives a registration up.
pub(crate) fn close_backing(device: impl AsFd, id: i32) -> Result<(), Errno> {
    // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE reads one u32 through the pointer and writes nothing.
    unsafe { ioctl(device, Setter::<BACKING_CLOSE, u32>::new(id.cast_unsigned())) }
}

/// As [`Setter`], but the call's result is the answer.
struct BackingOpen(BackingMap);

// SAFETY: the opcode is the one whose argument BackingMap is, the pointer is to it and lives as long as `self`, and
// nothing is read back through it.
unsafe impl rustix::ioctl::Ioctl for BackingOpen {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        result: rustix::ioctl::IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> Result<i32, Errno> {
        Ok(result)
    }
}
