//! Calls of ours to clients. Those of 4.1 and later are called over connections that they bound to a session
//! (`session.rs`), those of 4.0 over one that we make (`path.rs`). Nothing here waits.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_rpc::{Auth, CallError, Connection};
use holdfast_state::{Callback, ConnId};
use holdfast_wire::nfs4::{CbArgOp, NfsStat4};
use parking_lot::{Mutex, MutexGuard};

use crate::desc::Minor;
use crate::service::Service;

pub(crate) mod address;
mod answer;
mod call_slot;
mod path;
mod session;

pub(crate) use answer::Answer;
pub(crate) use session::{ChannelImage, credential};

use self::path::Paths;
pub use self::path::{CallOut, CalledOut, CallsOut};
use self::session::{Channels, ToCall};

/// How long a client may take to answer a callback before it counts as not answering.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a callback has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallbackError {
    /// The client has no connection that carries callbacks.
    NoChannel,
    /// All slots of its back channel are taken.
    Busy,
    /// It is longer than the client takes.
    TooBig,
    /// The call was lost.
    Lost(CallError),
    /// The client refused CB_SEQUENCE.
    Refused(NfsStat4),
    /// The answer makes no sense.
    Garbled,
}

impl CallbackError {
    /// Whether it tells that calls do not get through, and not just that this one did not.
    const fn is_breakdown(self) -> bool {
        match self {
            Self::Lost(CallError::Busy) | Self::NoChannel | Self::Busy | Self::TooBig => false,
            // A connection that ended is known by itself.
            Self::Lost(CallError::Closed) | Self::Refused(_) => false,
            Self::Lost(_) | Self::Garbled => true,
        }
    }
}

/// Told what the client answered, or why there is no answer.
pub(crate) type Answered = Box<dyn FnOnce(Result<Answer<'_>, CallbackError>) + Send>;

/// The same for whom the status is enough.
pub(crate) type CalledBack = Box<dyn FnOnce(Result<NfsStat4, CallbackError>) + Send>;

/// A request of a client's, to be named in callbacks about its outcome: its reply may still be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Referred {
    pub(crate) session: SessionId,
    pub(crate) slot: SlotId,
    pub(crate) seqid: Seqid,
}

/// All ways to call clients.
#[derive(Default)]
pub(crate) struct Callbacks {
    channels: Channels,
    paths: Paths,
    /// Held by who changes how a session is called.
    changing: Mutex<()>,
}

impl Callbacks {
    /// A session was made, or a connection given to it. Of a former life's, `unsure` slots may have been counted.
    pub(crate) fn session_made(
        &self,
        session: (SessionId, ClientId, Minor),
        (auth, unsure): (Auth, u32),
        connection: &Arc<Connection>,
    ) {
        self.channels.session_made(session, (auth, unsure), connection);
    }

    /// For who changes how a session is called; none while somebody else does.
    pub(crate) fn turn_to_change(&self) -> Option<MutexGuard<'_, ()>> {
        self.changing.try_lock()
    }

    /// Its callbacks come as somebody else from now on.
    pub(crate) fn session_changed(&self, id: SessionId, auth: Auth) {
        self.channels.session_changed(id, auth);
    }

    pub(crate) fn session_gone(&self, id: SessionId) {
        self.channels.session_gone(id);
    }

    pub(crate) fn freeze(&self) -> Vec<ChannelImage> {
        self.channels.freeze()
    }

    pub(crate) fn thaw(&self, images: Vec<ChannelImage>) {
        self.channels.thaw(images);
    }

    pub(crate) fn connection_adopted(&self, connection: &Arc<Connection>) {
        self.channels.connection_adopted(connection);
    }

    pub(crate) fn connection_gone(&self, conn: ConnId) {
        self.channels.connection_gone(conn);
    }

    /// A client of 4.0 said where it is to be called. `tried` is told whether it answers there.
    pub(crate) fn client_made(
        &self,
        client: ClientId,
        callback: &Callback,
        tried: Box<dyn FnOnce(bool) + Send>,
    ) {
        self.paths.open(client, callback, tried);
    }

    /// Has clients of 4.0 called by somebody else than our own thread.
    pub(crate) fn call_by(&self, calls: Arc<dyn CallsOut>) {
        self.paths.call_by(calls);
    }

    /// Whether a client of 4.0 answers where it said, as far as is known.
    pub(crate) fn is_client_up(&self, client: ClientId) -> bool {
        self.paths.is_up(client)
    }

    /// Whether it was called there and did not answer; `None` where no way to it is open.
    pub(crate) fn is_client_down(&self, client: ClientId) -> Option<bool> {
        self.paths.is_down(client)
    }

    pub(crate) fn client_gone(&self, client: ClientId) {
        self.paths.close(client);
    }
}

impl Service {
    /// A session was made, or a connection given to it. False when it is gone by now.
    pub(crate) fn session_made(
        &self,
        session: (SessionId, ClientId, Minor),
        (auth, unsure): (Auth, u32),
        connection: &Arc<Connection>,
    ) -> bool {
        let id = session.0;
        self.callbacks.session_made(session, (auth, unsure), connection);
        // Between the engine's word and this note somebody may have destroyed it or taken it back, and told of its end before there
        // was anything to be forgotten. Of an end after this look the note is there to be taken.
        let is_there = self.look(|engine| engine.sessions().get(id).is_some());
        if !is_there {
            self.callbacks.session_gone(id);
        }
        is_there
    }

    /// Calls a client back. `done` runs on a thread that must not be blocked, perhaps before this returns.
    pub(crate) fn call_back(self: &Arc<Self>, client: ClientId, op: CbArgOp<'_>, done: CalledBack) {
        self.call_back_about(client, op, None, Box::new(|answer| done(answer.map(|answer| answer.status))));
    }

    /// The same, about what a request of the client's led to; and with all of the answer.
    pub(crate) fn call_back_about(
        self: &Arc<Self>,
        client: ClientId,
        op: CbArgOp<'_>,
        refers: Option<Referred>,
        done: Answered,
    ) {
        match self.callbacks.paths.call(client, &op, done) {
            Ok(()) => {}
            // Not one of 4.0.
            Err(done) => self.call_session(client, &ToCall { op, refers, session: None }, done),
        }
    }

    /// Calls a client back over one session's channel.
    pub(crate) fn call_back_in(self: &Arc<Self>, session: SessionId, op: CbArgOp<'_>, done: Answered) {
        match self.callbacks.channels.client_of(session) {
            Some(client) => {
                let call = ToCall { op, refers: None, session: Some(session) };
                self.call_session(client, &call, done);
            }
            None => done(Err(CallbackError::NoChannel)),
        }
    }

    /// Whether a client can be called back, as far as is known. Mostly its session at hand tells.
    pub(crate) fn can_call_back(&self, client: ClientId, session: Option<SessionId>) -> bool {
        let carries = |id| {
            self.look(|engine| engine.sessions().get(id).is_some_and(holdfast_state::Session::can_call_back))
        };
        session.is_some_and(carries) || self.callbacks.is_client_up(client) || self.has_channel(client)
    }

    /// A client of 4.0 has confirmed where it is to be called: finds out whether it answers there.
    pub(crate) fn callback_confirmed(self: &Arc<Self>, client: ClientId) {
        let Some(callback) = self.look(|engine| engine.callback(client).cloned()) else { return };
        let service = Arc::clone(self);
        let tried = move |is_up| service.tell(|engine, _| engine.callback_path(client, is_up));
        self.callbacks.client_made(client, &callback, Box::new(tried));
    }
}
