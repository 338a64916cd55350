//! A table with stable small keys: an index, and a generation that tells a reused place from its former tenant.

use std::collections::VecDeque;

use holdfast_base::limits::STATE_MEMOS_MIN;
use serde::{Deserialize, Serialize};

/// Name of a place in a [`Slab`] and of one tenant of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    pub(crate) const fn from_u64(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place<T, M> {
    /// Of the present tenant, or of the last one when empty.
    generation: u32,
    tenant: Result<T, M>,
}

/// Tenants `T`; a place left empty remembers a memo `M` of its last tenant, and those left long ago are taken first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slab<T, M> {
    places: Vec<Place<T, M>>,
    /// In the order they were left.
    free: VecDeque<u32>,
}

impl<T, M> Slab<T, M> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if self.free.len() > STATE_MEMOS_MIN
            && let Some(index) = self.free.pop_front()
        {
            let place = &mut self.places[index as usize];
            place.generation = place.generation.wrapping_add(1);
            place.tenant = Ok(value);
            return Key { index, generation: place.generation };
        }
        // The named limits keep every table far below 2^32 places.
        let index = self.places.len() as u32;
        self.places.push(Place { generation: 1, tenant: Ok(value) });
        Key { index, generation: 1 }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        if place.generation == key.generation { place.tenant.as_ref().ok() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.tenant.as_mut().ok() } else { None }
    }

    /// What is remembered of the tenant with this key, if it was the last one and has left.
    pub(crate) fn memo(&self, key: Key) -> Option<&M> {
        let place = self.places.get(key.index as usize)?;
        if place.generation == key.generation { place.tenant.as_ref().err() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key, memo: M) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation || place.tenant.is_err() {
            return None;
        }
        self.free.push_back(key.index);
        std::mem::replace(&mut place.tenant, Err(memo)).ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let key = Key { index: index as u32, generation: place.generation };
            place.tenant.as_ref().ok().map(|tenant| (key, tenant))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_place_does_not_answer_to_its_former_key() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first, 7), Some("a"));
        let second = std::iter::repeat_with(|| {
            let key = slab.insert("b");
            slab.remove(key, 8);
            key
        })
        .find(|key| key.index == first.index);
        assert_eq!((slab.get(first), slab.memo(first)), (None, None));
        assert_eq!(slab.memo(second.unwrap()), Some(&8));
        assert_eq!(slab.remove(first, 9), None);
        assert_eq!(slab.len(), 0);
    }

    #[test]
    fn a_place_remembers_its_last_tenant_while_others_come_and_go() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first, 7), Some("a"));
        for _ in 0..STATE_MEMOS_MIN {
            let key = slab.insert("b");
            slab.remove(key, 8);
        }
        assert_eq!(slab.memo(first), Some(&7));
        assert_eq!(slab.places.len(), STATE_MEMOS_MIN + 1, "places are used again all the same");
    }
}
