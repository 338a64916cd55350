//! A defect of a backend costs one request, and nothing for longer than that.

use holdfast_base::{ClientId, Length, Offset, Seqid};
use holdfast_rpc::detached::Detached;
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Session, at, open_create};
use crate::scene::{file, on};
use crate::world::World;

/// Operations of no more calls than this are looked at.
const CALLS: u32 = 12;

/// Runs this with a panic in the `n`-th call of the backend; whether it came so far.
fn panics(world: &World, peer: &mut Peer, args: &[u8], n: u32) -> bool {
    world.fs.panic_at_call(n);
    let records = peer.raw(args);
    let is_answered = Detached::results(&records[0]).is_some();
    assert_eq!(world.fs.panic_at_call(0) == 0, !is_answered, "the panic is what failed it");
    !is_answered
}

#[test]
fn an_open_that_panics_leaves_no_open_behind() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let stateid = file(&mut client, b"f", 0, b"abc");
    let mut cut = open_create(b"f", b"o", OPEN4_SHARE_ACCESS_BOTH);
    let size = 0u64.to_be_bytes();
    let attrs = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values: &size };
    cut.openhow = OpenFlag4::Create(CreateHow4::Unchecked(attrs));
    cut.share_deny = OPEN4_SHARE_DENY_NONE;
    let mut panicked = 0;
    for n in 1..CALLS {
        client.seqid = client.seqid.next();
        let ops = [vec![ArgOp::Sequence(client.sequence())], at(&[]), vec![ArgOp::Open(cut)]].concat();
        let args = client.peer.args(&ops);
        if !panics(&world, &mut client.peer, &args, n) {
            break;
        }
        panicked += 1;
        let (clients, opens, _) = world.nfs.census();
        assert_eq!((clients.opens, opens), (1, 1), "only the one from before, after {n} calls");
        world.check();
    }
    assert!(panicked >= 2, "making and cutting, {panicked}");
    let close = ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid: stateid });
    on(&mut client, &[b"f"], &[close]).ok::<Stateid4>(OpNum4::Close);
}

#[test]
fn a_lock_that_panics_leaves_its_owner_free() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let open_stateid = file(&mut client, b"f", 0, b"abc");
    let lock = ArgOp::Lock(Lock4Args {
        locktype: LockType4::Write,
        reclaim: false,
        offset: Offset(0),
        length: Length(9),
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: Seqid(0),
            open_stateid,
            lock_seqid: Seqid(0),
            lock_owner: StateOwner4 { clientid: ClientId(0), owner: b"l" },
        }),
    });
    let mut panicked = 0;
    for n in 1..CALLS {
        client.seqid = client.seqid.next();
        let ops = [vec![ArgOp::Sequence(client.sequence())], at(&[b"f"]), vec![lock.clone()]].concat();
        let args = client.peer.args(&ops);
        if !panics(&world, &mut client.peer, &args, n) {
            break;
        }
        panicked += 1;
        let (state, _, locks) = world.nfs.census();
        assert_eq!((state.locks, locks), (0, 0));
        world.check();
    }
    assert!(panicked >= 2, "the lookup and the lock's own open, {panicked}");
    on(&mut client, &[b"f"], &[lock]).ok::<Lock4Ok>(OpNum4::Lock);
}
