//! Names that are promised by themselves, where nothing is held of their directories. What one of them leads to may be
//! relied on until it is asked back; it may also be forgotten without a word, for the server answers anew.

use rustc_hash::FxHashMap;

use crate::ask::Generation;
use crate::dir::Known;
use crate::ids::{Handle, Name, NodeId};
use crate::machine::Machine;
use crate::tell::{Forget, Release};
use holdfast_base::CapSet;
use holdfast_base::limits::{EARLY_RECALLS_MAX, LEASED_NAMES_MAX};

/// A promise of one name, as the server gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// What stands for the name where a recall or a release of an object has its handle.
    pub token: Handle,
    /// As that of a grant.
    pub seq: u64,
}

/// What is promised of one name.
#[derive(Debug)]
struct Leased {
    token: Handle,
    /// The object; `None`: there is none of that name.
    node: Option<NodeId>,
    /// The kernel was told that this stays so.
    told: bool,
    /// Promised since then.
    since: Generation,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    by_dir: FxHashMap<NodeId, FxHashMap<Name, Leased>>,
    by_token: FxHashMap<Handle, (NodeId, Name)>,
}

impl Leases {
    pub(crate) fn len(&self) -> usize {
        self.by_token.len()
    }

    fn at(&mut self, dir: NodeId, name: &[u8]) -> Option<&mut Leased> {
        self.by_dir.get_mut(&dir)?.get_mut(name)
    }

