//! A session and its slots (RFC 8881 section 2.10.6): which numbers may be used when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_rpc::link::{Cancel, Stopped, Wakers};
use holdfast_wire::nfs4::{ChannelAttrs4, Sequence4Args};
use parking_lot::Mutex;

/// How often who waits for a session to be without requests looks whether it ever will be.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// A session, as long as the server keeps it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) client: ClientId,
    pub(crate) minor: u32,
    pub(crate) fore: ChannelAttrs4,
    /// Its replies outlive a restart of the server.
    pub(crate) is_persistent: bool,
    lost: AtomicBool,
    slots: Mutex<Slots>,
    freed: Wakers,
}

#[derive(Debug)]
struct Slots {
    slots: Vec<Slot>,
    /// Slots from here on are not to be used.
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The next request's number.
    seqid: Seqid,
    is_taken: bool,
}

impl Slot {
    const FRESH: Self = Self { seqid: Seqid(1), is_taken: false };
}

/// Whose a slot may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Any operation's.
    Ordinary,
    /// Recovery's, which must get through when all others wait: the first slot is kept for it.
    Recovery,
}

impl Session {
    pub(crate) fn new(
        (id, client, minor): (SessionId, ClientId, u32),
        fore: ChannelAttrs4,
        is_persistent: bool,
        slots_max: u32,
    ) -> Self {
        let limit = fore.maxrequests.clamp(1, slots_max.max(1)) as usize;
        let slots = Slots { slots: vec![Slot::FRESH; limit], limit };
        let (lost, freed) = (AtomicBool::new(false), Wakers::default());
        Self { id, client, minor, fore, is_persistent, lost, slots: Mutex::new(slots), freed }
    }

    /// Whether the server does not know it any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Notes that the server does not know it any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.freed.wake_all();
    }

    /// Slots in use at most.
    pub(crate) fn limit(&self) -> u32 {
        self.slots.lock().limit as u32
    }

    /// Takes the lowest free slot. Nothing when the session was lost meanwhile.
    pub(crate) fn take(
        self: &Arc<Self>,
        lane: Lane,
        cancel: &Cancel,
        deadline: Option<Instant>,
    ) -> Result<Option<SlotHeld>, Stopped> {
        self.freed.wait(cancel, deadline, || {
            if self.is_lost() {
                return Some(None);
            }
            let mut slots = self.slots.lock();
            let limit = slots.limit.min(slots.slots.len());
            let from = usize::from(lane == Lane::Ordinary && limit > 1);
            let to = if lane == Lane::Recovery { 1 } else { limit };
            let n = (from..to).find(|n| !slots.slots[*n].is_taken)?;
            slots.slots[n].is_taken = true;
            let highest = slots.slots.iter().rposition(|slot| slot.is_taken).unwrap_or(n);
            let slot = slots.slots[n];
            Some(Some(SlotHeld {
                session: Arc::clone(self),
                slot: n,
                seqid: slot.seqid,
                highest,
                is_used: false,
            }))
        })
    }

    /// The server wants no slot above this one used (`sr_target_highest_slotid`, CB_RECALL_SLOT), or allows more again.
    pub(crate) fn aim(&self, highest: SlotId) {
        let mut slots = self.slots.lock();
        let limit = (highest.0 as usize).saturating_add(1).min(slots.slots.len());
        if slots.limit != limit {
            slots.limit = limit;
            drop(slots);
            self.freed.wake_all();
        }
    }

    /// Waits until a request with this number on this slot has been answered and its answer taken in.
    pub(crate) fn settled(&self, slot: SlotId, seqid: Seqid, cancel: &Cancel, until: Instant) -> bool {
        let is_settled = || {
            let slots = self.slots.lock();
            let slot = slots.slots.get(slot.0 as usize);
            slot.is_none_or(|slot| !slot.is_taken || slot.seqid != seqid).then_some(())
        };
        self.freed.wait(cancel, Some(until), is_settled).is_ok()
    }

    /// Waits until no request is under way. False when it is late, or `is_over`, which is looked at ten times a second.
    pub(crate) fn drained(&self, cancel: &Cancel, until: Instant, is_over: impl Fn() -> bool) -> bool {
        let is_drained = || (!self.slots.lock().slots.iter().any(|slot| slot.is_taken)).then_some(());
        while !is_over() && Instant::now() < until && !cancel.is_cancelled() {
            let moment = until.min(Instant::now() + DRAIN_LOOK);
            if self.freed.wait(cancel, Some(moment), is_drained).is_ok() {
                return true;
            }
        }
        false
    }

    fn free(&self, n: usize, is_used: bool) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.slots.get_mut(n) {
            slot.is_taken = false;
            if is_used {
                slot.seqid = slot.seqid.next();
            }
        }
        drop(slots);
        self.freed.wake_all();
    }
}

