//! Where the data of a file lies: on the server itself, or as whole copies on several data servers, as a layout says
//! (flexible files, RFC 8435). Reads are balanced over the copies, and what is written goes to each of them.

use std::hash::{Hash as _, Hasher as _};

use bytes::Bytes;
use holdfast_cache::Attrs;
use holdfast_client::Error;
use holdfast_wire::nfs4::StableHow4;
use rustc_hash::FxHasher;

/// Bytes of a file that are read from the same copy: more than any one READ, so that a copy's server sees runs of them
/// and reads ahead; and little enough for one reader to keep several servers busy.
const RUN_BYTES: u64 = 4 << 20;

/// Who holds a copy of a file's data. Blocking, like the client.
pub(super) trait DataServer: Sync {
    /// At most so many bytes from there, and whether the file ends with them.
    fn read(&self, offset: u64, length: u32) -> Result<(Bytes, bool), Error>;

    /// Some of the data, from its beginning.
    fn write(&self, offset: u64, data: Bytes, how: StableHow4) -> Result<Put, Error>;

    /// Has all that was written of the file put on disk; gives the write verifier.
    fn commit(&self) -> Result<u64, Error>;
}

/// What a WRITE came to.
#[derive(Clone, Debug)]
pub(super) struct Put {
    /// Bytes taken.
    pub(super) count: u32,
    /// They are on disk.
    pub(super) is_stable: bool,
    /// Another one means that what is not on disk is lost. That of several servers changes when one of theirs does.
    pub(super) verifier: u64,
    /// The file's attributes after it, from whoever knows them.
    pub(super) attrs: Option<Attrs>,
}

/// The copies of a file, at least one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement<'a, D> {
    copies: &'a [D],
    /// Which copy the file's first run is read from.
    turn: usize,
}

impl<'a, D: DataServer> Placement<'a, D> {
    /// Over these copies. `turn` spreads files over them.
    pub(super) const fn new(copies: &'a [D], turn: usize) -> Self {
        Self { copies, turn }
    }

    /// Reads from the copy whose turn it is; from the others, in order, where that one fails: what one copy cannot give
    /// another may have.
    pub(super) fn read(&self, offset: u64, length: u32) -> Result<(Bytes, bool), Error> {
        let run = usize::try_from(offset / RUN_BYTES).unwrap_or(usize::MAX);
        let first = self.turn.wrapping_add(run) % self.copies.len().max(1);
        let mut failed = None;
        for copy in self.copies[first..].iter().chain(&self.copies[..first]) {
            match copy.read(offset, length) {
                // Who gave up does not want to hear of another copy.
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => failed = failed.or(Some(error)),
                read => return read,
            }
        }
        Err(failed.unwrap_or(Error::Protocol("a file without a copy")))
    }

    /// Writes to every copy. One that fails fails it: a copy that misses data must not be read from, and only who gives out
    /// layouts can see to that.
    pub(super) fn write(&self, offset: u64, data: &Bytes, how: StableHow4) -> Result<Put, Error> {
        let puts = self.each(|copy| copy.write(offset, data.clone(), how))?;
        let mut puts = puts.into_iter();
        let first = puts.next().ok_or(Error::Protocol("a file without a copy"))?;
        Ok(puts.fold(first, |all, put| Put {
            count: all.count.min(put.count),
            is_stable: all.is_stable && put.is_stable,
            verifier: together(all.verifier, put.verifier),
            attrs: all.attrs.or(put.attrs),
        }))
    }

    /// Has every copy put on disk; the verifier is that of WRITEs to the same copies.
    pub(super) fn commit(&self) -> Result<u64, Error> {
        let verifiers = self.each(DataServer::commit)?;
        verifiers.into_iter().reduce(together).ok_or(Error::Protocol("a file without a copy"))
    }

    /// Asks all copies, several at the same time.
    fn each<T: Send>(&self, ask: impl Fn(&D) -> Result<T, Error> + Sync) -> Result<Vec<T>, Error> {
        let Some((first, others)) = self.copies.split_first() else { return Ok(Vec::new()) };
        if others.is_empty() {
            return ask(first).map(|one| vec![one]);
        }
        std::thread::scope(|scope| {
            let ask = &ask;
            let asked: Vec<_> = others.iter().map(|copy| scope.spawn(move || ask(copy))).collect();
            let mut answers = vec![ask(first)];
            answers.extend(asked.into_iter().map(|thread| {
                thread.join().unwrap_or(Err(Error::Protocol("asking a data server ended in a panic")))
            }));
            answers.into_iter().collect()
        })
    }
}

