//! The server is back: what is relied upon here is compared with what it has, and then what was queued goes out.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use holdfast_base::limits::CAPS_ITEMS_MAX;
use holdfast_cache::{
    Answer, Ask, Attrs, CapSet, Doubt, Errno, FoundBlock, Generation, Handle, Question, Reclaimed, resolved,
};

use super::keeping::own_caller;
use super::{AWAY, KEEP_EVERY, Offline, Round, Standing, Verdict};
use crate::server::Undone;
use crate::volume::Shared;

impl Shared {
    /// Asks for everything that was held, with its attributes; the machine then keeps what is as it was, decides what
    /// becomes of what was changed on both sides, and goes on. Where the server's promises end before all of it was asked
    /// for, so that some of what it said is void, it is all asked for again.
    pub(crate) fn merge(&self) {
        let Some(offline) = &self.offline else { return };
        let Some(comparing) = offline.begin_merging(&self.machine.lock()) else { return };
        // In the middle of a greeting it is waited for: that says what has become of what was sent.
        let next = || self.progressed.wait(&self.given_up, None, || offline.promised.lock().round(comparing));
        while let Some((round, given_back)) = next() {
            if !self.all_is_kept(offline, round) {
                return;
            }
            match self.merge_by(offline, round, given_back) {
                Ok(Verdict::Void) => {
                    tracing::info!("what the server has promised meanwhile is void: comparing again");
                }
                Ok(Verdict::Holds | Verdict::Over) => return,
                Err(errno) => {
                    if offline.verdict(round, &self.machine.lock()) != Verdict::Over {
                        tracing::warn!(%errno, "the server went away again while it was being compared");
                        self.went_away();
                    }
                    return;
                }
            }
        }
    }

    /// Waits until this host's disk has all that was done without the server. Whether the comparing is to go on.
    fn all_is_kept(&self, offline: &Offline, round: Round) -> bool {
        let mut is_told = false;
        while self.keep().is_err() && !offline.is_broken.load(Ordering::SeqCst) {
            if offline.verdict(round, &self.machine.lock()) == Verdict::Over {
                return false;
            }
            if !std::mem::replace(&mut is_told, true) {
                tracing::warn!(
                    "the server is back: nothing is sent before what was done without it is kept here"
                );
            }
            if self.given_up.sleep_until(Instant::now() + KEEP_EVERY).is_err() {
                return false;
            }
        }
        true
    }

    /// Compares by what is promised now, and takes that in if it still is in the end.
    fn merge_by(
        &self,
        offline: &Offline,
        round: Round,
        given_back: Vec<Reclaimed>,
    ) -> Result<Verdict, Errno> {
        if offline.must_sift() {
            tracing::warn!("the server does not know what it has executed: looking for it");
            let verdict = self.sift(offline, round)?;
            if verdict != Verdict::Holds {
                return Ok(verdict);
            }
        }
        let verdict = self.commit_all(offline, round)?;
        if verdict != Verdict::Holds {
            return Ok(verdict);
        }
        let claims = self.machine.lock().claims();
        let known = given_back.iter().filter(|r| r.result.is_ok());
        let known: HashSet<Handle> = known.map(|r| r.handle.clone()).collect();
        let missing = claims.into_iter().filter(|claim| !known.contains(&claim.handle));
        let missing: Vec<_> = missing.map(|claim| (claim.handle, claim.caps)).collect();
        tracing::info!(objects = missing.len(), "the server is back: comparing");
        let mut told: Vec<_> = given_back.into_iter().filter(|r| r.result.is_ok()).collect();
        for some in missing.chunks(CAPS_ITEMS_MAX) {
            told.extend(self.compare(some)?);
        }
        let found = self.blocks_below(&told);
        let now = self.now();
        // Once something is sent, a journal that cannot be written is removed: not while it is all that has what was fsynced.
        let owed = offline.turn.lock();
        if !owed.is_empty() {
            return Ok(Verdict::Void);
        }
        let mut machine = self.machine.lock();
        let verdict = offline.verdict(round, &machine);
        if verdict == Verdict::Holds {
            let conflicts = machine.merge(&told, found, now);
            machine.reclaimed(told, now);
            machine.pledge();
            machine.hold(false);
            offline.must_merge.store(false, Ordering::SeqCst);
            offline.stand(Standing::Online);
            tracing::info!(conflicts, "going on with the server");
        }
        self.look_for_work(machine);
        Ok(verdict)
    }

