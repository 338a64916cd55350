//! A server in this process, without a network: what is counted are its instructions, or its allocations.

use holdfast_base::{
    ClientId, Cookie, ExportId, ManualClock, Offset, SeededEntropy, Seqid, SessionId, SlotId, Timestamp,
};
use holdfast_export::{ClientRule, Committer, Export, ExportOptions, Namespace, NoGroups, Sealer, Squash};
use holdfast_manager::{Guarded, Manager, Parts};
use holdfast_nfs3::{Nfs3, Nfs3Parts};
use holdfast_nfs4::{Config, Identity, Nfs4, NoRecords, NumericIds, Options};
use holdfast_rpc::Limits;
use holdfast_rpc::detached::Detached;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_state::{BootInstance, Grace};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, Handle, Name, SetAttrs, Stability, Wait,
    WriteAt,
};
use holdfast_wire::nfs3::{DirOpArgs3, Fh3, NFS_V3, NFS3_PROGRAM, Proc3};
use holdfast_wire::nfs4::*;
use holdfast_wire::rpc::{AUTH_SYS, AuthSys, CallBody, Groups, MsgType, OpaqueAuth, RPC_VERSION};
use holdfast_xdr::{Decode, Encode, Reader, Writer};
use std::sync::Arc;

/// Files in the one directory there is.
pub(crate) const FILES: usize = 32;
/// Where results begin in a reply.
const RESULTS_AT: usize = 24;
/// Bytes of each file.
pub(crate) const FILE_BYTES: usize = 8 << 10;

/// A call, ready to be sent many times.
#[derive(Debug)]
pub(crate) struct Request {
    record: Vec<u8>,
    /// Where the SEQUENCE's number stands.
    seqid_at: Option<usize>,
}

impl Request {
    /// What comes behind the call's header, of a compound.
    pub(crate) fn arguments(&self) -> Vec<u8> {
        self.record[header(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND).len()..].to_vec()
    }
}

/// The server, and one client.
pub(crate) struct Scene {
    wire: Detached,
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

fn fill(backend: &dyn Backend) -> Vec<Handle> {
    let root = backend.root().expect("a new file system has a root");
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
    let make = |number| {
        let name = file_name(number);
        let name = Name::new(name.as_bytes()).expect("a plain name");
        let how = CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::STAT };
        let file = backend.create(&cx, &root, name, &how).expect("there is room").node.handle;
        let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
        backend.write(&cx, File::Stateless(&file), at, &[7; FILE_BYTES]).expect("there is room");
        file
    };
    (0..FILES).map(make).collect()
}

