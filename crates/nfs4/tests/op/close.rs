use holdfast_base::{Offset, Seqid};
use holdfast_wire::nfs4::*;

use crate::client::{Session, at, open_create, open_existing};
use crate::world::World;

fn run(client: &mut Session, op: ArgOp<'_>) -> crate::client::Reply {
    let mut reply = client.run(&[at(&[b"f"]), vec![op]].concat());
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup] {
        reply.ok::<()>(op);
    }
    reply
}

fn open(client: &mut Session, share_access: u32) -> Stateid4 {
    let mut reply = client.run(&[at(&[]), vec![ArgOp::Open(open_create(b"f", b"o", share_access))]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid
}

fn close(open_stateid: Stateid4) -> ArgOp<'static> {
    ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid })
}

#[test]
fn a_closed_open_is_gone_with_its_descriptor() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = open(&mut client, OPEN4_SHARE_ACCESS_BOTH);
    assert_eq!(world.fs.open_files(), 1);
    let closed: Close4Ok = run(&mut client, close(stateid)).ok(OpNum4::Close);
    assert_eq!(closed.open_stateid, Stateid4::INVALID);
    assert_eq!((world.fs.open_files(), world.nfs.census().1), (0, 0));
    run(&mut client, close(stateid)).fails::<()>(OpNum4::Close, NfsStat4::BadStateid);
    world.check();
}

#[test]
fn a_client_that_is_gone_leaves_no_descriptor() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    open(&mut client, OPEN4_SHARE_ACCESS_BOTH);
    world.pass(crate::world::LEASE_MS + 1);
    assert_eq!(world.fs.open_files(), 1, "it may come back, while nobody minds");
    world.pass_courtesy();
    assert_eq!(world.fs.open_files(), 0);
    world.check();
}

#[test]
fn the_records_of_all_who_lose_to_one_conflict_are_taken_away_at_once() {
    let world = World::new();
    let courteous: Vec<_> = (1..=20).map(|host| Session::open(&world, host, 1)).collect();
    for mut client in courteous {
        open(&mut client, OPEN4_SHARE_ACCESS_READ);
    }
    world.pass(crate::world::LEASE_MS + 1);
    let mut other = Session::open(&world, 30, 1);
    let denying = Open4Args {
        share_deny: OPEN4_SHARE_DENY_READ,
        ..open_existing(b"f", b"other", OPEN4_SHARE_ACCESS_WRITE)
    };
    assert_eq!(other.run(&[at(&[]), vec![ArgOp::Open(denying)]].concat()).status, NfsStat4::Ok);
    let forgotten = world.records.forgotten.lock();
    assert_eq!(forgotten.first().map(Vec::len), Some(20), "before each of them is looked at");
    drop(forgotten);
    world.check();
}

#[test]
fn what_a_dead_client_held_is_given_to_nobody_while_its_record_cannot_be_removed() {
    let world = World::new();
    open(&mut Session::open(&world, 1, 1), OPEN4_SHARE_ACCESS_READ);
    world.pass(crate::world::LEASE_MS + 1);
    let mut other = Session::open(&world, 30, 1);
    let denying = || {
        let denying = Open4Args {
            share_deny: OPEN4_SHARE_DENY_READ,
            ..open_existing(b"f", b"other", OPEN4_SHARE_ACCESS_WRITE)
        };
        [at(&[]), vec![ArgOp::Open(denying)]].concat()
    };
    // It is on record itself, so that nothing of its own has to be stored.
    other
        .run(&[at(&[]), vec![ArgOp::Open(open_existing(b"f", b"first", OPEN4_SHARE_ACCESS_WRITE))]].concat());
    *world.records.is_broken.lock() = true;
    assert_eq!(other.run(&denying()).status, NfsStat4::Delay);
    world.pass(1000);
    assert_eq!(other.run(&denying()).status, NfsStat4::Delay);
    *world.records.is_broken.lock() = false;
    world.pass(1000);
    assert_eq!(other.run(&denying()).status, NfsStat4::Ok);
    world.check();
}

#[test]
fn state_ids_of_the_past_are_old_and_of_the_future_bad() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let first = open(&mut client, OPEN4_SHARE_ACCESS_READ);
    open(&mut client, OPEN4_SHARE_ACCESS_BOTH);
    let read = |seqid| {
        ArgOp::Read(Read4Args {
            stateid: Stateid4 { seqid: Seqid(seqid), ..first },
            offset: Offset(0),
            count: 1,
        })
    };
    run(&mut client, read(1)).fails::<()>(OpNum4::Read, NfsStat4::OldStateid);
    run(&mut client, read(3)).fails::<()>(OpNum4::Read, NfsStat4::BadStateid);
    assert_eq!(run(&mut client, read(2)).status, NfsStat4::Ok);
    assert_eq!(run(&mut client, read(0)).status, NfsStat4::Ok, "0 is the newest");
    let test = TestStateid4Args {
        stateids: vec![first, Stateid4 { seqid: Seqid(2), ..first }, Stateid4::ANONYMOUS],
    };
    let tested: TestStateid4Ok = client.run(&[ArgOp::TestStateid(test)]).ok(OpNum4::TestStateid);
    assert_eq!(tested.status_codes, [NfsStat4::OldStateid, NfsStat4::Ok, NfsStat4::BadStateid]);
    let free = ArgOp::FreeStateid(FreeStateid4Args { stateid: Stateid4 { seqid: Seqid(2), ..first } });
    client.run(&[free]).fails::<()>(OpNum4::FreeStateid, NfsStat4::LocksHeld);
}

#[test]
fn a_downgrade_gives_up_what_was_opened_and_nothing_else() {
    let world = World::new();
    let (mut client, mut other) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    open(&mut client, OPEN4_SHARE_ACCESS_READ);
    let stateid = open(&mut client, OPEN4_SHARE_ACCESS_BOTH);
    let down = |open_stateid, share_access| {
        ArgOp::OpenDowngrade(OpenDowngrade4Args {
            open_stateid,
            seqid: Seqid(0),
            share_access,
            share_deny: 0,
        })
    };
    run(&mut client, down(stateid, OPEN4_SHARE_ACCESS_WRITE))
        .fails::<()>(OpNum4::OpenDowngrade, NfsStat4::Inval);
    run(&mut client, down(stateid, 0)).fails::<()>(OpNum4::OpenDowngrade, NfsStat4::Inval);
    let denying = Open4Args {
        share_deny: OPEN4_SHARE_DENY_WRITE,
        ..open_existing(b"f", b"p", OPEN4_SHARE_ACCESS_READ)
    };
    let ops = [at(&[]), vec![ArgOp::Open(denying)]].concat();
    assert_eq!(other.run(&ops).status, NfsStat4::ShareDenied);
    let less: OpenDowngrade4Ok =
        run(&mut client, down(stateid, OPEN4_SHARE_ACCESS_READ)).ok(OpNum4::OpenDowngrade);
    assert_eq!(other.run(&ops).status, NfsStat4::Ok);
    let write = Write4Args {
        stateid: less.open_stateid,
        offset: Offset(0),
        stable: StableHow4::Unstable,
        data: b"x",
    };
    assert_eq!(run(&mut client, ArgOp::Write(write)).status, NfsStat4::OpenMode);
    world.check();
}