    /// What was kept on this host's disk of files that were changed on both sides: read before the machine is locked. What
    /// cannot be read is lost to them, and told.
    fn blocks_below(&self, told: &[Reclaimed]) -> Vec<FoundBlock> {
        let wanted = self.machine.lock().blocks_below(told);
        let mut found = Vec::with_capacity(wanted.len());
        for (node, at) in wanted {
            match self.ask_disk(&[at]) {
                Ok(Answer::Blocks { found: blocks }) => {
                    found.extend(blocks.into_iter().flatten().map(|data| FoundBlock { node, at, data }));
                }
                _ => break,
            }
        }
        found
    }

    /// What was sent and not answered, before the server forgot it, is done where it is there.
    fn sift(&self, offline: &Offline, round: Round) -> Result<Verdict, Errno> {
        let doubts = self.machine.lock().doubts();
        let found = resolved(&doubts, |dir, doubt| self.look(dir, doubt))?;
        let mut machine = self.machine.lock();
        let verdict = offline.verdict(round, &machine);
        if verdict != Verdict::Holds {
            return Ok(verdict);
        }
        machine.settle_doubts(&doubts, &found, self.now());
        self.look_for_work(machine);
        // Another life must not look for it again: what is sent from now on would be found by it.
        self.keep()?;
        let machine = self.machine.lock();
        let verdict = offline.verdict(round, &machine);
        if verdict == Verdict::Holds {
            // Before it may be said once more that the server has forgotten.
            offline.sifted();
        }
        Ok(verdict)
    }

    /// What the server took is on its disk, or is lost, and ours to be kept.
    fn commit_all(&self, offline: &Offline, round: Round) -> Result<Verdict, Errno> {
        let (at, commits) = self.machine.lock().uncommitted();
        let mut told = Vec::with_capacity(commits.len());
        for commit in commits {
            match self.server.commit(&commit, &self.given_up) {
                Ok(verifier) => told.push((commit.object, Ok(verifier))),
                Err(Undone::Failed(errno)) => told.push((commit.object, Err(errno))),
                Err(Undone::Lost) => return Err(AWAY),
            }
        }
        let mut machine = self.machine.lock();
        let verdict = offline.verdict(round, &machine);
        if verdict == Verdict::Holds {
            machine.committed_there(&told, at, self.now());
        }
        self.look_for_work(machine);
        Ok(verdict)
    }

    fn look(&self, dir: &Handle, doubt: &Doubt) -> Result<Option<(Handle, Attrs)>, Errno> {
        let (want, want_dir) = (CapSet::NONE, CapSet::NONE);
        let question = match doubt.name.as_bytes() {
            b"" => Question::GetAttr { object: dir.clone(), open: None, want },
            _ => Question::Lookup { dir: dir.clone(), name: doubt.name.clone(), want, want_dir },
        };
        // The mount's own user may not see what those who have changed it do.
        let ask = Ask { at: Generation::default(), caller: doubt.caller.clone(), question };
        match self.server.perform(&ask, &self.given_up) {
            Ok(Answer::Attrs { attrs, .. }) => Ok(Some((dir.clone(), attrs))),
            Ok(Answer::Looked { found, .. }) => Ok(found.map(|object| (object.handle, object.attrs))),
            // The directory is gone, or is not for us to look into.
            Err(Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => Ok(None),
            Err(errno) => Err(errno),
            Ok(_) => Err(Errno::EIO),
        }
    }

    fn compare(&self, items: &[(Handle, CapSet)]) -> Result<Vec<Reclaimed>, Errno> {
        let question = Question::Acquire { items: items.to_vec() };
        let ask = Ask { at: Generation::default(), caller: own_caller(), question };
        match self.server.perform(&ask, &self.given_up)? {
            Answer::Acquired { items: got } => {
                let pairs = items.iter().zip(got);
                Ok(pairs.map(|((handle, _), result)| Reclaimed { handle: handle.clone(), result }).collect())
            }
            _ => Err(Errno::EIO),
        }
    }
}

#[cfg(test)]
mod tests;
