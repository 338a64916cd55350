//! Attributes of files whose holder may know better: whoever has a write delegation is asked for what it has not
//! written back yet (RFC 8881 section 10.4.3).

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::limits::{HELD_ATTRIBUTES_KEPT_MS, HELD_PUT_OFF_MS, RECALL_WAIT_MS, SILENT_HOLDER_MS};
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
    number: u64,
    client: ClientId,
    is_given: bool,
}

/// Who can ask holders.
pub trait AttributeHolder: Send + Sync {
    /// Asks a holder, and gives the answer when it comes, from whatever thread. Must not wait for it.
    fn ask(&self, holder: &WriteHolder, file: FileKey, answer: HeldAnswer);
}

/// Questions under way, and their answers for those who wait for them.
#[derive(Default)]
pub(crate) struct Questions {
    asked: Mutex<FxHashMap<DelegationToken, Question>>,
    /// Questions put so far: whoever began before a question was put may use its answer, and nobody else, for the holder
    /// may have written since.
    count: AtomicU64,
    asker: Mutex<Option<Weak<dyn AttributeHolder>>>,
    /// Holders that left a question unanswered, and since when.
    silent: Mutex<FxHashMap<ClientId, Instant>>,
}

/// What a holder is asked, and was asked last. At most one question is under way.
#[derive(Debug, Default)]
struct Question {
    under_way: Option<(Asked, Instant)>,
    answered: Option<(Asked, Option<HeldAttributes>, Instant)>,
    /// Who wanted the answer, could not wait, and was told to come again.
    put_off: Vec<Option<ClientId>>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Its place among all questions.
    number: u64,
    /// The file's size on the server when it was asked: an answer is weighed against that of then.
    server_size: u64,
}

/// What is known of a question.
enum Known {
    Nothing,
    Asked(Instant),
    /// `None`: there is no answer, or none in time for who was put off. An old answer would be wrong, and asking anew for
    /// each of his tries would go on for ever, so he has the holder give back.
    Answer(Option<HeldAttributes>),
}

impl Question {
    /// Whether it is of no use any more.
    fn is_over(&self, now: Instant) -> bool {
        let bound = if self.put_off.is_empty() { HELD_ATTRIBUTES_KEPT_MS } else { HELD_PUT_OFF_MS };
        self.under_way.is_none() && self.answered.is_none_or(|(.., at)| now.ms_since(at) > bound)
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
        if let Some(question) = manager.questions.asked.lock().get_mut(&self.token)
            && let Some((asked, _)) = question.under_way.take_if(|(asked, _)| asked.number == self.number)
        {
            question.answered = Some((asked, answer, now));
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
    /// How many were put by now: those to come tell of no earlier moment than this.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

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

    /// What there is for who wants to know, and began when so many questions had been put.
    fn look(
        &self,
        token: DelegationToken,
        (server_size, who): (u64, Option<ClientId>),
        (since, now): (u64, Instant),
    ) -> Known {
        let mut asked = self.asked.lock();
        let Some(question) = asked.get_mut(&token) else { return Known::Nothing };
        let is_over = question.is_over(now);
        match (question.answered, question.under_way) {
            (Some((asked, Some(answer), _)), _)
                if asked.number > since && asked.server_size == server_size =>
            {
                question.put_off.retain(|of| *of != who);
                Known::Answer(Some(answer))
            }
            (_, Some((_, at))) => Known::Asked(at),
            // Asked again, a holder that had no answer would have none: it is to give back what it has.
            (Some((asked, None, _)), None) if !is_over || asked.number > since => Known::Answer(None),
            (Some(_), None) if !is_over && question.put_off.contains(&who) => Known::Answer(None),
            _ => Known::Nothing,
        }
    }

    /// Notes a question that is to be put, and gives its number; `None` while another is under way.
    fn put(&self, token: DelegationToken, server_size: u64, now: Instant) -> Option<u64> {
        let mut asked = self.asked.lock();
        let question = asked.entry(token).or_default();
        if question.under_way.is_some() {
            return None;
        }
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        question.under_way = Some((Asked { number, server_size }, now));
        Some(number)
    }
}

impl Manager {
    /// Has holders of write delegations asked by this one from now on.
    pub fn set_attribute_holder(&self, asker: Weak<dyn AttributeHolder>) {
        *self.questions.asker.lock() = Some(asker);
    }

    /// What to show of a file's change attribute and size to `by`, when its holder has changed it; `None` when what
    /// the server has is right. `since`: how many questions had been put when the request began that wants to know, where
    /// that was before now.
    ///
    /// # Errors
    /// `WouldBlock`; `Delay` while the holder does not answer: what it has is being recalled then.
    pub(crate) fn held_attributes(
        &self,
        file: FileKey,
        (by, since): (Option<ClientId>, Option<u64>),
        (server, wait): (Seen, Wait),
    ) -> FsResult<Option<(Seen, HeldAttributes)>> {
        let Some(holder) = self.look(|engine| engine.write_delegation(file, by)) else {
            // Who holds capabilities is not asked: what it has changed unseen it is to flush.
            self.contend(file, Deed::LookAttrs, by, wait)?;
            return Ok(None);
        };
        let since = since.unwrap_or_else(|| self.questions.count());
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
        (file, server_size, since): (FileKey, u64, u64),
        (by, wait): (Option<ClientId>, Wait),
    ) -> FsResult<Option<HeldAttributes>> {
        loop {
            let seen = self.recalls.count();
            let now = self.clock().now();
            let left = match self.questions.look(holder.token, (server_size, by), (since, now)) {
                Known::Answer(answer) => return Ok(answer),
                Known::Asked(since) => RECALL_WAIT_MS.saturating_sub(now.ms_since(since)),
                Known::Nothing if self.questions.is_silent(holder.client, now) => return Ok(None),
                // Asked now, it would tell of a moment before whoever can wait for it begins.
                Known::Nothing if wait != Wait::Yes => return Err(FsError::WouldBlock),
                Known::Nothing => {
                    self.put_question(holder, (file, server_size), now);
                    continue;
                }
            };
            if left == 0 {
                self.questions.note_silence(holder.client, Some(now));
                return Ok(None);
            }
            if wait != Wait::Yes {
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
    pub(crate) fn ask_ahead(&self, (file, server_size): (FileKey, u64), by: Option<ClientId>, since: u64) {
        let Some(holder) = self.look(|engine| engine.write_delegation(file, by)) else { return };
        let now = self.clock().now();
        let is_news = || {
            let known = self.questions.look(holder.token, (server_size, by), (since, now));
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
        let Some(number) = self.questions.put(holder.token, server_size, now) else { return };
        let (manager, token, client) = (self.this.clone(), holder.token, holder.client);
        let answer = HeldAnswer { manager, token, number, client, is_given: false };
        match asker {
            Some(asker) => asker.ask(holder, file, answer),
            None => answer.give(None),
        }
    }
}
