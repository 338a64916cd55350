//! The duplicate-request cache of NFSv3 and NFSv4.0: a mutation that is sent again is answered as it was the first
//! time, and one that is still running is answered once it is done. Programs consult it for the procedures that
//! must not run twice, and only for those.
//!
//! A call is known by its client's address without the port, its xid, program, version, procedure, credential (all of
//! it, the name that the client's host gives itself included), and arguments (length, and a sum over all but bulk
//! data). Linux keeps the xid of a retry and usually, but not always, the port after a reconnect; nfsd compares the
//! port too and misses those. What a false hit would need instead is two clients behind one address whose hosts have
//! one name, and who send the same bytes as the same user under the same xid within minutes.

mod kept;
mod key;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_base::{Clock, Instant, limits};
use parking_lot::Mutex;

use self::kept::{Kept, Oldest};
pub use self::key::Key;
use self::key::Secret;
use crate::pending::PendingReply;
use crate::service::Outcome;

/// Entries taken at once from the client that has most, so that looking for it is rare.
const EVICT_BATCH: usize = 64;

/// The bounds of a cache; by default those of [`holdfast_base::limits`].
#[derive(Clone, Copy, Debug)]
pub struct ReplyCacheLimits {
    /// Entries, running calls among them.
    pub entries: usize,
    /// Bytes of all results.
    pub bytes: usize,
    /// Milliseconds after which an entry goes.
    pub age_ms: u64,
}

impl Default for ReplyCacheLimits {
    fn default() -> Self {
        Self {
            entries: limits::REPLY_CACHE_ENTRIES_MAX,
            bytes: limits::REPLY_CACHE_BYTES_MAX,
            age_ms: limits::REPLY_CACHE_SECONDS * 1000,
        }
    }
}

/// How a call stands to the cache.
#[derive(Debug)]
pub enum Begin {
    /// It is new: run it, and finish the token with its results.
    New(Token),
    /// It ran: these are its results.
    Replay(Bytes),
    /// It is running.
    Running(Duplicate),
}

/// A call that is not finished.
struct Open {
    /// If not, its token was dropped (the call is to run again on the pool, or failed), but others wait for the answer: they
    /// get that of the next one to run it.
    is_running: bool,
    waiters: Vec<PendingReply>,
}

/// Clients choose their calls, and addresses in their networks: with a hash that they know, all of them could be in each
/// other's way, under the one lock.
#[derive(Default)]
struct Inner {
    secret: Secret,
    open: HashMap<Key, Open, Secret>,
    /// Finished calls, and those that wait for somebody to run them: these may be here, as they were, when they run again.
    clients: BTreeMap<IpAddr, Kept>,
    /// Finished calls of all clients.
    done: usize,
    bytes: usize,
}

impl Inner {
    fn len(&self) -> usize {
        self.open.len() + self.done
    }

    /// The results of a finished call.
    fn results(&self, key: &Key) -> Option<Bytes> {
        self.clients.get(&key.client)?.find(&self.secret, key)
    }

    /// Ends a running call's entry and returns who waited for it.
    fn drop_running(&mut self, key: &Key) -> Vec<PendingReply> {
        self.open.remove(key).map_or_else(Vec::new, |open| open.waiters)
    }

    fn drop_oldest(&mut self, ip: IpAddr) -> bool {
        let Some(client) = self.clients.get_mut(&ip) else { return false };
        match client.drop_oldest(&self.secret) {
            None => return false,
            Some(Oldest::Done(bytes)) => {
                self.done -= 1;
                self.bytes -= bytes;
            }
            // Nobody ran it again: its client gave up, or will send it once more.
            Some(Oldest::Vacant(key)) => {
                if self.open.get(&key).is_some_and(|open| !open.is_running) {
                    self.open
                        .remove(&key)
                        .into_iter()
                        .flat_map(|open| open.waiters)
                        .for_each(PendingReply::abandon);
                }
            }
        }
        if client.len() == 0 {
            self.clients.remove(&ip);
        }
        true
    }
}

/// The cache.
pub struct ReplyCache {
    limits: ReplyCacheLimits,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

impl ReplyCache {
    /// An empty cache.
    #[must_use]
    pub fn new(limits: ReplyCacheLimits, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { limits, clock, inner: Mutex::default() })
    }

    /// Asks whether a call is new, before anything of it is done. A token may be dropped on the way to the pool
    /// ([`Outcome::Offload`]) and the question asked again there.
    pub fn begin(self: &Arc<Self>, key: Key) -> Begin {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        self.expire(&mut inner, key.client, now);
        if let Some(open) = inner.open.get_mut(&key) {
            if std::mem::replace(&mut open.is_running, true) {
                return Begin::Running(Duplicate { cache: Arc::clone(self), key });
            }
            return Begin::New(Token { cache: Arc::clone(self), key, is_open: true });
        }
        if let Some(results) = inner.results(&key) {
            return Begin::Replay(results);
        }
        // Room is made only for what is new: making it might throw out the very answer that is asked for.
        let is_full = |inner: &Inner| inner.len() >= self.limits.entries;
        while is_full(&inner) && self.evict(&mut inner, key.client) {}
        let has_room = !is_full(&inner);
        if has_room {
            inner.open.insert(key, Open { is_running: true, waiters: Vec::new() });
        }
        drop(inner);
        Begin::New(Token { cache: Arc::clone(self), key, is_open: has_room })
    }

