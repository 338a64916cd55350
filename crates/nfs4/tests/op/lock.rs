use holdfast_base::limits::LOCK_WAIT_FRESH_MS;
use holdfast_base::{ByteRange, ClientId, Length, Offset, Seqid};
use holdfast_export::LocalUse;
use holdfast_vfs::{Backend, Caller, Cx, Handle, LockKind, Name, Wait};
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Reply, Session, at, open_create};
use crate::world::{LEASE_MS, Making, World};

pub(crate) fn run(client: &mut Session, op: ArgOp<'_>) -> Reply {
    let mut reply = client.run(&[at(&[b"f"]), vec![op]].concat());
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup] {
        reply.ok::<()>(op);
    }
    reply
}

fn open(client: &mut Session) -> Stateid4 {
    open_wanting(client, 0)
}

pub(crate) fn open_wanting(client: &mut Session, want: u32) -> Stateid4 {
    let args = open_create(b"f", b"o", OPEN4_SHARE_ACCESS_BOTH | want);
    let mut reply = client.run(&[at(&[]), vec![ArgOp::Open(args)]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid
}

pub(crate) fn lock(
    open_stateid: Stateid4,
    owner: &[u8],
    locktype: LockType4,
    offset: u64,
    length: u64,
) -> ArgOp<'_> {
    ArgOp::Lock(Lock4Args {
        locktype,
        reclaim: false,
        offset: Offset(offset),
        length: Length(length),
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: Seqid(0),
            open_stateid,
            lock_seqid: Seqid(0),
            lock_owner: StateOwner4 { clientid: ClientId(0), owner },
        }),
    })
}

fn lockt(owner: &[u8], locktype: LockType4, offset: u64, length: u64) -> ArgOp<'_> {
    ArgOp::Lockt(Lockt4Args {
        locktype,
        offset: Offset(offset),
        length: Length(length),
        owner: StateOwner4 { clientid: ClientId(0), owner },
    })
}

pub(crate) fn locku(lock_stateid: Stateid4, offset: u64, length: u64) -> ArgOp<'static> {
    ArgOp::Locku(Locku4Args {
        locktype: LockType4::Write,
        seqid: Seqid(0),
        lock_stateid,
        offset: Offset(offset),
        length: Length(length),
    })
}

pub(crate) fn file(world: &World) -> Handle {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let root = world.fs.root().unwrap();
    let name = Name::new(b"f").unwrap();
    world.fs.lookup(&cx, &root, name, holdfast_vfs::AttrMask::NONE).unwrap().handle
}

pub(crate) fn bytes(first: u64, last: u64) -> ByteRange {
    ByteRange::from_bounds(first, last).unwrap()
}

#[test]
fn a_lock_keeps_others_out_until_it_is_unlocked() {
    let world = World::new();
    let (mut a, mut b) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    let (of_a, of_b) = (open(&mut a), open(&mut b));
    let held: Lock4Ok = run(&mut a, lock(of_a, b"la", LockType4::Write, 10, 10)).ok(OpNum4::Lock);
    let mut reply = run(&mut b, lock(of_b, b"lb", LockType4::Read, 0, u64::MAX));
    let denied: Lock4Denied<'_> = reply.fails(OpNum4::Lock, NfsStat4::Denied);
    let holder = StateOwner4 { clientid: a.client, owner: b"la" };
    assert_eq!(
        denied,
        Lock4Denied { offset: Offset(10), length: Length(10), locktype: LockType4::Write, owner: holder }
    );
    run(&mut b, lockt(b"lb", LockType4::Read, 15, 1))
        .fails::<Lock4Denied<'_>>(OpNum4::Lockt, NfsStat4::Denied);
    run(&mut b, lockt(b"lb", LockType4::Write, 20, 1)).ok::<()>(OpNum4::Lockt);
    run(&mut a, lockt(b"la", LockType4::Write, 15, 1)).ok::<()>(OpNum4::Lockt);
    let less: Locku4Ok = run(&mut a, locku(held.lock_stateid, 10, 5)).ok(OpNum4::Locku);
    assert_eq!(less.lock_stateid.seqid, Seqid(2));
    run(&mut b, lock(of_b, b"lb", LockType4::Read, 0, 15)).ok::<Lock4Ok>(OpNum4::Lock);
    world.check();
}

