//! Settling what one client did in a row, after the machine has died. What an operation left may have been moved on,
//! replaced or removed by the next, so none can be judged by its own names: those that meet in a name or an object form
//! a *chain*. File systems keep the order of such changes, so a disk shows what the first so many steps of a chain have
//! led to. The last such place is looked for; what comes before it has happened, and what comes after it is done again,
//! in order.
//!
//! Pure: [`Sequence::looks`] says what to look at, [`Sequence::settle`] takes what was seen.

mod chains;
mod states;

use std::collections::{HashMap, HashSet};

use crate::intent::{HandleBytes, Intent, Look, NAME_HASH_BYTES, Place, name_hash};
use crate::settle::{Seen, Settled, settle};
use chains::Chains;
use states::{Effect, Step, Value};

/// What is on record of an operation besides its intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came<'a> {
    /// Nothing.
    CutShort,
    /// It was refused.
    Refused,
    /// It succeeded.
    Done,
    /// It made this.
    Made(HandleBytes<'a>),
    /// Of removals that stand together the first so many were done.
    Removed {
        /// How many.
        count: u32,
        /// Those among them that were refused.
        refused: Vec<u32>,
    },
}

/// One operation, in the order in which they were executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it was about to do.
    pub intent: Intent<'a>,
    /// What came of it.
    pub came: Came<'a>,
    /// Whether its effect cannot have been lost with the machine.
    pub is_certain: bool,
}

/// Operations in a row.
#[derive(Debug)]
pub struct Sequence<'a> {
    entries: Vec<Entry<'a>>,
    /// What they did to names, which are known by the numbers of the looks at them.
    steps: Vec<Step<'a>>,
    looks: Vec<Look<'a>>,
    /// Where the looks at each entry's object begin.
    of_object: HashMap<usize, usize>,
}

