//! Changes that their callers gave up. Those that the server may still do are settled in a thread of its own, so that no release or
//! batch stands behind them; until then nothing that they touch is believed.

use std::time::{Duration, Instant};

use holdfast_cache::{Ask, Errno, Machine, Turn};
use parking_lot::MutexGuard;

use crate::alarm::Woken;
use crate::volume::Shared;

/// Between two tries, while the server is away: at first, and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Works until the volume is closed or given up.
pub(crate) fn run(shared: &Shared) {
    loop {
        match shared.doubts.sleep(|| shared.now().mono) {
            Woken::Job(ask) => {
                let mut pause = PAUSE;
                while let Err(errno) = shared.server.settle_given_up(&shared.given_up) {
                    tracing::debug!(%errno, question = ?ask.question, "not settled");
                    if shared.given_up.sleep_until(Instant::now() + pause).is_err() {
                        return;
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                shared.ended(shared.machine.lock(), ask);
            }
            Woken::Look => {}
            Woken::Over => return,
        }
    }
}

impl Shared {
    /// A caller gave a question up.
    pub(crate) fn gave_up(&self, mut machine: MutexGuard<'_, Machine>, ask: Ask, may_yet_be_done: bool) {
        if ask.question.is_mutation() {
            machine.given_up(&ask);
            if !may_yet_be_done {
                return self.ended(machine, ask);
            }
            self.look_for_work(machine);
            // At most as many as are asked for at once: of each kind the next one settles the one before.
            return self.doubts.add(vec![ask], None);
        }
        self.look_for_work(machine);
    }

    /// What was given up has happened, or has not: nobody heard.
    fn ended(&self, mut machine: MutexGuard<'_, Machine>, ask: Ask) {
        let mut nobodys = Turn::new(ask.caller.clone());
        machine.absorb(&mut nobodys, ask, Err(Errno::EIO), self.now());
        self.look_for_work(machine);
    }
}

#[cfg(test)]
mod tests;
