//! A client that says exactly what a test has it say.

use std::time::{Duration, Instant};

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::{Auth, AuthSys, OutgoingCall};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Encode, Reader, Writer, to_bytes};

use crate::world::World;

/// A reply to a compound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: NfsStat4,
    pub(crate) tag: Vec<u8>,
    pub(crate) ops: u32,
    pub(crate) bytes: Vec<u8>,
    at: usize,
}

impl Reply {
    pub(crate) fn read(results: &[u8]) -> Self {
        let mut r = Reader::new(results);
        let header = CompoundResHeader::decode(&mut r).unwrap();
        let at = results.len() - r.rest().len();
        Self { status: header.status, tag: header.tag.to_vec(), ops: header.ops, bytes: results.to_vec(), at }
    }

    /// The next result, which must be a success of this operation.
    pub(crate) fn ok<'a, T: Decode<'a>>(&'a mut self, op: OpNum4) -> T {
        let mut r = Reader::new(&self.bytes[self.at..]);
        let head = ResOpHeader::decode(&mut r).unwrap();
        assert_eq!((head.op, head.status), (op.as_u32(), NfsStat4::Ok), "{op}");
        let body = T::decode(&mut r).unwrap();
        self.at = self.bytes.len() - r.rest().len();
        body
    }

    /// The last result, which must be this failure; its body.
    pub(crate) fn fails<'a, T: Decode<'a>>(&'a mut self, op: OpNum4, status: NfsStat4) -> T {
        let mut r = Reader::new(&self.bytes[self.at..]);
        let head = ResOpHeader::decode(&mut r).unwrap();
        assert_eq!((head.op, head.status), (op.as_u32(), status), "{op}");
        assert_eq!(self.status, status);
        let body = T::decode(&mut r).unwrap();
        assert_eq!(r.rest(), b"", "nothing follows a failure");
        body
    }

    /// That nothing is left.
    pub(crate) fn end(&self) {
        assert_eq!(&self.bytes[self.at..], b"");
    }
}

/// A call of the server's.
#[derive(Clone, Debug)]
pub(crate) struct CalledBack {
    record: Vec<u8>,
}

