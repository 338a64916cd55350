//! One random history, run by the engine and by the reference side by side.

#[path = "promise_steps.rs"]
mod promise_steps;
#[path = "mod.rs"]
mod reference;
#[path = "../suite/world/mod.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::limits::LOCK_HANDOFF_MS;
use holdfast_base::{ClientId, Entropy, FileKey, Seqid};
use holdfast_state::*;
use reference::line::{Had, Manner, Party, Wait as Waiting};
use reference::promises::deed_of_share;
use reference::{BYTES, CLIENTS, FILES, Lock, LockState, Model, OWNERS, Open};
use world::*;

/// The first clients speak 4.1, the last one 4.0.
const FIRST_40: usize = CLIENTS - 1;
/// Leases, that histories are run with in turn: the second one is shorter than who waits for a lock lets pass until he asks again.
pub(crate) const LEASES_MS: [u64; 2] = [LEASE_MS, 10_000];
const OWNER_NAMES: [&str; OWNERS] = ["x", "y"];

struct Run {
    world: World,
    model: Model,
    random: Box<dyn Entropy>,
    ids: [ClientId; CLIENTS],
    incarnation: u8,
    /// Current stateids by client, owner, file.
    opens: BTreeMap<(usize, usize, usize), StateId>,
    locks: BTreeMap<(usize, usize, usize), StateId>,
    /// Descriptors and lock tokens given out and not yet called back.
    descriptors: BTreeSet<OpenId>,
    tokens: BTreeSet<LockToken>,
    next_open: u64,
    /// Delegations by client and file.
    delegations: BTreeMap<(usize, usize), Delegated>,
    /// Revoked, and not yet freed.
    revoked: Vec<(usize, usize, StateId)>,
    /// Delegations given out or offered, and not yet said to have ended.
    delegation_tokens: BTreeSet<DelegationToken>,
    /// What the engine said in this step: locks given to those who waited, or that they were told of; clients forgotten.
    granted: Vec<Had>,
    told: Vec<(Party, usize)>,
    forgotten: Vec<ClientId>,
    asleep: Option<usize>,
    /// In this step the engine was asked something, and its answer judged.
    is_asked: bool,
}

/// How a history ended.
pub(crate) struct Ended {
    /// Nothing is left of it.
    pub(crate) is_clean: bool,
    /// Steps in which the engine was asked something: others find their client asleep, or nothing to close.
    pub(crate) steps: u64,
}

impl Run {
    fn new(random: Box<dyn Entropy>, lease_ms: u64) -> Self {
        let mut run = Self {
            world: World::with_lease(lease_ms),
            model: Model { lease_ms, ..Model::default() },
            random,
            ids: [ClientId(0); CLIENTS],
            incarnation: 0,
            opens: BTreeMap::new(),
            locks: BTreeMap::new(),
            descriptors: BTreeSet::new(),
            tokens: BTreeSet::new(),
            next_open: 1,
            delegations: BTreeMap::new(),
            revoked: Vec::new(),
            delegation_tokens: BTreeSet::new(),
            granted: Vec::new(),
            told: Vec::new(),
            forgotten: Vec::new(),
            asleep: None,
            is_asked: false,
        };
        run.model.now = run.world.now;
        let courtesy_clients_max = [4, 1, 0][run.pick(3)];
        // What a client may know of a directory is no matter of promises; it has tests of its own.
        let directories = Directories::Always;
        run.world.engine.set_policy(Policy { courtesy_clients_max, directories, ..Policy::default() });
        (0..CLIENTS).for_each(|client| run.boot(client));
        run
    }

    fn pick(&mut self, below: usize) -> usize {
        (self.random.u64() % below as u64) as usize
    }

    fn access(&mut self, with_none: bool) -> Access {
        let from = usize::from(!with_none);
        let bits = from + self.pick(4 - from);
        Access::from_bits(bits as u32).unwrap()
    }

    fn caller(&self, client: usize) -> Caller {
        if client < FIRST_40 { Caller::V41(self.ids[client]) } else { Caller::V40 }
    }

