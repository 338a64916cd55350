use holdfast_base::{Length, Offset};
use holdfast_vfs::FsError;
use holdfast_wire::nfs4::*;

use crate::client::{Session, open_create, open_existing, user};
use crate::scene::{file, make, on, on_nothing, on_root, on_v40};
use crate::world::World;

fn read(stateid: Stateid4, offset: u64, count: u32) -> ArgOp<'static> {
    ArgOp::Read(Read4Args { stateid, offset: Offset(offset), count })
}

fn read_plus(stateid: Stateid4, offset: u64, count: u32) -> ArgOp<'static> {
    ArgOp::ReadPlus(ReadPlus4Args { stateid, offset: Offset(offset), count })
}

fn data(offset: u64, data: &[u8]) -> ReadPlusContent<'_> {
    ReadPlusContent::Data(Data4 { offset: Offset(offset), data })
}

fn hole(offset: u64, length: u64) -> ReadPlusContent<'static> {
    ReadPlusContent::Hole(DataInfo4 { offset: Offset(offset), length: Length(length) })
}

#[test]
fn a_read_ends_at_the_files_end_and_beyond_it_is_nothing() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"hello");
    for (offset, count, data, eof) in [
        (0, 100, &b"hello"[..], true),
        (0, 5, b"hello", true),
        (0, 4, b"hell", false),
        (3, 0, b"", false),
        (5, 10, b"", true),
        (1 << 40, 10, b"", true),
        (u64::MAX, 10, b"", true),
    ] {
        let mut reply = on(&mut client, &[b"f"], &[read(stateid, offset, count)]);
        assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read), Read4Ok { eof, data }, "{offset} {count}");
        reply.end();
    }
}

#[test]
fn what_is_no_file_is_refused_by_kind_and_minor_version() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    make(&mut client, b"d", CreateType4::Dir);
    make(&mut client, b"l", CreateType4::Lnk(b"d"));
    make(&mut client, b"p", CreateType4::Fifo);
    let anonymous = Stateid4::ANONYMOUS;
    for (name, v42, v40) in [
        (b"d", NfsStat4::IsDir, NfsStat4::IsDir),
        (b"l", NfsStat4::Symlink, NfsStat4::Inval),
        (b"p", NfsStat4::WrongType, NfsStat4::Inval),
    ] {
        on(&mut client, &[name], &[read(anonymous, 0, 1)]).fails::<()>(OpNum4::Read, v42);
        on(&mut client, &[name], &[read_plus(anonymous, 0, 1)]).fails::<()>(OpNum4::ReadPlus, v42);
        on_v40(&world, &[name], &[read(anonymous, 0, 1)]).fails::<()>(OpNum4::Read, v40);
    }
    on_root(&mut client, &[read(anonymous, 0, 1)]).fails::<()>(OpNum4::Read, NfsStat4::IsDir);
    on_nothing(&mut client, read(anonymous, 0, 1)).fails::<()>(OpNum4::Read, NfsStat4::NoFileHandle);
}

#[test]
fn an_open_for_writing_may_read_what_its_user_may() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"hello");
    let open = open_existing(b"f", b"writer", OPEN4_SHARE_ACCESS_WRITE);
    let mut reply = on(&mut client, &[], &[ArgOp::Open(open), read(Stateid4::CURRENT, 0, 5)]);
    reply.ok::<Open4Ok<'_>>(OpNum4::Open);
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read).data, b"hello");
}

#[test]
fn what_others_deny_an_open_for_writing_does_not_read() {
    let world = World::new();
    let (mut client, mut denier) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    let open = open_create(b"f", b"writer", OPEN4_SHARE_ACCESS_WRITE);
    let mut reply = on(&mut client, &[], &[ArgOp::Open(open)]);
    let writing = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let denying = Open4Args {
        share_deny: OPEN4_SHARE_DENY_READ,
        ..open_existing(b"f", b"denier", OPEN4_SHARE_ACCESS_WRITE)
    };
    let mut reply = on(&mut denier, &[], &[ArgOp::Open(denying)]);
    let denied = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    on(&mut client, &[b"f"], &[read(writing, 0, 1)]).fails::<()>(OpNum4::Read, NfsStat4::Locked);
    on(&mut denier, &[b"f"], &[read(denied, 0, 1)]).ok::<Read4Ok<'_>>(OpNum4::Read);
}

#[test]
fn another_users_state_id_lends_no_rights() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"secret");
    let mode = 0o600u32.to_be_bytes();
    let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &mode };
    let setattr = SetAttr4Args { stateid: Stateid4::ANONYMOUS, obj_attributes };
    on(&mut client, &[b"f"], &[ArgOp::SetAttr(setattr)]).ok::<SetAttr4Res>(OpNum4::SetAttr);
    client.peer.auth = user(2000);
    on(&mut client, &[b"f"], &[read(stateid, 0, 6)]).fails::<()>(OpNum4::Read, NfsStat4::Access);
    let write = Write4Args { stateid, offset: Offset(0), stable: StableHow4::Unstable, data: b"stolen" };
    on(&mut client, &[b"f"], &[ArgOp::Write(write)]).fails::<()>(OpNum4::Write, NfsStat4::Access);
    client.peer.auth = user(1000);
    on(&mut client, &[b"f"], &[read(stateid, 0, 6)]).ok::<Read4Ok<'_>>(OpNum4::Read);
}

