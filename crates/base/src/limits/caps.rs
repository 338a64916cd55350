//! The caps program: both ends.

/// Items of one ACQUIRE, RELEASE, RECLAIM or RECALL of the caps program: each is a handle of up to 128 bytes, and its answer
/// attributes of 160.
pub const CAPS_ITEMS_MAX: usize = 1024;

/// Operations of one batch: their results fit a record, and one batch keeps others waiting for some ten milliseconds.
pub const CAPS_BATCH_OPS_MAX: usize = 1024;

/// Removals of one directory that fail before those behind them get a record of their own in the journal: what is
/// recorded of them stays small.
pub const CAPS_FAILED_REMOVALS_MAX: usize = 32;

/// Operations whose write-back failed that are told of at once.
pub const CAPS_FAILED_MAX: usize = 1024;

/// Objects of which one client may hold capabilities: 200 bytes each here and as many at the client; a source tree of a
/// hundred thousand files fits.
pub const CAPS_OBJECTS_PER_CLIENT_MAX: usize = 131_072;

/// Objects with capabilities of all clients, each client's counted by itself.
pub const CAPS_OBJECTS_MAX: usize = 1 << 20;

/// The part of those that is kept free: some are asked back when less is left.
pub const CAPS_SPARE_PART: usize = 10;

/// What is held above its budget is asked back in so many parts, one a second: a shortage is often over before the last, and
/// what a mount must do without at once is little.
pub const CAPS_PRESSED_PARTS: usize = 10;

/// Objects asked back in one second, of all clients, for want of room: some milliseconds of the state engine, four calls.
pub const CAPS_PRESSED_MAX: usize = 4096;

/// Objects looked at for each that is asked back: those granted longest ago are found among them.
pub const CAPS_PRESSED_LOOKED: usize = 4;

/// Clients that hold capabilities of one object: a change of it recalls all of them at once.
pub const CAPS_HOLDERS_PER_OBJECT_MAX: usize = 1024;

/// Milliseconds after a recall in which nothing exclusive is granted of an object: who shares it works through the server
/// rather than have it wander; after one look of a neighbour the other has it back soon.
pub const CAPS_RECALLED_MS: u64 = 2_000;

/// Names of directories that one client may be promised by themselves: they are among its objects, and cost as much; those that a
/// user or a build looks up again and again fit, and a client that gives none back takes an eighth of its objects with them.
pub const CAPS_NAMES_PER_CLIENT_MAX: usize = 16_384;

/// Names promised to all clients: a quarter of all objects, so that they never crowd out the objects behind them.
pub const CAPS_NAMES_MAX: usize = 1 << 18;

/// Names of a client asked back at once when it is promised as many as it may be: one call, and room for a while.
pub const CAPS_NAMES_PRESSED: usize = 256;

/// Milliseconds for which a directory is one that others change all the time, after its entries' promise was taken from somebody
/// twice within as much: as long as nothing exclusive is granted either.
pub const CAPS_CONTESTED_MS: u64 = CAPS_RECALLED_MS;

/// Batches of one client under way at once: those beyond its next wait for it, their calls parked.
pub const CAPS_BATCHES_MAX: usize = 16;

/// Transactions of one client that are remembered: at most some MiB, until the client says that it will not send them
/// again.
pub const CAPS_TXNS_KEPT_MAX: usize = 1024;

/// Operations of those transactions, in all: each is an entry of the journal, which has room for a dozen such clients.
pub const CAPS_OPS_KEPT_MAX: usize = 8192;

/// Operations remembered of all clients that were given up and may come back.
pub const CAPS_OPS_LEFT_MAX: usize = 2 * CAPS_OPS_KEPT_MAX;

/// Calls that wait for one client's transactions to be durable.
pub const CAPS_STABLE_WAITERS_MAX: usize = 64;

/// Bytes of answers to one client's batches that wait to be durable: those of a hundred small ones. Beyond that a batch is answered
/// when it is executed, and its client asks STABLE.
pub const CAPS_FORCED_BYTES_MAX: usize = 256 << 10;

