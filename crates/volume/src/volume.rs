//! The volume itself: the machine behind its lock, the server, and the threads that work for them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_base::limits::AHEAD_CALLS_MAX;
use holdfast_base::{Clock as _, SystemClock, Timestamp};
use holdfast_cache::{
    AheadOut, Ask, Caller, Handle, Job, Machine, NodeId, Now, Object, Pending, Report, Settings,
};
use holdfast_client::Cancel;
use parking_lot::{Mutex, MutexGuard};

use crate::ahead;
use crate::alarm::Alarm;
use crate::crowd::Crowd;
use crate::doubts;
use crate::flusher;
use crate::invalidator::{self, Forgets, Invalidate};
use crate::offline::{Kept, Offline};
use crate::patience::Patience;
use crate::room::RoomSeen;
use crate::server::Server;
use crate::stats::{Counters, Stats};

/// How a volume is set up.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// What the machine may do with this server.
    pub settings: Settings,
    /// Threads that send what is queued: as many calls of that kind may be under way.
    pub flushers: usize,
    /// What waits fails with `ETIMEDOUT` when the server has said nothing for so long; what is queued stays so. Without it,
    /// it waits for ever.
    pub patience: Option<Duration>,
}

/// A mounted file system. Clones are the same.
#[derive(Clone)]
pub struct Volume(pub(crate) Arc<Shared>);

/// The machine behind its lock, which every operation takes: once, where nobody has to be asked or waited for.
pub(crate) struct Guarded {
    machine: Mutex<Machine>,
    #[cfg(test)]
    pub(crate) taken: AtomicU64,
}

impl Guarded {
    fn new(machine: Machine) -> Self {
        Self {
            machine: Mutex::new(machine),
            #[cfg(test)]
            taken: AtomicU64::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Machine> {
        #[cfg(test)]
        self.taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.machine.lock()
    }
}

pub(crate) struct Shared {
    pub(crate) machine: Guarded,
    pub(crate) server: Arc<dyn Server>,
    pub(crate) clock: SystemClock,
    /// Woken whenever the machine's progress has changed.
    pub(crate) progressed: Crowd,
    /// The progress at which waiters were last woken.
    pub(crate) last_progress: AtomicU64,
    pub(crate) alarm: Alarm<Job>,
    /// What is to be read before anybody asks for it.
    pub(crate) ahead: Alarm<AheadOut>,
    /// Changes that were given up and may yet be done.
    pub(crate) doubts: Alarm<Ask>,
    pub(crate) forgets: Forgets,
    /// Who believes what this tells, once there is somebody.
    pub(crate) believer: OnceLock<Arc<dyn Invalidate>>,
    /// Given when everything that waits is to fail.
    pub(crate) given_up: Cancel,
    /// The tokens of those who wait for the server's answers now, by number.
    pub(crate) asking: Mutex<(u64, rustc_hash::FxHashMap<u64, Cancel>)>,
    pub(crate) counters: Counters,
    pub(crate) room: RoomSeen,
    pub(crate) patience: Patience,
    /// Locks were lost, at some time: most mounts never see that.
    pub(crate) has_lost_locks: AtomicBool,
    /// Of a volume that works without the server.
    pub(crate) offline: Option<Offline>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Volume {
    /// A volume over this root. Its threads run until [`Volume::close`].
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(root: &Object, server: Arc<dyn Server>, options: &VolumeOptions) -> std::io::Result<Self> {
        Self::start_with((Machine::new(root, options.settings), None), server, options)
    }

    /// A volume that works without the server while that is away. With what a former life has left it begins as that
    /// ended, and counts the server as away until it is greeted; `root` is needed in its first life alone.
    ///
    /// # Errors
    /// When a thread cannot be started, the journal cannot be written, what it has is damaged, or is of another root.
    pub fn start_kept(
        root: Option<&Object>,
        kept: Kept,
        source: &str,
        server: Arc<dyn Server>,
        options: &VolumeOptions,
    ) -> std::io::Result<Self> {
        let now = Now { mono: SystemClock::default().now(), wall: wall_time() };
        let path = kept.journal.path().display().to_string();
        let wrong = |what: String| std::io::Error::other(format!("{path}: {what}"));
        let mut machine = match (kept.has_past(), root) {
            (true, _) => kept.restore(options.settings, now).map_err(|e| wrong(e.to_string()))?,
            (false, Some(root)) => Machine::new(root, options.settings),
            (false, None) => return Err(wrong("nothing was kept there".into())),
        };
        if root.is_some_and(|root| machine.handle_of(NodeId::ROOT).as_ref() != Some(&root.handle)) {
            return Err(wrong(
                "it is of what the server exported there before; remove it to begin anew".into(),
            ));
        }
        let offline = Offline::begin(kept, &mut machine, source).map_err(|e| wrong(e.to_string()))?;
        let volume = Self::start_with((machine, Some(offline)), server, options)?;
        let shared = Arc::clone(&volume.0);
        let thread = std::thread::Builder::new().name("keep".into());
        volume.0.threads.lock().push(thread.spawn(move || crate::offline::keep_on(&shared))?);
        let shared = Arc::clone(&volume.0);
        let thread = std::thread::Builder::new().name("blocks".into());
        volume.0.threads.lock().push(thread.spawn(move || crate::offline::write_on(&shared))?);
        let shared = Arc::clone(&volume.0);
        let thread = std::thread::Builder::new().name("probe".into());
        volume.0.threads.lock().push(thread.spawn(move || crate::offline::probe(&shared))?);
        Ok(volume)
    }

    fn start_with(
        (machine, offline): (Machine, Option<Offline>),
        server: Arc<dyn Server>,
        options: &VolumeOptions,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            machine: Guarded::new(machine),
            offline,
            server,
            clock: SystemClock::default(),
            progressed: Crowd::default(),
            last_progress: AtomicU64::new(0),
            alarm: Alarm::default(),
            ahead: Alarm::default(),
            doubts: Alarm::default(),
            forgets: Forgets::default(),
            believer: OnceLock::new(),
            given_up: Cancel::new(),
            asking: Mutex::default(),
            counters: Counters::default(),
            room: RoomSeen::new(options.settings.caps),
            patience: Patience::new(options.patience),
            has_lost_locks: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        if let Some(offline) = &shared.offline {
            offline.belongs_to(&shared);
        }
        for number in 0..options.flushers.max(1) {
            let flushing = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("flush-{number}"));
            shared.threads.lock().push(thread.spawn(move || flusher::run(&flushing))?);
        }
        for number in 0..AHEAD_CALLS_MAX {
            let reading = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("ahead-{number}"));
            shared.threads.lock().push(thread.spawn(move || ahead::run(&reading))?);
        }
        let settling = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("settle".into());
        shared.threads.lock().push(thread.spawn(move || doubts::run(&settling))?);
        Ok(Self(shared))
    }

    /// From now on, whoever believes what this volume tells is told what not to believe any more, on threads of its
    /// own. To be called once.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn invalidate_by(&self, others: &Arc<dyn Invalidate>) -> std::io::Result<()> {
        // To be called once: a second one would be nobody else.
        let _ = self.0.believer.set(Arc::clone(others));
        for (name, work) in [
            ("invalidate", invalidator::run as fn(&Shared, &dyn Invalidate)),
            ("stand-in", invalidator::stand_in),
        ] {
            let (shared, others) = (Arc::clone(&self.0), Arc::clone(others));
            let thread = std::thread::Builder::new().name(name.into());
            self.0.threads.lock().push(thread.spawn(move || work(&shared, &*others))?);
        }
        Ok(())
    }

