//! Names that are being taken by a question. NFS's REMOVE, and a RENAME that replaces, take them from whatever has them by then, and
//! the server asks nobody back for what he does himself: so of a file that may have got such a name unseen, the number of names is
//! not known, whatever is held of it. Decides which files these may be.

use std::collections::VecDeque;

use crate::ask::{Generation, Question};
use crate::dir::Known;
use crate::ids::{Handle, Name, NodeId};
use crate::machine::Machine;
use crate::node::Node;
use crate::step::Turn;
use holdfast_base::CapSet;

/// One that is being taken.
#[derive(Debug)]
struct Taken {
    /// When that was asked for.
    at: Generation,
    dir: Handle,
    name: Name,
    /// The directory, where it was known then what the name stood for and all names in it were promised: as long as they stay so, no
    /// other file gets it.
    promised_in: Option<NodeId>,
}

/// Files of which it is remembered that their number of names was learned: 16 kB. To go through 100,000 files took 20 ms (`tests/suite/speed.rs`), and
/// is done once for so many answers at most.
const LEARNED_LINKS_MAX: usize = 1024;

/// All that are, and were.
#[derive(Debug, Default)]
pub(crate) struct NamesTaken {
    /// As many as there are questions under way.
    going: Vec<Taken>,
    /// When the last one was of which that was not known all the time.
    gone_at: Generation,
    /// Files whose number of names became sure by an answer, and when, in that order.
    learned: VecDeque<(Generation, NodeId)>,
    /// There may be others, of which it became so up to then.
    others_learned_at: Generation,
}

impl Machine {
    /// A question is about to be asked, by which a name may be taken.
    pub(crate) fn begin_taking(&mut self, turn: &Turn, question: &Question) {
        let Some((dir, name)) = question.name_taken() else { return };
        let (dir, name) = (dir.clone(), name.clone());
        let id = self.handles.get(&dir).copied();
        let is_known = id.is_some_and(|id| self.known(id, name.as_bytes()) != Known::Unknown);
        if !is_known {
            self.doubt_links(turn.named_at.unwrap_or_default());
        }
        // A name promised by itself may be lost unseen: its directory may be had anew after that.
        let holds_all = |id: &NodeId| self.nodes.get(id).is_some_and(|dir| dir.held.contains(CapSet::FILE_S));
        let promised_in = id.filter(|id| is_known && holds_all(id));
        self.names_taken.going.push(Taken { at: self.generation, dir, name, promised_in });
    }

    /// It was answered, or has failed.
    pub(crate) fn end_taking(&mut self, question: &Question, at: Generation) {
        let Some((dir, name)) = question.name_taken() else { return };
        let is_it = |taken: &Taken| taken.at < at && taken.dir == *dir && taken.name == *name;
        // Others may have asked for the same before.
        let going = self.names_taken.going.iter().enumerate().filter(|(_, taken)| is_it(taken));
        let Some((place, _)) = going.max_by_key(|(_, taken)| taken.at) else { return };
        let taken = self.names_taken.going.swap_remove(place);
        if !self.is_promised_still(&taken) {
            // What was learned while it seemed promised may be of the file that has lost the name.
            self.doubt_links(taken.at);
            self.names_taken.gone_at = self.tick();
        }
    }

    /// Whether a file of which an answer tells that was asked for at `at` may lose a name that it had by then, or have lost it since.
    pub(crate) fn may_lose_name(&self, at: Generation) -> bool {
        at < self.names_taken.gone_at
            || self.names_taken.going.iter().any(|taken| !self.is_promised_still(taken))
    }

    /// Whether the names in its directory were promised all the time since it was asked for.
    fn is_promised_still(&self, taken: &Taken) -> bool {
        let dir = taken.promised_in.and_then(|id| self.nodes.get(&id));
        dir.is_some_and(|dir| dir.held.contains(CapSet::FILE_S) && dir.names_lost <= taken.at)
    }

    /// The number of a file's names has become sure by an answer.
    pub(crate) fn note_links_sure(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.links_sure_at = self.generation;
        }
        let taken = &mut self.names_taken;
        if taken.learned.len() >= LEARNED_LINKS_MAX
            && let Some((at, _)) = taken.learned.pop_front()
        {
            taken.others_learned_at = at;
        }
        taken.learned.push_back((self.generation, id));
    }

    /// A name is taken that was looked up then, and may have become another file's since: one of which the number of names was learned
    /// since, for who changes a name asks it back where it is held. Where it was never looked up (a file is being hidden), that is all that were learned.
    fn doubt_links(&mut self, looked_at: Generation) {
        let taken = &mut self.names_taken;
        let first = taken.learned.partition_point(|(at, _)| *at < looked_at);
        let mut doubtful: Vec<_> = taken.learned.drain(first..).map(|(_, id)| id).collect();
        if taken.others_learned_at >= looked_at.max(Generation(1)) {
            // None of them is left.
            taken.others_learned_at = Generation(looked_at.0.saturating_sub(1));
            doubtful = self.nodes.keys().copied().collect();
        }
        let may_have_it = |node: &Node| {
            node.dir.is_none() && node.sure.contains(CapSet::LINK_S) && node.links_sure_at >= looked_at
        };
        if doubtful.is_empty() {
            return;
        }
        let at = self.tick();
        for id in doubtful {
            if let Some(node) = self.nodes.get_mut(&id).filter(|node| may_have_it(node)) {
                node.doubt(CapSet::LINK_S, at);
            }
        }
    }
}
