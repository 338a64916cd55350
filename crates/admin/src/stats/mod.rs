//! What the server did, counted: by operation, by client, by export. Counting costs some nanoseconds an operation
//! (`docs/design/hot-path.md`), because each thread has counters of its own; reading adds them up.
//!
//! Times are taken of every operation that may wait, and of one in [`SAMPLE_EVERY`] of those that may not: reading the
//! clock twice costs more than all counting.

mod histogram;
mod rates;
mod roster;
mod shard;

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use holdfast_base::ExportId;
use holdfast_base::limits::{STATS_CLIENTS_MAX, STATS_EXPORTS_MAX};
use parking_lot::Mutex;

pub use histogram::{BUCKETS, bucket_end, quantile};
pub use rates::Rate;
pub use shard::{GroupSums, OpSums};

use rates::Rates;
use roster::{OTHERS, Roster};
use shard::Shard;

/// Number of [`Class`]es.
pub const CLASSES: usize = 5;

/// Of operations that cannot wait one in so many is timed. A prime, so that compounds of a fixed length do not have
/// the same operation of theirs timed each time.
pub const SAMPLE_EVERY: u32 = 17;

/// What sort of work an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Data is read.
    Read,
    /// Data is written or committed.
    Write,
    /// Names and attributes are looked at.
    Look,
    /// Names and attributes are changed.
    Change,
    /// Clients, sessions, opens, locks, delegations; and what only prepares the next operation.
    State,
}

impl Class {
    /// All, in the order of [`GroupSums::classes`].
    pub const ALL: [Self; CLASSES] = [Self::Read, Self::Write, Self::Look, Self::Change, Self::State];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Look => "look",
            Self::Change => "change",
            Self::State => "state",
        }
    }
}

/// An operation that is counted.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The protocol: `nfs3`, `nfs4`.
    pub protocol: &'static str,
    /// Its name, as the protocol's specification has it.
    pub name: &'static str,
    /// What sort of work it is.
    pub class: Class,
}

/// One operation that was executed.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Its place in the table given to [`Stats::new`]. One beyond it is not counted.
    pub op: usize,
    /// Whether it failed.
    pub is_error: bool,
    /// Who asked.
    pub peer: IpAddr,
    /// Where, if in an export.
    pub export: Option<ExportId>,
    /// Bytes of its arguments.
    pub received: u64,
    /// Bytes of its results.
    pub sent: u64,
    /// How long it took, when it was timed.
    pub took: Option<Duration>,
    /// For how many like it the time stands.
    pub weight: u32,
}

/// All counters of a server.
pub struct Stats {
    /// Tells one server's counters from another's within a process.
    id: u64,
    operations: Box<[Operation]>,
    shards: Mutex<Shards>,
    clients: Mutex<Roster<IpAddr>>,
    exports: Mutex<Roster<ExportId>>,
    /// Grows when rows change their tenants: threads then forget the rows they know.
    generation: AtomicU64,
    rates: Mutex<Rates>,
    this: Weak<Self>,
}

#[derive(Default)]
struct Shards {
    all: Vec<Arc<Shard>>,
    /// Those whose threads have ended: the next threads go on with them.
    idle: Vec<Arc<Shard>>,
}

/// What everything stood at, at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// By operation, in the order of the table.
    pub operations: Vec<(Operation, OpSums)>,
    /// By client's address.
    pub clients: Vec<(IpAddr, GroupSums)>,
    /// Clients for whom there was no room.
    pub other_clients: GroupSums,
    /// By export.
    pub exports: Vec<(ExportId, GroupSums)>,
    /// What was done in no export (the pseudo root, sessions), or in one for which there was no room.
    pub no_export: GroupSums,
}

/// Sums of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations.
    pub operations: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Bytes of arguments.
    pub received: u64,
    /// Bytes of results.
    pub sent: u64,
}

