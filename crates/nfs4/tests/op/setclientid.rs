//! Clients of 4.0, and their owners' sequence numbers.

use holdfast_base::{ClientId, Length, Offset, Seqid};
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Reply, at, open_create, open_existing, user};
use crate::scene::on_peer;
use crate::world::{LEASE_MS, World};

fn setclientid(name: &[u8]) -> ArgOp<'_> {
    ArgOp::SetClientId(SetClientId4Args {
        client: NfsClientId4 { verifier: [1; 8], id: name },
        callback: CbClient4 {
            cb_program: 1,
            cb_location: NetAddr4 { netid: b"tcp", addr: b"192.0.2.1.0.111" },
        },
        callback_ident: 1,
    })
}

/// A confirmed client.
pub(crate) fn client(world: &World, host: u8) -> (Peer, ClientId) {
    let mut peer = Peer::new(world, host, 0);
    let name = [b'c', host];
    let known: SetClientId4Ok = peer.compound(&[setclientid(&name)]).ok(OpNum4::SetClientId);
    let confirm =
        SetClientIdConfirm4Args { clientid: known.clientid, setclientid_confirm: known.setclientid_confirm };
    peer.compound(&[ArgOp::SetClientIdConfirm(confirm)]).ok::<()>(OpNum4::SetClientIdConfirm);
    (peer, known.clientid)
}

pub(crate) fn open(peer: &mut Peer, client: ClientId, seqid: u32) -> Reply {
    let mut args = open_create(b"f", b"o", OPEN4_SHARE_ACCESS_BOTH);
    args.seqid = Seqid(seqid);
    args.owner.clientid = client;
    on_peer(peer, &[], &[ArgOp::Open(args), ArgOp::GetFh])
}

pub(crate) fn confirm(peer: &mut Peer, open_stateid: Stateid4, seqid: u32) -> Stateid4 {
    let args = OpenConfirm4Args { open_stateid, seqid: Seqid(seqid) };
    let mut reply = on_peer(peer, &[b"f"], &[ArgOp::OpenConfirm(args)]);
    reply.ok::<OpenConfirm4Ok>(OpNum4::OpenConfirm).open_stateid
}

pub(crate) fn close(peer: &mut Peer, open_stateid: Stateid4, seqid: u32) -> Reply {
    let args = Close4Args { seqid: Seqid(seqid), open_stateid };
    on_peer(peer, &[b"f"], &[ArgOp::Close(args)])
}

#[test]
fn the_record_is_safe_before_the_client_is_confirmed() {
    let world = World::new();
    client(&world, 1);
    assert_eq!(*world.records.kept.lock(), [b"c\x01".to_vec()]);
}

/// Its record is there already, and whoever keeps it need not have an ear for its return just now (RFC 7530 section 16.34.5).
#[test]
fn who_only_changes_its_callback_loses_nothing_while_records_cannot_be_kept() {
    let world = World::new();
    let (mut peer, clientid) = client(&world, 1);
    let mut reply = open(&mut peer, clientid, 1);
    let opened = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let stateid = confirm(&mut peer, opened, 2);
    let again: SetClientId4Ok = peer.compound(&[setclientid(b"c\x01")]).ok(OpNum4::SetClientId);
    let confirmation = SetClientIdConfirm4Args { clientid, setclientid_confirm: again.setclientid_confirm };
    let confirmation = [ArgOp::SetClientIdConfirm(confirmation)];
    for is_broken in [true, true, false] {
        *world.records.is_broken.lock() = is_broken;
        let status = if is_broken { NfsStat4::Delay } else { NfsStat4::Ok };
        assert_eq!(peer.compound(&confirmation).status, status);
    }
    assert_eq!(close(&mut peer, stateid, 3).status, NfsStat4::Ok, "what it held is there");
    world.check();
}

#[test]
fn a_wrong_confirmation_is_stale() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 0);
    let known: SetClientId4Ok = peer.compound(&[setclientid(b"x")]).ok(OpNum4::SetClientId);
    let args = SetClientIdConfirm4Args { clientid: known.clientid, setclientid_confirm: [0; 8] };
    peer.compound(&[ArgOp::SetClientIdConfirm(args)])
        .fails::<()>(OpNum4::SetClientIdConfirm, NfsStat4::StaleClientId);
}

