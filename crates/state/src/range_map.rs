//! Disjoint byte ranges, each with a value: what one owner holds of one file. Neighbours of equal value are one.

use holdfast_base::ByteRange;

/// A map from bytes to values, held as sorted, disjoint ranges of which no two adjoining have equal values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeMap<V> {
    entries: Vec<(ByteRange, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<V: Copy + Eq> RangeMap<V> {
    /// Gives every byte of `range` the value.
    pub fn set(&mut self, range: ByteRange, value: V) {
        let mut merged = range;
        // Everything equal that touches the range is swallowed; everything else is cut at its edges.
        let (from, to) = self.touching(range);
        let mut rest = [None, None];
        for &(held, its) in &self.entries[from..to] {
            if its == value {
                merged = hull(merged, held);
            } else {
                keep_outside(&mut rest, held, range, its);
            }
        }
        let [before, after] = rest;
        let new = before.into_iter().chain([(merged, value)]).chain(after);
        self.entries.splice(from..to, new);
    }

    /// Takes the value from every byte of `range`.
    pub fn clear(&mut self, range: ByteRange) {
        let (from, to) = self.overlapped(range);
        let mut rest = [None, None];
        for &(held, its) in &self.entries[from..to] {
            keep_outside(&mut rest, held, range, its);
        }
        self.entries.splice(from..to, rest.into_iter().flatten());
    }

    /// Held ranges that share a byte with `range`, in order, whole.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, V)> + '_ {
        let (from, to) = self.overlapped(range);
        self.entries[from..to].iter().copied()
    }

    /// What is held within `range`, in order, cut to it.
    #[must_use]
    pub fn within(&self, range: ByteRange) -> Vec<(ByteRange, V)> {
        let cut = |(held, value): (ByteRange, V)| intersection(held, range).map(|part| (part, value));
        self.overlapping(range).filter_map(cut).collect()
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ByteRange, V)> + '_ {
        self.entries.iter().copied()
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no byte has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the entries are sorted, disjoint and merged.
    pub(crate) fn is_canonical(&self) -> bool {
        self.entries.windows(2).all(|pair| {
            let [(a, x), (b, y)] = pair else { return true };
            a.last() < b.first() && (x != y || !a.adjoins(*b))
        })
    }

    fn overlapped(&self, range: ByteRange) -> (usize, usize) {
        let from = self.entries.partition_point(|(held, _)| held.last() < range.first());
        let to = self.entries.partition_point(|(held, _)| held.first() <= range.last());
        (from, to.max(from))
    }

    fn touching(&self, range: ByteRange) -> (usize, usize) {
        let before = |held: ByteRange| held.last() < range.first() && !held.adjoins(range);
        let from = self.entries.partition_point(|(held, _)| before(*held));
        let to =
            self.entries.partition_point(|(held, _)| held.first() <= range.last() || held.adjoins(range));
        (from, to.max(from))
    }
}

/// The smallest range containing both.
fn hull(a: ByteRange, b: ByteRange) -> ByteRange {
    let (first, last) = (a.first().min(b.first()), a.last().max(b.last()));
    ByteRange::from_bounds(first, last).unwrap_or(a)
}

fn intersection(a: ByteRange, b: ByteRange) -> Option<ByteRange> {
    ByteRange::from_bounds(a.first().max(b.first()), a.last().min(b.last()))
}

/// Puts what of `held` lies before and after `hole` into the two places of `rest`.
fn keep_outside<V>(rest: &mut [Option<(ByteRange, V)>; 2], held: ByteRange, hole: ByteRange, value: V)
where
    V: Copy,
{
    if held.first() < hole.first() {
        let last = held.last().min(hole.first() - 1);
        rest[0] = ByteRange::from_bounds(held.first(), last).map(|part| (part, value));
    }
    if held.last() > hole.last() {
        let first = held.first().max(hole.last() + 1);
        rest[1] = ByteRange::from_bounds(first, held.last()).map(|part| (part, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The universe of the model: 48 bytes, half of them at the very end, where lengths overflow.
    const BYTES: u64 = 48;

    fn byte(n: u64) -> u64 {
        if n < BYTES / 2 { n } else { u64::MAX - (BYTES - 1 - n) }
    }

    fn range(a: u64, b: u64) -> ByteRange {
        ByteRange::from_bounds(byte(a.min(b)), byte(a.max(b))).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_range_map_agrees_with_one_value_a_byte(
            steps in prop::collection::vec((0..BYTES, 0..BYTES, 0..3u8), 1..40),
        ) {
            let mut map = RangeMap::default();
            let mut model = [None; BYTES as usize];
            for (a, b, value) in steps {
                let span = range(a, b);
                let value = (value > 0).then_some(value);
                match value {
                    Some(value) => map.set(span, value),
                    None => map.clear(span),
                }
                for n in a.min(b)..=a.max(b) {
                    model[n as usize] = value;
                }
                prop_assert!(map.is_canonical(), "{map:?}");
                for n in 0..BYTES {
                    let at = ByteRange::from_bounds(byte(n), byte(n)).unwrap();
                    let found = map.within(at).first().map(|(_, value)| *value);
                    prop_assert_eq!(found, model[n as usize], "byte {}", n);
                }
            }
        }
    }

    #[test]
    fn setting_the_middle_splits_and_clearing_it_leaves_a_hole() {
        let mut map = RangeMap::default();
        map.set(range(0, 9), 'w');
        map.set(range(3, 5), 'r');
        assert_eq!(map.len(), 3);
        map.clear(range(2, 6));
        assert_eq!(map.iter().collect::<Vec<_>>(), [(range(0, 1), 'w'), (range(7, 9), 'w')]);
        map.set(range(2, 6), 'w');
        assert_eq!(map.iter().collect::<Vec<_>>(), [(range(0, 9), 'w')]);
    }
}
