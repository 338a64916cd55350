use holdfast_base::limits::ADVICE_PER_COMPOUND_MAX;
use holdfast_base::{ByteRange, Length, Offset};
use holdfast_vfs::Advice;
use holdfast_wire::nfs4::*;

use crate::client::{Reply, Session, open_create, open_existing, user};
use crate::scene::{file, make, on, on_root, on_v40};
use crate::world::World;

fn allocate(stateid: Stateid4, offset: u64, length: u64) -> ArgOp<'static> {
    ArgOp::Allocate(Allocate4Args { stateid, offset: Offset(offset), length: Length(length) })
}

fn deallocate(stateid: Stateid4, offset: u64, length: u64) -> ArgOp<'static> {
    ArgOp::Deallocate(Deallocate4Args { stateid, offset: Offset(offset), length: Length(length) })
}

fn seek(client: &mut Session, stateid: Stateid4, offset: u64, what: DataContent4) -> Reply {
    let args = Seek4Args { stateid, offset: Offset(offset), what: what as u32 };
    on(client, &[b"f"], &[ArgOp::Seek(args)])
}

fn size(client: &mut Session) -> u64 {
    let get = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Size]) });
    let mut reply = on(client, &[b"f"], &[get]);
    let values = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values.to_vec();
    u64::from_be_bytes(values.try_into().unwrap())
}

#[test]
fn allocation_extends_a_file_and_punching_never_shortens_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, &[1; 8192]);
    on(&mut client, &[b"f"], &[allocate(stateid, 8192, 4096)]).ok::<()>(OpNum4::Allocate);
    assert_eq!(size(&mut client), 12288);
    on(&mut client, &[b"f"], &[deallocate(stateid, 4096, 1 << 40)]).ok::<()>(OpNum4::Deallocate);
    assert_eq!(size(&mut client), 12288);
    let read = ArgOp::Read(Read4Args { stateid, offset: Offset(4090), count: 12 });
    let mut reply = on(&mut client, &[b"f"], &[read]);
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read).data, [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn ranges_that_cannot_be_are_invalid() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, b"x");
    for (offset, length) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
        on(&mut client, &[b"f"], &[allocate(stateid, offset, length)])
            .fails::<()>(OpNum4::Allocate, NfsStat4::Inval);
        on(&mut client, &[b"f"], &[deallocate(stateid, offset, length)])
            .fails::<()>(OpNum4::Deallocate, NfsStat4::Inval);
    }
    on(&mut client, &[b"f"], &[allocate(stateid, 1 << 62, 1 << 62)])
        .fails::<()>(OpNum4::Allocate, NfsStat4::Fbig);
}

#[test]
fn space_is_of_files_open_for_writing() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    file(&mut client, b"f", 0, b"x");
    make(&mut client, b"d", CreateType4::Dir);
    let open = open_existing(b"f", b"reader", OPEN4_SHARE_ACCESS_READ);
    let mut reply = on(&mut client, &[], &[ArgOp::Open(open)]);
    let reading = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    on(&mut client, &[b"f"], &[allocate(reading, 0, 1)]).fails::<()>(OpNum4::Allocate, NfsStat4::OpenMode);
    on(&mut client, &[b"d"], &[deallocate(Stateid4::ANONYMOUS, 0, 1)])
        .fails::<()>(OpNum4::Deallocate, NfsStat4::IsDir);
    on_root(&mut client, &[allocate(Stateid4::ANONYMOUS, 0, 1)])
        .fails::<()>(OpNum4::Allocate, NfsStat4::Rofs);
    on_v40(&world, &[b"f"], &[allocate(reading, 0, 1)]).fails::<()>(OpNum4::Illegal, NfsStat4::OpIllegal);
}

#[test]
fn space_is_taken_and_given_without_an_open_where_nobody_denies_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    file(&mut client, b"f", 0, b"x");
    for stateid in [Stateid4::ANONYMOUS, Stateid4::READ_BYPASS] {
        on(&mut client, &[b"f"], &[allocate(stateid, 0, 10)]).ok::<()>(OpNum4::Allocate);
        on(&mut client, &[b"f"], &[deallocate(stateid, 0, 1)]).ok::<()>(OpNum4::Deallocate);
    }
    assert_eq!(size(&mut client), 10);
    let args = open_create(b"denied", b"o", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let denying = Open4Args { share_deny: OPEN4_SHARE_DENY_WRITE, ..args };
    on(&mut client, &[], &[ArgOp::Open(denying)]).ok::<Open4Ok<'_>>(OpNum4::Open);
    for stateid in [Stateid4::ANONYMOUS, Stateid4::READ_BYPASS] {
        on(&mut client, &[b"denied"], &[allocate(stateid, 0, 10)])
            .fails::<()>(OpNum4::Allocate, NfsStat4::Locked);
        on(&mut client, &[b"denied"], &[deallocate(stateid, 0, 1)])
            .fails::<()>(OpNum4::Deallocate, NfsStat4::Locked);
    }
}

