//! Data of one file that the server may not have on disk yet: an ordered map of extents that never overlap. What is
//! written later trims what was written earlier, whatever became of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdfast_base::limits::DIRTY_EXTENT_BYTES_MAX;

use crate::ask::Generation;
use crate::mutation::WriteId;
use body::Body;
use index::Index;

/// A run of bytes at its place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// How far an extent has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not sent.
    Dirty,
    /// In a WRITE on its way.
    Sent(WriteId),
    /// In a batch on its way; the serial of the mutation that carries it.
    Stream(u64),
    /// The server has it, and may lose it in a crash, after which its verifier is another.
    Unstable {
        /// The verifier of the WRITE's reply.
        verifier: u64,
        /// When that came.
        since: Generation,
    },
}

impl Progress {
    /// Whether it goes out by WRITE, or has: not in a batch.
    pub(crate) const fn is_by_write(self) -> bool {
        !matches!(self, Self::Stream(_))
    }
}

#[derive(Clone, Debug)]
struct Extent {
    body: Body,
    progress: Progress,
    born: Generation,
}

/// How many extents of one run are looked through for whether they are one.
const RUN_EXTENTS_MAX: usize = 64;

/// How many bytes a map holds in which condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// Dirty, or on their way.
    pub(crate) unsent: u64,
    /// With the server, not known to be on disk.
    pub(crate) unstable: u64,
}

/// The extents of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    map: BTreeMap<u64, Extent>,
    index: Index,
}

impl Extents {
    pub(crate) fn weights(&self) -> Weights {
        self.index.weights
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    fn insert(&mut self, at: u64, extent: Extent) {
        self.index.enter(at, extent.body.len(), extent.progress);
        self.map.insert(at, extent);
    }

    fn remove(&mut self, at: u64) {
        if let Some(extent) = self.map.remove(&at) {
            self.index.leave(at, extent.body.len(), extent.progress);
        }
    }

    /// Cuts what begins there to so many bytes. Gives the rest.
    fn shorten(&mut self, at: u64, len: usize) -> Option<Extent> {
        let extent = self.map.get_mut(&at)?;
        let (progress, born) = (extent.progress, extent.born);
        self.index.leave(at, extent.body.len(), progress);
        let rest = Extent { body: extent.body.split_off(len), progress, born };
        self.index.enter(at, len, progress);
        Some(rest)
    }

    /// Says how far what begins there has come.
    fn set(&mut self, at: u64, progress: Progress) {
        if let Some(extent) = self.map.get_mut(&at) {
            self.index.leave(at, extent.body.len(), extent.progress);
            extent.progress = progress;
            self.index.enter(at, extent.body.len(), progress);
        }
    }

    /// Takes over what an application wrote.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], born: Generation) {
        if data.is_empty() || self.write_into(offset, data) {
            return;
        }
        self.cut(offset, offset + data.len() as u64);
        let room = data.len().max(if self.touches_dirty(offset) { 16 << 10 } else { 0 });
        let mut own = Vec::with_capacity(room);
        own.extend_from_slice(data);
        self.insert(offset, Extent { body: Body::Own(own), progress: Progress::Dirty, born });
    }

    fn touches_dirty(&self, offset: u64) -> bool {
        self.map.range(..offset).next_back().is_some_and(|(at, e)| at + e.body.len() as u64 == offset)
    }

    /// Writes into, or behind, a dirty extent that begins before `offset`; false when there is none with room.
    fn write_into(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some((&at, extent)) = self.map.range(..=offset).next_back() else { return false };
        let (len, end) = (extent.body.len(), offset + data.len() as u64);
        let within = usize::try_from(offset - at).unwrap_or(usize::MAX);
        if extent.progress != Progress::Dirty
            || within > len
            || within + data.len() > DIRTY_EXTENT_BYTES_MAX
            || !matches!(extent.body, Body::Own(_))
        {
            return false;
        }
        if end > at + len as u64 {
            self.cut(at + len as u64, end);
        }
        let Some(Extent { body: Body::Own(own), .. }) = self.map.get_mut(&at) else { return false };
        let over = data.len().min(len - within);
        own[within..within + over].copy_from_slice(&data[..over]);
        own.extend_from_slice(&data[over..]);
        self.index.grow(at, len, data.len() - over);
        true
    }

    /// Forgets what lies in the range.
    pub(crate) fn cut(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.split_at(start);
        self.split_at(end);
        while let Some(at) = self.map.range(start..end).next().map(|(at, _)| *at) {
            self.remove(at);
        }
    }

