//! Capabilities of caps clients: who holds what of which object. Granted in two steps, as delegations are, for the same
//! reason; given back; lost. Recall is in `caps_recall`. `docs/design/caps-protocol.md` is the specification.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::limits::{CAPS_HOLDERS_PER_OBJECT_MAX, CAPS_OBJECTS_PER_CLIENT_MAX, CAPS_RECALLED_MS};
use holdfast_base::{CapSet, ClientId, FileKey, Instant};
use rustc_hash::FxHashMap;

use crate::caps_names::Names;
use crate::contention::RecentRecalls;
use crate::deed::{Deed, DelegationKind};
use crate::effect::Effect;
use crate::engine::{Engine, Kind};
use crate::error::StateError;
use crate::file::{File, Holder};
use crate::flushing::Flushing;
use crate::grace::{Claim, Recorded};
use crate::names::Dialect;
use crate::waiters::Manner;

/// A recall under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapRecall {
    /// What may stay.
    pub(crate) keep: CapSet,
    /// What might stay when it began: answers since then may have told the client that it holds so much.
    pub(crate) told: CapSet,
    pub(crate) since: Instant,
    /// When the holder loses all it has.
    pub(crate) until: Instant,
    /// When the recall is sent again.
    pub(crate) retry_at: Option<Instant>,
    /// The holder has answered that it knows.
    pub(crate) is_heard: bool,
    pub(crate) flushing: Flushing,
}

/// What one client holds of one object.
#[derive(Clone, Debug)]
pub(crate) struct CapHold {
    pub(crate) client: ClientId,
    pub(crate) held: CapSet,
    /// Offered beyond that and not yet committed, with the offer's number.
    pub(crate) offered: Option<(CapSet, u64)>,
    /// Of the last grant or recall.
    pub(crate) seq: u64,
    /// Of the last grant.
    pub(crate) granted_seq: u64,
    pub(crate) recall: Option<CapRecall>,
    /// `FILE_S` was asked for beside writers, and may stand beside their opens.
    pub(crate) is_beside_writers: bool,
}

impl CapHold {
    /// Everything that others must reckon with.
    pub(crate) fn all(&self) -> CapSet {
        self.offered.map_or(self.held, |(offered, _)| self.held.union(offered))
    }

    /// As the client may go by it.
    fn grant(&self) -> CapGrant {
        let held = self.recall.map_or(self.held, |recall| self.held.and(recall.keep));
        CapGrant { held, seq: self.seq }
    }

    /// What answers may have told the client that it holds, under numbers above this one: it takes their word whenever they come.
    fn told_since(&self, seq: u64) -> CapSet {
        match self.recall {
            _ if seq >= self.seq => CapSet::NONE,
            Some(recall) => self.held.and(recall.told),
            None => self.held,
        }
    }
}

/// A client that has said HELLO.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapClient {
    pub(crate) files: BTreeSet<FileKey>,
    /// Counts its losses.
    pub(crate) epoch: u64,
    /// It can be called.
    pub(crate) is_reachable: bool,
    /// It has lost what it held, and may not have heard of it.
    pub(crate) is_loss_unheard: bool,
    /// How far its objects were looked at for some to be asked back, when room was short.
    pub(crate) pressed_through: Option<FileKey>,
    /// Batches of it that are being executed.
    pub(crate) executing: u32,
}

/// All capabilities.
#[derive(Debug, Default)]
pub(crate) struct Caps {
    pub(crate) by_file: FxHashMap<FileKey, Vec<CapHold>>,
    pub(crate) clients: BTreeMap<ClientId, CapClient>,
    pub(crate) recalls: BTreeSet<(ClientId, FileKey)>,
    pub(crate) recent: RecentRecalls,
    /// Grants and recalls so far.
    pub(crate) seq: u64,
    /// Holds in all.
    pub(crate) objects: usize,
    /// Which of them are of single names.
    pub(crate) names: Names,
}

impl Caps {
    pub(crate) fn hold(&self, client: ClientId, file: FileKey) -> Option<&CapHold> {
        self.by_file.get(&file)?.iter().find(|hold| hold.client == client)
    }

    pub(crate) fn hold_mut(&mut self, client: ClientId, file: FileKey) -> Option<&mut CapHold> {
        self.by_file.get_mut(&file)?.iter_mut().find(|hold| hold.client == client)
    }

