//! Directories read.

use std::collections::BTreeMap;

use super::{DirEntry, OpenedDir};
use crate::ask::{Access, Generation, Question};
use crate::attrs::Attrs;
use crate::dir::{Source, Stream};
use crate::errno::Errno;
use crate::fresh::{Fresh, Row};
use crate::ids::{Fh, Name, NodeId, Now};
use crate::machine::Machine;
use crate::node::Open;
use crate::step::{Outcome, Step, Turn};
use holdfast_base::CapSet;

/// Entries looked at to find out whether a listing with attributes can be made here.
const SAMPLE: usize = 16;

/// Takes entries until one does not fit.
pub type Taker<'a> = &'a mut dyn FnMut(&DirEntry) -> bool;

impl Machine {
    /// Opens a directory. ENOTDIR.
    pub fn opendir(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<OpenedDir> {
        let outcome = self.foresee_absence(turn).and_then(|()| self.directory(id, now)).map(|()| {
            self.last_fh += 1;
            let fh = Fh(self.last_fh);
            let caller = turn.caller.clone();
            let (stream, keep_cache) = self.stream_of(id);
            let keeps = stream.kept.is_some();
            let stream = Some(Box::new(stream));
            let heard = self.nodes.get(&id).map(|n| n.losses.opened()).unwrap_or_default();
            let open = Open {
                node: id,
                access: Access::default(),
                append: false,
                token: None,
                covers: Access::default(),
                at_server: true,
                is_being_told: false,
                caller,
                stream,
                is_direct: false,
                executes: false,
                heard,
            };
            self.opens.insert(fh, open);
            if let Some(node) = self.nodes.get_mut(&id) {
                node.opens.push(fh);
            }
            OpenedDir { fh, keeps, keep_cache }
        });
        self.counted_here(turn, outcome)
    }

    /// How a directory is going to be read, and whether the kernel may have it already. It keeps what is read from here, all
    /// names being known, as the listing of that moment. It can be told to drop what it has, but not what a reader is about to
    /// add: as long as anybody has it open who began with another listing it keeps none, and the first after that drops all.
    fn stream_of(&mut self, id: NodeId) -> (Stream, bool) {
        if !self.settings.names || !self.is_listed_here(id, true) {
            return (Stream::default(), false);
        }
        let Some(node) = self.nodes.get(&id) else { return (Stream::default(), false) };
        let Some(dir) = &node.dir else { return (Stream::default(), false) };
        let (listing, last, is_aged) = (dir.listing, dir.last_cookie(), dir.is_aged());
        let kept = |fh: &Fh| self.opens.get(fh)?.stream.as_ref()?.kept;
        if node.opens.iter().filter_map(kept).any(|number| number != listing.number) {
            return (Stream::default(), false);
        }
        if !listing.is_kept
            && let Some(dir) = self.nodes.get_mut(&id).and_then(|n| n.dir.as_mut())
        {
            dir.listing.is_kept = true;
        }
        // The kernel may come for the first time in the middle of it, by a position of what it kept.
        let source = Source::Known(last);
        (Stream { source, verifier: 0, kept: Some(listing.number) }, listing.is_kept && !is_aged)
    }

    /// The end of reading a directory.
    pub fn releasedir(&mut self, fh: Fh) {
        let Some(open) = self.opens.remove(&fh) else { return };
        if let Some(node) = self.nodes.get_mut(&open.node) {
            node.opens.retain(|o| *o != fh);
        }
        self.trim();
    }

    #[expect(clippy::too_many_arguments, reason = "what FUSE's READDIR has")]
    /// Gives the entries behind `offset` (0: from the beginning), without `.` and `..`, until `take` returns false. With
    /// `plus` each entry that was taken and has `entry` set counts as one lookup.
    pub fn readdir(
        &mut self,
        turn: &mut Turn,
        fh: Fh,
        offset: u64,
        plus: bool,
        take: Taker<'_>,
        now: Now,
    ) -> Step<()> {
        let done = self.try_readdir(turn, fh, (offset, plus), take, now);
        if offset > 0 {
            return self.counted_here(turn, done);
        }
        if done.is_ok() {
            self.stats.listings.count(turn.counted.has_asked);
        }
        self.counted(turn, done)
    }

    fn try_readdir(
        &mut self,
        turn: &mut Turn,
        fh: Fh,
        (offset, plus): (u64, bool),
        take: Taker<'_>,
        now: Now,
    ) -> Outcome<()> {
        let id = self.opens.get(&fh).filter(|o| o.stream.is_some()).ok_or(Errno::EBADF)?.node;
        self.directory(id, now)?;
        if let Some(Fresh::Listed(rows, eof, verifier)) = turn.take()? {
            if let Some(stream) = self.opens.get_mut(&fh).and_then(|o| o.stream.as_mut()) {
                stream.verifier = verifier;
            }
            // By it all names may be known here, as they are by now: it lacks those that were given here since it was asked for.
            let known = if offset == 0 { self.choose_source(id, plus) } else { Source::None };
            let is_known = known.last_known().is_some();
            self.set_source(
                fh,
                if is_known { known } else { Source::Server { after: offset, rows, eof, at: turn.asked_at } },
            );
        } else if offset == 0 {
            let source = self.choose_source(id, plus);
            if source.last_known().is_none() {
                self.not_kept(id, fh);
            }
            self.set_source(fh, source);
            self.listed_from_beginning(id, plus);
        }
        let stream = self.opens.get(&fh).and_then(|o| o.stream.as_ref()).ok_or(Errno::EBADF)?;
        match &stream.source {
            Source::Known(last) => {
                let dir = self.node(id)?.dir.as_ref().ok_or(Errno::ENOTDIR)?;
                let rest = dir.entries(offset).take_while(|(cookie, ..)| cookie <= last);
                let rest: Vec<_> = rest.take(ENTRIES_AT_ONCE).map(owned).collect();
                self.give(id, rest, plus, take);
                Ok(())
            }
            Source::Copy(copy) => {
                let rest = after(copy, offset);
                self.give(id, rest, plus, take);
                Ok(())
            }
            Source::None | Source::Server { .. } => {
                self.read_at_server(turn, (id, fh), (offset, plus), take, now)
            }
        }
    }

    /// The kernel is told of a directory's entries, `plus` their attributes; and does not know any more when the directory was
    /// last read.
    fn listed_from_beginning(&mut self, id: NodeId, plus: bool) {
        if let Some(dir) = self.nodes.quietly(id).and_then(|n| n.dir.as_mut()).filter(|_| plus) {
            dir.listing.aged = 0;
        }
        self.accessed(id);
    }

    /// The kernel does not know any more when this was last read.
    pub(crate) fn accessed(&mut self, id: NodeId) {
        let dir = self.nodes.get(&id).and_then(|n| n.told_in).map(|(dir, _)| dir);
        if let Some(dir) = dir.and_then(|dir| self.nodes.quietly(dir)).and_then(|n| n.dir.as_mut()) {
            dir.listing.aged = dir.listing.aged.saturating_add(1);
        }
    }

    fn set_source(&mut self, fh: Fh, source: Source) {
        if let Some(stream) = self.opens.get_mut(&fh).and_then(|o| o.stream.as_mut()) {
            stream.source = source;
        }
    }

    /// Where the directory is read from.
    fn choose_source(&mut self, id: NodeId, plus: bool) -> Source {
        let is_here = self.is_listed_here(id, plus);
        match self.nodes.get(&id).and_then(|n| n.dir.as_ref()).filter(|_| is_here) {
            Some(dir) => Source::Known(dir.last_cookie()),
            None => Source::None,
        }
    }

    /// Whether it can be read from here: all names are known, none is in doubt as a change of it is being asked for, and with `plus`
    /// the attributes of most are known.
    fn is_listed_here(&self, id: NodeId, plus: bool) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        let dir = node.dir.as_ref().filter(|d| d.is_settled() && node.held.contains(CapSet::FILE_S));
        let Some(dir) = dir else { return false };
        let is_sure = |id: NodeId| self.nodes.get(&id).is_some_and(|n| n.is_sure());
        let (mut looked, mut sure) = (0, 0);
        for (.., id) in dir.entries(0).take(SAMPLE) {
            looked += 1;
            sure += usize::from(is_sure(id));
        }
        !plus || !self.settings.caps || sure * 2 >= looked
    }

