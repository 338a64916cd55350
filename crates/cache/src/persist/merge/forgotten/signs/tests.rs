use std::time::{Duration, Instant as Clock};

use holdfast_base::limits::CAPS_OPS_KEPT_MAX;
use holdfast_base::{CapSet, Instant, Timestamp};
use proptest::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Sent, Signs, Slot, places, vacates};
use crate::ask::RenameMode;
use crate::attrs::{Attrs, Device, Kind, NewAttrs};
use crate::ids::{Caller, Handle, Name, NodeId};
use crate::persist::merge::forgotten::Looked;
use crate::queue::{Load, Op, Queued, Thing};

fn slot(number: u64) -> Slot {
    (NodeId::ROOT, Name::new(format!("{number}").as_bytes()))
}

fn handle(id: NodeId) -> Handle {
    Handle::new(&id.0.to_be_bytes())
}

fn make(node: u64, at: u64) -> Op {
    let (dir, name) = slot(at);
    let (attrs, load) = (NewAttrs::default(), Load::default());
    let (node, want) = (NodeId(node), CapSet::NONE);
    Op::Make { dir, name, node, thing: Thing::File, attrs, load, want, joins: false }
}

fn rename(node: u64, from: u64, to: u64, over: Option<u64>) -> Op {
    let (from, to, mode) = (slot(from), slot(to), RenameMode::Replace);
    Op::Rename { from, to, node: NodeId(node), mode, after: None, over: over.map(NodeId) }
}

fn sent(ops: Vec<Op>) -> Vec<Sent> {
    let caller = Caller::new(0, 0);
    let queued = |(serial, op)| (Queued { serial, at: Instant(0), caller: caller.clone(), op }, true);
    (1..).zip(ops).map(queued).collect()
}

/// What is there: which object each name stands for, and which are there at all.
struct There {
    names: Vec<(Looked, (Handle, Attrs))>,
    handles: FxHashMap<NodeId, Handle>,
    there: FxHashMap<NodeId, Attrs>,
}

impl There {
    fn new(names: &[(u64, u64)], there: &[u64], nodes: u64) -> Self {
        let at = Timestamp { seconds: 0, nanos: 0 };
        let attrs = Attrs {
            kind: Kind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            allocated: 0,
            device: Device { major: 0, minor: 0 },
            atime: at,
            mtime: at,
            ctime: at,
            btime: None,
            change: 1,
            fileid: 2,
        };
        let named = |&(at, node): &(u64, u64)| {
            let (dir, name) = slot(at);
            (Looked::Name(dir, name), (handle(NodeId(node)), attrs))
        };
        Self {
            names: names.iter().map(named).collect(),
            handles: (2..nodes + 2).map(|id| (NodeId(id), handle(NodeId(id)))).collect(),
            there: there.iter().map(|id| (NodeId(*id), attrs)).collect(),
        }
    }

    fn signs<'s>(&'s self, sent: &'s [Sent]) -> Signs<'s> {
        let seen = self.names.iter().map(|(looked, found)| (looked, found)).collect();
        Signs::new(sent, seen, self.handles.clone(), self.there.clone())
    }
}

const MANY: u64 = CAPS_OPS_KEPT_MAX as u64;

/// Long enough for a slow machine, and far too short to look at each once for each other.
const MOMENT: Duration = Duration::from_secs(1);

#[test]
fn a_chain_of_renames_is_judged_at_once() {
    let stories: [(&str, Vec<Op>, There); 4] = [
        (
            "one file, moved on and on",
            (0..MANY).map(|n| rename(2, n, n + 1, None)).collect(),
            There::new(&[], &[2], 1),
        ),
        (
            "one file, moved to and fro",
            (0..MANY).map(|n| rename(2, n % 2, (n + 1) % 2, None)).collect(),
            There::new(&[], &[2], 1),
        ),
        (
            "a file saved again and again",
            (0..MANY / 2).flat_map(|n| [make(n + 3, 1), rename(n + 3, 1, 0, Some(n + 2))]).collect(),
            There::new(&[(0, 2)], &[2], MANY),
        ),
        (
            "the same, and all of it is there",
            (0..MANY / 2).flat_map(|n| [make(n + 3, 1), rename(n + 3, 1, 0, Some(n + 2))]).collect(),
            There::new(&[(0, MANY / 2 + 2)], &(3..MANY / 2 + 3).collect::<Vec<_>>(), MANY),
        ),
    ];
    for (what, ops, there) in stories {
        let sent = sent(ops);
        let signs = there.signs(&sent);
        let judged = || {
            let begun = Clock::now();
            let lost = signs.lost(&FxHashSet::default());
            (begun.elapsed(), lost.iter().filter(|is| **is).count())
        };
        // Who is kept from working meanwhile is so once.
        let (took, count) = (0..3).map(|_| judged()).min().unwrap();
        println!("{what}: {count} of {} lost, judged in {took:?}", sent.len());
        assert!(took < MOMENT, "{what}: {took:?}");
    }
}

