//! The back channel: what the server calls, answered once each (RFC 8881 sections 2.10.6, 18.36, 20).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::limits::{CLIENT_BACK_SLOTS, CLIENT_CALLBACKS_MAX};
use holdfast_base::{SessionId, SlotId};
use holdfast_rpc::link::PeerCall;
use holdfast_wire::nfs4::{
    Attr, Bitmap4, CB_COMPOUND, CB_NULL, CbArgOp, CbCompoundArgsHeader, CbOpNum4, CbRecallAny4Args,
    CbSequence4Args, CbSequence4Ok, NFS4_CALLBACK_PROGRAM, NfsStat4, RCA4_TYPE_MASK_RDATA_DLG,
    RCA4_TYPE_MASK_WDATA_DLG,
};
use holdfast_wire::rpc::AcceptStat;
use holdfast_xdr::{Decode, Encode, Reader, Writer};
use parking_lot::{Condvar, Mutex};

use crate::client::Inner;
use crate::{Handle, HeldAttributes, Recall};

/// How long a callback waits for the answers that it refers to.
const REFERRED_PATIENCE: Duration = Duration::from_secs(2);

/// The back channel.
#[derive(Default)]
pub(crate) struct Back {
    state: Mutex<State>,
    is_filled: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<PeerCall>,
    is_over: bool,
    session: Option<SessionId>,
    slots: [Slot; CLIENT_BACK_SLOTS],
}

#[derive(Clone, Default)]
struct Slot {
    /// The last request's number.
    seqid: u32,
    /// What it was answered.
    reply: Bytes,
    /// The connection was made anew since: to a server that may have restarted and kept the session, but not the numbers
    /// of its own calls.
    may_begin_anew: bool,
}

impl Back {
    /// A call came. Never blocks.
    pub(crate) fn add(&self, call: PeerCall) {
        let mut state = self.state.lock();
        if state.is_over || state.waiting.len() >= CLIENT_CALLBACKS_MAX {
            drop(state);
            call.refuse(AcceptStat::SystemErr);
            return;
        }
        state.waiting.push_back(call);
        self.is_filled.notify_one();
    }

    /// The slots begin anew with a session.
    pub(crate) fn new_session(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.session = Some(session);
        state.slots = Default::default();
    }

    /// A connection was bound: the server may count its calls from 1 again.
    pub(crate) fn may_begin_anew(&self) {
        self.state.lock().slots.iter_mut().for_each(|slot| slot.may_begin_anew = true);
    }

    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.waiting.clear();
        self.is_filled.notify_all();
    }

    fn next(&self) -> Option<PeerCall> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(call) = state.waiting.pop_front() {
                return Some(call);
            }
            self.is_filled.wait(&mut state);
        }
    }

    /// Judges a CB_SEQUENCE: carry it out, or answer this.
    fn judge(&self, args: &CbSequence4Args) -> Result<(), Judged> {
        let state = self.state.lock();
        if state.session != Some(args.sessionid) {
            return Err(Judged::Refuse(NfsStat4::BadSession));
        }
        let Some(slot) = state.slots.get(args.slotid.0 as usize) else {
            return Err(Judged::Refuse(NfsStat4::BadSlot));
        };
        // What looks like the first call sent again may be another one. No callback does harm when it is carried out twice,
        // and a recall that is taken for one that was answered would never be heeded.
        let is_first_anew = slot.may_begin_anew && args.sequenceid.0 == 1;
        if is_first_anew || args.sequenceid.0 == slot.seqid.wrapping_add(1) {
            return Ok(());
        }
        if args.sequenceid.0 == slot.seqid && !slot.reply.is_empty() {
            return Err(Judged::Again(slot.reply.clone()));
        }
        Err(Judged::Refuse(NfsStat4::SeqMisordered))
    }

    fn answered(&self, args: &CbSequence4Args, reply: Bytes) {
        let mut state = self.state.lock();
        if state.session == Some(args.sessionid)
            && let Some(slot) = state.slots.get_mut(args.slotid.0 as usize)
        {
            *slot = Slot { seqid: args.sequenceid.0, reply, may_begin_anew: false };
        }
    }
}

enum Judged {
    Refuse(NfsStat4),
    /// It was answered so before.
    Again(Bytes),
}

/// The results of a callback's operations so far.
#[derive(Default)]
struct Results {
    w: Writer,
    count: u32,
}

