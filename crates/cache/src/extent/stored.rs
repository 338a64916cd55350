//! A file's data as the journal keeps it, and back.

use bytes::Bytes;

use super::{Body, Extent, Extents, Progress};
use crate::ask::Generation;

/// What the journal knows of how far an extent has come: what was on its way it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// To be sent.
    Dirty,
    /// In the mutation with this serial.
    Stream(u64),
    /// With the server, under this verifier.
    Unstable(u64),
}

impl Extents {
    /// All extents, with their bytes as they will never change.
    pub(crate) fn stored(&mut self) -> Vec<(u64, Bytes, Kept)> {
        let kept = |progress| match progress {
            Progress::Dirty | Progress::Sent(_) => Some(Kept::Dirty),
            Progress::Stream(serial) => Some(Kept::Stream(serial)),
            Progress::Unstable { verifier, .. } => Some(Kept::Unstable(verifier)),
            // What the server has on its disk need not be kept on ours.
            #[allow(unreachable_patterns, reason = "there may be more ways to have come far")]
            _ => None,
        };
        let one = |(at, extent): (&u64, &mut Extent)| {
            kept(extent.progress).map(|kept| (*at, extent.body.freeze(), kept))
        };
        self.map.iter_mut().filter_map(one).collect()
    }

    /// Puts back one of them; they come in order and apart from each other.
    pub(crate) fn restore(&mut self, offset: u64, data: Bytes, kept: Kept, at: Generation) {
        let progress = match kept {
            Kept::Dirty => Progress::Dirty,
            Kept::Stream(serial) => Progress::Stream(serial),
            Kept::Unstable(verifier) => Progress::Unstable { verifier, since: at },
        };
        if data.is_empty() || self.any_within(offset, offset.saturating_add(data.len() as u64)) {
            return;
        }
        self.insert(offset, Extent { body: Body::Shared(data), progress, born: at });
    }

    fn any_within(&self, start: u64, end: u64) -> bool {
        let before = self.map.range(..start).next_back();
        before.is_some_and(|(at, e)| at + e.body.len() as u64 > start)
            || self.map.range(start..end).next().is_some()
    }
}
