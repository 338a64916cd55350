//! From records to a machine.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::code::{Get, VERSION, VERSION_BY_OPERATION, VERSION_OLDEST};
use super::{Before, Conflict, HANDS_ON_NONE, HAS_NO_XATTRS, IS_LISTED, Left, family, key};
use crate::acting::{Acting, Acts};
use crate::ask::{Generation, Object};
use crate::clean::Origin;
use crate::disk::Validity;
use crate::errno::Errno;
use crate::extent::stored::Kept as Stored;
use crate::ids::{Caller, Handle, NodeId, Now};
use crate::machine::{FIRST_SHOWN, Machine, Settings};
use crate::mutation::{Target, Until};
use crate::node::Node;
use crate::queue::names::Numbers;
use crate::queue::{Kept, Load, Op, Queued, Stage, Thing};
use holdfast_base::CapSet;

/// Why records make no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// There are none: nothing was kept.
    #[error("nothing was kept")]
    Empty,
    /// They were written by another version of this program.
    #[error("it was kept by another version")]
    Version,
    /// They are not whole.
    #[error("a record is damaged ({0})")]
    Damaged(&'static str),
}

type Records = BTreeMap<Vec<u8>, Bytes>;

/// What a record says of one extent.
struct Extent {
    offset: u64,
    data: Bytes,
    kept: Stored,
}

/// A record's number.
fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

fn of_family(records: &Records, family: u8) -> impl Iterator<Item = (&Vec<u8>, &Bytes)> {
    records.range(vec![family]..vec![family + 1])
}