    /// A new incarnation of a client.
    fn boot(&mut self, client: usize) {
        self.is_asked = true;
        self.incarnation = self.incarnation.wrapping_add(1);
        let name = format!("client {client}");
        self.ids[client] = if client < FIRST_40 {
            self.world.client(&name, self.incarnation).0
        } else {
            self.world.client40(&name, self.incarnation)
        };
        self.world.engine.callback_path(self.ids[client], true);
        self.model.seen[client] = self.world.now;
        self.model.gone[client] = false;
        self.model.leaving.remove(&client);
        self.lost(client);
        self.settle();
        self.forgotten.clear();
    }

    fn lost(&mut self, client: usize) {
        self.model.forget(client);
        self.model.let_in();
        self.opens.retain(|key, _| key.0 != client);
        self.locks.retain(|key, _| key.0 != client);
        self.delegations.retain(|key, _| key.0 != client);
        self.revoked.retain(|(holder, ..)| *holder != client);
    }

    /// Every request of a client begins with a sign of life.
    fn renew(&mut self, client: usize) {
        self.is_asked = true;
        let id = self.ids[client];
        if client < FIRST_40 {
            self.world.renew(id);
        } else {
            self.world.engine.renew(id, self.world.now).unwrap();
            self.world.engine.locks_are_back(id);
        }
        self.model.seen[client] = self.world.now;
    }

    fn step(&mut self) {
        let client = self.pick(CLIENTS);
        if self.asleep == Some(client) {
            // Long enough for its lease to run out now and then.
            if self.pick(20) == 0 {
                self.asleep = None;
            }
            return;
        }
        if self.model.gone[client] {
            return self.boot(client);
        }
        let (owner, file) = (self.pick(OWNERS), self.pick(FILES));
        match self.pick(70) {
            0 | 1 => self.pass(self.model.lease_ms / 2),
            2 => self.boot(client),
            3 | 40 => self.tick(),
            41 => self.revoke_client(client),
            42 => self.asleep = Some(client),
            43 => {
                let ms = [400, LOCK_HANDOFF_MS, 5000][self.pick(3)];
                self.pass(ms);
            }
            44..70 => self.promise_step(client),
            4..=11 => self.open(client, owner, file),
            12..=14 => self.downgrade(client, owner, file),
            15..=17 => self.close(client, owner, file),
            18..=29 => self.lock(client, owner, file),
            30..=34 => self.unlock(client, owner, file),
            35..=37 => self.io(client, owner, file),
            _ => self.anonymous_io(file),
        }
    }

    /// Time passes. Where somebody's wait comes to its end with it the tick comes too, as the next one would be the first to
    /// pass him by; now and then after others have seen that nothing is kept for him any more.
    fn pass(&mut self, ms: u64) {
        self.world.pass(ms);
        self.model.now = self.world.now;
        if !self.model.has_over() {
            return;
        }
        let (client, owner, file) = (self.pick(CLIENTS), self.pick(OWNERS), self.pick(FILES));
        if !self.model.gone[client] && self.asleep != Some(client) && !self.model.has_away_holders() {
            self.test_lock(client, owner, file);
        }
        self.tick();
    }

    /// LOCKT: as LOCK, but nothing changes.
    fn test_lock(&mut self, client: usize, owner: usize, file: usize) {
        self.renew(client);
        let kind = if self.pick(2) == 0 { LockKind::Read } else { LockKind::Write };
        let (first, last) = self.span();
        let test = LockTest {
            client: self.ids[client],
            owner: OWNER_NAMES[owner].as_bytes(),
            file: FileKey(file as u128),
            range: bytes(first as u64, last as u64),
            kind,
        };
        let now = self.world.now;
        let free = self.model.can_lock(Lock { client, owner, file, byte: first, kind }, last, now);
        let result = self.world.engine.lock_test(&test, now);
        assert_eq!(result.is_ok(), free, "{test:?}: {result:?}");
    }

