//! What happens when somebody is about to do what others rely on that it is not done.

use std::time::Duration;

use holdfast_base::limits::{RECALL_ROUNDS_MAX, RECALL_WAIT_MS};
use holdfast_base::{ClientId, FileKey};
use holdfast_state::{Access, Contention, Deed, Engine, IoBy, StateError};
use holdfast_vfs::{Cx, FsError, FsResult, Handle, Wait};

use crate::index::Conflict;
use crate::manager::Manager;

impl Manager {
    /// Has recalled what is promised to others against this deed, and waits for it: briefly, counted from when the
    /// recall began, and only where a thread can be spared.
    ///
    /// # Errors
    /// [`FsError::WouldBlock`] where waiting for clients is not allowed: the recall goes on meanwhile. [`FsError::Delay`] when it
    /// has not come back in time.
    pub fn contend(&self, file: FileKey, deed: Deed, by: Option<ClientId>, wait: Wait) -> FsResult<()> {
        let changer = by.filter(|_| matches!(deed, Deed::WriteData | Deed::Truncate));
        let mut waiting = None;
        loop {
            let seen = self.recalls.count();
            // Recalls touch no client's record.
            let asked = self.step(|engine, now| (engine.contend(file, deed, by, now), now));
            let Ok((contention, now)) = asked else { return Err(FsError::Delay) };
            let Contention::Recalling { since } = contention else { return Ok(()) };
            if wait != Wait::Yes {
                return Err(FsError::WouldBlock);
            }
            if let Some(client) = changer {
                if waiting.is_none() {
                    waiting = Some(self.changers.enter(client, file));
                    // Who waits for this client need not any more.
                    self.recalls.end();
                    continue;
                }
                let others = self.changers.others(client);
                let step = |engine: &mut Engine, now| engine.caps_yield(file, deed, (client, &others), now);
                if !others.is_empty() && self.step(step).unwrap_or(false) {
                    continue;
                }
            }
            let left = RECALL_WAIT_MS.saturating_sub(now.ms_since(since));
            if left == 0 || !self.recalls.wait(seen, left) {
                return Err(FsError::Delay);
            }
        }
    }

    /// The same of an object, and cheap where nothing is promised of it: for deeds that no method of its backend shows,
    /// as an OPEN that denies something to others.
    ///
    /// # Errors
    /// As [`Manager::contend`].
    pub fn contend_if_promised(&self, object: &Handle, deed: Deed, cx: &Cx<'_>) -> FsResult<()> {
        if !self.has_promises() {
            return Ok(());
        }
        let key = object.key();
        self.without_conflict((cx.client, cx.wait), || Ok(self.index.look(key, deed, cx.client)?))
    }

    /// Does something that may meet promises, and has them recalled where it does, until it meets none. `attempt`
    /// must have done nothing, and must hold nothing any more, when it returns a conflict.
    ///
    /// # Errors
    /// Those of [`Manager::contend`] and of the attempt.
    pub(crate) fn without_conflict<R>(
        &self,
        (by, wait): (Option<ClientId>, Wait),
        mut attempt: impl FnMut() -> Result<R, Met>,
    ) -> FsResult<R> {
        for round in 0..RECALL_ROUNDS_MAX {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Met::Failure(error)) => return Err(error),
                Err(Met::Promise(conflict)) => self.settle(conflict, (by, wait), round)?,
            }
        }
        Err(FsError::Delay)
    }

    #[cold]
    fn settle(
        &self,
        Conflict { file, deed }: Conflict,
        (by, wait): (Option<ClientId>, Wait),
        round: usize,
    ) -> FsResult<()> {
        self.contend(file, deed, by, wait)?;
        // Clear, and yet in the index: whoever ended the promise is about to take it out.
        if round > 0 {
            match wait {
                Wait::No | Wait::Journal => return Err(FsError::WouldBlock),
                Wait::Disk => std::thread::sleep(Duration::from_micros(100)),
                Wait::Yes => drop(self.recalls.wait(self.recalls.count(), 1)),
            }
        }
        Ok(())
    }

    /// Whether NFSv3, whose clients have no opens, may read or write a file that others may have opened denying it.
    ///
    /// # Errors
    /// [`FsError::Delay`]: a client of NFSv3 knows no word for it and waits, as the deny will end (Linux answers
    /// alike).
    pub fn check_stateless(&self, file: &Handle, access: Access) -> FsResult<()> {
        if !self.has_denials() {
            return Ok(());
        }
        let file = file.key();
        let Ok(judged) = self.step(|engine, now| engine.check_io(file, access, IoBy::Nfs3, now)) else {
            return Err(FsError::Delay);
        };
        match judged {
            Ok(_) => Ok(()),
            Err(StateError::Locked) => Err(FsError::Delay),
            Err(_) => Err(FsError::Io),
        }
    }
}

/// What an attempt met.
#[derive(Debug)]
pub(crate) enum Met {
    /// Something promised to somebody else.
    Promise(Conflict),
    /// Any other end.
    Failure(FsError),
}

impl From<Conflict> for Met {
    fn from(conflict: Conflict) -> Self {
        Self::Promise(conflict)
    }
}

impl From<FsError> for Met {
    fn from(error: FsError) -> Self {
        Self::Failure(error)
    }
}
