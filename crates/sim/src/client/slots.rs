//! A session's slots: one request each, sent again as it was until it is answered.

use holdfast_base::{Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::*;

use super::conn::Copy;
use super::v4::{COMPOUND, Client4, Missed, SLOTS};
use crate::life::LEASE_MS;
use crate::wire::{Ops, Reply};

/// One slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    seqid: Seqid,
    is_taken: bool,
}

pub(crate) struct Session {
    pub(crate) id: SessionId,
    slots: Vec<Slot>,
    /// How many of them the server wants used, as it was last heard: what came late may tell of another target than that of now.
    wanted: usize,
}

impl Session {
    /// A slot that is free and wanted: the lowest, or where there is any reason to count them, any.
    fn free(&self, any: Option<u64>) -> Option<usize> {
        let mut free = (0..self.wanted).filter(|n| !self.slots[*n].is_taken);
        match any {
            Some(chance) => {
                let free: Vec<_> = free.collect();
                (!free.is_empty()).then(|| free[(chance % free.len() as u64) as usize])
            }
            None => free.next(),
        }
    }
}

impl Client4 {
    async fn take_slot(&self, is_recovering: bool) -> Option<(SessionId, usize, Sequence4Args)> {
        loop {
            let any = self.world.is_scarce.then(|| self.rng.borrow_mut().number());
            // Who has waited for a slot while a recovery began waits for its end too: what he heard in its middle would be
            // taken for word of another restart.
            if is_recovering || !self.recovering.is_taken() {
                let mut session = self.session.borrow_mut();
                let session = session.as_mut()?;
                let highest = session.slots.iter().rposition(|slot| slot.is_taken).unwrap_or(0);
                if let Some(n) = session.free(any) {
                    let slot = &mut session.slots[n];
                    slot.is_taken = true;
                    slot.seqid = slot.seqid.next();
                    let sequence = Sequence4Args {
                        sessionid: session.id,
                        sequenceid: slot.seqid,
                        slotid: SlotId(n as u32),
                        highest_slotid: SlotId(highest.max(n) as u32),
                        cachethis: true,
                    };
                    return Some((session.id, n, sequence));
                }
            }
            self.world.exec.sleep(5).await;
        }
    }

    /// The server wants no slot used beyond this one (CB_RECALL_SLOT, or any answer).
    pub(super) fn want_slots(&self, id: SessionId, highest: SlotId) {
        if let Some(session) = self.session.borrow_mut().as_mut().filter(|session| session.id == id) {
            session.wanted = (highest.0 as usize + 1).min(session.slots.len());
        }
    }

    /// Ends the use of a slot. `counted` says whether the server counted the request.
    fn free_slot(&self, id: SessionId, n: usize, counted: bool) {
        if let Some(session) = self.session.borrow_mut().as_mut().filter(|session| session.id == id) {
            let slot = &mut session.slots[n];
            slot.is_taken = false;
            if !counted {
                slot.seqid = Seqid(slot.seqid.0.wrapping_sub(1));
            }
        }
    }

