//! What a disk fails at besides commits: single reads and changes, and whatever needs room while there is none.

use holdfast_vfs::{FsError, FsResult};

use super::Disk;

/// What fails once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read of data.
    Read,
    /// A write of data; it was done all the same, or not.
    Write {
        /// Whether what it was to write can be read.
        is_done: bool,
    },
    /// A change of names, which then stay as they were.
    Names,
}

/// What is to fail, and what has failed.
#[derive(Debug, Default)]
pub(super) struct Faults {
    due: Vec<Fault>,
    is_full: bool,
    met: u64,
}

impl Faults {
    fn take(&mut self, is_meant: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let place = self.due.iter().position(is_meant)?;
        self.met += 1;
        Some(self.due.remove(place))
    }
}

impl Disk {
    /// The next operation of that kind fails.
    pub fn fail_next(&self, fault: Fault) {
        self.state().faults.due.push(fault);
    }

    /// Whether any room is left, from now on.
    pub fn set_full(&self, is_full: bool) {
        self.state().faults.is_full = is_full;
    }

    /// How many operations have failed, but for commits.
    #[must_use]
    pub fn faults_met(&self) -> u64 {
        self.state().faults.met
    }

    pub(super) fn reads(&self) -> FsResult<()> {
        let fault = self.state().faults.take(|fault| *fault == Fault::Read);
        fault.map_or(Ok(()), |_| Err(FsError::Io))
    }

    /// A write of data is to be done. What it ends with is the file system's word, or where a fault is given, an error.
    pub(super) fn writes(&self) -> FsResult<Option<FsError>> {
        self.takes_room()?;
        match self.state().faults.take(|fault| matches!(fault, Fault::Write { .. })) {
            Some(Fault::Write { is_done: true }) => Ok(Some(FsError::Io)),
            Some(_) => Err(FsError::Io),
            None => Ok(None),
        }
    }

    pub(super) fn changes_names(&self) -> FsResult<()> {
        let fault = self.state().faults.take(|fault| *fault == Fault::Names);
        fault.map_or(Ok(()), |_| Err(FsError::Io))
    }

    pub(super) fn takes_room(&self) -> FsResult<()> {
        let faults = &mut self.state().faults;
        if faults.is_full {
            faults.met += 1;
            return Err(FsError::NoSpace);
        }
        Ok(())
    }
}
