//! Changes of a directory's entries, for those who are told of them instead of being asked to give back what they rely
//! on (CB_NOTIFY, RFC 8881 section 20.4).

use std::sync::atomic::Ordering;

use holdfast_base::FileKey;
use holdfast_vfs::{Attrs, Name, Node};

use crate::manager::Manager;

/// A change of a directory's entries that has been made.
#[derive(Clone, Copy, Debug)]
pub struct EntryChange<'a> {
    /// The directory.
    pub dir: FileKey,
    /// Its attributes now, with `STAT` and `CHANGE`.
    pub attrs: &'a Attrs,
    /// What changed.
    pub what: Entry<'a>,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// There is one more, or another one under this name.
    Added {
        /// Its name.
        name: Name<'a>,
        /// What it is, with `STAT` and `CHANGE`; `None` when it is gone already.
        node: Option<&'a Node>,
        /// It took another's place.
        replaces: bool,
    },
    /// There is one less.
    Removed {
        /// Its name.
        name: Name<'a>,
    },
    /// One has another name, in the same directory.
    Renamed {
        /// Its former name.
        from: Name<'a>,
        /// Its name.
        to: Name<'a>,
        /// As in `Added`.
        node: Option<&'a Node>,
        /// It took another's place.
        replaces: bool,
    },
}

impl Manager {
    /// Whether anybody is to be told of changed entries.
    pub(crate) fn tells_entries(&self) -> bool {
        self.told.load(Ordering::SeqCst) > 0
    }

    /// Tells of a change, before the next one in this directory is made.
    pub(crate) fn tell_entries(&self, change: &EntryChange<'_>) {
        for agent in self.agents() {
            agent.entries_changed(change);
        }
    }
}
