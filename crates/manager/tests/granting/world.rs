//! A manager with a guarded file in memory, and clients of 4.1 that may be granted things.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::{ChangeId, ClientId, Clock, FileKey, SeededEntropy, SystemClock};
use holdfast_manager::{Agent, Granted, Guarded, Manager, NotKept, Parts, PledgeOn};
use holdfast_state::{
    Access, Backing, BootInstance, Caller as StateCaller, ChannelAttrs, Claim, Config, ConnId, CreateSession,
    Delegated, DelegationKind, DelegationRequest, DelegationToken, Direction, Effect, ExchangeId,
    ExchangeIntent, Grace, Grounds, OpenId, OpenRequest, Principal, Recorded, Seen, Share, StateError,
    StateId, Verifier,
};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FileObject, FsResult, Handle, Name, OpenMode,
    SetAttrs, Stability, Wait, WriteAt, Written,
};
use parking_lot::Mutex;

/// Writes down what it hears.
#[derive(Default)]
pub(crate) struct Ears {
    heard: Mutex<Vec<Effect>>,
}

impl Agent for Ears {
    fn run(&self, effect: &Effect) -> Result<(), NotKept> {
        self.heard.lock().push(effect.clone());
        Ok(())
    }
}

pub(crate) struct World {
    pub(crate) manager: Arc<Manager>,
    pub(crate) fs: MemBackend,
    pub(crate) guarded: Arc<Guarded>,
    pub(crate) file: Handle,
    open: Arc<dyn FileObject>,
    ears: Arc<Ears>,
    caller: Caller,
    opens: AtomicU64,
    last_open: Mutex<Option<StateId>>,
}

const ATTRS: ChannelAttrs = ChannelAttrs {
    header_pad_bytes: 0,
    request_bytes_max: 1 << 20,
    reply_bytes_max: 1 << 20,
    reply_kept_bytes_max: 1 << 16,
    ops_max: 16,
    slots_max: 8,
};

impl World {
    /// With so many threads that may wait, as far as the manager knows.
    pub(crate) fn new(pool_threads: usize) -> Self {
        let engine = Config { boot: BootInstance::from_counter(1), lease_ms: 90_000, grace: Grace::Over };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let manager =
            Manager::new(Parts { engine, entropy: Box::new(SeededEntropy(7)), clock, pool_threads });
        let ears = Arc::new(Ears::default());
        let agent: Arc<dyn Agent> = ears.clone();
        manager.register(Arc::downgrade(&agent));
        let fs = MemBackend::new(&MemOptions::system());
        let guarded = Guarded::new(Arc::new(fs.clone()), &manager);
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let open = Some(OpenMode { read: true, write: true, nfs_exceptions: false });
        let how =
            CreateHow { mode: CreateMode::Guarded, set: &SetAttrs::default(), open, want: AttrMask::STAT };
        let root = guarded.root().unwrap();
        let created = guarded.create(&cx, &root, Name::new(b"f").unwrap(), &how).unwrap();
        let (file, open) = (created.node.handle, created.file.unwrap());
        Self {
            manager,
            fs,
            guarded,
            file,
            open,
            ears,
            caller,
            opens: AtomicU64::new(1),
            last_open: Mutex::new(None),
        }
    }

