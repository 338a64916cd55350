//! Putting a connection into the tree of files, and taking it away.

mod assisted;
mod direct;
mod table;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// What the mount is called and may do.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What tables of mounts show as the source (`server:/export`).
    pub source: String,
    /// What they show as the type behind `fuse.`.
    pub subtype: String,
    /// Other users than the mounting one may use it. An ordinary user needs `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The kernel checks permissions from the attributes it is told.
    pub default_permissions: bool,
    /// No writes.
    pub is_read_only: bool,
    /// Set-id bits count (root alone can have it).
    pub allows_suid: bool,
    /// Device files can be opened (root alone can have it).
    pub allows_devices: bool,
    /// Programs can be run.
    pub allows_exec: bool,
    /// Reading does not change access times in the kernel's eyes.
    pub no_atime: bool,
    /// How to mount; `None`: directly as root, else by `fusermount3`.
    pub how: Option<MountHow>,
}

impl MountOptions {
    /// With the defaults of a network file system: shared among users for root, permissions checked by the kernel,
    /// neither set-id bits nor devices.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            subtype: "holdfast".to_owned(),
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: true,
            is_read_only: false,
            allows_suid: false,
            allows_devices: false,
            allows_exec: true,
            no_atime: true,
            how: None,
        }
    }
}

/// Who calls `mount(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountHow {
    /// This process: needs CAP_SYS_ADMIN.
    Direct,
    /// The set-uid program `fusermount3` (Debian: package `fuse3`).
    Assisted,
}

/// How thoroughly to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only while nobody uses it.
    Plain,
    /// Out of the tree at once; who has files open goes on until he closes them.
    Lazy,
    /// Out of the tree at once; who waits in it, or uses it later, gets an error.
    Force,
}

/// Why a mount, or its end, failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// `/dev/fuse` cannot be opened: no such device (`modprobe fuse`), or no permission.
    #[error("/dev/fuse cannot be opened: {0}")]
    Device(Errno),
    /// The mount point is no directory, or cannot be looked at.
    #[error("{} cannot be a mount point: {}", .0.display(), .1)]
    Mountpoint(PathBuf, std::io::Error),
    /// The system refused to mount.
    #[error("mount on {} failed: {}", .0.display(), .1)]
    Mount(PathBuf, Errno),
    /// `fusermount3` is missing or cannot be run.
    #[error("fusermount3 cannot be run (Debian: apt install fuse3): {0}")]
    NoHelper(std::io::Error),
    /// `fusermount3` refused; with what it said.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// Kernel and daemon did not come to terms.
    #[error("FUSE handshake failed: {0}")]
    Handshake(String),
    /// The system refused to unmount.
    #[error("unmounting {} failed: {}", .0.display(), .1)]
    Unmount(PathBuf, Errno),
    /// The connection cannot be aborted from here.
    #[error("the connection cannot be aborted: {0}")]
    Abort(std::io::Error),
    /// No thread could be started.
    #[error("a thread could not be started: {0}")]
    Threads(std::io::Error),
    /// Somebody else mounted it, and must unmount it.
    #[error("the mount was made by somebody else")]
    NotOurs,
}

/// Mounts; answers the connected device.
pub(crate) fn mount(at: &Path, options: &MountOptions) -> Result<(OwnedFd, MountHow), MountError> {
    let is_root = rustix::process::geteuid().is_root();
    let how = options.how.unwrap_or(if is_root { MountHow::Direct } else { MountHow::Assisted });
    let device = match how {
        MountHow::Direct => direct::mount(at, options)?,
        MountHow::Assisted => assisted::mount(at, options)?,
    };
    Ok((device, how))
}

/// Unmounts what is mounted at a path, by whomever it is served; as root directly, else by `fusermount3`.
///
/// # Errors
/// EBUSY for [`Unmount::Plain`] while it is used; what the system or `fusermount3` says.
pub fn unmount(at: &Path, how: Unmount) -> Result<(), MountError> {
    let at = real_path(at)?;
    let is_root = rustix::process::geteuid().is_root();
    let by = if is_root { MountHow::Direct } else { MountHow::Assisted };
    match how {
        Unmount::Force => force(connection_number(&at), &at, by),
        Unmount::Plain | Unmount::Lazy => unmount_as(&at, how, by),
    }
}

/// Ends the connection of what is mounted at a path, by whomever it is served: every process that waits in it gets an
/// error, and so does every later use. Where there is no `/sys/fs/fuse/connections` a mount that nobody uses may be
/// unmounted by it.
///
/// # Errors
/// [`MountError::Abort`] where neither that nor a forced unmount can be used.
pub fn abort_at(at: &Path) -> Result<(), MountError> {
    let at = real_path(at)?;
    abort(connection_number(&at), Some(&at))
}

/// Frees those who wait in the mount, then takes it out of the tree. To abort may unmount it already.
pub(crate) fn force(number: Option<u32>, at: &Path, by: MountHow) -> Result<(), MountError> {
    let aborted = abort(number, Some(at));
    unmount_as(at, Unmount::Lazy, by).or(aborted)
}

pub(crate) fn unmount_as(at: &Path, how: Unmount, by: MountHow) -> Result<(), MountError> {
    match by {
        MountHow::Direct => direct::unmount(at, how),
        MountHow::Assisted => assisted::unmount(at, how),
    }
}

/// Gives what is mounted there the flags among these options; root alone may.
///
/// # Errors
/// What the kernel says.
pub fn remount(at: &Path, options: &MountOptions) -> Result<(), MountError> {
    direct::remount(at, options)
}

/// Ends a connection by its control file, or by a forced unmount, which does the same before it finds the mount busy.
pub(crate) fn abort(number: Option<u32>, at: Option<&Path>) -> Result<(), MountError> {
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let control = number
        .ok_or_else(missing)
        .and_then(|number| std::fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1"));
    let Err(error) = control else { return Ok(()) };
    match at.map(direct::abort) {
        Some(Ok(())) => Ok(()),
        _ => Err(MountError::Abort(error)),
    }
}

/// The connection's number: the minor number of the mount's device. Asks the table of mounts, never the mount itself.
pub(crate) fn connection_number(at: &Path) -> Option<u32> {
    table::device_of(&std::fs::read("/proc/self/mountinfo").ok()?, at).map(|(_, minor)| minor)
}

/// The path as the table of mounts has it. What is mounted there is not asked: it may be dead, or its server away.
pub(crate) fn real_path(at: &Path) -> Result<PathBuf, MountError> {
    let failed = |error| MountError::Mountpoint(at.to_path_buf(), error);
    let absolute = std::path::absolute(at).map_err(failed)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            let target = parent.canonicalize().map_err(failed)?.join(name);
            // The last component may be a symbolic link itself; a mount point is none.
            match rustix::fs::readlink(&target, Vec::new()) {
                Ok(_) => target.canonicalize().map_err(failed),
                Err(_) => Ok(target),
            }
        }
        _ => absolute.canonicalize().map_err(failed),
    }
}

fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(MountError::Device)
}
