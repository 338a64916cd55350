//! Promises from grant to end, through engine, index, backend and guard.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod listing;
mod random;
mod reclaimed;
mod scarce_leases;
mod world;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use holdfast_base::limits::{RECALL_FLUSH_BYTES_PER_S, RECALL_STRETCH_MAX};
use holdfast_base::{ClientId, FileKey};
use holdfast_manager::{Agent, AttributeHolder, Granted, HeldAnswer, HeldAttributes, NotKept};
use holdfast_state::{
    Access, Deed, DelegationKind, Effect, Policy, RecallAnswer, StateError, WhyNone, WriteHolder,
};
use holdfast_vfs::{
    AttrMask, Backend, CopySpan, Cx, DirListing, File, Flow, FsError, LocalDeed, Name, Pledge, RemoveKind,
    Wait,
};
use parking_lot::Mutex;
use world::World;

#[test]
fn a_delegation_is_held_against_local_processes_until_it_is_given_back() {
    let w = World::new(0);
    let a = w.client("a");
    let delegated = w.granted(a, DelegationKind::Write);
    assert_eq!(w.fs.pledges_held(&w.file), [Pledge::WriteFile]);
    assert_eq!(w.manager.promises().len(), 1);
    w.give_back(a, &delegated);
    assert_eq!(w.fs.pledges_held(&w.file), []);
    assert!(w.manager.promises().is_empty());
    assert!(w.write(None).is_ok());
}

#[test]
fn what_the_backend_cannot_hold_is_not_granted_and_leaves_nothing() {
    let w = World::new(0);
    let a = w.client("a");
    w.open(a, Access::READ);
    w.fs.refuse_pledges(true);
    assert_eq!(w.delegate(a, DelegationKind::Read), Granted::Declined(WhyNone::Contention));
    assert!(w.manager.promises().is_empty());
    assert_eq!(w.manager.look(|engine| engine.holds_delegation(a, w.key())), None);
    w.fs.refuse_pledges(false);
    assert!(matches!(w.delegate(a, DelegationKind::Read), Granted::Delegated(_)));
}

#[test]
fn nothing_is_granted_while_a_change_is_in_flight() {
    let w = World::new(0);
    let a = w.client("a");
    w.open(a, Access::READ);
    let change = w.manager.promises().enter(w.key(), Deed::WriteData, None).unwrap();
    assert_eq!(w.delegate(a, DelegationKind::Read), Granted::Declined(WhyNone::Contention));
    drop(change);
    assert!(matches!(w.delegate(a, DelegationKind::Read), Granted::Delegated(_)));
}

/// RFC 8881 section 10.2.1: who held it goes on with it all the time.
#[test]
fn what_is_reclaimed_is_granted_though_the_backend_cannot_hold_it_and_to_be_returned_at_once() {
    let w = World::new(0);
    let a = w.reclaiming("a");
    w.fs.refuse_pledges(true);
    let Granted::Delegated(held) = w.reclaim(a, DelegationKind::Write).unwrap() else { panic!() };
    assert!(held.is_recalled);
    assert_eq!(w.write(None).err(), Some(FsError::Delay));
    w.give_back(a, &held);
    assert!(w.manager.promises().is_empty());
    w.fs.refuse_pledges(false);
    let Granted::Delegated(held) = w.reclaim(a, DelegationKind::Write).unwrap() else { panic!() };
    assert!(!held.is_recalled);
    assert_eq!(w.fs.pledges_held(&w.file), [Pledge::WriteFile]);
}

#[test]
fn who_reclaims_while_a_change_is_in_flight_is_to_come_again() {
    let w = World::new(0);
    let a = w.reclaiming("a");
    let change = w.manager.promises().enter(w.key(), Deed::WriteData, None).unwrap();
    assert_eq!(w.reclaim(a, DelegationKind::Write), Err(StateError::Delay));
    assert!(w.manager.promises().is_empty());
    drop(change);
    assert!(matches!(w.reclaim(a, DelegationKind::Write), Ok(Granted::Delegated(_))));
}

#[test]
fn a_read_delegation_becomes_one_for_writing_and_goes_as_one() {
    let w = World::new(0);
    let a = w.client("a");
    let read = w.granted(a, DelegationKind::Read);
    let write = w.granted(a, DelegationKind::Write);
    assert_eq!((read.token, w.manager.promises().len()), (write.token, 1));
    assert_eq!(w.fs.pledges_held(&w.file), [Pledge::WriteFile]);
    let read_by_another = w.guarded.read(&w.cx(None), File::Stateless(&w.file), 0, &mut [0; 4]);
    assert_eq!(read_by_another.err(), Some(FsError::Delay));
    w.give_back(a, &write);
    assert!(w.manager.promises().is_empty());
    assert!(w.write(None).is_ok());
}

