//! The state id that a compound hands on from operation to operation (RFC 8881 sections 8.2.3 and 16.2.3.1.2).

use holdfast_base::{Length, Offset, Seqid};
use holdfast_state::Engine;
use holdfast_wire::nfs4::*;

use crate::client::{Reply, Session, at, open_create, open_existing};
use crate::lock::{lock, locku};
use crate::scene::{file, on, on_v40};
use crate::wanted::ask_dir_delegation;
use crate::world::World;

const CURRENT: Stateid4 = Stateid4::CURRENT;
const READ: u32 = OPEN4_SHARE_ACCESS_READ;
const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;

fn open(name: &[u8]) -> ArgOp<'_> {
    ArgOp::Open(open_create(name, b"o", BOTH))
}

fn close(open_stateid: Stateid4) -> ArgOp<'static> {
    ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid })
}

fn read(stateid: Stateid4) -> ArgOp<'static> {
    ArgOp::Read(Read4Args { stateid, offset: Offset(0), count: 5 })
}

fn write(stateid: Stateid4) -> ArgOp<'static> {
    let (offset, stable) = (Offset(0), StableHow4::Unstable);
    ArgOp::Write(Write4Args { stateid, offset, stable, data: b"hello" })
}

fn truncate(stateid: Stateid4) -> ArgOp<'static> {
    let obj_attributes = Fattr4 { mask: Bitmap4::from(Attr::Size), values: &[0; 8] };
    ArgOp::SetAttr(SetAttr4Args { stateid, obj_attributes })
}

fn downgrade(open_stateid: Stateid4) -> ArgOp<'static> {
    let (seqid, share_access, share_deny) = (Seqid(0), BOTH, OPEN4_SHARE_DENY_NONE);
    ArgOp::OpenDowngrade(OpenDowngrade4Args { open_stateid, seqid, share_access, share_deny })
}

fn free(stateid: Stateid4) -> ArgOp<'static> {
    ArgOp::FreeStateid(FreeStateid4Args { stateid })
}

fn give_back(deleg_stateid: Stateid4) -> ArgOp<'static> {
    ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid })
}

/// Runs operations on the export's root: how the last of them ended, and how many there were before it.
fn run(client: &mut Session, ops: &[ArgOp<'_>]) -> (NfsStat4, usize) {
    let reply = on(client, &[], ops);
    // SEQUENCE and the way to the export.
    (reply.status, reply.ops as usize - 3 - 1)
}

/// That all of them succeed.
fn succeed(client: &mut Session, ops: &[ArgOp<'_>]) {
    assert_eq!(run(client, ops), (NfsStat4::Ok, ops.len() - 1));
}

/// That all of them succeed but the last one, which is bad.
fn end_badly(client: &mut Session, ops: &[ArgOp<'_>]) {
    assert_eq!(run(client, ops), (NfsStat4::BadStateid, ops.len() - 1), "{:?}", ops.last());
}

/// Opens and locks that are there.
fn left(world: &World) -> (usize, usize) {
    world.check();
    let census = world.nfs.inspect(Engine::census);
    (world.nfs.census().1, census.locks)
}

#[test]
fn what_is_opened_is_used_and_closed_in_one_compound() {
    let world = World::new();
    for minor in [1, 2] {
        let mut client = Session::open(&world, minor as u8, minor);
        succeed(&mut client, &[open(b"f"), write(CURRENT), read(CURRENT), close(CURRENT)]);
        succeed(&mut client, &[open(b"f"), truncate(CURRENT), downgrade(CURRENT), close(CURRENT)]);
        assert_eq!(left(&world), (0, 0));
    }
}

#[test]
fn what_is_closed_is_current_no_more() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    end_badly(&mut client, &[open(b"f"), close(CURRENT), close(CURRENT)]);
    end_badly(&mut client, &[open(b"f"), close(CURRENT), read(CURRENT)]);
    assert_eq!(left(&world), (0, 0));
}

#[test]
fn a_lock_and_what_is_done_under_it_fit_in_one_compound() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let lock = || lock(CURRENT, b"l", LockType4::Write, 0, 10);
    let under_lock = [open(b"f"), lock(), write(CURRENT), read(CURRENT), locku(CURRENT, 0, 10)];
    // The lock's own state id is the current one by then, with nothing locked: it may go, and then it is none.
    succeed(&mut client, &[&under_lock[..], &[free(CURRENT)]].concat());
    assert_eq!(left(&world), (1, 0));
    end_badly(&mut client, &[&under_lock[..], &[free(CURRENT), read(CURRENT)]].concat());
    end_badly(&mut client, &[&under_lock[..], &[close(CURRENT)]].concat());
    end_badly(&mut client, &[open(b"f"), locku(CURRENT, 0, 10)]);
    // Kept aside with the file, the open's is there again, and takes the lock with it.
    let aside = [open(b"f"), ArgOp::SaveFh, lock(), write(CURRENT), ArgOp::RestoreFh, close(CURRENT)];
    succeed(&mut client, &aside);
    assert_eq!(left(&world), (0, 0));
}

#[test]
fn what_is_in_use_is_not_freed() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let held = run(&mut client, &[open(b"f"), free(CURRENT), close(CURRENT)]);
    assert_eq!(held, (NfsStat4::LocksHeld, 1));
    assert_eq!(left(&world), (1, 0));
}

