//! What a server has made and lost the record of with its power, while its disk has it: it is not made once more. Under its name
//! it would find itself, take that for another's, and be kept beside itself.

use rustc_hash::FxHashMap;

use crate::attrs::{Attrs, Changes, Kind};
use crate::ids::{Handle, NodeId};
use crate::machine::Machine;
use crate::mutation::Target;
use crate::persist::{Before, Found};
use crate::pool::{Lent, Spare};
use crate::queue::{Kept, Op, Stage, Thing};

impl Machine {
    /// What comes out again, as the server has executed no more than `executed`, makes nothing that is there. A file, whose contents
    /// may be lost, is to be the one that it was; anything else needs not be made at all, and its operation does nothing, for others
    /// are known by their places. `found`: what there is now.
    pub(crate) fn make_none_again(&mut self, executed: u64, found: &Found) {
        let mut there: FxHashMap<NodeId, Handle> = FxHashMap::default();
        let is_lost = |kept: &&mut Kept| kept.stage == Stage::Executed && kept.txn > executed;
        for kept in self.stream.kept.iter_mut().filter(is_lost) {
            there.extend(kept.makes_no_more(found));
        }
        if there.is_empty() {
            return;
        }
        let is_later = |kept: &&mut Kept| kept.txn > executed;
        for kept in self.stream.kept.iter_mut().filter(is_later) {
            for id in kept.ops.iter().flat_map(|queued| queued.op.nodes()).flatten() {
                if let Some(handle) = there.get(&id) {
                    kept.was.insert(id, Target::Handle(handle.clone()));
                }
            }
        }
        for id in there.keys() {
            self.nodes.get_mut(id).into_iter().for_each(|node| node.made = None);
        }
    }
}

impl Kept {
    /// Gives what it makes no more, with its handles.
    fn makes_no_more(&mut self, found: &Found) -> Vec<(NodeId, Handle)> {
        let (mut there, mut at) = (Vec::new(), 0);
        for queued in &mut self.ops {
            let born = self.born.binary_search_by_key(&at, |(op, _)| *op);
            at += queued.op.parts() as u32;
            let made = Before::made(&queued.op);
            let Op::Make { node, thing, load, .. } = &mut queued.op else { continue };
            let is_there = found.get(node).filter(|attrs| is_such(attrs, thing));
            let (Ok(place), Some(attrs)) = (born, is_there) else { continue };
            let handle = self.born[place].1.clone();
            if matches!(thing, Thing::File) {
                load.spare = Some(Lent::made(Spare { handle, fileid: attrs.fileid }, self.sent_at));
                continue;
            }
            let node = *node;
            there.push((node, handle));
            queued.op = Op::SetAttr { node, changes: Changes::default() };
            // What others have set since is told from what it was made with.
            self.before.push((node, made));
        }
        there
    }
}

fn is_such(attrs: &Attrs, thing: &Thing) -> bool {
    let kind = match thing {
        Thing::File => Kind::File,
        Thing::Dir => Kind::Dir,
        Thing::Symlink(_) => Kind::Symlink,
        Thing::Node(kind, _) => *kind,
    };
    attrs.kind == kind && attrs.nlink > 0
}