#[test]
fn who_was_never_confirmed_opens_nothing() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 0);
    let known: SetClientId4Ok = peer.compound(&[setclientid(b"x")]).ok(OpNum4::SetClientId);
    open(&mut peer, known.clientid, 1).fails::<()>(OpNum4::Open, NfsStat4::StaleClientId);
    assert_eq!(peer.compound(&at(&[b"f"])).status, NfsStat4::NoEnt, "and nothing is made");
    world.check();
}

#[test]
fn a_name_in_use_by_another_principal_is_told_with_an_address() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    assert_eq!(open(&mut peer, id, 1).status, NfsStat4::Ok);
    let mut stranger = Peer::new(&world, 2, 0);
    stranger.auth = user(2000);
    let mut reply = stranger.compound(&[setclientid(b"c\x01")]);
    reply.fails::<NetAddr4<'_>>(OpNum4::SetClientId, NfsStat4::ClidInUse);
}

#[test]
fn renewing_keeps_a_lease_and_its_end_is_told() {
    let world = World::new();
    let (mut peer, clientid) = client(&world, 1);
    let renew = ArgOp::Renew(Renew4Args { clientid });
    for _ in 0..3 {
        world.pass(LEASE_MS - 1);
        peer.compound(std::slice::from_ref(&renew)).ok::<()>(OpNum4::Renew);
    }
    world.pass(LEASE_MS + 1);
    peer.compound(&[renew]).fails::<()>(OpNum4::Renew, NfsStat4::Expired);
    let stranger = ArgOp::Renew(Renew4Args { clientid: ClientId(5) });
    peer.compound(&[stranger]).fails::<()>(OpNum4::Renew, NfsStat4::StaleClientId);
}

#[test]
fn a_new_owner_confirms_and_until_then_its_open_is_good_for_nothing() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let mut reply = open(&mut peer, id, 5);
    let ok: Open4Ok<'_> = reply.ok(OpNum4::Open);
    assert_ne!(ok.rflags & OPEN4_RESULT_CONFIRM, 0);
    let read = ArgOp::Read(Read4Args { stateid: ok.stateid, offset: Offset(0), count: 1 });
    assert_eq!(peer.compound(&[at(&[b"f"]), vec![read]].concat()).status, NfsStat4::BadStateid);
    let stateid = confirm(&mut peer, ok.stateid, 6);
    let read = ArgOp::Read(Read4Args { stateid, offset: Offset(0), count: 1 });
    assert_eq!(peer.compound(&[at(&[b"f"]), vec![read]].concat()).status, NfsStat4::Ok);
    let mut reply = open(&mut peer, id, 7);
    assert_eq!(reply.ok::<Open4Ok<'_>>(OpNum4::Open).rflags & OPEN4_RESULT_CONFIRM, 0);
    world.check();
}

#[test]
fn a_retried_open_gets_its_first_result_and_its_file_as_the_current_one() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let mut reply = open(&mut peer, id, 1);
    let stateid = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    confirm(&mut peer, stateid, 2);
    let first = open(&mut peer, id, 3);
    let again = open(&mut peer, id, 3);
    assert_eq!(first, again, "the second GETFH finds the file current");
    open(&mut peer, id, 9).fails::<()>(OpNum4::Open, NfsStat4::BadSeqid);
}

#[test]
fn a_retried_close_gets_its_first_result() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let stateid = open(&mut peer, id, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let stateid = confirm(&mut peer, stateid, 2);
    let first = close(&mut peer, stateid, 3);
    assert_eq!(first, close(&mut peer, stateid, 3));
    assert_eq!(first.status, NfsStat4::Ok);
    assert_eq!(world.nfs.census().1, 0);
    world.check();
}

#[test]
fn a_failure_that_steps_the_number_is_repeated_to_a_retry() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let stateid = open(&mut peer, id, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    confirm(&mut peer, stateid, 2);
    let mut missing = open_existing(b"missing", b"o", OPEN4_SHARE_ACCESS_READ);
    missing.seqid = Seqid(3);
    missing.owner.clientid = id;
    let ops = [at(&[]), vec![ArgOp::Open(missing)]].concat();
    for _ in 0..2 {
        assert_eq!(peer.compound(&ops).status, NfsStat4::NoEnt);
    }
    assert_eq!(open(&mut peer, id, 4).status, NfsStat4::Ok, "the number had stepped");
}

