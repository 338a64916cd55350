//! Batches at the server: each executed once, in order, what it made named by where it was made.

use holdfast_cache::*;

use holdfast_base::limits::{CAPS_BATCH_OPS_MAX, CAPS_OPS_KEPT_MAX};

use super::fs::Res;
use super::server::{FILE, LINK, Server, X, ino};

/// How many of the program's operations a batch becomes.
fn operations(batch: &Batch) -> usize {
    let count = batch.ops.iter().map(Mutation::operations).sum();
    assert!(count <= CAPS_BATCH_OPS_MAX, "{count} operations in a batch");
    count
}

impl Server {
    /// A batch, executed once. `Blocked` never happens under the capabilities that a client must hold.
    pub fn batch(&mut self, c: usize, batch: &Batch) -> Vec<MutationResult> {
        self.rpcs += 1;
        let lane = self.lanes.entry(c).or_default();
        if lane.sent.is_empty() {
            // A lane that begins goes on after what its client is done with.
            lane.executed = lane.executed.max(batch.done_through);
        }
        assert!(batch.txn > lane.done, "done with {}, and sent again", batch.txn);
        lane.done = lane.done.max(batch.done_through);
        lane.made.retain(|(txn, _), _| *txn > lane.done);
        lane.results.retain(|txn, _| *txn > lane.done);
        let before = lane.sent.insert(batch.txn, batch.ops.clone());
        assert!(before.is_none_or(|before| before == batch.ops), "another batch under the same number");
        if let Some(results) = lane.results.get(&batch.txn) {
            // What was granted then is told as it is now.
            let mut results = results.clone();
            for result in &mut results {
                if let MutationResult::Done { made: Some(born), .. } = result {
                    born.grant = self.grant(c, ino(&born.handle), CapSet::NONE);
                }
            }
            return results;
        }
        assert_eq!(batch.txn, lane.executed + 1, "in order");
        lane.remembered = lane.remembered.split_off(&(lane.done + 1));
        lane.remembered.insert(batch.txn, operations(batch));
        let kept: usize = lane.remembered.values().sum();
        assert!(kept <= CAPS_OPS_KEPT_MAX + CAPS_BATCH_OPS_MAX, "{kept} operations to be remembered");
        let mut results = Vec::new();
        let mut op = 0;
        for mutation in &batch.ops {
            let made = (batch.txn, op);
            op += mutation.operations() as u32;
            let mut other_name = None;
            results.push(
                match self.mutate(c, mutation, self.uid_of(&batch.caller), (made, &mut other_name)) {
                    Ok(made) => MutationResult::Done { made, other_name, attrs: None },
                    Err(Errno::ENXIO) => MutationResult::Depends,
                    Err(errno) => MutationResult::Failed(errno),
                },
            );
        }
        self.collect();
        let lane = self.lanes.entry(c).or_default();
        lane.executed = batch.txn;
        lane.results.insert(batch.txn, results.clone());
        results
    }

    fn target(&self, c: usize, target: &Target) -> Res<u64> {
        match target {
            Target::Handle(h) => Ok(ino(h)),
            Target::Made { txn, op } => {
                let done = self.lanes.get(&c).map_or(0, |lane| lane.done);
                assert!(*txn > done, "named by transaction {txn}, though done with it");
                self.lanes.get(&c).and_then(|l| l.made.get(&(*txn, *op))).copied().ok_or(Errno::ENXIO)
            }
        }
    }

    /// That a name stands for what its changer saw.
    fn expect(&self, dir: u64, name: &Name, object: u64) -> Res<()> {
        let found = self.fs.look(dir, name.as_bytes());
        if self.unwatched && found? != Some(object) {
            return Err(if found?.is_none() { Errno::ENOENT } else { Errno::ESTALE });
        }
        assert_eq!(found, Ok(Some(object)), "changes what it saw");
        Ok(())
    }

    /// Makes an object, under another name where its own is taken; of a file that was made for it, if that is there.
    fn make(
        &mut self,
        (dir, pooled): (u64, Option<u64>),
        name: &Name,
        (kind, mode, uid): (Kind, u32, u32),
        other: &mut Option<Name>,
    ) -> Res<u64> {
        let mut tried = name.clone();
        for n in 0..9 {
            let made = match pooled {
                Some(i) => self.fs.place(i, dir, tried.as_bytes(), mode).map(|()| i),
                None => self.fs.make(dir, tried.as_bytes(), kind, mode, uid),
            };
            match made {
                Err(Errno::EEXIST) if self.unwatched => {
                    tried =
                        Name::new(format!("{}-K{n}", String::from_utf8_lossy(name.as_bytes())).as_bytes());
                    *other = Some(tried.clone());
                }
                done => return done,
            }
        }
        Err(Errno::EEXIST)
    }

