//! Those who wait for locks, in order. An NFSv4 waiter is notified when its range is free, has it kept for a moment,
//! and asks again (RFC 8881 sections 9.6 and 20.11); one from another door is given the lock at once.

use std::collections::BTreeMap;

use holdfast_base::limits::{LOCK_HANDOFF_MS, LOCK_WAIT_FRESH_MS, LOCK_WAITERS_PER_FILE_MAX};
use holdfast_base::{ByteRange, ClientId, FileKey, Instant};
use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::file::{File, Holder};
use crate::foreign::ForeignOwner;
use crate::lock_conflict::{Conflict, ConflictHolder, WantedLock};
use crate::lock_room::{Account, Payer};
use crate::lock_set::LockKind;
use crate::names::OwnerName;
use crate::owner::OwnerKind;
use crate::range_map::RangeMap;

/// Who waits, and whom others wait for: a process, as far as locks can tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Party {
    /// An NFSv4 lock-owner.
    Nfs4 {
        #[serde(with = "crate::plain")]
        client: ClientId,
        owner: OwnerName,
    },
    /// An owner of another door.
    Foreign(ForeignOwner),
}

impl Party {
    fn is_nfs4(&self, client: ClientId, owner: &[u8]) -> bool {
        matches!(self, Self::Nfs4 { client: its, owner: name } if *its == client && name.as_bytes() == owner)
    }
}

/// How a waiter comes to its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    /// It is told, and asks again.
    Notified,
    /// It asks from time to time: remembered only so that deadlocks are seen.
    Polls,
    /// It is given the lock.
    Given,
}

/// A lock asked for and denied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Waiter {
    // Constant.
    pub(crate) party: Party,
    #[serde(with = "crate::plain")]
    pub(crate) range: ByteRange,
    pub(crate) kind: LockKind,
    pub(crate) manner: Manner,
    // Changing.
    #[serde(with = "crate::plain")]
    pub(crate) asked_at: Instant,
    /// Until when the range is kept for it, once it was notified.
    #[serde(with = "crate::plain")]
    pub(crate) kept_until: Option<Instant>,
}

impl Waiter {
    /// Whether it had its chance, or has not asked for longer than whoever waits lets pass: Linux asks again after half a
    /// minute, however short its lease is. Others' services say when theirs give up.
    fn is_over(&self, lease_ms: u64, now: Instant) -> bool {
        self.manner != Manner::Given
            && (self.kept_until.is_some_and(|end| end <= now)
                || now.ms_since(self.asked_at) > lease_ms.max(LOCK_WAIT_FRESH_MS))
    }

    fn is_in_way(&self, range: ByteRange, kind: LockKind) -> bool {
        self.range.overlaps(range) && self.kind.conflicts(kind)
    }

    /// Whether asking for this again is the same wait. An NFSv4 owner (a process) waits for one lock of a file at a
    /// time; the threads of an NLM owner may wait for several, and are not heard of again.
    fn is_same(&self, party: &Party, range: ByteRange, kind: LockKind) -> bool {
        let is_nfs4 = matches!(party, Party::Nfs4 { .. });
        self.party == *party && (is_nfs4 || (self.range, self.kind) == (range, kind))
    }
}

/// Of which files each party waits for locks, as often as it waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) by_party: BTreeMap<Party, Vec<FileKey>>,
    pub(crate) account: Account,
}

impl Waits {
    fn add(&mut self, party: &Party, file: FileKey) {
        self.by_party.entry(party.clone()).or_default().push(file);
        self.account.change(Payer::of(party), 0, 1);
    }

    fn remove(&mut self, party: &Party, file: FileKey) {
        let Some(files) = self.by_party.get_mut(party) else { return };
        if let Some(at) = files.iter().position(|other| *other == file) {
            files.swap_remove(at);
            self.account.change(Payer::of(party), 1, 0);
        }
        if files.is_empty() {
            self.by_party.remove(party);
        }
    }

