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
                // Not while the server is away: who reads what is here must not wait for it.
                let told =
                    shared.sending().and_then(|while_there| shared.server.read_ahead(&out, &while_there));
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
