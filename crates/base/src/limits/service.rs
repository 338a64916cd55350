//! The protocol services, the server around them, and its administration.

/// Bytes of a READ from which on it is answered from the file itself (`sendfile`) rather than through memory:
/// measured crossover is 16 to 32 KiB.
pub const FILE_REPLY_BYTES_MIN: usize = 32 << 10;

/// Mounts that MOUNT's DUMP remembers: a courtesy to `showmount`, nothing depends on it; the oldest go.
pub const MOUNTS_REMEMBERED_MAX: usize = 1024;

/// Files whose handles are remembered for CB_NOTIFY_LOCK, 64 bytes each, before those that nobody waits for any more are
/// looked for: a few milliseconds. And files held open to watch locks of local processes; who waits for one more polls.
pub const LOCK_WAITED_FILES_MAX: usize = 16_384;

/// Copies that go on after their reply, of all clients: each has a thread of its own, and more at once would only get
/// in each other's way on one disk. Above, a copy stops short and the client asks for the rest.
pub const OFFLOADS_MAX: usize = 16;

/// Such copies of one client, so that no client takes all.
pub const OFFLOADS_PER_CLIENT_MAX: usize = 4;

/// Clients of 4.0 that can be called back, with a connection of ours to each: as many as a small server's descriptors
/// allow. Those beyond get no delegations.
pub const CALLBACK_PATHS_MAX: usize = 1024;

/// Clients that are counted one by one in statistics, by address: as many as a busy site has. 72 bytes each and
/// thread. Idle ones make room; beyond it they are counted together.
pub const STATS_CLIENTS_MAX: usize = 1024;

/// Exports that are counted one by one in statistics.
pub const STATS_EXPORTS_MAX: usize = 256;

/// Connections to the admin socket: a few administrators, their scripts and a collector of metrics.
pub const ADMIN_CONNECTIONS_MAX: usize = 16;

/// Bytes of a request to the admin socket: one with the longest path, escaped.
pub const ADMIN_REQUEST_BYTES_MAX: usize = 32 << 10;

/// Rows of one answer of the admin socket; more are asked for page by page. Some 4 MB of text.
pub const ADMIN_ROWS_MAX: usize = 10_000;

/// Seconds that a connection to the admin socket may stay silent, or leave an answer lying.
pub const ADMIN_IDLE_SECONDS: u64 = 60;

/// Bytes of a request to the metrics endpoint: a request line and the headers that collectors send.
pub const METRICS_REQUEST_BYTES_MAX: usize = 8 << 10;

/// Bytes of replies that a connection takes along in a planned restart because its client did not take them in time:
/// the reads of a client on a slow line. What owes more is closed, and its client asks again.
pub const HANDOVER_UNSENT_BYTES_MAX: usize = 32 << 20;

/// Descriptors given to the service manager's store: their names must fit into one variable of the environment of the
/// next process (128 KiB). With more the server ends as if there were no store.
pub const HANDOVER_STORED_MAX: usize = 8192;

/// Bytes of the image of a planned restart; more is taken for damage.
pub const HANDOVER_IMAGE_BYTES_MAX: usize = 1 << 30;

/// Threads that go on with open files after a planned restart, at most: on more the system's table of descriptors, which
/// they all look into, is what they wait for.
pub const HANDOVER_THREADS_MAX: usize = 4;

/// Open files for which another one of these is worth its start: some milliseconds of work.
pub const HANDOVER_FILES_A_THREAD: usize = 256;

/// Descriptors of these opens asked whether they were opened for who does the I/O.
pub const DELEGATED_DESCRIPTORS_MAX: usize = 8;

/// Open files kept with write delegations after their opens are closed: what is written back then need not be permitted
/// anew. A descriptor each, unless a lease has it open anyway; without one the file's mode decides.
pub const DELEGATED_FILES_MAX: usize = 32_768;

/// Changes of a directory's entries that wait to be told to a holder of its delegation: with more it is recalled.
pub const NOTICES_MAX: usize = 256;

/// Listening sockets that a parent keeps for a server.
pub const LISTENERS_KEPT_MAX: usize = 16;

/// Deaths of a server within a minute after which it is not started again.
pub const SUPERVISED_DEATHS_MAX: usize = 5;

/// Milliseconds between two times that caches shrink while memory is short: in between it shows what came of it.
pub const MEMORY_SHED_PAUSE_MS: u64 = 10_000;

/// Milliseconds that a request waits for a record that its answer depends on, before its client is told to come again: a disk
/// that takes longer hangs, and threads that wait for it are missed by everybody.
pub const RECORD_WAIT_MS: u64 = 2_000;

/// The same with the state engine held, so that everybody waits: a force to a disk that is only busy.
pub const RECORD_WAIT_HELD_MS: u64 = 250;

/// Ticks after which a mark that nobody has asked for again is put right: the engine tries again with each.
pub const RECORD_DOUBT_TICKS: u32 = 3;