/// Milliseconds after which the transactions of a client of the server's former life, or of one that was given up, are
/// forgotten if it has not come back: an hour, in which whoever lost the network has it again.
pub const CAPS_LANE_IDLE_MS: u64 = 3_600_000;

/// Bytes of a LIST's answer, whatever the client takes.
pub const CAPS_LIST_BYTES_MAX: usize = 256 << 10;

/// Entries of a LIST's answer, whatever fits.
pub const CAPS_LIST_ENTRIES_MAX: usize = 1024;

/// Milliseconds in which a client answers a RECALL: it only takes note.
pub const CAPS_RECALL_ANSWER_MS: u64 = 10_000;

/// Recalls that wait for their turn on a client's connections; beyond, they are sent again later.
pub const CAPS_RECALLS_QUEUED_MAX: usize = 65_536;

/// Names tried for what is kept beside another of its name.
pub const CAPS_OTHER_NAMES_MAX: u32 = 100;

/// Connections of one client that recalls may go over.
pub const CAPS_CONNECTIONS_MAX: usize = 16;

/// Tickets of one client, and incarnations with transactions: one for each mount of it.
pub const CAPS_TICKETS_PER_CLIENT_MAX: usize = 16;

/// Bytes of the path of the socket at which client and server of one host meet: what the kernel takes for one.
pub const SAME_HOST_PATH_BYTES_MAX: usize = 107;

/// Mounts of this host that are connected to the server's socket, a thread each.
pub const SAME_HOST_PEERS_MAX: usize = 64;

/// Of those, how many may not have said yet who they are: anybody may connect.
pub const SAME_HOST_STRANGERS_MAX: usize = 16;

/// Descriptors and invitations that wait at the socket to be asked for. Each descriptor is one of the server's.
pub const SAME_HOST_WAITING_MAX: usize = 256;

/// Milliseconds until what was not asked for is closed again, and a stranger that says nothing is cut off.
pub const SAME_HOST_WAIT_MS: u64 = 5_000;

/// Descriptors of the server's files that a mount keeps.
pub const SAME_HOST_HELD_MAX: usize = 512;

/// Reads and writes of a file that go over the network before a descriptor is asked for: it costs two questions.
pub const SAME_HOST_AFTER: u32 = 2;

/// Milliseconds after its last use until a mount closes a descriptor: it keeps a removed file's space, and others from
/// what the kernel grants only on files that nobody has open.
pub const SAME_HOST_IDLE_MS: u64 = 2_000;

/// Files without a name that a client may have the server keep until it has opened them: one for each thread that makes one
/// at a time, and some more.
pub const CAPS_NAMELESS_PER_CLIENT_MAX: usize = 64;

/// The same of all clients. Each is an open file of the server's.
pub const CAPS_NAMELESS_MAX: usize = 1024;

/// Milliseconds that they are kept for: the client opens them with its next call.
pub const CAPS_NAMELESS_MS: u64 = 5_000;

/// Files that are kept for one client's creates to come: what it makes in the time of a round trip, in several directories.
pub const CAPS_POOLED_PER_CLIENT_MAX: usize = 1024;

/// The same of all clients: 8 MiB of the kernel's memory, and two of the server's descriptors each.
pub const CAPS_POOLED_MAX: usize = 4096;

/// Of those, one client may have one in so many, where there is not room for all that it may have else.
pub const CAPS_POOLED_SHARE: usize = 4;

/// The part of the descriptors that the process may open which those files take at most: others, who have no other way,
/// come first.
pub const CAPS_POOLED_PART: u64 = 16;

/// Files made by one POOL: some milliseconds of one thread.
pub const CAPS_POOL_CALL_MAX: usize = 256;

/// Milliseconds until one that was not used is let go: its client gives back what it does not need long before.
pub const CAPS_POOLED_MS: u64 = 120_000;
