//! Delegations: whom they are granted, whose deeds recall them, and what becomes of those not returned.

mod names_known;
mod reclaimed;
mod wants;
use crate::world::*;
use holdfast_base::limits::{
    RECALL_ANY_PAUSE_MS, RECALL_RETRY_MS, RECALL_UNKNOWN_MAX, RECALL_UNSENT_MAX, RECENT_RECALL_MS,
};
use holdfast_base::{ChangeId, ClientId, FileKey, Seqid, SessionId};
use holdfast_state::*;

const READ: DelegationKind = DelegationKind::Read;
const WRITE: DelegationKind = DelegationKind::Write;
const DIRECTORY: DelegationKind = DelegationKind::Directory;
const FILE: FileKey = FileKey(1);

struct Pair {
    world: World,
    a: ClientId,
    b: ClientId,
    a_session: SessionId,
    b_session: SessionId,
    seqid: u32,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::new();
        let (a, a_session) = world.client("a", 1);
        let (b, b_session) = world.client("b", 1);
        world.settle();
        Self { world, a, b, a_session, b_session, seqid: 0 }
    }

    /// Time passes in which both show that they live.
    fn pass(&mut self, ms: u64) {
        self.world.pass(ms);
        self.seqid += 1;
        for session in [self.a_session, self.b_session] {
            self.world.sequence(session, 0, self.seqid).unwrap();
            let now = self.world.now;
            let slot = holdfast_base::SlotId(0);
            self.world.engine.sessions_mut().complete(session, slot, KeptReply::Nothing, now);
        }
    }

    fn status(&mut self, session: SessionId) -> StatusFlags {
        self.world.engine.sessions().get(session).unwrap().status()
    }

    fn close(&mut self, client: ClientId, open: StateId) {
        self.world.engine.close(Caller::V41(client), open, FILE, self.world.now).unwrap();
    }

    fn give_back(&mut self, client: ClientId, of: Delegated) -> Result<(), StateError> {
        self.world.engine.delegation_return(Caller::V41(client), of.stateid, FILE, self.world.now)
    }
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let mut pair = Pair::new();
    pair.world.delegate(pair.a, 1, READ);
    pair.world.delegate(pair.b, 1, READ);
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::Held));
    assert_eq!(pair.world.why_none(pair.a, 1, WRITE), Some(WhyNone::Contention));
    let alone = pair.world.delegate(pair.a, 2, WRITE);
    assert_eq!(alone.stateid.seqid.0, 1);
    assert_eq!(pair.world.why_none(pair.b, 2, READ), Some(WhyNone::Contention));
    assert_eq!(pair.world.why_none(pair.b, 2, WRITE), Some(WhyNone::Contention));
    pair.world.delegate(pair.a, 3, DIRECTORY);
    pair.world.delegate(pair.b, 3, DIRECTORY);
    assert!(pair.world.settle().is_empty());
}

#[test]
fn nothing_is_delegated_beside_what_others_do_with_the_file() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a, pair.b);
    let world = &mut pair.world;
    world.open(b, "o", 1, share(W, NONE)).unwrap();
    assert_eq!(world.why_none(a, 1, READ), Some(WhyNone::Contention));
    world.open(b, "o", 2, share(R, NONE)).unwrap();
    assert_eq!(world.why_none(a, 2, READ), None);
    assert_eq!(world.why_none(a, 2, WRITE), Some(WhyNone::Contention));
    world.open(b, "o", 3, share(R, W)).unwrap();
    assert_eq!(world.why_none(a, 3, READ), Some(WhyNone::Contention), "a deny mode is to be asked about");
    let nlm = ForeignOwner { door: Door::Nlm, id: 1 };
    world.engine.foreign_lock(nlm, FileKey(4), bytes(0, 9), LockKind::Read, world.now).unwrap();
    assert_eq!(world.why_none(a, 4, READ), None);
    assert_eq!(world.why_none(a, 4, WRITE), Some(WhyNone::Contention));
    world.engine.foreign_lock(nlm, FileKey(5), bytes(0, 9), LockKind::Write, world.now).unwrap();
    assert_eq!(world.why_none(a, 5, READ), Some(WhyNone::Contention));
    world.engine.foreign_share(nlm, FileKey(6), share(W, NONE), ForeignClaim::New, world.now).unwrap();
    assert_eq!(world.why_none(a, 6, READ), Some(WhyNone::Contention));
}

