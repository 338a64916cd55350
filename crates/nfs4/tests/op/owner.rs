//! Owners of 4.0: what steps their numbers, what a retry of theirs is told, and what of state ids that are good for nothing.

use holdfast_base::{ClientId, Instant, Length, Offset, Seqid};
use holdfast_state::Grace;
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Reply};
use crate::scene::on_peer;
use crate::setclientid::{client, close, confirm, open};
use crate::world::{LEASE_MS, Making, World};

/// Sends an operation on the file, and once more as a client does that has lost the reply; both replies are one.
fn twice(peer: &mut Peer, op: ArgOp<'_>) -> Reply {
    let first = on_peer(peer, &[b"f"], std::slice::from_ref(&op));
    assert_eq!(on_peer(peer, &[b"f"], &[op]), first);
    first
}

fn confirmation(open_stateid: Stateid4, seqid: u32) -> ArgOp<'static> {
    ArgOp::OpenConfirm(OpenConfirm4Args { open_stateid, seqid: Seqid(seqid) })
}

fn closing(open_stateid: Stateid4, seqid: u32) -> ArgOp<'static> {
    ArgOp::Close(Close4Args { open_stateid, seqid: Seqid(seqid) })
}

fn downgrade(open_stateid: Stateid4, seqid: u32, share_access: u32) -> ArgOp<'static> {
    ArgOp::OpenDowngrade(OpenDowngrade4Args {
        open_stateid,
        seqid: Seqid(seqid),
        share_access,
        share_deny: 0,
    })
}

fn lock_args(locker: Locker4<'_>, (offset, length): (u64, u64)) -> ArgOp<'_> {
    let (locktype, reclaim) = (LockType4::Write, false);
    ArgOp::Lock(Lock4Args { locktype, reclaim, offset: Offset(offset), length: Length(length), locker })
}

/// The first lock of an owner; the number is the open-owner's.
fn first_lock(open_stateid: Stateid4, seqid: u32, clientid: ClientId, range: (u64, u64)) -> ArgOp<'static> {
    let (open_seqid, lock_seqid) = (Seqid(seqid), Seqid(0));
    let lock_owner = StateOwner4 { clientid, owner: b"l" };
    lock_args(Locker4::New(OpenToLockOwner4 { open_seqid, open_stateid, lock_seqid, lock_owner }), range)
}

fn next_lock(lock_stateid: Stateid4, seqid: u32, range: (u64, u64)) -> ArgOp<'static> {
    lock_args(Locker4::Exist(ExistLockOwner4 { lock_stateid, lock_seqid: Seqid(seqid) }), range)
}

fn unlock(lock_stateid: Stateid4, seqid: u32, (offset, length): (u64, u64)) -> ArgOp<'static> {
    let (locktype, seqid) = (LockType4::Write, Seqid(seqid));
    let (offset, length) = (Offset(offset), Length(length));
    ArgOp::Locku(Locku4Args { locktype, seqid, lock_stateid, offset, length })
}

/// Ranges of no bytes, and beyond the last byte there can be.
const NO_RANGES: [(u64, u64); 2] = [(0, 0), (3, u64::MAX - 1)];

/// A client with the file open, confirmed under number 2.
struct Opener {
    peer: Peer,
    client: ClientId,
    /// As the open was before it was confirmed.
    old: Stateid4,
    open: Stateid4,
}

impl Opener {
    fn of(world: &World) -> Self {
        let (mut peer, client) = client(world, 1);
        let old = open(&mut peer, client, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
        let open = confirm(&mut peer, old, 2);
        Self { peer, client, old, open }
    }

    /// Locks ten bytes, under number 3 of the open-owner and 0 of the lock-owner.
    fn lock(&mut self) -> Stateid4 {
        let op = first_lock(self.open, 3, self.client, (0, 10));
        twice(&mut self.peer, op).ok::<Lock4Ok>(OpNum4::Lock).lock_stateid
    }

    /// Every operation by a state id, the next numbers of both owners being the first that come here.
    fn all_by(&self, open: Stateid4, lock: Stateid4) -> [ArgOp<'static>; 9] {
        let values = &[0; 8];
        let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values };
        let stable = StableHow4::Unstable;
        [
            confirmation(open, 4),
            downgrade(open, 4, OPEN4_SHARE_ACCESS_READ),
            first_lock(open, 4, self.client, (20, 1)),
            next_lock(lock, 1, (20, 1)),
            unlock(lock, 1, (0, 10)),
            ArgOp::Read(Read4Args { stateid: open, offset: Offset(0), count: 1 }),
            ArgOp::Write(Write4Args { stateid: lock, offset: Offset(0), stable, data: b"x" }),
            ArgOp::SetAttr(SetAttr4Args { stateid: open, obj_attributes }),
            closing(open, 4),
        ]
    }
}

