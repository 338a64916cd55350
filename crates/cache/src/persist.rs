//! The machine's durable parts as records: what has changed since the last time comes out as a delta, and all records
//! together make a machine again. Each delta is one moment, so that whoever applies deltas whole and in order has, after
//! any crash, what applications did up to some moment. How it is used stands in `docs/design/offline.md`.

pub(crate) mod code;
mod merge;
mod nodes;
mod pledge;
mod restore;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::acting::Acting;
use crate::errno::Errno;
use crate::extent::stored::Kept;
use crate::ids::{Name, NodeId};
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::{Kept as BatchKept, Load, Op, Queued, Stage, Thing};
use code::{Put, VERSION};

pub(crate) use merge::{Base, Before, Found, Left, path_of};
pub use merge::{Doubt, FoundBlock, Within, resolved};
pub(crate) use nodes::Nodes;
pub use restore::RestoreError;

/// One change to the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record under this key is now this.
    Put(Vec<u8>, Bytes),
    /// There is none under this key.
    Remove(Vec<u8>),
    /// There is none under any key that begins so.
    RemoveAll(Vec<u8>),
}

/// The families of keys: the first byte.
pub(crate) mod family {
    pub(super) const HEAD: u8 = b'H';
    pub(super) const NODE: u8 = b'N';
    pub(super) const NAME: u8 = b'D';
    pub(super) const UNSENT: u8 = b'Q';
    pub(super) const KEPT: u8 = b'T';
    pub(super) const EXECUTED: u8 = b'E';
    pub(super) const DATA: u8 = b'B';
    pub(super) const CONFLICT: u8 = b'C';
    pub(crate) const BLOCK: u8 = b'S';
}

pub(crate) fn key(family: u8, number: u64) -> Vec<u8> {
    let mut key = vec![family];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn name_key(dir: NodeId, name: &[u8]) -> Vec<u8> {
    let mut key = key(family::NAME, dir.0);
    key.extend_from_slice(name);
    key
}

/// Data that the records have, by where it lies in memory: held here, it stays there, and so is told from any other.
#[derive(Debug)]
struct Stored {
    number: u64,
    #[expect(dead_code, reason = "held so that nothing else comes to lie there")]
    bytes: Bytes,
    uses: u32,
}

/// Bytes of extended attributes that are kept of one object, with their names.
const XATTRS_KEPT_BYTES: usize = 4096;

/// In one byte of a node's record: nothing was ever set; there may be an access list; it hands on none.
const HAS_NO_XATTRS: u8 = 1;
const IS_LISTED: u8 = 2;
const HANDS_ON_NONE: u8 = 4;

/// Where bytes lie in memory, and how many.
type Place = (usize, usize);

/// Stored data that may contain some more: what begins before it, but not far before.
const NEIGHBOURS: usize = 4;

/// A part of stored data.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Where the stored data begins in memory.
    place: Place,
    number: u64,
    from: u64,
}

/// An object that was changed on both sides while the server was away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where it is, from the mount's root, as far as that is known.
    pub path: Vec<u8>,
    /// The name beside it under which ours was kept.
    pub kept_as: Option<Name>,
    /// What happened, in words.
    pub what: String,
}

/// What the records have.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// By node: what its record says, in short, and the data it names.
    nodes: FxHashMap<NodeId, (u64, Vec<Place>)>,
    /// By transaction: whether it is known to be executed, and the data it names.
    kept: BTreeMap<u64, (bool, Vec<Place>)>,
    /// Serials that are there of what is not sent: from, and up to but without.
    unsent: (u64, u64),
    data: BTreeMap<Place, Stored>,
    last_data: u64,
    head: u64,
    conflicts: u64,
    /// When the server was last compared with.
    merged_at: Option<holdfast_base::Timestamp>,
    late: Option<merge::Late>,
    /// Of files that may have to be set apart: what lies below what was written here.
    below: FxHashMap<NodeId, merge::Below>,
    /// Transactions the records of which are not as they are.
    rewritten: Vec<u64>,
    pledge: Option<pledge::Pledge>,
}

impl Machine {
    /// From now on [`take_changes`](Self::take_changes) tells what is to be kept; at first, everything.
    pub fn follow(&mut self) {
        self.journal = Some(Box::default());
        self.nodes.follow();
        self.stream.is_followed = true;
        for id in self.ids() {
            if let Some(dir) = self.nodes.quietly(id).and_then(|n| n.dir.as_mut()) {
                dir.changed = None;
            }
        }
        if let Some(disk) = &mut self.disk {
            disk.follow();
        }
    }