    fn tick(&mut self) {
        self.is_asked = true;
        self.settle();
        self.note_lost();
        let now = self.world.now;
        let away: Vec<_> =
            (0..CLIENTS).filter(|c| !self.model.gone[*c] && self.model.is_away(*c, now)).collect();
        self.world.engine.tick(now);
        // Whoever is passed by is in nobody's way from the beginning.
        self.model.pass_by();
        for client in std::mem::take(&mut self.model.leaving) {
            self.lost(client);
        }
        self.settle();
        self.note_leaving(&away);
        self.model.expire_waited_for();
        self.model.contend_for_waiters();
        let kept = away.iter().filter(|c| !self.model.gone[**c] && self.model.holds(**c)).count();
        let max = self.world.engine.policy().courtesy_clients_max;
        assert!(kept <= max, "{kept} kept by courtesy");
        self.model.revoke_overdue(now);
        self.note_lost();
        let census = self.world.engine.census();
        let opens = self.opens.len();
        // One for reading and one for writing, or one for both.
        let is_right = (opens..=2 * opens).contains(&self.descriptors.len());
        assert!(is_right, "one or two descriptors for every open");
        assert_eq!(self.tokens.len(), self.locks.len(), "a token for every lock state, and no more");
        assert_eq!(census.locks, self.model.lock_states.len());
        assert_eq!(self.delegation_tokens.len(), self.model.delegations.len());
        assert_eq!(census.recalls, self.model.delegations.iter().filter(|d| d.recalled.is_some()).count());
        assert_eq!(census.waiters, self.model.waits.len());
        assert_eq!(census.delegations_revoked, self.revoked.len());
    }

    /// Clients that go after a tick: none that was not away, and none with state while courtesy has room.
    fn note_leaving(&mut self, away: &[usize]) {
        let max = self.world.engine.policy().courtesy_clients_max;
        // Who goes on the spot is known no more.
        let known = self.world.engine.report_clients(self.world.now);
        let is_known = |id: &ClientId| known.iter().any(|client| client.id == *id);
        let (leaving, expired) = std::mem::take(&mut self.forgotten).into_iter().partition(is_known);
        self.forgotten = expired;
        let leaving: Vec<ClientId> = leaving;
        for id in leaving {
            let client = self.ids.iter().position(|other| *other == id).unwrap();
            assert!(away.contains(&client), "client {client} is not away");
            assert!(away.len() > max || !self.model.holds(client), "client {client} had courtesy to expect");
            self.model.gone[client] = true;
            self.model.leaving.insert(client);
        }
    }

    /// Takes note of what a step cost others, which the engine must have said.
    fn note_lost(&mut self) {
        self.model.let_in();
        for (client, file) in std::mem::take(&mut self.model.newly_revoked) {
            if let Some(of) = self.delegations.remove(&(client, file)) {
                self.revoked.push((client, file, of.stateid));
            }
        }
        let mut lost = std::mem::take(&mut self.model.expired);
        lost.iter().for_each(|client| self.lost(*client));
        let mut forgotten: Vec<_> = std::mem::take(&mut self.forgotten)
            .into_iter()
            .map(|id| self.ids.iter().position(|other| *other == id).unwrap())
            .collect();
        lost.sort_unstable();
        forgotten.sort_unstable();
        // Told twice of one that was going when somebody wanted what it had.
        forgotten.dedup();
        assert_eq!(lost, forgotten, "clients expired on the spot");
        let granted = |list: &mut Vec<Had>| {
            let mut list = std::mem::take(list);
            list.sort_unstable_by_key(|(lock, last)| (lock.client, lock.file, lock.byte, *last, lock.kind));
            list
        };
        assert_eq!(granted(&mut self.granted), granted(&mut self.model.granted), "given to those who waited");
        // Of several clients that are lost together one may be told, for a moment, that it can have what another had.
        let waits: BTreeSet<_> = self.model.waits.iter().map(|w| (w.lock.party(), w.lock.file)).collect();
        let told = |list: &mut Vec<(Party, usize)>| {
            let mut list = std::mem::take(list);
            list.retain(|told| waits.contains(told));
            list.sort_unstable();
            list
        };
        assert_eq!(told(&mut self.told), told(&mut self.model.told), "told that they may have it");
        self.compare_lines();
    }

