//! Attributes of files whose holder may know better: whoever has a write delegation is asked for what it has not
//! written back yet (RFC 8881 section 10.4.3).

use std::sync::Weak;

use holdfast_base::limits::{HELD_ATTRIBUTES_FRESH_MS, HELD_PUT_OFF_MS, RECALL_WAIT_MS, SILENT_HOLDER_MS};
use holdfast_base::{ChangeId, ClientId, FileKey, Instant, Timestamp};
use holdfast_state::{Deed, DelegationToken, Seen, WriteHolder};
use holdfast_vfs::{FsError, FsResult, Wait};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::manager::Manager;

/// What the holder of a write delegation says of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAttributes {
    /// Another than it was granted with when it has changed the file.
    pub change: ChangeId,
    /// Bytes of data, with what it has not written back.
    pub size: u64,
    /// Last change of data, where times are delegated (RFC 9754 section 5).
    pub mtime: Option<Timestamp>,
    /// Last read, likewise.
    pub atime: Option<Timestamp>,
}

/// Hears what the holder said; `None` when it did not. Dropped unheard, it counts as `None`.
pub struct HeldAnswer {
    manager: Weak<Manager>,
    token: DelegationToken,
    client: ClientId,
    is_given: bool,
}

/// Who can ask holders.
pub trait AttributeHolder: Send + Sync {
    /// Asks a holder, and gives the answer when it comes, from whatever thread. Must not wait for it.
    fn ask(&self, holder: &WriteHolder, file: FileKey, answer: HeldAnswer);
}

/// Questions under way, and fresh answers.
#[derive(Default)]
pub(crate) struct Questions {
    asked: Mutex<FxHashMap<DelegationToken, Question>>,
    asker: Mutex<Option<Weak<dyn AttributeHolder>>>,
    /// Holders that left a question unanswered, and since when.
    silent: Mutex<FxHashMap<ClientId, Instant>>,
}

#[derive(Debug)]
struct Question {
    /// The file's size on the server when it was asked: an answer is weighed against that of then.
    server_size: u64,
    /// Who wanted the answer, could not wait, and was told to come again.
    put_off: Vec<Option<ClientId>>,
    stage: Stage,
}

/// What is known of a question.
enum Known {
    Nothing,
    Asked(Instant),
    /// `None`: there is no answer, or none in time for who was put off. An old answer would be wrong, and asking anew for
    /// each of his tries would go on for ever, so he has the holder give back.
    Answer(Option<HeldAttributes>),
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Asked(Instant),
    Answered(Option<HeldAttributes>, Instant),
}

impl Question {
    /// Whether it is of no use any more.
    fn is_over(&self, now: Instant) -> bool {
        let Stage::Answered(_, at) = self.stage else { return false };
        let bound = if self.put_off.is_empty() { HELD_ATTRIBUTES_FRESH_MS } else { HELD_PUT_OFF_MS };
        now.ms_since(at) > bound
    }

    /// Whether it was answered since.
    fn is_answered_since(&self, since: Option<Instant>) -> bool {
        matches!(self.stage, Stage::Answered(_, at) if since.is_some_and(|since| at >= since))
    }
}

impl HeldAnswer {
    /// Gives the answer.
    pub fn give(mut self, answer: Option<HeldAttributes>) {
        self.settle(answer);
    }

    fn settle(&mut self, answer: Option<HeldAttributes>) {
        self.is_given = true;
        let Some(manager) = self.manager.upgrade() else { return };
        let now = manager.clock().now();
        if answer.is_some() && manager.questions.has_silent() {
            manager.questions.note_silence(self.client, None);
        }
        if let Some(question) = manager.questions.asked.lock().get_mut(&self.token) {
            question.stage = Stage::Answered(answer, now);
        }
        manager.recalls.end();
    }
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        if !self.is_given {
            self.settle(None);
        }
    }
}

impl Questions {
    pub(crate) fn forget(&self, token: DelegationToken) {
        self.asked.lock().remove(&token);
    }

    /// Forgets answers that serve nobody any more.
    pub(crate) fn tick(&self, now: Instant) {
        self.asked.lock().retain(|_, question| !question.is_over(now));
        self.silent.lock().retain(|_, since| now.ms_since(*since) < SILENT_HOLDER_MS);
    }

    /// Whether any holder is silent.
    pub(crate) fn has_silent(&self) -> bool {
        !self.silent.lock().is_empty()
    }

    fn is_silent(&self, client: ClientId, now: Instant) -> bool {
        self.silent.lock().get(&client).is_some_and(|since| now.ms_since(*since) < SILENT_HOLDER_MS)
    }

    /// A holder has let the time for an answer pass, or has answered.
    fn note_silence(&self, client: ClientId, since: Option<Instant>) {
        let mut silent = self.silent.lock();
        match since {
            Some(since) => drop(silent.insert(client, since)),
            None => drop(silent.remove(&client)),
        }
    }

    /// Somebody is told to come again. Should he come too late for the answer, he is not to ask for ever.
    fn put_off(&self, token: DelegationToken, who: Option<ClientId>) {
        if let Some(question) = self.asked.lock().get_mut(&token)
            && !question.put_off.contains(&who)
        {
            question.put_off.push(who);
        }
    }

