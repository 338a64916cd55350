//! The reference's delegations.

use std::collections::BTreeSet;

use holdfast_base::Instant;
use holdfast_base::limits::RECENT_RECALL_MS;
use holdfast_state::{Access, Deed, DelegationKind, EntryKinds, LockKind, Share};

use super::{FIRST_40, Model, Open};

/// Whether callbacks reach a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Callbacks {
    #[default]
    Arrive,
    /// Nobody has tried; of one of 4.1 its session tells.
    Untried,
    Fail,
}

/// A delegation granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delegation {
    pub(crate) client: usize,
    pub(crate) file: usize,
    pub(crate) kind: DelegationKind,
    /// When it will be revoked, and the latest that flushing can put that off to.
    pub(crate) recalled: Option<(Instant, Instant)>,
}

/// What a holder may be told of.
pub(crate) const KINDS: [EntryKinds; 3] = [EntryKinds::ADD, EntryKinds::REMOVE, EntryKinds::RENAME];

const fn changes_entries(deed: Deed) -> bool {
    matches!(deed, Deed::ChangeEntries(_))
}

/// What is excluded, in a table of its own.
pub(crate) fn excludes(kind: DelegationKind, deed: Deed) -> bool {
    let writes = [Deed::WriteData, Deed::Truncate, Deed::OpenWrite];
    let all = [Deed::ChangeAttrs, Deed::ChangeName];
    match kind {
        DelegationKind::Read => writes.contains(&deed) || all.contains(&deed),
        DelegationKind::Write => !changes_entries(deed),
        DelegationKind::NotifiedDirectory(told) => {
            let kinds = KINDS.into_iter().filter(|kind| told.contains(*kind));
            let is_told = kinds.map(Deed::ChangeEntries).any(|told| told == deed);
            changes_entries(deed) && !is_told || all.contains(&deed)
        }
        DelegationKind::Directory => changes_entries(deed) || all.contains(&deed),
    }
}

pub(crate) fn deed_of_share(share: Share) -> Deed {
    let is_read = share.access == Access::READ && share.deny == Access::NONE;
    if is_read { Deed::OpenRead } else { Deed::OpenWrite }
}

pub(crate) fn deed_of_lock(kind: LockKind) -> Deed {
    if kind == LockKind::Read { Deed::OpenRead } else { Deed::OpenWrite }
}

impl Model {
    pub(crate) fn delegation(&self, client: usize, file: usize) -> Option<Delegation> {
        self.delegations.iter().find(|d| (d.client, d.file) == (client, file)).copied()
    }

    /// Whether a client may have a delegation now.
    pub(crate) fn can_delegate(
        &self,
        client: usize,
        file: usize,
        kind: DelegationKind,
        now: Instant,
    ) -> bool {
        let own_is_fit = match self.delegation(client, file) {
            None => true,
            Some(own) => {
                own.recalled.is_none() && (own.kind, kind) == (DelegationKind::Read, DelegationKind::Write)
            }
        };
        let others = self.delegations.iter().filter(|d| d.file == file && d.client != client);
        let mut others = others.map(|d| d.kind);
        let is_recent = self.recent[file].is_some_and(|at| now.ms_since(at) < RECENT_RECALL_MS);
        // Owners of one client may be mounts of its that know nothing of each other.
        let own = self.opens.iter().filter(|open| (open.client, open.file) == (client, file));
        let is_one = own.map(|open| open.owner).collect::<BTreeSet<_>>().len() <= 1;
        let is_in_way = |open: &&Open| open.file == file && (open.client != client || !is_one);
        let opens = self.opens.iter().filter(is_in_way);
        let mut deeds = opens.map(|open| deed_of_share(open.share));
        let locks = self.locks.iter().filter(|lock| lock.file == file && lock.client != client);
        let mut lock_deeds = locks.map(|lock| deed_of_lock(lock.kind));
        let alone = |other: DelegationKind| kind == DelegationKind::Write || other == DelegationKind::Write;
        own_is_fit
            && !is_recent
            && self.callbacks[client] == Callbacks::Arrive
            && !self.revoked.iter().any(|(loser, _)| *loser == client)
            && !others.any(|other| !other.is_directory() && alone(other))
            && !deeds.any(|deed| excludes(kind, deed))
            && !lock_deeds.any(|deed| excludes(kind, deed))
            && !self.is_awaited(file)
    }

    /// Grants one, in place of a lesser; to be given back at once by who cannot be called back.
    pub(crate) fn delegate(&mut self, client: usize, file: usize, kind: DelegationKind) {
        self.delegations.retain(|d| (d.client, d.file) != (client, file));
        let times = (self.now.after_ms(self.lease_ms), self.now.after_ms(3 * self.lease_ms));
        let recalled = (self.callbacks[client] == Callbacks::Fail).then_some(times);
        self.delegations.push(Delegation { client, file, kind, recalled });
    }

    /// A deed: whether it has to wait.
    pub(crate) fn contend(&mut self, file: usize, deed: Deed, by: Option<usize>, now: Instant) -> bool {
        let in_way = |d: &&Delegation| d.file == file && Some(d.client) != by && excludes(d.kind, deed);
        let all: Vec<_> = self.delegations.iter().filter(in_way).copied().collect();
        let (away, here): (Vec<_>, Vec<_>) = all.into_iter().partition(|d| self.is_away(d.client, now));
        for delegation in &here {
            if delegation.recalled.is_some_and(|(until, _)| until <= now) {
                self.revoke(*delegation, now);
            }
        }
        let (mut waits, lease_ms) = (false, self.lease_ms);
        for d in &mut self.delegations {
            let is_here = here.iter().any(|of| (of.client, of.file) == (d.client, d.file));
            if is_here && excludes(d.kind, deed) {
                waits = true;
                if d.recalled.is_none() {
                    d.recalled = Some((now.after_ms(lease_ms), now.after_ms(3 * lease_ms)));
                    self.recent[file] = Some(now);
                }
            }
        }
        if !waits {
            let away: BTreeSet<_> = away.into_iter().map(|d| d.client).collect();
            self.expire(away.into_iter().collect());
        }
        waits
    }

    /// A planned restart: nobody is told of entries any more, and where one of 4.0 could not be called back is tried again.
    pub(crate) fn restart_as_planned(&mut self) {
        for callbacks in self.callbacks[FIRST_40..].iter_mut().filter(|of| **of == Callbacks::Fail) {
            *callbacks = Callbacks::Untried;
        }
        for delegation in self.delegations.iter_mut().filter(|d| d.kind.is_directory()) {
            delegation.kind = DelegationKind::Directory;
        }
    }

    pub(crate) fn revoke(&mut self, delegation: Delegation, now: Instant) {
        self.recent[delegation.file] = Some(now);
        self.delegations.retain(|d| *d != delegation);
        self.revoked.push((delegation.client, delegation.file));
        self.newly_revoked.push((delegation.client, delegation.file));
        self.let_in();
    }

    /// What time does to recalls.
    pub(crate) fn revoke_overdue(&mut self, now: Instant) {
        let is_overdue = |d: &&Delegation| d.recalled.is_some_and(|(until, _)| until <= now);
        for delegation in self.delegations.iter().filter(is_overdue).copied().collect::<Vec<_>>() {
            self.revoke(delegation, now);
        }
    }

    pub(crate) fn flush(&mut self, client: usize, file: usize, now: Instant) {
        for d in self.delegations.iter_mut().filter(|d| (d.client, d.file) == (client, file)) {
            if let Some((until, bound)) = &mut d.recalled {
                *until = (*until).max(now.after_ms(self.lease_ms).min(*bound));
            }
        }
    }
}
