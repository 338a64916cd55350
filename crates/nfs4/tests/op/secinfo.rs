use holdfast_vfs::FsError;
use holdfast_wire::nfs4::*;
use holdfast_wire::rpc::AUTH_SYS;

use crate::client::Session;
use crate::scene::{file, make, on, on_root, on_v40};
use crate::world::World;

fn secinfo(name: &[u8]) -> ArgOp<'_> {
    ArgOp::SecInfo(SecInfo4Args { name })
}

fn no_name(style: SecInfoStyle4) -> ArgOp<'static> {
    ArgOp::SecInfoNoName(SecInfoNoName4Args { style })
}

#[test]
fn a_names_flavors_are_told_and_in_4_1_the_filehandle_is_used_up() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    let mut reply = on(&mut client, &[], &[secinfo(b"f"), ArgOp::GetFh]);
    let ok: SecInfo4Ok<'_> = reply.ok(OpNum4::SecInfo);
    assert_eq!(ok.flavors, [SecInfo4::Flavor(AUTH_SYS)]);
    reply.fails::<()>(OpNum4::GetFh, NfsStat4::NoFileHandle);
    let mut reply = on_v40(&world, &[], &[secinfo(b"f"), ArgOp::GetFh]);
    reply.ok::<SecInfo4Ok<'_>>(OpNum4::SecInfo);
    reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh);
}

#[test]
fn what_is_not_there_has_no_flavors() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    on(&mut client, &[], &[secinfo(b"absent")]).fails::<()>(OpNum4::SecInfo, NfsStat4::NoEnt);
    on(&mut client, &[b"f"], &[secinfo(b"x")]).fails::<()>(OpNum4::SecInfo, NfsStat4::NotDir);
    on_root(&mut client, &[secinfo(b"absent")]).fails::<()>(OpNum4::SecInfo, NfsStat4::NoEnt);
}

#[test]
fn without_a_name_it_is_about_the_current_object_or_the_one_above() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    for style in [SecInfoStyle4::CurrentFh, SecInfoStyle4::Parent] {
        let mut reply = on(&mut client, &[], &[no_name(style), ArgOp::GetFh]);
        let ok: SecInfo4Ok<'_> = reply.ok(OpNum4::SecInfoNoName);
        assert_eq!(ok.flavors, [SecInfo4::Flavor(AUTH_SYS)]);
        reply.fails::<()>(OpNum4::GetFh, NfsStat4::NoFileHandle);
    }
    on_root(&mut client, &[no_name(SecInfoStyle4::Parent)])
        .fails::<()>(OpNum4::SecInfoNoName, NfsStat4::NoEnt);
}

#[test]
fn what_keeps_the_directory_above_from_being_looked_at_is_told_and_waited_for() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    make(&mut client, b"d", CreateType4::Dir);
    let handle = client.handle(&[b"d"]);
    let ops = [ArgOp::PutFh(PutFh4Args { object: &handle }), no_name(SecInfoStyle4::Parent)];
    // It may have to wait for the disk.
    world.fs.block_every(1);
    assert_eq!(client.run(&ops).status, NfsStat4::Ok);
    world.fs.block_every(0);
    world.fs.fail_next_call(FsError::Io);
    assert_eq!(client.run(&ops).status, NfsStat4::Io);
}