#[test]
fn with_an_open_the_delegation_fits_what_the_client_has_open() {
    let mut pair = Pair::new();
    let declined = |offer: Offer| matches!(offer, Offer::Declined(WhyNone::NotOpen));
    let closed = pair.world.open(pair.a, "o", 1, share(R, NONE)).unwrap();
    pair.close(pair.a, closed);
    assert!(declined(pair.world.offer(pair.a, 1, READ, Grounds::Open(closed)).unwrap()));
    let open = pair.world.open(pair.a, "o", 1, share(R, NONE)).unwrap();
    assert!(declined(pair.world.offer(pair.a, 1, WRITE, Grounds::Open(open)).unwrap()));
    let Offer::Offered(ticket) = pair.world.offer(pair.a, 1, READ, Grounds::Open(open)).unwrap() else {
        panic!("not offered")
    };
    assert_eq!((ticket.kind(), ticket.is_upgrade(), ticket.if_change_is()), (READ, false, None));
    pair.world.engine.delegation_commit(ticket, pair.world.now).unwrap();
}

/// Linux takes changes of a file that it has open to write, or is about to, for its own, and drops what it keeps of it when
/// it takes a lock, but not under a delegation: one that came with a later OPEN would have it go on with what another has
/// overwritten.
#[test]
fn a_later_open_of_a_file_that_changed_since_the_first_brings_no_delegation() {
    // One owner, and two of one mount; writers and readers, for who only reads may be about to write.
    for owners in [["o", "o"], ["open id:AAAA1", "open id:AAAA2"]] {
        for access in [R, RW] {
            let mut pair = Pair::new();
            let a = pair.a;
            let first = pair.world.open(a, owners[0], 1, share(access, NONE)).unwrap();
            let Offer::Offered(ticket) = pair.world.offer(a, 1, READ, Grounds::Open(first)).unwrap() else {
                panic!("not offered")
            };
            pair.world.engine.delegation_abort(ticket, pair.world.now);
            pair.world.change += 1;
            for _ in 0..2 {
                let later = pair.world.open(a, owners[1], 1, share(access, NONE)).unwrap();
                let offer = pair.world.offer(a, 1, READ, Grounds::Open(later)).unwrap();
                assert_eq!(offer, Offer::Declined(WhyNone::OpenBefore), "{owners:?}");
            }
        }
    }
}

#[test]
fn a_later_open_brings_a_delegation_if_the_file_is_and_stays_as_it_was_after_the_first() {
    for owners in [["o", "o"], ["open id:AAAA1", "open id:AAAA2"]] {
        let mut pair = Pair::new();
        let (a, b) = (pair.a, pair.b);
        let theirs = pair.world.open(b, "o", 1, share(RW, NONE)).unwrap();
        let first = pair.world.open(a, owners[0], 1, share(R, NONE)).unwrap();
        let offer = pair.world.offer(a, 1, READ, Grounds::Open(first)).unwrap();
        assert_eq!(offer, Offer::Declined(WhyNone::Contention));
        pair.close(b, theirs);
        let later = pair.world.open(a, owners[1], 1, share(RW, NONE)).unwrap();
        let Offer::Offered(ticket) = pair.world.offer(a, 1, WRITE, Grounds::Open(later)).unwrap() else {
            panic!("not offered")
        };
        assert_eq!(ticket.if_change_is(), Some(ChangeId(100)), "it may have changed since it was looked at");
        pair.world.engine.delegation_abort(ticket, pair.world.now);
    }
}

#[test]
fn where_one_open_was_answered_without_a_look_no_later_one_brings_a_delegation() {
    let mut pair = Pair::new();
    pair.world.open(pair.a, "o", 1, share(R, NONE)).unwrap();
    for _ in 0..2 {
        let later = pair.world.open(pair.a, "o", 1, share(R, NONE)).unwrap();
        let offer = pair.world.offer(pair.a, 1, READ, Grounds::Open(later)).unwrap();
        assert_eq!(offer, Offer::Declined(WhyNone::OpenBefore));
    }
}

#[test]
fn who_closes_a_file_and_opens_it_again_has_a_first_open_again() {
    let mut pair = Pair::new();
    for _ in 0..2 {
        let open = pair.world.open(pair.a, "o", 1, share(RW, NONE)).unwrap();
        let offer = pair.world.offer(pair.a, 1, WRITE, Grounds::Open(open)).unwrap();
        let Offer::Offered(ticket) = offer else { panic!("{offer:?}") };
        pair.world.engine.delegation_abort(ticket, pair.world.now);
        pair.close(pair.a, open);
        pair.world.change += 1;
    }
}

