//! The way back: a connection bound to the session, and answers to what the server calls for.

use std::rc::Rc;

use holdfast_base::{Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader, Writer};

use super::v4::{Client4, SLOTS};
use crate::wire::Ops;
use crate::world::calls::{Callee, Sent};

/// The last call of one slot.
#[derive(Default)]
pub(crate) struct Called {
    seqid: Seqid,
    args: Vec<u8>,
    /// Of the server, when it was made.
    life: u64,
}

impl Callee for Client4 {
    fn called(&self, (_, procedure): (u32, u32), args: &[u8], _: Sent) -> Option<Vec<u8>> {
        self.this.upgrade()?.call_answered(procedure, args)
    }
}

impl Client4 {
    /// Has the back channel use the connection of now (RFC 8881 section 18.34).
    pub(crate) async fn bind(&self) {
        let is_bound = self.bound.get() == self.conn.connects() && !self.is_path_down.get();
        let Some(sessionid) = self.session.borrow().as_ref().map(|session| session.id).filter(|_| !is_bound)
        else {
            return;
        };
        let connects = self.conn.connects();
        let args = BindConnToSession4Args {
            sessionid,
            dir: ChannelDirFromClient4::ForeOrBoth,
            use_conn_in_rdma_mode: false,
        };
        let (reply, _) = self.without_session(&Ops::new(&[ArgOp::BindConnToSession(args)])).await;
        if reply.status == NfsStat4::Ok && connects == self.conn.connects() {
            self.bound.set(connects);
        }
    }

    /// Answers a callback.
    pub(super) fn call_answered(self: &Rc<Self>, procedure: u32, args: &[u8]) -> Option<Vec<u8>> {
        if !self.kind.answers_callbacks || self.is_dead.get() {
            return None;
        }
        if procedure != CB_COMPOUND {
            return Some(Vec::new());
        }
        let mut r = Reader::new(args);
        let header = CbCompoundArgsHeader::decode(&mut r).ok()?;
        let (mut results, mut count, mut status) = (Writer::new(), 0, NfsStat4::Ok);
        let (mut is_again, mut session) = (false, None);
        while count < header.ops && status == NfsStat4::Ok {
            count += 1;
            let op = CbArgOp::decode(&mut r).ok()?;
            status = match &op {
                CbArgOp::Sequence(sequence) => {
                    session = Some(sequence.sessionid);
                    let counted = self.count_call(sequence, args);
                    is_again = counted == Ok(true);
                    answer_sequence(sequence, counted.err().unwrap_or(NfsStat4::Ok), &mut results)
                }
                // As Linux, which keeps no answers.
                op if is_again => {
                    let mut number = Writer::new();
                    holdfast_xdr::Encode::encode(op, &mut number);
                    results.put(number.as_slice().get(..4)?);
                    results.u32(NfsStat4::RetryUncachedRep.as_u32());
                    NfsStat4::RetryUncachedRep
                }
                op => self.run_callback((session, op), &mut results),
            };
        }
        let mut w = Writer::new();
        w.u32(status.as_u32());
        w.opaque(b"");
        w.u32(count);
        w.put(results.as_slice());
        Some(w.into_vec())
    }

    /// Counts a call; tells whether it is the last one once more. One out of step is refused, and in the life of the server
    /// that made the last one there is none.
    fn count_call(&self, sequence: &CbSequence4Args, args: &[u8]) -> Result<bool, NfsStat4> {
        let life = self.conn.life();
        let mut all = self.called.borrow_mut();
        let last = all.entry((sequence.sessionid, sequence.slotid.0)).or_default();
        if sequence.sequenceid == last.seqid.next() {
            *last = Called { seqid: sequence.sequenceid, args: args.to_vec(), life };
            return Ok(false);
        }
        let is_again = sequence.sequenceid == last.seqid;
        let (name, slot, is, was) = (self.name(), sequence.slotid.0, sequence.sequenceid.0, last.seqid.0);
        self.world.tell(|| format!("{name}: is called in slot {slot} by number {is} after {was}"));
        if last.life == life && last.args != args {
            let what = format!("callbacks: {name} is called by number {is} after {was}, for something else");
            self.world.oracles.violated(what);
        }
        // What a new life has sent once it may send again.
        (last.life, last.args) = (life, args.to_vec());
        if is_again { Ok(true) } else { Err(NfsStat4::SeqMisordered) }
    }

    /// One operation of a callback behind CB_SEQUENCE, which names the session.
    fn run_callback(
        self: &Rc<Self>,
        (session, op): (Option<SessionId>, &CbArgOp<'_>),
        results: &mut Writer,
    ) -> NfsStat4 {
        let (number, status) = match op {
            CbArgOp::NotifyLock(_) => {
                self.is_notified.set(true);
                (CbOpNum4::NotifyLock, NfsStat4::Ok)
            }
            CbArgOp::GetAttr(asked) => {
                let status = self.attributes(asked.fh, asked.attr_request, results);
                if status == NfsStat4::Ok {
                    return status;
                }
                (CbOpNum4::GetAttr, status)
            }
            CbArgOp::Recall(recall) => (CbOpNum4::Recall, self.recalled(&recall.stateid)),
            CbArgOp::Notify(notify) => (CbOpNum4::Notify, self.notified(notify)),
            CbArgOp::RecallAny(asked) => {
                self.give_back_some(asked);
                (CbOpNum4::RecallAny, NfsStat4::Ok)
            }
            CbArgOp::RecallSlot(asked) => {
                let Some(session) = session else {
                    self.world
                        .oracles
                        .violated(format!("{}: slots are asked for without a session", self.name()));
                    return NfsStat4::OpNotInSession;
                };
                self.want_slots(session, asked.target_highest_slotid);
                (CbOpNum4::RecallSlot, NfsStat4::Ok)
            }
            CbArgOp::RecallableObjAvail(_) => (CbOpNum4::RecallableObjAvail, NfsStat4::Ok),
            other => {
                let what = format!("{}: an unexpected callback {other:?}", self.name());
                self.world.oracles.violated(what);
                (CbOpNum4::Illegal, NfsStat4::OpIllegal)
            }
        };
        results.u32(number as u32);
        results.u32(status.as_u32());
        status
    }
}

fn answer_sequence(sequence: &CbSequence4Args, status: NfsStat4, results: &mut Writer) -> NfsStat4 {
    results.u32(CbOpNum4::Sequence as u32);
    results.u32(status.as_u32());
    if status == NfsStat4::Ok {
        let highest = SlotId(SLOTS - 1);
        let ok = CbSequence4Ok {
            sessionid: sequence.sessionid,
            sequenceid: sequence.sequenceid,
            slotid: sequence.slotid,
            highest_slotid: highest,
            target_highest_slotid: highest,
        };
        holdfast_xdr::Encode::encode(&ok, results);
    }
    status
}
