//! The mount: its client, cache and FUSE side.

use super::protocol::IO_BYTES_MAX;

/// Bytes of a symbolic link's text that a mount makes before the server has been asked: XFS takes no more, where Linux and other file
/// systems do.
pub const PUT_OFF_LINK_BYTES_MAX: usize = 1023;

/// Servers that a server has told a mount of, beside those that its user named: more would be tried for minutes before one that is
/// there has its turn.
pub const SERVERS_TOLD_MAX: usize = 16;

/// Connections to a mount's control socket: a few commands at once.
pub const CONTROL_CONNECTIONS_MAX: usize = 16;

/// Bytes of a request to a mount's control socket: a server's name and the words around it.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 4 << 10;

/// Bytes of a mount's log, after which it begins anew and the old one is kept once.
pub const MOUNT_LOG_BYTES_MAX: u64 = 4 << 20;

/// Calls of one link that are unanswered: more than any session has slots, for the programs beside NFS.
pub const LINK_CALLS_MAX: usize = 1024;

/// Bytes that wait for a connection of ours to take them, before callers wait too: sixteen of the largest writes.
pub const LINK_OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Bytes that a link reads at once: a listing of a small directory, or a few dozen small replies.
pub const LINK_INPUT_BYTES: usize = 32 << 10;

/// Bytes of a record that a link takes: other servers read up to 4 MiB at once, and we ask for no more.
pub const LINK_RECORD_BYTES_MAX: usize = (4 << 20) + (64 << 10);

/// Threads that serve one FUSE mount: as many requests wait for the server at once, each for one application thread.
/// 32 KiB each while idle, a full WRITE more where one went through; beyond it requests wait in
/// [`FUSE_QUEUE_MAX`].
pub const FUSE_THREADS_MAX: usize = 256;

/// Threads that give back locks of processes that were killed: a file whose data must go out first holds up one of them.
pub const UNLOCK_THREADS_MAX: usize = 16;

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

/// Milliseconds that who asks for a lock waits for those to be given back whose file was closed before.
pub const LOCKS_ENDING_MS: u64 = 1000;

/// Files that a mount remembers to have seen POSIX locks of; beyond it every close of every file is told.
pub const LOCKED_FILES_MAX: usize = 4096;

/// Nodes in one PRUNE notification.
pub const FUSE_PRUNE_MAX: usize = 512;

/// Bytes of one extent of data that a client has not sent: one WRITE.
pub const DIRTY_EXTENT_BYTES_MAX: usize = IO_BYTES_MAX;

/// Bytes of an extent of data that is sent as soon as it is written: a WRITE as good as any. Smaller ones wait for what may be
/// written beside them, as long as nobody wants the file's data to go.
pub const LARGE_EXTENT_BYTES: usize = 128 << 10;

/// Extents of one file's data, dirty or not committed; beyond them it is sent and committed before more is written. Each takes some 150 bytes
/// here, however few of the file's it has.
pub const EXTENTS_MAX: usize = 128 << 10;

/// Bytes that a mount has taken from applications and not sent: two seconds of a 1 Gbit/s link; then they wait.
pub const DIRTY_BYTES_MAX: u64 = 256 << 20;

/// Bytes that a mount has sent and not seen committed; beyond it it commits.
pub const UNSTABLE_BYTES_MAX: u64 = 256 << 20;

/// Bytes of one file that travel with its making, in a batch; larger ones go by WRITE.
pub const SMALL_FILE_BYTES: u64 = 64 << 10;

/// Pieces of one file's data that travel so, each an operation of its own; what lies scattered in more goes by WRITE.
pub const SMALL_FILE_PIECES_MAX: usize = 64;

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

/// Batches of a mount that wait for the server's disk: with all others that are under way they are no more than a server takes.
pub const FORCED_BATCHES_MAX: usize = 4;

/// Bytes of what such a batch carries: it may have to be sent twice, and keeps a place at the server for as long as it waits. A larger one
/// takes longer on its way than the question that it would save.
pub const FORCED_BYTES_MAX: usize = 64 << 10;

/// Milliseconds for which the answer to such a batch is awaited before what was executed is asked for by itself: several forces of a
/// slow disk.
pub const FORCED_PATIENCE_MS: u64 = 500;

/// Milliseconds after which what nobody waits for is sent: what a crash of the client may lose.
pub const UNSYNCED_AGE_MS: u64 = 5_000;

/// Milliseconds after which a mount looks again at what is due and cannot be sent, as what goes before it is under way or the server
/// is away: that it can be is told by the answer, so that this is for nothing but the time that passes.
pub const STILL_DUE_MS: u64 = 200;

/// Milliseconds for which a new file that is still open for writing keeps back the mutations from it on, so that its
/// data can go with it.
pub const YOUNG_FILE_MS: u64 = 50;

/// Objects whose capabilities are asked for together.
pub const ACQUIRE_ITEMS_MAX: usize = 256;

