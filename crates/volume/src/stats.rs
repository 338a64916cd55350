//! Counting what the volume does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_cache::{Hits as Counted, Stats as MachineStats};
use serde::{Deserialize, Serialize};

/// Counts of one kind of call, and how long they took.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    calls: AtomicU64,
    micros: AtomicU64,
    micros_max: AtomicU64,
}

impl Timed {
    fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.micros_max.fetch_max(micros, Ordering::Relaxed);
    }

    fn shown(&self) -> Timing {
        let calls = self.calls.load(Ordering::Relaxed);
        let micros = self.micros.load(Ordering::Relaxed);
        let mean_us = micros.checked_div(calls).unwrap_or(0);
        Timing { calls, mean_us, longest_us: self.micros_max.load(Ordering::Relaxed) }
    }
}

/// Counters of a volume.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    asked: Timed,
    batches: Timed,
    batch_operations: AtomicU64,
    writes: Timed,
    write_bytes: AtomicU64,
    /// Everything that was sent in the background.
    pub(crate) sent: AtomicU64,
}

impl Counters {
    pub(crate) fn answered(&self, took: Duration) {
        self.asked.add(took);
    }

    pub(crate) fn batch(&self, took: Duration, operations: usize) {
        self.batches.add(took);
        self.batch_operations.fetch_add(operations as u64, Ordering::Relaxed);
    }

    pub(crate) fn write(&self, took: Duration, bytes: usize) {
        self.writes.add(took);
        self.write_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn shown(&self, machine: &MachineStats, room: Hits) -> Stats {
        let asked = self.asked.shown();
        let hits = |of: Counted| Hits::new(of.hits, of.misses);
        let round_trips = asked.calls + self.sent.load(Ordering::Relaxed);
        Stats {
            operations: machine.operations,
            answered_without_asking: machine.operations.saturating_sub(machine.asks),
            waited: machine.waits,
            round_trips,
            round_trips_saved: machine.due.saturating_sub(round_trips),
            questions: asked,
            names: hits(machine.lookups),
            attributes: hits(machine.attributes),
            listings: hits(machine.listings),
            opens: hits(machine.opens),
            reads: hits(machine.reads),
            room,
            read_ahead: ReadAhead {
                files: machine.ahead_files,
                bytes: machine.ahead_bytes,
                used: machine.ahead_used,
                dropped: machine.ahead_unused,
            },
            contents: Contents {
                blocks: machine.blocks,
                read: machine.blocks_read,
                lost: machine.blocks_lost,
            },
            queue: Queue {
                changes: machine.queued,
                batches_in_flight: machine.in_flight,
                batches_not_on_disk: machine.unsettled,
                bytes_not_sent: machine.dirty_bytes,
                bytes_not_on_disk: machine.unstable_bytes,
            },
            changes: Changed {
                queued: machine.mutations_queued,
                merged: machine.mutations_merged,
                never_sent: machine.mutations_elided,
                made_beforehand: machine.pooled,
                failed: machine.mutations_failed,
                bytes_written: machine.bytes_written,
                bytes_never_sent: machine.bytes_elided,
            },
            batches: self.batches.shown(),
            batch_operations: self.batch_operations.load(Ordering::Relaxed),
            batches_sent_again: machine.batches_resent,
            writes: self.writes.shown(),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
            held: Held { objects: machine.nodes, names: machine.names, promised: machine.capabilities },
            recalls: machine.recalls,
            releases: machine.releases,
            invalidations: machine.invalidations,
            stores: machine.stores,
        }
    }
}

/// Calls of one kind, and the microseconds they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// How many.
    pub calls: u64,
    /// On average.
    pub mean_us: u64,
    /// The slowest.
    pub longest_us: u64,
}

/// How often something was known, and how often the server was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    /// Known.
    pub hits: u64,
    /// Asked.
    pub misses: u64,
    /// Of a hundred, those that were known; none where there were none.
    #[serde(default)]
    pub percent: Option<u64>,
}

impl Hits {
    pub(crate) const fn new(hits: u64, misses: u64) -> Self {
        Self { hits, misses, percent: (hits * 100).checked_div(hits + misses) }
    }
}

/// Small files read before anybody asked for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAhead {
    /// How many.
    pub files: u64,
    /// How long they were.
    pub bytes: u64,
    /// Of these, those that somebody came for.
    pub used: u64,
    /// Of these, those that nobody came for in time.
    pub dropped: u64,
}

/// Contents of files on this host's disk (`-o offline`), in blocks of 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Those that are kept now.
    pub blocks: u64,
    /// So many were read from there.
    pub read: u64,
    /// Those that were to be read and were not there, or not as they had been written.
    pub lost: u64,
}

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Changes that are not sent.
    pub changes: u64,
    /// Batches that the server has not answered.
    pub batches_in_flight: u64,
    /// Batches that are executed, and not known to be on disk.
    pub batches_not_on_disk: u64,
    /// Bytes of data that are not sent.
    pub bytes_not_sent: u64,
    /// Bytes that are sent, and not known to be on disk.
    pub bytes_not_on_disk: u64,
}

/// What applications changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Changes that returned before they were sent.
    pub queued: u64,
    /// Of these, those that went into an earlier one.
    pub merged: u64,
    /// Of these, those that were undone before they were sent.
    pub never_sent: u64,
    /// Of these, those that the server refused.
    pub failed: u64,
    /// Files that were made of one which the server had made for it, so that their numbers are the server's from the first.
    pub made_beforehand: u64,
    /// Bytes that applications wrote.
    pub bytes_written: u64,
    /// Of these, those that were overwritten or removed before they were sent.
    pub bytes_never_sent: u64,
}

/// What is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Objects known.
    pub objects: u64,
    /// Names known.
    pub names: u64,
    /// Objects of which the server promises something.
    pub promised: u64,
}

/// Counters since the mount, and how much is held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Operations of applications that reached this mount's daemon.
    pub operations: u64,
    /// Of these, those for which nobody was asked.
    pub answered_without_asking: u64,
    /// Of these, those that waited for something to be sent.
    pub waited: u64,
    /// Calls to the server, those of the background included.
    pub round_trips: u64,
    /// Calls that these operations would have cost where nothing is known and nothing put off, one each, less those there were.
    #[serde(default)]
    pub round_trips_saved: u64,
    /// Questions to the server.
    pub questions: Timing,
    /// Names.
    pub names: Hits,
    /// Attributes.
    pub attributes: Hits,
    /// Listings.
    pub listings: Hits,
    /// Opens.
    pub opens: Hits,
    /// Reads of files.
    #[serde(default)]
    pub reads: Hits,
    /// The room on the file system, which is believed for a moment and promised by nobody.
    pub room: Hits,
    /// Small files read before anybody asked for them.
    pub read_ahead: ReadAhead,
    /// Contents of files on this host's disk.
    #[serde(default)]
    pub contents: Contents,
    /// What waits.
    pub queue: Queue,
    /// What was changed.
    pub changes: Changed,
    /// Batches of changes.
    pub batches: Timing,
    /// Changes in them.
    pub batch_operations: u64,
    /// Batches that were sent again.
    pub batches_sent_again: u64,
    /// Data written in the background.
    pub writes: Timing,
    /// Bytes of it.
    pub write_bytes: u64,
    /// What is held.
    pub held: Held,
    /// Times the server wanted a promise back.
    pub recalls: u64,
    /// Promises given back.
    pub releases: u64,
    /// Things the kernel was told to forget.
    pub invalidations: u64,
    /// Files of which it took the data, when they were opened or there was no room for it here any more.
    #[serde(default)]
    pub stores: u64,
}
