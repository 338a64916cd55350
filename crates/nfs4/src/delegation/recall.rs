//! Asking for delegations back (RFC 8881 sections 10.2 and 20.2).

use std::sync::Arc;

use holdfast_base::{ClientId, FileKey, SessionId, SlotId};
use holdfast_rpc::CallError;
use holdfast_state::{DelegationToken, RecallAnswer, StateId};
use holdfast_wire::nfs4::{
    Bitmap4, CbArgOp, CbRecall4Args, CbRecallAny4Args, CbRecallSlot4Args, NfsStat4, RCA4_TYPE_MASK_DIR_DLG,
    RCA4_TYPE_MASK_RDATA_DLG, RCA4_TYPE_MASK_WDATA_DLG, Stateid4,
};

use crate::callback::CallbackError;
use crate::service::Service;

/// A delegation to be recalled.
#[derive(Clone, Copy)]
pub(crate) struct Recall {
    pub(crate) client: ClientId,
    pub(crate) token: DelegationToken,
    pub(crate) stateid: StateId,
    pub(crate) file: FileKey,
    pub(crate) truncates: bool,
}

impl Service {
    /// Recalls a delegation. The engine asks again when the client did not hear.
    pub(crate) fn recall(self: &Arc<Self>, recall: Recall) {
        let Some((fh, refers)) = self.delegations.point((recall.client, recall.file)) else {
            return self.recall_later(recall.token);
        };
        let Recall { stateid, truncates: truncate, token, .. } = recall;
        let stateid = Stateid4 { seqid: stateid.seqid, other: stateid.other };
        let call = CbArgOp::Recall(CbRecall4Args { stateid, truncate, fh: fh.as_bytes() });
        let service = Arc::clone(self);
        let answered = move |answer: Result<crate::callback::Answer<'_>, CallbackError>| match meaning(
            answer.map(|answer| answer.status),
        ) {
            Some(answer) => service.tell(|engine, now| {
                let is_told =
                    refers.is_none_or(|of| engine.sessions().is_reply_known(of.session, of.slot, of.seqid));
                let answer = if is_told { answer } else { answer.of_one_not_told() };
                engine.recall_answered(token, answer, now);
            }),
            None if service.delegations.put_off(recall) => {}
            // Its client is about to be given it.
            None => service.recall_later(token),
        };
        self.call_back_about(recall.client, call, refers, Box::new(answered));
    }

    fn recall_later(&self, token: DelegationToken) {
        self.tell(|engine, now| engine.recall_answered(token, RecallAnswer::NotSent, now));
    }

    /// Recalls again what clients put off. About once a second.
    pub(crate) fn recall_again(self: &Arc<Self>) {
        for recall in self.delegations.take_put_off() {
            if self.look(|engine| engine.delegation_of(recall.token)).is_some() {
                self.recall(recall);
            }
        }
    }

    /// Asks a client to return delegations of its own choice.
    pub(crate) fn recall_any(
        self: &Arc<Self>,
        client: ClientId,
        keep: u32,
        (files, directories): (bool, bool),
    ) {
        let mut type_mask = Bitmap4::EMPTY;
        if files {
            type_mask = type_mask.with(RCA4_TYPE_MASK_RDATA_DLG).with(RCA4_TYPE_MASK_WDATA_DLG);
        }
        if directories {
            type_mask = type_mask.with(RCA4_TYPE_MASK_DIR_DLG);
        }
        let call = CbArgOp::RecallAny(CbRecallAny4Args { objects_to_keep: keep, type_mask });
        self.call_back(client, call, Box::new(|_| ()));
    }

    /// Asks a client to use fewer slots of a session: up to this one.
    pub(crate) fn recall_slots(self: &Arc<Self>, session: SessionId, target: SlotId) {
        let call = CbArgOp::RecallSlot(CbRecallSlot4Args { target_highest_slotid: target });
        self.call_back_in(session, call, Box::new(|_| ()));
    }

    /// Tells a client that delegations are to be had again.
    pub(crate) fn object_available(self: &Arc<Self>, client: ClientId) {
        let type_mask = Bitmap4::EMPTY.with(RCA4_TYPE_MASK_RDATA_DLG).with(RCA4_TYPE_MASK_WDATA_DLG);
        let call = CbArgOp::RecallableObjAvail(CbRecallAny4Args { objects_to_keep: 0, type_mask });
        self.call_back(client, call, Box::new(|_| ()));
    }
}

/// What the engine is to make of an answer to CB_RECALL; nothing where the client asks for time: it is asked again.
fn meaning(answer: Result<NfsStat4, CallbackError>) -> Option<RecallAnswer> {
    match answer {
        Ok(NfsStat4::Ok) => Some(RecallAnswer::Accepted),
        // It does not know the delegation: because it forgot it, or because it does not know of it yet.
        Ok(NfsStat4::BadStateid | NfsStat4::BadHandle | NfsStat4::OldStateid) => Some(RecallAnswer::Unknown),
        Ok(NfsStat4::Delay) | Err(CallbackError::Refused(NfsStat4::Delay)) => None,
        Err(CallbackError::Busy | CallbackError::Lost(CallError::Busy)) => Some(RecallAnswer::NotSent),
        // Whoever answers is reached, whatever it says.
        Ok(_) => Some(RecallAnswer::Refused),
        Err(error) => {
            tracing::debug!(?error, "a recall does not get through to its client");
            Some(RecallAnswer::Unreachable)
        }
    }
}
