//! What the kernel is given of files' data that it has not asked for: of a small file kept here when it is opened to be read, and
//! when it has to go to make room. Nobody else may have the file open then, nor opens it or sets its size before that is done: he
//! might change it in the kernel's pages, over which the old data would come, or hold pages locked for which the store would wait. As
//! nobody has, it waits for no request, and ends. See `client-cache.md`.

use std::collections::VecDeque;

use holdfast_base::CapSet;
use holdfast_base::limits::STORES_BYTES_MAX;

use crate::clean::OVERHEAD;
use crate::ids::{NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;
use crate::ops::Opened;
use crate::step::{Outcome, Wait};
use crate::tell::{Forget, Invalidation, Whole};

/// What waits to be stored, and is being.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// What goes to make room, each by the number under which the kernel is told, with what it weighs.
    waiting: VecDeque<(u64, usize)>,
    weight: usize,
    /// Which ones the kernel is being given now: no more than there are threads that give.
    storing: Vec<NodeId>,
    /// Somebody waits for the end of one.
    is_waited_for: bool,
}

impl Stores {
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
        self.pending == 0
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
            if self.stores.weight + weight > STORES_BYTES_MAX || !self.may_store_closed(id, &whole) {
                continue;
            }
            if let Some(node) = self.nodes.quietly(id) {
                // Whoever takes the promise has it dropped there.
                node.told_data = true;
            }
            self.last_invalidation += 1;
            let number = self.last_invalidation;
            self.stores.add(number, weight);
            self.invalidations.push_back(Invalidation { number, what: Forget::Store(id, whole) });
        }
    }

    /// The kernel is about to be given this: whether it may be. If so nobody is let open the file, nor set its size, before
    /// [`stored`](Self::stored) is called.
    #[must_use]
    pub fn begin_store(&mut self, id: NodeId, whole: &Whole) -> bool {
        let may = self.may_store_closed(id, whole);
        if may {
            self.stores.storing.push(id);
        }
        may
    }

    /// What the kernel is to be given before it is told that this is open, if anything. To be asked under the same lock as the open,
    /// before anybody else can open the file; then as with [`begin_store`](Self::begin_store).
    #[must_use]
    pub fn store_at_open(&mut self, opened: &Opened, now: Now) -> Option<(NodeId, Whole)> {
        let open = self.opens.get(&opened.fh).filter(|_| opened.keep_cache && !opened.is_direct)?;
        let (id, access) = (open.node, open.access);
        let is_alone = self.nodes.get(&id).is_some_and(|node| node.opens == [opened.fh]);
        if access.write || !access.read || !is_alone {
            return None;
        }
        let whole = self.clean.not_read(id).filter(|whole| self.may_store(id, whole))?;
        self.clean.was_read(id);
        self.came_for(opened.fh, id, now);
        self.stores.storing.push(id);
        Some((id, whole))
    }

    /// The kernel has been given what a file holds, and took it or not.
    pub fn stored(&mut self, id: NodeId, is_taken: bool) {
        self.stores.storing.retain(|being| *being != id);
        self.stats.stores += u64::from(is_taken);
        if !is_taken {
            self.clean.was_not_taken(id);
        }
        if std::mem::take(&mut self.stores.is_waited_for) {
            self.progress += 1;
        }
    }

    /// Whether it is being given what this file holds, which is to come before what is to be forgotten of it. Who hears so may wait: the
    /// machine moves when that is over.
    #[must_use]
    pub fn waits_for_store(&mut self, id: NodeId) -> bool {
        let is_so = self.stores.storing.contains(&id);
        self.stores.is_waited_for |= is_so;
        is_so
    }

    /// Waits until the kernel is not being given this file's data. To be asked before anything is done that lets somebody change it
    /// or read it, under the same lock.
    pub(crate) fn not_being_stored(&mut self, id: NodeId) -> Outcome<()> {
        if self.waits_for_store(id) { self.wait(Wait::Stored) } else { Ok(()) }
    }

    fn may_store_closed(&self, id: NodeId, whole: &Whole) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.opens.is_empty()) && self.may_store(id, whole)
    }

    /// Whether this is what the file holds, and the kernel may be given it.
    fn may_store(&self, id: NodeId, whole: &Whole) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        let is_it = [node.data.clean, node.data.grown].contains(&Some(whole.number));
        is_it && whole.data.len() as u64 == node.attrs.size && node.is_settled() && !self.has_lapsed
    }
}