    pub(crate) fn look(&self, dir: NodeId, name: &[u8]) -> Known {
        match self.by_dir.get(&dir).and_then(|names| names.get(name)) {
            Some(Leased { node: Some(node), .. }) => Known::Present(*node),
            Some(Leased { node: None, .. }) => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// What a name leads to, and whether the kernel was told so.
    pub(crate) fn slot(&self, dir: NodeId, name: &[u8]) -> Option<(NodeId, bool)> {
        let leased = self.by_dir.get(&dir)?.get(name)?;
        leased.node.map(|node| (node, leased.told))
    }

    /// The kernel is told that what is known of this name stays so. False where nothing is.
    pub(crate) fn tell(&mut self, dir: NodeId, name: &[u8]) -> bool {
        self.at(dir, name).map(|leased| leased.told = true).is_some()
    }

    /// Forgets a name. Returns whether the kernel was told of it.
    pub(crate) fn forget(&mut self, dir: NodeId, name: &[u8]) -> bool {
        let Some(names) = self.by_dir.get_mut(&dir) else { return false };
        let Some(leased) = names.remove(name) else { return false };
        if names.is_empty() {
            self.by_dir.remove(&dir);
        }
        self.by_token.remove(&leased.token);
        leased.told
    }

    /// A directory is forgotten, and so is all in it.
    pub(crate) fn forget_dir(&mut self, dir: NodeId) {
        for leased in self.by_dir.remove(&dir).into_iter().flat_map(FxHashMap::into_values) {
            self.by_token.remove(&leased.token);
        }
    }

    /// A change of the mount's own, asked for at `at`, has left a name as `now_is`, or nobody knows how. What was promised
    /// all the time still is: nobody else can have changed it. Returns whether the kernel has to forget it.
    pub(crate) fn end_change(
        &mut self,
        dir: NodeId,
        name: &[u8],
        now_is: Option<Option<NodeId>>,
        at: Generation,
    ) -> bool {
        match (self.at(dir, name), now_is) {
            (Some(leased), Some(node)) if leased.since <= at => {
                (leased.node, leased.told) = (node, false);
                false
            }
            (Some(_), _) => self.forget(dir, name),
            (None, _) => false,
        }
    }

    fn put(&mut self, dir: NodeId, name: &Name, leased: Leased) {
        self.by_token.insert(leased.token.clone(), (dir, name.clone()));
        self.by_dir.entry(dir).or_default().insert(name.clone(), leased);
    }

    /// Forgets all; returns what the kernel was told of.
    fn clear(&mut self) -> Vec<(NodeId, Name)> {
        self.by_token.clear();
        let all = self
            .by_dir
            .drain()
            .flat_map(|(dir, names)| names.into_iter().map(move |(name, leased)| (dir, name, leased.told)));
        all.filter(|(.., told)| *told).map(|(dir, name, _)| (dir, name)).collect()
    }

    pub(crate) fn check(&self, machine: &Machine) -> Result<(), String> {
        let count: usize = self.by_dir.values().map(FxHashMap::len).sum();
        if count != self.by_token.len() || count > LEASED_NAMES_MAX {
            return Err(format!("{count} names promised, {} tokens", self.by_token.len()));
        }
        for (token, (dir, name)) in &self.by_token {
            let leased = self.by_dir.get(dir).and_then(|names| names.get(name.as_bytes()));
            if leased.is_none_or(|leased| leased.token != *token) {
                return Err(format!("{token:?} stands for {name:?} of {dir:?}, which is promised otherwise"));
            }
            let node = machine.nodes.get(dir);
            if node.is_none_or(|node| node.dir.is_none()) || machine.has_lapsed {
                return Err(format!("{name:?} of {dir:?} is promised, and its directory is gone"));
            }
            // What both cover is the same.
            let by_dir = node.and_then(|node| node.dir.as_ref()?.slot(name.as_bytes()));
            if let (Some(slot), Some(leased)) = (by_dir, leased)
                && slot.node != leased.node
            {
                return Err(format!("{name:?} of {dir:?} is {slot:?} and promised as {leased:?}"));
            }
        }
        Ok(())
    }
}

impl Machine {
    /// Notes what a name leads to, and that this is promised. Of an answer that may be older than what happened here since
    /// it was asked for, or than the promise's recall, nothing is noted; the server keeps such a promise for nothing.
    pub(crate) fn note_promise(
        &mut self,
        id: NodeId,
        (name, node): (&Name, Option<NodeId>),
        promise: Promise,
        at: Generation,
    ) {
        let Promise { token, seq } = promise;
        if at < self.epoch || self.has_lapsed || at < self.forgot_holder {
            return;
        }
        match self.early.get(&token) {
            Some(recalled) if seq <= *recalled => return,
            Some(_) => drop(self.early.remove(&token)),
            None => {}
        }
        let Some(holder) = self.nodes.get(&id) else { return };
        let is_current = holder.names_lost <= at && holder.disturbed <= at;
        let Some(dir) = holder.dir.as_ref().filter(|dir| !dir.is_busy(name.as_bytes())) else { return };
        let known =
            if holder.held.contains(CapSet::FILE_S) { dir.look(name.as_bytes()) } else { Known::Unknown };
        let is_same = match known {
            Known::Present(known) => node == Some(known),
            Known::Absent => node.is_none(),
            Known::Unknown => true,
        };
        // What may be changed here unseen is ours to tell.
        if !is_current || !is_same || holder.held.contains(CapSet::FILE_X) {
            return;
        }
        if let Some(dir) = self.nodes.quietly(id).and_then(|holder| holder.dir.as_mut()) {
            // It will not be asked for again, so that it saves nothing to read the directory as a whole.
            dir.misses = dir.misses.saturating_sub(1);
        }
        // Two names of one token: the other one is not promised any more.
        let other =
            self.leases.by_token.get(&token).filter(|place| (place.0, &place.1) != (id, name)).cloned();
        if let Some((dir, other)) = other {
            let told = self.leases.forget(dir, other.as_bytes());
            self.forget_entry(told, dir, &other);
        }
        if self.leases.at(id, name.as_bytes()).is_some_and(|had| had.token == token && had.node == node) {
            return;
        }
        let told = self.leases.forget(id, name.as_bytes());
        self.forget_entry(told, id, name);
        if self.leases.len() < LEASED_NAMES_MAX {
            let since = self.generation;
            self.leases.put(id, name, Leased { token, node, told: false, since });
        }
    }

    /// The server asks a name back, if the token is one's. It is given back when the kernel has forgotten it.
    pub(crate) fn recall_name(&mut self, token: &Handle, seq: u64) -> bool {
        let Some((dir, name)) = self.leases.by_token.get(token).cloned() else { return false };
        let told = self.leases.forget(dir, name.as_bytes());
        self.forget_entry(told, dir, &name);
        self.release_unknown(token, seq);
        true
    }

    /// Gives back what is not known, or not any more, once the kernel has forgotten all that it was to forget before. What is
    /// granted of it under a lower number is void.
    pub(crate) fn release_unknown(&mut self, handle: &Handle, seq: u64) {
        if self.early.len() >= EARLY_RECALLS_MAX {
            self.early.clear();
            self.forgot_holder = self.tick();
        }
        self.early.insert(handle.clone(), seq);
        let release = Release { handle: handle.clone(), keep: CapSet::NONE, seq, life: self.life };
        self.releasing.push((self.last_invalidation, release));
    }

    /// Releases of what is not known for which the kernel has done its part.
    pub(crate) fn finish_releasing(&mut self) {
        let invalidated = self.invalidated;
        let done = self.releasing.extract_if(.., |(number, _)| *number <= invalidated);
        self.releases.extend(done.map(|(_, release)| release));
    }

    /// No name is promised any more.
    pub(crate) fn lose_leases(&mut self) {
        for (dir, name) in self.leases.clear() {
            self.invalidate(Forget::Entry(dir, name));
        }
    }
}
