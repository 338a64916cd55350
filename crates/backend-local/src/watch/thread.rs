//! The thread that reads what the kernel tells, and looks at locks that are waited for.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use holdfast_base::limits::LOCAL_EVENT_BUFFER_BYTES;
use holdfast_vfs::LocalDeed;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::events::{self, Event};
use super::{Shared, Table};
use crate::procfd::ProcFd;
use crate::sys_notify::{self, LeaseKind, Signal};

/// What the thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    UntilAnything,
    /// What fanotify tells is let gather a little: a server that changes what it has marked is told of each of its own
    /// deeds, and to wake for each costs more than the deed. Leases, whose breakers wait, are heard at once all the same.
    PastOurOwn,
}

/// How much later a local process's deed may be noticed while the server itself is at work. Far from filling the kernel's
/// queue of 16,384 events.
const OUR_OWN_PAUSE: Duration = Duration::from_millis(1);

/// What the thread and those who reach it share.
pub(super) struct Listening {
    /// Its number, for the signals of leases.
    pub(super) thread: i32,
    wake: OwnedFd,
    /// `None` where the kernel has no fanotify for us.
    pub(super) fanotify: Option<OwnedFd>,
    /// `/proc/self/fd`.
    pub(super) proc_fd: OwnedFd,
}

impl Listening {
    pub(super) fn wake(&self) {
        // It can only be full, and then the thread is about to wake.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Shared {
    /// The thread, started when it is not there yet; `None` when it cannot be.
    pub(super) fn listening(self: &Arc<Self>, proc_fd: &ProcFd) -> Option<&Listening> {
        let start = || match self.start(proc_fd) {
            Ok(listening) => Some(listening),
            Err(error) => {
                tracing::warn!(%error, "local processes cannot be listened to; nothing is promised against them");
                None
            }
        };
        self.listening.get_or_init(start).as_ref()
    }

    fn start(self: &Arc<Self>, proc_fd: &ProcFd) -> std::io::Result<Listening> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let proc_fd = rustix::io::fcntl_dupfd_cloexec(proc_fd.dir(), 0)?;
        let fanotify = sys_notify::fanotify_group();
        if let Err(error) = &fanotify {
            tracing::warn!(%error, "no fanotify: delegations are granted only where local processes are none");
        }
        let (tell, told) = mpsc::sync_channel(1);
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("local-watch".to_owned()).spawn(move || {
            let signals = sys_notify::signal_descriptor();
            let thread = sys_notify::thread_id();
            // Whoever started us waits for this; should it have gone, nobody needs us.
            match signals {
                Ok(signals) if tell.send(Ok(thread)).is_ok() => shared.run(&signals),
                Ok(_) => {}
                Err(e) => drop(tell.send(Err(e))),
            }
        })?;
        let thread = told.recv().map_err(|_| Errno::CANCELED)??;
        Ok(Listening { thread, wake, fanotify: fanotify.ok(), proc_fd })
    }

    fn run(&self, signals: &OwnedFd) {
        // Set right after this thread has told its number.
        let Some(listening) = self.listening.wait() else { return };
        // It began as whoever started it.
        self.identity.as_server();
        let mut buffer = vec![0; LOCAL_EVENT_BUFFER_BYTES];
        let mut is_ours = false;
        while !self.is_over.load(Ordering::SeqCst) {
            if is_ours {
                self.sleep(listening, signals, Sleep::PastOurOwn);
            }
            self.sleep(listening, signals, Sleep::UntilAnything);
            is_ours = false;
            going_on(|| is_ours = self.turn(listening, signals, &mut buffer));
        }
    }

    /// Says whether all that was told were deeds of this server.
    fn turn(&self, listening: &Listening, signals: &OwnedFd, buffer: &mut [u8]) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&listening.wake, &mut count);
        let told = std::mem::take(&mut *self.to_tell.lock());
        self.tell(told);
        self.read_signals(signals);
        let is_ours = listening.fanotify.as_ref().is_some_and(|group| self.read_events(group, buffer));
        self.look_at_unlocks();
        is_ours
    }

    /// Until something comes, or a lock is to be looked at.
    fn sleep(&self, listening: &Listening, signals: &OwnedFd, how: Sleep) {
        let pause = self.unlocks.lock().pause().unwrap_or(Duration::from_secs(3600));
        let pause = if how == Sleep::PastOurOwn { pause.min(OUR_OWN_PAUSE) } else { pause };
        let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        let wanted = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut asked = vec![wanted(listening.wake.as_fd()), wanted(signals.as_fd())];
        if how == Sleep::UntilAnything {
            asked.extend(listening.fanotify.as_ref().map(|group| wanted(group.as_fd())));
        }
        // An interruption is as good as an event.
        let _ = poll(&mut asked, Some(&pause));
    }

    fn read_signals(&self, signals: &OwnedFd) {
        let mut deeds = Vec::new();
        while let Some(signal) = sys_notify::next_signal(signals) {
            let mut table = self.table.lock();
            let fds: Vec<_> = match signal {
                Signal::Of(fd) => vec![fd],
                Signal::OfAny => table.by_lease.keys().copied().collect(),
            };
            deeds.extend(fds.into_iter().filter_map(|fd| table.lease_broken(fd)));
        }
        self.tell(deeds);
    }

    /// Says whether there were any events, and all of this server's own deeds.
    fn read_events(&self, group: &OwnedFd, buffer: &mut [u8]) -> bool {
        // One buffer a turn, so that leases, whose breakers wait, come in between.
        let Ok(bytes) = rustix::io::read(group, &mut *buffer) else { return false };
        let ours = rustix::process::getpid().as_raw_nonzero().get();
        let mut deeds = Vec::new();
        let mut is_ours = true;
        for event in events::parse(&buffer[..bytes]) {
            if event.pid == ours {
                continue;
            }
            is_ours = false;
            self.table.lock().event_seen(&event, &mut deeds);
        }
        self.tell(deeds);
        is_ours
    }
}

/// Whoever is told something may panic, of which the hook tells: nobody else is to wait for a thread that has ended.
pub(super) fn going_on(act: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(act));
}

type Deed = (holdfast_base::FileKey, LocalDeed);

impl Table {
    /// What the breaking of a lease tells; nothing when it is another file's by now, or whole.
    fn lease_broken(&mut self, fd: std::os::fd::RawFd) -> Option<Deed> {
        let handle = self.by_lease.get(&fd)?;
        let held = self.held.get_mut(handle)?;
        let (lease, fd) = (held.lease.as_ref()?, held.fd.as_ref()?);
        let deed = match (sys_notify::lease_target(&**fd), lease.kind) {
            (now, before) if now == before => return None,
            (LeaseKind::Read, _) => LocalDeed::OpenToRead,
            (LeaseKind::None | LeaseKind::Write, _) => LocalDeed::OpenToWrite,
        };
        held.suffer(deed);
        Some((handle.key(), deed))
    }

    fn event_seen(&mut self, event: &Event, deeds: &mut Vec<Deed>) {
        if event.mask & events::OVERFLOW != 0 {
            for (handle, held) in &mut self.held {
                held.suffer(LocalDeed::Unknown);
                deeds.push((handle.key(), LocalDeed::Unknown));
            }
            return;
        }
        let Some(handles) = event.fid.as_ref().and_then(|fid| self.by_fid.get(fid)) else { return };
        for handle in handles {
            let Some(held) = self.held.get_mut(handle) else { continue };
            // The inode's mark may be wider than this handle's promise.
            for deed in events::deeds(event.mask & held.mask) {
                held.suffer(deed);
                deeds.push((handle.key(), deed));
            }
        }
    }
}