#[test]
fn a_read_delegation_becomes_one_for_writing_with_a_later_open_whatever_its_holder_changed() {
    let mut pair = Pair::new();
    let open = pair.world.open(pair.a, "o", 1, share(R, NONE)).unwrap();
    let offer = pair.world.offer(pair.a, 1, READ, Grounds::Open(open)).unwrap();
    let Offer::Offered(ticket) = offer else { panic!("{offer:?}") };
    pair.world.engine.delegation_commit(ticket, pair.world.now).unwrap();
    pair.world.change += 1;
    let open = pair.world.open(pair.a, "o", 1, share(RW, NONE)).unwrap();
    let Offer::Offered(ticket) = pair.world.offer(pair.a, 1, WRITE, Grounds::Open(open)).unwrap() else {
        panic!("not offered: nobody else has written since the first delegation came")
    };
    assert!(ticket.is_upgrade() && ticket.if_change_is().is_none());
}

#[test]
fn who_cannot_be_called_back_gets_nothing() {
    let mut pair = Pair::new();
    let (a, v40) = (pair.a, pair.world.client40("c", 1));
    assert_eq!(pair.world.why_none(v40, 1, READ), Some(WhyNone::NoCallback), "not known to be reachable");
    pair.world.engine.callback_path(v40, true);
    assert_eq!(pair.world.why_none(v40, 1, READ), None);
    pair.world.engine.callback_path(a, false);
    assert_eq!(pair.world.why_none(a, 1, READ), Some(WhyNone::NoCallback));
    assert!(pair.status(pair.a_session).is_callback_down);
    let session = pair.a_session;
    pair.world.engine.sessions_mut().bind_connection(session, ConnId(1), Direction::Both).unwrap();
    assert!(!pair.status(session).is_callback_down, "a connection for callbacks was added");
    assert_eq!(pair.world.why_none(a, 1, READ), None);
    pair.world.engine.sessions_mut().back_channel_failed(session);
    assert!(pair.status(session).is_back_channel_faulty);
    assert_eq!(pair.world.why_none(a, 1, READ), Some(WhyNone::NoCallback));
    pair.world.engine.set_policy(Policy { is_delegating: false, ..Policy::default() });
    assert_eq!(pair.world.why_none(pair.b, 1, READ), Some(WhyNone::Off));
}

#[test]
fn each_deed_recalls_exactly_what_it_conflicts_with() {
    use Deed::*;
    let table = [
        (ReadData, [false, true, false]),
        (LookAttrs, [false, true, false]),
        (OpenRead, [false, true, false]),
        (WriteData, [true, true, false]),
        (Truncate, [true, true, false]),
        (OpenWrite, [true, true, false]),
        (ChangeAttrs, [true, true, true]),
        (ChangeName, [true, true, true]),
        (ChangeEntries(EntryKinds::ADD), [false, false, true]),
        (ChangeEntries(EntryKinds::UNKNOWN), [false, false, true]),
    ];
    for (deed, conflicts) in table {
        for (kind, conflicts) in [READ, WRITE, DIRECTORY].into_iter().zip(conflicts) {
            let mut pair = Pair::new();
            let of = pair.world.delegate(pair.a, 1, kind);
            assert_eq!(deed.conflicts(kind), conflicts);
            assert!(!pair.world.contend(1, deed, Some(pair.a)), "one's own deeds are no conflict");
            assert_eq!(pair.world.contend(1, deed, None), conflicts, "{deed:?} {kind:?}");
            let effects = pair.world.settle();
            assert_eq!(recalled(&effects), if conflicts { vec![of.token] } else { vec![] });
            if let [Effect::Recall { truncates, .. }] = effects[..] {
                assert_eq!(truncates, deed == Truncate);
            }
            assert_eq!(pair.world.contend(1, deed, Some(pair.b)), conflicts);
            assert_eq!(pair.world.settle(), [], "asked back once");
        }
    }
}

#[test]
fn who_is_told_of_some_changes_of_entries_is_asked_before_all_others() {
    let kinds = [EntryKinds::ADD, EntryKinds::REMOVE, EntryKinds::RENAME];
    let changes = [EntryKinds::ADD, EntryKinds::REMOVE, EntryKinds::RENAME, EntryKinds::UNKNOWN];
    for granted in 0..8 {
        let is_told = |change: usize| granted & (1 << change) != 0;
        let told = (0..3).filter(|kind| is_told(*kind)).fold(EntryKinds::NONE, |all, k| all.union(kinds[k]));
        for (change, kind) in changes.into_iter().enumerate() {
            let mut pair = Pair::new();
            let of = pair.world.delegate(pair.a, 1, DelegationKind::NotifiedDirectory(told));
            assert!(!pair.world.contend(1, Deed::ChangeEntries(kind), Some(pair.a)), "its own");
            assert_eq!(pair.world.contend(1, Deed::ChangeEntries(kind), Some(pair.b)), !is_told(change));
            let expected = if is_told(change) { vec![] } else { vec![of.token] };
            assert_eq!(recalled(&pair.world.settle()), expected, "{told:?} {kind:?}");
        }
    }
}

