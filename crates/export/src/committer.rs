//! Group commit: replies wait here until what they promise is on disk, and all that wait together share one
//! force. One thread a file system, started at need and gone when idle; nobody else ever waits for a disk here.
//! For simulation there is a committer without threads, which commits when it is told to.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use holdfast_vfs::{Backend, FsError, FsResult, Touched};
use parking_lot::{Condvar, Mutex};

use crate::pace::Pace;

/// What happens once the changes are durable, or could not be made so. Runs on the committer's thread: it sends
/// a reply and does nothing that waits.
pub type Committed = Box<dyn FnOnce(FsResult<()>) + Send>;

/// Something else to be forced with every group, before the replies leave: the journal of replies.
pub trait Force: Send + Sync {
    /// Makes durable all that was written before the call.
    ///
    /// # Errors
    /// The medium's.
    fn force(&self) -> io::Result<()>;

    /// As [`Force::force`], by who can do it along with something of his own, when he is given the file. `None` when he
    /// did nothing, or there is no such file: then nothing was forced.
    fn force_by(
        &self,
        by: &mut dyn FnMut(BorrowedFd<'_>) -> Option<io::Result<()>>,
    ) -> Option<io::Result<()>> {
        let _ = by;
        None
    }
}

/// Runs what answers all calls of a group: a transport's way to send their replies together.
pub type Answering = fn(&mut dyn FnMut());

/// Gathers and forces changes.
pub struct Committer {
    domains: Mutex<HashMap<DomainKey, Arc<Domain>>>,
    with: Option<Arc<dyn Force>>,
    answering: Option<Answering>,
    /// Without threads: those that have something to commit, in the order in which they came to have it.
    pumped: Option<Mutex<Pumped>>,
    groups: AtomicU64,
}

/// A backend by its address, and its number for a file system.
type DomainKey = (usize, u64);

/// Those that wait to be pumped, in order.
type Pumped = Vec<(DomainKey, Arc<Domain>)>;

struct Domain {
    backend: Arc<dyn Backend>,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    batch: Vec<(Vec<Touched>, Committed)>,
    has_thread: bool,
    /// How many the thread waits for; it is not woken for fewer.
    wakes_at: usize,
}

impl Committer {
    /// A committer that forces `with` along with every group.
    #[must_use]
    pub fn new(with: Option<Arc<dyn Force>>) -> Arc<Self> {
        Self::made(with, None, None)
    }

    /// The same, with a way to answer all calls of a group together.
    #[must_use]
    pub fn answering(with: Option<Arc<dyn Force>>, answering: Answering) -> Arc<Self> {
        Self::made(with, Some(answering), None)
    }

    fn made(
        with: Option<Arc<dyn Force>>,
        answering: Option<Answering>,
        pumped: Option<Mutex<Pumped>>,
    ) -> Arc<Self> {
        let domains = Mutex::new(HashMap::new());
        Arc::new(Self { domains, with, answering, pumped, groups: AtomicU64::new(0) })
    }

    /// A committer without threads: what is submitted waits for [`Committer::pump`]. For simulation and tests.
    #[must_use]
    pub fn pumped(with: Option<Arc<dyn Force>>) -> Arc<Self> {
        Self::made(with, None, Some(Mutex::default()))
    }

    /// Commits what was submitted to a committer without threads, on this thread, one group a file system; nothing
    /// that is submitted meanwhile. Returns how many waited.
    pub fn pump(&self) -> usize {
        let domains = self.pumped.as_ref().map(|pumped| std::mem::take(&mut *pumped.lock()));
        let mut waited = 0;
        for (key, domain) in domains.unwrap_or_default() {
            self.domains.lock().remove(&key);
            let batch = std::mem::take(&mut domain.waiting.lock().batch);
            waited += batch.len();
            self.commit(domain.backend.as_ref(), batch);
        }
        waited
    }

    /// How many groups were forced so far, each with one force of the journal and one commit of one file system.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.groups.load(Ordering::Relaxed)
    }

