//! The finished calls of one client: what is known of each, and all their results one after the other, in the order in which
//! they ended. So keeping one and forgetting another go through memory in order, and of the index one place is touched, when
//! a call is kept; the forgotten are forgotten there too by being older than the oldest. (A map of 65,536 keys with a buffer
//! each took a fifth of a WRITE: nothing of it was in the processor's caches.)

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use bytes::Bytes;
use holdfast_base::Instant;
use holdfast_base::limits::REPLY_CACHE_ENTRIES_MAX;

use super::key::{Key, Secret};

/// Entries, or bytes of results, for which room is kept in any case.
const ROOM_MIN: usize = 1 << 10;
/// A place of the index names a call by so many bits of its number. More calls than that are never here
/// (`REPLY_CACHE_ENTRIES_MAX`), and of those of long ago the keys tell.
const NUMBER_BITS: u32 = 24;
const NUMBERS: u32 = (1 << NUMBER_BITS) - 1;
const _: () = assert!(REPLY_CACHE_ENTRIES_MAX < NUMBERS as usize / 2);
/// Places of the index at least, and for each call: so many that most hold one call or none.
const PLACES_MIN: usize = 64;
const PLACES_EACH: usize = 2;

struct Call {
    key: Key,
    at: Instant,
    /// Bytes of its results; none, where it only waits for somebody to run it.
    results: Option<u32>,
    /// The number of the call that the index had in its place before.
    before: u32,
    /// Where its results begin, counted from the first that were ever here.
    starts: u64,
}

/// What was forgotten.
pub(super) enum Oldest {
    /// A call with so many bytes of results.
    Done(usize),
    /// One that waited for somebody to run it.
    Vacant(Key),
}

#[derive(Default)]
pub(super) struct Kept {
    calls: VecDeque<Call>,
    /// The number that the next call gets. Numbers wrap around; which call one names follows from how far it is back, and
    /// only keys say whether it is the one that is looked for.
    next: u32,
    results: VecDeque<u8>,
    /// Where the results begin that are still here.
    results_from: u64,
    /// By hash, the number of the last call there, and above it a bit for the hash of each call there
    /// ([`bit_of`]); a power of two of them.
    index: Vec<u32>,
}

/// Of eight bits the one for this hash, by others of its bits than the place is taken from. A new call mostly finds a place
/// where older ones are; what its bit says need not be looked up among them, which are in no processor's cache.
const fn bit_of(hash: u64) -> u32 {
    1 << (NUMBER_BITS + (hash >> 61) as u32)
}

