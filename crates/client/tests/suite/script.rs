//! A server that answers by script: for what no well-behaved server does on demand.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::*;
use holdfast_wire::rpc::{
    AcceptStat, AcceptedReply, AuthSys, CallHeader, MsgType, OpaqueAuth, ReplyBody, ReplyHeader,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer};
use parking_lot::{Condvar, Mutex};

use super::answers::Stateful;
use super::world::PATIENCE;

/// The server.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
}

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) sessions: u8,
    /// Where each was made, by the `minor_id`.
    made_at: Vec<u64>,
    /// SEQUENCEs answered, with session, slot and number.
    pub(crate) seen: Vec<(SessionId, SlotId, Seqid)>,
    /// Statuses of the next SEQUENCEs.
    pub(crate) sequence: VecDeque<NfsStat4>,
    /// Statuses of the next CREATE_SESSIONs.
    pub(crate) creates: VecDeque<NfsStat4>,
    /// Statuses of the next GETATTRs.
    pub(crate) looks: VecDeque<NfsStat4>,
    /// LOOKUPs answered.
    pub(crate) looked_up: u32,
    /// The answers to those GETATTRs wait.
    pub(crate) holds_looks: bool,
    /// Statuses of the next WRITEs.
    pub(crate) writes: VecDeque<NfsStat4>,
    /// What the next stateids that are asked about are said to be.
    pub(crate) tests: VecDeque<NfsStat4>,
    /// Statuses of the next RECLAIM_COMPLETEs.
    pub(crate) completes: VecDeque<NfsStat4>,
    /// What becomes of the next null calls; the others are answered.
    pub(crate) pings: VecDeque<Ping>,
    /// Null calls, and RECLAIM_COMPLETEs.
    pub(crate) asked: Vec<Asked>,
    /// OPENs that reclaim.
    pub(crate) reclaimed: u32,
    /// EXCHANGE_IDs answered.
    pub(crate) introduced: u32,
    /// OPENs are granted no delegation.
    pub(crate) delegates_nothing: bool,
    /// DELEGRETURNs.
    pub(crate) returned: u32,
    /// The highest slot that clients shall use.
    pub(crate) target: Option<u32>,
    /// Every file is elsewhere: on this server.
    pub(crate) moved_to: Option<String>,
    /// OPEN's answers wait.
    pub(crate) holds_opens: bool,
    pub(crate) opens: u32,
    /// Flags of the next SEQUENCEs.
    pub(crate) flags: VecDeque<u32>,
    pub(crate) destroyed: Vec<SessionId>,
    /// Connections that were bound, by which of its addresses they are to.
    pub(crate) bound: Vec<usize>,
    /// What is said of states.
    pub(crate) stateful: Stateful,
    streams: Vec<TcpStream>,
    /// The first address is not listened at any more.
    is_deaf: bool,
    /// Statuses of the next EXCHANGE_IDs at the second address.
    pub(crate) introductions: VecDeque<NfsStat4>,
    /// Answers to calls of ours.
    answers: Vec<Vec<u8>>,
    called: u32,
}

/// What becomes of a null call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ping {
    Answered,
    /// Its connection breaks.
    Breaks,
    /// Nobody answers.
    Hangs,
}

/// What the server was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Ping(Ping),
    Complete,
}

pub(crate) const DELEGATION: Stateid4 = Stateid4 { seqid: Seqid(1), other: [9; 12] };
const FILE: &[u8] = b"file";

fn record(body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32 | 1 << 31).to_be_bytes().to_vec();
    out.extend(body);
    out
}

fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).ok()?;
    let mut body = vec![0; (u32::from_be_bytes(header) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

impl Script {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.listen(listener, (0, 0));
        Self { address, shared }
    }

    /// A second address of it, at which it says that its `minor_id` is this.
    pub(crate) fn also_at(&self, minor_id: u64) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.shared.listen(listener, (1, minor_id));
        address
    }

    /// Calls the client back and gives the results of its answer.
    pub(crate) fn call_back(&self, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        let mut w = Writer::new();
        let cred = OpaqueAuth::NONE;
        let mut state = self.shared.state.lock();
        state.called += 1;
        let body = holdfast_wire::rpc::CallBody {
            rpcvers: 2,
            prog: program,
            vers: 1,
            proc: procedure,
            cred,
            verf: OpaqueAuth::NONE,
        };
        CallHeader { xid: state.called, mtype: MsgType::Call, body }.encode(&mut w);
        w.put(args);
        let before = state.answers.len();
        state.streams[0].write_all(&record(w.as_slice())).unwrap();
        while state.answers.len() == before {
            assert!(!self.shared.changed.wait_for(&mut state, PATIENCE).timed_out());
        }
        state.answers[before].clone()
    }

    /// Lets nobody in any more at its first address, and breaks the first connection; others stay.
    pub(crate) fn turn_away(&self) {
        self.shared.state.lock().is_deaf = true;
        while TcpStream::connect(self.address).is_ok() {}
        let _ = self.shared.state.lock().streams[0].shutdown(std::net::Shutdown::Both);
    }

    /// Breaks all connections; the next one is the one that calls go over.
    pub(crate) fn cut(&self) {
        for stream in self.shared.state.lock().streams.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// One CB_COMPOUND of a CB_SEQUENCE and an operation; the status of each.
    pub(crate) fn compound_back(&self, sequence: CbSequence4Args, op: CbArgOp<'_>) -> Vec<u8> {
        let mut w = Writer::new();
        encode_cb_compound(&mut w, 2, 0, &[CbArgOp::Sequence(sequence), op]);
        self.call_back(NFS4_CALLBACK_PROGRAM, CB_COMPOUND, w.as_slice())
    }

    pub(crate) fn recall() -> CbArgOp<'static> {
        CbArgOp::Recall(CbRecall4Args { stateid: DELEGATION, truncate: false, fh: FILE })
    }

    pub(crate) fn release_looks(&self) {
        self.shared.state.lock().holds_looks = false;
        self.shared.changed.notify_all();
    }

    pub(crate) fn release_opens(&self) {
        self.shared.state.lock().holds_opens = false;
        self.shared.changed.notify_all();
    }
}