    /// Nothing is kept any more: [`take_changes`](Self::take_changes) tells nothing, and nothing is noted for it. What depends on
    /// others' changes being compared goes on.
    pub fn unfollow(&mut self) {
        self.nodes.unfollow();
        self.stream.is_followed = false;
        self.stream.touched = Vec::new();
        for id in self.ids() {
            if let Some(dir) = self.nodes.quietly(id).and_then(|n| n.dir.as_mut()) {
                dir.changed = None;
            }
        }
        if let Some(journal) = &mut self.journal {
            (journal.nodes, journal.kept, journal.data) = Default::default();
            journal.rewritten = Vec::new();
        }
    }

    /// The records of these transactions are not as they are any more.
    pub(crate) fn are_rewritten(&mut self, txns: Vec<u64>) {
        if let Some(journal) = self.journal.as_mut().filter(|_| self.stream.is_followed) {
            journal.rewritten.extend(txns);
        }
    }

    /// What has changed in the records since this was called last: one moment of the machine. Nothing where
    /// [`follow`](Self::follow) was not called.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.pledge_what_takes_its_place();
        let Some(mut journal) = self.journal.take_if(|_| self.stream.is_followed) else { return Vec::new() };
        let mut out = Vec::new();
        for id in self.nodes.take_marked() {
            self.put_node(&mut journal, id, &mut out);
        }
        self.put_unsent(&mut journal, &mut out);
        self.put_kept(&mut journal, &mut out);
        self.put_conflicts(&mut journal, &mut out);
        self.put_head(&mut journal, &mut out);
        if let Some(disk) = &mut self.disk {
            disk.put_records(&mut out);
        }
        self.journal = Some(journal);
        out
    }

    /// All deltas that were taken count after a crash.
    pub fn changes_count(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.deltas_count();
        }
    }

    fn put_head(&self, journal: &mut Journal, out: &mut Vec<Change>) {
        let mut put = Put::default();
        put.u8(VERSION);
        put.u64(self.last_node);
        put.u64(self.last_shown);
        put.u64(self.stream.last_serial());
        put.u64(self.stream.last_txn);
        put.u64(self.stream.stable_txn);
        let acts: Vec<_> = self.acts.all().collect();
        put.count(acts.len());
        for (caller, acting) in acts {
            put.caller(caller);
            put.flag(*acting != Acting::Unknown);
            put.option(if let Acting::As(other) = acting { Some(other) } else { None }, Put::caller);
        }
        let hash = hash(&put.0);
        if std::mem::replace(&mut journal.head, hash) != hash {
            out.push(Change::Put(vec![family::HEAD], put.0.into()));
        }
    }

    fn put_node(&mut self, journal: &mut Journal, id: NodeId, out: &mut Vec<Change>) {
        let version = self.nodes.get(&id).map(|node| node.data.kept.version);
        let has_blocks = self.disk.as_mut().is_some_and(|disk| disk.sweep(id, version));
        let Some(node) = self.nodes.quietly(id) else {
            if let Some((_, data)) = journal.nodes.remove(&id) {
                out.push(Change::Remove(key(family::NODE, id.0)));
                out.push(Change::RemoveAll(key(family::NAME, id.0)));
                journal.let_go(&data, out);
            }
            return;
        };
        let data = node.data.extents.stored();
        let mut store = |bytes: &Bytes| journal.store(bytes, out);
        let parts: Vec<_> =
            data.into_iter().map(|(at, bytes, kept)| (at, bytes.len(), kept, store(&bytes))).collect();
        put_names(node, out);
        let clean = self.clean(id).cloned();
        let clean = clean.map(|bytes| (bytes.len(), journal.store(&bytes, out)));
        let Some(node) = self.nodes.get(&id) else { return };
        let mut record = node_record(node, &parts, clean);
        if has_blocks {
            record.flag(true);
            record.u32(node.data.kept.version);
            record.option(node.data.kept.doubted, Put::u64);
        }
        let record = record.0;
        let hash = hash(&record);
        let parts = parts.iter().map(|(.., part)| part).chain(clean.iter().map(|(_, part)| part));
        let places: Vec<Place> = parts.map(|part| part.place).collect();
        let before = journal.nodes.insert(id, (hash, places));
        if before.as_ref().is_none_or(|(before, _)| *before != hash) {
            out.push(Change::Put(key(family::NODE, id.0), record.into()));
        }
        if let Some((_, places)) = before {
            journal.let_go(&places, out);
        }
    }

    fn put_unsent(&mut self, journal: &mut Journal, out: &mut Vec<Change>) {
        let first = self.stream.unsent.front().map_or(self.stream.last_serial() + 1, |q| q.serial);
        let (from, to) = journal.unsent;
        (from..to.min(first)).for_each(|serial| out.push(Change::Remove(key(family::UNSENT, serial))));
        let mut touched: Vec<u64> = std::mem::take(&mut self.stream.touched);
        touched.sort_unstable();
        touched.dedup();
        touched.retain(|serial| *serial < to);
        let last = self.stream.last_serial();
        touched.extend(first.max(to)..=last);
        for serial in touched {
            let Some(queued) = self.stream.unsent.get(serial.wrapping_sub(first) as usize) else { continue };
            let mut put = Put::default();
            put_queued(&mut put, queued, &[]);
            out.push(Change::Put(key(family::UNSENT, serial), put.0.into()));
        }
        journal.unsent = (first, last + 1);
    }

    fn put_kept(&mut self, journal: &mut Journal, out: &mut Vec<Change>) {
        let first = self.stream.kept.front().map_or(u64::MAX, |k| k.txn);
        while let Some(entry) = journal.kept.first_entry().filter(|e| *e.key() < first) {
            let (txn, (_, data)) = entry.remove_entry();
            out.push(Change::Remove(key(family::KEPT, txn)));
            out.push(Change::Remove(key(family::EXECUTED, txn)));
            journal.let_go(&data, out);
        }
        for kept in &self.stream.kept {
            let is_executed = kept.stage == Stage::Executed;
            let former =
                journal.rewritten.contains(&kept.txn).then(|| journal.kept.remove(&kept.txn)).flatten();
            if let Some((known, _)) = journal.kept.get_mut(&kept.txn) {
                if std::mem::replace(known, is_executed) != is_executed {
                    out.push(match is_executed {
                        true => Change::Put(key(family::EXECUTED, kept.txn), executed_record(kept)),
                        false => Change::Remove(key(family::EXECUTED, kept.txn)),
                    });
                }
                continue;
            }
            let mut put = Put::default();
            put.caller(&kept.caller);
            put.option(kept.names_since, Put::u64);
            put.count(kept.was.len());
            for (id, target) in &kept.was {
                put.node(*id);
                put.target(target);
            }
            put.count(kept.ops.len());
            let mut places = Vec::new();
            for queued in &kept.ops {
                let parts: Vec<Part> = load_of(&queued.op)
                    .map(|load| load.data.iter().map(|(_, bytes)| journal.store(bytes, out)).collect())
                    .unwrap_or_default();
                places.extend(parts.iter().map(|part| part.place));
                put_queued(&mut put, queued, &parts);
            }
            out.push(Change::Put(key(family::KEPT, kept.txn), put.0.into()));
            if is_executed {
                out.push(Change::Put(key(family::EXECUTED, kept.txn), executed_record(kept)));
            } else if former.as_ref().is_some_and(|(was_executed, _)| *was_executed) {
                out.push(Change::Remove(key(family::EXECUTED, kept.txn)));
            }
            journal.kept.insert(kept.txn, (is_executed, places));
            if let Some((_, places)) = former {
                journal.let_go(&places, out);
            }
        }
        journal.rewritten.clear();
    }

    fn put_conflicts(&self, journal: &mut Journal, out: &mut Vec<Change>) {
        for (number, conflict) in (0..).zip(&self.conflicts).skip(journal.conflicts as usize) {
            let mut put = Put::default();
            put.bytes(&conflict.path);
            put.option(conflict.kept_as.as_ref(), |put, name| put.bytes(name.as_bytes()));
            put.bytes(conflict.what.as_bytes());
            out.push(Change::Put(key(family::CONFLICT, number), put.0.into()));
        }
        journal.conflicts = self.conflicts.len() as u64;
    }
}

