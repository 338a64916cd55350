use std::hash::BuildHasher as _;

use holdfast_base::ManualClock;
use holdfast_xdr::Writer;

use super::key::fold;
use super::*;
use crate::auth::Auth;
use crate::callback::OutgoingCall;
use crate::detached::Detached;
use crate::server::Limits;
use crate::service::{Call, Program};

const SMALL: ReplyCacheLimits = ReplyCacheLimits { entries: 10, bytes: 1000, age_ms: 1000 };

fn key(client: u8, xid: u32) -> Key {
    let client = IpAddr::from([10, 0, 0, client]);
    Key { client, xid, program: 100_003, version: 3, procedure: 8, length: 4, sum: 9 }
}

fn cache() -> (Arc<ReplyCache>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (ReplyCache::new(SMALL, clock.clone()), clock)
}

fn run(cache: &Arc<ReplyCache>, key: Key, results: &[u8]) {
    match cache.begin(key) {
        Begin::New(token) => token.finish(results),
        other => panic!("{key:?} is not new: {other:?}"),
    }
}

fn is_cached(cache: &Arc<ReplyCache>, key: Key) -> bool {
    matches!(cache.begin(key), Begin::Replay(_))
}

#[test]
fn a_call_that_ran_is_answered_with_its_results() {
    let (cache, _) = cache();
    run(&cache, key(1, 1), b"done");
    assert!(matches!(cache.begin(key(1, 1)), Begin::Replay(r) if r == b"done"[..]));
    for other in [key(1, 2), key(2, 1), Key { sum: 1, ..key(1, 1) }, Key { procedure: 9, ..key(1, 1) }] {
        assert!(matches!(cache.begin(other), Begin::New(_)), "{other:?}");
    }
}

#[test]
fn a_token_dropped_leaves_nothing() {
    let (cache, _) = cache();
    let first = cache.begin(key(1, 1));
    assert!(matches!(cache.begin(key(1, 1)), Begin::Running(_)));
    drop(first);
    assert!(cache.is_empty());
    assert!(matches!(cache.begin(key(1, 1)), Begin::New(_)));
}

#[test]
fn entries_and_bytes_stay_within_their_bounds() {
    let (cache, _) = cache();
    for xid in 0..100 {
        run(&cache, key(1, xid), &[0; 30]);
        assert!(cache.len() <= SMALL.entries && cache.bytes() <= SMALL.bytes);
    }
    for xid in 100..200 {
        run(&cache, key(1, xid), &[0; 300]);
        assert!(cache.len() <= SMALL.entries && cache.bytes() <= SMALL.bytes);
    }
    assert!(is_cached(&cache, key(1, 199)), "the newest is there");
    let huge = vec![0; limits::REPLY_CACHE_REPLY_BYTES_MAX + 1];
    run(&cache, key(1, 200), &huge);
    assert!(!is_cached(&cache, key(1, 200)), "what is too large is not kept");
}

#[test]
fn one_clients_flood_leaves_anothers_entries() {
    let (cache, _) = cache();
    run(&cache, key(1, 1), b"precious");
    for xid in 0..1000 {
        run(&cache, key(2, xid), b"flood");
    }
    assert!(is_cached(&cache, key(1, 1)));
}

#[test]
fn running_calls_beyond_the_bound_run_unnoted() {
    let (cache, _) = cache();
    let running: Vec<_> = (0..20).map(|xid| cache.begin(key(1, xid))).collect();
    assert!(running.iter().all(|b| matches!(b, Begin::New(_))));
    assert_eq!(cache.len(), SMALL.entries);
    drop(running);
    assert!(cache.is_empty());
}

