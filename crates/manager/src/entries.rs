//! Changes of a directory's entries, for those who are told of them instead of being asked to give back what they rely
//! on (CB_NOTIFY, RFC 8881 section 20.4).

use std::sync::atomic::Ordering;

use holdfast_base::{ClientId, FileKey};
use holdfast_state::EntryKinds;
use holdfast_vfs::{Attrs, Name, Node, RenameFlags};

use crate::manager::Manager;

/// A change of a directory's entries that has been made.
#[derive(Clone, Copy, Debug)]
pub struct EntryChange<'a> {
    /// The directory.
    pub dir: FileKey,
    /// The client that made it; `None` for who has no client id, who is none of those that are told.
    pub by: Option<ClientId>,
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

/// What a rename is to the directory that it takes a name from, and to that where it puts it, as each is told.
#[must_use]
pub fn kinds_of_rename([from, to]: [FileKey; 2], flags: RenameFlags) -> [EntryKinds; 2] {
    match flags {
        RenameFlags::Exchange => [EntryKinds::ADD; 2],
        RenameFlags::Replace | RenameFlags::NoReplace if from == to => [EntryKinds::RENAME; 2],
        RenameFlags::Replace | RenameFlags::NoReplace => [EntryKinds::REMOVE, EntryKinds::ADD],
    }
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
