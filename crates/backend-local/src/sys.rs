//! The system calls that no safe wrapper offers, each as one safe function. Nothing else here decides anything.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long, c_uint};
use rustix::io::Errno;

type Result<T> = std::result::Result<T, Errno>;

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

fn check(ret: c_long) -> Result<c_long> {
    if ret < 0 { Err(last_errno()) } else { Ok(ret) }
}

fn last_errno() -> Errno {
    // SAFETY: __errno_location gives a valid pointer to this thread's errno.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
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

/// Sets the mode of an object by any descriptor. `ENOSYS` before Linux 6.6.
pub(crate) fn chmod_object(object: impl AsFd, mode: u32) -> Result<()> {
    // SAFETY: the empty path is NUL-terminated.
    check(unsafe {
        libc::syscall(
            libc::SYS_fchmodat2,
            object.as_fd().as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// The names of an object's extended attributes, each with a NUL behind it, by its name in a directory: symbolic links are followed.
/// `ENOSYS` before Linux 6.13.
pub(crate) fn list_xattrs(dir: impl AsFd, name: &CStr, into: &mut [u8]) -> Result<usize> {
    /// `libc` does not name it yet. Where it has another number (Alpha, MIPS, x32) there is no such call by this one.
    const LISTXATTRAT: c_long = 465;
    const FLAGS: c_uint = 0;
    // SAFETY: the name is NUL-terminated, and `into` has as many bytes as is said.
    let told = check(unsafe {
        libc::syscall(
            LISTXATTRAT,
            dir.as_fd().as_raw_fd(),
            name.as_ptr(),
            FLAGS,
            into.as_mut_ptr(),
            into.len(),
        )
    })?;
    Ok(told as usize)
}

/// How far a call of [`sync_data`] goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncData {
    /// Starts write-back.
    Start,
    /// Starts what has not been started, waits for all, and reports errors of write-back.
    Wait,
}

/// Writes a whole file's dirty pages back; neither its inode nor the device's cache.
pub(crate) fn sync_data(file: impl AsFd, how: SyncData) -> Result<()> {
    let flags = match how {
        SyncData::Start => libc::SYNC_FILE_RANGE_WRITE,
        SyncData::Wait => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    // SAFETY: takes numbers only.
    check(c_long::from(unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, flags) })).map(drop)
}

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    from: i64,
    from_offset: u64,
    bytes: u64,
    to_offset: u64,
}

const FICLONERANGE: libc::Ioctl = 0x4020_940d_u32 as libc::Ioctl;

/// Shares blocks of one file with another.
pub(crate) fn clone_range(from: impl AsFd, to: impl AsFd, span: (u64, u64, u64)) -> Result<()> {
    let (from_offset, to_offset, bytes) = span;
    let arg = CloneRange { from: i64::from(from.as_fd().as_raw_fd()), from_offset, bytes, to_offset };
    // SAFETY: FICLONERANGE reads a file_clone_range, which `arg` is.
    check(c_long::from(unsafe { libc::ioctl(to.as_fd().as_raw_fd(), FICLONERANGE, &raw const arg) }))
        .map(drop)
}

/// The kernel's time at the granularity that files get. From libc: rustix ends the program on a kernel whose vDSO has no
/// `getcpu`, such as User Mode Linux 7.3.
pub(crate) fn coarse_time() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a timespec, which this is. It cannot fail: every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    now
}

/// Pages of a stretch of a file in memory.
#[derive(Clone, Copy)]
pub(crate) struct CachedPages {
    /// All, and those on their way there.
    pub(crate) all: u64,
    /// Changed, or on their way to the disk.
    unwritten: u64,
}

impl CachedPages {
    pub(crate) const fn is_unwritten(self) -> bool {
        self.unwritten > 0
    }
}

/// What of a stretch of a file is in memory; 0 bytes reach to its end. `None` before Linux 6.5, and where the caller may not know.
pub(crate) fn cached(file: impl AsFd, offset: u64, bytes: u64) -> Option<CachedPages> {
    #[repr(C)]
    struct Range {
        offset: u64,
        bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Stat {
        cached: u64,
        dirty: u64,
        written_back: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    // The same number on all architectures that this runs on; libc has no name for it on each.
    const SYS_CACHESTAT: c_long = 451;
    let (range, mut stat) = (Range { offset, bytes }, Stat::default());
    // SAFETY: cachestat reads a cachestat_range and writes a cachestat, which these are; both outlive the call.
    check(unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), &raw const range, &raw mut stat, 0 as c_uint)
    })
    .ok()?;
    Some(CachedPages { all: stat.cached, unwritten: stat.dirty + stat.written_back })
}

/// How many pages of a stretch of a file are in memory: see [`cached`].
pub(crate) fn cached_pages(file: impl AsFd, offset: u64, bytes: u64) -> Option<u64> {
    cached(file, offset, bytes).map(|there| there.all)
}

const FS_IOC_GETFSUUID: libc::Ioctl = 0x8011_1500_u32 as libc::Ioctl;

