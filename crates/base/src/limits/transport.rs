//! Connections, records, calls in flight, the reply cache.

/// Connections of all clients: about 2 KiB each when idle, and as many descriptors.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Connections of one client address: Linux opens at most 16 a mount (`nconnect`), but one address may hide a
/// whole site of clients.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 1024;

/// Seconds without a call after which a connection may be closed in favour of a new one when all are taken.
pub const CONNECTION_IDLE_SECONDS: u32 = 60;

/// Calls of one connection on their way through the offload pool; then its reading stops. Twice the slots of a
/// session.
pub const CALLS_IN_FLIGHT_MAX: usize = 256;

/// Bytes of records of those calls: eight full WRITEs.
pub const CALL_BYTES_IN_FLIGHT_MAX: usize = 8 << 20;

/// Calls of one connection that wait for a peer (a lock, a recall). Programs answer "try later" beyond it; should
/// they not, reading stops at twice as many.
pub const PARKED_CALLS_MAX: usize = 1024;

/// Bytes of records of those calls, as most of them are kept: far more than locks and opens take.
pub const PARKED_BYTES_MAX: usize = 4 << 20;

/// Bytes of replies of one connection that its peer has not taken yet; then its calls wait. Four full READs.
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// The same of a peer that no export admits: it gets errors and lists alone.
pub const STRANGER_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Parts of replies in that queue, files (which hold no bytes, but a descriptor) among them.
pub const OUTPUT_CHUNKS_MAX: usize = 512;

/// Bytes of replies gathered in one wake-up before they are sent early: keeps the peer busy meanwhile.
pub const OUTPUT_FLUSH_BYTES: usize = 256 << 10;

/// Connections whose replies to one group commit are gathered; the replies of the first are sent when there are more.
pub const REPLIES_TOGETHER_CONNECTIONS_MAX: usize = 32;

/// Bytes taken from a connection in one wake-up: hundreds of small calls, without holding up its neighbours.
pub const INPUT_BYTES: usize = 64 << 10;

/// Calls of ours to one client that it has not answered yet. Twice the slots of a back channel.
pub const CALLS_BACK_MAX: usize = 64;

/// Bytes of a reply to a call of ours (callbacks, rpcbind): bounds what a hostile one makes us hold.
pub const CALL_BACK_REPLY_BYTES_MAX: usize = 64 << 10;

/// Seconds for a record to become whole after its first byte: a full WRITE at 20 KiB/s.
pub const RECORD_SECONDS_MAX: u32 = 60;

/// The same once all connections together hold [`TRANSPORT_BYTES_MAX`]; and the time in which a peer then has to
/// take as many bytes of replies as lie here for it.
pub const RECORD_SECONDS_UNDER_PRESSURE: u32 = 5;

/// Seconds that a peer may take nothing of replies waiting for it before it is dropped.
pub const OUTPUT_STALL_SECONDS: u32 = 120;

/// Bytes that all connections together hold in calls and replies; beyond it, those that have calls or replies on
/// their way and hold more than their share of a quarter of it are not read, and those that leave most of their replies to us are dropped.
pub const TRANSPORT_BYTES_MAX: usize = 512 << 20;

/// Calls waiting for a thread of the offload pool; beyond it connections are not read until it moves.
pub const POOL_QUEUE_MAX: usize = 4096;

/// Threads of the offload pool at least: so many disk requests keep a fast disk busy.
pub const POOL_THREADS_MIN: usize = 16;

/// Milliseconds after which a call on the pool that is still at it loses its turn to the next of those that take turns with
/// it, and replies kept to leave with its own are sent: what hangs, or has lost its processor to others, holds up nobody for
/// longer. Somebody looks so often while anybody waits, which costs a few thousandths of a processor.
pub const TURN_MS: u64 = 2;

/// Milliseconds after which that look is late: then the machine is so busy with other things that who has a turn is a long way
/// from a processor.
pub const TURN_LATE_MS: u64 = 12;

