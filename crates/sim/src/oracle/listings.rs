//! What clients keep of a directory under a delegation with notifications: they read its names once, and from then on are
//! told of every change. They may hear late; in the end they must have heard of all.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;
use super::grants::GrantId;

/// A change that a holder is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A name came.
    Added(String),
    /// A name went.
    Removed(String),
}

#[derive(Default)]
struct Listing {
    /// Whose directory.
    of: usize,
    /// None before it was read.
    names: Option<BTreeSet<String>>,
    /// What was told before it was read: done again on what was read, it makes no difference in the end.
    before: Vec<Told>,
}

impl Listing {
    fn apply(&mut self, told: Told) {
        match (&mut self.names, told) {
            (None, told) => self.before.push(told),
            (Some(names), Told::Added(name)) => drop(names.insert(name)),
            (Some(names), Told::Removed(name)) => drop(names.remove(&name)),
        }
    }
}

/// All that clients keep.
#[derive(Default)]
pub struct Listings {
    by_grant: BTreeMap<GrantId, Listing>,
}

impl Listings {
    /// A client will be told what changes in a client's directory.
    pub fn begin(&mut self, grant: GrantId, of: usize) {
        self.by_grant.insert(grant, Listing { of, ..Listing::default() });
    }

    /// It read the directory.
    pub fn read(&mut self, grant: GrantId, names: BTreeSet<String>) {
        let Some(listing) = self.by_grant.get_mut(&grant) else { return };
        listing.names = Some(names);
        std::mem::take(&mut listing.before).into_iter().for_each(|told| listing.apply(told));
    }

    /// It is told of changes, in this order.
    pub fn told(&mut self, grant: GrantId, changes: Vec<Told>) {
        if let Some(listing) = self.by_grant.get_mut(&grant) {
            changes.into_iter().for_each(|told| listing.apply(told));
        }
    }

    /// Those who still rely on what they keep: their grants, and whose directory.
    pub fn kept(&self) -> impl Iterator<Item = (GrantId, usize)> {
        self.by_grant.iter().filter(|(_, listing)| listing.names.is_some()).map(|(id, of)| (*id, of.of))
    }

    /// What is there, when nothing has changed for long.
    ///
    /// # Errors
    /// When the holder of this grant believes something else.
    pub fn compare(&self, grant: GrantId, found: &BTreeSet<String>) -> Verdict {
        match self.by_grant.get(&grant).and_then(|listing| Some((listing.of, listing.names.as_ref()?))) {
            Some((of, names)) if names != found => {
                let (more, less) = (names.difference(found), found.difference(names));
                let (more, less) = (more.collect::<Vec<_>>(), less.collect::<Vec<_>>());
                Err(format!(
                    "who is told of changes in directory {of} believes in {more:?}, and misses {less:?}"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn who_was_told_of_everything_knows_what_is_there() {
        let mut listings = Listings::default();
        listings.begin(1, 0);
        // Before the directory was read, and perhaps after the moment at which that was done.
        listings.told(1, vec![Told::Added("a".into())]);
        listings.read(1, names(&["b"]));
        listings.told(1, vec![Told::Removed("a".into()), Told::Added("c".into())]);
        assert_eq!(listings.compare(1, &names(&["b", "c"])), Ok(()));
    }

    #[test]
    fn who_was_not_told_is_noticed() {
        let mut listings = Listings::default();
        listings.begin(1, 0);
        listings.read(1, names(&["a"]));
        assert!(listings.compare(1, &names(&["a", "b"])).is_err());
        assert!(listings.compare(1, &names(&[])).is_err());
    }
}