/// A CB_SEQUENCE on the first session.
pub(crate) fn cb_sequence(slot: u32, seqid: u32) -> CbSequence4Args {
    CbSequence4Args {
        sessionid: SessionId([1; 16]),
        sequenceid: Seqid(seqid),
        slotid: SlotId(slot),
        highest_slotid: SlotId(slot),
        cachethis: true,
        referring_call_lists: Vec::new(),
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: TcpListener, at: (usize, u64)) {
        let own = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut state = own.state.lock();
                if state.is_deaf && at.0 == 0 {
                    break;
                }
                state.streams.push(stream.try_clone().unwrap());
                let shared = Arc::clone(&own);
                std::thread::spawn(move || shared.serve(stream, at));
            }
        });
    }

    /// `at`: which of its addresses this is, and its `minor_id` there.
    fn serve(self: Arc<Self>, mut stream: TcpStream, at: (usize, u64)) {
        while let Some(body) = receive(&mut stream) {
            if body[4..8] == [0, 0, 0, 1] {
                self.state.lock().answers.push(body[24..].to_vec());
                self.changed.notify_all();
                continue;
            }
            let (shared, mut out) = (Arc::clone(&self), stream.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut r = Reader::new(&body);
                let header = CallHeader::decode(&mut r).unwrap();
                let mut w = Writer::new();
                let accepted = AcceptedReply { verf: OpaqueAuth::NONE, stat: AcceptStat::Success };
                let body = ReplyBody::Accepted(accepted);
                ReplyHeader { xid: header.xid, mtype: MsgType::Reply, body }.encode(&mut w);
                if header.body.proc == 0 {
                    match shared.ping() {
                        Ping::Answered => {}
                        Ping::Hangs => return,
                        Ping::Breaks => return drop(out.shutdown(std::net::Shutdown::Both)),
                    }
                    let _ = out.write_all(&record(w.as_slice()));
                    return;
                }
                let as_whom =
                    AuthSys::decode(&mut Reader::new(header.body.cred.body)).map_or(0, |sys| sys.uid);
                shared.compound(&mut r, &mut w, (as_whom, at));
                let _ = out.write_all(&record(w.as_slice()));
            });
        }
    }

    fn ping(&self) -> Ping {
        let mut state = self.state.lock();
        let ping = state.pings.pop_front().unwrap_or(Ping::Answered);
        state.asked.push(Asked::Ping(ping));
        self.changed.notify_all();
        ping
    }

    fn compound(&self, r: &mut Reader<'_>, w: &mut Writer, (as_whom, at): (u32, (usize, u64))) {
        let header = CompoundArgsHeader::decode(r).unwrap();
        let (mut results, mut count, mut status) = (Writer::new(), 0, NfsStat4::Ok);
        while count < header.ops && status == NfsStat4::Ok {
            let number = r.clone().u32().unwrap();
            let op = ArgOp::decode(r).unwrap();
            let mut ok = Writer::new();
            status = self.run(&op, &mut ok, (as_whom, at));
            results.u32(number);
            results.u32(status.as_u32());
            results.put(if status == NfsStat4::Ok { ok.as_slice() } else { &[] });
            count += 1;
        }
        w.u32(status.as_u32());
        w.opaque(b"");
        w.u32(count);
        w.put(results.as_slice());
        self.changed.notify_all();
    }

    fn run(&self, op: &ArgOp<'_>, w: &mut Writer, (as_whom, at): (u32, (usize, u64))) -> NfsStat4 {
        let mut state = self.state.lock();
        match op {
            ArgOp::ExchangeId(_) => return state.exchange_id(at, w),
            ArgOp::CreateSession(args) => {
                if let Some(status) = state.creates.pop_front() {
                    return status;
                }
                state.sessions += 1;
                state.made_at.push(at.1);
                CreateSession4Ok {
                    sessionid: SessionId([state.sessions; 16]),
                    sequence: args.sequence,
                    flags: 0,
                    fore_chan_attrs: ChannelAttrs4 { maxrequests: 8, ..args.fore_chan_attrs },
                    back_chan_attrs: args.back_chan_attrs,
                }
                .encode(w);
            }
            ArgOp::BindConnToSession(args) => {
                let made_at = state.made_at.get(usize::from(args.sessionid.0[0]).wrapping_sub(1));
                if made_at.is_some_and(|made_at| *made_at != at.1) {
                    return NfsStat4::BadSession;
                }
                state.bound.push(at.0);
                let dir = ChannelDirFromServer4::Both;
                let ok =
                    BindConnToSession4Ok { sessionid: args.sessionid, dir, use_conn_in_rdma_mode: false };
                ok.encode(w);
            }
            ArgOp::DestroySession(args) => state.destroyed.push(args.sessionid),
            ArgOp::Sequence(args) => return state.sequence(args, w),
            ArgOp::PutFh(_) if state.moved_to.is_some() => {}
            ArgOp::GetAttr(_) if !state.looks.is_empty() => {
                let status = state.looks.pop_front().unwrap_or(NfsStat4::Ok);
                self.hold(&mut state, |state| state.holds_looks);
                return status;
            }
            ArgOp::GetAttr(args) => return state.attributes(args.attr_request, w),
            ArgOp::GetFh => w.opaque(FILE),
            ArgOp::Lookup(_) => state.looked_up += 1,
            ArgOp::Create(_) => Create4Ok { cinfo: unchanged(), attrset: Bitmap4::EMPTY }.encode(w),
            ArgOp::Link(_) => Link4Ok { cinfo: unchanged() }.encode(w),
            ArgOp::Open(args) => return self.open(&mut state, (args, as_whom), w),
            ArgOp::TestStateid(args) => {
                let mut status = || state.tests.pop_front().unwrap_or(NfsStat4::Ok);
                let status_codes = args.stateids.iter().map(|_| status()).collect();
                TestStateid4Ok { status_codes }.encode(w);
            }
            ArgOp::ReclaimComplete(_) => return state.complete(),
            ArgOp::Write(args) => return state.write(args, w),
            ArgOp::DelegReturn(_) => state.returned += 1,
            _ => return self.about_state(&mut state, op, w),
        }
        NfsStat4::Ok
    }

    /// Shows what was asked, and waits with the answer.
    pub(super) fn hold(
        &self,
        state: &mut parking_lot::MutexGuard<'_, State>,
        is_held: impl Fn(&State) -> bool,
    ) {
        self.changed.notify_all();
        while is_held(state) {
            self.changed.wait(state);
        }
    }

    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self, what: &str, is_there: impl Fn(&State) -> bool) {
        let (mut state, until) = (self.state.lock(), Instant::now() + PATIENCE);
        while !is_there(&state) {
            let timed_out = self.changed.wait_until(&mut state, until).timed_out();
            assert!(!timed_out, "{what} did not happen");
        }
    }
}

