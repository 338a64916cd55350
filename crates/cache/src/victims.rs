//! Files that are kept no longer for want of room alone, though all of them may be shown as before: the kernel is handed what they
//! hold. Its pages stay for as long as nobody wants the memory for something else.
//!
//! Only what went out from here and was not read by the kernel since: what it has read it has. It is decided twice whether a
//! file's data may be stored: when the file goes, and when whoever tells the kernel is about to. Both times it must be what a
//! read would be answered, and nobody may have the file open. What is decided later to be forgotten is told behind it.
//!
//! From the second decision until that is done nobody opens the file or sets its size: who would waits here, as for anything
//! else, and so can be interrupted before he has changed anything. Who has a file open may change it in the kernel's pages, over
//! which the old data would come; and whoever reads or writes it has pages of it locked until he is answered, for which the store
//! would wait. As nobody has, it waits for no request: all threads that serve requests may wait for it, and it ends.

use std::collections::VecDeque;

use holdfast_base::CapSet;
use holdfast_base::limits::STORES_BYTES_MAX;

use crate::clean::OVERHEAD;
use crate::ids::NodeId;
use crate::machine::Machine;
use crate::node::Node;
use crate::step::{Outcome, Wait};
use crate::tell::{Forget, Invalidation, Whole};

/// What waits to be stored.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    /// Each by the number under which the kernel is told, with what it weighs.
    waiting: VecDeque<(u64, usize)>,
    weight: usize,
    /// Which one the kernel is being given now.
    storing: Option<NodeId>,
    /// Somebody waits for the end of that.
    is_waited_for: bool,
}

impl Victims {
    fn add(&mut self, number: u64, weight: usize) {
        self.waiting.push_back((number, weight));
        self.weight += weight;
    }

    /// The kernel was told everything up to this number.
    pub(crate) fn told(&mut self, number: u64) {
        while let Some((_, weight)) = self.waiting.front().copied().filter(|(waits, _)| *waits <= number) {
            self.waiting.pop_front();
            self.weight -= weight;
        }
    }
}

impl Node {
    /// Whether nothing of it is under way, and the kernel may keep what it is given of its data until it is told otherwise.
    fn is_settled(&self) -> bool {
        let data = &self.data;
        self.opens.is_empty()
            && self.pending == 0
            && self.changing == 0
            && self.recall.is_none()
            && !self.is_releasing
            && self.lent_until.is_none()
            && self.dead.is_none()
            && self.sure.contains(CapSet::FILE_S)
            && self.pages_covered
            && self.lookups > 0
            && data.extents.is_empty()
            && data.in_flight.is_empty()
            && data.committing.is_none()
    }
}

impl Machine {
    /// Files had to go to make room: the kernel is told to keep them, as far as it may, and not too many at a time.
    pub(crate) fn hand_over(&mut self, victims: Vec<(NodeId, Whole)>) {
        for (id, whole) in victims {
            let weight = whole.data.len() + OVERHEAD;
            if self.victims.weight + weight > STORES_BYTES_MAX || !self.may_store(id, &whole) {
                continue;
            }
            if let Some(node) = self.nodes.quietly(id) {
                // Whoever takes the promise has it dropped there.
                node.told_data = true;
            }
            self.last_invalidation += 1;
            let number = self.last_invalidation;
            self.victims.add(number, weight);
            self.invalidations.push_back(Invalidation { number, what: Forget::Store(id, whole) });
        }
    }

    /// The kernel is about to be given this, one at a time: whether it may be. If so nobody is let open the file, nor set its
    /// size, before [`stored`](Self::stored) is called.
    #[must_use]
    pub fn begin_store(&mut self, id: NodeId, whole: &Whole) -> bool {
        let may = self.may_store(id, whole);
        self.victims.storing = may.then_some(id);
        may
    }

    /// It has been given that, and took it or not.
    pub fn stored(&mut self, is_taken: bool) {
        self.victims.storing = None;
        self.stats.stores += u64::from(is_taken);
        if std::mem::take(&mut self.victims.is_waited_for) {
            self.progress += 1;
        }
    }

    /// Waits until the kernel is not being given this file's data. To be asked before anything is done that lets somebody change it
    /// or read it, under the same lock.
    pub(crate) fn not_being_stored(&mut self, id: NodeId) -> Outcome<()> {
        if self.victims.storing != Some(id) {
            return Ok(());
        }
        self.victims.is_waited_for = true;
        self.wait(Wait::Stored)
    }

    /// Whether this is what the file holds, and the kernel may be given it.
    fn may_store(&self, id: NodeId, whole: &Whole) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        let is_it = [node.data.clean, node.data.grown].contains(&Some(whole.number));
        is_it && whole.data.len() as u64 == node.attrs.size && node.is_settled() && !self.has_lapsed
    }
}
