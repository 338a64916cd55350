//! What a client keeps of a file's data over CLOSE (RFC 8881 section 10.3.1): the next OPEN brings `change`, and what was kept
//! serves reads if that is the same, else it is dropped. So it is by the client's own writes: whether another wrote beside
//! them `change` cannot tell.

use std::collections::BTreeMap;

use crate::oracle::data::Mark;

/// Data of one file.
struct Kept {
    number: u64,
    change: u64,
    /// When the OPEN was sent that it was last compared at.
    since: u64,
    blocks: BTreeMap<u64, Mark>,
}

/// Data of all files of a client.
#[derive(Default)]
pub(crate) struct Cache {
    files: BTreeMap<usize, Kept>,
    /// What is read while that which is kept is dropped belongs to nothing: each has a number.
    last: u64,
}

impl Cache {
    /// An OPEN that was sent then brought this `change`. Tells whether anything kept is good.
    pub(crate) fn opened(&mut self, file: usize, change: u64, sent: u64) -> bool {
        if let Some(kept) = self.files.get_mut(&file).filter(|kept| kept.change == change) {
            kept.since = sent;
            return !kept.blocks.is_empty();
        }
        self.last += 1;
        let kept = Kept { number: self.last, change, since: sent, blocks: BTreeMap::new() };
        self.files.insert(file, kept);
        false
    }

    /// A block, and since when it must be as it was.
    pub(crate) fn block(&self, file: usize, block: u64) -> Option<(Mark, u64)> {
        let kept = self.files.get(&file)?;
        Some((*kept.blocks.get(&block)?, kept.since))
    }

    /// A read is sent: what its answer may be kept with.
    pub(crate) fn read_begins(&self, file: usize) -> Option<u64> {
        self.files.get(&file).map(|kept| kept.number)
    }

    /// It was answered.
    pub(crate) fn read_ends(&mut self, file: usize, (block, mark): (u64, Mark), begun: Option<u64>) {
        if let Some(kept) = self.files.get_mut(&file).filter(|kept| begun == Some(kept.number)) {
            kept.blocks.insert(block, mark);
        }
    }

    /// The client itself writes, or has written.
    pub(crate) fn wrote(&mut self, file: usize) {
        self.files.remove(&file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_good_while_change_is_the_same() {
        let mut cache = Cache::default();
        assert!(!cache.opened(0, 7, 10));
        cache.read_ends(0, (1, 42), cache.read_begins(0));
        assert!(cache.opened(0, 7, 20));
        assert_eq!(cache.block(0, 1), Some((42, 20)));
        let begun = cache.read_begins(0);
        assert!(!cache.opened(0, 8, 30));
        cache.read_ends(0, (1, 42), begun);
        assert_eq!(cache.block(0, 1), None, "it may have been read before");
    }

    #[test]
    fn what_the_client_writes_over_is_dropped() {
        let mut cache = Cache::default();
        cache.opened(0, 7, 10);
        let begun = cache.read_begins(0);
        cache.read_ends(0, (1, 42), begun);
        cache.wrote(0);
        cache.read_ends(0, (1, 42), begun);
        assert_eq!(cache.block(0, 1), None);
        assert!(!cache.opened(0, 7, 20));
    }
}