    pub(crate) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Something of an object is being recalled, or was. Of a name nothing is ever held that this would put off.
    pub(crate) fn note_recall(&mut self, file: FileKey, now: Instant) {
        if !self.names.is_name(file) {
            self.recent.note(file, now);
        }
    }

    /// Whether something was recalled of an object a moment ago.
    pub(crate) fn is_recent(&self, file: FileKey, now: Instant) -> bool {
        self.recent.at.get(&file).is_some_and(|at| now.ms_since(*at) < CAPS_RECALLED_MS)
    }

    /// How many objects a client holds something of.
    pub(crate) fn count_of(&self, client: ClientId) -> usize {
        self.clients.get(&client).map_or(0, |of| of.files.len())
    }

    /// How many of those are being recalled.
    pub(crate) fn recalled_of(&self, client: ClientId) -> usize {
        self.recalls.range((client, FileKey(0))..=(client, FileKey(u128::MAX))).count()
    }

    /// Forgets a hold that stands for nothing.
    fn drop_if_empty(&mut self, client: ClientId, file: FileKey) {
        let Some(holds) = self.by_file.get_mut(&file) else { return };
        let is_empty = |hold: &CapHold| hold.client == client && hold.all().is_empty();
        let Some(at) = holds.iter().position(is_empty) else { return };
        holds.swap_remove(at);
        let is_last = holds.is_empty();
        if is_last {
            self.by_file.remove(&file);
        }
        self.names.end(client, file, is_last);
        self.objects -= 1;
        self.recalls.remove(&(client, file));
        if let Some(of) = self.clients.get_mut(&client) {
            of.files.remove(&file);
        }
    }
}

/// Capabilities asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapRequest {
    /// Whose they would be.
    pub client: ClientId,
    /// Of what.
    pub file: FileKey,
    /// All that the client would like to hold.
    pub want: CapSet,
    /// That others have the file open for writing is no obstacle to `FILE_S`: what they write takes it.
    pub is_beside_writers: bool,
    /// They were held before the restart.
    pub reclaim: Option<Recorded>,
}

/// What a client holds of an object, as it may go by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapGrant {
    /// In all.
    pub held: CapSet,
    /// Of the last grant or recall of it.
    pub seq: u64,
}

/// An offer, to be granted by `caps_commit`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the offer stands in others' way until commit or abort"]
pub struct CapTicket {
    client: ClientId,
    file: FileKey,
    number: u64,
    all: CapSet,
}

impl CapTicket {
    /// What the client will hold in all.
    #[must_use]
    pub const fn all(&self) -> CapSet {
        self.all
    }
}

/// What came of asking.
#[derive(Debug, PartialEq, Eq)]
pub enum CapOffer {
    /// More than is held can be had.
    Offered(CapTicket),
    /// No more than this.
    Held(CapGrant),
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapRelease {
    /// This is left.
    Released(CapGrant),
    /// The client has not seen the last grant yet: nothing was released.
    Crossed(CapGrant),
}

impl Engine {
    /// A client says HELLO: from now on it may hold capabilities. Returns its epoch, which counts what it lost; that it
    /// did is known to it by this.
    ///
    /// # Errors
    /// Those of an unknown client.
    pub fn caps_hello(&mut self, id: ClientId) -> Result<u64, StateError> {
        self.clients.confirmed(id, Dialect::V41)?;
        let client = self.caps.clients.entry(id).or_default();
        let epoch = client.epoch;
        if std::mem::take(&mut client.is_loss_unheard) && !self.has_unheard_revocations(id) {
            self.effects.push(Effect::RevocationsAcknowledged { client: id });
        }
        Ok(epoch)
    }

    /// A call of a client's came: it lives. One whose locks have to be taken again shows that by its session, where it is told of
    /// those that are lost.
    pub fn caps_alive(&mut self, id: ClientId, now: Instant) {
        let client = self.clients.by_id.get_mut(&id);
        if let Some(client) = client.filter(|client| !client.is_leaving && !client.has_locks_aside) {
            client.renewed_at = client.renewed_at.max(now);
        }
    }

