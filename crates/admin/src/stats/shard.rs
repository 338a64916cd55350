//! One thread's counters. Only their thread writes them, so that counting is a load and a store, with no bus lock;
//! everybody may read them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::histogram::BUCKETS;
use super::{CLASSES, Class};

/// Rows that are allocated together: most servers have few clients, and all threads have a table each.
const CHUNK: usize = 32;

/// Adds to a counter that no other thread writes.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// What is counted of one operation.
pub(crate) struct OpCells {
    count: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl OpCells {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { count: zero(), errors: zero(), nanos: zero(), buckets: std::array::from_fn(|_| zero()) }
    }

    #[inline]
    pub(crate) fn count(&self, is_error: bool) {
        add(&self.count, 1);
        if is_error {
            add(&self.errors, 1);
        }
    }

    #[inline]
    pub(crate) fn time(&self, bucket: usize, (nanos, weight): (u64, u64)) {
        add(&self.nanos, nanos.saturating_mul(weight));
        add(&self.buckets[bucket], weight);
    }
}

/// What is counted of one client or export.
pub(crate) struct GroupCells {
    classes: [AtomicU64; CLASSES],
    errors: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl GroupCells {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { classes: std::array::from_fn(|_| zero()), errors: zero(), received: zero(), sent: zero() }
    }

    #[inline]
    pub(crate) fn count(&self, class: Class, is_error: bool, (received, sent): (u64, u64)) {
        add(&self.classes[class as usize], 1);
        if is_error {
            add(&self.errors, 1);
        }
        add(&self.received, received);
        add(&self.sent, sent);
    }
}

/// Sums of one operation over all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpSums {
    /// How often it was executed.
    pub count: u64,
    /// How often it failed.
    pub errors: u64,
    /// Nanoseconds of those in `buckets`, together.
    pub nanos: u64,
    /// Those that were timed, by duration. What is timed only now and then counts for those that were not.
    pub buckets: [u64; BUCKETS],
}

impl Default for OpSums {
    fn default() -> Self {
        Self { count: 0, errors: 0, nanos: 0, buckets: [0; BUCKETS] }
    }
}

impl OpSums {
    fn add(&mut self, cells: &OpCells) {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        self.count += get(&cells.count);
        self.errors += get(&cells.errors);
        self.nanos += get(&cells.nanos);
        for (sum, cell) in self.buckets.iter_mut().zip(&cells.buckets) {
            *sum += get(cell);
        }
    }
}

/// Sums of one client or export over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSums {
    /// Operations by class.
    pub classes: [u64; CLASSES],
    /// Operations that failed.
    pub errors: u64,
    /// Bytes of arguments.
    pub received: u64,
    /// Bytes of results.
    pub sent: u64,
}

impl GroupSums {
    /// Operations of all classes.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.classes.iter().sum()
    }

    fn add(&mut self, cells: &GroupCells) {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        for (sum, cell) in self.classes.iter_mut().zip(&cells.classes) {
            *sum += get(cell);
        }
        self.errors += get(&cells.errors);
        self.received += get(&cells.received);
        self.sent += get(&cells.sent);
    }

    /// What was counted since `base`, which was taken from the same counters earlier.
    #[must_use]
    pub(crate) fn since(mut self, base: &Self) -> Self {
        for (sum, base) in self.classes.iter_mut().zip(&base.classes) {
            *sum = sum.saturating_sub(*base);
        }
        self.errors = self.errors.saturating_sub(base.errors);
        self.received = self.received.saturating_sub(base.received);
        self.sent = self.sent.saturating_sub(base.sent);
        self
    }
}

type Chunk = Box<[GroupCells; CHUNK]>;

/// Rows of clients or exports, made as they are needed.
pub(crate) struct Groups {
    chunks: Box<[OnceLock<Chunk>]>,
}

impl Groups {
    fn new(rows: usize) -> Self {
        Self { chunks: (0..rows.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect() }
    }

    /// A row below the number the table was made for.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> Option<&GroupCells> {
        let chunk = self.chunks.get(row / CHUNK)?;
        let rows = chunk.get_or_init(|| Box::new(std::array::from_fn(|_| GroupCells::new())));
        Some(&rows[row % CHUNK])
    }

    pub(crate) fn sum_into(&self, sums: &mut [GroupSums]) {
        for (chunk, sums) in self.chunks.iter().zip(sums.chunks_mut(CHUNK)) {
            if let Some(rows) = chunk.get() {
                for (sum, cells) in sums.iter_mut().zip(rows.iter()) {
                    sum.add(cells);
                }
            }
        }
    }
}

/// All counters of one thread.
pub(crate) struct Shard {
    pub(crate) ops: Box<[OpCells]>,
    pub(crate) clients: Groups,
    pub(crate) exports: Groups,
}

impl Shard {
    pub(crate) fn new(ops: usize, clients: usize, exports: usize) -> Self {
        Self {
            ops: (0..ops).map(|_| OpCells::new()).collect(),
            clients: Groups::new(clients),
            exports: Groups::new(exports),
        }
    }

    pub(crate) fn sum_ops_into(&self, sums: &mut [OpSums]) {
        for (sum, cells) in sums.iter_mut().zip(&self.ops) {
            sum.add(cells);
        }
    }
}
