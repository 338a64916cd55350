//! The duplicate-request cache of NFSv3 and NFSv4.0: a mutation that is sent again is answered as it was the first
//! time, and one that is still running is answered once it is done. Programs consult it for the procedures that
//! must not run twice, and only for those.
//!
//! A call is known by its client's address without the port, its xid, program, version, procedure, credential (all of
//! it, the name that the client's host gives itself included), and arguments (length, and a sum over all but bulk
//! data). Linux keeps the xid of a retry and usually, but not always, the port after a reconnect; nfsd compares the
//! port too and misses those. What a false hit would need instead is two clients behind one address whose hosts have
//! one name, and who send the same bytes as the same user under the same xid within minutes.

use std::collections::{BTreeMap, HashMap, VecDeque, hash_map};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_base::{Clock, Instant, limits};
use holdfast_xdr::{Decode, Encode, Reader, Writer};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use crate::auth::Auth;
use crate::pending::PendingReply;
use crate::service::{Call, Outcome};

/// Bytes of the arguments that the sum covers: everything but what a WRITE carries. Handles, names, attributes and a
/// link's text fit. To sum a whole WRITE would cost as much as to do it, and one may be done twice.
const SUM_BYTES: usize = 8 << 10;

/// Bytes of them, with the credential, under a hash that nobody can aim at another's call. What follows is data of the
/// same call by the same user, who would deceive only himself: a quicker sum does, for this is half of a WRITE's cost.
const SUM_HEAD_BYTES: usize = 512;

/// Entries taken at once from the client that has most, so that looking for it is rare.
const EVICT_BATCH: usize = 64;

/// What two sendings of one call have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The client's address.
    pub client: IpAddr,
    /// Transaction id.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Bytes of the arguments.
    pub length: u32,
    /// Over the credential and the arguments but for bulk data. Stable across restarts.
    pub sum: u64,
}

impl std::hash::Hash for Key {
    /// The sum is a hash of nearly all the rest, but not by a secret: what it is and the xid are the client's to choose.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.sum);
        state.write_u32(self.xid);
    }
}

/// Hashes keys by a secret of this process, at a fifth of what the standard library's hash costs: keys are two words, of
/// which one is a hash.
struct Secret([u64; 2]);

impl Default for Secret {
    fn default() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1) | 1])
    }
}

impl BuildHasher for Secret {
    type Hasher = SecretHasher;

    fn build_hasher(&self) -> SecretHasher {
        SecretHasher { hash: self.0[0], factor: self.0[1] }
    }
}

/// Multiplies what has come so far by a secret factor, and folds the product.
struct SecretHasher {
    hash: u64,
    factor: u64,
}

impl Hasher for SecretHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.hash = mix(self.hash ^ n, self.factor);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A quick sum: four lanes of 16 bytes a multiplication, so that none waits for the one before.
fn fold(bytes: &[u8]) -> u64 {
    const SECRETS: [u64; 4] =
        [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x27d4_eb2f_1656_67c5];
    // Neither is a lane's start: a factor of nothing would make nothing of all before it.
    const LAST: [u64; 2] = [0x85eb_ca77_c2b2_ae63, 0xff51_afd7_ed55_8ccd];
    let (rows, rest) = bytes.as_chunks::<64>();
    let mut lanes = SECRETS;
    for row in rows {
        let (pairs, _) = row.as_chunks::<16>();
        for ((lane, pair), secret) in lanes.iter_mut().zip(pairs).zip(SECRETS) {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| pair[at + i]));
            *lane = mix(word(0) ^ secret, word(8) ^ *lane);
        }
    }
    let (words, last) = rest.as_chunks::<8>();
    let last = last.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).chain([last]);
    lanes.into_iter().chain(words).fold(bytes.len() as u64, |sum, word| mix(sum ^ LAST[0], word ^ LAST[1]))
}

