//! Whether what several clients saw of one name can have happened one after the other.
//!
//! A name is made (as a link with a text that none had before), looked at, and removed. Each client's operations follow
//! each other; those of different ones overlap. There must be an order in which each takes effect at one moment between
//! its call and its return, and gives what it gave. Of a client that was killed, the last ones, from any one on that it
//! had not synced, may never have happened.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What was done to the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Deed {
    /// It was to be made, with this text.
    Make(u64),
    /// It was to be removed.
    Remove,
    /// It was looked at.
    Look,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Gave {
    /// Made, or removed.
    Done,
    /// It was there.
    There,
    /// It was not there.
    Absent,
    /// It was there, with this text.
    Text(u64),
    /// The client did not live to tell.
    Nothing,
}

/// One operation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) deed: Deed,
    pub(crate) gave: Gave,
    /// When it was called, in any unit.
    pub(crate) from: u64,
    /// When it had returned.
    pub(crate) to: u64,
}

/// One client's operations, in order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) events: Vec<Event>,
    /// Of those, so many have happened for certain. All, unless it was killed.
    pub(crate) certain: usize,
}

type State = Option<u64>;

impl Event {
    /// The state after it, if it can have given this where it takes effect.
    fn after(&self, state: State) -> Option<State> {
        match (self.deed, self.gave, state) {
            (Deed::Make(text), Gave::Done | Gave::Nothing, None) => Some(Some(text)),
            (Deed::Remove, Gave::Done | Gave::Nothing, Some(_)) => Some(None),
            (Deed::Make(_), Gave::There | Gave::Nothing, Some(_))
            | (Deed::Remove | Deed::Look, Gave::Absent | Gave::Nothing, None)
            | (Deed::Look, Gave::Nothing, Some(_)) => Some(state),
            (Deed::Look, Gave::Text(seen), Some(text)) if seen == text => Some(state),
            _ => None,
        }
    }
}

/// Whether there is such an order, from a name that is not there, to `last`.
pub(crate) fn is_possible(clients: &[Client], last: State) -> bool {
    let mut seen = HashSet::new();
    let mut todo = vec![(vec![0; clients.len()], None)];
    while let Some((places, state)) = todo.pop() {
        if !seen.insert((places.clone(), state)) {
            continue;
        }
        if places.iter().zip(clients).all(|(place, client)| *place == client.events.len()) {
            if state == last {
                return true;
            }
            continue;
        }
        let next = |n: usize| clients[n].events.get(places[n]);
        // Nothing takes effect after something that was called when it had returned.
        let bound = (0..clients.len()).filter_map(|n| Some(next(n)?.to)).min().unwrap_or(u64::MAX);
        for n in 0..clients.len() {
            let Some(event) = next(n) else { continue };
            let mut step = |place: usize, state: State| {
                let mut places = places.clone();
                places[n] = place;
                todo.push((places, state));
            };
            if places[n] >= clients[n].certain {
                step(clients[n].events.len(), state);
            }
            if event.from <= bound
                && let Some(state) = event.after(state)
            {
                step(places[n] + 1, state);
            }
        }
    }
    false
}

/// Histories that can have been and such that cannot, so that the judge is judged as well.
pub(crate) fn check_the_checker() -> anyhow::Result<()> {
    let event = |deed, gave, from, to| Event { deed, gave, from, to };
    let lived = |events: Vec<Event>| Client { certain: events.len(), events };
    let killed = |events: Vec<Event>, certain| Client { events, certain };
    let made = event(Deed::Make(1), Gave::Done, 0, 10);
    let cases = [
        (
            "seen while it is made",
            true,
            vec![lived(vec![made]), lived(vec![event(Deed::Look, Gave::Text(1), 5, 6)])],
        ),
        (
            "seen before it is made",
            false,
            vec![lived(vec![made]), {
                lived(vec![event(Deed::Look, Gave::Text(1), 1, 2), event(Deed::Look, Gave::Absent, 3, 4)])
            }],
        ),
        ("made twice", false, vec![lived(vec![made]), lived(vec![event(Deed::Make(2), Gave::Done, 5, 20)])]),
        (
            "not seen though made",
            false,
            vec![lived(vec![made]), { lived(vec![event(Deed::Look, Gave::Absent, 11, 12)]) }],
        ),
        (
            "lost with who made it",
            true,
            vec![killed(vec![made], 0), {
                lived(vec![event(Deed::Look, Gave::Absent, 11, 12), event(Deed::Make(2), Gave::Done, 13, 14)])
            }],
        ),
        (
            "lost though synced",
            false,
            vec![killed(vec![made], 1), { lived(vec![event(Deed::Look, Gave::Absent, 11, 12)]) }],
        ),
        (
            "lost though seen",
            false,
            vec![killed(vec![made], 0), {
                lived(vec![event(Deed::Look, Gave::Text(1), 11, 12), event(Deed::Look, Gave::Absent, 13, 14)])
            }],
        ),
    ];
    for (what, is_so, clients) in cases {
        let lasts = [None, Some(1), Some(2)];
        let found = lasts.iter().any(|last| is_possible(&clients, *last));
        anyhow::ensure!(found == is_so, "{what}: taken for {found}");
    }
    Ok(())
}
