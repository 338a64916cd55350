//! A server in this process, without a network: what is counted are its instructions, or its allocations.

mod calls;
pub(crate) mod server;

pub(crate) use calls::*;

use holdfast_base::{ClientId, Seqid, SessionId};
use holdfast_rpc::Limits;
use holdfast_rpc::detached::Detached;
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, Handle, Name, SetAttrs, Stability, Wait,
    WriteAt,
};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};
use server::Server;
use std::sync::Arc;

/// Files in the one directory there is.
pub(crate) const FILES: usize = 32;
/// Where results begin in a reply.
const RESULTS_AT: usize = 24;
/// Bytes of each file: enough to be read by a call that is answered from the file itself.
pub(crate) const FILE_BYTES: usize = 40 << 10;

/// The server, and one client.
pub(crate) struct Scene {
    wire: Detached,
    pub(crate) server: Server,
    xid: u32,
    seqid: Seqid,
    session: SessionId,
    client: ClientId,
    /// The exported directory.
    pub(crate) root: Vec<u8>,
    /// The files in it.
    pub(crate) files: Vec<Vec<u8>>,
    /// The open of the first.
    pub(crate) open: Stateid4,
}

/// The name of a file.
pub(crate) fn file_name(number: usize) -> String {
    format!("file{number:04}")
}

fn make(backend: &dyn Backend, name: &[u8]) -> Handle {
    let root = backend.root().expect("a new file system has a root");
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
    let name = Name::new(name).expect("a plain name");
    let how = CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::STAT };
    backend.create(&cx, &root, name, &how).expect("there is room").node.handle
}

fn fill(backend: &dyn Backend, file: &Handle) {
    let caller = Caller::root();
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    let cx = Cx::new(&caller, Wait::Yes);
    backend.write(&cx, File::Stateless(file), at, &[7; FILE_BYTES]).expect("there is room");
}

impl Scene {
    /// A server over a backend, which is given its files; and a client with a session and an open file.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let files: Vec<_> = (0..FILES).map(|n| make(&*backend, file_name(n).as_bytes())).collect();
        files.iter().for_each(|file| fill(&*backend, file));
        let server = Server::over(backend);
        let wire = Detached::new(server.programs.clone(), Limits::default()).expect("it makes no thread");
        let root = server.backend.root().expect("it was there before");
        let mut scene = Self {
            wire,
            xid: 0,
            seqid: Seqid(0),
            session: SessionId([0; 16]),
            client: ClientId(0),
            root: server.seal(&root),
            files: files.iter().map(|file| server.seal(file)).collect(),
            open: Stateid4::ANONYMOUS,
            server,
        };
        scene.begin_session();
        scene
    }

    /// Makes so many empty files, under the names that [`FRESH`] is one after the other.
    pub(crate) fn add_fresh(&self, files: usize) {
        for number in 0..files {
            make(&*self.server.backend, &fresh_name(number));
        }
    }

    fn begin_session(&mut self) {
        let exchange = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: [1; 8], ownerid: b"counts" },
            flags: 0,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        };
        let reply = self.answer(&mut compound(&[ArgOp::ExchangeId(exchange)]));
        let known: ExchangeId4Ok<'_> = nth(&reply, 0, false);
        let (client, sequence) = (known.clientid, known.sequenceid);
        let channel = ChannelAttrs4 {
            headerpadsize: 0,
            maxrequestsize: 64 << 10,
            maxresponsesize: 64 << 10,
            maxresponsesize_cached: 4096,
            maxoperations: 16,
            maxrequests: 4,
            rdma_ird: None,
        };
        let create = CreateSession4Args {
            clientid: client,
            sequence,
            flags: CREATE_SESSION4_FLAG_PERSIST,
            fore_chan_attrs: channel,
            back_chan_attrs: channel,
            cb_program: 0x4000_0000,
            sec_parms: vec![CallbackSecParms4::None],
        };
        let reply = self.answer(&mut compound(&[ArgOp::CreateSession(create)]));
        let made: CreateSession4Ok = nth(&reply, 0, false);
        (self.session, self.client) = (made.sessionid, client);
        let done = ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false });
        self.answer(&mut self.sequenced(&[done]));
        let root = self.root.clone();
        let put = ArgOp::PutFh(PutFh4Args { object: &root });
        let name = file_name(0);
        let open = ArgOp::Open(self.open_args(name.as_bytes()));
        let reply = self.answer(&mut self.sequenced(&[put, open]));
        // The state id is the first field of OPEN's result; nothing else of it matters here.
        self.open = nth(&reply, 2, true);
    }

    /// The record of a call in its next use: under a number of its own, as each must be.
    pub(crate) fn next<'r>(&mut self, request: &'r mut Request) -> &'r [u8] {
        self.xid += 1;
        request.next(self.xid, &mut self.seqid)
    }

    /// Sends a call, and gives its reply: what the server has to offload runs at once, and what waits to be durable is.
    ///
    /// # Panics
    /// When it is not answered, or with a failure: then nothing is worth counting.
    pub(crate) fn answer(&mut self, request: &mut Request) -> Vec<u8> {
        let record = self.next(request);
        let mut replies = self.wire.exchange(record);
        if replies.is_empty() {
            self.server.commit();
            replies = self.wire.sent();
        }
        let reply = replies.pop().expect("an answer");
        must_be_success(&reply);
        reply
    }

    /// The same for what is answered inline, as a connection's worker has it: from buffer to buffer. Whether it was.
    ///
    /// # Panics
    /// When it is answered with a failure.
    pub(crate) fn is_answered_inline(&mut self, request: &mut Request) -> bool {
        let record = self.next(request);
        self.wire.answer(record).map(must_be_success).is_some()
    }
}

/// That a reply, without its record's header, is one of success.
///
/// # Panics
/// When it is not.
pub(crate) fn must_be_success(reply: &[u8]) {
    assert_eq!(reply.get(RESULTS_AT..RESULTS_AT + 4), Some(&[0; 4][..]), "{reply:?}");
}

/// The body of a compound's result, where those between SEQUENCE's and it are empty.
fn nth<'a, T: Decode<'a>>(reply: &'a [u8], index: usize, is_sequenced: bool) -> T {
    let mut r = Reader::new(&reply[RESULTS_AT..]);
    let mut decode = || -> holdfast_xdr::Result<T> {
        CompoundResHeader::decode(&mut r)?;
        ResOpHeader::decode(&mut r)?;
        if is_sequenced {
            Sequence4Ok::decode(&mut r)?;
        }
        for _ in 0..index {
            ResOpHeader::decode(&mut r)?;
        }
        T::decode(&mut r)
    };
    decode().expect("a compound's reply")
}
