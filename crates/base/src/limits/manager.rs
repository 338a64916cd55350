//! How promises are kept against whoever else comes.

/// Entries of a listing whose holders are asked for their attributes at once, with the entries between them.
pub const LISTING_ASKED_MAX: usize = 64;

/// Entries of a listing looked at for what a holder that does not answer has of them.
pub const LISTING_RECALLS_MAX: usize = 4096;

/// Milliseconds for which a holder that left a question about attributes unanswered is not asked again: what is in the
/// way is recalled from it.
pub const SILENT_HOLDER_MS: u64 = 10_000;

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

/// How often, a millisecond apart, who wants to keep data of a file beside its writers waits for one of them or tries again.
pub const BESIDE_ROUNDS_MAX: usize = 50;

/// Of the promises that stand on a lease, the part that is asked back at once where leases are scarce: they are in few calls, and it is
/// worth looking at all for the oldest.
pub const LEASED_ASKED_PART: usize = 8;

/// And no more of them than this: what is being recalled of a client is looked at with each of its calls.
pub const LEASED_ASKED_MAX: usize = 1024;

/// Milliseconds after that in which nothing more is asked back: a mount that has nothing to flush answers in less.
pub const LEASED_ASKED_PAUSE_MS: u64 = 5;

/// And as many times as long as that took: no more than one part in so many is spent on it.
pub const LEASED_ASKED_SHARE: u64 = 16;

/// How often a call goes back to ask after promises it met before it tells its client to come again: new promises on
/// what is in demand are the state engine's to refuse.
pub const RECALL_ROUNDS_MAX: usize = 8;

/// Milliseconds for which a holder's answer about a file's attributes is kept for those who wait for it, and for which one
/// that had none is not asked again.
pub const HELD_ATTRIBUTES_KEPT_MS: u64 = 20;

/// Milliseconds for which it is remembered that somebody who wanted a holder's answer could not wait for it: longer than
/// clients take to come again.
pub const HELD_PUT_OFF_MS: u64 = 30_000;
