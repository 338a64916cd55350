//! The lock manager's shared half: what it stands on, and its worker, which does what no call waits for.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant as Moment};

use holdfast_base::{ByteRange, FileKey, Instant};
use holdfast_export::{GroupSource, Namespace};
use holdfast_manager::{Agent, Manager, NotKept};
use holdfast_rpc::reply_cache::ReplyCache;
use holdfast_state::{Door, Effect, Engine, ForeignOwner, LockKind};
use holdfast_store::{Store, StoreError};
use holdfast_wire::nlm4::NlmStat4;
use parking_lot::{Condvar, Mutex};

use crate::monitor::Monitors;
use crate::names::HostName;
use crate::notice::Notices;
use crate::peers::{NoAnswer, Peers};
use crate::records::HostRecords;
use crate::table::Table;

/// How often the worker looks at what has become due.
const TICK: Duration = Duration::from_secs(1);

/// How long a handover waits for the worker to end its turn, and then for answers of clients that are being called.
const HOLD_PATIENCE: Duration = Duration::from_millis(300);

/// What the lock manager stands on.
pub struct Parts {
    /// The exports.
    pub namespace: Arc<Namespace>,
    /// Whose engine decides.
    pub manager: Arc<Manager>,
    /// Groups that credentials could not list.
    pub groups: Arc<dyn GroupSource>,
    /// Answers what is sent twice.
    pub replies: Arc<ReplyCache>,
    /// Where hosts with locks are on record.
    pub store: Arc<dyn Store>,
    /// The way to clients.
    pub peers: Arc<dyn Peers>,
    /// What this host calls itself.
    pub name: Vec<u8>,
    /// The number of this start ([`holdfast_store`]'s boot record): NSM's state follows from it.
    pub epoch: u64,
    /// What became of the server before.
    pub start: Start,
}

/// How this run of the server begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With grace, as hosts may have locks to reclaim; [`Lockd::end_grace`] ends it.
    InGrace,
    /// Nobody has anything to reclaim.
    Fresh,
    /// It goes on where another process stopped ([`Lockd::thaw`]): nobody is told of a restart.
    HandedOver,
}

/// NLM and NSM. Its programs are [`crate::Nlm4`] and [`crate::Nsm`].
pub struct Lockd {
    pub(crate) parts: Parts,
    pub(crate) records: HostRecords,
    pub(crate) table: Mutex<Table>,
    /// Held from looking whether a host is on record to having changed that.
    pub(crate) record_turn: Mutex<()>,
    /// Somebody has waited for that in vain: the disk takes long.
    pub(crate) is_record_late: AtomicBool,
    pub(crate) notices: Mutex<Notices>,
    pub(crate) monitors: Mutex<Monitors>,
    pub(crate) is_in_grace: AtomicBool,
    /// The worker is to do nothing: everything is being handed over.
    is_held: AtomicBool,
    /// Held by whoever does the worker's work.
    working: Mutex<()>,
    due: Arc<Due>,
}

/// What a client said to GRANTED, or why it said nothing.
pub(crate) type Answer = Result<NlmStat4, NoAnswer>;

/// What the worker does.
pub(crate) enum Work {
    /// The engine granted what an owner waited for.
    Granted { owner: ForeignOwner, file: FileKey, range: ByteRange, kind: LockKind },
    /// A client was told of that, under this number.
    Answered { number: u64, answer: Answer },
    /// A host was told of our restart.
    Notified { host: HostName, is_told: bool },
}

#[derive(Default)]
struct DueState {
    queue: VecDeque<Work>,
    is_ended: bool,
}

/// The worker's queue. Its length goes by how many requests wait and how many calls are under way, which are bounded.
#[derive(Default)]
pub(crate) struct Due {
    state: Mutex<DueState>,
    more: Condvar,
    /// GRANTEDs under way.
    asking: AtomicUsize,
}

/// A GRANTED under way.
pub(crate) struct Asking(Arc<Due>);