impl Results {
    fn add(&mut self, op: u32, status: NfsStat4) {
        self.w.u32(op);
        self.w.u32(status.as_u32());
        self.count += 1;
    }

    fn finish(self, tag: &[u8], status: NfsStat4) -> Bytes {
        let mut w = Writer::new();
        w.u32(status.as_u32());
        w.opaque(tag);
        w.u32(self.count);
        w.put(self.w.as_slice());
        w.into_vec().into()
    }
}

impl Inner {
    /// The thread.
    pub(crate) fn run_callbacks(&self) {
        while let Some(call) = self.back.next() {
            self.answer(call);
        }
    }

    fn answer(&self, call: PeerCall) {
        let target = call.target;
        if target.program == NFS4_CALLBACK_PROGRAM {
            return match target.procedure {
                CB_NULL => call.answer(&[]),
                CB_COMPOUND => match self.callback(&call.args) {
                    Some(reply) => call.answer(&reply),
                    None => call.refuse(AcceptStat::GarbageArgs),
                },
                _ => call.refuse(AcceptStat::ProcUnavail),
            };
        }
        let program = self.programs.lock().get(&target.program).map(Arc::clone);
        let Some(program) = program else { return call.refuse(AcceptStat::ProgUnavail) };
        let mut reply = Writer::new();
        match program.call(target.version, target.procedure, &call.args, &mut reply) {
            Ok(()) => call.answer(reply.as_slice()),
            Err(stat) => call.refuse(stat),
        }
    }

    /// One CB_COMPOUND; nothing when it cannot even be read.
    fn callback(&self, args: &Bytes) -> Option<Bytes> {
        let mut r = Reader::new(args);
        let header = CbCompoundArgsHeader::decode(&mut r).ok()?;
        let mut results = Results::default();
        if header.minorversion == 0 {
            return Some(results.finish(header.tag, NfsStat4::MinorVersMismatch));
        }
        if header.ops == 0 {
            return Some(results.finish(header.tag, NfsStat4::Ok));
        }
        let sequence = match CbArgOp::decode(&mut r) {
            Ok(CbArgOp::Sequence(sequence)) => sequence,
            Ok(_) => {
                results.add(r.clone().u32().unwrap_or(0), NfsStat4::OpNotInSession);
                return Some(results.finish(header.tag, NfsStat4::OpNotInSession));
            }
            Err(_) => return None,
        };
        match self.back.judge(&sequence) {
            Ok(()) => {}
            Err(Judged::Again(reply)) => return Some(reply),
            Err(Judged::Refuse(status)) => {
                results.add(CbOpNum4::Sequence as u32, status);
                return Some(results.finish(header.tag, status));
            }
        }
        self.await_referred(&sequence);
        results.add(CbOpNum4::Sequence as u32, NfsStat4::Ok);
        let highest = SlotId(CLIENT_BACK_SLOTS as u32 - 1);
        CbSequence4Ok {
            sessionid: sequence.sessionid,
            sequenceid: sequence.sequenceid,
            slotid: sequence.slotid,
            highest_slotid: highest,
            target_highest_slotid: highest,
        }
        .encode(&mut results.w);
        let mut status = NfsStat4::Ok;
        for _ in 1..header.ops {
            let Ok(op) = CbArgOp::decode(&mut r) else {
                status = NfsStat4::BadXdr;
                results.add(CbOpNum4::Illegal as u32, status);
                break;
            };
            status = self.carry_out(&op, &mut results);
            if status != NfsStat4::Ok {
                break;
            }
        }
        let reply = results.finish(header.tag, status);
        self.back.answered(&sequence, reply.clone());
        Some(reply)
    }

    /// A recall may overtake the answer that brings what it recalls: the server says which answers those are, and they
    /// are awaited (RFC 8881 section 2.10.6.3).
    fn await_referred(&self, sequence: &CbSequence4Args) {
        let until = Instant::now() + REFERRED_PATIENCE;
        let Some(session) = self.gate.session() else { return };
        for list in sequence.referring_call_lists.iter().filter(|list| list.sessionid == session.id) {
            for call in &list.calls {
                session.settled(call.slotid, call.sequenceid, &self.quit, until);
            }
        }
    }

