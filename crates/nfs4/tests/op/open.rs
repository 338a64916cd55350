use holdfast_base::{Offset, Seqid};
use holdfast_state::Grace;
use holdfast_wire::nfs4::*;

use crate::client::{Reply, Session, at, open_create, open_existing, user};
use crate::world::{Making, World};

const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;
const READ: u32 = OPEN4_SHARE_ACCESS_READ;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE;

/// Opens by name in the export's root; the reply stands before OPEN's result.
fn open(client: &mut Session, args: Open4Args<'_>) -> Reply {
    let mut reply = client.run(&[at(&[]), vec![ArgOp::Open(args)]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply
}

fn opened(client: &mut Session, args: Open4Args<'_>) -> Stateid4 {
    open(client, args).ok::<Open4Ok<'_>>(OpNum4::Open).stateid
}

fn mode(mode: u32) -> [u8; 4] {
    mode.to_be_bytes()
}

fn create_with<'a>(name: &'a [u8], mode: &'a [u8; 4], access: u32) -> Open4Args<'a> {
    let attrs = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: mode };
    Open4Args { openhow: OpenFlag4::Create(CreateHow4::Guarded(attrs)), ..open_create(name, b"o", access) }
}

#[test]
fn what_is_written_through_an_open_is_read_through_another() {
    let world = World::new();
    let (mut a, mut b) = (Session::open(&world, 1, 1), Session::open(&world, 2, 2));
    let mut ops = at(&[]);
    ops.push(ArgOp::Open(open_create(b"f", b"o", BOTH)));
    ops.push(ArgOp::Write(Write4Args {
        stateid: Stateid4::CURRENT,
        offset: Offset(0),
        stable: StableHow4::Unstable,
        data: b"hello",
    }));
    assert_eq!(a.run(&ops).status, NfsStat4::Ok);
    let mut ops = at(&[]);
    ops.push(ArgOp::Open(open_existing(b"f", b"o", READ)));
    ops.push(ArgOp::Read(Read4Args { stateid: Stateid4::CURRENT, offset: Offset(0), count: 100 }));
    let mut reply = b.run(&ops);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    reply.ok::<Open4Ok<'_>>(OpNum4::Open);
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read), Read4Ok { eof: true, data: b"hello" });
    world.check();
}

#[test]
fn a_guarded_create_of_what_exists_fails_and_an_unchecked_one_opens_it() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    opened(&mut client, create_with(b"f", &mode(0o644), BOTH));
    open(&mut client, create_with(b"f", &mode(0o644), BOTH)).fails::<()>(OpNum4::Open, NfsStat4::Exist);
    let mut reply = open(&mut client, open_create(b"f", b"o", READ));
    let ok: Open4Ok<'_> = reply.ok(OpNum4::Open);
    assert_eq!((ok.attrset, ok.cinfo.before), (Bitmap4::EMPTY, ok.cinfo.after));
}

#[test]
fn the_same_exclusive_verifier_finds_its_own_work_and_another_does_not() {
    let world = World::new();
    for minor in [1, 2] {
        let mut client = Session::open(&world, minor as u8, minor);
        let name = [b'f', b'0' + minor as u8];
        let exclusive = |verifier| Open4Args {
            openhow: OpenFlag4::Create(CreateHow4::Exclusive(verifier)),
            ..open_create(&name, b"o", BOTH)
        };
        let first = opened(&mut client, exclusive([1; 8]));
        let again = opened(&mut client, exclusive([1; 8]));
        assert_eq!(first.other, again.other);
        open(&mut client, exclusive([2; 8])).fails::<()>(OpNum4::Open, NfsStat4::Exist);
    }
}

#[test]
fn exclusive_create_with_attributes_sets_them() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let bits = mode(0o640);
    let attrs = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &bits };
    let args = Open4Args {
        openhow: OpenFlag4::Create(CreateHow4::Exclusive41(CreateVerfAttr { verf: [3; 8], attrs })),
        ..open_create(b"f", b"o", BOTH)
    };
    let mut reply = open(&mut client, args);
    let ok: Open4Ok<'_> = reply.ok(OpNum4::Open);
    assert!(ok.attrset.has(Attr::Mode), "{:?}", ok.attrset);
}

