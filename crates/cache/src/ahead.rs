//! Small files that are read before anybody asks for them: who reads some of a directory, one after the other, is about to
//! read more, and each would cost him a round trip. What comes is kept as if it had been asked for (`clean.rs`): under a
//! promise that covers it from the question to the answer, and no longer. How much is read so follows how much of it is used.

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_base::limits::{
    AHEAD_BYTES_MAX, AHEAD_CALL_BYTES_MAX, AHEAD_CALL_FILES_MAX, AHEAD_CALLS_MAX, AHEAD_FILES_MAX,
    AHEAD_FILES_MIN, AHEAD_KEPT_MS, AHEAD_PAUSE_MS, AHEAD_REFUSED_MS, AHEAD_SCAN_MAX, AHEAD_WAIT_MS_MAX,
    AHEAD_WAIT_MS_MIN, SMALL_FILE_BYTES,
};
use holdfast_base::{CapSet, Instant};
use rustc_hash::FxHashMap;

use crate::ask::Generation;
use crate::attrs::Kind;
use crate::clean::Origin;
use crate::ids::{Caller, Fh, Handle, NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;

/// Files to be read whole, with one call. Whatever comes of it, [`Machine::ahead_done`] is to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct AheadOut {
    /// Who reads in that directory.
    pub caller: Caller,
    /// The files, and how long they are.
    pub files: Vec<(Handle, u32)>,
    at: Generation,
    asked_at: Instant,
    ids: Vec<NodeId>,
}

/// How files of one directory are being read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Files that had to be asked for since it was last left alone.
    misses: u32,
    /// When the last of its files was read.
    last: Instant,
    /// The position behind which files are read ahead next.
    next: u64,
    /// So many may be read, or being read, and not used.
    window: usize,
    /// So many are.
    unused: usize,
    /// So many of its files were read, from here or not, since the window was last made larger.
    read: usize,
    is_due: bool,
    /// So many of its names were gone through since one was found.
    looked: usize,
    /// There are none that are not here.
    is_over: bool,
    /// The kernel had to ask for a file that it was told all of, as of one that was written here: what it was told of the others
    /// it may have as little.
    has_forgotten: bool,
}

/// One file that was read ahead, or is being.
#[derive(Clone, Copy, Debug)]
struct File {
    dir: NodeId,
    bytes: usize,
    asked_at: Instant,
    /// Since when it is here, under which number; `None` while it is on its way.
    kept: Option<(Instant, u64)>,
}

/// All of a mount.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Directories of which files are to be read, and by whom.
    due: VecDeque<(NodeId, Caller)>,
    /// What is on its way, or here and not used.
    files: FxHashMap<NodeId, File>,
    /// Those that are here, in the order of their coming; some were used since.
    order: VecDeque<(Instant, NodeId)>,
    calls: usize,
    /// Milliseconds that a call takes, as a rule.
    usual_ms: Option<u64>,
    /// When the first of those who wait for one is to look again.
    awaited: Option<Instant>,
    bytes: usize,
    /// When one was last used.
    used_at: Option<Instant>,
    /// Before then nothing is read.
    not_before: Instant,
}

impl Reading {
    /// A file of it, at this position where that is known, has to be asked for.
    fn missed(&mut self, at: u64, was_told: bool, now: Instant) {
        if self.misses == 0 || now.ms_since(self.last) >= AHEAD_PAUSE_MS {
            (self.misses, self.window, self.read) = (0, AHEAD_FILES_MIN, 0);
            (self.looked, self.is_over, self.has_forgotten) = (0, false, false);
        }
        if was_told && !self.has_forgotten {
            // Those that were passed over are worth it after all.
            (self.looked, self.is_over, self.has_forgotten) = (0, false, true);
        }
        self.misses = self.misses.saturating_add(1);
        self.grow(now);
        if at != 0 {
            self.next = at;
        }
    }

    fn used(&mut self, now: Instant) {
        self.unused = self.unused.saturating_sub(1);
        self.grow(now);
    }