#[test]
fn locks_stand_on_the_backend_and_go_with_close() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let of = open(&mut client);
    run(&mut client, lock(of, b"l", LockType4::Write, 0, 10)).ok::<Lock4Ok>(OpNum4::Lock);
    assert_eq!(world.fs.locks_held(&file(&world)), [(bytes(0, 9), LockKind::Write)]);
    let close = ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid: of });
    run(&mut client, close).ok::<Close4Ok>(OpNum4::Close);
    assert_eq!(world.fs.locks_held(&file(&world)), []);
    assert_eq!(world.fs.open_files(), 0);
    world.check();
}

#[test]
fn a_local_process_is_in_the_way_and_leaves_nothing_behind() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let of = open(&mut client);
    let file = file(&world);
    world.fs.lock_outside(&file, bytes(5, 9), LockKind::Write).unwrap();
    let mut reply = run(&mut client, lockt(b"l", LockType4::Write, 0, 10));
    let denied: Lock4Denied<'_> = reply.fails(OpNum4::Lockt, NfsStat4::Denied);
    assert_eq!((denied.offset, denied.length, denied.owner.clientid), (Offset(5), Length(5), ClientId(0)));
    let mut reply = run(&mut client, lock(of, b"l", LockType4::Write, 0, 10));
    let denied: Lock4Denied<'_> = reply.fails(OpNum4::Lock, NfsStat4::Denied);
    assert_eq!((denied.offset, denied.length), (Offset(5), Length(5)));
    assert_eq!(world.nfs.census().2, 0, "no lock file is kept for a lock not had");
    world.fs.unlock_outside(&file);
    run(&mut client, lock(of, b"l", LockType4::Write, 0, 10)).ok::<Lock4Ok>(OpNum4::Lock);
    world.check();
}

#[test]
fn a_local_process_is_seen_beside_locks_of_ones_own_and_others() {
    let world = World::new();
    let (mut a, mut b) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    let (of_a, of_b) = (open(&mut a), open(&mut b));
    run(&mut a, lock(of_a, b"la", LockType4::Write, 0, 2)).ok::<Lock4Ok>(OpNum4::Lock);
    run(&mut b, lock(of_b, b"lb", LockType4::Read, 20, 2)).ok::<Lock4Ok>(OpNum4::Lock);
    world.fs.lock_outside(&file(&world), bytes(5, 9), LockKind::Write).unwrap();
    let mut reply = run(&mut a, lockt(b"la", LockType4::Write, 0, 10));
    let denied: Lock4Denied<'_> = reply.fails(OpNum4::Lockt, NfsStat4::Denied);
    assert_eq!((denied.offset, denied.length, denied.owner.clientid), (Offset(5), Length(5), ClientId(0)));
    run(&mut a, lockt(b"la", LockType4::Write, 0, 2)).ok::<()>(OpNum4::Lockt);
    world.check();
}

/// `local = "none"` speaks of the processes of this host alone.
#[test]
fn where_other_hosts_may_lock_a_file_locks_are_taken_below_whatever_local_says() {
    for is_on_other_hosts in [false, true] {
        let mut making = Making::default();
        making.options.local = LocalUse::None;
        let world = World::made(making);
        let mut client = Session::open(&world, 1, 1);
        let of = open(&mut client);
        if is_on_other_hosts {
            world.fs.lie_on_other_hosts();
        }
        run(&mut client, lock(of, b"l", LockType4::Write, 0, 2)).ok::<Lock4Ok>(OpNum4::Lock);
        assert_eq!(world.fs.locks_held(&file(&world)).len(), usize::from(is_on_other_hosts));
        world.fs.lock_outside(&file(&world), bytes(5, 9), LockKind::Write).unwrap();
        let mut reply = run(&mut client, lockt(b"m", LockType4::Write, 5, 1));
        if is_on_other_hosts {
            reply.fails::<Lock4Denied<'_>>(OpNum4::Lockt, NfsStat4::Denied);
        } else {
            reply.ok::<()>(OpNum4::Lockt);
        }
        world.check();
    }
}

#[test]
fn whoever_asks_about_a_lock_has_it_told_by_the_holder_of_a_write_delegation() {
    let mut making = Making::default();
    making.options.local = LocalUse::None;
    let world = World::made(making);
    let mut a = Session::with_back(&world, 1, 2);
    let mut b = Session::with_back(&world, 2, 2);
    open(&mut a);
    run(&mut b, lockt(b"l", LockType4::Read, 0, 1)).fails::<()>(OpNum4::Lockt, NfsStat4::Delay);
    assert!(matches!(a.peer.call().op(), CbArgOp::Recall(_)), "its locks are its own secret");
    run(&mut a, lockt(b"l", LockType4::Read, 0, 1)).ok::<()>(OpNum4::Lockt);
    world.check();
}

