//! Working without the server: what is known and what is queued lies on this host's disk, survives the daemon, and is
//! used while the server is away (`docs/design/offline.md`).

mod blocks;
mod journal;
mod keeping;
mod merging;
mod owed;
mod promised;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use holdfast_cache::{
    Ask, Conflict, Errno, Handle, Machine, NodeId, Now, Reclaimed, RestoreError, Settings, Turn,
};
use holdfast_client::Cancel;
use parking_lot::{Mutex, MutexGuard};

use crate::volume::{Shared, Volume};

use blocks::Blocks;
pub(crate) use blocks::run as write_on;
pub use journal::{Journal, JournalError};
pub(crate) use keeping::{probe, run as keep_on};
use owed::Owed;
use promised::{Promised, Round, Verdict};

/// What a mount that works without the server begins with.
#[derive(Debug)]
pub struct Kept {
    /// The file.
    pub journal: Journal,
    /// Who this mount is to the server, from one life to the next.
    pub incarnation: [u8; 16],
    /// What was kept in a former life; empty in the first.
    pub records: BTreeMap<Vec<u8>, Bytes>,
    /// Where contents of files are kept.
    blocks: Option<Blocks>,
}

/// How it stands with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// It answers.
    Online = 0,
    /// It does not: what is known here is used, the rest fails.
    Away = 1,
    /// It is back, and is being compared with what is known here.
    Merging = 2,
}

/// The journal of a volume, and how it stands.
#[derive(Debug)]
pub(crate) struct Offline {
    journal: Journal,
    pub(crate) blocks: Option<Blocks>,
    /// Held by whoever brings the journal up to date: what it could not be told yet.
    turn: Mutex<Owed>,
    standing: AtomicU8,
    /// What the server has must be compared before anything is sent.
    must_merge: AtomicBool,
    /// The server has forgotten what it executed: what was sent and not answered is looked for first.
    must_sift: AtomicBool,
    /// Given when the server is away, to what is being sent: it goes out again after the comparing.
    sending: Mutex<Cancel>,
    promised: Mutex<Promised>,
    /// The journal cannot be written any more.
    is_broken: AtomicBool,
    /// What the machine was done with when the journal was last brought up to date.
    kept_done: AtomicU64,
    own: OnceLock<Weak<Shared>>,
}

/// By which the volume is told that its server does not answer any more.
#[derive(Clone)]
pub struct AwaySignal(Weak<Shared>);

impl AwaySignal {
    /// It does not.
    pub fn went_away(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.went_away();
        }
    }
}

impl std::fmt::Debug for AwaySignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AwaySignal")
    }
}

/// Between two looks at what has changed, when nobody asks for it to be kept at once.
pub(crate) const KEEP_EVERY: Duration = Duration::from_millis(100);

/// Between two questions to a server that counts as away.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Facts in the journal.
const INCARNATION: &str = "incarnation";
const SOURCE: &str = "source";
/// One byte, 1 while what was sent has still to be looked for: the server may know the incarnation again since.
const SIFTING: &str = "sifting";

impl Kept {
    /// What is in a journal that was made for this source; with an incarnation made of `chance` in its first life.
    ///
    /// # Errors
    /// [`JournalError`], also where another source was mounted with it.
    pub fn open(path: &std::path::Path, source: &str, chance: [u8; 16]) -> Result<Self, JournalError> {
        let journal = Journal::open(path)?;
        let fail = |reason: String| JournalError::Failed { path: path.to_path_buf(), reason };
        let records = journal.records()?;
        if let Some(other) = journal.fact(SOURCE)?.filter(|of| of != source.as_bytes() && !records.is_empty())
        {
            let other = String::from_utf8_lossy(&other).into_owned();
            return Err(fail(format!("it is of {other}: give this mount another file with offline=FILE")));
        }
        let known = journal.fact(INCARNATION)?.and_then(|bytes| bytes.try_into().ok());
        let incarnation = known.unwrap_or(chance);
        if known.is_none() {
            let facts = [(INCARNATION, incarnation.as_slice()), (SOURCE, source.as_bytes())];
            journal.begin(&facts, &[])?;
        }
        Ok(Self { journal, incarnation, records, blocks: None })
    }

    /// Contents of files are kept as well, in a file beside the journal: so many bytes (none at all: 0).
    #[must_use]
    pub fn with_contents(mut self, bytes: u64) -> Self {
        let opened = Blocks::open(self.journal.path(), bytes, self.incarnation);
        let failed = |error| tracing::warn!(%error, "contents of files are not kept on this host's disk");
        self.blocks = opened.map_err(failed).ok().flatten();
        self
    }

