//! Mounts against one server, and the reference model beside them.
#![allow(dead_code, unreachable_pub, missing_docs, unused_imports)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::too_many_lines, clippy::too_many_arguments)]

pub mod away;
pub mod batches;
pub mod choice;
pub mod client;
pub mod fs;
pub mod names;
pub mod ops;
pub mod server;
pub mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use client::{Client, Kernel};
use holdfast_base::{Instant, Timestamp};
use holdfast_cache::*;
use server::{Blocked, Server};

pub use ops::{Model, Op, Out};

/// Numbers that look random, from a seed.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % sides
    }
}

pub struct World {
    pub server: Server,
    pub clients: Vec<Client>,
    pub dice: Dice,
    pub ms: u64,
    /// An operation of another client, to be done while the next question is under way.
    pub interject: Option<(usize, Op)>,
    pub interjected: Option<Out>,
    /// What the server has on disk, in tests in which it loses the rest.
    pub disk: Option<Server>,
    /// Replies to batches and writes are lost now and then.
    pub loses: bool,
    /// The server is killed now and then, and begins anew.
    pub restarts: bool,
    /// What the first mount keeps on its disk, where it does.
    pub kept: Option<BTreeMap<Vec<u8>, bytes::Bytes>>,
    /// What files contain, in blocks, where the first mount keeps that.
    pub store: Option<store::Store>,
    /// So many slots it has.
    pub slots: u32,
    /// Deltas that the disk has not taken yet, and whether it takes any.
    pub owed: Vec<Change>,
    pub is_behind: bool,
    /// The server is away: there is nobody to ask.
    pub alone: bool,
    /// What files hold is put into the kernel's pages a while after that was decided, now and then, and takes a while.
    pub stores_late: bool,
    /// Files for creates to come are made whenever they are asked for.
    pub pools: bool,
    /// What is to be read ahead is, now and then; else that is left to the test.
    pub reads_ahead: bool,
}

pub fn settings(caps: bool) -> Settings {
    let full = Settings { batch_ops_max: 4, batches_in_flight_max: 3, io_bytes: 64, ..Settings::full() };
    let full = Settings { pooled_max: 6, pooled_after: 1, ahead_after: 1, ..full };
    if caps { full } else { Settings { caps: false, batches: false, ..full } }
}

impl World {
    pub fn new(clients: usize, caps: bool, seed: u64) -> Self {
        let mut server = Server::new(caps);
        let root = server.root();
        // Of one mount reads and writes are cut into parts; of two each is one moment, so that it has an order.
        let io_bytes = if clients == 1 { 64 } else { client::PAGE_BYTES as u32 };
        let client = |_| Client {
            machine: Machine::new(&root, Settings { io_bytes, ..settings(caps) }),
            kernel: Kernel::default(),
            told: VecDeque::default(),
            is_storing: false,
            nameless: BTreeSet::default(),
            fds: Default::default(),
            appending: Default::default(),
            direct: Default::default(),
            was_uncovered: false,
            replies: Vec::new(),
            pooling: Vec::new(),
            reading: Vec::new(),
            asks: 0,
        };
        let mut clients: Vec<_> = (0..clients).map(client).collect();
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        if clients.len() > 1 {
            server.is_shy = dice.roll(2) == 0;
            server.is_terse = seed.is_multiple_of(2);
            let is_direct = dice.roll(2) == 0;
            clients.iter_mut().for_each(|c| c.machine.settings_mut().direct = is_direct);
            // Of some kernels both are told no names, of some one.
            clients
                .iter_mut()
                .zip([3, 5])
                .for_each(|(c, n)| c.machine.settings_mut().names = !seed.is_multiple_of(n));
        }
        Self {
            server,
            clients,
            dice,
            ms: 1,
            interject: None,
            interjected: None,
            disk: None,
            loses: false,
            restarts: false,
            kept: None,
            store: None,
            slots: 0,
            owed: Vec::new(),
            is_behind: false,
            alone: false,
            stores_late: false,
            pools: false,
            reads_ahead: true,
        }
    }

