//! Times that the holder of a delegation tells (RFC 9754 section 5): what of them is believed.

use holdfast_base::Timestamp;
use holdfast_vfs::{SetAttrs, SetTime};

use crate::attr::decode::DelegatedTimes;

/// What to set of a file last read and changed at these times, `now`. What lies in the future becomes now: a client's
/// clock may be wrong.
///
/// What lies before the file's own time is ignored, as RFC 9754 section 5 has it, but for who may set times as he likes
/// (`may_set`: the owner, root). Linux tells by this what `utimensat` set under a delegation too, and unpacking an archive
/// would else leave every file as of now.
///
/// An access time alone is taken note of and not stored: it must not advance the change time (RFC 9754 section 5),
/// and Linux has no way of setting the one without the other. Beside a time of modification it is stored.
pub(crate) fn believed(
    told: DelegatedTimes,
    (atime, mtime): (Timestamp, Timestamp),
    now: Timestamp,
    may_set: bool,
) -> SetAttrs {
    let is_news = |at: &Timestamp, is: Timestamp| if may_set { *at != is } else { *at > is };
    let told_of =
        |told: Option<Timestamp>, is: Timestamp| told.filter(|at| is_news(at, is)).map(|at| at.min(now));
    let modify = told_of(told.modify, mtime);
    let access = told_of(told.access, atime).filter(|_| modify.is_some());
    SetAttrs { mtime: modify.map(SetTime::At), atime: access.map(SetTime::At), ..SetAttrs::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn set(access: Option<i64>, modify: Option<i64>) -> (Option<SetTime>, Option<SetTime>) {
        let told = DelegatedTimes { access: access.map(at), modify: modify.map(at) };
        let set = believed(told, (at(100), at(100)), at(200), false);
        (set.atime, set.mtime)
    }

    #[test]
    fn times_go_forward_and_never_past_now() {
        let some = |seconds| Some(SetTime::At(at(seconds)));
        assert_eq!(set(Some(150), Some(160)), (some(150), some(160)));
        assert_eq!(set(Some(99), Some(160)), (None, some(160)));
        assert_eq!(set(Some(300), Some(400)), (some(200), some(200)));
        assert_eq!(set(None, Some(100)), (None, None));
    }

    #[test]
    fn who_may_set_times_sets_them_back() {
        let told = DelegatedTimes { access: Some(at(60)), modify: Some(at(50)) };
        let set = believed(told, (at(100), at(100)), at(200), true);
        assert_eq!((set.atime, set.mtime), (Some(SetTime::At(at(60))), Some(SetTime::At(at(50)))));
        let future = DelegatedTimes { access: None, modify: Some(at(300)) };
        assert_eq!(believed(future, (at(100), at(100)), at(200), true).mtime, Some(SetTime::At(at(200))));
        let same = DelegatedTimes { access: None, modify: Some(at(100)) };
        assert_eq!(believed(same, (at(100), at(100)), at(200), true), SetAttrs::default());
    }

    #[test]
    fn an_access_time_alone_changes_nothing() {
        assert_eq!(set(Some(150), None), (None, None));
        assert_eq!(set(Some(150), Some(50)), (None, None));
    }
}