    /// Who has read many of its files is about to read many more, in whatever order.
    fn grow(&mut self, now: Instant) {
        (self.last, self.read) = (now, self.read + 1);
        if self.read >= self.window / 2 {
            (self.window, self.read) = ((self.window * 2).min(AHEAD_FILES_MAX), 0);
        }
    }

    /// Whether more of its files are to be read now: half of what may be is used. From then on it is due.
    const fn is_to_go_on(&mut self) -> bool {
        let is_so = !self.is_over && !self.is_due && self.unused <= self.window / 2;
        self.is_due |= is_so;
        is_so
    }

    fn wasted(&mut self) {
        (self.misses, self.unused) = (0, self.unused.saturating_sub(1));
    }
}

impl Machine {
    fn reading(&mut self, dir: NodeId) -> Option<&mut Reading> {
        // Nothing that a journal has.
        self.nodes.quietly(dir)?.dir.as_mut().map(|dir| &mut dir.reading)
    }

    /// A file is about to be asked for from its beginning on; the kernel had been told of its data before, or not.
    pub(crate) fn read_missed(&mut self, fh: Fh, id: NodeId, was_told: bool, now: Now) {
        let node = self.nodes.get(&id).filter(|n| self.settings.caps && n.attrs.size <= SMALL_FILE_BYTES);
        let Some((dir, at)) = node.and_then(|n| n.told_in) else { return };
        let Some(caller) = self.opens.get(&fh).map(|open| open.caller.clone()) else { return };
        let is_going = self.ahead.used_at.is_some_and(|at| now.mono.ms_since(at) < AHEAD_PAUSE_MS);
        let after = if is_going { 1 } else { self.settings.ahead_after };
        let Some(reading) = self.reading(dir) else { return };
        reading.missed(at, was_told, now.mono);
        if reading.misses >= after && reading.is_to_go_on() {
            self.ahead.due.push_back((dir, caller));
        }
    }

    /// Whether it is being read already, and will soon be here. Of a call that takes long it is no more: one of its files may be
    /// slow to read, for which the others do not wait.
    pub(crate) fn is_about_to_come(&mut self, id: NodeId, now: Now) -> bool {
        let Some(file) = self.ahead.files.get(&id).filter(|file| file.kept.is_none()) else { return false };
        let (dir, until) = (file.dir, file.asked_at.after_ms(self.ahead.patience_ms()));
        if now.mono < until {
            let first = self.ahead.awaited.map_or(until, |first| first.min(until));
            self.ahead.awaited = Some(first);
            return true;
        }
        self.ahead.remove(id);
        if let Some(reading) = self.reading(dir) {
            reading.unused = reading.unused.saturating_sub(1);
        }
        false
    }

    /// A file is read from here.
    pub(crate) fn came_for(&mut self, fh: Fh, id: NodeId, now: Now) {
        if self.ahead.files.get(&id).is_none_or(|file| file.kept.is_none()) {
            return;
        }
        let Some(file) = self.ahead.remove(id) else { return };
        self.stats.ahead_used += 1;
        self.ahead.used_at = Some(now.mono);
        let Some(reading) = self.reading(file.dir) else { return };
        reading.used(now.mono);
        if reading.is_to_go_on()
            && let Some(open) = self.opens.get(&fh)
        {
            self.ahead.due.push_back((file.dir, open.caller.clone()));
        }
    }

    /// Files to be read now, if any: after all that others wait for, and not in the way of it.
    pub fn take_ahead(&mut self, now: Now) -> Option<AheadOut> {
        self.drop_unused(now);
        while self.ahead.calls < AHEAD_CALLS_MAX {
            let (dir, caller) = self.ahead.due.pop_front()?;
            if let Some(reading) = self.reading(dir) {
                reading.is_due = false;
            }
            let (ids, asked_at) = (self.next_files(dir, now), now.mono);
            if ids.is_empty() {
                continue;
            }
            self.ahead.calls += 1;
            let at = self.tick();
            if self.reading(dir).is_some_and(Reading::is_to_go_on) {
                self.ahead.due.push_back((dir, caller.clone()));
            }
            let file = |id: &NodeId| {
                let node = self.nodes.get(id)?;
                Some((node.handle.clone()?, u32::try_from(node.attrs.size).ok()?))
            };
            let files = ids.iter().filter_map(file).collect();
            return Some(AheadOut { caller, files, at, asked_at, ids });
        }
        None
    }

