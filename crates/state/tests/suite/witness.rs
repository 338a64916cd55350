//! Nothing changes hands before it is on record: what a client that goes held, and what is revoked from one that lives on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::world::*;
use holdfast_base::{ByteRange, ClientId, FileKey, SessionId};
use holdfast_state::*;

/// Counts what it is asked, and says no while the disk is broken.
#[derive(Default)]
struct Record {
    is_broken: AtomicBool,
    asked: AtomicUsize,
}

impl Record {
    fn answer(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        !self.is_broken.load(Ordering::Relaxed)
    }

    fn breaks(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::Relaxed);
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

impl Witness for Record {
    fn forget(&self, _: &[ClientId]) -> bool {
        self.answer()
    }

    fn note_losses(&self, _: ClientId, _: bool) -> bool {
        self.answer()
    }
}

const FILE: FileKey = FileKey(1);
const NLM: ForeignOwner = ForeignOwner { door: Door::Nlm, id: 1 };

struct Case {
    world: World,
    record: Arc<Record>,
    /// Who is away.
    gone: ClientId,
    session: SessionId,
    open: StateId,
    /// Who is there, and has the file open, denying nothing.
    other: ClientId,
    others_open: StateId,
}

/// One that holds an open, denying writing if it is to, and a lock, and whose lease has run out.
fn case(deny: Access) -> Case {
    let mut world = World::new();
    let record = Arc::new(Record::default());
    world.engine.set_witness(record.clone());
    let (gone, session) = world.client("gone", 1);
    let open = world.open(gone, "o", 1, share(RW, deny)).unwrap();
    world.lock(&lock_by(gone, 1, open, "l", bytes(0, 9), LockKind::Write)).unwrap();
    world.pass(LEASE_MS + 1);
    let (other, _) = world.client("other", 1);
    let others_open = if deny == NONE { world.open(other, "o", 1, share(RW, NONE)).unwrap() } else { open };
    world.engine.tick(world.now);
    world.settle();
    assert_eq!(record.asked(), 0, "nothing has changed hands");
    Case { world, record, gone, session, open, other, others_open }
}

/// A wish of somebody else.
type Wish = fn(&mut Case) -> Result<(), StateError>;

/// What may be wanted of what the dead client holds.
const WISHES: [(Access, Wish); 8] = [
    (W, |c| c.world.open(c.other, "o", 1, share(W, NONE)).map(drop)),
    (W, |c| c.world.engine.check_io(FILE, W, IoBy::Nfs3, c.world.now).map(drop)),
    (W, |c| c.world.engine.check_io(FILE, W, IoBy::Anonymous, c.world.now).map(drop)),
    (W, |c| c.world.engine.foreign_share(NLM, FILE, share(W, NONE), ForeignClaim::New, c.world.now)),
    (NONE, |c| {
        let request = lock_by(c.other, 1, c.others_open, "l", bytes(0, 0), LockKind::Read);
        c.world.lock(&request).map(drop).map_err(error)
    }),
    (NONE, |c| {
        let (client, range, kind) = (c.other, bytes(0, 0), LockKind::Read);
        let test = LockTest { client, owner: b"x", file: FILE, range, kind };
        match c.world.engine.lock_test(&test, c.world.now) {
            // Asking takes nothing: who is told of a lock asks again.
            Err(LockRefusal::Denied(_)) => Err(StateError::Delay),
            outcome => outcome.map_err(error),
        }
    }),
    (NONE, |c| match c.world.engine.foreign_lock(NLM, FILE, ByteRange::ALL, LockKind::Write, c.world.now) {
        Err(refusal) => Err(error(refusal)),
        Ok(()) => Ok(()),
    }),
    (NONE, |c| {
        let stranger = Principal::new(b"stranger");
        c.world.exchange_as("gone", 1, &stranger, ExchangeIntent::Establish).map(drop)
    }),
];

fn error(refusal: LockRefusal) -> StateError {
    match refusal {
        LockRefusal::Error(error) => error,
        LockRefusal::Denied(conflict) => panic!("{conflict:?}"),
    }
}

#[test]
fn what_the_dead_held_is_nobodys_until_their_record_is_gone() {
    for (n, (deny, wish)) in WISHES.into_iter().enumerate() {
        let mut case = case(deny);
        let held = case.world.engine.census();
        case.record.breaks(true);
        assert_eq!(wish(&mut case), Err(StateError::Delay), "wish {n}");
        assert_eq!(wish(&mut case), Err(StateError::Delay), "wish {n}");
        assert!(case.record.asked() > 0);
        let left = case.world.engine.census();
        assert_eq!((left.opens, left.locks), (held.opens, held.locks), "wish {n}");
        // Its record may be gone: it must not act on what it may not reclaim.
        assert_eq!(case.world.sequence(case.session, 0, 1), Err(StateError::BadSession), "wish {n}");
        let own = case.world.io(Caller::V41(case.gone), case.open, 1, W);
        assert_eq!(own, Err(StateError::StaleClientid), "wish {n}");
        case.world.settle();
        case.record.breaks(false);
        assert_eq!(wish(&mut case), Ok(()), "wish {n}");
        assert!(case.world.settle().contains(&Effect::ForgetClient(case.gone)), "wish {n}");
    }
}

#[test]
fn the_tick_goes_on_trying_what_could_not_be_taken_off_the_record() {
    let mut case = case(W);
    case.record.breaks(true);
    assert_eq!(case.world.open(case.other, "o", 1, share(W, NONE)), Err(StateError::Delay));
    for _ in 0..3 {
        case.world.engine.tick(case.world.now);
        assert_eq!(case.world.engine.census().opens, 1);
    }
    case.record.breaks(false);
    case.world.engine.tick(case.world.now);
    case.world.settle();
    assert_eq!(case.world.engine.census().opens, 0);
    assert!(case.world.open(case.other, "o", 1, share(W, NONE)).is_ok());
}

#[test]
fn a_leave_whose_record_stays_is_not_gone_through_with() {
    let mut case = case(W);
    case.record.breaks(true);
    no_courtesy(&mut case.world);
    for _ in 0..3 {
        case.world.engine.tick(case.world.now);
        assert_eq!(case.world.engine.census().opens, 1);
    }
    // It may come itself, and finds its former self gone first.
    assert_eq!(case.world.exchange("gone", 2), Err(StateError::Delay));
    case.record.breaks(false);
    assert!(case.world.exchange("gone", 2).is_ok());
    case.world.settle();
    assert_eq!(case.world.engine.census().opens, 0);
}

#[test]
fn a_delegation_of_the_dead_is_waited_for_until_their_record_is_gone() {
    let mut world = World::new();
    let record = Arc::new(Record::default());
    world.engine.set_witness(record.clone());
    let (gone, _) = world.client("gone", 1);
    let of = world.delegate(gone, 1, DelegationKind::Write);
    world.pass(LEASE_MS + 1);
    record.breaks(true);
    assert!(world.contend(1, Deed::OpenRead, None));
    assert_eq!(ended(&world.settle()), []);
    record.breaks(false);
    assert!(!world.contend(1, Deed::OpenRead, None));
    assert_eq!(ended(&world.settle()), [of.token]);
}

#[test]
fn what_is_revoked_is_taken_only_when_it_is_on_record() {
    let mut world = World::new();
    let record = Arc::new(Record::default());
    world.engine.set_witness(record.clone());
    let (holder, session) = world.client("holder", 1);
    let of = world.delegate(holder, 1, DelegationKind::Write);
    let open = world.open(holder, "o", 2, share(RW, NONE)).unwrap();
    assert!(world.contend(1, Deed::OpenRead, None));
    world.pass(LEASE_MS);
    world.sequence(session, 0, 1).unwrap();
    world.settle();
    record.breaks(true);
    assert_eq!(world.engine.revoke_state(open, world.now), Err(StateError::Delay));
    world.engine.tick(world.now);
    assert!(world.contend(1, Deed::OpenRead, None), "its time is over, and it is still its holder's");
    assert_eq!(world.settle(), []);
    assert_eq!(world.engine.test_stateid(holder, of.stateid), Ok(()));
    record.breaks(false);
    assert!(!world.contend(1, Deed::OpenRead, None));
    assert_eq!(ended(&world.settle()), [of.token]);
    assert_eq!(world.engine.revoke_state(open, world.now), Ok(()));
}

#[test]
fn nothing_is_asked_where_nothing_that_may_be_reclaimed_changes_hands() {
    let mut world = World::new();
    let record = Arc::new(Record::default());
    world.engine.set_witness(record.clone());
    let (a, session) = world.client("a", 1);
    let open = world.open(a, "o", 1, share(RW, W)).unwrap();
    world.lock(&lock_by(a, 1, open, "l", bytes(0, 9), LockKind::Write)).unwrap();
    let (b, _) = world.client("b", 1);
    assert_eq!(world.open(b, "o", 1, share(W, NONE)), Err(StateError::ShareDenied));
    world.engine.close(Caller::V41(a), open, FILE, world.now).unwrap();
    world.engine.destroy_session(session, 0).unwrap();
    world.engine.destroy_clientid(a, world.now).unwrap();
    // Who comes back after a restart of its own has nothing any more, on record or not.
    world.open(b, "o", 1, share(RW, W)).unwrap();
    world.client("b", 2);
    world.engine.tick(world.now);
    world.settle();
    assert_eq!(record.asked(), 0);
}

#[test]
fn a_revocation_is_acknowledged_by_whatever_ends_the_last_name_that_tells_of_it() {
    // By CLOSE of the open that a lock was made from, by RELEASE_LOCKOWNER, and in 4.0 by whatever is answered so.
    let acknowledged = |effects: &[Effect], client| {
        effects.iter().filter(|effect| **effect == Effect::RevocationsAcknowledged { client }).count()
    };
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let open = world.open(a, "o", 1, share(RW, NONE)).unwrap();
    let one = world.lock(&lock_by(a, 1, open, "l", bytes(0, 9), LockKind::Write)).unwrap();
    let two = world.lock(&lock_by(a, 1, open, "m", bytes(10, 19), LockKind::Write)).unwrap();
    world.engine.revoke_state(one, world.now).unwrap();
    world.engine.revoke_state(two, world.now).unwrap();
    assert_eq!(acknowledged(&world.settle(), a), 0);
    world.engine.close(Caller::V41(a), open, FILE, world.now).unwrap();
    assert_eq!(acknowledged(&world.settle(), a), 1);
    assert!(!world.engine.has_unheard_revocations(a));
    // A client that goes acknowledges nothing.
    let open = world.open(a, "o", 1, share(RW, NONE)).unwrap();
    world.engine.revoke_state(open, world.now).unwrap();
    world.engine.revoke_client(a, world.now);
    assert_eq!(acknowledged(&world.settle(), a), 0);
}