impl Key {
    /// The key of a call whose arguments have not been read yet.
    #[must_use]
    pub fn of(program: u32, call: &Call<'_>) -> Self {
        let args = call.args.rest();
        let mut hasher = SipHasher13::new();
        if let Auth::Sys(sys) = &**call.auth {
            hasher.write_u32(sys.uid);
            hasher.write_u32(sys.gid);
            hasher.write_usize(sys.groups.len());
            sys.groups.iter().for_each(|gid| hasher.write_u32(*gid));
            hasher.write_usize(sys.machine.len());
            hasher.write(&sys.machine);
        }
        let summed = &args[..args.len().min(SUM_BYTES)];
        let (head, bulk) = summed.split_at(summed.len().min(SUM_HEAD_BYTES));
        hasher.write(head);
        if !bulk.is_empty() {
            hasher.write_u64(fold(bulk));
        }
        Self {
            client: call.connection.peer().ip(),
            xid: call.xid,
            program,
            version: call.version,
            procedure: call.procedure,
            length: args.len() as u32,
            sum: hasher.finish(),
        }
    }
}

/// The form in which the journal keeps keys: 44 bytes. An IPv4 address is kept as an IPv4-mapped one.
impl Encode for Key {
    fn encode(&self, w: &mut Writer) {
        let ip = match self.client {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        w.fixed(&ip.octets());
        for word in [self.xid, self.program, self.version, self.procedure, self.length] {
            w.u32(word);
        }
        w.u64(self.sum);
    }
}

impl Decode<'_> for Key {
    fn decode(r: &mut Reader<'_>) -> holdfast_xdr::Result<Self> {
        Ok(Self {
            client: IpAddr::from(r.array::<16>()?).to_canonical(),
            xid: r.u32()?,
            program: r.u32()?,
            version: r.u32()?,
            procedure: r.u32()?,
            length: r.u32()?,
            sum: r.u64()?,
        })
    }
}

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

enum Entry {
    Running {
        waiters: Vec<PendingReply>,
    },
    /// Its token was dropped (the call is to run again on the pool, or failed), but others wait for the answer:
    /// they get that of the next one to run it.
    Vacant {
        waiters: Vec<PendingReply>,
    },
    Done {
        results: Bytes,
    },
}

/// The finished and vacant calls of one client, oldest first. A call may stand here twice, having been vacant.
#[derive(Default)]
struct Client {
    done: VecDeque<(Key, Instant)>,
    bytes: usize,
}

