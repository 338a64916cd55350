//! What an administrator took before the server was killed: nobody reclaims it, and who knows of it reclaims the rest.

use std::fs;
use std::rc::Rc;

use holdfast_admin::AdminClient;
use holdfast_admin::report::{HoldingKind, Taken};
use holdfast_admin::request::{Request, Which};
use holdfast_base::{Length, Offset, Seqid};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};

use crate::nfs4::{Client, lookup, status};
use crate::server::World;

fn world() -> Rc<World> {
    let world = World::lasting(None, Point::BeforeSend, true);
    for name in ["taken", "kept"] {
        fs::write(world.files().join(name), b"precious").unwrap();
    }
    Rc::new(world)
}

/// Takes what is held of this kind on the file `taken`.
pub(crate) fn release(world: &World, kind: HoldingKind) {
    let path = Some(world.files().join("taken").display().to_string());
    let which = Which { path, kinds: vec![kind], ..Which::default() };
    let taken: Taken = AdminClient::connect(&world.state()).unwrap().ask(Request::Release(which)).unwrap();
    assert_eq!(taken.holdings, 1, "{}", kind.name());
}

/// A client with its files, by owners of the files' names.
pub(crate) struct Holder {
    pub(crate) client: Client,
    minor: u32,
    /// The numbers of both owners in 4.0.
    seqids: [u32; 2],
}

impl Holder {
    fn new(world: &Rc<World>, minor: u32) -> Self {
        Self::named(world, "holder", minor)
    }

    pub(crate) fn named(world: &Rc<World>, name: &'static str, minor: u32) -> Self {
        Self { client: Client::new(world, name, minor), minor, seqids: [0; 2] }
    }

    /// In 4.0, the next number of an owner.
    fn next(&mut self, name: &[u8]) -> Seqid {
        let seqid = &mut self.seqids[usize::from(name == b"kept")];
        *seqid += 1;
        Seqid(if self.minor == 0 { *seqid } else { 0 })
    }

