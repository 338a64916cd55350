//! Every bound in one place, each with the reason for its value. A queue, cache, list or table without a line
//! here is a defect.

/// Bytes of an NFS file handle on the wire: NFSv3's maximum (RFC 1813 section 2.4), kept for NFSv4 as well so
/// that one format serves both.
pub const WIRE_HANDLE_BYTES_MAX: usize = 64;

/// Bytes of a backend's handle: what remains of a wire handle after version, export and signature.
pub const BACKEND_HANDLE_BYTES_MAX: usize = 52;

/// Bytes of one file name: what every Linux file system allows (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of a path in MOUNT, or of a symbolic link's text (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;

/// Bytes of data in one READ or WRITE: what Linux clients ask for at most (`NFS_MAX_FILE_IO_SIZE`).
pub const IO_BYTES_MAX: usize = 1 << 20;

/// Bytes of one RPC record, with room for a full WRITE and its compound around it.
pub const RECORD_BYTES_MAX: usize = IO_BYTES_MAX + (64 << 10);

/// Fragments of one record: senders use one, pynfs pieces of 2 KiB, 513 to a full WRITE; many more small ones would
/// make assembly quadratic.
pub const RECORD_FRAGMENTS_MAX: usize = 1024;

/// Bytes of an RPC credential or verifier (RFC 5531 section 8.2).
pub const AUTH_BYTES_MAX: usize = 400;

/// Groups in an AUTH_SYS credential (RFC 5531 section 14, appendix A).
pub const AUTH_SYS_GROUPS_MAX: usize = 16;

/// Groups of one caller after lookup on the server (`NGROUPS_MAX` is 65536; a list this long costs 100 us to
/// install and serves nobody).
pub const CALLER_GROUPS_MAX: usize = 1024;

/// Operations in one COMPOUND. Linux sends fewer than 16; pynfs and libnfs fewer than 100.
pub const COMPOUND_OPS_MAX: usize = 128;

/// Bytes of a COMPOUND's tag.
pub const COMPOUND_TAG_BYTES_MAX: usize = 1024;

/// Slots in one session: what Linux asks for (`NFS4_MAX_SLOT_TABLE` is 1024, it requests 64).
pub const SESSION_SLOTS_MAX: u32 = 128;

/// Bytes of one cached reply in a slot; larger replies are not cached (`NFS4ERR_REP_TOO_BIG_TO_CACHE`).
pub const SLOT_REPLY_BYTES_MAX: usize = 4096;

/// Bytes of an open or lock owner (RFC 8881 section 3.3.7: `NFS4_OPAQUE_LIMIT`).
pub const OWNER_BYTES_MAX: usize = 1024;

/// Bytes of an extended attribute's value (Linux's `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;

/// Bytes of an extended attribute's name (Linux's `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Bytes of all extended attribute names of a file (Linux's `XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 65536;

/// Bytes of an NFSv4 file handle that is decoded at all (RFC 8881 section 3.1: `NFS4_FHSIZE`). Ours are
/// shorter; a longer one is answered with NFS4ERR_BADHANDLE rather than NFS4ERR_BADXDR.
pub const WIRE_HANDLE4_BYTES_MAX: usize = 128;

/// Bytes of a name or link text that is decoded at all: well above `PATH_BYTES_MAX`, so that a name too long
/// for the file system is answered with NAMETOOLONG and not taken for a broken message.
pub const WIRE_NAME_BYTES_MAX: usize = 8192;

/// Names in one `pathname4` (a referral's path); a path of `PATH_BYTES_MAX` made of short names.
pub const PATH_NAMES_MAX: usize = 1024;

/// Bytes of the values of one `fattr4`: an ACL of `ACES_MAX` entries and everything else fits.
pub const ATTR_BYTES_MAX: usize = 128 << 10;

/// Words of a `bitmap4` that are read; four are known today, and test suites ask for attributes around 1,000 to see
/// them refused. What is longer is an attack.
pub const BITMAP_WORDS_MAX: usize = 64;

/// Entries of one ACL: an extended attribute of 64 KiB holds no more on Linux file systems.
pub const ACES_MAX: usize = 1024;

