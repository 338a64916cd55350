//! Which row of the counters a client or an export has. Bounded: when all rows are taken, those that nobody counted
//! in for a while are given to others, and who gets none is counted in row 0 with all others like it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::shard::GroupSums;

/// The row of all those who have none of their own.
pub(crate) const OTHERS: usize = 0;

/// How often rows are looked over for idle ones at most: it sums every counter.
const LOOK_OVER: Duration = Duration::from_secs(10);

/// Rows by key.
pub(crate) struct Roster<K> {
    rows: BTreeMap<K, usize>,
    free: Vec<usize>,
    /// What a row's counters stood at when its present tenant came.
    base: Vec<GroupSums>,
    /// What they stood at when rows were last looked over.
    seen: Vec<GroupSums>,
    looked_over_at: Option<Instant>,
}

impl<K: Ord + Copy> Roster<K> {
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            rows: BTreeMap::new(),
            free: (1..rows).rev().collect(),
            base: vec![GroupSums::default(); rows],
            seen: Vec::new(),
            looked_over_at: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.base.len()
    }

    /// The row of a key that has one, or a free one for a key that has none.
    pub(crate) fn row(&mut self, key: K) -> Option<usize> {
        if let Some(row) = self.rows.get(&key) {
            return Some(*row);
        }
        let row = self.free.pop()?;
        self.rows.insert(key, row);
        Some(row)
    }

    /// Takes rows from those in which nothing was counted since the last time; whether any was taken. `sums` is
    /// asked for what the counters stand at, and only when a look is due.
    pub(crate) fn look_over(&mut self, now: Instant, sums: impl FnOnce() -> Vec<GroupSums>) -> bool {
        if self.looked_over_at.is_some_and(|at| now.duration_since(at) < LOOK_OVER) {
            return false;
        }
        self.looked_over_at = Some(now);
        let sums = sums();
        let seen = std::mem::replace(&mut self.seen, sums);
        // The first time nothing is known about who is idle.
        let idle = |row: usize| seen.get(row).is_some_and(|seen| *seen == self.seen[row]);
        let idle: Vec<(K, usize)> =
            self.rows.iter().map(|(key, row)| (*key, *row)).filter(|(_, row)| idle(*row)).collect();
        for (key, row) in &idle {
            self.rows.remove(key);
            self.base[*row] = self.seen[*row];
            self.free.push(*row);
        }
        !idle.is_empty()
    }

    /// Every key with what was counted of it, and what was counted of all who have no row.
    pub(crate) fn read(&self, sums: &[GroupSums]) -> (Vec<(K, GroupSums)>, GroupSums) {
        let of = |row: usize| sums.get(row).copied().unwrap_or_default().since(&self.base[row]);
        (self.rows.iter().map(|(key, row)| (*key, of(*row))).collect(), of(OTHERS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(n: u64) -> GroupSums {
        GroupSums { received: n, ..GroupSums::default() }
    }

    #[test]
    fn a_row_goes_to_another_only_when_its_tenant_is_idle() {
        let mut roster = Roster::new(3);
        let start = Instant::now();
        let (a, b) = (roster.row('a').unwrap(), roster.row('b').unwrap());
        assert_ne!((a, b), (b, a));
        assert_eq!(roster.row('c'), None, "row 0 is everybody's");
        assert!(!roster.look_over(start, || vec![counted(0), counted(5), counted(5)]));
        let mut later = vec![counted(0), counted(5), counted(5)];
        later[b] = counted(6);
        assert!(!roster.look_over(start, || panic!("too soon")));
        assert!(roster.look_over(start + LOOK_OVER, || later.clone()));
        assert_eq!(roster.row('c'), Some(a));
        assert_eq!(roster.row('b'), Some(b));
        let (rows, _) = roster.read(&later);
        assert_eq!(
            rows,
            [('b', counted(6)), ('c', counted(0))],
            "what the last tenant did is not the next one's"
        );
    }
}