#[test]
fn read_plus_tells_holes_from_data() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    file(&mut client, b"f", 0, &[1; 4096]);
    let stateid = file(&mut client, b"f", 3 * 4096, b"tail");
    let whole = [data(0, &[1; 4096]), hole(4096, 2 * 4096), data(3 * 4096, b"tail")];
    let mut reply = on(&mut client, &[b"f"], &[read_plus(stateid, 0, 1 << 16)]);
    let ok: ReadPlus4Ok<'_> = reply.ok(OpNum4::ReadPlus);
    assert_eq!((ok.eof, &ok.contents[..]), (true, &whole[..]));
    reply.end();
    // Cut at both ends.
    let mut reply = on(&mut client, &[b"f"], &[read_plus(stateid, 4000, 200)]);
    let ok: ReadPlus4Ok<'_> = reply.ok(OpNum4::ReadPlus);
    assert_eq!((ok.eof, &ok.contents[..]), (false, &[data(4000, &[1; 96]), hole(4096, 104)][..]));
    for (offset, count, eof) in [(3 * 4096 + 4, 10, true), (1 << 50, 10, true), (0, 0, false)] {
        let mut reply = on(&mut client, &[b"f"], &[read_plus(stateid, offset, count)]);
        let ok: ReadPlus4Ok<'_> = reply.ok(OpNum4::ReadPlus);
        assert_eq!((ok.eof, ok.contents.len()), (eof, 0), "{offset} {count}");
    }
}

#[test]
fn read_plus_of_a_hole_at_the_end_ends_the_file() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    let stateid = file(&mut client, b"f", 0, b"");
    let size = 10_000u64.to_be_bytes();
    let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values: &size };
    let setattr = ArgOp::SetAttr(SetAttr4Args { stateid, obj_attributes });
    on(&mut client, &[b"f"], &[setattr]).ok::<SetAttr4Res>(OpNum4::SetAttr);
    let mut reply = on(&mut client, &[b"f"], &[read_plus(stateid, 0, 1 << 16)]);
    let ok: ReadPlus4Ok<'_> = reply.ok(OpNum4::ReadPlus);
    assert_eq!((ok.eof, &ok.contents[..]), (true, &[hole(0, 10_000)][..]));
}

#[test]
fn read_plus_goes_as_far_as_its_reply_has_room() {
    let world = World::new();
    let mut client = Session::with(&world, 1, 2, |mut args| {
        args.fore_chan_attrs.maxresponsesize = 2048;
        args
    });
    client.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let stateid = file(&mut client, b"f", 0, &[7; 8192]);
    let (mut seen, mut replies) = (0, 0);
    loop {
        let mut reply = on(&mut client, &[b"f"], &[read_plus(stateid, seen, 8192)]);
        assert!(reply.bytes.len() <= 2048);
        let ok: ReadPlus4Ok<'_> = reply.ok(OpNum4::ReadPlus);
        let [ReadPlusContent::Data(part)] = &ok.contents[..] else { panic!("{ok:?}") };
        assert_eq!(part.offset.0, seen);
        assert!(part.data.iter().all(|byte| *byte == 7));
        seen += part.data.len() as u64;
        replies += 1;
        if ok.eof {
            break;
        }
    }
    assert_eq!(seen, 8192);
    assert!(replies > 4, "{replies}");
}

/// More than a reply has copied into it: the data follows from the file.
const SPAN: usize = 40 << 10;

#[test]
fn what_was_read_before_a_change_that_is_not_durable_follows_all_the_same() {
    let world = World::sync();
    world.fs.give_spans(true);
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, &[7; SPAN]);
    let write = Write4Args { stateid, offset: Offset(0), stable: StableHow4::FileSync, data: b"x" };
    world.fs.fail_next_commit(FsError::Io);
    let ops = [read(stateid, 0, SPAN as u32), ArgOp::Write(write)];
    let mut reply = on(&mut client, &[b"f"], &ops);
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read).data, [7; SPAN]);
    reply.fails::<()>(OpNum4::Write, NfsStat4::Io);
}

#[test]
fn what_was_read_before_an_operation_whose_result_has_no_room_follows_all_the_same() {
    let world = World::new();
    world.fs.give_spans(true);
    let mut client = Session::with(&world, 1, 1, |mut args| {
        args.fore_chan_attrs.maxresponsesize = SPAN as u32;
        args
    });
    client.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let stateid = file(&mut client, b"f", 0, &[7; SPAN]);
    let getattr = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Size]) });
    let mut reply = on(&mut client, &[b"f"], &[read(stateid, 0, SPAN as u32), getattr]);
    let data = reply.ok::<Read4Ok<'_>>(OpNum4::Read).data;
    assert!(data.len() > SPAN - 256 && data.iter().all(|byte| *byte == 7), "{} bytes", data.len());
    reply.fails::<()>(OpNum4::GetAttr, NfsStat4::RepTooBig);
}

#[test]
fn the_state_id_of_ones_passes_by_what_others_deny_to_read_and_not_to_write() {
    let world = World::new();
    let (mut client, mut other) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    let args = open_create(b"f", b"o", OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let denying = Open4Args { share_deny: OPEN4_SHARE_DENY_BOTH, ..args };
    on(&mut client, &[], &[ArgOp::Open(denying)]).ok::<Open4Ok<'_>>(OpNum4::Open);
    for (stateid, status) in [(Stateid4::ANONYMOUS, NfsStat4::Locked), (Stateid4::READ_BYPASS, NfsStat4::Ok)]
    {
        assert_eq!(on(&mut other, &[b"f"], &[read(stateid, 0, 1)]).status, status);
        let (offset, stable) = (Offset(0), StableHow4::Unstable);
        let write = Write4Args { stateid, offset, stable, data: b"x" };
        on(&mut other, &[b"f"], &[ArgOp::Write(write)]).fails::<()>(OpNum4::Write, NfsStat4::Locked);
    }
}
