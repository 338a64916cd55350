//! The way back: a connection bound to the session, and answers to what the server calls for.

use std::rc::Rc;

use holdfast_base::SlotId;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader, Writer};

use super::v4::{Client4, SLOTS};
use crate::wire::Ops;
use crate::world::calls::{Callee, Sent};

impl Callee for Client4 {
    fn called(&self, (_, procedure): (u32, u32), args: &[u8], _: Sent) -> Option<Vec<u8>> {
        self.this.upgrade()?.call_answered(procedure, args)
    }
}

impl Client4 {
    /// Has the back channel use the connection of now (RFC 8881 section 18.34).
    pub(super) async fn bind(&self) {
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
        while count < header.ops && status == NfsStat4::Ok {
            count += 1;
            status = self.run_callback(&CbArgOp::decode(&mut r).ok()?, &mut results);
        }
        let mut w = Writer::new();
        w.u32(status.as_u32());
        w.opaque(b"");
        w.u32(count);
        w.put(results.as_slice());
        Some(w.into_vec())
    }

    /// One operation of a callback.
    fn run_callback(self: &Rc<Self>, op: &CbArgOp<'_>, results: &mut Writer) -> NfsStat4 {
        let (number, status) = match op {
            CbArgOp::Sequence(sequence) => {
                results.u32(CbOpNum4::Sequence as u32);
                results.u32(NfsStat4::Ok.as_u32());
                let highest = SlotId(SLOTS - 1);
                let ok = CbSequence4Ok {
                    sessionid: sequence.sessionid,
                    sequenceid: sequence.sequenceid,
                    slotid: sequence.slotid,
                    highest_slotid: highest,
                    target_highest_slotid: highest,
                };
                holdfast_xdr::Encode::encode(&ok, results);
                return NfsStat4::Ok;
            }
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
            CbArgOp::RecallAny(_) => (CbOpNum4::RecallAny, NfsStat4::Ok),
            CbArgOp::RecallSlot(_) => (CbOpNum4::RecallSlot, NfsStat4::Ok),
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
