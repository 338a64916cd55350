//! Data of one file that the server may not have on disk yet: an ordered map of extents that never overlap. What is
//! written later trims what was written earlier, whatever became of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdfast_base::limits::DIRTY_EXTENT_BYTES_MAX;

use crate::ask::Generation;
use crate::mutation::WriteId;

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
enum Body {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::Own(v) => v.len(),
            Self::Shared(b) => b.len(),
        }
    }

    fn slice(&self, from: usize, to: usize) -> Bytes {
        match self {
            Self::Own(v) => Bytes::copy_from_slice(&v[from..to]),
            Self::Shared(b) => b.slice(from..to),
        }
    }

    fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Own(v) => Self::Own(v.split_off(at)),
            Self::Shared(b) => Self::Shared(b.split_off(at)),
        }
    }

    fn freeze(&mut self) -> Bytes {
        let bytes = match self {
            Self::Own(v) => Bytes::from(std::mem::take(v)),
            Self::Shared(b) => return b.clone(),
        };
        *self = Self::Shared(bytes.clone());
        bytes
    }
}

#[derive(Clone, Debug)]
struct Extent {
    body: Body,
    progress: Progress,
    born: Generation,
}

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
    weights: Weights,
}

impl Extents {
    pub(crate) fn weights(&self) -> Weights {
        self.weights
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    fn weigh(&mut self, progress: Progress, add: usize, sub: usize) {
        let weight = match progress {
            Progress::Unstable { .. } => &mut self.weights.unstable,
            _ => &mut self.weights.unsent,
        };
        *weight = *weight + add as u64 - sub as u64;
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
        self.weights.unsent += data.len() as u64;
        self.map.insert(offset, Extent { body: Body::Own(own), progress: Progress::Dirty, born });
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
        self.weights.unsent += (data.len() - over) as u64;
        true
    }

    /// Forgets what lies in the range.
    pub(crate) fn cut(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((&at, extent)) = self.map.range_mut(..start).next_back() {
            let len = extent.body.len() as u64;
            if at + len > start {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "start lies within an extent of at most 1 MiB"
                )]
                let mut tail = extent.body.split_off((start - at) as usize);
                let (progress, born) = (extent.progress, extent.born);
                if at + len > end {
                    #[expect(clippy::cast_possible_truncation, reason = "end lies within the same extent")]
                    let rest = tail.split_off((end - start) as usize);
                    self.map.insert(end, Extent { body: rest, progress, born });
                }
                self.weigh(progress, 0, tail.len());
            }
        }
        while let Some((&at, extent)) = self.map.range_mut(start..end).next() {
            let (len, progress, born) = (extent.body.len(), extent.progress, extent.born);
            let rest = if at + len as u64 > end {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "end lies within an extent of at most 1 MiB"
                )]
                Some(extent.body.split_off((end - at) as usize))
            } else {
                None
            };
            let cut = extent.body.len();
            self.map.remove(&at);
            self.weigh(progress, 0, cut);
            if let Some(rest) = rest {
                self.map.insert(end, Extent { body: rest, progress, born });
            }
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
        let mut taken = Vec::new();
        for (&at, extent) in &mut self.map {
            if extent.progress == Progress::Dirty {
                extent.progress = Progress::Stream(serial);
                taken.push((at, extent.body.freeze()));
            }
        }
        taken
    }

    /// The first dirty extent that lies apart from all of `busy`, cut to `bytes_max`, which is from now on in this
    /// write.
    pub(crate) fn take_for_write(
        &mut self,
        id: WriteId,
        busy: &[(u64, u64)],
        bytes_max: usize,
    ) -> Option<Piece> {
        let apart = |at: u64, len: usize| busy.iter().all(|(s, e)| at + len as u64 <= *s || *e <= at);
        let dirty = |e: &Extent| e.progress == Progress::Dirty;
        let at = *self.map.iter().find(|(at, e)| dirty(e) && apart(**at, e.body.len().min(bytes_max)))?.0;
        let extent = self.map.get_mut(&at)?;
        let born = extent.born;
        if extent.body.len() > bytes_max {
            extent.body.freeze();
            let rest = extent.body.split_off(bytes_max);
            let rest = Extent { body: rest, progress: Progress::Dirty, born };
            extent.progress = Progress::Sent(id);
            let data = extent.body.freeze();
            self.map.insert(at + bytes_max as u64, rest);
            return Some(Piece { offset: at, data });
        }
        extent.progress = Progress::Sent(id);
        Some(Piece { offset: at, data: extent.body.freeze() })
    }

    /// Changes how far extents have come: `change` says what becomes of each (`None`: forgotten).
    pub(crate) fn turn(&mut self, change: impl Fn(Progress, Generation) -> Option<Progress>) {
        let mut gone = Vec::new();
        let mut weights = Weights::default();
        for (&at, extent) in &mut self.map {
            match change(extent.progress, extent.born) {
                Some(progress) => {
                    extent.progress = progress;
                    match progress {
                        Progress::Unstable { .. } => weights.unstable += extent.body.len() as u64,
                        _ => weights.unsent += extent.body.len() as u64,
                    }
                }
                None => gone.push(at),
            }
        }
        for at in gone {
            self.map.remove(&at);
        }
        self.weights = weights;
    }

    /// Makes sure that no extent lies across this place.
    pub(crate) fn split_at(&mut self, place: u64) {
        let Some((&at, extent)) = self.map.range_mut(..place).next_back() else { return };
        if at + (extent.body.len() as u64) > place {
            #[expect(clippy::cast_possible_truncation, reason = "within an extent of at most 1 MiB")]
            let body = extent.body.split_off((place - at) as usize);
            let rest = Extent { body, progress: extent.progress, born: extent.born };
            self.map.insert(place, rest);
        }
    }

    /// Changes how far extents that begin in the range have come.
    pub(crate) fn turn_within(&mut self, start: u64, end: u64, change: impl Fn(Progress) -> Progress) {
        for (_, extent) in self.map.range_mut(start..end.max(start)) {
            extent.progress = change(extent.progress);
        }
    }

    /// Puts data below what is known: only where nothing is. For what a server lost after it had executed it.
    pub(crate) fn put_below(&mut self, offset: u64, data: &Bytes, progress: Progress, born: Generation) {
        let end = offset + data.len() as u64;
        for (from, to) in self.gaps((offset, end), Generation(0)) {
            #[expect(clippy::cast_possible_truncation, reason = "within data")]
            let data = data.slice((from - offset) as usize..(to - offset) as usize);
            self.weigh(progress, data.len(), 0);
            self.map.insert(from, Extent { body: Body::Shared(data), progress, born });
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

    /// All that has come so far.
    pub(crate) fn all_that(&self, is: impl Fn(Progress) -> bool) -> Vec<Piece> {
        let found = self.map.iter().filter(|(_, extent)| is(extent.progress));
        found
            .map(|(at, extent)| Piece { offset: *at, data: extent.body.slice(0, extent.body.len()) })
            .collect()
    }

    /// Whether any extent is as asked.
    pub(crate) fn any(&self, is: impl Fn(Progress, Generation) -> bool) -> bool {
        self.map.values().any(|e| is(e.progress, e.born))
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

    /// Checks that nothing overlaps and that the sums are right.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut end, mut sum) = (0, Weights::default());
        for (at, extent) in &self.map {
            let len = extent.body.len() as u64;
            if *at < end || len == 0 {
                return Err(format!("extent at {at} overlaps or is empty"));
            }
            end = at + len;
            match extent.progress {
                Progress::Unstable { .. } => sum.unstable += len,
                _ => sum.unsent += len,
            }
        }
        if sum == self.weights { Ok(()) } else { Err(format!("weights {:?}, counted {sum:?}", self.weights)) }
    }
}

pub(crate) mod stored;
#[cfg(test)]
mod tests;
