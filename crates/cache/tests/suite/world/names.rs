//! Names promised by themselves: a table of their own, by directory, name and client.

use holdfast_cache::*;

use super::server::{Blocked, Recall, Server};

#[derive(Clone, Debug, Default)]
pub struct Named {
    pub seq: u64,
    pub is_recalled: bool,
}

/// What stands for a name; handles of objects have eight bytes.
fn token(dir: u64, name: &[u8]) -> Handle {
    Handle::new(&[&b"n"[..], &dir.to_be_bytes(), name].concat())
}

impl Server {
    fn others_named(&self, c: usize, dir: u64) -> impl Iterator<Item = &(u64, Vec<u8>, usize)> {
        self.names.keys().filter(move |(of, _, by)| *of == dir && *by != c)
    }

    /// Whether anybody else is promised a name of a directory.
    pub(super) fn has_names(&self, c: usize, dir: u64) -> bool {
        self.others_named(c, dir).next().is_some()
    }

    /// Promises a name, where nobody else may change it unseen.
    pub(super) fn promise(&mut self, c: usize, dir: u64, name: &[u8]) -> Option<Promise> {
        let may_change =
            |((_, by), held): (&(u64, usize), &super::server::Held)| *by != c && held.caps & 128 != 0;
        if !self.has_caps || self.held.range((dir, 0)..=(dir, usize::MAX)).any(may_change) {
            return None;
        }
        let named = self.names.entry((dir, name.to_vec(), c)).or_default();
        if named.is_recalled {
            return None;
        }
        if named.seq == 0 {
            self.last_seq += 1;
            named.seq = self.last_seq;
        }
        Some(Promise { token: token(dir, name), seq: named.seq })
    }

    fn take_names(&mut self, keys: Vec<(u64, Vec<u8>, usize)>) -> Result<(), Blocked> {
        let is_free = keys.is_empty();
        for key in keys {
            let named = self.names.get_mut(&key).unwrap();
            if !std::mem::replace(&mut named.is_recalled, true) {
                self.last_seq += 1;
                named.seq = self.last_seq;
                self.recalled += 1;
                let recall = Recall { handle: token(key.0, &key.1), keep: CapSet::NONE, seq: named.seq };
                self.recalls.push((key.2, recall));
            }
        }
        if is_free { Ok(()) } else { Err(Blocked) }
    }

    /// Recalls what others are promised of one name.
    pub(super) fn clear_name(&mut self, c: usize, dir: u64, name: &[u8]) -> Result<(), Blocked> {
        let keys = self.others_named(c, dir).filter(|(_, of, _)| of == name).cloned().collect();
        self.take_names(keys)
    }

    /// The same of all names of a directory.
    pub(super) fn clear_names(&mut self, c: usize, dir: u64) -> Result<(), Blocked> {
        let keys = self.others_named(c, dir).cloned().collect();
        self.take_names(keys)
    }

    /// `None` where it is no name that is released.
    pub(super) fn release_name(&mut self, c: usize, release: &Release) -> Option<bool> {
        let (dir, name) = release.handle.as_bytes().strip_prefix(b"n")?.split_first_chunk()?;
        if release.handle.as_bytes().len() == 8 {
            return None;
        }
        let key = (u64::from_be_bytes(*dir), name.to_vec(), c);
        if self.names.get(&key).is_some_and(|named| named.seq > release.seq) {
            return Some(false);
        }
        self.names.remove(&key);
        Some(true)
    }
}
