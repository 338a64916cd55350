//! The server is back: what is relied upon here is compared with what it has, and then what was queued goes out.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use holdfast_base::limits::CAPS_ITEMS_MAX;
use holdfast_cache::{
    Answer, Ask, Attrs, CapSet, Errno, Generation, Handle, Name, Question, Reclaimed, resolved,
};

use super::Standing;
use super::keeping::own_caller;
use crate::volume::Shared;

impl Shared {
    /// Asks for everything that was held, with its attributes; the machine then keeps what is as it was, decides what
    /// becomes of what was changed on both sides, and goes on.
    pub(crate) fn merge(&self) {
        let Some(offline) = &self.offline else { return };
        if !offline.begin_merging() {
            return;
        }
        if offline.must_sift() {
            tracing::warn!("the server does not know what it has executed: looking for it");
            if let Err(errno) = self.sift() {
                tracing::warn!(%errno, "the server went away again while it was being looked through");
                return self.went_away();
            }
            offline.sifted();
        }
        let given_back = std::mem::take(&mut *offline.given_back.lock());
        let claims = self.machine.lock().claims();
        let known = given_back.iter().filter(|r| r.result.is_ok());
        let known: HashSet<Handle> = known.map(|r| r.handle.clone()).collect();
        let missing = claims.into_iter().filter(|claim| !known.contains(&claim.handle));
        let missing: Vec<_> = missing.map(|claim| (claim.handle, claim.caps)).collect();
        tracing::info!(objects = missing.len(), "the server is back: comparing");
        let mut told: Vec<_> = given_back.into_iter().filter(|r| r.result.is_ok()).collect();
        for some in missing.chunks(CAPS_ITEMS_MAX) {
            match self.compare(some) {
                Ok(more) => told.extend(more),
                Err(errno) => {
                    tracing::warn!(%errno, "the server went away again while it was being compared");
                    return self.went_away();
                }
            }
        }
        let now = self.now();
        let mut machine = self.machine.lock();
        let conflicts = machine.merge(&told, now);
        machine.reclaimed(told, now);
        machine.hold(false);
        offline.must_merge.store(false, Ordering::SeqCst);
        offline.stand(Standing::Online);
        self.look_for_work(machine);
        tracing::info!(conflicts, "going on with the server");
    }

    /// What was sent and not answered, before the server forgot it, is done where it is there.
    fn sift(&self) -> Result<(), Errno> {
        let doubts = self.machine.lock().doubts();
        let found = resolved(&doubts, |dir, name| self.look(dir, name))?;
        let mut machine = self.machine.lock();
        machine.settle_doubts(&found, self.now());
        self.look_for_work(machine);
        // Another life must not look for it again: what is sent from now on would be found by it.
        self.keep()
    }

    fn look(&self, dir: &Handle, name: &Name) -> Result<Option<(Handle, Attrs)>, Errno> {
        let (want, want_dir) = (CapSet::NONE, CapSet::NONE);
        let question = match name.as_bytes() {
            b"" => Question::GetAttr { object: dir.clone(), open: None, want },
            _ => Question::Lookup { dir: dir.clone(), name: name.clone(), want, want_dir },
        };
        let ask = Ask { at: Generation::default(), caller: own_caller(), question };
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