#[test]
fn an_open_that_conflicts_recalls_reserves_nothing_and_succeeds_after_the_return() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, WRITE);
    let refused = pair.world.open(pair.b, "o", 1, share(R, NONE));
    assert_eq!(refused, Err(StateError::Delay));
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
    assert_eq!((pair.world.engine.census().opens, pair.world.engine.census().owners), (0, 0));
    // The holder opens by itself what it had open under the delegation, while it is being recalled.
    let claim = Claim::Delegated(of.stateid);
    pair.world.open_claiming(pair.a, "mine", 1, share(RW, NONE), claim).unwrap();
    assert_eq!(pair.give_back(pair.a, of), Ok(()));
    assert_eq!(ended(&pair.world.settle()), [of.token]);
    pair.world.open(pair.b, "o", 1, share(R, NONE)).unwrap();
    assert_eq!(pair.give_back(pair.a, of), Err(StateError::BadStateid));
}

/// Its holder could lock for itself what the other has.
#[test]
fn what_was_locked_to_write_excludes_readers_even_when_the_open_is_not_for_writing_any_more() {
    let mut pair = Pair::new();
    let both = pair.world.open(pair.b, "o", 1, share(RW, NONE)).unwrap();
    pair.world.open(pair.b, "o", 1, share(R, NONE)).unwrap();
    let open = StateId { seqid: Seqid(0), ..both };
    let lock = pair.world.lock(&lock_by(pair.b, 1, open, "l", bytes(0, 9), LockKind::Write)).unwrap();
    let by = Caller::V41(pair.b);
    pair.world.engine.open_downgrade(by, open, FILE, share(R, NONE), pair.world.now).unwrap();
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::Contention));
    pair.world.restart_as_planned();
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::Contention), "in the next process too");
    pair.world.unlock(by, lock, 1, bytes(0, 9)).unwrap();
    assert_eq!(pair.world.why_none(pair.a, 1, READ), None);
}

#[test]
fn what_was_locked_to_write_excludes_readers_even_when_the_open_it_was_locked_through_is_closed() {
    let mut pair = Pair::new();
    let to_read = pair.world.open(pair.b, "reads", 1, share(R, NONE)).unwrap();
    let first = pair.world.lock(&lock_by(pair.b, 1, to_read, "l", bytes(0, 9), LockKind::Read)).unwrap();
    let to_write = pair.world.open(pair.b, "writes", 1, share(RW, NONE)).unwrap();
    let lock = pair.world.lock(&lock_by(pair.b, 1, to_write, "l", bytes(20, 29), LockKind::Write)).unwrap();
    assert_eq!(lock.other, first.other, "one state, of the open to read");
    let by = Caller::V41(pair.b);
    pair.world.engine.close(by, to_write, FILE, pair.world.now).unwrap();
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::Contention));
    pair.world.unlock(by, lock, 1, bytes(20, 29)).unwrap();
    assert_eq!(pair.world.why_none(pair.a, 1, READ), None);
}

#[test]
fn a_denying_open_recalls_readers() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    pair.world.open(pair.b, "o", 1, share(R, NONE)).unwrap();
    assert_eq!(pair.world.open(pair.b, "o", 1, share(R, W)), Err(StateError::Delay));
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
}

#[test]
fn an_offer_overtaken_by_a_deed_is_not_granted() {
    let mut pair = Pair::new();
    let Offer::Offered(ticket) = pair.world.offer(pair.a, 1, READ, Grounds::Want).unwrap() else { panic!() };
    let token = ticket.token();
    assert!(!pair.world.contend(1, Deed::WriteData, None), "nobody waits for an offer");
    assert_eq!(ended(&pair.world.settle()), [token]);
    assert_eq!(pair.world.engine.delegation_commit(ticket, pair.world.now), Err(StateError::Delay));
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::Contention));
    let Offer::Offered(ticket) = pair.world.offer(pair.a, 2, READ, Grounds::Want).unwrap() else { panic!() };
    assert!(!pair.world.contend(2, Deed::ReadData, None));
    pair.world.engine.delegation_commit(ticket, pair.world.now).unwrap();
}

#[test]
fn a_file_recalled_of_late_is_not_delegated_at_once() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, WRITE);
    assert!(pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    pair.give_back(pair.a, of).unwrap();
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::Contention));
    pair.pass(RECENT_RECALL_MS);
    assert_eq!(pair.world.why_none(pair.a, 1, READ), None);
}