/// Clients choose their calls, and addresses in their networks: with a hash that they know, all of them could be in each
/// other's way, under the one lock.
#[derive(Default)]
struct Inner {
    entries: HashMap<Key, Entry, Secret>,
    clients: BTreeMap<IpAddr, Client>,
    bytes: usize,
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
        // Room is made only for what is new: making it might throw out the very answer that is asked for.
        let is_full = |inner: &Inner| inner.entries.len() >= self.limits.entries;
        if is_full(&inner) && !inner.entries.contains_key(&key) {
            while is_full(&inner) && self.evict(&mut inner, key.client) {}
        }
        let has_room = !is_full(&inner);
        let is_tracked = match inner.entries.entry(key) {
            hash_map::Entry::Occupied(mut known) => match known.get_mut() {
                Entry::Done { results } => return Begin::Replay(results.clone()),
                Entry::Running { .. } => {
                    return Begin::Running(Duplicate { cache: Arc::clone(self), key });
                }
                Entry::Vacant { waiters } => {
                    let waiters = std::mem::take(waiters);
                    known.insert(Entry::Running { waiters });
                    true
                }
            },
            hash_map::Entry::Vacant(new) => {
                if has_room {
                    new.insert(Entry::Running { waiters: Vec::new() });
                }
                has_room
            }
        };
        drop(inner);
        Begin::New(Token { cache: Arc::clone(self), key, is_open: is_tracked })
    }

    /// Puts back finished calls that the journal kept, oldest first.
    pub fn restore(&self, entries: impl IntoIterator<Item = (Key, Bytes)>) {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        for (key, results) in entries {
            inner.entries.insert(key, Entry::Running { waiters: Vec::new() });
            self.settle(&mut inner, key, results, now);
        }
    }

    /// The finished calls, each client's oldest first: for [`ReplyCache::restore`] elsewhere.
    #[must_use]
    pub fn finished(&self) -> Vec<(Key, Bytes)> {
        let inner = self.inner.lock();
        let keys = inner.clients.values().flat_map(|client| &client.done);
        let finished = |(key, _): &(Key, Instant)| match inner.entries.get(key) {
            Some(Entry::Done { results }) => Some((*key, results.clone())),
            _ => None,
        };
        keys.filter_map(finished).collect()
    }

    /// Entries held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
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
            self.settle(&mut inner, key, Bytes::copy_from_slice(results), now)
        } else {
            self.drop_running(&mut inner, &key)
        };
        drop(inner);
        answer(waiters, results);
    }

    /// As [`ReplyCache::finish`], but nothing is kept.
    fn decline(&self, key: &Key, results: &[u8]) {
        let waiters = self.drop_running(&mut self.inner.lock(), key);
        answer(waiters, results);
    }

    /// Makes a running entry a finished one and returns who waited for it.
    fn settle(&self, inner: &mut Inner, key: Key, results: Bytes, now: Instant) -> Vec<PendingReply> {
        let bytes = results.len();
        let old = inner.entries.insert(key, Entry::Done { results });
        let client = inner.clients.entry(key.client).or_default();
        client.done.push_back((key, now));
        client.bytes += bytes;
        inner.bytes += bytes;
        while inner.bytes > self.limits.bytes && self.evict(inner, key.client) {}
        match old {
            Some(Entry::Running { waiters }) => waiters,
            _ => Vec::new(),
        }
    }

    fn forget(&self, key: &Key) {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let waiters = self.drop_running(&mut inner, key);
        if !waiters.is_empty() {
            inner.entries.insert(*key, Entry::Vacant { waiters });
            inner.clients.entry(key.client).or_default().done.push_back((*key, now));
        }
    }

    fn drop_running(&self, inner: &mut Inner, key: &Key) -> Vec<PendingReply> {
        let Some(Entry::Running { waiters }) = inner.entries.remove(key) else { return Vec::new() };
        waiters
    }

    fn expire(&self, inner: &mut Inner, client: IpAddr, now: Instant) {
        while let Some((_, at)) = inner.clients.get(&client).and_then(|c| c.done.front())
            && now.ms_since(*at) > self.limits.age_ms
        {
            self.drop_oldest(inner, client);
        }
    }

    /// Makes room: at the cost of the client that asks for it when it has its share, else of the one
    /// that has most. False when nothing finished is left.
    fn evict(&self, inner: &mut Inner, asking: IpAddr) -> bool {
        let share = inner.entries.len() / inner.clients.len().max(1);
        if inner.clients.get(&asking).is_some_and(|c| c.done.len() >= share) {
            return self.drop_oldest(inner, asking);
        }
        let most = inner.clients.iter().max_by_key(|(_, c)| (c.done.len(), c.bytes)).map(|(ip, _)| *ip);
        let Some(most) = most else { return false };
        (0..EVICT_BATCH.min(1 + inner.entries.len() / 2)).filter(|_| self.drop_oldest(inner, most)).count()
            > 0
    }

    fn drop_oldest(&self, inner: &mut Inner, ip: IpAddr) -> bool {
        let Some(client) = inner.clients.get_mut(&ip) else { return false };
        let Some((key, _)) = client.done.pop_front() else { return false };
        if let hash_map::Entry::Occupied(known) = inner.entries.entry(key)
            && !matches!(known.get(), Entry::Running { .. })
        {
            match known.remove() {
                Entry::Done { results } => {
                    client.bytes -= results.len();
                    inner.bytes -= results.len();
                }
                // Nobody ran it again: its client gave up, or will send it once more.
                Entry::Vacant { waiters } | Entry::Running { waiters } => {
                    waiters.into_iter().for_each(PendingReply::abandon);
                }
            }
        }
        if client.done.is_empty() {
            inner.clients.remove(&ip);
        }
        true
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
        let results = match inner.entries.get_mut(&self.key) {
            Some(Entry::Running { waiters }) if waiters.len() < limits::REPLY_CACHE_WAITERS_MAX => {
                waiters.push(pending);
                return;
            }
            Some(Entry::Done { results }) => Some(results.clone()),
            _ => None,
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
