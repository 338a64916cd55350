//! What a loss of power may leave: pictures of everything, as it was before each call. Names and attributes come back in the
//! order in which they were changed, as file systems with one log bring them back; data that was not committed need not.

use std::collections::BTreeMap;

use super::MemBackend;
use super::blocks::Blocks;
use super::inode::{Body, Ino, Inode};
use super::state::{Space, State};

/// Everything at one moment.
#[derive(Clone)]
pub struct Picture {
    inodes: BTreeMap<Ino, Inode>,
    space: Space,
    /// Tells it from the one before.
    stamp: (u64, u64),
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Picture").field("objects", &self.inodes.len()).finish_non_exhaustive()
    }
}

impl State {
    /// Takes one, where they are wanted and something has changed.
    pub(super) fn take_picture(&mut self) {
        let Some(pictures) = &mut self.hooks.pictures else { return };
        let stamp = (self.inodes.values().map(|inode| inode.change).sum(), self.inodes.len() as u64);
        if pictures.last().is_none_or(|last| last.stamp != stamp) {
            pictures.push(Picture { inodes: self.inodes.clone(), space: self.space.clone(), stamp });
        }
    }
}

impl MemBackend {
    /// Has a picture taken before each call that is told of a caller, from now on.
    pub fn take_pictures(&self) {
        self.state().hooks.pictures = Some(Vec::new());
    }

    /// Those taken since, and one of now; no more are taken.
    #[must_use]
    pub fn pictures(&self) -> Vec<Picture> {
        let mut state = self.state();
        state.take_picture();
        state.hooks.pictures.take().unwrap_or_default()
    }

    /// All is as on this picture, and nothing is open; but the data that was not committed by then is as on an earlier one.
    pub fn lose_power(&self, then: &Picture, data: &Picture) {
        let mut state = self.state();
        (state.inodes, state.space) = (then.inodes.clone(), then.space.clone());
        for (ino, inode) in &mut state.inodes {
            inode.opens = 0;
            if let (Body::Regular(blocks), true) = (&mut inode.body, inode.is_data_dirty) {
                *blocks = match data.inodes.get(ino).map(|before| &before.body) {
                    Some(Body::Regular(before)) => before.clone(),
                    _ => Blocks::default(),
                };
            }
            (inode.is_dirty, inode.is_data_dirty) = (false, false);
        }
        // What had no name lived by its openers. Numbers are not given again: a handle tells of no other object.
        state.inodes.retain(|_, inode| inode.nlink > 0);
        state.locks.clear();
        state.verifier = state.verifier.wrapping_add(1);
    }
}
