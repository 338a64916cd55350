//! A server of one or two exports in this process, and calls to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::{ExportId, ManualClock, SeededEntropy, Timestamp};
use holdfast_export::{
    ClientRule, Committer, Export, ExportOptions, Namespace, NoGroups, Object, Sealer, Squash,
};
use holdfast_ledger::Ledger;
use holdfast_manager::{Guarded, Manager, Parts};
use holdfast_nfs3::{Mount3, Nfs3, Nfs3Parts};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Auth, AuthSys, Limits, OutgoingCall};
use holdfast_state::{
    Access, BootInstance, Callback, Claim, Config, Grace, OpenId, OpenRequest, Principal, SetClientId, Share,
    Verifier,
};
use holdfast_vfs::{Backend, FsId, MemBackend, MemOptions};
use holdfast_wire::nfs3::*;
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};

/// How long a reply may take before a test calls it lost.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) fs: MemBackend,
    /// The second export's.
    pub(crate) other: MemBackend,
    /// The state of other protocols' clients.
    pub(crate) manager: Arc<Manager>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) client: Detached,
    pub(crate) auth: Auth,
    pub(crate) xid: u32,
}

pub(crate) fn user(uid: u32) -> Auth {
    Auth::Sys(AuthSys { uid, gid: uid, ..AuthSys::default() })
}

/// Nothing to set.
pub(crate) const NOTHING: Sattr3 = Sattr3 {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime3::DontChange,
    mtime: SetTime3::DontChange,
};

pub(crate) fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode), ..NOTHING }
}

