//! What a read may give, and no lost acknowledged-stable write. A read that the server answers, or a cache under a
//! delegation, is as of when it began. One that a client serves of what it kept over CLOSE is as of when the OPEN began that
//! found it good (close-to-open consistency, RFC 8881 section 10.3.1); and so is whatever anybody has read under a `change`
//! that is shown once more, for it may have been kept.
//!
//! Each block holds the mark of the write that was last. A read is out of date when it gives a write that had ended
//! before another began, and that other was acknowledged before the read began. What was acknowledged unstable may
//! be lost by a power cut until it is committed; nothing else may.
//!
//! A write is over once it was answered, or once somebody has read it: it is done once, however often its client has to
//! send it. Only where the server dies before the answer may the next life do it again (`exactly-once.md`).

use std::collections::BTreeMap;

use super::Verdict;

/// Names what a write wrote.
pub type Mark = u64;

/// Until when a write may have its effect.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Nobody has heard of it yet.
    Open,
    /// It was read then, and has no answer.
    Seen(u64),
    /// It was answered; it was over then.
    Answered(u64),
    /// Unless it is answered, it may come again at any time, although it was read.
    Never,
}

impl End {
    const fn at(self) -> Option<u64> {
        match self {
            Self::Seen(at) | Self::Answered(at) => Some(at),
            Self::Open | Self::Never => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Write {
    mark: Mark,
    sent: u64,
    end: End,
    /// Whoever reads after this must not see what was before it.
    counts_since: Option<u64>,
    is_stable: bool,
    /// How often power had failed when it was sent.
    cuts: u64,
}

/// All writes of a world.
#[derive(Default)]
pub struct Data {
    writes: BTreeMap<(usize, u64), Vec<Write>>,
    cuts: u64,
    kept: u64,
}

impl Data {
    /// A write is sent.
    pub fn sent(&mut self, place: (usize, u64), mark: Mark, now: u64) {
        let write =
            Write { mark, sent: now, end: End::Open, counts_since: None, is_stable: false, cuts: self.cuts };
        self.writes.entry(place).or_default().push(write);
    }

    /// It is asked for once more in another request: put off, or without the session in which it was.
    pub fn asked_anew(&mut self, place: (usize, u64), mark: Mark) {
        let writes = self.writes.entry(place).or_default();
        if let Some(write) = writes.iter_mut().rev().find(|write| write.mark == mark) {
            write.end = End::Never;
        }
    }

    /// The server died: what has no answer yet may be done again by its next life.
    pub fn server_died(&mut self) {
        for write in self.writes.values_mut().flatten() {
            if matches!(write.end, End::Open | End::Seen(_)) {
                write.end = End::Never;
            }
        }
    }

    /// It was answered. `is_sure` says that its effect cannot come once more: the server knew each sending for the same.
    pub fn answered(
        &mut self,
        place: (usize, u64),
        mark: Mark,
        now: u64,
        (is_stable, is_sure): (bool, bool),
    ) {
        let writes = self.writes.entry(place).or_default();
        if let Some(write) = writes.iter_mut().rev().find(|write| write.mark == mark) {
            write.end = if is_sure { End::Answered(write.end.at().unwrap_or(now)) } else { End::Never };
            // The answer may come from before a power cut.
            write.counts_since = (is_stable || write.cuts == self.cuts).then_some(now);
            write.is_stable = is_stable;
        }
    }

    /// It was committed, or written stable.
    pub fn committed(&mut self, place: (usize, u64), mark: Mark, now: u64) {
        let writes = self.writes.entry(place).or_default();
        if let Some(write) = writes.iter_mut().rev().find(|write| write.mark == mark) {
            write.is_stable = true;
            // A power cut may have taken this away; now it is sure.
            write.counts_since.get_or_insert(now);
        }
    }

    /// Power failed: what was not stable may be gone.
    pub fn power_cut(&mut self) {
        self.cuts += 1;
        for write in self.writes.values_mut().flatten().filter(|write| !write.is_stable) {
            write.counts_since = None;
        }
    }

    /// A read that was sent then, and answered now, gave this; 0 is what was there in the beginning.
    ///
    /// # Errors
    /// When it must not have.
    pub fn read(&mut self, place: (usize, u64), mark: Mark, (sent, now): (u64, u64)) -> Verdict {
        let verdict = self.judge(place, mark, sent);
        self.seen(place, mark, now);
        let (file, block) = place;
        let told = |why| {
            format!("a read of block {block} of file {file} from {sent} to {now} ms gave {mark}: {why}")
        };
        verdict.map_err(told)
    }

    /// A client gives this now of what it kept over CLOSE, and found good at an OPEN that was sent then.
    ///
    /// # Errors
    /// When it was not.
    pub fn read_kept(&mut self, place: (usize, u64), mark: Mark, (opened, now): (u64, u64)) -> Verdict {
        self.kept += 1;
        let (file, block) = place;
        let told = |why| {
            format!(
                "block {block} of file {file}, kept over CLOSE, gave {mark} at {now} ms, opened at {opened} ms: {why}"
            )
        };
        self.judge(place, mark, opened).map_err(told)
    }

    /// How many reads were served of what was kept over CLOSE.
    #[must_use]
    pub const fn reads_kept(&self) -> u64 {
        self.kept
    }

    /// This `change` was asked for and answered then, and this was read under it once.
    ///
    /// # Errors
    /// When that must be told by another `change` by now.
    pub fn stands_for(
        &self,
        change: u64,
        (place, mark): ((usize, u64), Mark),
        (sent, now): (u64, u64),
    ) -> Verdict {
        let (file, block) = place;
        let told = |why| {
            format!(
                "file {file} shows change {change} from {sent} to {now} ms, as when its block {block} was {mark}: {why}"
            )
        };
        self.judge(place, mark, sent).map_err(told)
    }

    /// Of a write that somebody has read it is known that it was done.
    fn seen(&mut self, place: (usize, u64), mark: Mark, now: u64) {
        let Some(writes) = self.writes.get_mut(&place) else { return };
        let mut written = writes.iter_mut().filter(|write| write.mark == mark);
        // Of one that was written again after its loss, it may be either.
        if let (Some(write), None) = (written.next(), written.next())
            && matches!(write.end, End::Open)
        {
            write.end = End::Seen(now);
        }
    }

    /// Whether what is asked for then may be this.
    fn judge(&self, place: (usize, u64), mark: Mark, asked: u64) -> Verdict {
        const NONE: &[Write] = &[];
        let writes = self.writes.get(&place).map_or(NONE, Vec::as_slice);
        let mut ends: Vec<Option<u64>> =
            writes.iter().filter(|w| w.mark == mark).map(|w| w.end.at()).collect();
        if mark == 0 {
            ends.push(Some(0));
        }
        if ends.is_empty() {
            return Err("nobody wrote that".into());
        }
        // Any of the times it was written may be the one that was read.
        let newer = |end: u64| {
            let is_newer =
                |w: &&Write| w.mark != mark && w.sent > end && w.counts_since.is_some_and(|at| at < asked);
            writes.iter().find(is_newer)
        };
        let mut why = None;
        for end in ends {
            match end.and_then(newer) {
                None => return Ok(()),
                Some(write) => why = Some(write),
            }
        }
        let newer = why.map_or(0, |write| write.mark);
        Err(format!("{newer} was written after it, and acknowledged before that began"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (usize, u64) = (0, 0);

    fn written(data: &mut Data, mark: Mark, from: u64, is_stable: bool) {
        data.sent(PLACE, mark, from);
        data.answered(PLACE, mark, from + 5, (is_stable, true));
    }

    #[test]
    fn a_read_gives_the_last_acknowledged_write_or_one_under_way() {
        let mut data = Data::default();
        written(&mut data, 1, 10, true);
        assert!(data.read(PLACE, 0, (14, 20)).is_ok(), "not acknowledged when the read began");
        assert!(data.read(PLACE, 0, (16, 20)).is_err());
        data.sent(PLACE, 2, 18);
        assert!(data.read(PLACE, 2, (16, 20)).is_ok());
        assert!(data.read(PLACE, 1, (16, 20)).is_ok());
        assert!(data.read(PLACE, 3, (16, 20)).is_err(), "nobody wrote that");
    }

    #[test]
    fn what_was_kept_is_as_new_as_the_open_that_found_it_good() {
        let mut data = Data::default();
        written(&mut data, 1, 10, true);
        written(&mut data, 2, 20, true);
        assert!(data.read_kept(PLACE, 1, (24, 40)).is_ok(), "the newer one was not acknowledged then");
        assert!(data.read_kept(PLACE, 1, (26, 40)).is_err());
        assert!(data.stands_for(7, (PLACE, 1), (26, 40)).is_err());
        assert!(data.stands_for(7, (PLACE, 2), (26, 40)).is_ok());
        assert_eq!(data.reads_kept(), 2);
    }

    #[test]
    fn only_what_is_not_stable_is_lost_by_a_power_cut() {
        let mut data = Data::default();
        written(&mut data, 1, 10, false);
        assert!(data.read(PLACE, 0, (20, 30)).is_err());
        data.power_cut();
        assert!(data.read(PLACE, 0, (20, 30)).is_ok());
        data.committed(PLACE, 1, 40);
        data.power_cut();
        assert!(data.read(PLACE, 0, (50, 60)).is_err());
        assert!(data.read(PLACE, 1, (50, 60)).is_ok());
    }

    #[test]
    fn what_was_read_and_overwritten_comes_back_only_over_the_servers_death() {
        for (dies, is_anew) in [(false, false), (true, false), (false, true)] {
            let mut data = Data::default();
            data.sent(PLACE, 1, 10);
            assert!(data.read(PLACE, 1, (12, 14)).is_ok());
            written(&mut data, 2, 20, true);
            if dies {
                data.server_died();
            }
            if is_anew {
                data.asked_anew(PLACE, 1);
            }
            assert_eq!(data.read(PLACE, 1, (30, 35)).is_ok(), dies || is_anew);
            data.answered(PLACE, 1, 40, (true, true));
            written(&mut data, 3, 50, true);
            assert!(data.read(PLACE, 1, (60, 65)).is_err(), "it was answered");
        }
    }

    #[test]
    fn what_a_former_life_did_may_be_done_again_though_the_next_shows_it() {
        let mut data = Data::default();
        data.sent(PLACE, 1, 10);
        data.server_died();
        assert!(data.read(PLACE, 1, (12, 14)).is_ok());
        written(&mut data, 2, 20, true);
        assert!(data.read(PLACE, 1, (30, 35)).is_ok());
    }

    #[test]
    fn what_was_written_again_may_be_read_again() {
        let mut data = Data::default();
        written(&mut data, 1, 10, true);
        written(&mut data, 2, 20, true);
        assert!(data.read(PLACE, 1, (30, 35)).is_err());
        data.sent(PLACE, 1, 40);
        assert!(data.read(PLACE, 1, (41, 45)).is_ok());
    }
}
