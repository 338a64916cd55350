//! Those who wait for locks, in order. A waiter is notified when its range is free, has it kept for a moment, and
//! asks again (RFC 8881 sections 9.6 and 20.11); nothing is granted here.

use holdfast_base::limits::{LOCK_HANDOFF_MS, LOCK_WAITERS_PER_FILE_MAX};
use holdfast_base::{ByteRange, ClientId, FileKey, Instant};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::file::{File, Holder};
use crate::lock::{Conflict, ConflictHolder, LockRequest, Locker, WantedLock};
use crate::lock_set::LockKind;
use crate::names::OwnerName;
use crate::owner::OwnerKind;

/// A lock asked for and denied.
#[derive(Debug)]
pub(crate) struct Waiter {
    // Constant.
    client: ClientId,
    owner: OwnerName,
    range: ByteRange,
    kind: LockKind,
    // Changing.
    asked_at: Instant,
    /// Until when the range is kept for it, once it was notified.
    kept_until: Option<Instant>,
}

impl Waiter {
    fn is(&self, client: ClientId, owner: &[u8]) -> bool {
        self.client == client && self.owner.as_bytes() == owner
    }

    /// Whether it had its chance, or has not asked for a lease.
    fn is_over(&self, lease_ms: u64, now: Instant) -> bool {
        self.kept_until.is_some_and(|end| end <= now) || now.ms_since(self.asked_at) > lease_ms
    }

    fn is_in_way(&self, range: ByteRange, kind: LockKind) -> bool {
        self.range.overlaps(range) && self.kind.conflicts(kind)
    }
}

impl File {
    /// The waiter, other than who asks, for whom this range is kept at the moment.
    pub(crate) fn reserved_for_waiter(&self, wanted: &WantedLock<'_>, now: Instant) -> Option<Conflict> {
        let is_other =
            |waiter: &&Waiter| wanted.asking.is_none_or(|(client, owner)| !waiter.is(client, owner));
        let is_kept = |waiter: &&Waiter| waiter.kept_until.is_some_and(|end| now < end);
        let mut in_way = self.waiters.iter().filter(is_other).filter(is_kept);
        let waiter = in_way.find(|waiter| waiter.is_in_way(wanted.range, wanted.kind))?;
        let holder = ConflictHolder::Nfs4 { client: waiter.client, owner: waiter.owner.clone() };
        Some(Conflict { holder, range: waiter.range, kind: waiter.kind })
    }
}

impl Engine {
    /// Puts a denied request in line, or notes that it was asked again. When the line is full the client polls.
    pub(crate) fn enqueue_waiter(&mut self, party: &Locker, request: &LockRequest<'_>, now: Instant) {
        let file = self.files.entry(request.file).or_default();
        let known = file.waiters.iter_mut().find(|waiter| waiter.is(party.client, party.owner.as_bytes()));
        if let Some(waiter) = known {
            // An owner (a process) waits for one lock of a file at a time; the place in line stays.
            waiter.range = request.range;
            waiter.kind = request.kind;
            waiter.asked_at = now;
            waiter.kept_until = None;
        } else if file.waiters.len() < LOCK_WAITERS_PER_FILE_MAX {
            file.waiters.push(Waiter {
                client: party.client,
                owner: party.owner.clone(),
                range: request.range,
                kind: request.kind,
                asked_at: now,
                kept_until: None,
            });
        }
        self.waiting.insert(request.file);
    }

    /// Something of a file was freed: notifies, in order, every waiter whose range is free of locks and not wanted
    /// by one before it.
    pub(crate) fn wake_waiters(&mut self, key: FileKey, now: Instant) {
        if !self.waiting.contains(&key) {
            return;
        }
        let lease_ms = self.config.lease_ms;
        self.retain_waiters(key, |waiter| !waiter.is_over(lease_ms, now));
        let Some(file) = self.files.get(&key) else { return };
        let mut due = Vec::new();
        for (at, waiter) in file.waiters.iter().enumerate() {
            let is_locked =
                file.locks.conflict(self.holder_of(waiter, key), waiter.range, waiter.kind).is_some();
            let is_first = !file.waiters[..at].iter().any(|other| other.is_in_way(waiter.range, waiter.kind));
            if !is_locked && is_first && waiter.kept_until.is_none() {
                due.push((at, waiter.client, waiter.owner.clone()));
            }
        }
        for (at, client, owner) in due {
            self.effects.push(Effect::NotifyLock { client, file: key, owner });
            if let Some(waiter) = self.files.get_mut(&key).and_then(|file| file.waiters.get_mut(at)) {
                waiter.kept_until = Some(now.after_ms(LOCK_HANDOFF_MS));
            }
        }
    }

    /// Passes by waiters that were notified and did not come, or gave up.
    pub(crate) fn pass_by_waiters(&mut self, now: Instant) {
        let lease_ms = self.config.lease_ms;
        let has_over = |file: &File| file.waiters.iter().any(|waiter| waiter.is_over(lease_ms, now));
        let files = self.waiting.iter().filter(|key| self.files.get(key).is_some_and(has_over));
        for key in files.copied().collect::<Vec<_>>() {
            self.wake_waiters(key, now);
        }
    }

    /// The request was granted or given up.
    pub(crate) fn forget_waiter(&mut self, file: FileKey, client: ClientId, owner: &[u8]) {
        if self.waiting.contains(&file) {
            self.retain_waiters(file, |waiter| !waiter.is(client, owner));
        }
    }

    /// The client is gone. Those behind it are let in when its locks go, or at the next tick.
    pub(crate) fn forget_waiters_of(&mut self, client: ClientId, now: Instant) {
        let has = |file: &File| file.waiters.iter().any(|waiter| waiter.client == client);
        let files = self.waiting.iter().filter(|key| self.files.get(key).is_some_and(has));
        for key in files.copied().collect::<Vec<_>>() {
            self.retain_waiters(key, |waiter| waiter.client != client);
            self.wake_waiters(key, now);
        }
    }

    fn retain_waiters(&mut self, key: FileKey, keep: impl Fn(&Waiter) -> bool) {
        self.leave_file(key, |file| file.waiters.retain(keep));
        if self.files.get(&key).is_none_or(|file| file.waiters.is_empty()) {
            self.waiting.remove(&key);
        }
    }

    fn holder_of(&self, waiter: &Waiter, file: FileKey) -> Option<Holder> {
        let owner = self.find_owner(waiter.client, OwnerKind::Lock, waiter.owner.as_bytes())?;
        self.by_owner_file.get(&(owner, file)).copied().map(Holder::State)
    }
}