/// Bytes of the `who` of an ACL entry, of an owner or group name.
pub const PRINCIPAL_BYTES_MAX: usize = 1024;

/// Bytes of a network id, a universal address, or a server name.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// Servers or locations in one list (fs_locations, COPY's sources).
pub const LOCATIONS_MAX: usize = 64;

/// Security flavors in one list (SECINFO, MOUNT, CREATE_SESSION's callback parameters).
pub const FLAVORS_MAX: usize = 32;

/// Bytes of a security mechanism's object identifier.
pub const OID_BYTES_MAX: usize = 64;

/// Algorithms offered, or handles given out, for SP4_SSV.
pub const SSV_ITEMS_MAX: usize = 64;

/// Bytes of a GSS context handle, a secret state verifier, or a digest.
pub const GSS_TOKEN_BYTES_MAX: usize = 4096;

/// Bytes of the layout-type-specific part of a layout, device address, layout update or return.
pub const LAYOUT_BODY_BYTES_MAX: usize = 64 << 10;

/// Layouts or devices in one list.
pub const LAYOUTS_MAX: usize = 256;

/// State ids in one TEST_STATEID: Linux asks for one, a migrating client for all it holds.
pub const TEST_STATEIDS_MAX: usize = 4096;

/// Errors in one LAYOUTERROR or layout return.
pub const DEVICE_ERRORS_MAX: usize = 64;

/// Sessions, and calls of each, in the referring call lists of CB_SEQUENCE.
pub const REFERRING_CALLS_MAX: usize = 128;

/// Changes in one CB_NOTIFY or CB_NOTIFY_DEVICEID.
pub const NOTIFY_CHANGES_MAX: usize = 1024;

/// Segments in one READ_PLUS reply.
pub const READ_PLUS_SEGMENTS_MAX: usize = 1024;

/// Entries a client decodes from one READDIR or LISTXATTRS reply: 1 MiB of the smallest.
pub const DIRECTORY_ENTRIES_MAX: usize = 65536;

/// Exports, or mounts, in one list of the MOUNT protocol.
pub const MOUNT_LIST_MAX: usize = 65536;

/// Client incarnations the state engine remembers. Each costs about 1 KiB before it opens anything; the largest
/// NFS servers in use serve some ten thousand.
pub const CLIENTS_MAX: usize = 32_768;

/// Unconfirmed client records among them: a flood of EXCHANGE_ID or SETCLIENTID by one stranger must not use up
/// the room of clients that confirm.
pub const CLIENTS_UNCONFIRMED_MAX: usize = 4096;

/// Bytes of a client's owner string (`NFS4_OPAQUE_LIMIT`).
pub const CLIENT_OWNER_BYTES_MAX: usize = 1024;

/// Bytes of the callback address a 4.0 client sends, held opaque: a netid and a universal address are below 100.
pub const CALLBACK_BYTES_MAX: usize = 1024;

/// Sessions of one client. Linux makes one; trunking and tests make a few.
pub const SESSIONS_PER_CLIENT_MAX: usize = 16;

/// Connections remembered for one session. Linux's `nconnect` goes to 16, with `max_connect` 16 more.
pub const SESSION_CONNECTIONS_MAX: usize = 64;

/// Smallest request a session may be limited to: an RPC header with AUTH_SYS and SEQUENCE must fit.
pub const SESSION_REQUEST_BYTES_MIN: u32 = 256;

/// Smallest reply a session may be limited to: an RPC reply header and SEQUENCE's result must fit.
pub const SESSION_REPLY_BYTES_MIN: u32 = 128;

/// Slots of a session's back channel that we use at once; recalls to one client beyond that wait.
pub const BACK_CHANNEL_SLOTS_MAX: u32 = 16;

/// Bytes of one record on the back channel: callbacks carry a handle, a stateid and few attributes.
pub const BACK_CHANNEL_BYTES_MAX: u32 = 4096;

/// Open-owners and lock-owners of one client together. Linux has an open-owner a user and a lock-owner a process.
pub const OWNERS_PER_CLIENT_MAX: usize = 65_536;

/// Stateids (opens, locks) of one client: what its own descriptor limits allow on a large machine.
pub const STATEIDS_PER_CLIENT_MAX: usize = 262_144;

