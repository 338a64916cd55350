//! The locks of all holders of a file, in order of where they begin: a balanced tree (Adelson-Velsky and Landis) that knows
//! of each of its parts how far the locks in it reach. So those in the way of one are found without asking every holder.

use holdfast_base::ByteRange;

use crate::lock_set::LockKind;

/// A node's place in the arena.
type Place = u32;

/// No node.
const NONE: Place = Place::MAX;

/// How far the locks of a part reach: their greatest last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reach {
    any: u64,
    exclusive: Option<u64>,
}

impl Reach {
    fn over(self, other: Self) -> Self {
        Self { any: self.any.max(other.any), exclusive: self.exclusive.max(other.exclusive) }
    }

    /// As far as what is in the way of a lock of this kind reaches.
    fn against(self, kind: LockKind) -> Option<u64> {
        match kind {
            LockKind::Read => self.exclusive,
            LockKind::Write => Some(self.any),
        }
    }
}

#[derive(Clone, Debug)]
struct Node<H> {
    range: ByteRange,
    holder: H,
    kind: LockKind,
    /// With all below it.
    reach: Reach,
    left: Place,
    right: Place,
    /// Levels from here down.
    height: u8,
}

impl<H> Node<H> {
    fn own_reach(&self) -> Reach {
        let last = self.range.last();
        Reach { any: last, exclusive: (self.kind == LockKind::Write).then_some(last) }
    }
}

/// Locks, each by its first byte and its holder; a holder's own do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct LockIndex<H> {
    nodes: Vec<Node<H>>,
    /// Places of removed nodes.
    free: Vec<Place>,
    root: Place,
}

impl<H> Default for LockIndex<H> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NONE }
    }
}

