//! Other RPC programs on the client's connections, and their calls back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use holdfast_base::SessionId;
use holdfast_rpc::CallError;
use holdfast_rpc::link::Target;
use holdfast_wire::rpc::AcceptStat;
use holdfast_xdr::Writer;

use crate::client::Inner;
use crate::{Client, Cx, Error, Result};

/// What happened to the session or to the connection that other programs are called over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// The session in use now.
    pub session: SessionId,
    /// It is another one than before; else only the connection is.
    pub is_new_session: bool,
    /// The server has restarted or forgotten us: whatever it knew has to be reclaimed now, or is lost.
    pub must_reclaim: bool,
    /// We are about to leave the server for another: what is to be settled with it is settled now, or never.
    pub is_leaving: bool,
}

impl SessionEvent {
    /// A new connection of a session, and nothing else.
    pub(crate) const fn of(session: SessionId) -> Self {
        Self { session, is_new_session: false, must_reclaim: false, is_leaving: false }
    }
}

/// Told of sessions and connections. Runs on the recovery thread while ordinary operations wait, and before the server
/// is told that all is reclaimed; may use [`Client::call_program`], and nothing else of the client that waits.
pub type Hook = Arc<dyn Fn(&SessionHandle<'_>, SessionEvent) + Send + Sync>;

/// What a hook may use of the client.
#[derive(Clone, Copy)]
pub struct SessionHandle<'a>(pub(crate) &'a Inner);

impl SessionHandle<'_> {
    /// Like [`Client::call_program`].
    ///
    /// # Errors
    /// Those of [`Client::call_program`]; it does not wait for a connection, nor longer than
    /// [`crate::Options::patience`] for the answer.
    pub fn call_program(&self, target: Target, cx: Cx<'_>, args: &[Bytes]) -> Result<Bytes> {
        self.0.call_program(target, cx, args, true)
    }
}

impl std::fmt::Debug for SessionHandle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHandle").finish_non_exhaustive()
    }
}

/// A program that the server calls.
pub trait CallbackProgram: Send + Sync {
    /// Answers a call, on the client's callback thread: locks may be taken shortly, but nothing may be waited for. The
    /// results are appended to `reply`.
    ///
    /// # Errors
    /// What the server is told instead of results.
    fn call(&self, version: u32, procedure: u32, args: &[u8], reply: &mut Writer) -> Result<(), AcceptStat>;
}

impl Client {
    /// Calls a procedure of another program over the connection that the session's back channel uses. Waits for a
    /// connection, but does not repeat the call when that breaks: whether it was carried out is the caller's to find
    /// out. It may overtake recovery: what it names has to be known to the server.
    ///
    /// # Errors
    /// [`Error::Rpc`] when the server does not have the program or does not run the call; [`Error::Disconnected`] when
    /// the connection broke under it; [`Error::Cancelled`], [`Error::TimedOut`] (soft), [`Error::Closed`].
    pub fn call_program(&self, target: Target, cx: Cx<'_>, args: &[Bytes]) -> Result<Bytes> {
        self.inner().call_program(target, cx, args, false)
    }

    /// Has a hook told of every session and of every new first connection from now on, beginning with those in use.
    pub fn on_new_session(&self, hook: Hook) {
        let inner = self.inner();
        let own = Arc::clone(&hook);
        inner.hooks.lock().push(hook);
        if let Some(session) = inner.gate.session() {
            let event = SessionEvent { is_new_session: true, ..SessionEvent::of(session.id) };
            own(&SessionHandle(inner), event);
        }
    }

    /// Has calls of the server to this program answered.
    pub fn register_program(&self, program: u32, answers: Arc<dyn CallbackProgram>) {
        self.inner().programs.lock().insert(program, answers);
    }
}

impl Inner {
    pub(crate) fn call_program(
        &self,
        target: Target,
        cx: Cx<'_>,
        args: &[Bytes],
        is_at_once: bool,
    ) -> Result<Bytes> {
        // Recovery itself waits for what a hook asks: not for ever.
        let patience = is_at_once.then(|| Instant::now() + self.options.patience);
        let deadline = patience.or_else(|| self.deadline());
        let link = if is_at_once {
            self.links.primary()
        } else {
            self.todo.wake_unless(self.links.primary().is_some());
            // A hook may wait for whoever calls here, and recovery waits for the hook: a connection would never come.
            let is_over = || self.quit.is_cancelled() || self.is_in_hook.load(Ordering::SeqCst);
            self.links.wait_primary((cx.cancel, deadline), is_over)?
        };
        let closed = self.quit.is_cancelled();
        let link = link.ok_or(if closed { Error::Closed } else { Error::Disconnected })?;
        let _counted = Counted::among(&self.program_calls);
        let pending = link.start(target, cx.cred.encoded(), args, (cx.cancel, deadline)).map_err(failed)?;
        let reply = pending.wait(cx.cancel, deadline)?.map_err(failed)?;
        Ok(reply.keep(reply.results()))
    }

    /// Tells the hooks.
    pub(crate) fn run_hooks(&self, event: SessionEvent) {
        let hooks = self.hooks.lock().clone();
        self.is_in_hook.store(true, Ordering::SeqCst);
        self.links.wake();
        hooks.iter().for_each(|hook| hook(&SessionHandle(self), event));
        self.is_in_hook.store(false, Ordering::SeqCst);
    }
}

/// One more is under way until this ends.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn among(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(all)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn failed(e: CallError) -> Error {
    match e {
        CallError::Closed => Error::Disconnected,
        CallError::TimedOut => Error::TimedOut,
        other => Error::Rpc(other),
    }
}