#[test]
fn a_file_made_read_only_is_open_for_writing_to_its_maker() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = opened(&mut client, create_with(b"f", &mode(0o444), BOTH));
    let write =
        ArgOp::Write(Write4Args { stateid, offset: Offset(0), stable: StableHow4::Unstable, data: b"x" });
    assert_eq!(client.run(&[at(&[b"f"]), vec![write]].concat()).status, NfsStat4::Ok);
    // An open for reading beside it, by the same owner, keeps both.
    let union = opened(&mut client, open_existing(b"f", b"o", READ));
    assert_eq!(union.other, stateid.other);
    // But it is not open for writing once more.
    open(&mut client, open_existing(b"f", b"o", WRITE)).fails::<()>(OpNum4::Open, NfsStat4::Access);
}

#[test]
fn an_upgrade_within_what_is_permitted_keeps_what_was_open_before() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    drop(open(&mut client, create_with(b"f", &mode(0o644), WRITE)));
    let first = opened(&mut client, open_existing(b"f", b"o", READ));
    assert_eq!(first.seqid, Seqid(2));
    let (_, opens, _) = world.nfs.census();
    assert_eq!(opens, 2, "each by a descriptor of its own");
    world.check();
}

#[test]
fn what_may_be_executed_may_be_opened_for_reading() {
    let world = World::new();
    let mut owner = Session::open(&world, 1, 1);
    opened(&mut owner, create_with(b"prog", &mode(0o711), BOTH));
    opened(&mut owner, create_with(b"secret", &mode(0o600), BOTH));
    let mut other = Session::open(&world, 2, 1);
    other.peer.auth = user(2000);
    opened(&mut other, open_existing(b"prog", b"p", READ));
    open(&mut other, open_existing(b"secret", b"p", READ)).fails::<()>(OpNum4::Open, NfsStat4::Access);
    open(&mut other, open_existing(b"prog", b"p", WRITE)).fails::<()>(OpNum4::Open, NfsStat4::Access);
}

#[test]
fn open_with_deny_write_conflicts_with_an_existing_writer() {
    let world = World::new();
    let (mut a, mut b) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    opened(&mut a, open_create(b"f", b"o", BOTH));
    let denying = Open4Args { share_deny: OPEN4_SHARE_DENY_WRITE, ..open_existing(b"f", b"o", READ) };
    open(&mut b, denying).fails::<()>(OpNum4::Open, NfsStat4::ShareDenied);
    a.run(&[ArgOp::PutRootFh]);
    world.check();
}

#[test]
fn truncation_by_open_waits_for_the_share() {
    let world = World::new();
    let (mut a, mut b) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    let stateid =
        opened(&mut a, Open4Args { share_deny: OPEN4_SHARE_DENY_WRITE, ..open_create(b"f", b"o", BOTH) });
    let write = Write4Args { stateid, offset: Offset(0), stable: StableHow4::Unstable, data: b"precious" };
    assert_eq!(a.run(&[at(&[b"f"]), vec![ArgOp::Write(write)]].concat()).status, NfsStat4::Ok);
    let zero = 0u64.to_be_bytes();
    let attrs = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values: &zero };
    let truncating = Open4Args {
        openhow: OpenFlag4::Create(CreateHow4::Unchecked(attrs)),
        ..open_create(b"f", b"p", WRITE)
    };
    open(&mut b, truncating).fails::<()>(OpNum4::Open, NfsStat4::ShareDenied);
    let read = ArgOp::Read(Read4Args { stateid, offset: Offset(0), count: 100 });
    let mut reply = a.run(&[at(&[b"f"]), vec![read.clone()]].concat());
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup] {
        reply.ok::<()>(op);
    }
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read).data, b"precious");
    // Nor may the same owner: its own denial is no exception (RFC 8881 section 9.7).
    let mut truncating = truncating;
    truncating.owner.owner = b"o";
    open(&mut a, truncating).fails::<()>(OpNum4::Open, NfsStat4::ShareDenied);
    world.check();
}