/// Stateids of all clients: about 200 bytes each, so 200 MiB at the very worst.
pub const STATEIDS_MAX: usize = 1 << 20;

/// Byte ranges one lock-owner holds on one file after merging; insertion moves those behind it, 24 bytes each.
pub const LOCK_RANGES_PER_OWNER_FILE_MAX: usize = 16_384;

/// Lock holders (lock-owners of any protocol) on one file: each conflict check asks every one of them.
pub const LOCK_HOLDERS_PER_FILE_MAX: usize = 16_384;

/// Blocked lock requests remembered on one file; later ones are told to poll.
pub const LOCK_WAITERS_PER_FILE_MAX: usize = 1024;

/// How long a freed range is kept for the waiter that was notified of it, in milliseconds: a round trip to a slow
/// client, and short enough that a dead one hardly delays the next.
pub const LOCK_HANDOFF_MS: u64 = 1000;

/// Bytes of the last reply kept for a 4.0 owner's replay: LOCK's denial with the longest owner fits.
pub const OWNER_REPLY_BYTES_MAX: usize = 2048;

/// Bytes of the machine name in an AUTH_SYS credential (RFC 5531 appendix A).
pub const AUTH_SYS_NAME_BYTES_MAX: usize = 255;

/// Bytes that the in-memory backend holds unless told otherwise: enough for every test, small beside a machine.
pub const MEM_BYTES_MAX: u64 = 1 << 30;

/// Objects that the in-memory backend holds unless told otherwise.
pub const MEM_OBJECTS_MAX: u64 = 1 << 20;

/// Hard links of one object of the in-memory backend: ext4's bound, so that clients meet nothing new.
pub const MEM_LINKS_MAX: u32 = 65_000;

/// Bytes of the largest file of the in-memory backend (Linux's `loff_t`); its blocks are bounded apart.
pub const MEM_FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Bytes that the in-memory backend copies in one call: it holds its one lock meanwhile.
pub const MEM_COPY_BYTES_MAX: u64 = 16 << 20;

/// Byte-range locks that the in-memory backend keeps, its own and those from outside.
pub const MEM_LOCKS_MAX: usize = 65_536;

/// Commits that the in-memory backend remembers for tests; older ones are forgotten.
pub const MEM_COMMIT_LOG_MAX: usize = 65_536;

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

/// Bytes of an NLM cookie, handle or owner (`MAXNETOBJ_SZ`).
pub const NLM_OBJECT_BYTES_MAX: usize = 1024;

/// Bytes of a host's name in NLM and NSM (`LM_MAXSTRLEN`, `SM_MAXSTRLEN`).
pub const NLM_NAME_BYTES_MAX: usize = 1024;

/// Bytes of a READ from which on it is answered from the file itself (`sendfile`) rather than through memory:
/// measured crossover is 16 to 32 KiB.
pub const FILE_REPLY_BYTES_MIN: usize = 32 << 10;

/// Mounts that MOUNT's DUMP remembers: a courtesy to `showmount`, nothing depends on it; the oldest go.
pub const MOUNTS_REMEMBERED_MAX: usize = 1024;

/// Results of a compound's earlier operations kept with an intent: a slot's cached reply.
pub const INTENT_PREFIX_BYTES_MAX: usize = SLOT_REPLY_BYTES_MAX;

/// Files whose handles are remembered for CB_NOTIFY_LOCK: 64 bytes each; those who wait for a forgotten one poll.
pub const LOCK_WAITED_FILES_MAX: usize = 16_384;

/// Places of the state table that stay empty, so that a 4.0 client coming back late is told that its lease ran out
/// (NFS4ERR_EXPIRED) and not that it made a stateid up: a few clients' worth, some 200 KiB.
pub const STATE_MEMOS_MIN: usize = 1024;

/// Bytes asked of `getdents64` at once for a listing with attributes: some 200 entries, about one reply. Larger ones
/// are mostly read twice, smaller ones cost more calls.
pub const BACKEND_LISTING_PLUS_BUFFER_BYTES: usize = 8 << 10;

