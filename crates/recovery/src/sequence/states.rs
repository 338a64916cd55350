//! What names stand for after each step of a chain, and after which of them they stand for what is seen.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::Entry;
use crate::intent::{HandleBytes, Intent};
use crate::settle::{Seen, is_work_of};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Anything, or nothing.
    Unknown,
    Absent,
    Known(HandleBytes<'a>),
    /// What this operation has made, whose handle is not on record.
    MadeBy(usize),
}

/// What a step does to names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect<'a> {
    /// A name that was free stands for something.
    Appear { slot: usize, value: Value<'a> },
    /// A name is free again.
    Remove { slot: usize, victim: Option<HandleBytes<'a>> },
    /// Its object stands under another name.
    Rename {
        from: usize,
        to: usize,
        source: HandleBytes<'a>,
        target: Option<HandleBytes<'a>>,
        is_exchange: bool,
    },
    /// Nobody knows what the name stands for from here on.
    Blur { slot: usize },
}

/// One change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step<'a> {
    pub(super) entry: usize,
    pub(super) effect: Effect<'a>,
}

impl<'a> Effect<'a> {
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> + use<> {
        let slots = match *self {
            Self::Appear { slot, .. } | Self::Remove { slot, .. } | Self::Blur { slot } => [Some(slot), None],
            Self::Rename { from, to, .. } => [Some(from), Some(to)],
        };
        slots.into_iter().flatten()
    }

    /// What its names stood for before it.
    fn before(&self) -> [Option<(usize, Value<'a>)>; 2] {
        match *self {
            Self::Appear { slot, .. } | Self::Blur { slot } => [Some((slot, Value::Absent)), None],
            Self::Remove { slot, victim } => {
                [Some((slot, victim.map_or(Value::Unknown, Value::Known))), None]
            }
            Self::Rename { from, to, source, target, .. } => {
                let target = target.map_or(Value::Absent, Value::Known);
                [Some((from, Value::Known(source))), Some((to, target))]
            }
        }
    }
}

/// The names of a chain, and how many of them do not stand for what is seen.
struct Names<'a, 's> {
    now: HashMap<usize, Value<'a>>,
    entries: &'s [Entry<'a>],
    seen: &'s [Seen<'s>],
    unlike: usize,
}

impl<'a, 's> Names<'a, 's> {
    /// As they were before the first step.
    fn before(steps: &[&Step<'a>], entries: &'s [Entry<'a>], seen: &'s [Seen<'s>]) -> Self {
        let mut now = HashMap::new();
        for (slot, value) in steps.iter().flat_map(|step| step.effect.before()).flatten() {
            now.entry(slot).or_insert(value);
        }
        let mut this = Self { now, entries, seen, unlike: 0 };
        this.unlike = this.now.iter().filter(|(slot, value)| !this.is_like(**slot, **value)).count();
        this
    }

    fn is_like(&self, slot: usize, value: Value<'a>) -> bool {
        match (value, self.seen[slot]) {
            (Value::Unknown, _) | (Value::Absent, Seen::Absent) => true,
            (Value::Known(handle), Seen::Object(facts)) => facts.handle == handle,
            (Value::MadeBy(entry), Seen::Object(facts)) => match &self.entries[entry].intent {
                Intent::Make { kind, started_at, .. } => is_work_of(&facts, kind, *started_at),
                _ => false,
            },
            _ => false,
        }
    }

    fn set(&mut self, slot: usize, value: Value<'a>) {
        let was_like = self.now.get(&slot).is_none_or(|was| self.is_like(slot, *was));
        self.unlike -= usize::from(!was_like);
        self.unlike += usize::from(!self.is_like(slot, value));
        self.now.insert(slot, value);
    }

    fn take(&mut self, effect: &Effect<'a>) {
        match *effect {
            Effect::Appear { slot, value } => self.set(slot, value),
            Effect::Remove { slot, .. } => self.set(slot, Value::Absent),
            Effect::Blur { slot } => self.set(slot, Value::Unknown),
            Effect::Rename { from, to, source, is_exchange, .. } => {
                // Done anew since, an earlier step may have led to another object than when this was recorded.
                let moved = match self.now.get(&from) {
                    Some(now @ (Value::Known(_) | Value::MadeBy(_))) => *now,
                    _ => Value::Known(source),
                };
                let there = self.now.get(&to).copied().unwrap_or(Value::Unknown);
                // Of two names of one object nothing changes (POSIX).
                if moved != there {
                    self.set(to, moved);
                    self.set(from, if is_exchange { there } else { Value::Absent });
                }
            }
        }
    }
}

/// How many steps have led to what is seen, at most, within these bounds; `None` where no number has.
pub(super) fn last_seen(
    steps: &[&Step<'_>],
    entries: &[Entry<'_>],
    seen: &[Seen<'_>],
    bounds: &RangeInclusive<usize>,
) -> Option<usize> {
    let mut names = Names::before(steps, entries, seen);
    let mut last = None;
    for done in 0..=steps.len() {
        if names.unlike == 0 && bounds.contains(&done) {
            last = Some(done);
        }
        if let Some(next) = steps.get(done) {
            names.take(&next.effect);
        }
    }
    last
}

/// How many steps there are up to the last that has left something to be seen: for where others have changed names since.
pub(super) fn last_shown(steps: &[&Step<'_>], entries: &[Entry<'_>], seen: &[Seen<'_>]) -> usize {
    let mut names = Names::before(steps, entries, seen);
    let mut last = 0;
    for (at, step) in steps.iter().enumerate() {
        names.take(&step.effect);
        let (Effect::Appear { slot, .. } | Effect::Rename { to: slot, .. }) = step.effect else { continue };
        let value = names.now.get(&slot).copied().unwrap_or(Value::Unknown);
        if value != Value::Unknown && names.is_like(slot, value) {
            last = at + 1;
        }
    }
    last
}
