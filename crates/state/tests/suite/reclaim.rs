//! After a restart, over random histories: the engine beside lists of what each has by now. In grace the recorded reclaim
//! what goes together, and nothing new is given; after it nothing is reclaimed, and only who is done gets anything new
//! (RFC 8881 sections 8.4.2 and 18.51).

use std::collections::BTreeMap;

use crate::world::*;
use holdfast_base::{ClientId, Entropy, FileKey, Instant, SeededEntropy};
use holdfast_state::*;

const HISTORIES: u64 = 1500;
const STEPS: usize = 60;
const CLIENTS: usize = 4;
const FILES: usize = 2;
const BYTES: usize = 6;
/// The last client speaks 4.0, and cannot say that it is done.
const FIRST_40: usize = CLIENTS - 1;
/// Counted on from the clients: those of NLM.
const FOREIGN: usize = 2;
/// Within a lease of the beginning, whatever a history does: nobody is away.
const GRACE_ENDS: Instant = Instant(15_000);

struct Held {
    who: usize,
    file: usize,
    share: Share,
}

/// One byte.
struct Locked {
    who: usize,
    file: usize,
    byte: usize,
    kind: LockKind,
}

struct Run {
    world: World,
    random: SeededEntropy,
    ids: Vec<ClientId>,
    /// Whether the records let it reclaim; for all its claims.
    recorded: Vec<Recorded>,
    is_done: [bool; CLIENTS],
    is_over: bool,
    held: Vec<Held>,
    locked: Vec<Locked>,
    opens: BTreeMap<(usize, usize), StateId>,
    /// How often what was asked was given, in grace and after it.
    given: [u32; 2],
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World::with(config(2, Grace::Until(GRACE_ENDS)));
        let ids = (0..CLIENTS).map(|client| {
            let name = format!("client {client}");
            if client >= FIRST_40 {
                return world.client40(&name, 1);
            }
            let exchanged = world.exchange(&name, 1).unwrap();
            world.create(exchanged.client, exchanged.next_seqid).unwrap();
            exchanged.client
        });
        let ids = ids.collect();
        let mut random = SeededEntropy(seed);
        let recorded = (0..CLIENTS)
            .map(|_| if random.u64().is_multiple_of(4) { Recorded::No } else { Recorded::Yes })
            .collect();
        let (held, locked, opens) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (is_done, is_over, given) = ([false; CLIENTS], false, [0; 2]);
        Self { world, random, ids, recorded, is_done, is_over, held, locked, opens, given }
    }

    fn pick(&mut self, below: usize) -> usize {
        (self.random.u64() % below as u64) as usize
    }

    fn is_grace(&self) -> bool {
        !self.is_over && self.world.now < GRACE_ENDS
    }

    fn claim(&mut self, client: usize) -> Claim {
        if self.pick(3) == 0 { Claim::New } else { Claim::Reclaim(self.recorded[client]) }
    }

    /// What a claim is answered by its grounds alone. `has_it`: it asks for what its owner has.
    fn refused(&self, client: usize, claim: Claim, has_it: bool) -> Option<StateError> {
        let is_done = self.is_done[client];
        match claim {
            // Its recovery was cut off and begins again.
            Claim::Reclaim(_) if has_it && client < FIRST_40 && !is_done => None,
            Claim::Reclaim(recorded) if self.is_grace() && !is_done => {
                (recorded == Recorded::No).then_some(StateError::ReclaimBad)
            }
            Claim::Reclaim(_) => Some(StateError::NoGrace),
            // A client of 4.0 is never heard to be done, and is not waited for.
            _ if self.is_grace() || (client < FIRST_40 && !is_done) => Some(StateError::Grace),
            _ => None,
        }
    }

    fn step(&mut self) {
        let (client, file) = (self.pick(CLIENTS), self.pick(FILES));
        match self.pick(20) {
            0 => self.world.pass(1000),
            1 if self.pick(4) == 0 => {
                self.is_over = true;
                self.world.engine.set_grace(Grace::Over);
            }
            2 if client < FIRST_40 => {
                let said = self.world.engine.reclaim_complete(self.ids[client]);
                assert_eq!(said.is_ok(), !self.is_done[client]);
                self.is_done[client] = true;
            }
            3 | 4 => self.look(file),
            5..=9 => self.open(client, file),
            10..=15 => self.lock(client, file),
            16..=18 => self.foreign(file),
            _ => self.world.pass(200),
        }
        assert_eq!(invariant::check(&self.world.engine), Ok(()));
    }

    /// I/O of nobody's in particular.
    fn look(&mut self, file: usize) {
        let result = self.world.io(Caller::V41(self.ids[0]), StateId::ANONYMOUS, file as u128, W);
        let is_denied = self.held.iter().any(|held| held.file == file && held.share.deny.contains(W));
        match result {
            Err(StateError::Grace) => assert!(self.is_grace()),
            other => assert!(!self.is_grace() && other.is_err() == is_denied, "{other:?}"),
        }
    }

    fn open(&mut self, client: usize, file: usize) {
        let claim = self.claim(client);
        let access = [R, W, RW][self.pick(3)];
        let share = share(access, if self.pick(4) == 0 { [R, W, RW][self.pick(3)] } else { NONE });
        let request =
            OpenRequest { client: self.ids[client], owner: b"o", file: FileKey(file as u128), share, claim };
        let result = self.world.engine.open(&request, self.world.now);
        // What the owner has reclaimed it may reclaim once more, when its recovery was interrupted and begins again.
        let counts = |held: &&Held| claim == Claim::New || held.who != client;
        let its = self.held.iter().filter(|held| held.file == file);
        let is_in_way = its.filter(counts).any(|held| held.share.conflicts(share));
        let in_way = match claim {
            Claim::Reclaim(_) => StateError::ReclaimConflict,
            _ => StateError::ShareDenied,
        };
        let own = self.held.iter().filter(|held| (held.who, held.file) == (client, file));
        let own = own
            .fold((NONE, NONE), |(access, deny), held| (access | held.share.access, deny | held.share.deny));
        let has_it = own.0.contains(access) && own.1.contains(share.deny);
        let expected = self.refused(client, claim, has_it).or(is_in_way.then_some(in_way));
        assert_eq!(result.as_ref().err().copied(), expected, "{client} {claim:?} {share:?}");
        let Ok(opened) = result else { return };
        if let Backing::Needed(access) = opened.backing {
            let id = OpenId(self.world.next_open);
            self.world.next_open += 1;
            self.world.engine.attach(&opened.ticket, id, access).unwrap();
        }
        let mut stateid = self.world.engine.open_commit(opened.ticket).unwrap();
        if opened.is_confirm_needed {
            assert_eq!(claim, Claim::New, "who reclaims is known");
            stateid = self.world.engine.open_confirm(stateid, request.file, self.world.now).unwrap();
        }
        self.opens.insert((client, file), stateid);
        self.held.push(Held { who: client, file, share });
        self.given[usize::from(!self.is_grace())] += 1;
    }

    /// Whether a lock is in somebody's way; and the bytes that it would have.
    fn span(&mut self, who: usize, file: usize, kind: LockKind) -> (bool, std::ops::RangeInclusive<usize>) {
        let (a, b) = (self.pick(BYTES), self.pick(BYTES));
        let span = a.min(b)..=a.max(b);
        let mut others = self.locked.iter().filter(|lock| lock.who != who && lock.file == file);
        (others.any(|lock| span.contains(&lock.byte) && lock.kind.conflicts(kind)), span)
    }

    fn note(&mut self, who: usize, file: usize, kind: LockKind, span: std::ops::RangeInclusive<usize>) {
        self.locked.retain(|lock| (lock.who, lock.file) != (who, file) || !span.contains(&lock.byte));
        self.locked.extend(span.map(|byte| Locked { who, file, byte, kind }));
        self.given[usize::from(!self.is_grace())] += 1;
    }

    fn lock(&mut self, client: usize, file: usize) {
        let Some(open) = self.opens.get(&(client, file)).copied() else { return };
        let own = self.held.iter().filter(|held| (held.who, held.file) == (client, file));
        let writes = own.into_iter().any(|held| held.share.access.contains(W));
        let reads = self
            .held
            .iter()
            .any(|held| (held.who, held.file) == (client, file) && held.share.access.contains(R));
        let kind = match (reads, writes) {
            (true, true) => [LockKind::Read, LockKind::Write][self.pick(2)],
            (true, false) => LockKind::Read,
            _ => LockKind::Write,
        };
        let (claim, (is_in_way, span)) = (self.claim(client), self.span(client, file, kind));
        let caller = if client < FIRST_40 { Caller::V41(self.ids[client]) } else { Caller::V40 };
        let range = bytes(*span.start() as u64, *span.end() as u64);
        let request =
            LockRequest { caller, claim, ..lock_by(self.ids[client], file as u128, open, "l", range, kind) };
        let result = self.world.lock(&request);
        let has = |byte| {
            let mut own =
                self.locked.iter().filter(|lock| (lock.who, lock.file, lock.byte) == (client, file, byte));
            own.any(|lock| lock.kind == kind || lock.kind == LockKind::Write)
        };
        let has_it = span.clone().all(has);
        // What nobody else can have had its owner may lock anew.
        let is_its_own = has_it && claim == Claim::New && (self.is_done[client] || client >= FIRST_40);
        let refused = self.refused(client, claim, has_it).filter(|_| !is_its_own);
        match (refused, is_in_way) {
            (Some(error), _) => assert_eq!(result, Err(LockRefusal::Error(error)), "{client} {claim:?}"),
            (None, false) => {
                result.unwrap();
                self.note(client, file, kind, span);
            }
            (None, true) if claim == Claim::New => assert!(matches!(result, Err(LockRefusal::Denied(_)))),
            (None, true) => assert_eq!(result, Err(LockRefusal::Error(StateError::ReclaimConflict))),
        }
    }

    fn foreign(&mut self, file: usize) {
        let who = CLIENTS + self.pick(FOREIGN);
        let kind = [LockKind::Read, LockKind::Write][self.pick(2)];
        let (is_in_way, span) = self.span(who, file, kind);
        let claim = [ForeignClaim::New, ForeignClaim::Reclaim][self.pick(2)];
        let request = ForeignRequest {
            owner: ForeignOwner { door: Door::Nlm, id: who as u64 },
            file: FileKey(file as u128),
            range: bytes(*span.start() as u64, *span.end() as u64),
            kind,
            claim,
            wait: ForeignWait::No,
        };
        let result = self.world.engine.foreign_prepare(&request, self.world.now);
        match (claim, self.is_grace()) {
            (ForeignClaim::New, true) => assert_eq!(result, Err(StateError::Grace.into())),
            (ForeignClaim::Reclaim, false) => assert_eq!(result, Err(StateError::NoGrace.into())),
            _ if is_in_way => assert!(result.is_err()),
            _ => {
                assert!(self.world.engine.foreign_commit(result.unwrap(), self.world.now));
                self.note(who, file, kind, span);
            }
        }
    }
}