    pub fn now(&self) -> Now {
        let wall = Timestamp { seconds: i64::try_from(self.ms).unwrap(), nanos: 0 };
        Now { mono: Instant(self.ms), wall }
    }

    pub fn check(&self, c: usize) {
        if let Err(wrong) = invariant::check(&self.clients[c].machine) {
            panic!("client {c}: {wrong}");
        }
    }

    /// Runs one operation of the machine to its end.
    pub fn run<T>(
        &mut self,
        c: usize,
        op: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.run_as(c, &Caller::new(7, 0), op)
    }

    /// The same for somebody.
    pub fn run_as<T>(
        &mut self,
        c: usize,
        caller: &Caller,
        op: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.go_on(c, Turn::new(caller.clone()), op)
    }

    /// Runs one that was begun to its end.
    pub fn go_on<T>(
        &mut self,
        c: usize,
        mut turn: Turn,
        mut op: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        for _ in 0..2000 {
            let now = self.now();
            let step = op(&mut self.clients[c].machine, &mut turn, now);
            self.check(c);
            match step {
                Step::Done(v) => {
                    self.clients[c].was_uncovered = turn.is_uncovered();
                    return Ok(v);
                }
                Step::Failed(errno) => return Err(errno),
                Step::Ask(ask) if ask.question.is_of_disk() => {
                    let answer = self.ask_disk(&ask.question);
                    self.meanwhile(c);
                    let now = self.now();
                    self.clients[c].machine.absorb(&mut turn, *ask, answer, now);
                    self.check(c);
                }
                Step::Ask(ask) if self.alone => {
                    if ask.question.is_mutation() {
                        let now = self.now();
                        self.clients[c].machine.absorb(&mut turn, *ask, Err(Errno::ETIMEDOUT), now);
                    }
                    return Err(Errno::ETIMEDOUT);
                }
                Step::Wait(_) if self.alone => return Err(Errno::ETIMEDOUT),
                Step::Wait(_) => {
                    self.pump(c);
                    self.deliver();
                }
                Step::Ask(ask) => {
                    self.clients[c].asks += 1;
                    let answer = self.perform(c, &ask);
                    self.meanwhile(c);
                    let now = self.now();
                    self.clients[c].machine.absorb(&mut turn, *ask, answer, now);
                    self.check(c);
                }
            }
        }
        panic!("client {c} goes round and round: {turn:?}");
    }

    pub fn perform(&mut self, c: usize, ask: &Ask) -> Result<Answer, Errno> {
        for _ in 0..2000 {
            match self.server.answer(c, ask) {
                Ok(answer) => return answer,
                Err(Blocked) => self.unblock(),
            }
        }
        let others: Vec<_> = self.clients.iter().map(|c| (&c.machine, c.replies.len())).collect();
        panic!("client {c} waits for ever for {ask:?}: {:?}\n{others:?}", self.server.held);
    }

    /// What happens while an answer is under way.
    fn meanwhile(&mut self, c: usize) {
        if let Some((other, op)) = self.interject.take() {
            assert_ne!(c, other);
            self.interjected = Some(self.apply(other, &op));
        }
        if self.restarts && self.dice.roll(24) == 0 {
            self.restart();
        }
        if self.dice.roll(3) == 0 {
            self.deliver();
            let any = usize::try_from(self.dice.roll(self.clients.len() as u64)).unwrap();
            self.pump(any);
        }
    }

    /// The server is killed and begins anew; all it had executed is there. What its clients held it gives back, but now
    /// and then not all, and where nothing is queued perhaps nothing (what is queued without a promise others miss).
    pub fn restart(&mut self) {
        let idle = |c: &Client| c.machine.pending() == Pending::default() && c.replies.is_empty();
        let is_idle = self.clients.iter().all(idle);
        let claims: Vec<_> = self.clients.iter().map(|c| c.machine.reclaim_list()).collect();
        self.server.restart();
        let gives = if is_idle { self.dice.roll(4) } else { 3 };
        let now = self.now();
        for (c, claims) in claims.iter().enumerate() {
            let mut told = Vec::new();
            for claim in claims {
                if gives == 3 || self.dice.roll(4) < gives {
                    told.push(self.server.reclaim(c, claim));
                } else if self.dice.roll(2) == 0 {
                    told.push(Reclaimed { handle: claim.handle.clone(), result: Err(Errno::EAGAIN) });
                }
            }
            let machine = &mut self.clients[c].machine;
            if gives == 0 {
                machine.caps_lost(now);
            } else {
                machine.reclaimed(told, now);
            }
            let executed = self.server.lanes.get(&c).map_or(0, |l| l.executed);
            self.clients[c].machine.resume(Some(executed), 0, now);
            self.check(c);
        }
        // Grace is longer than these take.
        for c in 0..self.clients.len() {
            self.invalidate(c);
            self.pump_small(c, now);
        }
    }

