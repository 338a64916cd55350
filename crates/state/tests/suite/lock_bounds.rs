//! What clients can have the server remember of locks and waits, and look through for one request, is bounded.

use crate::world::*;
use holdfast_base::limits::{
    DEADLOCK_STEPS_MAX, LOCK_RANGES_PER_FILE_MAX, LOCK_RANGES_PER_OWNER_FILE_MAX,
    LOCK_WAITERS_PER_CLIENT_MAX, LOCK_WAITERS_PER_FILE_MAX,
};
use holdfast_base::{ByteRange, ClientId, FileKey};
use holdfast_state::*;

const NLM: ForeignOwner = ForeignOwner { door: Door::Nlm, id: 1 };

fn in_line(owner: ForeignOwner, kind: LockKind) -> ForeignRequest {
    let (claim, wait) = (ForeignClaim::New, ForeignWait::InLine);
    ForeignRequest { owner, file: FileKey(1), range: ByteRange::ALL, kind, claim, wait }
}

/// So many hold a file and wait for another, which as many hold.
fn waiting_in_rows(world: &mut World, many: usize) {
    let (client, _) = world.client("rows", 1);
    let opens = [1, 2].map(|file| world.open(client, "o", file, share(RW, NONE)).unwrap());
    let owners: Vec<_> = (0..many).map(|n| (format!("first {n}"), format!("second {n}"))).collect();
    for (first, second) in &owners {
        world.lock(&lock_by(client, 1, opens[0], first, ByteRange::ALL, LockKind::Read)).unwrap();
        world.lock(&lock_by(client, 2, opens[1], second, ByteRange::ALL, LockKind::Read)).unwrap();
    }
    for (first, _) in &owners {
        let request = lock_by(client, 2, opens[1], first, ByteRange::ALL, LockKind::Write);
        waits(world, &request);
    }
}

fn waits(world: &mut World, request: &LockRequest<'_>) {
    let refusal = world.engine.lock_prepare(&LockRequest { wait: Wait::Notify, ..*request }, world.now);
    assert!(matches!(refusal, Err(LockRefusal::Denied(_))), "{refusal:?}");
}

/// Who waits for whom is the clients' to choose: looking for a circle costs so much and no more, and a wait of which that
/// does not tell whether it would end is not taken on.
#[test]
fn a_wait_whose_end_is_too_far_to_see_is_not_put_in_line() {
    for (many, is_seen) in [(50, true), (150, false)] {
        let mut world = World::new();
        waiting_in_rows(&mut world, many);
        assert_eq!(world.engine.census().waiters, many);
        let (client, _) = world.client("a", 1);
        let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
        waits(&mut world, &lock_by(client, 1, open, "l", ByteRange::ALL, LockKind::Write));
        let then = many + usize::from(is_seen);
        assert_eq!(world.engine.census().waiters, then);
        let nlm = world.engine.foreign_prepare(&in_line(NLM, LockKind::Write), world.now);
        let expected = if is_seen { ForeignRefusal::Waiting } else { StateError::Resource.into() };
        assert_eq!(nlm.unwrap_err(), expected);
        assert_eq!(world.engine.census().waiters, then + usize::from(is_seen));
        world.settle();
    }
}

#[test]
fn locks_that_are_in_nobodys_way_are_paid_for_too() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    for (owner, odd) in [("even", 0), ("odd", 1)] {
        for n in 0..DEADLOCK_STEPS_MAX as u64 / 2 {
            let at = 2 * n + odd;
            world.lock(&lock_by(client, 1, open, owner, bytes(at, at), LockKind::Read)).unwrap();
        }
    }
    let end = bytes(u64::MAX, u64::MAX);
    world.lock(&lock_by(client, 1, open, "end", end, LockKind::Write)).unwrap();
    let (other, _) = world.client("b", 1);
    let open = world.open(other, "o", 1, share(RW, NONE)).unwrap();
    waits(&mut world, &lock_by(other, 1, open, "l", ByteRange::ALL, LockKind::Read));
    assert_eq!(world.engine.census().waiters, 0);
    waits(&mut world, &lock_by(other, 1, open, "l", end, LockKind::Read));
    assert_eq!(world.engine.census().waiters, 1);
    world.settle();
}