    /// Puts back finished calls that the journal kept, oldest first.
    pub fn restore(&self, entries: impl IntoIterator<Item = (Key, Bytes)>) {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        for (key, results) in entries {
            self.settle(&mut inner, key, &results, now);
        }
    }

    /// The finished calls, each client's oldest first: for [`ReplyCache::restore`] elsewhere.
    #[must_use]
    pub fn finished(&self) -> Vec<(Key, Bytes)> {
        let inner = self.inner.lock();
        let each = |client: &Kept| client.each(&inner.secret).collect::<Vec<_>>();
        inner.clients.values().flat_map(each).collect()
    }

    /// Entries held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lock().len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of results held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.lock().bytes
    }

    fn finish(&self, key: Key, results: &[u8]) {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let waiters = if results.len() <= limits::REPLY_CACHE_REPLY_BYTES_MAX {
            self.settle(&mut inner, key, results, now)
        } else {
            inner.drop_running(&key)
        };
        drop(inner);
        answer(waiters, results);
    }

    /// As [`ReplyCache::finish`], but nothing is kept.
    fn decline(&self, key: &Key, results: &[u8]) {
        let waiters = self.inner.lock().drop_running(key);
        answer(waiters, results);
    }

    /// Makes a running entry a finished one and returns who waited for it.
    fn settle(&self, inner: &mut Inner, key: Key, results: &[u8], now: Instant) -> Vec<PendingReply> {
        let waiters = inner.drop_running(&key);
        let Inner { clients, secret, .. } = inner;
        clients.entry(key.client).or_default().keep(secret, key, now, results);
        inner.done += 1;
        inner.bytes += results.len();
        while inner.bytes > self.limits.bytes && self.evict(inner, key.client) {}
        waiters
    }

    fn forget(&self, key: &Key) {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let waiters = inner.drop_running(key);
        if !waiters.is_empty() {
            inner.open.insert(*key, Open { is_running: false, waiters });
            inner.clients.entry(key.client).or_default().note_vacant(*key, now);
        }
    }

    fn expire(&self, inner: &mut Inner, client: IpAddr, now: Instant) {
        while let Some(at) = inner.clients.get(&client).and_then(Kept::oldest_at)
            && now.ms_since(at) > self.limits.age_ms
        {
            inner.drop_oldest(client);
        }
    }

    /// Makes room: at the cost of the client that asks for it when it has its share, else of the one
    /// that has most. False when nothing finished is left.
    fn evict(&self, inner: &mut Inner, asking: IpAddr) -> bool {
        let share = inner.len() / inner.clients.len().max(1);
        if inner.clients.get(&asking).is_some_and(|client| client.len() >= share) {
            return inner.drop_oldest(asking);
        }
        let most = inner.clients.iter().max_by_key(|(_, c)| (c.len(), c.bytes())).map(|(ip, _)| *ip);
        let Some(most) = most else { return false };
        (0..EVICT_BATCH.min(1 + inner.len() / 2)).filter(|_| inner.drop_oldest(most)).count() > 0
    }
}

fn answer(waiters: Vec<PendingReply>, results: &[u8]) {
    for mut waiter in waiters {
        waiter.reset();
        waiter.writer().put(results);
        waiter.send();
    }
}

impl std::fmt::Debug for ReplyCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyCache").field("entries", &self.len()).finish_non_exhaustive()
    }
}

/// The right and duty to run a call. Dropped unfinished, the call counts as never having come.
#[derive(Debug)]
#[must_use]
pub struct Token {
    cache: Arc<ReplyCache>,
    key: Key,
    is_open: bool,
}

impl Token {
    /// The call's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The call ran; these are its results, as the program encoded them. Before its own reply is sent.
    pub fn finish(mut self, results: &[u8]) {
        if std::mem::take(&mut self.is_open) {
            self.cache.finish(self.key, results);
        }
    }
}

impl Token {
    /// The call did not run, and these results tell the client to ask again ("try later"). Those who wait get them
    /// too; the next to ask runs it.
    pub fn decline(mut self, results: &[u8]) {
        if std::mem::take(&mut self.is_open) {
            self.cache.decline(&self.key, results);
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if self.is_open {
            self.cache.forget(&self.key);
        }
    }
}

/// A second sending of a call that is running.
#[derive(Debug)]
#[must_use]
pub struct Duplicate {
    cache: Arc<ReplyCache>,
    key: Key,
}

impl Duplicate {
    /// What the program returns for it: it is answered when the first is.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        Outcome::Park(Box::new(move |pending| self.attach(pending)))
    }

    fn attach(self, mut pending: PendingReply) {
        let mut inner = self.cache.inner.lock();
        let results = match inner.open.get_mut(&self.key) {
            Some(open) if open.is_running && open.waiters.len() < limits::REPLY_CACHE_WAITERS_MAX => {
                open.waiters.push(pending);
                return;
            }
            _ => inner.results(&self.key),
        };
        drop(inner);
        match results {
            Some(results) => {
                pending.reset();
                pending.writer().put(&results);
                pending.send();
            }
            None => pending.abandon(),
        }
    }
}

#[cfg(test)]
#[path = "reply_cache/tests.rs"]
mod tests;
