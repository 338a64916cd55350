//! No two conflicting grants at once: opens with their denials, byte-range locks, delegations.
//!
//! A client believes in a grant from the moment it hears of it until it sends word that it gives it back, hears that
//! it is gone, or has not heard from the server for a lease, by its own clock: counted from when it *sent* the last
//! request that renewed the lease. After it learnt of a restart nothing renews a grant that is not reclaimed yet.

use std::collections::BTreeMap;

use super::Verdict;
use crate::life::LEASE_MS;

/// Names a grant.
pub type GrantId = u64;

/// Owner of delegations, and of what their holder opens by right of one before he gives it back.
pub const HOLDER: u64 = u64::MAX;

/// What is granted on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An open: access and denial, as bits 1 (read) and 2 (write).
    Open {
        /// What is allowed.
        access: u32,
        /// What is denied to others.
        deny: u32,
    },
    /// A byte-range lock, both ends included.
    Lock {
        /// First byte.
        first: u64,
        /// Last byte.
        last: u64,
        /// Whether it is exclusive.
        is_write: bool,
    },
    /// A delegation.
    Delegation {
        /// Whether it is one for writing.
        is_write: bool,
    },
    /// A delegation of the directory that one client changes.
    Directory {
        /// That client.
        of: usize,
    },
    /// The same, with notifications: its holder is told of changed entries, and keeps nobody from changing them.
    Notified {
        /// That client.
        of: usize,
    },
}

/// A grant as its client knows it.
#[derive(Clone, Debug)]
struct Grant {
    client: usize,
    /// Who it is within the client: grants of one owner do not conflict.
    owner: u64,
    file: usize,
    what: What,
    /// When its client heard of it.
    begun: u64,
    /// Renewals count only up to here.
    cap: u64,
    /// Somebody else was given what conflicts with it after it lapsed.
    is_stolen: bool,
}

/// All that clients believe they hold.
#[derive(Default)]
pub struct Grants {
    last: GrantId,
    grants: BTreeMap<GrantId, Grant>,
    /// Until when each client's lease runs, by its own clock.
    leases: BTreeMap<usize, u64>,
    /// Delegations by their stateids, and until when one that was recalled is believed in.
    delegations: BTreeMap<[u8; 12], GrantId>,
    recalled: BTreeMap<[u8; 12], u64>,
    /// When each of the server's lives ended.
    deaths: Vec<u64>,
}

fn conflict(a: &Grant, b: &Grant) -> bool {
    if a.file != b.file || (a.client == b.client && a.owner == b.owner) {
        return false;
    }
    match (a.what, b.what) {
        (What::Open { access: a1, deny: d1 }, What::Open { access: a2, deny: d2 }) => {
            a1 & d2 != 0 || a2 & d1 != 0
        }
        (
            What::Lock { first: f1, last: l1, is_write: w1 },
            What::Lock { first: f2, last: l2, is_write: w2 },
        ) => f1 <= l2 && f2 <= l1 && (w1 || w2),
        (What::Delegation { is_write }, What::Delegation { is_write: other }) => {
            a.client != b.client && (is_write || other)
        }
        (What::Delegation { is_write }, What::Open { access, .. })
        | (What::Open { access, .. }, What::Delegation { is_write }) => {
            a.client != b.client && (is_write || access & 2 != 0)
        }
        // Its holder opens the file and locks it by itself.
        (What::Delegation { is_write }, What::Lock { is_write: locks_to_write, .. })
        | (What::Lock { is_write: locks_to_write, .. }, What::Delegation { is_write }) => {
            a.client != b.client && (is_write || locks_to_write)
        }
        // Who locks has the file open, or comes with NFSv3, which shares of opens do not bind.
        (What::Lock { .. }, What::Open { .. }) | (What::Open { .. }, What::Lock { .. }) => false,
        (What::Directory { .. } | What::Notified { .. }, _)
        | (_, What::Directory { .. } | What::Notified { .. }) => false,
    }
}

impl Grants {
    fn until(&self, grant: &Grant) -> u64 {
        self.leases.get(&grant.client).copied().unwrap_or(0).min(grant.cap)
    }