#[test]
fn with_a_later_open_nothing_is_granted_if_the_file_changed_at_any_time_since_the_first() {
    let w = World::new(0);
    let a = w.client("a");
    w.open(a, Access::READ);
    w.fs.refuse_pledges(true);
    assert_eq!(w.delegate(a, DelegationKind::Read), Granted::Declined(WhyNone::Contention));
    w.fs.refuse_pledges(false);
    w.open(a, Access::READ);
    let before = w.seen();
    w.write(None).unwrap();
    let declined = Granted::Declined(WhyNone::OpenBefore);
    assert_eq!(w.delegate_seen(a, DelegationKind::Read, before), declined, "changed since that look");
    assert!(w.manager.promises().is_empty() && w.fs.pledges_held(&w.file).is_empty());
    w.open(a, Access::READ);
    assert_eq!(w.delegate(a, DelegationKind::Read), declined, "changed since the first");
}

#[test]
fn with_a_later_open_of_an_unchanged_file_a_delegation_is_granted() {
    let w = World::new(0);
    let a = w.client("a");
    w.open(a, Access::READ);
    w.fs.refuse_pledges(true);
    assert_eq!(w.delegate(a, DelegationKind::Read), Granted::Declined(WhyNone::Contention));
    w.fs.refuse_pledges(false);
    w.open(a, Access::BOTH);
    assert!(matches!(w.delegate(a, DelegationKind::Write), Granted::Delegated(_)));
}

#[test]
fn an_upgrade_that_the_backend_refuses_leaves_the_read_delegation() {
    let w = World::new(0);
    let a = w.client("a");
    w.granted(a, DelegationKind::Read);
    w.open(a, Access::BOTH);
    w.fs.refuse_pledges(true);
    assert_eq!(w.delegate(a, DelegationKind::Write), Granted::Declined(WhyNone::Contention));
    assert_eq!(w.fs.pledges_held(&w.file), [Pledge::ReadFile]);
    assert!(w.guarded.read(&w.cx(None), File::Stateless(&w.file), 0, &mut [0; 4]).is_ok());
    assert_eq!(w.write(None).err(), Some(FsError::Delay));
}

#[test]
fn whoever_conflicts_waits_for_the_return_and_then_goes_on() {
    let w = World::new(8);
    let a = w.client("a");
    let delegated = w.granted(a, DelegationKind::Read);
    assert!(w.write(Some(a)).is_ok(), "one's own promise is not in one's way");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| w.write(None));
        let until = Instant::now() + Duration::from_secs(5);
        while w.recalls() == 0 {
            assert!(Instant::now() < until, "no recall was sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!writer.is_finished());
        w.give_back(a, &delegated);
        assert!(writer.join().unwrap().is_ok());
    });
}

/// Without a wait, on a busy machine; with it, it would be 900 ms and more.
const AT_ONCE: Duration = Duration::from_millis(800);

#[test]
fn whoever_waits_too_long_is_told_to_come_again_and_then_at_once() {
    let w = World::new(8);
    let a = w.client("a");
    w.granted(a, DelegationKind::Read);
    let started = Instant::now();
    assert_eq!(w.write(None).err(), Some(FsError::Delay));
    let first = started.elapsed();
    assert!(first >= Duration::from_millis(900), "{first:?}");
    let again = Instant::now();
    assert_eq!(w.write(None).err(), Some(FsError::Delay));
    assert!(again.elapsed() < AT_ONCE);
    assert_eq!(w.recalls(), 1);
}

#[test]
fn no_more_than_a_quarter_of_the_threads_wait_and_nobody_while_the_server_holds_still() {
    let w = World::new(4);
    let a = w.client("a");
    w.granted(a, DelegationKind::Read);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| w.write(None));
        let until = Instant::now() + Duration::from_secs(5);
        while w.recalls() == 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        let second = Instant::now();
        assert_eq!(w.write(None).err(), Some(FsError::Delay));
        assert!(second.elapsed() < AT_ONCE, "the only place is taken");
        let held = Instant::now();
        w.manager.hold();
        assert_eq!(first.join().unwrap().err(), Some(FsError::Delay));
        assert!(held.elapsed() < AT_ONCE);
    });
}