#[test]
fn seek_finds_data_holes_and_the_hole_at_the_end() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    file(&mut client, b"f", 4096, &[1; 4096]);
    let stateid = file(&mut client, b"f", 3 * 4096, b"tail");
    let end = 3 * 4096 + 4;
    let (data, hole) = (DataContent4::Data, DataContent4::Hole);
    for (offset, what, eof, found) in [
        (0, data, false, 4096),
        (0, hole, false, 0),
        (5000, data, false, 5000),
        (5000, hole, false, 8192),
        (8192, data, false, 3 * 4096),
        (3 * 4096, hole, true, end),
    ] {
        let ok: Seek4Ok = seek(&mut client, stateid, offset, what).ok(OpNum4::Seek);
        assert_eq!((ok.eof, ok.offset.0), (eof, found), "{offset} {what:?}");
    }
    for offset in [end, u64::MAX] {
        seek(&mut client, stateid, offset, data).fails::<()>(OpNum4::Seek, NfsStat4::Nxio);
        seek(&mut client, stateid, offset, hole).fails::<()>(OpNum4::Seek, NfsStat4::Nxio);
    }
    let odd = ArgOp::Seek(Seek4Args { stateid, offset: Offset(0), what: 7 });
    on(&mut client, &[b"f"], &[odd]).fails::<()>(OpNum4::Seek, NfsStat4::UnionNotSupp);
}

#[test]
fn seek_is_of_files() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    make(&mut client, b"d", CreateType4::Dir);
    make(&mut client, b"p", CreateType4::Fifo);
    let seek = |what| ArgOp::Seek(Seek4Args { stateid: Stateid4::ANONYMOUS, offset: Offset(0), what });
    on(&mut client, &[b"d"], &[seek(0)]).fails::<()>(OpNum4::Seek, NfsStat4::IsDir);
    on(&mut client, &[b"p"], &[seek(1)]).fails::<()>(OpNum4::Seek, NfsStat4::WrongType);
    on_root(&mut client, &[seek(0)]).fails::<()>(OpNum4::Seek, NfsStat4::IsDir);
}

#[test]
fn seek_tells_that_no_data_is_left() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, &[1; 4096]);
    on(&mut client, &[b"f"], &[allocate(stateid, 0, 16384)]).ok::<()>(OpNum4::Allocate);
    on(&mut client, &[b"f"], &[deallocate(stateid, 4096, 12288)]).ok::<()>(OpNum4::Deallocate);
    let ok: Seek4Ok = seek(&mut client, stateid, 4096, DataContent4::Data).ok(OpNum4::Seek);
    assert_eq!((ok.eof, ok.offset.0), (true, 16384));
}

fn commit() -> ArgOp<'static> {
    ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 })
}

fn advise(stateid: Stateid4, (offset, count): (u64, u64), hints: &[u32]) -> ArgOp<'static> {
    let hints = hints.iter().fold(Bitmap4::EMPTY, |all, hint| all.with(*hint));
    ArgOp::IoAdvise(IoAdvise4Args { stateid, offset: Offset(offset), count: Length(count), hints })
}

fn range(first: u64, last: u64) -> ByteRange {
    ByteRange::from_bounds(first, last).unwrap()
}

#[test]
fn a_hint_about_a_range_is_followed_and_no_other_is() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, b"x");
    on(&mut client, &[b"f"], &[commit()]).ok::<Commit4Ok>(OpNum4::Commit);
    let need = IO_ADVISE4_WILLNEED;
    let told = |client: &mut Session, place, hints: &[u32]| {
        let ok: IoAdvise4Ok = on(client, &[b"f"], &[advise(stateid, place, hints)]).ok(OpNum4::IoAdvise);
        ok.hints
    };
    assert_eq!(told(&mut client, (0, 0), &[need]), Bitmap4::EMPTY, "this backend does not follow it");
    assert_eq!(world.fs.advised(), []);
    assert_eq!(told(&mut client, (5, 10), &[IO_ADVISE4_SEQUENTIAL, need]), Bitmap4::EMPTY.with(need));
    let drop = IO_ADVISE4_DONTNEED;
    for (place, bounds) in [((7, 0), (7, u64::MAX)), ((9, u64::MAX), (9, u64::MAX)), ((0, 1), (0, 0))] {
        assert_eq!(told(&mut client, place, &[drop]), Bitmap4::EMPTY.with(drop));
        assert_eq!(world.fs.advised().pop(), Some((range(bounds.0, bounds.1), Advice::DontNeed)));
    }
    for hints in [&[IO_ADVISE4_SEQUENTIAL, IO_ADVISE4_RANDOM, IO_ADVISE4_NOREUSE][..], &[need, drop], &[]] {
        assert_eq!(told(&mut client, (0, 0), hints), Bitmap4::EMPTY);
    }
    assert_eq!(world.fs.advised(), []);
}