impl Journal {
    /// The record of these bytes, which is made where there is none. It is named once more.
    fn store(&mut self, bytes: &Bytes, out: &mut Vec<Change>) -> Part {
        let (start, len) = (bytes.as_ptr() as usize, bytes.len());
        let near = self.data.range_mut(..=(start, usize::MAX)).rev().take(NEIGHBOURS);
        let whole = near.into_iter().find(|((at, of), _)| start + len <= at + of);
        if let Some((place, stored)) = whole {
            stored.uses += 1;
            return Part { place: *place, number: stored.number, from: (start - place.0) as u64 };
        }
        self.last_data += 1;
        let number = self.last_data;
        out.push(Change::Put(key(family::DATA, number), bytes.clone()));
        self.data.insert((start, len), Stored { number, bytes: bytes.clone(), uses: 1 });
        Part { place: (start, len), number, from: 0 }
    }

    /// Data is named once less.
    fn let_go(&mut self, places: &[Place], out: &mut Vec<Change>) {
        for place in places {
            let Some(stored) = self.data.get_mut(place) else { continue };
            stored.uses -= 1;
            if stored.uses == 0
                && let Some(stored) = self.data.remove(place)
            {
                out.push(Change::Remove(key(family::DATA, stored.number)));
            }
        }
    }
}

