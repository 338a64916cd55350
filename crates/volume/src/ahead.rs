//! Reading what nobody has asked for yet, in threads of its own: what others wait for is never behind it.

use std::sync::atomic::Ordering;

use crate::alarm::Woken;
use crate::volume::Shared;

/// Works until the volume is closed or given up.
pub(crate) fn run(shared: &Shared) {
    loop {
        match shared.ahead.sleep(|| shared.now().mono) {
            Woken::Job(out) => {
                shared.counters.sent.fetch_add(1, Ordering::Relaxed);
                let told = shared.server.read_ahead(&out, &shared.given_up);
                let mut machine = shared.machine.lock();
                machine.ahead_done(&out, told, shared.now());
                shared.look_for_work(machine);
            }
            Woken::Look => {}
            Woken::Over => return,
        }
        if shared.given_up.is_cancelled() {
            return;
        }
    }
}
