//! Replies of synchronous exports wait for the disk, and tell when it failed.

use holdfast_vfs::FsError;
use holdfast_wire::nfs4::*;

use crate::client::{Session, at};
use crate::world::World;

fn mkdir(name: &[u8]) -> ArgOp<'_> {
    let none = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
    ArgOp::Create(Create4Args { objtype: CreateType4::Dir, objname: name, createattrs: none })
}

#[test]
fn a_change_is_durable_before_its_reply() {
    let world = World::sync();
    let mut client = Session::open(&world, 1, 1);
    assert_eq!(client.run(&[at(&[]), vec![mkdir(b"d")]].concat()).status, NfsStat4::Ok);
    assert_eq!(world.fs.uncommitted(), []);
    assert!(!world.fs.commits().is_empty());
}

#[test]
fn an_asynchronous_export_waits_for_nothing() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    assert_eq!(client.run(&[at(&[]), vec![mkdir(b"d")]].concat()).status, NfsStat4::Ok);
    assert_eq!(world.fs.commits(), []);
}

#[test]
fn a_failed_commit_is_told_in_place_of_the_first_change_and_to_a_retry_as_well() {
    let world = World::sync();
    let mut client = Session::open(&world, 1, 1);
    client.cachethis = true;
    world.fs.fail_next_commit(FsError::NoSpace);
    let ops = [at(&[]), vec![ArgOp::SaveFh, mkdir(b"d"), ArgOp::GetFh]].concat();
    let mut reply = client.run(&ops);
    let whole = reply.clone();
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.ok::<()>(OpNum4::SaveFh);
    reply.fails::<()>(OpNum4::Create, NfsStat4::NoSpc);
    assert_eq!(whole, client.again(&ops));
    assert_eq!(client.run(&at(&[])).status, NfsStat4::Ok, "the slot is free again");
    world.check();
}

/// RFC 8881 section 15.2: CREATE may answer NOSPC and DQUOT, REMOVE may not.
#[test]
fn that_there_was_no_room_is_told_by_those_operations_that_may() {
    let world = World::sync();
    let mut client = Session::open(&world, 1, 1);
    let remove = || ArgOp::Remove(Remove4Args { target: b"d" });
    let cases = [
        (FsError::Quota, NfsStat4::Dquot, NfsStat4::Io),
        (FsError::NoSpace, NfsStat4::NoSpc, NfsStat4::Io),
        (FsError::Io, NfsStat4::Io, NfsStat4::Io),
        // It was done, and must not be done a second time.
        (FsError::Delay, NfsStat4::Io, NfsStat4::Io),
    ];
    for (error, made, removed) in cases {
        for (op, told) in [(mkdir(b"d"), made), (remove(), removed)] {
            world.fs.fail_next_commit(error);
            assert_eq!(client.run(&[at(&[]), vec![op]].concat()).status, told, "{error:?}");
        }
    }
    world.check();
}
