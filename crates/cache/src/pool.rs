//! Files that the server has made for creates to come (delegated inodes): each is known by number before it has a name, so that
//! what is shown of a new file is what everybody sees of it later. Kept by directory and caller, only where creates are put off
//! anyway; what is not at hand is made as ever, under a number of our own. Nothing relies on one but for its number.

use std::collections::VecDeque;

use holdfast_base::Instant;
use holdfast_base::limits::{
    CAPS_ITEMS_MAX, CAPS_POOL_CALL_MAX, POOL_CALLERS_MAX, POOL_CREATES_MAX, POOL_DIRECTORIES_MAX,
    POOL_FILES_MIN, POOL_FRESH_MS, POOL_IDLE_MS, POOL_NUMBERS_MAX, POOL_PAUSE_MS, POOL_REFUSED_MS,
};
use rustc_hash::FxHashMap;

use crate::errno::Errno;
use crate::ids::{Caller, Handle, NodeId, Now};
use crate::machine::Machine;
use holdfast_base::CapSet;

/// Bits of a mode that a file made beforehand cannot be given later with the same effect.
const SPECIAL_BITS: u32 = 0o7000;

/// A file that the server keeps for a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The file.
    pub handle: Handle,
    /// Its number.
    pub fileid: u64,
}

/// One that is to be what is made here.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    pub(crate) spare: Spare,
    /// When the server made it.
    since: Instant,
}

impl Lent {
    /// A file that is what it is to be already, on the server's disk.
    pub(crate) const fn made(spare: Spare, now: Instant) -> Self {
        Self { spare, since: now }
    }
}

/// Files to be asked for, or to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOut {
    /// The directory that they are for.
    pub dir: Handle,
    /// Who makes them.
    pub caller: Caller,
    /// How many; 0 where some are given back only.
    pub count: u32,
    /// What is given back.
    pub back: Vec<Handle>,
    of: NodeId,
    number: u64,
}

/// Those of one directory and one caller.
#[derive(Debug)]
struct Pool {
    caller: Caller,
    /// Tells it from one that was there before.
    number: u64,
    /// In the order of their making.
    files: VecDeque<(Spare, Instant)>,
    /// How many are to be there.
    size: usize,
    /// Creates since it was begun.
    made: u32,
    used_at: Instant,
    /// Before then nothing is asked for.
    not_before: Instant,
    /// It is to be asked for, or is being.
    is_due: bool,
    /// Its files were used up before more could come.
    was_empty: bool,
}

/// All of a mount.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    kept: FxHashMap<NodeId, Vec<Pool>>,
    /// Those that are to be filled.
    due: VecDeque<(NodeId, u64)>,
    back: Vec<Handle>,
    /// Numbers shown of files that were not heard to be what they were to be, and which those are.
    shown: FxHashMap<u64, Handle>,
    last_number: u64,
    /// Files kept, with those asked for.
    count: usize,
    /// When those that are not used are looked for.
    look_at: Option<Instant>,
}

impl Machine {
    /// The file that is to be what is made now, if there is one.
    pub(crate) fn take_spare(&mut self, dir: NodeId, caller: &Caller, mode: u32, now: Now) -> Option<Lent> {
        // What a journal holds outlives the server's files by far.
        if self.settings.pooled_max == 0 || self.journal.is_some() || mode & SPECIAL_BITS != 0 {
            return None;
        }
        if self.pools.kept.len() >= POOL_DIRECTORIES_MAX && !self.pools.kept.contains_key(&dir) {
            let oldest = self.pools.longest_unused()?;
            self.drop_pools(oldest);
        }
        let pools = &mut self.pools;
        let of_dir = pools.kept.entry(dir).or_default();
        let place = match of_dir.iter().position(|pool| pool.caller == *caller) {
            Some(place) => place,
            None if of_dir.len() >= POOL_CALLERS_MAX => return None,
            None => {
                pools.last_number += 1;
                of_dir.push(Pool::new(caller.clone(), pools.last_number, now.mono));
                of_dir.len() - 1
            }
        };
        let pool = &mut of_dir[place];
        (pool.made, pool.used_at) = (pool.made.saturating_add(1), now.mono);
        pools.look_at.get_or_insert(now.mono.after_ms(POOL_IDLE_MS));
        while pool.files.front().is_some_and(|(_, since)| now.mono.ms_since(*since) >= POOL_FRESH_MS) {
            pools.count -= 1;
            pools.back.extend(pool.files.pop_front().map(|(spare, _)| spare.handle));
        }
        let spare = pool.files.pop_front();
        let after = self.settings.pooled_after;
        if pool.made <= after || pool.made > POOL_CREATES_MAX {
            return self.lend(spare);
        }
        // Before the first were asked for there could be none.
        pool.was_empty |= spare.is_none() && pool.made > after + 1;
        if pool.files.len() <= pool.size / 2 && !pool.is_due && now.mono >= pool.not_before {
            pool.is_due = true;
            pools.due.push_back((dir, pool.number));
        }
        self.lend(spare)
    }