#[test]
fn a_reader_becomes_a_writer_under_the_same_name() {
    let mut pair = Pair::new();
    let read = pair.world.delegate(pair.a, 1, READ);
    let Offer::Offered(ticket) = pair.world.offer(pair.a, 1, WRITE, Grounds::Want).unwrap() else { panic!() };
    assert!(ticket.is_upgrade() && ticket.token() == read.token);
    // A reader overtakes the upgrade and leaves the read delegation.
    assert!(!pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    assert_eq!(pair.world.engine.delegation_commit(ticket, pair.world.now), Err(StateError::Delay));
    assert_eq!(pair.world.engine.holds_delegation(pair.a, FILE), Some(READ));
    pair.pass(RECENT_RECALL_MS);
    let write = pair.world.delegate(pair.a, 1, WRITE);
    assert_eq!((write.token, write.stateid.other), (read.token, read.stateid.other));
    assert_eq!(write.stateid.seqid.0, 2);
    assert_eq!(pair.give_back(pair.a, read), Err(StateError::OldStateid));
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::HeldForWriting));
    assert_eq!(pair.world.why_none(pair.a, 1, WRITE), Some(WhyNone::Held));
    assert!(pair.world.contend(1, Deed::ReadData, None));
}

#[test]
fn io_under_a_delegation_goes_through_one_of_the_holders_opens_or_the_edges_own() {
    let mut pair = Pair::new();
    let (a, caller) = (pair.a, Caller::V41(pair.a));
    let read = pair.world.delegate(a, 1, READ);
    let world = &mut pair.world;
    assert_eq!(world.io(caller, read.stateid, 1, R), Ok(IoGrant::Delegation(read.token)));
    assert_eq!(world.io(caller, read.stateid, 1, W), Err(StateError::OpenMode));
    assert_eq!(world.io(caller, read.stateid, 2, R), Err(StateError::BadStateid));
    assert_eq!(world.io(Caller::V41(pair.b), read.stateid, 1, R), Err(StateError::BadStateid));
    let open = world.open(a, "o", 1, share(R, NONE)).unwrap();
    let IoGrant::Open(id) = world.io(caller, open, 1, R).unwrap() else { panic!() };
    assert_eq!(world.io(caller, read.stateid, 1, R), Ok(IoGrant::Delegation(read.token)));
    assert_eq!(world.engine.descriptors_under(read.token, R).collect::<Vec<_>>(), [id]);
    assert_eq!(world.engine.descriptors_under(read.token, W).collect::<Vec<_>>(), []);
    let directory = world.delegate(a, 3, DIRECTORY);
    assert_eq!(world.io(caller, directory.stateid, 3, R), Err(StateError::BadStateid));
    let write = world.delegate(a, 4, WRITE);
    assert_eq!(world.io(caller, write.stateid, 4, W), Ok(IoGrant::Delegation(write.token)));
    let locked = world.lock(&lock_by(a, 1, read.stateid, "l", bytes(0, 1), LockKind::Read));
    assert_eq!(locked, Err(StateError::BadStateid.into()), "LOCK names an open");
    let under = Claim::Delegated(write.stateid);
    let open = world.open_claiming(a, "o", 4, share(RW, NONE), under).unwrap();
    world.lock(&lock_by(a, 4, open, "l", bytes(0, 1), LockKind::Write)).unwrap();
}

