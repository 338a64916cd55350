//! The byte ranges that an owner has locked: kept apart, so that they can be asked for again after a restart.

use holdfast_base::ByteRange;

/// Ranges that do not overlap, each shared or exclusive, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(ByteRange, bool)>);

impl Ranges {
    /// Whether nothing is locked.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, and whether each is exclusive.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ByteRange, bool)> {
        self.0.iter().copied()
    }

    /// Locks a range, over whatever was locked of it before.
    pub(crate) fn lock(&mut self, range: ByteRange, exclusive: bool) {
        self.unlock(range);
        let mut joined = range;
        self.0.retain(|(other, kind)| {
            let joins = *kind == exclusive && other.adjoins(joined);
            if joins {
                let first = joined.first().min(other.first());
                let last = joined.last().max(other.last());
                joined = ByteRange::from_bounds(first, last).unwrap_or(joined);
            }
            !joins
        });
        let at = self.0.partition_point(|(other, _)| other.first() < joined.first());
        self.0.insert(at, (joined, exclusive));
    }

    /// Unlocks a range, cutting what reaches over its ends.
    pub(crate) fn unlock(&mut self, range: ByteRange) {
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for (other, exclusive) in self.0.drain(..) {
            if !other.overlaps(range) {
                left.push((other, exclusive));
                continue;
            }
            if other.first() < range.first() {
                left.extend(ByteRange::from_bounds(other.first(), range.first() - 1).map(|r| (r, exclusive)));
            }
            if range.last() < other.last() {
                left.extend(ByteRange::from_bounds(range.last() + 1, other.last()).map(|r| (r, exclusive)));
            }
        }
        self.0 = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(first: u64, last: u64) -> ByteRange {
        ByteRange::from_bounds(first, last).unwrap()
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut ranges = Ranges::default();
        ranges.lock(ByteRange::ALL, true);
        ranges.unlock(r(10, 19));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(r(0, 9), true), (r(20, u64::MAX), true)]);
        ranges.unlock(ByteRange::ALL);
        assert!(ranges.is_empty());
    }

    #[test]
    fn neighbours_of_one_kind_become_one_range() {
        let mut ranges = Ranges::default();
        ranges.lock(r(0, 9), false);
        ranges.lock(r(20, 29), false);
        ranges.lock(r(10, 19), false);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(r(0, 29), false)]);
        ranges.lock(r(5, 6), true);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(r(0, 4), false), (r(5, 6), true), (r(7, 29), false)]);
    }
}
