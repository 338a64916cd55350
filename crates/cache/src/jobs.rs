//! What the machine has to send, as a list. Who drives it sends each with whatever he has for threads, and tells what came of it.

use crate::ask::Access;
use crate::ids::{Caller, Fh, Handle, Name, Now, OpenToken};
use crate::machine::Machine;
use crate::{Batch, CommitOut, PoolOut, Release, WriteOut};

/// One thing to do.
#[derive(Debug)]
pub enum Job {
    /// Promises to give back; then [`Machine::released`].
    Releases(Vec<Release>),
    /// An open that the server is to know of; then [`Machine::opened`].
    Open(Fh, Handle, Access, Caller),
    /// A transaction; then [`Machine::batch_answered`].
    Batch(Batch),
    /// Data of a file; then [`Machine::write_done`].
    Write(WriteOut),
    /// A file's data to be put on disk; then [`Machine::commit_done`].
    Commit(CommitOut),
    /// Everything up to this transaction to be put on disk.
    Stable(u64),
    /// Opens to be closed, of which nothing comes.
    Closes(Vec<(OpenToken, Caller)>),
    /// Names of files that were hidden while they were open, to be removed; nothing comes of it.
    Removals(Vec<(Handle, Name, Caller)>),
    /// Files to be made beforehand; then [`Machine::pool_done`].
    Pool(PoolOut),
}

impl Machine {
    /// All there is to do now, the most urgent first: others wait for releases, and releases for opens; batches come before
    /// data, as data may need what a batch makes.
    pub fn take_jobs(&mut self, now: Now) -> Vec<Job> {
        let mut jobs = Vec::new();
        let releases = self.take_releases(now);
        if !releases.is_empty() {
            jobs.push(Job::Releases(releases));
        }
        let opens = self.take_opens().into_iter();
        jobs.extend(opens.map(|(fh, handle, access, caller)| Job::Open(fh, handle, access, caller)));
        jobs.extend(std::iter::from_fn(|| self.take_batch(now)).map(Job::Batch));
        jobs.extend(std::iter::from_fn(|| self.take_write(now)).map(Job::Write));
        jobs.extend(std::iter::from_fn(|| self.take_commit(now)).map(Job::Commit));
        jobs.extend(self.take_stable(now).map(Job::Stable));
        let closes = self.take_closes();
        if !closes.is_empty() {
            jobs.push(Job::Closes(closes));
        }
        let removals = self.take_removals();
        if !removals.is_empty() {
            jobs.push(Job::Removals(removals));
        }
        // Nobody waits for these.
        jobs.extend(std::iter::from_fn(|| self.take_pool(now)).map(Job::Pool));
        jobs
    }
}
