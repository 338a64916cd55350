//! What times a server gives files of its own accord while it executes what was sent: what it has of them after it has lost its
//! power is no others' doing.

use holdfast_base::{CapSet, Timestamp};

use super::base::told_time;
use crate::attrs::{Attrs, Kind};
use crate::ids::NodeId;
use crate::machine::Machine;
use crate::mutation::MutationResult;
use crate::queue::Op;

/// The server's clock is read in steps so long, in milliseconds, where a file is given its time.
const CLOCK_STEP_MS: u64 = 10;

/// No file system is less precise.
const PRECISION_S: i64 = 2;

/// A file's times behind an operation that gave it one, as the server told them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Its modification time: another than was given where its file system is less precise, or the server does not believe so much
    /// of who does not own the file (`caps-protocol.md` 5.1).
    pub(crate) mtime: Timestamp,
    /// By the server's clock: from when on nobody but us can have been there, and until when; the same where somebody might.
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
}

impl Left {
    /// Whether a file with these times may be ours as it was left, or as it was in the middle of it: written, and not given its time
    /// yet. What others do then has a later time of change, whatever modification time they set.
    pub(super) fn admits(&self, theirs: &Attrs) -> bool {
        let is_meanwhile = |at| self.since <= at && at <= self.until && self.since < self.until;
        theirs.mtime == self.mtime || (is_meanwhile(theirs.mtime) && is_meanwhile(theirs.ctime))
    }
}

/// Whether nothing was done to it since it was made: by us, and then not given its time yet.
pub(super) fn is_as_made(theirs: &Attrs) -> bool {
    theirs.btime == Some(theirs.mtime) && theirs.ctime == theirs.mtime
}

impl Machine {
    /// What an operation has left of a file, as far as its result tells, and nobody else can have made that of it meanwhile.
    /// `took_ms`: from when it was sent until that came.
    pub(crate) fn left_by(&self, op: &Op, result: &MutationResult, took_ms: u64) -> Option<(NodeId, Left)> {
        let MutationResult::Done { attrs: Some(attrs), .. } = result else { return None };
        let (given, id) = (told_time(op)?, op.nodes()[0]?);
        let node = self.nodes.get(&id)?;
        let (mtime, until) = (attrs.mtime, attrs.ctime);
        let is_alone = (node.held | node.giving_back).contains(CapSet::FILE_X);
        // Others may have found what was just made; but then it has a time of their clock, or the server's.
        let is_clipped = mtime <= given && given.seconds.saturating_sub(mtime.seconds) <= PRECISION_S;
        let since = if is_alone { before(until, took_ms + CLOCK_STEP_MS) } else { until };
        let is_ours = attrs.kind == Kind::File && (is_alone || is_clipped);
        is_ours.then_some((id, Left { mtime, since, until }))
    }
}

/// So many milliseconds before that.
fn before(Timestamp { seconds, nanos }: Timestamp, ms: u64) -> Timestamp {
    const NANOS_MS: u64 = 1_000_000;
    let whole = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    let part = (ms % 1000 * NANOS_MS) as u32;
    let seconds = seconds.saturating_sub(whole);
    match nanos.checked_sub(part) {
        Some(nanos) => Timestamp { seconds, nanos },
        None => Timestamp { seconds: seconds.saturating_sub(1), nanos: nanos + 1_000_000_000 - part },
    }
}
