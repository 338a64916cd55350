//! The life of a mount: made, served, drained, ended.
//!
//! A plain `umount` takes the mount away while changes may still wait to be sent: the daemon outlives it until all is on
//! the server's disk. SIGTERM sends first and unmounts then. A second SIGTERM, and `holdfast umount -f`, give up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use holdfast_fuse::{Config, End, InitFlags, Session, Unmount};
use holdfast_volume::Invalidate;
use holdfast_volume::cache::Pending;

use crate::connecting::{self, Connected};
use crate::control::{Controlled as _, Endpoint, Place, runtime_dir};
use crate::controlled::Mounted;
use crate::fs::Translation;
use crate::guard::Guard;
use crate::kernel_side::KernelSide;
use crate::logfile;
use crate::mountinfo;
use crate::options::MountOptions;
use crate::privileges;
use crate::signals::{Signal, Signals};
use crate::source::Source;

/// What is to be mounted where.
#[derive(Debug, Clone)]
pub struct MountRequest {
    /// What.
    pub source: Source,
    /// Where: without symbolic links.
    pub mountpoint: std::path::PathBuf,
    /// How.
    pub options: MountOptions,
}

/// How often the daemon looks after its log and its reports.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long saying goodbye to a server may take: its lease says the same, later.
const GOODBYE: Duration = Duration::from_secs(3);

/// What signals have asked for so far.
#[derive(Debug, Default)]
struct Wishes(AtomicU8);

impl Wishes {
    const NONE_YET: u8 = 0;
    const SERVING: u8 = 1;
    const DRAIN: u8 = 2;
    const GIVE_UP: u8 = 3;

