//! `truncate(2)`, which neither std nor rustix has.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;

/// Sets the size of the file that a path leads to.
pub(crate) fn truncate(path: &CStr, size: u64) -> io::Result<()> {
    let size = libc::off_t::try_from(size).map_err(io::Error::other)?;
    // SAFETY: the path ends with a zero and is only read.
    let done = unsafe { libc::truncate(path.as_ptr(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