    /// The next files of a directory that are worth it, as many as may be.
    fn next_files(&mut self, id: NodeId, now: Now) -> Vec<NodeId> {
        let mut ids = Vec::new();
        let Some(dir) = self.nodes.get(&id).and_then(|n| n.dir.as_ref()) else { return ids };
        let mut reading = dir.reading;
        let is_off = self.has_lapsed || self.is_alone() || now.mono < self.ahead.not_before;
        let most = reading.window.saturating_sub(reading.unused).min(AHEAD_CALL_FILES_MAX);
        let io_bytes = self.settings.io_bytes as usize;
        let mut room =
            AHEAD_BYTES_MAX.saturating_sub(self.ahead.bytes).min(AHEAD_CALL_BYTES_MAX).min(io_bytes);
        if is_off || most == 0 {
            return ids;
        }
        // Once round.
        let ring = dir.entries(reading.next).chain(dir.entries(0)).take(dir.count());
        let mut looked = 0;
        for (cookie, _, file) in ring.take(AHEAD_SCAN_MAX) {
            let Some(bytes) =
                self.nodes.get(&file).and_then(|n| n.worth_reading(io_bytes, reading.has_forgotten))
            else {
                (looked, reading.next) = (looked + 1, cookie);
                continue;
            };
            if self.ahead.files.contains_key(&file) || self.clean(file).is_some() {
                (looked, reading.next) = (looked + 1, cookie);
                continue;
            }
            if ids.len() == most || bytes > room {
                break;
            }
            (looked, reading.next) = (looked + 1, cookie);
            room -= bytes;
            ids.push(file);
            self.ahead.bytes += bytes;
            self.ahead.files.insert(file, File { dir: id, bytes, asked_at: now.mono, kept: None });
        }
        reading.looked = if ids.is_empty() { reading.looked + looked } else { 0 };
        reading.is_over = reading.looked >= dir.count();
        reading.unused += ids.len();
        if let Some(here) = self.reading(id) {
            *here = reading;
        }
        ids
    }

    /// What was read of the files, in their order; what is not told of will be asked for. `None`: it is not worth it.
    pub fn ahead_done(&mut self, out: &AheadOut, told: Option<Vec<Option<Bytes>>>, now: Now) {
        self.progress += 1;
        self.ahead.calls -= 1;
        let told = told.unwrap_or_default();
        if told.iter().all(Option::is_none) {
            self.ahead.not_before = now.mono.after_ms(AHEAD_REFUSED_MS);
        } else {
            self.ahead.note_took(now.mono.ms_since(out.asked_at));
        }
        for (place, ((handle, _), id)) in out.files.iter().zip(&out.ids).enumerate() {
            // Somebody did not wait for it, and it may be on its way by another call.
            let is_this = |file: &File| file.kept.is_none() && file.asked_at == out.asked_at;
            if !self.ahead.files.get(id).is_some_and(is_this) {
                continue;
            }
            let Some(file) = self.ahead.remove(*id) else { continue };
            let data = told.get(place).and_then(Option::as_ref);
            if let Some(data) = data {
                self.stats.ahead_files += 1;
                self.stats.ahead_bytes += data.len() as u64;
                self.keep_read(handle, 0, data, (out.at, Origin::Brought));
            }
            let number = self.nodes.get(id).and_then(|n| n.data.clean);
            match number.filter(|_| data.is_some() && self.clean(*id).is_some()) {
                Some(number) => {
                    let kept = Some((now.mono, number));
                    self.ahead.put(*id, File { kept, ..file }, now.mono);
                }
                None => {
                    if let Some(reading) = self.reading(file.dir) {
                        reading.unused = reading.unused.saturating_sub(1);
                    }
                }
            }
        }
    }