#[test]
fn what_grace_refuses_steps_the_number_and_stays_refused_to_a_retry() {
    let world = World::new();
    let mut a = Opener::of(&world);
    let lock = a.lock();
    world.nfs.set_grace(Grace::Until(Instant(30_000)));
    let refused = open(&mut a.peer, a.client, 4);
    assert_eq!(refused.status, NfsStat4::Grace);
    assert_eq!(open(&mut a.peer, a.client, 4), refused);
    twice(&mut a.peer, next_lock(lock, 1, (20, 1))).fails::<()>(OpNum4::Lock, NfsStat4::Grace);
    world.nfs.set_grace(Grace::Over);
    assert_eq!(open(&mut a.peer, a.client, 4), refused, "it is the answer to the same request");
    on_peer(&mut a.peer, &[b"f"], &[next_lock(lock, 1, (20, 1))]).fails::<()>(OpNum4::Lock, NfsStat4::Grace);
    assert_eq!(open(&mut a.peer, a.client, 5).status, NfsStat4::Ok);
    open(&mut a.peer, a.client, 4).fails::<()>(OpNum4::Open, NfsStat4::BadSeqid);
    twice(&mut a.peer, next_lock(lock, 2, (20, 1))).ok::<Lock4Ok>(OpNum4::Lock);
    world.check();
}

/// RFC 7530 section 9.1.7: whose request it was cannot be known, or it was never looked at.
#[test]
fn a_wrong_state_id_or_number_and_a_missing_filehandle_step_no_number() {
    let world = World::new();
    let mut a = Opener::of(&world);
    let lock = a.lock();
    let future = |stateid: Stateid4| Stateid4 { seqid: Seqid(stateid.seqid.0 + 5), ..stateid };
    let on_nothing = |peer: &mut Peer, op| peer.compound(&[op]).status;
    let on_directory = |peer: &mut Peer, op| on_peer(peer, &[], &[op]).status;
    for (op, good) in [
        (closing(future(a.open), 4), closing(a.open, 4)),
        (downgrade(future(a.open), 4, 1), downgrade(a.open, 4, 1)),
        (first_lock(future(a.open), 4, a.client, (20, 1)), first_lock(a.open, 4, a.client, (20, 1))),
        (next_lock(future(lock), 1, (20, 1)), next_lock(lock, 1, (20, 1))),
        (unlock(future(lock), 1, (0, 10)), unlock(lock, 1, (0, 10))),
    ] {
        assert_eq!(on_peer(&mut a.peer, &[b"f"], &[op]).status, NfsStat4::BadStateid);
        assert_eq!(on_nothing(&mut a.peer, good), NfsStat4::NoFileHandle);
    }
    for op in [closing(a.open, 4), downgrade(a.open, 4, 1), unlock(lock, 1, (0, 10))] {
        assert_eq!(on_directory(&mut a.peer, op), NfsStat4::BadStateid, "it is another file's");
    }
    // The open-owner's number 3 was a LOCK's.
    for op in [closing(a.open, 9), closing(a.open, 3), unlock(lock, 9, (0, 10)), next_lock(lock, 9, (20, 1))]
    {
        assert_eq!(twice(&mut a.peer, op).status, NfsStat4::BadSeqid);
    }
    assert_eq!(twice(&mut a.peer, unlock(lock, 1, (0, 10))).status, NfsStat4::Ok);
    assert_eq!(twice(&mut a.peer, closing(a.open, 4)).status, NfsStat4::Ok);
    world.check();
}

#[test]
fn every_other_failure_steps_the_number_and_is_repeated_to_a_retry() {
    let world = World::new();
    let mut a = Opener::of(&world);
    twice(&mut a.peer, closing(a.old, 3)).fails::<()>(OpNum4::Close, NfsStat4::OldStateid);
    twice(&mut a.peer, downgrade(a.open, 4, 0)).fails::<()>(OpNum4::OpenDowngrade, NfsStat4::Inval);
    for (seqid, range) in (5..).zip(NO_RANGES) {
        let op = first_lock(a.open, seqid, a.client, range);
        twice(&mut a.peer, op).fails::<()>(OpNum4::Lock, NfsStat4::Inval);
    }
    let op = first_lock(a.open, 7, a.client, (0, 10));
    let lock = twice(&mut a.peer, op).ok::<Lock4Ok>(OpNum4::Lock).lock_stateid;
    for (seqid, range) in (1..).zip(NO_RANGES) {
        twice(&mut a.peer, unlock(lock, seqid, range)).fails::<()>(OpNum4::Locku, NfsStat4::Inval);
    }
    twice(&mut a.peer, unlock(lock, 3, (0, 10))).ok::<Locku4Ok>(OpNum4::Locku);
    twice(&mut a.peer, closing(a.open, 8)).ok::<Close4Ok>(OpNum4::Close);
    assert_eq!(world.nfs.census().1, 0);
    world.check();
}

