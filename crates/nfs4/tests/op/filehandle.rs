use holdfast_base::{Offset, Seqid};
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Session, at};
use crate::scene::{file, make, on};
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
fn the_handle_of_what_was_removed_is_stale_to_all_that_use_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let open_stateid = file(&mut client, b"f", 0, b"");
    let close = ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid });
    on(&mut client, &[b"f"], &[close]).ok::<Close4Ok>(OpNum4::Close);
    make(&mut client, b"d", CreateType4::Dir);
    make(&mut client, b"l", CreateType4::Lnk(b"f"));
    make(&mut client, b"p", CreateType4::Fifo);
    let look = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Type]) });
    let access = ArgOp::Access(Access4Args { access: 1 });
    let read = ArgOp::Read(Read4Args { stateid: Stateid4::ANONYMOUS, offset: Offset(0), count: 1 });
    let search = ArgOp::Lookup(Lookup4Args { objname: b"x" });
    for (target, use_of_it) in [(b"f", read), (b"d", search), (b"l", ArgOp::ReadLink), (b"p", look.clone())] {
        let handle = client.handle(&[target]);
        let remove = ArgOp::Remove(Remove4Args { target });
        on(&mut client, &[], &[remove]).ok::<Remove4Ok>(OpNum4::Remove);
        let put = ArgOp::PutFh(PutFh4Args { object: &handle });
        for op in [use_of_it, look.clone(), access.clone()] {
            let ops = [put.clone(), op];
            for mut reply in [client.run(&ops), Peer::new(&world, 2, 0).compound(&ops)] {
                reply.ok::<()>(OpNum4::PutFh);
                assert_eq!(reply.status, NfsStat4::Stale);
            }
        }
    }
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