    /// A caps client's epoch; `None` when it is none, or gone.
    #[must_use]
    pub fn caps_epoch(&self, id: ClientId) -> Option<u64> {
        self.caps.clients.get(&id).map(|client| client.epoch)
    }

    /// What a client holds of an object.
    #[must_use]
    pub fn caps_of(&self, client: ClientId, file: FileKey) -> CapGrant {
        self.caps.hold(client, file).map(CapHold::grant).unwrap_or_default()
    }

    /// What of an object must be kept from others for a client: what it holds, what it is to give back, and what it is
    /// offered.
    #[must_use]
    pub fn caps_in_force(&self, client: ClientId, file: FileKey) -> CapSet {
        self.caps.hold(client, file).map_or(CapSet::NONE, CapHold::all)
    }

    /// How many objects a client holds something of.
    #[must_use]
    pub fn caps_count(&self, client: ClientId) -> usize {
        self.caps.count_of(client)
    }

    /// Offers what can be had of what is wanted. From now on deeds of others see it: they do not wait for an offer, but
    /// take it back, and the commit fails. The edge promises the backend's part and enters it where others look, then
    /// calls `caps_commit` or `caps_abort`. What is not offered is no error.
    ///
    /// # Errors
    /// Those of an unknown client; for a reclaim `NoGrace`, `ReclaimBad`, `ReclaimConflict`; for anything else `Grace`.
    pub fn caps_prepare(&mut self, request: &CapRequest, now: Instant) -> Result<CapOffer, StateError> {
        let CapRequest { client, file, want, is_beside_writers, reclaim } = *request;
        let done = self.clients.confirmed(client, Dialect::V41)?.is_reclaim_done();
        let claim = reclaim.map_or(Claim::New, Claim::Reclaim);
        claim.admit(file, self.grace, now, done)?;
        let can_be_had = self.caps_grantable(request, now);
        if reclaim.is_some() && can_be_had != want {
            return Err(StateError::ReclaimConflict);
        }
        let held = self.caps.hold(client, file).map_or(CapSet::NONE, |hold| hold.held);
        let is_offered = self.caps.hold(client, file).is_some_and(|hold| hold.offered.is_some());
        // One offer at a time: what another call of the client's is about to get it tells itself.
        if held.contains(can_be_had) || is_offered {
            return Ok(CapOffer::Held(self.caps_of(client, file)));
        }
        self.tickets += 1;
        let number = self.tickets;
        let all = held.union(can_be_had);
        let offered = Some((can_be_had, number));
        let is_news = !held.contains(CapSet::FILE_S) && can_be_had.contains(CapSet::FILE_S);
        match self.caps.hold_mut(client, file) {
            Some(hold) => {
                hold.offered = offered;
                if is_news {
                    hold.is_beside_writers = is_beside_writers;
                }
            }
            None => {
                let (held, recall) = (CapSet::NONE, None);
                let hold =
                    CapHold { client, held, offered, seq: 0, granted_seq: 0, recall, is_beside_writers };
                self.caps.by_file.entry(file).or_default().push(hold);
                self.caps.clients.entry(client).or_default().files.insert(file);
                self.caps.objects += 1;
            }
        }
        Ok(CapOffer::Offered(CapTicket { client, file, number, all }))
    }

    /// Grants what was offered.
    ///
    /// # Errors
    /// `Delay` when somebody did meanwhile what the offer excludes, or the client is gone: the edge goes back to what
    /// `caps_in_force` says.
    #[expect(clippy::needless_pass_by_value, reason = "an offer ends once")]
    pub fn caps_commit(&mut self, ticket: CapTicket) -> Result<CapGrant, StateError> {
        let seq = self.caps.next_seq();
        let hold = self.caps.hold_mut(ticket.client, ticket.file).ok_or(StateError::Delay)?;
        let Some((offered, _)) = hold.offered.filter(|(_, number)| *number == ticket.number) else {
            return Err(StateError::Delay);
        };
        hold.offered = None;
        hold.held = hold.held.union(offered);
        (hold.seq, hold.granted_seq) = (seq, seq);
        Ok(hold.grant())
    }

    /// Takes an offer back.
    #[expect(clippy::needless_pass_by_value, reason = "an offer ends once")]
    pub fn caps_abort(&mut self, ticket: CapTicket) {
        let Some(hold) = self.caps.hold_mut(ticket.client, ticket.file) else { return };
        if hold.offered.is_some_and(|(_, number)| number == ticket.number) {
            hold.offered = None;
            self.caps.drop_if_empty(ticket.client, ticket.file);
        }
    }

