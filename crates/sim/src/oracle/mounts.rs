//! What mounts do is as if one had done it after the other: for each world there is an order of all operations, in which none
//! comes before one that had ended when it began, and each ends as it ends on one file system in memory (`model.rs`). So what
//! one did is seen by the next look of any other, whoever holds what.

pub mod model;
mod order;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use holdfast_cache::{CapSet, Handle};

use self::model::{Deed, Outcome, Tree};
use super::Verdict;

/// Names an operation.
pub type DeedId = usize;

/// What stands between an operation's end and what is to be made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sureness {
    /// It may have been done and asked for once more, so that the error is that of the second time.
    pub may_be_done: bool,
    /// Power failed while it was under way: what it saw may lack what mounts had still to do again.
    pub is_disturbed: bool,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Told {
    /// By which mount.
    pub host: usize,
    /// What.
    pub deed: Deed,
    /// When it began, in milliseconds; and when it ended, with what.
    pub begun: u64,
    pub(crate) ended: Option<(u64, Outcome)>,
    pub(crate) sureness: Sureness,
}

/// The beginning or the end of an operation, or a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Begins(DeedId),
    Ends(DeedId),
    PowerFails,
}

/// All operations of a world's mounts.
#[derive(Default)]
pub struct Mounts {
    told: Vec<Told>,
    moments: Vec<Moment>,
    first: Tree,
    reclaimed: usize,
    losses: u64,
    /// From then on others may have done what a mount had not been asked about.
    sure_until: Option<u64>,
    /// What is relied on, as it was last compared.
    compared: u64,
}

impl Mounts {
    /// A mount knows the directory that all use as this node.
    pub fn begins(&mut self, host: usize, base: holdfast_cache::NodeId) {
        self.first.begins(host, base);
    }

    /// An operation begins. What tells of an object tells how it looks, and that may be asked for by itself: it counts as a look
    /// of its own, which begins at the same time.
    pub fn does(&mut self, now: u64, host: usize, deed: Deed) -> DeedId {
        let finds = deed.finds();
        let id = self.begin(now, host, deed);
        if finds {
            self.begin(now, host, Deed::Nothing);
        }
        id
    }

    fn begin(&mut self, now: u64, host: usize, deed: Deed) -> DeedId {
        self.told.push(Told { host, deed, begun: now, ended: None, sureness: Sureness::default() });
        self.moments.push(Moment::Begins(self.told.len() - 1));
        self.told.len() - 1
    }

    /// It has ended so, more or less surely.
    pub fn ends(&mut self, now: u64, id: DeedId, (outcome, sureness): (Outcome, Sureness)) {
        self.told[id].sureness = sureness;
        let look = match &outcome {
            Outcome::Found(node, look) => Some((*node, *look)),
            _ => None,
        };
        self.end(now, id, outcome);
        if self.told[id].deed.finds() {
            let seen = match look {
                Some((node, look)) if !sureness.is_disturbed => {
                    self.told[id + 1].deed = Deed::Stat { node };
                    Outcome::Looks(look)
                }
                _ => Outcome::Done,
            };
            self.end(now, id + 1, seen);
        }
    }

    fn end(&mut self, now: u64, id: DeedId, outcome: Outcome) {
        self.told[id].ended = Some((now, outcome));
        self.moments.push(Moment::Ends(id));
    }

    /// Power fails.
    pub fn power_fails(&mut self) {
        self.moments.push(Moment::PowerFails);
    }

    /// So many promises were had back after the server was started anew.
    pub fn reclaimed(&mut self, count: usize) {
        self.reclaimed += count;
    }

    /// A mount has lost what it was promised: it had last heard that it goes on when it asked at `since`. What it has still to send,
    /// if `has_more`, others could not ask for.
    pub fn lost(&mut self, (now, since): (u64, u64), _host: usize, has_more: bool) {
        self.losses += 1;
        if has_more {
            let until = self.sure_until.unwrap_or(now);
            self.sure_until = Some(until.min(since));
        }
    }

    /// How many operations there were, how often promises were lost, and how many were had back.
    #[must_use]
    pub const fn counts(&self) -> (usize, u64, usize) {
        (self.told.len(), self.losses, self.reclaimed)
    }

    /// How often it was compared who relies on what.
    #[must_use]
    pub const fn compared(&self) -> u64 {
        self.compared
    }

    /// What all mounts rely on at one moment: nobody exclusively on what another relies on, of the same kind.
    ///
    /// # Errors
    /// Who does, and on what.
    pub fn compare(&mut self, held: &[(usize, Vec<(Handle, CapSet)>)]) -> Verdict {
        self.compared += 1;
        let mut all: BTreeMap<&Handle, Vec<(usize, CapSet)>> = BTreeMap::new();
        for (host, of) in held {
            for (handle, caps) in of {
                all.entry(handle).or_default().push((*host, *caps));
            }
        }
        for (handle, of) in all {
            for (one, exclusive) in &of {
                let mut others = of.iter().filter(|(other, _)| other != one);
                let kinds = kinds_held_alone(*exclusive);
                if let Some((other, shared)) = others.find(|(_, shared)| shared.intersects(kinds)) {
                    return Err(format!(
                        "mount {one} relies on {exclusive:?} and mount {other} on {shared:?} of {handle:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether there is an order that explains all; and what the file system may then be in the end. What was done after promises
    /// were lost with something still to be sent is not looked at.
    ///
    /// # Errors
    /// The first end that no order explains.
    pub fn explain(&self) -> Result<Option<Vec<Tree>>, String> {
        let trees = order::explain(&self.first, &self.told, &self.moments, self.sure_until)?;
        Ok(self.sure_until.is_none().then_some(trees))
    }
}

/// The shared capabilities of the kinds that are held exclusively.
fn kinds_held_alone(held: CapSet) -> CapSet {
    let pairs = [
        (CapSet::AUTH_X, CapSet::AUTH_S),
        (CapSet::LINK_X, CapSet::LINK_S),
        (CapSet::XATTR_X, CapSet::XATTR_S),
        (CapSet::FILE_X, CapSet::FILE_S),
    ];
    pairs
        .iter()
        .filter(|(alone, _)| held.contains(*alone))
        .fold(CapSet::NONE, |all, (_, shared)| all | *shared)
}
