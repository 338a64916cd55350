//! Replies wait until their changes are durable, and share the force.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{io, thread};

use holdfast_export::{Committer, Force};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, FsError, Name, SetAttrs, Touched, Wait,
};

const LONG: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Journal {
    forced: AtomicUsize,
    fails: bool,
    /// The force, counted from one, that panics.
    panics_at: usize,
}

impl Force for Journal {
    fn force(&self) -> io::Result<()> {
        // Long enough that what is submitted meanwhile gathers.
        thread::sleep(Duration::from_millis(20));
        let forced = self.forced.fetch_add(1, Ordering::SeqCst) + 1;
        assert_ne!(forced, self.panics_at, "a journal that panics");
        if self.fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

fn backend() -> (Arc<dyn Backend>, Touched) {
    let mem = MemBackend::new(&MemOptions::deterministic());
    let root = mem.root().unwrap();
    let (caller, set) = (Caller::root(), SetAttrs::default());
    let cx = Cx::new(&caller, Wait::Yes);
    let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::NONE };
    mem.create(&cx, &root, Name::new(b"f").unwrap(), &how).unwrap();
    (Arc::new(mem), Touched { handle: root, data: false })
}

#[test]
fn a_reply_leaves_after_the_backend_and_the_journal_were_forced() {
    let journal = Arc::new(Journal::default());
    let committer = Committer::new(Some(journal.clone()));
    let (backend, touched) = backend();
    let (tell, told) = channel();
    let seen = journal.clone();
    let done = move |result| tell.send((result, seen.forced.load(Ordering::SeqCst))).unwrap();
    committer.submit(&backend, vec![touched], Box::new(done));
    assert_eq!(told.recv_timeout(LONG).unwrap(), (Ok(()), 1));
}

#[test]
fn replies_that_wait_together_share_one_force() {
    let journal = Arc::new(Journal::default());
    let committer = Committer::new(Some(journal.clone()));
    let (backend, touched) = backend();
    let (tell, told) = channel();
    for _ in 0..100 {
        let tell = tell.clone();
        committer.submit(&backend, vec![touched], Box::new(move |r| tell.send(r).unwrap()));
    }
    for _ in 0..100 {
        assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(()));
    }
    assert!(journal.forced.load(Ordering::SeqCst) < 20, "{:?}", journal.forced);
}

const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 20;

/// The groups that it takes to answer as many calls as so many rounds, of which each asks again when it is answered.
fn groups_of_calls_kept_in_flight() -> u64 {
    let committer = Committer::new(Some(Arc::new(Journal::default())));
    let (backend, touched) = backend();
    let (tell, told) = channel();
    let ask = || {
        let tell = tell.clone();
        committer.submit(&backend, vec![touched], Box::new(move |r| tell.send(r).unwrap()));
    };
    (0..IN_FLIGHT).for_each(|_| ask());
    for _ in 0..IN_FLIGHT * (ROUNDS - 1) {
        assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(()));
        ask();
    }
    (0..IN_FLIGHT).for_each(|_| assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(())));
    committer.groups()
}

#[test]
fn calls_kept_in_flight_gather_in_whole_groups_and_not_in_two_halves() {
    // Nobody is waited for who asks late, as a test on a busy machine does: one try among many is enough. Two halves are
    // twice as many groups as rounds, every time.
    let mut tries = Vec::new();
    while tries.len() < 100 {
        tries.push(groups_of_calls_kept_in_flight());
        if tries.last().is_some_and(|groups| *groups < ROUNDS as u64 * 3 / 2) {
            println!("{tries:?} groups for {ROUNDS} rounds");
            return;
        }
    }
    panic!("{tries:?} groups for {ROUNDS} rounds");
}

#[test]
fn all_of_a_group_are_answered_within_one_call_of_what_sends_their_replies() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    fn counted(answer: &mut dyn FnMut()) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        answer();
    }
    let committer = Committer::answering(Some(Arc::new(Journal::default())), counted);
    let (backend, touched) = backend();
    let (tell, told) = channel();
    for _ in 0..100 {
        let tell = tell.clone();
        committer.submit(&backend, vec![touched], Box::new(move |r| tell.send(r).unwrap()));
    }
    for _ in 0..100 {
        assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(()));
    }
    assert!(CALLS.load(Ordering::SeqCst) < 20, "{CALLS:?}");
}

