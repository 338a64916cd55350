//! Hosts and lock-owners as NLM names them, and what of its numbers is converted.

use std::net::IpAddr;

use holdfast_base::{ByteRange, Length, Offset};
use holdfast_state::LockKind;
use holdfast_vfs::FsError;
use holdfast_wire::nlm4::NlmStat4;

/// A host: the address it calls from and the name it gives itself. Two hosts behind one address differ by their
/// names; a name alone proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostName {
    pub(crate) ip: IpAddr,
    /// `caller_name`.
    pub(crate) caller: Vec<u8>,
}

impl HostName {
    /// Whether a host's monitor means this host by `name`: some write the host's whole name, some its first part.
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        fn first(name: &[u8]) -> &[u8] {
            name.split(|b| *b == b'.').next().unwrap_or(name)
        }
        first(&self.caller).eq_ignore_ascii_case(first(name))
    }
}

/// A lock-owner of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OwnerName {
    pub(crate) oh: Vec<u8>,
    /// The process; `None` for the owner of a share reservation, which has none.
    pub(crate) svid: Option<i32>,
}

/// The last offset that a file can have (`off_t`); what reaches it reaches to the end.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The range that an offset and a length name: a length of 0, and one that passes the last offset, means "to the
/// end". `None` when it begins beyond that: NLM4_FBIG.
pub(crate) fn range_of(offset: Offset, length: Length) -> Option<ByteRange> {
    if offset.0 > OFFSET_MAX {
        return None;
    }
    let last = length.0.checked_sub(1).and_then(|more| offset.0.checked_add(more));
    ByteRange::from_bounds(offset.0, last.filter(|last| *last < OFFSET_MAX).unwrap_or(u64::MAX))
}

/// The same the other way.
pub(crate) const fn length_of(range: ByteRange) -> Length {
    if range.last() == u64::MAX { Length(0) } else { Length(range.last() - range.first() + 1) }
}

pub(crate) const fn kind_of(is_exclusive: bool) -> LockKind {
    if is_exclusive { LockKind::Write } else { LockKind::Read }
}

/// What a file system's error is to a caller of NLM.
pub(crate) const fn status_of(error: FsError) -> NlmStat4 {
    match error {
        FsError::Stale | FsError::BadHandle | FsError::NotFound => NlmStat4::StaleFh,
        FsError::ReadOnly => NlmStat4::Rofs,
        FsError::Locked => NlmStat4::Denied,
        FsError::TooBig => NlmStat4::Fbig,
        FsError::NoSpace | FsError::Quota => NlmStat4::DeniedNoLocks,
        // The only answer after which clients ask again by themselves.
        FsError::Delay | FsError::WouldBlock => NlmStat4::DeniedGracePeriod,
        _ => NlmStat4::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_zero_and_one_past_the_end_of_any_file_mean_to_the_end() {
        let to_end = |first| ByteRange::from_bounds(first, u64::MAX);
        assert_eq!(range_of(Offset(5), Length(0)), to_end(5));
        assert_eq!(range_of(Offset(5), Length(u64::MAX)), to_end(5));
        assert_eq!(range_of(Offset(5), Length(OFFSET_MAX)), to_end(5));
        assert_eq!(range_of(Offset(5), Length(OFFSET_MAX - 4)), to_end(5));
        assert_eq!(range_of(Offset(5), Length(1)), ByteRange::from_bounds(5, 5));
        assert_eq!(range_of(Offset(OFFSET_MAX + 1), Length(1)), None);
    }

    #[test]
    fn ranges_are_told_as_they_were_asked_for() {
        for (offset, length) in [(0, 0), (0, 1), (7, 100), (OFFSET_MAX - 1, 0)] {
            let range = range_of(Offset(offset), Length(length)).unwrap();
            assert_eq!((range.first(), length_of(range)), (offset, Length(length)));
        }
    }

    #[test]
    fn a_monitor_may_call_its_host_by_its_whole_name_or_its_first_part() {
        let host = HostName { ip: [192, 0, 2, 1].into(), caller: b"web1".to_vec() };
        assert!(host.is_called(b"web1") && host.is_called(b"WEB1.example.com"));
        assert!(!host.is_called(b"web2.example.com") && !host.is_called(b""));
    }
}
