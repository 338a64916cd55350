//! Bounds: what is remembered beyond need is forgotten, longest untouched first; and figures about what is held.

use holdfast_base::Instant;
use holdfast_base::limits::{CACHED_NODES_MAX, STILL_DUE_MS, UNSYNCED_AGE_MS, YOUNG_FILE_MS};
use rustc_hash::FxHashSet;

use crate::ids::{NodeId, Now};
use crate::machine::Machine;
use crate::tell::{Pending, Release, Stats};
use holdfast_base::CapSet;

impl Machine {
    /// Forgets objects when there are too many: half of those that nothing refers to.
    pub(crate) fn trim(&mut self) {
        if self.nodes.len() <= CACHED_NODES_MAX.max(self.trimmed_at) {
            return;
        }
        self.trim_to(CACHED_NODES_MAX / 2);
        // When nearly all are in use, looking again at once would find as little.
        self.trimmed_at = self.nodes.len() + CACHED_NODES_MAX / 4;
    }

    /// Forgets idle objects until so many are left, as far as there are idle ones.
    pub(crate) fn trim_to(&mut self, count: usize) {
        let stable = self.stream.stable();
        let needed = self.above_what_waits();
        // Those of which something was lost that nobody has heard of last.
        let mut idle: Vec<(bool, Instant, NodeId)> = self
            .nodes
            .values()
            .filter(|n| n.is_idle() && n.data.filled_by <= stable && !needed.contains(&n.id))
            .filter(|n| n.dir.is_none() || n.last_serial <= stable)
            .map(|n| (n.losses.unheard().is_some(), n.touched, n.id))
            .collect();
        idle.sort_unstable();
        let excess = self.nodes.len().saturating_sub(count);
        idle.truncate(excess);
        let going: FxHashSet<NodeId> = idle.iter().map(|(.., id)| *id).collect();
        self.unname(&going);
        for (.., id) in idle {
            self.forget_node(id);
        }
    }

    /// Directories on the way to what has still to be sent, where there is a journal: what the server turns out to have lost or
    /// changed meanwhile is put beside, or made anew, where it was.
    fn above_what_waits(&self) -> FxHashSet<NodeId> {
        let mut above = FxHashSet::default();
        if self.journal.is_none() {
            return above;
        }
        let places = self.places();
        let dir_of = |id: NodeId| {
            let remembered = || self.nodes.get(&id)?.place.as_ref().map(|(dir, _)| *dir);
            places.get(&id).map(|(dir, _)| *dir).or_else(remembered)
        };
        for node in self.nodes.values().filter(|n| n.pending > 0 || !n.data.extents.is_empty()) {
            let mut at = node.id;
            while let Some(dir) = dir_of(at).filter(|dir| above.insert(*dir)) {
                at = dir;
            }
        }
        above
    }

    /// Directories that know names of what is forgotten cease to know those, and are not complete any more.
    fn unname(&mut self, going: &FxHashSet<NodeId>) {
        let at = self.tick();
        let (mut told, mut shorter) = (Vec::new(), Vec::new());
        for node in self.nodes.values_mut() {
            let Some(dir) = node.dir.as_mut().filter(|_| !going.contains(&node.id)) else { continue };
            let names: Vec<_> =
                dir.entries(0).filter(|(.., n)| going.contains(n)).map(|(_, name, _)| name.clone()).collect();
            if names.is_empty() {
                continue;
            }
            node.names_lost = at;
            shorter.push(node.id);
            for name in names {
                if dir.drop_name(name.as_bytes()) {
                    told.push((node.id, name));
                }
            }
        }
        for (id, name) in told {
            self.forget_entry(true, id, &name);
        }
        for id in shorter {
            self.forget_listing(id);
        }
    }

    /// Forgets an object that has no name any more and that nobody refers to.
    pub(crate) fn drop_if_gone(&mut self, id: NodeId) {
        let gone = |n: &crate::node::Node| n.is_idle() && (n.dead.is_some() || n.has_surely_no_name());
        if self.nodes.get(&id).is_some_and(|n| gone(n)) {
            self.forget_node(id);
        }
    }

    fn forget_node(&mut self, id: NodeId) {
        let Some(node) = self.nodes.remove(&id) else { return };
        self.clean.forget(id);
        self.leases.forget_dir(id);
        self.drop_pools(id);
        let at = self.tick();
        // Of what has no name nothing is granted any more.
        if node.seq > 0 && node.attrs.nlink > 0 {
            self.forgot_holder = at;
        }
        if let Some(handle) = &node.handle {
            if self.handles.get(handle) == Some(&id) {
                self.handles.remove(handle);
            }
            if !node.held.is_empty() && !node.is_over {
                let (keep, life) = (CapSet::NONE, self.life);
                self.releases.push(Release { handle: handle.clone(), keep, seq: node.seq, life });
            }
        }
    }

