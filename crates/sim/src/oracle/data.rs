//! What a read may give: close-to-open consistency, and no lost acknowledged-stable write.
//!
//! Each block holds the mark of the write that was last. A read is out of date when it gives a write that had ended
//! before another began, and that other was acknowledged before the read began. What was acknowledged unstable may
//! be lost by a power cut until it is committed; nothing else may.

use std::collections::BTreeMap;

use super::Verdict;

/// Names what a write wrote.
pub type Mark = u64;

#[derive(Clone, Debug)]
struct Write {
    mark: Mark,
    sent: u64,
    /// Its effect came before this; nobody knows, when it was never answered or was sent more than once.
    ended: Option<u64>,
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
}

impl Data {
    /// A write is sent.
    pub fn sent(&mut self, place: (usize, u64), mark: Mark, now: u64) {
        let write =
            Write { mark, sent: now, ended: None, counts_since: None, is_stable: false, cuts: self.cuts };
        self.writes.entry(place).or_default().push(write);
    }

    /// It was answered. `is_sure` says that its effect cannot come once more: it was sent once, or the protocol keeps
    /// what was sent twice from running twice.
    pub fn answered(
        &mut self,
        place: (usize, u64),
        mark: Mark,
        now: u64,
        (is_stable, is_sure): (bool, bool),
    ) {
        let writes = self.writes.entry(place).or_default();
        if let Some(write) = writes.iter_mut().rev().find(|write| write.mark == mark) {
            write.ended = is_sure.then_some(now);
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
    pub fn read(&self, place: (usize, u64), mark: Mark, (sent, now): (u64, u64)) -> Verdict {
        const NONE: &[Write] = &[];
        let writes = self.writes.get(&place).map_or(NONE, Vec::as_slice);
        let told = |why: String| {
            let (file, block) = place;
            Err(format!("a read of block {block} of file {file} from {sent} to {now} ms gave {mark}: {why}"))
        };
        let mut ends: Vec<Option<u64>> = writes.iter().filter(|w| w.mark == mark).map(|w| w.ended).collect();
        if mark == 0 {
            ends.push(Some(0));
        }
        if ends.is_empty() {
            return told("nobody wrote that".into());
        }
        // Any of the times it was written may be the one that was read.
        let newer = |end: u64| {
            let is_newer =
                |w: &&Write| w.mark != mark && w.sent > end && w.counts_since.is_some_and(|at| at < sent);
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
        told(format!("{newer} was written after it, and acknowledged before the read began"))
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
    fn what_was_written_again_may_be_read_again() {
        let mut data = Data::default();
        written(&mut data, 1, 10, true);
        written(&mut data, 2, 20, true);
        assert!(data.read(PLACE, 1, (30, 35)).is_err());
        data.sent(PLACE, 1, 40);
        assert!(data.read(PLACE, 1, (41, 45)).is_ok());
    }
}