#[test]
fn only_regular_files_are_opened() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let none = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
    for (name, objtype, status) in [
        (&b"dir"[..], CreateType4::Dir, NfsStat4::IsDir),
        (b"link", CreateType4::Lnk(b"dir"), NfsStat4::Symlink),
        (b"pipe", CreateType4::Fifo, NfsStat4::WrongType),
    ] {
        let make = ArgOp::Create(Create4Args { objtype, objname: name, createattrs: none });
        assert_eq!(client.run(&[at(&[]), vec![make]].concat()).status, NfsStat4::Ok);
        open(&mut client, open_existing(name, b"o", READ)).fails::<()>(OpNum4::Open, status);
        open(&mut client, open_create(name, b"o", READ)).fails::<()>(OpNum4::Open, status);
    }
    world.check();
}

#[test]
fn shares_that_make_no_sense_are_invalid_and_wants_are_tolerated() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    for (access, deny) in [(0, 0), (1, 4), (0x600 | 1, 0)] {
        let args = Open4Args { share_deny: deny, ..open_create(b"f", b"o", access) };
        open(&mut client, args).fails::<()>(OpNum4::Open, NfsStat4::Inval);
    }
    for (want, expected) in [
        (0, OpenDelegation4::None),
        (OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OpenDelegation4::NoneExt(OpenNoneDelegation4::NotWanted)),
        (OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OpenDelegation4::NoneExt(OpenNoneDelegation4::Resource(false))),
    ] {
        let mut reply = open(&mut client, open_create(b"f", b"o", READ | want));
        assert_eq!(reply.ok::<Open4Ok<'_>>(OpNum4::Open).delegation, expected);
    }
}

#[test]
fn nothing_is_opened_before_reclaim_complete_nor_in_grace_and_no_file_is_made() {
    let making = Making { grace: Grace::Until(holdfast_base::Instant(30_000)), ..Making::default() };
    let world = World::made(making);
    let mut client = Session::open(&world, 1, 1);
    open(&mut client, open_create(b"f", b"o", BOTH)).fails::<()>(OpNum4::Open, NfsStat4::Grace);
    let mut looked = client.run(&at(&[b"f"]));
    looked.ok::<()>(OpNum4::PutRootFh);
    looked.ok::<()>(OpNum4::Lookup);
    looked.fails::<()>(OpNum4::Lookup, NfsStat4::NoEnt);
    world.pass(30_001);
    opened(&mut client, open_create(b"f", b"o", BOTH));
    let mut early = Session::bare(&world, 2, 1);
    open(&mut early, open_existing(b"f", b"o", READ)).fails::<()>(OpNum4::Open, NfsStat4::Grace);
}

#[test]
fn a_recorded_client_reclaims_in_grace_and_a_stranger_does_not() {
    let making = Making { grace: Grace::Until(holdfast_base::Instant(30_000)), ..Making::default() };
    let world = World::made(making);
    world.nfs.set_grace(Grace::Over);
    let mut maker = Session::open(&world, 3, 1);
    opened(&mut maker, open_create(b"f", b"o", BOTH));
    let handle = maker.handle(&[b"f"]);
    world.nfs.set_grace(Grace::Until(holdfast_base::Instant(30_000)));
    world.records.may_reclaim.lock().push(b"client of host 1".to_vec());
    let reclaim = |client: &mut Session, (owner, access): (&[u8], u32)| {
        let claim = OpenClaim4::Previous(OpenDelegationType4::None);
        let args = Open4Args { claim, ..open_existing(b"", owner, access) };
        client.run(&[ArgOp::PutFh(PutFh4Args { object: &handle }), ArgOp::Open(args)]).status
    };
    assert_eq!(reclaim(&mut Session::bare(&world, 1, 1), (b"old", READ)), NfsStat4::Ok);
    assert_eq!(reclaim(&mut Session::bare(&world, 2, 1), (b"old", READ)), NfsStat4::ReclaimBad);
    world.pass(30_001);
    let again = &mut Session::bare(&world, 1, 1);
    assert_eq!(reclaim(again, (b"another", READ)), NfsStat4::NoGrace);
    assert_eq!(reclaim(again, (b"old", BOTH)), NfsStat4::NoGrace);
    assert_eq!(reclaim(again, (b"old", READ)), NfsStat4::Ok, "it has that, and is not done");
    assert_eq!(
        again.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]).status,
        NfsStat4::Ok
    );
    assert_eq!(reclaim(again, (b"old", READ)), NfsStat4::NoGrace);
}

