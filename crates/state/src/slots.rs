//! One session's slot table: what makes requests exactly-once (RFC 8881 section 2.10.6.1). It knows nothing of
//! sessions, clients or time.

use holdfast_base::limits::{SESSION_SLOTS_MAX, SLOT_REPLY_BYTES_MAX};
use holdfast_base::{Seqid, SlotId};
use serde::{Deserialize, Serialize};

use crate::error::StateError;

/// A request's claim to be executed, as SEQUENCE carries it.
#[derive(Clone, Copy, Debug)]
pub struct SlotRequest {
    /// The slot used.
    pub slot: SlotId,
    /// The slot's sequence number.
    pub seqid: Seqid,
    /// The highest slot for which the client has a request outstanding.
    pub highest_slot: SlotId,
    /// A hash of the request's bytes, if the edge makes one: tells a retry from another request under its number.
    pub digest: Option<u64>,
}

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Execute it, then call `complete`.
    New,
    /// It was executed: send these bytes.
    Replay(Vec<u8>),
    /// It is being executed: park it until `complete` reports that retries wait, then ask again.
    RetryInProgress,
}

/// What the edge kept of a reply.
#[derive(Clone, Copy, Debug)]
pub enum KeptReply<'a> {
    /// The whole reply; longer than [`SLOT_REPLY_BYTES_MAX`] is not kept.
    Bytes(&'a [u8]),
    /// Nothing: a retry gets `RetryUncachedRep`.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// No request yet, or the reply was not kept.
    Bare,
    /// The last reply is in `reply`.
    Kept,
    /// The request is being executed; whether a retry waits for its reply.
    Running { retry_waits: bool },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Slot {
    #[serde(with = "crate::plain")]
    seqid: Seqid,
    digest: Option<u64>,
    phase: Phase,
    /// Given out again after having been withdrawn: the client may go on counting or begin again at 1.
    reissued: bool,
    /// Restored after a crash with the number of its last mutation: later ones may have been used.
    recovered: bool,
    /// A reply on it tells of the target of now: who uses the slot once more has heard of it.
    #[serde(skip)]
    tells_target: bool,
    /// Kept between requests so that a completion does not allocate.
    #[serde(with = "crate::plain::bytes")]
    reply: Vec<u8>,
}

/// A slot table as plain data: without the slots at its end that were never used, which most are.
#[derive(Serialize, Deserialize)]
struct FrozenSlots {
    used: Vec<Slot>,
    len: u32,
    usable: u32,
    target: u32,
    running: u32,
}

impl From<SlotTable> for FrozenSlots {
    fn from(table: SlotTable) -> Self {
        let SlotTable { slots: mut used, usable, target, running } = table;
        let len = used.len() as u32;
        let is_virgin = |slot: &Slot| {
            slot.seqid == Seqid(0) && slot.phase == Phase::Bare && !slot.reissued && !slot.recovered
        };
        let rest = used.iter().rev().take_while(|slot| is_virgin(slot)).count();
        used.truncate(used.len() - rest);
        Self { used, len, usable, target, running }
    }
}

impl From<FrozenSlots> for SlotTable {
    fn from(frozen: FrozenSlots) -> Self {
        let FrozenSlots { used: mut slots, len, usable, target, running } = frozen;
        let len = (len as usize).clamp(slots.len().max(1), SESSION_SLOTS_MAX as usize);
        slots.resize(len, Slot::new());
        Self { slots, usable, target, running }
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            seqid: Seqid(0),
            digest: None,
            phase: Phase::Bare,
            reissued: false,
            recovered: false,
            tells_target: false,
            reply: Vec::new(),
        }
    }
}

/// The reply state of one slot as plain data, for carrying a session over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotImage {
    /// The last sequence number used.
    pub seqid: Seqid,
    /// The hash of that request, if there was one.
    pub digest: Option<u64>,
    /// The reply, if kept.
    pub reply: Option<Vec<u8>>,
    /// Whether `seqid` is certainly the last one used. After a crash only that of the last mutation is known: the
    /// first request under any higher number is then a new one.
    pub is_exact: bool,
}