    /// A file's number is shown from now on, and no other's.
    fn lend(&mut self, spare: Option<(Spare, Instant)>) -> Option<Lent> {
        let (spare, since) = spare?;
        self.pools.count -= 1;
        if self.pools.shown.len() >= POOL_NUMBERS_MAX {
            self.pools.back.push(spare.handle);
            return None;
        }
        self.stats.pooled += 1;
        self.pools.shown.insert(spare.fileid, spare.handle.clone());
        Some(Lent { spare, since })
    }

    /// Files to be asked for or given back now, if any. Asked for after all that others wait for.
    pub fn take_pool(&mut self, now: Now) -> Option<PoolOut> {
        if self.pools.look_at.is_some_and(|at| now.mono >= at) {
            self.drop_idle_pools(now);
        }
        while let Some((of, number)) = self.pools.due.pop_front() {
            let room = self.settings.pooled_max.saturating_sub(self.pools.count);
            let dir = self.pool_directory(of);
            let Some(pool) = self.pools.find(of, number) else { continue };
            if std::mem::take(&mut pool.was_empty) {
                pool.size = (pool.size * 2).min(CAPS_POOL_CALL_MAX);
            }
            let count = pool.size.saturating_sub(pool.files.len()).min(room).min(CAPS_POOL_CALL_MAX);
            let Some(dir) = dir.filter(|_| count > 0) else {
                pool.is_due = false;
                continue;
            };
            let caller = pool.caller.clone();
            self.pools.count += count;
            return Some(PoolOut {
                dir,
                caller,
                count: count as u32,
                back: self.pools.take_back(),
                of,
                number,
            });
        }
        if self.pools.back.is_empty() {
            return None;
        }
        let dir = self.nodes.get(&NodeId::ROOT)?.handle.clone()?;
        let (caller, back) = (Caller::new(0, 0), self.pools.take_back());
        Some(PoolOut { dir, caller, count: 0, back, of: NodeId::ROOT, number: 0 })
    }

    /// The handle of a directory in which creates are put off, and of which nothing is about to be changed that decides what
    /// is made in it.
    fn pool_directory(&self, id: NodeId) -> Option<Handle> {
        let node = self.nodes.get(&id)?;
        let is_held = node.plain && node.held.contains(CapSet::FILE_X) && node.recall.is_none();
        node.handle.clone().filter(|_| is_held && node.unsent.is_empty() && node.changing == 0)
    }

    /// What the server has made. `None`: it was not heard.
    pub fn pool_done(&mut self, out: &PoolOut, told: Option<Result<Vec<Spare>, Errno>>, now: Now) {
        let asked = out.count as usize;
        self.pools.count -= asked;
        let (files, pause) = match told {
            Some(Ok(files)) if files.len() < asked => (files, POOL_PAUSE_MS),
            Some(Ok(files)) => (files, 0),
            Some(Err(_)) => (Vec::new(), POOL_REFUSED_MS),
            None => (Vec::new(), POOL_PAUSE_MS),
        };
        let pools = &mut self.pools;
        // It ended meanwhile, or another was begun.
        let Some(pool) =
            pools.kept.get_mut(&out.of).and_then(|all| all.iter_mut().find(|p| p.number == out.number))
        else {
            pools.back.extend(files.into_iter().map(|spare| spare.handle));
            return;
        };
        pool.is_due = false;
        pool.not_before = now.mono.after_ms(pause);
        pools.count += files.len();
        pool.files.extend(files.into_iter().map(|spare| (spare, now.mono)));
    }

    /// A create that was to be of this file was answered, with this handle.
    pub(crate) fn spare_used(&mut self, dir: NodeId, spare: &Spare, made: Option<&Handle>) {
        if made.is_none_or(|made| *made == spare.handle) {
            self.pools.shown.remove(&spare.fileid);
            return;
        }
        // Another was made: what else is kept of that directory is worth as little. The number stays this one's: the server may
        // give it to another.
        self.drop_pools(dir);
    }

