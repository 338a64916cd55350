//! A mount from INIT to its end.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use holdfast_base::limits::{FUSE_BACKGROUND_MAX, FUSE_READERS_MAX, FUSE_THREADS_MAX, IO_BYTES_MAX};
use rustix::io::Errno;

use crate::abi::init::{InitIn, InitOut};
use crate::abi::operation::{Dialect, Header, Operation};
use crate::abi::{self, encode};
use crate::filesystem::Filesystem;
use crate::flags::InitFlags;
use crate::mount::{self, MountError, MountOptions, Unmount};
use crate::notifier::Notifier;
use crate::passthrough::Passthrough;
use crate::serve::Core;
use crate::serve::crew::Crew;

/// What the daemon wants of the connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Flags wanted; those that the kernel does not have are left out (see [`Connection::flags`]).
    pub flags: InitFlags,
    /// Bytes of one READ or WRITE, a multiple of the page size.
    pub io_bytes_max: u32,
    /// Requests in the background that the kernel sends at once.
    pub background_max: u16,
    /// With `PASSTHROUGH` among the flags: how deep file systems may be stacked, this one included. 1: a backing file
    /// lies on a file system that is stacked on none.
    pub stack_depth_max: u32,
    /// Threads in all.
    pub threads_max: usize,
    /// Threads that read requests side by side, at least and at most, while none waits for a server.
    pub readers: (usize, usize),
}

impl Default for Config {
    fn default() -> Self {
        let bytes = u32::try_from(IO_BYTES_MAX).unwrap_or(1 << 20);
        Self {
            flags: Self::FLAGS,
            io_bytes_max: bytes,
            background_max: FUSE_BACKGROUND_MAX,
            stack_depth_max: 1,
            threads_max: FUSE_THREADS_MAX,
            // More than there are processors would only take turns: those that wait do not count.
            readers: (1, std::thread::available_parallelism().map_or(1, Into::into).min(FUSE_READERS_MAX)),
        }
    }
}

impl Config {
    /// What a coherent network file system asks for: everything that saves round trips without letting the kernel
    /// believe what it was not told to. (Not among them: `WRITEBACK_CACHE` and `AUTO_INVAL_DATA`, which break
    /// coherence or drop pages that are good, `DONT_MASK`, `POSIX_ACL` and `EXPORT_SUPPORT`.)
    pub const FLAGS: InitFlags = InitFlags::ASYNC_READ
        .union(InitFlags::POSIX_LOCKS)
        .union(InitFlags::FLOCK_LOCKS)
        .union(InitFlags::ATOMIC_O_TRUNC)
        .union(InitFlags::BIG_WRITES)
        .union(InitFlags::MAX_PAGES)
        .union(InitFlags::DO_READDIRPLUS)
        .union(InitFlags::READDIRPLUS_AUTO)
        .union(InitFlags::ASYNC_DIO)
        .union(InitFlags::PARALLEL_DIROPS)
        .union(InitFlags::HANDLE_KILLPRIV_V2)
        .union(InitFlags::ABORT_ERROR)
        .union(InitFlags::CACHE_SYMLINKS)
        .union(InitFlags::EXPLICIT_INVAL_DATA)
        .union(InitFlags::SETXATTR_EXT)
        .union(InitFlags::INIT_EXT)
        .union(InitFlags::HAS_EXPIRE_ONLY)
        .union(InitFlags::DIRECT_IO_ALLOW_MMAP)
        .union(InitFlags::NO_EXPORT_SUPPORT)
        .union(InitFlags::NO_OPEN_SUPPORT)
        .union(InitFlags::NO_OPENDIR_SUPPORT);
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Minor version of the ABI in use: the smaller of the kernel's and [`abi::MINOR`].
    pub minor: u32,
    /// Flags in use.
    pub flags: InitFlags,
    /// Bytes of one WRITE at most. READs are as large, when somebody reads so much at once.
    pub write_bytes_max: u32,
    /// Bytes that the kernel offers to read ahead.
    pub readahead_bytes_max: u32,
}

