//! How long what the server has promised is relied on (`docs/design/caps-protocol.md`, section 6, "Doubt"), as `volume` has it.

use std::rc::Rc;

use holdfast_wire::caps::SEQ4_STATUS_CAPS_IN_DOUBT;
use holdfast_wire::nfs4::SEQ4_STATUS_RESTART_RECLAIM_NEEDED;

use super::Mount;
use crate::life::LEASE_MS;

/// So long before the end nothing is relied on any more.
const AHEAD_MS: u64 = 100;

/// It is looked at least so often.
const LOOK_MS: u64 = 1_000;

impl Mount {
    /// SEQUENCE was answered, first sent then.
    pub(crate) fn heard(&self, flags: u32, first_sent: u64) {
        if flags & SEQ4_STATUS_CAPS_IN_DOUBT == 0 {
            let last = self.promised_at.get().unwrap_or(0);
            self.promised_at.set(Some(last.max(first_sent)));
            // Of who relies on nothing any more the promises may be taken, of which SEQUENCE says nothing; nor does it where the
            // server began anew.
            if !self.has_lapsed.get() && flags & SEQ4_STATUS_RESTART_RECLAIM_NEEDED == 0 {
                self.hearing.hears(first_sent);
            }
        } else {
            self.tell(|| "is told that its promises are in doubt".into());
        }
    }

    fn relied_left(&self) -> u64 {
        let lasts = self.relied_ms.get().min(LEASE_MS);
        let until = self.promised_at.get().map_or(0, |at| at + lasts);
        until.saturating_sub(self.world.now() + AHEAD_MS)
    }

    pub(super) async fn watch_lease(self: Rc<Self>) {
        loop {
            let left = self.relied_left();
            match (self.has_lapsed.replace(left == 0), left == 0) {
                (false, true) => {
                    self.tell(|| "relies on nothing any more".into());
                    self.hearing.lapses(self.world.now());
                    self.touched(|machine, now| machine.lapsed(now));
                }
                (true, false) => {
                    self.tell(|| "relies on promises again".into());
                    self.touched(|machine, _| machine.regained());
                }
                _ => {}
            }
            let ms = if self.has_lapsed.get() { LOOK_MS } else { LOOK_MS.min(left + 5) };
            self.world.exec.sleep(ms).await;
        }
    }
}