/// The UUID that the file system says it has. `ENOTTY` before Linux 6.9 and where it has none.
pub(crate) fn fs_uuid(object: impl AsFd) -> Result<[u8; 16]> {
    #[repr(C)]
    struct FsUuid {
        len: u8,
        uuid: [u8; 16],
    }
    let mut arg = FsUuid { len: 0, uuid: [0; 16] };
    // SAFETY: FS_IOC_GETFSUUID writes a struct fsuuid2, which `arg` is.
    check(c_long::from(unsafe { libc::ioctl(object.as_fd().as_raw_fd(), FS_IOC_GETFSUUID, &raw mut arg) }))?;
    if arg.len == 16 && arg.uuid != [0; 16] { Ok(arg.uuid) } else { Err(Errno::NOTTY) }
}

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;

/// The project that an open file counts for; 0 for none. `ENOTTY` where the file system knows of none.
pub(crate) fn project_of(file: impl AsFd) -> Result<u32> {
    #[repr(C)]
    #[derive(Default)]
    struct FsXattr {
        flags: u32,
        extent_bytes: u32,
        extents: u32,
        project: u32,
        shared_extent_bytes: u32,
        unused: [u8; 8],
    }
    let mut arg = FsXattr::default();
    // SAFETY: FS_IOC_FSGETXATTR writes a struct fsxattr, which `arg` is.
    check(c_long::from(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut arg) }))?;
    Ok(arg.project)
}

const BTRFS_IOC_START_SYNC: libc::Ioctl = 0x8008_9418_u32 as libc::Ioctl;
const BTRFS_IOC_WAIT_SYNC: libc::Ioctl = 0x4008_9416_u32 as libc::Ioctl;

/// Starts a commit of a btrfs file system and waits until it is on the disk.
pub(crate) fn btrfs_commit(object: impl AsFd) -> Result<()> {
    let fd = object.as_fd().as_raw_fd();
    let mut transaction: u64 = 0;
    // SAFETY: START_SYNC writes one u64, WAIT_SYNC reads one.
    unsafe {
        check(c_long::from(libc::ioctl(fd, BTRFS_IOC_START_SYNC, &raw mut transaction)))?;
        check(c_long::from(libc::ioctl(fd, BTRFS_IOC_WAIT_SYNC, &raw const transaction))).map(drop)
    }
}

fn flock(kind: c_int, first: i64, len: i64) -> libc::flock64 {
    // SAFETY: flock64 is plain numbers; zero is a value of each.
    let mut lock: libc::flock64 = unsafe { MaybeUninit::zeroed().assume_init() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = first;
    lock.l_len = len;
    lock
}

/// Takes (`F_RDLCK`, `F_WRLCK`) or drops (`F_UNLCK`) an open-file-description lock without waiting. A length of 0
/// reaches to the end.
pub(crate) fn ofd_lock(file: impl AsFd, kind: c_int, first: i64, len: i64) -> Result<()> {
    let lock = flock(kind, first, len);
    // SAFETY: F_OFD_SETLK reads a flock64.
    check(c_long::from(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }))
        .map(drop)
}

/// A lock that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundLock {
    pub(crate) kind: c_int,
    pub(crate) first: i64,
    /// 0: to the end.
    pub(crate) len: i64,
    /// Whether an open file holds it, ours or somebody's; else a process does.
    pub(crate) is_open_files: bool,
}

/// The first lock in the way of one, in the kernel's order; never one of this open file's own.
pub(crate) fn ofd_test(file: impl AsFd, kind: c_int, first: i64, len: i64) -> Result<Option<FoundLock>> {
    let mut lock = flock(kind, first, len);
    // SAFETY: F_OFD_GETLK reads and writes a flock64.
    check(c_long::from(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) }))?;
    let found = FoundLock {
        kind: c_int::from(lock.l_type),
        first: lock.l_start,
        len: lock.l_len,
        is_open_files: lock.l_pid == -1,
    };
    Ok((found.kind != libc::F_UNLCK).then_some(found))
}

/// A mount of our own that lies nowhere: nobody finds it, and what is opened through it cannot be written.
pub(crate) struct ReadOnlyMount {
    /// Its directory, really open, as `open_by_handle_at` wants it.
    top: OwnedFd,
    /// Keeps the mount from being taken apart.
    _tree: OwnedFd,
}

impl ReadOnlyMount {
    /// To open by handle below.
    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }
}

/// Mounts what lies below a directory once more, read-only and nowhere. Needs `CAP_SYS_ADMIN`, and Linux 5.12.
pub(crate) fn mount_read_only(dir: impl AsFd) -> Result<ReadOnlyMount> {
    use rustix::fs::{Mode, OFlags, openat};
    use rustix::mount::{OpenTreeFlags, open_tree};
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(dir, "", flags)?;
    let set =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is NUL-terminated; the kernel reads one mount_attr of the size that it is told.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const set,
            size_of::<libc::mount_attr>(),
        )
    })?;
    let top = openat(&tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(ReadOnlyMount { top, _tree: tree })
}