    /// One operation.
    fn carry_out(&self, op: &CbArgOp<'_>, results: &mut Results) -> NfsStat4 {
        let (number, status) = match op {
            CbArgOp::GetAttr(asked) => {
                if let Some(held) = self.held(asked.fh) {
                    results.add(CbOpNum4::GetAttr as u32, NfsStat4::Ok);
                    put_held(&held, asked.attr_request, &mut results.w);
                    return NfsStat4::Ok;
                }
                (CbOpNum4::GetAttr, NfsStat4::BadHandle)
            }
            CbArgOp::Recall(recall) => {
                (CbOpNum4::Recall, self.recalled(recall.fh, &recall.stateid, recall.truncate))
            }
            CbArgOp::RecallAny(asked) => {
                self.recalled_any(asked);
                (CbOpNum4::RecallAny, NfsStat4::Ok)
            }
            CbArgOp::RecallSlot(slots) => {
                if let Some(session) = self.gate.session() {
                    session.aim(slots.target_highest_slotid);
                }
                (CbOpNum4::RecallSlot, NfsStat4::Ok)
            }
            CbArgOp::NotifyLock(_) => {
                *self.notices.lock() += 1;
                self.noticed.wake_all();
                (CbOpNum4::NotifyLock, NfsStat4::Ok)
            }
            CbArgOp::Offload(ended) => {
                self.offloads.ended(ended.stateid, ended.info);
                (CbOpNum4::Offload, NfsStat4::Ok)
            }
            CbArgOp::RecallableObjAvail(_) => (CbOpNum4::RecallableObjAvail, NfsStat4::Ok),
            CbArgOp::WantsCancelled(_) => (CbOpNum4::WantsCancelled, NfsStat4::Ok),
            CbArgOp::Notify(_) => (CbOpNum4::Notify, NfsStat4::Ok),
            CbArgOp::NotifyDeviceId(_) => (CbOpNum4::NotifyDeviceId, NfsStat4::Ok),
            // We hold none, and want none pushed.
            CbArgOp::LayoutRecall(_) => (CbOpNum4::LayoutRecall, NfsStat4::NoMatchingLayout),
            CbArgOp::PushDeleg(_) => (CbOpNum4::PushDeleg, NfsStat4::RejectDeleg),
            CbArgOp::Sequence(_) => (CbOpNum4::Sequence, NfsStat4::SequencePos),
            CbArgOp::Illegal(_) => (CbOpNum4::Illegal, NfsStat4::OpIllegal),
        };
        results.add(number as u32, status);
        status
    }

    /// What the holder knows of a file; nothing when it holds no delegation to write.
    fn held(&self, file: &[u8]) -> Option<HeldAttributes> {
        let file = Handle::new(file);
        let is_held = self.files.look(&file, |held| held.delegation.is_some())?;
        is_held.then(|| self.callbacks.held_attributes(&file)).flatten()
    }

    fn recalled(&self, file: &[u8], stateid: &holdfast_wire::nfs4::Stateid4, truncate: bool) -> NfsStat4 {
        let file = Handle::new(file);
        let recalled = self.files.find(&file).and_then(|state| {
            let mut held = state.held.lock();
            let known = held.delegation.as_mut().filter(|known| known.stateid.other == stateid.other)?;
            known.is_recalled = true;
            Some(Recall { kind: known.kind, truncate, number: self.files.next_number() })
        });
        let Some(recall) = recalled else { return NfsStat4::BadStateid };
        self.callbacks.recall(&file, recall);
        NfsStat4::Ok
    }

    fn recalled_any(&self, asked: &CbRecallAny4Args) {
        let has = |kind| asked.type_mask.contains(kind);
        let (read, write) = (has(RCA4_TYPE_MASK_RDATA_DLG), has(RCA4_TYPE_MASK_WDATA_DLG));
        self.callbacks.recall_any(asked.objects_to_keep, read, write);
    }
}

/// The attributes that a holder answers for, in the order of their numbers.
fn put_held(held: &HeldAttributes, asked: Bitmap4, w: &mut Writer) {
    let (mut mask, mut values) = (Bitmap4::EMPTY, Writer::new());
    if asked.has(Attr::Change) {
        mask = mask.with_attr(Attr::Change);
        values.u64(held.change);
    }
    if asked.has(Attr::Size) {
        mask = mask.with_attr(Attr::Size);
        values.u64(held.size);
    }
    for (attr, time) in [(Attr::TimeDelegAccess, held.accessed), (Attr::TimeDelegModify, held.modified)] {
        if let Some(time) = time.filter(|_| asked.has(attr)) {
            mask = mask.with_attr(attr);
            time.encode(&mut values);
        }
    }
    mask.encode(w);
    w.opaque(values.as_slice());
}
