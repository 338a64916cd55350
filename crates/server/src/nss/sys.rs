//! The C library's user database (`nsswitch.conf`): may block for as long as a directory service takes.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use holdfast_base::limits::CALLER_GROUPS_MAX;

/// Bytes for one record: the C library's own suggestion is 1024; names and comments from directory services are
/// longer, and a group carries the names of all its members.
const RECORD_BYTES: usize = 256 << 10;

/// Asks for one record: `ask` is given room for it and for its strings, and `take` the record if there is one.
fn record<R, T>(
    ask: impl FnOnce(*mut R, *mut c_char, usize, *mut *mut R) -> c_int,
    take: impl FnOnce(&R) -> Option<T>,
) -> Option<T> {
    let mut record = MaybeUninit::<R>::uninit();
    let mut strings: Vec<c_char> = vec![0; RECORD_BYTES];
    let mut found = ptr::null_mut();
    let failed = ask(record.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &raw mut found);
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so the call filled the record in; its strings lie in `strings`, still alive.
    take(unsafe { record.assume_init_ref() })
}

fn user<T>(uid: u32, take: impl FnOnce(&libc::passwd) -> Option<T>) -> Option<T> {
    // SAFETY: record and buffer outlive the call, and the length is the buffer's.
    record(|r, b, n, f| unsafe { libc::getpwuid_r(uid, r, b, n, f) }, take)
}

/// A user's name.
pub(super) fn user_name(uid: u32) -> Option<Vec<u8>> {
    // SAFETY: a record's name is a terminated string.
    user(uid, |r| Some(unsafe { CStr::from_ptr(r.pw_name) }.to_bytes().to_vec()))
}

/// A group's name.
pub(super) fn group_name(gid: u32) -> Option<Vec<u8>> {
    // SAFETY: as for users.
    record::<libc::group, _>(
        |r, b, n, f| unsafe { libc::getgrgid_r(gid, r, b, n, f) },
        |r| {
            // SAFETY: a record's name is a terminated string.
            Some(unsafe { CStr::from_ptr(r.gr_name) }.to_bytes().to_vec())
        },
    )
}

/// The user of a name.
pub(super) fn user_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above; the name is a terminated string.
    record::<libc::passwd, _>(
        |r, b, n, f| unsafe { libc::getpwnam_r(name.as_ptr(), r, b, n, f) },
        |r| Some(r.pw_uid),
    )
}

/// The group of a name.
pub(super) fn group_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above; the name is a terminated string.
    record::<libc::group, _>(
        |r, b, n, f| unsafe { libc::getgrnam_r(name.as_ptr(), r, b, n, f) },
        |r| Some(r.gr_gid),
    )
}

/// All groups of a user, the primary one included; `None` when nobody knows the user.
pub(super) fn groups_of(uid: u32) -> Option<Arc<[u32]>> {
    user(uid, |record| {
        let mut groups = vec![0; CALLER_GROUPS_MAX];
        let mut count = groups.len() as c_int;
        // SAFETY: the name is a terminated string of the record; the list has room for `count` groups.
        let listed =
            unsafe { libc::getgrouplist(record.pw_name, record.pw_gid, groups.as_mut_ptr(), &raw mut count) };
        // A user of more groups than the bound keeps the first of them: the call filled the list.
        let filled = if listed < 0 { CALLER_GROUPS_MAX } else { usize::try_from(count).ok()? };
        Some(Arc::from(groups.get(..filled)?))
    })
}