    /// Whether the kernel lets files be mapped whose data goes past its pages: then what nothing guarantees does so.
    pub fn may_go_past_pages(&self, does: bool) {
        self.0.machine.lock().settings_mut().direct = does;
    }

    /// Whether the kernel forgets all names at a word: else it is told none to believe in. Before anything is asked.
    pub fn may_tell_names(&self, may: bool) {
        self.0.machine.lock().settings_mut().names = may;
    }

    /// What has still to reach the server's disk.
    #[must_use]
    pub fn pending(&self) -> Pending {
        self.0.machine.lock().pending()
    }

    /// Counters and how much is held.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let machine = self.0.machine.lock().stats();
        self.0.counters.shown(&machine, self.0.room.counts())
    }

    /// The server's name for an object, once it has one.
    #[must_use]
    pub fn handle_of(&self, node: NodeId) -> Option<Handle> {
        self.0.machine.lock().handle_of(node)
    }

    /// What failed after its application had been told that it was done, since the last time this was asked.
    #[must_use]
    pub fn take_reports(&self) -> Vec<Report> {
        self.0.machine.lock().take_reports()
    }

    /// Sends everything and waits until it is on the server's disk.
    ///
    /// # Errors
    /// The first error since the last time, of anything that had returned before it was done; `EINTR`.
    pub fn sync(&self, cancel: &Cancel) -> Result<(), holdfast_cache::Errno> {
        let caller = Caller::new(0, 0);
        let done = self.run(caller, cancel, |machine, turn, now| machine.sync(turn, now));
        self.settled_or_kept(done, Machine::losses_at_sync)
    }

    /// Fails everything that waits, now and later, and gives up what was not sent; says how much that was.
    #[must_use]
    pub fn abandon(&self) -> Pending {
        let pending = self.pending();
        self.0.given_up.cancel();
        self.0.asking.lock().1.values().for_each(Cancel::cancel);
        self.0.progressed.wake_all();
        pending
    }

    /// A token that is given when the volume is abandoned, for calls that nobody else can give up.
    #[must_use]
    pub fn given_up(&self) -> &Cancel {
        &self.0.given_up
    }

    /// Ends the threads. What was not sent is lost: [`Volume::sync`] comes first.
    pub fn close(&self) {
        self.0.given_up.cancel();
        self.0.alarm.end();
        self.0.ahead.end();
        self.0.doubts.end();
        self.0.forgets.end();
        self.0.progressed.wake_all();
        let threads = std::mem::take(&mut *self.0.threads.lock());
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the volume panicked");
            }
        }
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Now {
        Now { mono: self.clock.now(), wall: wall_time() }
    }
}

fn wall_time() -> Timestamp {
    // Before 1970 there were no such files.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Volume")
    }
}