    /// Who waits for what, in which order.
    fn compare_lines(&self) {
        for file in 0..FILES {
            let all = self.world.engine.report_file(FileKey(file as u128));
            let line = all.into_iter().filter_map(|holding| match (holding.held, holding.holder) {
                (Held::Waiting(range, kind), HolderReport::Foreign(owner)) => {
                    Some((None, owner.id as usize, range, kind))
                }
                (Held::Waiting(range, kind), HolderReport::Nfs4 { client, owner, .. }) => {
                    let name = owner?;
                    let owner = OWNER_NAMES.iter().position(|of| of.as_bytes() == name.as_bytes())?;
                    Some((Some(client), owner, range, kind))
                }
                _ => None,
            });
            let waits = self.model.waits.iter().filter(|wait| wait.lock.file == file);
            let expected = waits.map(|Waiting { lock, last, .. }| {
                let range = bytes(lock.byte as u64, *last as u64);
                match lock.client.checked_sub(CLIENTS) {
                    Some(foreign) => (None, foreign, range, lock.kind),
                    None => (Some(self.ids[lock.client]), lock.owner, range, lock.kind),
                }
            });
            assert_eq!(line.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "the line of {file}");
        }
    }

    fn revoke_client(&mut self, client: usize) {
        assert!(self.world.engine.revoke_client(self.ids[client], self.world.now));
        self.boot(client);
    }

    fn open(&mut self, client: usize, owner: usize, file: usize) {
        self.renew(client);
        // Mostly friendly, or nothing would ever be granted.
        let deny = if self.pick(6) == 0 { self.access(true) } else { NONE };
        let new = Open { client, owner, file, share: share(self.access(false), deny) };
        let request = OpenRequest {
            client: self.ids[client],
            owner: OWNER_NAMES[owner].as_bytes(),
            file: FileKey(file as u128),
            share: new.share,
            claim: Claim::New,
        };
        let result = self.world.engine.open(&request, self.world.now);
        let now = self.world.now;
        let can_share = self.model.is_denied_by_nobody_here(new, now);
        // An owner that has not opened the file may not know of its client's delegation.
        let by = self.model.has_open(client, owner, file).then_some(client);
        let is_promised = can_share && self.model.contend(file, deed_of_share(new.share), by, now);
        if can_share && !is_promised {
            assert!(self.model.can_open(new, now));
        }
        let expected = match (can_share, is_promised) {
            (false, _) => Some(StateError::ShareDenied),
            (true, true) => Some(StateError::Delay),
            (true, false) => None,
        };
        assert_eq!(result.as_ref().err().copied(), expected, "{new:?}");
        let Ok(opened) = result else { return };
        if let Backing::Needed(access) = opened.backing {
            let id = OpenId(self.next_open);
            self.next_open += 1;
            self.world.engine.attach(&opened.ticket, id, access).unwrap();
            self.descriptors.insert(id);
        }
        if self.pick(8) == 0 {
            // The backend refuses: nothing has happened.
            return self.world.engine.open_undo(opened.ticket, self.world.now);
        }
        let mut stateid = self.world.engine.open_commit(opened.ticket).unwrap();
        if opened.is_confirm_needed {
            stateid = self.world.engine.open_confirm(stateid, FileKey(file as u128), self.world.now).unwrap();
        }
        self.model.opens.push(new);
        self.opens.insert((client, owner, file), stateid);
    }

    fn downgrade(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.opens.get(&(client, owner, file)).copied() else { return };
        self.renew(client);
        let target = share(self.access(false), if self.pick(3) == 0 { self.access(true) } else { NONE });
        let (caller, key) = (self.caller(client), FileKey(file as u128));
        let result = self.world.engine.open_downgrade(caller, stateid, key, target, self.world.now);
        assert_eq!(
            result.is_ok(),
            self.model.downgrade(client, owner, file, target),
            "{target:?}: {result:?}"
        );
        if let Ok(stateid) = result {
            self.model.apply_downgrade(client, owner, file, target);
            self.opens.insert((client, owner, file), stateid);
        }
    }

    fn close(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.opens.remove(&(client, owner, file)) else { return };
        self.renew(client);
        let caller = self.caller(client);
        self.world.engine.close(caller, stateid, FileKey(file as u128), self.world.now).unwrap();
        self.model.close(client, owner, file);
        let left = &self.model.lock_states;
        self.locks.retain(|key, _| left.iter().any(|s| (s.client, s.owner, s.file) == *key));
    }