impl<H: Copy + Ord> LockIndex<H> {
    pub(crate) fn insert(&mut self, holder: H, range: ByteRange, kind: LockKind) {
        let mut node = Node {
            range,
            holder,
            kind,
            reach: Reach { any: 0, exclusive: None },
            left: NONE,
            right: NONE,
            height: 1,
        };
        node.reach = node.own_reach();
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                // Locks are far fewer than 2^32: each costs more than a byte.
                (self.nodes.len() - 1) as Place
            }
        };
        self.root = self.put(self.root, place);
    }

    /// Takes a lock out, which is there.
    pub(crate) fn remove(&mut self, holder: H, first: u64) {
        self.root = self.take(self.root, (first, holder));
    }

    /// Locks of others in the way of one, in order of first byte and holder.
    pub(crate) fn conflicts(&self, holder: Option<H>, range: ByteRange, kind: LockKind) -> InWay<'_, H> {
        let mut in_way = InWay { index: self, holder, range, kind, path: Vec::new() };
        in_way.descend(self.root);
        in_way
    }

    fn node(&self, place: Place) -> Option<&Node<H>> {
        self.nodes.get(place as usize)
    }

    fn key(&self, place: Place) -> (u64, H) {
        let node = &self.nodes[place as usize];
        (node.range.first(), node.holder)
    }

    fn height(&self, place: Place) -> u8 {
        self.node(place).map_or(0, |node| node.height)
    }

    /// Puts a single node below `at`; gives what stands there then.
    fn put(&mut self, at: Place, new: Place) -> Place {
        if at == NONE {
            return new;
        }
        if self.key(new) < self.key(at) {
            let left = self.put(self.nodes[at as usize].left, new);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.put(self.nodes[at as usize].right, new);
            self.nodes[at as usize].right = right;
        }
        self.balanced(at)
    }

    /// Takes a key out from below `at`; gives what stands there then.
    fn take(&mut self, at: Place, key: (u64, H)) -> Place {
        if at == NONE {
            return NONE;
        }
        let here = self.key(at);
        let (left, right) = (self.nodes[at as usize].left, self.nodes[at as usize].right);
        if key < here {
            let left = self.take(left, key);
            self.nodes[at as usize].left = left;
        } else if key > here {
            let right = self.take(right, key);
            self.nodes[at as usize].right = right;
        } else {
            self.free.push(at);
            if right == NONE {
                return left;
            }
            let (next, right) = self.take_first(right);
            self.nodes[next as usize].left = left;
            self.nodes[next as usize].right = right;
            return self.balanced(next);
        }
        self.balanced(at)
    }

    /// Takes the first node out from below `at`: it, and what stands there then.
    fn take_first(&mut self, at: Place) -> (Place, Place) {
        let Node { left, right, .. } = self.nodes[at as usize];
        if left == NONE {
            return (at, right);
        }
        let (first, left) = self.take_first(left);
        self.nodes[at as usize].left = left;
        (first, self.balanced(at))
    }

    /// Makes a node right of whose children one has become higher or lower by a level; gives what stands there then.
    fn balanced(&mut self, at: Place) -> Place {
        let (left, right) = (self.nodes[at as usize].left, self.nodes[at as usize].right);
        let (over_left, over_right) = (self.height(left), self.height(right));
        if over_left > over_right + 1 {
            if self.height(self.nodes[left as usize].left) < self.height(self.nodes[left as usize].right) {
                let left = self.rotated_left(left);
                self.nodes[at as usize].left = left;
            }
            return self.rotated_right(at);
        }
        if over_right > over_left + 1 {
            if self.height(self.nodes[right as usize].right) < self.height(self.nodes[right as usize].left) {
                let right = self.rotated_right(right);
                self.nodes[at as usize].right = right;
            }
            return self.rotated_left(at);
        }
        self.sum_up(at);
        at
    }

    /// The right child comes to stand above.
    fn rotated_left(&mut self, at: Place) -> Place {
        let above = self.nodes[at as usize].right;
        self.nodes[at as usize].right = self.nodes[above as usize].left;
        self.nodes[above as usize].left = at;
        self.sum_up(at);
        self.sum_up(above);
        above
    }

    /// The left child comes to stand above.
    fn rotated_right(&mut self, at: Place) -> Place {
        let above = self.nodes[at as usize].left;
        self.nodes[at as usize].left = self.nodes[above as usize].right;
        self.nodes[above as usize].right = at;
        self.sum_up(at);
        self.sum_up(above);
        above
    }

    /// Height and reach from those of the children.
    fn sum_up(&mut self, at: Place) {
        let node = &self.nodes[at as usize];
        let (left, right) = (self.node(node.left), self.node(node.right));
        let children = || left.into_iter().chain(right);
        let reach = children().fold(node.own_reach(), |reach, child| reach.over(child.reach));
        let height = 1 + children().map(|child| child.height).max().unwrap_or(0);
        let node = &mut self.nodes[at as usize];
        (node.reach, node.height) = (reach, height);
    }

    /// Whether it holds exactly these, in this order, and all that is known of its parts is true.
    pub(crate) fn is_sound(&self, mut all: impl Iterator<Item = (H, ByteRange, LockKind)>) -> bool {
        let in_order =
            self.are_below(self.root, &mut |node| all.next() == Some((node.holder, node.range, node.kind)));
        in_order && all.next().is_none()
    }

    fn are_below(&self, at: Place, next: &mut impl FnMut(&Node<H>) -> bool) -> bool {
        let Some(node) = self.node(at) else { return true };
        let (left, right) = (self.node(node.left), self.node(node.right));
        let levels = (left.map_or(0, |n| n.height), right.map_or(0, |n| n.height));
        let reach = left.into_iter().chain(right).fold(node.own_reach(), |sum, child| sum.over(child.reach));
        levels.0.abs_diff(levels.1) <= 1
            && node.height == 1 + levels.0.max(levels.1)
            && node.reach == reach
            && self.are_below(node.left, next)
            && next(node)
            && self.are_below(node.right, next)
    }
}

/// Locks in the way of one.
#[derive(Debug)]
pub(crate) struct InWay<'a, H> {
    index: &'a LockIndex<H>,
    holder: Option<H>,
    range: ByteRange,
    kind: LockKind,
    /// Nodes that come after everything to their left; the next one last.
    path: Vec<Place>,
}

impl<H: Copy + Ord> InWay<'_, H> {
    /// Down to the leftmost node of a part that may be in the way.
    fn descend(&mut self, mut at: Place) {
        while let Some(node) = self.index.node(at)
            && node.reach.against(self.kind).is_some_and(|last| last >= self.range.first())
        {
            self.path.push(at);
            at = node.left;
        }
    }
}

impl<H: Copy + Ord> Iterator for InWay<'_, H> {
    type Item = (H, ByteRange, LockKind);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.path.pop()?;
            let node = self.index.node(at)?;
            if node.range.first() > self.range.last() {
                // So does all that comes after it.
                self.path.clear();
                return None;
            }
            self.descend(node.right);
            let is_in_way = Some(node.holder) != self.holder
                && node.kind.conflicts(self.kind)
                && node.range.overlaps(self.range);
            if is_in_way {
                return Some((node.holder, node.range, node.kind));
            }
        }
    }
}