impl World {
    /// The exports `/data` and `/more/other`, synchronous, nobody squashed; the caller is user 1.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(adjust: impl Fn(&mut ExportOptions)) -> Self {
        Self::made(Committer::new(None), adjust)
    }

    /// As [`World::new`], with a disk that nothing reaches until the committer is pumped.
    pub(crate) fn pumped() -> Self {
        Self::made(Committer::pumped(None), |_| {})
    }

    fn made(committer: Arc<Committer>, adjust: impl Fn(&mut ExportOptions)) -> Self {
        let options = MemOptions { root_mode: 0o777, ..MemOptions::deterministic() };
        let fs = MemBackend::new(&options);
        let other = MemBackend::new(&MemOptions { fsid: FsId { major: 7, minor: 7 }, ..options });
        let clock = Arc::new(ManualClock::default());
        let config = Config { boot: BootInstance::from_counter(1), lease_ms: 60_000, grace: Grace::Over };
        let entropy = Box::new(SeededEntropy(3));
        let manager = Manager::new(Parts { engine: config, entropy, clock: clock.clone(), pool_threads: 4 });
        let export = |id, path: &[&[u8]], fs: &MemBackend| {
            let mut options = ExportOptions {
                squash: Squash::None,
                clients: vec![ClientRule::All],
                ..ExportOptions::default()
            };
            adjust(&mut options);
            let path = path.iter().map(|c| c.to_vec()).collect();
            Arc::new(Export {
                id: ExportId(id),
                path,
                backend: Guarded::new(Arc::new(fs.clone()), &manager),
                options,
            })
        };
        let exports = vec![export(1, &[b"data"], &fs), export(2, &[b"more", b"other"], &other)];
        let since = Timestamp { seconds: 5, nanos: 0 };
        let namespace = Arc::new(Namespace::new(Sealer::new([3; 16]), exports, since).unwrap());
        let (journal, size) =
            (tempfile::tempdir().unwrap(), holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 });
        let (ledger, _) = Ledger::open(&journal.path().join("journal"), &size, &namespace.exports()).unwrap();
        let nfs = Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&namespace),
            manager: Arc::clone(&manager),
            committer: Arc::clone(&committer),
            replies: ReplyCache::new(ReplyCacheLimits::default(), clock),
            ledger: Some(ledger),
            groups: Arc::new(NoGroups),
            observer: None,
        });
        let mount = Mount3::new(Arc::clone(&namespace));
        let client = Detached::new(vec![Arc::new(nfs), Arc::new(mount)], Limits::default()).unwrap();
        Self { fs, other, manager, namespace, committer, client, auth: user(1), xid: 100 }
    }

    /// Has a client of NFSv4 open a file for reading, and deny everybody to write it meanwhile.
    pub(crate) fn deny_writing(&self, file: &[u8]) {
        let Ok(Object::Export(_, file)) = self.namespace.open(file) else { panic!("no file") };
        let principal = Principal::new(b"root");
        let denied = self.manager.step(|engine, now| {
            let callback = Callback { program: 1, ident: 1, address: b"tcp 10.0.0.1.8.1"[..].into() };
            let verifier = Verifier([1; 8]);
            let request = SetClientId {
                name: b"four",
                verifier,
                principal: &principal,
                site: [127, 0, 0, 1].into(),
                callback,
            };
            let (client, confirm) = engine.setclientid(&request, now)?;
            engine.setclientid_confirm(client, confirm, &principal, now)?;
            let share = Share { access: Access::READ, deny: Access::WRITE };
            let request = OpenRequest { client, owner: b"o", file: file.key(), share, claim: Claim::New };
            let opened = engine.open(&request, now)?;
            engine.attach(&opened.ticket, OpenId(1), Access::READ)?;
            engine.open_commit(opened.ticket)
        });
        denied.unwrap().unwrap();
    }

    /// The handle of the first export's root.
    pub(crate) fn root(&self) -> Vec<u8> {
        self.handle_at(b"/data")
    }

    pub(crate) fn handle_at(&self, path: &[u8]) -> Vec<u8> {
        let (object, rest) = self.namespace.resolve(path, [127, 0, 0, 1].into()).unwrap();
        assert!(rest.is_empty());
        self.namespace.seal(&object).as_bytes().to_vec()
    }

    /// The results of a call, sent under a new xid.
    pub(crate) fn call(&mut self, procedure: Proc3, args: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        self.call_again(procedure, args)
    }

    /// The same under the xid of the call before.
    pub(crate) fn call_again(&mut self, procedure: Proc3, args: &impl Encode) -> Vec<u8> {
        let args = to_bytes(args);
        self.raw(NFS3_PROGRAM, procedure.as_u32(), &args).expect("the call succeeds")
    }

    /// The results of any call; `None` when it was refused as a call.
    pub(crate) fn raw(&mut self, program: u32, procedure: u32, args: &[u8]) -> Option<Vec<u8>> {
        let auth = self.auth.clone();
        let call = OutgoingCall { program, version: 3, procedure, auth: &auth, args };
        let mut replies = self.client.call(self.xid, &call);
        let start = Instant::now();
        while replies.is_empty() {
            assert!(start.elapsed() < PATIENCE, "no reply");
            std::thread::sleep(Duration::from_millis(1));
            replies = self.client.sent();
        }
        assert_eq!(replies.len(), 1);
        Detached::results(&replies[0]).map(<[u8]>::to_vec)
    }

    pub(crate) fn create(&mut self, name: &str) -> Vec<u8> {
        self.create_in(&self.root(), name, 0o644)
    }

    pub(crate) fn create_in(&mut self, dir: &[u8], name: &str, m: u32) -> Vec<u8> {
        let place = DirOpArgs3 { dir: Fh3(dir), name: name.as_bytes() };
        let reply = self.call(Proc3::Create, &Create3Args { place, how: CreateHow3::Guarded(mode(m)) });
        new_handle(&reply)
    }

    pub(crate) fn mkdir(&mut self, name: &str) -> Vec<u8> {
        let root = self.root();
        let place = DirOpArgs3 { dir: Fh3(&root), name: name.as_bytes() };
        let reply = self.call(Proc3::Mkdir, &Mkdir3Args { place, attributes: mode(0o755) });
        new_handle(&reply)
    }

    pub(crate) fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: StableHow) -> Write3Res {
        let args = Write3Args {
            file: Fh3(file),
            offset: holdfast_base::Offset(offset),
            count: data.len() as u32,
            stable,
            data,
        };
        decode(&self.call(Proc3::Write, &args))
    }

    pub(crate) fn getattr(&mut self, fh: &[u8]) -> Fattr3 {
        match decode(&self.call(Proc3::GetAttr, &Fh3(fh))) {
            GetAttr3Res::Ok(attrs) => attrs,
            GetAttr3Res::Fail(status, ()) => panic!("{status}"),
        }
    }

    /// Looks a name up and returns its handle and attributes.
    pub(crate) fn lookup(&mut self, dir: &[u8], name: &[u8]) -> Result<(Vec<u8>, PostOpAttr), NfsStat3> {
        let reply = self.call(Proc3::Lookup, &DirOpArgs3 { dir: Fh3(dir), name });
        match decode::<Lookup3Res<'_>>(&reply) {
            Res3::Ok(ok) => {
                assert!(ok.dir_attributes.is_some());
                Ok((ok.object.0.to_vec(), ok.obj_attributes))
            }
            Res3::Fail(status, dir_attributes) => {
                assert!(dir_attributes.is_some());
                Err(status)
            }
        }
    }

    /// Nothing that was answered would be lost.
    pub(crate) fn assert_durable(&self) {
        assert_eq!(self.fs.uncommitted(), []);
        self.fs.check().unwrap();
    }

    pub(crate) fn root_inner(&self) -> holdfast_vfs::Handle {
        self.fs.root().unwrap()
    }
}

/// Decodes a whole result: nothing may be left over.
pub(crate) fn decode<'a, T: Decode<'a>>(reply: &'a [u8]) -> T {
    from_bytes(reply).unwrap()
}

pub(crate) fn new_handle(reply: &[u8]) -> Vec<u8> {
    match decode::<Create3Res<'_>>(reply) {
        Res3::Ok(ok) => ok.obj.unwrap().0.to_vec(),
        Res3::Fail(status, _) => panic!("{status}"),
    }
}

/// The status that a reply begins with.
pub(crate) fn status(reply: &[u8]) -> NfsStat3 {
    let word: [u8; 4] = reply[..4].try_into().unwrap();
    NfsStat3::from_u32(u32::from_be_bytes(word)).unwrap()
}