    /// Those who hold what somebody wants do their part.
    fn unblock(&mut self) {
        self.deliver();
        for c in 0..self.clients.len() {
            self.pump(c);
        }
    }

    pub fn deliver(&mut self) {
        let now = self.now();
        for (c, recall) in std::mem::take(&mut self.server.recalls) {
            self.clients[c].machine.recalled(&recall.handle, recall.keep, recall.seq, now);
            if self.dice.roll(8) == 0 {
                self.clients[c].machine.recalled(&recall.handle, recall.keep, recall.seq, now);
            }
            self.check(c);
        }
    }

    fn lost(&mut self) -> bool {
        self.loses && self.dice.roll(4) == 0
    }

    /// One round of a mount's background threads.
    pub fn pump(&mut self, c: usize) {
        self.ms += self.dice.roll(20);
        let now = self.now();
        self.invalidate(c);
        self.pump_batches(c, now);
        self.check(c);
        self.pump_data(c, now);
        if let Some(through) = self.clients[c].machine.take_stable(now) {
            if self.lost() {
                self.clients[c].machine.stable_lost();
            } else {
                self.put_on_disk();
                self.clients[c].machine.stable_done(through, &[], now);
            }
        }
        self.pump_small(c, now);
        self.pump_store(c);
        self.pump_pools(c, now);
        self.pump_ahead(c, now);
        self.check(c);
    }

    /// WRITEs that are due, and a COMMIT.
    pub fn pump_data(&mut self, c: usize, now: Now) {
        while let Some(out) = self.clients[c].machine.take_write(now) {
            self.keep(c);
            let result = loop {
                match self.server.write(c, &out) {
                    Ok(result) => break result,
                    Err(Blocked) => self.deliver_to_others(c),
                }
            };
            if self.lost() {
                self.clients[c].machine.write_lost(out.id, now);
            } else {
                self.clients[c].machine.write_done(out.id, result, now);
            }
            self.check(c);
        }
        if let Some(out) = self.clients[c].machine.take_commit(now) {
            if self.lost() {
                self.clients[c].machine.commit_lost(out.id);
            } else {
                let committed = self.server.commit(&out);
                if committed.is_ok() {
                    self.put_on_disk();
                }
                self.clients[c].machine.commit_done(out.id, committed, now);
            }
            self.check(c);
        }
    }

    /// Small files are read ahead, as many as nobody has to give back; now and then that comes late, or not at all.
    fn pump_ahead(&mut self, c: usize, now: Now) {
        while self.reads_ahead
            && let Some(out) = self.clients[c].machine.take_ahead(now)
        {
            let told = self.read_ahead(c, &out);
            if self.dice.roll(2) == 0 {
                self.clients[c].reading.push((out, told));
            } else {
                self.clients[c].machine.ahead_done(&out, told, now);
            }
            self.check(c);
        }
        if self.dice.roll(3) == 0 {
            for (out, told) in std::mem::take(&mut self.clients[c].reading) {
                self.clients[c].machine.ahead_done(&out, told, now);
                self.check(c);
            }
        }
    }

    /// The server's part of that: one call.
    pub fn read_ahead(&mut self, c: usize, out: &AheadOut) -> Option<client::Told> {
        self.server.aheads += 1;
        let mut told = Vec::new();
        for (object, length) in &out.files {
            let question = Question::Read {
                object: object.clone(),
                open: None,
                offset: 0,
                length: *length,
                from_disk: false,
            };
            let ask = Ask { at: Generation::default(), caller: out.caller.clone(), question };
            let read = match self.server.answer(c, &ask) {
                Ok(Ok(Answer::Read { data, .. })) => Some(data),
                _ => None,
            };
            told.push(read);
        }
        Some(told).filter(|_| self.dice.roll(8) != 0)
    }