impl Machine {
    /// A machine as it was when the records were brought up to date last: nobody has anything open, the kernel knows
    /// nothing, and what was on its way will be sent again as it was. What was held counts as held until the server has
    /// been asked: then [`reclaimed`](Self::reclaimed) is to be called.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn restore(records: &Records, settings: Settings, now: Now) -> Result<Self, RestoreError> {
        let head = records.get([family::HEAD].as_slice()).ok_or(RestoreError::Empty)?;
        let damaged = RestoreError::Damaged;
        let root = records.get(&key(family::NODE, NodeId::ROOT.0)).ok_or(damaged("root"))?;
        let mut get = Get(head);
        let known = get.u8().filter(|version| (VERSION_OLDEST..=VERSION).contains(version));
        let version = known.ok_or(RestoreError::Version)?;
        let (node, ..) = get_node(records, NodeId::ROOT, root, now).ok_or(damaged("root"))?;
        let handle = node.handle.clone().ok_or(damaged("root"))?;
        let mut machine = Self::new(&Object { handle, attrs: node.attrs, grant: None }, settings);
        let mut numbers = || get.u64().ok_or(damaged("head"));
        let (last_node, last_shown, last_serial) = (numbers()?, numbers()?, numbers()?);
        let (last_txn, stable_txn) = (numbers()?, numbers()?);
        (machine.last_node, machine.last_shown) = (last_node, last_shown);
        machine.stream.last_txn = last_txn;
        machine.stream.stable_txn = stable_txn;
        machine.stream.set_last_serial(last_serial);
        let acting = |get: &mut Get<'_>| {
            let (caller, is_known, other) = (get.caller()?, get.flag()?, get.option(Get::caller)?);
            let acting = other.map_or(if is_known { Acting::AsItself } else { Acting::Unknown }, Acting::As);
            Some((caller, acting))
        };
        let acts = get.list(acting).ok_or(damaged("head"))?;
        machine.acts = Acts::restored(acts.into_iter().collect());
        machine.restore_stream(records, now).ok_or(damaged("mutation"))?;
        machine.restore_nodes(records, now).ok_or(damaged("object"))?;
        machine.restore_names(records).ok_or(damaged("name"))?;
        if version < VERSION_BY_OPERATION {
            machine.name_by_operation();
        }
        machine.count_pending();
        machine.restore_blocks(records);
        for id in machine.ids() {
            // Nobody has them open any more.
            if machine.nodes.get(&id).is_some_and(|n| n.has_surely_no_name()) {
                machine.drop_data(id);
                for (serial, op) in machine.ops_about(id) {
                    if matches!(op, Op::Write { .. } | Op::SetAttr { .. }) {
                        machine.elide(serial);
                    }
                }
            }
        }
        for (_, value) in of_family(records, family::CONFLICT) {
            machine.conflicts.push(get_conflict(value).ok_or(damaged("conflict"))?);
        }
        Ok(machine)
    }

    fn restore_stream(&mut self, records: &Records, now: Now) -> Option<()> {
        for (key, value) in of_family(records, family::UNSENT) {
            let queued = get_queued(records, &mut Get(value), now)?;
            (number_of(key)? == queued.serial).then_some(())?;
            self.stream.unsent.push_back(queued);
        }
        for (at, value) in of_family(records, family::KEPT) {
            let txn = number_of(at)?;
            let mut get = Get(value);
            let (caller, names_since) = (get.caller()?, get.option(Get::u64)?);
            let was = get.list(|get| Some((get.node()?, get.target()?)))?.into_iter().collect();
            let ops = get.list(|get| get_queued(records, get, now))?;
            let executed = records.get(&key(family::EXECUTED, txn));
            let stage = if executed.is_some() { Stage::Executed } else { Stage::Waiting };
            let told = executed.filter(|value| !value.is_empty());
            let (born, before, left) = told.map_or(Some(Default::default()), get_executed)?;
            let (sent_at, asked, is_repeated) = (now.mono, Generation(0), false);
            let parts = ops.iter().map(|queued| queued.op.parts()).sum();
            self.stream.keep(Kept {
                txn,
                caller,
                ops,
                parts,
                stage,
                until: Until::Executed,
                sent_at,
                asked,
                is_resent: true,
                is_unheard: executed.is_none(),
                is_repeated,
                is_loss_told: false,
                names_since,
                was,
                born,
                before,
                names: Numbers::default(),
                left,
            });
        }
        self.stream.check().is_ok().then_some(())
    }

    /// What was made, and is named by a mutation's place among those of its batch, is named by that of its first operation.
    fn name_by_operation(&mut self) {
        let mut places = FxHashMap::default();
        for kept in &self.stream.kept {
            let mut place = 0;
            for (queued, op) in kept.ops.iter().zip(0..) {
                places.insert((kept.txn, op), place);
                place += queued.op.parts() as u32;
            }
        }
        let place = |txn: u64, op: u32| places.get(&(txn, op)).copied().unwrap_or(op);
        for target in self.stream.kept.iter_mut().flat_map(|kept| kept.was.values_mut()) {
            if let Target::Made { txn, op } = target {
                *op = place(*txn, *op);
            }
        }
        for (txn, op) in self.nodes.values_mut().filter_map(|node| node.made.as_mut()) {
            *op = place(*txn, *op);
        }
    }

    fn restore_nodes(&mut self, records: &Records, now: Now) -> Option<()> {
        let waiting = self.stream.kept.iter().filter(|k| k.stage != Stage::Executed);
        let carrying: HashSet<u64> = waiting.flat_map(|k| &k.ops).map(|q| q.serial).collect();
        for (at, value) in of_family(records, family::NODE) {
            let id = NodeId(number_of(at)?);
            let (node, is_complete, extents, clean) = get_node(records, id, value, now)?;
            if let Some(handle) = &node.handle {
                self.handles.insert(handle.clone(), id);
                if node.attrs.fileid >= FIRST_SHOWN {
                    self.shown.insert(handle.clone(), node.attrs.fileid);
                }
            }
            let mut node = Box::new(node);
            // What was not sent comes behind whatever the server had done by then.
            node.data.clocked_since = node.data.clocked_since.map(|_| self.stream.sent());
            if let Some(dir) = node.dir.as_mut() {
                dir.complete = is_complete && node.held.contains(CapSet::FILE_S);
            }
            self.nodes.insert(id, node);
            let at = self.tick();
            self.with_data(id, |data| {
                for Extent { offset, data: bytes, kept } in extents {
                    let kept = match kept {
                        Stored::Stream(serial) if !carrying.contains(&serial) => Stored::Dirty,
                        kept => kept,
                    };
                    data.extents.restore(offset, bytes, kept, at);
                }
            });
            if let Some(clean) = clean {
                self.keep_clean(id, clean, Origin::Brought);
            }
            self.restore_flushing(id, now);
        }
        Some(())
    }

    /// What is not on the server's disk goes out, or is committed, in time.
    fn restore_flushing(&mut self, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.data.extents.weights().unsent > 0 {
            node.data.is_aging = true;
            self.flush.aging.push_back((now.mono, id));
        }
        if self.nodes.get(&id).is_some_and(|n| n.data.extents.weights().unstable > 0) {
            self.commit_later(id, now.mono);
        }
    }

    fn restore_names(&mut self, records: &Records) -> Option<()> {
        for (at, value) in of_family(records, family::NAME) {
            let dir = NodeId(number_of(at)?);
            let child = NodeId(u64::from_be_bytes(value.as_ref().try_into().ok()?));
            let is_known = self.nodes.contains_key(&child);
            let Some(dir) = self.nodes.get_mut(&dir).filter(|n| n.held.contains(CapSet::FILE_S)) else {
                continue;
            };
            let Some(dir) = dir.dir.as_mut() else { continue };
            if is_known {
                dir.put(&crate::ids::Name::new(at.get(9..)?), Some(child));
            } else {
                dir.complete = false;
            }
        }
        Some(())
    }

    /// Which mutations concern which objects.
    fn count_pending(&mut self) {
        let mut concerned = Vec::new();
        for kept in &self.stream.kept {
            let is_pending = kept.stage != Stage::Executed;
            concerned.extend(kept.ops.iter().map(|q| (q.serial, q.op.nodes(), is_pending, false)));
        }
        let unsent = self.stream.unsent.iter().filter(|q| !matches!(q.op, Op::Void));
        concerned.extend(unsent.map(|q| (q.serial, q.op.nodes(), true, true)));
        for (serial, nodes, is_pending, is_unsent) in concerned {
            for (place, id) in nodes.into_iter().enumerate() {
                let Some(node) = id.and_then(|id| self.nodes.get_mut(&id)) else { continue };
                node.last_serial = node.last_serial.max(serial);
                node.pending += u32::from(is_pending);
                if is_unsent && place == 0 {
                    node.unsent.push(serial);
                }
            }
        }
        for id in self.ids() {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            node.data.carrier = node.data.carrier.filter(|serial| node.unsent.contains(serial));
        }
        let now = self.generation;
        for queued in &mut self.stream.unsent {
            // All that it waits for was written before.
            if let Op::Rename { after: Some(after), .. } = &mut queued.op {
                *after = now;
            }
        }
    }
}