    /// A client hears of a grant.
    ///
    /// # Errors
    /// When it conflicts with what another client believes to hold.
    pub fn begin(
        &mut self,
        now: u64,
        (client, owner): (usize, u64),
        (file, what): (usize, What),
    ) -> Result<GrantId, String> {
        self.begin_until(now, (client, owner), (file, what), None).map(|()| self.last)
    }

    fn begin_until(
        &mut self,
        now: u64,
        (client, owner): (usize, u64),
        (file, what): (usize, What),
        cap: Option<u64>,
    ) -> Verdict {
        self.last += 1;
        let cap = cap.unwrap_or(u64::MAX);
        let grant = Grant { client, owner, file, what, begun: now, cap, is_stolen: false };
        self.grants.insert(self.last, grant);
        self.check(now, self.last)
    }

    /// A client of a protocol without leases hears of a grant: it believes in it until the server dies, and then for as
    /// long as a server holds the locks of clients that may reclaim, a lease. `ended`: how many of the server's lives were over
    /// when the one that granted it was, if it is. Only the grace period after that one keeps what it granted: a GRANTED
    /// that comes after another restart is believed in, but of what may be another's for long, and no server can help it.
    ///
    /// # Errors
    /// Those of [`Grants::begin`].
    pub fn begin_without_lease(
        &mut self,
        now: u64,
        (client, owner): (usize, u64),
        (file, what): (usize, What),
        ended: Option<usize>,
    ) -> Result<GrantId, String> {
        self.leases.insert(client, u64::MAX);
        let death = |ended: usize| self.deaths.get(ended.checked_sub(1)?).copied();
        let cap = ended.map(|ended| death(ended).unwrap_or(0) + LEASE_MS);
        let id = self.last + 1;
        self.begin_until(now, (client, owner), (file, what), cap).map(|()| id)
    }

    /// A client hears of a delegation.
    ///
    /// # Errors
    /// Those of [`Grants::begin`].
    pub fn delegated(
        &mut self,
        now: u64,
        client: usize,
        (file, what): (usize, What),
        stateid: [u8; 12],
    ) -> Result<GrantId, String> {
        let id = self.last + 1;
        self.delegations.insert(stateid, id);
        let begun =
            self.begin_until(now, (client, HOLDER), (file, what), self.recalled.get(&stateid).copied());
        begun.map(|()| id)
    }

    /// The client believes in no delegation any more but in these, nor in one that it is about to give back.
    pub fn end_delegations(&mut self, client: usize, but: &[GrantId]) {
        let is_one = |grant: &Grant| {
            matches!(grant.what, What::Delegation { .. } | What::Directory { .. } | What::Notified { .. })
        };
        self.grants.retain(|id, grant| grant.client != client || but.contains(id) || !is_one(grant));
    }

    /// The client recovers, and believes no more in what it opened by right of a delegation about to be given back: it does
    /// not reclaim that.
    pub fn end_claimed(&mut self, client: usize) {
        let is_claimed = |grant: &Grant| grant.owner == HOLDER && matches!(grant.what, What::Open { .. });
        self.grants.retain(|_, grant| grant.client != client || !is_claimed(grant));
    }