    /// Files for creates to come are made; now and then there are none, or nothing is heard.
    fn pump_pools(&mut self, c: usize, now: Now) {
        while let Some(out) = self.clients[c].machine.take_pool(now) {
            let told = match if self.pools { 7 } else { self.dice.roll(8) } {
                0 => Some(Err(Errno::EOPNOTSUPP)),
                1 => None,
                _ => Some(self.server.pool(c, &out)),
            };
            if told.as_ref().is_some_and(Result::is_ok) && !self.pools && self.dice.roll(4) == 0 {
                self.clients[c].pooling.push((out, told));
            } else {
                self.clients[c].machine.pool_done(&out, told, now);
            }
            self.check(c);
        }
        if self.dice.roll(3) == 0 {
            for (out, told) in std::mem::take(&mut self.clients[c].pooling) {
                self.clients[c].machine.pool_done(&out, told, now);
                self.check(c);
            }
        }
    }

    /// Brings what the first mount keeps on its disk up to date.
    pub fn keep(&mut self, c: usize) {
        let Some(kept) = self.kept.as_mut().filter(|_| c == 0) else { return };
        self.owed.extend(self.clients[0].machine.take_changes());
        if self.is_behind {
            return;
        }
        for change in std::mem::take(&mut self.owed) {
            match change {
                Change::Put(key, value) => drop(kept.insert(key, value)),
                Change::Remove(key) => drop(kept.remove(&key)),
                Change::RemoveAll(prefix) => kept.retain(|key, _| !key.starts_with(&prefix)),
            }
        }
        self.clients[0].machine.changes_count();
    }

    pub fn put_on_disk(&mut self) {
        if self.disk.is_some() {
            self.disk = Some(self.server.clone());
        }
    }

    fn deliver_to_others(&mut self, c: usize) {
        self.deliver();
        for other in (0..self.clients.len()).filter(|o| *o != c) {
            self.pump(other);
        }
    }

    pub fn invalidate(&mut self, c: usize) {
        let client = &mut self.clients[c];
        client.told.extend(client.machine.take_invalidations());
        while let Some(next) = self.clients[c].told.pop_front() {
            self.clients[c].machine.forgetting(next.number);
            if !self.is_told(c, &next) {
                return self.clients[c].told.push_front(next);
            }
            self.clients[c].machine.invalidated(next.number);
        }
    }

    /// Tells a mount's kernel something; of what it is to be given that is not begun at once now and then, or not over.
    fn is_told(&mut self, c: usize, next: &Invalidation) -> bool {
        if let Forget::Store(node, whole) = &next.what {
            if self.is_late() {
                return false;
            }
            if !self.clients[c].is_storing {
                self.clients[c].is_storing = self.clients[c].machine.begin_store(*node, whole);
                if !self.clients[c].is_storing {
                    return true;
                }
                if self.is_late() {
                    return false;
                }
            }
            let client = &mut self.clients[c];
            assert!(client.fds.values().all(|(_, open)| open != node), "nobody has {node:?} open");
            client.is_storing = false;
            client.machine.stored(*node, true);
        }
        if let Forget::Data(node) | Forget::Pages(node, ..) = &next.what
            && self.clients[c].machine.waits_for_store(*node)
        {
            return false;
        }
        self.clients[c].kernel.apply(next);
        true
    }

    fn is_late(&mut self) -> bool {
        self.stores_late && self.dice.roll(2) == 0
    }

