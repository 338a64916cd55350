//! Settling: from an intent without a trusted reply, and a look at the file system, to what is done about it.
//!
//! Where the file system cannot tell, the rule prefers "it happened": a client that is told of a success which
//! somebody undid sees what it would have seen had that somebody come a moment later; a mutation done twice can
//! destroy another's work.

use holdfast_base::Timestamp;
use serde::{Deserialize, Serialize};

use crate::intent::{HandleBytes, Intent, NodeKind};

/// How much older than the intent an object's birth may look and still be its work: file systems stamp with the
/// time of the last timer tick, 10 ms ago at most (HZ=100); twice that.
const BIRTH_SLACK_NANOS: i128 = 20_000_000;

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// Nothing: no such name, or the directory or object itself is gone.
    Absent,
    /// An object.
    Object(Facts<'a>),
    /// The hash of an extended attribute's value.
    Xattr([u8; 16]),
    /// The look failed (an I/O error): it may succeed later.
    Failed,
}

/// What is seen of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Its handle.
    pub handle: HandleBytes<'a>,
    /// What it is.
    pub kind: NodeKind<'a>,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// Birth, where the file system keeps it.
    pub birth: Option<Timestamp>,
}

/// What to do when the request comes again, or at once where a reply was recorded but may have been overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// It happened: answer success, from the recorded reply or from what is there now. After a `Make` first set the
    /// request's attributes on what is there: the crash may have come between making and setting.
    HappenedAlready,
    /// It did not: drop the entry and run the request as a new one.
    NotHappened,
    /// Run it again with its guard left out; having run before, it gives the same.
    Repeat,
    /// Not known while the file system fails: answer DELAY (JUKEBOX) and look again.
    CannotTell,
}

/// Settles an intent by what its [`Intent::looks`] found, in that order; looks it does not have are [`Seen::Absent`].
#[must_use]
pub fn settle(intent: &Intent<'_>, seen: [Seen<'_>; 2]) -> Settled {
    if matches!(intent, Intent::Repeatable | Intent::Removals { .. }) {
        return Settled::Repeat;
    }
    if seen.contains(&Seen::Failed) {
        return Settled::CannotTell;
    }
    let happened = match intent {
        Intent::SetAttr { ctime_before, .. } => return settle_setattr(*ctime_before, seen[0]),
        // The name was taken: an UNCHECKED create opens it again, any other fails again.
        Intent::Make { before: Some(_), .. } | Intent::Link { before: Some(_), .. } => false,
        Intent::Make { kind, started_at, .. } => {
            matches!(seen[0], Seen::Object(is) if is_work_of(&is, kind, *started_at))
        }
        Intent::Link { object, .. } => is(seen[0], object),
        Intent::Remove { victim, .. } => !is(seen[0], victim),
        Intent::Rename { source, target, is_exchange, .. } => has_moved(source, *target, *is_exchange, seen),
        Intent::MakeXattr { existed, value_hash, .. } => !existed && seen[0] == Seen::Xattr(*value_hash),
        Intent::RemoveXattr { existed, .. } => *existed && seen[0] == Seen::Absent,
        Intent::Repeatable | Intent::Removals { .. } => false,
    };
    if happened { Settled::HappenedAlready } else { Settled::NotHappened }
}

fn is(seen: Seen<'_>, handle: HandleBytes<'_>) -> bool {
    matches!(seen, Seen::Object(facts) if facts.handle == handle)
}

/// Whether an object under a name that was free is what the intent was about to make: of its kind and not born
/// before it. One made by a local process while the server was dead passes for ours; nothing tells them apart.
pub(crate) fn is_work_of(facts: &Facts<'_>, kind: &NodeKind<'_>, started_at: Timestamp) -> bool {
    let nanos = |t: Timestamp| i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos);
    let is_older = facts.birth.is_some_and(|birth| nanos(birth) + BIRTH_SLACK_NANOS < nanos(started_at));
    facts.kind == *kind && !is_older
}

/// A rename has happened when the old name no longer stands for the source. When both names stand for it, either it
/// has not, or they are links of one object, for which rename does nothing (POSIX): to do it again is right.
fn has_moved(
    source: HandleBytes<'_>,
    target: Option<HandleBytes<'_>>,
    is_exchange: bool,
    seen: [Seen<'_>; 2],
) -> bool {
    match (is_exchange, target) {
        (_, Some(target)) if target == source => false,
        _ => !is(seen[0], source),
    }
}

/// Several attributes are set one after the other, so a changed ctime may mean that some are: all are set again,
/// without the guard, which our own change would fail.
fn settle_setattr(ctime_before: Timestamp, seen: Seen<'_>) -> Settled {
    match seen {
        Seen::Object(facts) if facts.ctime != ctime_before => Settled::Repeat,
        _ => Settled::NotHappened,
    }
}
