//! What the standard library does only with a file that it has opened.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Cuts a file off, or makes it longer, without opening it.
pub(super) fn truncate(path: &Path, size: u64) -> io::Result<()> {
    let (path, size) = (CString::new(path.as_os_str().as_bytes())?, size.cast_signed());
    // SAFETY: the path is a string that ends with a zero and lives until the call has returned.
    match unsafe { libc::truncate(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