    /// What is read through this from the beginning on is the server's listing: the kernel may add it to what it keeps, where
    /// its positions would mean something else.
    fn not_kept(&mut self, id: NodeId, fh: Fh) {
        if self.opens.get(&fh).and_then(|o| o.stream.as_ref()).is_none_or(|s| s.kept.is_none()) {
            return;
        }
        if let Some(dir) = self.nodes.get_mut(&id).and_then(|n| n.dir.as_mut()) {
            dir.list_anew();
        }
        self.forget_listing(id);
    }

    /// Gives entries that are known here.
    fn give(&mut self, dir: NodeId, rest: Vec<(u64, Name, NodeId)>, plus: bool, take: Taker<'_>) {
        for (offset, name, id) in rest {
            let Some(node) = self.nodes.get(&id) else { continue };
            let (kind, fileid, sure, attrs) =
                (node.attrs.kind, node.attrs.fileid, node.is_sure(), node.attrs);
            let row = (plus && sure).then_some((id, attrs));
            if !self.give_one(dir, &name, (offset, Some(kind), fileid), row, take) {
                return;
            }
        }
    }

    fn give_one(
        &mut self,
        dir: NodeId,
        name: &Name,
        (offset, kind, fileid): (u64, Option<crate::attrs::Kind>, u64),
        row: Option<(NodeId, Attrs)>,
        take: Taker<'_>,
    ) -> bool {
        let entry = row.map(|(id, attrs)| self.entry(dir, name.as_bytes(), id, attrs));
        let taken = take(&DirEntry { name: name.clone(), offset, kind, fileid, entry });
        let untaken = entry.filter(|_| !taken).and_then(|e| self.nodes.get_mut(&e.node));
        if let Some(node) = untaken {
            node.lookups -= 1;
        }
        taken
    }

