//! Compounds that nobody would send: whatever comes, an answer goes out and the state engine holds together.

use holdfast_base::{ClientId, Length, Offset, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::Writer;
use proptest::prelude::*;

use crate::client::{Peer, Session};
use crate::world::World;

const NAMES: [&[u8]; 4] = [b"export", b"f", b"g", b"."];

#[derive(Clone, Debug)]
struct Step {
    client: usize,
    ops: Vec<Op>,
    stale: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Root,
    Lookup(usize),
    Open { name: usize, owner: u8, access: u32, deny: u32, create: bool },
    Close(u8),
    Downgrade(u8, u32),
    Lock { owner: u8, stateid: u8, write: bool, at: u64, bytes: u64 },
    Unlock { stateid: u8, at: u64, bytes: u64 },
    Write(u8),
    Remove(usize),
    Save,
    Restore,
    Fh,
}

fn op() -> impl Strategy<Value = Op> {
    let lock = (0..3u8, 0..4u8, any::<bool>(), 0..8u64, 0..9u64);
    prop_oneof![
        4 => Just(Op::Root),
        6 => (0..NAMES.len()).prop_map(Op::Lookup),
        6 => (0..NAMES.len(), 0..3u8, 0..4u32, 0..4u32, any::<bool>())
            .prop_map(|(name, owner, access, deny, create)| Op::Open { name, owner, access, deny, create }),
        3 => (0..4u8).prop_map(Op::Close),
        1 => (0..4u8, 0..4u32).prop_map(|(stateid, access)| Op::Downgrade(stateid, access)),
        4 => lock.prop_map(|(owner, stateid, write, at, bytes)| Op::Lock { owner, stateid, write, at, bytes }),
        2 => (0..4u8, 0..8u64, 0..9u64).prop_map(|(stateid, at, bytes)| Op::Unlock { stateid, at, bytes }),
        2 => (0..4u8).prop_map(Op::Write),
        1 => (0..NAMES.len()).prop_map(Op::Remove),
        1 => Just(Op::Save),
        1 => Just(Op::Restore),
        1 => Just(Op::Fh),
    ]
}

/// A state id as a client might come by it: the current one, one of the server's first, the special ones.
fn stateid(which: u8) -> Stateid4 {
    match which {
        0 | 1 => Stateid4::CURRENT,
        2 => Stateid4::ANONYMOUS,
        _ => Stateid4 { seqid: Seqid(0), other: [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0] },
    }
}

fn wire(op: &Op) -> ArgOp<'static> {
    const OWNERS: [&[u8]; 3] = [b"a", b"b", b"c"];
    match *op {
        Op::Root => ArgOp::PutRootFh,
        Op::Lookup(name) => ArgOp::Lookup(Lookup4Args { objname: NAMES[name] }),
        Op::Open { name, owner, access, deny, create } => {
            let owner = OWNERS[usize::from(owner)];
            let made = crate::client::open_create(NAMES[name], owner, access);
            let open = if create { made } else { Open4Args { openhow: OpenFlag4::NoCreate, ..made } };
            ArgOp::Open(Open4Args { share_deny: deny, ..open })
        }
        Op::Close(which) => ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid: stateid(which) }),
        Op::Downgrade(which, share_access) => ArgOp::OpenDowngrade(OpenDowngrade4Args {
            open_stateid: stateid(which),
            seqid: Seqid(0),
            share_access,
            share_deny: 0,
        }),
        Op::Lock { owner, stateid: which, write, at, bytes } => {
            let lock_owner = StateOwner4 { clientid: ClientId(0), owner: OWNERS[usize::from(owner)] };
            ArgOp::Lock(Lock4Args {
                locktype: if write { LockType4::Write } else { LockType4::Read },
                reclaim: false,
                offset: Offset(at),
                length: Length(bytes),
                locker: Locker4::New(OpenToLockOwner4 {
                    open_seqid: Seqid(0),
                    open_stateid: stateid(which),
                    lock_seqid: Seqid(0),
                    lock_owner,
                }),
            })
        }
        Op::Unlock { stateid: which, at, bytes } => ArgOp::Locku(Locku4Args {
            locktype: LockType4::Write,
            seqid: Seqid(0),
            lock_stateid: stateid(which),
            offset: Offset(at),
            length: Length(bytes),
        }),
        Op::Write(which) => ArgOp::Write(Write4Args {
            stateid: stateid(which),
            offset: Offset(0),
            stable: StableHow4::Unstable,
            data: b"x",
        }),
        Op::Remove(name) => ArgOp::Remove(Remove4Args { target: NAMES[name] }),
        Op::Save => ArgOp::SaveFh,
        Op::Restore => ArgOp::RestoreFh,
        Op::Fh => ArgOp::GetFh,
    }
}

fn step() -> impl Strategy<Value = Step> {
    let ops = prop::collection::vec(op(), 0..8).prop_map(|mut ops| {
        // Most compounds begin where something is.
        if ops.len() % 4 != 3 {
            ops.splice(0..0, [Op::Root, Op::Lookup(0)]);
        }
        ops
    });
    (0..2usize, ops, prop::bool::weighted(0.1)).prop_map(|(client, ops, stale)| Step { client, ops, stale })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_sequence_of_compounds_upsets_the_state_engine(
        steps in prop::collection::vec(step(), 1..24), block in 0..4u64, delegates in prop::bool::ANY,
    ) {
        let world = World::new();
        // With delegations some of it has to wait for those, and nobody gives one back.
        let client = if delegates { Session::with_back } else { Session::open };
        let mut clients = [client(&world, 1, 1), client(&world, 2, 2)];
        world.fs.block_every(block);
        for step in steps {
            let client = &mut clients[step.client];
            client.cachethis = step.ops.len() % 2 == 0;
            let ops: Vec<_> = step.ops.iter().map(wire).collect();
            let first = client.run(&ops);
            world.check();
            if step.stale && client.cachethis {
                prop_assert_eq!(first, client.again(&ops), "a retry is answered as the original was");
            }
        }
        // All go: nothing stays open.
        world.pass_courtesy();
        world.check();
        prop_assert_eq!((world.fs.open_files(), world.nfs.census().1, world.nfs.census().2), (0, 0, 0));
    }

    #[test]
    fn no_bytes_upset_the_decoder(minor in 0..4u32, count in 0..6u32, op in 0..80u32, rest in prop::collection::vec(any::<u8>(), 0..200)) {
        let world = World::new();
        let mut peer = Peer::new(&world, 1, minor);
        let mut args = Writer::new();
        args.opaque(b"");
        for word in [minor, count, op] {
            args.u32(word);
        }
        args.put(&rest);
        prop_assert_eq!(peer.raw(args.as_slice()).len(), 1);
        world.check();
    }
}
