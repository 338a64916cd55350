//! Clients, sessions, opens, locks and delegations, and their recall.

/// Slots in one session: what Linux asks for (`NFS4_MAX_SLOT_TABLE` is 1024, it requests 64).
pub const SESSION_SLOTS_MAX: u32 = 128;

/// Bytes of one cached reply in a slot; larger replies are not cached (`NFS4ERR_REP_TOO_BIG_TO_CACHE`).
pub const SLOT_REPLY_BYTES_MAX: usize = 4096;

/// Client incarnations the state engine remembers. Each costs about 1 KiB before it opens anything; the largest
/// NFS servers in use serve some ten thousand.
pub const CLIENTS_MAX: usize = 32_768;

/// Client records of one host, or of one network behind an address: half of all. One that comes under ever new names, and
/// keeps them alive, leaves the other half to all others; and no network in use has as many clients behind one address.
pub const CLIENTS_PER_SITE_MAX: usize = CLIENTS_MAX / 2;

/// Unconfirmed client records among them: a flood of EXCHANGE_ID or SETCLIENTID by one stranger must not use up
/// the room of clients that confirm.
pub const CLIENTS_UNCONFIRMED_MAX: usize = 4096;

/// Unconfirmed client records of one host, or of one network behind an address: a client confirms in a round trip, so
/// even a cluster behind one address that comes back at once has fewer at a time.
pub const CLIENTS_UNCONFIRMED_PER_SITE_MAX: usize = 1024;

/// Bytes of a client's owner string (`NFS4_OPAQUE_LIMIT`).
pub const CLIENT_OWNER_BYTES_MAX: usize = 1024;

/// Bytes of the callback address a 4.0 client sends, held opaque: a netid and a universal address are below 100.
pub const CALLBACK_BYTES_MAX: usize = 1024;

/// Sessions of one client. Linux makes one; trunking and tests make a few.
pub const SESSIONS_PER_CLIENT_MAX: usize = 16;

/// Milliseconds for which a client that has begun anew waits for what is being executed of its former life: as long as calls take
/// that do not hang.
pub const FORMER_AT_WORK_MS: u64 = 2_000;

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

/// Byte ranges of all holders on one file: eight holders at their bound.
pub const LOCK_RANGES_PER_FILE_MAX: usize = 131_072;

/// Byte ranges of one NFSv4 client, as many as it may have stateids.
pub const LOCK_RANGES_PER_CLIENT_MAX: usize = 262_144;

/// Byte ranges of all owners that came by one door other than NFSv4, half of all: no one protocol uses up the others' room.
pub const LOCK_RANGES_PER_DOOR_MAX: usize = LOCK_RANGES_MAX / 2;

/// Byte ranges of all: 24 bytes each, 80 more where a file has many holders, so 100 MiB at the very worst.
pub const LOCK_RANGES_MAX: usize = 1 << 20;

/// Lock holders (lock-owners of any protocol) on one file.
pub const LOCK_HOLDERS_PER_FILE_MAX: usize = 16_384;

/// Lock holders of one file up to which each is asked for what is in the way of a lock: a third of a microsecond. Of more
/// there is an index, which costs 80 bytes a lock.
pub const LOCK_HOLDERS_LISTED: usize = 32;

/// Blocked lock requests remembered on one file; later ones are told to poll.
pub const LOCK_WAITERS_PER_FILE_MAX: usize = 1024;

/// The same of one client: each process waits for one lock at a time.
pub const LOCK_WAITERS_PER_CLIENT_MAX: usize = 4096;

/// The same of all owners that came by one door other than NFSv4, half of all.
pub const LOCK_WAITERS_PER_DOOR_MAX: usize = LOCK_WAITERS_MAX / 2;

/// The same of all, some 200 bytes each.
pub const LOCK_WAITERS_MAX: usize = 65_536;

/// How long a freed range is kept for the waiter that was notified of it, in milliseconds: a round trip to a slow
/// client, and short enough that a dead one hardly delays the next.
pub const LOCK_HANDOFF_MS: u64 = 1000;

/// Sequence numbers that a 4.0 open-owner may leave out at once when it has reclaimed: Linux counts one for each LOCK that
/// waited for its recovery, and as many processes of a client as may well wait for one file.
pub const OWNER_SKIPPED_MAX: u32 = 256;

/// Bytes of the last reply kept for a 4.0 owner's replay: LOCK's denial with the longest owner fits.
pub const OWNER_REPLY_BYTES_MAX: usize = 2048;

/// Places of the state table that stay empty, so that a 4.0 client coming back late is told that its lease ran out
/// (NFS4ERR_EXPIRED) and not that it made a stateid up: a few clients' worth, some 200 KiB.
pub const STATE_MEMOS_MIN: usize = 1024;

/// Slots of all sessions together: with a reply of [`SLOT_REPLY_BYTES_MAX`] kept in each, 1 GiB.
pub const SESSIONS_SLOTS_MAX: usize = 262_144;

/// A new session gets at most one part in so many of the slots that are left: all it asks for until half are gone,
/// then fewer and fewer.
pub const SESSIONS_SLOTS_SHARE: usize = 1_024;

/// Clients whose lease ran out and that keep their state until somebody wants it: a site's laptops overnight. Those
/// away longest go first.
pub const COURTESY_CLIENTS_MAX: usize = 4096;

/// Milliseconds for which such a client keeps its state: a day, after which its user has surely noticed.
pub const COURTESY_MS: u64 = 86_400_000;

