//! Stateids: names of opens and locks that clients carry about, and the special values among them.

use holdfast_base::Seqid;
use serde::{Deserialize, Serialize};

use crate::slab::Key;

/// The number of this run of the server, part of every client id and stateid it makes, so that those of an
/// earlier run are recognised. Never 0 and never all ones, so that no stateid looks like a special one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BootInstance(u32);

impl BootInstance {
    /// The instance for a counter that the caller increments at every start (it wraps after 2^32 - 2 starts).
    #[must_use]
    pub const fn from_counter(counter: u64) -> Self {
        const VALUES: u64 = u32::MAX as u64 - 1;
        Self((counter % VALUES) as u32 + 1)
    }

    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

/// A stateid (RFC 8881 section 8.2.2): which state, and how many changes of it the holder has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Counts changes; 0 means "the newest" in 4.1 and later.
    pub seqid: Seqid,
    /// Which state.
    pub other: [u8; 12],
}

/// What a stateid is, by its form alone (RFC 8881 section 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateIdForm {
    /// All zeros: I/O without an open.
    Anonymous,
    /// All ones: I/O without an open that also passes by share reservations, when reading.
    ReadBypass,
    /// Other 0, seqid 1: "the stateid the last operation returned". The edge replaces it before it asks.
    Current,
    /// A reserved form that means nothing, [`StateId::INVALID`] among them.
    Reserved,
    /// The name of a state.
    Ordinary,
}

impl StateId {
    /// All zeros.
    pub const ANONYMOUS: Self = Self { seqid: Seqid(0), other: [0; 12] };
    /// All ones.
    pub const READ_BYPASS: Self = Self { seqid: Seqid(u32::MAX), other: [0xff; 12] };
    /// What CLOSE returns in 4.1 and later (RFC 8881 section 8.2.3): good for nothing.
    pub const INVALID: Self = Self { seqid: Seqid(u32::MAX), other: [0; 12] };

    /// What it is, by its form alone.
    #[must_use]
    pub fn form(self) -> StateIdForm {
        let zeros = self.other == [0; 12];
        let ones = self.other == [0xff; 12];
        match (zeros, ones, self.seqid.0) {
            (true, _, 0) => StateIdForm::Anonymous,
            (true, _, 1) => StateIdForm::Current,
            (_, true, u32::MAX) => StateIdForm::ReadBypass,
            (true, _, _) | (_, true, _) => StateIdForm::Reserved,
            _ => StateIdForm::Ordinary,
        }
    }

    pub(crate) fn new(boot: BootInstance, key: Key, seqid: Seqid) -> Self {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&boot.0.to_be_bytes());
        other[4..8].copy_from_slice(&key.index.to_be_bytes());
        other[8..].copy_from_slice(&key.generation.to_be_bytes());
        Self { seqid, other }
    }

    /// A stateid as a former run may have given it out: known for that, and good for nothing else.
    #[must_use]
    pub fn of_former_run(boot: BootInstance) -> Self {
        let former = if boot.0 > 1 { boot.0 - 1 } else { boot.0 + 1 };
        Self::new(BootInstance(former), Key { index: 0, generation: 0 }, Seqid(1))
    }

    /// Boot instance and key inside; meaningless unless the form is ordinary.
    pub(crate) fn parts(self) -> (u32, Key) {
        let word = |at: usize| {
            u32::from_be_bytes([self.other[at], self.other[at + 1], self.other[at + 2], self.other[at + 3]])
        };
        (word(0), Key { index: word(4), generation: word(8) })
    }
}

/// How a presented seqid stands to the current one, wrapping (RFC 8881 section 8.2.2).
pub(crate) fn seqid_age(presented: Seqid, current: Seqid) -> std::cmp::Ordering {
    if presented == current {
        return std::cmp::Ordering::Equal;
    }
    // Half the space lies before, half after: no holder lags by 2^31 changes.
    if presented.0.wrapping_sub(current.0) < 1 << 31 {
        std::cmp::Ordering::Greater
    } else {
        std::cmp::Ordering::Less
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_boot_instance_makes_a_special_form() {
        for counter in [0, 1, u64::from(u32::MAX) - 2, u64::from(u32::MAX) - 1, u64::from(u32::MAX), u64::MAX]
        {
            let boot = BootInstance::from_counter(counter);
            let ends = [0, u32::MAX].map(|n| Key { index: n, generation: n });
            for key in ends {
                assert_eq!(StateId::new(boot, key, Seqid(1)).form(), StateIdForm::Ordinary);
                assert_eq!(StateId::new(boot, key, Seqid(1)).parts(), (boot.get(), key));
            }
        }
    }

    #[test]
    fn a_stateid_of_a_former_run_is_ordinary_and_of_no_run_that_is() {
        for counter in [0, 1, 2, u64::from(u32::MAX) - 2] {
            let boot = BootInstance::from_counter(counter);
            let former = StateId::of_former_run(boot);
            assert_eq!(former.form(), StateIdForm::Ordinary);
            assert_ne!(former.parts().0, boot.get());
        }
    }

    #[test]
    fn special_forms_are_told_by_other_and_seqid_together() {
        assert_eq!(StateId::ANONYMOUS.form(), StateIdForm::Anonymous);
        assert_eq!(StateId::READ_BYPASS.form(), StateIdForm::ReadBypass);
        assert_eq!(StateId::INVALID.form(), StateIdForm::Reserved);
        assert_eq!(StateId { seqid: Seqid(1), other: [0; 12] }.form(), StateIdForm::Current);
        assert_eq!(StateId { seqid: Seqid(1), other: [0xff; 12] }.form(), StateIdForm::Reserved);
    }

    #[test]
    fn seqid_order_survives_the_wrap() {
        use std::cmp::Ordering::{Greater, Less};
        assert_eq!(seqid_age(Seqid(u32::MAX), Seqid(1)), Less);
        assert_eq!(seqid_age(Seqid(1), Seqid(u32::MAX)), Greater);
    }
}