    fn commit(&self, backend: &dyn Backend, batch: Vec<(Vec<Touched>, Committed)>) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        let results = force(backend, self.with.as_deref(), &batch);
        let mut answers = batch.into_iter().zip(results);
        let mut answer = || answers.by_ref().for_each(|((_, done), result)| done(result));
        match self.answering {
            Some(answering) => answering(&mut answer),
            None => answer(),
        }
    }

    /// Calls `done` once all completed changes of `touched` are durable; at once and on this thread when there
    /// are none. The first error of any of them is given to `done`.
    ///
    /// The number of waiting replies is bounded by the transport, which admits only so many calls at a time.
    pub fn submit(self: &Arc<Self>, backend: &Arc<dyn Backend>, touched: Vec<Touched>, done: Committed) {
        let Some(first) = touched.first() else { return done(Ok(())) };
        let domain = backend.commit_domain(&first.handle);
        if touched.iter().all(|t| backend.commit_domain(&t.handle) == domain) {
            return self.enqueue(backend, domain, touched, done);
        }
        self.submit_across(backend, touched, done);
    }

    /// A call that touched several file systems: `done` runs after the last of them.
    fn submit_across(self: &Arc<Self>, backend: &Arc<dyn Backend>, touched: Vec<Touched>, done: Committed) {
        let mut by_domain: BTreeMap<u64, Vec<Touched>> = BTreeMap::new();
        for t in touched {
            by_domain.entry(backend.commit_domain(&t.handle)).or_default().push(t);
        }
        let gate = Arc::new(Mutex::new((by_domain.len(), Ok(()), Some(done))));
        for (domain, touched) in by_domain {
            let gate = gate.clone();
            let part = move |result: FsResult<()>| {
                let last = {
                    let mut gate = gate.lock();
                    gate.0 -= 1;
                    gate.1 = gate.1.and(result);
                    if gate.0 == 0 { gate.2.take().map(|done| (done, gate.1)) } else { None }
                };
                if let Some((done, result)) = last {
                    done(result);
                }
            };
            self.enqueue(backend, domain, touched, Box::new(part));
        }
    }

    fn enqueue(
        self: &Arc<Self>,
        backend: &Arc<dyn Backend>,
        number: u64,
        touched: Vec<Touched>,
        done: Committed,
    ) {
        let key = (Arc::as_ptr(backend).cast::<()>() as usize, number);
        let mut domains = self.domains.lock();
        let domain = domains.entry(key).or_insert_with(|| {
            Arc::new(Domain {
                backend: backend.clone(),
                waiting: Mutex::new(Waiting::default()),
                arrived: Condvar::new(),
            })
        });
        let domain = domain.clone();
        let mut waiting = domain.waiting.lock();
        waiting.batch.push((touched, done));
        if waiting.has_thread {
            if waiting.batch.len() >= waiting.wakes_at {
                domain.arrived.notify_one();
            }
            return;
        }
        // Without threads this says that it is among those to be pumped.
        waiting.has_thread = true;
        drop(waiting);
        drop(domains);
        match &self.pumped {
            Some(pumped) => pumped.lock().push((key, domain)),
            None => self.start(key, &domain),
        }
    }

    fn start(self: &Arc<Self>, key: DomainKey, domain: &Arc<Domain>) {
        let (this, on_thread) = (self.clone(), domain.clone());
        let started = thread::Builder::new().name("commit".into()).spawn(move || this.run(key, &on_thread));
        if started.is_err() {
            // No thread to be had: say so to those who wait, rather than let them hang. They ask again later.
            let batch = {
                let mut waiting = domain.waiting.lock();
                waiting.has_thread = false;
                std::mem::take(&mut waiting.batch)
            };
            batch.into_iter().for_each(|(_, done)| done(Err(FsError::Delay)));
        }
    }

    fn run(&self, key: DomainKey, domain: &Arc<Domain>) {
        let mut pace = Pace::new(Instant::now());
        loop {
            let batch = domain.gather(&mut pace);
            if !batch.is_empty() {
                let (calls, began) = (batch.len(), Instant::now());
                self.commit(domain.backend.as_ref(), batch);
                pace.answered(calls, domain.waiting.lock().batch.len(), began, Instant::now());
                continue;
            }
            // The order of locks is the same as in `enqueue`: nothing can arrive between the look and the end.
            let mut domains = self.domains.lock();
            let mut waiting = domain.waiting.lock();
            if waiting.batch.is_empty() {
                waiting.has_thread = false;
                domains.remove(&key);
                return;
            }
        }
    }
}

impl Domain {
    /// Waits for something to commit, and as long as that is worth while for more; nothing, when nothing came.
    fn gather(&self, pace: &mut Pace) -> Vec<(Vec<Touched>, Committed)> {
        let mut waiting = self.waiting.lock();
        while let Some((enough, until)) = pace.worth_waiting(waiting.batch.len(), Instant::now()) {
            waiting.wakes_at = enough;
            self.arrived.wait_until(&mut waiting, until);
        }
        std::mem::take(&mut waiting.batch)
    }
}

/// Makes durable what these calls touched; what came of it for each of them.
fn force(
    backend: &dyn Backend,
    with: Option<&dyn Force>,
    batch: &[(Vec<Touched>, Committed)],
) -> Vec<FsResult<()>> {
    let all = batch.iter().map(|(touched, _)| touched.len()).sum();
    let mut index: HashMap<Touched, usize> = HashMap::with_capacity(all);
    let mut touched = Vec::with_capacity(all);
    let mut places = Vec::with_capacity(all);
    for &t in batch.iter().flat_map(|(touched, _)| touched) {
        places.push(*index.entry(t).or_insert_with(|| {
            touched.push(t);
            touched.len() - 1
        }));
    }
    let mut results = vec![Ok(()); touched.len()];
    // With one force, where one will do.
    let mut has_panicked = false;
    let at_once = with.and_then(|with| {
        with.force_by(&mut |own| {
            let committed =
                catch_unwind(AssertUnwindSafe(|| backend.commit_with(own, &touched, &mut results)));
            has_panicked = committed.is_err();
            committed.ok().flatten().map(|done| done.map_err(io::Error::other))
        })
    });
    let forced = match at_once {
        Some(done) => done.map_err(|_| FsError::Io),
        // What it had learnt of failures is lost with it: tried again, it might seem to have succeeded.
        None if has_panicked => Err(FsError::Io),
        None => force_in_order(backend, with, &touched, &mut results),
    };
    let mut places = places.into_iter();
    let mut of =
        |touched: usize| places.by_ref().take(touched).fold(forced, |all, place| all.and(results[place]));
    batch.iter().map(|(touched, _)| of(touched.len())).collect()
}

fn force_in_order(
    backend: &dyn Backend,
    with: Option<&dyn Force>,
    touched: &[Touched],
    results: &mut [FsResult<()>],
) -> FsResult<()> {
    // The journal first: a change must not be on disk without word of it.
    let forced = with.map_or(Ok(()), |w| w.force().map_err(|_| FsError::Io));
    // A panic here must fail those who wait, not leave them waiting for a thread that is gone.
    let outcome = catch_unwind(AssertUnwindSafe(|| backend.commit(touched, results)));
    if outcome.is_err() {
        results.fill(Err(FsError::Io));
    }
    forced
}