pub(super) fn unchanged() -> ChangeInfo4 {
    let change = holdfast_base::ChangeId(1);
    ChangeInfo4 { atomic: true, before: change, after: change }
}

impl State {
    fn exchange_id(&mut self, (address, minor_id): (usize, u64), w: &mut Writer) -> NfsStat4 {
        self.introduced += 1;
        if address == 1
            && let Some(status) = self.introductions.pop_front()
        {
            return status;
        }
        ExchangeId4Ok {
            clientid: ClientId(7),
            sequenceid: Seqid(1),
            flags: EXCHGID4_FLAG_USE_NON_PNFS,
            state_protect: StateProtect4R::None,
            server_owner: ServerOwner4 { minor_id, major_id: b"script" },
            server_scope: b"script",
            server_impl_id: None,
        }
        .encode(w);
        NfsStat4::Ok
    }

    fn complete(&mut self) -> NfsStat4 {
        self.asked.push(Asked::Complete);
        let status = self.completes.pop_front().unwrap_or(NfsStat4::Ok);
        self.stateful.is_in_grace &= status != NfsStat4::Ok;
        status
    }

    fn write(&mut self, args: &Write4Args<'_>, w: &mut Writer) -> NfsStat4 {
        if let Some(status) = self.writes.pop_front() {
            return status;
        }
        let (count, writeverf) = (args.data.len() as u32, [0; 8]);
        Write4Ok { count, committed: args.stable, writeverf }.encode(w);
        NfsStat4::Ok
    }

    fn sequence(&mut self, args: &Sequence4Args, w: &mut Writer) -> NfsStat4 {
        let status = self.sequence.pop_front().unwrap_or(NfsStat4::Ok);
        if status != NfsStat4::Ok {
            return status;
        }
        if args.sessionid.0[0] != self.sessions {
            return NfsStat4::BadSession;
        }
        self.seen.push((args.sessionid, args.slotid, args.sequenceid));
        let target = SlotId(self.target.unwrap_or(7));
        Sequence4Ok {
            sessionid: args.sessionid,
            sequenceid: args.sequenceid,
            slotid: args.slotid,
            highest_slotid: SlotId(7),
            target_highest_slotid: target,
            status_flags: self.flags.pop_front().unwrap_or(0),
        }
        .encode(w);
        NfsStat4::Ok
    }

    fn attributes(&self, asked: Bitmap4, w: &mut Writer) -> NfsStat4 {
        let Some(place) = &self.moved_to else {
            Fattr4 { mask: Bitmap4::EMPTY, values: &[] }.encode(w);
            return NfsStat4::Ok;
        };
        if !asked.has(Attr::FsLocations) {
            return NfsStat4::Moved;
        }
        let path = || PathName4 { names: Vec::new() };
        let servers = vec![Server4 { name: place.as_bytes() }];
        let locations = vec![FsLocation4 { servers, rootpath: path() }];
        let values = holdfast_xdr::to_bytes(&FsLocations4 { fs_root: path(), locations });
        Fattr4 { mask: Attr::FsLocations.into(), values: &values }.encode(w);
        NfsStat4::Ok
    }
}
