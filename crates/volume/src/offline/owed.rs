//! Changes that the journal has still to be told: it could not be written while the server was away. Told later, together and in
//! one, they leave it as if each had been told in its time.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_cache::Change;

/// Changes to come, of each key the last.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// What begins so goes before anything else comes.
    prefixes: BTreeSet<Vec<u8>>,
    by_key: BTreeMap<Vec<u8>, Change>,
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.by_key.is_empty()
    }

    /// More of them, which came after all that are owed. `has`: whether the journal has anything that a removal would take: what
    /// was made and removed while it could not be written need not be told of.
    pub(super) fn add(&mut self, changes: Vec<Change>, has: impl Fn(&Change) -> bool) {
        for change in changes {
            match &change {
                Change::Put(key, _) => drop(self.by_key.insert(key.clone(), change)),
                Change::Remove(key) => {
                    self.by_key.remove(key);
                    if has(&change) {
                        self.by_key.insert(key.clone(), change);
                    }
                }
                Change::RemoveAll(prefix) => {
                    self.by_key.retain(|key, _| !key.starts_with(prefix));
                    if has(&change) {
                        self.prefixes.insert(prefix.clone());
                    }
                }
            }
        }
    }

    /// All of them, in order.
    pub(super) fn all(&self) -> Vec<Change> {
        let prefixes = self.prefixes.iter().cloned().map(Change::RemoveAll);
        prefixes.chain(self.by_key.values().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn put(key: &str, value: &'static str) -> Change {
        Change::Put(key.into(), Bytes::from_static(value.as_bytes()))
    }

    fn before() -> BTreeMap<Vec<u8>, Bytes> {
        BTreeMap::from([(b"Na".to_vec(), Bytes::new()), (b"Q".to_vec(), Bytes::new())])
    }

    fn has(change: &Change) -> bool {
        before().keys().any(|key| match change {
            Change::Put(other, _) | Change::Remove(other) => key == other,
            Change::RemoveAll(prefix) => key.starts_with(prefix),
        })
    }

    fn applied(changes: &[Change]) -> BTreeMap<Vec<u8>, Bytes> {
        let mut all = before();
        for change in changes {
            match change {
                Change::Put(key, value) => drop(all.insert(key.clone(), value.clone())),
                Change::Remove(key) => drop(all.remove(key)),
                Change::RemoveAll(prefix) => all.retain(|key, _| !key.starts_with(prefix)),
            }
        }
        all
    }

    #[test]
    fn what_is_owed_ends_as_if_each_had_been_told_in_its_time() {
        let told = [
            put("Na", "1"),
            put("Nab", "2"),
            Change::Remove(b"Q".to_vec()),
            Change::RemoveAll(b"N".to_vec()),
            put("Nb", "3"),
            put("Q", "4"),
            put("X", "5"),
            Change::Remove(b"X".to_vec()),
        ];
        for split in 0..=told.len() {
            let mut owed = Owed::default();
            assert!(owed.is_empty());
            owed.add(told[..split].to_vec(), has);
            owed.add(told[split..].to_vec(), has);
            assert_eq!(applied(&owed.all()), applied(&told));
            assert!(!owed.is_empty());
        }
    }

    #[test]
    fn what_comes_and_goes_while_nothing_can_be_told_leaves_nothing_to_be_told() {
        let mut owed = Owed::default();
        for number in 0..100 {
            let key = format!("B{number}").into_bytes();
            owed.add(vec![Change::Put(key.clone(), Bytes::new())], has);
            owed.add(vec![Change::Remove(key), Change::RemoveAll(format!("D{number}").into_bytes())], has);
        }
        assert!(owed.is_empty(), "{owed:?}");
        owed.add(vec![Change::Remove(b"Q".to_vec()), Change::RemoveAll(b"N".to_vec())], has);
        assert_eq!(owed.all().len(), 2, "but for what is there");
    }
}