/// Milliseconds after a recall in which exclusive capabilities are not asked for again.
pub const REACQUIRE_PAUSE_MS: u64 = 1_000;

/// Milliseconds after the removal of a directory in which those beside it, and all below them, are taken to be about to go
/// as well: what that needs is asked for with their listings.
pub const CLEARING_MS: u64 = 2_000;

/// Names promised by themselves that a mount knows of: as many as a server promises one.
pub const LEASED_NAMES_MAX: usize = super::CAPS_NAMES_PER_CLIENT_MAX;

/// Recalls remembered of objects that are not known yet, as the grant is still on its way.
pub const EARLY_RECALLS_MAX: usize = 4_096;

/// Parts of a file that the kernel is told to drop by themselves while a recall is answered; then the file as a whole.
pub const DROPPED_PARTS_MAX: usize = 64;

/// Milliseconds that a read or write of a mount waits for a recall to be answered, before it goes on beside it.
pub const PARKED_MS_MAX: u64 = 50;

/// Milliseconds for which the kernel may keep what nothing covers of a file that is read through its pages, when it has had to drop
/// some a moment ago.
pub const KEPT_BUFFERED_MS: u64 = 2;

/// The same where only mappings go through them, or nothing can go past them: long enough for a program to go on that needs
/// several pages of a mapping at once.
pub const KEPT_MAPPED_MS: u64 = 20;

/// Milliseconds for which a mount keeps pages of a file that others have open for writing, where one may be kept waiting by it at
/// each write, and a process on the server's host that writes through a mapping is not noticed.
pub const LENT_MS: u64 = 100;

/// Times that a read or write of a mount asks for the capability that covers the kernel's pages, where recalls overtake the grant.
pub const COVERS_ASKED_MAX: u32 = 8;

/// Inode numbers shown for objects made here before the server had numbered them, 60 bytes each: they must not change
/// while the mount lives.
pub const SHOWN_NUMBERS_MAX: usize = 1 << 20;

/// Callers of whom a mount remembers whether they act on the server as themselves.
pub const CALLERS_KNOWN_MAX: usize = 4_096;

/// Opens that a mount's server is being told of at once, when what covered them ends: 500 of them over a line of 50 ms take less
/// than a second so, and whoever asked for what covered them waits for that.
pub const OPENS_TOLD_MAX: usize = 32;

/// Reports of failed mutations that wait for the log.
pub const REPORTS_MAX: usize = 1_024;

/// Credentials that a mount keeps encoded: as many different users as a busy host has at a time.
pub const MOUNT_CREDENTIALS_MAX: usize = 1024;

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

/// Delegations that a mount keeps where the server does not say how many: beyond it a quarter goes back, those unused for
/// longest first.
pub const DELEGATIONS_KEPT_MAX: usize = 16_384;

/// Milliseconds after which the delegation of what is not open and that nobody has looked at goes back.
pub const DELEGATION_UNUSED_MS: u64 = 600_000;

/// Milliseconds between two looks at which delegations are unused.
pub const DELEGATIONS_LOOK_MS: u64 = 10_000;

/// Milliseconds after a recall, or after a delegation was refused, in which the same file's is not asked for again.
pub const DELEGATION_REFUSED_MS: u64 = 5_000;

/// Files remembered whose delegation is not to be asked for now.
pub const DELEGATIONS_REFUSED_MAX: usize = 16_384;

/// Bytes of small files that a mount keeps after they were sent or read, so that reading them asks nothing.
pub const CLEAN_BYTES_MAX: usize = 64 << 20;

/// Bytes of those that wait for the kernel to take them, when there was no room any more: it takes them in some milliseconds, for
/// which what it is to forget waits as well.
pub const STORES_BYTES_MAX: usize = 2 << 20;

/// Bytes of files' contents that a mount keeps on its host's disk (`-o offline`) where nobody says how many: a project or two, in 1 MiB
/// of memory, on a disk that has it to spare.
pub const OFFLINE_BYTES_DEFAULT: u64 = 1 << 30;

/// The same is at most such a part of what is free there, so that a small disk is not filled: others live on it, and the journal too.
pub const OFFLINE_PART_OF_FREE: u64 = 4;

/// Bytes of a block of a file's contents that a mount keeps on its host's disk (`-o offline`): a reader of a large file asks for twice
/// as much, and a record of some 40 bytes in the journal says of each where it is.
pub const KEPT_BLOCK_BYTES: u32 = 64 << 10;

/// Slots that there may be at most: 16 TiB.
pub const KEPT_SLOTS_MAX: u32 = 1 << 28;

/// Bytes of blocks that wait to be written there: half a second of a slow disk. What comes beyond that is not kept.
pub const KEPT_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Slots that are emptied before they are needed, at most; else one in sixteen. A slot can be written over once a record in the journal
/// has said so, 100 ms later: that is as much as is read meanwhile over 10 Gbit/s.
pub const KEPT_SPARE_SLOTS_MAX: usize = 2048;

