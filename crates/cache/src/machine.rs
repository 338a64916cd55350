//! The machine's state, and the few moves that everything else is made of: finding nodes, asking, waiting, noting what
//! changed. It decides nothing by itself.

use std::collections::{BTreeSet, VecDeque};

use holdfast_base::Instant;
use holdfast_base::limits::{
    AHEAD_AFTER, CAPS_BATCH_OPS_MAX, CLEAN_BYTES_MAX, IO_BYTES_MAX, KEPT_BLOCK_BYTES, POOL_AFTER,
    POOL_FILES_MAX, REACQUIRE_PAUSE_MS, SMALL_FILE_BYTES,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::acting::Acts;
use crate::ask::{Ask, Generation, Object, Question};
use crate::attrs::Attrs;
use crate::errno::Errno;
use crate::ids::{Caller, Fh, Handle, Name, NodeId, Now, OpenToken};
use crate::names_taken::NamesTaken;
use crate::node::{Node, Open};
use crate::persist::{Conflict, Journal, Nodes};
use crate::queue::Stream;
use crate::reports::Noted;
use crate::step::{Outcome, Stop, Turn, Wait};
use crate::tell::{Forget, Invalidation, Release, Stats};
use holdfast_base::CapSet;

/// What the server can do, and how much is to be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Capabilities can be asked for. Without it nothing is wished for (what comes, as delegations do, is used).
    pub caps: bool,
    /// Mutations may be sent in batches. Without it all of them are questions.
    pub batches: bool,
    /// Data may be kept back under `FILE_X`.
    pub write_back: bool,
    /// The kernel lets a file be mapped whose data goes past its pages.
    pub direct: bool,
    /// The kernel forgets names at a word, without being waited for. Where it cannot it is told none to believe in, and asks for
    /// each again: it would be waited for by what it waits for itself (`fuse.md`).
    pub names: bool,
    /// A file that is open at the server goes on existing after its last name was removed. Without it such names are
    /// hidden until the last close.
    pub preserves_unlinked: bool,
    /// Bytes of one READ or WRITE.
    pub io_bytes: u32,
    /// Batches can be answered when they are on the server's disk.
    pub forces: bool,
    /// Mutations in one batch.
    pub batch_ops_max: usize,
    /// Operations that they may become: a file's data is one for each piece.
    pub batch_parts_max: usize,
    /// Bytes of data and names in one batch.
    pub batch_bytes_max: usize,
    /// Batches on their way.
    pub batches_in_flight_max: usize,
    /// WRITEs on their way.
    pub writes_in_flight_max: usize,
    /// Files that the server keeps for creates to come; 0 where it cannot.
    pub pooled_max: usize,
    /// Creates in a directory before any are asked for.
    pub pooled_after: u32,
    /// Small files of a directory that are asked for before others are read ahead.
    pub ahead_after: u32,
    /// Bytes of small files that are kept after they were sent or read.
    pub clean_bytes_max: usize,
    /// Bytes of a file that is kept whole, at most.
    pub whole_bytes_max: u64,
    /// Bytes of a block of larger ones that is kept on disk.
    pub block_bytes: u32,
}

impl Default for Settings {
    /// Everything is asked.
    fn default() -> Self {
        Self {
            caps: false,
            batches: false,
            write_back: true,
            direct: false,
            names: true,
            preserves_unlinked: false,
            io_bytes: IO_BYTES_MAX as u32,
            forces: false,
            batch_ops_max: 256,
            batch_parts_max: CAPS_BATCH_OPS_MAX,
            batch_bytes_max: 512 << 10,
            batches_in_flight_max: 8,
            writes_in_flight_max: 16,
            pooled_max: 0,
            pooled_after: POOL_AFTER,
            ahead_after: AHEAD_AFTER,
            clean_bytes_max: CLEAN_BYTES_MAX,
            whole_bytes_max: SMALL_FILE_BYTES,
            block_bytes: KEPT_BLOCK_BYTES,
        }
    }
}