/// What memory is freed of, which nobody's reply waits for.
fn freed(world: &World) -> (ByteRange, Advice) {
    for _ in 0..500 {
        if let Some(advice) = world.fs.advised().pop() {
            return advice;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nothing is freed");
}

#[test]
fn no_more_than_some_advice_of_a_compound_is_followed() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, b"x");
    on(&mut client, &[b"f"], &[commit()]).ok::<Commit4Ok>(OpNum4::Commit);
    world.fs.advised();
    let ops: Vec<_> = (0..20).map(|_| advise(stateid, (0, 1), &[IO_ADVISE4_DONTNEED])).collect();
    let mut reply = on(&mut client, &[b"f"], &ops);
    let hints: Vec<_> = (0..20).map(|_| reply.ok::<IoAdvise4Ok>(OpNum4::IoAdvise).hints).collect();
    assert_eq!(hints.iter().filter(|hints| **hints != Bitmap4::EMPTY).count(), ADVICE_PER_COMPOUND_MAX);
}

#[test]
fn memory_is_freed_of_what_was_written_once_it_is_on_disk() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, b"x");
    world.fs.advised();
    for stable in [StableHow4::DataSync, StableHow4::Unstable] {
        let write = ArgOp::Write(Write4Args { stateid, offset: Offset(0), stable, data: b"data" });
        let ops = [write, advise(stateid, (0, 4), &[IO_ADVISE4_DONTNEED])];
        let mut reply = on(&mut client, &[b"f"], &ops);
        reply.ok::<Write4Ok>(OpNum4::Write);
        let ok: IoAdvise4Ok = reply.ok(OpNum4::IoAdvise);
        assert_eq!(ok.hints, Bitmap4::EMPTY.with(IO_ADVISE4_DONTNEED));
        assert_eq!(freed(&world), (range(0, 3), Advice::DontNeed));
        assert!(!world.fs.uncommitted().iter().any(|touched| touched.data), "{stable:?}");
    }
}

#[test]
fn a_read_with_advice_behind_it_has_its_data() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, &[7; 40_000]);
    on(&mut client, &[b"f"], &[commit()]).ok::<Commit4Ok>(OpNum4::Commit);
    world.fs.give_spans(true);
    world.fs.advised();
    let read = || ArgOp::Read(Read4Args { stateid, offset: Offset(0), count: 40_000 });
    let mut reply = on(&mut client, &[b"f"], &[read(), advise(stateid, (0, 40_000), &[IO_ADVISE4_DONTNEED])]);
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read).data, [7; 40_000]);
    reply.ok::<IoAdvise4Ok>(OpNum4::IoAdvise);
    assert_eq!(world.fs.advised(), [(range(0, 39_999), Advice::DontNeed)]);
    assert_eq!(on(&mut client, &[b"f"], &[read()]).ok::<Read4Ok<'_>>(OpNum4::Read).data, [7; 40_000]);
}

#[test]
fn advice_is_of_those_who_may_read_a_file_or_write_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, b"x");
    let drop = |stateid| advise(stateid, (0, 0), &[IO_ADVISE4_DONTNEED]);
    for access in [OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE] {
        let mut reply = on(&mut client, &[], &[ArgOp::Open(open_existing(b"f", b"one of them", access))]);
        let stateid = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
        on(&mut client, &[b"f"], &[drop(stateid)]).ok::<IoAdvise4Ok>(OpNum4::IoAdvise);
    }
    on(&mut client, &[b"f"], &[drop(Stateid4::ANONYMOUS)]).ok::<IoAdvise4Ok>(OpNum4::IoAdvise);
    let bad = Stateid4 { other: [9; 12], ..stateid };
    on(&mut client, &[b"f"], &[drop(bad)]).fails::<()>(OpNum4::IoAdvise, NfsStat4::BadStateid);
    make(&mut client, b"d", CreateType4::Dir);
    on(&mut client, &[b"d"], &[drop(Stateid4::ANONYMOUS)]).fails::<()>(OpNum4::IoAdvise, NfsStat4::IsDir);
    // Whoever shows another's state id has no right by that.
    client.peer.auth = user(4711);
    for stateid in [stateid, Stateid4::ANONYMOUS] {
        on(&mut client, &[b"f"], &[drop(stateid)]).fails::<()>(OpNum4::IoAdvise, NfsStat4::Access);
    }
}