/// Whether a number comes after another, counted around the end as slots count.
const fn is_later(seqid: Seqid, than: Seqid) -> bool {
    let ahead = seqid.0.wrapping_sub(than.0);
    0 < ahead && ahead < 1 << 31
}

/// The slots of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "FrozenSlots", into = "FrozenSlots")]
pub struct SlotTable {
    slots: Vec<Slot>,
    /// How many of them the client may use.
    usable: u32,
    /// How many we want it to use; below `usable` until it has obeyed.
    target: u32,
    running: u32,
}

impl SlotTable {
    /// A table of `count` slots, at least one.
    #[must_use]
    pub fn new(count: u32) -> Self {
        let count = count.max(1);
        Self { slots: vec![Slot::new(); count as usize], usable: count, target: count, running: 0 }
    }

    /// Judges a request.
    ///
    /// # Errors
    /// `BadSlot`, `BadHighSlot`, `SeqMisordered`, `SeqFalseRetry`, `RetryUncachedRep`.
    pub fn admit(&mut self, request: SlotRequest) -> Result<Admission, StateError> {
        let Some(slot) = self.slots.get(request.slot.0 as usize) else { return Err(StateError::BadSlot) };
        // After a crash the next number is any later one.
        let counts_on =
            request.seqid == slot.seqid.next() || (slot.recovered && is_later(request.seqid, slot.seqid));
        // A client that was told of fewer slots may still name the old maximum, so only the table's end counts.
        if request.highest_slot < request.slot || request.highest_slot.0 as usize >= self.slots.len() {
            return Err(StateError::BadHighSlot);
        }
        if request.slot.0 >= self.usable {
            // A reply tells of the target as it was when its request came: one that took long has just told of more again.
            // Linux, refused for that, makes a new session.
            if !counts_on {
                return Err(StateError::BadSlot);
            }
            self.give_out(request.slot.0 + 1);
        }
        let slot = &mut self.slots[request.slot.0 as usize];
        let running = matches!(slot.phase, Phase::Running { .. });
        let begins_again = slot.reissued && request.seqid == Seqid(1);
        if !running && (counts_on || begins_again) {
            slot.seqid = request.seqid;
            slot.digest = request.digest;
            slot.phase = Phase::Running { retry_waits: false };
            slot.reissued = false;
            slot.recovered = false;
            self.running += 1;
            if std::mem::replace(&mut slot.tells_target, true) {
                self.withdraw(request);
            }
            return Ok(Admission::New);
        }
        if request.seqid != slot.seqid {
            return Err(StateError::SeqMisordered);
        }
        slot.retry(request.digest)
    }

    /// Ends the request that runs on a slot. Returns whether retries of it wait for the reply.
    pub fn complete(&mut self, slot: SlotId, reply: KeptReply<'_>) -> bool {
        let Some(slot) = self.slots.get_mut(slot.0 as usize) else { return false };
        let Phase::Running { retry_waits } = slot.phase else { return false };
        self.running -= 1;
        slot.reply.clear();
        slot.phase = match reply {
            KeptReply::Bytes(bytes) if bytes.len() <= SLOT_REPLY_BYTES_MAX => {
                slot.reply.extend_from_slice(bytes);
                Phase::Kept
            }
            KeptReply::Bytes(_) | KeptReply::Nothing => Phase::Bare,
        };
        retry_waits
    }

    /// Whether the client has used a slot again since this request, and so has the reply to it.
    pub(crate) fn has_gone_on_from(&self, slot: SlotId, seqid: Seqid) -> bool {
        self.slots.get(slot.0 as usize).is_none_or(|slot| slot.seqid != seqid)
    }

