//! Who is expected, who has come, and what waits for whom. Pure: moments and random bytes are handed in.

use std::time::{Duration, Instant};

use holdfast_base::ClientId;
use holdfast_base::limits::{SAME_HOST_WAIT_MS, SAME_HOST_WAITING_MAX};
use rustc_hash::FxHashMap;

/// What is said at the socket: 128 random bits, each good for one use.
pub(super) type Secret = [u8; 16];

/// One connection to the socket that has said who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Visit(u64);

/// The table, of descriptors `D`.
#[derive(Debug)]
pub(super) struct Table<D> {
    invited: FxHashMap<Secret, (ClientId, Instant)>,
    visits: FxHashMap<Visit, ClientId>,
    waiting: FxHashMap<Secret, (ClientId, D, Instant)>,
    last: u64,
}

impl<D> Default for Table<D> {
    fn default() -> Self {
        Self {
            invited: FxHashMap::default(),
            visits: FxHashMap::default(),
            waiting: FxHashMap::default(),
            last: 0,
        }
    }
}

const WAIT: Duration = Duration::from_millis(SAME_HOST_WAIT_MS);

impl<D> Table<D> {
    /// Expects a client that says this. False when too many are expected.
    pub(super) fn invite(&mut self, client: ClientId, nonce: Secret, now: Instant) -> bool {
        self.tidy(now);
        let has_room = self.invited.len() < SAME_HOST_WAITING_MAX;
        if has_room {
            self.invited.insert(nonce, (client, now + WAIT));
        }
        has_room
    }

    /// Somebody says this: a visit, if he is expected.
    pub(super) fn come(&mut self, nonce: &Secret, now: Instant) -> Option<Visit> {
        self.tidy(now);
        let (client, _) = self.invited.remove(nonce)?;
        self.last += 1;
        self.visits.insert(Visit(self.last), client);
        Some(Visit(self.last))
    }

    /// A visitor has left.
    pub(super) fn go(&mut self, visit: Visit) {
        self.visits.remove(&visit);
    }

    /// Whether a client has come.
    pub(super) fn is_here(&self, client: ClientId) -> bool {
        self.visits.values().any(|of| *of == client)
    }

    /// Keeps something for a client; gives it back when too much waits.
    pub(super) fn keep(&mut self, client: ClientId, token: Secret, what: D, now: Instant) -> Result<(), D> {
        self.tidy(now);
        if self.waiting.len() >= SAME_HOST_WAITING_MAX {
            return Err(what);
        }
        self.waiting.insert(token, (client, what, now + WAIT));
        Ok(())
    }

    /// What a visitor says to be his, if it is.
    pub(super) fn take(&mut self, visit: Visit, token: &Secret, now: Instant) -> Option<D> {
        self.tidy(now);
        let visitor = self.visits.get(&visit)?;
        if self.waiting.get(token)?.0 != *visitor {
            return None;
        }
        self.waiting.remove(token).map(|(_, what, _)| what)
    }

    /// Nothing is a client's any more. Its visits, which are to be ended.
    pub(super) fn forget(&mut self, client: ClientId) -> Vec<Visit> {
        self.invited.retain(|_, (of, _)| *of != client);
        self.waiting.retain(|_, (of, ..)| *of != client);
        self.visits.extract_if(|_, of| *of == client).map(|(visit, _)| visit).collect()
    }

    /// Drops what nobody came for.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.invited.retain(|_, (_, until)| *until > now);
        self.waiting.retain(|_, (.., until)| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    fn with_visit(table: &mut Table<u8>, client: ClientId, now: Instant) -> Visit {
        let nonce = [client.0 as u8; 16];
        assert!(table.invite(client, nonce, now));
        table.come(&nonce, now).unwrap()
    }

    #[test]
    fn only_who_was_invited_comes_and_once() {
        let (mut table, now) = (Table::<u8>::default(), Instant::now());
        assert!(table.invite(ONE, [7; 16], now));
        assert_eq!(table.come(&[8; 16], now), None);
        assert!(!table.is_here(ONE));
        let visit = table.come(&[7; 16], now).unwrap();
        assert!(table.is_here(ONE) && !table.is_here(OTHER));
        assert_eq!(table.come(&[7; 16], now), None, "a nonce is good for one use");
        table.go(visit);
        assert!(!table.is_here(ONE));
    }

    #[test]
    fn what_waits_is_given_to_whom_it_was_kept_for_and_once() {
        let (mut table, now) = (Table::default(), Instant::now());
        let (visit, stranger) = (with_visit(&mut table, ONE, now), with_visit(&mut table, OTHER, now));
        table.keep(ONE, [9; 16], 42, now).unwrap();
        assert_eq!(table.take(stranger, &[9; 16], now), None);
        assert_eq!(table.take(visit, &[9; 16], now), Some(42));
        assert_eq!(table.take(visit, &[9; 16], now), None);
    }

    #[test]
    fn who_is_forgotten_gets_nothing_and_is_told_to_go() {
        let (mut table, now) = (Table::default(), Instant::now());
        let visit = with_visit(&mut table, ONE, now);
        let neighbour = with_visit(&mut table, OTHER, now);
        assert!(table.invite(ONE, [5; 16], now));
        table.keep(ONE, [9; 16], 42, now).unwrap();
        table.keep(OTHER, [3; 16], 43, now).unwrap();
        assert_eq!(table.forget(ONE), [visit]);
        assert_eq!(table.take(visit, &[9; 16], now), None);
        assert_eq!(table.come(&[5; 16], now), None);
        assert_eq!(table.take(neighbour, &[3; 16], now), Some(43));
    }

    #[test]
    fn what_nobody_comes_for_goes_after_a_while_and_there_is_an_end_to_it() {
        let (mut table, now) = (Table::default(), Instant::now());
        for n in 0..SAME_HOST_WAITING_MAX {
            let secret = (n as u128).to_be_bytes();
            assert!(table.invite(ONE, secret, now));
            table.keep(ONE, secret, n, now).unwrap();
        }
        assert!(!table.invite(ONE, [255; 16], now));
        assert_eq!(table.keep(ONE, [255; 16], 7, now), Err(7));
        let later = now + WAIT;
        assert_eq!(table.come(&0u128.to_be_bytes(), later), None);
        assert!(table.invite(ONE, [255; 16], later));
        table.keep(ONE, [255; 16], 7, later).unwrap();
    }
}