/// Clients of which lost incarnations are remembered, some hundred bytes each: hosts that were switched off and never came back, or may
/// yet wake. With more, those lost longest ago are taken for new should they come.
pub const LOST_CLIENTS_MAX: usize = 65_536;

/// Lost incarnations that are remembered of one client: a host has one that may come back; several hosts under one name, as copies of
/// one image are, have each their own.
pub const LOST_INCARNATIONS_MAX: usize = 8;

/// By how much a directory must be older than a client's acquaintance with the server for its names to be delegated, in
/// milliseconds: file systems stamp changes by ticks of some milliseconds.
pub const DIRECTORY_AGE_SLACK_MS: u64 = 1000;

/// The same, as a part of the time for which the client has been known: calendar clocks are slewed by up to a two-thousandth.
pub const DIRECTORY_AGE_SLACK_PART: u64 = 1000;

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

/// How many times the time to give back what is recalled lasts while its holder visibly flushes, whatever it sends.
pub const RECALL_STRETCH_MAX: u64 = 3;

/// The least of bytes a second, 1 Mbit/s: for each that a holder sends while something is recalled from it, it has so much longer to
/// give that back. Of less, one WRITE of [`IO_BYTES_MAX`](super::IO_BYTES_MAX) alone would take longer than it may be silent.
pub const RECALL_FLUSH_BYTES_PER_S: u64 = 128 << 10;

/// Bytes that count so, of one recall: twice what a mount keeps unsent ([`DIRTY_BYTES_MAX`](super::DIRTY_BYTES_MAX)), for it sends
/// what is written to other files meanwhile by turns with what is waited for. Who has sent so much has no longer: 68 minutes, if he
/// sends so slowly, and seconds over a fast line.
pub const RECALL_FLUSH_BYTES_MAX: u64 = 512 << 20;

/// How many times the time to return a delegation lasts, from when it was first to be recalled, where the recall could not be sent
/// yet: all slots of its holder's back channel are taken, say.
pub const RECALL_UNSENT_MAX: u64 = 2;

/// Milliseconds after which a recall that did not reach its holder is sent again.
pub const RECALL_RETRY_MS: u64 = 2000;

/// Recalls of one delegation that its holder says it does not know though it has had the reply that brought it, as the
/// answer may have crossed with that; then it is revoked.
pub const RECALL_UNKNOWN_MAX: u32 = 3;

/// Milliseconds between two CB_RECALL_ANY to one client: time to answer the first.
pub const RECALL_ANY_PAUSE_MS: u64 = 10_000;

/// Delegations that are recalled from one client at one tick to make room, where it cannot be left to it which.
pub const RECALLED_AT_ONCE_MAX: usize = 256;

/// Clients asked for delegations, or for slots, at one tick: those that hold most.
pub const RECALL_ANY_CLIENTS_MAX: usize = 64;

/// Slots that pressure leaves a session: one request at a time still gets through beside a few others.
pub const PRESSED_SLOTS_MIN: u32 = 4;

/// Delegations that clients asked to be offered once they can be had, of all clients: each is looked at once a second,
/// about a microsecond.
pub const WANTS_MAX: usize = 4096;

/// Such wishes of one client.
pub const WANTS_PER_CLIENT_MAX: usize = 1024;

/// Steps through the graph of who waits for whom when a blocking lock is asked for: each party, file, waiter and lock looked
/// at is one, a fifth of a microsecond or so. A request for which they do not suffice is denied and not put in line.
pub const DEADLOCK_STEPS_MAX: usize = 16_384;

/// Milliseconds for which a request for a lock counts as waiting: Linux asks again after 30 seconds, and one that a
/// signal ended asks no more.
pub const LOCK_WAIT_FRESH_MS: u64 = 35_000;

/// Share reservations through NLM on one file.
pub const FOREIGN_SHARES_PER_FILE_MAX: usize = 1024;

/// Own opens looked at for a descriptor that can serve I/O under a delegation.
pub const DELEGATED_OPENS_MAX: usize = 64;

/// Milliseconds for which a reclaim keeps the grace period open, up to twice the period's length: a client reclaims one
/// thing after another, and each takes a few round trips.
pub const GRACE_STRETCH_MS: u64 = 2000;

/// Milliseconds for which a client of 4.0 that is heard of reclaims nothing when it has come to the end of reclaiming: as long as
/// Linux waits at most before it tries a refused reclaim again (`NFS4_POLL_RETRY_MAX`). With a short lease less, as there is
/// [`RECLAIM_PAUSE_OF_LEASE`].
pub const RECLAIM_PAUSE_MS: u64 = 15_000;

/// Which part of a lease that is at most: a client renews every two thirds of one, so that most are done before grace ends.
pub const RECLAIM_PAUSE_OF_LEASE: u64 = 4;

/// Bytes of memory from which on state may take what the bounds of this file allow: all of it in use is some 2 GiB, a
/// quarter. With less memory there is proportionally less of it.
pub const MEMORY_OF_WHOLE_BUDGETS: u64 = 8 << 30;

/// The part of a bound that is allowed however little memory there is: a few clients can work with it.
pub const BUDGET_PART_MIN: usize = 256;

/// The part of the memory that is to be available: with less it is short, and clients and caches give back.
pub const MEMORY_SPARE_PART: u64 = 8;

/// Bytes available that are enough however much memory there is.
pub const MEMORY_SPARE_BYTES_MAX: u64 = 1 << 30;

/// The part of the slots there is memory for that one new session gets at most: what clients ask for (Linux: 64) from 1,024
/// slots on.
pub const SESSIONS_SLOTS_ROOM_SHARE: usize = 16;
