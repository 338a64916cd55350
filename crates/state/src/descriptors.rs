//! The descriptors behind an open: at most one for reading, one for writing and one for both. Each OPEN brings one for
//! exactly what it asked for, so none has ever to be widened, which the file's mode may not permit.

use serde::{Deserialize, Serialize};

use crate::names::OpenId;
use crate::share::Access;

/// The descriptors of one open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptors {
    reading: Option<OpenId>,
    writing: Option<OpenId>,
    both: Option<OpenId>,
}

impl Descriptors {
    /// One that can do this; for nothing in particular, any.
    pub(crate) fn serving(&self, access: Access) -> Option<OpenId> {
        match access {
            Access::READ => self.reading.or(self.both),
            Access::WRITE => self.writing.or(self.both),
            Access::NONE => self.each().next(),
            _ => self.both,
        }
    }

    /// What they can do together.
    pub(crate) fn access(&self) -> Access {
        let can = |id: Option<OpenId>, access| if id.is_some() { access } else { Access::NONE };
        can(self.reading, Access::READ) | can(self.writing, Access::WRITE) | can(self.both, Access::BOTH)
    }

    /// Adds one, unless what it can do is had already. Returns those that are not needed any more, it perhaps.
    pub(crate) fn add(&mut self, id: OpenId, access: Access) -> Vec<OpenId> {
        match self.serving(access) {
            Some(known) if known == id => return Vec::new(),
            Some(_) => return vec![id],
            None => {}
        }
        match access {
            Access::READ => self.reading = Some(id),
            Access::WRITE => self.writing = Some(id),
            _ => {
                self.both = Some(id);
                return self.reading.take().into_iter().chain(self.writing.take()).collect();
            }
        }
        Vec::new()
    }

    /// All of them.
    pub(crate) fn each(self) -> impl Iterator<Item = OpenId> {
        [self.reading, self.writing, self.both].into_iter().flatten()
    }
}
