//! What the store does when the disk below it fails, call by call.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::io;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::*;
use crate::suite::collect;

/// What of the disk's a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Reserve,
    Write,
    Force,
}

/// Faults to come: after so many calls of this kind, this.
pub(super) type Faults = Mutex<VecDeque<(Call, u32, Errno)>>;

pub(super) fn meet(faults: &Faults, call: Call) -> io::Result<()> {
    let mut faults = faults.lock();
    match faults.front_mut() {
        Some((of, left, _)) if *of == call && *left > 0 => {
            *left -= 1;
            Ok(())
        }
        Some((of, _, errno)) if *of == call => {
            let errno = *errno;
            faults.pop_front();
            Err(errno.into())
        }
        _ => Ok(()),
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    store: EmbeddedStore,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    let store = EmbeddedStore::on(Medium::new(private_file(&path).unwrap(), path)).unwrap();
    Bench { _dir: dir, store }
}

impl Bench {
    fn fail(&self, call: Call, after: u32, errno: Errno) {
        self.store.medium.faults.lock().push_back((call, after, errno));
    }

    fn wait_for_reopening(&self) {
        std::thread::sleep(std::time::Duration::from_millis(REOPENED_EVERY_MS + 20));
    }
}

#[test]
fn one_failure_of_the_disk_is_not_the_end_of_the_store() {
    for (call, errno) in [(Call::Write, Errno::IO), (Call::Force, Errno::IO), (Call::Write, Errno::NOSPC)] {
        let bench = bench();
        bench.store.put(b"a", b"1").unwrap();
        bench.fail(call, 0, errno);
        assert_eq!(
            bench.store.put(b"b", b"2"),
            Ok(()),
            "{call:?} {errno}: tried again in a tree opened again"
        );
        assert_eq!(bench.store.get(b"a"), Ok(Some(b"1".to_vec())));
        assert_eq!(bench.store.get(b"b"), Ok(Some(b"2".to_vec())));
    }
}

#[test]
fn a_commit_that_failed_at_any_of_its_calls_is_there_wholly_or_not_and_its_caller_knows() {
    for call in [Call::Write, Call::Force] {
        for after in 0.. {
            let bench = bench();
            bench.store.put(b"n", b"0").unwrap();
            bench.fail(call, after, Errno::IO);
            let fence = bench.store.fence(b"office").unwrap();
            assert_eq!(fence.turn(), 1, "{call:?} {after}: taken once, though it was tried twice");
            let batch = Batch::new().when_value(b"n", b"0").put(b"n", b"1").put(b"m", b"1");
            assert_eq!(bench.store.transaction(&batch), Ok(()), "{call:?} {after}");
            assert_eq!(collect(&bench.store, b"n").unwrap().len(), 1);
            assert_eq!(bench.store.get(b"m"), Ok(Some(b"1".to_vec())));
            if !bench.store.medium.faults.lock().is_empty() {
                // Both went without it.
                assert!(after > 1);
                break;
            }
        }
    }
}

#[test]
fn a_disk_that_goes_on_failing_is_tried_at_its_pace_and_the_store_is_whole_once_it_heals() {
    let bench = bench();
    bench.store.put(b"a", b"1").unwrap();
    for _ in 0..1000 {
        bench.fail(Call::Write, 0, Errno::IO);
    }
    let failed = |outcome: Result<()>| assert!(matches!(outcome, Err(StoreError::Io(_))), "{outcome:?}");
    failed(bench.store.put(b"b", b"1"));
    let left = bench.store.medium.faults.lock().len();
    (0..50).for_each(|_| failed(bench.store.put(b"b", b"1")));
    assert_eq!(bench.store.medium.faults.lock().len(), left, "nothing is asked of it meanwhile");
    bench.store.medium.faults.lock().clear();
    bench.wait_for_reopening();
    assert_eq!(bench.store.get(b"a"), Ok(Some(b"1".to_vec())));
    assert_eq!(bench.store.get(b"b"), Ok(None));
    assert_eq!(bench.store.put(b"b", b"1"), Ok(()));
}

#[test]
fn without_room_what_is_new_is_refused_and_what_is_there_is_marked_and_removed() {
    let bench = bench();
    bench.store.put(b"a", b"1").unwrap();
    bench.store.put(b"b", b"1").unwrap();
    bench.store.medium.give_up_reserve();
    for _ in 0..6 {
        bench.fail(Call::Reserve, 0, Errno::NOSPC);
    }
    let full = Err(StoreError::Full { directory: bench.store.medium.directory().to_path_buf() });
    assert_eq!(bench.store.put(b"c", b"1"), full);
    assert_eq!(bench.store.put(b"a", b"longer"), full);
    assert_eq!(bench.store.transaction(&Batch::new().delete(b"b").put(b"c", b"")), full);
    assert_eq!(bench.store.fence(b"new").map(drop), full);
    assert_eq!(bench.store.put(b"a", b"2"), Ok(()));
    assert_eq!(bench.store.delete(b"b"), Ok(()));
    bench.store.medium.faults.lock().clear();
    assert_eq!(bench.store.put(b"c", b"1"), Ok(()));
    assert_eq!(collect(&bench.store, b"").unwrap().len(), 2);
}

#[test]
fn where_nothing_can_be_reserved_a_full_disk_is_given_time() {
    let bench = bench();
    bench.store.put(b"a", b"1").unwrap();
    bench.store.medium.give_up_reserve();
    bench.fail(Call::Reserve, 0, Errno::OPNOTSUPP);
    bench.fail(Call::Write, 0, Errno::NOSPC);
    assert!(matches!(bench.store.put(b"b", b"1"), Err(StoreError::Full { .. })));
    assert_eq!(bench.store.delete(b"a"), Ok(()));
}
