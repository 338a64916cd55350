//! Which of the server's promises are the last ones, and who compares by them.
//!
//! All of it changes under the machine's lock, together with how the volume stands.

use holdfast_cache::Reclaimed;

/// What was promised last.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// Grows whenever nothing counts any more that was promised before.
    epoch: u64,
    /// The greeting in which the server has said so is not over: how it stands with what was sent is still to come.
    is_greeting: bool,
    /// What the server gave back of what was held, to be taken in with the comparing.
    given_back: Vec<Reclaimed>,
    /// Grows with each comparing that is begun.
    comparing: u64,
}

/// What somebody compares by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    comparing: u64,
    epoch: u64,
}

/// What has become of it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is as it was.
    Holds,
    /// What was promised in it is void: it is to be begun again.
    Void,
    /// The server has gone away, and if it is back another compares.
    Over,
}

impl Promised {
    /// Nothing counts that was promised before, but for this.
    pub(super) fn renewed(&mut self, given_back: Vec<Reclaimed>) {
        (self.epoch, self.is_greeting) = (self.epoch + 1, true);
        self.given_back = given_back;
    }

    /// The greeting is over.
    pub(super) fn greeted(&mut self) {
        self.is_greeting = false;
    }

    /// A comparing begins; its number.
    pub(super) fn compares(&mut self) -> u64 {
        self.comparing += 1;
        self.comparing
    }

    /// What to compare by, and what the server has given back with it; nothing in the middle of a greeting.
    pub(super) fn round(&mut self, comparing: u64) -> Option<(Round, Vec<Reclaimed>)> {
        let round = Round { comparing, epoch: self.epoch };
        (!self.is_greeting).then(|| (round, std::mem::take(&mut self.given_back)))
    }

    /// What has become of what somebody compares by, where the volume still `compares`.
    pub(super) fn verdict(&self, round: Round, compares: bool) -> Verdict {
        match (compares && self.comparing == round.comparing, self.epoch == round.epoch) {
            (false, _) => Verdict::Over,
            (true, false) => Verdict::Void,
            (true, true) => Verdict::Holds,
        }
    }
}
