use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::limits::OPENS_TOLD_MAX;
use holdfast_cache::{
    Access, Acting, Answer, Ask, Attrs, Batch, Caller, CapSet, Changes, Errno, Forget, Grant, Handle, Kind,
    Lookup, MutationResult, NodeId, Object, OpenFlags, OpenToken, Question, Release, Settings, Until,
};
use holdfast_client::Cancel;
use parking_lot::{Condvar, Mutex};

use crate::caps::Promises as _;
use crate::running::Plain;
use crate::server::{BatchDone, Settled, Undone};
use crate::stub::{self, Stub};
use crate::{Invalidate, Volume, VolumeOptions};

/// Longer than it takes to take in what became of a call.
const MOMENT: Duration = Duration::from_millis(100);

/// How far the two calls with the one batch have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Nothing,
    First,
    Second,
    FirstIsRefused,
}

/// A server with one object, all of which is promised. A batch is sent to it twice: before and after it was greeted anew. The
/// first call is refused, once the second is there.
#[derive(Default)]
struct Twice {
    stage: Mutex<Stage>,
    bell: Condvar,
}

fn root() -> Object {
    let grant = Grant {
        caps: CapSet::ALL_X,
        seq: 1,
        plain: true,
        group_of_directory: false,
        listed: false,
        hands_on_none: true,
        changed_since: false,
    };
    stub::root(0o755, grant)
}

impl Twice {
    fn is_at(&self, stage: Stage) {
        *self.stage.lock() = stage;
        self.bell.notify_all();
    }

    fn wait_for(&self, stage: Stage) {
        let mut at = self.stage.lock();
        let until = Instant::now() + Duration::from_secs(20);
        while *at < stage {
            assert!(!self.bell.wait_until(&mut at, until).timed_out(), "{at:?}, and not {stage:?}");
        }
    }
}

impl Stub for Twice {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        match &ask.question {
            Question::GetAttr { .. } => {
                let Object { attrs, grant, .. } = root();
                Ok(Answer::Attrs { attrs, grant })
            }
            Question::WhoAmI => Ok(Answer::Acts(Acting::AsItself)),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn batch(&self, batch: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        let is_first = *self.stage.lock() == Stage::Nothing;
        if is_first {
            self.is_at(Stage::First);
            self.wait_for(Stage::Second);
            self.is_at(Stage::FirstIsRefused);
            return Err(Undone::Failed(Errno::EIO));
        }
        self.is_at(Stage::Second);
        self.wait_for(Stage::FirstIsRefused);
        std::thread::sleep(MOMENT);
        let done = MutationResult::Done { made: None, other_name: None, attrs: None };
        let results = batch.ops.iter().map(|_| done.clone()).collect();
        Ok(BatchDone { results, executed_through: batch.txn, stable_through: batch.txn, failed: Vec::new() })
    }

    fn stable(&self, through: u64, _: &Cancel) -> Result<Settled, Undone> {
        Ok(Settled { through, failed: Vec::new() })
    }
}

#[test]
fn what_becomes_of_a_batch_is_told_by_who_has_sent_it_last() {
    let server = Arc::new(Twice::default());
    let options = VolumeOptions { settings: Settings::full(), flushers: 2, patience: None };
    let volume = Volume::start(&root(), Arc::clone(&server) as _, &options).unwrap();
    let never = Cancel::new();
    let who = Plain(Caller::new(0, 0), &never);
    volume.getattr(&who, NodeId::ROOT).unwrap();
    let changes = Changes { mode: Some(0o700), ..Changes::default() };
    volume.setattr(&who, NodeId::ROOT, &changes).unwrap();
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| volume.sync(&never));
        server.wait_for(Stage::First);
        volume.0.resume(Some(0), 0, true);
        assert_eq!(synced.join().unwrap(), Ok(()));
    });
    assert_eq!(volume.take_reports(), []);
    volume.close();
}

/// A server with one object, that takes note of when each batch is to be answered.
#[derive(Default)]
struct Noting(Mutex<Vec<Until>>);