impl Asking {
    pub(crate) fn due(&self) -> &Due {
        &self.0
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Due {
    pub(crate) fn push(&self, work: Work) {
        self.state.lock().queue.push_back(work);
        self.more.notify_one();
    }

    /// An answer that a client sends as a call of its own, as often as it likes: once for all of one kind.
    pub(crate) fn push_sent(&self, number: u64, answer: Answer) {
        let mut state = self.state.lock();
        let is_same = |work: &Work| matches!(work, Work::Answered { number: of, answer: had } if *of == number && *had == answer);
        if !state.queue.iter().any(is_same) {
            state.queue.push_back(Work::Answered { number, answer });
            self.more.notify_one();
        }
    }

    /// Waits for work, a tick at most; false when there will be none any more.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if state.queue.is_empty() && !state.is_ended {
            self.more.wait_for(&mut state, TICK);
        }
        !state.is_ended
    }

    /// Waits until no client is being called any more; not for long.
    fn wait_for_answers(&self) {
        let until = Moment::now() + HOLD_PATIENCE;
        while self.asking.load(Ordering::SeqCst) > 0 && Moment::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What a client has answered that nobody has looked at yet.
    pub(crate) fn answer_to(&self, number: u64) -> Option<Answer> {
        self.state.lock().queue.iter().find_map(|work| match work {
            Work::Answered { number: of, answer } if *of == number => Some(answer.clone()),
            _ => None,
        })
    }

    fn end(&self) {
        self.state.lock().is_ended = true;
        self.more.notify_all();
    }
}

impl Lockd {
    /// A lock manager, which hears of grants from now on. Hosts on record are told of the restart as the worker runs.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub fn new(parts: Parts) -> Result<Arc<Self>, StoreError> {
        let records = HostRecords::new(Arc::clone(&parts.store));
        let known = records.all()?;
        let now = parts.manager.clock().now();
        let is_in_grace = parts.start == Start::InGrace;
        let table = Table::of(&known, is_in_grace, now);
        let untold = if parts.start == Start::HandedOver { Vec::new() } else { known };
        let lockd = Arc::new(Self {
            records,
            table: Mutex::new(table),
            record_turn: Mutex::new(()),
            is_record_late: false.into(),
            notices: Mutex::new(Notices::of(untold, now)),
            monitors: Mutex::default(),
            is_in_grace: is_in_grace.into(),
            is_held: false.into(),
            working: Mutex::new(()),
            due: Arc::default(),
            parts,
        });
        let agent: Weak<dyn Agent> = Arc::downgrade(&(Arc::clone(&lockd) as Arc<dyn Agent>));
        lockd.parts.manager.register(agent);
        Ok(lockd)
    }

