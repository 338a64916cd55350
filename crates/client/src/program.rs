//! Other RPC programs on the client's connections, and their calls back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::SessionId;
use holdfast_rpc::CallError;
use holdfast_rpc::link::{Cancel, Target};
use holdfast_wire::rpc::AcceptStat;
use holdfast_xdr::Writer;

use crate::client::Inner;
use crate::compound::Compound;
use crate::recover::Setback;
use crate::session::Session;
use crate::todo::Reclaim;
use crate::{Client, Cred, Cx, Error, Result};

/// What an attempt to claim what other programs hold counts as, however soon it breaks.
const CLAIM_COUNTS_AS: Duration = Duration::from_secs(1);

/// What happened to the session or to the connection that other programs are called over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// The session in use now.
    pub session: SessionId,
    /// It is another one than before; else only the connection is.
    pub is_new_session: bool,
    /// The server has restarted or forgotten us: whatever it knew has to be reclaimed now, or is lost.
    pub must_reclaim: bool,
    /// What is to be reclaimed could not be in the time there is for that ([`crate::Options::patience`]): it is lost. Nothing is asked
    /// for it any more.
    pub is_given_up: bool,
    /// We are about to leave the server for another: what is to be settled with it is settled now, or never.
    pub is_leaving: bool,
}

/// What a hook made of what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is not claimed yet is lost when the server is told that this was all"]
pub enum Hooked {
    /// All that it could: what was to be reclaimed is, or is lost.
    Done,
    /// What was to be reclaimed is not, and may be had yet: the connection broke, or the server put it off. Recovery begins again, and
    /// with it the hook.
    NotYet,
}

impl SessionEvent {
    /// A new connection of a session, and nothing else.
    pub(crate) const fn of(session: SessionId) -> Self {
        let (is_new_session, must_reclaim, is_given_up, is_leaving) = (false, false, false, false);
        Self { session, is_new_session, must_reclaim, is_given_up, is_leaving }
    }
}

/// Told of sessions and connections. Runs on the recovery thread while ordinary operations wait, and before the server
/// is told that all is reclaimed; may use what [`SessionHandle`] has, and nothing else of the client that waits. What it says counts
/// where something must be reclaimed.
pub type Hook = Arc<dyn Fn(&SessionHandle<'_>, SessionEvent) -> Hooked + Send + Sync>;

/// What a hook may use of the client.
#[derive(Clone, Copy)]
pub struct SessionHandle<'a> {
    inner: &'a Inner,
    /// When recovery gives up what the hook is to reclaim.
    until: Option<Instant>,
}

impl SessionHandle<'_> {
    /// Like [`Client::call_program`], and ended by the end of the client.
    ///
    /// # Errors
    /// Those of [`Client::call_program`]; it does not wait for a connection, nor longer than
    /// [`crate::Options::patience`] for the answer, nor beyond [`SessionHandle::until`].
    pub fn call_program(&self, target: Target, cred: &Cred, args: &[Bytes]) -> Result<Bytes> {
        let cx = Cx::new(cred, &self.inner.quit);
        self.inner.call_program(target, cx, args, OverWhat::AtOnce(self.until()))
    }

    /// When whatever the hook waits for has to be over, if it is the answer to one call.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until.unwrap_or_else(|| Instant::now() + self.inner.options.patience)
    }

    /// Given when the client ends.
    #[must_use]
    pub fn cancel(&self) -> &Cancel {
        &self.inner.quit
    }
}

/// Over which connection a program is called.
#[derive(Clone, Copy)]
pub(crate) enum OverWhat {
    /// The one that there is: recovery itself waits for what a hook asks, and not for ever.
    AtOnce(Instant),
    /// The next one, where there is none.
    Awaited,
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
        self.inner().call_program(target, cx, args, OverWhat::Awaited)
    }

    /// Has a hook told of every session and of every new first connection from now on, beginning with those in use.
    pub fn on_new_session(&self, hook: Hook) {
        let inner = self.inner();
        let own = Arc::clone(&hook);
        inner.hooks.lock().push(hook);
        if let Some(session) = inner.gate.session() {
            let event = SessionEvent { is_new_session: true, ..SessionEvent::of(session.id) };
            let _ = own(&SessionHandle { inner, until: None }, event);
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
        over: OverWhat,
    ) -> Result<Bytes> {
        let (link, deadline) = match over {
            OverWhat::AtOnce(until) => (self.links.primary(), Some(until)),
            OverWhat::Awaited => {
                let deadline = self.deadline();
                self.todo.wake_unless(self.links.primary().is_some());
                // A hook may wait for whoever calls here, and recovery waits for the hook: a connection would never come.
                let is_over = || self.quit.is_cancelled() || self.is_in_hook.load(Ordering::SeqCst);
                (self.links.wait_primary((cx.cancel, deadline), is_over)?, deadline)
            }
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
        let _ = self.run_hooks_until(None, event);
    }

    /// Tells the hooks, of which none waits for longer than this; what came of it with all of them.
    pub(crate) fn run_hooks_until(&self, until: Option<Instant>, event: SessionEvent) -> Hooked {
        let hooks = self.hooks.lock().clone();
        self.is_in_hook.store(true, Ordering::SeqCst);
        self.links.wake();
        let mut made = Hooked::Done;
        for hook in &hooks {
            if hook(&SessionHandle { inner: self, until }, event) == Hooked::NotYet {
                made = Hooked::NotYet;
            }
        }
        self.is_in_hook.store(false, Ordering::SeqCst);
        made
    }

    /// Has other programs claim what is theirs. Where that broke, or was put off, recovery begins again: over another connection the
    /// server would be told that this was all, and what it had promised would be believed though it was not claimed. But it is given up
    /// when [`crate::Options::patience`] was spent on it, however often it began again: an attempt counts as a second at least.
    pub(crate) fn claim_programs(&self, session: &Arc<Session>) -> Result<(), Setback> {
        let event = SessionEvent { is_new_session: true, must_reclaim: true, ..SessionEvent::of(session.id) };
        let (began, had) = {
            let mut work = self.todo.work.lock();
            work.reclaim = Reclaim::Underway;
            (Instant::now(), work.claimed_for)
        };
        let until = began + self.options.patience.saturating_sub(had);
        if self.run_hooks_until(Some(until), event) == Hooked::NotYet {
            let had = had + began.elapsed().max(CLAIM_COUNTS_AS);
            self.todo.work.lock().claimed_for = had;
            if had < self.options.patience {
                // Whether the session and the connections are there no hook finds out.
                self.ask_until(Some(until), session, &self.options.machine, &Compound::new(), |_| Ok(()))?;
                return Err(Setback::Again);
            }
            tracing::warn!("what was promised before the restart could not be claimed in time, and is lost");
            self.run_hooks(SessionEvent { is_given_up: true, ..event });
        }
        let mut work = self.todo.work.lock();
        (work.reclaim, work.claimed_for) = (Reclaim::Claimed, Duration::ZERO);
        Ok(())
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
