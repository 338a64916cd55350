//! A client of NFSv4: 4.0 with owners' sequence numbers, 4.1 and 4.2 with a session and slots.
//!
//! [`Client4::act`] sends a compound until it has an answer that means something: over new connections, after
//! recovery, after the server's delays.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use holdfast_base::{ClientId, Seqid, SessionId};
use holdfast_rpc::{Auth, AuthSys};
use holdfast_wire::nfs4::*;

use super::callbacks::Called;
use super::conn::{COPIES_PERCENT, COPY_LATE_MS, Conn, Copy};
use super::delegations::{Delegation, GivenUp};
use super::kept::Cache;
use super::sessions::Counted;
use super::slots::Session;
use crate::exec::Turn;
use crate::life::LEASE_MS;
use crate::mount::Mount;
use crate::oracle::grants::GrantId;
use crate::rng::Rng;
use crate::wire::{Ops, Reply};
use crate::world::World;
use crate::world::calls::Callee;

/// Slots that a client asks for.
pub(super) const SLOTS: u32 = 4;

/// What a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Minor version.
    pub minor: u32,
    /// Whether it answers callbacks.
    pub answers_callbacks: bool,
}

/// A file that the client has open.
pub(crate) struct Open {
    pub(crate) file: usize,
    pub(crate) handle: RefCell<Vec<u8>>,
    pub(crate) owner: Vec<u8>,
    pub(crate) access: u32,
    pub(crate) deny: u32,
    pub(crate) stateid: Cell<Stateid4>,
    pub(crate) grant: Cell<GrantId>,
    pub(crate) locks: RefCell<Locks>,
    /// The server does not know it any more.
    pub(crate) is_lost: Cell<bool>,
    /// CLOSE is sent, or about to be: the server may have done it, whatever is heard of it.
    pub(crate) is_closing: Cell<bool>,
}

/// Byte-range locks taken through one open.
#[derive(Default)]
pub(crate) struct Locks {
    pub(crate) stateid: Option<Stateid4>,
    /// First and last byte, whether exclusive, and the grant.
    pub(crate) held: Vec<(u64, u64, bool, GrantId)>,
    /// What the server was told in this life of its, and may still have, whatever was given up since.
    pub(crate) told: Vec<(u64, u64, bool)>,
}

impl Locks {
    /// Whether the server may have locked all of a range for their owner, as much or more.
    pub(crate) fn may_have(&self, (first, last, is_write): (u64, u64, bool)) -> bool {
        let has = |byte: u64| {
            let mut told = self.told.iter();
            told.any(|(from, to, exclusive)| (*from..=*to).contains(&byte) && (*exclusive || !is_write))
        };
        (first..=last).all(has)
    }
}

/// A client.
pub struct Client4 {
    pub(crate) world: Rc<World>,
    pub(crate) conn: Rc<Conn>,
    pub(crate) host: usize,
    pub(crate) kind: Kind,
    pub(crate) starts: u64,
    pub(crate) rng: RefCell<Rng>,
    pub(crate) client_id: Cell<Option<ClientId>>,
    pub(crate) session: RefCell<Option<Session>>,
    pub(crate) counted: Cell<Option<Counted>>,
    pub(crate) this: Weak<Self>,
    /// Rises with every recovery.
    pub(crate) epoch: Cell<u64>,
    pub(crate) recovering: Turn,
    /// The server said that it has restarted, under a session that outlived it.
    pub(crate) must_reclaim: Cell<bool>,
    /// The server's life in which the client last had all that it has.
    pub(crate) sure_of: Cell<u64>,
    /// In 4.0, sequence numbers by owner, and compounds that were sent and are not answered.
    pub(crate) seqids: RefCell<BTreeMap<Vec<u8>, Seqid>>,
    pub(crate) under_way: Cell<u32>,
    pub(crate) opens: RefCell<BTreeMap<u64, Rc<Open>>>,
    last_open: Cell<u64>,
    /// A lock that was waited for may be had.
    pub(crate) is_notified: Cell<bool>,
    pub(crate) is_dead: Cell<bool>,
    /// The connection that the back channel is bound to, and whether the server says that it hears nothing there.
    pub(crate) bound: Cell<u64>,
    pub(crate) is_path_down: Cell<bool>,
    /// The server says that it has lost count of the calls of this session.
    pub(crate) is_out_of_step: Cell<bool>,
    /// How far the calls of each session and slot were counted.
    pub(super) called: RefCell<BTreeMap<(SessionId, u32), Called>>,
    /// How often the client forgot all it had, as a restart of its machine would.
    pub(crate) amnesias: Cell<u64>,
    /// By file.
    pub(crate) delegations: RefCell<BTreeMap<usize, Delegation>>,
    /// Data that is kept over CLOSE.
    pub(crate) kept: RefCell<Cache>,
    /// Those that will be given back, by their stateids.
    pub(super) returning: RefCell<BTreeSet<[u8; 12]>>,
    /// Those that the server may not have back yet, likewise.
    pub(super) given_up: RefCell<BTreeMap<[u8; 12], GivenUp>>,
    /// The Holdfast mount whose client it is, if it is one's.
    pub(super) mount: RefCell<Weak<Mount>>,
}