#[test]
fn one_client_does_not_fill_the_lines_of_all_files() {
    let mut world = World::new();
    let (holder, _) = world.client("holder", 1);
    let (client, _) = world.client("a", 1);
    let (other, _) = world.client("b", 1);
    let files = LOCK_WAITERS_PER_CLIENT_MAX / LOCK_WAITERS_PER_FILE_MAX + 1;
    let wait = |world: &mut World, client: ClientId, file: u128, n: usize| {
        let open = world.open(client, "o", file, share(RW, NONE)).unwrap();
        let owner = format!("waiter {n}");
        waits(world, &lock_by(client, file, open, &owner, bytes(0, 9), LockKind::Write));
    };
    for file in 0..files as u128 {
        let open = world.open(holder, "o", file, share(RW, NONE)).unwrap();
        world.lock(&lock_by(holder, file, open, "l", bytes(0, 9), LockKind::Write)).unwrap();
        for n in 0..LOCK_WAITERS_PER_FILE_MAX - 1 {
            wait(&mut world, client, file, n);
        }
    }
    assert_eq!(world.engine.census().waiters, LOCK_WAITERS_PER_CLIENT_MAX);
    wait(&mut world, other, files as u128 - 1, 0);
    assert_eq!(world.engine.census().waiters, LOCK_WAITERS_PER_CLIENT_MAX + 1, "another client still waits");
    world.restart_as_planned();
    wait(&mut world, client, files as u128 - 1, LOCK_WAITERS_PER_FILE_MAX);
    assert_eq!(world.engine.census().waiters, LOCK_WAITERS_PER_CLIENT_MAX + 1, "as before");
    world.engine.revoke_client(client, world.now);
    assert_eq!(world.engine.census().waiters, 1);
    world.settle();
}

#[test]
fn unlocking_every_other_byte_comes_to_an_end_and_unlocking_all_does_not() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    let me = Caller::V41(client);
    let mut lock = world.lock(&lock_by(client, 1, open, "l", ByteRange::ALL, LockKind::Write)).unwrap();
    for n in 1..LOCK_RANGES_PER_OWNER_FILE_MAX as u64 {
        lock = world.unlock(me, lock, 1, bytes(2 * n, 2 * n)).unwrap();
    }
    let ranges = world.engine.census().ranges;
    assert_eq!(ranges, LOCK_RANGES_PER_OWNER_FILE_MAX);
    let (one, edge) = (bytes(1 << 32, 1 << 32), bytes(u64::MAX - 9, u64::MAX));
    assert_eq!(world.unlock(me, lock, 1, one), Err(StateError::Resource));
    assert_eq!(world.engine.census().ranges, ranges);
    lock = world.unlock(me, lock, 1, edge).unwrap();
    let more = LockRequest { by: LockBy::Lock(lock), ..lock_by(client, 1, open, "l", edge, LockKind::Read) };
    assert_eq!(world.lock(&more), Err(LockRefusal::Error(StateError::Resource)));
    world.unlock(me, lock, 1, ByteRange::ALL).unwrap();
    assert_eq!(world.engine.census().ranges, 0);
    world.settle();
}

#[test]
fn what_is_locked_of_one_file_is_bounded_by_whatever_door() {
    let mut world = World::new();
    let owner = |id| ForeignOwner { id, ..NLM };
    let file = FileKey(1);
    let owners = LOCK_RANGES_PER_FILE_MAX.div_ceil(LOCK_RANGES_PER_OWNER_FILE_MAX) as u64 + 1;
    let mut is_full = false;
    for id in 0..owners {
        let (first, span) = (id << 32, 1 << 30);
        let whole = bytes(first, first + span);
        is_full = world.engine.foreign_lock(owner(id), file, whole, LockKind::Write, world.now).is_err();
        let mut at = first + 1;
        while !is_full && world.engine.foreign_can_unlock(owner(id), file, bytes(at, at)).is_ok() {
            world.engine.foreign_unlock(owner(id), file, bytes(at, at), world.now);
            at += 2;
        }
    }
    assert!(is_full, "the last owner has no room");
    let ranges = world.engine.census().ranges;
    assert!((LOCK_RANGES_PER_FILE_MAX - 3..=LOCK_RANGES_PER_FILE_MAX).contains(&ranges), "{ranges}");
    let (client, _) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    let lock = lock_by(client, 1, open, "l", bytes(u64::MAX, u64::MAX), LockKind::Write);
    assert_eq!(world.lock(&lock), Err(LockRefusal::Error(StateError::Resource)));
    world.engine.foreign_can_unlock(owner(0), file, ByteRange::ALL).unwrap();
    world.engine.foreign_unlock(owner(0), file, ByteRange::ALL, world.now);
    world.lock(&lock).unwrap();
    world.settle();
}
