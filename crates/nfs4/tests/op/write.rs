use holdfast_base::limits::{CAPS_RECALLED_MS, IO_BYTES_MAX, RECALL_FLUSH_BYTES_PER_S, RECALL_STRETCH_MAX};
use holdfast_base::{CapSet, FileKey, Offset};
use holdfast_rpc::detached::Detached;
use holdfast_state::{CapOffer, CapRequest, Contention, Deed, Policy, RecallAnswer};
use holdfast_vfs::{Backend, FsError};
use holdfast_wire::nfs4::*;

use crate::client::{Reply, Session, at, open_create, open_existing};
use crate::scene::{file, make, on, on_nothing, on_root, on_v40, three_exports, to_export};
use crate::world::{LEASE_MS, World};

fn write(stateid: Stateid4, offset: u64, stable: StableHow4, data: &[u8]) -> ArgOp<'_> {
    ArgOp::Write(Write4Args { stateid, offset: Offset(offset), stable, data })
}

fn commit() -> ArgOp<'static> {
    commit_range(0, 0)
}

fn commit_range(offset: u64, count: u32) -> ArgOp<'static> {
    ArgOp::Commit(Commit4Args { offset: Offset(offset), count })
}

fn read(stateid: Stateid4, count: u32) -> ArgOp<'static> {
    ArgOp::Read(Read4Args { stateid, offset: Offset(0), count })
}

fn set<'a>(stateid: Stateid4, attrs: &[Attr], values: &'a [u8]) -> ArgOp<'a> {
    let obj_attributes = Fattr4 { mask: Bitmap4::of(attrs), values };
    ArgOp::SetAttr(SetAttr4Args { stateid, obj_attributes })
}

#[test]
fn an_unstable_write_is_durable_with_its_commit_and_a_stable_one_at_once() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"");
    let put = |client: &mut Session, stable| {
        on(client, &[b"f"], &[write(stateid, 0, stable, b"x")]).ok::<Write4Ok>(OpNum4::Write)
    };
    let unstable = put(&mut client, StableHow4::Unstable);
    assert_eq!((unstable.count, unstable.committed), (1, StableHow4::Unstable));
    assert_eq!(world.fs.commits().len(), 0);
    let committed: Commit4Ok = on(&mut client, &[b"f"], &[commit()]).ok(OpNum4::Commit);
    assert_eq!(committed.writeverf, unstable.writeverf);
    assert_eq!(world.fs.commits().len(), 1);
    for (n, stable) in [StableHow4::DataSync, StableHow4::FileSync].into_iter().enumerate() {
        assert_eq!(put(&mut client, stable).committed, StableHow4::FileSync);
        assert_eq!(world.fs.commits().len(), 2 + n, "before the reply, asynchronous export or not");
    }
}

#[test]
fn a_write_answers_with_the_verifier_of_before_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"");
    let before = world.fs.write_verifier();
    world.fs.lose_next_write();
    let put = write(stateid, 0, StableHow4::Unstable, b"x");
    let written: Write4Ok = on(&mut client, &[b"f"], &[put]).ok(OpNum4::Write);
    assert_eq!(written.writeverf, before);
    let committed: Commit4Ok = on(&mut client, &[b"f"], &[commit()]).ok(OpNum4::Commit);
    assert_ne!(committed.writeverf, before, "the client writes again");
}

#[test]
fn a_commit_answers_with_the_verifier_of_after_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"x");
    let (lost, before) = (world.fs.uncommitted(), world.fs.write_verifier());
    world.gate.close();
    client.seqid = client.seqid.next();
    let args = [&[ArgOp::Sequence(client.sequence())], &at(&[b"f"])[..], &[commit(), commit()]].concat();
    let args = client.peer.args(&args);
    assert_eq!(client.peer.send(&args).len(), 0, "the disk is being waited for");
    // Meanwhile another commit fails, and what it was to make durable is lost: ours finds nothing left to do.
    world.fs.fail_next_commit(FsError::Io);
    world.fs.commit(&lost[..1], &mut [Ok(())]);
    world.gate.open();
    let records = client.peer.receive(1);
    let mut reply = Reply::read(Detached::results(&records[0]).unwrap());
    reply.ok::<Sequence4Ok>(OpNum4::Sequence);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.ok::<()>(OpNum4::Lookup);
    for _ in 0..2 {
        let committed: Commit4Ok = reply.ok(OpNum4::Commit);
        assert_ne!(committed.writeverf, before);
        assert_eq!(committed.writeverf, world.fs.write_verifier());
    }
}

