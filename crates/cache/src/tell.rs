//! What others are told: the kernel (invalidations), the server (releases), people (statistics, reports).

use std::fmt;

use bytes::Bytes;

use crate::attrs::Attrs;
use crate::caps::Grant;
use crate::errno::Errno;
use crate::ids::{Handle, Name, NodeId};
use holdfast_base::CapSet;

/// What the kernel has to forget, or may keep. Sent by a thread that serves no requests; then
/// [`invalidated`](crate::Machine::invalidated) is called with the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// Ascending from 1.
    pub number: u64,
    /// What.
    pub what: Forget,
}

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Attributes, and with them nothing of the data (`inval_inode` with offset -1).
    Attrs(NodeId),
    /// Attributes and all data (`inval_inode` with offset 0).
    Data(NodeId),
    /// Attributes and the data between two offsets.
    Pages(NodeId, u64, u64),
    /// A name, present or absent (`inval_entry`).
    Entry(NodeId, Name),
    /// A directory's listing, and what of one is on its way to a reader: those who read it now have all they were given when
    /// this is done (`inval_entry` of whatever name, which waits for them; then `inval_inode` with offset 0).
    Listing(NodeId),
    /// Not to be forgotten: it is given a file's data, to keep for as long as it has room. To be left out unless
    /// [`begin_store`](crate::Machine::begin_store) says yes when it is about to be done; then
    /// [`stored`](crate::Machine::stored) is called.
    Store(NodeId, Whole),
}

/// All of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Whole {
    /// Under which it was kept here.
    pub number: u64,
    /// What the file holds.
    pub data: Bytes,
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, number {}", self.data.len(), self.number)
    }
}

/// Capabilities given back: `keep` is what remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Of which object.
    pub handle: Handle,
    /// What is still held.
    pub keep: CapSet,
    /// The last grant or recall seen.
    pub seq: u64,
    /// In which life of the server: another counts anew ([`Machine::is_of_this_life`](crate::Machine::is_of_this_life)).
    pub life: u64,
}

/// Capabilities to claim again after the server restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// Of which object.
    pub handle: Handle,
    /// What was held.
    pub caps: CapSet,
}

/// Whether the server gave back what was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// Of which object.
    pub handle: Handle,
    /// What it says, and how the object looks now.
    pub result: Result<(Attrs, Grant), Errno>,
}

/// A mutation that had already returned to its application and then failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it was, in words.
    pub what: String,
    /// Of what, from the mount's root; empty where no name of it is known.
    pub path: Vec<u8>,
    /// The object's inode number, where it is known.
    pub fileid: Option<u64>,
    /// The object, where the kernel knows it.
    pub node: Option<NodeId>,
    /// Why.
    pub errno: Errno,
    /// The name under which ours was kept, when another's had taken it.
    pub kept_as: Option<Name>,
}

impl Report {
    pub(crate) fn new(what: impl Into<String>, node: NodeId, errno: Errno) -> Self {
        let (path, fileid) = (Vec::new(), None);
        Self { what: what.into(), path, fileid, node: Some(node), errno, kept_as: None }
    }
}

/// How many operations of a kind were answered by what is known, and for how many the server was asked.
#[expect(missing_docs, reason = "named for what they count")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub hits: u64,
    pub misses: u64,
}

/// Counters since the mount, and how much is held.
#[expect(missing_docs, reason = "named for what they count")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations, each once; those of them that cost a call where nothing is known of them, nor put off; and those that asked
    /// the server, or waited.
    pub operations: u64,
    pub due: u64,
    pub asks: u64,
    pub waits: u64,
    /// Names that were looked up, attributes, listings from their beginning, opens, and reads.
    pub lookups: Hits,
    pub attributes: Hits,
    pub listings: Hits,
    pub opens: Hits,
    pub reads: Hits,
    pub mutations_queued: u64,
    pub mutations_elided: u64,
    pub mutations_merged: u64,
    pub mutations_failed: u64,
    /// Files made here that are one which the server had made beforehand.
    pub pooled: u64,
    /// Small files read before anybody asked for them, and how long they were.
    pub ahead_files: u64,
    pub ahead_bytes: u64,
    /// Of these, those that somebody came for, and those that were dropped as nobody did.
    pub ahead_used: u64,
    pub ahead_unused: u64,
    /// Blocks read from this host's disk, and those that were not there when they were to be.
    pub blocks_read: u64,
    pub blocks_lost: u64,
    pub batches_sent: u64,
    pub batches_resent: u64,
    pub bytes_written: u64,
    pub bytes_elided: u64,
    pub recalls: u64,
    pub releases: u64,
    pub invalidations: u64,
    /// Files of which the kernel took the data, when they were opened or there was no room for it here any more.
    pub stores: u64,
    /// Blocks kept on this host's disk now.
    pub blocks: u64,
    /// Objects known now.
    pub nodes: u64,
    /// Names known now.
    pub names: u64,
    /// Objects of which anything is held now.
    pub capabilities: u64,
    /// Bytes not sent yet.
    pub dirty_bytes: u64,
    /// Bytes sent and not known to be on disk.
    pub unstable_bytes: u64,
    /// Mutations not sent yet.
    pub queued: u64,
    /// Batches on their way.
    pub in_flight: u64,
    /// Batches executed and not known to be on disk.
    pub unsettled: u64,
}

/// What has still to reach the disk of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Mutations.
    pub mutations: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Of these, bytes that the server has, and that are not known to be on its disk.
    pub bytes_sent: u64,
}
