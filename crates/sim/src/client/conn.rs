//! A client's connection: made when needed, lost at any time. Answers find their calls by transaction id; calls of
//! the server's (the back channel) find whoever takes them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use holdfast_rpc::Auth;
use holdfast_rpc::detached::Detached;
use holdfast_wire::rpc::{CallBody, MsgType, OpaqueAuth, Prefix, RPC_VERSION};
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use crate::exec::{Promise, Turn};
use crate::world::{Endpoint, LinkId, World};

/// How long a client waits for an answer before it thinks that the connection is dead.
const PATIENCE_MS: u64 = 6_000;

/// How many of the changes of v3 and 4.0 come once more after they were answered, and how long after that at most.
pub(crate) const COPIES_PERCENT: u64 = 25;
pub(crate) const COPY_LATE_MS: u64 = 20_000;

/// There is no answer: the connection is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost;

/// An answer, or [`Lost`].
type Answer = Result<Vec<u8>, Lost>;

/// Takes calls of the server's: program, procedure and arguments in, results out; nothing for no answer at all.
pub(crate) type OnCall = Rc<dyn Fn((u32, u32), &[u8]) -> Option<Vec<u8>>>;

/// A call that was answered, to be sent once more.
pub(crate) struct Copy {
    pub(crate) xid: u32,
    /// Program, version and procedure.
    pub(crate) target: (u32, u32, u32),
    pub(crate) args: Vec<u8>,
    /// Which life of the server knows it for certain. Others need not.
    pub(crate) life: u64,
}

/// A connection, or the wish for one.
pub(crate) struct Conn {
    pub(crate) world: Rc<World>,
    pub(crate) host: usize,
    this: Weak<Self>,
    auth: Auth,
    link: Cell<Option<LinkId>>,
    /// How often it was connected.
    connects: Cell<u64>,
    /// The server's life that the connection was made to: it brings nothing of another.
    life: Cell<u64>,
    turn: Turn,
    waiting: RefCell<BTreeMap<u32, Promise<Answer>>>,
    xid: Cell<u32>,
    on_call: RefCell<Option<OnCall>>,
    on_lost: RefCell<Option<Rc<dyn Fn()>>>,
    is_dead: Cell<bool>,
}

