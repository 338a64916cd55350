//! Every mutation has one effect. Each client changes names in a directory of its own, so it knows what must come of
//! every request; at the end the directory must hold what it was told.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;

/// A mutation of names in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A file is made that must not exist, or a directory.
    Make(String),
    /// A name is removed.
    Remove(String),
    /// A name becomes another that is free.
    Rename(String, String),
}

/// How a request ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well.
    Done,
    /// The name was there already.
    Exists,
    /// There is no such name.
    NoEntry,
    /// There was no room for it: nothing changed.
    NoRoom,
    /// Refused with nothing changed, or perhaps changed: an error of the disk, a client that died waiting.
    Unknown,
}

#[derive(Default)]
struct Directory {
    names: BTreeSet<String>,
    /// Names of which nobody knows whether they are there.
    doubtful: BTreeSet<String>,
    pending: Vec<Deed>,
}

/// All directories of clients.
#[derive(Default)]
pub struct Once {
    directories: BTreeMap<usize, Directory>,
    /// Requests that were under way when power failed: `exactly-once.md` says what is not promised then.
    power_cuts: u64,
}

/// What a client was about when it sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    power_cuts: u64,
}

impl Directory {
    fn doubt(&mut self, deed: &Deed) {
        match deed {
            Deed::Make(name) | Deed::Remove(name) => drop(self.doubtful.insert(name.clone())),
            Deed::Rename(from, to) => self.doubtful.extend([from.clone(), to.clone()]),
        }
    }

    fn done(&mut self, deed: &Deed) {
        match deed {
            Deed::Make(name) => drop(self.names.insert(name.clone())),
            Deed::Remove(name) => drop(self.names.remove(name)),
            Deed::Rename(from, to) => {
                self.names.remove(from);
                self.names.insert(to.clone());
            }
        }
    }
}

impl Once {
    /// Power failed.
    pub const fn power_cut(&mut self) {
        self.power_cuts += 1;
    }

    /// A client begins a mutation.
    pub fn begin(&mut self, client: usize, deed: &Deed) -> Sent {
        self.directories.entry(client).or_default().pending.push(deed.clone());
        Sent { power_cuts: self.power_cuts }
    }

    /// It ended. `is_excused` says that the client lost the session by which the server would have known its retry.
    ///
    /// # Errors
    /// When it ran twice, or was answered as if it had.
    pub fn end(&mut self, client: usize, deed: &Deed, sent: Sent, (end, is_excused): (End, bool)) -> Verdict {
        let power_failed = self.power_cuts != sent.power_cuts;
        let directory = self.directories.entry(client).or_default();
        directory.pending.retain(|other| other != deed);
        let expected = match deed {
            Deed::Make(_) => End::Exists,
            Deed::Remove(_) | Deed::Rename(..) => End::NoEntry,
        };
        match end {
            End::Done => directory.done(deed),
            End::Unknown => directory.doubt(deed),
            // A name that an earlier attempt had made needs no room.
            End::NoRoom => {}
            _ if end == expected && (is_excused || power_failed) => directory.done(deed),
            _ => {
                return Err(format!(
                    "client {client}: {deed:?}, which nobody else could do, ended with {end:?}"
                ));
            }
        }
        Ok(())
    }

    /// The client died: nobody knows what came of what it was about.
    pub fn client_gone(&mut self, client: usize) {
        if let Some(directory) = self.directories.get_mut(&client) {
            for deed in std::mem::take(&mut directory.pending) {
                directory.doubt(&deed);
            }
        }
    }

    /// A name that the client may go on with.
    #[must_use]
    pub fn names(&self, client: usize) -> Vec<String> {
        let Some(directory) = self.directories.get(&client) else { return Vec::new() };
        directory.names.difference(&directory.doubtful).cloned().collect()
    }

    /// What the directory holds in the end.
    ///
    /// # Errors
    /// When that is not what the client was told.
    pub fn found(&self, client: usize, found: &BTreeSet<String>) -> Verdict {
        let Some(directory) = self.directories.get(&client) else { return Ok(()) };
        let mut doubtful = directory.doubtful.clone();
        for deed in &directory.pending {
            match deed {
                Deed::Make(name) | Deed::Remove(name) => drop(doubtful.insert(name.clone())),
                Deed::Rename(from, to) => doubtful.extend([from.clone(), to.clone()]),
            }
        }
        let lost: Vec<_> = directory.names.difference(found).filter(|n| !doubtful.contains(*n)).collect();
        let extra: Vec<_> = found.difference(&directory.names).filter(|n| !doubtful.contains(*n)).collect();
        if lost.is_empty() && extra.is_empty() {
            return Ok(());
        }
        Err(format!("the directory of client {client} lacks {lost:?} and should not hold {extra:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(once: &mut Once, name: &str, end: End, excused: bool) -> Verdict {
        let deed = Deed::Make(name.into());
        let sent = once.begin(1, &deed);
        once.end(1, &deed, sent, (end, excused))
    }

    #[test]
    fn a_retry_that_meets_its_own_work_is_noticed() {
        let mut once = Once::default();
        make(&mut once, "a", End::Done, false).unwrap();
        assert!(make(&mut once, "b", End::Exists, false).is_err());
        make(&mut once, "c", End::Exists, true).unwrap();
    }

    #[test]
    fn what_there_was_no_room_for_is_not_there() {
        let mut once = Once::default();
        make(&mut once, "a", End::NoRoom, false).unwrap();
        assert!(once.found(1, &BTreeSet::new()).is_ok());
        assert!(once.found(1, &BTreeSet::from(["a".to_string()])).is_err());
    }

    #[test]
    fn a_power_cut_excuses_only_what_was_under_way() {
        let mut once = Once::default();
        let deed = Deed::Remove("a".into());
        let sent = once.begin(1, &deed);
        once.power_cut();
        once.end(1, &deed, sent, (End::NoEntry, false)).unwrap();
        let sent = once.begin(1, &deed);
        assert!(once.end(1, &deed, sent, (End::NoEntry, false)).is_err());
    }

    #[test]
    fn the_directory_holds_in_the_end_what_the_client_was_told() {
        let mut once = Once::default();
        make(&mut once, "a", End::Done, false).unwrap();
        make(&mut once, "b", End::Unknown, false).unwrap();
        once.begin(1, &Deed::Rename("a".into(), "c".into()));
        for names in [&["a"][..], &["a", "b"], &["c"]] {
            assert!(once.found(1, &names.iter().map(ToString::to_string).collect()).is_ok());
        }
        once.end(1, &Deed::Rename("a".into(), "c".into()), Sent { power_cuts: 0 }, (End::Done, false))
            .unwrap();
        assert!(once.found(1, &BTreeSet::from(["a".to_string()])).is_err());
    }
}
