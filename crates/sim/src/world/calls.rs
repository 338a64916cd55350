//! Calls of the server's to clients on ways of its own, of NLM and of NFSv4.0: lost before or after they are run, overtaken,
//! late.

use std::net::IpAddr;
use std::rc::{Rc, Weak};

use super::{Life, Noted, World};
use crate::life::Plant;
use crate::peers::ToCarry;

/// How long the server waits for an answer before it gives a call up.
pub(super) const PATIENCE_MS: u64 = 10_000;

/// When a call was sent, and by which of the server's lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    pub(crate) life: u64,
}

/// Whom the server calls on a host.
pub(crate) trait Callee {
    /// Runs a call of the server's; the encoded results.
    fn called(&self, procedure: (u32, u32), args: &[u8], sent: Sent) -> Option<Vec<u8>>;
}

impl World {
    /// Has calls to a host run.
    pub(crate) fn listen(&self, host: usize, callee: Weak<dyn Callee>) {
        self.callees.borrow_mut().insert(host, callee);
    }

    /// Has the lock manager's worker look after a moment, as it does when something is put into its queue.
    pub(super) fn wake_worker(&self) {
        let has_work = self.with_life(Life::has_locks).unwrap_or_default();
        if !has_work || self.is_worker_due.replace(true) {
            return;
        }
        let ms = self.rng.borrow_mut().between(1, 20);
        self.later(ms, |world| {
            world.is_worker_due.set(false);
            if world.is_awake() {
                world.work();
            }
        });
    }

    /// The worker's turn.
    pub(super) fn work(&self) {
        self.serve(|life, _| life.work());
        self.carry();
    }

    /// Carries what the server has to say on ways of its own.
    pub(super) fn carry(&self) {
        for call in self.with_life(Life::calls).unwrap_or_default() {
            self.call_out(call);
        }
    }

    fn call_out(&self, call: ToCarry) {
        let is_dropped =
            call.callback().is_some_and(|args| self.is_recall_dropped(args, Plant::DropRecallsOf40));
        let ToCarry { to: IpAddr::V4(to), program, procedure, args, waiting } = call else { return };
        let (number, host) = (self.last_call.get() + 1, usize::from(to.octets()[3]) - 1);
        self.last_call.set(number);
        // Who waits for an answer dies with the server.
        self.calls_out.borrow_mut().insert(number, waiting);
        let (is_lost, is_answer_lost) = {
            let mut rng = self.rng.borrow_mut();
            let mut fails = |percent| rng.percent(percent) && !self.is_calm();
            (fails(8), fails(8))
        };
        self.end_call_in(PATIENCE_MS, number, None);
        if is_lost || is_dropped {
            return;
        }
        let sent = Sent { at: self.now(), life: self.lives() };
        self.later(self.net_ms(host), move |world| {
            let callee = world.callees.borrow().get(&host).and_then(Weak::upgrade);
            world.note(Noted::ToClient, &args);
            let results = callee.and_then(|callee| callee.called((program, procedure), &args, sent));
            if let Some(results) = results.filter(|_| !is_answer_lost) {
                world.end_call_in(world.net_ms(host), number, Some(results));
            }
        });
    }

    /// A call is answered after so long, or given up.
    fn end_call_in(&self, ms: u64, number: u64, results: Option<Vec<u8>>) {
        self.later(ms, move |world| world.end_call(number, results));
    }

    fn end_call(self: &Rc<Self>, number: u64, results: Option<Vec<u8>>) {
        if !self.is_awake() {
            return self.end_call_in(self.frozen_until.get() - self.now(), number, results);
        }
        let Some(waiting) = self.calls_out.borrow_mut().remove(&number) else { return };
        self.note(Noted::ToServer, results.as_deref().unwrap_or_default());
        self.serve(|_, _| waiting.end(results));
        self.wake_worker();
        self.collect();
    }
}