    /// Does something in the exported directory.
    pub(crate) fn run(&mut self, ops: &[ArgOp<'static>]) -> Vec<u8> {
        let all = [&[ArgOp::PutRootFh, lookup(b"export")], ops].concat();
        let call = self.client.sequenced(0, &all);
        self.client.world.exchange(&call)
    }

    /// The stateid in the result of this operation, the last, behind those without results.
    fn stateid(&self, results: &[u8], op: OpNum4) -> Stateid4 {
        let mut r = Reader::new(results);
        assert_eq!(CompoundResHeader::decode(&mut r).unwrap().status, NfsStat4::Ok);
        loop {
            match ResOpHeader::decode(&mut r).unwrap().op {
                at if at == OpNum4::Sequence as u32 => drop(Sequence4Ok::decode(&mut r).unwrap()),
                at if at == op as u32 => return Stateid4::decode(&mut r).unwrap(),
                _ => {}
            }
        }
    }

    pub(crate) fn open_as(&mut self, name: &'static [u8], claim: OpenClaim4<'static>) -> Vec<u8> {
        let seqid = self.next(name);
        let open = ArgOp::Open(Open4Args {
            seqid,
            share_access: OPEN4_SHARE_ACCESS_BOTH,
            share_deny: OPEN4_SHARE_DENY_BOTH,
            owner: StateOwner4 { clientid: self.client.id, owner: name },
            openhow: OpenFlag4::NoCreate,
            claim,
        });
        let at: &[_] = if let OpenClaim4::Null(_) = claim { &[] } else { &[lookup(name)] };
        self.run(&[at, &[open]].concat())
    }

    /// Opens a file, denying others all.
    pub(crate) fn open(&mut self, name: &'static [u8]) -> Stateid4 {
        let results = self.open_as(name, OpenClaim4::Null(name));
        let open_stateid = self.stateid(&results, OpNum4::Open);
        if self.minor > 0 {
            return open_stateid;
        }
        let seqid = self.next(name);
        let confirm = ArgOp::OpenConfirm(OpenConfirm4Args { open_stateid, seqid });
        let results = self.run(&[lookup(name), confirm]);
        self.stateid(&results, OpNum4::OpenConfirm)
    }

    fn lock(&mut self, open_stateid: Stateid4) {
        assert_eq!(self.try_lock(b"taken", open_stateid), NfsStat4::Ok);
    }

    /// Locks all of a file that it has open.
    pub(crate) fn try_lock(&mut self, name: &'static [u8], open_stateid: Stateid4) -> NfsStat4 {
        let open_seqid = self.next(name);
        let lock_owner = StateOwner4 { clientid: self.client.id, owner: b"locker" };
        let new = OpenToLockOwner4 { open_seqid, open_stateid, lock_seqid: Seqid(1), lock_owner };
        let lock = ArgOp::Lock(Lock4Args {
            locktype: LockType4::Write,
            reclaim: false,
            offset: Offset(0),
            length: Length(u64::MAX),
            locker: Locker4::New(new),
        });
        status(&self.run(&[lookup(name), lock]))
    }

    fn close(&mut self, open_stateid: Stateid4) -> NfsStat4 {
        let seqid = self.next(b"taken");
        status(&self.run(&[lookup(b"taken"), ArgOp::Close(Close4Args { seqid, open_stateid })]))
    }

    fn free(&mut self, stateid: Stateid4) -> NfsStat4 {
        status(&self.run(&[ArgOp::FreeStateid(FreeStateid4Args { stateid })]))
    }

    /// After the server's death: what comes of reclaiming what it has of a file.
    pub(crate) fn reclaim(&mut self, name: &'static [u8]) -> NfsStat4 {
        if self.minor == 0 {
            self.client.set_client_id();
        }
        self.seqids = [0; 2];
        status(&self.open_as(name, OpenClaim4::Previous(OpenDelegationType4::None)))
    }
}

#[test]
fn what_was_taken_is_not_reclaimed_nor_what_its_holder_may_have_lost_with_it() {
    for minor in [0, 1] {
        let world = world();
        let mut holder = Holder::new(&world, minor);
        holder.open(b"taken");
        holder.open(b"kept");
        release(&world, HoldingKind::Open);
        let mut other = Client::new(&world, "other", 1);
        assert_eq!(other.try_open(b"taken"), NfsStat4::Ok, "it is free");
        world.kill();
        // The holder has not heard of it: nothing tells the two of them apart but the record.
        assert_ne!(holder.reclaim(b"taken"), NfsStat4::Ok, "4.{minor}");
        assert_ne!(holder.reclaim(b"kept"), NfsStat4::Ok, "4.{minor}");
    }
}

#[test]
fn who_acknowledged_what_was_taken_reclaims_the_rest() {
    let world = world();
    let mut holder = Holder::new(&world, 1);
    let taken = holder.open(b"taken");
    holder.open(b"kept");
    release(&world, HoldingKind::Open);
    assert_eq!(holder.close(taken), NfsStat4::AdminRevoked);
    assert_eq!(holder.free(taken), NfsStat4::Ok);
    world.kill();
    assert_eq!(holder.reclaim(b"kept"), NfsStat4::Ok);
}

#[test]
fn a_client_of_4_0_acknowledges_by_having_been_told() {
    let world = world();
    let mut holder = Holder::new(&world, 0);
    let taken = holder.open(b"taken");
    holder.open(b"kept");
    release(&world, HoldingKind::Open);
    assert_eq!(holder.close(taken), NfsStat4::AdminRevoked);
    world.kill();
    assert_eq!(holder.reclaim(b"kept"), NfsStat4::Ok);
}

#[test]
fn a_lock_that_was_taken_is_acknowledged_with_the_close_of_its_open() {
    for minor in [0, 1] {
        let world = world();
        let mut holder = Holder::new(&world, minor);
        let open = holder.open(b"taken");
        holder.open(b"kept");
        holder.lock(open);
        release(&world, HoldingKind::Lock);
        assert_eq!(holder.close(open), NfsStat4::Ok, "4.{minor}");
        world.kill();
        assert_eq!(holder.reclaim(b"kept"), NfsStat4::Ok, "4.{minor}");
    }
}