impl Connection {
    /// Whether the kernel knows [`Notifier::inc_epoch`]: the one way to have names forgotten that waits for nothing.
    #[must_use]
    pub const fn has_epochs(&self) -> bool {
        self.minor >= abi::MINOR_WITH_EPOCHS
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was unmounted, and the last user is gone.
    Unmounted,
    /// It was aborted (`umount -f`, [`Session::abort`]): those who used it got an error.
    Aborted,
    /// Reading requests failed.
    Failed(Errno),
}

/// A mounted file system that is being served by threads of its own. Dropping it unmounts lazily (whoever has files
/// open goes on using them, and is served) and waits for nothing.
pub struct Session {
    core: Arc<Core>,
    at: Option<PathBuf>,
    /// Number of the connection, as `/sys/fs/fuse/connections` has it.
    number: Option<u32>,
    how: mount::MountHow,
}

impl Session {
    /// Mounts, agrees with the kernel, and serves. When this returns the mount can be used.
    ///
    /// # Errors
    /// [`MountError`], after undoing what was done.
    pub fn mount(
        filesystem: Arc<dyn Filesystem>,
        at: &Path,
        options: &MountOptions,
        config: &Config,
    ) -> Result<Self, MountError> {
        let at = mount::real_path(at)?;
        let (device, how) = mount::mount(&at, options)?;
        let number = mount::connection_number(&at);
        Self::start(filesystem, device, config)
            .map(|core| Self { core, at: Some(at.clone()), number, how })
            .inspect_err(|_| {
                // Nobody uses it yet; what is left can only be a mount point that answers ENOTCONN.
                let _ = mount::unmount_as(&at, Unmount::Lazy, how);
            })
    }

    /// Serves what somebody else has mounted: `device` is `/dev/fuse`, open and connected, INIT not yet read.
    ///
    /// # Errors
    /// [`MountError::Handshake`], [`MountError::Threads`].
    pub fn over(
        filesystem: Arc<dyn Filesystem>,
        device: OwnedFd,
        config: &Config,
    ) -> Result<Self, MountError> {
        let core = Self::start(filesystem, device, config)?;
        Ok(Self { core, at: None, number: None, how: mount::MountHow::Assisted })
    }

    fn start(
        filesystem: Arc<dyn Filesystem>,
        device: OwnedFd,
        config: &Config,
    ) -> Result<Arc<Core>, MountError> {
        let connection = handshake(&device, config)?;
        filesystem.init(&connection);
        let device = Arc::new(device);
        let core = Arc::new_cyclic(|weak: &Weak<Core>| {
            let weak = Weak::clone(weak);
            let start = Box::new(move || weak.upgrade().is_some_and(start_thread));
            let crew = Crew::new(config.threads_max, config.readers, start);
            Core::new(device, filesystem, connection, crew)
        });
        let watched = Arc::clone(&core);
        let watcher = std::thread::Builder::new().name("fuse-watch".to_owned());
        watcher.spawn(move || watched.crew.watch()).map_err(MountError::Threads)?;
        if core.crew.open() {
            Ok(core)
        } else {
            core.crew.close();
            Err(MountError::Threads(std::io::Error::other("no serving thread could be started")))
        }
    }

    /// What was agreed on.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.core.connection
    }

    /// Where it is mounted, when [`Session::mount`] did it.
    #[must_use]
    pub fn mountpoint(&self) -> Option<&Path> {
        self.at.as_deref()
    }

    /// Sends notifications; see its rules.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        let connection = &self.core.connection;
        let device = Arc::clone(&self.core.device);
        Notifier::new(device, connection.minor, connection.flags, Arc::clone(&self.core.is_gone))
    }

    /// Registers files for passthrough.
    #[must_use]
    pub fn passthrough(&self) -> Passthrough {
        let is_offered = self.core.connection.flags.contains(InitFlags::PASSTHROUGH);
        Passthrough::new(Arc::clone(&self.core.device), is_offered)
    }

    /// Serving threads, and how many of them read requests.
    #[must_use]
    pub fn threads(&self) -> (usize, usize) {
        self.core.crew.counts()
    }

    /// Whether the kernel has ended the connection. Requests may still be in service; see [`Session::wait`].
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.core.is_gone.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Waits until the kernel has ended the connection (somebody unmounted it, here or elsewhere, and nobody uses it
    /// any more), every request was answered, and the file system's `destroy` has returned.
    #[must_use]
    pub fn wait(&self) -> End {
        self.core.crew.wait_end(|| self.core.ended.get().is_some(), None);
        self.core.ended.get().copied().unwrap_or(End::Unmounted)
    }

    /// The same for so long at most; `None` when it was not over by then.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> Option<End> {
        let until = Instant::now() + time.min(Duration::from_secs(1 << 32));
        self.core.crew.wait_end(|| self.core.ended.get().is_some(), Some(until));
        self.core.ended.get().copied()
    }

    /// Unmounts. Does not wait for the end of the service: see [`Session::wait`].
    ///
    /// # Errors
    /// EBUSY for [`Unmount::Plain`] while it is used; what the system or `fusermount3` says.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        let Some(at) = &self.at else {
            return Err(MountError::NotOurs);
        };
        match how {
            // Once the connection is gone its number may be another's, and so may what is mounted there.
            Unmount::Force if !self.is_gone() => mount::force(self.number, at, self.how),
            Unmount::Force => mount::unmount_as(at, Unmount::Lazy, self.how),
            Unmount::Plain | Unmount::Lazy => mount::unmount_as(at, how, self.how),
        }
    }

    /// Ends the connection at once: every process that waits in the mount gets an error, and so does every later use.
    /// The mount itself stays, dead, until it is unmounted.
    ///
    /// # Errors
    /// [`MountError::Abort`] where neither `/sys/fs/fuse/connections` nor a forced unmount can be used.
    pub fn abort(&self) -> Result<(), MountError> {
        if self.is_gone() {
            return Ok(());
        }
        mount::abort(self.number, self.at.as_deref())
    }

    /// How far the kernel reads ahead, for every file of the mount. INIT can only lower the system's default of
    /// 128 KiB; more needs root.
    ///
    /// # Errors
    /// What writing `/sys/class/bdi/…/read_ahead_kb` says.
    pub fn set_readahead(&self, bytes: u32) -> std::io::Result<()> {
        let number = self.number.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENODEV))?;
        std::fs::write(format!("/sys/class/bdi/0:{number}/read_ahead_kb"), (bytes >> 10).to_string())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_gone() && self.at.is_some() {
            // There is nobody to tell.
            let _ = self.unmount(Unmount::Lazy);
        }
    }
}

