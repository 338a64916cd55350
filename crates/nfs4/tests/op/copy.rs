use holdfast_base::limits::OFFLOADS_PER_CLIENT_MAX;
use holdfast_base::{Length, Offset};
use holdfast_rpc::detached::Detached;
use holdfast_vfs::Backend;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use crate::client::{Reply, Session, at};
use crate::scene::{file, on, three_exports, to_export};
use crate::world::World;

/// Bytes of CB_SEQUENCE without referring calls, its number included.
const CB_SEQUENCE_BYTES: usize = 4 + 16 + 4 + 4 + 4 + 4 + 4;

fn copy(from: Stateid4, to: Stateid4, (src, dst, count): (u64, u64, u64)) -> ArgOp<'static> {
    ArgOp::Copy(Copy4Args {
        src_stateid: from,
        dst_stateid: to,
        src_offset: Offset(src),
        dst_offset: Offset(dst),
        count: Length(count),
        consecutive: true,
        synchronous: true,
        source_servers: Vec::new(),
    })
}

fn clone(from: Stateid4, to: Stateid4, (src, dst, count): (u64, u64, u64)) -> ArgOp<'static> {
    ArgOp::Clone(Clone4Args {
        src_stateid: from,
        dst_stateid: to,
        src_offset: Offset(src),
        dst_offset: Offset(dst),
        count: Length(count),
    })
}

/// From `a` to `b`; the reply stands before the last operation's result.
fn a_to_b(client: &mut Session, op: ArgOp<'_>) -> Reply {
    let mut reply = client.run(&[&at(&[b"a"])[..], &[ArgOp::SaveFh], &at(&[b"b"])[..], &[op]].concat());
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup, OpNum4::SaveFh] {
        reply.ok::<()>(op);
    }
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup] {
        reply.ok::<()>(op);
    }
    reply
}

fn content(client: &mut Session, stateid: Stateid4) -> Vec<u8> {
    let read = ArgOp::Read(Read4Args { stateid, offset: Offset(0), count: 1 << 20 });
    on(client, &[b"b"], &[read]).ok::<Read4Ok<'_>>(OpNum4::Read).data.to_vec()
}

fn two_files(client: &mut Session, source: &[u8]) -> (Stateid4, Stateid4) {
    (file(client, b"a", 0, source), file(client, b"b", 0, b""))
}

#[test]
fn a_copy_says_how_much_and_count_zero_means_to_the_end() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let (a, b) = two_files(&mut client, b"0123456789");
    let ok: Copy4Ok = a_to_b(&mut client, copy(a, b, (2, 1, 3))).ok(OpNum4::Copy);
    assert_eq!((ok.response.count.0, ok.response.callback_id), (3, None));
    assert!(ok.requirements.synchronous && ok.requirements.consecutive);
    assert_eq!(content(&mut client, b), b"\x00234");
    let ok: Copy4Ok = a_to_b(&mut client, copy(a, b, (4, 0, 0))).ok(OpNum4::Copy);
    assert_eq!(ok.response.count.0, 6);
    assert_eq!(content(&mut client, b), b"456789");
    // At the end there is nothing left to copy; that is no error.
    let ok: Copy4Ok = a_to_b(&mut client, copy(a, b, (10, 0, 0))).ok(OpNum4::Copy);
    assert_eq!(ok.response.count.0, 0);
}

#[test]
fn a_copy_of_what_is_not_there_is_invalid() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let (a, b) = two_files(&mut client, b"0123456789");
    for span in [(11, 0, 0), (5, 0, 6), (1, 0, u64::MAX), (u64::MAX, 0, 1)] {
        a_to_b(&mut client, copy(a, b, span)).fails::<()>(OpNum4::Copy, NfsStat4::Inval);
    }
    assert_eq!(content(&mut client, b), b"");
}

