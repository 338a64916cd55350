//! A server of one export in memory, which can die and come back, and clients that send it records.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_base::{ClientId, ExportId, ManualClock, SeededEntropy, SessionId, Timestamp};
use holdfast_caps::{Caps, CapsProgram, Holders, Parts};
use holdfast_export::{
    ClientRule, Committer, Export, ExportOptions, Namespace, NoGroups, Object, Sealer, Squash,
};
use holdfast_journal::{BootId, Config as JournalConfig};
use holdfast_ledger::{Ledger, Mutation, Undertaking};
use holdfast_manager::{Agent, Guarded, Manager, NotKept, Parts as ManagerParts};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::{Auth, AuthSys, Limits, OutgoingCall, Program};
use holdfast_state::*;
use holdfast_vfs::{Backend, Caller, Cx, Handle as FsHandle, MemBackend, MemOptions, Picture, Wait};
use holdfast_wire::caps::*;
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};
use tempfile::TempDir;

pub(crate) const LEASE_MS: u64 = 60_000;

/// Remembers nothing, and takes everybody for a holder of a former life.
struct Anybody;

impl Holders for Anybody {
    fn may_hold(&self, _: ClientId) -> bool {
        true
    }
    fn will_hold(&self, _: &ClientImage) -> std::io::Result<()> {
        Ok(())
    }
    fn recorded(&self, _: &ClientImage) -> Recorded {
        Recorded::Yes
    }
}

/// Hears of what the engine leaves to be done before the service does.
#[derive(Default)]
pub(crate) struct Early(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Early {
    /// Has this done when somebody's last capability of an object was given back, before the service has noted that.
    pub(crate) fn once_left(&self, act: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(act));
    }
}

impl Agent for Early {
    fn run(&self, effect: &Effect) -> Result<(), NotKept> {
        if matches!(effect, Effect::CapsLeft { held, .. } if held.is_empty()) {
            let act = self.0.lock().unwrap().take();
            act.into_iter().for_each(|act| act());
        }
        Ok(())
    }
}

pub(crate) struct Server {
    fs: MemBackend,
    dir: TempDir,
    options: ExportOptions,
    life: u64,
    /// Which boot of the machine it is.
    boot: u8,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) running: Running,
}