    /// How much room the contents take that were kept in a former life.
    #[must_use]
    pub fn contents_bytes(&self) -> u64 {
        blocks::room_taken(self.journal.path())
    }

    /// Whether there was a former life.
    #[must_use]
    pub fn has_past(&self) -> bool {
        !self.records.is_empty()
    }

    /// The root of the former life.
    #[must_use]
    pub fn root(&self) -> Option<Handle> {
        let now = Now::default();
        self.restore(Settings::full(), now).ok()?.handle_of(NodeId::ROOT)
    }

    /// The machine of the former life.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) fn restore(&self, settings: Settings, now: Now) -> Result<Machine, RestoreError> {
        Machine::restore(&self.records, settings, now)
    }
}

impl Offline {
    /// With the machine that begins, of a former life or not. All it knows is written.
    pub(crate) fn begin(kept: Kept, machine: &mut Machine, source: &str) -> Result<Self, JournalError> {
        let had_past = kept.has_past();
        machine.keep_blocks(kept.blocks.as_ref().map_or(0, Blocks::slots));
        machine.follow();
        let all = machine.take_changes();
        let is_sifting = kept.journal.fact(SIFTING)?.is_some_and(|is| is == [1]);
        let sifting = [u8::from(is_sifting)];
        let facts =
            [(INCARNATION, kept.incarnation.as_slice()), (SOURCE, source.as_bytes()), (SIFTING, &sifting)];
        kept.journal.begin(&facts, &all)?;
        machine.changes_count();
        machine.hold(had_past);
        if had_past {
            machine.assume();
        }
        let standing = if had_past { Standing::Away } else { Standing::Online };
        Ok(Self {
            journal: kept.journal,
            blocks: kept.blocks,
            turn: Mutex::default(),
            standing: AtomicU8::new(standing as u8),
            must_merge: AtomicBool::new(had_past),
            must_sift: AtomicBool::new(is_sifting),
            sending: Mutex::new(Cancel::new()),
            promised: Mutex::default(),
            is_broken: AtomicBool::new(false),
            kept_done: AtomicU64::new(machine.done_through()),
            own: OnceLock::new(),
        })
    }

    /// The volume of which it is a part.
    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>) {
        // It is said once.
        let _ = self.own.set(Arc::downgrade(shared));
    }

    /// The server does not know what it has executed of what this mount has sent.
    pub(crate) fn forgotten(&self) {
        if let Err(error) = self.journal.note(SIFTING, &[1]) {
            tracing::warn!(%error, "a later life will not know that the server has forgotten this one");
        }
        self.must_sift.store(true, Ordering::SeqCst);
        self.must_merge.store(true, Ordering::SeqCst);
    }

    /// Whether what was sent has still to be looked for.
    pub(crate) fn must_sift(&self) -> bool {
        self.must_sift.load(Ordering::SeqCst)
    }

    /// It was.
    fn sifted(&self) {
        if let Err(error) = self.journal.note(SIFTING, &[0]) {
            tracing::warn!(%error, "a later life will look for it again");
        }
        self.must_sift.store(false, Ordering::SeqCst);
    }

    pub(crate) fn must_merge(&self) -> bool {
        self.must_merge.load(Ordering::SeqCst)
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.standing.load(Ordering::SeqCst) {
            0 => Standing::Online,
            1 => Standing::Away,
            _ => Standing::Merging,
        }
    }

    /// The number of the comparing that begins; none where somebody is at it already, or was.
    fn begin_merging(&self, _: &MutexGuard<'_, Machine>) -> Option<u64> {
        if self.standing() == Standing::Merging || !self.must_merge() {
            return None;
        }
        self.stand(Standing::Merging);
        Some(self.promised.lock().compares())
    }

    /// What has become of what somebody compares by.
    fn verdict(&self, round: Round, _: &MutexGuard<'_, Machine>) -> Verdict {
        self.promised.lock().verdict(round, self.standing() == Standing::Merging)
    }

    fn stand(&self, standing: Standing) {
        self.standing.store(standing as u8, Ordering::SeqCst);
    }
}

impl Shared {
    /// Whether the server is away and this volume works without it.
    pub(crate) fn is_away(&self) -> bool {
        self.offline.as_ref().is_some_and(|offline| offline.standing() == Standing::Away)
    }