    /// Gives entries from the server's part that is here; or asks for the next.
    fn read_at_server(
        &mut self,
        turn: &mut Turn,
        (id, fh): (NodeId, Fh),
        (offset, plus): (u64, bool),
        take: Taker<'_>,
        now: Now,
    ) -> Outcome<()> {
        let stream = self.opens.get(&fh).and_then(|o| o.stream.as_ref()).ok_or(Errno::EBADF)?;
        if let Source::Server { after, rows, eof, at } = &stream.source {
            let begin = if *after == offset {
                Some(0)
            } else {
                rows.iter().position(|r| r.cookie == offset).map(|i| i + 1)
            };
            if let Some(begin) = begin.filter(|b| *b < rows.len() || *eof) {
                let (rest, at): (Vec<Row>, _) = (rows[begin..].to_vec(), *at);
                for row in rest {
                    let (kind, fileid) = row.brief;
                    let with = row.node.filter(|_| plus).and_then(|id| self.listed_as(id, row.attrs, at));
                    if !self.give_one(id, &row.name, (row.cookie, kind, fileid), with, take) {
                        break;
                    }
                }
                return Ok(());
            }
        }
        // Names changed here before this operation began have to be seen.
        self.data_free(turn, id)?;
        let dir = self.handle(turn, id)?;
        let verifier = if offset == 0 { 0 } else { stream_verifier(self, fh) };
        let bytes_max = self.settings.io_bytes.min(1 << 18);
        let (want, want_dir) = self.listing_wishes(id, now);
        self.ask(turn, Question::List { dir, cookie: offset, verifier, bytes_max, want, want_dir })
    }

    /// An object as it may be told with its name: as it is known here, or as the server said then, if it did and nothing of ours has
    /// been done to it since, or is still to be. The kernel goes by a size though it was told not to rely on it, and drops what it
    /// has behind that, which may be mapped. Else it is told the name alone, and asks for the rest if anybody wants it.
    fn listed_as(&self, id: NodeId, told: Option<Attrs>, at: Generation) -> Option<(NodeId, Attrs)> {
        let node = self.nodes.get(&id)?;
        let is_undisturbed = node.disturbed <= at && node.data.moved <= at && node.changing == 0;
        let is_as_told = is_undisturbed && node.pending == 0 && node.data.extents.weights().unsent == 0;
        let attrs = if node.is_sure() { Some(node.attrs) } else { told.filter(|_| is_as_told) };
        Some((id, attrs?))
    }

    /// Waits until mutations of a directory queued before were executed.
    fn data_free(&mut self, turn: &mut Turn, id: NodeId) -> Outcome<()> {
        let last = self.node(id)?.last_serial;
        let through = *turn.through.get_or_insert(last);
        self.executed(through)
    }
}

/// Entries copied for one call: more than fit into any buffer of the kernel.
const ENTRIES_AT_ONCE: usize = 4096;

fn owned((cookie, name, id): (u64, &Name, NodeId)) -> (u64, Name, NodeId) {
    (cookie, name.clone(), id)
}

fn after(copy: &BTreeMap<u64, (Name, NodeId)>, offset: u64) -> Vec<(u64, Name, NodeId)> {
    let rest = copy.range(offset.saturating_add(1)..).take(ENTRIES_AT_ONCE);
    rest.map(|(cookie, (name, id))| (*cookie, name.clone(), *id)).collect()
}

fn stream_verifier(machine: &Machine, fh: Fh) -> u64 {
    machine.opens.get(&fh).and_then(|o| o.stream.as_ref()).map_or(0, |s| s.verifier)
}