    pub(crate) fn cx(&self, by: Option<ClientId>) -> Cx<'_> {
        Cx::new(&self.caller, Wait::Yes).by(by)
    }

    pub(crate) fn key(&self) -> FileKey {
        self.file.key()
    }

    /// A client that can be called back.
    pub(crate) fn client(&self, name: &str) -> ClientId {
        let client = self.introduced(name);
        self.manager.step(|engine, _| engine.reclaim_complete(client).unwrap()).unwrap();
        client
    }

    /// The same in grace, with something to reclaim.
    pub(crate) fn reclaiming(&self, name: &str) -> ClientId {
        let client = self.introduced(name);
        self.manager.step(|engine, now| engine.set_grace(Grace::Until(now.after_ms(90_000)))).unwrap();
        client
    }

    fn introduced(&self, name: &str) -> ClientId {
        let principal = Principal::new(b"root");
        let made = self.manager.step(|engine, now| {
            let request = ExchangeId {
                owner: name.as_bytes(),
                verifier: Verifier([1; 8]),
                principal: &principal,
                site: [127, 0, 0, 1].into(),
                intent: ExchangeIntent::Establish,
            };
            let exchanged = engine.exchange_id(&request, now).unwrap();
            let request = CreateSession {
                client: exchanged.client,
                seqid: exchanged.next_seqid,
                principal: &principal,
                conn: ConnId(1),
                fore: ATTRS,
                back: Some(ATTRS),
                conn_direction: Direction::Both,
                callback_program: 0x4000_0000,
                is_persistent: false,
            };
            engine.create_session(&request, now).unwrap();
            engine.callback_path(exchanged.client, true);
            exchanged.client
        });
        made.unwrap()
    }

    /// Opens the file for a client.
    pub(crate) fn open(&self, client: ClientId, access: Access) {
        self.open_denying(client, access, Access::NONE);
    }

    /// The same, denying something to others.
    pub(crate) fn open_denying(&self, client: ClientId, access: Access, deny: Access) {
        let share = Share { access, deny };
        let (file, id) = (self.key(), OpenId(self.opens.fetch_add(1, Ordering::Relaxed)));
        let opened = self.manager.step(|engine, now| {
            let request = OpenRequest { client, owner: b"o", file, share, claim: Claim::New };
            let opened = engine.open(&request, now).unwrap();
            if let Backing::Needed(access) = opened.backing {
                engine.attach(&opened.ticket, id, access).unwrap();
            }
            engine.open_commit(opened.ticket).unwrap()
        });
        *self.last_open.lock() = Some(opened.unwrap());
    }

    pub(crate) fn delegate(&self, client: ClientId, kind: DelegationKind) -> Granted {
        let seen = self.seen();
        self.delegate_seen(client, kind, seen)
    }

    /// The file as it is.
    pub(crate) fn seen(&self) -> Seen {
        let attrs = self.fs.getattr(&self.cx(None), &self.file, AttrMask::ALL).unwrap();
        Seen { change: attrs.change, size: attrs.size }
    }

    /// Asks for what the last OPEN may bring, after which the file was as `seen`.
    pub(crate) fn delegate_seen(&self, client: ClientId, kind: DelegationKind, seen: Seen) -> Granted {
        let grounds = Grounds::Open(self.last_open.lock().unwrap());
        self.delegate_on(grounds, (client, kind), seen).unwrap()
    }

    /// Asks for what was held before a restart.
    pub(crate) fn reclaim(&self, client: ClientId, kind: DelegationKind) -> Result<Granted, StateError> {
        self.delegate_on(Grounds::Reclaim(Recorded::Yes), (client, kind), self.seen())
    }

    fn delegate_on(
        &self,
        grounds: Grounds,
        (client, kind): (ClientId, DelegationKind),
        seen: Seen,
    ) -> Result<Granted, StateError> {
        let request = DelegationRequest {
            client,
            file: self.key(),
            kind,
            grounds,
            delegates_timestamps: false,
            seen: Some(seen),
            unchanged_ms: u64::MAX,
        };
        let look = || Ok(self.guarded.getattr(&self.cx(Some(client)), &self.file, AttrMask::CHANGE)?.change);
        let (open, change) = (Some(&self.open), Some(&look as &dyn Fn() -> FsResult<ChangeId>));
        let on = PledgeOn { backend: &*self.guarded, handle: &self.file, open, change };
        self.manager.delegate(&request, &on)
    }

    /// Opens the file and is granted a delegation of it.
    pub(crate) fn granted(&self, client: ClientId, kind: DelegationKind) -> Delegated {
        self.open(client, if kind == DelegationKind::Read { Access::READ } else { Access::BOTH });
        match self.delegate(client, kind) {
            Granted::Delegated(delegated) => delegated,
            Granted::Declined(why) => panic!("declined: {why:?}"),
        }
    }

    pub(crate) fn give_back(&self, client: ClientId, delegated: &Delegated) {
        let file = self.key();
        let returned = self.manager.step(|engine, now| {
            engine.delegation_return(StateCaller::V41(client), delegated.stateid, file, now)
        });
        returned.unwrap().unwrap();
    }

    pub(crate) fn write(&self, by: Option<ClientId>) -> FsResult<Written> {
        let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
        self.guarded.write(&self.cx(by), File::Stateless(&self.file), at, b"data")
    }

    /// What was heard since this was asked last.
    pub(crate) fn heard(&self) -> Vec<Effect> {
        std::mem::take(&mut *self.ears.heard.lock())
    }

    /// Who was asked to give back what, since last asked.
    pub(crate) fn recalled(&self) -> Vec<(ClientId, FileKey, StateId)> {
        let heard = self.heard();
        let recall = |effect| match effect {
            Effect::Recall { client, file, stateid, .. } => Some((client, file, stateid)),
            _ => None,
        };
        heard.into_iter().filter_map(recall).collect()
    }

    /// By what the one recall that was heard of is answered.
    pub(crate) fn recall_token(&self) -> DelegationToken {
        let heard = self.heard();
        let token = heard.into_iter().find_map(|effect| match effect {
            Effect::Recall { token, .. } => Some(token),
            _ => None,
        });
        token.unwrap()
    }

    /// Another file.
    pub(crate) fn another(&self, name: &str) -> Handle {
        let how = CreateHow {
            mode: CreateMode::Guarded,
            set: &SetAttrs::default(),
            open: None,
            want: AttrMask::NONE,
        };
        let (root, name) = (self.guarded.root().unwrap(), Name::new(name.as_bytes()).unwrap());
        self.guarded.create(&self.cx(None), &root, name, &how).unwrap().node.handle
    }

    /// Recalls sent until now, since last asked.
    pub(crate) fn recalls(&self) -> usize {
        let heard = self.heard();
        heard.iter().filter(|effect| matches!(effect, Effect::Recall { .. })).count()
    }
}
