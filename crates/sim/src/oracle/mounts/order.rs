//! The search for an order: operations take effect one after the other, each between its beginning and its end, as late as
//! the next end allows.

use std::collections::{BTreeSet, HashSet};

use super::model::{Outcome, Tree};
use super::{DeedId, Moment, Told};

/// How far an order has got: the file system, and which of the operations under way have taken effect.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    tree: Tree,
    done: BTreeSet<DeedId>,
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
    let mut places = vec![Place { tree: first.clone(), done: BTreeSet::new() }];
    let mut under_way = BTreeSet::new();
    for moment in moments {
        match *moment {
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
    let mut open: Vec<Place> = places.to_vec();
    while let Some(place) = open.pop() {
        if place.done.contains(&id) {
            let mut place = place;
            place.done.remove(&id);
            reached.insert(place);
            continue;
        }
        for next in under_way.difference(&place.done) {
            let Told { host, deed, ended, sureness, .. } = &told[*next];
            let told = ended.as_ref().map(|(_, outcome)| outcome);
            let may_be_otherwise = sureness.is_disturbed || (sureness.may_be_done && has_failed(told));
            let has_seen_no_object = !matches!(told, Some(Outcome::Found(..) | Outcome::Done));
            // As it says; done, whatever it says; not done at all.
            let ends = [
                (true, Some(told)),
                (may_be_otherwise, Some(None)),
                (sureness.is_disturbed && has_seen_no_object, None),
            ];
            for (_, outcome) in ends.into_iter().filter(|(is_possible, _)| *is_possible) {
                let mut tree = place.tree.clone();
                if outcome.is_none_or(|outcome| tree.takes((*next, *host), deed, outcome)) {
                    let mut done = place.done.clone();
                    done.insert(*next);
                    let place = Place { tree, done };
                    if seen.insert(place.clone()) {
                        open.push(place);
                    }
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