/// Copies that go on after their reply, of all clients: each has a thread of its own, and more at once would only get
/// in each other's way on one disk. Above, a copy stops short and the client asks for the rest.
pub const OFFLOADS_MAX: usize = 16;

/// Such copies of one client, so that no client takes all.
pub const OFFLOADS_PER_CLIENT_MAX: usize = 4;

/// Buffers of large records (up to `RECORD_BYTES_MAX` each) that are kept for the next ones: as many as connections
/// gather one at a time on a busy small server, 17 MiB at most. Dropped under memory pressure.
pub const SPARE_RECORDS_MAX: usize = 16;

/// Names that the local backend remembers from lookups, 96 bytes each: as many as objects in its descriptor cache.
pub const BACKEND_BINDINGS_MAX: usize = 16_384;

/// Bytes of the longest name that it remembers: nearly all are shorter.
pub const BACKEND_BINDING_NAME_BYTES: usize = 39;

/// Slots of all sessions together: with a reply of [`SLOT_REPLY_BYTES_MAX`] kept in each, 1 GiB.
pub const SESSIONS_SLOTS_MAX: usize = 262_144;

/// A new session gets at most one part in so many of the slots that are left: all it asks for until half are gone,
/// then fewer and fewer.
pub const SESSIONS_SLOTS_SHARE: usize = 1_024;

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

/// Clients of 4.0 that can be called back, with a connection of ours to each: as many as a small server's descriptors
/// allow. Those beyond get no delegations.
pub const CALLBACK_PATHS_MAX: usize = 1024;

/// Milliseconds until the first look whether a local process has let go of a lock that somebody waits for: a lock
/// held for one transaction is gone by then.
pub const LOCAL_UNLOCK_POLL_MS_MIN: u64 = 5;

/// Milliseconds between two such looks at most: a look costs 2 us, and a client polls no more often by itself.
pub const LOCAL_UNLOCK_POLL_MS_MAX: u64 = 1_000;

/// Locks of local processes that are waited for at once: a millisecond of looks at most.
pub const LOCAL_UNLOCKS_AWAITED_MAX: usize = 512;

/// Objects of one export that are guarded against local processes at once. Each costs a descriptor, a lease or a
/// mark in the kernel (which pins the inode, 1 KiB) and 300 bytes here.
pub const LOCAL_PLEDGES_MAX: usize = 65_536;

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

/// Clients whose lease ran out and that keep their state until somebody wants it: a site's laptops overnight. Those
/// away longest go first.
pub const COURTESY_CLIENTS_MAX: usize = 4096;

/// Milliseconds for which such a client keeps its state: a day, after which its user has surely noticed.
pub const COURTESY_MS: u64 = 86_400_000;

/// Delegations of all clients, about 300 bytes each here, and some 2 KiB with the descriptors and leases behind them.
pub const DELEGATIONS_MAX: usize = 262_144;

/// The part of all delegations that is kept free: clients are asked for some back when less is left.
pub const DELEGATIONS_SPARE_PART: usize = 10;

/// Delegations of one client: Linux keeps 5,000 by default (`delegation_watermark`) and gives the rest back.
pub const DELEGATIONS_PER_CLIENT_MAX: usize = 65_536;

/// Delegations on one file: each of them is recalled by one writer, who waits for all.
pub const DELEGATIONS_PER_FILE_MAX: usize = 1024;

/// Milliseconds after a recall in which the file is not delegated again: two clients taking turns would otherwise
/// pay for a recall at every turn.
pub const RECENT_RECALL_MS: u64 = 15_000;

/// Files of which a recall is remembered for that; the oldest are forgotten first. 48 bytes each.
pub const RECENT_RECALLS_MAX: usize = 16_384;

/// How many times the time to return a delegation lasts while its holder visibly flushes.
pub const RECALL_STRETCH_MAX: u64 = 3;

/// Milliseconds after which a recall that did not reach its holder is sent again.
pub const RECALL_RETRY_MS: u64 = 2000;

/// Recalls of one delegation that its holder says it does not know, as the reply that brings it may still be on its
/// way; then it is revoked.
pub const RECALL_UNKNOWN_MAX: u32 = 3;

/// Milliseconds between two CB_RECALL_ANY to one client: time to answer the first.
pub const RECALL_ANY_PAUSE_MS: u64 = 10_000;