impl Stub for Noting {
    fn perform(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno> {
        Twice::default().perform(ask, cancel)
    }

    fn batch(&self, batch: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        self.0.lock().push(batch.until);
        let done = MutationResult::Done { made: None, other_name: None, attrs: None };
        let results = batch.ops.iter().map(|_| done.clone()).collect();
        Ok(BatchDone { results, executed_through: batch.txn, stable_through: batch.txn, failed: Vec::new() })
    }

    fn stable(&self, through: u64, _: &Cancel) -> Result<Settled, Undone> {
        Ok(Settled { through, failed: Vec::new() })
    }
}

/// A planned restart may bring another program, older or newer.
#[test]
fn whether_a_batch_may_wait_for_the_disk_is_as_the_server_says_that_was_greeted_last() {
    let server = Arc::new(Noting::default());
    let options = VolumeOptions { settings: Settings::full(), flushers: 1, patience: None };
    let volume = Volume::start(&root(), Arc::clone(&server) as _, &options).unwrap();
    let never = Cancel::new();
    let who = Plain(Caller::new(0, 0), &never);
    volume.getattr(&who, NodeId::ROOT).unwrap();
    for (mode, can) in [(0o700, true), (0o701, false), (0o702, true)] {
        volume.0.can_force(can);
        volume.setattr(&who, NodeId::ROOT, &Changes { mode: Some(mode), ..Changes::default() }).unwrap();
        assert_eq!(volume.sync(&never), Ok(()));
    }
    assert_eq!(*server.0.lock(), [Until::Stable, Until::Executed, Until::Stable]);
    volume.close();
}

/// A server with one file, which it says nothing about an open of, the first few times.
#[derive(Default)]
struct Deaf {
    /// Times an open was asked for.
    asked: Mutex<usize>,
    /// By how many opens each release was preceded.
    released_after: Mutex<Vec<usize>>,
}

/// Times that an open is not answered.
const UNANSWERED: usize = 3;

impl Deaf {
    fn file() -> Object {
        let Object { attrs, grant, .. } = stub::root(0o644, Grant { caps: CapSet::ALL_S, ..granted() });
        let attrs = Attrs { kind: Kind::File, nlink: 1, fileid: 2, ..attrs };
        Object { handle: Handle::new(b"file"), attrs, grant }
    }
}

fn granted() -> Grant {
    root().grant.unwrap()
}

impl Stub for Deaf {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        match &ask.question {
            Question::Lookup { .. } => {
                Ok(Answer::Looked { found: Some(Self::file()), dir: Some(granted()), promise: None })
            }
            Question::Open { .. } => {
                let mut asked = self.asked.lock();
                *asked += 1;
                if *asked <= UNANSWERED {
                    return Err(Errno::ETIMEDOUT);
                }
                Ok(Answer::Opened { open: Some(OpenToken(1)), attrs: Self::file().attrs, grant: None })
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn release(&self, releases: &[Release]) {
        assert_eq!(releases.len(), 1, "{releases:?}");
        self.released_after.lock().push(*self.asked.lock());
    }
}

struct Kernel;

impl Invalidate for Kernel {
    fn forget(&self, _: &Forget) -> bool {
        true
    }