    /// What nobody has come for is dropped, and it begins anew there; and who waits for what takes long looks again.
    fn drop_unused(&mut self, now: Now) {
        if self.ahead.awaited.is_some_and(|at| at <= now.mono) {
            self.ahead.awaited = None;
            self.progress += 1;
        }
        while let Some((since, id)) = self.ahead.order.front().copied() {
            let is_used = !self.ahead.is_kept(id, since);
            if !is_used && now.mono.ms_since(since) < AHEAD_KEPT_MS {
                return;
            }
            self.ahead.order.pop_front();
            let Some(file) = Some(id).filter(|_| !is_used).and_then(|id| self.ahead.remove(id)) else {
                continue;
            };
            self.stats.ahead_unused += 1;
            if let Some(reading) = self.reading(file.dir) {
                reading.wasted();
            }
            let number = file.kept.map(|(_, number)| number);
            if let Some(node) = self.nodes.get_mut(&id).filter(|n| n.data.clean == number) {
                node.data.clean = None;
                self.clean.forget(id);
            }
        }
    }

    /// When that is, at the earliest.
    pub(crate) fn ahead_due(&self) -> Option<Instant> {
        let unused = self.ahead.order.front().map(|(since, _)| since.after_ms(AHEAD_KEPT_MS));
        unused.into_iter().chain(self.ahead.awaited).min()
    }
}

impl Node {
    /// How much reading it ahead would bring, if it can be kept.
    fn worth_reading(&self, most: usize, has_forgotten: bool) -> Option<usize> {
        let bytes = usize::try_from(self.attrs.size).ok()?;
        let is_small = self.attrs.kind == Kind::File && bytes > 0 && bytes as u64 <= SMALL_FILE_BYTES;
        let is_covered = self.sure.contains(CapSet::FILE_S) && self.recall.is_none();
        let is_the_servers = self.handle.is_some()
            && self.dead.is_none()
            && self.changing == 0
            && self.pending == 0
            && self.data.extents.is_empty();
        // What the kernel has, or somebody is about to read, nobody needs.
        let is_news = (!self.told_data || has_forgotten || self.lookups == 0) && self.opens.is_empty();
        (is_small && bytes <= most && is_covered && is_the_servers && is_news).then_some(bytes)
    }
}

impl Ahead {
    /// A call has brought something after this time.
    fn note_took(&mut self, ms: u64) {
        let ms = ms.min(AHEAD_WAIT_MS_MAX);
        self.usual_ms = Some(self.usual_ms.map_or(ms, |usual| (usual * 7 + ms) / 8));
    }

    /// How long a call is waited for: some times as long as usual.
    fn patience_ms(&self) -> u64 {
        self.usual_ms
            .map_or(AHEAD_WAIT_MS_MAX, |usual| (usual * 4).clamp(AHEAD_WAIT_MS_MIN, AHEAD_WAIT_MS_MAX))
    }

    fn remove(&mut self, id: NodeId) -> Option<File> {
        let file = self.files.remove(&id)?;
        self.bytes -= file.bytes;
        Some(file)
    }

    fn put(&mut self, id: NodeId, file: File, now: Instant) {
        self.bytes += file.bytes;
        self.files.insert(id, file);
        self.order.push_back((now, id));
        if self.order.len() > 2 * self.files.len() + AHEAD_FILES_MAX {
            let files = &self.files;
            let is_here = |(since, id): &(Instant, NodeId)| {
                files.get(id).is_some_and(|file| file.since() == Some(*since))
            };
            self.order.retain(is_here);
        }
    }

    fn is_kept(&self, id: NodeId, since: Instant) -> bool {
        self.files.get(&id).is_some_and(|file| file.since() == Some(since))
    }

    /// Whether it counts right, for checks.
    pub(crate) fn is_sound(&self) -> bool {
        let bytes: usize = self.files.values().map(|file| file.bytes).sum();
        let is_listed = |(id, file): (&NodeId, &File)| {
            file.since().is_none_or(|since| self.order.contains(&(since, *id)))
        };
        bytes == self.bytes && self.files.iter().all(is_listed)
    }
}

impl File {
    fn since(&self) -> Option<Instant> {
        self.kept.map(|(since, _)| since)
    }
}
