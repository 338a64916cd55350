//! Reclaim only by those entitled: by clients that may have held something when a server died, and only until
//! something new is granted to anybody, but for what they tried to reclaim before: they may have it already, and their
//! recovery begin again.
//!
//! That nobody reclaims what another has had since is for [`super::grants`] to say.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;

/// A client's incarnation: its number, and how often it was started.
pub type Incarnation = (usize, u64);

/// What is reclaimed at once: by which open-owner, or as a delegation, of which file.
pub type Claimed = (Option<Vec<u8>>, usize);

/// Who may reclaim.
#[derive(Default)]
pub struct Reclaims {
    deaths: u64,
    /// Who asked for state from the server's life of now.
    asked_now: BTreeSet<Incarnation>,
    /// Who asked for state from an earlier life.
    asked_before: BTreeSet<Incarnation>,
    /// When something new was granted first in this life: when its client heard of it.
    new_since: Option<u64>,
    /// When something was first asked for as reclaimed, in this life.
    tried: BTreeMap<(Incarnation, Claimed), u64>,
    delegations: u64,
}

impl Reclaims {
    /// The server died: who asked for state may have it.
    pub fn server_died(&mut self) {
        self.deaths += 1;
        self.asked_before.append(&mut self.asked_now);
        self.new_since = None;
        self.tried.clear();
    }

    /// How often the server has died.
    #[must_use]
    pub const fn deaths(&self) -> u64 {
        self.deaths
    }

    /// A client asks for something new.
    pub fn asks(&mut self, who: Incarnation) {
        self.asked_now.insert(who);
    }

    /// A client hears that it was granted something new that it first asked for after `deaths` deaths.
    pub fn granted(&mut self, now: u64, deaths: u64) {
        // What was asked of an earlier life is told by this one as that life's.
        if deaths == self.deaths && self.new_since.is_none() {
            self.new_since = Some(now);
        }
    }

    /// A client hears that it has a delegation as before.
    pub const fn delegation_reclaimed(&mut self) {
        self.delegations += 1;
    }

    /// How many delegations were reclaimed.
    #[must_use]
    pub const fn delegations(&self) -> u64 {
        self.delegations
    }

    /// A client asks to reclaim something.
    pub fn tries(&mut self, who: Incarnation, what: Claimed, now: u64) {
        self.tried.entry((who, what)).or_insert(now);
    }

    /// A client hears that it has said it is done with reclaiming.
    pub fn done(&mut self, who: Incarnation) {
        self.tried.retain(|(of, _), _| *of != who);
    }

    /// A client hears that it reclaimed something, as it asked at `sent`, after so many deaths.
    ///
    /// # Errors
    /// When it must not have.
    pub fn reclaimed(&mut self, who: Incarnation, what: Claimed, (sent, deaths): (u64, u64)) -> Verdict {
        let first = self.tried.get(&(who, what)).copied().unwrap_or(sent);
        let is_entitled = self.asked_before.contains(&who);
        // It holds something now.
        self.asked_now.insert(who);
        if !is_entitled {
            return Err(format!("client {} (started {} times) never had what it reclaimed", who.0, who.1));
        }
        match self.new_since {
            Some(since) if deaths == self.deaths && since < sent.min(first) => Err(format!(
                "client {} reclaimed by a request of {sent} ms, the first of {first} ms, though something new was granted by {since} ms",
                who.0
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what() -> Claimed {
        (Some(b"owner".to_vec()), 1)
    }

    #[test]
    fn who_never_had_anything_reclaims_nothing() {
        let mut reclaims = Reclaims::default();
        reclaims.asks((1, 1));
        reclaims.server_died();
        reclaims.reclaimed((1, 1), what(), (10, 1)).unwrap();
        assert!(reclaims.reclaimed((2, 1), what(), (10, 1)).is_err());
        assert!(reclaims.reclaimed((1, 2), what(), (10, 1)).is_err(), "it started anew and knows of nothing");
    }

    #[test]
    fn nothing_is_reclaimed_once_something_new_was_granted() {
        let mut reclaims = Reclaims::default();
        reclaims.asks((1, 1));
        reclaims.server_died();
        reclaims.granted(20, 0);
        reclaims.reclaimed((1, 1), what(), (30, 1)).unwrap();
        reclaims.granted(40, 1);
        reclaims.reclaimed((1, 1), what(), (35, 1)).unwrap();
        assert!(reclaims.reclaimed((1, 1), what(), (45, 1)).is_err());
        reclaims.tries((1, 1), what(), 45);
        assert!(reclaims.reclaimed((1, 1), what(), (46, 1)).is_err());
    }

    #[test]
    fn what_was_tried_in_time_may_be_reclaimed_again_in_the_same_life() {
        let mut reclaims = Reclaims::default();
        reclaims.asks((1, 1));
        reclaims.server_died();
        reclaims.tries((1, 1), what(), 10);
        reclaims.granted(20, 1);
        reclaims.tries((1, 1), what(), 30);
        reclaims.reclaimed((1, 1), what(), (30, 1)).unwrap();
        assert!(reclaims.reclaimed((1, 1), (None, 1), (30, 1)).is_err(), "this is another");
        reclaims.done((1, 1));
        assert!(reclaims.reclaimed((1, 1), what(), (30, 1)).is_err(), "it was done");
        reclaims.server_died();
        reclaims.granted(40, 2);
        assert!(reclaims.reclaimed((1, 1), what(), (50, 2)).is_err());
    }
}
