//! The search for an order: operations take effect one after the other, each between its beginning and its end, as late as
//! the next end allows; those that only look as soon as they can, for they change nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::model::power::Changes;
use super::model::{Deed, Outcome, Tree};
use super::{DeedId, Moment, Told};

/// How far an order has got: the file system, and which of the operations under way have taken effect.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    tree: Tree,
    done: BTreeSet<DeedId>,
    /// Those that have taken effect without an answer, and may once more: their session was lost meanwhile.
    before: BTreeSet<DeedId>,
    /// What those have changed that were under way when power failed and have not been answered yet.
    changed: BTreeMap<DeedId, Changes>,
}

/// Places are few where all is well; more than this, and something grows without bound.
const PLACES_MAX: usize = 20_000;

/// The file systems that the orders end with.
pub(super) fn explain(
    first: &Tree,
    told: &[Told],
    moments: &[Moment],
    until: Option<u64>,
) -> Result<Vec<Tree>, String> {
    let mut places = vec![Place {
        tree: first.clone(),
        done: BTreeSet::new(),
        before: BTreeSet::new(),
        changed: BTreeMap::new(),
    }];
    let mut under_way = BTreeSet::new();
    for moment in moments {
        match *moment {
            Moment::Begins(id) | Moment::Ends(id) if told[id].deed == Deed::Nothing => {}
            Moment::PowerFails => places = without_power(places, told),
            Moment::Begins(id) => {
                if until.is_some_and(|until| told[id].begun > until) {
                    break;
                }
                under_way.insert(id);
            }
            Moment::Ends(id) => {
                let is_late = |until| told[id].ended.as_ref().is_none_or(|(ended, _)| *ended > until);
                if until.is_some_and(is_late) {
                    break;
                }
                let next = with(&places, id, (told, &under_way))?;
                if next.is_empty() {
                    return Err(unexplained(&places, id, (told, &under_way)));
                }
                places = next;
                under_way.remove(&id);
            }
        }
    }
    Ok(places.into_iter().map(|place| place.tree).collect())
}

/// Where one can be once this has taken effect.
fn with(
    places: &[Place],
    id: DeedId,
    (told, under_way): (&[Told], &BTreeSet<DeedId>),
) -> Result<Vec<Place>, String> {
    let (mut reached, mut seen) = (HashSet::new(), HashSet::new());
    let mut open: Vec<Place> = places.iter().map(|place| place.clone().looks(told, under_way)).collect();
    while let Some(mut place) = open.pop() {
        if place.done.remove(&id) {
            place.before.remove(&id);
            place.changed.remove(&id);
            reached.insert(place.forgets());
            continue;
        }
        for next in under_way.difference(&place.done).filter(|next| !told[**next].deed.only_looks()) {
            // What need not have done anything, and changes nothing here, is as well said to have done nothing when it ends.
            let may_wait = *next != id && may_have_done_nothing(&told[*next]);
            for after in place.after(*next, told) {
                if may_wait && after.leaves(&place) {
                    continue;
                }
                let place = after.looks(told, under_way).forgets();
                if seen.insert(place.clone()) {
                    open.push(place);
                }
            }
        }
        if seen.len() > PLACES_MAX {
            return Err(format!("too many orders to look at: {} under way", under_way.len()));
        }
    }
    let mut reached: Vec<_> = reached.into_iter().collect();
    // A set of the standard library's has no order that another run would have.
    reached.sort_by_cached_key(|place| format!("{:?}", place.done));
    Ok(reached)
}

impl Place {
    /// Where one can be once this has taken effect.
    fn after(&self, id: DeedId, told: &[Told]) -> Vec<Self> {
        let Told { host, deed, sureness, .. } = &told[id];
        let with = |outcome: Option<Option<&Outcome>>| {
            let mut place = self.clone();
            let is_so = outcome.is_none_or(|outcome| place.tree.takes((id, *host), deed, outcome));
            is_so.then_some(place)
        };
        let mut all: Vec<_> = ways(&told[id]).filter_map(with).collect();
        for place in &mut all {
            place.done.insert(id);
            if sureness.is_disturbed && deed.changes() {
                place.changed.insert(id, place.tree.changes_since(&self.tree));
            }
        }
        let may_be_twice = sureness.may_be_done && !self.before.contains(&id);
        let once_more = may_be_twice.then(|| with(Some(None))).flatten();
        if let Some(mut place) = once_more.filter(|place| place.tree != self.tree) {
            place.before.insert(id);
            all.push(place);
        }
        all
    }