impl<'a> Sequence<'a> {
    /// Takes operations, the first one first.
    #[must_use]
    pub fn of(entries: Vec<Entry<'a>>) -> Self {
        let slots = slots(&entries);
        let index: HashMap<Place<'a>, usize> = slots.iter().copied().zip(0..).collect();
        let steps = steps(&entries, &index);
        let mut looks: Vec<_> = slots.iter().map(|place| Look::Name(*place)).collect();
        let mut of_object = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let (object, xattr) = match entry.intent {
                Intent::SetAttr { object, .. } => (object, None),
                Intent::MakeXattr { object, name, .. } | Intent::RemoveXattr { object, name, .. } => {
                    (object, Some(Look::Xattr { object, name }))
                }
                _ => continue,
            };
            of_object.insert(at, looks.len());
            looks.push(Look::Object(object));
            looks.extend(xattr);
        }
        Self { entries, steps, looks, of_object }
    }

    /// What [`Sequence::settle`] needs to see, in this order.
    #[must_use]
    pub fn looks(&self) -> &[Look<'a>] {
        &self.looks
    }

    /// What became of each operation.
    #[must_use]
    pub fn settle(&self, seen: &[Seen<'_>]) -> Vec<Settled> {
        let chains = Chains::of(&self.entries, &self.steps);
        // What came and went looks like what never came; but nothing has happened after what has surely not.
        let mut end = self.entries.len();
        loop {
            let mut settled: Vec<_> = self.entries.iter().map(of_itself).collect();
            let ends = chains.iter().map(|chain| self.settle_chain(chain, seen, end, &mut settled));
            let earliest = ends.flatten().min().unwrap_or(end);
            if earliest >= end {
                self.settle_objects(seen, &mut settled);
                return settled;
            }
            end = earliest;
        }
    }

    /// Settles operations on names, of which those from `end` on have not happened if that can be. Gives the first that has
    /// surely not.
    fn settle_chain(
        &self,
        chain: &[usize],
        seen: &[Seen<'_>],
        end: usize,
        settled: &mut [Settled],
    ) -> Option<usize> {
        let steps: Vec<_> = chain.iter().map(|at| &self.steps[*at]).collect();
        // Of a refusal nothing can be lost, and nothing is to be found.
        let stands = |step: &Step<'_>| self.entries[step.entry].came == Came::Refused;
        if steps.iter().flat_map(|step| step.effect.slots()).any(|slot| seen[slot] == Seen::Failed) {
            let asked = steps.iter().filter(|step| !stands(step));
            asked.for_each(|step| settled[step.entry] = Settled::CannotTell);
            return None;
        }
        let is_certain = |step: &&Step<'_>| {
            let entry = &self.entries[step.entry];
            entry.is_certain && entry.came != Came::CutShort
        };
        let least = steps.iter().rposition(is_certain).map_or(0, |last| last + 1);
        let most = steps.iter().take_while(|step| step.entry < end).count().max(least);
        let found = |most| states::last_seen(&steps, &self.entries, seen, &(least..=most));
        let (done, is_sure) = match found(most).or_else(|| found(steps.len())) {
            Some(done) => (done, true),
            None => (states::last_shown(&steps, &self.entries, seen).max(least), false),
        };
        for (at, step) in steps.iter().enumerate() {
            let so_far = settled[step.entry];
            let is_passed = || steps[..done].iter().skip(at + 1).any(|later| later.entry != step.entry);
            settled[step.entry] = match self.entries[step.entry].intent {
                // Names that nobody has used since may be removed once more. What came to stand under one of them must not.
                Intent::Removals { .. } if self.entries[step.entry].came == Came::CutShort => so_far,
                Intent::Removals { .. } if is_passed() => Settled::HappenedAlready,
                Intent::Removals { .. } => so_far,
                _ if stands(step) => so_far,
                _ if at < done => Settled::HappenedAlready,
                _ if is_sure => Settled::NotHappened,
                // Others were there. What was there before all this is judged by itself.
                _ => self.settle_alone(step, seen),
            };
        }
        steps[done..].iter().find(|step| is_sure && !stands(step)).map(|step| step.entry)
    }

    fn settle_alone(&self, step: &Step<'a>, seen: &[Seen<'_>]) -> Settled {
        let intent = &self.entries[step.entry].intent;
        let look = |slot: usize| seen[slot];
        match (&step.effect, intent) {
            (Effect::Rename { from, to, .. }, Intent::Rename { source, .. })
                if self.maker(source).is_none() =>
            {
                settle(intent, [look(*from), look(*to)])
            }
            (Effect::Remove { slot, .. }, Intent::Remove { victim, .. }) if self.maker(victim).is_none() => {
                settle(intent, [look(*slot), Seen::Absent])
            }
            _ => Settled::NotHappened,
        }
    }

    /// Which of these operations has made an object.
    fn maker(&self, object: HandleBytes<'_>) -> Option<usize> {
        self.entries.iter().position(|entry| matches!(entry.came, Came::Made(made) if made == object))
    }

    /// Settles changes of objects: done again in their order they lead to the same, but not where their object is another by
    /// then, or gone.
    fn settle_objects(&self, seen: &[Seen<'_>], settled: &mut [Settled]) {
        let makers: HashMap<HandleBytes<'_>, usize> =
            self.entries.iter().enumerate().filter_map(made).collect();
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(look) = self.of_object.get(&at).filter(|_| entry.came != Came::Refused) else {
                continue;
            };
            let (object, of) = match entry.intent {
                Intent::SetAttr { object, .. } => (object, seen[*look]),
                Intent::MakeXattr { object, .. } | Intent::RemoveXattr { object, .. } => {
                    (object, seen[*look + 1])
                }
                _ => continue,
            };
            let is_gone = seen[*look] == Seen::Absent && entry.came != Came::CutShort;
            let is_lost = makers.get(object).is_some_and(|maker| settled[*maker] == Settled::NotHappened);
            settled[at] = match entry.intent {
                _ if is_lost => Settled::NotHappened,
                _ if is_gone => Settled::HappenedAlready,
                _ if seen[*look] == Seen::Failed => Settled::CannotTell,
                // Between them the attribute may have been set without a record, which is done again, too.
                Intent::MakeXattr { .. } | Intent::RemoveXattr { .. } if !entry.is_certain => Settled::Repeat,
                _ => settle(&entry.intent, [of, Seen::Absent]),
            };
        }
    }
}

