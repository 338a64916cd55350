//! The one shape of change: conditions, then changes, as one.

use holdfast_base::limits::{STORE_BATCH_CHANGES_MAX, STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX};

use crate::{Result, StoreError};

/// Keys of fences: the leading NUL keeps them out of every prefix a caller has.
const FENCE_PREFIX: &[u8] = b"\0fence/";

/// What must hold for a batch to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key is not there.
    Absent(Vec<u8>),
    /// The key has exactly this value.
    Value(Vec<u8>, Vec<u8>),
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Set a key to a value.
    Put(Vec<u8>, Vec<u8>),
    /// Delete a key; one that is not there is no error.
    Delete(Vec<u8>),
}

impl Change {
    /// The key changed.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// An office held: see [`crate::Store::fence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    key: Vec<u8>,
    turn: u64,
}

impl Fence {
    /// The fence of `name` at its `turn`-th holder, for implementations of [`crate::Store`].
    ///
    /// # Errors
    /// [`StoreError::Bounds`] when the name is empty or too long.
    pub fn of(name: &[u8], turn: u64) -> Result<Self> {
        let key = [FENCE_PREFIX, name].concat();
        if name.is_empty() || key.len() > STORE_KEY_BYTES_MAX {
            return Err(StoreError::Bounds("the fence's name"));
        }
        Ok(Self { key, turn })
    }

    /// Where the current turn is stored, as 8 bytes, the highest first.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// How often the office was taken, this time included.
    #[must_use]
    pub const fn turn(&self) -> u64 {
        self.turn
    }

    /// The turn that a stored value says; 0 when nobody ever held the office.
    #[must_use]
    pub fn stored_turn(value: Option<&[u8]>) -> u64 {
        value.and_then(|v| v.try_into().ok()).map_or(0, u64::from_be_bytes)
    }
}

/// Conditions and changes that are applied as one. Changes apply in the order given; the last of one key wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    fence: Option<Fence>,
    conditions: Vec<Condition>,
    changes: Vec<Change>,
}

impl Batch {
    /// A batch that changes nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { fence: None, conditions: Vec::new(), changes: Vec::new() }
    }

    /// Applies only while `fence` holds.
    #[must_use]
    pub fn under(mut self, fence: &Fence) -> Self {
        self.fence = Some(fence.clone());
        self
    }

    /// Applies only when `key` is not there.
    #[must_use]
    pub fn when_absent(mut self, key: &[u8]) -> Self {
        self.conditions.push(Condition::Absent(key.to_vec()));
        self
    }

    /// Applies only when `key` has exactly this value.
    #[must_use]
    pub fn when_value(mut self, key: &[u8], value: &[u8]) -> Self {
        self.conditions.push(Condition::Value(key.to_vec(), value.to_vec()));
        self
    }

    /// Applies only when `key` stands as it was read.
    #[must_use]
    pub fn when_still(self, key: &[u8], read: Option<&[u8]>) -> Self {
        match read {
            Some(value) => self.when_value(key, value),
            None => self.when_absent(key),
        }
    }

    /// Sets a key.
    #[must_use]
    pub fn put(mut self, key: &[u8], value: &[u8]) -> Self {
        self.changes.push(Change::Put(key.to_vec(), value.to_vec()));
        self
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(mut self, key: &[u8]) -> Self {
        self.changes.push(Change::Delete(key.to_vec()));
        self
    }

    /// The fence it is under.
    #[must_use]
    pub const fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// The conditions.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The changes.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// [`StoreError::Bounds`].
    pub fn check_bounds(&self) -> Result<()> {
        if self.changes.len() > STORE_BATCH_CHANGES_MAX {
            return Err(StoreError::Bounds("the batch"));
        }
        for change in &self.changes {
            if !(1..=STORE_KEY_BYTES_MAX).contains(&change.key().len()) {
                return Err(StoreError::Bounds("the key"));
            }
            if let Change::Put(_, value) = change
                && value.len() > STORE_VALUE_BYTES_MAX
            {
                return Err(StoreError::Bounds("the value"));
            }
        }
        Ok(())
    }

    /// Checks fence and conditions against what is stored.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Conflict`], and those of `read`.
    pub fn check_conditions(&self, mut read: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>>) -> Result<()> {
        if let Some(fence) = &self.fence
            && Fence::stored_turn(read(&fence.key)?.as_deref()) != fence.turn
        {
            return Err(StoreError::Fenced);
        }
        for condition in &self.conditions {
            let holds = match condition {
                Condition::Absent(key) => read(key)?.is_none(),
                Condition::Value(key, value) => read(key)?.as_ref() == Some(value),
            };
            if !holds {
                return Err(StoreError::Conflict);
            }
        }
        Ok(())
    }
}
