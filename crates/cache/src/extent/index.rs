//! What is asked of all extents of a file at each of its writes, without a look at each: a file of which a thousand places were written
//! has thousands.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::limits::LARGE_EXTENT_BYTES;

use super::{Progress, Weights};

/// Kept in step with a map by [`Index::enter`] and [`Index::leave`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) weights: Weights,
    /// Where those begin that are dirty.
    pub(super) dirty: BTreeSet<u64>,
    /// Where those of the dirty ones begin that are large.
    pub(super) large: BTreeSet<u64>,
    /// Where those begin that are on their way.
    pub(super) on_the_way: BTreeSet<u64>,
    /// How many are with the server, under which verifier.
    verifiers: BTreeMap<u64, usize>,
}

impl Index {
    pub(super) fn enter(&mut self, at: u64, len: usize, progress: Progress) {
        *self.weight(progress) += len as u64;
        match progress {
            Progress::Dirty => {
                self.dirty.insert(at);
                self.note_large(at, len);
            }
            Progress::Sent(_) | Progress::Stream(_) => drop(self.on_the_way.insert(at)),
            Progress::Unstable { verifier, .. } => *self.verifiers.entry(verifier).or_default() += 1,
        }
    }

    pub(super) fn leave(&mut self, at: u64, len: usize, progress: Progress) {
        *self.weight(progress) -= len as u64;
        match progress {
            Progress::Dirty => {
                self.dirty.remove(&at);
                self.large.remove(&at);
            }
            Progress::Sent(_) | Progress::Stream(_) => drop(self.on_the_way.remove(&at)),
            Progress::Unstable { verifier, .. } => {
                let of_it = self.verifiers.get_mut(&verifier);
                if of_it.is_some_and(|count| std::mem::replace(count, *count - 1) == 1) {
                    self.verifiers.remove(&verifier);
                }
            }
        }
    }

    /// A dirty one has grown by so much.
    pub(super) fn grow(&mut self, at: u64, len: usize, by: usize) {
        self.weights.unsent += by as u64;
        self.note_large(at, len + by);
    }

    fn note_large(&mut self, at: u64, len: usize) {
        if len >= LARGE_EXTENT_BYTES {
            self.large.insert(at);
        }
    }

    /// Whether anything is with the server under such a verifier.
    pub(super) fn has_verifier(&self, is_such: impl Fn(u64) -> bool) -> bool {
        self.verifiers.keys().any(|verifier| is_such(*verifier))
    }

    const fn weight(&mut self, progress: Progress) -> &mut u64 {
        match progress {
            Progress::Unstable { .. } => &mut self.weights.unstable,
            _ => &mut self.weights.unsent,
        }
    }
}