    /// Slots that memory is held for.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Requests being executed.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.running
    }

    /// The highest slot the client may use.
    #[must_use]
    pub const fn highest(&self) -> SlotId {
        SlotId(self.usable - 1)
    }

    /// The highest slot we want it to use (`sr_target_highest_slotid`).
    #[must_use]
    pub const fn target_highest(&self) -> SlotId {
        SlotId(self.target - 1)
    }

    /// How many slots we want the client to use.
    pub(crate) const fn target(&self) -> u32 {
        self.target
    }

    /// Asks the client to use `count` slots from now on: between 1 and what the session was made with.
    pub fn set_target(&mut self, count: u32) {
        let count = count.clamp(1, self.slots.len() as u32);
        if count < self.target {
            self.slots.iter_mut().for_each(|slot| slot.tells_target = false);
        }
        self.target = count;
        self.give_out(count);
    }

    /// Lets the client use so many slots, those that were withdrawn among them.
    fn give_out(&mut self, count: u32) {
        for slot in self.slots.iter_mut().take(count as usize).skip(self.usable as usize) {
            slot.reissued = true;
        }
        self.usable = self.usable.max(count);
    }

    /// Gives up slots above the target once the client, which has heard of it, shows that it uses none of them. One that has
    /// not may be about to (RFC 8881 section 2.10.6.1), and Linux, refused so, may make a new session.
    fn withdraw(&mut self, request: SlotRequest) {
        let target = self.target as usize;
        if self.target == self.usable || request.highest_slot.0 >= self.target {
            return;
        }
        let above = &mut self.slots[target..self.usable as usize];
        if above.iter().any(|slot| matches!(slot.phase, Phase::Running { .. })) {
            return;
        }
        // Sequence numbers stay: a client may go on counting when it gets the slot back. Replies go: it has them,
        // or it would still count the slot as outstanding.
        for slot in above {
            slot.reply = Vec::new();
            slot.phase = Phase::Bare;
        }
        self.usable = self.target;
    }

    /// The reply state of every slot. Requests being executed appear as their predecessor's successor without a
    /// reply: whoever restores them settles them.
    #[must_use]
    pub fn image(&self) -> Vec<SlotImage> {
        let one = |slot: &Slot| SlotImage {
            seqid: slot.seqid,
            digest: slot.digest,
            reply: (slot.phase == Phase::Kept).then(|| slot.reply.clone()),
            is_exact: !slot.recovered,
        };
        self.slots.iter().map(one).collect()
    }

    /// The table with this reply state; replies that are too long to be kept are dropped.
    #[must_use]
    pub fn from_image(image: &[SlotImage]) -> Self {
        let mut table = Self::new(image.len() as u32);
        for (slot, from) in table.slots.iter_mut().zip(image) {
            slot.seqid = from.seqid;
            slot.digest = from.digest;
            slot.recovered = !from.is_exact;
            if let Some(reply) = from.reply.as_ref().filter(|reply| reply.len() <= SLOT_REPLY_BYTES_MAX) {
                slot.reply.clone_from(reply);
                slot.phase = Phase::Kept;
            }
        }
        table
    }

    /// What is wrong with the table, if anything.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        let running = self.slots.iter().filter(|slot| matches!(slot.phase, Phase::Running { .. })).count();
        if running != self.running as usize {
            return Some("running requests are miscounted");
        }
        let in_order =
            0 < self.target && self.target <= self.usable && self.usable as usize <= self.slots.len();
        (!in_order).then_some("target, usable and allocated slots are out of order")
    }
}

impl Slot {
    /// Judges a request under the number of the last one.
    fn retry(&mut self, digest: Option<u64>) -> Result<Admission, StateError> {
        // A slot never used has number 0; nothing can be a retry on it (RFC 8881 section 18.36.4, phase 4).
        if self.seqid == Seqid(0) && self.phase == Phase::Bare {
            return Err(StateError::SeqMisordered);
        }
        if let (Some(now), Some(then)) = (digest, self.digest)
            && now != then
        {
            return Err(StateError::SeqFalseRetry);
        }
        match &mut self.phase {
            Phase::Bare => Err(StateError::RetryUncachedRep),
            Phase::Kept => Ok(Admission::Replay(self.reply.clone())),
            Phase::Running { retry_waits } => {
                *retry_waits = true;
                Ok(Admission::RetryInProgress)
            }
        }
    }
}

#[cfg(test)]
mod tests;