impl CalledBack {
    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.record[4 * at..4 * at + 4].try_into().unwrap())
    }

    pub(crate) fn program(&self) -> u32 {
        self.word(3)
    }

    fn procedure(&self) -> u32 {
        self.word(5)
    }

    /// Who calls.
    pub(crate) fn credential(&self) -> Auth {
        let flavor = self.word(6);
        let body = Reader::new(&self.record[28..]).opaque(400).unwrap();
        Auth::decode(flavor, body).unwrap()
    }

    /// The operations, CB_SEQUENCE included.
    pub(crate) fn ops(&self) -> Vec<CbArgOp<'_>> {
        let mut r = Reader::new(&self.record[24..]);
        for _credential_and_verifier in 0..2 {
            r.u32().unwrap();
            r.opaque(400).unwrap();
        }
        let header = CbCompoundArgsHeader::decode(&mut r).unwrap();
        let ops = (0..header.ops).map(|_| CbArgOp::decode(&mut r).unwrap()).collect();
        r.finish().unwrap();
        ops
    }

    /// The operation behind CB_SEQUENCE.
    pub(crate) fn op(&self) -> CbArgOp<'_> {
        self.ops().pop().unwrap()
    }

    pub(crate) fn sequence(&self) -> CbSequence4Args {
        match self.ops().swap_remove(0) {
            CbArgOp::Sequence(sequence) => sequence,
            other => panic!("{other:?} comes first"),
        }
    }

    /// An accepted reply up to its results.
    fn reply_head(&self) -> Vec<u8> {
        [self.word(0), 1, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn results(&self, status: NfsStat4, body: &[u8], w: &mut Writer) {
        let sequence = self.sequence();
        w.u32(status.as_u32());
        w.opaque(b"");
        w.u32(2);
        w.u32(CbOpNum4::Sequence.as_u32());
        w.u32(0);
        let done = CbSequence4Ok {
            sessionid: sequence.sessionid,
            sequenceid: sequence.sequenceid,
            slotid: sequence.slotid,
            highest_slotid: sequence.highest_slotid,
            target_highest_slotid: sequence.highest_slotid,
        };
        done.encode(w);
        let mut op = Writer::new();
        self.op().encode(&mut op);
        w.put(&op.as_slice()[..4]);
        w.u32(status.as_u32());
        w.put(body);
    }
}

/// Somebody at a connection.
pub(crate) struct Peer {
    pub(crate) wire: Detached,
    pub(crate) auth: Auth,
    pub(crate) minor: u32,
    /// Calls of the server's that came and were not looked at yet.
    pub(crate) called: Vec<CalledBack>,
    xid: u32,
}

pub(crate) fn user(uid: u32) -> Auth {
    Auth::Sys(AuthSys { uid, gid: uid, groups: Vec::new(), machine: b"box".to_vec() })
}

impl Peer {
    pub(crate) fn new(world: &World, host: u8, minor: u32) -> Self {
        Self { wire: world.connect(host), auth: user(1000), minor, called: Vec::new(), xid: 0 }
    }

    /// Sends a compound's bytes and returns what comes back at once.
    pub(crate) fn send(&mut self, args: &[u8]) -> Vec<Vec<u8>> {
        self.xid += 1;
        self.send_again(args)
    }

    /// Sends a compound's bytes and loses the connection before what has to wait gets a thread.
    pub(crate) fn post_and_lose(mut self, args: &[u8]) {
        let call = OutgoingCall {
            program: NFS4_PROGRAM,
            version: NFS_V4,
            procedure: NFSPROC4_COMPOUND,
            auth: &self.auth,
            args,
        };
        self.wire.post(1, &call);
        self.wire.close();
    }

    /// The same under the last transaction id.
    pub(crate) fn send_again(&mut self, args: &[u8]) -> Vec<Vec<u8>> {
        let call = OutgoingCall {
            program: NFS4_PROGRAM,
            version: NFS_V4,
            procedure: NFSPROC4_COMPOUND,
            auth: &self.auth,
            args,
        };
        let records = self.wire.call(self.xid, &call);
        self.sort(records)
    }

    /// Puts the server's calls aside, and answers CB_NULL.
    fn sort(&mut self, records: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut replies = Vec::new();
        let mut waiting = std::collections::VecDeque::from(records);
        while let Some(record) = waiting.pop_front() {
            if record[4..8] != [0; 4] {
                replies.push(record);
                continue;
            }
            let call = CalledBack { record };
            if call.procedure() == CB_NULL {
                let more = self.wire.exchange(&call.reply_head());
                waiting.extend(more);
            } else {
                self.called.push(call);
            }
        }
        replies
    }

    /// The server's calls since the last time.
    pub(crate) fn calls(&mut self) -> Vec<CalledBack> {
        let records = self.wire.sent();
        assert_eq!(self.sort(records), Vec::<Vec<u8>>::new(), "nothing was asked");
        std::mem::take(&mut self.called)
    }

    /// Whether a call of the server's waits for an answer. To be asked by a test's second thread: looking at what came would
    /// have it do the work that the first is about to do.
    pub(crate) fn is_called(&self) -> bool {
        self.wire.called_back() > 0
    }

    /// The one call of the server's since the last time.
    pub(crate) fn call(&mut self) -> CalledBack {
        let mut calls = self.calls();
        assert_eq!(calls.len(), 1, "one call");
        calls.remove(0)
    }

    /// Answers a call with this status of its operation, and what follows it.
    pub(crate) fn answer(&mut self, call: &CalledBack, status: NfsStat4, body: &[u8]) {
        let mut w = Writer::new();
        w.put(&call.reply_head());
        call.results(status, body, &mut w);
        let records = self.wire.exchange(w.as_slice());
        assert_eq!(self.sort(records), Vec::<Vec<u8>>::new());
    }

    /// Answers CB_SEQUENCE, and adds this.
    pub(crate) fn count(&mut self, call: &CalledBack, more: &[u8]) {
        let mut w = Writer::new();
        w.put(&call.reply_head());
        call.results(NfsStat4::Ok, b"", &mut w);
        let mut reply = w.into_vec();
        // As of the call's last operation there was none.
        reply.truncate(reply.len() - 8);
        reply.extend_from_slice(more);
        let records = self.wire.exchange(&reply);
        assert_eq!(self.sort(records), Vec::<Vec<u8>>::new());
    }

    /// Refuses CB_SEQUENCE.
    pub(crate) fn refuse(&mut self, call: &CalledBack, status: NfsStat4) {
        let mut w = Writer::new();
        w.put(&call.reply_head());
        w.u32(status.as_u32());
        w.opaque(b"");
        w.u32(1);
        w.u32(CbOpNum4::Sequence.as_u32());
        w.u32(status.as_u32());
        let records = self.wire.exchange(w.as_slice());
        assert_eq!(self.sort(records), Vec::<Vec<u8>>::new());
    }

    /// Waits for so many records.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut records: Vec<_> =
            std::mem::take(&mut self.called).into_iter().map(|call| call.record).collect();
        while records.len() < count && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            let sent = self.wire.sent();
            records.extend(self.sort(sent));
            records.extend(std::mem::take(&mut self.called).into_iter().map(|call| call.record));
        }
        records
    }

    /// Sends a compound's bytes and waits for what comes back.
    pub(crate) fn raw(&mut self, args: &[u8]) -> Vec<Vec<u8>> {
        let mut records = self.send(args);
        let deadline = Instant::now() + Duration::from_secs(30);
        while records.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            let sent = self.wire.sent();
            records = self.sort(sent);
        }
        records
    }

    /// Sends a compound and reads its reply.
    pub(crate) fn compound(&mut self, ops: &[ArgOp<'_>]) -> Reply {
        let args = self.args(ops);
        self.exchange(&args)
    }

    pub(crate) fn args(&self, ops: &[ArgOp<'_>]) -> Vec<u8> {
        let mut w = Writer::new();
        encode_compound(&mut w, b"tag", self.minor, ops);
        w.into_vec()
    }

    pub(crate) fn exchange(&mut self, args: &[u8]) -> Reply {
        let records = self.raw(args);
        assert_eq!(records.len(), 1, "one call, one reply");
        Reply::read(Detached::results(&records[0]).unwrap())
    }
}

/// A compound's bytes where an array holds this once, with it in there twice.
pub(crate) fn twice(args: &[u8], element: &impl Encode) -> Vec<u8> {
    let element = to_bytes(element);
    let once = [&1_u32.to_be_bytes()[..], &element].concat();
    let at = args.windows(once.len()).position(|bytes| bytes == once).unwrap();
    let (before, behind) = (&args[..at], &args[at + once.len()..]);
    [before, &2_u32.to_be_bytes(), &element, &element, behind].concat()
}

/// A client of 4.1 or 4.2 with a session.
pub(crate) struct Session {
    pub(crate) peer: Peer,
    pub(crate) client: ClientId,
    pub(crate) id: SessionId,
    pub(crate) seqid: Seqid,
    pub(crate) cachethis: bool,
}

pub(crate) fn exchange_id(name: &[u8]) -> ExchangeId4Args<'_> {
    ExchangeId4Args {
        clientowner: ClientOwner4 { verifier: [1; 8], ownerid: name },
        flags: 0,
        state_protect: StateProtect4A::None,
        client_impl_id: None,
    }
}