#[test]
fn a_delegation_not_returned_in_time_is_revoked_and_its_holder_told() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, WRITE);
    let caller = Caller::V41(pair.a);
    assert!(pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    pair.world.engine.recall_answered(of.token, RecallAnswer::Accepted, pair.world.now);
    pair.pass(LEASE_MS - 1);
    pair.world.engine.tick(pair.world.now);
    assert!(pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    assert!(!pair.status(pair.a_session).is_delegation_revoked);
    pair.pass(1);
    pair.world.settle();
    pair.world.engine.tick(pair.world.now);
    assert_eq!(ended(&pair.world.settle()), [of.token]);
    assert!(!pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    assert!(pair.status(pair.a_session).is_delegation_revoked);
    assert!(!pair.status(pair.b_session).is_delegation_revoked);
    let engine = &mut pair.world.engine;
    assert_eq!(engine.test_stateid(pair.a, of.stateid), Err(StateError::DelegRevoked));
    assert_eq!(pair.world.io(caller, of.stateid, 1, R), Err(StateError::DelegRevoked));
    assert_eq!(pair.give_back(pair.a, of), Err(StateError::DelegRevoked));
    let under = pair.world.open_claiming(pair.a, "o", 1, share(R, NONE), Claim::Delegated(of.stateid));
    assert_eq!(under, Err(StateError::DelegRevoked));
    let now = pair.world.now;
    assert_eq!(pair.world.engine.free_stateid(pair.b, of.stateid, now), Err(StateError::BadStateid));
    assert_eq!(pair.world.engine.free_stateid(pair.a, of.stateid, now), Ok(()));
    assert!(!pair.status(pair.a_session).is_delegation_revoked);
    assert_eq!(pair.world.engine.test_stateid(pair.a, of.stateid), Err(StateError::BadStateid));
    pair.world.settle();
}

#[test]
fn a_conflict_after_the_time_to_return_need_not_wait_for_the_tick() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, WRITE);
    assert!(pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    pair.pass(LEASE_MS);
    assert!(!pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    assert_eq!(ended(&pair.world.settle()), [of.token]);
}

#[test]
fn clients_of_40_hear_expired_and_return_what_was_revoked_once() {
    let mut pair = Pair::new();
    let client = pair.world.client40("c", 1);
    pair.world.engine.callback_path(client, true);
    let of = pair.world.delegate(client, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, None));
    pair.pass(LEASE_MS / 2);
    pair.world.engine.renew(client, pair.world.now).unwrap();
    pair.pass(LEASE_MS / 2);
    pair.world.engine.tick(pair.world.now);
    let now = pair.world.now;
    assert_eq!(pair.world.io(Caller::V40, of.stateid, 1, R), Err(StateError::Expired));
    let mut give_back = || pair.world.engine.delegation_return(Caller::V40, of.stateid, FILE, now);
    assert_eq!(give_back(), Err(StateError::Expired));
    assert_eq!(give_back(), Err(StateError::BadStateid));
    pair.world.settle();
}

#[test]
fn time_to_return_goes_on_while_the_holder_flushes_but_not_for_ever() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, WRITE);
    assert!(pair.world.contend(1, Deed::OpenRead, Some(pair.b)));
    for _ in 0..5 {
        pair.pass(LEASE_MS / 2);
        pair.world.engine.holder_flushed(FILE, pair.a, 0, pair.world.now);
        pair.world.engine.holder_flushed(FILE, pair.b, 0, pair.world.now);
        pair.world.engine.tick(pair.world.now);
        assert!(pair.world.engine.delegation_of(of.token).is_some());
    }
    pair.pass(LEASE_MS / 2);
    pair.world.engine.holder_flushed(FILE, pair.a, 0, pair.world.now);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(ended(&pair.world.settle()), [of.token], "three times the time, and no more");
}

#[test]
fn a_recall_that_did_not_arrive_is_sent_again_and_at_once_when_the_way_is_open() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, None));
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
    pair.world.engine.recall_answered(of.token, RecallAnswer::Unreachable, pair.world.now);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(recalled(&pair.world.settle()), []);
    assert!(pair.status(pair.a_session).is_callback_down);
    pair.pass(RECALL_RETRY_MS);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
    pair.world.engine.recall_answered(of.token, RecallAnswer::Unreachable, pair.world.now);
    pair.world.engine.callback_path(pair.a, true);
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
    pair.world.engine.recall_answered(of.token, RecallAnswer::Unreachable, pair.world.now);
    pair.world.engine.recall_answered(of.token, RecallAnswer::Accepted, pair.world.now);
    assert!(!pair.status(pair.a_session).is_callback_down, "who answers is reached");
    pair.world.settle();
    pair.pass(10 * RECALL_RETRY_MS);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(recalled(&pair.world.settle()), []);
}

#[test]
fn what_its_holder_does_not_know_is_recalled_a_few_times_and_then_revoked() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, None));
    for _ in 1..RECALL_UNKNOWN_MAX {
        assert_eq!(recalled(&pair.world.settle()), [of.token]);
        pair.world.engine.recall_answered(of.token, RecallAnswer::Unknown, pair.world.now);
        pair.pass(RECALL_RETRY_MS);
        pair.world.engine.tick(pair.world.now);
    }
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
    pair.world.engine.recall_answered(of.token, RecallAnswer::Unknown, pair.world.now);
    assert_eq!(pair.world.settle(), [], "nothing that would wait for a disk");
    pair.world.engine.tick(pair.world.now);
    assert_eq!(ended(&pair.world.settle()), [of.token]);
    assert_eq!(pair.world.engine.test_stateid(pair.a, of.stateid), Err(StateError::DelegRevoked));
}