#[test]
fn a_further_lock_goes_by_the_state_id_of_the_first() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let of = open(&mut client);
    let first: Lock4Ok = run(&mut client, lock(of, b"l", LockType4::Write, 0, 10)).ok(OpNum4::Lock);
    let further = ArgOp::Lock(Lock4Args {
        locktype: LockType4::Read,
        reclaim: false,
        offset: Offset(4),
        length: Length(2),
        locker: Locker4::Exist(ExistLockOwner4 { lock_stateid: first.lock_stateid, lock_seqid: Seqid(0) }),
    });
    let second: Lock4Ok = run(&mut client, further).ok(OpNum4::Lock);
    assert_eq!((second.lock_stateid.other, second.lock_stateid.seqid), (first.lock_stateid.other, Seqid(2)));
    let held = world.fs.locks_held(&file(&world));
    assert!(held.contains(&(bytes(4, 5), LockKind::Read)), "{held:?}");
    // Freed once nothing is locked.
    let free = |stateid| ArgOp::FreeStateid(FreeStateid4Args { stateid });
    client.run(&[free(second.lock_stateid)]).fails::<()>(OpNum4::FreeStateid, NfsStat4::LocksHeld);
    let none: Locku4Ok = run(&mut client, locku(second.lock_stateid, 0, u64::MAX)).ok(OpNum4::Locku);
    client.run(&[free(none.lock_stateid)]).ok::<()>(OpNum4::FreeStateid);
    assert_eq!(world.nfs.census().2, 0);
    world.check();
}

