//! The byte-range locks of one file: who holds what, and who is in whose way. POSIX semantics: a holder's new lock
//! replaces what it held of the range; readers share.

use std::collections::BTreeMap;

use holdfast_base::ByteRange;
use holdfast_base::limits::LOCK_HOLDERS_LISTED;
use serde::{Deserialize, Serialize};

use crate::lock_index::LockIndex;
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

/// How many holders are kept in a list that is looked through, as of most files there are few. In a debug build next to
/// none, so that every test has files with few holders and with many.
const FEW: usize = if cfg!(debug_assertions) { 3 } else { LOCK_HOLDERS_LISTED };

/// Locks of one file by holder.
#[derive(Clone, Debug)]
pub struct LockSet<H> {
    /// Sorted by holder; nobody with nothing. Empty when there are many.
    few: Vec<(H, RangeMap<LockKind>)>,
    many: Option<Box<Many<H>>>,
}

/// Locks of more holders than it would do to ask each.
#[derive(Clone, Debug)]
struct Many<H> {
    held: BTreeMap<H, RangeMap<LockKind>>,
    /// The same.
    index: LockIndex<H>,
}

impl<H> Default for LockSet<H> {
    fn default() -> Self {
        Self { few: Vec::new(), many: None }
    }
}

impl<H: Copy + Ord> Many<H> {
    /// Changes what a holder has, at most within `range` and where it adjoins.
    fn change(&mut self, holder: H, range: ByteRange, change: impl FnOnce(&mut RangeMap<LockKind>)) {
        let (first, last) = (range.first().saturating_sub(1), range.last().saturating_add(1));
        // Never empty: it contains `range`.
        let around = ByteRange::from_bounds(first, last).unwrap_or(range);
        let ranges = self.held.entry(holder).or_default();
        for (had, _) in ranges.overlapping(around) {
            self.index.remove(holder, had.first());
        }
        change(ranges);
        for (has, kind) in ranges.overlapping(around) {
            self.index.insert(holder, has, kind);
        }
        if ranges.is_empty() {
            self.held.remove(&holder);
        }
    }
}

impl<H: Copy + Ord> LockSet<H> {
    /// The first lock in the way of `holder` (or of a newcomer) getting this one: in order of first byte, then of holder.
    #[must_use]
    pub fn conflict(
        &self,
        holder: Option<H>,
        range: ByteRange,
        kind: LockKind,
    ) -> Option<(H, ByteRange, LockKind)> {
        if let Some(many) = &self.many {
            return many.index.conflicts(holder, range, kind).next();
        }
        self.conflicts(holder, range, kind).min_by_key(|(other, at, _)| (at.first(), *other))
    }