/// 4.0 has no referring calls: a recall may come before the reply that tells of the delegation, and its holder will
/// believe in it all the same.
#[test]
fn who_may_not_have_the_reply_that_brings_it_is_asked_again_for_the_whole_time() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    world.engine.callback_path(client, true);
    let begin =
        |world: &mut World, of, seqid, op| match world.engine.begin_owner(of, Seqid(seqid), op, world.now) {
            Ok(OwnerTurn::Run(ticket)) => ticket,
            other => panic!("{other:?}"),
        };
    let turn = begin(&mut world, OwnerOf::Open { client, name: b"o" }, 1, OwnerOp::Open);
    let open = world.open(client, "o", 1, share(R, NONE)).unwrap();
    let Offer::Offered(ticket) = world.offer(client, 1, READ, Grounds::Open(open)).unwrap() else {
        panic!("not offered")
    };
    let of = world.engine.delegation_commit(ticket, world.now).unwrap();
    world.engine.end_owner(&turn, Some(b"reply"));
    assert!(world.contend(1, Deed::WriteData, None));
    let ask = |world: &mut World| {
        let effects = world.settle();
        world.engine.recall_answered(of.token, RecallAnswer::Unknown, world.now);
        world.pass(RECALL_RETRY_MS);
        world.engine.tick(world.now);
        (recalled(&effects), ended(&effects))
    };
    for _ in 0..3 * RECALL_UNKNOWN_MAX {
        assert_eq!(ask(&mut world), (vec![of.token], vec![]));
    }
    assert_eq!(recalled(&world.settle()), [of.token]);
    world.restart_as_planned();
    world.engine.recall_answered(of.token, RecallAnswer::Unknown, world.now);
    world.pass(RECALL_RETRY_MS);
    world.engine.tick(world.now);
    assert_eq!(ask(&mut world), (vec![of.token], vec![]), "as before a planned restart");
    // The owner's next operation shows that its client has the reply.
    let turn = begin(&mut world, OwnerOf::Stateid(open), 2, OwnerOp::OpenConfirm);
    world.engine.open_confirm(open, FILE, world.now).unwrap();
    world.engine.end_owner(&turn, Some(b"reply"));
    for _ in 0..RECALL_UNKNOWN_MAX {
        assert_eq!(ask(&mut world), (vec![of.token], vec![]));
    }
    assert_eq!(ask(&mut world), (vec![], vec![of.token]), "it has forgotten what it was told");
}

#[test]
fn who_does_not_return_what_it_may_not_know_of_loses_it_at_the_end_of_a_recall() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, None));
    for _ in 0..LEASE_MS / RECALL_RETRY_MS {
        assert_eq!(recalled(&pair.world.settle()), [of.token]);
        pair.world.engine.recall_answered(of.token, RecallAnswer::Overtook, pair.world.now);
        pair.pass(RECALL_RETRY_MS);
        pair.world.engine.tick(pair.world.now);
    }
    assert_eq!(ended(&pair.world.settle()), [of.token]);
}

#[test]
fn attributes_under_a_write_delegation_are_as_rfc_8881_section_10_4_3_has_them() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, WRITE);
    assert_eq!(pair.world.engine.write_delegation(FILE, Some(pair.a)), None);
    let holder = pair.world.engine.write_delegation(FILE, Some(pair.b)).unwrap();
    assert_eq!((holder.client, holder.token, holder.stateid), (pair.a, of.token, of.stateid));
    let server = Seen { change: ChangeId(100), size: 10 };
    let mut ask = |change, size, server| {
        pair.world.engine.delegated_attributes(of.token, ChangeId(change), size, server)
    };
    assert_eq!(ask(100, 10, server), None, "not changed by its holder");
    // It wrote through: the server's value moved on, the holder has nothing to add, whichever it reports.
    let moved = Seen { change: ChangeId(200), size: 10 };
    assert_eq!(ask(200, 10, moved), None);
    assert_eq!(ask(100, 10, moved), None);
    assert_eq!(ask(101, 10, moved), Some(Seen { change: ChangeId(201), size: 10 }));
    assert_eq!(ask(101, 12, moved), Some(Seen { change: ChangeId(202), size: 12 }), "counts up at each ask");
    assert_eq!(ask(100, 10, moved), Some(Seen { change: ChangeId(203), size: 10 }), "once changed, changed");
    // It wrote everything back and set times of its own: nothing of that is to be shown as of now.
    let written_back = Seen { change: ChangeId(300), size: 10 };
    assert_eq!(ask(100, 10, written_back), None);
    assert_eq!(ask(101, 10, written_back), Some(Seen { change: ChangeId(301), size: 10 }), "changed anew");
    let other = pair.world.delegate(pair.a, 2, WRITE);
    let longer = pair.world.engine.delegated_attributes(other.token, ChangeId(100), 11, server);
    assert_eq!(longer, Some(Seen { change: ChangeId(101), size: 11 }), "another size is a change by itself");
    pair.give_back(pair.a, of).unwrap();
    assert_eq!(pair.world.engine.delegated_attributes(of.token, ChangeId(1), 1, server), None);
}