#[test]
fn where_waiting_is_not_allowed_the_recall_begins_all_the_same() {
    let w = World::new(8);
    let a = w.client("a");
    w.granted(a, DelegationKind::Read);
    let hasty = Cx { wait: Wait::No, ..w.cx(None) };
    let root = w.guarded.root().unwrap();
    let removed = w.guarded.remove(&hasty, &root, Name::new(b"f").unwrap(), RemoveKind::Any);
    assert_eq!(removed.err(), Some(FsError::WouldBlock));
    assert_eq!(w.recalls(), 1);
}

#[test]
fn a_local_process_has_delegations_recalled() {
    let w = World::new(0);
    let (a, b) = (w.client("a"), w.client("b"));
    w.granted(a, DelegationKind::Read);
    w.granted(b, DelegationKind::Read);
    w.fs.deed_outside(&w.file, LocalDeed::OpenToRead);
    assert_eq!(w.recalls(), 0);
    w.fs.deed_outside(&w.file, LocalDeed::OpenToWrite);
    assert_eq!(w.recalls(), 2);
}

#[test]
fn a_local_reader_in_the_kernel_is_not_kept_by_a_flush_that_goes_on() {
    const RECALL_MS: u64 = 10_000;
    let ends_at = |is_reader_local: bool| {
        let w = World::new(0);
        let a = w.client("a");
        w.manager.quiet(|engine, _| {
            let policy = *engine.policy();
            engine.set_policy(Policy { recall_ms: Some(RECALL_MS), ..policy });
        });
        w.granted(a, DelegationKind::Write);
        if is_reader_local {
            w.fs.deed_outside(&w.file, LocalDeed::OpenToRead);
        } else {
            w.manager.step(|engine, now| engine.contend(w.key(), Deed::OpenRead, None, now)).unwrap();
        }
        let token = w.recall_token();
        w.manager.quiet(|engine, now| {
            engine.recall_answered(token, RecallAnswer::Accepted, now);
            let is_held = |second: &u64| {
                let later = now.after_ms(second * 1000);
                engine.holder_flushed(w.key(), a, RECALL_FLUSH_BYTES_PER_S, later);
                engine.tick(later);
                engine.holds_delegation(a, w.key()).is_some()
            };
            (1..80).take_while(is_held).count() as u64
        })
    };
    let stretched = RECALL_STRETCH_MAX * RECALL_MS / 1000;
    assert!(ends_at(true) <= stretched, "the kernel lets it go");
    assert_eq!(ends_at(false), 79, "others wait as long as it gets on");
}

#[test]
fn a_revoked_delegation_is_no_promise_any_more() {
    let w = World::new(0);
    let a = w.client("a");
    w.granted(a, DelegationKind::Write);
    w.manager.step(|engine, now| engine.revoke_client(a, now)).unwrap();
    assert!(w.manager.promises().is_empty());
    assert_eq!(w.fs.pledges_held(&w.file), []);
    assert!(w.write(None).is_ok());
}

#[test]
fn a_copy_recalls_from_source_and_target() {
    let w = World::new(0);
    let a = w.client("a");
    w.granted(a, DelegationKind::Write);
    let span = CopySpan { from: 0, to: 0, bytes: 1 };
    let (it, cx) = (File::Stateless(&w.file), w.cx(None));
    assert_eq!(w.guarded.copy(&cx, it, it, span).err(), Some(FsError::Delay));
    assert_eq!(w.recalls(), 1);
}

/// A holder that answers what it is told to, or not at all.
#[derive(Default)]
struct Holder {
    says: Mutex<Option<HeldAttributes>>,
    asked: Mutex<u32>,
}

impl AttributeHolder for Holder {
    fn ask(&self, _: &WriteHolder, _: FileKey, answer: HeldAnswer) {
        *self.asked.lock() += 1;
        if let Some(says) = *self.says.lock() {
            answer.give(Some(says));
        }
    }
}