    /// What is known here of the range, in order: of what the server has already only what it has got since then, as
    /// others may have overwritten the rest.
    pub(crate) fn read(&self, start: u64, end: u64, unstable_since: Generation) -> Vec<Piece> {
        let passed = |e: &Extent| matches!(e.progress, Progress::Unstable { .. }) && e.born < unstable_since;
        if start >= end {
            return Vec::new();
        }
        let first = self.map.range(..start).next_back().map_or(start, |(at, _)| *at);
        let mut found = Vec::new();
        for (&at, extent) in self.map.range(first..end) {
            let len = extent.body.len() as u64;
            if at + len <= start || passed(extent) {
                continue;
            }
            let from = start.max(at) - at;
            let to = (end.min(at + len)) - at;
            #[expect(clippy::cast_possible_truncation, reason = "both lie within an extent of at most 1 MiB")]
            let data = extent.body.slice(from as usize, to as usize);
            found.push(Piece { offset: at + from, data });
        }
        found
    }

    /// All dirty data, in order, which is from now on in the mutation with this serial.
    pub(crate) fn take_for_stream(&mut self, serial: u64) -> Vec<(u64, Bytes)> {
        let dirty: Vec<u64> = self.index.dirty.iter().copied().collect();
        let one = |at: u64| {
            self.set(at, Progress::Stream(serial));
            self.map.get_mut(&at).map(|extent| (at, extent.body.freeze()))
        };
        dirty.into_iter().filter_map(one).collect()
    }

    /// The first dirty extent, `large` ones only or any, that lies apart from all of `busy`, with those that it touches, or cut to
    /// `bytes_max`; from now on in this write.
    pub(crate) fn take_for_write(
        &mut self,
        id: WriteId,
        (busy, large): (&[(u64, u64)], bool),
        bytes_max: usize,
    ) -> Option<Piece> {
        let apart = |at: u64, len: usize| busy.iter().all(|(s, e)| at + len as u64 <= *s || *e <= at);
        let len = |at: u64| self.map.get(&at).map_or(0, |extent| extent.body.len());
        let all = if large { &self.index.large } else { &self.index.dirty };
        let at = *all.iter().find(|at| apart(**at, len(**at).min(bytes_max)))?;
        let mut end = at + len(at) as u64;
        let mut run = vec![at];
        let fits = |next: u64| next - at + len(next) as u64 <= bytes_max as u64;
        while self.index.dirty.contains(&end) && fits(end) && apart(end, len(end)) {
            run.push(end);
            end += len(end) as u64;
        }
        if run.len() > 1 {
            return Some(Piece { offset: at, data: self.join(&run, id) });
        }
        if len(at) > bytes_max {
            self.map.get_mut(&at)?.body.freeze();
            let rest = self.shorten(at, bytes_max)?;
            self.insert(at + bytes_max as u64, rest);
        }
        self.set(at, Progress::Sent(id));
        Some(Piece { offset: at, data: self.map.get_mut(&at)?.body.freeze() })
    }

    /// Makes one run of bytes of extents that touch each other, all of which are in this write from now on.
    fn join(&mut self, run: &[u64], id: WriteId) -> Bytes {
        let bodies = || run.iter().filter_map(|at| self.map.get(at)).map(|extent| &extent.body);
        let mut joined = Vec::with_capacity(bodies().map(Body::len).sum());
        bodies().for_each(|body| joined.extend_from_slice(body.bytes()));
        let joined = Bytes::from(joined);
        let mut from = 0;
        for at in run {
            self.set(*at, Progress::Sent(id));
            if let Some(extent) = self.map.get_mut(at) {
                let to = from + extent.body.len();
                extent.body = Body::Shared(joined.slice(from..to));
                from = to;
            }
        }
        joined
    }

    /// Changes how far extents have come: `change` says what becomes of each (`None`: forgotten).
    pub(crate) fn turn(&mut self, change: impl Fn(Progress, Generation) -> Option<Progress>) {
        self.turn_within((0, u64::MAX), change);
    }

    /// The same of those that begin in the range.
    pub(crate) fn turn_within(
        &mut self,
        (start, end): (u64, u64),
        change: impl Fn(Progress, Generation) -> Option<Progress>,
    ) {
        let turned = self.map.range(start..end.max(start)).filter_map(|(&at, extent)| {
            let changed = change(extent.progress, extent.born);
            (changed != Some(extent.progress)).then_some((at, changed))
        });
        for (at, changed) in turned.collect::<Vec<_>>() {
            match changed {
                Some(progress) => self.set(at, progress),
                None => self.remove(at),
            }
        }
    }

