//! Which clients of 4.0 have not come to the end of reclaiming: they have no word for it. Pure, and without a say in who may
//! reclaim ([`crate::Grace`]).
//!
//! A client reclaims one thing after the other, with no more than a pause between two, and what it had sent when it was cut off it
//! sends again as soon as it is back. So who is heard of after a longer pause, and tries nothing for a while from then, is done.

use std::collections::BTreeMap;

use holdfast_base::Instant;

use crate::records::ClientName;

/// A third of a pause, and a tick at least, is how long a client that is back may take to go on reclaiming.
const BACK_PART: u64 = 3;

/// How long ago a client last tried to reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Since the last tick.
    Reclaiming,
    /// It has come back since the last tick, and has tried nothing yet.
    Back,
    /// Before this tick; and that it was heard of so much later is not known yet.
    Quiet(Instant),
    /// It was heard of a pause later, as this tick was told.
    Heard(Instant),
}

/// Clients of 4.0 that may have something left to reclaim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfinished {
    of: BTreeMap<ClientName, Stage>,
}

impl Unfinished {
    /// A client reclaims, or may come and do so.
    pub(crate) fn reclaims(&mut self, name: &ClientName) {
        if !self.tries(name) {
            self.of.insert(name.clone(), Stage::Reclaiming);
        }
    }

    /// A client is marked, as it is not known to have reclaimed all that it had.
    pub(crate) fn marks(&mut self, name: &ClientName) {
        self.of.entry(name.clone()).or_insert(Stage::Back);
    }

    /// A client has come back: it begins anew with showing that it is done. That alone is no try: who goes on reclaiming does so
    /// before it takes anything new.
    pub(crate) fn returns(&mut self, name: &ClientName) {
        if let Some(stage) = self.of.get_mut(name) {
            *stage = Stage::Back;
        }
    }

    /// A client was refused a reclaim: it begins anew as well. Whether it is one of these.
    pub(crate) fn tries(&mut self, name: &ClientName) -> bool {
        let known = self.of.get_mut(name);
        known.map(|stage| *stage = Stage::Reclaiming).is_some()
    }

    pub(crate) fn forget(&mut self, name: &ClientName) {
        self.of.remove(name);
    }

    /// Whether it may have something left to reclaim.
    pub(crate) fn has(&self, name: &ClientName) -> bool {
        self.of.contains_key(name)
    }

    /// Whether it has tried to reclaim something since the last tick.
    pub(crate) fn is_reclaiming(&self, name: &ClientName) -> bool {
        self.of.get(name) == Some(&Stage::Reclaiming)
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
                Stage::Reclaiming | Stage::Back => Stage::Quiet(now),
                Stage::Quiet(since) if heard(name).is_some_and(|at| at > since.after_ms(pause_ms)) => {
                    Stage::Heard(now)
                }
                Stage::Heard(at) if now.ms_since(at) > pause_ms / BACK_PART => {
                    done.push(name.clone());
                    return false;
                }
                waiting => waiting,
            };
            true
        });
        done
    }
}