/// Names of a directory that are not what the records say.
fn put_names(node: &mut Node, out: &mut Vec<Change>) {
    let id = node.id;
    let Some(dir) = node.dir.as_mut() else { return };
    let Some(changed) = dir.changed.replace(Default::default()) else {
        let all = dir.entries(0).map(|(_, name, child)| (name_key(id, name.as_bytes()), child));
        out.extend(all.map(|(key, child)| Change::Put(key, number(child.0))));
        return;
    };
    for name in changed {
        let key = name_key(id, name.as_bytes());
        // That a name is absent is known from its not being there, where the directory is known as a whole.
        out.push(match dir.slot(name.as_bytes()).and_then(|slot| slot.node) {
            Some(child) => Change::Put(key, number(child.0)),
            None => Change::Remove(key),
        });
    }
}

fn number(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_be_bytes())
}

fn hash(record: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish()
}

fn node_record(node: &Node, parts: &[(u64, usize, Kept, Part)], clean: Option<(usize, Part)>) -> Put {
    let mut put = Put::default();
    put.option(node.handle.as_ref(), |put, handle| put.bytes(handle.as_bytes()));
    put.option(node.made, |put, (txn, op)| {
        put.u64(txn);
        put.u32(op);
    });
    put.attrs(&node.attrs);
    put.flag(node.is_theirs);
    put.option(node.told_mtime, Put::time);
    put.option(node.base.as_deref(), Put::base);
    put.u32(node.sure.0);
    put.u32(node.held.0);
    [node.plain, node.group_of_directory].into_iter().for_each(|is| put.flag(is));
    let lists =
        [(node.no_xattrs, HAS_NO_XATTRS), (node.listed, IS_LISTED), (node.hands_on_none, HANDS_ON_NONE)];
    put.u8(lists.iter().map(|(is, bit)| if *is { *bit } else { 0 }).sum());
    put_xattrs(&mut put, node);
    put.option(node.text.as_ref(), |put, text| put.bytes(text));
    [node.losses.unheard(), node.dead]
        .into_iter()
        .for_each(|e| put.option(e, |put, e| put.u32(e.0.cast_unsigned())));
    put.flag(node.dir.as_ref().is_some_and(|dir| dir.complete));
    put.option(node.place.as_ref(), |put, (dir, name)| {
        put.node(*dir);
        put.bytes(name.as_bytes());
    });
    let data = &node.data;
    put.u64(data.barrier);
    put.option(data.carrier, Put::u64);
    put.option(data.writer.as_ref(), Put::caller);
    put.flag(data.mtime_owed);
    put.flag(data.clocked_since.is_some());
    put.count(data.truncations.len());
    for (from, serial) in &data.truncations {
        put.u64(*from);
        put.u64(*serial);
    }
    put.count(parts.len());
    for (offset, len, kept, part) in parts {
        put.u64(*offset);
        put_part(&mut put, *len, *part);
        let (tag, with) = match kept {
            Kept::Dirty => (0, 0),
            Kept::Stream(serial) => (1, *serial),
            Kept::Unstable(verifier) => (2, *verifier),
        };
        put.u8(tag);
        put.u64(with);
    }
    put.option(clean, |put, (len, part)| put_part(put, len, part));
    put
}