    fn pump_batches(&mut self, c: usize, now: Now) {
        while let Some(batch) = self.clients[c].machine.take_batch(now) {
            self.keep(c);
            let before = self.clients[c].replies.iter().position(|(b, ..)| b.txn == batch.txn);
            let results = self.server.batch(c, &batch);
            if let Some(place) = before {
                self.clients[c].replies.remove(place);
            }
            if self.lost() {
                self.clients[c].machine.batch_lost(batch.txn);
                break;
            }
            if batch.until == Until::Stable {
                self.put_on_disk();
            }
            self.clients[c].replies.push((batch, results));
        }
        while !self.clients[c].replies.is_empty() && self.dice.roll(4) != 0 {
            let which = usize::try_from(self.dice.roll(self.clients[c].replies.len() as u64)).unwrap();
            let (batch, results) = self.clients[c].replies.remove(which);
            let txn = batch.txn;
            if batch.until == Until::Stable {
                self.clients[c].machine.batch_answered(&batch, results, (txn, &[]), now);
                self.check(c);
                continue;
            }
            let stable = if self.disk.is_none() && self.dice.roll(3) == 0 { txn } else { 0 };
            let earlier = self.clients[c].replies.iter().map(|(b, ..)| b.txn).min();
            let stable = if earlier.is_some_and(|e| e < stable) { 0 } else { stable };
            self.clients[c].machine.batch_done(txn, results, stable, now);
            self.check(c);
        }
    }

    fn pump_small(&mut self, c: usize, now: Now) {
        for (fh, handle, access, caller) in self.clients[c].machine.take_opens() {
            let object = handle.clone();
            let question = Question::Open { object, access, truncate: false, want: CapSet::NONE };
            let ask = Ask { at: Generation::default(), caller, question };
            let answer = loop {
                match self.server.answer(c, &ask) {
                    Ok(answer) => break answer,
                    Err(Blocked) => self.deliver_to_others(c),
                }
            };
            let token = match answer {
                Ok(Answer::Opened { open, .. }) => open,
                _ => None,
            };
            self.clients[c].machine.opened(fh, &handle, token);
        }
        let releases = self.clients[c].machine.take_releases(now);
        self.keep(c);
        for release in releases {
            self.clients[c].machine.released(std::slice::from_ref(&release));
            if !self.server.release(c, &release) {
                self.clients[c].machine.release_crossed(&release.handle);
            }
        }
        for (token, _) in self.clients[c].machine.take_closes() {
            self.server.close(token);
        }
        for (dir, name, caller) in self.clients[c].machine.take_removals() {
            let question =
                Question::Remove { dir, name, is_dir: false, victim: None, want_dir: CapSet::NONE };
            let ask = Ask { at: Generation::default(), caller, question };
            while self.server.answer(c, &ask).is_err() {
                self.deliver_to_others(c);
            }
        }
    }

    /// All that the first client has queued, as the one batch in which it goes out.
    pub fn one_batch(&mut self) -> Batch {
        let now = self.now();
        let machine = &mut self.clients[0].machine;
        let synced = machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
        assert!(matches!(synced, Step::Wait(_)));
        let batch = machine.take_batch(now).expect("a batch");
        assert!(machine.take_batch(now).is_none(), "one of all");
        batch
    }

    /// The first mount comes to have its root to itself, with some names in it that are known to be absent.
    pub fn have_root_alone(&mut self) {
        self.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
        for name in [b"x", b"y", b"z", b"v"] {
            self.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
        }
        self.drain();
    }

    /// A file that the first mount has made, and has open to be read and written.
    pub fn made_and_open(&mut self, name: &[u8]) -> (NodeId, Fh) {
        let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
        let made = self.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags, now)).unwrap();
        (made.0.node, made.1.fh)
    }

    /// What was sent is soon handed to the kernel, for want of room here: of some seeds.
    pub fn have_little_room(&mut self, seed: u64) {
        if seed.is_multiple_of(3) {
            return;
        }
        self.stores_late = seed.is_multiple_of(2);
        let most = usize::try_from(seed % 4).unwrap() * 250;
        self.clients.iter_mut().for_each(|c| c.machine.settings_mut().clean_bytes_max = most);
    }

    /// Everything reaches the server.
    pub fn drain(&mut self) {
        for c in 0..self.clients.len() {
            let synced = self.run(c, |m, turn, now| m.sync(turn, now));
            assert_eq!(synced, Ok(()), "nothing fails late: {:?}", self.clients[c].machine.take_reports());
        }
        self.unblock();
    }
}