    /// A client gives back what is not in `keep`; `seq` is the highest number of a grant or recall of this object that
    /// it has seen. What it may have been told since stays, for it may go by that when it has given back the rest.
    pub fn caps_release(
        &mut self,
        client: ClientId,
        file: FileKey,
        (keep, seq): (CapSet, u64),
        now: Instant,
    ) -> CapRelease {
        let Some(hold) = self.caps.hold_mut(client, file) else {
            return CapRelease::Released(CapGrant::default());
        };
        if seq < hold.granted_seq {
            return CapRelease::Crossed(hold.grant());
        }
        let left = hold.held.and(keep.union(hold.told_since(seq)));
        self.caps_leave(client, file, left, now);
        CapRelease::Released(self.caps_of(client, file))
    }

    /// The last name of an object is gone, by its holder's own doing. Unless somebody has it open, nothing is left to hold.
    pub fn caps_removed(&mut self, client: ClientId, file: FileKey, now: Instant) {
        let Some(hold) = self.caps.hold_mut(client, file) else { return };
        if hold.offered.is_none() && self.files.get(&file).is_none_or(|used| used.opens.is_empty()) {
            self.caps_leave(client, file, CapSet::NONE, now);
        }
    }

    /// A client goes for good: it gives everything back.
    pub fn caps_bye(&mut self, client: ClientId, now: Instant) {
        self.caps_drop_all(client, now);
    }

    /// A batch is about to be executed, of a client that said it in this epoch. It shows that the client flushes.
    /// [`Engine::caps_executed`] is due.
    ///
    /// While it is executed nothing is taken from its client: what it does must not come behind the back of who gets what the client
    /// has. So none is begun any more when the client has not given back in time what it was asked for: it keeps that for as long as
    /// what had begun by then, and not for as long as it sends batches.
    ///
    /// # Errors
    /// `Delay` when a recall's time is over; `StaleClientid` when the client is gone, or going, for whom nothing is done any more, and when it
    /// has lost what it held since: it is to hear of that first, for others may have it by now.
    pub fn caps_executes(&mut self, client: ClientId, epoch: u64, now: Instant) -> Result<(), StateError> {
        if self.caps_epoch(client) != Some(epoch) || self.is_leaving(client) {
            return Err(StateError::StaleClientid);
        }
        if self.caps_is_overdue(client, now) {
            return Err(StateError::Delay);
        }
        self.caps_flushed(client, 0, now);
        if let Some(of) = self.caps.clients.get_mut(&client) {
            of.executing += 1;
        }
        Ok(())
    }

    /// It was, and has changed something by so many bytes. A recall whose time is over meanwhile goes on by that as by any flush.
    pub fn caps_executed(&mut self, client: ClientId, bytes: u64, now: Instant) {
        self.caps_flushed(client, bytes, now);
        // As the end of a request is, which SEQUENCE began: while it lasted the lease did not run.
        self.caps_alive(client, now);
        if let Some(of) = self.caps.clients.get_mut(&client) {
            of.executing = of.executing.saturating_sub(1);
        }
    }

    pub(crate) fn caps_is_executing(&self, client: ClientId) -> bool {
        self.caps.clients.get(&client).is_some_and(|of| of.executing > 0)
    }

    /// Leaves a client no more than this of an object.
    pub(crate) fn caps_leave(&mut self, client: ClientId, file: FileKey, left: CapSet, now: Instant) {
        let Some(hold) = self.caps.hold_mut(client, file) else { return };
        let is_less = hold.held != left;
        hold.held = left;
        if hold.recall.is_some_and(|recall| recall.keep.contains(left)) {
            hold.recall = None;
            self.caps.recalls.remove(&(client, file));
            self.caps.note_recall(file, now);
        }
        self.caps.drop_if_empty(client, file);
        if is_less {
            self.effects.push(Effect::CapsLeft { client, file, held: left });
            self.wake_waiters(file, None, now);
        }
    }