/// RFC 8881 section 18.3.3 gives a range as a hint: INVAL is of objects that are no files.
#[test]
fn a_commit_of_whatever_range_is_one_of_the_whole_file() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"");
    let ranges = [(0, 5), (1, 0), (2, 1), (0, u32::MAX), (100, 1), (u64::MAX, 0), (u64::MAX - 15, 64)];
    for (nth, (offset, count)) in ranges.into_iter().enumerate() {
        let put = write(stateid, 0, StableHow4::Unstable, b"x");
        on(&mut client, &[b"f"], &[put]).ok::<Write4Ok>(OpNum4::Write);
        let range = commit_range(offset, count);
        on(&mut client, &[b"f"], std::slice::from_ref(&range)).ok::<Commit4Ok>(OpNum4::Commit);
        assert!(world.fs.uncommitted().iter().all(|touched| !touched.data), "{offset} {count}");
        assert_eq!(world.fs.commits().len(), 2 * nth + 1);
        on_v40(&world, &[b"f"], &[range]).ok::<Commit4Ok>(OpNum4::Commit);
    }
}

/// A mount that sends a large file because of a recall does so by WRITE and COMMIT, and the promise may be of anything.
#[test]
fn who_writes_or_commits_has_more_time_to_give_back_what_is_asked_for() {
    const RECALL_MS: u64 = LEASE_MS / (RECALL_STRETCH_MAX + 1);
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"");
    let (promised, holder) = (FileKey(7), client.client);
    let promise = || {
        world.manager.quiet(|engine, now| {
            let policy = *engine.policy();
            engine.set_policy(Policy { recall_ms: Some(RECALL_MS), ..policy });
            engine.caps_hello(holder).unwrap();
            engine.caps_path(holder, true);
            let request = CapRequest {
                client: holder,
                file: promised,
                want: CapSet::FILE_X,
                reclaim: None,
                is_beside_writers: false,
            };
            let CapOffer::Offered(ticket) = engine.caps_prepare(&request, now).unwrap() else { panic!() };
            engine.caps_commit(ticket).unwrap();
        });
    };
    promise();
    let is_held = || {
        world.manager.quiet(|engine, now| {
            let contention = engine.contend(promised, Deed::ReadData, None, now);
            // There is nobody to be told.
            drop(engine.take_effects());
            contention != Contention::Clear
        })
    };
    assert!(is_held());
    for round in 1..RECALL_STRETCH_MAX * 2 {
        world.pass(RECALL_MS / 2);
        let put = write(stateid, 0, StableHow4::Unstable, b"x");
        on(&mut client, &[b"f"], &[if round % 2 == 0 { put } else { commit() }]);
        assert!(is_held(), "after {round} halves");
    }
    world.pass(RECALL_MS / 2);
    assert!(!is_held(), "it has had its time");
    // Over a slow line, with as much in each second as counts.
    world.pass(CAPS_RECALLED_MS);
    promise();
    assert!(is_held());
    world.manager.quiet(|engine, now| {
        let seq = engine.caps_of(holder, promised).seq;
        engine.caps_recall_answered(holder, (promised, seq), RecallAnswer::Accepted, now);
    });
    let seconds = RECALL_MS / 2000;
    let much = vec![7; usize::try_from(seconds * RECALL_FLUSH_BYTES_PER_S).unwrap()];
    for round in 1..RECALL_STRETCH_MAX * 8 {
        world.pass(RECALL_MS / 2);
        on(&mut client, &[b"f"], &[write(stateid, 0, StableHow4::Unstable, &much)]);
        assert!(is_held(), "after {round} halves of sending");
    }
    world.pass(RECALL_MS);
    assert!(!is_held(), "it has stopped sending");
}

