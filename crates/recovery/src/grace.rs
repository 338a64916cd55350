//! The grace machine: who may reclaim after a restart, and when new locks may be granted again (RFC 8881 sections
//! 8.4.2.1 and 8.4.3). Pure: it is told what happens, and returns what is to be stored.
//!
//! Two rules exclude that a lock is reclaimed which another has held meanwhile:
//!
//! * only a client whose record was entitled when the server started may reclaim ([`ClientRecord::may_reclaim`]); a
//!   record loses that before state of its client is given to another;
//! * grace ends only when those who did not finish reclaiming have lost it on stable storage: until
//!   [`Grace::stored`] is called, nothing new is granted.
//!
//! A server that starts again before its grace is over has granted nothing new, so the records stand, and everybody
//! may reclaim again.

use std::collections::BTreeMap;

use holdfast_base::Instant;
use holdfast_base::limits::GRACE_STRETCH_MS;

use crate::records::{ClientName, ClientRecord, RecordChange};
use crate::unfinished::Unfinished;

/// How far a member of the grace period has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Not heard of since the start.
    Silent,
    /// Back, and has reclaimed nothing yet.
    Back,
    /// Has reclaimed something; perhaps not all.
    Reclaiming,
    /// Has said RECLAIM_COMPLETE.
    Complete,
}

#[derive(Clone, Debug)]
struct Member {
    record: ClientRecord,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Reclaims are taken, nothing new is granted.
    Open,
    /// Neither: marks are on their way to stable storage.
    Closing,
    /// No reclaims; new locks are granted.
    Over,
}

/// How grace comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// When its time is over, or nobody is left to wait for.
    InTime,
    /// Before, by an administrator's word.
    Early,
}

/// The answer to a reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// It may be granted.
    Granted,
    /// Grace is over. NFS4ERR_NO_GRACE.
    Over,
    /// Nothing is recorded that this client, in this incarnation and as this principal, could reclaim, or others may
    /// have had it. NFS4ERR_NO_GRACE; NFS4ERR_RECLAIM_BAD says that a 4.0 client should not try the rest.
    NotEntitled,
    /// It has said RECLAIM_COMPLETE already. NFS4ERR_NO_GRACE (RFC 8881 section 18.51.3).
    AlreadyComplete,
}

/// What is to be done after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraceEffect {
    /// Store these, then call [`Grace::stored`].
    Store(Vec<RecordChange>),
    /// Grace is over: let waiting requests try again.
    Ended,
}

/// One start's grace period.
#[derive(Clone, Debug)]
pub struct Grace {
    phase: Phase,
    ends_at: Instant,
    /// Until when reclaims that still come may stretch it.
    latest_end: Instant,
    /// Whether something was reclaimed since the last [`Grace::tick`].
    is_reclaiming: bool,
    /// Whether some hold locks who can never say that they are done.
    has_untold: bool,
    members: BTreeMap<ClientName, Member>,
    /// Those of 4.0 that have reclaimed and may not be done; after grace those that are marked, and may turn out to be.
    unfinished: Unfinished,
}

impl Grace {
    /// Starts grace for the recorded clients: those who may hold something. Who may not reclaim it, as others may have had a
    /// part of it, is waited for too: until it hears of the restart, or its lease is over, it believes to hold the rest, and
    /// uses what it has cached. `length_ms` is at least the lease of the start before
    /// ([`crate::Boot::previous_lease_ms`]). `has_nlm_holders` says whether NLM clients are on record: nothing tells
    /// when they are done.
    ///
    /// With nobody to wait for, grace is over at once. While reclaims come it does not end, up to twice its length
    /// ([`Grace::tick`]).
    #[must_use]
    pub fn start(now: Instant, length_ms: u64, records: &[ClientRecord], has_nlm_holders: bool) -> Self {
        let members: BTreeMap<_, _> = records
            .iter()
            .filter(|r| r.holds_state)
            .map(|r| (r.name.clone(), Member { record: r.clone(), progress: Progress::Silent }))
            .collect();
        let has_untold = has_nlm_holders || members.keys().any(|name| !name.is_sessions);
        let phase = if members.is_empty() && !has_untold { Phase::Over } else { Phase::Open };
        let ends_at = now.after_ms(length_ms);
        let latest_end = ends_at.after_ms(length_ms);
        let unfinished = Unfinished::default();
        Self { phase, ends_at, latest_end, is_reclaiming: false, has_untold, members, unfinished }
    }

