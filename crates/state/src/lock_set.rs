//! The byte-range locks of one file: who holds what, and who is in whose way. POSIX semantics: a holder's new lock
//! replaces what it held of the range; readers share.

use holdfast_base::ByteRange;
use serde::{Deserialize, Serialize};

use crate::range_map::RangeMap;

/// Shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockKind {
    /// Shared with other readers.
    Read,
    /// Shared with nobody.
    Write,
}

impl LockKind {
    /// Whether two holders cannot have these on the same byte.
    #[must_use]
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// Locks of one file by holder.
#[derive(Clone, Debug)]
pub struct LockSet<H> {
    /// Sorted by holder; nobody with nothing.
    held: Vec<(H, RangeMap<LockKind>)>,
}

impl<H> Default for LockSet<H> {
    fn default() -> Self {
        Self { held: Vec::new() }
    }
}

impl<H: Copy + Ord> LockSet<H> {
    /// The first lock in the way of `holder` (or of a newcomer) getting this one.
    #[must_use]
    pub fn conflict(
        &self,
        holder: Option<H>,
        range: ByteRange,
        kind: LockKind,
    ) -> Option<(H, ByteRange, LockKind)> {
        self.conflicts(holder, range, kind).next()
    }

    /// Every lock in the way of `holder` getting this one, one of each other holder.
    pub fn conflicts(
        &self,
        holder: Option<H>,
        range: ByteRange,
        kind: LockKind,
    ) -> impl Iterator<Item = (H, ByteRange, LockKind)> + '_ {
        self.held.iter().filter(move |(other, _)| Some(*other) != holder).filter_map(
            move |(other, ranges)| {
                let mut over = ranges.overlapping(range);
                over.find(|(_, theirs)| theirs.conflicts(kind)).map(|(at, theirs)| (*other, at, theirs))
            },
        )
    }

    /// Gives the holder this lock, replacing what it held there. The caller has looked for conflicts.
    pub fn set(&mut self, holder: H, range: ByteRange, kind: LockKind) {
        let at = match self.position(holder) {
            Ok(at) => at,
            Err(at) => {
                self.held.insert(at, (holder, RangeMap::default()));
                at
            }
        };
        self.held[at].1.set(range, kind);
    }

    /// Makes the holder's lock at least this strong everywhere in the range: what is stronger stays.
    pub fn strengthen(&mut self, holder: H, range: ByteRange, kind: LockKind) {
        let stronger = self.within(holder, range).into_iter().filter(|(_, had)| *had > kind);
        let stronger: Vec<_> = stronger.collect();
        self.set(holder, range, kind);
        for (part, had) in stronger {
            self.set(holder, part, had);
        }
    }

    /// Takes the range from the holder.
    pub fn clear(&mut self, holder: H, range: ByteRange) {
        if let Ok(at) = self.position(holder) {
            self.held[at].1.clear(range);
            if self.held[at].1.is_empty() {
                self.held.remove(at);
            }
        }
    }

    /// Takes everything from the holder; whether it had anything.
    pub fn remove(&mut self, holder: H) -> bool {
        self.position(holder).map(|at| self.held.remove(at)).is_ok()
    }

    /// What the holder has within a range, cut to it.
    #[must_use]
    pub fn within(&self, holder: H, range: ByteRange) -> Vec<(ByteRange, LockKind)> {
        self.position(holder).map(|at| self.held[at].1.within(range)).unwrap_or_default()
    }

    /// What the holder has, if anything.
    #[must_use]
    pub fn of(&self, holder: H) -> Option<&RangeMap<LockKind>> {
        self.position(holder).ok().map(|at| &self.held[at].1)
    }

    /// Every holder with its ranges, in order of holders.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (H, &RangeMap<LockKind>)> {
        self.held.iter().map(|(holder, ranges)| (*holder, ranges))
    }

    /// Number of holders.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nobody holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn position(&self, holder: H) -> Result<usize, usize> {
        self.held.binary_search_by_key(&holder, |(other, _)| *other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    fn range(a: u64, b: u64) -> ByteRange {
        ByteRange::from_bounds(a.min(b), a.max(b)).unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Lock(LockKind),
        Strengthen(LockKind),
        Unlock,
        Leave,
    }

    fn step() -> impl Strategy<Value = Step> {
        let kind = || prop_oneof![Just(LockKind::Read), Just(LockKind::Write)];
        prop_oneof![
            4 => kind().prop_map(Step::Lock),
            1 => kind().prop_map(Step::Strengthen),
            2 => Just(Step::Unlock),
            1 => Just(Step::Leave)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn a_lock_set_agrees_with_one_lock_a_byte_and_holder(
            steps in prop::collection::vec((0..3usize, 0..BYTES, 0..BYTES, step()), 1..60),
        ) {
            let mut set = LockSet::default();
            let mut model = [[None::<LockKind>; BYTES as usize]; 3];
            for (who, a, b, step) in steps {
                let span = range(a, b);
                let bytes = a.min(b) as usize..=a.max(b) as usize;
                match step {
                    Step::Lock(kind) | Step::Strengthen(kind) => {
                        let free = (0..3).filter(|other| *other != who).all(|other| {
                            bytes.clone().all(|n| model[other][n].is_none_or(|held| !held.conflicts(kind)))
                        });
                        let conflict = set.conflict(Some(who), span, kind);
                        prop_assert_eq!(conflict.is_none(), free);
                        if let Some((other, at, theirs)) = conflict {
                            prop_assert!(at.overlaps(span) && theirs.conflicts(kind) && other != who);
                            continue;
                        }
                        let weakens = matches!(step, Step::Lock(_));
                        if weakens { set.set(who, span, kind) } else { set.strengthen(who, span, kind) }
                        for n in bytes {
                            let had = if weakens { None } else { model[who][n] };
                            model[who][n] = had.max(Some(kind));
                        }
                    }
                    Step::Unlock => {
                        set.clear(who, span);
                        bytes.for_each(|n| model[who][n] = None);
                    }
                    Step::Leave => {
                        prop_assert_eq!(set.remove(who), model[who].iter().any(Option::is_some));
                        model[who] = [None; BYTES as usize];
                    }
                }
                for (who, held) in model.iter().enumerate() {
                    for (n, kind) in held.iter().enumerate() {
                        let got = set.within(who, range(n as u64, n as u64));
                        prop_assert_eq!(got.first().map(|(_, kind)| *kind), *kind);
                    }
                }
                prop_assert!(set.iter().all(|(_, ranges)| !ranges.is_empty() && ranges.is_canonical()));
            }
        }
    }
}