    /// What there is for who wants to know.
    fn look(
        &self,
        token: DelegationToken,
        (server_size, who): (u64, Option<ClientId>),
        (since, now): (Option<Instant>, Instant),
    ) -> Known {
        let mut asked = self.asked.lock();
        let is_of_use =
            |question: &&mut Question| !question.is_over(now) || question.is_answered_since(since);
        let Some(question) = asked.get_mut(&token).filter(is_of_use) else {
            return Known::Nothing;
        };
        let is_timely = question.is_answered_since(since);
        match question.stage {
            Stage::Asked(since) => Known::Asked(since),
            // Asked again, a holder that had no answer would have none: it is to give back what it has.
            Stage::Answered(None, _) => Known::Answer(None),
            Stage::Answered(answer, at)
                if (is_timely || now.ms_since(at) <= HELD_ATTRIBUTES_FRESH_MS)
                    && question.server_size == server_size =>
            {
                question.put_off.retain(|of| *of != who);
                Known::Answer(answer)
            }
            Stage::Answered(..) if question.put_off.contains(&who) => Known::Answer(None),
            Stage::Answered(..) => Known::Nothing,
        }
    }
}

impl Manager {
    /// Has holders of write delegations asked by this one from now on.
    pub fn set_attribute_holder(&self, asker: Weak<dyn AttributeHolder>) {
        *self.questions.asker.lock() = Some(asker);
    }

    /// What to show of a file's change attribute and size to `by`, when its holder has changed it; `None` when what
    /// the server has is right. `since`: when the request began that wants to know, if answers since will do.
    ///
    /// # Errors
    /// `WouldBlock`; `Delay` while the holder does not answer: what it has is being recalled then.
    pub(crate) fn held_attributes(
        &self,
        file: FileKey,
        (by, since): (Option<ClientId>, Option<Instant>),
        (server, wait): (Seen, Wait),
    ) -> FsResult<Option<(Seen, HeldAttributes)>> {
        let Some(holder) = self.look(|engine| engine.write_delegation(file, by)) else {
            // Who holds capabilities is not asked: what it has changed unseen it is to flush.
            self.contend(file, Deed::LookAttrs, by, wait)?;
            return Ok(None);
        };
        let answer = if holder.is_recalled {
            None
        } else {
            self.ask_holder(&holder, (file, server.size, since), (by, wait))?
        };
        let Some(held) = answer else {
            // It is to give back what it does not answer for; what it wrote is seen then.
            self.contend(file, Deed::LookAttrs, by, wait)?;
            return Ok(None);
        };
        let shown =
            self.quiet(|engine, _| engine.delegated_attributes(holder.token, held.change, held.size, server));
        Ok(shown.map(|seen| (seen, held)))
    }

    /// The holder's answer, `None` when there is none.
    fn ask_holder(
        &self,
        holder: &WriteHolder,
        (file, server_size, since): (FileKey, u64, Option<Instant>),
        (by, wait): (Option<ClientId>, Wait),
    ) -> FsResult<Option<HeldAttributes>> {
        loop {
            let seen = self.recalls.count();
            let now = self.clock().now();
            let left = match self.questions.look(holder.token, (server_size, by), (since, now)) {
                Known::Answer(answer) => return Ok(answer),
                Known::Asked(since) => RECALL_WAIT_MS.saturating_sub(now.ms_since(since)),
                Known::Nothing if self.questions.is_silent(holder.client, now) => return Ok(None),
                Known::Nothing => {
                    self.put_question(holder, (file, server_size), now);
                    continue;
                }
            };
            if left == 0 {
                self.questions.note_silence(holder.client, Some(now));
                return Ok(None);
            }
            if wait == Wait::No {
                return Err(FsError::WouldBlock);
            }
            if !self.recalls.wait(seen, left) {
                // Either it took too long, or this thread cannot be spared: the question stays.
                let then = self.clock().now();
                if then.ms_since(now) >= left {
                    self.questions.note_silence(holder.client, Some(then));
                    return Ok(None);
                }
                self.questions.put_off(holder.token, by);
                return Err(FsError::Delay);
            }
        }
    }

    /// Asks the holder of a file before its answer is waited for.
    pub(crate) fn ask_ahead(&self, file: FileKey, by: Option<ClientId>, server_size: u64) {
        let Some(holder) = self.look(|engine| engine.write_delegation(file, by)) else { return };
        let now = self.clock().now();
        let is_news = || {
            let known = self.questions.look(holder.token, (server_size, by), (None, now));
            matches!(known, Known::Nothing)
        };
        if !holder.is_recalled && !self.questions.is_silent(holder.client, now) && is_news() {
            self.put_question(&holder, (file, server_size), now);
        }
    }

    /// Has a holder that does not answer give a file back. Waits for nothing.
    pub(crate) fn recall_from_silent(&self, file: FileKey, by: Option<ClientId>) {
        let Some(holder) = self.look(|engine| engine.write_delegation(file, by)) else { return };
        if !holder.is_recalled && self.questions.is_silent(holder.client, self.clock().now()) {
            // It is begun, and that is all.
            let _ = self.contend(file, Deed::LookAttrs, by, Wait::No);
        }
    }

    fn put_question(&self, holder: &WriteHolder, (file, server_size): (FileKey, u64), now: Instant) {
        let asker = self.questions.asker.lock().as_ref().and_then(Weak::upgrade);
        let mut asked = self.questions.asked.lock();
        let put_off = asked.remove(&holder.token).map(|before| before.put_off).unwrap_or_default();
        asked.insert(holder.token, Question { server_size, put_off, stage: Stage::Asked(now) });
        drop(asked);
        let (manager, token, client) = (self.this.clone(), holder.token, holder.client);
        let answer = HeldAnswer { manager, token, client, is_given: false };
        match asker {
            Some(asker) => asker.ask(holder, file, answer),
            None => answer.give(None),
        }
    }
}