#[test]
fn a_retried_confirmation_lock_downgrade_and_unlock_get_their_first_results() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let old = open(&mut peer, id, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let open = twice(&mut peer, confirmation(old, 2)).ok::<OpenConfirm4Ok>(OpNum4::OpenConfirm).open_stateid;
    let op = first_lock(open, 3, id, (0, 10));
    let first = twice(&mut peer, op).ok::<Lock4Ok>(OpNum4::Lock).lock_stateid;
    let more = twice(&mut peer, next_lock(first, 1, (20, 10))).ok::<Lock4Ok>(OpNum4::Lock).lock_stateid;
    let less = twice(&mut peer, unlock(more, 2, (0, 5))).ok::<Locku4Ok>(OpNum4::Locku).lock_stateid;
    assert_eq!([first.seqid, more.seqid, less.seqid], [Seqid(1), Seqid(2), Seqid(3)], "each was done once");
    let mut downgraded = twice(&mut peer, downgrade(open, 4, OPEN4_SHARE_ACCESS_BOTH));
    let same = downgraded.ok::<OpenDowngrade4Ok>(OpNum4::OpenDowngrade).open_stateid;
    assert_eq!(same.seqid, open.seqid.next());
    world.check();
}

#[test]
fn after_its_lease_a_client_that_nobody_minded_unlocks_and_closes_and_has_a_retry_answered() {
    let world = World::new();
    let mut a = Opener::of(&world);
    let lock = a.lock();
    let again = |peer: &mut Peer, op| on_peer(peer, &[b"f"], &[op]);
    world.pass(LEASE_MS + 1);
    let unlocked = twice(&mut a.peer, unlock(lock, 1, (0, 10)));
    assert_eq!(unlocked.status, NfsStat4::Ok);
    world.pass(LEASE_MS + 1);
    assert_eq!(again(&mut a.peer, unlock(lock, 1, (0, 10))), unlocked);
    world.pass(LEASE_MS + 1);
    let closed = twice(&mut a.peer, closing(a.open, 4));
    assert_eq!(closed.status, NfsStat4::Ok);
    world.pass(LEASE_MS - 1);
    assert_eq!(again(&mut a.peer, closing(a.open, 4)), closed);
    world.pass_courtesy();
    again(&mut a.peer, closing(a.open, 4)).fails::<()>(OpNum4::Close, NfsStat4::Expired);
    again(&mut a.peer, unlock(lock, 1, (0, 10))).fails::<()>(OpNum4::Locku, NfsStat4::Expired);
    world.check();
}

#[test]
fn an_open_is_confirmed_once_and_by_its_own_state_id_and_number() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let new = open(&mut peer, id, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let mut nobodys = new;
    nobodys.other[11] ^= 1;
    for stateid in [nobodys, Stateid4::ANONYMOUS, Stateid4::READ_BYPASS, Stateid4::CURRENT] {
        twice(&mut peer, confirmation(stateid, 2)).fails::<()>(OpNum4::OpenConfirm, NfsStat4::BadStateid);
    }
    twice(&mut peer, confirmation(new, 7)).fails::<()>(OpNum4::OpenConfirm, NfsStat4::BadSeqid);
    let confirmed = confirm(&mut peer, new, 2);
    twice(&mut peer, confirmation(confirmed, 3)).fails::<()>(OpNum4::OpenConfirm, NfsStat4::BadStateid);
    assert_eq!(close(&mut peer, confirmed, 3).status, NfsStat4::Ok);
    world.check();
}

#[test]
fn a_state_id_of_another_run_is_stale_to_every_operation() {
    let mut former = Opener::of(&World::new());
    let of_former = former.lock();
    let world = World::made(Making { boot: 2, ..Making::default() });
    let mut a = Opener::of(&world);
    let lock = a.lock();
    for op in a.all_by(former.open, of_former) {
        assert_eq!(on_peer(&mut a.peer, &[b"f"], &[op]).status, NfsStat4::StaleStateid);
    }
    assert_eq!(on_peer(&mut a.peer, &[b"f"], &[unlock(lock, 1, (0, 10))]).status, NfsStat4::Ok);
    assert_eq!(close(&mut a.peer, a.open, 4).status, NfsStat4::Ok, "no number has stepped");
    world.check();
}

#[test]
fn when_all_is_lost_with_the_lease_every_operation_by_a_state_id_says_so() {
    let world = World::new();
    let mut a = Opener::of(&world);
    let lock = a.lock();
    world.pass_courtesy();
    for op in a.all_by(a.open, lock) {
        assert_eq!(on_peer(&mut a.peer, &[b"f"], &[op]).status, NfsStat4::Expired);
    }
    world.check();
}

#[test]
fn a_lock_owner_is_released_when_its_file_is_gone() {
    let world = World::new();
    let mut a = Opener::of(&world);
    let lock = a.lock();
    twice(&mut a.peer, unlock(lock, 1, (0, 10))).ok::<Locku4Ok>(OpNum4::Locku);
    let remove = ArgOp::Remove(Remove4Args { target: b"f" });
    on_peer(&mut a.peer, &[], &[remove]).ok::<Remove4Ok>(OpNum4::Remove);
    let lock_owner = StateOwner4 { clientid: a.client, owner: b"l" };
    let release = ArgOp::ReleaseLockOwner(ReleaseLockOwner4Args { lock_owner });
    a.peer.compound(&[release]).ok::<()>(OpNum4::ReleaseLockOwner);
    world.check();
}