fn together(one: u64, other: u64) -> u64 {
    let mut hasher = FxHasher::default();
    (one, other).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A copy in memory.
    struct Copy {
        data: Mutex<Vec<u8>>,
        reads: Mutex<Vec<u64>>,
        verifier: u64,
        takes: usize,
        is_stable: bool,
        is_away: bool,
    }

    fn copy(verifier: u64) -> Copy {
        let (data, reads) = (Mutex::default(), Mutex::default());
        Copy { data, reads, verifier, takes: usize::MAX, is_stable: false, is_away: false }
    }

    impl Copy {
        fn there(&self) -> Result<(), Error> {
            if self.is_away { Err(Error::Disconnected) } else { Ok(()) }
        }
    }

    impl DataServer for Copy {
        fn read(&self, offset: u64, length: u32) -> Result<(Bytes, bool), Error> {
            self.there()?;
            self.reads.lock().unwrap().push(offset);
            let data = self.data.lock().unwrap();
            let from = data.len().min(offset as usize);
            let to = data.len().min(from + length as usize);
            Ok((Bytes::copy_from_slice(&data[from..to]), to == data.len()))
        }

        fn write(&self, offset: u64, data: Bytes, _: StableHow4) -> Result<Put, Error> {
            self.there()?;
            let count = data.len().min(self.takes);
            let (mut own, end) = (self.data.lock().unwrap(), offset as usize + count);
            let length = own.len().max(end);
            own.resize(length, 0);
            own[offset as usize..end].copy_from_slice(&data[..count]);
            Ok(Put { count: count as u32, is_stable: self.is_stable, verifier: self.verifier, attrs: None })
        }

        fn commit(&self) -> Result<u64, Error> {
            self.there().map(|()| self.verifier)
        }
    }

    const HOW: StableHow4 = StableHow4::Unstable;
    const DATA: Bytes = Bytes::from_static(b"some data");

    #[test]
    fn one_copy_is_asked_as_if_there_were_no_placement() {
        let copies = [copy(7)];
        let placement = Placement::new(&copies, 3);
        assert_eq!(placement.write(0, &DATA, HOW).unwrap().verifier, 7);
        assert_eq!(placement.commit().unwrap(), 7);
        assert_eq!(placement.read(5, 100).unwrap(), (Bytes::from_static(b"data"), true));
    }

    #[test]
    fn what_is_written_is_in_every_copy_as_far_as_the_slowest_took_it() {
        let copies = [copy(1), Copy { takes: 4, is_stable: true, ..copy(2) }];
        let put = Placement::new(&copies, 0).write(0, &DATA, HOW).unwrap();
        assert_eq!((put.count, put.is_stable), (4, false));
        assert_eq!(*copies[0].data.lock().unwrap(), b"some data");
        assert_eq!(*copies[1].data.lock().unwrap(), b"some");
    }

    #[test]
    fn a_copy_that_cannot_be_written_or_committed_fails_it() {
        let copies = [copy(1), Copy { is_away: true, ..copy(2) }];
        let placement = Placement::new(&copies, 0);
        assert!(matches!(placement.write(0, &DATA, HOW), Err(Error::Disconnected)));
        assert!(matches!(placement.commit(), Err(Error::Disconnected)));
    }

    #[test]
    fn the_verifier_is_anothers_when_one_server_has_lost_its_memory() {
        let verifier = |a, b| Placement::new(&[copy(a), copy(b)], 0).commit().unwrap();
        assert_eq!(verifier(1, 2), verifier(1, 2));
        assert_ne!(verifier(1, 2), verifier(1, 3));
        assert_ne!(verifier(1, 2), verifier(3, 2));
        let copies = [copy(1), copy(2)];
        assert_eq!(Placement::new(&copies, 0).write(0, &DATA, HOW).unwrap().verifier, verifier(1, 2));
    }

    #[test]
    fn reads_take_turns_by_runs_and_files() {
        let copies = [copy(1), copy(2)];
        for block in 0..8 {
            Placement::new(&copies, 0).read(block * RUN_BYTES / 2, 1).unwrap();
        }
        let first: Vec<_> = copies[0].reads.lock().unwrap().iter().map(|at| at / RUN_BYTES).collect();
        assert_eq!(first, [0, 0, 2, 2]);
        Placement::new(&copies, 1).read(0, 1).unwrap();
        assert_eq!(copies[1].reads.lock().unwrap().len(), 5);
    }

    #[test]
    fn another_copy_is_read_when_one_is_away() {
        let copies = [Copy { is_away: true, ..copy(1) }, copy(2)];
        copies[1].write(0, DATA, HOW).unwrap();
        assert_eq!(Placement::new(&copies, 0).read(0, 4).unwrap().0, "some");
        let away = [Copy { is_away: true, ..copy(1) }, Copy { is_away: true, ..copy(2) }];
        assert!(matches!(Placement::new(&away, 0).read(0, 4), Err(Error::Disconnected)));
    }
}