/// One life of it.
pub(crate) struct Running {
    pub(crate) export: Arc<Export>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) caps: Arc<Caps>,
    pub(crate) early: Arc<Early>,
    ledger: Arc<Ledger>,
    wire: Detached,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(&ExportOptions { squash: Squash::None, ..ExportOptions::default() })
    }

    pub(crate) fn with(options: &ExportOptions) -> Self {
        Self::made(options, 0)
    }

    /// One where calls wait for what they have recalled, as on a server's threads: whoever calls has to be on one of its own.
    pub(crate) fn patient() -> Self {
        Self::made(&ExportOptions { squash: Squash::None, ..ExportOptions::default() }, 16)
    }

    fn made(options: &ExportOptions, pool_threads: usize) -> Self {
        let options = ExportOptions { clients: vec![ClientRule::All], ..options.clone() };
        let fs = MemBackend::new(&MemOptions { root_mode: 0o777, ..MemOptions::system() });
        // Nothing of it has to outlive this machine: in memory, where there is such a place, starts wait for no disk.
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let clock = Arc::new(ManualClock::default());
        let running = start(&fs, (&dir, 1, 1), (&options, pool_threads), (&clock, Grace::Over));
        Self { fs, dir, options, life: 1, boot: 1, clock, running }
    }

    /// It dies, with all that is in memory but the file system, and comes back.
    pub(crate) fn restart(self, grace: Grace) -> Self {
        let Self { fs, dir, options, life, boot, clock, running } = self;
        drop(running);
        let life = life + 1;
        let running = start(&fs, (&dir, life, boot), (&options, 0), (&clock, grace));
        Self { fs, dir, options, life, boot, clock, running }
    }

    /// Another process in its place, as after a planned restart: it gives out the same numbers.
    pub(crate) fn replace(self) -> Self {
        let Self { fs, dir, options, life, boot, clock, running } = self;
        drop(running);
        let running = start(&fs, (&dir, life, boot), (&options, 0), (&clock, Grace::Over));
        Self { fs, dir, options, life, boot, clock, running }
    }

    /// The machine loses power, and comes back. What that took from files is the test's to take.
    pub(crate) fn restart_after_power_loss(mut self, grace: Grace) -> Self {
        self.boot += 1;
        self.restart(grace)
    }

    /// The same, where the journal tells of more than the disk holds: that is as on a picture of it, with the data of another.
    pub(crate) fn restart_behind(self, journal: &[u8], (then, data): (&Picture, &Picture)) -> Self {
        let Self { fs, dir, options, life, boot, clock, running } = self;
        drop(running);
        std::fs::write(dir.path().join("journal"), journal).unwrap();
        fs.lose_power(then, data);
        let (life, boot) = (life + 1, boot.wrapping_add(1));
        let running = start(&fs, (&dir, life, boot), (&options, 0), (&clock, Grace::Over));
        Self { fs, dir, options, life, boot, clock, running }
    }

    /// Holds still, as it does before it is handed over.
    pub(crate) fn hold(&self) {
        self.running.wire.hold();
    }

    /// What the journal holds now.
    pub(crate) fn journal(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("journal")).unwrap()
    }

    /// The file system beneath.
    pub(crate) const fn disk(&self) -> &MemBackend {
        &self.fs
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    pub(crate) fn root(&self) -> FsHandle {
        self.running.export.backend.root().unwrap()
    }

    /// The handle of an object as clients know it.
    pub(crate) fn sealed(&self, handle: FsHandle) -> Vec<u8> {
        self.running.namespace.seal_in(&self.running.export, &handle).as_bytes().to_vec()
    }

    pub(crate) fn root_handle(&self) -> Vec<u8> {
        self.sealed(self.root())
    }

    /// As a client of NFSv3 sees it.
    pub(crate) fn as_nfs<R>(&self, act: impl FnOnce(&dyn Backend, &Cx<'_>) -> R) -> R {
        let root = Caller::root();
        act(self.running.export.backend.as_ref(), &Cx::new(&root, Wait::Yes))
    }

    /// The same with a change, recorded as one of NFSv3.
    pub(crate) fn as_recorded<R>(&self, key: &[u8], change: impl FnOnce(Mutation<'_>) -> R) -> R {
        let Running { export, ledger, .. } = &self.running;
        let (caller, mut record) = (Caller::root(), Undertaking::of_call(ledger, key, 1));
        change(Mutation {
            backend: &*export.backend,
            cx: Cx::new(&caller, Wait::Yes),
            export: export.id,
            record: Some(&mut record),
        })
    }

    /// A process on the server's own host does this to an object.
    pub(crate) fn deed_outside(&self, object: &FsHandle, deed: holdfast_vfs::LocalDeed) {
        self.fs.deed_outside(object, deed);
    }

    /// What guards an object against such processes.
    pub(crate) fn pledges_held(&self, object: &FsHandle) -> Vec<holdfast_vfs::Pledge> {
        self.fs.pledges_held(object)
    }

    /// How many operations the journal remembers.
    pub(crate) fn journal_entries(&self) -> usize {
        self.running.ledger.journal().usage().entries
    }

    /// The export is served elsewhere from now on.
    pub(crate) fn move_away(&self) {
        let Export { id, path, options, .. } = &*self.running.export;
        let backend = Arc::new(MemBackend::new(&MemOptions::system()));
        let moved_to = vec!["192.0.2.7".parse().unwrap()];
        let options = ExportOptions { moved_to, ..options.clone() };
        let export = Export { id: *id, path: path.clone(), backend, options };
        self.running.namespace.replace(vec![Arc::new(export)], Timestamp { seconds: 1, nanos: 0 }).unwrap();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let root = Caller::root();
        let dir = self.fs.root().unwrap();
        let listing = holdfast_vfs::DirListing { dir: &dir, from: holdfast_base::Cookie(0), want: None };
        let take = &mut |entry: holdfast_vfs::DirEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            holdfast_vfs::Flow::Continue
        };
        self.fs.readdir(&Cx::new(&root, Wait::Yes), listing, take).unwrap();
        names.sort();
        names
    }

    /// The disk fails the next commit.
    pub(crate) fn fail_next_commit(&self, why: holdfast_vfs::FsError) {
        self.fs.fail_next_commit(why);
    }

    /// What a loss of power would take.
    pub(crate) fn uncommitted(&self) -> Vec<holdfast_vfs::Touched> {
        self.fs.uncommitted()
    }

    /// A process on the server's own host writes a file anew, and forces it to the disk.
    pub(crate) fn write(&self, name: &str, data: &[u8]) {
        let root = Caller::root();
        let cx = Cx::new(&root, Wait::Yes);
        let name = holdfast_vfs::Name::new(name.as_bytes()).unwrap();
        let node = self.fs.lookup(&cx, &self.fs.root().unwrap(), name, holdfast_vfs::AttrMask::STAT).unwrap();
        let file = holdfast_vfs::File::Stateless(&node.handle);
        let cut = holdfast_vfs::SetAttrs { size: Some(0), ..holdfast_vfs::SetAttrs::default() };
        self.fs.setattr(&cx, file, &cut, None).unwrap();
        let stability = holdfast_vfs::Stability::Unstable;
        let at = holdfast_vfs::WriteAt { offset: 0, stability, want_change: false };
        self.fs.write(&cx, file, at, data).unwrap();
        let mut done = [Ok(())];
        self.fs.commit(&[holdfast_vfs::Touched { handle: node.handle, data: true }], &mut done);
        assert_eq!(done, [Ok(())]);
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        let root = Caller::root();
        let cx = Cx::new(&root, Wait::Yes);
        let name = holdfast_vfs::Name::new(name.as_bytes()).unwrap();
        let node = self.fs.lookup(&cx, &self.fs.root().unwrap(), name, holdfast_vfs::AttrMask::STAT).unwrap();
        let mut into = vec![0; node.attrs.size as usize];
        let file = holdfast_vfs::File::Stateless(&node.handle);
        self.fs.read(&cx, file, 0, &mut into).unwrap();
        into
    }
}

fn start(
    fs: &MemBackend,
    (dir, life, boot): (&TempDir, u64, u8),
    (options, pool_threads): (&ExportOptions, usize),
    (clock, grace): (&Arc<ManualClock>, Grace),
) -> Running {
    let manager = Manager::new(ManagerParts {
        engine: Config { boot: BootInstance::from_counter(life), lease_ms: LEASE_MS, grace },
        entropy: Box::new(SeededEntropy(life)),
        clock: Arc::clone(clock) as Arc<_>,
        pool_threads,
    });
    let early = Arc::new(Early::default());
    let agent: Arc<dyn Agent> = Arc::clone(&early) as Arc<dyn Agent>;
    manager.register(Arc::downgrade(&agent));
    let backend = Guarded::new(Arc::new(fs.clone()), &manager);
    let options = options.clone();
    let export = Arc::new(Export { id: ExportId(9), path: vec![b"e".to_vec()], backend, options });
    let exports = vec![Arc::clone(&export)];
    let config = JournalConfig { bytes: 1 << 20, entries_max: 4096 };
    let path = dir.path().join("journal");
    let (ledger, remembered) = Ledger::open_on_boot(&path, &config, &exports, BootId([boot; 16])).unwrap();
    let at = Timestamp { seconds: 0, nanos: 0 };
    let namespace = Arc::new(Namespace::new(Sealer::new([7; 16]), exports, at).unwrap());
    let committer = Committer::pumped(Some(ledger.clone()));
    let caps = Caps::new(Parts {
        namespace: Arc::clone(&namespace),
        manager: Arc::clone(&manager),
        committer: Arc::clone(&committer),
        ledger: Some(Arc::clone(&ledger)),
        groups: Arc::new(NoGroups),
        holders: Arc::new(Anybody),
        entropy: Box::new(SeededEntropy(life + 100)),
        wall: Arc::new(holdfast_ledger::system_now),
    });
    caps.restore(remembered);
    let program: Arc<dyn Program> = Arc::new(CapsProgram(Arc::clone(&caps)));
    let wire = Detached::new(vec![program], Limits::default()).unwrap();
    Running { export, namespace, manager, committer, caps, early, ledger, wire }
}

/// A Holdfast mount, as far as the wire shows it.
pub(crate) struct Client {
    wire: Detached,
    xid: u32,
    pub(crate) auth: Auth,
    pub(crate) session: SessionId,
    pub(crate) incarnation: [u8; 16],
    pub(crate) ticket: Ticket,
    pub(crate) epoch: u64,
    /// Calls of the server's that were answered.
    pub(crate) recalls: Vec<(Vec<u8>, CapSet, u64)>,
    /// What it was told to be durable without asking.
    pub(crate) hints: Vec<TxnId>,
    replies: Vec<(u32, Vec<u8>)>,
}

/// A mount without a server.
pub(crate) struct Mount {
    incarnation: [u8; 16],
    auth: Auth,
}

impl Mount {
    /// The same mount, after the server's restart.
    pub(crate) fn again(self, server: &Server, name: &str) -> Client {
        let Self { incarnation, auth } = self;
        Client { incarnation, auth, ..Client::stranger(server, name) }
    }
}

pub(crate) fn user(uid: u32) -> Auth {
    Auth::Sys(AuthSys { uid, gid: uid, groups: Vec::new(), machine: b"m".to_vec() })
}

fn port_of(name: &str) -> u16 {
    1000 + u16::from(name.as_bytes()[0])
}

impl Client {
    /// A client with a session that has said HELLO.
    pub(crate) fn new(server: &Server, name: &str) -> Self {
        let mut client = Self::stranger(server, name);
        client.hello(TxnId(0)).unwrap();
        client
    }

    /// A client with a session.
    pub(crate) fn stranger(server: &Server, name: &str) -> Self {
        let running = &server.running;
        let principal = Principal::new(b"root");
        let session = running
            .manager
            .step(|engine, now| {
                let intent = ExchangeIntent::Establish;
                let owner = name.as_bytes();
                let verifier = Verifier([1; 8]);
                let request = ExchangeId {
                    owner,
                    verifier,
                    principal: &principal,
                    site: [127, 0, 0, 1].into(),
                    intent,
                };
                let exchanged = engine.exchange_id(&request, now).unwrap();
                let attrs = ChannelAttrs {
                    header_pad_bytes: 0,
                    request_bytes_max: 1 << 20,
                    reply_bytes_max: 1 << 20,
                    reply_kept_bytes_max: 1 << 16,
                    ops_max: 16,
                    slots_max: 8,
                };
                let request = CreateSession {
                    client: exchanged.client,
                    seqid: exchanged.next_seqid,
                    principal: &principal,
                    conn: ConnId(1),
                    fore: attrs,
                    back: Some(attrs),
                    conn_direction: Direction::Both,
                    callback_program: 0x4000_0000,
                    is_persistent: true,
                };
                let session = engine.create_session(&request, now).unwrap();
                if !engine.grace().is_on(now) {
                    engine.reclaim_complete(exchanged.client).unwrap();
                }
                session.id
            })
            .unwrap();
        let peer: SocketAddr = ([127, 0, 0, 1], port_of(name)).into();
        let mut incarnation = [0; 16];
        incarnation[..name.len()].copy_from_slice(name.as_bytes());
        Self {
            wire: running.wire.another(peer),
            xid: 0,
            auth: user(0),
            session,
            incarnation,
            ticket: Ticket(0),
            epoch: 0,
            recalls: Vec::new(),
            hints: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// The same mount on another connection.
    pub(crate) fn stranger_like(
        server: &Server,
        name: &str,
        session: SessionId,
        incarnation: [u8; 16],
    ) -> Self {
        let peer: SocketAddr = ([127, 0, 0, 1], port_of(name)).into();
        Self {
            wire: server.running.wire.another(peer),
            xid: 0,
            auth: user(0),
            session,
            incarnation,
            ticket: Ticket(0),
            epoch: 0,
            recalls: Vec::new(),
            hints: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// The connection is lost.
    pub(crate) fn close(self) {
        self.wire.close();
    }

    /// What outlives the connection, for [`Mount::again`].
    pub(crate) fn unplug(self) -> Mount {
        Mount { incarnation: self.incarnation, auth: self.auth }
    }

    /// Sends a call and looks at nothing.
    pub(crate) fn post(&mut self, procedure: CapsProc, args: &impl Encode) -> u32 {
        self.xid += 1;
        let (args, auth) = (to_bytes(args), self.auth.clone());
        let call = OutgoingCall {
            program: CAPS_PROGRAM,
            version: CAPS_V1,
            procedure: procedure.as_u32(),
            auth: &auth,
            args: &args,
        };
        self.wire.post(self.xid, &call);
        self.xid
    }

    pub(crate) fn post_bytes(&mut self, procedure: u32, args: &[u8]) -> u32 {
        self.xid += 1;
        let auth = self.auth.clone();
        let call = OutgoingCall { program: CAPS_PROGRAM, version: CAPS_V1, procedure, auth: &auth, args };
        self.wire.post(self.xid, &call);
        self.look();
        self.xid
    }

    /// Whether something was recalled that was not looked at. Nothing is executed by this.
    pub(crate) fn is_called(&self) -> bool {
        self.wire.called_back() > 0
    }

    /// Takes what came: replies are kept, calls answered.
    pub(crate) fn look(&mut self) {
        for record in self.wire.sent() {
            let word = |at: usize| u32::from_be_bytes(record[at..at + 4].try_into().unwrap());
            if word(4) == 1 {
                self.replies.push((word(0), record));
                continue;
            }
            let answer: Vec<u8> = [word(0), 1, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
            assert_eq!(word(12), CAPS_CALLBACK_PROGRAM);
            // A call without credentials: its arguments stand behind ten words.
            if word(20) == CapsCallbackProc::Stable.as_u32() {
                let hint = from_bytes::<StableHint>(&record[40..]).unwrap();
                assert_eq!(hint.epoch, self.epoch);
                self.hints.push(hint.through);
                self.wire.deliver(&answer);
                continue;
            }
            let args = from_bytes::<RecallArgs<'_>>(&record[40..]).unwrap();
            assert_eq!(word(20), CapsCallbackProc::Recall.as_u32());
            // Before HELLO was looked at it is not known yet.
            assert!(self.epoch == 0 || args.epoch == self.epoch);
            for item in args.items {
                self.recalls.push((item.handle.0.to_vec(), item.keep, item.seq));
            }
            self.wire.deliver(&answer);
        }
    }

    /// Whether a call was answered.
    pub(crate) fn has_reply(&mut self, xid: u32) -> bool {
        self.look();
        self.replies.iter().any(|(of, _)| *of == xid)
    }

    /// The reply to a call, if it came.
    pub(crate) fn reply(&mut self, xid: u32) -> Option<Vec<u8>> {
        self.look();
        let at = self.replies.iter().position(|(of, _)| *of == xid)?;
        Some(Detached::results(&self.replies.remove(at).1).unwrap().to_vec())
    }

    /// Calls, and wants an answer at once; the results are leaked, for tests look at them for as long as they run.
    pub(crate) fn call<R>(&mut self, procedure: CapsProc, args: &impl Encode) -> Result<R, CapsStat>
    where
        R: Decode<'static>,
    {
        let xid = self.post(procedure, args);
        self.result(xid)
    }

    /// The answer to that.
    pub(crate) fn result<R: Decode<'static>>(&mut self, xid: u32) -> Result<R, CapsStat> {
        let reply: &'static [u8] = self.reply(xid).expect("an answer").leak();
        from_bytes::<Res<R>>(reply).unwrap().into_result()
    }

    pub(crate) fn hello(&mut self, done_through: TxnId) -> Result<HelloOk, CapsStat> {
        let (session, incarnation) = (self.session, self.incarnation);
        let args = HelloArgs { session, incarnation, features: Features(!0), done_through };
        let ok: HelloOk = self.call(CapsProc::Hello, &args)?;
        (self.ticket, self.epoch) = (ok.ticket, ok.epoch);
        Ok(ok)
    }

    pub(crate) fn acquire(&mut self, handle: &[u8], want: CapSet) -> Result<Acquired, CapsStat> {
        let items = vec![AcquireItem { handle: Handle(handle), want }];
        let ok: AcquireOk = self.call(CapsProc::Acquire, &AcquireArgs { ticket: self.ticket, items })?;
        ok.items[0].into_result()
    }

    pub(crate) fn release(&mut self, handle: &[u8], keep: CapSet, seq: u64) -> Result<Grant, CapsStat> {
        let items = vec![ReleaseItem { handle: Handle(handle), keep, seq }];
        let ok: ReleaseOk = self.call(CapsProc::Release, &ReleaseArgs { ticket: self.ticket, items })?;
        ok.items[0].into_result()
    }

    /// Gives back what is being recalled, as a client does that has flushed.
    pub(crate) fn give_back(&mut self) {
        self.look();
        for (handle, keep, seq) in std::mem::take(&mut self.recalls) {
            self.release(&handle, keep, seq).unwrap();
        }
    }

    pub(crate) fn batch(&mut self, txn: u64, ops: Vec<BatchOp<'_>>) -> Result<BatchOk<'static>, CapsStat> {
        let (ticket, txn) = (self.ticket, TxnId(txn));
        let args = BatchArgs { ticket, txn, how: BatchHow::FIRST, done_through: TxnId(0), ops };
        self.call(CapsProc::Batch, &args)
    }

    /// Sends one that is to be answered when it is durable; its number on the line.
    pub(crate) fn force(&mut self, txn: u64, how: BatchHow, ops: Vec<BatchOp<'_>>) -> u32 {
        let (ticket, txn, how) = (self.ticket, TxnId(txn), how.until(Until::Stable));
        let args = BatchArgs { ticket, txn, how, done_through: TxnId(0), ops };
        let xid = self.post(CapsProc::Batch, &args);
        self.look();
        xid
    }

    /// The answer to that, if it came.
    pub(crate) fn forced(&mut self, xid: u32) -> Option<Result<ForcedOk<'static>, CapsStat>> {
        let reply: &'static [u8] = self.reply(xid)?.leak();
        Some(from_bytes::<Res<ForcedOk<'_>>>(reply).unwrap().into_result())
    }

    /// One that was sent before.
    pub(crate) fn batch_again(
        &mut self,
        txn: u64,
        ops: Vec<BatchOp<'_>>,
    ) -> Result<BatchOk<'static>, CapsStat> {
        let (ticket, txn) = (self.ticket, TxnId(txn));
        let args = BatchArgs { ticket, txn, how: BatchHow::AGAIN, done_through: TxnId(0), ops };
        self.call(CapsProc::Batch, &args)
    }

    /// Asks that all be durable; the disk does its part.
    pub(crate) fn stable(&mut self, server: &Server, through: u64) -> Result<StableOk, CapsStat> {
        let args = StableArgs { ticket: self.ticket, through: TxnId(through), done_through: TxnId(0) };
        let xid = self.post(CapsProc::Stable, &args);
        self.look();
        server.running.committer.pump();
        let reply: &'static [u8] = self.reply(xid).expect("an answer").leak();
        from_bytes::<Res<StableOk>>(reply).unwrap().into_result()
    }

    pub(crate) fn lookup(&mut self, dir: &[u8], name: &str) -> Result<LookupOk<'static>, CapsStat> {
        let (ticket, dir, name) = (self.ticket, Handle(dir), name.as_bytes());
        let args = LookupArgs { ticket, dir, name, want_dir: CapSet::FILE_S, want: CapSet::ALL_S };
        self.call(CapsProc::Lookup, &args)
    }

    pub(crate) fn list(&mut self, dir: &[u8]) -> Result<ListOk<'static>, CapsStat> {
        let args = ListArgs {
            ticket: self.ticket,
            dir: Handle(dir),
            cookie: holdfast_base::Cookie(0),
            bytes_max: 1 << 16,
            want_dir: CapSet::FILE_S,
            want: CapSet::NONE,
        };
        self.call(CapsProc::List, &args)
    }
}

pub(crate) fn create<'a>(dir: Ref<'a>, name: &'a str, data: &'a [u8]) -> BatchOp<'a> {
    let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
    BatchOp::Create { dir, name: name.as_bytes(), if_taken: IfTaken::Fail, set, want: CapSet::NONE, data }
}

pub(crate) fn mkdir<'a>(dir: Ref<'a>, name: &'a str) -> BatchOp<'a> {
    let set = SetAttrs { mode: Some(0o755), ..SetAttrs::default() };
    BatchOp::Mkdir { dir, name: name.as_bytes(), if_taken: IfTaken::Fail, set, want: CapSet::NONE }
}

pub(crate) fn unlink<'a>(dir: Ref<'a>, name: &'a str, victim: Option<Ref<'a>>) -> BatchOp<'a> {
    BatchOp::Unlink { dir, name: name.as_bytes(), victim }
}

pub(crate) fn at(handle: &[u8]) -> Ref<'_> {
    Ref::Handle(Handle(handle))
}

/// What was made, of a result.
pub(crate) fn made<'a>(result: &Res<OpResult<'a>>) -> Made<'a> {
    match result {
        Res::Ok(OpResult::Made(made)) => *made,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn refused(result: &Res<OpResult<'_>>) -> Option<CapsStat> {
    result.into_result().err()
}

pub(crate) fn object(server: &Server, handle: &[u8]) -> FsHandle {
    match server.running.namespace.open(handle).unwrap() {
        Object::Export(_, handle) => handle,
        other => panic!("{other:?}"),
    }
}