    /// Starts the worker on a thread of its own; it ends with the lock manager. It waits for no record: somebody else is to
    /// call [`Lockd::forget_idle_hosts`] about once a second.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let (due, weak) = (Arc::clone(&self.due), Arc::downgrade(self));
        let work = move || {
            while due.wait() {
                let Some(lockd) = weak.upgrade() else { return };
                // The next piece of work must be done after a panic too, of which the hook has told.
                let _ = catch_unwind(AssertUnwindSafe(|| lockd.work()));
            }
        };
        std::thread::Builder::new().name("lockd".into()).spawn(work)?;
        Ok(())
    }

    /// Does what is due, on this thread: what the worker does time and again, and [`Lockd::forget_idle_hosts`].
    pub fn run_due(&self) {
        if self.work() {
            self.forget_idle_hosts();
        }
    }

    /// What the worker does. Whether it may do anything.
    fn work(&self) -> bool {
        let _turn = self.working.lock();
        if self.is_held.load(Ordering::SeqCst) {
            return false;
        }
        self.work_off();
        self.retry_waiting();
        self.send_notices();
        true
    }

    /// Does what lies in the worker's queue.
    fn work_off(&self) {
        loop {
            let work = self.due.state.lock().queue.pop_front();
            match work {
                None => break,
                Some(Work::Granted { owner, file, range, kind }) => self.granted(owner, file, (range, kind)),
                Some(Work::Answered { number, answer }) => self.answered(number, &answer),
                Some(Work::Notified { host, is_told }) => self.notified(&host, is_told),
            }
        }
    }

    /// Has the worker stand still: everything is being handed over. Clients that are being called have a moment to
    /// answer; what is due then waits. To be called when no call is on its way any more. False when the worker does not
    /// come to the end of its turn, as a file system does not answer.
    #[must_use]
    pub fn hold(&self) -> bool {
        let Some(_turn) = self.working.try_lock_for(HOLD_PATIENCE) else { return false };
        self.is_held.store(true, Ordering::SeqCst);
        self.due.wait_for_answers();
        true
    }

    /// The right to take locks away beside calls over TCP; `None` while everything is being handed over, or the worker does not
    /// come to the end of its turn.
    pub(crate) fn turn(&self) -> Option<parking_lot::MutexGuard<'_, ()>> {
        // The worker may hang in a file system, and who asks for this holds a thread of the pool meanwhile.
        let turn = self.working.try_lock_for(HOLD_PATIENCE)?;
        (!self.is_held.load(Ordering::SeqCst)).then_some(turn)
    }

    /// The worker goes on after all.
    pub fn go_on(&self) {
        self.is_held.store(false, Ordering::SeqCst);
    }

    /// To be kept for as long as a client is being called.
    pub(crate) fn asking(&self) -> Asking {
        self.due.asking.fetch_add(1, Ordering::SeqCst);
        Asking(self.due())
    }

    pub(crate) fn due(&self) -> Arc<Due> {
        Arc::clone(&self.due)
    }

    /// A step of the engine. `None` when a record that somebody else's step needed could not be stored.
    pub(crate) fn step<R>(&self, step: impl FnOnce(&mut Engine, Instant) -> R) -> Option<R> {
        self.parts.manager.step(step).ok()
    }

    pub(crate) fn now(&self) -> Instant {
        self.parts.manager.clock().now()
    }

    /// The state that NSM tells of: odd while up, and another after each start (X/Open XNFS, chapter 11).
    pub(crate) const fn nsm_state(&self) -> i32 {
        ((self.parts.epoch << 1 | 1) & 0x7fff_ffff) as i32
    }

    /// Who an owner is, for people: its host's address, what the host calls itself, and the process.
    #[must_use]
    pub fn describe(&self, owner: ForeignOwner) -> Option<(std::net::IpAddr, Vec<u8>, Option<i32>)> {
        let table = self.table.lock();
        let (host, name) = table.name_of(owner)?;
        Some((host.ip, host.caller.clone(), name.svid))
    }

    /// Pairs of an owner and a file it has something of, and requests that wait.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.table.lock().counts()
    }
}

impl Agent for Lockd {
    fn run(&self, effect: &Effect) -> Result<(), NotKept> {
        // Not here: whoever made the step may hold what taking the lock on the backend needs.
        if let Effect::ForeignGranted { owner, file, range, kind } = *effect
            && owner.door == Door::Nlm
        {
            self.due.push(Work::Granted { owner, file, range, kind });
        }
        Ok(())
    }
}

impl Drop for Lockd {
    fn drop(&mut self) {
        self.due.end();
    }
}

impl std::fmt::Debug for Lockd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lockd").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_wire::nlm4::NlmStat4;

    use super::*;

    #[test]
    fn what_a_client_says_again_and_again_waits_once() {
        let due = Due::default();
        for _ in 0..1000 {
            due.push_sent(1, Ok(NlmStat4::Granted));
            due.push_sent(1, Ok(NlmStat4::Denied));
            due.push_sent(2, Ok(NlmStat4::Granted));
        }
        assert_eq!(due.state.lock().queue.len(), 3);
    }
}
