//! Delegations through a kill (RFC 8881 sections 8.4.2.1 and 10.2.1): had back by who still held them, and by nobody from whom
//! they had been taken.

use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdfast_admin::report::HoldingKind;
use holdfast_base::{Offset, Seqid};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};

use crate::nfs4::{Client, lookup, status};
use crate::revoked::release;
use crate::server::World;
use crate::trunking::{NO_ATTRS, Trunk, last};

const READ: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;

/// In seconds: longer than a busy machine lies between two steps of a test.
const LEASE: u32 = 4;

/// A client with a back channel, and what is delegated to it.
struct Holder {
    trunk: Trunk,
    held: Stateid4,
}

impl Holder {
    fn new(world: World) -> Self {
        for name in ["taken", "kept"] {
            fs::write(world.files().join(name), b"precious").unwrap();
        }
        let mut trunk = Trunk::of(Rc::new(world));
        trunk.bind(0);
        // So that the probe of the back channel is answered.
        assert_eq!(status(&trunk.run(0, &[]).1), NfsStat4::Ok);
        let opened = trunk.open(0, b"taken", READ);
        let OpenDelegation4::Read(OpenReadDelegation4 { stateid: held, .. }) = opened.delegation else {
            panic!("{opened:?}")
        };
        trunk.open(0, b"kept", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
        Self { trunk, held }
    }

    /// One in whose world no lease ends.
    fn lasting() -> Self {
        Self::new(World::lasting(None, Point::BeforeSend, true))
    }

    fn kill(&mut self) {
        self.trunk.world.kill();
        self.trunk.lines = [0, 1].map(|which| self.trunk.world.connect(which));
    }

    /// Asks for a file back, with a delegation or without.
    fn try_reclaim(&mut self, name: &'static [u8], delegation: OpenDelegationType4) -> Vec<u8> {
        let reclaim = ArgOp::Open(Open4Args {
            seqid: Seqid(0),
            share_access: OPEN4_SHARE_ACCESS_READ,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: self.trunk.client.id, owner: b"owner" },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Previous(delegation),
        });
        self.trunk.run(0, &[lookup(name), reclaim]).1
    }

    /// Has its delegation back; `is_recalled` says whether it is to return that (RFC 8881 section 18.16.3).
    fn reclaimed(&mut self, is_recalled: bool) -> Stateid4 {
        let results: &'static [u8] = self.try_reclaim(b"taken", OpenDelegationType4::Read).leak();
        let opened: Open4Ok<'_> = last(results, 5);
        let OpenDelegation4::Read(OpenReadDelegation4 { stateid, recall, .. }) = opened.delegation else {
            panic!("{opened:?}")
        };
        assert_eq!(recall, is_recalled);
        stateid
    }

    fn free(&mut self) -> NfsStat4 {
        status(&self.trunk.run(0, &[ArgOp::FreeStateid(FreeStateid4Args { stateid: self.held })]).1)
    }

    /// How its delegation is, by TEST_STATEID.
    fn test(&mut self) -> NfsStat4 {
        let stateids = vec![self.held];
        let results = self.trunk.run(0, &[ArgOp::TestStateid(TestStateid4Args { stateids })]).1;
        let tested: TestStateid4Ok = last(&results, 4);
        tested.status_codes[0]
    }
}

#[test]
fn what_is_held_is_had_back_and_holds_against_others_as_before() {
    let mut holder = Holder::lasting();
    holder.kill();
    holder.trunk.bind(0);
    // So that the server knows by then that it is to be reached.
    assert_eq!(status(&holder.trunk.run(0, &[]).1), NfsStat4::Ok);
    let stateid = holder.reclaimed(false);
    assert_eq!(status(&holder.try_reclaim(b"kept", OpenDelegationType4::None)), NfsStat4::Ok);
    holder.trunk.client.complete_reclaims();
    let mut other = Client::new(&holder.trunk.world, "other", 1);
    assert_eq!(other.try_open(b"taken"), NfsStat4::Delay, "it is recalled");
    assert_eq!(holder.trunk.next_call(0), CbOpNum4::Recall.as_u32());
    let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: stateid });
    assert_eq!(status(&holder.trunk.run(0, &[lookup(b"taken"), back]).1), NfsStat4::Ok);
    assert_eq!(other.try_open(b"taken"), NfsStat4::Ok);
}

#[test]
fn who_cannot_be_called_back_is_told_at_once_to_return_what_it_has_back() {
    let mut holder = Holder::lasting();
    holder.kill();
    let deleg_stateid = holder.reclaimed(true);
    holder.trunk.client.complete_reclaims();
    let mut other = Client::new(&holder.trunk.world, "other", 1);
    assert_eq!(other.try_open(b"taken"), NfsStat4::Delay);
    let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid });
    assert_eq!(status(&holder.trunk.run(0, &[lookup(b"taken"), back]).1), NfsStat4::Ok);
    assert_eq!(other.try_open(b"taken"), NfsStat4::Ok);
}