pub(crate) const FORE: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 1 << 20,
    maxresponsesize: 1 << 20,
    maxresponsesize_cached: 4096,
    maxoperations: 32,
    maxrequests: 4,
    rdma_ird: None,
};

pub(crate) const BACK: ChannelAttrs4 = ChannelAttrs4 { maxoperations: 2, ..FORE };

pub(crate) fn create_session(client: ClientId, sequence: Seqid) -> CreateSession4Args<'static> {
    CreateSession4Args {
        clientid: client,
        sequence,
        flags: 0,
        fore_chan_attrs: FORE,
        back_chan_attrs: BACK,
        cb_program: NFS4_CALLBACK_PROGRAM,
        sec_parms: vec![CallbackSecParms4::None],
    }
}

impl Session {
    /// A client with a session, past RECLAIM_COMPLETE.
    pub(crate) fn open(world: &World, host: u8, minor: u32) -> Self {
        let mut session = Self::bare(world, host, minor);
        session.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
        session
    }

    /// A client with a session.
    pub(crate) fn bare(world: &World, host: u8, minor: u32) -> Self {
        Self::with(world, host, minor, |args| args)
    }

    /// A client with a session that it can be called back in, past RECLAIM_COMPLETE.
    pub(crate) fn with_back(world: &World, host: u8, minor: u32) -> Self {
        let mut session = Self::with(world, host, minor, |mut args| {
            args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
            args
        });
        session.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
        session
    }