/// Extended attributes that are known; all of one object together are as small as makes no difference to its record.
fn put_xattrs(put: &mut Put, node: &Node) {
    let value = |value: &Result<Bytes, Errno>| value.as_ref().map_or(0, |v| v.len());
    let mut room = XATTRS_KEPT_BYTES;
    let mut kept: Vec<_> = node.xattrs.iter().collect();
    // In the same order each time: a record that is as it was is not written.
    kept.sort_unstable_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
    kept.retain(|(name, of)| {
        let needs = name.as_bytes().len() + value(of);
        let fits = needs <= room;
        room -= if fits { needs } else { 0 };
        fits
    });
    put.count(kept.len());
    for (name, value) in kept {
        put.bytes(name.as_bytes());
        put.option(value.as_ref().ok(), |put, value| put.bytes(value));
    }
}

fn put_part(put: &mut Put, len: usize, part: Part) {
    put.u64(part.number);
    put.u64(part.from);
    put.count(len);
}

fn load_of(op: &Op) -> Option<&Load> {
    match op {
        Op::Make { load, .. } | Op::Write { load, .. } => Some(load),
        _ => None,
    }
}

fn put_load(put: &mut Put, load: &Load, parts: &[Part]) {
    put.option(load.size, Put::u64);
    put.count(parts.len());
    for ((offset, bytes), part) in load.data.iter().zip(parts) {
        put.u64(*offset);
        put_part(put, bytes.len(), *part);
    }
}

fn put_queued(put: &mut Put, queued: &Queued, parts: &[Part]) {
    put.u64(queued.serial);
    put.caller(&queued.caller);
    match &queued.op {
        Op::Void => put.u8(0),
        Op::Make { dir, name, node, thing, attrs, load, want, joins } => {
            put.u8(1);
            put.node(*dir);
            put.bytes(name.as_bytes());
            put.node(*node);
            put_thing(put, thing);
            put.new_attrs(attrs);
            put.u32(want.0);
            put.flag(*joins);
            put_load(put, load, parts);
        }
        Op::Link { node, dir, name } => put_named(put, 2, (*dir, name.as_bytes()), *node),
        Op::SetAttr { node, changes } => {
            put.u8(3);
            put.node(*node);
            put.changes(changes);
        }
        Op::Write { node, load, mtime } => {
            put.u8(4);
            put.node(*node);
            put.time(*mtime);
            put_load(put, load, parts);
        }
        Op::Rename { from, to, node, mode, after: _, over } => {
            put_named(put, 5, (from.0, from.1.as_bytes()), *node);
            put.node(to.0);
            put.bytes(to.1.as_bytes());
            put.mode(*mode);
            put.option(*over, Put::node);
        }
        Op::Unlink { dir, name, node } => put_named(put, 6, (*dir, name.as_bytes()), *node),
        Op::Rmdir { dir, name, node } => put_named(put, 7, (*dir, name.as_bytes()), *node),
    }
}

/// What came of a batch: what it has made, and what its objects were before. (Of former versions it is empty.) And what times the
/// server has given them, which others have not told.
fn executed_record(kept: &BatchKept) -> Bytes {
    let mut put = Put::default();
    put.count(kept.born.len());
    for (op, handle) in &kept.born {
        put.u32(*op);
        put.bytes(handle.as_bytes());
    }
    put.count(kept.before.len());
    for (id, before) in &kept.before {
        put.node(*id);
        put.option(before.base.as_ref(), Put::base);
        put.option(before.told_mtime, Put::time);
        put.flag(before.is_clocked);
    }
    put.count(kept.left.len());
    for (id, left) in &kept.left {
        put.node(*id);
        [left.mtime, left.since, left.until].into_iter().for_each(|at| put.time(at));
    }
    put.0.into()
}

fn put_named(put: &mut Put, tag: u8, (dir, name): (NodeId, &[u8]), node: NodeId) {
    put.u8(tag);
    put.node(dir);
    put.bytes(name);
    put.node(node);
}

fn put_thing(put: &mut Put, thing: &Thing) {
    match thing {
        Thing::File => put.u8(0),
        Thing::Dir => put.u8(1),
        Thing::Symlink(text) => {
            put.u8(2);
            put.bytes(text);
        }
        Thing::Node(kind, device) => {
            put.u8(3);
            put.kind(*kind);
            put.device(*device);
        }
    }
}
