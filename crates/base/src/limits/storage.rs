//! Backends, stores and the journal.

use super::protocol::OWNER_BYTES_MAX;
use super::state::SLOT_REPLY_BYTES_MAX;

/// Bytes that the in-memory backend holds unless told otherwise: enough for every test, small beside a machine.
pub const MEM_BYTES_MAX: u64 = 1 << 30;

/// Objects that the in-memory backend holds unless told otherwise.
pub const MEM_OBJECTS_MAX: u64 = 1 << 20;

/// Hard links of one object of the in-memory backend: ext4's bound, so that clients meet nothing new.
pub const MEM_LINKS_MAX: u32 = 65_000;

/// Bytes of the largest file of the in-memory backend (Linux's `loff_t`); its blocks are bounded apart.
pub const MEM_FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Bytes of a file that one IO_ADVISE brings into memory: as much as a disk gives in a fraction of a second. A range may be the
/// whole of a file that is larger than memory.
pub const WILL_NEED_BYTES_MAX: u64 = 64 << 20;

/// Pieces of such advice that are followed in one compound: each may take a disk, or a walk over all of a file's pages.
pub const ADVICE_PER_COMPOUND_MAX: usize = 4;

/// Bytes that the in-memory backend copies in one call: it holds its one lock meanwhile.
pub const MEM_COPY_BYTES_MAX: u64 = 16 << 20;

/// Byte-range locks that the in-memory backend keeps, its own and those from outside.
pub const MEM_LOCKS_MAX: usize = 65_536;

/// Commits that the in-memory backend remembers for tests; older ones are forgotten.
pub const MEM_COMMIT_LOG_MAX: usize = 65_536;

/// Bytes of a key in the store: the longest client owner, doubled for what a key says besides.
pub const STORE_KEY_BYTES_MAX: usize = 2 * OWNER_BYTES_MAX;

/// Bytes of a value in the store. Records are small; etcd refuses requests above 1.5 MiB.
pub const STORE_VALUE_BYTES_MAX: usize = 64 << 10;

/// Changes in one batch of the store: the end of grace marks this many clients at a time. RADOS bounds one
/// operation to some thousand omap keys.
pub const STORE_BATCH_CHANGES_MAX: usize = 1024;

/// Watches on one store: a few parts of a server watch a few prefixes.
pub const STORE_WATCHES_MAX: usize = 64;

/// Changed keys a watch holds before it says "look at everything again": more than a watcher that is running
/// ever leaves, little enough to be forgotten.
pub const STORE_WATCH_KEYS_MAX: usize = 256;

/// Bytes of a journal entry's key: a session id with a slot, or a duplicate-request key.
pub const JOURNAL_KEY_BYTES_MAX: usize = 128;

/// Bytes of an intent or of a reply in the journal: a whole batch of names, far above a slot's cached reply.
pub const JOURNAL_PART_BYTES_MAX: usize = 32 << 10;

/// Bytes of the journal's file unless configured otherwise: the last replies of some forty thousand slots, and
/// several seconds of duplicate requests at full rate.
pub const JOURNAL_BYTES_DEFAULT: u64 = 32 << 20;

/// Live entries in a journal: what its default size holds at 256 bytes each, and what bounds its index in
/// memory (about 120 bytes an entry).
pub const JOURNAL_ENTRIES_MAX: usize = 128 << 10;

/// File systems below one export: each keeps a descriptor and a nameless file open for good.
pub const FILE_SYSTEMS_MAX: usize = 1024;

/// Descriptors that the local backend keeps of idle objects unless told otherwise. Each pins an inode in the
/// kernel (1 KiB) and 200 bytes here: 16 MiB and 3 MiB. Cut to a quarter of `RLIMIT_NOFILE`.
pub const BACKEND_DESCRIPTORS_DEFAULT: usize = 16_384;

/// Parts of the descriptor cache, each with a lock of its own: enough that 4 x 64 threads seldom meet.
pub const BACKEND_CACHE_SHARDS: usize = 64;

/// Sweeps, one a second, in which each idle object is looked at once: so long, and the time of a recall, does the space of what a
/// local process removed stay in use. A sweep of a cache of default size looks at 2,048.
pub const BACKEND_SWEEP_TURNS: usize = 8;

/// Open directories kept between two calls of one listing: as many as clients list at once on a busy server.
pub const BACKEND_LISTINGS_MAX: usize = 128;

/// Bytes asked of `getdents64` at once: 1 ms of work for a directory with attributes.
pub const BACKEND_LISTING_BUFFER_BYTES: usize = 32 << 10;

/// Files with unstable writes whose descriptors are kept open until they are committed. Beyond it the oldest is
/// written back at once.
pub const BACKEND_DIRTY_FILES_MAX: usize = 8_192;

/// Objects on file systems with coarse times of which the number of changes within one tick is kept; beyond it
/// the oldest half is forgotten in a way that cannot repeat a value. 64 bytes each.
pub const BACKEND_CHANGE_COUNTS_MAX: usize = 65_536;