#[test]
fn a_changed_file_is_shown_as_its_holder_has_it() {
    let w = World::new(8);
    let a = w.client("a");
    w.granted(a, DelegationKind::Write);
    let holder = Arc::new(Holder::default());
    let asker: Arc<dyn AttributeHolder> = holder.clone();
    w.manager.set_attribute_holder(Arc::downgrade(&asker));
    let cx = w.cx(None);
    let before = w.fs.getattr(&cx, &w.file, AttrMask::ALL).unwrap();
    let says = HeldAttributes { change: before.change, size: 0, mtime: None, atime: None };
    *holder.says.lock() = Some(says);
    let unchanged = w.guarded.getattr(&cx, &w.file, AttrMask::ALL).unwrap();
    assert_eq!(unchanged, before);
    // However soon after.
    *holder.says.lock() =
        Some(HeldAttributes { change: holdfast_base::ChangeId(before.change.0 + 1), size: 77, ..says });
    let changed = w.guarded.getattr(&cx, &w.file, AttrMask::ALL).unwrap();
    assert_eq!(changed.size, 77);
    assert!(changed.change > before.change && changed.mtime > before.mtime);
    let node =
        w.guarded.lookup(&cx, &w.guarded.root().unwrap(), Name::new(b"f").unwrap(), AttrMask::STAT).unwrap();
    assert_eq!(node.attrs.size, 77);
    let listing = DirListing {
        dir: &w.guarded.root().unwrap(),
        from: holdfast_base::Cookie(0),
        want: Some(AttrMask::STAT),
    };
    let mut sizes = Vec::new();
    let listed = w.guarded.readdir(&cx, listing, &mut |entry| {
        sizes.push((entry.name.to_vec(), entry.node.map(|node| node.unwrap().attrs.size)));
        Flow::Continue
    });
    assert!(listed.is_ok());
    assert_eq!(sizes, [(b"f".to_vec(), Some(77))]);
    assert_eq!(w.recalls(), 0);
    assert_eq!(
        w.guarded.getattr(&w.cx(Some(a)), &w.file, AttrMask::STAT).unwrap().size,
        0,
        "its own view is the server's"
    );
    // What was shown never goes back, though the holder has written nothing when it ends.
    w.manager.step(|engine, now| engine.revoke_client(a, now)).unwrap();
    let after = w.guarded.getattr(&cx, &w.file, AttrMask::ALL).unwrap();
    assert!(after.change >= changed.change && after.mtime >= changed.mtime);
}

#[test]
fn a_holder_that_says_nothing_is_asked_once_and_has_to_give_back() {
    let w = World::new(8);
    let a = w.client("a");
    w.granted(a, DelegationKind::Write);
    // Answers are dropped unheard: that is an answer too, and ends the wait.
    let holder = Arc::new(Holder::default());
    let asker: Arc<dyn AttributeHolder> = holder.clone();
    w.manager.set_attribute_holder(Arc::downgrade(&asker));
    let looked = w.guarded.getattr(&w.cx(None), &w.file, AttrMask::STAT);
    assert_eq!(looked.err(), Some(FsError::Delay));
    assert_eq!((w.recalls(), *holder.asked.lock()), (1, 1));
    let again = w.guarded.getattr(&w.cx(None), &w.file, AttrMask::STAT);
    assert_eq!(again.err(), Some(FsError::Delay));
    assert_eq!(*holder.asked.lock(), 1, "who is asked to give back is not asked for more");
}

#[test]
fn nfs3_is_held_off_what_an_open_denies() {
    let w = World::new(0);
    let a = w.client("a");
    assert!(w.manager.check_stateless(&w.file, Access::WRITE).is_ok());
    w.open_denying(a, Access::READ, Access::WRITE);
    assert_eq!(w.manager.check_stateless(&w.file, Access::WRITE).err(), Some(FsError::Delay));
    assert!(w.manager.check_stateless(&w.file, Access::READ).is_ok());
    w.manager.step(|engine, now| engine.revoke_client(a, now)).unwrap();
    assert!(w.manager.check_stateless(&w.file, Access::WRITE).is_ok());
    assert!(!w.manager.has_denials());
}

/// Takes its time to take records away.
struct SlowRecords {
    begun: mpsc::Sender<()>,
    may_end: Mutex<mpsc::Receiver<()>>,
}

impl Agent for SlowRecords {
    fn forget(&self, _: &[ClientId]) -> bool {
        self.begun.send(()).is_ok() && self.may_end.lock().recv().is_ok()
    }

    fn run(&self, _: &Effect) -> Result<(), NotKept> {
        Ok(())
    }
}

#[test]
fn nobody_is_granted_what_a_client_leaves_before_its_record_is_gone() {
    let w = World::new(0);
    let (a, b) = (w.client("a"), w.client("b"));
    w.open_denying(a, Access::BOTH, Access::WRITE);
    let (begun, has_begun) = mpsc::channel();
    let (ends, may_end) = mpsc::channel();
    let records: Arc<dyn Agent> = Arc::new(SlowRecords { begun, may_end: Mutex::new(may_end) });
    w.manager.register(Arc::downgrade(&records));
    std::thread::scope(|threads| {
        let leave = threads.spawn(|| w.manager.step(|engine, now| engine.revoke_client(a, now)));
        has_begun.recv().unwrap();
        let grant = threads.spawn(|| w.open(b, Access::WRITE));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!grant.is_finished(), "a crash now would leave two who may reclaim");
        ends.send(()).unwrap();
        grant.join().unwrap();
        assert_eq!(leave.join().unwrap(), Ok(true));
    });
}