#[test]
fn an_administrator_takes_a_delegation_and_the_client_learns_whose_doing_it_was() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    pair.world.engine.revoke_state(of.stateid, pair.world.now).unwrap();
    assert_eq!(ended(&pair.world.settle()), [of.token]);
    assert!(pair.status(pair.a_session).is_state_revoked);
    assert_eq!(pair.give_back(pair.a, of), Err(StateError::AdminRevoked));
    assert_eq!(pair.world.engine.free_stateid(pair.a, of.stateid, pair.world.now), Ok(()));
    pair.world.settle();
}

#[test]
fn who_had_a_file_recalled_finds_it_free_however_long_that_took() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, Some(pair.b)));
    pair.pass(RECENT_RECALL_MS + 1);
    pair.give_back(pair.a, of).unwrap();
    assert_eq!(pair.world.why_none(pair.a, 1, READ), Some(WhyNone::Contention));
    pair.pass(RECENT_RECALL_MS);
    assert_eq!(pair.world.why_none(pair.a, 1, READ), None);
    pair.world.settle();
}

#[test]
fn who_lost_one_is_given_none_until_it_has_taken_note() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, Some(pair.b)));
    while !pair.status(pair.a_session).is_delegation_revoked {
        pair.pass(LEASE_MS / 2);
        pair.world.engine.tick(pair.world.now);
    }
    assert!(pair.world.engine.has_unheard_revocations(pair.a));
    assert_eq!(pair.world.why_none(pair.a, 2, READ), Some(WhyNone::Resource));
    pair.world.settle();
    pair.world.engine.free_stateid(pair.a, of.stateid, pair.world.now).unwrap();
    assert_eq!(pair.world.settle(), [Effect::RevocationsAcknowledged { client: pair.a }]);
    assert_eq!(pair.world.why_none(pair.a, 2, READ), None);
    pair.world.settle();
}

#[test]
fn an_owner_of_40_unknown_so_far_claims_what_it_opened_under_a_delegation_without_confirming() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    world.engine.callback_path(client, true);
    let of = world.delegate(client, 1, WRITE);
    let request = OpenRequest {
        client,
        owner: b"another user's",
        file: FILE,
        share: share(RW, NONE),
        claim: Claim::Delegated(of.stateid),
    };
    assert!(!world.engine.open(&request, world.now).unwrap().is_confirm_needed);
}

#[test]
fn a_recall_that_could_not_be_sent_is_sent_later_and_says_nothing_of_the_way() {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, Some(pair.b)));
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
    pair.world.engine.recall_answered(of.token, RecallAnswer::NotSent, pair.world.now);
    assert!(!pair.status(pair.a_session).is_callback_down);
    pair.pass(RECALL_RETRY_MS);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(recalled(&pair.world.settle()), [of.token]);
}

/// How long a holder keeps what is recalled of it, whose channel is full for so long from a moment on.
fn kept_for(full: std::ops::Range<u64>) -> u64 {
    let mut pair = Pair::new();
    let of = pair.world.delegate(pair.a, 1, READ);
    assert!(pair.world.contend(1, Deed::WriteData, Some(pair.b)));
    pair.world.settle();
    let since = pair.world.now;
    while pair.world.engine.delegation_of(of.token).is_some() {
        let at = pair.world.now.ms_since(since);
        assert!(at < 10 * LEASE_MS, "it keeps it for ever");
        let answer = if full.contains(&at) { RecallAnswer::NotSent } else { RecallAnswer::Unreachable };
        pair.world.engine.recall_answered(of.token, answer, pair.world.now);
        pair.pass(RECALL_RETRY_MS);
        pair.world.engine.tick(pair.world.now);
        pair.world.settle();
    }
    pair.world.now.ms_since(since)
}

#[test]
fn a_holder_that_could_not_be_asked_keeps_what_it_has_for_longer_but_not_for_ever() {
    let about = |took: u64, expected: u64| took.abs_diff(expected) <= RECALL_RETRY_MS;
    assert!(about(kept_for(0..LEASE_MS / 2), LEASE_MS * 3 / 2));
    assert!(about(kept_for(0..20 * LEASE_MS), RECALL_UNSENT_MAX * LEASE_MS));
    assert!(about(kept_for(0..0), LEASE_MS));
    assert!(about(kept_for(RECALL_RETRY_MS..20 * LEASE_MS), LEASE_MS), "it has been asked");
}