fn start_thread(core: Arc<Core>) -> bool {
    let thread = std::thread::Builder::new().name("fuse".to_owned());
    thread.spawn(move || core.run()).is_ok()
}

/// Reads INIT and answers it.
fn handshake(device: &OwnedFd, config: &Config) -> Result<Connection, MountError> {
    // The buffer must hold the largest WRITE already.
    let mut buffer = vec![0; usize::try_from(config.io_bytes_max).unwrap_or(IO_BYTES_MAX) + (64 << 10)];
    loop {
        let bytes = match rustix::io::read(device, &mut buffer) {
            Ok(bytes) => bytes,
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(errno) => return Err(MountError::Handshake(format!("reading INIT: {errno}"))),
        };
        let request = buffer.get(..bytes).unwrap_or_default();
        let malformed = || MountError::Handshake("the first request is malformed".to_owned());
        let (header, body) = Header::decode(request).map_err(|_| malformed())?;
        let Ok(Some(Operation::Init(init))) = Operation::decode(&header, body, Dialect::default()) else {
            return Err(malformed());
        };
        let mut reply = Vec::new();
        if init.major > abi::MAJOR {
            // The kernel asks again, with our version.
            encode::header(&mut reply, header.unique, 0);
            older(&mut reply);
            answer(device, &mut reply)?;
            continue;
        }
        if init.major < abi::MAJOR || init.minor < abi::MINOR_MIN {
            encode::header(&mut reply, header.unique, -Errno::PROTO.raw_os_error());
            answer(device, &mut reply)?;
            let said = format!(
                "the kernel has FUSE {}.{}, at least 7.{} is needed",
                init.major,
                init.minor,
                abi::MINOR_MIN
            );
            return Err(MountError::Handshake(said));
        }
        let (out, connection) = agree(&init, config);
        encode::header(&mut reply, header.unique, 0);
        out.encode(&mut reply);
        answer(device, &mut reply)?;
        tracing::debug!(?connection, device = device.as_raw_fd(), "a connection was made");
        return Ok(connection);
    }
}

fn older(reply: &mut Vec<u8>) {
    use crate::abi::fields::Put;
    reply.put_u32(abi::MAJOR);
    reply.put_u32(abi::MINOR);
    reply.put_zeros(56);
}

fn answer(device: &OwnedFd, reply: &mut [u8]) -> Result<(), MountError> {
    encode::finish(reply, 0);
    rustix::io::write(device, reply)
        .map(drop)
        .map_err(|errno| MountError::Handshake(format!("answering INIT: {errno}")))
}

fn agree(init: &InitIn, config: &Config) -> (InitOut, Connection) {
    let mut flags = config.flags.intersection(init.flags);
    let page_bytes = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
    let mut write_bytes_max = config.io_bytes_max.max(page_bytes);
    if !flags.contains(InitFlags::MAX_PAGES) {
        // 32 pages are what requests had before.
        write_bytes_max = write_bytes_max.min(32 * page_bytes);
    }
    let has_passthrough = flags.contains(InitFlags::PASSTHROUGH) && config.stack_depth_max > 0;
    if !has_passthrough {
        flags = flags.without(InitFlags::PASSTHROUGH);
    }
    let minor = init.minor.min(abi::MINOR);
    let out = InitOut {
        minor,
        readahead_bytes_max: init.readahead_bytes_max,
        flags,
        background_max: config.background_max,
        congestion_threshold: config.background_max - config.background_max / 4,
        write_bytes_max,
        pages_max: u16::try_from(write_bytes_max.div_ceil(page_bytes)).unwrap_or(u16::MAX),
        stack_depth_max: if has_passthrough { config.stack_depth_max } else { 0 },
    };
    let connection =
        Connection { minor, flags, write_bytes_max, readahead_bytes_max: init.readahead_bytes_max };
    (out, connection)
}

#[cfg(test)]
mod tests;
