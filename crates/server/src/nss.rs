//! The C library's user database (`nsswitch.conf`): may block for as long as a directory service takes.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use holdfast_base::limits::CALLER_GROUPS_MAX;

/// Bytes for one user's record: the C library's own suggestion is 1024; names and comments from directory
/// services are longer.
const RECORD_BYTES: usize = 64 << 10;

/// All groups of a user, the primary one included; `None` when nobody knows the user.
pub(crate) fn groups_of(uid: u32) -> Option<Arc<[u32]>> {
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    let mut strings = vec![0; RECORD_BYTES];
    let mut found = ptr::null_mut();
    // SAFETY: the record and its buffer outlive the call, and the length is the buffer's.
    let failed = unsafe {
        libc::getpwuid_r(uid, record.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &raw mut found)
    };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so the record was filled in; its strings lie in `strings`, still alive.
    let record = unsafe { record.assume_init() };
    let mut groups = vec![0; CALLER_GROUPS_MAX];
    let mut count = groups.len() as c_int;
    // SAFETY: the name is a terminated string of the record; the list has room for `count` groups.
    let listed =
        unsafe { libc::getgrouplist(record.pw_name, record.pw_gid, groups.as_mut_ptr(), &raw mut count) };
    // A user of more groups than the bound keeps the first of them: the call filled the list.
    let filled = if listed < 0 { CALLER_GROUPS_MAX } else { usize::try_from(count).ok()? };
    Some(Arc::from(groups.get(..filled)?))
}
