//! What the engine does around operations, whatever they are.

use holdfast_base::Seqid;
use holdfast_wire::nfs4::*;
use holdfast_xdr::Writer;

use crate::client::{Peer, Session, at};
use crate::world::{Making, World};

#[test]
fn a_minor_version_not_served_is_a_mismatch_with_the_tag_repeated() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 3);
    let reply = peer.compound(&[ArgOp::PutRootFh]);
    assert_eq!((reply.status, reply.ops, &*reply.tag), (NfsStat4::MinorVersMismatch, 0, &b"tag"[..]));
}

#[test]
fn a_compound_of_nothing_succeeds() {
    let world = World::new();
    let reply = Peer::new(&world, 1, 0).compound(&[]);
    assert_eq!((reply.status, reply.ops), (NfsStat4::Ok, 0));
}

#[test]
fn numbers_that_are_no_operation_of_the_minor_version_are_illegal() {
    let world = World::new();
    for (minor, number) in
        [(0, 2), (0, 0), (0, 40), (0, 59), (1, 59), (1, 72), (2, 76), (2, 10_044), (0, 10_044)]
    {
        let mut peer = Peer::new(&world, 1, minor);
        let mut args = Writer::new();
        args.opaque(b"");
        for word in [minor, 1, number] {
            args.u32(word);
        }
        let mut reply = peer.exchange(args.as_slice());
        reply.fails::<()>(OpNum4::Illegal, NfsStat4::OpIllegal);
    }
}

#[test]
fn what_is_legal_and_not_served_is_not_supported_without_a_look_at_its_arguments() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    for op in
        [OpNum4::LayoutReturn, OpNum4::GetDeviceInfo, OpNum4::LayoutGet, OpNum4::Renew, OpNum4::SetClientId]
    {
        client.seqid = client.seqid.next();
        let mut args = Writer::new();
        args.opaque(b"");
        args.u32(2);
        args.u32(2);
        holdfast_xdr::Encode::encode(&ArgOp::Sequence(client.sequence()), &mut args);
        args.u32(op.as_u32());
        let mut reply = client.peer.exchange(args.as_slice());
        reply.ok::<Sequence4Ok>(OpNum4::Sequence);
        reply.fails::<()>(op, NfsStat4::NotSupp);
    }
}

#[test]
fn arguments_that_cannot_be_decoded_spoil_only_their_operation() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 0);
    let mut args = Writer::new();
    args.opaque(b"");
    for word in [0, 2, OpNum4::PutRootFh.as_u32(), OpNum4::Lookup.as_u32(), 0xffff_ffff] {
        args.u32(word);
    }
    let mut reply = peer.exchange(args.as_slice());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.fails::<()>(OpNum4::Lookup, NfsStat4::BadXdr);
}

#[test]
fn an_operation_without_its_filehandle_is_refused() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 0);
    peer.compound(&[ArgOp::GetFh]).fails::<()>(OpNum4::GetFh, NfsStat4::NoFileHandle);
    peer.compound(&[ArgOp::RestoreFh]).fails::<()>(OpNum4::RestoreFh, NfsStat4::RestoreFh);
    let set = SetAttr4Args {
        stateid: Stateid4::ANONYMOUS,
        obj_attributes: Fattr4 { mask: Bitmap4::EMPTY, values: b"" },
    };
    let nothing_set =
        peer.compound(&[ArgOp::SetAttr(set)]).fails::<Bitmap4>(OpNum4::SetAttr, NfsStat4::NoFileHandle);
    assert_eq!(nothing_set, Bitmap4::EMPTY, "SETATTR carries its bitmap even then");
}

#[test]
fn more_operations_than_anybody_sends_are_refused_unread() {
    let world = World::new();
    let many = vec![ArgOp::PutRootFh; 10_000];
    let reply = Peer::new(&world, 1, 0).compound(&many);
    assert_eq!((reply.status, reply.ops), (NfsStat4::Resource, 0));
    let reply = Peer::new(&world, 1, 1).compound(&many);
    assert_eq!((reply.status, reply.ops), (NfsStat4::TooManyOps, 0));
}

#[test]
fn a_read_only_export_refuses_changes_and_so_does_the_pseudo_root() {
    let mut making = Making::default();
    making.options.is_read_only = true;
    let world = World::made(making);
    let mut peer = Peer::new(&world, 1, 0);
    let remove = ArgOp::Remove(Remove4Args { target: b"x" });
    let mut reply = peer.compound(&[at(&[]), vec![remove.clone()]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.fails::<()>(OpNum4::Remove, NfsStat4::Rofs);
    let mut reply = peer.compound(&[ArgOp::PutRootFh, remove]);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.fails::<()>(OpNum4::Remove, NfsStat4::Rofs);
}

#[test]
fn a_handle_of_an_export_that_does_not_admit_the_peer_is_stale_to_it() {
    let mut making = Making::default();
    making.options.clients = vec!["192.0.2.1".parse().unwrap()];
    let world = World::made(making);
    let handle = Session::open(&world, 1, 1).handle(&[]);
    let mut stranger = Peer::new(&world, 2, 0);
    stranger
        .compound(&[ArgOp::PutFh(PutFh4Args { object: &handle })])
        .fails::<()>(OpNum4::PutFh, NfsStat4::Stale);
    let lookup = ArgOp::Lookup(Lookup4Args { objname: b"export" });
    let mut reply = stranger.compound(&[ArgOp::PutRootFh, lookup]);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.fails::<()>(OpNum4::Lookup, NfsStat4::NoEnt);
}

#[test]
fn what_the_backend_cannot_do_at_once_is_done_on_the_pool_with_the_same_outcome() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    // Every second call that may not wait is refused by the backend.
    world.fs.block_every(2);
    for _ in 0..8 {
        assert_eq!(client.handle(&[]).len(), client.handle(&[]).len());
    }
    assert!(client.seqid > Seqid(16));
}
