//! One random history, run by the engine and by the reference side by side.

#[path = "lock_steps.rs"]
mod lock_steps;
#[path = "open_steps.rs"]
mod open_steps;
#[path = "promise_steps.rs"]
mod promise_steps;
#[path = "reclaim_steps.rs"]
mod reclaim_steps;
#[path = "records.rs"]
mod records;
#[path = "mod.rs"]
mod reference;
#[path = "restart_steps.rs"]
mod restart_steps;
#[path = "settling.rs"]
mod settling;
#[path = "../suite/world/mod.rs"]
pub(crate) mod world;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::limits::LOCK_HANDOFF_MS;
use holdfast_base::{ClientId, Entropy};
use holdfast_state::*;
use records::Records;
use reference::line::{Had, Party};
use reference::{CLIENTS, FILES, FIRST_40, FOREIGN, Model, OWNERS};
use world::*;

/// How many of eight steps of those who are recovering bring them further, where they take their time.
const SLOW: usize = 2;
/// Leases, that histories are run with in turn: the second one is shorter than who waits for a lock lets pass until he asks again.
pub(crate) const LEASES_MS: [u64; 2] = [LEASE_MS, 10_000];
const OWNER_NAMES: [&str; OWNERS] = ["x", "y"];

struct Run {
    world: World,
    model: Model,
    random: Box<dyn Entropy>,
    ids: [ClientId; CLIENTS],
    incarnation: u8,
    /// Their incarnations.
    verifiers: [u8; CLIENTS],
    records: Records,
    crashes: u64,
    /// After so many more choices the server dies.
    crashes_in: Option<usize>,
    /// They have heard of the last restart.
    is_back: [bool; CLIENTS],
    /// How many of eight steps of those who are recovering bring them further.
    haste: usize,
    /// Some reclaim what they did not have.
    has_liars: bool,
    /// Nobody comes by another door.
    is_nfs4_alone: bool,
    counts: Counts,
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

/// How often what happened.
pub(crate) type Counts = BTreeMap<String, u64>;

/// How a history ended.
pub(crate) struct Ended {
    /// Nothing is left of it.
    pub(crate) is_clean: bool,
    /// Steps in which the engine was asked something: others find their client asleep, or nothing to close.
    pub(crate) steps: u64,
    /// What came of restarts and reclaims.
    #[allow(dead_code, reason = "a fuzzer does not count")]
    pub(crate) counts: Counts,
}

impl Run {
    fn new(random: Box<dyn Entropy>, lease_ms: u64) -> Self {
        let mut run = Self {
            world: World::with_lease(lease_ms),
            model: Model { lease_ms, ..Model::default() },
            random,
            ids: [ClientId(0); CLIENTS],
            incarnation: 0,
            verifiers: [0; CLIENTS],
            records: Records::default(),
            crashes: 0,
            crashes_in: None,
            is_back: [true; CLIENTS],
            has_liars: false,
            is_nfs4_alone: false,
            haste: 0,
            counts: Counts::new(),
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
        run.has_liars = run.pick(3) == 0;
        run.is_nfs4_alone = run.pick(3) == 0;
        run.names_witness();
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
        if !self.is_back[client] {
            return self.come_back(client);
        }
        if self.model.gone[client] {
            return self.boot(client);
        }
        let has_revoked = self.revoked.iter().any(|(holder, ..)| *holder == client);
        if self.model.is_grace() && has_revoked && self.pick(2) == 0 {
            return self.reclaim_revoked(client);
        }
        if self.is_recovering(client) && self.pick(8) < self.haste {
            return self.recover(client);
        }
        let (owner, file) = (self.pick(OWNERS), self.pick(FILES));
        if self.crashes_in.is_some() {
            return self.take_hold(client, owner, file);
        }
        if self.model.is_grace() {
            let who = CLIENTS + self.pick(FOREIGN);
            match self.pick(10) {
                0 | 1 => return self.recover_foreign(who),
                2 => return self.claim(client, owner, file),
                3 => return self.claim_foreign(who, file),
                4 if self.haste == SLOW => return self.pass(self.model.lease_ms / 4),
                5 if self.haste == SLOW => return self.contend(file),
                _ => {}
            }
        }
        match self.pick(73) {
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
            70 | 71 => self.claim(client, owner, file),
            72 => {
                let who = CLIENTS + self.pick(FOREIGN);
                self.claim_foreign(who, file);
            }
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
        if self.model.recovery.grace_until.is_some() && !self.model.is_grace() {
            self.count("grace: time over");
            self.end_grace();
        }
        if !self.model.has_over() {
            return;
        }
        let (client, owner, file) = (self.pick(CLIENTS), self.pick(OWNERS), self.pick(FILES));
        let is_here = self.is_back[client] && !self.model.gone[client] && self.asleep != Some(client);
        if is_here && !self.model.has_away_holders() {
            self.test_lock(client, owner, file);
        }
        self.tick();
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
        self.tick_grace();
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

    fn revoke_client(&mut self, client: usize) {
        assert!(self.world.engine.revoke_client(self.ids[client], self.world.now));
        self.boot(client);
    }

    /// Now and then the server is restarted, as planned or by a crash, before which clients take hold of more than they else have.
    fn perhaps_restart(&mut self) {
        match (self.crashes_in, self.pick(400)) {
            (Some(0), _) => self.crash(),
            (Some(left), _) => self.crashes_in = Some(left - 1),
            (None, 0) => {
                self.world.restart_as_planned();
                self.model.restart_as_planned();
                self.names_witness();
            }
            (None, 1 | 2) => self.crashes_in = Some(self.pick(20)),
            (None, 3) if self.model.is_grace() => self.crash(),
            _ => {}
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
        run.perhaps_restart();
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
    Ended { is_clean, steps, counts: run.counts }
}