    /// Makes sure that no extent lies across this place.
    pub(crate) fn split_at(&mut self, place: u64) {
        let Some((&at, extent)) = self.map.range(..place).next_back() else { return };
        if at + (extent.body.len() as u64) > place {
            #[expect(clippy::cast_possible_truncation, reason = "within an extent of at most 1 MiB")]
            let rest = self.shorten(at, (place - at) as usize);
            rest.into_iter().for_each(|rest| self.insert(place, rest));
        }
    }

    /// Puts data below what is known: only where nothing is. For what a server lost after it had executed it.
    pub(crate) fn put_below(&mut self, offset: u64, data: &Bytes, progress: Progress, born: Generation) {
        let end = offset + data.len() as u64;
        for (from, to) in self.gaps((offset, end), Generation(0)) {
            #[expect(clippy::cast_possible_truncation, reason = "within data")]
            let data = data.slice((from - offset) as usize..(to - offset) as usize);
            self.insert(from, Extent { body: Body::Shared(data), progress, born });
        }
    }

    /// Where in the range nothing is known here, in order, as [`read`](Self::read) has it.
    pub(crate) fn gaps(&self, (start, end): (u64, u64), unstable_since: Generation) -> Vec<(u64, u64)> {
        let mut at = start;
        let mut gaps = Vec::new();
        for piece in self.read(start, end, unstable_since) {
            if piece.offset > at {
                gaps.push((at, piece.offset));
            }
            at = piece.end();
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// All that begins in the range and has come so far.
    pub(crate) fn all_that(&self, (start, end): (u64, u64), is: impl Fn(Progress) -> bool) -> Vec<Piece> {
        let found = self.map.range(start..end.max(start)).filter(|(_, extent)| is(extent.progress));
        found
            .map(|(at, extent)| Piece { offset: *at, data: extent.body.slice(0, extent.body.len()) })
            .collect()
    }

    /// Whether any extent is as asked. Looks at each.
    pub(crate) fn any(&self, is: impl Fn(Progress, Generation) -> bool) -> bool {
        self.map.values().any(|e| is(e.progress, e.born))
    }

    /// Whether any is dirty.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.index.dirty.is_empty()
    }

    /// Where all of it is, if all is dirty and none lies apart. Looks at no more of them than a short run has.
    pub(crate) fn one_run(&self) -> Option<(u64, u64)> {
        if self.map.len() > RUN_EXTENTS_MAX || self.map.len() != self.index.dirty.len() {
            return None;
        }
        let (start, first) = self.map.iter().next()?;
        let follow =
            |end: u64, (at, next): (&u64, &Extent)| (*at == end).then(|| end + next.body.len() as u64);
        let end = self.map.iter().skip(1).try_fold(start + first.body.len() as u64, follow)?;
        Some((*start, end))
    }

    /// Whether any is dirty and large.
    pub(crate) fn has_large(&self) -> bool {
        !self.index.large.is_empty()
    }

    /// Whether the server has any under such a verifier.
    pub(crate) fn has_verifier(&self, is_such: impl Fn(u64) -> bool) -> bool {
        self.index.has_verifier(is_such)
    }

    /// Whether any of what was written up to `born` is dirty, or on its way.
    pub(crate) fn has_unsent(&self, born: Generation) -> bool {
        let mut unsent = self.index.on_the_way.iter().chain(&self.index.dirty);
        unsent.any(|at| self.map.get(at).is_some_and(|extent| extent.born <= born))
    }

    /// Whether any of the range is as old as that.
    pub(crate) fn has_older(&self, start: u64, end: u64, born: Generation) -> bool {
        let first = self.map.range(..start).next_back().map_or(start, |(at, _)| *at);
        let mut all = self.map.range(first..end.max(first));
        all.any(|(at, e)| at + e.body.len() as u64 > start && e.born <= born)
    }

    /// Where the last extent that the server does not have ends.
    pub(crate) fn end(&self) -> Option<u64> {
        self.map.iter().next_back().map(|(at, e)| at + e.body.len() as u64)
    }

    /// Extents.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Checks that nothing overlaps and that the index is right.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut end, mut index) = (0, Index::default());
        for (at, extent) in &self.map {
            let len = extent.body.len() as u64;
            if *at < end || len == 0 {
                return Err(format!("extent at {at} overlaps or is empty"));
            }
            end = at + len;
            index.enter(*at, extent.body.len(), extent.progress);
        }
        if index == self.index { Ok(()) } else { Err(format!("index {:?}, counted {index:?}", self.index)) }
    }
}

mod body;
mod index;
pub(crate) mod stored;
#[cfg(test)]
mod tests;