/// Clients asked for delegations, or for slots, at one tick: those that hold most.
pub const RECALL_ANY_CLIENTS_MAX: usize = 64;

/// Slots that pressure leaves a session: one request at a time still gets through beside a few others.
pub const PRESSED_SLOTS_MIN: u32 = 4;

/// Delegations that clients asked to be offered once they can be had, of all clients: each is looked at once a second,
/// about a microsecond.
pub const WANTS_MAX: usize = 4096;

/// Such wishes of one client.
pub const WANTS_PER_CLIENT_MAX: usize = 1024;

/// Steps through the graph of who waits for whom when a blocking lock is asked for. Beyond it no deadlock is seen,
/// and the waiting ends when the client gives up.
pub const DEADLOCK_STEPS_MAX: usize = 4096;

/// Milliseconds for which a request for a lock counts as waiting: Linux asks again after 30 seconds, and one that a
/// signal ended asks no more.
pub const LOCK_WAIT_FRESH_MS: u64 = 35_000;

/// Share reservations through NLM on one file.
pub const FOREIGN_SHARES_PER_FILE_MAX: usize = 1024;

/// Own opens looked at for a descriptor that can serve I/O under a delegation.
pub const DELEGATED_OPENS_MAX: usize = 64;

/// Descriptors of these opens asked whether they were opened for who does the I/O.
pub const DELEGATED_DESCRIPTORS_MAX: usize = 8;

/// Open files kept with write delegations after their opens are closed: what is written back then need not be permitted
/// anew. A descriptor each, unless a lease has it open anyway; without one the file's mode decides.
pub const DELEGATED_FILES_MAX: usize = 32_768;

/// Entries of a listing whose holders are asked for their attributes at once, with the entries between them.
pub const LISTING_ASKED_MAX: usize = 64;

/// Entries of a listing looked at for what a holder that does not answer has of them.
pub const LISTING_RECALLS_MAX: usize = 4096;

/// Milliseconds for which a holder that left a question about attributes unanswered is not asked again: what is in the
/// way is recalled from it.
pub const SILENT_HOLDER_MS: u64 = 10_000;

/// Changes of a directory's entries that wait to be told to a holder of its delegation: with more it is recalled.
pub const NOTICES_MAX: usize = 256;

/// Listening sockets that a parent keeps for a server.
pub const LISTENERS_KEPT_MAX: usize = 16;

/// Deaths of a server within a minute after which it is not started again.
pub const SUPERVISED_DEATHS_MAX: usize = 5;

/// Counters that files share in the index of promises, by their keys: with 64 changes in flight, a promise meets a
/// stranger's in one of 256 cases and is not given. 8 bytes each.
pub const PROMISE_COUNTERS: usize = 16_384;

/// Parts of the index of promises, each behind a lock of its own: many more than threads.
pub const PROMISE_PARTS: usize = 64;

/// Locks that directories share, by which changes of names wait for each other while anything is promised.
pub const NAME_TURNS: usize = 256;

/// Milliseconds that a change of a name which looks for promises waits for those that do not look: they were begun
/// before the first promise, and last as long as the file system takes.
pub const NAME_DRAIN_MS: u64 = 100;

/// The same for whoever is about to promise something, with an OPEN's reply behind it.
pub const PROMISE_DRAIN_MS: u64 = 2;

/// Milliseconds that a call waits for a recall, counted from the recall's begin, before its client is told to come
/// again: a holder answers within a round trip, or has much to flush.
pub const RECALL_WAIT_MS: u64 = 1_000;

/// One in so many threads of the pool may wait for recalls; the others go on serving, the holders' flushes not least.
pub const RECALL_WAITERS_SHARE: usize = 4;

/// How often a call goes back to ask after promises it met before it tells its client to come again: new promises on
/// what is in demand are the state engine's to refuse.
pub const RECALL_ROUNDS_MAX: usize = 8;

/// Milliseconds for which a holder's answer about a file's attributes serves those who asked while it was asked, and
/// have to come to the pool for it first.
pub const HELD_ATTRIBUTES_FRESH_MS: u64 = 20;

