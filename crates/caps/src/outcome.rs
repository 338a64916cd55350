//! What became of an operation of a batch, as it is remembered: what cannot be found out from the file system again.

use holdfast_base::limits::{NAME_BYTES_MAX, WIRE_HANDLE4_BYTES_MAX};
use holdfast_export::WireHandle;
use holdfast_wire::caps::CapsStat;
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};

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
    /// It removed so many names of a tree; what was left says why.
    Tree { removed: u64, left: u32 },
}

/// The form in which it is recorded.
#[derive(Encode, Decode)]
enum Recorded<'a> {
    #[xdr(case = 0)]
    Failed(u32),
    #[xdr(case = 1)]
    Done,
    #[xdr(case = 2)]
    Made {
        #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
        handle: &'a [u8],
        #[xdr(max = NAME_BYTES_MAX)]
        other_name: &'a [u8],
    },
    #[xdr(case = 3)]
    Changed(#[xdr(max = WIRE_HANDLE4_BYTES_MAX)] &'a [u8]),
    #[xdr(case = 4)]
    Tree { removed: u64, left: u32 },
}

impl Outcome {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(&match self {
            Self::Failed(stat) => Recorded::Failed(stat.as_u32()),
            Self::Done => Recorded::Done,
            Self::Made { handle, other_name } => Recorded::Made { handle: handle.as_bytes(), other_name },
            Self::Changed(handle) => Recorded::Changed(handle.as_bytes()),
            Self::Tree { removed, left } => Recorded::Tree { removed: *removed, left: *left },
        })
    }

    /// `None` for what another version may have written.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(match from_bytes::<Recorded<'_>>(bytes).ok()? {
            Recorded::Failed(n) => Self::Failed(CapsStat::from_u32(n)?),
            Recorded::Done => Self::Done,
            Recorded::Made { handle, other_name } => {
                Self::Made { handle: WireHandle::new(handle)?, other_name: other_name.to_vec() }
            }
            Recorded::Changed(handle) => Self::Changed(WireHandle::new(handle)?),
            Recorded::Tree { removed, left } => Self::Tree { removed, left },
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