#[test]
fn an_open_whose_client_cannot_be_put_on_record_steps_the_number_too() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let stateid = open(&mut peer, id, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    confirm(&mut peer, stateid, 2);
    // As after a grace that it did not finish.
    world.records.holders.lock().clear();
    *world.records.is_broken.lock() = true;
    for _ in 0..2 {
        open(&mut peer, id, 3).fails::<()>(OpNum4::Open, NfsStat4::Delay);
    }
    *world.records.is_broken.lock() = false;
    assert_eq!(open(&mut peer, id, 4).status, NfsStat4::Ok, "the number had stepped");
    world.check();
}

#[test]
fn locks_of_two_owners_conflict_and_the_denial_names_the_holder() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let stateid = open(&mut peer, id, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    let stateid = confirm(&mut peer, stateid, 2);
    let lock = |owner: &'static [u8], seqid: u32| {
        ArgOp::Lock(Lock4Args {
            locktype: LockType4::Write,
            reclaim: false,
            offset: Offset(0),
            length: Length(10),
            locker: Locker4::New(OpenToLockOwner4 {
                open_seqid: Seqid(seqid),
                open_stateid: stateid,
                lock_seqid: Seqid(0),
                lock_owner: StateOwner4 { clientid: id, owner },
            }),
        })
    };
    on_peer(&mut peer, &[b"f"], &[lock(b"first", 3)]).ok::<Lock4Ok>(OpNum4::Lock);
    // Denied, and denied again to a retry, whole.
    for _ in 0..2 {
        let mut reply = on_peer(&mut peer, &[b"f"], &[lock(b"second", 4)]);
        let denied: Lock4Denied<'_> = reply.fails(OpNum4::Lock, NfsStat4::Denied);
        assert_eq!(denied.owner, StateOwner4 { clientid: id, owner: b"first" });
        assert_eq!((denied.offset, denied.length), (Offset(0), Length(10)));
    }
    let release = |owner| {
        ArgOp::ReleaseLockOwner(ReleaseLockOwner4Args { lock_owner: StateOwner4 { clientid: id, owner } })
    };
    peer.compound(&[release(b"first")]).fails::<()>(OpNum4::ReleaseLockOwner, NfsStat4::LocksHeld);
    peer.compound(&[release(b"nobody")]).ok::<()>(OpNum4::ReleaseLockOwner);
    world.check();
}