/// The same, as plainly as it can be said: all is looked at again until nothing more is lost.
struct Plainly<'s>(&'s Signs<'s>);

impl Plainly<'_> {
    /// Whether something that was done later to a name, and is not lost, is so.
    fn later(&self, at: usize, lost: &[bool], is: impl Fn(&Op) -> bool) -> bool {
        let later = self.0.sent.iter().zip(lost).skip(at + 1);
        later.into_iter().any(|((queued, _), lost)| !lost && is(&queued.op))
    }

    /// Whether it has got the name, or would not have it any more by what was done later.
    fn is_placed(&self, at: usize, what: &(NodeId, Slot), lost: &[bool]) -> bool {
        let none = vec![false; lost.len()];
        let is_other =
            |op: &Op| places(op).is_some_and(|(other, to)| to == what.1 && self.0.is_at(other, &to));
        let is_taken = |op: &Op| vacates(op).as_ref() == Some(what);
        self.0.is_at(what.0, &what.1) || self.later(at, &none, is_other) || self.later(at, lost, is_taken)
    }

    fn is_vacated(&self, at: usize, what: &(NodeId, Slot), lost: &[bool]) -> bool {
        !self.0.is_at(what.0, &what.1) || self.later(at, lost, |op| places(op).as_ref() == Some(what))
    }

    fn is_done(&self, at: usize, op: &Op, lost: &[bool]) -> bool {
        let replaced = match op {
            Op::Make { node, .. } => return self.0.is_there(*node),
            Op::Rename { to, over: Some(over), .. } => Some((*over, to.clone())),
            _ => None,
        };
        replaced.is_none_or(|replaced| self.is_vacated(at, &replaced, lost))
            && places(op).is_none_or(|placed| self.is_placed(at, &placed, lost))
            && vacates(op).is_none_or(|vacated| self.is_vacated(at, &vacated, lost))
    }

    fn lost(&self, gone: &FxHashSet<NodeId>) -> Vec<bool> {
        let mut lost = vec![false; self.0.sent.len()];
        loop {
            let more = self.lost_with(&lost, gone);
            if more == lost {
                return lost;
            }
            lost = more;
        }
    }

    fn lost_with(&self, lost: &[bool], gone: &FxHashSet<NodeId>) -> Vec<bool> {
        let (mut touched, mut concerned) = (FxHashSet::default(), FxHashSet::default());
        let mut unmade = FxHashSet::default();
        let judge = |(at, (queued, _)): (usize, &Sent)| {
            let op = &queued.op;
            let (placed, vacated) = (places(op), vacates(op));
            let slots: Vec<Slot> = placed.iter().chain(&vacated).map(|(_, slot)| slot.clone()).collect();
            let Some(id) = op.nodes()[0].filter(|id| !slots.is_empty() && !gone.contains(id)) else {
                return false;
            };
            let makes = matches!(op, Op::Make { .. });
            let is_lost = lost[at]
                || !self.is_done(at, op, lost)
                || unmade.contains(&id)
                || (!makes && slots.iter().any(|slot| touched.contains(slot)))
                || (placed.is_none() && concerned.contains(&id));
            if is_lost {
                touched.extend(slots);
                concerned.insert(id);
                if makes {
                    unmade.insert(id);
                }
            }
            is_lost
        };
        self.0.sent.iter().enumerate().map(judge).collect()
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    let (node, at) = (|| 2..6_u64, || 0..5_u64);
    let named = |(node, at): (u64, u64)| (NodeId(node), slot(at));
    prop_oneof![
        (node(), at()).prop_map(|(node, at)| make(node, at)),
        (node(), at(), at(), proptest::option::of(node()))
            .prop_map(|(node, from, to, over)| rename(node, from, to, over)),
        (node(), at()).prop_map(named).prop_map(|(node, (dir, name))| Op::Link { node, dir, name }),
        (node(), at()).prop_map(named).prop_map(|(node, (dir, name))| Op::Unlink { dir, name, node }),
        node().prop_map(|node| Op::SetAttr { node: NodeId(node), changes: Default::default() }),
    ]
}

proptest! {
    #[test]
    fn what_is_judged_at_once_is_what_is_judged_plainly(
        ops in proptest::collection::vec(any_op(), 0..24),
        names in proptest::collection::vec((0..5_u64, 2..6_u64), 0..5),
        is_there in proptest::collection::vec(2..6_u64, 0..4),
        gone in proptest::collection::vec(2..6_u64, 0..2),
    ) {
        let sent = sent(ops);
        let there = There::new(&names, &is_there, 4);
        let gone = gone.into_iter().map(NodeId).collect();
        let signs = there.signs(&sent);
        prop_assert_eq!(signs.lost(&gone), Plainly(&signs).lost(&gone), "{:?}", sent);
    }
}
