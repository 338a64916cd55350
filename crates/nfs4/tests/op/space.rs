use holdfast_base::{Length, Offset};
use holdfast_wire::nfs4::*;

use crate::client::{Reply, Session, open_create, open_existing};
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

#[test]
fn no_hint_is_promised_to_be_followed() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, b"x");
    let hints = Bitmap4::from_bits(0b1010);
    let advise =
        |stateid| ArgOp::IoAdvise(IoAdvise4Args { stateid, offset: Offset(0), count: Length(0), hints });
    let ok: IoAdvise4Ok = on(&mut client, &[b"f"], &[advise(stateid)]).ok(OpNum4::IoAdvise);
    assert_eq!(ok.hints, Bitmap4::EMPTY);
    let bad = Stateid4 { other: [9; 12], ..stateid };
    on(&mut client, &[b"f"], &[advise(bad)]).fails::<()>(OpNum4::IoAdvise, NfsStat4::BadStateid);
}