impl Scene {
    /// A server over a backend, which is given its files; and a client with a session and an open file.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let handles = fill(&*backend);
        let clock = Arc::new(ManualClock::default());
        let engine = holdfast_state::Config {
            boot: BootInstance::from_counter(1),
            lease_ms: 60_000,
            grace: Grace::Over,
        };
        let entropy = Box::new(SeededEntropy(3));
        let manager = Manager::new(Parts { engine, entropy, clock: clock.clone(), pool_threads: 4 });
        let options = ExportOptions {
            squash: Squash::None,
            clients: vec![ClientRule::All],
            is_sync: false,
            ..ExportOptions::default()
        };
        let backend: Arc<dyn Backend> = Guarded::new(backend, &manager);
        let export = Arc::new(Export {
            id: ExportId(1),
            path: vec![b"data".to_vec()],
            backend: Arc::clone(&backend),
            options,
        });
        let since = Timestamp { seconds: 5, nanos: 0 };
        let exports = vec![Arc::clone(&export)];
        let namespace = Arc::new(Namespace::new(Sealer::new([3; 16]), exports, since).expect("one export"));
        let (committer, replies) =
            (Committer::new(None), ReplyCache::new(ReplyCacheLimits::default(), clock.clone()));
        let nfs3 = Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&namespace),
            manager: Arc::clone(&manager),
            committer: Arc::clone(&committer),
            replies: Arc::clone(&replies),
            ledger: None,
            groups: Arc::new(NoGroups),
            observer: None,
        });
        let config = Config {
            namespace: Arc::clone(&namespace),
            groups: Arc::new(NoGroups),
            ids: Arc::new(NumericIds),
            committer,
            replies,
            manager,
            records: Arc::new(NoRecords),
            sessions: None,
            ledger: None,
            identity: Identity { major_id: b"box".to_vec(), minor_id: 3, scope: b"scope".to_vec() },
            minor_max: 2,
            observer: None,
        };
        let nfs4 = Nfs4::with(config, Options::default());
        let wire = Detached::new(vec![Arc::new(nfs3), nfs4], Limits::default()).expect("it makes no thread");
        let root = backend.root().expect("it was there before");
        let mut scene = Self {
            wire,
            xid: 0,
            seqid: Seqid(0),
            session: SessionId([0; 16]),
            client: ClientId(0),
            root: namespace.seal_in(&export, &root).as_bytes().to_vec(),
            files: handles.iter().map(|h| namespace.seal_in(&export, h).as_bytes().to_vec()).collect(),
            open: Stateid4::ANONYMOUS,
        };
        scene.begin_session();
        scene
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
            flags: 0,
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

    /// OPEN of a file that exists, to read and write.
    pub(crate) fn open_args<'a>(&self, name: &'a [u8]) -> Open4Args<'a> {
        Open4Args {
            seqid: Seqid(0),
            share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: self.client, owner: b"owner" },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Null(name),
        }
    }

    /// A compound of 4.1 behind SEQUENCE.
    pub(crate) fn sequenced(&self, ops: &[ArgOp<'_>]) -> Request {
        let sequence = Sequence4Args {
            sessionid: self.session,
            sequenceid: Seqid(0),
            slotid: SlotId(0),
            highest_slotid: SlotId(0),
            cachethis: false,
        };
        let mut all = vec![ArgOp::Sequence(sequence)];
        all.extend_from_slice(ops);
        let mut request = compound(&all);
        // Behind the header: tag, minor version, count, the operation's number, the session.
        request.seqid_at = Some(header(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND).len() + 4 * 4 + 16);
        request
    }

    /// Sends a call, and gives its reply: what the server has to offload runs at once.
    ///
    /// # Panics
    /// When it is not answered, or with a failure: then nothing is worth counting.
    pub(crate) fn answer(&mut self, request: &mut Request) -> Vec<u8> {
        self.number(request);
        let mut replies = self.wire.exchange(&request.record);
        let reply = replies.pop().expect("an answer");
        must_be_success(&reply);
        reply
    }

    /// The same for what is answered inline, as a connection's worker has it: from buffer to buffer.
    ///
    /// # Panics
    /// Likewise.
    pub(crate) fn answer_inline(&mut self, request: &mut Request) {
        self.number(request);
        let reply = self.wire.answer(&request.record).expect("an answer at once");
        must_be_success(reply);
    }

    fn number(&mut self, request: &mut Request) {
        self.xid += 1;
        request.record[..4].copy_from_slice(&self.xid.to_be_bytes());
        if let Some(at) = request.seqid_at {
            self.seqid = self.seqid.next();
            request.record[at..at + 4].copy_from_slice(&self.seqid.0.to_be_bytes());
        }
    }

    /// The request of a listing with attributes.
    pub(crate) fn list4(&self) -> Request {
        let list = ReadDir4Args {
            cookie: Cookie(0),
            cookieverf: [0; 8],
            dircount: 32 << 10,
            maxcount: 32 << 10,
            attr_request: ATTRIBUTES.with_attr(Attr::FileHandle),
        };
        self.sequenced(&[self.put_root(), ArgOp::ReadDir(list)])
    }

    /// PUTFH of the exported directory.
    pub(crate) fn put_root(&self) -> ArgOp<'_> {
        ArgOp::PutFh(PutFh4Args { object: &self.root })
    }

    /// PUTFH of the first file.
    pub(crate) fn put_file(&self) -> ArgOp<'_> {
        ArgOp::PutFh(PutFh4Args { object: &self.files[0] })
    }

    /// READ of 4 KiB of the open file.
    pub(crate) fn read4(&self) -> Request {
        let read = ArgOp::Read(Read4Args { stateid: self.open, offset: Offset(0), count: 4096 });
        self.sequenced(&[self.put_file(), read])
    }

    /// LOOKUP with handle and attributes, over 4.1.
    pub(crate) fn lookup4(&self) -> Request {
        let name = file_name(1);
        let lookup = ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
        self.sequenced(&[self.put_root(), lookup, ArgOp::GetFh, want()])
    }

    /// GETATTR, over 4.1.
    pub(crate) fn getattr4(&self) -> Request {
        self.sequenced(&[self.put_file(), want()])
    }

    /// GETATTR, over v3.
    pub(crate) fn getattr3(&self) -> Request {
        call3(Proc3::GetAttr, &Fh3(&self.files[0]))
    }

    /// LOOKUP, over v3.
    pub(crate) fn lookup3(&self) -> Request {
        let name = file_name(1);
        call3(Proc3::Lookup, &DirOpArgs3 { dir: Fh3(&self.root), name: name.as_bytes() })
    }
}

/// What a Linux client asks of a file.
pub(crate) const ATTRIBUTES: Bitmap4 = Bitmap4::of(&[
    Attr::Type,
    Attr::Change,
    Attr::Size,
    Attr::Fsid,
    Attr::FileId,
    Attr::Mode,
    Attr::NumLinks,
    Attr::Owner,
    Attr::OwnerGroup,
    Attr::SpaceUsed,
    Attr::TimeAccess,
    Attr::TimeMetadata,
    Attr::TimeModify,
    Attr::MountedOnFileId,
]);

/// GETATTR as an operation.
pub(crate) fn want<'a>() -> ArgOp<'a> {
    ArgOp::GetAttr(GetAttr4Args { attr_request: ATTRIBUTES })
}

/// A call's header with room for its number, as root by AUTH_SYS.
fn header(program: u32, version: u32, procedure: u32) -> Vec<u8> {
    let auth = AuthSys { stamp: 0, machine_name: b"counts", uid: 0, gid: 0, gids: Groups::new(&[]) };
    let credential = holdfast_xdr::to_bytes(&auth);
    let mut w = Writer::new();
    w.u32(0);
    MsgType::Call.encode(&mut w);
    CallBody {
        rpcvers: RPC_VERSION,
        prog: program,
        vers: version,
        proc: procedure,
        cred: OpaqueAuth { flavor: AUTH_SYS, body: &credential },
        verf: OpaqueAuth::NONE,
    }
    .encode(&mut w);
    w.into_vec()
}

/// A call of NFSv3.
pub(crate) fn call3(procedure: Proc3, args: &impl Encode) -> Request {
    let mut w = Writer::from_vec(header(NFS3_PROGRAM, NFS_V3, procedure.as_u32()));
    args.encode(&mut w);
    Request { record: w.into_vec(), seqid_at: None }
}

/// A compound of 4.1.
fn compound(ops: &[ArgOp<'_>]) -> Request {
    let mut w = Writer::from_vec(header(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND));
    encode_compound(&mut w, b"", 1, ops);
    Request { record: w.into_vec(), seqid_at: None }
}

fn must_be_success(reply: &[u8]) {
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
