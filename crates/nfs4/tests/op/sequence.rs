use holdfast_base::{Seqid, SlotId};
use holdfast_wire::nfs4::*;

use crate::client::{Session, at, open_create};
use crate::world::World;

#[test]
fn a_retry_gets_the_very_bytes_of_the_original_and_executes_nothing() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    client.cachethis = true;
    let mut ops = at(&[]);
    ops.push(ArgOp::Open(Open4Args {
        openhow: OpenFlag4::Create(CreateHow4::Guarded(Fattr4 { mask: Bitmap4::EMPTY, values: b"" })),
        ..open_create(b"f", b"owner", OPEN4_SHARE_ACCESS_BOTH)
    }));
    let first = client.run(&ops);
    assert_eq!(first.status, NfsStat4::Ok);
    let again = client.again(&ops);
    assert_eq!(first, again, "a second execution would have failed with EXIST");
}

#[test]
fn another_request_under_the_same_number_is_a_false_retry() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    client.cachethis = true;
    client.run(&[ArgOp::PutRootFh]);
    let mut reply = client.peer.compound(&[ArgOp::Sequence(client.sequence()), ArgOp::PutPubFh]);
    reply.fails::<()>(OpNum4::Sequence, NfsStat4::SeqFalseRetry);
}

#[test]
fn a_retry_of_what_was_not_kept_is_told_so_by_the_second_operation_and_changes_nothing() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let ops = [at(&[]), vec![ArgOp::Open(open_create(b"f", b"owner", OPEN4_SHARE_ACCESS_BOTH))]].concat();
    assert_eq!(client.run(&ops).status, NfsStat4::Ok);
    let mut reply = client.again(&ops);
    assert_eq!(reply.ops, 2);
    reply.fails::<()>(OpNum4::PutRootFh, NfsStat4::RetryUncachedRep);
    assert_eq!(client.run(&[ArgOp::PutRootFh, ArgOp::GetFh]).status, NfsStat4::Ok);
}

#[test]
fn a_reply_as_short_as_that_is_kept_whole() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    for ops in [&[][..], &[ArgOp::GetFh][..], &[ArgOp::Illegal(99)][..]] {
        let first = client.run(ops);
        assert_eq!(first, client.again(ops));
    }
}

#[test]
fn numbers_out_of_order_slots_beyond_and_sessions_unknown_are_refused() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let good = client.sequence();
    for (args, status) in [
        (Sequence4Args { sequenceid: Seqid(9), ..good }, NfsStat4::SeqMisordered),
        (Sequence4Args { slotid: SlotId(99), highest_slotid: SlotId(99), ..good }, NfsStat4::BadSlot),
        (Sequence4Args { slotid: SlotId(2), highest_slotid: SlotId(1), ..good }, NfsStat4::BadHighSlot),
        (Sequence4Args { sessionid: holdfast_base::SessionId([9; 16]), ..good }, NfsStat4::BadSession),
    ] {
        client.peer.compound(&[ArgOp::Sequence(args)]).fails::<()>(OpNum4::Sequence, status);
    }
}

#[test]
fn sequence_stands_first_and_only_there() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    client.seqid = client.seqid.next();
    let sequence = ArgOp::Sequence(client.sequence());
    let mut reply = client.peer.compound(&[ArgOp::PutRootFh, sequence.clone()]);
    reply.fails::<()>(OpNum4::PutRootFh, NfsStat4::OpNotInSession);
    let mut reply = client.peer.compound(&[sequence.clone(), sequence]);
    reply.ok::<Sequence4Ok>(OpNum4::Sequence);
    reply.fails::<()>(OpNum4::Sequence, NfsStat4::SequencePos);
}

#[test]
fn a_compound_beyond_the_sessions_limits_takes_no_slot() {
    let world = World::new();
    let small = |mut args: CreateSession4Args<'static>| {
        args.fore_chan_attrs.maxoperations = 3;
        args.fore_chan_attrs.maxrequestsize = 512;
        args
    };
    let mut client = Session::with(&world, 1, 1, small);
    client.seqid = client.seqid.next();
    let sequence = ArgOp::Sequence(client.sequence());
    let four = [sequence.clone(), ArgOp::PutRootFh, ArgOp::PutRootFh, ArgOp::PutRootFh];
    client.peer.compound(&four).fails::<()>(OpNum4::Sequence, NfsStat4::TooManyOps);
    let long = [0; 600];
    let big = [sequence, ArgOp::Lookup(Lookup4Args { objname: &long })];
    client.peer.compound(&big).fails::<()>(OpNum4::Sequence, NfsStat4::ReqTooBig);
    client.again(&[ArgOp::PutRootFh]).ok::<()>(OpNum4::PutRootFh);
}

#[test]
fn a_reply_that_would_not_fit_is_refused_and_what_changes_things_does_not_start() {
    let world = World::new();
    let small = |mut args: CreateSession4Args<'static>| {
        args.fore_chan_attrs.maxresponsesize = 170;
        args
    };
    let mut client = Session::with(&world, 1, 1, small);
    client.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let mut ops = at(&[]);
    ops.push(ArgOp::Open(open_create(b"f", b"owner", OPEN4_SHARE_ACCESS_READ)));
    let mut reply = client.run(&ops);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.fails::<()>(OpNum4::Open, NfsStat4::RepTooBig);
    assert_eq!(world.nfs.census().1, 0, "nothing was opened");
    let mut other = Session::open(&world, 2, 1);
    let mut ops = at(&[b"f"]);
    ops.push(ArgOp::GetFh);
    assert_eq!(other.run(&ops).status, NfsStat4::NoEnt, "nothing was made");
}

#[test]
fn what_is_to_be_kept_must_fit_what_is_kept() {
    let world = World::new();
    let small = |mut args: CreateSession4Args<'static>| {
        args.fore_chan_attrs.maxresponsesize_cached = 120;
        args
    };
    let mut client = Session::with(&world, 1, 1, small);
    let ops = [ArgOp::PutRootFh, ArgOp::GetFh, ArgOp::GetFh];
    assert_eq!(client.run(&ops).status, NfsStat4::Ok);
    client.cachethis = true;
    let mut reply = client.run(&ops);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.fails::<()>(OpNum4::GetFh, NfsStat4::RepTooBigToCache);
}