impl Settings {
    /// Everything a Holdfast server can do.
    #[must_use]
    pub fn full() -> Self {
        let pooled_max = POOL_FILES_MAX;
        Self {
            caps: true,
            batches: true,
            forces: true,
            preserves_unlinked: true,
            pooled_max,
            ..Self::default()
        }
    }
}

/// A recall of what no object here is known to be.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) handle: Handle,
    pub(crate) keep: CapSet,
    pub(crate) seq: u64,
    /// The last batch that may have made it: those that are sent later have not.
    pub(crate) through: u64,
}

/// Everything the client knows, may rely on, has changed and has not sent.
#[derive(Debug)]
pub struct Machine {
    pub(crate) settings: Settings,
    pub(crate) nodes: Nodes,
    pub(crate) handles: FxHashMap<Handle, NodeId>,
    pub(crate) opens: FxHashMap<Fh, Open>,
    pub(crate) last_node: u64,
    pub(crate) last_fh: u64,
    pub(crate) generation: Generation,
    /// When everything held was last lost, or claimed anew: grants to older questions are void.
    pub(crate) epoch: Generation,
    /// What the server promises now may be void when it is heard of.
    pub(crate) has_lapsed: bool,
    pub(crate) progress: u64,
    /// Numbers shown for objects that were made here, by the handles they have got.
    pub(crate) shown: FxHashMap<Handle, u64>,
    pub(crate) last_shown: u64,
    /// As whom callers act on the server.
    pub(crate) acts: Acts,
    /// Recalls of objects that were not known.
    pub(crate) early: FxHashMap<Handle, u64>,
    /// Recalls of what a batch under way may have made.
    pub(crate) deferred: Vec<Deferred>,
    pub(crate) recalling: Vec<NodeId>,
    pub(crate) releases: Vec<Release>,
    /// How often all that was held was lost: to what is given back, the server's life.
    pub(crate) life: u64,
    /// Those that wait for the kernel alone, each for this invalidation.
    pub(crate) releasing: Vec<(u64, Release)>,
    pub(crate) leases: crate::leases::Leases,
    pub(crate) invalidations: VecDeque<Invalidation>,
    pub(crate) last_invalidation: u64,
    pub(crate) invalidated: u64,
    /// The kernel was begun to be told to forget everything up to this invalidation.
    pub(crate) forgetting: u64,
    /// When those who wait for a release look again, the first of them.
    pub(crate) parked: Option<Instant>,
    /// Files of which the kernel is to drop what nothing covers, and when.
    pub(crate) drops: BTreeSet<(Instant, NodeId)>,
    /// Files that are kept beside their writers, and until when.
    pub(crate) lent: BTreeSet<(Instant, NodeId)>,
    /// The server has promised something of a file's data at some time.
    pub(crate) has_been_promised: bool,
    pub(crate) closes: Vec<(OpenToken, Caller, NodeId)>,
    /// Opens that changes under way name, and how many do.
    pub(crate) opens_named: FxHashMap<OpenToken, u32>,
    pub(crate) wanted_opens: VecDeque<Fh>,
    /// Of those that were, so many have not been answered.
    pub(crate) opens_under_way: usize,
    pub(crate) removals: Vec<(Handle, Name, Caller)>,
    pub(crate) clean: crate::clean::Clean,
    pub(crate) stores: crate::stores::Stores,
    /// What of files' contents is on this host's disk; only of mounts that work without the server.
    pub(crate) disk: Option<Box<crate::disk::Disk>>,
    pub(crate) ahead: crate::ahead::Ahead,
    pub(crate) stream: Stream,
    pub(crate) pools: crate::pool::Pools,
    pub(crate) flush: crate::writes::Flush,
    pub(crate) reports: VecDeque<Noted>,
    /// The first failure since the last `sync`.
    pub(crate) error: Option<Errno>,
    /// When nodes were last looked through for ones to forget, by how many there were then.
    pub(crate) trimmed_at: usize,
    /// A node of which something was held was forgotten: answers to older questions may bring grants of it.
    pub(crate) forgot_holder: Generation,
    pub(crate) names_taken: NamesTaken,
    /// What is kept on disk; only of mounts that work without the server.
    pub(crate) journal: Option<Box<Journal>>,
    pub(crate) conflicts: Vec<Conflict>,
    /// What the server said of objects when it had begun anew: what it has lost comes again, and spares what others did since.
    pub(crate) found: crate::persist::Found,
    /// Where directories were when the server was last compared with: for telling of conflicts.
    pub(crate) paths: FxHashMap<NodeId, Vec<u8>>,
    pub(crate) stats: Stats,
}

