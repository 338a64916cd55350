//! A parent that starts the server again when it was killed, and keeps its listening sockets meanwhile: who connects then
//! waits instead of being refused, after which Linux clients would wait for three seconds (docs/design/handover.md). For
//! servers that no service manager looks after.

use std::collections::VecDeque;
use std::env;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use holdfast_base::limits::{LISTENERS_KEPT_MAX, SUPERVISED_DEATHS_MAX};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal as Kill, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use crate::handover::Successor;
use crate::supervised;

/// The time in which so many deaths are too many.
const DEATHS_WITHIN: Duration = Duration::from_secs(60);

/// The pause before a second death's start, doubled with each further one.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether this process is to be such a parent: nobody looks after it, and it is in nobody's place.
#[must_use]
pub fn is_wanted() -> bool {
    let is_set = |name| env::var_os(name).is_some();
    // A service manager starts a service again itself, and keeps its sockets where it is told to.
    let is_managed = is_set("NOTIFY_SOCKET") || is_set("LISTEN_FDS");
    !is_managed && !is_set(supervised::VARIABLE) && !crate::handover::is_in_place()
}

/// Runs this very command as a child of its own until it ends by itself, or is told to. Does not return then: the child's
/// status is this process' as well.
///
/// # Errors
/// It cannot be started, or dies again and again.
pub fn supervise() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async { Supervisor::new()?.run().await })?;
    // 128 and the signal's number: as a shell tells it.
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

struct Supervisor {
    program: Successor,
    /// The server's end goes to each child.
    ours: tokio::net::UnixDatagram,
    theirs: UnixDatagram,
    /// What the server listens on.
    listeners: Vec<OwnedFd>,
    /// It was there once: what ends it before is its start's failure.
    was_ready: bool,
    is_end_asked_for: bool,
    deaths: VecDeque<Instant>,
    signals: Signals,
}

struct Signals {
    child: Signal,
    /// Passed on to the child; the first two ask for the end.
    passed: [(Signal, Kill); 4],
}

impl Signals {
    fn hear() -> io::Result<Self> {
        let pass = |kind, kill| Ok::<_, io::Error>((signal(kind)?, kill));
        Ok(Self {
            child: signal(SignalKind::child())?,
            passed: [
                pass(SignalKind::terminate(), Kill::TERM)?,
                pass(SignalKind::interrupt(), Kill::INT)?,
                pass(SignalKind::hangup(), Kill::HUP)?,
                pass(SignalKind::user_defined2(), Kill::USR2)?,
            ],
        })
    }
}

/// What is to be looked at.
enum News {
    Child,
    Told(Kill),
    Message,
}

impl Supervisor {
    fn new() -> Result<Self> {
        let (ours, theirs) = UnixDatagram::pair().context("a pair of sockets")?;
        ours.set_nonblocking(true)?;
        Ok(Self {
            program: Successor::of_this()?,
            ours: tokio::net::UnixDatagram::from_std(ours)?,
            theirs,
            listeners: Vec::new(),
            was_ready: false,
            is_end_asked_for: false,
            deaths: VecDeque::new(),
            signals: Signals::hear()?,
        })
    }

    async fn run(mut self) -> Result<ExitStatus> {
        loop {
            let child = self.start()?;
            let status = self.look_after(child).await?;
            if self.is_end_asked_for || !self.was_ready || status.success() {
                return Ok(status);
            }
            let pause = self.died(status, Instant::now())?;
            tracing::error!("the server died ({status}) and is started again");
            sleep(pause).await;
        }
    }

    /// Starts the server, with the sockets that the one before listened on.
    fn start(&self) -> Result<Child> {
        let passed = || self.listeners.iter().map(|fd| fd.as_fd()).chain([self.theirs.as_fd()]);
        let pass = |flags: FdFlags| passed().try_for_each(|fd| fcntl_setfd(fd, flags));
        let numbers = self.listeners.iter().map(|fd| fd.as_raw_fd());
        let value = supervised::value(std::process::id(), self.theirs.as_raw_fd(), numbers);
        pass(FdFlags::empty())?;
        let child = self.program.start_with((supervised::VARIABLE, &value));
        pass(FdFlags::CLOEXEC)?;
        child
    }

    /// Until the child has ended.
    async fn look_after(&mut self, mut child: Child) -> Result<ExitStatus> {
        loop {
            match self.news().await? {
                News::Child => {
                    if let Some(status) = child.try_wait()? {
                        return Ok(status);
                    }
                }
                News::Told(kill) => {
                    self.is_end_asked_for |= matches!(kill, Kill::TERM | Kill::INT);
                    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                        // It may have ended just now, which is heard next.
                        let _ = kill_process(pid, kill);
                    }
                }
                News::Message => self.hear()?,
            }
        }
    }

    async fn news(&mut self) -> Result<News> {
        let [terminate, interrupt, hangup, replace] = &mut self.signals.passed;
        Ok(tokio::select! {
            _ = self.signals.child.recv() => News::Child,
            _ = terminate.0.recv() => News::Told(terminate.1),
            _ = interrupt.0.recv() => News::Told(interrupt.1),
            _ = hangup.0.recv() => News::Told(hangup.1),
            _ = replace.0.recv() => News::Told(replace.1),
            ready = self.ours.readable() => ready.map(|()| News::Message)?,
        })
    }

    /// The server says that it is there, and on what it listens.
    fn hear(&mut self) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_KEPT_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = [0; 16];
        let received = self.ours.try_io(tokio::io::Interest::READABLE, || {
            let into = &mut [io::IoSliceMut::new(&mut text)];
            Ok(recvmsg(self.ours.as_fd(), into, &mut control, RecvFlags::CMSG_CLOEXEC)?)
        });
        match received {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("the server's end of the socket"),
        }
        self.was_ready = true;
        self.listeners = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds.collect::<Vec<_>>()),
                _ => None,
            })
            .flatten()
            .collect();
        Ok(())
    }

    /// How long to wait before the next start.
    fn died(&mut self, status: ExitStatus, now: Instant) -> Result<Duration> {
        self.deaths.retain(|at| now.duration_since(*at) < DEATHS_WITHIN);
        self.deaths.push_back(now);
        let count = self.deaths.len();
        if count >= SUPERVISED_DEATHS_MAX {
            bail!("the server died {count} times within a minute, the last time by {status}: given up");
        }
        Ok(if count == 1 { Duration::ZERO } else { PAUSE * 2u32.pow(count as u32 - 2) })
    }
}