    fn span(&mut self) -> (usize, usize) {
        let (a, b) = (self.pick(BYTES), self.pick(BYTES));
        (a.min(b), a.max(b))
    }

    fn lock(&mut self, client: usize, owner: usize, file: usize) {
        let open_owner = self.pick(OWNERS);
        let Some(open) = self.opens.get(&(client, open_owner, file)).copied() else { return };
        self.renew(client);
        let mut kind = if self.pick(2) == 0 { LockKind::Read } else { LockKind::Write };
        let (mut first, mut last) = self.span();
        let waits_for = self.model.waited_for((client, owner), file);
        if let Some((lock, end)) = waits_for.filter(|_| self.pick(3) > 0) {
            // Told or not, it asks for the same again.
            (kind, first, last) = (lock.kind, lock.byte, end);
        }
        let known = self.locks.get(&(client, owner, file)).copied();
        let by = match known {
            Some(lock) if self.pick(2) == 0 => LockBy::Lock(lock),
            _ => LockBy::Open { open, owner: OWNER_NAMES[owner].as_bytes(), first_seqid: None, client: None },
        };
        let request = LockRequest {
            caller: self.caller(client),
            by,
            wait: [Wait::No, Wait::Notify, Wait::Notify, Wait::Poll][self.pick(4)],
            ..lock_by(self.ids[client], file as u128, open, "", bytes(first as u64, last as u64), kind)
        };
        let new = Lock { client, owner, file, byte: first, kind };
        // By an existing lock stateid it is the open behind that which must allow the lock.
        let behind =
            self.model.lock_states.iter().find(|s| (s.client, s.owner, s.file) == (client, owner, file));
        let through = match (by, behind) {
            (LockBy::Lock(_), Some(state)) => state.open_owner,
            _ => open_owner,
        };
        let needed = if kind == LockKind::Read { R } else { W };
        let allowed = self.model.share(client, through, file).unwrap().access.contains(needed);
        let now = self.world.now;
        let free = allowed && self.model.can_lock(new, last, now);
        let manner = match request.wait {
            Wait::No => None,
            Wait::Notify => Some(Manner::Told),
            Wait::Poll => Some(Manner::Polls),
        };
        let is_dead = manner.is_some() && allowed && !free && self.model.would_deadlock(new, last);
        match self.world.engine.lock_prepare(&request, now) {
            Err(LockRefusal::Error(StateError::OpenMode)) => assert!(!allowed),
            Err(LockRefusal::Denied(_)) => {
                assert!(allowed && !free && !is_dead, "{new:?}..{last}");
                if let Some(manner) = manner {
                    self.model.wait(Waiting::new(new, last, manner, now));
                }
            }
            Err(LockRefusal::Error(StateError::Deadlock)) => {
                assert!(is_dead, "{new:?}..{last}");
                self.model.waits_no_more(Lock { byte: 0, ..new }, BYTES);
                self.model.let_in();
            }
            Err(other) => panic!("{other:?}"),
            Ok(ticket) => {
                assert!(free, "{new:?}..{last}");
                self.tokens.insert(ticket.token());
                self.finish_lock(ticket, new, last, open_owner);
            }
        }
    }

    fn finish_lock(&mut self, ticket: LockTicket, new: Lock, last: usize, open_owner: usize) {
        self.check("between prepare and the end");
        let before = self.model.locks.clone();
        self.model.strengthen(new, last);
        self.model.waits_no_more(new, last);
        self.model.let_in();
        if self.pick(6) == 0 {
            assert!(self.world.engine.lock_abort(ticket, self.world.now));
            let is_its = |l: &Lock| (l.party(), l.file) == (new.party(), new.file);
            self.model.locks.retain(|lock| !is_its(lock));
            self.model.locks.extend(before.into_iter().filter(is_its));
            return self.model.let_in();
        }
        let stateid = self.world.engine.lock_commit(ticket, self.world.now).unwrap();
        self.model.lock(new, last);
        let Lock { client, owner, file, .. } = new;
        if self.locks.insert((client, owner, file), stateid).is_none() {
            self.model.lock_states.push(LockState { client, owner, file, open_owner });
        }
    }