fn made<'a>((at, entry): (usize, &Entry<'a>)) -> Option<(HandleBytes<'a>, usize)> {
    match entry.came {
        Came::Made(handle) => Some((handle, at)),
        _ => None,
    }
}

/// What became of what changes no name that is known.
fn of_itself(entry: &Entry<'_>) -> Settled {
    match (&entry.intent, &entry.came) {
        // Of a refusal nothing can be lost.
        (_, Came::Refused) => Settled::HappenedAlready,
        (Intent::Repeatable, Came::CutShort) | (Intent::Removals { .. }, _) => Settled::Repeat,
        // An append, say: where it is to be is on record before it is there.
        (Intent::Repeatable, _) => Settled::HappenedAlready,
        _ => Settled::NotHappened,
    }
}

/// The names that are known.
fn slots<'a>(entries: &[Entry<'a>]) -> Vec<Place<'a>> {
    let mut slots = Vec::new();
    let mut known = HashSet::new();
    let mut add = |place: Place<'a>| {
        if known.insert(place) {
            slots.push(place);
        }
    };
    for entry in entries {
        match entry.intent {
            Intent::Make { at, .. } | Intent::Remove { at, .. } | Intent::Link { at, .. } => add(at),
            Intent::Rename { from, to, .. } => {
                add(from);
                add(to);
            }
            _ => {}
        }
    }
    slots
}

/// What each operation did to those names.
fn steps<'a>(entries: &[Entry<'a>], index: &HashMap<Place<'a>, usize>) -> Vec<Step<'a>> {
    let hashed: HashMap<_, _> =
        index.iter().map(|(place, slot)| ((place.dir, name_hash(place.name)), *slot)).collect();
    let mut steps = Vec::new();
    for (entry, of) in entries.iter().enumerate() {
        let mut add = |effect| steps.push(Step { entry, effect });
        let is_refused = of.came == Came::Refused;
        match of.intent {
            Intent::Make { before: Some(_), .. } | Intent::Link { before: Some(_), .. } => {}
            // It may have been made all the same, and be there without its data.
            Intent::Make { at, .. } if is_refused => add(Effect::Blur { slot: index[&at] }),
            _ if is_refused => {}
            Intent::Make { at, .. } => {
                let value = match of.came {
                    Came::Made(handle) => Value::Known(handle),
                    _ => Value::MadeBy(entry),
                };
                add(Effect::Appear { slot: index[&at], value });
            }
            Intent::Link { at, object, .. } => {
                add(Effect::Appear { slot: index[&at], value: Value::Known(object) });
            }
            Intent::Remove { at, victim } => add(Effect::Remove { slot: index[&at], victim: Some(victim) }),
            Intent::Rename { from, to, source, target, is_exchange } => {
                let (from, to) = (index[&from], index[&to]);
                add(Effect::Rename { from, to, source, target, is_exchange });
            }
            Intent::Removals { dir, names } => {
                let is_removed = |nth: u32| match &of.came {
                    Came::Removed { count, refused } => nth < *count && !refused.contains(&nth),
                    _ => true,
                };
                for (nth, hash) in (0..).zip(names.chunks_exact(NAME_HASH_BYTES)) {
                    let hash = hash.try_into().unwrap_or_default();
                    if let Some(slot) = hashed.get(&(dir, hash)).filter(|_| is_removed(nth)) {
                        add(Effect::Remove { slot: *slot, victim: None });
                    }
                }
            }
            Intent::SetAttr { .. }
            | Intent::MakeXattr { .. }
            | Intent::RemoveXattr { .. }
            | Intent::Repeatable => {}
        }
    }
    steps
}
