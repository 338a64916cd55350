//! Judging all that was sent at once: what is lost makes more of it lost, and each is looked at again only when what speaks for it
//! has gone. A server may have forgotten as many operations as it remembers, and nothing else is done meanwhile.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Signs, Slot, places, vacates};
use crate::ids::NodeId;
use crate::queue::Op;

/// Operations that do the same to an object under a name, in order, and those that are as good as done if one of them, later than
/// they, is not lost.
#[derive(Default)]
struct Witnesses {
    all: Vec<usize>,
    for_whom: Vec<usize>,
}

impl Witnesses {
    fn is_any_behind(&self, at: usize) -> bool {
        self.all.last().is_some_and(|last| *last > at)
    }

    /// For whom there is none any more, now that those are lost.
    fn lose(&mut self, lost: &[bool]) -> Vec<usize> {
        while self.all.last().is_some_and(|last| lost[*last]) {
            self.all.pop();
        }
        let last = self.all.last().copied();
        let left = self.for_whom.partition_point(|at| last.is_some_and(|last| *at < last));
        self.for_whom.split_off(left)
    }
}

/// An object under a name.
struct Named {
    slot: usize,
    is_at: bool,
    placing: Witnesses,
    vacating: Witnesses,
}

/// Operations, in order, and from where on all of them are lost that can be so.
#[derive(Default)]
struct Row {
    all: Vec<usize>,
    lost_from: Option<usize>,
}

impl Row {
    /// Those behind this one that were not lost yet by one before them.
    fn lose_behind(&mut self, at: usize) -> Vec<usize> {
        let from = self.all.partition_point(|one| *one <= at);
        let to = self.lost_from.unwrap_or(self.all.len());
        if from >= to {
            return Vec::new();
        }
        self.lost_from = Some(from);
        self.all[from..to].to_vec()
    }
}

/// What an operation does to names; places in lists.
#[derive(Clone, Copy, Default)]
struct Does {
    /// What it is about, where that can be lost.
    about: Option<usize>,
    makes: bool,
    placed: Option<usize>,
    vacated: Option<usize>,
    replaced: Option<usize>,
}

/// Of one object.
#[derive(Default)]
struct About {
    /// Behind a making that is lost.
    unmade: Row,
    /// Of those that only take a name, behind anything that is lost.
    removed: Row,
}

pub(super) struct Judging<'s> {
    signs: &'s Signs<'s>,
    does: Vec<Does>,
    named: Vec<Named>,
    slots: Vec<Row>,
    /// The last operation that has put something under a name which is there.
    last_there: Vec<Option<usize>>,
    objects: Vec<About>,
    lost: Vec<bool>,
    /// Lost, and what that makes of others is still to be found.
    news: Vec<usize>,
}

/// The place of each key in a list, in the order in which they come.
fn place_of<K: std::hash::Hash + Eq, T>(
    places: &mut FxHashMap<K, usize>,
    list: &mut Vec<T>,
    key: K,
    make: impl FnOnce(&K) -> T,
) -> usize {
    *places.entry(key).or_insert_with_key(|key| {
        list.push(make(key));
        list.len() - 1
    })
}