    fn forget_names(&self, _: &[NodeId]) {}
}

/// It goes with its last name if the server does not know that it is open here.
#[test]
fn what_covers_an_open_is_given_back_when_the_server_has_heard_of_that() {
    let server = Arc::new(Deaf::default());
    let options = VolumeOptions { settings: Settings::full(), flushers: 1, patience: None };
    let volume = Volume::start(&root(), Arc::clone(&server) as _, &options).unwrap();
    let kernel: Arc<dyn Invalidate> = Arc::new(Kernel);
    volume.invalidate_by(&kernel).unwrap();
    let never = Cancel::new();
    let who = Plain(Caller::new(0, 0), &never);
    let Lookup::Found(file) = volume.lookup(&who, (NodeId::ROOT, b"f")).unwrap() else {
        panic!("it is there")
    };
    let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    volume.open(&who, file.node, flags).unwrap();
    assert_eq!(*server.asked.lock(), 0, "it is opened here");
    volume.0.recalled(&Handle::new(b"file"), CapSet::NONE, 9);
    let since = Instant::now();
    while server.released_after.lock().is_empty() {
        assert!(since.elapsed() < Duration::from_secs(20), "it is given back");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(*server.released_after.lock(), [UNANSWERED + 1]);
    volume.close();
}

/// Files that are open when what covers them ends.
const OPEN: usize = 500;

/// How long a call takes.
const ROUND_TRIP: Duration = Duration::from_millis(5);

/// A server with many files, far away.
#[derive(Default)]
struct Far {
    under_way: AtomicUsize,
    /// The most opens that were at the same time.
    most: AtomicUsize,
    told: AtomicUsize,
    released: AtomicUsize,
}

impl Far {
    fn file(name: &[u8]) -> Object {
        let number = name.iter().fold(7, |sum: u64, byte| sum * 31 + u64::from(*byte));
        let Object { attrs, grant, .. } = Deaf::file();
        Object { handle: Handle::new(name), attrs: Attrs { fileid: number, ..attrs }, grant }
    }
}

impl Stub for Far {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        match &ask.question {
            Question::Lookup { name, .. } => {
                let found = Some(Self::file(name.as_bytes()));
                Ok(Answer::Looked { found, dir: None, promise: None })
            }
            Question::Open { object, .. } => {
                let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(now, Ordering::SeqCst);
                std::thread::sleep(ROUND_TRIP);
                self.under_way.fetch_sub(1, Ordering::SeqCst);
                let number = self.told.fetch_add(1, Ordering::SeqCst);
                let attrs = Self::file(object.as_bytes()).attrs;
                Ok(Answer::Opened { open: Some(OpenToken(number as u64 + 1)), attrs, grant: None })
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn release(&self, releases: &[Release]) {
        self.released.fetch_add(releases.len(), Ordering::SeqCst);
    }
}

/// Tells the server of many opens, as what covered them ends so. What it was, and how long that took.
fn tell_of_many(ends: impl Fn(&Volume), is_over: impl Fn(&Far) -> bool) -> (Arc<Far>, Duration) {
    let server = Arc::new(Far::default());
    // More than there may be under way.
    let options = VolumeOptions { settings: Settings::full(), flushers: OPENS_TOLD_MAX + 16, patience: None };
    // Names are not promised: they are asked for one by one.
    let grant = Grant { caps: CapSet::AUTH_S | CapSet::LINK_S, ..granted() };
    let root = stub::root(0o755, grant);
    let volume = Volume::start(&root, Arc::clone(&server) as _, &options).unwrap();
    let kernel: Arc<dyn Invalidate> = Arc::new(Kernel);
    volume.invalidate_by(&kernel).unwrap();
    let never = Cancel::new();
    let who = Plain(Caller::new(0, 0), &never);
    for number in 0..OPEN {
        let found = volume.lookup(&who, (NodeId::ROOT, number.to_string().as_bytes())).unwrap();
        let Lookup::Found(file) = found else { panic!("it is there") };
        let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
        volume.open(&who, file.node, flags).unwrap();
    }
    assert_eq!(server.told.load(Ordering::SeqCst), 0, "they are opened here");
    let since = Instant::now();
    ends(&volume);
    while !is_over(&server) {
        assert!(since.elapsed() < Duration::from_secs(20), "{:?} were told of", server.told);
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = since.elapsed();
    volume.close();
    (server, took)
}

/// One after the other they would take longer than whoever wants the files waits for that.
#[test]
fn the_server_is_told_of_many_opens_side_by_side_and_of_no_more_than_leaves_room_for_other_calls() {
    let recall = |volume: &Volume| {
        for number in 0..OPEN {
            volume.0.recalled(&Handle::new(number.to_string().as_bytes()), CapSet::NONE, 9);
        }
    };
    let lose = |volume: &Volume| volume.0.renewed(Vec::new());
    let all_released = |server: &Far| server.released.load(Ordering::SeqCst) == OPEN;
    let all_told = |server: &Far| server.told.load(Ordering::SeqCst) == OPEN;
    for (what, (server, took)) in
        [("recalled", tell_of_many(recall, all_released)), ("lost", tell_of_many(lose, all_told))]
    {
        println!("{what}: {OPEN} opens in {took:?}, {:?} at once", server.most);
        let most = server.most.load(Ordering::SeqCst);
        assert!((OPENS_TOLD_MAX / 2..=OPENS_TOLD_MAX).contains(&most), "{what}: {most} at once");
        assert_eq!(server.told.load(Ordering::SeqCst), OPEN, "{what}: each once");
    }
}
