//! The conformance suite: rules that every store keeps, through every decorator. A store's own tests call
//! [`run`] with a maker of empty stores. And [`Faulty`] and [`Hanging`], decorators that fail and hang on demand.

mod faulty;
mod hanging;

use std::sync::Arc;
use std::time::Duration;

pub use faulty::{Fault, Faulty};
pub use hanging::Hanging;
use holdfast_base::limits::{STORE_BATCH_CHANGES_MAX, STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX};

use crate::{Batch, Flow, Seen, Store, StoreError};

/// Makes an empty store; each rule is shown on one of its own.
pub type Maker<'a> = &'a dyn Fn() -> Arc<dyn Store>;

/// Runs every rule.
///
/// # Panics
/// When a rule is broken, naming it.
pub fn run(make: Maker<'_>) {
    put_get_delete(&*make());
    scan_is_ordered_and_bounded_by_its_prefix(&*make());
    a_failed_condition_changes_nothing(&*make());
    of_racing_writers_one_wins_each_round(&*make());
    a_fence_shuts_out_its_former_holder(&*make());
    bounds_are_refused(&*make());
    a_watch_tells_of_its_prefix_only(&*make());
    a_watch_that_overflows_says_so(&*make());
}

/// All pairs below a prefix.
///
/// # Errors
/// Those of [`Store::scan`].
pub fn collect(store: &dyn Store, prefix: &[u8]) -> crate::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut pairs = Vec::new();
    store.scan(prefix, &mut |k, v| {
        pairs.push((k.to_vec(), v.to_vec()));
        Flow::Continue
    })?;
    Ok(pairs)
}

fn put_get_delete(store: &dyn Store) {
    assert_eq!(store.get(b"k"), Ok(None));
    assert_eq!(store.put(b"k", b"1"), Ok(()));
    assert_eq!(store.put(b"k", b""), Ok(()));
    assert_eq!(store.get(b"k"), Ok(Some(Vec::new())), "an empty value is not an absent one");
    assert_eq!(store.delete(b"k"), Ok(()));
    assert_eq!(store.delete(b"k"), Ok(()), "deleting what is not there is no error");
    assert_eq!(store.get(b"k"), Ok(None));
}

fn scan_is_ordered_and_bounded_by_its_prefix(store: &dyn Store) {
    for key in [&b"a/2"[..], b"a/10", b"a/\xff", b"a", b"b/1", b"a0"] {
        assert_eq!(store.put(key, key), Ok(()));
    }
    let keys: Vec<_> = collect(store, b"a/").into_iter().flatten().map(|(k, _)| k).collect();
    assert_eq!(keys, [b"a/10".to_vec(), b"a/2".to_vec(), b"a/\xff".to_vec()]);
    let mut first = None;
    let scanned = store.scan(b"", &mut |k, _| {
        assert_eq!(first, None, "a scan goes on after it was stopped");
        first = Some(k.to_vec());
        Flow::Stop
    });
    assert_eq!((scanned, first), (Ok(()), Some(b"a".to_vec())));
}

fn a_failed_condition_changes_nothing(store: &dyn Store) {
    let twice = Batch::new().when_absent(b"x").put(b"x", b"1").put(b"y", b"1");
    assert_eq!(store.transaction(&twice), Ok(()));
    let again = twice.clone().delete(b"y");
    assert_eq!(store.transaction(&again), Err(StoreError::Conflict));
    let wrong = Batch::new().when_value(b"x", b"2").put(b"y", b"2");
    assert_eq!(store.transaction(&wrong), Err(StoreError::Conflict));
    assert_eq!(store.get(b"y"), Ok(Some(b"1".to_vec())));
    let right = Batch::new().when_still(b"x", Some(b"1")).when_still(b"z", None).delete(b"x").put(b"x", b"3");
    assert_eq!(store.transaction(&right), Ok(()));
    assert_eq!(store.get(b"x"), Ok(Some(b"3".to_vec())), "the last change of a key wins");
}

