//! What a client wishes for when it opens a file, and what it is told when there is nothing for it (RFC 8881 sections
//! 18.16.3 and 18.49).

use holdfast_state::{Access, DelegationKind, WantHow, WhyNone};
use holdfast_wire::nfs4::{
    OPEN4_SHARE_ACCESS_WANT_CANCEL, OPEN4_SHARE_ACCESS_WANT_DELEG_MASK,
    OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED, OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG,
    OpenDelegation4, OpenDelegationType4, OpenNoneDelegation4,
};

use crate::desc::Minor;

/// A wish for a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Which: one of `OPEN4_SHARE_ACCESS_WANT_*_DELEG` and its like.
    want: u32,
    /// Clients before 4.1 cannot say what they wish, nor be told why there is nothing.
    is_said: bool,
    /// With the file's times.
    pub(crate) has_times: bool,
    /// In place of an open.
    pub(crate) is_instead: bool,
    /// What to do should there be nothing now.
    pub(crate) later: Option<WantHow>,
}

/// What the wants beside `share_access` say.
pub(crate) const fn wish(share_access: u32, minor: Minor) -> Wish {
    if !minor.has_sessions() {
        return Wish {
            want: OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE,
            is_said: false,
            has_times: false,
            is_instead: false,
            later: None,
        };
    }
    let is_v2 = matches!(minor, Minor::V2);
    let later = if share_access & OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED != 0 {
        Some(WantHow::Push)
    } else if share_access & OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL != 0 {
        Some(WantHow::Signal)
    } else {
        None
    };
    Wish {
        want: share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK,
        is_said: true,
        has_times: is_v2 && share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS != 0,
        is_instead: is_v2 && share_access & OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION != 0,
        later,
    }
}

impl Wish {
    /// Which delegation would fulfil it, with a file opened for this; `None` where none is wished for.
    pub(crate) const fn kind(&self, access: Access) -> Option<DelegationKind> {
        match self.want {
            OPEN4_SHARE_ACCESS_WANT_NO_DELEG | OPEN4_SHARE_ACCESS_WANT_CANCEL => None,
            OPEN4_SHARE_ACCESS_WANT_READ_DELEG => Some(DelegationKind::Read),
            _ if access.contains(Access::WRITE) => Some(DelegationKind::Write),
            _ => Some(DelegationKind::Read),
        }
    }

    /// The same without an open.
    pub(crate) const fn kind_alone(&self) -> Option<DelegationKind> {
        match self.want {
            OPEN4_SHARE_ACCESS_WANT_NO_DELEG | OPEN4_SHARE_ACCESS_WANT_CANCEL => None,
            OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG => Some(DelegationKind::Write),
            _ => Some(DelegationKind::Read),
        }
    }

    /// Whether earlier wishes are taken back.
    pub(crate) const fn is_cancel(&self) -> bool {
        self.want == OPEN4_SHARE_ACCESS_WANT_CANCEL
    }

    /// What is said where none is given. `is_noted`: the wish is remembered, and a call will follow.
    pub(crate) const fn declined(&self, why: Option<WhyNone>, is_noted: bool) -> OpenDelegation4<'static> {
        if !self.is_said {
            return OpenDelegation4::None;
        }
        OpenDelegation4::NoneExt(match self.want {
            OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE => return OpenDelegation4::None,
            OPEN4_SHARE_ACCESS_WANT_NO_DELEG => OpenNoneDelegation4::NotWanted,
            OPEN4_SHARE_ACCESS_WANT_CANCEL => OpenNoneDelegation4::Cancelled,
            _ => match why {
                Some(WhyNone::Contention) => OpenNoneDelegation4::Contention(is_noted),
                // A delegation for writing never becomes one for reading. (The other way it does, all at once, so nobody is
                // told that it does not: RFC 8881 section 10.4.)
                Some(WhyNone::HeldForWriting) if self.want == OPEN4_SHARE_ACCESS_WANT_READ_DELEG => {
                    OpenNoneDelegation4::NotSuppDowngrade
                }
                _ => OpenNoneDelegation4::Resource(is_noted),
            },
        })
    }
}

/// The delegation that a client says it held before the server restarted, and whether with the times.
pub(crate) const fn reclaimed(held: OpenDelegationType4) -> Option<(DelegationKind, bool)> {
    match held {
        OpenDelegationType4::None | OpenDelegationType4::NoneExt => None,
        OpenDelegationType4::Read => Some((DelegationKind::Read, false)),
        OpenDelegationType4::Write => Some((DelegationKind::Write, false)),
        OpenDelegationType4::ReadAttrsDeleg => Some((DelegationKind::Read, true)),
        OpenDelegationType4::WriteAttrsDeleg => Some((DelegationKind::Write, true)),
    }
}