    /// One compound on a slot, sent until it is answered. While recovering, a restart is known of already.
    pub(crate) async fn on_slot(&self, ops: &Ops, is_recovering: bool) -> Result<(Reply, bool), Missed> {
        let Some((id, slot, sequence)) = self.take_slot(is_recovering).await else { return Err(Missed) };
        let args = ops.compound(self.kind.minor, Some(sequence));
        let (epoch, mut times, first_sent) = (self.epoch.get(), 0, self.world.now());
        loop {
            if self.session.borrow().as_ref().is_none_or(|session| session.id != id) {
                return Err(Missed);
            }
            times += 1;
            let (xid, sent, life) = (self.conn.next_xid(), self.world.now(), self.world.lives());
            let Ok(results) = self.send(xid, &args).await else {
                self.world.exec.sleep(10).await;
                continue;
            };
            let Some(mut reply) = self.read(&results) else { continue };
            if let Some(ok) = reply.next::<Sequence4Ok>(OpNum4::Sequence) {
                self.retry_late((id, life), &args, &results).await;
                self.want_slots(id, ok.target_highest_slotid);
                self.free_slot(id, slot, true);
                self.mount_hears(ok.status_flags, first_sent);
                self.world.tell(|| {
                    let Sequence4Args { slotid, sequenceid, .. } = sequence;
                    let (flags, status) = (ok.status_flags, reply.status);
                    format!(
                        "{}: slot {}:{} {status:?} (flags {flags:x})",
                        self.name(),
                        slotid.0,
                        sequenceid.0
                    )
                });
                if self.epoch.get() == epoch {
                    let known = if is_recovering { SEQ4_STATUS_RESTART_RECLAIM_NEEDED } else { 0 };
                    self.heed(ok.status_flags & !known, sent);
                }
                return Ok((reply, times > 1));
            }
            match reply.status {
                NfsStat4::Delay => self.world.exec.sleep(100).await,
                NfsStat4::BadSession | NfsStat4::DeadSession | NfsStat4::StaleClientId => {
                    self.world.tell(|| format!("{}: {:?} for its session", self.name(), reply.status));
                    if self.session.borrow().as_ref().is_some_and(|session| session.id == id) {
                        self.hears_it_is_not_known(&format!("{:?}", reply.status));
                        *self.session.borrow_mut() = None;
                        self.in_doubt();
                    }
                    return Err(Missed);
                }
                other => {
                    let what = format!("{}: SEQUENCE of slot {slot} answered {other:?}", self.name());
                    self.world.oracles.violated(what);
                    self.free_slot(id, slot, true);
                    return Ok((reply, times > 1));
                }
            }
        }
    }

    /// Now and then sends what was answered once more, much later: the answer must be the same, to the last byte. Not to
    /// another life of the server, which knows of the slot its last mutation alone (`exactly-once.md`): it would run it anew,
    /// and might be at it when the slot is used again. Who has his answer must not ask at all (RFC 8881 section 2.10.6.2).
    async fn retry_late(&self, (id, life): (SessionId, u64), args: &[u8], results: &[u8]) {
        if !self.rng.borrow_mut().percent(3) {
            return;
        }
        let ms = self.rng.borrow_mut().below(LEASE_MS / 8);
        self.world.exec.sleep(ms).await;
        let copy = Copy { xid: self.conn.next_xid(), target: COMPOUND, args: args.to_vec(), life };
        let Ok(again) = self.conn.call_again(&copy).await else { return };
        // Its lease may have run out meanwhile, or not: the next request hears the same, and is judged.
        let is_gone = |reply: Reply| matches!(reply.status, NfsStat4::BadSession | NfsStat4::DeadSession);
        if self.read(&again).is_some_and(is_gone) {
            return self.world.tell(|| format!("{}: its session is gone at a retry", self.name()));
        }
        let is_known = self.session.borrow().as_ref().is_some_and(|session| session.id == id);
        if is_known && self.world.lives() == life && again != results {
            let what = format!("{}: a retry was not answered as the first time", self.name());
            self.world.oracles.violated(what);
        }
    }

    /// Whether something is under way on the session.
    pub(crate) fn is_busy(&self) -> bool {
        self.session.borrow().as_ref().is_some_and(|session| session.slots.iter().any(|slot| slot.is_taken))
    }

    /// Slots that it asks for.
    pub(super) fn slots_asked(&self) -> u32 {
        if self.world.is_scarce { 2 * SLOTS } else { SLOTS }
    }

    pub(crate) fn new_session(&self, id: SessionId, slots: u32) {
        let slots = vec![Slot::default(); slots.clamp(1, self.slots_asked()) as usize];
        let wanted = slots.len();
        *self.session.borrow_mut() = Some(Session { id, slots, wanted });
        self.is_out_of_step.set(false);
    }
}