fn of_racing_writers_one_wins_each_round(store: &dyn Store) {
    const WRITERS: usize = 4;
    const ROUNDS: u64 = 25;
    std::thread::scope(|threads| {
        for _ in 0..WRITERS {
            threads.spawn(move || {
                let mut won = 0;
                while won < ROUNDS {
                    let read = store.get(b"n").unwrap_or_default();
                    let n: u64 =
                        read.as_deref().map_or(0, |b| b.iter().fold(0, |n, b| n * 256 + u64::from(*b)));
                    let next = (n + 1).to_be_bytes();
                    match store.transaction(&Batch::new().when_still(b"n", read.as_deref()).put(b"n", &next))
                    {
                        Ok(()) => won += 1,
                        Err(e) => assert_eq!(e, StoreError::Conflict),
                    }
                }
            });
        }
    });
    assert_eq!(store.get(b"n"), Ok(Some((WRITERS as u64 * ROUNDS).to_be_bytes().to_vec())));
}

fn a_fence_shuts_out_its_former_holder(store: &dyn Store) {
    let (Ok(old), Ok(other)) = (store.fence(b"node-a"), store.fence(b"node-b")) else {
        panic!("a fence could not be taken");
    };
    let write = |fence, value: &[u8]| store.transaction(&Batch::new().under(fence).put(b"k", value));
    assert_eq!(write(&old, b"old"), Ok(()));
    let Ok(new) = store.fence(b"node-a") else { panic!("a fence could not be taken again") };
    assert_eq!(write(&old, b"late"), Err(StoreError::Fenced));
    assert_eq!(store.get(b"k"), Ok(Some(b"old".to_vec())));
    assert_eq!(write(&other, b"other"), Ok(()), "fences of other names are not touched");
    assert_eq!(write(&new, b"new"), Ok(()));
    assert!(new.turn() > old.turn());
}

fn bounds_are_refused(store: &dyn Store) {
    let long = vec![b'k'; STORE_KEY_BYTES_MAX + 1];
    let refused = |r| matches!(r, Err(StoreError::Bounds(_)));
    assert!(refused(store.put(&long, b"")));
    assert!(refused(store.put(b"", b"")));
    assert!(refused(store.put(b"k", &vec![0; STORE_VALUE_BYTES_MAX + 1])));
    assert!(refused(store.fence(b"").map(drop)));
    let many = (0..=STORE_BATCH_CHANGES_MAX).fold(Batch::new(), |b, n| b.put(&n.to_be_bytes(), b""));
    assert!(refused(store.transaction(&many)));
    assert_eq!(collect(store, b""), Ok(Vec::new()), "what was refused changed nothing");
    assert_eq!(store.put(&long[1..], &vec![0; STORE_VALUE_BYTES_MAX]), Ok(()));
}

fn a_watch_tells_of_its_prefix_only(store: &dyn Store) {
    let Ok(watch) = store.watch(b"a/") else { panic!("no watch") };
    assert_eq!(watch.next(Duration::ZERO), None);
    for key in [&b"b/1"[..], b"a/1", b"a/2", b"a/1"] {
        assert_eq!(store.put(key, b"v"), Ok(()));
    }
    assert_eq!(
        store.transaction(&Batch::new().when_absent(b"a/1").put(b"a/3", b"")),
        Err(StoreError::Conflict)
    );
    let soon = Duration::from_secs(10);
    assert_eq!(watch.next(soon), Some(Seen::Key(b"a/1".to_vec())));
    assert_eq!(watch.next(soon), Some(Seen::Key(b"a/2".to_vec())));
    assert_eq!(watch.next(Duration::ZERO), None, "a transaction that failed is not told");
}

fn a_watch_that_overflows_says_so(store: &dyn Store) {
    let Ok(watch) = store.watch(b"") else { panic!("no watch") };
    let many = (0..STORE_BATCH_CHANGES_MAX).fold(Batch::new(), |b, n| b.put(&n.to_be_bytes(), b""));
    assert_eq!(store.transaction(&many), Ok(()));
    assert_eq!(watch.next(Duration::from_secs(10)), Some(Seen::Many));
    assert_eq!(watch.next(Duration::ZERO), None);
}