/// A node, whether it is a directory known as a whole, its data on the way, and all of its data where that is kept.
type Found = (Node, bool, Vec<Extent>, Option<Bytes>);

fn get_node(records: &Records, id: NodeId, value: &Bytes, now: Now) -> Option<Found> {
    let mut get = Get(value);
    let handle = get.option(Get::handle)?;
    let made = get.option(|get| Some((get.u64()?, get.u32()?)))?;
    let mut node = Node::new(id, handle, get.attrs()?, now.mono);
    node.made = made;
    node.has_lost_name = node.attrs.nlink == 0;
    node.is_theirs = get.flag()?;
    node.told_mtime = get.option(Get::time)?;
    node.base = get.option(Get::base)?.map(Box::new);
    (node.sure, node.held) = (get.caps()?, get.caps()?);
    node.sure = node.sure.shared() & node.held.shared();
    (node.plain, node.group_of_directory) = (get.flag()?, get.flag()?);
    let is = get.u8()?;
    (node.no_xattrs, node.listed) = (is & HAS_NO_XATTRS != 0, is & IS_LISTED != 0);
    node.hands_on_none = is & HANDS_ON_NONE != 0;
    let xattrs = get.list(|get| Some((get.name()?, get.option(Get::text)?)))?;
    if node.held.contains(CapSet::XATTR_S) {
        node.xattrs.extend(xattrs.into_iter().map(|(name, value)| (name, value.ok_or(Errno::ENODATA))));
    }
    node.text = get.option(Get::text)?;
    let errno = |get: &mut Get<'_>| get.u32().map(|n| Errno(n.cast_signed()));
    let unheard = get.option(errno)?;
    unheard.into_iter().for_each(|errno| node.losses.note(errno));
    node.dead = get.option(errno)?;
    let is_complete = get.flag()?;
    node.place = get.option(|get| Some((get.node()?, get.name()?)))?;
    node.data.barrier = get.u64()?;
    (node.data.filled_by, node.data.written_over) = (node.data.barrier, node.data.barrier);
    node.data.carrier = get.option(Get::u64)?;
    node.data.writer = get.option(Get::caller)?;
    node.data.mtime_owed = get.flag()?;
    node.data.clocked_since = get.flag()?.then_some(0);
    node.data.truncations = get.list(|get| Some((get.u64()?, get.u64()?)))?;
    let extents = get.list(|get| {
        let (offset, data) = (get.u64()?, get_part(records, get)?);
        let kept = match (get.u8()?, get.u64()?) {
            (0, _) => Stored::Dirty,
            (1, serial) => Stored::Stream(serial),
            (2, verifier) => Stored::Unstable(verifier),
            _ => return None,
        };
        Some(Extent { offset, data, kept })
    })?;
    let clean = get.option(|get| get_part(records, get))?;
    // Of what has no blocks nothing more is said.
    if !get.0.is_empty() && get.flag()? {
        node.data.kept = Validity { version: get.u32()?, doubted: get.option(Get::u64)? };
    }
    if !node.sure.contains(CapSet::FILE_S) && node.data.kept.doubted.is_none() {
        node.data.kept.void();
    }
    Some((node, is_complete, extents, clean))
}

