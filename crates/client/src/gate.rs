//! Where operations wait while recovery is at work: behind it is the session to use.

use std::sync::Arc;
use std::time::Instant;

use holdfast_rpc::link::{Cancel, Wakers};
use parking_lot::Mutex;

use crate::establish::Identity;
use crate::session::Session;
use crate::{Error, Result};

/// The gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Wakers,
}

#[derive(Debug, Default)]
struct State {
    session: Option<Arc<Session>>,
    is_open: bool,
    /// Rises with every recovery that ended.
    epoch: u64,
    is_over: bool,
    why_not: Option<String>,
    identity: Option<Identity>,
}

impl Gate {
    /// The session to use, once there is one and recovery is done; and how many recoveries there were.
    pub(crate) fn ready(&self, cancel: &Cancel, deadline: Option<Instant>) -> Result<(Arc<Session>, u64)> {
        self.changed.wait(cancel, deadline, || {
            let state = self.state.lock();
            if state.is_over {
                return Some(Err(Error::Closed));
            }
            let session = state.session.as_ref().filter(|session| state.is_open && !session.is_lost())?;
            Some(Ok((Arc::clone(session), state.epoch)))
        })?
    }

    /// The session, whatever its state.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.state.lock().session.clone()
    }

    /// Recoveries that ended.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Puts a new session behind the gate, which stays closed.
    pub(crate) fn put(&self, session: Arc<Session>) {
        let mut state = self.state.lock();
        state.is_open = false;
        state.session = Some(session);
    }

    /// Lets nobody through until [`Gate::open`].
    pub(crate) fn close(&self) {
        self.state.lock().is_open = false;
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Recovery is done.
    pub(crate) fn open(&self) {
        let mut state = self.state.lock();
        state.is_open = true;
        state.epoch += 1;
        state.why_not = None;
        drop(state);
        self.changed.wake_all();
    }

    /// Nobody gets through any more.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.wake_all();
    }

    /// What the server knows us by.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.state.lock().identity.clone()
    }

    /// Notes what the server knows us by, or that it does not any more.
    pub(crate) fn set_identity(&self, identity: Option<Identity>) {
        self.state.lock().identity = identity;
    }

    /// Notes that the lease ended that a session rests on, and that the session is gone with it. False when it was gone before: then
    /// what the server knows us by may have been had since, and whoever uses that is told himself.
    pub(crate) fn lose_lease(&self, session: &Arc<Session>) -> bool {
        let mut state = self.state.lock();
        let is_current = state.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session));
        let is_news = is_current && !session.is_lost();
        if is_news {
            state.identity = None;
            // While the lock is held: who finds the session lost introduces himself, and is not to be forgotten for this.
            session.lose();
        }
        is_news
    }

    /// Notes why there is no session yet.
    pub(crate) fn not_yet(&self, why: String) {
        self.state.lock().why_not = Some(why);
    }

    /// Why there is no session.
    pub(crate) fn why_not(&self) -> Error {
        let why = self.state.lock().why_not.clone();
        why.map_or(Error::TimedOut, Error::Unreachable)
    }
}