#[test]
fn entries_go_when_they_are_old() {
    let (cache, clock) = cache();
    run(&cache, key(1, 1), b"x");
    clock.advance(std::time::Duration::from_millis(1001));
    assert!(matches!(cache.begin(key(1, 1)), Begin::New(_)));
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn a_key_comes_back_from_its_bytes() {
    for client in ["192.0.2.7", "2001:db8::7"] {
        let key = Key { client: client.parse().unwrap(), ..key(1, 77) };
        let bytes = holdfast_xdr::to_bytes(&key);
        assert_eq!(bytes.len(), 44);
        assert_eq!(holdfast_xdr::from_bytes(&bytes), Ok(key));
    }
}

#[test]
fn what_was_kept_elsewhere_is_answered_again() {
    let cache = ReplyCache::new(SMALL, Arc::new(ManualClock::default()));
    cache.restore([(key(1, 1), Bytes::from_static(b"four"))]);
    assert!(matches!(cache.begin(key(1, 1)), Begin::Replay(r) if r == b"four"[..]));
}

/// Holds every first call back until it is told its results.
struct Slow {
    cache: Arc<ReplyCache>,
    slot: Arc<Mutex<Option<(Token, PendingReply)>>>,
}

impl Program for Slow {
    fn number(&self) -> u32 {
        7
    }
    fn versions(&self) -> (u32, u32) {
        (1, 1)
    }
    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        match self.cache.begin(Key::of(7, call)) {
            Begin::Replay(results) => {
                reply.put(&results);
                Outcome::Reply
            }
            Begin::Running(duplicate) => duplicate.outcome(),
            Begin::New(token) => {
                let slot = Arc::clone(&self.slot);
                Outcome::Park(Box::new(move |pending| *slot.lock() = Some((token, pending))))
            }
        }
    }
}

fn slow() -> (Arc<Slow>, Detached, Detached) {
    let cache = ReplyCache::new(SMALL, Arc::new(ManualClock::default()));
    let slow = Arc::new(Slow { cache, slot: Arc::default() });
    let first = Detached::new(vec![slow.clone()], Limits::default()).unwrap();
    // The same client, reconnected from another port.
    let second = first.another("127.0.0.1:999".parse().unwrap());
    (slow, first, second)
}

const CALL: OutgoingCall<'_> =
    OutgoingCall { program: 7, version: 1, procedure: 5, auth: &Auth::None, args: b"args" };

fn finish((token, mut pending): (Token, PendingReply), results: &[u8]) {
    token.finish(results);
    pending.writer().put(results);
    pending.send();
}

fn answers(client: &Detached) -> Vec<Vec<u8>> {
    client.sent().iter().map(|record| Detached::results(record).unwrap().to_vec()).collect()
}

#[test]
fn duplicates_of_a_running_call_get_its_one_answer() {
    let (slow, mut first, mut second) = slow();
    assert!(first.call(42, &CALL).is_empty());
    assert!(second.call(42, &CALL).is_empty(), "the duplicate waits");
    let running = slow.slot.lock().take().unwrap();
    finish(running, b"once");
    assert_eq!(answers(&first), [b"once"]);
    assert_eq!(answers(&second), [b"once"]);
    let again = second.call(42, &CALL);
    assert_eq!(Detached::results(&again[0]), Some(&b"once"[..]), "a later one is answered from the cache");
}

#[test]
fn a_duplicate_waits_on_while_the_call_moves_to_the_pool() {
    let (slow, mut first, mut second) = slow();
    first.call(42, &CALL);
    second.call(42, &CALL);
    let (token, pending) = slow.slot.lock().take().unwrap();
    drop(token);
    pending.abandon();
    assert!(first.call(42, &CALL).is_empty(), "runs anew, as it would on the pool");
    let running = slow.slot.lock().take().unwrap();
    finish(running, b"done");
    assert_eq!(answers(&first), [b"done"]);
    assert_eq!(answers(&second), [b"done"]);
    assert_eq!(slow.cache.len(), 1);
}

#[test]
fn those_who_wait_for_a_call_that_never_runs_are_let_go() {
    let (slow, mut first, mut second) = slow();
    first.call(42, &CALL);
    second.call(42, &CALL);
    drop(slow.slot.lock().take());
    assert_eq!(slow.cache.len(), 1);
    for xid in 100..120 {
        let call = Key { client: IpAddr::from([127, 0, 0, 1]), ..key(1, xid) };
        run(&slow.cache, call, b"x");
    }
    assert!(answers(&second).is_empty());
    assert_eq!(slow.cache.len(), SMALL.entries);
    assert!(second.call(42, &CALL).is_empty());
    assert!(slow.slot.lock().take().is_some(), "it is new again");
}