    pub(crate) fn with(
        world: &World,
        host: u8,
        minor: u32,
        change: impl FnOnce(CreateSession4Args<'static>) -> CreateSession4Args<'static>,
    ) -> Self {
        let mut peer = Peer::new(world, host, minor);
        let name = format!("client of host {host}");
        let known: ExchangeId4Ok<'_> = {
            let mut reply = peer.compound(&[ArgOp::ExchangeId(exchange_id(name.as_bytes()))]);
            let known: ExchangeId4Ok<'_> = reply.ok(OpNum4::ExchangeId);
            ExchangeId4Ok {
                server_owner: ServerOwner4 { minor_id: 0, major_id: b"" },
                server_scope: b"",
                server_impl_id: None,
                state_protect: StateProtect4R::None,
                ..known
            }
        };
        let args = change(create_session(known.clientid, known.sequenceid));
        let made: CreateSession4Ok = peer.compound(&[ArgOp::CreateSession(args)]).ok(OpNum4::CreateSession);
        Self { peer, client: known.clientid, id: made.sessionid, seqid: Seqid(0), cachethis: false }
    }

    pub(crate) fn sequence(&self) -> Sequence4Args {
        Sequence4Args {
            sessionid: self.id,
            sequenceid: self.seqid,
            slotid: SlotId(0),
            highest_slotid: SlotId(0),
            cachethis: self.cachethis,
        }
    }

    /// Sends a compound in the next place of slot 0; the reply stands behind SEQUENCE's result.
    pub(crate) fn run(&mut self, ops: &[ArgOp<'_>]) -> Reply {
        self.seqid = self.seqid.next();
        self.again(ops)
    }

    /// Sends the same once more.
    pub(crate) fn again(&mut self, ops: &[ArgOp<'_>]) -> Reply {
        let mut all = vec![ArgOp::Sequence(self.sequence())];
        all.extend_from_slice(ops);
        let mut reply = self.peer.compound(&all);
        reply.ok::<Sequence4Ok>(OpNum4::Sequence);
        reply
    }

    /// The handle of a path below the export.
    pub(crate) fn handle(&mut self, path: &[&[u8]]) -> Vec<u8> {
        let mut ops = at(path);
        ops.push(ArgOp::GetFh);
        let mut reply = self.run(&ops);
        reply.ok::<()>(OpNum4::PutRootFh);
        for _ in 0..=path.len() {
            reply.ok::<()>(OpNum4::Lookup);
        }
        reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object.to_vec()
    }
}

/// The way to a path below the export.
pub(crate) fn at<'a>(path: &[&'a [u8]]) -> Vec<ArgOp<'a>> {
    let mut ops = vec![ArgOp::PutRootFh, ArgOp::Lookup(Lookup4Args { objname: b"export" })];
    ops.extend(path.iter().map(|objname| ArgOp::Lookup(Lookup4Args { objname })));
    ops
}

/// A plain open of a name in the current directory, made when it is not there.
pub(crate) fn open_create<'a>(name: &'a [u8], owner: &'a [u8], share_access: u32) -> Open4Args<'a> {
    let none = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
    Open4Args {
        openhow: OpenFlag4::Create(CreateHow4::Unchecked(none)),
        ..open_existing(name, owner, share_access)
    }
}

/// A plain open of a name in the current directory.
pub(crate) fn open_existing<'a>(name: &'a [u8], owner: &'a [u8], share_access: u32) -> Open4Args<'a> {
    Open4Args {
        seqid: Seqid(0),
        share_access,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 { clientid: ClientId(0), owner },
        openhow: OpenFlag4::NoCreate,
        claim: OpenClaim4::Null(name),
    }
}