    fn now(&self) -> u8 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Mounts and serves until the mount is gone and everything is sent. `report` is called once the mount can be used.
///
/// # Errors
/// Why it could not be mounted; afterwards, what could not be sent.
pub fn run(request: &MountRequest, report: impl FnOnce() -> Result<()>) -> Result<()> {
    let signals = Signals::hold().context("holding signals back")?;
    let wishes = Arc::new(Wishes::default());
    let (heard, waiting) = (Arc::clone(&wishes), std::thread::current());
    std::thread::Builder::new().name("signals".into()).spawn(move || hear(&signals, &heard, &waiting))?;

    if request.options.same_host != holdfast_volume::SameHost::Never {
        privileges::give_up();
    }
    let mounted = mount(request)?;
    let endpoint = control(&mounted, request);
    report().inspect_err(|_| {
        // Nobody wants it any more.
        let _ = mounted.session().unmount(Unmount::Lazy);
    })?;
    wishes.0.store(Wishes::SERVING, Ordering::SeqCst);
    tracing::info!(source = %request.source, mountpoint = %request.mountpoint.display(), "mounted");

    let log = logfile::path_for(&runtime_dir(), &request.mountpoint);
    let mut guard = guard(request);
    let served = serve(&mounted, &wishes, (&log, guard.as_mut()));
    if let Some(guard) = &mut guard {
        guard.unmounted();
    }
    let drained = drain(&mounted, &wishes);
    drop(endpoint);
    goodbye(&mounted);
    drop(guard);
    // What was told once is told to nobody else: the drain hears nothing of what failed before it.
    served.and(drained)
}

/// Before the mount stands a signal ends the process, as it does by default; then it asks for its end.
fn hear(signals: &Signals, wishes: &Wishes, waiting: &std::thread::Thread) {
    loop {
        match signals.wait() {
            Ok(Signal::Hangup) => {}
            Ok(Signal::End) => {
                match wishes.now() {
                    Wishes::NONE_YET => std::process::exit(1),
                    Wishes::SERVING => wishes.0.store(Wishes::DRAIN, Ordering::SeqCst),
                    _ => wishes.0.store(Wishes::GIVE_UP, Ordering::SeqCst),
                }
                waiting.unpark();
            }
            Err(error) => {
                tracing::warn!(%error, "signals are not heard any more");
                return;
            }
        }
    }
}

/// Gives what is mounted there other flags (`mount -o remount,ro`).
///
/// # Errors
/// What the kernel says: EBUSY where files are open for writing and it is to be read-only, EPERM for all but root.
pub fn remount(mountpoint: &Path, options: &MountOptions) -> Result<()> {
    Ok(holdfast_fuse::remount(mountpoint, &for_kernel(options, String::new()))?)
}

fn for_kernel(options: &MountOptions, source: String) -> holdfast_fuse::MountOptions {
    let kernel = options.kernel;
    holdfast_fuse::MountOptions {
        allow_other: options.allow_other,
        is_read_only: kernel.is_read_only,
        allows_suid: kernel.allows_suid,
        allows_devices: kernel.allows_devices,
        allows_exec: kernel.allows_exec,
        no_atime: kernel.is_noatime,
        ..holdfast_fuse::MountOptions::new(source)
    }
}

fn mount(request: &MountRequest) -> Result<Arc<Mounted>> {
    let Connected { volume, server, caps, root_name } =
        connecting::connect(&request.source, &request.options)?;
    let options = for_kernel(&request.options, root_name);
    // By its capabilities a server tells of access lists; without them the kernel goes by the mode, and the server by what it has.
    let has_lists = caps.is_some();
    let wants = (request.options.passes_through, request.options.direct_ends);
    let files = Arc::new(Translation::new(volume.clone(), wants, has_lists));
    let mut config = Config::default();
    // Whether the umask counts is for the directory's access list to say.
    config.flags |= InitFlags::DONT_MASK;
    if has_lists {
        config.flags |= InitFlags::POSIX_ACL;
    }
    if request.options.passes_through {
        config.flags |= InitFlags::PASSTHROUGH;
    }
    let session = Session::mount(Arc::clone(&files) as _, &request.mountpoint, &options, &config)
        .inspect_err(|_| {
            volume.close();
            server.client().shutdown();
        })?;
    if request.options.passes_through {
        let kernel = session.passthrough();
        if kernel.is_offered() {
            files.pass_through(kernel);
        } else {
            tracing::warn!("this kernel passes nothing through (Linux 6.9 does)");
        }
    }
    // Ordinary users cannot have more than the system's default.
    if let Err(error) = session.set_readahead(READ_AHEAD_BYTES) {
        tracing::debug!(%error, "read-ahead stays as it is");
    }
    let kernel: Arc<dyn Invalidate> = Arc::new(KernelSide::new(session.notifier()));
    volume.invalidate_by(&kernel)?;
    Ok(Arc::new(Mounted::new(volume, (server, caps), session, request.clone())))
}

/// As far as the kernel reads ahead: several requests, so that the line does not fall silent between them.
const READ_AHEAD_BYTES: u32 = 8 << 20;

/// Without its control socket the mount works all the same.
fn control(mounted: &Arc<Mounted>, request: &MountRequest) -> Option<Endpoint> {
    let start = || -> Result<Endpoint> {
        let info =
            mountinfo::topmost(&request.mountpoint)?.context("the mount is not in the table of mounts")?;
        let place = Place::of_own(&runtime_dir(), &info.device)?;
        let controlled: Arc<dyn crate::control::Controlled> = Arc::clone(mounted) as _;
        Ok(Endpoint::start(place, Arc::downgrade(&controlled))?)
    };
    start().inspect_err(|error| tracing::warn!("no control socket: {error:#}")).ok()
}

/// Without its guard the mount works all the same.
fn guard(request: &MountRequest) -> Option<Guard> {
    let start = || -> Result<Guard> {
        let info =
            mountinfo::topmost(&request.mountpoint)?.context("the mount is not in the table of mounts")?;
        Ok(Guard::start(&info.device)?)
    };
    start().inspect_err(|error| tracing::warn!("nobody watches over the mount: {error:#}")).ok()
}

/// Until the mount is gone. What could not be done where a signal has asked for that.
fn serve(mounted: &Mounted, wishes: &Wishes, (log, mut guard): (&Path, Option<&mut Guard>)) -> Result<()> {
    let mut surplus = holdfast_allocator::Surplus::default();
    loop {
        if let Some(guard) = &mut guard {
            guard.tell(mounted.known_as());
        }
        if let Some(end) = mounted.session().wait_for(LOOK_EVERY) {
            match end {
                End::Unmounted => tracing::info!("unmounted"),
                End::Aborted => tracing::warn!("the mount was aborted"),
                End::Failed(errno) => {
                    tracing::error!(%errno, "the kernel's requests cannot be read any more");
                }
            }
            return Ok(());
        }
        if mounted.is_abandoned() {
            // Whoever asked for that takes the mount away. Its users need not have gone: their calls fail, and so does
            // every later one, for the connection ends with this process.
            let _ = mounted.session().wait_for(LOOK_EVERY);
            return Ok(());
        }
        mounted.tell_reports();
        surplus.tick(Instant::now());
        if let Err(error) = logfile::shorten(log) {
            tracing::debug!(%error, "the log");
        }
        if wishes.now() >= Wishes::DRAIN {
            return end_by_signal(mounted, wishes);
        }
    }
}

/// Everything is sent while it is still mounted; then processes that use it get errors. What could not be done is told when
/// all has ended: it ends in any case.
fn end_by_signal(mounted: &Mounted, wishes: &Wishes) -> Result<()> {
    tracing::info!("asked to end: sending what is left");
    let synced = sync(mounted, wishes);
    let session = mounted.session();
    let unmounted = session.unmount(Unmount::Plain).or_else(|error| {
        tracing::warn!(%error, "it is in use, and taken away all the same");
        session.unmount(Unmount::Force)
    });
    if let Err(error) = unmounted {
        tracing::error!(%error, "unmounting");
    }
    let _ = session.wait_for(GOODBYE);
    synced
}

fn drain(mounted: &Mounted, wishes: &Wishes) -> Result<()> {
    let left = mounted.volume().pending();
    if left != Pending::default() {
        tracing::info!(changes = left.mutations, bytes = left.bytes, "sending what is left");
    }
    let synced = sync(mounted, wishes);
    mounted.tell_reports();
    synced
}

/// Sends everything, unless it is given up meanwhile.
fn sync(mounted: &Mounted, wishes: &Wishes) -> Result<()> {
    let (done, is_done) = std::sync::mpsc::channel();
    let volume = mounted.volume().clone();
    std::thread::Builder::new().name("drain".into()).spawn(move || {
        // Nobody waits for it any more when it was given up.
        let _ = done.send(volume.sync(volume.given_up()));
    })?;
    loop {
        match is_done.recv_timeout(LOOK_EVERY) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(errno)) => anyhow::bail!(mounted.complaint(errno)),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the thread that sent panicked")
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                if wishes.now() >= Wishes::GIVE_UP {
                    let _ = mounted.abandon();
                }
                if mounted.is_abandoned() {
                    let left = mounted.volume().pending();
                    anyhow::bail!(
                        "given up: {} changes and {} bytes were not sent",
                        left.mutations,
                        left.bytes
                    );
                }
            }
        }
    }
}

/// Ends the session with the server, which then need not wait for the lease; but not for ever.
fn goodbye(mounted: &Arc<Mounted>) {
    let ending = Arc::clone(mounted);
    let started = Instant::now();
    let waiting = std::thread::current();
    let saying = std::thread::Builder::new().name("goodbye".into()).spawn(move || {
        ending.say_bye();
        ending.volume().close();
        ending.server().client().shutdown();
        waiting.unpark();
    });
    let Ok(saying) = saying else { return };
    while !saying.is_finished() && started.elapsed() < GOODBYE {
        std::thread::park_timeout(Duration::from_millis(100));
    }
}