/// Milliseconds for which it is remembered that somebody who wanted a holder's answer could not wait for it: longer than
/// clients take to come again.
pub const HELD_PUT_OFF_MS: u64 = 30_000;

/// Hosts that hold locks by NLM, or held some lately: each is a record in the store and some 200 bytes here.
pub const NLM_HOSTS_MAX: usize = 16_384;

/// Pairs of an NLM lock-owner and a file it holds something of, of all hosts: each may have a descriptor.
pub const NLM_OWNER_FILES_MAX: usize = 65_536;

/// The same of one site, so that none takes all: hosts name themselves, and an address may have many names.
pub const NLM_OWNER_FILES_PER_SITE_MAX: usize = 16_384;

/// Hosts at one site (an IPv4 address, or a network of IPv6), whatever they call themselves.
pub const NLM_HOSTS_PER_SITE_MAX: usize = 1024;

/// Blocking lock requests of all NLM hosts that wait; one more is denied, and its client asks again.
pub const NLM_BLOCKED_MAX: usize = 16_384;

/// The same of one site.
pub const NLM_BLOCKED_PER_SITE_MAX: usize = 4096;

/// Such requests of one lock-owner on one file: a process waits for one lock at a time, but an NLM owner may be a
/// client that counts all of its threads as one.
pub const NLM_BLOCKED_PER_OWNER_FILE_MAX: usize = 64;

/// Milliseconds for which a lock granted to a waiter is held while its client does not answer GRANTED: as long as
/// Linux's client waits before it asks again by itself.
pub const NLM_GRANTED_PATIENCE_MS: u64 = 30_000;

/// Milliseconds after which a host that holds nothing is forgotten, and not told of a restart any more.
pub const NLM_HOST_IDLE_MS: u64 = 300_000;

/// Calls of ours to NLM and NSM clients under way at once.
pub const NLM_CALLS_MAX: usize = 256;

/// Those of them to one site: one that does not answer keeps each for ten seconds.
pub const NLM_CALLS_PER_SITE_MAX: usize = 32;

/// Results under way that NLM's callers want by calls of ours: an obsolete form, which Linux does not use.
pub const NLM_RESULTS_MAX: usize = 64;

/// Those of them to one site.
pub const NLM_RESULTS_PER_SITE_MAX: usize = 8;

/// Ports of clients' NLM and NSM that are remembered: 40 bytes each.
pub const NLM_PORTS_MAX: usize = 4096;

/// Milliseconds for which a host is told again and again that the server restarted, as `sm-notify` does.
pub const NSM_NOTIFY_MS: u64 = 900_000;

/// Hosts that are being told at the same time.
pub const NSM_NOTIFY_AT_ONCE_MAX: usize = 64;

/// Hosts that programs of this machine have the status monitor watch: the kernel's own client does for each NFSv3
/// server with locks.
pub const NSM_MONITORS_MAX: usize = 1024;

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

/// Connections to a mount's control socket: a few commands at once.
pub const CONTROL_CONNECTIONS_MAX: usize = 16;

/// Bytes of a request to a mount's control socket: a server's name and the words around it.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 4 << 10;

/// Bytes of a mount's log, after which it begins anew and the old one is kept once.
pub const MOUNT_LOG_BYTES_MAX: u64 = 4 << 20;

/// Bytes of listings that all local backends together keep as they were written: those of 200,000 entries with handles
/// and attributes. The fullest backend gives up its own for new ones.
pub const LISTING_PAGES_BYTES_MAX: usize = 64 << 20;

/// Seconds for which such a page is shown at most: file systems change the space that a file takes, and the time of last
/// access, without a word.
pub const LISTING_PAGE_SECONDS_MAX: u64 = 30;

/// Calls of one link that are unanswered: more than any session has slots, for the programs beside NFS.
pub const LINK_CALLS_MAX: usize = 1024;

/// Bytes that wait for a connection of ours to take them, before callers wait too: sixteen of the largest writes.
pub const LINK_OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Bytes that a link reads at once: a listing of a small directory, or a few dozen small replies.
pub const LINK_INPUT_BYTES: usize = 32 << 10;