#[test]
fn a_journal_that_cannot_be_forced_fails_those_who_wait() {
    let committer = Committer::new(Some(Arc::new(Journal { fails: true, ..Journal::default() })));
    let (backend, touched) = backend();
    let (tell, told) = channel();
    committer.submit(&backend, vec![touched], Box::new(move |r| tell.send(r).unwrap()));
    assert_eq!(told.recv_timeout(LONG).unwrap(), Err(FsError::Io));
}

/// Submits what panics when it is answered between two that do not, all while another is forced.
fn submit_one_that_panics(committer: &Arc<Committer>) {
    let (backend, touched) = backend();
    let (tell, told) = channel();
    let tells = || {
        let tell = tell.clone();
        Box::new(move |r| tell.send(r).unwrap())
    };
    committer.submit(&backend, vec![touched], tells());
    committer.submit(&backend, vec![touched], tells());
    committer.submit(&backend, vec![touched], Box::new(|_| panic!("an answer that panics")));
    committer.submit(&backend, vec![touched], tells());
    for _ in 0..3 {
        assert_eq!(told.recv_timeout(LONG), Ok(Ok(())), "of the same group");
    }
    committer.submit(&backend, vec![touched], tells());
    assert_eq!(told.recv_timeout(LONG), Ok(Ok(())), "of the file system thereafter");
}

#[test]
fn a_panic_in_an_answer_is_felt_neither_by_its_group_nor_by_those_who_come_after() {
    submit_one_that_panics(&Committer::new(Some(Arc::new(Journal::default()))));
    submit_one_that_panics(&Committer::answering(Some(Arc::new(Journal::default())), |answer| answer()));
}

#[test]
fn a_journal_that_panics_fails_those_who_wait_and_nobody_after_them() {
    let committer = Committer::new(Some(Arc::new(Journal { panics_at: 1, ..Journal::default() })));
    let (backend, touched) = backend();
    for expected in [Err(FsError::Io), Ok(())] {
        let (tell, told) = channel();
        committer.submit(&backend, vec![touched], Box::new(move |r| tell.send(r).unwrap()));
        assert_eq!(told.recv_timeout(LONG), Ok(expected));
    }
}

#[test]
fn without_threads_a_panic_in_an_answer_is_told_to_who_pumps_once_all_are_answered() {
    let committer = Committer::pumped(None);
    let (backend, touched) = backend();
    let (tell, told) = channel();
    committer.submit(&backend, vec![touched], Box::new(|_| panic!("an answer that panics")));
    committer.submit(&backend, vec![touched], Box::new(move |r| tell.send(r).unwrap()));
    assert!(catch_unwind(AssertUnwindSafe(|| committer.pump())).is_err());
    assert_eq!(told.try_recv(), Ok(Ok(())));
}

#[test]
fn nothing_touched_is_done_at_once() {
    let committer = Committer::new(None);
    let (backend, _) = backend();
    let (tell, told) = channel();
    committer.submit(&backend, Vec::new(), Box::new(move |r| tell.send(r).unwrap()));
    assert_eq!(told.try_recv(), Ok(Ok(())));
}

#[test]
fn without_threads_replies_wait_until_they_are_pumped_and_share_one_force() {
    let journal = Arc::new(Journal::default());
    let committer = Committer::pumped(Some(journal.clone()));
    let (backend, touched) = backend();
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let done = done.clone();
        let count = move |result| {
            if result == Ok(()) {
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        committer.submit(&backend, vec![touched], Box::new(count));
    }
    assert_eq!((done.load(Ordering::SeqCst), journal.forced.load(Ordering::SeqCst)), (0, 0));
    assert_eq!(committer.pump(), 3);
    assert_eq!((done.load(Ordering::SeqCst), journal.forced.load(Ordering::SeqCst)), (3, 1));
    assert_eq!(committer.pump(), 0, "nothing is left");
}

#[test]
fn what_is_submitted_while_pumping_waits_for_the_next_time() {
    let committer = Committer::pumped(None);
    let (backend, touched) = backend();
    let (again, target) = (committer.clone(), backend.clone());
    let more = move |_| again.submit(&target, vec![touched], Box::new(|_| ()));
    committer.submit(&backend, vec![touched], Box::new(more));
    assert_eq!((committer.pump(), committer.pump(), committer.pump()), (1, 1, 0));
}
