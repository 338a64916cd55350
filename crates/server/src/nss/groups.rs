//! Groups of users.

use std::io;
use std::sync::Arc;

use holdfast_export::{GroupSource, Groups};

use super::{Directory, Known, sys};

/// A [`GroupSource`] over the name service switch.
pub(crate) struct NssGroups(Directory<u32, Arc<[u32]>>);

impl NssGroups {
    /// Starts the thread that asks.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn start() -> io::Result<Self> {
        Directory::start("groups", |uid| sys::groups_of(*uid)).map(Self)
    }
}

impl GroupSource for NssGroups {
    fn groups_of(&self, uid: u32) -> Groups {
        match self.0.look(&uid) {
            Known::Answer(Some(groups)) => Groups::Known(groups),
            Known::Answer(None) => Groups::NoSuchUser,
            Known::NotYet => Groups::NotYet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::wait;
    use super::*;

    #[test]
    fn root_is_in_group_0_and_an_unknown_user_in_none() {
        let source = NssGroups::start().unwrap();
        assert!(wait(|| source.0.look(&0)).unwrap().contains(&0));
        assert_eq!(wait(|| source.0.look(&4_000_000_123)), None);
        assert_eq!(source.groups_of(4_000_000_123), Groups::NoSuchUser);
    }
}