impl Kept {
    /// Calls here, those among them that wait for somebody to run them.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.results.len()
    }

    /// When the oldest came.
    pub(super) fn oldest_at(&self) -> Option<Instant> {
        self.calls.front().map(|call| call.at)
    }

    pub(super) fn find(&self, secret: &Secret, key: &Key) -> Option<Bytes> {
        self.results_of(self.newest(secret, key)?)
    }

    /// The last call of this key.
    fn newest(&self, secret: &Secret, key: &Key) -> Option<&Call> {
        let mut number = self.last_there(secret.hash_one(key))?;
        let mut back = 0;
        loop {
            // Each is older than the one before, or it is a number of long ago that names another now.
            let further = self.back_to(number);
            if further <= back || further > self.calls.len() {
                return None;
            }
            let call = &self.calls[self.calls.len() - further];
            if call.key == *key && call.results.is_some() {
                return Some(call);
            }
            (number, back) = (call.before, further);
        }
    }

    /// The number of the last call in this hash's place, if one of this hash can be there.
    fn last_there(&self, hash: u64) -> Option<u32> {
        self.index.get(self.place(hash)).copied().filter(|number| number & bit_of(hash) != 0)
    }

    fn place(&self, hash: u64) -> usize {
        hash as usize & self.index.len().wrapping_sub(1)
    }

    /// How far back the call of this number is, whatever bits are above it.
    const fn back_to(&self, number: u32) -> usize {
        (self.next.wrapping_sub(number) & NUMBERS) as usize
    }

    fn is_here(&self, number: u32) -> bool {
        let back = self.back_to(number);
        back > 0 && back <= self.calls.len()
    }

    /// Has the index name this call for its hash; gives what it named before.
    fn enter(&mut self, hash: u64, number: u32) -> u32 {
        let place = self.place(hash);
        let before = self.index[place];
        // Where none is left that can be found, the bits are those of the forgotten.
        let bits = if self.is_here(before) { before & !NUMBERS } else { 0 };
        self.index[place] = bits | bit_of(hash) | number & NUMBERS;
        before
    }

    fn results_of(&self, call: &Call) -> Option<Bytes> {
        let from = (call.starts - self.results_from) as usize;
        Some(self.results.range(from..from + call.results? as usize).copied().collect())
    }

    pub(super) fn keep(&mut self, secret: &Secret, key: Key, at: Instant, results: &[u8]) {
        if self.index.len() < PLACES_EACH * (self.calls.len() + 1) {
            self.index_anew(secret, (self.index.len() * 2).max(PLACES_MIN));
        }
        let before = self.enter(secret.hash_one(key), self.next);
        self.push(key, at, (Some(results.len() as u32), before));
        self.results.extend(results);
    }

    /// Notes a call that waits for somebody to run it.
    pub(super) fn note_vacant(&mut self, key: Key, at: Instant) {
        self.push(key, at, (None, self.next));
    }

    fn push(&mut self, key: Key, at: Instant, (results, before): (Option<u32>, u32)) {
        let starts = self.results_from + self.results.len() as u64;
        self.calls.push_back(Call { key, at, results, before, starts });
        self.next = self.next.wrapping_add(1);
    }

    /// Forgets the oldest.
    pub(super) fn drop_oldest(&mut self, secret: &Secret) -> Option<Oldest> {
        let call = self.calls.pop_front()?;
        let Some(bytes) = call.results else { return Some(Oldest::Vacant(call.key)) };
        self.results.drain(..bytes as usize);
        self.results_from += u64::from(bytes);
        self.give_back(secret);
        Some(Oldest::Done(bytes as usize))
    }

    /// Gives back memory of which less than a quarter is used.
    fn give_back(&mut self, secret: &Secret) {
        let enough = |used: usize, has: usize| (has > ROOM_MIN && used < has / 4).then_some(2 * used);
        if let Some(room) = enough(self.results.len(), self.results.capacity()) {
            self.results.shrink_to(room);
        }
        if let Some(room) = enough(self.calls.len(), self.calls.capacity()) {
            self.calls.shrink_to(room);
            self.index_anew(secret, (PLACES_EACH * room).next_power_of_two().max(PLACES_MIN));
        }
    }

    fn index_anew(&mut self, secret: &Secret, places: usize) {
        // Names no call, old as it is, and has none's bit.
        let none = self.next.wrapping_sub(self.calls.len() as u32 + 1) & NUMBERS;
        self.index.clear();
        self.index.resize(places, none);
        self.index.shrink_to_fit();
        let first = self.next.wrapping_sub(self.calls.len() as u32);
        for n in 0..self.calls.len() {
            if self.calls[n].results.is_some() {
                let hash = secret.hash_one(self.calls[n].key);
                self.calls[n].before = self.enter(hash, first.wrapping_add(n as u32));
            }
        }
    }

    /// All that can be found, oldest first.
    pub(super) fn each(&self, secret: &Secret) -> impl Iterator<Item = (Key, Bytes)> {
        let is_newest =
            |call: &&Call| self.newest(secret, &call.key).is_some_and(|it| std::ptr::eq(it, *call));
        self.calls.iter().filter(is_newest).filter_map(|call| Some((call.key, self.results_of(call)?)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn key(xid: u32) -> Key {
        let client = IpAddr::from([10, 0, 0, 1]);
        Key { client, xid, program: 1, version: 1, procedure: 1, length: 4, sum: 9 }
    }

    /// Keeps and forgets as a client that always has so many, from this number on.
    fn churn(kept: &mut Kept, secret: &Secret, many: u32, rounds: u32) {
        for xid in 0..rounds {
            kept.keep(secret, key(xid), Instant(0), &xid.to_be_bytes());
            if kept.len() > many as usize {
                assert!(matches!(kept.drop_oldest(secret), Some(Oldest::Done(4))));
            }
            let oldest = (xid + 1).saturating_sub(many);
            assert_eq!(kept.find(secret, &key(oldest)).unwrap(), oldest.to_be_bytes()[..]);
            assert_eq!(kept.find(secret, &key(xid)).unwrap(), xid.to_be_bytes()[..]);
            assert!(oldest == 0 || kept.find(secret, &key(oldest - 1)).is_none(), "it was forgotten");
            assert!(kept.find(secret, &key(xid + 1)).is_none());
        }
    }

    #[test]
    fn all_that_were_not_forgotten_are_found_and_no_other() {
        let secret = Secret::default();
        for many in [1, 7, 100, 1000] {
            churn(&mut Kept::default(), &secret, many, 5000);
        }
    }

    #[test]
    fn so_they_are_when_their_numbers_wrap_around() {
        let mut kept = Kept { next: u32::MAX - 2000, ..Kept::default() };
        churn(&mut kept, &Secret::default(), 300, 5000);
    }

    #[test]
    fn of_a_new_call_its_place_mostly_says_that_it_is_not_among_those_there() {
        // Whatever the secret: they differ by what chance makes of the numbers' order.
        for _ in 0..20 {
            let (mut kept, secret) = (Kept::default(), Secret::default());
            (0..8000).for_each(|xid| kept.keep(&secret, key(xid), Instant(0), &[]));
            for xid in 8000..30_000 {
                kept.keep(&secret, key(xid), Instant(0), &[]);
                kept.drop_oldest(&secret);
            }
            let looks = |xid: &u32| {
                let last = kept.last_there(secret.hash_one(key(*xid)));
                last.is_some_and(|number| kept.is_here(number))
            };
            let looked = (30_000..40_000).filter(looks).count();
            // With half as many calls as places at most, 4 of 10 find some there; by the bit, a fifth of them look.
            assert!(looked < 1000, "{looked} of 10,000");
        }
    }

    #[test]
    fn of_two_of_one_key_the_newer_is_found_and_told() {
        let (mut kept, secret) = (Kept::default(), Secret::default());
        kept.keep(&secret, key(1), Instant(0), b"old");
        kept.note_vacant(key(1), Instant(0));
        kept.keep(&secret, key(1), Instant(0), b"new");
        assert_eq!(kept.find(&secret, &key(1)).unwrap(), b"new"[..]);
        assert_eq!(kept.each(&secret).count(), 1);
        kept.drop_oldest(&secret);
        assert!(matches!(kept.drop_oldest(&secret), Some(Oldest::Vacant(_))));
        assert_eq!(kept.find(&secret, &key(1)).unwrap(), b"new"[..]);
    }

    #[test]
    fn memory_is_given_back_when_most_were_forgotten() {
        let (mut kept, secret) = (Kept::default(), Secret::default());
        (0..50_000).for_each(|xid| kept.keep(&secret, key(xid), Instant(0), &[7; 100]));
        let full = (kept.calls.capacity(), kept.results.capacity(), kept.index.capacity());
        (0..49_900).for_each(|_| assert!(kept.drop_oldest(&secret).is_some()));
        let left = (kept.calls.capacity(), kept.results.capacity(), kept.index.capacity());
        assert!(left.0 < full.0 / 16 && left.1 < full.1 / 16 && left.2 < full.2 / 16, "{left:?} of {full:?}");
        assert_eq!(kept.find(&secret, &key(49_950)).unwrap(), [7; 100][..]);
    }
}