    /// Takes everything from a client that says goodbye or goes.
    pub(crate) fn caps_drop_all(&mut self, client: ClientId, now: Instant) {
        let Some(of) = self.caps.clients.get(&client) else { return };
        for file in of.files.clone() {
            if let Some(hold) = self.caps.hold_mut(client, file) {
                hold.offered = None;
            }
            self.caps_leave(client, file, CapSet::NONE, now);
        }
    }

    /// A client is gone.
    pub(crate) fn caps_forget_client(&mut self, client: ClientId, now: Instant) {
        self.caps_drop_all(client, now);
        if self.caps.clients.remove(&client).is_some() {
            self.effects.push(Effect::CapsLost { client });
        }
    }

    /// What of a wish can be had now.
    fn caps_grantable(&self, request: &CapRequest, now: Instant) -> CapSet {
        let CapRequest { client, file, want, is_beside_writers, reclaim } = *request;
        let Some(of) = self.caps.clients.get(&client) else { return CapSet::NONE };
        if of.is_loss_unheard || !of.is_reachable || !self.has_room_for_caps(client, file) {
            return CapSet::NONE;
        }
        let mut can = want;
        if reclaim.is_none() && self.caps.is_recent(file, now) {
            can = can.shared();
        }
        for hold in self.caps.by_file.get(&file).map(Vec::as_slice).unwrap_or_default() {
            can = match hold.recall {
                _ if hold.client != client => can.beside(hold.all()),
                Some(recall) => can.and(recall.keep),
                None => can,
            };
        }
        if can.contains(CapSet::FILE_X) && self.caps.names.has_others(file, client) {
            can = can.without(CapSet::FILE_X_ALONE);
        }
        match self.files.get(&file) {
            Some(used) => self.caps_beside_use(used, (client, is_beside_writers), can),
            None => can,
        }
    }

    pub(crate) fn has_room_for_caps(&self, client: ClientId, file: FileKey) -> bool {
        self.caps.hold(client, file).is_some()
            || (self.caps.count_of(client) < CAPS_OBJECTS_PER_CLIENT_MAX
                && self.caps.objects < self.policy.capabilities_max
                && self.caps.by_file.get(&file).map_or(0, Vec::len) < CAPS_HOLDERS_PER_OBJECT_MAX)
    }

    /// What can stand beside others' delegations, opens, shares and locks. The client's own are no obstacle, nor are writers
    /// to who would know of what they have written, and does not mind being asked at each change.
    fn caps_beside_use(
        &self,
        file: &File,
        (client, is_beside_writers): (ClientId, bool),
        mut can: CapSet,
    ) -> CapSet {
        for key in &file.delegations {
            let is_others = self.states.get(key.0).is_some_and(|state| state.client != client);
            if let (true, Ok(delegation)) = (is_others, self.delegation(*key)) {
                can = delegation.kinds().fold(can, |can, kind| can.beside(kind.stands_for()));
            }
        }
        let mut deeds: Vec<_> = file.foreign_shares.iter().map(|(_, share)| share.deed()).collect();
        for key in &file.opens {
            let Some(state) = self.states.get(key.0).filter(|state| state.client != client) else { continue };
            let Kind::Open(open) = &state.kind else { continue };
            let is_passed_over = is_beside_writers && open.share.deny.is_none();
            deeds.push(if is_passed_over { Deed::OpenRead } else { open.share.deed() });
        }
        // Nor is what was recalled for who waits in line given again before its turn.
        let waiting = file.waiters.iter().filter(|waiter| waiter.manner == Manner::Given);
        deeds.extend(waiting.map(|waiter| crate::foreign::deed(waiter.kind)));
        for (holder, ranges) in file.locks.iter() {
            if matches!(holder, Holder::Foreign(_)) {
                deeds.extend(ranges.iter().map(|(_, kind)| crate::foreign::deed(kind)));
            }
        }
        deeds.into_iter().fold(can, |can, deed| deed.forbids().leaves(can))
    }

    /// Whether others' capabilities exclude a delegation.
    pub(crate) fn caps_exclude(&self, file: FileKey, client: ClientId, kind: DelegationKind) -> bool {
        let holds = self.caps.by_file.get(&file).map(Vec::as_slice).unwrap_or_default();
        holds.iter().any(|hold| hold.client != client && !hold.all().fits(kind.stands_for()))
    }
}