#[test]
fn an_open_that_panics_leaves_its_owner_free() {
    let world = World::new();
    let (mut peer, id) = client(&world, 1);
    let mut args = open_create(b"f", b"o", OPEN4_SHARE_ACCESS_BOTH);
    args.seqid = Seqid(1);
    args.owner.clientid = id;
    let ops = peer.args(&[at(&[]), vec![ArgOp::Open(args)]].concat());
    world.fs.panic_at_call(1);
    peer.raw(&ops);
    assert_eq!(world.fs.panic_at_call(0), 0, "it came");
    let stateid = open(&mut peer, id, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    confirm(&mut peer, stateid, 2);
    world.check();
}

/// A client with the file open, and a lock-owner of its.
struct Locking {
    peer: Peer,
    client: ClientId,
    open: Stateid4,
    open_seqid: Seqid,
    /// Its locks, and the number it last used for them.
    held: Option<(Stateid4, Seqid)>,
}

impl Locking {
    fn of_host(world: &World, host: u8) -> Self {
        let (mut peer, client) = client(world, host);
        let stateid = open(&mut peer, client, 1).ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
        let open = confirm(&mut peer, stateid, 2);
        Self { peer, client, open, open_seqid: Seqid(3), held: None }
    }

    /// Asks for ten bytes.
    fn lock(&mut self, offset: u64, locktype: LockType4) -> Reply {
        self.ask(offset, locktype, false)
    }

    /// Asks for ten bytes that it had before the server restarted.
    fn reclaim(&mut self, offset: u64) -> Reply {
        self.ask(offset, LockType4::Write, true)
    }

    fn ask(&mut self, offset: u64, locktype: LockType4, reclaim: bool) -> Reply {
        let locker = match &mut self.held {
            None => Locker4::New(OpenToLockOwner4 {
                open_seqid: self.open_seqid,
                open_stateid: self.open,
                lock_seqid: Seqid(0),
                lock_owner: StateOwner4 { clientid: self.client, owner: b"l" },
            }),
            Some((lock_stateid, seqid)) => {
                *seqid = seqid.next();
                Locker4::Exist(ExistLockOwner4 { lock_stateid: *lock_stateid, lock_seqid: *seqid })
            }
        };
        let (offset, length) = (Offset(offset), Length(10));
        let args = Lock4Args { locktype, reclaim, offset, length, locker };
        let reply = on_peer(&mut self.peer, &[b"f"], &[ArgOp::Lock(args)]);
        if reply.status == NfsStat4::Ok {
            let seqid = self.held.map_or(Seqid(0), |(_, seqid)| seqid);
            self.held = Some((reply.clone().ok::<Lock4Ok>(OpNum4::Lock).lock_stateid, seqid));
        }
        reply
    }
}

/// A request that met something to wait for is run again where it may wait, and has not counted before.
#[test]
fn the_first_lock_of_an_owner_counts_once_however_often_it_is_run() {
    let world = World::new();
    let mut a = Locking::of_host(&world, 1);
    let mut found = on_peer(&mut a.peer, &[b"f"], &[ArgOp::GetFh]);
    let handle = found.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object.to_vec();
    let new = |open_seqid, offset, lock_seqid| {
        ArgOp::Lock(Lock4Args {
            locktype: LockType4::Write,
            reclaim: false,
            offset: Offset(offset),
            length: Length(10),
            locker: Locker4::New(OpenToLockOwner4 {
                open_seqid,
                open_stateid: a.open,
                lock_seqid,
                lock_owner: StateOwner4 { clientid: a.client, owner: b"l" },
            }),
        })
    };
    let put = || ArgOp::PutFh(PutFh4Args { object: &handle });
    let first = new(a.open_seqid, 0, Seqid(0));
    world.fs.block_every(1);
    let mut reply = a.peer.compound(&[put(), first]);
    reply.ok::<()>(OpNum4::PutFh);
    let stateid = reply.ok::<Lock4Ok>(OpNum4::Lock).lock_stateid;
    world.fs.block_every(0);
    a.held = Some((stateid, Seqid(0)));
    assert_eq!(a.lock(10, LockType4::Write).status, NfsStat4::Ok, "1 comes after 0");
    world.check();
}

/// What is reclaimed keeps grace open, so each reclaim must be heard of where grace is kept, whatever it goes by.
#[test]
fn a_reclaim_by_a_lock_stateid_is_judged_and_noted_as_the_first_one_is() {
    let world = World::new();
    let mut a = Locking::of_host(&world, 1);
    world.nfs.set_grace(holdfast_state::Grace::Until(holdfast_base::Instant(30_000)));
    a.reclaim(0).fails::<()>(OpNum4::Lock, NfsStat4::ReclaimBad);
    world.records.may_reclaim.lock().push(vec![b'c', 1]);
    a.open_seqid = a.open_seqid.next();
    world.records.reclaims.lock().clear();
    for (noted, offset) in [(1, 0), (2, 10), (3, 20)] {
        assert_eq!(a.reclaim(offset).status, NfsStat4::Ok);
        assert_eq!(*world.records.reclaims.lock(), vec![a.client; noted]);
    }
    world.records.may_reclaim.lock().clear();
    a.reclaim(30).fails::<()>(OpNum4::Lock, NfsStat4::ReclaimBad);
    world.check();
}

#[test]
fn a_circle_of_blocking_locks_ends_in_an_error() {
    let world = World::new();
    let (mut a, mut b) = (Locking::of_host(&world, 1), Locking::of_host(&world, 2));
    assert_eq!(a.lock(0, LockType4::Write).status, NfsStat4::Ok);
    assert_eq!(b.lock(10, LockType4::Write).status, NfsStat4::Ok);
    // It asks from time to time, as these clients do.
    for _ in 0..3 {
        a.lock(10, LockType4::WriteWait).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
        world.pass(LEASE_MS / 4);
    }
    b.lock(0, LockType4::Write).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    b.lock(0, LockType4::WriteWait).fails::<()>(OpNum4::Lock, NfsStat4::Deadlock);
    // Whoever was told does not wait, and may ask for something else.
    assert_eq!(b.lock(20, LockType4::WriteWait).status, NfsStat4::Ok);
    a.lock(10, LockType4::WriteWait).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    world.check();
}