/// `HOLDFAST_MODEL_SECONDS` makes it longer, `HOLDFAST_MODEL_SEED` says where to begin.
#[test]
fn who_gets_what_after_a_restart_is_what_the_lists_say() {
    let (course, mut histories, mut given) = (Course::asked_for(), 0, [0; 2]);
    while !course.is_over(histories, HISTORIES) {
        let seed = course.first + histories;
        let mut run = Run::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                run.step();
                drop(run.world.settle());
            }
        }));
        assert!(outcome.is_ok(), "seed {seed}");
        given = [given[0] + u64::from(run.given[0]), given[1] + u64::from(run.given[1])];
        histories += 1;
    }
    println!("given in {histories} histories: {} in grace, {} after it", given[0], given[1]);
    assert!(given.iter().all(|count| *count > histories), "{given:?}");
}

/// The open was reclaimed in a life of the server that ended before the locks through it were: a client with sessions is to
/// begin with the open again, and is not told of anything lost.
#[test]
fn a_lock_reclaimed_through_an_open_of_the_life_before_sends_its_client_back_to_the_open() {
    let mut former = World::with(config(2, Grace::Until(GRACE_ENDS)));
    let mut world = World::with(config(3, Grace::Until(GRACE_ENDS)));
    let claim = Claim::Reclaim(Recorded::Yes);
    // Restored, it would have the id that it had; nothing here depends on that.
    let [(open, _), (_, client)] = [&mut former, &mut world].map(|life| {
        let (client, _) = life.reclaiming("a", 1);
        (life.open_claiming(client, "o", 1, share(RW, NONE), claim).unwrap(), client)
    });
    let by = lock_by(client, 1, open, "l", bytes(0, 9), LockKind::Write);
    let exists = LockRequest { by: LockBy::Lock(open), ..by };
    for request in [by, exists] {
        let refused = |claim| LockRefusal::Error(claim);
        let reclaim = LockRequest { claim, ..request };
        assert_eq!(world.lock(&reclaim), Err(refused(StateError::StaleClientid)));
        assert_eq!(world.lock(&request), Err(refused(StateError::StaleStateid)));
        let of_40 = LockRequest { caller: Caller::V40, ..reclaim };
        assert_eq!(world.lock(&of_40), Err(refused(StateError::StaleStateid)), "which says so there");
    }
    world.engine.reclaim_complete(client).unwrap();
    let late = world.lock(&LockRequest { claim, ..by });
    assert_eq!(late, Err(LockRefusal::Error(StateError::BadStateid)));
}

/// RFC 8881 section 8.2.2: the number counts changes. Linux, which forgets its opens' before it reclaims, waits five seconds
/// where the first that it hears of is another than 1.
#[test]
fn an_open_reclaimed_twice_in_one_life_keeps_its_stateid_and_another_share_changes_it() {
    let mut world = World::with(config(2, Grace::Until(GRACE_ENDS)));
    let (client, _) = world.reclaiming("a", 1);
    let claim = Claim::Reclaim(Recorded::Yes);
    let shares = [share(R, NONE), share(R, NONE), share(RW, NONE), share(R, NONE), share(W, NONE)];
    let seqids = shares.map(|share| world.open_claiming(client, "o", 1, share, claim).unwrap().seqid.0);
    assert_eq!(seqids, [1, 1, 2, 2, 3]);
    world.engine.set_grace(Grace::Over);
    world.engine.reclaim_complete(client).unwrap();
    assert_eq!(world.open(client, "o", 1, share(R, NONE)).unwrap().seqid.0, 4, "that is another OPEN");
}