/// The session went while a compound was under way: the same must be asked anew. Whether it was carried out nobody
/// knows.
pub(crate) struct Missed;

/// What [`Client4::act`] brings.
pub(crate) struct Acted {
    pub(crate) reply: Reply,
    /// When the request was first sent.
    pub(crate) sent: u64,
    /// How often the server had died then.
    pub(crate) deaths: u64,
    /// An earlier attempt may have been carried out, and the server could not know that it was the same.
    pub(crate) is_excused: bool,
    /// It was sent more than once.
    pub(crate) is_repeated: bool,
}

/// Program, version and procedure.
pub(super) const COMPOUND: (u32, u32, u32) = (NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND);

fn credential(host: usize) -> Auth {
    Auth::Sys(AuthSys { uid: 0, gid: 0, groups: Vec::new(), machine: format!("host{host}").into_bytes() })
}

impl Client4 {
    /// A client on a host, started for the `starts`-th time.
    pub fn new(world: &Rc<World>, host: usize, kind: Kind, starts: u64, rng: Rng) -> Rc<Self> {
        let conn = Conn::new(world, host, credential(host));
        let client = Rc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            world: Rc::clone(world),
            conn,
            host,
            kind,
            starts,
            rng: RefCell::new(rng),
            client_id: Cell::new(None),
            session: RefCell::default(),
            counted: Cell::new(None),
            epoch: Cell::new(0),
            recovering: Turn::new(&world.exec),
            must_reclaim: Cell::new(false),
            sure_of: Cell::new(0),
            seqids: RefCell::default(),
            under_way: Cell::new(0),
            opens: RefCell::default(),
            last_open: Cell::new(0),
            is_notified: Cell::new(false),
            is_dead: Cell::new(false),
            bound: Cell::new(0),
            is_path_down: Cell::new(false),
            is_out_of_step: Cell::new(false),
            called: RefCell::default(),
            amnesias: Cell::new(0),
            returning: RefCell::default(),
            given_up: RefCell::default(),
            mount: RefCell::default(),
            delegations: RefCell::default(),
            kept: RefCell::default(),
        });
        let weak = Rc::downgrade(&client);
        let on_lost = Weak::clone(&weak);
        client.conn.on_call(Rc::new(move |call, args| weak.upgrade()?.program_called(call, args)));
        client.conn.on_lost(Rc::new(move || {
            // Of 4.0 it is called on another way.
            if let Some(client) = on_lost.upgrade().filter(|client| client.sessions()) {
                client.doubt_delegations();
                client.mount_is_cut_off();
            }
        }));
        if kind.minor == 0 {
            let callee: Rc<dyn Callee> = client.clone();
            world.listen(host, Rc::downgrade(&callee));
        }
        client
    }

    /// Who it is, for people and for oracles.
    #[must_use]
    pub fn name(&self) -> String {
        format!("client {} (4.{}, start {})", self.host, self.kind.minor, self.starts)
    }

    /// The long-form name by which the server knows it.
    pub(crate) fn owner_id(&self) -> Vec<u8> {
        format!("host {} minor {}", self.host, self.kind.minor).into_bytes()
    }

    pub(crate) fn verifier(&self) -> [u8; 8] {
        (self.amnesias.get() << 32 | self.starts << 16 | self.host as u64).to_be_bytes()
    }

    /// The machine dies: the client holds nothing and says nothing any more.
    pub fn die(&self) {
        self.world.tell(|| format!("{}: dies", self.name()));
        self.is_dead.set(true);
        self.conn.die();
        self.world.oracles.grants(|grants| {
            grants.client_gone(self.host);
            Ok(())
        });
        self.world.oracles.once(|once| {
            once.client_gone(self.host);
            Ok(())
        });
    }

    pub(crate) fn remember(&self, open: Open) -> (u64, Rc<Open>) {
        self.last_open.set(self.last_open.get() + 1);
        let open = Rc::new(open);
        self.opens.borrow_mut().insert(self.last_open.get(), Rc::clone(&open));
        (self.last_open.get(), open)
    }

    /// Whether the server lives, in the same life as then.
    pub(crate) fn is_of(&self, life: u64) -> bool {
        self.world.is_up() && self.world.lives() == life
    }

    fn sessions(&self) -> bool {
        self.kind.minor > 0
    }

    /// The lease was renewed by a request sent then.
    pub(crate) fn renewed(&self, sent: u64) {
        let now = self.world.now();
        self.world.oracles.grants(|grants| grants.renewed(now, self.host, sent + LEASE_MS));
    }

    pub(crate) fn in_doubt(&self) {
        self.world.oracles.grants(|grants| {
            grants.in_doubt(self.host);
            Ok(())
        });
    }

    /// Sends a compound until there is an answer that is no mere putting off. `make` is asked anew after every
    /// recovery; `None` from it gives up.
    pub(crate) async fn act(&self, make: impl Fn() -> Option<Ops>) -> Option<Acted> {
        self.act_counted(make, (&[], Vec::new)).await
    }

    /// The same with an operation that 4.0 counts, after others: by whose numbers is asked when it was answered.
    pub(crate) async fn act_counted(
        &self,
        make: impl Fn() -> Option<Ops>,
        (after, owners): (&[OpNum4], impl Fn() -> Vec<Vec<u8>>),
    ) -> Option<Acted> {
        let sent = self.world.now();
        let mut deaths = 0;
        self.world.oracles.reclaims(|reclaims| {
            deaths = reclaims.deaths();
            Ok(())
        });
        let (mut is_excused, mut times) = (false, 0);
        loop {
            self.ready().await;
            let ops = make()?;
            let (epoch, tried) = (self.epoch.get(), self.once(&ops).await);
            times += 1;
            let Ok((reply, repeated)) = tried else {
                is_excused = true;
                continue;
            };
            let is_overtaken = epoch != self.epoch.get();
            self.count_after(&reply, after, &owners);
            if reply.status != NfsStat4::Ok {
                self.world.tell(|| format!("{}: hears {:?}", self.name(), reply.status));
            }
            match reply.status {
                NfsStat4::Delay | NfsStat4::Grace | NfsStat4::Resource | NfsStat4::ServerFault => {
                    // A fault of the server's may have come after the change.
                    is_excused |= reply.status == NfsStat4::ServerFault;
                    let longest = if self.is_mounts() { 100 } else { 800 };
                    let ms = self.rng.borrow_mut().between(longest / 16, longest);
                    self.world.exec.sleep(ms).await;
                }
                // Another task has recovered meanwhile: what was sent named what is no more.
                NfsStat4::StaleClientId
                | NfsStat4::StaleStateid
                | NfsStat4::BadStateid
                | NfsStat4::OldStateid
                | NfsStat4::Expired
                    if is_overtaken => {}
                NfsStat4::StaleClientId | NfsStat4::StaleStateid => {
                    if reply.status == NfsStat4::StaleClientId {
                        self.hears_it_is_not_known("STALE_CLIENTID");
                    }
                    self.must_reclaim.set(true);
                    self.recover(epoch).await;
                }
                // A delegation that was revoked is answered so, too, and then nothing else is lost (RFC 7530 section 10.4.6): as
                // Linux, it asks for its lease first.
                NfsStat4::Expired if !self.sessions() && !self.has_lease().await => {
                    self.client_id.set(None);
                    self.recover(epoch).await;
                }
                _ => {
                    let is_repeated = repeated || times > 1;
                    return Some(Acted { reply, sent, deaths, is_excused, is_repeated });
                }
            }
        }
    }

    /// In 4.0, whether the server still has the client.
    async fn has_lease(&self) -> bool {
        let Some(clientid) = self.client_id.get() else { return false };
        let renew = Ops::new(&[ArgOp::Renew(Renew4Args { clientid })]);
        matches!(self.without_session(&renew).await.0.status, NfsStat4::Ok | NfsStat4::CbPathDown)
    }

    /// Waits until the client may send: not while it recovers, nor once it is dead.
    pub(crate) async fn ready(&self) {
        if self.is_dead.get() {
            std::future::pending::<()>().await;
        }
        loop {
            self.recovering.take().await;
            self.recovering.pass();
            let has_session = self.session.borrow().is_some();
            let has = if self.sessions() { has_session } else { self.client_id.get().is_some() };
            if has && !self.must_reclaim.get() {
                return;
            }
            self.recover(self.epoch.get()).await;
        }
    }

    /// One compound, sent until it is answered; whether it was sent more than once.
    pub(super) async fn once(&self, ops: &Ops) -> Result<(Reply, bool), Missed> {
        if self.sessions() {
            return self.on_slot(ops, false).await;
        }
        self.under_way.set(self.under_way.get() + 1);
        let answered = self.without_session(ops).await;
        self.under_way.set(self.under_way.get() - 1);
        Ok(answered)
    }

    /// Sends what needs no session until it is answered, under one transaction id.
    pub(crate) async fn without_session(&self, ops: &Ops) -> (Reply, bool) {
        let (args, xid) = (ops.compound(self.kind.minor, None), self.conn.next_xid());
        let mut times = 0;
        loop {
            times += 1;
            let life = self.world.lives();
            if let Ok(results) = self.send(xid, &args).await
                && let Some(reply) = self.read(&results)
            {
                if ops.changes() && self.rng.borrow_mut().percent(COPIES_PERCENT) {
                    let copy = Copy { xid, target: COMPOUND, args, life };
                    self.conn.copy_late(copy, self.rng.borrow_mut().below(COPY_LATE_MS));
                }
                return (reply, times > 1);
            }
            self.world.exec.sleep(10).await;
        }
    }

    pub(super) async fn send(&self, xid: u32, args: &[u8]) -> Result<Vec<u8>, super::conn::Lost> {
        self.conn.call(xid, COMPOUND, args).await
    }

    pub(crate) fn read(&self, results: &[u8]) -> Option<Reply> {
        let reply = Reply::read(results).ok();
        if reply.is_none() {
            self.world.oracles.violated(format!("{}: a reply cannot be decoded", self.name()));
        }
        reply
    }

    /// Heeds what SEQUENCE's answer says beside the point.
    pub(super) fn heed(&self, flags: u32, sent: u64) {
        if flags & SEQ4_STATUS_RESTART_RECLAIM_NEEDED != 0 {
            self.hears_it_is_not_known("of a restart");
            self.in_doubt();
            self.must_reclaim.set(true);
        } else if !self.recovering.is_taken() {
            self.settle_doubts();
        }
        let revoked = SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
            | SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED
            | SEQ4_STATUS_ADMIN_STATE_REVOKED;
        if flags & revoked != 0 {
            self.lose_all("the server says that state was revoked");
        }
        let down =
            SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION | SEQ4_STATUS_BACKCHANNEL_FAULT;
        self.is_path_down.set(flags & down != 0);
        self.is_out_of_step.set(flags & SEQ4_STATUS_BACKCHANNEL_FAULT != 0);
        // What cannot be recalled may be revoked (RFC 8881 section 10.2.1).
        if flags & (down | SEQ4_STATUS_RECALLABLE_STATE_REVOKED) != 0 {
            self.give_up_delegations();
        }
        self.renewed(sent);
    }

    /// The server says that it has restarted, or knows nothing of the client: in the life in which the two came to terms,
    /// the lease must have run out.
    pub(crate) fn hears_it_is_not_known(&self, what: &str) {
        if self.sure_of.get() == self.world.lives() {
            let now = self.world.now();
            self.world.oracles.grants(|grants| grants.not_known(now, self.host, what));
        }
    }

    /// All that was held is gone.
    pub(crate) fn lose_all(&self, why: &str) {
        let opens: Vec<_> = self.opens.borrow().values().cloned().collect();
        for open in opens {
            self.lose(&open, why);
        }
    }

    /// An open, and the locks through it, are gone.
    pub(crate) fn lose(&self, open: &Open, why: &str) {
        if open.is_lost.replace(true) {
            return;
        }
        self.world.tell(|| format!("{}: has lost file {}: {why}", self.name(), open.file));
        self.world.oracles.grants(|grants| {
            grants.end(open.grant.get());
            open.locks.borrow_mut().held.drain(..).for_each(|(_, _, _, grant)| grants.end(grant));
            Ok(())
        });
    }

    /// Keeps the lease alive, until everything is over.
    pub async fn keep_alive(self: Rc<Self>) {
        loop {
            self.world.exec.sleep(LEASE_MS / 3).await;
            if self.is_dead.get() {
                return;
            }
            self.replace_session().await;
            self.bind().await;
            let sent = self.world.now();
            let acted = self
                .act(|| {
                    let renew = self.client_id.get().filter(|_| !self.sessions());
                    Some(match renew {
                        Some(clientid) => Ops::new(&[ArgOp::Renew(Renew4Args { clientid })]),
                        None => Ops::new(&[]),
                    })
                })
                .await;
            let Some(acted) = acted.filter(|_| !self.sessions()) else { continue };
            let is_path_down = acted.reply.status == NfsStat4::CbPathDown;
            if (is_path_down || acted.reply.status == NfsStat4::Ok) && !acted.is_repeated {
                self.renewed(sent);
            }
            if is_path_down {
                // It may be recalled without hearing of it (RFC 7530 section 16.28.4). The server tries the way again.
                self.give_up_delegations();
                let _ = self.set_client_id().await;
            }
        }
    }

    /// In 4.0, the next number of an owner.
    pub(crate) fn seqid(&self, owner: &[u8]) -> Seqid {
        if self.sessions() {
            return Seqid(0);
        }
        self.seqids.borrow().get(owner).copied().unwrap_or(Seqid(1))
    }

    /// In 4.0, counts an operation, if the compound got to it.
    pub(crate) fn count_after(&self, reply: &Reply, after: &[OpNum4], owners: &impl Fn() -> Vec<Vec<u8>>) {
        if !self.sessions() && reply.clone().skip(after).is_some() {
            owners().iter().for_each(|owner| self.count(owner, reply.status));
        }
    }

    /// In 4.0, counts an operation of an owner that was answered so (RFC 7530 section 9.1.7).
    pub(super) fn count(&self, owner: &[u8], status: NfsStat4) {
        let is_counted = !matches!(
            status,
            NfsStat4::StaleClientId
                | NfsStat4::StaleStateid
                | NfsStat4::BadStateid
                | NfsStat4::BadSeqid
                | NfsStat4::BadXdr
                | NfsStat4::Resource
                | NfsStat4::NoFileHandle
        );
        if is_counted && !self.sessions() {
            let next = self.seqid(owner).next();
            self.seqids.borrow_mut().insert(owner.to_vec(), next);
        }
    }
}

/// What a channel is asked to carry.
pub(crate) const CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 1 << 16,
    maxresponsesize: 1 << 16,
    maxresponsesize_cached: 4096,
    maxoperations: 16,
    maxrequests: SLOTS,
    rdma_ird: None,
};