impl Reading {
    /// Sums of everything.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let exports = self.exports.iter().map(|(_, sums)| sums).chain([&self.no_export]);
        let (received, sent) = exports.fold((0, 0), |(r, s), sums| (r + sums.received, s + sums.sent));
        Totals {
            operations: self.operations.iter().map(|(_, sums)| sums.count).sum(),
            errors: self.operations.iter().map(|(_, sums)| sums.errors).sum(),
            received,
            sent,
        }
    }
}

impl Stats {
    /// Counters for these operations, all zero.
    #[must_use]
    pub fn new(operations: Vec<Operation>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new_cyclic(|this| Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            operations: operations.into(),
            shards: Mutex::default(),
            clients: Mutex::new(Roster::new(STATS_CLIENTS_MAX)),
            exports: Mutex::new(Roster::new(STATS_EXPORTS_MAX)),
            generation: AtomicU64::new(0),
            rates: Mutex::default(),
            this: Weak::clone(this),
        })
    }

    /// Whether the operation that begins now on this thread is to be timed, and for how many it then stands.
    /// `may_wait` says whether it runs where it may wait.
    #[inline]
    #[must_use]
    pub fn begin(&self, may_wait: bool) -> Option<(Instant, u32)> {
        if may_wait {
            return Some((Instant::now(), 1));
        }
        self.with_mine(Mine::is_sample).unwrap_or_default().then(|| (Instant::now(), SAMPLE_EVERY))
    }

    /// Counts an operation. Never waits, but for the first of a client or export on a thread.
    #[inline]
    pub fn record(&self, event: &Event) {
        let Some(operation) = self.operations.get(event.op) else { return };
        self.with_mine(|mine| {
            let shard = &mine.shard;
            if let Some(cells) = shard.ops.get(event.op) {
                cells.count(event.is_error);
                if let Some(took) = event.took {
                    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                    cells.time(histogram::bucket(nanos), (nanos, event.weight.into()));
                }
            }
            let bytes = (event.received, event.sent);
            mine.rows.refresh(self);
            let client = mine.rows.client(self, event.peer);
            if let Some(cells) = shard.clients.row(client) {
                cells.count(operation.class, event.is_error, bytes);
            }
            let export = event.export.map_or(OTHERS, |export| mine.rows.export(self, export));
            if let Some(cells) = shard.exports.row(export) {
                cells.count(operation.class, event.is_error, bytes);
            }
        });
    }

    /// Adds everything up. Some ten microseconds a thread.
    #[must_use]
    pub fn read(&self) -> Reading {
        let shards = self.shards.lock().all.clone();
        let mut ops = vec![OpSums::default(); self.operations.len()];
        shards.iter().for_each(|shard| shard.sum_ops_into(&mut ops));
        let (clients, other_clients) = {
            let roster = self.clients.lock();
            roster.read(&sums(&shards, roster.len(), |shard| &shard.clients))
        };
        let (exports, no_export) = {
            let roster = self.exports.lock();
            roster.read(&sums(&shards, roster.len(), |shard| &shard.exports))
        };
        let operations = self.operations.iter().copied().zip(ops).collect();
        Reading { operations, clients, other_clients, exports, no_export }
    }

    /// Notes how far everything is, for [`Stats::rates`]; to be called about once a second.
    pub fn tick(&self, now: Instant) {
        let totals = self.read().totals();
        self.rates.lock().note(now, totals);
    }

    /// What was done a second, over the last ten and the last sixty seconds.
    #[must_use]
    pub fn rates(&self) -> [Rate; 2] {
        self.rates.lock().over([Duration::from_secs(10), Duration::from_secs(60)])
    }

    fn row_of_client(&self, client: IpAddr) -> usize {
        let mut roster = self.clients.lock();
        if let Some(row) = roster.row(client) {
            return row;
        }
        let shards = self.shards.lock().all.clone();
        let rows = roster.len();
        if roster.look_over(Instant::now(), || sums(&shards, rows, |shard| &shard.clients)) {
            self.generation.fetch_add(1, Ordering::Release);
        }
        roster.row(client).unwrap_or(OTHERS)
    }

    fn row_of_export(&self, export: ExportId) -> usize {
        // Exports do not come and go as clients do: there is nothing to look over.
        self.exports.lock().row(export).unwrap_or(OTHERS)
    }

    /// Runs with this thread's counters. Nothing when the thread is ending.
    #[inline]
    fn with_mine<R>(&self, run: impl FnOnce(&mut Mine) -> R) -> Option<R> {
        MINE.try_with(|mine| {
            let mut mine = mine.try_borrow_mut().ok()?;
            if mine.as_ref().is_none_or(|mine| mine.of != self.id) {
                // The former counters go back before new ones are taken.
                *mine = None;
                *mine = Some(self.new_mine());
            }
            mine.as_mut().map(run)
        })
        .ok()
        .flatten()
    }

    #[cold]
    fn new_mine(&self) -> Mine {
        let mut shards = self.shards.lock();
        let shard = shards.idle.pop().unwrap_or_else(|| {
            let shard = Arc::new(Shard::new(self.operations.len(), STATS_CLIENTS_MAX, STATS_EXPORTS_MAX));
            shards.all.push(Arc::clone(&shard));
            shard
        });
        Mine { of: self.id, shard, home: Weak::clone(&self.this), rows: Rows::new(), until_sample: 0 }
    }
}