/// Numbers shown for objects that the server has not numbered: far above what file systems give.
pub(crate) const FIRST_SHOWN: u64 = 0x7f48_4600_0000_0000;

impl Machine {
    /// A machine that knows the root of the mount.
    #[must_use]
    pub fn new(root: &Object, settings: Settings) -> Self {
        let mut machine = Self {
            settings,
            nodes: Nodes::default(),
            handles: FxHashMap::default(),
            opens: FxHashMap::default(),
            last_node: 0,
            last_fh: 0,
            generation: Generation(1),
            epoch: Generation(0),
            has_lapsed: false,
            progress: 0,
            shown: FxHashMap::default(),
            last_shown: FIRST_SHOWN,
            acts: Acts::default(),
            early: FxHashMap::default(),
            deferred: Vec::new(),
            recalling: Vec::new(),
            releases: Vec::new(),
            life: 0,
            releasing: Vec::new(),
            leases: crate::leases::Leases::default(),
            invalidations: VecDeque::new(),
            last_invalidation: 0,
            invalidated: 0,
            forgetting: 0,
            parked: None,
            drops: BTreeSet::new(),
            lent: BTreeSet::new(),
            has_been_promised: false,
            closes: Vec::new(),
            opens_named: FxHashMap::default(),
            wanted_opens: VecDeque::new(),
            opens_under_way: 0,
            removals: Vec::new(),
            clean: crate::clean::Clean::default(),
            stores: crate::stores::Stores::default(),
            disk: None,
            ahead: crate::ahead::Ahead::default(),
            stream: Stream::default(),
            pools: crate::pool::Pools::default(),
            flush: crate::writes::Flush::default(),
            reports: VecDeque::new(),
            error: None,
            trimmed_at: 0,
            forgot_holder: Generation(0),
            names_taken: NamesTaken::default(),
            journal: None,
            conflicts: Vec::new(),
            found: crate::persist::Found::default(),
            paths: FxHashMap::default(),
            stats: Stats::default(),
        };
        let at = machine.tick();
        machine.absorb_object(root, at, Instant::default());
        machine
    }