#[test]
fn a_write_beyond_the_greatest_size_is_refused_and_one_of_nothing_is_none() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"abc");
    let mut put =
        |offset, data| on(&mut client, &[b"f"], &[write(stateid, offset, StableHow4::Unstable, data)]);
    put(i64::MAX as u64, b"xy").fails::<()>(OpNum4::Write, NfsStat4::Fbig);
    put(u64::MAX, b"xy").fails::<()>(OpNum4::Write, NfsStat4::Fbig);
    assert_eq!(put(100, b"").ok::<Write4Ok>(OpNum4::Write).count, 0);
    let mut reply = on(&mut client, &[b"f"], &[read(stateid, 200)]);
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read).data, b"abc");
}

/// 4.0 knows no bound but what MAXWRITE says; the connection's is a little above that.
#[test]
fn a_write_of_more_than_maxwrite_is_done_as_far_as_its_answer_says() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    let data = vec![7; IO_BYTES_MAX + 4096];
    let put = write(Stateid4::ANONYMOUS, 0, StableHow4::Unstable, &data);
    let get = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Size]) });
    let mut reply = on_v40(&world, &[b"f"], &[put, get]);
    let written = reply.ok::<Write4Ok>(OpNum4::Write).count;
    assert!(written as usize >= IO_BYTES_MAX, "{written}");
    let size = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values;
    assert_eq!(size, u64::from(written).to_be_bytes());
}

#[test]
fn one_compound_writes_and_reads_as_often_as_it_likes_in_its_order() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"");
    let put = |offset, stable, data| write(stateid, offset, stable, data);
    let (unstable, stable) = (StableHow4::Unstable, StableHow4::FileSync);
    let ops = [
        put(0, unstable, &b"abc"[..]),
        put(3, stable, b"def"),
        read(stateid, 9),
        put(1, unstable, b"X"),
        put(9, unstable, b"z"),
        read(stateid, 20),
        read(stateid, 2),
    ];
    let mut reply = on(&mut client, &[b"f"], &ops);
    let wrote = |reply: &mut Reply, count| {
        assert_eq!(reply.ok::<Write4Ok>(OpNum4::Write).count, count);
    };
    let found = |reply: &mut Reply, eof, data: &[u8]| {
        assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read), Read4Ok { eof, data });
    };
    wrote(&mut reply, 3);
    wrote(&mut reply, 3);
    found(&mut reply, true, b"abcdef");
    wrote(&mut reply, 1);
    wrote(&mut reply, 1);
    found(&mut reply, true, b"aXcdef\0\0\0z");
    found(&mut reply, false, b"aX");
    reply.end();
}

#[test]
fn what_is_no_file_is_refused_by_kind_and_minor_version() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    make(&mut client, b"d", CreateType4::Dir);
    make(&mut client, b"l", CreateType4::Lnk(b"d"));
    make(&mut client, b"p", CreateType4::Fifo);
    for (name, v41, v40) in [
        (b"d", NfsStat4::IsDir, NfsStat4::IsDir),
        (b"l", NfsStat4::Symlink, NfsStat4::Inval),
        (b"p", NfsStat4::WrongType, NfsStat4::Inval),
    ] {
        let put = write(Stateid4::ANONYMOUS, 0, StableHow4::Unstable, b"x");
        on(&mut client, &[name], std::slice::from_ref(&put)).fails::<()>(OpNum4::Write, v41);
        on_v40(&world, &[name], &[put]).fails::<()>(OpNum4::Write, v40);
        on(&mut client, &[name], &[commit()]).fails::<()>(OpNum4::Commit, v41);
        on_v40(&world, &[name], &[commit()]).fails::<()>(OpNum4::Commit, v40);
    }
    on_root(&mut client, &[commit()]).fails::<()>(OpNum4::Commit, NfsStat4::IsDir);
    on_nothing(&mut client, commit()).fails::<()>(OpNum4::Commit, NfsStat4::NoFileHandle);
}