    /// Whether all is as it was there, but for what has taken effect.
    fn leaves(&self, before: &Self) -> bool {
        self.tree == before.tree && self.before == before.before
    }

    /// What this has done is lost with the power, if that can be.
    fn without(&self, id: DeedId, told: &Told) -> Option<Self> {
        let Told { host, deed, sureness, .. } = told;
        let mut place = self.clone();
        place.done.remove(&id);
        let is_lost = match place.changed.remove(&id) {
            Some(changes) => place.tree.loses_changes(&changes),
            None => place.tree.loses((id, *host), deed),
        };
        (sureness.is_disturbed && is_lost).then(|| place.forgets())
    }

    /// What this has made, and others have moved away, is kept with the power lost, but not that it was made: it is made once more
    /// (the window of `exactly-once.md`).
    fn forgotten(&self, id: DeedId, Told { host, deed, sureness, .. }: &Told) -> Option<Self> {
        let may_be = sureness.is_disturbed && !self.before.contains(&id);
        (may_be && self.tree.has_moved((id, *host), deed)).then(|| {
            let mut place = self.clone();
            place.done.remove(&id);
            place.before.insert(id);
            place
        })
    }

    /// Without what is gone, and nobody can come upon any more: by that alone two places are not two.
    fn forgets(mut self) -> Self {
        let may_come_back: BTreeSet<_> = self.changed.values().flat_map(Changes::objects).collect();
        self.tree.forgets_gone(&may_come_back);
        self
    }

    /// Those under way that only look take effect, if they can now.
    fn looks(mut self, told: &[Told], under_way: &BTreeSet<DeedId>) -> Self {
        let waiting: Vec<_> = under_way.difference(&self.done).copied().collect();
        for id in waiting.into_iter().filter(|id| told[*id].deed.only_looks()) {
            let Told { host, deed, .. } = &told[id];
            let mut takes = |outcome| self.tree.takes((id, *host), deed, outcome);
            if ways(&told[id]).any(|outcome| outcome.is_none_or(&mut takes)) {
                self.done.insert(id);
            }
        }
        self
    }
}

/// How it may have ended: as it says; done, whatever it says; not done at all.
fn ways(told: &Told) -> impl Iterator<Item = Option<Option<&Outcome>>> {
    let Told { ended, sureness, .. } = told;
    let says = ended.as_ref().map(|(_, outcome)| outcome);
    let may_be_otherwise = sureness.is_disturbed || (sureness.may_be_done && has_failed(says));
    let ways = [(true, Some(says)), (may_be_otherwise, Some(None)), (may_have_done_nothing(told), None)];
    ways.into_iter().filter(|(is_possible, _)| *is_possible).map(|(_, outcome)| outcome)
}

fn may_have_done_nothing(Told { ended, sureness, .. }: &Told) -> bool {
    let has_seen_an_object = matches!(ended, Some((_, Outcome::Found(..) | Outcome::Done)));
    sureness.is_disturbed && !has_seen_an_object
}

/// Power fails: what was under way and not answered yet may be lost though others have seen it, and is done once more; or is
/// made once more though it is not.
fn without_power(mut places: Vec<Place>, told: &[Told]) -> Vec<Place> {
    let mut seen: HashSet<Place> = places.iter().cloned().collect();
    let mut at = 0;
    while let Some(place) = places.get(at) {
        let without = |id: &DeedId| [place.without(*id, &told[*id]), place.forgotten(*id, &told[*id])];
        let other: Vec<_> = place.done.iter().flat_map(without).flatten().collect();
        places.extend(other.into_iter().filter(|place| seen.insert(place.clone())));
        at += 1;
    }
    places
}

fn has_failed(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Failed(_)))
}

fn unexplained(places: &[Place], id: DeedId, (told, under_way): (&[Told], &BTreeSet<DeedId>)) -> String {
    let words = |id: &DeedId| {
        let Told { host, deed, begun, ended, .. } = &told[*id];
        let end = ended.as_ref().map_or("no end".into(), |(at, outcome)| format!("{outcome:?} at {at} ms"));
        format!("mount {host}, from {begun} ms: {deed:?}: {end}")
    };
    let others: Vec<_> = under_way.iter().filter(|other| **other != id).map(words).collect();
    let would: Vec<_> = places.iter().take(2).map(|place| place.tree.words()).collect();
    format!(
        "no order of what was done explains: {} (beside it: {others:?}; {} places, of them: {would:#?})",
        words(&id),
        places.len()
    )
}
