//! Delegations that come unasked, because they were asked for before (CB_PUSH_DELEG, RFC 8881 section 20.5).

use std::sync::Arc;

use holdfast_base::{ClientId, FileKey};
use holdfast_export::Object;
use holdfast_rpc::CallError;
use holdfast_state::{Caller, DelegationKind, Grounds, WhyNone};
use holdfast_wire::nfs4::{CbArgOp, CbPushDeleg4Args, CbWantsCancelled4Args, NfsStat4};

use super::{Asked, NotGiven, Place, delegate};
use crate::callback::CallbackError;
use crate::cx::At;
use crate::service::Service;

impl Service {
    /// A client wishes for nothing of this object any more.
    pub(crate) fn cancel_want(&self, place: Place) {
        let _ = self.delegations.wanted(place);
        self.tell(|engine, _| engine.delegation_want_cancel(place.0, Some(place.1)));
    }

    /// Tells a client that wishes of its will not be fulfilled: some of those for a push, some of those for a word.
    pub(crate) fn wants_cancelled(self: &Arc<Self>, client: ClientId, (pushes, signals): (bool, bool)) {
        let cancelled =
            CbWantsCancelled4Args { contended_wants_cancelled: pushes, resourced_wants_cancelled: signals };
        self.call_back(client, CbArgOp::WantsCancelled(cancelled), Box::new(|_| ()));
    }

    /// What a client wished for can be had: gives it. What it does not take is taken back.
    pub(crate) fn push(self: &Arc<Self>, client: ClientId, file: FileKey, kind: DelegationKind) {
        let Some(fh) = self.delegations.wanted((client, file)) else { return };
        // The wish is forgotten by now, so the client is told when nothing comes of it.
        let Ok(Object::Export(export, handle)) = self.config.namespace.open(fh.as_bytes()) else {
            return self.wants_cancelled(client, (true, false));
        };
        let at = At::of_server(export, handle, client);
        let (grounds, has_times) = (Grounds::Want, false);
        let asked =
            Asked { client, at: &at, kind, grounds, has_times, open: None, refers: None, notifying: None };
        let answered = match delegate(self, asked) {
            Ok(answered) => answered,
            Err(NotGiven::Declined(WhyNone::Held | WhyNone::HeldForWriting)) => return,
            Err(_) => return self.wants_cancelled(client, (true, false)),
        };
        let (stateid, token) = (answered.given.stateid, answered.given.token);
        let call =
            CbArgOp::PushDeleg(CbPushDeleg4Args { fh: fh.as_bytes(), delegation: answered.to_wire(&at) });
        let service = Arc::clone(self);
        let done = move |answer: Result<NfsStat4, CallbackError>| {
            if answer == Ok(NfsStat4::Ok) {
                return;
            }
            service.tell(|engine, now| {
                if is_refused(answer) {
                    // It is gone already when the client, or somebody's deed, was faster.
                    let _ = engine.delegation_return(Caller::V41(client), stateid, file, now);
                } else {
                    engine.recall(token, now);
                }
            });
        };
        self.call_back(client, call, Box::new(done));
    }
}

/// Whether the client is sure not to have the delegation. Where the answer was lost it may have taken it, and the call
/// is made once more when the client can be called again.
const fn is_refused(answer: Result<NfsStat4, CallbackError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(CallbackError::Lost(CallError::Busy)) => true,
        Err(CallbackError::Lost(_) | CallbackError::Garbled) => false,
        Err(_) => true,
    }
}