#[test]
fn setattr_answers_with_a_bitmap_even_when_it_fails() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"hello");
    let none = SetAttr4Res { attrsset: Bitmap4::EMPTY };
    let huge = u64::MAX.to_be_bytes();
    let mut refused = |op, status| {
        let body: SetAttr4Res = on(&mut client, &[b"f"], &[op]).fails(OpNum4::SetAttr, status);
        assert_eq!(body, none);
    };
    refused(set(stateid, &[Attr::FileId], &[0; 8]), NfsStat4::Inval);
    refused(set(stateid, &[Attr::Acl], &[0; 4]), NfsStat4::AttrNotSupp);
    refused(set(stateid, &[Attr::Owner], &[0; 4]), NfsStat4::Inval);
    refused(set(stateid, &[Attr::Size], &huge), NfsStat4::Fbig);
    refused(set(Stateid4 { other: [9; 12], ..stateid }, &[Attr::Size], &[0; 8]), NfsStat4::BadStateid);
    let body: SetAttr4Res = on_nothing(&mut client, set(stateid, &[Attr::Mode], &[0; 4]))
        .fails(OpNum4::SetAttr, NfsStat4::NoFileHandle);
    assert_eq!(body, none);
    let frozen = [&to_export(b"frozen")[..], &[set(stateid, &[Attr::Mode], &[0; 4])]].concat();
    assert_eq!(client.run(&frozen).status, NfsStat4::Rofs);
}

#[test]
fn setattr_names_what_it_set_and_needs_a_state_id_for_a_size_alone() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"hello");
    let values = [&2u64.to_be_bytes()[..], &0o640u32.to_be_bytes()].concat();
    let attrs = [Attr::Size, Attr::Mode];
    let done: SetAttr4Res = on(&mut client, &[b"f"], &[set(stateid, &attrs, &values)]).ok(OpNum4::SetAttr);
    assert_eq!(done.attrsset, Bitmap4::of(&attrs));
    let bad = Stateid4 { other: [9; 12], ..stateid };
    let mode = 0o600u32.to_be_bytes();
    on(&mut client, &[b"f"], &[set(bad, &[Attr::Mode], &mode)]).ok::<SetAttr4Res>(OpNum4::SetAttr);
    let get = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&attrs) });
    let mut reply = on(&mut client, &[b"f"], &[get]);
    let got = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values;
    assert_eq!(got, [&2u64.to_be_bytes()[..], &0o600u32.to_be_bytes()].concat());
    // Nothing to set is nothing done.
    let done: SetAttr4Res = on(&mut client, &[b"f"], &[set(stateid, &[], &[])]).ok(OpNum4::SetAttr);
    assert_eq!(done.attrsset, Bitmap4::EMPTY);
}

#[test]
fn a_size_is_set_by_an_open_to_write_of_this_file_or_where_nobody_denies_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let writing = file(&mut client, b"f", 0, b"hello");
    let of_another = file(&mut client, b"g", 0, b"");
    let args = open_existing(b"f", b"reader", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let reading = on(&mut client, &[], &[ArgOp::Open(args)]).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let size = 2u64.to_be_bytes();
    let mut resize =
        |name: &[u8], stateid| on(&mut client, &[name], &[set(stateid, &[Attr::Size], &size)]).status;
    assert_eq!(resize(b"f", reading), NfsStat4::OpenMode);
    assert_eq!(resize(b"f", of_another), NfsStat4::BadStateid);
    let whoever = [Stateid4::ANONYMOUS, Stateid4::READ_BYPASS];
    for stateid in [writing, whoever[0], whoever[1]] {
        assert_eq!(resize(b"f", stateid), NfsStat4::Ok);
    }
    let mut other = Session::open(&world, 2, 1);
    let args = open_create(b"d", b"o", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let denying = Open4Args { share_deny: OPEN4_SHARE_DENY_WRITE, ..args };
    on(&mut other, &[], &[ArgOp::Open(denying)]).ok::<Open4Ok<'_>>(OpNum4::Open);
    for stateid in whoever {
        assert_eq!(resize(b"d", stateid), NfsStat4::Locked, "ones pass by reservations to read alone");
    }
}
