//! As whom a thread acts, and what it may.

use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

use super::{Result, check};

/// Sets this thread's file-system user; gives the former. The raw call: glibc's would do the same today, but only
/// the raw one promises to leave other threads alone.
pub(crate) fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: takes a number, changes this thread's credentials only.
    (unsafe { libc::syscall(libc::SYS_setfsuid, uid) }) as u32
}

/// Sets this thread's file-system group; gives the former.
pub(crate) fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: takes a number, changes this thread's credentials only.
    (unsafe { libc::syscall(libc::SYS_setfsgid, gid) }) as u32
}

/// Sets this thread's supplementary groups; glibc's wrapper would set all threads'.
pub(crate) fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the pointer is valid for as many 32-bit ids as the count says.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;

/// Capabilities by their number in `linux/capability.h`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    SetGid = 6,
    SetUid = 7,
    SysAdmin = 21,
    SysResource = 24,
    SetFcap = 31,
}

/// What the kernel takes from a thread whose file-system user stops being the superuser (`CAP_FS_SET` in
/// `linux/capability.h`): CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE, MKNOD;
/// MAC_OVERRIDE.
const FILE_CAPABILITIES: [u32; 2] = [1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 9 | 1 << 27, 1 << 0];

fn capabilities() -> Result<[CapData; 2]> {
    let mut head = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 reads one header and writes two data records, which these are.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut head, data.as_mut_ptr()) })?;
    Ok(data)
}

/// Whether this thread may use a capability now.
pub(crate) fn has_capability(cap: Capability) -> bool {
    capabilities().is_ok_and(|data| data[0].effective & (1 << cap as u32) != 0)
}

fn set_capabilities(data: [CapData; 2]) -> Result<()> {
    let mut head = CapHeader { version: CAP_VERSION_3, pid: 0 };
    // SAFETY: version 3 reads one header and two data records, which these are.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut head, data.as_ptr()) }).map(drop)
}

/// Takes capabilities out of this thread's effective set.
pub(crate) fn drop_capabilities(caps: &[Capability]) -> Result<()> {
    let mut data = capabilities()?;
    data[0].effective &= !caps.iter().fold(0, |bits, cap| bits | 1 << *cap as u32);
    set_capabilities(data)
}

/// Puts one back into this thread's effective set, if the process was permitted it.
pub(crate) fn raise_capability(cap: Capability) -> Result<()> {
    let mut data = capabilities()?;
    data[0].effective |= data[0].permitted & 1 << cap as u32;
    set_capabilities(data)
}

/// Gives this thread the capabilities to pass by permissions, as far as the process was permitted them, or takes
/// them away.
pub(crate) fn use_file_capabilities(are_used: bool) -> Result<()> {
    let mut data = capabilities()?;
    for (set, file) in data.iter_mut().zip(FILE_CAPABILITIES) {
        set.effective = if are_used { set.effective | set.permitted & file } else { set.effective & !file };
    }
    set_capabilities(data)
}

/// Whether the kernel takes them away itself with the superuser's file-system user and gives them back with it:
/// not where `SECBIT_NO_SETUID_FIXUP` says so.
pub(crate) fn fixes_file_capabilities() -> bool {
    const NO_SETUID_FIXUP: c_int = 1 << 2;
    // SAFETY: PR_GET_SECUREBITS takes nothing more and gives a number.
    let bits = unsafe { libc::prctl(libc::PR_GET_SECUREBITS) };
    bits >= 0 && bits & NO_SETUID_FIXUP == 0
}

/// Whether the thread's file-system credentials have these rights (`R_OK | W_OK | X_OK`) to an object.
pub(crate) fn has_rights(object: impl AsFd, rights: c_int) -> Result<()> {
    // SAFETY: the empty path is NUL-terminated.
    check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            object.as_fd().as_raw_fd(),
            c"".as_ptr(),
            rights,
            libc::AT_EMPTY_PATH | libc::AT_EACCESS,
        )
    })
    .map(drop)
}
