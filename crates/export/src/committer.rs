//! Group commit: replies wait here until what they promise is on disk, and all that wait together share one
//! force. One thread a file system, started at need and gone when idle; nobody else ever waits for a disk here.
//! For simulation there is a committer without threads, which commits when it is told to.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_vfs::{Backend, FsError, FsResult, Touched};
use parking_lot::{Condvar, Mutex};

use crate::pace::Pace;

/// What happens once the changes are durable, or could not be made so. Runs on the committer's thread: it sends
/// a reply and does nothing that waits. A panic in it costs this one answer, of which what it holds says so when it is
/// dropped.
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
    /// When people were last told of an answer that panicked.
    complained: Mutex<Option<Instant>>,
}

/// Between two lines about answers that panicked: clients that bring that about are not to fill the log.
const COMPLAINTS: Duration = Duration::from_secs(10);

/// Calls that wait to be committed, with what each of them touched.
type Batch = Vec<(Vec<Touched>, Committed)>;

/// An answer that panicked: something that its call had touched, and the panic.
type Panicked = (Option<Touched>, Box<dyn Any + Send>);

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
    batch: Batch,
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
        let (groups, complained) = (AtomicU64::new(0), Mutex::new(None));
        Arc::new(Self { domains, with, answering, pumped, groups, complained })
    }

    /// A committer without threads: what is submitted waits for [`Committer::pump`]. For simulation and tests.
    #[must_use]
    pub fn pumped(with: Option<Arc<dyn Force>>) -> Arc<Self> {
        Self::made(with, None, Some(Mutex::default()))
    }

    /// Commits what was submitted to a committer without threads, on this thread, one group a file system; nothing
    /// that is submitted meanwhile. Returns how many waited.
    ///
    /// # Panics
    /// When an answer does, once all of its group are answered.
    pub fn pump(&self) -> usize {
        let domains = self.pumped.as_ref().map(|pumped| std::mem::take(&mut *pumped.lock()));
        let mut waited = 0;
        for (key, domain) in domains.unwrap_or_default() {
            self.domains.lock().remove(&key);
            let batch = std::mem::take(&mut domain.waiting.lock().batch);
            waited += batch.len();
            if let Some((_, panic)) = self.commit(domain.backend.as_ref(), batch) {
                resume_unwind(panic);
            }
        }
        waited
    }

    /// How many groups were forced so far, each with one force of the journal and one commit of one file system.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.groups.load(Ordering::Relaxed)
    }

    /// Forces these and answers them. The last answer that panicked: it is felt by nobody else.
    fn commit(&self, backend: &dyn Backend, batch: Batch) -> Option<Panicked> {
        self.groups.fetch_add(1, Ordering::Relaxed);
        let results = force(backend, self.with.as_deref(), &batch);
        let first = batch.iter().find_map(|(touched, _)| touched.first().copied());
        let mut answers = batch.into_iter().zip(results);
        let mut panicked = None;
        let mut answer = || {
            for ((touched, done), result) in answers.by_ref() {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| done(result))) {
                    panicked = Some((touched.first().copied(), panic));
                }
            }
        };
        let sent = catch_unwind(AssertUnwindSafe(|| match self.answering {
            Some(answering) => answering(&mut answer),
            None => answer(),
        }));
        match sent {
            Ok(()) => panicked,
            Err(panic) => Some((first, panic)),
        }
    }

    /// Tells people which file system an answer panicked on, by one of the objects that its call had changed.
    fn complain(&self, backend: &dyn Backend, (touched, panic): &Panicked) {
        let now = Instant::now();
        let is_too_soon = |last: &mut Instant| now.duration_since(*last) < COMPLAINTS;
        let mut complained = self.complained.lock();
        if complained.as_mut().is_some_and(is_too_soon) {
            return;
        }
        *complained = Some(now);
        drop(complained);
        let path = || touched.and_then(|touched| backend.path_of(&touched.handle));
        let at = catch_unwind(AssertUnwindSafe(path)).ok().flatten().unwrap_or_default();
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(at = %at.display(), panic = text.unwrap_or("?"), "an answer to what is on the disk of this \
            file system panicked and is lost; the file system is served on");
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
                if let Some(panicked) = self.commit(domain.backend.as_ref(), batch) {
                    self.complain(domain.backend.as_ref(), &panicked);
                }
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
    fn gather(&self, pace: &mut Pace) -> Batch {
        let mut waiting = self.waiting.lock();
        while let Some((enough, until)) = pace.worth_waiting(waiting.batch.len(), Instant::now()) {
            waiting.wakes_at = enough;
            self.arrived.wait_until(&mut waiting, until);
        }
        std::mem::take(&mut waiting.batch)
    }
}

/// What a journal says that panicked when it was forced.
fn panicked() -> io::Error {
    io::Error::other("a panic")
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
        let by_backend = &mut |own: BorrowedFd<'_>| {
            let committed =
                catch_unwind(AssertUnwindSafe(|| backend.commit_with(own, &touched, &mut results)));
            has_panicked = committed.is_err();
            committed.ok().flatten().map(|done| done.map_err(io::Error::other))
        };
        catch_unwind(AssertUnwindSafe(|| with.force_by(by_backend))).unwrap_or_else(|_| Some(Err(panicked())))
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
    // A panic here must fail those who wait, not leave them waiting for a thread that is gone.
    let force = |with: &dyn Force| catch_unwind(AssertUnwindSafe(|| with.force()));
    let forced = with.map_or(Ok(()), |with| force(with).unwrap_or_else(|_| Err(panicked())));
    let forced = forced.map_err(|_| FsError::Io);
    let outcome = catch_unwind(AssertUnwindSafe(|| backend.commit(touched, results)));
    if outcome.is_err() {
        results.fill(Err(FsError::Io));
    }
    forced
}