#[test]
fn claims_under_delegations_that_are_none_fail() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    opened(&mut client, open_create(b"f", b"o", BOTH));
    let cur = OpenClaimDelegateCur4 { delegate_stateid: Stateid4::ANONYMOUS, file: b"f" };
    for (claim, status) in [
        (OpenClaim4::DelegateCur(cur), NfsStat4::BadStateid),
        (OpenClaim4::DelegatePrev(b"f"), NfsStat4::NotSupp),
    ] {
        let args = Open4Args { claim, ..open_existing(b"f", b"o", READ) };
        open(&mut client, args).fails::<()>(OpNum4::Open, status);
    }
    let claim = OpenClaim4::DelegCurFh(Stateid4::ANONYMOUS);
    let args = Open4Args { claim, ..open_existing(b"", b"o", READ) };
    let mut reply = client.run(&[at(&[b"f"]), vec![ArgOp::Open(args)]].concat());
    for op in [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup] {
        reply.ok::<()>(op);
    }
    reply.fails::<()>(OpNum4::Open, NfsStat4::BadStateid);
}

#[test]
fn the_current_file_is_opened_by_handle() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    opened(&mut client, open_create(b"f", b"o", BOTH));
    let args = Open4Args { claim: OpenClaim4::Fh, ..open_existing(b"", b"p", READ) };
    let mut reply = client.run(&[at(&[b"f"]), vec![ArgOp::Open(args)]].concat());
    assert_eq!(reply.status, NfsStat4::Ok);
    reply.ok::<()>(OpNum4::PutRootFh);
    open(&mut client, args).fails::<()>(OpNum4::Open, NfsStat4::IsDir);
}

#[test]
fn a_read_only_export_opens_for_reading_alone() {
    let mut making = Making::default();
    making.options.is_read_only = true;
    let world = World::made(making);
    let mut client = Session::open(&world, 1, 1);
    open(&mut client, open_create(b"f", b"o", READ)).fails::<()>(OpNum4::Open, NfsStat4::Rofs);
    open(&mut client, open_existing(b"f", b"o", READ)).fails::<()>(OpNum4::Open, NfsStat4::NoEnt);
}

#[test]
fn an_open_that_the_backend_refuses_leaves_no_share_behind() {
    let world = World::new();
    let mut owner = Session::open(&world, 1, 1);
    opened(&mut owner, create_with(b"f", &mode(0o600), WRITE));
    let mut other = Session::open(&world, 2, 1);
    other.peer.auth = user(2000);
    let denying = Open4Args { share_deny: OPEN4_SHARE_DENY_WRITE, ..open_existing(b"f", b"p", READ) };
    // Who may not have the file is not told that somebody has it open.
    open(&mut other, denying).fails::<()>(OpNum4::Open, NfsStat4::Access);
    open(&mut other, open_existing(b"f", b"p", READ)).fails::<()>(OpNum4::Open, NfsStat4::Access);
    let denying = Open4Args { share_deny: OPEN4_SHARE_DENY_READ, ..open_existing(b"f", b"o", WRITE) };
    opened(&mut owner, denying);
    world.check();
}

#[test]
fn a_guarded_create_that_has_to_wait_halfway_is_not_begun_anew() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let size = 5u64.to_be_bytes();
    for (n, every) in (2..8).enumerate() {
        world.fs.block_every(every);
        let attrs = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values: &size };
        let name = [b'f', b'0' + n as u8];
        let args = Open4Args {
            openhow: OpenFlag4::Create(CreateHow4::Guarded(attrs)),
            ..open_create(&name, b"o", BOTH)
        };
        opened(&mut client, args);
    }
    world.check();
}