#[test]
fn ranges_that_are_none_are_invalid_and_reclaims_have_their_time() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let of = open(&mut client);
    let held: Lock4Ok = run(&mut client, lock(of, b"h", LockType4::Write, 0, 1)).ok(OpNum4::Lock);
    for (offset, length) in [(0, 0), (3, u64::MAX - 1)] {
        for (op, num) in [
            (lock(of, b"l", LockType4::Write, offset, length), OpNum4::Lock),
            (lockt(b"l", LockType4::Write, offset, length), OpNum4::Lockt),
            (locku(held.lock_stateid, offset, length), OpNum4::Locku),
        ] {
            run(&mut client, op).fails::<()>(num, NfsStat4::Inval);
        }
    }
    let ArgOp::Lock(args) = lock(of, b"l", LockType4::Write, 0, 1) else { unreachable!() };
    let reclaim = ArgOp::Lock(Lock4Args { reclaim: true, ..args });
    run(&mut client, reclaim).fails::<()>(OpNum4::Lock, NfsStat4::NoGrace);
    let mut reply = client.run(&[at(&[]), vec![lockt(b"l", LockType4::Read, 0, 1)]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.fails::<()>(OpNum4::Lockt, NfsStat4::IsDir);
    world.check();
}

/// Linux sends such a LOCK in the moment after it has heard of a restart, where it has the file open under a delegation alone.
#[test]
fn a_lock_without_an_open_is_put_off_for_who_has_yet_to_reclaim() {
    let world = World::new();
    open(&mut Session::open(&world, 9, 1));
    let mut client = Session::bare(&world, 1, 1);
    let without = lock(Stateid4::ANONYMOUS, b"l", LockType4::Write, 0, 1);
    run(&mut client, without.clone()).fails::<()>(OpNum4::Lock, NfsStat4::Grace);
    client.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    run(&mut client, without).fails::<()>(OpNum4::Lock, NfsStat4::BadStateid);
    world.check();
}

#[test]
fn who_waits_for_a_lock_is_called_when_it_is_free() {
    let world = World::new();
    let with_back = |mut args: CreateSession4Args<'static>| {
        args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        args
    };
    let mut holder = Session::open(&world, 1, 1);
    let mut waiter = Session::with(&world, 2, 2, with_back);
    waiter.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let (of_holder, of_waiter) = (open(&mut holder), open(&mut waiter));
    let held: Lock4Ok = run(&mut holder, lock(of_holder, b"h", LockType4::Write, 0, 10)).ok(OpNum4::Lock);
    let asked = lock(of_waiter, b"w", LockType4::WriteWait, 0, 10);
    run(&mut waiter, asked.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    let handle = waiter.handle(&[b"f"]);
    run(&mut holder, locku(held.lock_stateid, 0, 10)).ok::<Locku4Ok>(OpNum4::Locku);
    let calls = waiter.peer.receive(1);
    assert_eq!(calls.len(), 1, "one call back");
    // Behind CB_SEQUENCE: which file, and which of the client's owners.
    let call = &calls[0];
    let fh = call.windows(handle.len()).position(|bytes| bytes == handle).unwrap();
    assert_eq!(call[fh - 8..fh - 4], CbOpNum4::NotifyLock.as_u32().to_be_bytes());
    assert_eq!(call[call.len() - 4..], *b"w\0\0\0");
    // It is kept for who was called, and for nobody else.
    let greedy = lock(of_holder, b"h", LockType4::Write, 0, 10);
    run(&mut holder, greedy).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    run(&mut waiter, asked).ok::<Lock4Ok>(OpNum4::Lock);
    world.check();
}

#[test]
fn a_circle_of_blocking_locks_ends_in_an_error_with_and_without_a_back_channel() {
    let sessions: [fn(&World, u8, u32) -> Session; 2] = [Session::open, Session::with_back];
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for minor in [1, 2] {
            let world = World::new();
            let mut a = sessions[first](&world, 1, minor);
            let mut b = sessions[second](&world, 2, minor);
            let [of_a, of_b] = [&mut a, &mut b].map(|of| open_wanting(of, OPEN4_SHARE_ACCESS_WANT_NO_DELEG));
            run(&mut a, lock(of_a, b"a", LockType4::Write, 0, 10)).ok::<Lock4Ok>(OpNum4::Lock);
            let held = run(&mut b, lock(of_b, b"b", LockType4::Write, 10, 10)).ok::<Lock4Ok>(OpNum4::Lock);
            let asks = lock(of_a, b"a", LockType4::WriteWait, 10, 10);
            run(&mut a, asks.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
            // Who does not wait closes no circle.
            let tries = lock(of_b, b"b", LockType4::Write, 0, 10);
            run(&mut b, tries).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
            for kind in [LockType4::WriteWait, LockType4::ReadWait] {
                run(&mut b, lock(of_b, b"b", kind, 0, 10)).fails::<()>(OpNum4::Lock, NfsStat4::Deadlock);
            }
            // Whoever was told gives up what he has, and the other goes on.
            run(&mut b, locku(held.lock_stateid, 10, 10)).ok::<Locku4Ok>(OpNum4::Locku);
            run(&mut a, asks).ok::<Lock4Ok>(OpNum4::Lock);
            world.check();
        }
    }
}

#[test]
fn who_has_asked_no_more_for_a_while_closes_no_circle() {
    let world = World::new();
    let (mut a, mut b) = (Session::open(&world, 1, 2), Session::open(&world, 2, 2));
    let (of_a, of_b) = (open(&mut a), open(&mut b));
    run(&mut a, lock(of_a, b"a", LockType4::Write, 0, 10)).ok::<Lock4Ok>(OpNum4::Lock);
    run(&mut b, lock(of_b, b"b", LockType4::Write, 10, 10)).ok::<Lock4Ok>(OpNum4::Lock);
    run(&mut a, lock(of_a, b"a", LockType4::WriteWait, 10, 10))
        .fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    world.pass(LOCK_WAIT_FRESH_MS + 1);
    run(&mut b, lock(of_b, b"b", LockType4::WriteWait, 0, 10))
        .fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    world.check();
}

#[test]
fn who_waits_for_a_local_process_is_called_when_that_lets_go() {
    let world = World::new();
    let mut waiter = Session::with_back(&world, 2, 2);
    let of = open(&mut waiter);
    world.fs.lock_outside(&file(&world), bytes(5, 9), LockKind::Write).unwrap();
    let asked = lock(of, b"w", LockType4::WriteWait, 0, 10);
    run(&mut waiter, asked.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    assert!(waiter.peer.calls().is_empty());
    world.fs.unlock_outside(&file(&world));
    let call = waiter.peer.call();
    assert!(matches!(call.op(), CbArgOp::NotifyLock(told) if told.lock_owner.owner == b"w"));
    run(&mut waiter, asked).ok::<Lock4Ok>(OpNum4::Lock);
    // What watched is closed in time.
    world.pass(LEASE_MS / 2);
    waiter.run(&[]);
    let before = world.fs.open_files();
    world.pass(LEASE_MS / 2 + 1);
    assert_eq!(world.fs.open_files(), before - 1);
    world.check();
}

/// A client with an open and a read lock on 20 to 29 that waits for a local process's lock on 5 to 9.
fn one_that_waits(world: &World, access: u32) -> (Session, [Stateid4; 2]) {
    let mut waiter = Session::with_back(world, 2, 2);
    let args = open_create(b"f", b"o", access);
    let mut reply = waiter.run(&[at(&[]), vec![ArgOp::Open(args)]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    let of = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let held: Lock4Ok = run(&mut waiter, lock(of, b"w", LockType4::Read, 20, 10)).ok(OpNum4::Lock);
    world.fs.lock_outside(&file(world), bytes(5, 9), LockKind::Write).unwrap();
    let asked = lock_again(held.lock_stateid, LockType4::ReadWait, 0, 10);
    run(&mut waiter, asked).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    (waiter, [of, held.lock_stateid])
}

fn lock_again(lock_stateid: Stateid4, locktype: LockType4, offset: u64, length: u64) -> ArgOp<'static> {
    let locker = Locker4::Exist(ExistLockOwner4 { lock_stateid, lock_seqid: Seqid(0) });
    let (offset, length) = (Offset(offset), Length(length));
    ArgOp::Lock(Lock4Args { locktype, reclaim: false, offset, length, locker })
}

#[test]
fn who_closes_while_it_waits_for_a_local_process_leaves_no_lock_behind() {
    let world = World::new();
    let (mut waiter, [of, _]) = one_that_waits(&world, OPEN4_SHARE_ACCESS_BOTH);
    let close = ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid: of });
    run(&mut waiter, close).ok::<Close4Ok>(OpNum4::Close);
    assert_eq!(world.fs.locks_held(&file(&world)), []);
    world.check();
}

#[test]
fn who_waits_for_a_local_process_is_not_in_its_own_way_when_its_open_is_upgraded() {
    let world = World::new();
    let (mut waiter, [_, held]) = one_that_waits(&world, OPEN4_SHARE_ACCESS_READ);
    open(&mut waiter);
    let held: Lock4Ok = run(&mut waiter, lock_again(held, LockType4::Write, 20, 10)).ok(OpNum4::Lock);
    assert_eq!(world.fs.locks_held(&file(&world)), [(bytes(20, 29), LockKind::Write)]);
    world.fs.unlock_outside(&file(&world));
    assert!(matches!(waiter.peer.call().op(), CbArgOp::NotifyLock(_)), "it is told all the same");
    run(&mut waiter, lock_again(held.lock_stateid, LockType4::ReadWait, 0, 10)).ok::<Lock4Ok>(OpNum4::Lock);
    world.check();
}

#[test]
fn a_callback_lost_with_its_connection_is_made_again_on_the_next_one() {
    let world = World::new();
    let with_back = |mut args: CreateSession4Args<'static>| {
        args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        args
    };
    let mut holder = Session::open(&world, 1, 1);
    let mut waiter = Session::with(&world, 2, 2, with_back);
    waiter.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let (of_holder, of_waiter) = (open(&mut holder), open(&mut waiter));
    let held: Lock4Ok = run(&mut holder, lock(of_holder, b"h", LockType4::Write, 0, 30)).ok(OpNum4::Lock);
    for (owner, offset) in [(b"v", 0), (b"w", 20)] {
        let asked = lock(of_waiter, owner, LockType4::WriteWait, offset, 10);
        run(&mut waiter, asked).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    }
    let first: Locku4Ok = run(&mut holder, locku(held.lock_stateid, 0, 10)).ok(OpNum4::Locku);
    let lost = waiter.peer.receive(1);
    std::mem::replace(&mut waiter.peer, Peer::new(&world, 2, 2)).wire.close();
    let bind = BindConnToSession4Args {
        sessionid: waiter.id,
        dir: ChannelDirFromClient4::ForeOrBoth,
        use_conn_in_rdma_mode: false,
    };
    let bind = waiter.peer.compound(&[ArgOp::BindConnToSession(bind)]);
    assert_eq!(bind.status, NfsStat4::Ok);
    run(&mut holder, locku(first.lock_stateid, 20, 10)).ok::<Locku4Ok>(OpNum4::Locku);
    let calls = waiter.peer.receive(2);
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0][4..], lost[0][4..], "the same but for its transaction");
    assert_eq!(calls[1][calls[1].len() - 4..], *b"w\0\0\0", "and the news in a slot of its own");
}