    /// Locks in the way of `holder` getting this one: of every other holder that has any, at least the first.
    pub fn conflicts(
        &self,
        holder: Option<H>,
        range: ByteRange,
        kind: LockKind,
    ) -> impl Iterator<Item = (H, ByteRange, LockKind)> + '_ {
        let others = self.few.iter().filter(move |(other, _)| Some(*other) != holder);
        let of_few = others.filter_map(move |(other, ranges)| {
            let mut over = ranges.overlapping(range);
            over.find(|(_, theirs)| theirs.conflicts(kind)).map(|(at, theirs)| (*other, at, theirs))
        });
        of_few.chain(self.many.iter().flat_map(move |many| many.index.conflicts(holder, range, kind)))
    }

    /// Every lock that is looked at to find those in the way of one, with its holder and whether it is: of each holder up to
    /// the first, of many holders those in the way alone.
    pub(crate) fn looked_at(&self, range: ByteRange, kind: LockKind) -> impl Iterator<Item = (H, bool)> + '_ {
        let of_few = self.few.iter().flat_map(move |(holder, ranges)| {
            let mut is_found = false;
            let over = ranges.overlapping(range).map(move |(_, theirs)| theirs.conflicts(kind));
            over.take_while(move |conflicts| !std::mem::replace(&mut is_found, *conflicts))
                .map(|conflicts| (*holder, conflicts))
        });
        let in_way = self.many.iter().flat_map(move |many| many.index.conflicts(None, range, kind));
        of_few.chain(in_way.map(|(holder, ..)| (holder, true)))
    }

    /// Gives the holder this lock, replacing what it held there. The caller has looked for conflicts.
    pub fn set(&mut self, holder: H, range: ByteRange, kind: LockKind) {
        if let Some(many) = &mut self.many {
            return many.change(holder, range, |ranges| ranges.set(range, kind));
        }
        let at = match self.position(holder) {
            Ok(at) => at,
            Err(at) => {
                self.few.insert(at, (holder, RangeMap::default()));
                at
            }
        };
        self.few[at].1.set(range, kind);
        if self.few.len() > FEW {
            self.grow();
        }
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
        if let Some(many) = &mut self.many {
            many.change(holder, range, |ranges| ranges.clear(range));
            return self.shrink();
        }
        if let Ok(at) = self.position(holder) {
            self.few[at].1.clear(range);
            if self.few[at].1.is_empty() {
                self.few.remove(at);
            }
        }
    }

    /// Takes everything from the holder; whether it had anything.
    pub fn remove(&mut self, holder: H) -> bool {
        let Some(many) = &mut self.many else {
            return self.position(holder).map(|at| self.few.remove(at)).is_ok();
        };
        let Some(ranges) = many.held.remove(&holder) else { return false };
        for (had, _) in ranges.iter() {
            many.index.remove(holder, had.first());
        }
        self.shrink();
        true
    }

    /// What the holder has within a range, cut to it.
    #[must_use]
    pub fn within(&self, holder: H, range: ByteRange) -> Vec<(ByteRange, LockKind)> {
        self.of(holder).map(|ranges| ranges.within(range)).unwrap_or_default()
    }

    /// What the holder has, if anything.
    #[must_use]
    pub fn of(&self, holder: H) -> Option<&RangeMap<LockKind>> {
        match &self.many {
            Some(many) => many.held.get(&holder),
            None => self.position(holder).ok().map(|at| &self.few[at].1),
        }
    }

    /// Every holder with its ranges, in order of holders.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (H, &RangeMap<LockKind>)> {
        let few = self.few.iter().map(|(holder, ranges)| (*holder, ranges));
        let many = self.many.iter().flat_map(|many| &many.held);
        few.chain(many.map(|(holder, ranges)| (*holder, ranges)))
    }

    /// Number of holders.
    #[must_use]
    pub fn len(&self) -> usize {
        self.many.as_ref().map_or(self.few.len(), |many| many.held.len())
    }

    /// Whether nobody holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether what it knows twice agrees, everything is merged, and nobody is there with nothing.
    pub(crate) fn is_sound(&self) -> bool {
        let is_plain = self.iter().all(|(_, ranges)| !ranges.is_empty() && ranges.is_canonical());
        let agrees = |many: &Many<H>| {
            let of = |(holder, ranges): (&H, &RangeMap<LockKind>)| {
                let holder = *holder;
                ranges.iter().map(move |(range, kind)| (holder, range, kind)).collect::<Vec<_>>()
            };
            let mut all: Vec<_> = many.held.iter().flat_map(of).collect();
            all.sort_unstable_by_key(|(holder, range, _)| (range.first(), *holder));
            self.few.is_empty() && many.index.is_sound(all.into_iter())
        };
        is_plain && self.many.as_deref().is_none_or(agrees)
    }

    fn position(&self, holder: H) -> Result<usize, usize> {
        self.few.binary_search_by_key(&holder, |(other, _)| *other)
    }

    /// There have come to be many.
    fn grow(&mut self) {
        let mut index = LockIndex::default();
        for (holder, ranges) in &self.few {
            ranges.iter().for_each(|(range, kind)| index.insert(*holder, range, kind));
        }
        let held = std::mem::take(&mut self.few).into_iter().collect();
        self.many = Some(Box::new(Many { held, index }));
    }

    /// There may have come to be few again. Not at the bound, or a holder that comes and goes would cost all of it.
    fn shrink(&mut self) {
        if let Some(many) = self.many.take_if(|many| many.held.len() <= FEW / 2) {
            self.few = many.held.into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    /// More than twice as many as are few, so that histories go both ways.
    const WHO: usize = 8;

    const _: () = assert!(FEW < WHO / 2, "else no test has many");

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
            steps in prop::collection::vec((0..WHO, 0..BYTES, 0..BYTES, step()), 1..120),
        ) {
            let mut set = LockSet::default();
            let mut model = [[None::<LockKind>; BYTES as usize]; WHO];
            for (who, a, b, step) in steps {
                let span = range(a, b);
                let bytes = a.min(b) as usize..=a.max(b) as usize;
                match step {
                    Step::Lock(kind) | Step::Strengthen(kind) => {
                        let stands = |other: usize, n: usize| {
                            other != who && model[other][n].is_some_and(|held| held.conflicts(kind))
                        };
                        let in_way = |other: &usize| bytes.clone().any(|n| stands(*other, n));
                        let others: BTreeSet<usize> = (0..WHO).filter(in_way).collect();
                        let found = set.conflicts(Some(who), span, kind).map(|(other, ..)| other);
                        prop_assert_eq!(found.collect::<BTreeSet<_>>(), others.clone());
                        let conflict = set.conflict(Some(who), span, kind);
                        prop_assert_eq!(conflict.is_none(), others.is_empty());
                        if let Some((other, at, theirs)) = conflict {
                            prop_assert!(at.overlaps(span) && theirs.conflicts(kind) && other != who);
                            let is_first = |n: &usize| (0..WHO).any(|other| stands(other, *n));
                            let first = bytes.clone().find(is_first).unwrap() as u64;
                            prop_assert!(at.first() <= first && at.last() >= first);
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
                prop_assert!(set.is_sound());
                let holders = model.iter().filter(|held| held.iter().any(Option::is_some)).count();
                prop_assert_eq!(set.len(), holders);
            }
        }
    }
}