/// A slot taken for one request; free again once this is dropped.
#[derive(Debug)]
pub(crate) struct SlotHeld {
    pub(crate) session: Arc<Session>,
    slot: usize,
    seqid: Seqid,
    highest: usize,
    is_used: bool,
}

impl SlotHeld {
    /// The slot's number, to spread requests over connections by.
    pub(crate) const fn number(&self) -> usize {
        self.slot
    }

    /// The SEQUENCE of the request; the same however often it is sent.
    pub(crate) fn sequence(&self, is_cached: bool) -> Sequence4Args {
        Sequence4Args {
            sessionid: self.session.id,
            sequenceid: self.seqid,
            slotid: SlotId(self.slot as u32),
            highest_slotid: SlotId(self.highest as u32),
            cachethis: is_cached,
        }
    }

    /// The server has counted the request: the next one has the next number.
    pub(crate) fn used(&mut self) {
        self.is_used = true;
    }
}

impl Drop for SlotHeld {
    fn drop(&mut self) {
        self.session.free(self.slot, self.is_used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 4096,
        maxresponsesize: 4096,
        maxresponsesize_cached: 1024,
        maxoperations: 8,
        maxrequests: 3,
        rdma_ird: None,
    };

    fn session() -> Arc<Session> {
        Arc::new(Session::new((SessionId([1; 16]), ClientId(1), 2), CHANNEL, false, 64))
    }

    fn take(session: &Arc<Session>, lane: Lane) -> Option<SlotHeld> {
        let at_once = Some(Instant::now());
        session.take(lane, &Cancel::new(), at_once).ok().flatten()
    }

    #[test]
    fn a_number_is_used_again_only_when_the_server_did_not_count_it() {
        let session = session();
        let mut slot = take(&session, Lane::Ordinary).unwrap();
        assert_eq!(slot.sequence(true).sequenceid, Seqid(1));
        slot.used();
        drop(slot);
        let slot = take(&session, Lane::Ordinary).unwrap();
        assert_eq!(slot.sequence(true).sequenceid, Seqid(2));
        drop(slot);
        assert_eq!(take(&session, Lane::Ordinary).unwrap().sequence(true).sequenceid, Seqid(2));
    }

    #[test]
    fn the_first_slot_is_kept_for_recovery_and_the_target_is_obeyed() {
        let session = session();
        let taken: Vec<_> = std::iter::from_fn(|| take(&session, Lane::Ordinary)).collect();
        assert_eq!(taken.iter().map(SlotHeld::number).collect::<Vec<_>>(), [1, 2]);
        let first = take(&session, Lane::Recovery).unwrap();
        assert_eq!(first.number(), 0);
        assert!(take(&session, Lane::Recovery).is_none());
        drop(taken);
        session.aim(SlotId(1));
        let one = take(&session, Lane::Ordinary).unwrap();
        assert!(take(&session, Lane::Ordinary).is_none());
        drop((one, first));
    }

    #[test]
    fn a_session_is_drained_when_its_last_request_is_answered() {
        let session = session();
        let drained = |ms| {
            let until = Instant::now() + Duration::from_millis(ms);
            session.drained(&Cancel::new(), until, || false)
        };
        assert!(drained(1));
        let held = take(&session, Lane::Ordinary).unwrap();
        assert!(!drained(20));
        assert!(!session.drained(&Cancel::new(), Instant::now() + Duration::from_secs(600), || true));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drained(60_000));
            drop(held);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn who_waits_for_a_slot_of_a_lost_session_is_told() {
        let session = session();
        let _taken: Vec<_> = std::iter::from_fn(|| take(&session, Lane::Ordinary)).collect();
        let waiting = Arc::clone(&session);
        let waiter = std::thread::spawn(move || waiting.take(Lane::Ordinary, &Cancel::new(), None));
        std::thread::sleep(Duration::from_millis(20));
        session.lose();
        assert!(waiter.join().unwrap().unwrap().is_none());
    }
}
