use holdfast_wire::nfs4::*;

use crate::client::{Peer, Session, at};
use crate::world::World;

#[test]
fn a_handle_given_out_leads_back_to_its_object() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let handle = client.handle(&[]);
    let mut reply = client.run(&[ArgOp::PutFh(PutFh4Args { object: &handle }), ArgOp::GetFh]);
    reply.ok::<()>(OpNum4::PutFh);
    assert_eq!(reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object, handle);
}

#[test]
fn a_forged_handle_is_bad() {
    let world = World::new();
    let handle = Session::open(&world, 1, 1).handle(&[]);
    let mut peer = Peer::new(&world, 2, 0);
    for i in 0..handle.len() {
        let mut forged = handle.clone();
        forged[i] ^= 1;
        peer.compound(&[ArgOp::PutFh(PutFh4Args { object: &forged })])
            .fails::<()>(OpNum4::PutFh, NfsStat4::BadHandle);
    }
    peer.compound(&[ArgOp::PutFh(PutFh4Args { object: b"" })])
        .fails::<()>(OpNum4::PutFh, NfsStat4::BadHandle);
}

#[test]
fn the_saved_object_comes_back() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 0);
    let mut ops = at(&[]);
    ops.extend([ArgOp::GetFh, ArgOp::SaveFh, ArgOp::PutRootFh, ArgOp::GetFh, ArgOp::RestoreFh, ArgOp::GetFh]);
    let mut reply = peer.compound(&ops);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    let export = reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object.to_vec();
    reply.ok::<()>(OpNum4::SaveFh);
    reply.ok::<()>(OpNum4::PutRootFh);
    assert_ne!(reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object, export);
    reply.ok::<()>(OpNum4::RestoreFh);
    assert_eq!(reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object, export);
    reply.end();
}

#[test]
fn the_public_handle_is_the_root() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 0);
    let mut reply = peer.compound(&[ArgOp::PutRootFh, ArgOp::GetFh, ArgOp::PutPubFh, ArgOp::GetFh]);
    reply.ok::<()>(OpNum4::PutRootFh);
    let root = reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object.to_vec();
    reply.ok::<()>(OpNum4::PutPubFh);
    assert_eq!(reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object, root);
}

#[test]
fn nothing_saved_is_told_as_each_minor_version_tells_it() {
    let world = World::new();
    Peer::new(&world, 1, 0).compound(&[ArgOp::RestoreFh]).fails::<()>(OpNum4::RestoreFh, NfsStat4::RestoreFh);
    for minor in [1, 2] {
        let mut client = Session::open(&world, 1 + minor as u8, minor);
        client.run(&[ArgOp::RestoreFh]).fails::<()>(OpNum4::RestoreFh, NfsStat4::NoFileHandle);
    }
}