    /// When something is due that nobody waits for: the flusher looks again then, at the latest. Asked after all that could
    /// be taken was: what is due all the same waits for the server, of whose answer the flusher hears without looking.
    #[must_use]
    pub fn next_wake(&self, now: Now) -> Option<Instant> {
        let stream =
            self.stream_due().filter(|_| !self.stream.is_any_sent() || self.stream.unsent.is_empty());
        let aging = self.flush.aging.front().map(|(due, _)| *due);
        let commits = self.flush.commits.front().map(|(due, _)| *due);
        let settle = self.stream.first_unstable().filter(|k| k.stage == crate::queue::Stage::Executed);
        let settle = settle.map(|k| k.sent_at.after_ms(UNSYNCED_AGE_MS));
        let young =
            self.stream.unsent.front().filter(|_| self.stream.unsent.len() >= self.settings.batch_ops_max);
        let young = young.map(|_| now.mono.after_ms(YOUNG_FILE_MS));
        let is_wanted = self.stream.wanted_stable > self.stream.stable() && !self.stream.is_asking_stable;
        let forced = self.stream.is_forced_until().filter(|_| is_wanted);
        let others = [forced, self.pages_due(), self.pools_due(), self.ahead_due()];
        let first = [stream, aging, commits, settle, young].into_iter().chain(others).flatten().min()?;
        Some(if first > now.mono { first } else { now.mono.after_ms(STILL_DUE_MS) })
    }

    /// Counters, and how much is held now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.nodes = self.nodes.len() as u64;
        stats.names = self.nodes.values().filter_map(|n| n.dir.as_ref()).map(|d| d.len() as u64).sum();
        stats.names += self.leases.len() as u64;
        stats.blocks = self.disk.as_ref().map_or(0, |disk| disk.count());
        stats.capabilities = self.nodes.values().filter(|n| !n.held.is_empty()).count() as u64;
        stats.dirty_bytes = self.flush.unsent;
        stats.unstable_bytes = self.flush.unstable;
        stats.queued = self.stream.unsent.len() as u64;
        stats.in_flight = self.stream.in_flight() as u64;
        stats.unsettled = self.stream.kept.len() as u64;
        stats
    }

    /// What has still to reach the server's disk.
    #[must_use]
    pub fn pending(&self) -> Pending {
        let unstable = self.stream.kept.iter().filter(|k| k.txn > self.stream.stable_txn);
        let kept: usize = unstable.map(|k| k.ops.len()).sum();
        Pending {
            mutations: (kept + self.stream.unsent.len()) as u64,
            bytes: self.flush.unsent + self.flush.unstable,
            bytes_sent: self.flush.unstable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::Object;
    use crate::attrs::{Attrs, Device, Kind};
    use crate::caps::Grant;
    use crate::ids::{Caller, Handle, Name};
    use crate::machine::Settings;
    use holdfast_base::Timestamp;

    fn object(kind: Kind, number: u8) -> Object {
        let at = Timestamp::default();
        let attrs = Attrs {
            kind,
            mode: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            allocated: 0,
            device: Device::default(),
            atime: at,
            mtime: at,
            ctime: at,
            btime: None,
            change: 1,
            fileid: number.into(),
        };
        let (caps, seq) = (CapSet::ALL_X, number.into());
        let grant = Grant {
            caps,
            seq,
            plain: true,
            group_of_directory: false,
            listed: false,
            hands_on_none: true,
            changed_since: false,
        };
        Object { handle: Handle::new(&[number]), attrs, grant: Some(grant) }
    }

    /// A machine with a journal that knows `a/b/f`, a file that was written to, and `c`.
    fn knowing() -> (Machine, [NodeId; 4]) {
        let mut machine = Machine::new(&object(Kind::Dir, 1), Settings::full());
        machine.follow();
        let now = Now { mono: Instant(1), wall: Timestamp::default() };
        let at = machine.tick();
        let mut add = |dir: NodeId, name: &[u8], kind: Kind, number: u8| {
            let (id, _) = machine.absorb_object(&object(kind, number), at, now.mono);
            machine.put_name(dir, &Name::new(name), Some(id), now);
            id
        };
        let a = add(NodeId::ROOT, b"a", Kind::Dir, 2);
        let b = add(a, b"b", Kind::Dir, 3);
        let file = add(b, b"f", Kind::File, 4);
        let other = add(NodeId::ROOT, b"c", Kind::Dir, 5);
        machine.keep_dirty(file, 0, b"data", &Caller::new(0, 0), now);
        (machine, [a, b, file, other])
    }

    #[test]
    fn where_something_is_that_was_not_sent_stays_known() {
        for is_lost in [false, true] {
            let (mut machine, [a, b, file, other]) = knowing();
            if is_lost {
                machine.lose(b, CapSet::ALL_X);
                machine.lose(a, CapSet::ALL_X);
            }
            machine.trim_to(1);
            let is_known = |id: NodeId| machine.nodes.get(&id).is_some();
            assert!(is_known(file) && is_known(b) && is_known(a) && !is_known(other));
            let remembered = machine.nodes.get(&file).and_then(|n| n.place.clone());
            let place = machine.places().get(&file).cloned().or(remembered);
            assert_eq!(place, Some((b, Name::new(b"f"))));
        }
    }
}
