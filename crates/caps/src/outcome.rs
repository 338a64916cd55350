//! What became of an operation of a batch, as it is remembered: what cannot be found out from the file system again.

use holdfast_base::limits::CAPS_BATCH_OPS_MAX;
use holdfast_export::WireHandle;
use holdfast_ledger::outcome::{Recorded, Refused};
use holdfast_wire::caps::CapsStat;
use holdfast_xdr::{from_bytes, to_bytes};

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// It was refused.
    Failed(CapsStat),
    /// Done, and nothing is to be told of it.
    Done,
    /// It made something.
    Made { handle: WireHandle, other_name: Vec<u8> },
    /// It changed this.
    Changed(WireHandle),
    /// It has written to this one's end.
    Appended(Appended),
}

/// What was written to the end of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) handle: WireHandle,
    pub(crate) offset: u64,
    pub(crate) count: u32,
    /// The write verifier before.
    pub(crate) verifier: [u8; 8],
}

/// The record of removals that stood together.
pub(crate) fn of_removals(outcomes: &[Outcome]) -> Vec<u8> {
    let refused = |(nth, outcome): (u32, &Outcome)| match outcome {
        Outcome::Failed(stat) => Some(Refused { nth, status: stat.as_u32() }),
        _ => None,
    };
    let failed = (0..).zip(outcomes).filter_map(refused).collect();
    to_bytes(&Recorded::Removals { count: u32::try_from(outcomes.len()).unwrap_or(u32::MAX), failed })
}

/// The outcomes of the operations that a record stands for. `None` for what another version may have written.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<Outcome>> {
    let Recorded::Removals { count, failed } = from_bytes::<Recorded<'_>>(bytes).ok()? else {
        return Outcome::from_bytes(bytes).map(|one| vec![one]);
    };
    let count = usize::try_from(count).ok().filter(|count| *count <= CAPS_BATCH_OPS_MAX)?;
    let mut outcomes = vec![Outcome::Done; count];
    for Refused { nth, status } in failed {
        *outcomes.get_mut(nth as usize)? = Outcome::Failed(CapsStat::from_u32(status)?);
    }
    Some(outcomes)
}

impl Outcome {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(&match self {
            Self::Failed(stat) => Recorded::Failed(stat.as_u32()),
            Self::Done => Recorded::Done,
            Self::Made { handle, other_name } => Recorded::Made { handle: handle.as_bytes(), other_name },
            Self::Changed(handle) => Recorded::Changed(handle.as_bytes()),
            Self::Appended(Appended { handle, offset, count, verifier }) => Recorded::Appended {
                handle: handle.as_bytes(),
                offset: *offset,
                count: *count,
                verifier: *verifier,
            },
        })
    }

    /// `None` for what another version may have written, and for the record of several ([`read`]).
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(match from_bytes::<Recorded<'_>>(bytes).ok()? {
            Recorded::Failed(n) => Self::Failed(CapsStat::from_u32(n)?),
            Recorded::Done => Self::Done,
            Recorded::Made { handle, other_name } => {
                Self::Made { handle: WireHandle::new(handle)?, other_name: other_name.to_vec() }
            }
            Recorded::Changed(handle) => Self::Changed(WireHandle::new(handle)?),
            Recorded::Appended { handle, offset, count, verifier } => {
                Self::Appended(Appended { handle: WireHandle::new(handle)?, offset, count, verifier })
            }
            Recorded::Removals { .. } => return None,
        })
    }

    /// The handle of what was made.
    pub(crate) const fn made(&self) -> Option<&WireHandle> {
        match self {
            Self::Made { handle, .. } => Some(handle),
            _ => None,
        }
    }
}