    /// The server does not answer any more: what waits for it and can be done without it, or not at all, goes on.
    pub(crate) fn went_away(&self) {
        let Some(offline) = &self.offline else { return };
        let mut machine = self.machine.lock();
        if offline.standing() != Standing::Away {
            tracing::warn!("working without the server");
            offline.stand(Standing::Away);
            offline.must_merge.store(true, Ordering::SeqCst);
            machine.hold(true);
            machine.assume();
            self.stop_sending();
        }
        self.look_for_work(machine);
    }

    /// What is on its way is given up, to be sent again when that is allowed.
    pub(crate) fn stop_sending(&self) {
        if let Some(offline) = &self.offline {
            std::mem::replace(&mut *offline.sending.lock(), Cancel::new()).cancel();
        }
    }

    /// The token under which something is sent; none where nothing may be.
    pub(crate) fn sending(&self) -> Option<Cancel> {
        let Some(offline) = &self.offline else { return Some(self.given_up.clone()) };
        // In this order: whoever goes away in between gives this token, too.
        let token = offline.sending.lock().clone();
        (!self.is_away()).then_some(token)
    }

    /// The promises that this client held are void: what came of claiming them.
    pub(crate) fn promises_renewed(&self, given_back: Vec<Reclaimed>) {
        let Some(offline) = &self.offline else { return };
        // In one with the machine: a comparing that is just about to end must see all of it, or none.
        let mut machine = self.machine.lock();
        offline.must_merge.store(true, Ordering::SeqCst);
        offline.promised.lock().renewed(given_back);
        // Nothing may go out before the comparing, which begins when the greeting is over.
        machine.hold(true);
    }

    /// The greeting is over.
    pub(crate) fn was_greeted(&self, _: &MutexGuard<'_, Machine>) {
        if let Some(offline) = &self.offline {
            offline.promised.lock().greeted();
        }
    }

    /// The server has been greeted: what was held back goes out, after the comparing where that is due.
    pub(crate) fn came_back(&self) {
        let Some(offline) = &self.offline else { return };
        if offline.standing() == Standing::Merging {
            // Somebody is at it, and sees what was promised anew.
            return;
        }
        if !offline.must_merge() {
            return;
        }
        let own = offline.own.get().cloned();
        let merging = move || {
            if let Some(shared) = own.as_ref().and_then(Weak::upgrade) {
                shared.merge();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("merge".into()).spawn(merging) {
            tracing::error!(%error, "no thread to compare with the server: it counts as away");
            self.went_away();
        }
    }
}

impl Shared {
    /// A question that there is nobody to ask.
    pub(crate) fn unanswered<T>(&self, mut machine: MutexGuard<'_, Machine>, ask: Ask) -> Result<T, Errno> {
        tracing::debug!(question = ?ask.question, "there is nobody to ask");
        if ask.question.is_mutation() {
            // It will not be asked, and what it was about is as it was.
            machine.absorb(&mut Turn::new(ask.caller.clone()), ask, Err(AWAY), self.now());
        }
        self.look_for_work(machine);
        Err(AWAY)
    }
}

impl Volume {
    /// What could not be had from the server's disk, as that is away, is had from this host's. `losses`: what is known to be lost
    /// all the same is told.
    pub(crate) fn or_kept(
        &self,
        done: Result<(), Errno>,
        losses: impl FnOnce(&mut Machine) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match done {
            Err(AWAY) if self.0.is_away() => {
                self.0.keep()?;
                losses(&mut self.0.machine.lock())
            }
            done => done,
        }
    }

    /// The same of what must not come to be undone by a later life: what was made and removed before any of it was sent is in
    /// the journal until that is brought up to date, and would be made again.
    pub(crate) fn settled_or_kept(
        &self,
        done: Result<(), Errno>,
        losses: impl FnOnce(&mut Machine) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if done.is_ok() {
            // A journal that cannot be written is not there for a later life, either.
            let _ = self.0.keep();
        }
        self.or_kept(done, losses)
    }

    /// Whether there is a server to ask: one that a volume can do without may be away.
    #[must_use]
    pub fn has_server(&self) -> bool {
        !self.0.is_away()
    }

    /// How it stands with the server; nothing for a volume that does not work without it.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        self.0.offline.as_ref().map(Offline::standing)
    }

    /// By which it is told that its server does not answer any more.
    #[must_use]
    pub fn away_signal(&self) -> AwaySignal {
        AwaySignal(Arc::downgrade(&self.0))
    }

    /// What was changed on both sides while the server was away.
    #[must_use]
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.0.machine.lock().conflicts().to_vec()
    }
}

/// What an operation is told that cannot be done without the server.
pub(crate) const AWAY: Errno = Errno::ETIMEDOUT;