impl<'s> Judging<'s> {
    pub(super) fn new(signs: &'s Signs<'s>, gone: &FxHashSet<NodeId>) -> Self {
        let count = signs.sent.len();
        let mut judging = Self {
            signs,
            does: Vec::with_capacity(count),
            named: Vec::new(),
            slots: Vec::new(),
            last_there: Vec::new(),
            objects: Vec::new(),
            lost: vec![false; count],
            news: Vec::new(),
        };
        let (mut slots, mut named, mut objects) =
            (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        for (at, (queued, _)) in signs.sent.iter().enumerate() {
            let does = judging.read(&queued.op, &mut slots, &mut named);
            let id = queued.op.nodes()[0].filter(|id| !gone.contains(id));
            let about = id.filter(|_| does.placed.is_some() || does.vacated.is_some());
            let about =
                about.map(|id| place_of(&mut objects, &mut judging.objects, id, |_| About::default()));
            judging.does.push(Does { about, ..does });
            judging.note(at);
        }
        judging
    }

    fn read(
        &mut self,
        op: &Op,
        slots: &mut FxHashMap<Slot, usize>,
        named: &mut FxHashMap<(NodeId, Slot), usize>,
    ) -> Does {
        let mut of = |what: Option<(NodeId, Slot)>| {
            let (id, name) = what?;
            let slot = place_of(slots, &mut self.slots, name.clone(), |_| Row::default());
            let is_at = || self.signs.is_at(id, &name);
            let new = |_: &_| Named {
                slot,
                is_at: is_at(),
                placing: Witnesses::default(),
                vacating: Witnesses::default(),
            };
            Some(place_of(named, &mut self.named, (id, name.clone()), new))
        };
        let replaced = match op {
            Op::Rename { to, over: Some(over), .. } => Some((*over, to.clone())),
            _ => None,
        };
        let (placed, vacated, replaced) = (of(places(op)), of(vacates(op)), of(replaced));
        self.last_there.resize(self.slots.len(), None);
        Does { about: None, makes: matches!(op, Op::Make { .. }), placed, vacated, replaced }
    }

    /// What an operation says of others, and what speaks for it.
    fn note(&mut self, at: usize) {
        let Does { about, makes, placed, vacated, replaced } = self.does[at];
        if let Some(placed) = placed {
            let named = &mut self.named[placed];
            named.placing.all.push(at);
            named.vacating.for_whom.push(at);
            if named.is_at {
                self.last_there[named.slot] = Some(at);
            }
        }
        if let Some(vacated) = vacated {
            let named = &mut self.named[vacated];
            named.vacating.all.push(at);
            named.placing.for_whom.push(at);
        }
        if let Some(replaced) = replaced {
            self.named[replaced].placing.for_whom.push(at);
        }
        let Some(about) = about else { return };
        if !makes {
            for of in [placed, vacated].into_iter().flatten() {
                let slot = self.named[of].slot;
                self.slots[slot].all.push(at);
            }
        }
        self.objects[about].unmade.all.push(at);
        if placed.is_none() {
            self.objects[about].removed.all.push(at);
        }
    }

    fn is_placed(&self, at: usize, what: usize) -> bool {
        let named = &self.named[what];
        named.is_at || self.last_there[named.slot] > Some(at) || named.vacating.is_any_behind(at)
    }

    fn is_vacated(&self, at: usize, what: usize) -> bool {
        let named = &self.named[what];
        !named.is_at || named.placing.is_any_behind(at)
    }

    fn is_done(&self, at: usize) -> bool {
        let Does { makes, placed, vacated, replaced, .. } = self.does[at];
        if makes {
            return self.signs.sent[at].0.op.nodes()[0].is_some_and(|id| self.signs.is_there(id));
        }
        // What was replaced on the way is not to be back.
        replaced.is_none_or(|what| self.is_vacated(at, what))
            && placed.is_none_or(|what| self.is_placed(at, what))
            && vacated.is_none_or(|what| self.is_vacated(at, what))
    }

    fn lose(&mut self, at: usize) {
        if self.does[at].about.is_some() && !std::mem::replace(&mut self.lost[at], true) {
            self.news.push(at);
        }
    }

    /// What is lost with something: what was done later to its names, or to what was not made; and what was as good as done by it.
    fn follow(&mut self, at: usize) {
        let Does { about, makes, placed, vacated, .. } = self.does[at];
        for of in [placed, vacated].into_iter().flatten() {
            let slot = self.named[of].slot;
            self.slots[slot].lose_behind(at).into_iter().for_each(|later| self.lose(later));
        }
        if let Some(about) = about {
            let object = &mut self.objects[about];
            let mut later = object.removed.lose_behind(at);
            if makes {
                later.extend(object.unmade.lose_behind(at));
            }
            later.into_iter().for_each(|later| self.lose(later));
        }
        let mut alone = Vec::new();
        if let Some(placed) = placed {
            alone.extend(self.named[placed].placing.lose(&self.lost));
        }
        if let Some(vacated) = vacated {
            alone.extend(self.named[vacated].vacating.lose(&self.lost));
        }
        for at in alone {
            if !self.is_done(at) {
                self.lose(at);
            }
        }
    }

    pub(super) fn judged(mut self) -> Vec<bool> {
        for at in 0..self.lost.len() {
            if !self.is_done(at) {
                self.lose(at);
            }
        }
        while let Some(at) = self.news.pop() {
            self.follow(at);
        }
        self.lost
    }
}
