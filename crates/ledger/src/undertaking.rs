//! One request's record in the journal, from its first mutation to its reply.

use std::cell::RefCell;
use std::sync::Arc;

use holdfast_base::{ExportId, SessionId, SlotId, Timestamp};
use holdfast_journal::{EntryId, JournalError, Keep};
use holdfast_recovery::intent::name_hash;
use holdfast_recovery::keys::slot_key;
use holdfast_recovery::{Intent, Settled};
use holdfast_vfs::{Backend, FsError, FsResult, Handle, Node};
use holdfast_xdr::Writer;

use crate::intent;
use crate::ledger::{BatchRecord, Ledger, Past};

/// How the operation about to run stands to what was done before a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing of it was done.
    New,
    /// It was done: its success is to be told, from what is there now.
    Done,
    /// Parts of it may have been done: it is to be done again, its guard left out.
    Repeat,
}

thread_local! {
    /// Where an intent is written on its way into the journal, so that it costs no allocation.
    static PAYLOAD: RefCell<Writer> = const { RefCell::new(Writer::new()) };
}

/// A key of the journal, held inline.
struct Key {
    bytes: [u8; 64],
    len: usize,
}

impl Key {
    /// The parts one after the other, cut where there is no more room: no key is that long.
    fn new(parts: &[&[u8]]) -> Self {
        let mut key = Self { bytes: [0; 64], len: 0 };
        for byte in parts.iter().copied().flatten() {
            if let Some(place) = key.bytes.get_mut(key.len) {
                *place = *byte;
                key.len += 1;
            }
        }
        key
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// One request that may change something. A request without any mutation leaves nothing behind.
pub struct Undertaking {
    ledger: Arc<Ledger>,
    key: Key,
    keep: Keep,
    seqid: u32,
    call_hash: u64,
    operation: u32,
    entry: Option<EntryId>,
    /// The record tells of what is about to be done, by which a crash would settle it.
    is_about_to: bool,
    past: Option<Arc<Past>>,
}

impl Undertaking {
    /// A request on a session's slot. `call_hash` tells it from another under the same number.
    #[must_use]
    pub fn on_slot(
        ledger: &Arc<Ledger>,
        (session, slot): (SessionId, SlotId),
        seqid: u32,
        call_hash: u64,
    ) -> Self {
        Self::new(ledger, Key::new(&[&slot_key(session, slot)]), Keep::Latest, (seqid, call_hash))
    }

    /// A request that a cache of replies knows by `key`, which names one call and no other: at most 63 bytes.
    #[must_use]
    pub fn of_call(ledger: &Arc<Ledger>, key: &[u8], xid: u32) -> Self {
        Self::new(ledger, Key::new(&[&[intent::CALL], key]), Keep::Aged, (xid, 0))
    }

    /// One operation of a batch of the caps program, known by the client's incarnation, the transaction and its place
    /// in it. Kept until [`Ledger::forget_batch`].
    #[must_use]
    pub fn of_batch(ledger: &Arc<Ledger>, incarnation: &[u8; 16], txn: u64, op: u32) -> Self {
        let mut this =
            Self::new(ledger, Key::new(&[&intent::batch_key(incarnation, txn, op)]), Keep::Latest, (0, 0));
        this.at_operation(op);
        this
    }

    /// One operation of a batch that a former life has recorded as done, to be sealed with the rest of its transaction.
    #[must_use]
    pub fn remembered(ledger: &Arc<Ledger>, record: BatchRecord) -> Self {
        let mut this = Self::new(ledger, Key::new(&[]), Keep::Latest, (0, 0));
        this.entry = Some(record.entry);
        this
    }

    /// The name under which a request that a crash cut short was about to make something.
    #[must_use]
    pub fn intended_name(&self) -> Option<Vec<u8>> {
        self.past.as_ref()?.made_name()
    }

    /// What the operation that comes next made before a crash cut it short, as it was found then. Of those before it in its
    /// compound nothing is known but that they were done.
    pub(crate) fn made_before(&self) -> Option<&Node> {
        self.past.as_ref().filter(|past| past.operation == self.operation)?.made()
    }

    /// Records that names of this directory are about to be removed, each by what it stands for. A former life's may be
    /// done in part: its standing is then [`Standing::Repeat`], as long as it has no outcome. With one, the directory is
    /// what is made durable for it.
    ///
    /// # Errors
    /// As for any mutation: [`FsError::Delay`] when the journal has no room.
    pub fn begin_removals<'n>(
        &mut self,
        export: ExportId,
        dir: &Handle,
        names: impl IntoIterator<Item = &'n [u8]>,
    ) -> FsResult<()> {
        let names: Vec<u8> = names.into_iter().flat_map(name_hash).collect();
        self.about_to(export, Intent::Removals { dir: dir.as_bytes(), names: &names })
    }

    /// Records an outcome of which nothing was recorded before: that of an operation that was refused, so that what comes
    /// later in its batch does not change it. As [`Undertaking::finish`] where there is a record.
    pub fn note(&mut self, export: ExportId, reply: &[u8]) {
        if self.entry.is_none() && self.about_to(export, Intent::Repeatable).is_err() {
            return;
        }
        self.finish(reply);
    }

    fn new(ledger: &Arc<Ledger>, key: Key, keep: Keep, (seqid, call_hash): (u32, u64)) -> Self {
        let past =
            ledger.past(key.as_bytes()).filter(|past| past.seqid == seqid && past.call_hash == call_hash);
        Self {
            ledger: Arc::clone(ledger),
            key,
            keep,
            seqid,
            call_hash,
            operation: 0,
            entry: None,
            is_about_to: false,
            past,
        }
    }

    /// Says which operation of a compound, from 0, comes next.
    pub const fn at_operation(&mut self, operation: u32) {
        self.operation = operation;
        self.is_about_to = false;
    }

    /// How the operation that comes next stands to what was done before a crash.
    ///
    /// # Errors
    /// [`FsError::Delay`] while the file system cannot tell.
    pub fn standing(&mut self, backend: &dyn Backend) -> FsResult<Standing> {
        let Some(past) = &self.past else { return Ok(Standing::New) };
        // What came before the interrupted operation was done, or the request had ended there.
        let settled = match self.operation.cmp(&past.operation) {
            std::cmp::Ordering::Less => return Ok(Standing::Done),
            std::cmp::Ordering::Greater => return Ok(Standing::New),
            std::cmp::Ordering::Equal => past.settled(backend),
        };
        match settled {
            Settled::NotHappened => Ok(Standing::New),
            Settled::CannotTell => Err(FsError::Delay),
            Settled::HappenedAlready | Settled::Repeat => {
                self.entry = Some(past.entry);
                Ok(if settled == Settled::Repeat { Standing::Repeat } else { Standing::Done })
            }
        }
    }

    /// Records what is about to be done.
    ///
    /// # Errors
    /// [`FsError::Delay`] when the journal has no room; [`FsError::Io`] when its disk failed.
    pub(crate) fn about_to(&mut self, export: ExportId, intent: Intent<'_>) -> FsResult<()> {
        let step = intent::step(self.seqid, self.call_hash, self.operation, intent);
        let begun = PAYLOAD.with_borrow_mut(|payload| {
            payload.truncate(0);
            intent::write(export, &step, payload);
            self.ledger.journal().begin(self.key.as_bytes(), self.keep, payload.as_slice())
        });
        match begun {
            Ok(entry) => {
                self.entry = Some(entry);
                self.is_about_to = !matches!(intent, Intent::Repeatable);
                self.ledger.drop_past(self.key.as_bytes());
                Ok(())
            }
            Err(JournalError::Full | JournalError::Gone) => Err(FsError::Delay),
            // A name or text too long to be recorded is too long to be made.
            Err(JournalError::Bounds(_)) => Err(FsError::NameTooLong),
            Err(JournalError::Failed(_)) => Err(FsError::Io),
        }
    }

    /// What was recorded last is not going to be done: should others do it, it was not this request. It is done again after a
    /// crash, and comes to what it comes to.
    pub(crate) fn will_not(&mut self, export: ExportId) {
        if self.is_about_to
            && let Err(error) = self.about_to(export, Intent::Repeatable)
        {
            tracing::debug!(%error, "what is not done after all stays recorded");
        }
    }

    pub(crate) fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// Now, by the clock that stamps files.
    pub(crate) fn now(&self) -> Timestamp {
        self.ledger.now()
    }

    /// The request was executed, and this is its reply. Before the group commit; once more when that fails and
    /// the reply becomes another. That it cannot be recorded is no reason not to send it: a crash would settle the
    /// intent by looking.
    pub fn finish(&self, reply: &[u8]) {
        let Some(entry) = self.entry else { return };
        if let Err(error) = self.ledger.journal().finish(entry, reply) {
            tracing::debug!(%error, "a reply is not recorded");
        }
        self.ledger.drop_past(self.key.as_bytes());
    }

    /// What the request changed is on stable storage.
    pub fn seal(&self) {
        if let Some(entry) = self.entry
            && let Err(error) = self.ledger.journal().seal(entry)
        {
            tracing::debug!(%error, "a reply is not sealed");
        }
    }

    /// The request is to be executed anew when it comes again (DELAY, JUKEBOX): nothing was changed.
    pub fn forget(&self) {
        if let Some(entry) = self.entry {
            self.ledger.journal().forget(entry);
        }
    }

    /// Nothing was done, and whoever runs the request again records it anew: no record of this attempt is kept. One of a former
    /// life, which tells what that did, stays.
    pub fn withdraw(&self) {
        if self.past.as_ref().is_none_or(|past| self.entry != Some(past.entry)) {
            self.forget();
        }
    }
}

impl std::fmt::Debug for Undertaking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Undertaking")
            .field("seqid", &self.seqid)
            .field("operation", &self.operation)
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}
