//! Which clients of 4.0 have come to the end of reclaiming: they have no word for it. Pure.
//!
//! One that reclaimed a part and was then cut off still believes in the rest, which others are given once grace is over. Should
//! the server begin anew before it hears of that, it may not reclaim the rest then. RFC 7530 section 9.6.3.4 is content with a
//! client that reclaimed something; that is not enough.
//!
//! A client reclaims one thing after the other, with no more than a pause between two. Who is heard of when nothing came for longer
//! than that, and tries nothing up to the tick after it, is done: what it had sent when it was cut off it sends again as soon as
//! it is back.

use std::collections::BTreeMap;

use holdfast_base::Instant;

use crate::records::ClientName;

/// How long ago a client last tried to reclaim.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Since the last tick.
    Reclaiming,
    /// Before this tick; and that it was heard of so much later is not known yet.
    Quiet(Instant),
    /// It was heard of since.
    Heard,
}

/// Clients of 4.0 that may have something left to reclaim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settling {
    of: BTreeMap<ClientName, Stage>,
}

impl Settling {
    /// A client reclaims, or may come and do so.
    pub(crate) fn reclaims(&mut self, name: &ClientName) {
        match self.of.get_mut(name) {
            Some(stage) => *stage = Stage::Reclaiming,
            None => drop(self.of.insert(name.clone(), Stage::Reclaiming)),
        }
    }

    /// A client was refused a reclaim. It matters for those alone of whom it is not known that they are done.
    pub(crate) fn is_refused(&mut self, name: &ClientName) {
        if let Some(stage) = self.of.get_mut(name) {
            *stage = Stage::Reclaiming;
        }
    }

    pub(crate) fn forget(&mut self, name: &ClientName) {
        self.of.remove(name);
    }

    /// Whether it may have something left to reclaim.
    pub(crate) fn is_of(&self, name: &ClientName) -> bool {
        self.of.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ClientName> {
        self.of.keys()
    }

    /// A tick: who is done, and is forgotten here. `heard` tells when a client was last heard of, `pause_ms` how long one that is
    /// not done may pause.
    pub(crate) fn tick(
        &mut self,
        (now, pause_ms): (Instant, u64),
        heard: impl Fn(&ClientName) -> Option<Instant>,
    ) -> Vec<ClientName> {
        let mut done = Vec::new();
        self.of.retain(|name, stage| {
            *stage = match *stage {
                Stage::Reclaiming => Stage::Quiet(now),
                Stage::Quiet(since) if heard(name).is_some_and(|at| at > since.after_ms(pause_ms)) => {
                    Stage::Heard
                }
                Stage::Quiet(since) => Stage::Quiet(since),
                Stage::Heard => {
                    done.push(name.clone());
                    return false;
                }
            };
            true
        });
        done
    }
}