/// Rows of the handle table that wait in memory for their transaction: each has been written to the log already.
pub const HANDLE_ROWS_PENDING_MAX: usize = 4_096;

/// Directories above an object that the handle table follows: `PATH_MAX` holds no more.
pub const HANDLE_DEPTH_MAX: usize = 2_048;

/// Results of a compound's earlier operations kept with an intent: a slot's cached reply.
pub const INTENT_PREFIX_BYTES_MAX: usize = SLOT_REPLY_BYTES_MAX;

/// Bytes asked of `getdents64` at once for a listing with attributes: some 200 entries, about one reply. Larger ones
/// are mostly read twice, smaller ones cost more calls.
pub const BACKEND_LISTING_PLUS_BUFFER_BYTES: usize = 8 << 10;

/// Names that the local backend remembers from lookups, 96 bytes each: as many as objects in its descriptor cache.
pub const BACKEND_BINDINGS_MAX: usize = 16_384;

/// Bytes of the longest name that it remembers: nearly all are shorter.
pub const BACKEND_BINDING_NAME_BYTES: usize = 39;

/// Milliseconds until the first look whether a local process has let go of a lock that somebody waits for: a lock
/// held for one transaction is gone by then.
pub const LOCAL_UNLOCK_POLL_MS_MIN: u64 = 5;

/// Milliseconds between two such looks at most: a look costs 2 us, and a client polls no more often by itself.
pub const LOCAL_UNLOCK_POLL_MS_MAX: u64 = 1_000;

/// Locks of local processes that are waited for at once: a millisecond of looks at most.
pub const LOCAL_UNLOCKS_AWAITED_MAX: usize = 512;

/// Objects of one export that are guarded against local processes at once, beside a part more for directories. Each costs a mark in the
/// kernel (which pins the inode, 1 KiB) and 300 bytes here. As many as may be promised of at all ([`CAPS_OBJECTS_MAX`](super::CAPS_OBJECTS_MAX)): so
/// that it is the budget by memory that bounds them, which asks back the oldest.
pub const LOCAL_PLEDGES_MAX: usize = 1 << 20;

/// The part of those that directories may have beyond: without a directory's promise all that is done in it waits for the server.
pub const LOCAL_PLEDGES_DIRECTORIES_PART: usize = 8;

/// Of those, how many may keep a file open for a lease.
pub const LOCAL_LEASES_MAX: usize = 65_536;

/// The part of all leases that is kept free: when less is left, the oldest promises that stand on one are asked back.
pub const LEASES_SPARE_PART: usize = 8;

/// Bytes of fanotify events read at once: some thousand.
pub const LOCAL_EVENT_BUFFER_BYTES: usize = 64 << 10;

/// Names that the handle table keeps of one file: of more, those seen last.
pub const HANDLE_NAMES_MAX: usize = 4;

/// Entries of directories read to find an object again that a local process has renamed: 5 ms of work for one stale
/// handle.
pub const HANDLE_SEARCH_ENTRIES_MAX: usize = 16_384;

/// Questions to the kernel (2 us each) for one test whether a local process holds a lock: what is in the way of one open
/// file of ours has to be told from what is in the way of all.
pub const LOCAL_LOCK_LOOKS_MAX: usize = 1_024;

/// Bytes of listings that all local backends together keep as they were written: those of 200,000 entries with handles
/// and attributes. The fullest backend gives up its own for new ones.
pub const LISTING_PAGES_BYTES_MAX: usize = 64 << 20;

/// Seconds for which such a page is shown at most: file systems change the space that a file takes, and the time of last
/// access, without a word.
pub const LISTING_PAGE_SECONDS_MAX: u64 = 30;

/// The same where local processes may change files: of stores through a mapping and asynchronous writes the kernel tells
/// nothing. As long as Linux's clients keep attributes at least.
pub const LISTING_PAGE_LAZY_SECONDS_MAX: u64 = 3;

/// Directories that are watched for local processes because pages of their listings are kept. Each costs a mark in the
/// kernel (which pins the inode, 1 KiB) and half a microsecond at every change in it.
pub const LISTED_DIRECTORIES_MAX: usize = 256;

/// Seconds after which a directory that nobody lists is watched no more.
pub const LISTED_IDLE_SECONDS: u64 = 5;

/// Microseconds that a group commit waits at least, where it waits at all, for the next of the calls that its predecessors' callers
/// are about to make: about what even a force that the disk does at once costs the processor.
pub const COMMIT_GATHER_MICROS_MIN: u64 = 400;

/// Microseconds that a group commit waits at most for the next of the calls that its predecessors' callers are about to make: half
/// of what a slow disk's force takes. And for all of them, where a force takes no longer.
pub const COMMIT_GATHER_MICROS_MAX: u64 = 5_000;
