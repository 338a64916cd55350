//! Trunking (RFC 8881 section 2.10.5): one client, and one session of its, over two of the server's addresses.

use std::fs;
use std::rc::Rc;

use holdfast_base::{Offset, Seqid};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;
use holdfast_wire::rpc::{
    AcceptStat, AcceptedReply, CallHeader, MsgType, OpaqueAuth, ReplyBody, ReplyHeader,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use crate::nfs4::{Client, lookup, status};
use crate::server::{World, names};
use crate::wire::Line;

pub(crate) const NO_ATTRS: Fattr4<'static> = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };

/// A client with a connection to each of two addresses.
pub(crate) struct Trunk {
    pub(crate) world: Rc<World>,
    pub(crate) client: Client,
    pub(crate) lines: [Line; 2],
}

/// What follows the head of the last of so many results, those before it having no body but SEQUENCE's.
pub(crate) fn last<'a, T: Decode<'a>>(results: &'a [u8], count: usize) -> T {
    let mut r = Reader::new(results);
    assert_eq!(CompoundResHeader::decode(&mut r).unwrap().status, NfsStat4::Ok);
    for n in 0..count {
        let head = ResOpHeader::decode(&mut r).unwrap();
        if n + 1 < count && head.op == OpNum4::Sequence.as_u32() {
            Sequence4Ok::decode(&mut r).unwrap();
        }
    }
    T::decode(&mut r).unwrap()
}

impl Trunk {
    fn new() -> Self {
        Self::of(Rc::new(World::lasting(None, Point::BeforeSend, true)))
    }

    pub(crate) fn of(world: Rc<World>) -> Self {
        Self::of_minor(world, 1)
    }

    pub(crate) fn of_minor(world: Rc<World>, minor: u32) -> Self {
        let client = Client::new(&world, "trunk", minor);
        let lines = [world.connect(0), world.connect(1)];
        Self { world, client, lines }
    }

    /// Sends a call over one of the connections. Probes of the back channel are answered, other calls kept.
    fn exchange(&mut self, which: usize, call: &[u8]) -> Vec<u8> {
        let results = self.lines[which].exchange(call).expect("the server lives");
        self.answer_probes(which);
        results
    }

    fn answer_probes(&mut self, which: usize) {
        let line = &mut self.lines[which];
        for call in std::mem::take(&mut line.calls) {
            match Called::read(&call).probed() {
                Some(results) => {
                    let accepted = AcceptedReply { verf: OpaqueAuth::NONE, stat: AcceptStat::Success };
                    let xid = u32::from_be_bytes(call[..4].try_into().unwrap());
                    let body = ReplyBody::Accepted(accepted);
                    let mut w = Writer::new();
                    ReplyHeader { xid, mtype: MsgType::Reply, body }.encode(&mut w);
                    line.send(&[w.as_slice(), &results].concat()).unwrap();
                }
                None => line.calls.push(call),
            }
        }
    }

    /// Runs operations in the exported directory; the call, to be sent again, and its results.
    pub(crate) fn run(&mut self, which: usize, ops: &[ArgOp<'_>]) -> (Vec<u8>, Vec<u8>) {
        let call = self.client.sequenced(0, &[&[ArgOp::PutRootFh, lookup(b"export")], ops].concat());
        let results = self.exchange(which, &call);
        (call, results)
    }

    /// Who the server says that it is, and as whom it knows the client.
    fn introduction(&mut self, which: usize) -> ExchangeId4Ok<'static> {
        let call = self.client.compound(&[self.client.who_it_is()]);
        let results: &'static [u8] = self.exchange(which, &call).leak();
        last(results, 1)
    }

    pub(crate) fn bind(&mut self, which: usize) {
        let bind = BindConnToSession4Args {
            sessionid: self.client.session(),
            dir: ChannelDirFromClient4::ForeOrBoth,
            use_conn_in_rdma_mode: false,
        };
        let call = self.client.compound(&[ArgOp::BindConnToSession(bind)]);
        let results = self.exchange(which, &call);
        let bound: BindConnToSession4Ok = last(&results, 1);
        assert_eq!((bound.sessionid, bound.dir), (self.client.session(), ChannelDirFromServer4::Both));
    }

    pub(crate) fn open(&mut self, which: usize, name: &'static [u8], share_access: u32) -> Open4Ok<'static> {
        let open = ArgOp::Open(Open4Args {
            seqid: Seqid(0),
            share_access,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: self.client.id, owner: b"owner" },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Null(name),
        });
        let results: &'static [u8] = self.run(which, &[open]).1.leak();
        last(results, 4)
    }

    /// The operation after CB_SEQUENCE of the next call that is no probe.
    pub(crate) fn next_call(&mut self, which: usize) -> u32 {
        loop {
            self.answer_probes(which);
            if let Some(call) = self.lines[which].calls.pop() {
                return Called::read(&call).op.expect("an operation");
            }
            let call = self.lines[which].receive().expect("a call of the server's");
            self.lines[which].calls.push(call);
        }
    }
}

/// A call of the server's.
struct Called {
    sequence: Option<CbSequence4Args>,
    /// What comes behind CB_SEQUENCE.
    op: Option<u32>,
}

impl Called {
    fn read(call: &[u8]) -> Self {
        let mut r = Reader::new(call);
        if CallHeader::decode(&mut r).unwrap().body.proc == CB_NULL {
            return Self { sequence: None, op: None };
        }
        let ops = CbCompoundArgsHeader::decode(&mut r).unwrap().ops;
        let Ok(CbArgOp::Sequence(sequence)) = CbArgOp::decode(&mut r) else { panic!("no CB_SEQUENCE") };
        let op = (ops > 1).then(|| r.u32().unwrap());
        Self { sequence: Some(sequence), op }
    }

    /// What to answer where it only finds out whether somebody is there, and at which number of a slot.
    fn probed(&self) -> Option<Vec<u8>> {
        let mut w = Writer::new();
        if let Some(asked) = &self.sequence {
            w.u32(NfsStat4::Ok.as_u32());
            w.opaque(b"");
            w.u32(1);
            w.u32(CbOpNum4::Sequence.as_u32());
            w.u32(NfsStat4::Ok.as_u32());
            let CbSequence4Args { sessionid, sequenceid, slotid, highest_slotid, .. } = *asked;
            let target_highest_slotid = highest_slotid;
            CbSequence4Ok { sessionid, sequenceid, slotid, highest_slotid, target_highest_slotid }
                .encode(&mut w);
        }
        self.op.is_none().then(|| w.into_vec())
    }
}

fn mkdir(objname: &'static [u8]) -> ArgOp<'static> {
    ArgOp::Create(Create4Args { objtype: CreateType4::Dir, objname, createattrs: NO_ATTRS })
}

#[test]
fn both_addresses_are_one_server_also_after_its_death_and_another_server_is_another() {
    let mut trunk = Trunk::new();
    let [one, two] = [0, 1].map(|which| trunk.introduction(which));
    assert_eq!((one.clientid, one.clientid), (two.clientid, trunk.client.id));
    assert_ne!(two.flags & EXCHGID4_FLAG_CONFIRMED_R, 0, "the client is known by its session");
    assert_eq!((one.server_owner, one.server_scope), (two.server_owner, two.server_scope));
    trunk.world.kill();
    trunk.lines = [trunk.world.connect(0), trunk.world.connect(1)];
    let after = trunk.introduction(1);
    assert_eq!((after.server_owner, after.server_scope), (one.server_owner, one.server_scope));
    let mut other = Trunk::new();
    let stranger = other.introduction(0);
    assert_ne!(stranger.server_owner.major_id, one.server_owner.major_id);
    assert_ne!(stranger.server_scope, one.server_scope);
}

#[test]
fn a_request_is_done_once_whichever_address_it_comes_to() {
    let mut trunk = Trunk::new();
    trunk.bind(0);
    trunk.bind(1);
    let (call, results) = trunk.run(0, &[mkdir(b"new")]);
    assert_eq!(status(&results), NfsStat4::Ok);
    assert_eq!(trunk.exchange(1, &call), results, "a slot is the session's, not the connection's");
    assert_eq!(names(&trunk.world.files()), ["new"]);
    // The server dies over a request that came to the one, and its retry comes to the other.
    let call = trunk.client.sequenced(0, &[ArgOp::PutRootFh, lookup(b"export"), mkdir(b"second")]);
    trunk.world.kill_over(|| trunk.lines[0].exchange(&call).is_none());
    assert_eq!(names(&trunk.world.files()), ["new", "second"]);
    trunk.lines = [trunk.world.connect(0), trunk.world.connect(1)];
    let results = trunk.exchange(1, &call);
    assert_eq!(status(&results), NfsStat4::Ok);
    trunk.bind(0);
    assert_eq!(trunk.exchange(0, &call), results);
}

#[test]
fn what_was_opened_over_one_address_is_used_and_closed_over_the_other() {
    let mut trunk = Trunk::new();
    fs::write(trunk.world.files().join("file"), b"before").unwrap();
    trunk.bind(0);
    trunk.bind(1);
    let stateid = trunk.open(0, b"file", OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG).stateid;
    let (offset, stable) = (Offset(0), StableHow4::FileSync);
    let write = ArgOp::Write(Write4Args { stateid, offset, stable, data: b"behind" });
    assert_eq!(status(&trunk.run(1, &[lookup(b"file"), write]).1), NfsStat4::Ok);
    assert_eq!(fs::read(trunk.world.files().join("file")).unwrap(), b"behind");
    let close = || ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid: stateid });
    assert_eq!(status(&trunk.run(1, &[lookup(b"file"), close()]).1), NfsStat4::Ok);
    assert_eq!(status(&trunk.run(0, &[lookup(b"file"), close()]).1), NfsStat4::BadStateid, "it is closed");
}

#[test]
fn a_recall_comes_over_the_address_that_is_left() {
    let mut trunk = Trunk::new();
    fs::write(trunk.world.files().join("file"), b"precious").unwrap();
    trunk.bind(1);
    trunk.bind(0);
    // So that probes of both are answered.
    for which in [0, 1] {
        assert_eq!(status(&trunk.run(which, &[]).1), NfsStat4::Ok);
    }
    let opened = trunk.open(0, b"file", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG);
    let OpenDelegation4::Read(OpenReadDelegation4 { stateid, .. }) = opened.delegation else {
        panic!("{opened:?}")
    };
    trunk.lines[0] = trunk.world.connect(0);
    let mut other = Client::new(&trunk.world, "other", 1);
    assert_eq!(other.try_open(b"file"), NfsStat4::Delay);
    assert_eq!(trunk.next_call(1), CbOpNum4::Recall.as_u32());
    let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: stateid });
    assert_eq!(status(&trunk.run(1, &[lookup(b"file"), back]).1), NfsStat4::Ok);
    assert_eq!(other.try_open(b"file"), NfsStat4::Ok);
}