/// The key of a call of `args` by somebody.
fn key_of(sys: crate::auth::AuthSys, args: &[u8]) -> Key {
    struct Keyed(Mutex<Option<Key>>);
    impl Program for Keyed {
        fn number(&self) -> u32 {
            1
        }
        fn versions(&self) -> (u32, u32) {
            (1, 1)
        }
        fn call(&self, call: &mut Call<'_>, _: &mut Writer) -> Outcome {
            *self.0.lock() = Some(Key::of(1, call));
            Outcome::Reply
        }
    }
    let program = Arc::new(Keyed(Mutex::default()));
    let mut client = Detached::new(vec![program.clone()], Limits::default()).unwrap();
    let auth = Auth::Sys(sys);
    client.call(9, &OutgoingCall { program: 1, version: 1, procedure: 1, auth: &auth, args });
    program.0.lock().unwrap()
}

#[test]
fn the_whole_credential_and_all_arguments_but_bulk_data_tell_calls_apart() {
    use crate::auth::AuthSys;
    let base = AuthSys { uid: 1, gid: 2, groups: vec![3], machine: b"one".to_vec() };
    let args = vec![7; 5000];
    let key = key_of(base.clone(), &args);
    assert_eq!(key_of(base.clone(), &args), key);
    for other in [
        AuthSys { machine: b"two".to_vec(), ..base.clone() },
        AuthSys { groups: vec![4], ..base.clone() },
        AuthSys { groups: vec![], ..base.clone() },
        AuthSys { uid: 2, ..base.clone() },
    ] {
        assert_ne!(key_of(other.clone(), &args), key, "{other:?}");
    }
    for at in [0, 300, 4999] {
        let mut changed = args.clone();
        changed[at] = 8;
        assert_ne!(key_of(base.clone(), &changed), key, "byte {at}");
    }
}

#[test]
fn those_who_wait_for_a_call_that_is_put_off_hear_it_too_and_nothing_is_kept() {
    let (cache, _) = cache();
    struct Waits(Arc<ReplyCache>);
    impl Program for Waits {
        fn number(&self) -> u32 {
            1
        }
        fn versions(&self) -> (u32, u32) {
            (1, 1)
        }
        fn call(&self, _: &mut Call<'_>, _: &mut Writer) -> Outcome {
            match self.0.begin(key(1, 1)) {
                Begin::Running(duplicate) => duplicate.outcome(),
                _ => Outcome::Silent,
            }
        }
    }
    let Begin::New(token) = cache.begin(key(1, 1)) else { panic!("new") };
    let mut client = Detached::new(vec![Arc::new(Waits(cache.clone()))], Limits::default()).unwrap();
    let call = OutgoingCall { program: 1, version: 1, procedure: 1, auth: &Detached::NOBODY, args: &[] };
    assert!(client.call(5, &call).is_empty());
    token.decline(b"later...");
    let sent = client.sent();
    assert_eq!(sent.iter().map(|r| Detached::results(r)).collect::<Vec<_>>(), [Some(&b"later..."[..])]);
    assert!(cache.is_empty());
}

#[test]
fn every_byte_of_bulk_data_counts_in_the_sum_whatever_its_length() {
    for length in [1_usize, 7, 8, 9, 31, 32, 33, 100, 1000] {
        let data: Vec<u8> = (0..length).map(|n| (n * 31) as u8).collect();
        let sum = fold(&data);
        for at in 0..length {
            let mut other = data.clone();
            other[at] ^= 1 << (at % 8);
            assert_ne!(fold(&other), sum, "byte {at} of {length}");
        }
        assert_ne!(fold(&data[..length - 1]), sum);
        let swapped: Vec<u8> = data.iter().rev().copied().collect();
        assert!(length == 1 || fold(&swapped) != sum);
    }
}

#[test]
fn calls_that_a_client_chose_do_not_share_a_hash() {
    let secret = Secret::default();
    // Sums are no secret: who tries long enough has one for each xid that makes up for it.
    let chosen = (0..1000_u32).map(|xid| Key { sum: u64::from(xid) << 32, ..key(1, xid) });
    let hashes: std::collections::HashSet<_> = chosen.clone().map(|key| secret.hash_one(key)).collect();
    assert_eq!(hashes.len(), 1000);
    let other: std::collections::HashSet<_> = chosen.map(|key| Secret::default().hash_one(key)).collect();
    assert!(hashes.is_disjoint(&other), "another process has other hashes");
}