impl Conn {
    pub(crate) fn new(world: &Rc<World>, host: usize, auth: Auth) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            world: Rc::clone(world),
            host,
            this: Weak::clone(this),
            auth,
            link: Cell::new(None),
            connects: Cell::new(0),
            life: Cell::new(0),
            turn: Turn::new(&world.exec),
            waiting: RefCell::default(),
            xid: Cell::new(1000 * (host as u32 + 1)),
            on_call: RefCell::default(),
            on_lost: RefCell::default(),
            is_dead: Cell::new(false),
        })
    }

    /// Has calls of the server's answered.
    pub(crate) fn on_call(&self, on_call: OnCall) {
        *self.on_call.borrow_mut() = Some(on_call);
    }

    /// Has somebody told when a connection is gone.
    pub(crate) fn on_lost(&self, on_lost: Rc<dyn Fn()>) {
        *self.on_lost.borrow_mut() = Some(on_lost);
    }

    /// A transaction id that was not used before.
    pub(crate) fn next_xid(&self) -> u32 {
        self.xid.set(self.xid.get().wrapping_add(1));
        self.xid.get()
    }

    /// The client's machine died: nothing is heard of it any more.
    pub(crate) fn die(&self) {
        self.is_dead.set(true);
        self.hang_up();
    }

    /// The server's life that the connection was made to.
    pub(crate) const fn life(&self) -> u64 {
        self.life.get()
    }

    /// How often it was connected: rises with every new connection.
    pub(crate) const fn connects(&self) -> u64 {
        self.connects.get()
    }

    /// Whether it is still the connection that was made when there had been so many.
    pub(crate) fn is_still(&self, connects: u64) -> bool {
        self.link.get().is_some() && self.connects.get() == connects
    }

    fn hang_up(&self) {
        if let Some(link) = self.link.take() {
            self.world.hang_up(link);
        }
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_values().for_each(|promise| promise.keep(Err(Lost)));
        let on_lost = self.on_lost.borrow().clone();
        if let Some(on_lost) = on_lost {
            on_lost();
        }
    }

    /// Waits until there is a connection.
    pub(crate) async fn connected(&self) -> LinkId {
        self.turn.take().await;
        let mut pause = 20;
        let link = loop {
            if self.is_dead.get() {
                std::future::pending::<()>().await;
            }
            if let Some(link) = self.link.get() {
                break link;
            }
            let weak: Weak<dyn Endpoint> = Weak::clone(&self.this) as _;
            if let Some(link) = self.world.connect(self.host, weak).await {
                if self.is_dead.get() {
                    std::future::pending::<()>().await;
                }
                self.connects.set(self.connects.get() + 1);
                self.life.set(self.world.lives());
                self.link.set(Some(link));
                break link;
            }
            self.world.exec.sleep(pause).await;
            pause = (pause * 2).min(1_000);
        };
        self.turn.pass();
        link
    }

    /// Calls, and waits for the answer as long as the connection stands and patience lasts.
    pub(crate) async fn call(&self, xid: u32, target: (u32, u32, u32), args: &[u8]) -> Answer {
        let link = self.connected().await;
        self.call_on(link, (xid, target), args).await
    }

    /// The same of a call that was answered, as long as the life of the server lasts that knows it.
    pub(crate) async fn call_again(&self, copy: &Copy) -> Answer {
        let link = self.connected().await;
        if self.world.lives() != copy.life {
            return Err(Lost);
        }
        self.world.tell(|| format!("client {}: asks again for what was answered, on link {link}", self.host));
        self.call_on(link, (copy.xid, copy.target), &copy.args).await
    }

    async fn call_on(&self, link: LinkId, (xid, target): (u32, (u32, u32, u32)), args: &[u8]) -> Answer {
        let promise = Promise::new(&self.world.exec);
        self.waiting.borrow_mut().insert(xid, promise.clone());
        self.world.send(link, self.record(xid, target, args));
        let answer = promise.within(PATIENCE_MS).await;
        self.waiting.borrow_mut().remove(&xid);
        if self.is_dead.get() {
            std::future::pending::<()>().await;
        }
        answer.unwrap_or_else(|| {
            // Only if it is still the one: others may have given it up before.
            if self.link.get() == Some(link) {
                self.world.tell(|| format!("client {}: no answer on link {link}, hangs up", self.host));
                self.hang_up();
            }
            Err(Lost)
        })
    }

    /// Has a copy of a call come to the server in so many milliseconds, when others have gone on from what it did. It must
    /// do nothing; nobody waits for its answer.
    pub(crate) fn copy_late(&self, copy: Copy, ms: u64) {
        let this = Weak::clone(&self.this);
        self.world.exec.after(ms, move || {
            let Some(conn) = this.upgrade() else { return };
            // No connection outlives the life of the server in which it was made.
            let is_known = conn.world.lives() == copy.life;
            let Some(link) = conn.link.get().filter(|_| is_known) else { return };
            conn.world.tell(|| format!("client {}: a copy of call {} on link {link}", conn.host, copy.xid));
            conn.world.send(link, conn.record(copy.xid, copy.target, &copy.args));
        });
    }

    fn record(&self, xid: u32, (prog, vers, proc): (u32, u32, u32), args: &[u8]) -> Vec<u8> {
        let mut body = Writer::new();
        if let Auth::Sys(sys) = &self.auth {
            body.u32(0);
            body.opaque(&sys.machine);
            body.u32(sys.uid);
            body.u32(sys.gid);
            body.length(sys.groups.len());
            sys.groups.iter().for_each(|group| body.u32(*group));
        }
        let mut w = Writer::new();
        Prefix { xid, mtype: MsgType::Call }.encode(&mut w);
        let cred = OpaqueAuth { flavor: self.auth.flavor(), body: body.as_slice() };
        CallBody { rpcvers: RPC_VERSION, prog, vers, proc, cred, verf: OpaqueAuth::NONE }.encode(&mut w);
        w.put(args);
        w.into_vec()
    }

    /// Answers a call of the server's.
    fn serve(&self, link: LinkId, record: &[u8]) {
        let mut r = Reader::new(record);
        let (Ok(prefix), Ok(body)) = (Prefix::decode(&mut r), CallBody::decode(&mut r)) else {
            return self.world.oracles.violated("the server's call cannot be decoded".into());
        };
        let on_call = self.on_call.borrow().clone();
        let Some(results) = on_call.and_then(|on_call| on_call((body.prog, body.proc), r.rest())) else {
            return;
        };
        let mut w = Writer::new();
        // An accepted reply of success, with an empty verifier (RFC 5531 section 9).
        for word in [prefix.xid, 1, 0, 0, 0, 0] {
            w.u32(word);
        }
        w.put(&results);
        self.world.send(link, w.into_vec());
    }
}

impl Endpoint for Conn {
    fn received(&self, link: LinkId, record: &[u8]) {
        let mut r = Reader::new(record);
        let (Ok(xid), Ok(kind)) = (r.u32(), r.u32()) else {
            return self.world.oracles.violated("the server sent what is no message".into());
        };
        if kind == MsgType::Call as u32 {
            return self.serve(link, record);
        }
        let promise = self.waiting.borrow_mut().remove(&xid);
        if let Some(promise) = promise {
            promise.keep(Detached::results(record).map(<[u8]>::to_vec).ok_or(Lost));
        }
    }

    fn lost(&self, link: LinkId) {
        if self.link.get() == Some(link) {
            self.link.set(None);
            self.hang_up();
        }
    }
}