/// The same, microseconds, while workers of connections have turns themselves: nobody may be looking at the sockets, so that
/// what hangs on a worker holds up everybody.
pub const TURN_WORKER_US: u64 = 1000;

/// A turn that somebody was done with in so many microseconds, and nobody else asked for meanwhile, is soon done with again: what it
/// needs is in memory.
pub const TURN_SWIFT_US: u64 = 250;

/// That is said of it after so many in a row,
pub const TURN_SWIFT_TIMES: u32 = 4;

/// and for so many seconds.
pub const TURN_SWIFT_SECONDS: u64 = 2;

/// One in so many workers of connections has a turn himself at most: those that hang must leave some to the others.
pub const TURN_WORKERS_PART: usize = 4;

/// Milliseconds between two looks at the hands that serve a server's connections while there is much to do: where all hang, another
/// is lent after two looks between which nothing was done.
pub const CREW_LOOK_MS: u64 = 2;

/// The same while there is little to do.
pub const CREW_IDLE_MS: u64 = 100;

/// Times that a connection's task ran between two such looks, or among [`CREW_CALM_LOOKS`], from which on there is much to do. So
/// there is while a hand is at work at a look.
pub const CREW_BUSY_RUNS: u64 = 64;

/// Looks in a row at which no hand at work has had nothing to do, after which one more comes.
pub const CREW_FULL_LOOKS: u32 = 5;

/// Looks in a row at which nobody hung, after which one who came in place of one that did goes again.
pub const CREW_LENT_LOOKS: u32 = 2;

/// Looks after which it is asked whether one hand less would do.
pub const CREW_CALM_LOOKS: u32 = 50;

/// As many have one turn at once on such a machine.
pub const TURN_WIDTH_MAX: usize = 8;

/// Calls that take turns of which replies leave together, and after which others come before them.
pub const TURN_REPLIES_MAX: usize = 16;

/// Microseconds that the first of them waits for the last.
pub const TURN_REPLIES_US_MAX: u64 = 500;

/// Entries of the duplicate-request cache: 60 seconds of 1,000 mutations a second.
pub const REPLY_CACHE_ENTRIES_MAX: usize = 65_536;

/// Bytes of its replies. One of NFSv3 takes about 250.
pub const REPLY_CACHE_BYTES_MAX: usize = 32 << 20;

/// Bytes of one cached reply; a longer one is not of an operation that needs the cache.
pub const REPLY_CACHE_REPLY_BYTES_MAX: usize = 4096;

/// Seconds after which an entry is of no more use: Linux retries over TCP after 60, and after each reconnect.
pub const REPLY_CACHE_SECONDS: u64 = 300;

/// Duplicates that wait for the answer to one running call; further ones are not answered.
pub const REPLY_CACHE_WAITERS_MAX: usize = 16;

/// Buffers of large records (up to `RECORD_BYTES_MAX` each) that are kept for the next ones: as many as connections
/// gather one at a time on a busy small server, 17 MiB at most. Dropped under memory pressure.
pub const SPARE_RECORDS_MAX: usize = 16;

/// Bytes of a call by UDP: NSM's and the port mapper's are far below; a longer one is passed over.
pub const DATAGRAM_CALL_BYTES_MAX: usize = 4096;

/// Bytes of a reply by UDP: anybody can write anybody's address on a datagram, so that what answers must not be worth
/// asking for. Room for an address, a port, a status, an error.
pub const DATAGRAM_REPLY_BYTES_MAX: usize = 512;

/// Calls by UDP that are answered to one address in a second: a client's `sm-notify` or mount asks a handful.
pub const DATAGRAMS_PER_SOURCE_SECOND_MAX: u32 = 64;

/// Addresses of which such calls are counted within a second; when there are more, those beyond are not answered.
pub const DATAGRAM_SOURCES_MAX: usize = 4096;

/// Registrations that the embedded port mapper takes besides our own: other servers on this host.
pub const PORTMAP_ENTRIES_MAX: usize = 256;