#[test]
fn a_copy_between_servers_is_not_served() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let (a, b) = two_files(&mut client, b"x");
    let ArgOp::Copy(mut args) = copy(a, b, (0, 0, 0)) else { unreachable!() };
    args.source_servers.push(NetLoc4::Name(b"elsewhere"));
    a_to_b(&mut client, ArgOp::Copy(args)).fails::<()>(OpNum4::Copy, NfsStat4::NotSupp);
}

#[test]
fn both_ends_of_a_copy_need_their_opens() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let (a, b) = two_files(&mut client, b"x");
    let bad = Stateid4 { other: [9; 12], ..a };
    a_to_b(&mut client, copy(bad, b, (0, 0, 0))).fails::<()>(OpNum4::Copy, NfsStat4::BadStateid);
    a_to_b(&mut client, copy(a, bad, (0, 0, 0))).fails::<()>(OpNum4::Copy, NfsStat4::BadStateid);
    a_to_b(&mut client, copy(b, a, (0, 0, 0))).fails::<()>(OpNum4::Copy, NfsStat4::BadStateid);
    on(&mut client, &[b"b"], &[copy(a, b, (0, 0, 0))]).fails::<()>(OpNum4::Copy, NfsStat4::NoFileHandle);
}

#[test]
fn nothing_is_copied_or_cloned_from_one_export_to_another() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 2);
    let (a, b) = two_files(&mut client, b"x");
    for (op, num) in [(copy(a, b, (0, 0, 0)), OpNum4::Copy), (clone(a, b, (0, 0, 0)), OpNum4::Clone)] {
        let ops = [&at(&[b"a"])[..], &[ArgOp::SaveFh], &to_export(b"other")[..], &[op]].concat();
        assert_eq!(client.run(&ops).status, NfsStat4::Xdev, "{num}");
    }
}

#[test]
fn a_clone_is_of_whole_blocks_or_up_to_the_end() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let source = [&[1; 4096][..], &[2; 100]].concat();
    let (a, b) = two_files(&mut client, &source);
    a_to_b(&mut client, clone(a, b, (0, 0, 0))).ok::<()>(OpNum4::Clone);
    assert_eq!(content(&mut client, b), source);
    a_to_b(&mut client, clone(a, b, (4096, 4096, 0))).ok::<()>(OpNum4::Clone);
    a_to_b(&mut client, clone(a, b, (0, 4096, 4096))).ok::<()>(OpNum4::Clone);
    assert_eq!(content(&mut client, b), [1; 8192]);
    // The last: an end within a block, where the target goes on.
    for span in [(1, 0, 4096), (0, 1, 4096), (0, 0, 8192), (4096, 0, 0)] {
        a_to_b(&mut client, clone(a, b, span)).fails::<()>(OpNum4::Clone, NfsStat4::Inval);
    }
}

/// A client that can be called back, with a sparse file `a` of this size and an empty `b`.
fn with_back_channel(world: &World, bytes: u64) -> (Session, Stateid4, Stateid4) {
    let mut client = Session::with(world, 1, 2, |mut args| {
        args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        args
    });
    client.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let (a, b) = two_files(&mut client, b"x");
    let values = bytes.to_be_bytes();
    let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values: &values };
    let size = ArgOp::SetAttr(SetAttr4Args { stateid: a, obj_attributes });
    on(&mut client, &[b"a"], &[size]).ok::<SetAttr4Res>(OpNum4::SetAttr);
    (client, a, b)
}

fn in_background(from: Stateid4, to: Stateid4) -> ArgOp<'static> {
    let ArgOp::Copy(args) = copy(from, to, (0, 0, 0)) else { unreachable!() };
    ArgOp::Copy(Copy4Args { synchronous: false, ..args })
}

fn status(client: &mut Session, stateid: Stateid4) -> Reply {
    on(client, &[b"b"], &[ArgOp::OffloadStatus(OffloadStatus4Args { stateid })])
}