#[test]
fn it_goes_with_the_filehandle_that_is_saved_and_restored() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"g", 0, b"hello");
    let handle = client.handle(&[b"g"]);
    let elsewhere = [open(b"f"), ArgOp::SaveFh, ArgOp::PutFh(PutFh4Args { object: &handle })];
    end_badly(&mut client, &[&elsewhere[..], &[write(CURRENT)]].concat());
    let back = [ArgOp::RestoreFh, write(CURRENT), close(CURRENT)];
    succeed(&mut client, &[&elsewhere[..], &back].concat());
    // An open of another file on the way is another one's.
    let other = [&at(&[])[..], &[open(b"h"), close(CURRENT)]].concat();
    succeed(&mut client, &[&[open(b"f"), ArgOp::SaveFh], &other[..], &back].concat());
    assert_eq!(left(&world).0, 1, "the maker's");
}

#[test]
fn what_makes_an_object_current_leaves_none_though_it_be_the_same() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"hello");
    let handle = client.handle(&[b"f"]);
    let export = ArgOp::Lookup(Lookup4Args { objname: b"export" });
    let lookup = ArgOp::Lookup(Lookup4Args { objname: b"f" });
    for way in [
        vec![ArgOp::PutFh(PutFh4Args { object: &handle })],
        vec![ArgOp::PutRootFh, export.clone(), lookup.clone()],
        vec![ArgOp::PutPubFh, export, lookup],
    ] {
        // What is done there by another state id changes nothing about that.
        for between in [&[][..], &[read(Stateid4::ANONYMOUS)]] {
            end_badly(&mut client, &[&[open(b"f")], &way[..], between, &[read(CURRENT)]].concat());
        }
    }
}

#[test]
fn who_uses_another_state_id_leaves_the_current_one() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let other = file(&mut client, b"f", 0, b"hello");
    let uses = [read(other), write(other), read(Stateid4::ANONYMOUS), truncate(Stateid4::ANONYMOUS)];
    let all = [&[open(b"f")], &uses[..], &[close(CURRENT)]].concat();
    succeed(&mut client, &all);
    end_badly(&mut client, &[open(b"f"), close(CURRENT), write(other), close(CURRENT)]);
    assert_eq!(left(&world), (1, 0));
}

#[test]
fn without_one_every_operation_finds_it_bad() {
    let world = World::new();
    for minor in [1, 2] {
        let mut client = Session::open(&world, minor as u8, minor);
        file(&mut client, b"f", 0, b"hello");
        let begin = ArgOp::Lookup(Lookup4Args { objname: b"f" });
        let claim = Open4Args { claim: OpenClaim4::DelegCurFh(CURRENT), ..open_existing(b"", b"o", READ) };
        let span = (Offset(0), Length(1));
        let of_42 = [
            ArgOp::Allocate(Allocate4Args { stateid: CURRENT, offset: span.0, length: span.1 }),
            ArgOp::ReadPlus(ReadPlus4Args { stateid: CURRENT, offset: span.0, count: 1 }),
        ];
        let all = [
            close(CURRENT),
            downgrade(CURRENT),
            read(CURRENT),
            write(CURRENT),
            truncate(CURRENT),
            lock(CURRENT, b"l", LockType4::Read, 0, 1),
            locku(CURRENT, 0, 1),
            free(CURRENT),
            give_back(CURRENT),
            ArgOp::Open(claim),
        ];
        for op in all.into_iter().chain(of_42.into_iter().filter(|_| minor == 2)) {
            end_badly(&mut client, &[begin.clone(), op]);
        }
    }
    // 4.0 has none at all.
    let bad: Reply = on_v40(&world, &[b"f"], &[read(CURRENT)]);
    assert_eq!(bad.status, NfsStat4::BadStateid);
}

/// An open that was upgraded after its state id became the current one: what does not change the open takes it as it is now.
#[test]
fn its_number_counts_for_the_changes_of_an_open_alone() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let twice = [open(b"f"), ArgOp::SaveFh].into_iter().chain(at(&[])).chain([open(b"f")]);
    let outdated: Vec<_> = twice.chain([ArgOp::RestoreFh]).collect();
    let lock = lock(CURRENT, b"l", LockType4::Write, 0, 10);
    for uses in [vec![read(CURRENT), write(CURRENT), truncate(CURRENT)], vec![lock, locku(CURRENT, 0, 10)]] {
        succeed(&mut client, &[&outdated[..], &uses].concat());
    }
    for change in [close(CURRENT), downgrade(CURRENT)] {
        let old = run(&mut client, &[&outdated[..], &[change]].concat());
        assert_eq!(old, (NfsStat4::OldStateid, outdated.len()));
    }
    assert_eq!(left(&world), (1, 1));
}

#[test]
fn of_an_open_with_a_delegation_it_is_the_opens() {
    let world = World::new();
    let mut client = Session::with_back(&world, 1, 2);
    end_badly(&mut client, &[open(b"f"), give_back(CURRENT)]);
    succeed(&mut client, &[open(b"g"), close(CURRENT)]);
    assert_eq!(world.nfs.inspect(Engine::census).delegations_write, 2);
    assert_eq!(left(&world), (1, 0));
}

#[test]
fn a_delegation_without_an_open_is_the_current_one() {
    let world = World::new();
    let mut client = Session::with_back(&world, 1, 2);
    file(&mut client, b"f", 0, b"hello");
    let begin = ArgOp::Lookup(Lookup4Args { objname: b"f" });
    let want = OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let asked = ArgOp::WantDelegation(WantDelegation4Args { want, claim: DelegClaim4::Fh });
    succeed(&mut client, &[begin, asked, read(CURRENT), write(CURRENT), give_back(CURRENT)]);
    succeed(&mut client, &[ask_dir_delegation(), give_back(CURRENT)]);
    let census = world.nfs.inspect(Engine::census);
    assert_eq!((census.delegations_write, census.delegations_directory), (0, 0));
    world.check();
}