    /// No grace: nothing was lost, for the process before handed over all it had. Marks of an earlier grace stand.
    #[must_use]
    pub fn over<'a>(records: impl IntoIterator<Item = &'a ClientRecord>) -> Self {
        let mut unfinished = Unfinished::default();
        let is_marked = |record: &&ClientRecord| !record.name.is_sessions && record.missed_grace;
        records.into_iter().filter(is_marked).for_each(|record| unfinished.reclaims(&record.name));
        Self {
            phase: Phase::Over,
            ends_at: Instant(0),
            latest_end: Instant(0),
            is_reclaiming: false,
            has_untold: false,
            members: BTreeMap::new(),
            unfinished,
        }
    }

    /// Whether new locks may be granted. A 4.1+ client must besides have said RECLAIM_COMPLETE itself, in grace or
    /// not; the state engine sees to that.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// When grace ends if nothing more is reclaimed; `None` when nothing but others' doings ends it, or it is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.phase == Phase::Open).then_some(self.ends_at)
    }

    /// Whether some may reclaim who can never say that they are done: for the status page.
    #[must_use]
    pub const fn has_untold(&self) -> bool {
        self.has_untold
    }

    /// Clients that may reclaim and have not said that they are done: for the status page.
    pub fn awaited(&self) -> impl Iterator<Item = &ClientName> {
        self.unfinished_members().map(|member| &member.record.name)
    }

    /// Whether one of them may have had capabilities.
    #[must_use]
    pub fn awaits_caps(&self) -> bool {
        self.unfinished_members().any(|member| member.record.holds_caps)
    }

    fn unfinished_members(&self) -> impl Iterator<Item = &Member> {
        let open = self.phase == Phase::Open;
        self.members.values().filter(move |m| open && m.progress != Progress::Complete)
    }

    /// A client asks to reclaim a lock, an open or a delegation.
    pub fn reclaim(&mut self, name: &ClientName, principal: &[u8]) -> Reclaim {
        if self.phase != Phase::Open {
            self.unfinished.tries(name);
            return Reclaim::Over;
        }
        match self.members.get_mut(name) {
            Some(member) if !member.record.may_reclaim() => Reclaim::NotEntitled,
            Some(member) if member.record.principal != principal => Reclaim::NotEntitled,
            Some(member) if member.progress == Progress::Complete => Reclaim::AlreadyComplete,
            Some(member) => {
                member.progress = Progress::Reclaiming;
                self.is_reclaiming = true;
                if !name.is_sessions {
                    self.unfinished.reclaims(name);
                }
                Reclaim::Granted
            }
            None => Reclaim::NotEntitled,
        }
    }

    /// A client is heard of again: it confirmed a client id, made a session, or used a persistent one. Under another
    /// verifier it has restarted itself and has nothing to reclaim (RFC 8881 section 8.4.1).
    #[must_use]
    pub fn returned(&mut self, name: &ClientName, verifier: [u8; 8]) -> Vec<GraceEffect> {
        self.unfinished.returns(name);
        match self.members.get_mut(name) {
            Some(member) if member.record.verifier != verifier => self.gone(name),
            Some(member) => {
                if member.progress == Progress::Silent {
                    member.progress = Progress::Back;
                }
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Clients of 4.0 of whom [`Grace::done_reclaiming`] wants to know when they were last heard of.
    pub fn unfinished(&self) -> impl Iterator<Item = &ClientName> {
        self.unfinished.names()
    }

    /// To be called about once a second: who of 4.0 has come to the end of reclaiming, which it cannot say. `heard` tells when a
    /// client was last heard of, `pause_ms` how long one that is not done may pause between two reclaims. Returned are those
    /// that grace's end has marked: their records are to be stored without `missed_grace`.
    #[must_use]
    pub fn done_reclaiming(
        &mut self,
        (now, pause_ms): (Instant, u64),
        heard: impl Fn(&ClientName) -> Option<Instant>,
    ) -> Vec<ClientName> {
        if self.phase == Phase::Closing {
            return Vec::new();
        }
        let done = self.unfinished.tick((now, pause_ms), heard);
        if self.phase == Phase::Over { done } else { Vec::new() }
    }

    /// The record of one that [`Grace::done_reclaiming`] returned could not be stored: it is returned again.
    pub fn still_marked(&mut self, name: &ClientName) {
        self.unfinished.reclaims(name);
    }

    /// Whether a client of 4.0 has tried to reclaim something since the last tick: what it is granted is not new.
    #[must_use]
    pub fn is_reclaiming(&self, name: &ClientName) -> bool {
        self.unfinished.is_reclaiming(name)
    }

    /// A client has said RECLAIM_COMPLETE. Its record is then to be stored anew by the state engine
    /// ([`ClientRecord::agreed`]) when it was marked.
    #[must_use]
    pub fn reclaim_complete(&mut self, name: &ClientName) -> Vec<GraceEffect> {
        if let Some(member) = self.members.get_mut(name) {
            member.progress = Progress::Complete;
        }
        self.end_if_all_are_done()
    }

    /// A client is gone for good: DESTROY_CLIENTID, an administrator's word, or a newer incarnation.
    #[must_use]
    pub fn gone(&mut self, name: &ClientName) -> Vec<GraceEffect> {
        self.members.remove(name);
        self.unfinished.forget(name);
        self.end_if_all_are_done()
    }

    /// Time has passed. To be called about once a second.
    ///
    /// A client that came back late, and has much, would lose what it has not come to if grace ended on the second (RFC
    /// 8881 section 8.4.2.1 names the least that grace lasts, and no most). So what was reclaimed since the last tick
    /// keeps it open for [`GRACE_STRETCH_MS`] from now; but not for ever, as all others wait meanwhile, and nothing
    /// bounds what a client may ask for.
    #[must_use]
    pub fn tick(&mut self, now: Instant) -> Vec<GraceEffect> {
        if std::mem::take(&mut self.is_reclaiming) {
            let stretched = now.after_ms(GRACE_STRETCH_MS).min(self.latest_end);
            self.ends_at = self.ends_at.max(stretched);
        }
        if self.phase == Phase::Open && now >= self.ends_at { self.close(End::InTime) } else { Vec::new() }
    }

    /// An administrator ends grace now. Who was not heard of stays on record, marked: its lease may not be over, so that it
    /// still believes to hold what others are given from now on, and a next start has to know both that it may come and
    /// that it may not reclaim.
    #[must_use]
    pub fn end_now(&mut self) -> Vec<GraceEffect> {
        if self.phase == Phase::Open { self.close(End::Early) } else { Vec::new() }
    }

    /// What [`GraceEffect::Store`] asked for is on stable storage.
    #[must_use]
    pub fn stored(&mut self) -> Vec<GraceEffect> {
        if self.phase == Phase::Closing { self.finish() } else { Vec::new() }
    }

    fn end_if_all_are_done(&mut self) -> Vec<GraceEffect> {
        let all = self.members.values().all(|m| m.progress == Progress::Complete);
        // Untold holders keep grace open for its time even when those on record have gone: they may come as another.
        if self.phase == Phase::Open && all && !self.has_untold {
            self.close(End::InTime)
        } else {
            Vec::new()
        }
    }

    /// Stops reclaims and takes the right to reclaim from those who did not finish: who was not heard of for the
    /// whole period is forgotten (its lease is over too), who was is marked.
    fn close(&mut self, end: End) -> Vec<GraceEffect> {
        let changes: Vec<_> = self
            .members
            .values()
            .filter_map(|m| match m.progress {
                Progress::Silent if end == End::InTime => {
                    Some(RecordChange::LoseClient(m.record.name.clone(), m.record.verifier))
                }
                // A 4.0 client cannot say that it is done.
                Progress::Reclaiming
                    if !m.record.name.is_sessions && !self.unfinished.has(&m.record.name) =>
                {
                    None
                }
                Progress::Silent | Progress::Back | Progress::Reclaiming => {
                    Some(RecordChange::Client(ClientRecord { missed_grace: true, ..m.record.clone() }))
                }
                Progress::Complete => None,
            })
            .collect();
        if changes.is_empty() {
            return self.finish();
        }
        let marked = changes.iter().filter_map(|change| match change {
            RecordChange::Client(record) if !record.name.is_sessions => Some(&record.name),
            _ => None,
        });
        marked.for_each(|name| self.unfinished.marks(name));
        self.phase = Phase::Closing;
        vec![GraceEffect::Store(changes)]
    }

    fn finish(&mut self) -> Vec<GraceEffect> {
        self.phase = Phase::Over;
        self.members.clear();
        vec![GraceEffect::Ended]
    }
}