/// Blocks that are read from there with one question: as much as one READ.
pub const KEPT_READ_BLOCKS_MAX: usize = 16;

/// Small files of a directory that are asked for, one after the other, before others of it are read ahead: who reads one or two
/// may want no more.
pub const AHEAD_AFTER: u32 = 2;

/// Files of a directory that are read ahead at first, and not used yet. Where half of as many were read there are twice as many.
pub const AHEAD_FILES_MIN: usize = 8;

/// The same at most: what goes through a round trip of 10 ms while each file is looked at for 50 µs.
pub const AHEAD_FILES_MAX: usize = 256;

/// Files read ahead with one call: two operations each of a compound.
pub const AHEAD_CALL_FILES_MAX: usize = 16;

/// Bytes of them: 2 ms of a 1 Gbit/s link, for which others' answers wait.
pub const AHEAD_CALL_BYTES_MAX: usize = 256 << 10;

/// Such calls of a mount at a time, each in a thread of its own.
pub const AHEAD_CALLS_MAX: usize = 4;

/// Bytes of a mount that are read ahead and not used: more than `AHEAD_FILES_MAX` files of usual size.
pub const AHEAD_BYTES_MAX: usize = 8 << 20;

/// Milliseconds without a file being read after which a directory, or the mount, counts as left alone.
pub const AHEAD_PAUSE_MS: u64 = 1_000;

/// Milliseconds after which what was read ahead and not used is dropped.
pub const AHEAD_KEPT_MS: u64 = 10_000;

/// Milliseconds in which nothing is read ahead after the server has not given any of it.
pub const AHEAD_REFUSED_MS: u64 = 1_000;

/// Files that the server does not give among those of one call, after which what is behind them is left: each costs another call.
pub const AHEAD_REFUSALS_MAX: usize = 3;

/// Milliseconds after which no other call is made for what is behind such a file: who comes for it meanwhile waits.
pub const AHEAD_CALL_MS: u64 = 100;

/// Milliseconds that who comes for a file waits for the call by which it is read ahead: that is held up by the slowest of its files.
/// At least, so that nothing is read twice for a hiccup; at most, of a server that is far away or was never measured.
pub const AHEAD_WAIT_MS_MIN: u64 = 20;
/// See [`AHEAD_WAIT_MS_MIN`].
pub const AHEAD_WAIT_MS_MAX: u64 = 1_000;

/// Entries of a directory that are looked at for files to be read ahead, each time.
pub const AHEAD_SCAN_MAX: usize = 1024;

/// Bytes from which on a file is passed through to the server's own, where that was asked for: to begin costs three
/// questions, and a small file is read at once.
pub const PASSTHROUGH_BYTES_MIN: u64 = 64 << 10;

/// Bytes that are read from there, in one comparing with a server that is back, to make files whole that were changed on both sides:
/// they lie in memory until the server has them, as what applications write.
pub const MERGED_BYTES_MAX: usize = 256 << 20;

/// Places that are told of what such a file lacks: a line that can still be read.
pub const MERGED_GAPS_TOLD: usize = 16;

/// Conflicts that a mount remembers: further ones are in its log alone.
pub const CONFLICTS_MAX: usize = 10_000;

/// Creates in a directory, by one caller, before files are asked for that the server makes beforehand: most directories get a
/// file or two, and each question costs a round trip of somebody's.
pub const POOL_AFTER: u32 = 4;

/// Files that are asked for at first. Who uses them up before more come is given twice as many.
pub const POOL_FILES_MIN: usize = 16;

/// Creates in a directory, without a pause, after which no more are asked for.
pub const POOL_CREATES_MAX: u32 = 1024;

/// Files that one mount has kept, in all directories.
pub const POOL_FILES_MAX: usize = 512;

/// Directories for which files are kept at a time: another takes the place of the one that was not used for the longest.
pub const POOL_DIRECTORIES_MAX: usize = 64;

/// Callers for each of whom some are kept in one directory: others are few where many users make files.
pub const POOL_CALLERS_MAX: usize = 16;

/// Milliseconds after the last create in a directory until what is kept for it goes back: as long as a build or a copy pauses.
pub const POOL_IDLE_MS: u64 = 10_000;

/// Milliseconds after which one is not used any more: the server keeps it for twice as long, and its batch has still to get there.
pub const POOL_FRESH_MS: u64 = 60_000;

/// Milliseconds in which no more are asked for where the server had fewer, or was not heard.
pub const POOL_PAUSE_MS: u64 = 1_000;

/// The same where it has none for a directory.
pub const POOL_REFUSED_MS: u64 = 60_000;

/// Numbers shown of files that were not heard to have been made under them.
pub const POOL_NUMBERS_MAX: usize = 65_536;