/// Begins a copy whose end may be told before its reply is looked at: the reply, and the call if it came.
fn begin(client: &mut Session, op: ArgOp<'static>) -> (Copy4Ok, Vec<Vec<u8>>) {
    client.seqid = client.seqid.next();
    let sequence = [ArgOp::Sequence(client.sequence())];
    let ops = [&sequence, &at(&[b"a"])[..], &[ArgOp::SaveFh], &at(&[b"b"])[..], &[op]].concat();
    let args = client.peer.args(&ops);
    let mut records = client.peer.raw(&args);
    while !records.iter().any(|record| Detached::results(record).is_some()) {
        records.extend(client.peer.receive(1));
    }
    let is_reply = |record: &Vec<u8>| Detached::results(record).is_some();
    let (replies, calls): (Vec<_>, Vec<_>) = records.into_iter().partition(is_reply);
    let mut reply = Reply::read(Detached::results(&replies[0]).unwrap());
    reply.ok::<Sequence4Ok>(OpNum4::Sequence);
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup, OpNum4::SaveFh] {
        reply.ok::<()>(op);
    }
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup] {
        reply.ok::<()>(op);
    }
    (reply.ok(OpNum4::Copy), calls)
}

/// The answer to CB_SEQUENCE and one operation: both went well.
fn answer_call(client: &mut Session, call: &[u8], sequence: &CbSequence4Args) {
    let mut w = Writer::new();
    // xid, REPLY, MSG_ACCEPTED, no verifier, SUCCESS.
    w.put(&call[..4]);
    [1, 0, 0, 0, 0].into_iter().for_each(|word| w.u32(word));
    CompoundResHeader { status: NfsStat4::Ok, tag: b"", ops: 2 }.encode(&mut w);
    ResOpHeader { op: CbOpNum4::Sequence.as_u32(), status: NfsStat4::Ok }.encode(&mut w);
    let ok = CbSequence4Ok {
        sessionid: sequence.sessionid,
        sequenceid: sequence.sequenceid,
        slotid: sequence.slotid,
        highest_slotid: sequence.highest_slotid,
        target_highest_slotid: sequence.highest_slotid,
    };
    ok.encode(&mut w);
    ResOpHeader { op: CbOpNum4::Offload.as_u32(), status: NfsStat4::Ok }.encode(&mut w);
    client.peer.wire.exchange(w.as_slice());
}