    /// A create is not sent, as what it made is gone. It was none that more would follow; its file is the next one's, unless
    /// somebody has what is gone open still, under that number.
    pub(crate) fn create_elided(
        &mut self,
        (dir, node): (NodeId, NodeId),
        caller: &Caller,
        lent: Option<Lent>,
    ) {
        let is_open = self.nodes.get(&node).is_some_and(|node| !node.opens.is_empty());
        let pools = &mut self.pools;
        let of_dir = pools.kept.get_mut(&dir);
        let mut pool = of_dir.and_then(|all| all.iter_mut().find(|pool| pool.caller == *caller));
        if let Some(pool) = &mut pool {
            pool.made = pool.made.saturating_sub(1);
        }
        let Some(Lent { spare, since }) = lent else { return };
        pools.shown.remove(&spare.fileid);
        match pool.filter(|_| !is_open) {
            Some(pool) => {
                pool.files.push_front((spare, since));
                pools.count += 1;
            }
            None => pools.back.push(spare.handle),
        }
    }

    /// Whether another object is shown under a number that the server has given to this one.
    pub(crate) fn is_number_taken(&self, fileid: u64, handle: &Handle) -> bool {
        self.pools.shown.get(&fileid).is_some_and(|of| of != handle)
    }

    /// Nothing is to be made in a directory here any more, or what is made in it will be another thing.
    pub(crate) fn drop_pools(&mut self, dir: NodeId) {
        if self.pools.kept.is_empty() {
            return;
        }
        for pool in self.pools.kept.remove(&dir).unwrap_or_default() {
            self.pools.count -= pool.files.len();
            self.pools.back.extend(pool.files.into_iter().map(|(spare, _)| spare.handle));
        }
    }

    /// The server that kept them is not, or has given up on this client.
    pub(crate) fn forget_pools(&mut self) {
        let pools = &mut self.pools;
        let files: usize = pools.kept.values().flatten().map(|pool| pool.files.len()).sum();
        pools.count -= files;
        pools.kept.clear();
        pools.due.clear();
        pools.back.clear();
    }

    fn drop_idle_pools(&mut self, now: Now) {
        let pools = &mut self.pools;
        let mut back = Vec::new();
        for all in pools.kept.values_mut() {
            all.retain_mut(|pool| {
                let is_used = pool.is_due || now.mono.ms_since(pool.used_at) < POOL_IDLE_MS;
                if !is_used {
                    back.extend(pool.files.drain(..).map(|(spare, _)| spare.handle));
                }
                is_used
            });
        }
        pools.count -= back.len();
        pools.back.extend(back);
        pools.kept.retain(|_, all| !all.is_empty());
        pools.look_at = (!pools.kept.is_empty()).then(|| now.mono.after_ms(POOL_IDLE_MS));
    }

    /// When those that are not used are to be given back.
    pub(crate) fn pools_due(&self) -> Option<Instant> {
        self.pools.look_at
    }
}

impl Pool {
    fn new(caller: Caller, number: u64, now: Instant) -> Self {
        let files = VecDeque::new();
        let (size, made, is_due, was_empty) = (POOL_FILES_MIN, 0, false, false);
        Self { caller, number, files, size, made, used_at: now, not_before: now, is_due, was_empty }
    }
}

impl Pools {
    fn find(&mut self, of: NodeId, number: u64) -> Option<&mut Pool> {
        self.kept.get_mut(&of)?.iter_mut().find(|pool| pool.number == number)
    }

    /// The directory in which nothing was made for the longest.
    fn longest_unused(&self) -> Option<NodeId> {
        let used_at = |all: &Vec<Pool>| all.iter().map(|pool| pool.used_at).max();
        self.kept.iter().min_by_key(|(_, all)| used_at(all)).map(|(dir, _)| *dir)
    }

    fn take_back(&mut self) -> Vec<Handle> {
        let rest = self.back.len().saturating_sub(CAPS_ITEMS_MAX);
        self.back.split_off(rest)
    }

    /// Whether it counts right, for checks: files kept, without those asked for.
    pub(crate) fn is_sound(&self) -> bool {
        let files: usize = self.kept.values().flatten().map(|pool| pool.files.len()).sum();
        files <= self.count
    }
}
