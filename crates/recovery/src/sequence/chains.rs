//! Which steps concern each other: by a name, or by an object under whatever name.

use std::collections::{BTreeMap, HashMap};

use super::Entry;
use super::states::{Effect, Step, Value};
use crate::intent::{HandleBytes, Intent};

/// Steps by the chain they belong to, each in order.
pub(super) struct Chains(Vec<Vec<usize>>);

/// What two steps may have in common.
#[derive(PartialEq, Eq, Hash)]
enum Meeting<'a> {
    Slot(usize),
    Object(HandleBytes<'a>),
    /// Several removals that are one operation.
    Entry(usize),
}

impl Chains {
    pub(super) fn of(entries: &[Entry<'_>], steps: &[Step<'_>]) -> Self {
        let mut groups = Groups((0..steps.len()).collect());
        let mut met: HashMap<Meeting<'_>, usize> = HashMap::new();
        for (at, step) in steps.iter().enumerate() {
            for meeting in meetings(entries, step) {
                let first = *met.entry(meeting).or_insert(at);
                groups.join(first, at);
            }
        }
        let mut chains: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in 0..steps.len() {
            chains.entry(groups.first_of(at)).or_default().push(at);
        }
        Self(chains.into_values().collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        self.0.iter().map(Vec::as_slice)
    }
}

fn meetings<'a>(entries: &[Entry<'a>], step: &Step<'a>) -> Vec<Meeting<'a>> {
    let mut all: Vec<_> = step.effect.slots().map(Meeting::Slot).collect();
    match step.effect {
        Effect::Appear { value: Value::Known(object), .. } => all.push(Meeting::Object(object)),
        Effect::Remove { victim: Some(victim), .. } => all.push(Meeting::Object(victim)),
        Effect::Rename { source, target, .. } => {
            all.extend([Some(source), target].into_iter().flatten().map(Meeting::Object));
        }
        _ => {}
    }
    if matches!(entries[step.entry].intent, Intent::Removals { .. }) {
        all.push(Meeting::Entry(step.entry));
    }
    all
}

/// Each points to an earlier one of its group; the first to itself.
struct Groups(Vec<usize>);

impl Groups {
    fn first_of(&mut self, mut of: usize) -> usize {
        while self.0[of] != of {
            // Halves the way for who comes next.
            self.0[of] = self.0[self.0[of]];
            of = self.0[of];
        }
        of
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first_of(one), self.first_of(other));
        self.0[one.max(other)] = one.min(other);
    }
}