#[test]
fn a_large_copy_goes_on_after_its_reply_and_its_end_is_told() {
    const BYTES: u64 = (64 << 20) + 1;
    let world = World::new();
    let (mut client, a, b) = with_back_channel(&world, BYTES);
    let handle = client.handle(&[b"b"]);
    let (ok, mut calls) = begin(&mut client, in_background(a, b));
    assert!(!ok.requirements.synchronous);
    let stateid = ok.response.callback_id.unwrap();
    if calls.is_empty() {
        calls = client.peer.receive(1);
    }
    let call = &calls[0];
    // The operation stands behind CB_SEQUENCE: number, file, state id, how it ended.
    let fh = call.windows(handle.len()).position(|bytes| bytes == handle).unwrap();
    let mut r = Reader::new(&call[fh - 8..]);
    let CbArgOp::Offload(told) = CbArgOp::decode(&mut r).unwrap() else { panic!("{call:?}") };
    let OffloadInfo4::Done(done) = told.info else { panic!("{told:?}") };
    assert_eq!((told.fh, told.stateid, done.count.0), (&handle[..], stateid, BYTES));
    assert_eq!((done.committed, done.callback_id), (StableHow4::Unstable, None));
    // Until the client has answered it may ask; then the state id is gone.
    let known: OffloadStatus4Ok = status(&mut client, stateid).ok(OpNum4::OffloadStatus);
    assert_eq!((known.count.0, known.complete), (BYTES, Some(NfsStat4::Ok)));
    let before = fh - 8 - CB_SEQUENCE_BYTES;
    let mut r = Reader::new(&call[before..]);
    let CbArgOp::Sequence(sequence) = CbArgOp::decode(&mut r).unwrap() else { panic!("{call:?}") };
    answer_call(&mut client, call, &sequence);
    status(&mut client, stateid).fails::<()>(OpNum4::OffloadStatus, NfsStat4::BadStateid);
    let read = ArgOp::Read(Read4Args { stateid: b, offset: Offset(0), count: 2 });
    assert_eq!(on(&mut client, &[b"b"], &[read]).ok::<Read4Ok<'_>>(OpNum4::Read).data, b"x\0");
}

#[test]
fn a_copy_under_way_can_be_asked_about_and_cancelled() {
    let world = World::new();
    let (mut client, a, b) = with_back_channel(&world, 1 << 45);
    let (ok, calls) = begin(&mut client, in_background(a, b));
    assert_eq!(calls.len(), 0);
    let stateid = ok.response.callback_id.unwrap();
    let known: OffloadStatus4Ok = status(&mut client, stateid).ok(OpNum4::OffloadStatus);
    assert_eq!(known.complete, None);
    let ask_of_a = ArgOp::OffloadStatus(OffloadStatus4Args { stateid });
    on(&mut client, &[b"a"], &[ask_of_a]).fails::<()>(OpNum4::OffloadStatus, NfsStat4::BadStateid);
    let cancel = ArgOp::OffloadCancel(OffloadCancel4Args { stateid });
    on(&mut client, &[b"b"], std::slice::from_ref(&cancel)).ok::<()>(OpNum4::OffloadCancel);
    on(&mut client, &[b"b"], &[cancel]).fails::<()>(OpNum4::OffloadCancel, NfsStat4::BadStateid);
    status(&mut client, stateid).fails::<()>(OpNum4::OffloadStatus, NfsStat4::BadStateid);
    world.check();
}

#[test]
fn copies_end_with_their_client_and_make_room_for_others() {
    let world = World::new();
    for _ in 0..2 {
        let (mut client, a, b) = with_back_channel(&world, 1 << 45);
        let begun: Vec<_> = (0..OFFLOADS_PER_CLIENT_MAX)
            .map(|_| begin(&mut client, in_background(a, b)).0.response.callback_id.unwrap())
            .collect();
        status(&mut client, begun[0]).ok::<OffloadStatus4Ok>(OpNum4::OffloadStatus);
        world.pass_courtesy();
        let mut again = Session::open(&world, 1, 2);
        status(&mut again, begun[0]).fails::<()>(OpNum4::OffloadStatus, NfsStat4::BadStateid);
        world.pass_courtesy();
        world.check();
    }
}

#[test]
fn without_a_back_channel_or_with_a_small_copy_nothing_goes_on_after_the_reply() {
    let world = World::new();
    let (mut client, a, b) = with_back_channel(&world, 100);
    let (ok, _) = begin(&mut client, in_background(a, b));
    assert_eq!(
        (ok.response.callback_id, ok.response.count.0, ok.requirements.synchronous),
        (None, 100, true)
    );
    let mut deaf = Session::open(&world, 2, 2);
    let (a, b) = two_files(&mut deaf, b"x");
    let values = (65u64 << 20).to_be_bytes();
    let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values: &values };
    let size = ArgOp::SetAttr(SetAttr4Args { stateid: a, obj_attributes });
    on(&mut deaf, &[b"a"], &[size]).ok::<SetAttr4Res>(OpNum4::SetAttr);
    let (ok, _) = begin(&mut deaf, in_background(a, b));
    assert_eq!((ok.response.callback_id, ok.response.count.0), (None, 65 << 20));
}

#[test]
fn a_copy_answers_with_the_verifier_of_before_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let (a, b) = two_files(&mut client, b"abc");
    let before = world.fs.write_verifier();
    world.fs.lose_next_write();
    let ok: Copy4Ok = a_to_b(&mut client, copy(a, b, (0, 0, 3))).ok(OpNum4::Copy);
    assert_eq!(ok.response.writeverf, before);
    assert_ne!(world.fs.write_verifier(), before);
}
