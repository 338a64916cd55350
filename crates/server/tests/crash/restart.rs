//! What clients find after a restart: their sessions, the right to reclaim, and nobody who took what is theirs.

use std::fs;
use std::rc::Rc;

use holdfast_base::{Length, Offset, Seqid};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};

use crate::nfs4::{Client, lookup, status};
use crate::server::World;
use crate::trunking::last;

/// One file, which two clients want for themselves. Grace ends by a word, not by itself.
fn world() -> Rc<World> {
    of(World::lasting(None, Point::BeforeSend, true))
}

fn of(world: World) -> Rc<World> {
    fs::write(world.files().join("file"), b"precious").unwrap();
    Rc::new(world)
}

fn open(client: &Client, claim: OpenClaim4<'static>) -> ArgOp<'static> {
    ArgOp::Open(Open4Args {
        seqid: Seqid(0),
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: OPEN4_SHARE_DENY_BOTH,
        owner: StateOwner4 { clientid: client.id, owner: b"owner" },
        openhow: OpenFlag4::NoCreate,
        claim,
    })
}

/// Runs operations in the exported directory; the reply.
fn run(client: &mut Client, ops: &[ArgOp<'static>]) -> Vec<u8> {
    let all = [&[ArgOp::PutRootFh, lookup(b"export")], ops].concat();
    let call = client.sequenced(0, &all);
    client.world.exchange(&call)
}

fn try_open(client: &mut Client) -> NfsStat4 {
    let open = open(client, OpenClaim4::Null(b"file"));
    status(&run(client, &[open]))
}

fn reclaim(client: &mut Client) -> Vec<u8> {
    let reclaim = open(client, OpenClaim4::Previous(OpenDelegationType4::None));
    run(client, &[lookup(b"file"), reclaim])
}

fn try_reclaim(client: &mut Client) -> NfsStat4 {
    status(&reclaim(client))
}

/// The flags in a SEQUENCE's answer.
pub(crate) fn flags(client: &mut Client) -> u32 {
    let results = run(client, &[]);
    let mut r = Reader::new(&results);
    let header = CompoundResHeader::decode(&mut r).unwrap();
    assert_eq!(header.status, NfsStat4::Ok, "the session goes on");
    ResOpHeader::decode(&mut r).unwrap();
    Sequence4Ok::decode(&mut r).unwrap().status_flags
}

#[test]
fn a_session_goes_on_and_its_opens_are_reclaimed_before_anybody_else_has_the_file() {
    let world = world();
    let mut holder = Client::new(&world, "holder", 1);
    assert_eq!(try_open(&mut holder), NfsStat4::Ok);
    world.kill();
    assert_ne!(flags(&mut holder) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, 0);
    let mut other = Client::new(&world, "other", 1);
    assert_eq!(try_open(&mut other), NfsStat4::Grace);
    assert_eq!(try_reclaim(&mut holder), NfsStat4::Ok);
    holder.complete_reclaims();
    assert_eq!(flags(&mut holder) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, 0);
    assert_eq!(
        try_open(&mut other),
        NfsStat4::ShareDenied,
        "grace is over at once, and the file is the holder's"
    );
}

#[test]
fn a_second_kill_in_the_middle_of_grace_takes_nobodys_right() {
    let world = world();
    let mut holder = Client::new(&world, "holder", 1);
    assert_eq!(try_open(&mut holder), NfsStat4::Ok);
    world.kill();
    assert_eq!(try_reclaim(&mut holder), NfsStat4::Ok);
    world.kill();
    let mut other = Client::new(&world, "other", 1);
    assert_eq!(try_open(&mut other), NfsStat4::Grace);
    assert_eq!(try_reclaim(&mut holder), NfsStat4::Ok);
}

#[test]
fn a_restart_in_the_middle_of_reclaiming_does_not_stay_hidden() {
    let world = world();
    let mut holder = Client::new(&world, "holder", 1);
    assert_eq!(try_open(&mut holder), NfsStat4::Ok);
    world.kill();
    flags(&mut holder);
    assert_eq!(try_reclaim(&mut holder), NfsStat4::Ok);
    world.kill();
    // As Linux does, which heeds no flags while it reclaims.
    assert_eq!(holder.try_complete_reclaims(), NfsStat4::DeadSession, "what was reclaimed is lost");
    assert_ne!(flags(&mut holder) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, 0);
    assert_eq!(try_reclaim(&mut holder), NfsStat4::Ok);
    holder.complete_reclaims();
    world.kill();
    assert_eq!(try_reclaim(&mut holder), NfsStat4::Ok);
    assert_eq!(holder.try_complete_reclaims(), NfsStat4::DeadSession);
    holder.complete_reclaims();
}

/// A lock of the whole file, reclaimed through an open.
fn try_reclaim_lock(client: &mut Client, open_stateid: Stateid4) -> NfsStat4 {
    let lock_owner = StateOwner4 { clientid: client.id, owner: b"locker" };
    let new = OpenToLockOwner4 { open_seqid: Seqid(0), open_stateid, lock_seqid: Seqid(0), lock_owner };
    let lock = ArgOp::Lock(Lock4Args {
        locktype: LockType4::Write,
        reclaim: true,
        offset: Offset(0),
        length: Length(u64::MAX),
        locker: Locker4::New(new),
    });
    status(&run(client, &[lookup(b"file"), lock]))
}

fn reclaimed(client: &mut Client) -> Stateid4 {
    let results: &'static [u8] = reclaim(client).leak();
    last::<Open4Ok<'_>>(results, 5).stateid
}

/// Linux takes STALE_STATEID for the loss of these locks alone, and tells nobody but who reads and writes under them.
#[test]
fn a_restart_between_the_reclaim_of_an_open_and_that_of_its_locks_takes_no_lock() {
    let world = world();
    let mut holder = Client::new(&world, "holder", 1);
    assert_eq!(try_open(&mut holder), NfsStat4::Ok);
    world.kill();
    flags(&mut holder);
    let between = reclaimed(&mut holder);
    world.kill();
    assert_eq!(try_reclaim_lock(&mut holder, between), NfsStat4::StaleClientId);
    let open = reclaimed(&mut holder);
    assert_eq!(try_reclaim_lock(&mut holder, open), NfsStat4::Ok);
    // It begins once more, for whatever reason, in the same life.
    assert_eq!(reclaimed(&mut holder), open);
    assert_eq!(try_reclaim_lock(&mut holder, open), NfsStat4::Ok);
    holder.complete_reclaims();
}

#[test]
fn who_is_not_recorded_reclaims_nothing() {
    let world = world();
    let mut holder = Client::new(&world, "holder", 1);
    assert_eq!(try_open(&mut holder), NfsStat4::Ok);
    world.kill();
    let mut other = Client::introduced(&world, "other", 1);
    assert_eq!(try_reclaim(&mut other), NfsStat4::ReclaimBad);
    assert_eq!(try_reclaim(&mut holder), NfsStat4::Ok);
}

#[test]
fn without_anybody_who_held_something_there_is_no_grace() {
    let world = world();
    let mut idle = Client::new(&world, "idle", 1);
    world.kill();
    let mut other = Client::new(&world, "other", 1);
    assert_eq!(try_open(&mut other), NfsStat4::Ok);
    assert_ne!(flags(&mut idle) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, 0);
    idle.complete_reclaims();
}

#[test]
fn a_holder_that_does_not_come_back_in_time_loses_its_claim() {
    // Long enough for who comes back after it.
    let world = of(World::of_lease(Point::BeforeSend, true, 4));
    let mut holder = Client::new(&world, "holder", 1);
    assert_eq!(try_open(&mut holder), NfsStat4::Ok);
    world.kill();
    let mut other = Client::new(&world, "other", 1);
    other.wait_for_grace();
    assert_eq!(try_open(&mut other), NfsStat4::Ok);
    world.kill();
    assert_ne!(try_reclaim(&mut holder), NfsStat4::Ok, "another has had the file since");
    assert_eq!(try_reclaim(&mut other), NfsStat4::Ok);
}

#[test]
fn names_stay_as_they_are_while_a_delegation_may_be_reclaimed() {
    let world = world();
    let mut holder = Client::new(&world, "holder", 1);
    assert_eq!(try_open(&mut holder), NfsStat4::Ok);
    world.kill();
    let mut other = Client::new(&world, "other", 1);
    let mut remove = || {
        let remove = ArgOp::Remove(Remove4Args { target: b"file" });
        status(&run(&mut other, &[remove]))
    };
    assert_eq!(remove(), NfsStat4::Grace);
    holder.complete_reclaims();
    assert_eq!(remove(), NfsStat4::Ok, "there was none");
}

#[test]
fn unstable_writes_are_sent_again_as_the_verifier_changes() {
    let world = world();
    let mut client = Client::new(&world, "writer", 1);
    let write = ArgOp::Write(Write4Args {
        stateid: Stateid4::ANONYMOUS,
        offset: Offset(0),
        stable: StableHow4::Unstable,
        data: b"P",
    });
    let commit = ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 });
    let verifier = |results: Vec<u8>| {
        assert_eq!(status(&results), NfsStat4::Ok);
        results[results.len() - 8..].to_vec()
    };
    let written = verifier(run(&mut client, &[lookup(b"file"), write]));
    let before = verifier(run(&mut client, &[lookup(b"file"), commit.clone()]));
    assert_eq!(written, before);
    world.kill();
    let after = verifier(run(&mut client, &[lookup(b"file"), commit]));
    assert_ne!(written, after);
}