fn sums(shards: &[Arc<Shard>], rows: usize, table: impl Fn(&Shard) -> &shard::Groups) -> Vec<GroupSums> {
    let mut sums = vec![GroupSums::default(); rows];
    shards.iter().for_each(|shard| table(shard).sum_into(&mut sums));
    sums
}

thread_local! {
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// A thread's own counters.
struct Mine {
    of: u64,
    shard: Arc<Shard>,
    home: Weak<Stats>,
    rows: Rows,
    until_sample: u32,
}

impl Mine {
    #[inline]
    fn is_sample(&mut self) -> bool {
        let is_due = self.until_sample == 0;
        self.until_sample = if is_due { SAMPLE_EVERY - 1 } else { self.until_sample - 1 };
        is_due
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.shards.lock().idle.push(Arc::clone(&self.shard));
        }
    }
}

/// Places in a thread's memory of rows: a worker serves some connections at a time.
const KNOWN: usize = 64;

/// Rows that a thread has found lately, by a few bits of their keys.
struct Rows {
    generation: u64,
    clients: [Option<(IpAddr, usize)>; KNOWN],
    exports: [Option<(ExportId, usize)>; KNOWN],
}

impl Rows {
    const fn new() -> Self {
        Self { generation: 0, clients: [None; KNOWN], exports: [None; KNOWN] }
    }

    #[inline]
    fn refresh(&mut self, stats: &Stats) {
        let generation = stats.generation.load(Ordering::Acquire);
        if self.generation != generation {
            *self = Self { generation, ..Self::new() };
        }
    }

    #[inline]
    fn client(&mut self, stats: &Stats, client: IpAddr) -> usize {
        let mixed = match client {
            IpAddr::V4(v4) => u32::from(v4),
            // Hosts differ in the last bits, networks in the fourth word at the latest.
            IpAddr::V6(v6) => v6.segments().iter().fold(0, |all, n| all ^ u32::from(*n)),
        };
        let place = &mut self.clients[(mixed ^ mixed >> 8) as usize % KNOWN];
        match place {
            Some((known, row)) if *known == client => *row,
            _ => {
                let row = stats.row_of_client(client);
                // One without a row of its own asks again: there may be one next time.
                *place = (row != OTHERS).then_some((client, row));
                row
            }
        }
    }

    #[inline]
    fn export(&mut self, stats: &Stats, export: ExportId) -> usize {
        let place = &mut self.exports[usize::from(export.0) % KNOWN];
        match place {
            Some((known, row)) if *known == export => *row,
            _ => {
                let row = stats.row_of_export(export);
                *place = Some((export, row));
                row
            }
        }
    }
}

#[cfg(test)]
mod tests;