#[test]
fn what_an_administrator_took_is_not_had_back_by_who_has_not_heard_of_it() {
    let mut holder = Holder::lasting();
    release(&holder.trunk.world, HoldingKind::Delegation);
    holder.kill();
    assert_ne!(status(&holder.try_reclaim(b"taken", OpenDelegationType4::Read)), NfsStat4::Ok);
    // Nothing tells the server that it had opened these, too.
    for name in [b"taken".as_slice(), b"kept"] {
        assert_ne!(status(&holder.try_reclaim(name, OpenDelegationType4::None)), NfsStat4::Ok);
    }
}

#[test]
fn who_has_acknowledged_it_reclaims_the_rest() {
    let mut holder = Holder::lasting();
    release(&holder.trunk.world, HoldingKind::Delegation);
    assert_eq!(holder.test(), NfsStat4::AdminRevoked);
    assert_eq!(holder.free(), NfsStat4::Ok);
    holder.kill();
    for name in [b"taken".as_slice(), b"kept"] {
        assert_eq!(status(&holder.try_reclaim(name, OpenDelegationType4::None)), NfsStat4::Ok);
    }
}

#[test]
fn what_was_recalled_and_not_returned_is_not_had_back() {
    let mut holder = Holder::new(World::of_lease(Point::BeforeSend, true, LEASE));
    let mut other = Client::new(&holder.trunk.world, "other", 1);
    let until = Instant::now() + Duration::from_secs(u64::from(10 * LEASE));
    while other.try_open(b"taken") != NfsStat4::Ok {
        assert!(Instant::now() < until, "it is taken from who does not return it");
        std::thread::sleep(Duration::from_millis(100));
        // Its lease goes on, it only does not return what it holds.
        assert_eq!(status(&holder.trunk.run(0, &[]).1), NfsStat4::Ok);
    }
    assert_eq!(holder.test(), NfsStat4::DelegRevoked);
    holder.kill();
    assert_ne!(status(&holder.try_reclaim(b"taken", OpenDelegationType4::Read)), NfsStat4::Ok);
}

/// Makes a file, with a delegation of it.
fn make(client: &Client, name: &'static [u8], more_wants: u32) -> [ArgOp<'static>; 2] {
    let open = ArgOp::Open(Open4Args {
        seqid: Seqid(0),
        share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG | more_wants,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 { clientid: client.id, owner: b"owner" },
        openhow: OpenFlag4::Create(CreateHow4::Guarded(NO_ATTRS)),
        claim: OpenClaim4::Null(name),
    });
    [open, ArgOp::GetFh]
}

/// What an OPEN and a GETFH behind it were answered.
fn made(results: &'static [u8]) -> (Open4Ok<'static>, GetFh4Ok<'static>) {
    let mut r = Reader::new(results);
    assert_eq!(CompoundResHeader::decode(&mut r).unwrap().status, NfsStat4::Ok);
    ResOpHeader::decode(&mut r).unwrap();
    Sequence4Ok::decode(&mut r).unwrap();
    for _ in 0..3 {
        ResOpHeader::decode(&mut r).unwrap();
    }
    let opened = Open4Ok::decode(&mut r).unwrap();
    ResOpHeader::decode(&mut r).unwrap();
    (opened, GetFh4Ok::decode(&mut r).unwrap())
}

/// A client does not ask before it uses a delegation, so one that is gone must not be told of.
#[test]
fn what_answers_an_open_in_another_life_is_the_open_alone() {
    for instead in [0, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION] {
        let world = Rc::new(World::lasting(None, Point::BeforeSend, true));
        let mut trunk = Trunk::of_minor(world, 2);
        trunk.bind(0);
        assert_eq!(status(&trunk.run(0, &[]).1), NfsStat4::Ok);
        let ops = make(&trunk.client, b"first", instead);
        let (first, _) = made(trunk.run(0, &ops).1.leak());
        assert!(matches!(first.delegation, OpenDelegation4::Write(_)), "{first:?}");
        assert_eq!(first.stateid == Stateid4::ANONYMOUS, instead != 0);

        let ops = make(&trunk.client, b"second", instead);
        let call = trunk.client.sequenced(0, &[&[ArgOp::PutRootFh, lookup(b"export")], &ops[..]].concat());
        assert_eq!(trunk.world.kill_at(1, &call, || ()), None, "the server dies");
        let (second, GetFh4Ok { object }) = made(trunk.world.exchange(&call).leak());
        assert_eq!(second.delegation, OpenDelegation4::None);
        assert_eq!(second.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0);
        let write = ArgOp::Write(Write4Args {
            stateid: second.stateid,
            offset: Offset(0),
            stable: StableHow4::Unstable,
            data: b"x",
        });
        let ops = [ArgOp::PutFh(PutFh4Args { object }), write];
        let call = trunk.client.sequenced(0, &ops);
        let results = trunk.world.exchange(&call);
        assert_eq!(status(&results), NfsStat4::StaleStateid, "who uses it hears that it is gone");
    }
}