    fn unlock(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.locks.get(&(client, owner, file)).copied() else { return };
        self.renew(client);
        let (first, last) = self.span();
        let range = bytes(first as u64, last as u64);
        let stateid = self.world.unlock(self.caller(client), stateid, file as u128, range).unwrap();
        self.model.unlock(Lock { client, owner, file, byte: first, kind: LockKind::Read }, last);
        self.locks.insert((client, owner, file), stateid);
    }

    fn io(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.opens.get(&(client, owner, file)).copied() else { return };
        self.renew(client);
        let access = if self.pick(2) == 0 { R } else { W };
        let own = self.model.share(client, owner, file).unwrap();
        let allowed = if (access, own.access) == (Access::READ, Access::WRITE) {
            self.model.can_read_for_write((client, owner), file, self.world.now)
        } else {
            own.access.contains(access)
        };
        let caller = self.caller(client);
        let result = self.world.io(caller, stateid, file as u128, access);
        assert_eq!(result.is_ok(), allowed, "{result:?}");
        if let Ok(IoGrant::Open(id)) = result {
            assert!(self.descriptors.contains(&id));
        }
        let old = StateId { seqid: Seqid(stateid.seqid.0.wrapping_sub(1)), ..stateid };
        if old.seqid != Seqid(0) {
            assert_eq!(self.world.io(caller, old, file as u128, access), Err(StateError::OldStateid));
        }
    }

    fn anonymous_io(&mut self, file: usize) {
        self.is_asked = true;
        let access = self.access(false);
        let result =
            self.world.engine.check_io(FileKey(file as u128), access, IoBy::Anonymous, self.world.now);
        assert_eq!(result.is_ok(), self.model.can_do_io(file, access, self.world.now));
    }

    fn settle(&mut self) {
        for effect in self.world.engine.take_effects() {
            match effect {
                Effect::CloseFile(id) => assert!(self.descriptors.remove(&id), "{id:?} closed twice"),
                Effect::ReleaseLocks(token) => {
                    assert!(self.tokens.remove(&token), "{token:?} released twice");
                }
                Effect::DelegationEnded { token, .. } => {
                    assert!(self.delegation_tokens.remove(&token), "{token:?} ended twice");
                }
                Effect::ForeignGranted { owner, file, range, kind } => {
                    let (client, file) = (CLIENTS + owner.id as usize, file.0 as usize);
                    let lock = Lock { client, owner: 0, file, byte: range.first() as usize, kind };
                    self.granted.push((lock, range.last() as usize));
                }
                Effect::NotifyLock { client, file, owner } => {
                    let client = self.ids.iter().position(|id| *id == client).unwrap();
                    let owner =
                        OWNER_NAMES.iter().position(|name| name.as_bytes() == owner.as_bytes()).unwrap();
                    self.told.push(((client, owner), file.0 as usize));
                }
                Effect::ForgetClient(client) => self.forgotten.push(client),
                _ => {}
            }
        }
    }

    fn check(&self, when: &str) {
        if let Err(what) = invariant::check(&self.world.engine) {
            panic!("{when}: {what}");
        }
    }
}

/// One history of so many choices. All of them come from `random`, which a fuzzer may make as well as a seed.
pub(crate) fn history(random: Box<dyn Entropy>, choices: u64, lease_ms: u64) -> Ended {
    let mut run = Run::new(random, lease_ms);
    let mut steps = 0;
    for _ in 0..choices {
        run.is_asked = false;
        run.step();
        steps += u64::from(run.is_asked);
        run.check("after a step");
        run.settle();
        run.note_lost();
        if run.pick(400) == 0 {
            run.world.restart_as_planned();
            run.model.restart_as_planned();
        }
    }
    run.tick();
    no_courtesy(&mut run.world);
    run.everybody_leaves();
    run.world.pass(lease_ms + 1);
    run.model.now = run.world.now;
    run.tick();
    run.tick();
    let is_clean = run.world.engine.census() == Census::default()
        && run.descriptors.is_empty()
        && run.tokens.is_empty()
        && run.delegation_tokens.is_empty();
    Ended { is_clean, steps }
}