    /// The client cannot hear of a recall, and believes in a delegation no longer; but it may reclaim it.
    pub fn doubted(&mut self, now: u64, id: GrantId) {
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.cap = grant.cap.min(now);
        }
    }

    /// The client was given a delegation back after a restart, under another name.
    ///
    /// # Errors
    /// Those of [`Grants::reclaimed`].
    pub fn delegation_reclaimed(&mut self, now: u64, id: GrantId, stateid: [u8; 12]) -> Verdict {
        self.delegations.insert(stateid, id);
        let cap = self.recalled.get(&stateid).copied();
        self.reclaimed_until(now, id, cap.unwrap_or(u64::MAX))
    }

    /// The server recalls a delegation: it may be revoked, without its holder's doing, not before that moment.
    pub fn recalled(&mut self, stateid: [u8; 12], until: u64) {
        let until = *self.recalled.entry(stateid).or_insert(until);
        if let Some(grant) = self.delegations.get(&stateid).and_then(|id| self.grants.get_mut(id)) {
            grant.cap = grant.cap.min(until);
        }
    }

    /// Whether its client may act on it.
    #[must_use]
    pub fn is_believed(&self, now: u64, id: GrantId) -> bool {
        self.grants.get(&id).is_some_and(|grant| self.until(grant) > now)
    }

    /// Whether this grant, if its client may believe in it, conflicts with what another may believe in.
    fn check(&mut self, now: u64, id: GrantId) -> Verdict {
        let Some(mine) = self.grants.get(&id).cloned() else { return Ok(()) };
        if self.until(&mine) <= now {
            return Ok(());
        }
        let mut stolen = Vec::new();
        for (other_id, other) in &self.grants {
            if *other_id == id || !conflict(&mine, other) {
                continue;
            }
            if self.until(other) > now {
                return Err(format!(
                    "at {now} ms client {} has {:?} on file {} while client {} has {:?} until {}",
                    mine.client,
                    mine.what,
                    mine.file,
                    other.client,
                    other.what,
                    self.until(other)
                ));
            }
            stolen.push(*other_id);
        }
        for id in stolen {
            if let Some(grant) = self.grants.get_mut(&id) {
                grant.is_stolen = true;
            }
        }
        Ok(())
    }

    /// A client hears that its directory's entries were changed, as it asked then.
    ///
    /// # Errors
    /// When another believed all the while that nobody would.
    pub fn entries_changed(&self, now: u64, by: usize, sent: u64) -> Verdict {
        let is_of = |grant: &&Grant| grant.what == What::Directory { of: by } && grant.client != by;
        let mut holders = self.grants.values().filter(is_of);
        match holders.find(|grant| grant.begun <= sent && self.until(grant) > now) {
            Some(holder) => Err(format!(
                "a delegated directory was changed: at {now} ms client {by}'s, which client {} holds since {} ms",
                holder.client, holder.begun
            )),
            None => Ok(()),
        }
    }

    /// The server died: nobody reclaims delegations of directories (RFC 8881 section 10.9.5), and who has no lease may
    /// count on the next grace period alone until it has reclaimed.
    pub fn server_died(&mut self, now: u64) {
        self.deaths.push(now);
        self.grants.retain(|_, grant| !matches!(grant.what, What::Directory { .. } | What::Notified { .. }));
        let leases = &self.leases;
        let without = |grant: &&mut Grant| leases.get(&grant.client) == Some(&u64::MAX);
        self.grants.values_mut().filter(without).for_each(|grant| grant.cap = grant.cap.min(now + LEASE_MS));
    }

    /// The client gives it back (told when that is sent), or heard that it is gone.
    pub fn end(&mut self, id: GrantId) {
        self.grants.remove(&id);
    }

    /// A request sent then was answered, and renewed the lease.
    ///
    /// # Errors
    /// When a grant that had lapsed is believed in again, and another has what conflicts with it.
    pub fn renewed(&mut self, now: u64, client: usize, until: u64) -> Verdict {
        let lease = self.leases.entry(client).or_default();
        let had_lapsed = *lease <= now;
        *lease = (*lease).max(until);
        if !had_lapsed {
            return Ok(());
        }
        let own: Vec<_> = self.grants.iter().filter(|(_, g)| g.client == client).map(|(id, _)| *id).collect();
        own.into_iter().try_for_each(|id| self.check(now, id))
    }

    /// The client learnt of a restart: what it holds is in doubt until it is reclaimed.
    pub fn in_doubt(&mut self, client: usize) {
        let until = self.leases.get(&client).copied().unwrap_or(0);
        for grant in self.grants.values_mut().filter(|grant| grant.client == client) {
            grant.cap = grant.cap.min(until);
        }
    }

    /// The client was given it back after a restart.
    ///
    /// # Errors
    /// When another has had what conflicts with it since, or has it now.
    pub fn reclaimed(&mut self, now: u64, id: GrantId) -> Verdict {
        self.reclaimed_until(now, id, u64::MAX)
    }

    fn reclaimed_until(&mut self, now: u64, id: GrantId, cap: u64) -> Verdict {
        let Some(grant) = self.grants.get_mut(&id) else { return Ok(()) };
        if grant.is_stolen {
            // An answer that was longer on its way than the lease is of when nobody had it yet. It is not believed.
            if self.leases.get(&grant.client).is_some_and(|until| *until <= now) {
                return Ok(());
            }
            return Err(format!(
                "at {now} ms client {} reclaimed {:?} on file {}, which another has had since",
                grant.client, grant.what, grant.file
            ));
        }
        grant.cap = cap;
        self.check(now, id)
    }

    /// The server says that it knows nothing of a grant.
    ///
    /// # Errors
    /// When its client has kept its lease.
    pub fn denied(&self, now: u64, id: GrantId) -> Verdict {
        match self.grants.get(&id) {
            Some(grant) if self.until(grant) > now => Err(format!(
                "at {now} ms client {} is denied {:?} on file {}, though its lease runs until {}",
                grant.client,
                grant.what,
                grant.file,
                self.until(grant)
            )),
            _ => Ok(()),
        }
    }

    /// A client hears that the server knows nothing of it, or has restarted, though this server has lived since the client
    /// last came to terms with it.
    ///
    /// # Errors
    /// When the client has kept its lease.
    pub fn not_known(&self, now: u64, client: usize, what: &str) -> Verdict {
        let until = self.leases.get(&client).copied().unwrap_or(0);
        if until <= now {
            return Ok(());
        }
        Err(format!(
            "at {now} ms client {client} hears {what} of a server that lives on, with its lease until {until}"
        ))
    }

    /// The client is gone, and believes nothing any more.
    pub fn client_gone(&mut self, client: usize) {
        self.grants.retain(|_, grant| grant.client != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSIVE: What = What::Lock { first: 0, last: 9, is_write: true };

    fn two() -> Grants {
        let mut grants = Grants::default();
        grants.renewed(0, 1, 100).unwrap();
        grants.renewed(0, 2, 100).unwrap();
        grants
    }

    #[test]
    fn two_clients_with_one_lock_are_noticed() {
        let mut grants = two();
        grants.begin(1, (1, 1), (0, EXCLUSIVE)).unwrap();
        assert!(grants.begin(2, (2, 1), (0, EXCLUSIVE)).is_err());
    }

    #[test]
    fn what_was_given_back_or_has_lapsed_does_not_conflict() {
        let mut grants = two();
        let first = grants.begin(1, (1, 1), (0, EXCLUSIVE)).unwrap();
        grants.end(first);
        grants.begin(2, (2, 1), (0, EXCLUSIVE)).unwrap();
        grants.renewed(90, 1, 200).unwrap();
        grants.begin(100, (1, 1), (0, EXCLUSIVE)).unwrap();
        assert!(grants.renewed(150, 2, 300).is_err(), "the second is told that it still has it");
    }

    #[test]
    fn denials_ranges_and_delegations_conflict_as_the_protocol_has_it() {
        let open = |access, deny| What::Open { access, deny };
        let range = |first, last, is_write| What::Lock { first, last, is_write };
        let delegation = |is_write| What::Delegation { is_write };
        let cases = [
            (open(1, 0), open(3, 0), false),
            (open(1, 2), open(3, 0), true),
            (range(0, 4, true), range(5, 9, true), false),
            (range(0, 5, false), range(5, 9, true), true),
            (range(0, 5, false), range(5, 9, false), false),
            (delegation(false), open(1, 0), false),
            (delegation(false), open(2, 0), true),
            (delegation(true), open(1, 0), true),
            (delegation(false), delegation(true), true),
            (delegation(false), range(0, 5, false), false),
            (delegation(false), range(0, 5, true), true),
            (delegation(true), range(0, 5, false), true),
            (open(3, 3), range(0, 5, true), false),
        ];
        for (a, b, conflicts) in cases {
            let mut grants = two();
            grants.begin(1, (1, 1), (0, a)).unwrap();
            assert_eq!(grants.begin(2, (2, 1), (0, b)).is_err(), conflicts, "{a:?} and {b:?}");
        }
    }

    #[test]
    fn a_directory_that_changes_under_a_delegation_is_noticed() {
        let mut grants = two();
        let of = grants.begin(10, (1, 1), (9, What::Directory { of: 2 })).unwrap();
        assert!(grants.entries_changed(12, 2, 5).is_ok(), "it may have been changed before");
        assert!(grants.entries_changed(12, 3, 11).is_ok(), "another directory");
        assert!(grants.entries_changed(12, 2, 11).is_err());
        assert!(grants.entries_changed(101, 2, 11).is_ok(), "the lease has run out");
        grants.end(of);
        assert!(grants.entries_changed(12, 2, 11).is_ok());
    }

    #[test]
    fn a_delegation_in_doubt_counts_again_once_it_is_reclaimed_and_until_it_is_recalled() {
        let what = (0, What::Delegation { is_write: true });
        let write = What::Open { access: 2, deny: 0 };
        let mut grants = two();
        let held = grants.delegated(1, 1, what, [1; 12]).unwrap();
        grants.doubted(5, held);
        assert!(!grants.is_believed(6, held));
        grants.recalled([2; 12], 50);
        grants.delegation_reclaimed(10, held, [2; 12]).unwrap();
        assert!(grants.is_believed(49, held), "a recall that came before the reply counts");
        assert!(!grants.is_believed(50, held));
        assert!(grants.begin(49, (2, 1), (0, write)).is_err());

        let mut grants = two();
        let held = grants.delegated(1, 1, what, [1; 12]).unwrap();
        grants.doubted(5, held);
        grants.begin(6, (2, 1), (0, write)).unwrap();
        assert!(grants.delegation_reclaimed(10, held, [2; 12]).is_err(), "another has had the file since");
    }

    #[test]
    fn what_was_opened_by_a_delegation_counts_until_its_client_recovers() {
        let (read, alone) = (What::Open { access: 1, deny: 0 }, What::Open { access: 1, deny: 3 });
        let mut grants = two();
        let held = grants.delegated(1, 1, (0, What::Delegation { is_write: false }), [1; 12]).unwrap();
        grants.begin(2, (1, HOLDER), (0, read)).unwrap();
        grants.begin(2, (1, 7), (1, read)).unwrap();
        grants.end_claimed(2);
        assert!(grants.begin(3, (1, 7), (0, alone)).is_err());
        grants.end_claimed(1);
        grants.begin(4, (1, 7), (0, alone)).unwrap();
        assert!(grants.is_believed(5, held), "the delegation is reclaimed");
        assert!(grants.begin(5, (2, 7), (1, alone)).is_err(), "and so is what else is open");
    }

    #[test]
    fn without_a_lease_a_lock_counts_until_a_grace_period_after_the_servers_death() {
        for waits in [LEASE_MS - 1, LEASE_MS] {
            let mut grants = two();
            grants.renewed(0, 2, u64::MAX - 1).unwrap();
            grants.begin_without_lease(1, (1, 1), (0, EXCLUSIVE), None).unwrap();
            grants.server_died(1_000_000);
            let second = grants.begin(1_000_000 + waits, (2, 1), (0, EXCLUSIVE));
            assert_eq!(second.is_ok(), waits == LEASE_MS, "{second:?}");
        }
    }

    #[test]
    fn what_a_life_granted_counts_no_longer_for_the_death_of_a_later_one() {
        let mut grants = two();
        grants.renewed(0, 2, u64::MAX - 1).unwrap();
        grants.server_died(1_000_000);
        grants.server_died(1_000_000 + LEASE_MS);
        grants.begin(1_000_000 + LEASE_MS, (2, 1), (0, EXCLUSIVE)).unwrap();
        let late = |grants: &mut Grants, ended| {
            grants.begin_without_lease(1_000_001 + LEASE_MS, (1, 1), (0, EXCLUSIVE), Some(ended))
        };
        assert!(late(&mut grants, 1).is_ok());
        assert!(late(&mut grants, 2).is_err());
    }

    #[test]
    fn what_another_had_since_is_not_reclaimed() {
        let mut grants = two();
        let first = grants.begin(1, (1, 1), (0, EXCLUSIVE)).unwrap();
        grants.in_doubt(1);
        grants.renewed(99, 1, 300).unwrap();
        grants.renewed(99, 2, 300).unwrap();
        let second = grants.begin(150, (2, 1), (0, EXCLUSIVE)).unwrap();
        grants.end(second);
        assert!(grants.reclaimed(160, first).is_err());
        assert!(grants.reclaimed(300, first).is_ok(), "an answer from before the lease ran out");
        grants.renewed(301, 1, 500).unwrap();
        assert!(!grants.is_believed(301, first));
    }
}