/// Bytes of a record that a link takes: other servers read up to 4 MiB at once, and we ask for no more.
pub const LINK_RECORD_BYTES_MAX: usize = (4 << 20) + (64 << 10);

/// Items of one ACQUIRE, RELEASE, RECLAIM or RECALL of the caps program: each is a handle of up to 128 bytes, and its answer
/// attributes of 160.
pub const CAPS_ITEMS_MAX: usize = 1024;

/// Operations of one batch: their results fit a record, and one batch keeps others waiting for some ten milliseconds.
pub const CAPS_BATCH_OPS_MAX: usize = 1024;

/// Directories of one tree to be removed.
pub const CAPS_TREE_DIRS_MAX: usize = 4096;

/// Operations whose write-back failed that are told of at once.
pub const CAPS_FAILED_MAX: usize = 1024;

/// Threads that serve one FUSE mount: as many requests wait for the server at once, each for one application thread.
/// 32 KiB each while idle, a full WRITE more where one went through; beyond it requests wait in
/// [`FUSE_QUEUE_MAX`].
pub const FUSE_THREADS_MAX: usize = 256;

/// Requests of a FUSE mount that are read and wait for a thread once all wait for the server: so that INTERRUPTs behind
/// them are still seen. Beyond it they stay in the kernel, and so do INTERRUPTs.
pub const FUSE_QUEUE_MAX: usize = 4096;

/// Bytes of those requests: sixteen full WRITEs.
pub const FUSE_QUEUE_BYTES_MAX: usize = 16 << 20;

/// Threads that read requests of a FUSE mount at the same time while none waits: beyond it they only take turns.
pub const FUSE_READERS_MAX: usize = 8;

/// Milliseconds for which a request may be served before another thread takes over reading; the bound for how late an
/// INTERRUPT is seen whose operation did not say that it waits.
pub const FUSE_TICK_MS: u64 = 2;

/// Such ticks without a request after which nobody looks any more until the next one.
pub const FUSE_IDLE_TICKS: u32 = 50;

/// Milliseconds after which a serving thread that was not needed ends.
pub const FUSE_THREAD_IDLE_MS: u64 = 10_000;

/// Pieces of one READ's reply: the kernel takes 1024 at once, header and zeros among them.
pub const FUSE_REPLY_PARTS_MAX: usize = 512;

/// INTERRUPTs remembered whose request has not been seen; then the oldest goes back to the kernel.
pub const FUSE_EARLY_INTERRUPTS_MAX: usize = 256;

/// Milliseconds for which they are: a thread takes microseconds between reading a request and registering it.
pub const FUSE_EARLY_INTERRUPT_MS: u64 = 1000;

/// Callers whose groups are remembered: 100 bytes each.
pub const FUSE_GROUP_CACHE_MAX: usize = 4096;

/// Milliseconds for which they are.
pub const FUSE_GROUP_CACHE_MS: u64 = 1000;

/// Requests in the background (read-ahead, direct I/O, RELEASE) that the kernel sends a FUSE mount at once: 64 READs of
/// 128 KiB fill a link of 10 Gbit/s and 6 ms.
pub const FUSE_BACKGROUND_MAX: u16 = 64;

/// Nodes in one PRUNE notification.
pub const FUSE_PRUNE_MAX: usize = 512;

/// Bytes of one extent of data that a client has not sent: one WRITE.
pub const DIRTY_EXTENT_BYTES_MAX: usize = IO_BYTES_MAX;

/// Bytes that a mount has taken from applications and not sent: two seconds of a 1 Gbit/s link; then they wait.
pub const DIRTY_BYTES_MAX: u64 = 256 << 20;

/// Bytes that a mount has sent and not seen committed; beyond it it commits.
pub const UNSTABLE_BYTES_MAX: u64 = 256 << 20;

/// Bytes of one file that travel with its making, in a batch; larger ones go by WRITE.
pub const SMALL_FILE_BYTES: u64 = 64 << 10;

/// Mutations of a mount that wait to be sent, about 200 bytes each: what a second's batches carry, twice.
pub const QUEUED_MUTATIONS_MAX: usize = 131_072;

/// Batches of a mount that were executed and are not known to be on disk; then it asks for it.
pub const UNSETTLED_BATCHES_MAX: usize = 256;

