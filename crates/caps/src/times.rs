//! The time at which a holder says that it has changed a file: how much of that is believed.

use holdfast_base::{CapSet, Timestamp};
use holdfast_vfs::{AccessMask, AttrMask, Caller, SetAttrs, SetTime};

use crate::ops::{Doing, Stop};
use crate::site::Site;

impl Doing<'_> {
    /// The time at which whoever holds the file has changed its data, if it is that. It is his to say, as with delegated times
    /// (RFC 9754 section 5): who may write changes it, and need not own the file. `None` where he may not.
    pub(crate) fn time_of_its_writes(
        &self,
        (site, caller): (&Site, &Caller),
        set: &SetAttrs,
    ) -> Result<Option<SetAttrs>, Stop> {
        let (client, backend) = (self.actor.client, &site.export.backend);
        let is_time_alone = *set == SetAttrs { mtime: set.mtime, ..SetAttrs::default() };
        let held = self.caps.parts.manager.look(|engine| engine.caps_in_force(client, site.key()));
        let Some(told) = set.mtime.filter(|_| is_time_alone && held.contains(CapSet::FILE_X)) else {
            return Ok(None);
        };
        let (cx, asked) = (self.actor.cx(caller), AccessMask::MODIFY);
        if !backend.access(&cx, &site.handle, asked)?.granted.contains(asked) {
            return Ok(None);
        }
        let is = backend.getattr(&cx, &site.handle, AttrMask::STAT)?.mtime;
        let since = self.caps.members.written_since(client, site.key()).unwrap_or(is);
        let mtime = believed(told, (since, is), (self.caps.parts.wall)());
        Ok(Some(SetAttrs { mtime: Some(mtime), ..SetAttrs::default() }))
    }
}

/// What a file's holder, who may write it and does not own it, may set its modification time to: what a write of his may have
/// left behind. `since`: what it was when he came to hold the file; `is`: what it is; `now`.
///
/// He has written it since then, so an earlier time is none of a write's, and the file keeps its own; what lies in the future
/// becomes now. So a delegation's holder is believed (RFC 9754 section 5), but for `since`: his WRITEs have moved `is`.
fn believed(told: SetTime, (since, is): (Timestamp, Timestamp), now: Timestamp) -> SetTime {
    match told {
        SetTime::At(at) if at < since => SetTime::At(is),
        SetTime::At(at) => SetTime::At(at.min(now)),
        SetTime::Now => SetTime::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn a_writer_tells_no_time_but_of_a_write_of_his() {
        // Held since 100, last written at 200, and it is 300.
        for (told, set) in [(1, 200), (99, 200), (100, 100), (150, 150), (250, 250), (300, 300), (301, 300)] {
            let believed = believed(SetTime::At(at(told)), (at(100), at(200)), at(300));
            assert_eq!(believed, SetTime::At(at(set)), "{told}");
        }
        assert_eq!(believed(SetTime::Now, (at(100), at(200)), at(300)), SetTime::Now);
    }
}