fn get_part(records: &Records, get: &mut Get<'_>) -> Option<Bytes> {
    let (number, from, len) = (get.u64()?, get.u64()?, get.u64()?);
    let whole = records.get(&key(family::DATA, number))?;
    let (from, len) = (usize::try_from(from).ok()?, usize::try_from(len).ok()?);
    let to = from.checked_add(len).filter(|to| *to <= whole.len())?;
    Some(whole.slice(from..to))
}

fn get_load(records: &Records, get: &mut Get<'_>) -> Option<Load> {
    let size = get.option(Get::u64)?;
    let data = get.list(|get| Some((get.u64()?, get_part(records, get)?)))?;
    Some(Load { data, size, spare: None })
}

fn get_thing(get: &mut Get<'_>) -> Option<Thing> {
    Some(match get.u8()? {
        0 => Thing::File,
        1 => Thing::Dir,
        2 => Thing::Symlink(get.text()?),
        3 => Thing::Node(get.kind()?, get.device()?),
        _ => return None,
    })
}

fn get_queued(records: &Records, get: &mut Get<'_>, now: Now) -> Option<Queued> {
    let serial = get.u64()?;
    let caller: Caller = get.caller()?;
    let op = match get.u8()? {
        0 => Op::Void,
        1 => {
            let (dir, name, node) = (get.node()?, get.name()?, get.node()?);
            let (thing, attrs, want) = (get_thing(get)?, get.new_attrs()?, get.caps()?);
            let joins = get.flag()?;
            Op::Make { dir, name, node, thing, attrs, want, joins, load: get_load(records, get)? }
        }
        3 => Op::SetAttr { node: get.node()?, changes: get.changes()? },
        4 => {
            let (node, mtime) = (get.node()?, get.time()?);
            Op::Write { node, mtime, load: get_load(records, get)? }
        }
        tag => {
            let (dir, name, node) = (get.node()?, get.name()?, get.node()?);
            match tag {
                2 => Op::Link { node, dir, name },
                5 => {
                    let to = (get.node()?, get.name()?);
                    let (mode, over) = (get.mode()?, get.option(Get::node)?);
                    let after = over.map(|_| Generation(0));
                    Op::Rename { from: (dir, name), to, node, mode, after, over }
                }
                6 => Op::Unlink { dir, name, node },
                7 => Op::Rmdir { dir, name, node },
                _ => return None,
            }
        }
    };
    Some(Queued { serial, at: now.mono, caller, op })
}

/// What came of a batch.
type CameOf = (Vec<(u32, Handle)>, Vec<(NodeId, Before)>, Vec<(NodeId, Left)>);

fn get_executed(value: &Bytes) -> Option<CameOf> {
    let mut get = Get(value);
    let born = get.list(|get| Some((get.u32()?, get.handle()?)))?;
    let before = get.list(|get| {
        let id = get.node()?;
        let (base, told_mtime) = (get.option(Get::base)?, get.option(Get::time)?);
        Some((id, Before { base, told_mtime, is_clocked: get.flag()? }))
    })?;
    // Former versions ended here.
    let left = if get.0.is_empty() { Vec::new() } else { get.list(get_left)? };
    Some((born, before, left))
}

fn get_left(get: &mut Get<'_>) -> Option<(NodeId, Left)> {
    Some((get.node()?, Left { mtime: get.time()?, since: get.time()?, until: get.time()? }))
}

fn get_conflict(value: &Bytes) -> Option<Conflict> {
    let mut get = Get(value);
    Some(Conflict {
        path: get.bytes()?.to_vec(),
        kept_as: get.option(Get::name)?,
        what: String::from_utf8_lossy(get.bytes()?).into_owned(),
    })
}