    /// What the server can do; may be changed when another one is talked to.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Changes whenever something happened that a waiting operation may wait for.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.progress
    }

    /// The handle of a node, once the server has given it.
    #[must_use]
    pub fn handle_of(&self, node: NodeId) -> Option<Handle> {
        self.nodes.get(&node)?.handle.clone()
    }

    /// The next moment in the order of events.
    pub(crate) fn tick(&mut self) -> Generation {
        self.generation.0 += 1;
        self.generation
    }

    pub(crate) fn node(&self, id: NodeId) -> Result<&Node, Errno> {
        self.nodes.get(&id).map(|n| &**n).ok_or(Errno::ESTALE)
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).map(|n| &mut **n).ok_or(Errno::ESTALE)
    }

    /// A node that is, or will be, at the server.
    pub(crate) fn living(&mut self, id: NodeId, now: Now) -> Result<&mut Node, Errno> {
        let node = self.node_mut(id)?;
        node.touched = now.mono;
        match node.dead {
            Some(errno) => Err(errno),
            None => Ok(node),
        }
    }

    pub(crate) fn by_handle(&mut self, handle: &Handle) -> Option<&mut Node> {
        let id = *self.handles.get(handle)?;
        self.nodes.get_mut(&id).map(|n| &mut **n)
    }

    /// A node for something new, known by handle or not.
    pub(crate) fn add_node(&mut self, handle: Option<Handle>, attrs: Attrs, now: Instant) -> NodeId {
        self.last_node += 1;
        let id = NodeId(self.last_node);
        let mut node = Node::new(id, handle.clone(), attrs, now);
        if let Some(handle) = handle {
            if let Some(seq) = self.early.remove(&handle) {
                node.seq = seq;
            }
            let is_taken = self.is_number_taken(attrs.fileid, &handle);
            if let Some(shown) = self.shown.get(&handle) {
                node.attrs.fileid = *shown;
            } else if is_taken {
                // As if it had been made here: two files of one number would be taken for one.
                self.last_shown += 1;
                node.attrs.fileid = self.last_shown;
                self.shown.insert(handle.clone(), self.last_shown);
            }
            self.handles.insert(handle, id);
        }
        self.nodes.insert(id, Box::new(node));
        id
    }

    /// Stops the operation with a question.
    pub(crate) fn ask<T>(&mut self, turn: &Turn, question: Question) -> Outcome<T> {
        self.begin_taking(turn, &question);
        self.begin_change(&question);
        self.begin_naming(&question);
        let at = self.tick();
        Err(Stop::Ask(Box::new(Ask { at, caller: turn.caller.clone(), question })))
    }

    /// Stops the operation until something has happened.
    pub(crate) fn wait<T>(&mut self, wait: Wait) -> Outcome<T> {
        Err(Stop::Wait(wait))
    }

    /// The node's handle; waits until the server has given it.
    pub(crate) fn handle(&mut self, turn: &Turn, id: NodeId) -> Outcome<Handle> {
        let node = self.node(id)?;
        if let Some(errno) = node.dead {
            return Err(Stop::Failed(errno));
        }
        if let Some(handle) = &node.handle {
            return Ok(handle.clone());
        }
        let _ = turn;
        let serial = node.last_serial;
        self.stream.need(serial);
        self.wait(Wait::Executed)
    }

    /// Waits until every mutation queued before this operation began was executed: what is asked for now must not
    /// overtake it.
    pub(crate) fn overtake_none(&mut self, turn: &mut Turn) -> Outcome<()> {
        let last = self.stream.last_serial();
        let through = *turn.through.get_or_insert(last);
        self.executed(through)
    }

    pub(crate) fn executed(&mut self, through: u64) -> Outcome<()> {
        let through = self.stream.placed(through);
        if self.stream.executed() >= through {
            return Ok(());
        }
        self.stream.need(through);
        self.wait(Wait::Executed)
    }

    /// Waits until the server knows what this client did to the node before this operation began, as far as we cannot
    /// tell its effect ourselves.
    pub(crate) fn told_server(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        kinds: CapSet,
        now: Now,
    ) -> Outcome<()> {
        let generation = self.generation;
        let begun = *turn.begun.get_or_insert(generation);
        let node = self.node(id)?;
        let (lost, is_sure) = (node.lost_serial, node.sure.contains(kinds));
        if lost > 0 {
            // What is held now may be of after that: its effect is not known here, and not there yet.
            self.executed(lost)?;
            self.node_mut(id)?.lost_serial = 0;
        }
        if is_sure {
            return Ok(());
        }
        let node = self.node(id)?;
        if node.pending > 0 {
            let through = *turn.through.get_or_insert(node.last_serial);
            self.executed(through)?;
        }
        let node = self.node(id)?;
        if !node.sure.contains(CapSet::FILE_S) && node.has_unsent(begun) {
            self.settle(id, true, now);
            self.need_data(id);
            return self.wait(Wait::Written);
        }
        Ok(())
    }

    /// What is wished for: nothing where the server knows no capabilities, nothing exclusive of what was just recalled.
    pub(crate) fn want(&self, id: Option<NodeId>, want: CapSet, now: Now) -> CapSet {
        let pause = |n: &Node| n.recalled_at.is_some_and(|at| now.mono.ms_since(at) < REACQUIRE_PAUSE_MS);
        if !self.settings.caps {
            return CapSet::NONE;
        }
        let recalled = id.and_then(|id| self.nodes.get(&id)).is_some_and(|n| pause(n));
        if recalled { want.shared() } else { want }
    }

    /// What to ask for when an object would be had for oneself, so that it can be changed here: nothing when that was just
    /// refused, or asked for in this turn.
    pub(crate) fn want_alone(&mut self, turn: &Turn, id: NodeId, now: Now) -> Outcome<Option<CapSet>> {
        let want = self.want(Some(id), CapSet::ALL_X, now);
        let node = self.node_mut(id)?;
        if turn.acquired && !node.held.contains(CapSet::FILE_X) {
            node.shared_at = Some(now.mono);
        }
        let is_shared = node.shared_at.is_some_and(|at| now.mono.ms_since(at) < REACQUIRE_PAUSE_MS);
        Ok((want.contains(CapSet::FILE_X) && !turn.acquired && !is_shared).then_some(want))
    }

    /// Tells the kernel to forget something.
    pub(crate) fn invalidate(&mut self, what: Forget) {
        if !self.settings.names && matches!(what, Forget::Entry(..)) {
            return;
        }
        self.last_invalidation += 1;
        self.stats.invalidations += 1;
        let number = self.last_invalidation;
        if let Forget::Data(id) = &what
            && let Some(node) = self.nodes.get_mut(id)
        {
            node.data_forget = number;
        }
        self.invalidations.push_back(Invalidation { number, what });
    }

    /// What the kernel has to forget, in order; each is given out once.
    pub fn take_invalidations(&mut self) -> Vec<Invalidation> {
        self.invalidations.drain(..).collect()
    }

    /// The kernel has forgotten everything up to this number.
    pub fn invalidated(&mut self, number: u64) {
        self.invalidated = self.invalidated.max(number);
        self.stores.told(number);
        self.progress += 1;
    }

    /// An open for `access` that the server knows of.
    pub(crate) fn token(&self, id: NodeId, write: bool) -> Option<OpenToken> {
        let opens = &self.nodes.get(&id)?.opens;
        let open = |fh: &Fh| self.opens.get(fh).filter(|o| o.access.write || !write);
        opens.iter().filter_map(open).find_map(|o| o.token)
    }

    /// An open to write that the server knows, for what this user does: his own, if he has one, for what another names a user's open
    /// for is judged by the mode as it is by then.
    pub(crate) fn token_by(&self, id: NodeId, caller: &Caller) -> Option<OpenToken> {
        let opens = &self.nodes.get(&id)?.opens;
        let is_his = |open: &&Open| open.access.write && open.caller.uid == caller.uid;
        let his = opens.iter().filter_map(|fh| self.opens.get(fh)).filter(is_his).find_map(|open| open.token);
        his.or_else(|| self.token(id, true))
    }

    /// The open that the server knows to do something through `fh` by: its own, for another's may be closed at any
    /// moment, and what is under way with it then fails.
    pub(crate) fn token_of(&self, fh: Fh, id: NodeId, write: bool) -> Option<OpenToken> {
        self.opens.get(&fh).and_then(|open| open.token).or_else(|| self.token(id, write))
    }

    pub(crate) fn has_writers(&self, node: &Node) -> bool {
        node.opens.iter().any(|fh| self.opens.get(fh).is_some_and(|o| o.access.write))
    }

    /// Makes the kernel forget an entry, if it was told of it.
    pub(crate) fn forget_entry(&mut self, told: bool, dir: NodeId, name: &Name) {
        if told {
            self.invalidate(Forget::Entry(dir, name.clone()));
        }
    }

    /// Makes the kernel forget a directory's listing, if it may have one that is none any more.
    pub(crate) fn forget_listing(&mut self, dir: NodeId) {
        // Looked at first: what may be changed is journalled.
        let is_over = |n: &Node| n.dir.as_ref().is_some_and(|dir| dir.listing.is_over);
        if !self.nodes.get(&dir).is_some_and(|n| is_over(n)) {
            return;
        }
        if let Some(dir) = self.nodes.get_mut(&dir).and_then(|n| n.dir.as_mut()) {
            dir.listing.is_over = false;
        }
        self.invalidate(Forget::Listing(dir));
    }

    /// Nodes, all of them: for checks.
    pub(crate) fn ids(&self) -> FxHashSet<NodeId> {
        self.nodes.keys().copied().collect()
    }
}