    /// Of which files somebody waits for locks, as often as it does.
    pub(crate) fn files_of(&self, party: &Party) -> &[FileKey] {
        self.by_party.get(party).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn of_client(&self, client: ClientId) -> Vec<FileKey> {
        let from = Party::Nfs4 { client, owner: OwnerName::new(&[]) };
        let its = self.by_party.range(from..);
        let its = its.take_while(|(party, _)| matches!(party, Party::Nfs4 { client: c, .. } if *c == client));
        let mut files: Vec<_> = its.flat_map(|(_, files)| files.iter().copied()).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

impl File {
    /// The waiter, other than who asks, for whom this range is kept at the moment.
    pub(crate) fn reserved_for_waiter(&self, wanted: &WantedLock<'_>, now: Instant) -> Option<Conflict> {
        let is_other = |waiter: &&Waiter| {
            wanted.asking.is_none_or(|(client, owner)| !waiter.party.is_nfs4(client, owner))
        };
        let is_kept = |waiter: &&Waiter| waiter.kept_until.is_some_and(|end| now < end);
        let mut in_way = self.waiters.iter().filter(is_other).filter(is_kept);
        let waiter = in_way.find(|waiter| waiter.is_in_way(wanted.range, wanted.kind))?;
        let holder = match &waiter.party {
            Party::Nfs4 { client, owner } => ConflictHolder::Nfs4 { client: *client, owner: owner.clone() },
            Party::Foreign(owner) => ConflictHolder::Foreign(*owner),
        };
        Some(Conflict { holder, range: waiter.range, kind: waiter.kind })
    }
}

/// Adds a wish to those of waiters before: the strongest counts.
pub(crate) fn claim(claimed: &mut RangeMap<LockKind>, range: ByteRange, kind: LockKind) {
    let held = claimed.within(range);
    claimed.set(range, kind);
    for (part, had) in held.into_iter().filter(|(_, had)| *had > kind) {
        claimed.set(part, had);
    }
}

impl Engine {
    /// Puts a denied request in line, or notes that it was asked again; the place in line stays. Whether there was
    /// room: else the client polls.
    pub(crate) fn enqueue_waiter(&mut self, key: FileKey, waiter: Waiter) -> bool {
        let file = self.files.entry(key).or_default();
        let known = file.waiters.iter_mut().find(|w| w.is_same(&waiter.party, waiter.range, waiter.kind));
        if let Some(known) = known {
            let now = waiter.asked_at;
            let is_other =
                (known.range, known.kind, known.manner) != (waiter.range, waiter.kind, waiter.manner);
            let was_kept = known.kept_until.is_some();
            *known = waiter;
            if is_other || was_kept {
                // What it stood in the way of before may be had.
                self.wake_waiters(key, None, now);
            }
            return true;
        }
        let has_room = self.waits.account.has_room_for_waiter(Payer::of(&waiter.party));
        if file.waiters.len() >= LOCK_WAITERS_PER_FILE_MAX || !has_room {
            self.leave_file(key, |_| ());
            return false;
        }
        self.waits.add(&waiter.party, key);
        file.waiters.push(waiter);
        self.waiting.insert(key);
        true
    }

    /// Whether anybody, by whatever door, waits for a lock of this file.
    #[must_use]
    pub fn is_lock_awaited(&self, file: FileKey) -> bool {
        self.waiting.contains(&file)
    }

    /// A waiter of a former process takes its place.
    pub(crate) fn thaw_waiter(&mut self, key: FileKey, waiter: Waiter) {
        self.waits.add(&waiter.party, key);
        self.files.entry(key).or_default().waiters.push(waiter);
        self.waiting.insert(key);
    }

    /// The client that waits, if its lease has run out: it asks for nothing any more, and its turn would only keep others
    /// waiting.
    fn who_is_away(&self, waiter: &Waiter, now: Instant) -> Option<ClientId> {
        let Party::Nfs4 { client, .. } = waiter.party else { return None };
        // To ask is a sign of life.
        let may_be_away = now.ms_since(waiter.asked_at) > self.config.lease_ms;
        (may_be_away && self.is_lapsed(client, now)).then_some(client)
    }

    /// Something of a file was freed, `freed` when only that much: lets in, in order, every waiter whose range is free
    /// of locks and not wanted by one before it.
    pub(crate) fn wake_waiters(&mut self, key: FileKey, freed: Option<ByteRange>, now: Instant) {
        if !self.waiting.contains(&key) {
            return;
        }
        // Where somebody gave up, those behind may be let in anywhere.
        let gave_up = self.pass_by_in(key, now);
        let freed = freed.filter(|_| !gave_up);
        let mut is_more = self.wake_once(key, freed, now);
        while is_more {
            is_more = self.wake_once(key, None, now);
        }
    }

    /// One pass along the line. Whether somebody was given a lock: others of its own may be had beside it now.
    fn wake_once(&mut self, key: FileKey, freed: Option<ByteRange>, now: Instant) -> bool {
        let due = self.due_waiters(key, freed);
        self.let_in(key, &due, now)
    }

    /// The places in line of those who can be let in.
    pub(crate) fn due_waiters(&self, key: FileKey, freed: Option<ByteRange>) -> Vec<usize> {
        let Some(file) = self.files.get(&key) else { return Vec::new() };
        // One pass: a long line for one range costs one look at the locks, not one for each who waits.
        let mut claimed: RangeMap<LockKind> = RangeMap::default();
        for waiter in file.waiters.iter().filter(|waiter| waiter.kept_until.is_some()) {
            claim(&mut claimed, waiter.range, waiter.kind);
        }
        let mut due = Vec::new();
        for (at, waiter) in file.waiters.iter().enumerate() {
            if waiter.manner == Manner::Polls || waiter.kept_until.is_some() {
                continue;
            }
            let (range, kind) = (waiter.range, waiter.kind);
            let may_be_free = freed.is_none_or(|freed| freed.overlaps(range));
            let is_first = || claimed.overlapping(range).all(|(_, before)| !before.conflicts(kind));
            if may_be_free && is_first() && self.can_be_let_in(key, file, waiter) {
                due.push(at);
            }
            claim(&mut claimed, range, kind);
        }
        due
    }

    fn can_be_let_in(&self, key: FileKey, file: &File, waiter: &Waiter) -> bool {
        let holder = self.holder_of(&waiter.party, key);
        if file.locks.conflict(holder, waiter.range, waiter.kind).is_some() {
            return false;
        }
        match &waiter.party {
            Party::Nfs4 { .. } => !file.is_held_outside(waiter.range, waiter.kind),
            Party::Foreign(owner) => {
                !self.foreign_busy.contains_key(&(*owner, key))
                    && !self.is_contended(key, crate::foreign::deed(waiter.kind), None)
            }
        }
    }

    /// Notifies waiters, or gives them what they wait for: whether any was given something.
    fn let_in(&mut self, key: FileKey, due: &[usize], now: Instant) -> bool {
        let Some(file) = self.files.get_mut(&key) else { return false };
        let mut given = Vec::new();
        for at in due {
            let Some(waiter) = file.waiters.get_mut(*at) else { continue };
            let (range, kind) = (waiter.range, waiter.kind);
            match &waiter.party {
                Party::Nfs4 { client, owner } => {
                    waiter.kept_until = Some(now.after_ms(LOCK_HANDOFF_MS));
                    let (client, owner) = (*client, owner.clone());
                    self.effects.push(Effect::NotifyLock { client, file: key, owner });
                }
                Party::Foreign(owner) => {
                    self.effects.push(Effect::ForeignGranted { owner: *owner, file: key, range, kind });
                    given.push((*owner, range, kind));
                }
            }
        }
        for (owner, range, kind) in &given {
            self.change_locks(key, Holder::Foreign(*owner), |locks| {
                locks.set(Holder::Foreign(*owner), *range, *kind);
            });
            let party = &Party::Foreign(*owner);
            self.retain_waiters(key, |waiter| !waiter.is_same(party, *range, *kind));
        }
        !given.is_empty()
    }

    /// Passes by waiters that were notified and did not come, or gave up.
    pub(crate) fn pass_by_waiters(&mut self, now: Instant) {
        let lease_ms = self.config.lease_ms;
        let is_over =
            |waiter: &Waiter| waiter.is_over(lease_ms, now) || self.who_is_away(waiter, now).is_some();
        let has_over = |file: &File| file.waiters.iter().any(is_over);
        let files = self.waiting.iter().filter(|key| self.files.get(key).is_some_and(has_over));
        for key in files.copied().collect::<Vec<_>>() {
            self.wake_waiters(key, None, now);
        }
    }

    /// The same in one file's line, where nobody is let in. Whether anybody went.
    fn pass_by_in(&mut self, key: FileKey, now: Instant) -> bool {
        let waiters = self.files.get(&key).map(|file| file.waiters.as_slice()).unwrap_or_default();
        let mut away: Vec<_> = waiters.iter().filter_map(|waiter| self.who_is_away(waiter, now)).collect();
        away.sort_unstable();
        let is_of_one = |party: &Party| match party {
            Party::Nfs4 { client, .. } => away.binary_search(client).is_ok(),
            Party::Foreign(_) => false,
        };
        let lease_ms = self.config.lease_ms;
        self.retain_waiters(key, |waiter| !waiter.is_over(lease_ms, now) && !is_of_one(&waiter.party))
    }

    /// A wait of an NFSv4 owner is over, by a lock that covers what it waited for or because it gives up: those behind
    /// it are let in if they can be.
    pub(crate) fn forget_waiter(&mut self, file: FileKey, party: &Party, range: ByteRange, now: Instant) {
        if !self.waiting.contains(&file) {
            return;
        }
        let is_over = |waiter: &Waiter| waiter.party == *party && range.contains(waiter.range);
        if self.retain_waiters(file, |waiter| !is_over(waiter)) {
            self.wake_waiters(file, None, now);
        }
    }

    /// The client is gone.
    pub(crate) fn forget_waiters_of(&mut self, client: ClientId, now: Instant) {
        for key in self.waits.of_client(client) {
            self.retain_waiters(
                key,
                |waiter| !matches!(&waiter.party, Party::Nfs4 { client: c, .. } if *c == client),
            );
            self.wake_waiters(key, None, now);
        }
    }

    /// Keeps some of those who wait. Whether anybody went.
    pub(crate) fn retain_waiters(&mut self, key: FileKey, keep: impl Fn(&Waiter) -> bool) -> bool {
        let Some(file) = self.files.get_mut(&key) else { return false };
        let mut has_gone = false;
        for waiter in file.waiters.iter().filter(|waiter| !keep(waiter)) {
            self.waits.remove(&waiter.party, key);
            has_gone = true;
        }
        if !has_gone {
            return false;
        }
        self.leave_file(key, |file| file.waiters.retain(keep));
        if self.files.get(&key).is_none_or(|file| file.waiters.is_empty()) {
            self.waiting.remove(&key);
        }
        true
    }

    /// What a party holds locks of a file as, if it can hold any.
    pub(crate) fn holder_of(&self, party: &Party, file: FileKey) -> Option<Holder> {
        match party {
            Party::Foreign(owner) => Some(Holder::Foreign(*owner)),
            Party::Nfs4 { client, owner } => {
                let owner = self.find_owner(*client, OwnerKind::Lock, owner.as_bytes())?;
                self.by_owner_file.get(&(owner, file)).copied().map(Holder::State)
            }
        }
    }
}