    fn mutate(
        &mut self,
        c: usize,
        mutation: &Mutation,
        uid: u32,
        (made, other): ((u64, u32), &mut Option<Name>),
    ) -> Res<Option<Born>> {
        let free = |s: &mut Self, i: u64, mask: u32| {
            assert!(s.clear(c, i, mask).is_ok(), "a batch meets what another client holds: {mutation:?}");
            assert!(mask != FILE || !s.has_names(c, i), "or is promised: {mutation:?}");
        };
        match mutation {
            Mutation::Make { object: NewObject::File { data, .. }, .. } | Mutation::Write { data, .. }
                if self.is_full && !data.is_empty() =>
            {
                return Err(Errno::ENOSPC);
            }
            Mutation::Make { dir, name, object, attrs, want, joins } => {
                let d = self.target(c, dir)?;
                free(self, d, FILE);
                let kind = match object {
                    NewObject::File { .. } => Kind::File,
                    NewObject::Dir => Kind::Dir,
                    NewObject::Symlink(_) => Kind::Symlink,
                    NewObject::Node(kind, _) => *kind,
                };
                if let (true, Some(there)) = (*joins, self.fs.look(d, name.as_bytes())?)
                    && self.fs.get(there)?.kind == Kind::Dir
                {
                    self.lanes.entry(c).or_default().made.insert(made, there);
                    return Ok(Some(self.born(c, there, CapSet::NONE)));
                }
                let pooled = match object {
                    NewObject::File { pooled: Some(pooled), .. } => Some(ino(pooled)),
                    _ => None,
                };
                // Made or placed by a former life, which has lost its record of that.
                let is_named = |i: &u64| self.fs.get(*i).is_ok_and(|i| i.kind == Kind::File && i.nlink > 0);
                let before = pooled.filter(is_named);
                let pooled = pooled.filter(|i| self.pooled.get(i) == Some(&(c, d, uid)));
                pooled.iter().for_each(|i| {
                    self.pooled.remove(i);
                });
                let i = match before {
                    Some(i) => i,
                    None => self.make((d, pooled), name, (kind, attrs.mode, uid), other)?,
                };
                self.fs.get_mut(i)?.mtime = attrs.mtime.map_or(0, |at| at.seconds);
                match object {
                    NewObject::File { data, size, .. } => {
                        for (offset, bytes) in data {
                            self.fs.write(i, *offset, bytes)?;
                        }
                        if let Some(size) = size {
                            self.fs.get_mut(i)?.data.resize(usize::try_from(*size).unwrap(), 0);
                        }
                    }
                    NewObject::Symlink(text) => self.fs.get_mut(i)?.data = text.to_vec(),
                    _ => {}
                }
                self.lanes.entry(c).or_default().made.insert(made, i);
                let generous = std::mem::replace(&mut self.generous, true);
                let object = self.born(c, i, *want);
                self.generous = generous;
                return Ok(Some(object));
            }
            Mutation::Link { object, dir, name } => {
                let (i, d) = (self.target(c, object)?, self.target(c, dir)?);
                free(self, d, FILE);
                free(self, i, LINK);
                self.fs.link(i, d, name.as_bytes())?;
            }
            Mutation::SetAttr { object, changes } => {
                let i = self.target(c, object)?;
                free(self, i, X);
                self.change(i, changes)?;
            }
            Mutation::Write { object, data, mtime } => {
                let i = self.target(c, object)?;
                free(self, i, FILE);
                for (offset, bytes) in data {
                    self.fs.write(i, *offset, bytes)?;
                }
                self.fs.get_mut(i)?.mtime = mtime.seconds;
            }
            Mutation::Rename { from_dir, from, to_dir, to, mode, victim, over } => {
                let (f, t) = (self.target(c, from_dir)?, self.target(c, to_dir)?);
                let object = self.target(c, victim)?;
                self.expect(f, from, object)?;
                let there = self.fs.look(t, to.as_bytes())?;
                let over = over.as_ref().map(|over| self.target(c, over)).transpose();
                if let (Some(there), Ok(Some(over))) = (there, over)
                    && there != over
                {
                    assert!(self.unwatched, "replaces what it saw");
                    return Err(Errno::EEXIST);
                }
                free(self, f, FILE);
                free(self, t, FILE);
                free(self, object, LINK);
                self.fs.rename((f, from.as_bytes()), (t, to.as_bytes()), *mode)?;
            }
            Mutation::Unlink { dir, name, victim } | Mutation::Rmdir { dir, name, victim } => {
                let (d, object) = (self.target(c, dir)?, self.target(c, victim)?);
                self.expect(d, name, object)?;
                free(self, d, FILE);
                free(self, object, LINK);
                self.fs.remove(d, name.as_bytes(), matches!(mutation, Mutation::Rmdir { .. }))?;
            }
        }
        Ok(None)
    }
}
