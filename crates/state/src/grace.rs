//! The time after a restart in which holders reclaim what they had, and nobody else gets anything that might have
//! been theirs (RFC 8881 section 8.4.2).

use holdfast_base::{FileKey, Instant};
use serde::{Deserialize, Serialize};

use crate::error::StateError;
use crate::stateid::StateId;

/// Whether reclaims or new state are served. Decided by the recovery machine, obeyed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grace {
    /// Reclaims only, up to this moment.
    Until(#[serde(with = "crate::plain")] Instant),
    /// New state only.
    Over,
}

impl Grace {
    /// Whether reclaims are served at this moment.
    #[must_use]
    pub fn is_on(self, now: Instant) -> bool {
        match self {
            Self::Until(end) => now < end,
            Self::Over => false,
        }
    }
}

/// On what grounds an open or a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// As something new.
    New,
    /// As something held before the restart (CLAIM_PREVIOUS, `reclaim` of LOCK).
    Reclaim(Recorded),
    /// By a request that a crash cut short after it had made the file: what nobody else had yet nobody can reclaim,
    /// so grace does not stand in its way (RFC 8881 section 8.4.2.1 allows such). For any other file it is as
    /// [`Claim::New`].
    Resumed {
        /// The file that the request made.
        made: FileKey,
    },
    /// Under a delegation of its client that allows it (CLAIM_DELEGATE_CUR): for opens, that the holder made by itself,
    /// in grace and while the delegation is being recalled too. For locks it is as [`Claim::New`].
    Delegated(StateId),
}

/// Whether the recovery records let a client reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It held state when the server stopped.
    Yes,
    /// Nothing says so.
    No,
}

impl Recorded {
    /// As [`Claim::admit`], of a reclaim.
    pub(crate) fn admit(
        self,
        grace: Grace,
        now: Instant,
        is_client_done: Option<bool>,
    ) -> Result<(), StateError> {
        match self {
            _ if !grace.is_on(now) || is_client_done == Some(true) => Err(StateError::NoGrace),
            Self::No => Err(StateError::ReclaimBad),
            Self::Yes => Ok(()),
        }
    }
}

impl Claim {
    /// Whether the claim may be heard. `is_client_done`: the client said RECLAIM_COMPLETE; `None` for those who
    /// cannot (4.0).
    pub(crate) fn admit(
        self,
        file: FileKey,
        grace: Grace,
        now: Instant,
        is_client_done: Option<bool>,
    ) -> Result<(), StateError> {
        match self {
            Self::Resumed { made } if made == file => Ok(()),
            Self::New | Self::Resumed { .. } | Self::Delegated(_) if grace.is_on(now) => {
                Err(StateError::Grace)
            }
            // RFC 8881 section 18.51.3: state asked for before RECLAIM_COMPLETE could be taken from itself.
            Self::New | Self::Resumed { .. } | Self::Delegated(_) if is_client_done == Some(false) => {
                Err(StateError::Grace)
            }
            Self::New | Self::Resumed { .. } | Self::Delegated(_) => Ok(()),
            Self::Reclaim(recorded) => recorded.admit(grace, now, is_client_done),
        }
    }

    pub(crate) fn conflict_error(self, otherwise: StateError) -> StateError {
        match self {
            Self::New | Self::Resumed { .. } | Self::Delegated(_) => otherwise,
            Self::Reclaim(_) => StateError::ReclaimConflict,
        }
    }
}