/// Objects that a client remembers, about 500 bytes each, beside those the kernel refers to.
pub const CACHED_NODES_MAX: usize = 262_144;

/// Names that a client remembers, about 150 bytes each.
pub const CACHED_NAMES_MAX: usize = 524_288;

/// Pages of a directory that are read so that absent names need no question; a larger directory stays incomplete.
pub const FILL_PAGES_MAX: u32 = 64;

/// Milliseconds after which what nobody waits for is sent: what a crash of the client may lose.
pub const UNSYNCED_AGE_MS: u64 = 5_000;

/// Milliseconds for which a new file that is still open for writing keeps back the mutations from it on, so that its
/// data can go with it.
pub const YOUNG_FILE_MS: u64 = 50;

/// Objects whose capabilities are asked for together.
pub const ACQUIRE_ITEMS_MAX: usize = 256;

/// Milliseconds after a recall in which exclusive capabilities are not asked for again.
pub const REACQUIRE_PAUSE_MS: u64 = 1_000;

/// Recalls remembered of objects that are not known yet, as the grant is still on its way.
pub const EARLY_RECALLS_MAX: usize = 4_096;

/// Inode numbers shown for objects made here before the server had numbered them, 60 bytes each: they must not change
/// while the mount lives.
pub const SHOWN_NUMBERS_MAX: usize = 1 << 20;

/// Callers of whom a mount remembers whether they act on the server as themselves.
pub const CALLERS_KNOWN_MAX: usize = 4_096;

/// Reports of failed mutations that wait for the log.
pub const REPORTS_MAX: usize = 1_024;

/// Credentials that a mount keeps encoded: as many different users as a busy host has at a time.
pub const MOUNT_CREDENTIALS_MAX: usize = 1024;

/// Objects of which one client may hold capabilities: 200 bytes each here and as many at the client; a source tree of a
/// hundred thousand files fits.
pub const CAPS_OBJECTS_PER_CLIENT_MAX: usize = 131_072;

/// Objects with capabilities of all clients, each client's counted by itself.
pub const CAPS_OBJECTS_MAX: usize = 1 << 20;

/// Clients that hold capabilities of one object: a change of it recalls all of them at once.
pub const CAPS_HOLDERS_PER_OBJECT_MAX: usize = 1024;

/// Milliseconds after a recall in which nothing exclusive is granted of an object: who shares it works through the server
/// rather than have it wander; after one look of a neighbour the other has it back soon.
pub const CAPS_RECALLED_MS: u64 = 2_000;

/// Batches of one client under way at once: those beyond its next wait for it, their calls parked.
pub const CAPS_BATCHES_MAX: usize = 16;

/// Transactions of one client that are remembered: at most some MiB, until the client says that it will not send them
/// again.
pub const CAPS_TXNS_KEPT_MAX: usize = 1024;

/// Operations of those transactions, in all: each is an entry of the journal, which has room for a dozen such clients.
pub const CAPS_OPS_KEPT_MAX: usize = 8192;

/// Calls that wait for one client's transactions to be durable.
pub const CAPS_STABLE_WAITERS_MAX: usize = 64;

/// Milliseconds after which the transactions of a client of the server's former life are forgotten if it has not come
/// back: an hour, in which whoever lost the network has it again.
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

/// Slots that a client of ours offers for callbacks: recalls come one by one, and are answered at once.
pub const CLIENT_BACK_SLOTS: usize = 8;

/// Callbacks to a client of ours that wait to be answered; one more is refused, and the server calls again.
pub const CLIENT_CALLBACKS_MAX: usize = 256;

/// Ends of copies that a client of ours was told and nobody has asked for yet: a callback may overtake the answer that
/// names the copy.
pub const CLIENT_COPIES_ENDED_MAX: usize = 64;

/// Stateids that a client of ours has tested in one call.
pub const CLIENT_STATEIDS_TESTED_AT_ONCE: usize = 64;

/// Milliseconds for which a mount believes the room it saw on the file system, when it has changed nothing since: a walk
/// through a tree asks for it at every directory.
pub const ROOM_FRESH_MS: u64 = 1_000;
