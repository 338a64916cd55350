//! What clients cost as their number grows: memory a client, and time a SEQUENCE. A program of its own, as it measures
//! the whole process.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "the scripted client can do more than is asked of it here")]

#[path = "op/client.rs"]
mod client;
#[path = "op/world.rs"]
mod world;

use std::io::Write as _;
use std::time::Instant;

use holdfast_base::{ClientId, Length, Offset, Seqid};
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Session, at, create_session, exchange_id, open_create};
use crate::world::World;

const FEW: usize = 100;
const MORE: usize = 1_000;
const MANY: usize = 10_000;
const ROUNDS: usize = 20_000;

/// So many are timed together: about a millisecond, in which a busy machine now and then does nothing else.
const STRETCH: usize = 100;

/// A client's share of everything: its connection's two ends, session with four slots, an open and a lock. Measured: 6 KiB.
const CLIENT_BYTES_MAX: usize = 9 << 10;

/// What a client of the last nine thousand may cost, of one of the nine hundred before. Tables grow by doubling, so that it is not
/// the same at any two numbers; a cost that grew with the number would be ten times as high.
const DEARER_AT_MOST: f64 = 1.5;

/// Caches of the processor hold few clients and not many; a cost that grew with the number would be a hundredfold, and one
/// that grew with its logarithm a half more.
const SLOWER_AT_MOST: f64 = 2.0;

#[test]
fn ten_thousand_clients_cost_memory_in_proportion_and_no_time() {
    let world = World::new();
    let mut sessions: Vec<Session> = Vec::with_capacity(MANY);
    sessions.extend((0..FEW).map(|n| client(&world, n)));
    let few = nanoseconds_a_sequence(&mut sessions);
    let mut bytes_a_client = |clients: std::ops::Range<usize>| {
        let (before, count) = (resident_bytes(), clients.len());
        sessions.extend(clients.map(|n| client(&world, n)));
        (resident_bytes() - before) / count
    };
    let (first, last) = (bytes_a_client(FEW..MORE), bytes_a_client(MORE..MANY));
    let many = nanoseconds_a_sequence(&mut sessions);
    // Past the harness, which keeps what a test prints that passes.
    let told = format!(
        "measured: {MANY} clients with a session, an open and a lock: {last} bytes each ({first} of the first {MORE}), a SEQUENCE \
         {many:.0} ns ({few:.0} ns with {FEW})\n"
    );
    std::io::stdout().write_all(told.as_bytes()).unwrap();
    assert!(first < CLIENT_BYTES_MAX && last < CLIENT_BYTES_MAX, "{first} and {last} bytes a client");
    let is_flat = (last as f64) < first as f64 * DEARER_AT_MOST;
    assert!(is_flat, "{first} bytes a client to {MORE}, {last} from there to {MANY}");
    assert!(many < few * SLOWER_AT_MOST, "{few} ns a SEQUENCE with {FEW} clients, {many} with {MANY}");
    world.check();
}

fn client(world: &World, n: usize) -> Session {
    let mut peer = Peer::new(world, (n % 200) as u8, 1);
    let name = format!("client {n}");
    let mut reply = peer.compound(&[ArgOp::ExchangeId(exchange_id(name.as_bytes()))]);
    let known: ExchangeId4Ok<'_> = reply.ok(OpNum4::ExchangeId);
    let (client, args) = (known.clientid, create_session(known.clientid, known.sequenceid));
    let made: CreateSession4Ok = peer.compound(&[ArgOp::CreateSession(args)]).ok(OpNum4::CreateSession);
    let mut session = Session { peer, client, id: made.sessionid, seqid: Seqid(0), cachethis: false };
    session.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    open_and_lock(&mut session, &name);
    session
}

fn open_and_lock(session: &mut Session, name: &str) {
    let open = open_create(name.as_bytes(), b"open owner", OPEN4_SHARE_ACCESS_BOTH);
    let mut reply = session.run(&[at(&[]), vec![ArgOp::Open(open)]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    let open: Open4Ok<'_> = reply.ok(OpNum4::Open);
    let lock = ArgOp::Lock(Lock4Args {
        locktype: LockType4::Write,
        reclaim: false,
        offset: Offset(0),
        length: Length(10),
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: Seqid(0),
            open_stateid: open.stateid,
            lock_seqid: Seqid(0),
            lock_owner: StateOwner4 { clientid: ClientId(0), owner: b"lock owner" },
        }),
    });
    let reply = session.run(&[at(&[name.as_bytes()]), vec![lock]].concat());
    assert_eq!(reply.status, NfsStat4::Ok);
}

/// The best stretch of three rounds over the clients in turn: the machine has other things to do meanwhile.
fn nanoseconds_a_sequence(sessions: &mut [Session]) -> f64 {
    let clients = sessions.len();
    let mut best = f64::INFINITY;
    for stretch in 0..3 * ROUNDS / STRETCH {
        let started = Instant::now();
        for n in stretch * STRETCH..(stretch + 1) * STRETCH {
            sessions[n * 7919 % clients].run(&[]);
        }
        best = best.min(started.elapsed().as_nanos() as f64 / STRETCH as f64);
    }
    best
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}
