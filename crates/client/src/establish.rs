//! Making connections and sessions: EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION (RFC 8881 sections 18.34-18.36).

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::{AHEAD_CALL_FILES_MAX, CLIENT_BACK_SLOTS, LINK_RECORD_BYTES_MAX};
use holdfast_base::{ClientId, Seqid};
use holdfast_rpc::link::{Link, LinkOptions, Peer, PeerCall};
use holdfast_wire::nfs4::{
    ArgOp, BindConnToSession4Args, BindConnToSession4Ok, CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    CREATE_SESSION4_FLAG_PERSIST, CallbackSecParms4, ChannelAttrs4, ChannelDirFromClient4, ClientOwner4,
    CreateSession4Args, CreateSession4Ok, DestroyClientId4Args, DestroySession4Args,
    EXCHGID4_FLAG_CONFIRMED_R, EXCHGID4_FLAG_SUPP_MOVED_REFER, ExchangeId4Args, ExchangeId4Ok,
    NFS4_CALLBACK_PROGRAM, NfsStat4, OpNum4, StateProtect4A,
};

use crate::boot::BootTime;
use crate::client::Inner;
use crate::compound::Compound;
use crate::recover::Setback;
use crate::session::Session;
use crate::{Error, Event, Result};

/// The port of servers that name none.
const PORT: u16 = 2049;

/// Who a server says that it is (RFC 8881 section 2.10.5).
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerName {
    major: Vec<u8>,
    scope: Vec<u8>,
    /// Where this differs too, sessions do not reach.
    minor: u64,
}

impl ServerName {
    /// Whether a client that both know by one id is one client: what it holds of the one it holds of the other.
    fn shares_clients(&self, other: &Self) -> bool {
        self.major == other.major && self.scope == other.scope
    }
}

/// What the server knows us by.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) client: ClientId,
    /// The number of the next CREATE_SESSION.
    create: Seqid,
    pub(crate) minor: u32,
    server: ServerName,
    pub(crate) address: SocketAddr,
}

/// A session that was made.
pub(crate) struct Established {
    pub(crate) session: Session,
    /// The server knew nothing of us.
    pub(crate) is_new_client: bool,
}

/// Who hears what the links' peer does by itself.
struct Ears(std::sync::Weak<Inner>);

impl Peer for Ears {
    fn called(&self, call: PeerCall) {
        match self.0.upgrade() {
            Some(inner) => inner.back.add(call),
            None => call.refuse(holdfast_wire::rpc::AcceptStat::ProgUnavail),
        }
    }

    fn broke(&self, _: &Link) {
        if let Some(inner) = self.0.upgrade() {
            inner.todo.wake();
            inner.links.wake();
        }
    }
}

impl Inner {
    /// The first connection: the one there is, or one to the first server that answers, beginning with the last used.
    pub(crate) fn mend_primary(&self) -> Result<Link, Setback> {
        if let Some(link) = self.links.primary() {
            return Ok(link);
        }
        let (named, current) = {
            let servers = self.servers.lock();
            (servers.names(), servers.current())
        };
        let mut why = Error::Unreachable("no server is named".into());
        for i in 0..named.len() {
            let n = (current + i) % named.len();
            match self.reach(&named[n]) {
                Ok(link) => {
                    self.servers.lock().uses(&named[n]);
                    self.links.put(0, link.clone());
                    self.todo.work.lock().must_ask_for_others = true;
                    self.tell(&Event::Connected(named[n].clone()));
                    return Ok(link);
                }
                // There may be one that takes us in.
                Err(e) => why = e,
            }
            if self.quit.is_cancelled() {
                return Err(Setback::Because(Error::Closed));
            }
        }
        Err(why.into())
    }

    fn reach(&self, server: &str) -> Result<Link> {
        let link = self.connect_to(server).map_err(|e| Error::Unreachable(format!("{server}: {e}")))?;
        self.meet(&link).inspect_err(|_| link.close())?;
        Ok(link)
    }

    /// Another address may be another server, and our client id somebody else's there: it is asked who it is first
    /// (RFC 8881 section 2.10.5). Where it knows us but not our sessions, it gets one of its own, and nothing is lost.
    fn meet(&self, link: &Link) -> Result<()> {
        let known = self.gate.identity();
        let Some(known) = known.filter(|known| known.address != link.address()) else { return Ok(()) };
        let found = match self.exchange_id(link, known.minor) {
            Ok((found, _)) => Some(found),
            // What speaks another minor version is not what knows us.
            Err(Error::Nfs(NfsStat4::MinorVersMismatch)) => None,
            Err(e) => return Err(e),
        };
        let knows_us =
            |found: &Identity| found.client == known.client && found.server.shares_clients(&known.server);
        let found = found.filter(knows_us);
        if let Some(session) = self.gate.session()
            && found.as_ref().is_none_or(|found| found.server != known.server)
        {
            self.lose_session(&session);
            // What goes to where the session was does not reach the next one.
            self.links.close();
        }
        let at =
            |found: Identity| Identity { address: link.address(), server: found.server, ..known.clone() };
        self.gate.set_identity(found.map(at));
        Ok(())
    }

    /// The `n`-th further connection: to another address of the server in use, where several are named and sessions of the one
    /// reach to the other (RFC 8881 section 2.10.5), else to the same address.
    pub(crate) fn connect_again(&self, n: usize) -> Result<Link> {
        let primary = self.links.primary().ok_or(Error::Disconnected)?;
        let other = self.servers.lock().behind(n).map(str::to_owned);
        if let Some(other) = other
            && let Ok(link) = self.connect_to(&other)
            && self.sessions_reach(&link)
        {
            return Ok(link);
        }
        self.connect_at(primary.address()).map_err(|_| Error::Disconnected)
    }

    fn sessions_reach(&self, link: &Link) -> bool {
        let Some(known) = self.gate.identity() else { return false };
        let found = self.exchange_id(link, known.minor);
        found.is_ok_and(|(found, _)| found.server == known.server && found.client == known.client)
    }

    fn connect_to(&self, server: &str) -> std::io::Result<Link> {
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        for address in addresses(server)? {
            match self.connect_at(address) {
                Ok(link) => return Ok(link),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    pub(crate) fn connect_at(&self, address: SocketAddr) -> std::io::Result<Link> {
        Link::connect(address, &self.link_options(), Arc::new(Ears(self.this.clone())))
    }

    fn link_options(&self) -> LinkOptions {
        let options = &self.options;
        LinkOptions {
            patience: options.patience.min(Duration::from_secs(10)),
            silence: options.silence,
            reserved_port: options.reserved_port,
        }
    }

    /// Makes a session over a connection, which becomes its first one.
    pub(crate) fn establish(&self, link: &Link) -> Result<Established, Setback> {
        let mut is_new_client = false;
        // A client id that the server has forgotten is found out by using it.
        for _ in 0..3 {
            let identity = match self.gate.identity() {
                Some(identity) => identity,
                None => {
                    let (identity, was_known) = self.introduce(link)?;
                    is_new_client |= !was_known;
                    self.gate.set_identity(Some(identity.clone()));
                    identity
                }
            };
            match self.create_session(link, &identity) {
                Ok(session) => return Ok(Established { session, is_new_client }),
                Err(Error::Nfs(NfsStat4::StaleClientId | NfsStat4::Expired)) => {
                    self.gate.set_identity(None);
                    is_new_client = true;
                }
                Err(Error::Nfs(NfsStat4::SeqMisordered)) => self.gate.set_identity(None),
                Err(e) => return Err(e.into()),
            }
        }
        Err(Setback::Because(Error::Protocol("no session after three attempts")))
    }

    /// Says who we are, in the highest minor version that both know.
    fn introduce(&self, link: &Link) -> Result<(Identity, bool), Setback> {
        let minors = self.options.minor.map_or(vec![2, 1], |minor| vec![minor]);
        let mut refused = Error::Nfs(NfsStat4::MinorVersMismatch);
        for minor in minors {
            match self.exchange_id(link, minor) {
                Err(Error::Nfs(NfsStat4::MinorVersMismatch)) => {
                    refused = Error::Nfs(NfsStat4::MinorVersMismatch);
                }
                other => return Ok(other?),
            }
        }
        Err(Setback::Because(refused))
    }

    fn exchange_id(&self, link: &Link, minor: u32) -> Result<(Identity, bool)> {
        let mut compound = Compound::new();
        compound.op(&ArgOp::ExchangeId(ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: self.verifier, ownerid: &self.owner },
            flags: EXCHGID4_FLAG_SUPP_MOVED_REFER,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        }));
        let mut answer = self.bare(link, minor, &compound)?;
        let ok: ExchangeId4Ok<'_> = answer.next(OpNum4::ExchangeId)?;
        let was_known = ok.flags & EXCHGID4_FLAG_CONFIRMED_R != 0;
        let known = self.gate.identity().filter(|known| known.client == ok.clientid && was_known);
        let identity = Identity {
            client: ok.clientid,
            // The number in the answer counts only for a client that has made no session yet.
            create: known.map_or(ok.sequenceid, |known| known.create),
            minor,
            server: ServerName {
                major: ok.server_owner.major_id.to_vec(),
                scope: ok.server_scope.to_vec(),
                minor: ok.server_owner.minor_id,
            },
            address: link.address(),
        };
        Ok((identity, was_known))
    }

    fn create_session(&self, link: &Link, identity: &Identity) -> Result<Session> {
        let io = self.options.max_io.min(LINK_RECORD_BYTES_MAX as u32 - (64 << 10));
        let fore = ChannelAttrs4 {
            headerpadsize: 0,
            maxrequestsize: io + 4096,
            maxresponsesize: io + 4096,
            maxresponsesize_cached: 8192,
            // Of which reading small files ahead takes most.
            maxoperations: 2 * AHEAD_CALL_FILES_MAX as u32 + 8,
            maxrequests: self.options.slots.max(2),
            rdma_ird: None,
        };
        let back = ChannelAttrs4 {
            maxrequestsize: 16 << 10,
            maxresponsesize: 16 << 10,
            maxoperations: 16,
            maxrequests: CLIENT_BACK_SLOTS as u32,
            ..fore
        };
        let mut compound = Compound::new();
        compound.op(&ArgOp::CreateSession(CreateSession4Args {
            clientid: identity.client,
            sequence: identity.create,
            flags: CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            fore_chan_attrs: fore,
            back_chan_attrs: back,
            cb_program: NFS4_CALLBACK_PROGRAM,
            sec_parms: vec![CallbackSecParms4::None],
        }));
        // The server counts the lease from when it was asked, at the earliest.
        let asked_at = BootTime::now();
        let mut answer = self.bare(link, identity.minor, &compound)?;
        let ok: CreateSession4Ok = answer.next(OpNum4::CreateSession)?;
        let next = Identity { create: ok.sequence.next(), address: link.address(), ..identity.clone() };
        self.gate.set_identity(Some(next));
        self.back.new_session(ok.sessionid);
        self.todo.renewed(asked_at);
        let is_persistent = ok.flags & CREATE_SESSION4_FLAG_PERSIST != 0;
        let names = (ok.sessionid, identity.client, identity.minor);
        Ok(Session::new(names, ok.fore_chan_attrs, is_persistent, self.options.slots.max(2)))
    }

    /// Binds a connection to the session; the first one for callbacks too.
    pub(crate) fn bind(&self, session: &Arc<Session>, link: &Link, n: usize) -> Result<(), Setback> {
        let dir = if n == 0 { ChannelDirFromClient4::BackOrBoth } else { ChannelDirFromClient4::Fore };
        let mut compound = Compound::new();
        compound.op(&ArgOp::BindConnToSession(BindConnToSession4Args {
            sessionid: session.id,
            dir,
            use_conn_in_rdma_mode: false,
        }));
        let mut answer = self.bare(link, session.minor, &compound)?;
        match answer.next::<BindConnToSession4Ok>(OpNum4::BindConnToSession) {
            Ok(_) => {
                self.back.may_begin_anew();
                self.links.bind(n, session.id);
                Ok(())
            }
            Err(Error::Nfs(NfsStat4::BadSession | NfsStat4::DeadSession | NfsStat4::StaleClientId)) => {
                self.lose_session(session);
                Err(Setback::Again)
            }
            Err(Error::Nfs(NfsStat4::Expired)) => {
                self.lose_lease(session);
                Err(Setback::Again)
            }
            Err(Error::Nfs(status)) => {
                // Without state protection a connection is bound by being used, too (RFC 8881 section 2.10.3.1).
                tracing::debug!(?status, "a connection could not be bound");
                self.back.may_begin_anew();
                self.links.bind(n, session.id);
                Ok(())
            }
            Err(e) => Err(Setback::Because(e)),
        }
    }

    /// The end: closes what is open, ends the session and the client id as far as the server answers soon, and lets
    /// every thread go.
    pub(crate) fn end(&self) {
        self.gate.end();
        self.farewell();
        self.end_now();
        *self.is_over.0.lock() = true;
        self.is_over.1.notify_all();
    }

    /// Wakes everybody for good.
    pub(crate) fn end_now(&self) {
        self.gate.end();
        self.quit.cancel();
        self.links.close();
        self.chores.end();
        self.back.end();
        self.noticed.wake_all();
        self.lockers.wake_all();
        if let Some(session) = self.gate.session() {
            session.lose();
        }
    }

    fn farewell(&self) {
        let Some(session) = self.gate.session().filter(|session| !session.is_lost()) else { return };
        let Some(link) = self.links.get(session.id, 0) else { return };
        // Nothing here may keep an unmount waiting for a dead server.
        let quit = self.quit.clone();
        let is_done = Arc::new((parking_lot::Mutex::new(false), parking_lot::Condvar::new()));
        let watched = Arc::clone(&is_done);
        let watch = std::thread::Builder::new().name("nfs-farewell".into()).spawn(move || {
            let mut is_done = watched.0.lock();
            let until = Instant::now() + Duration::from_secs(2);
            while !*is_done && !watched.1.wait_until(&mut is_done, until).timed_out() {}
            if !*is_done {
                quit.cancel();
            }
        });
        self.give_everything_back(&session);
        // What is left there all the same ends with the lease.
        let _ = self.destroy(&link, &session);
        *is_done.0.lock() = true;
        is_done.1.notify_all();
        if let Ok(watch) = watch {
            let _ = watch.join();
        }
    }

    /// Ends a session and the client whose last one it is.
    pub(crate) fn destroy(&self, link: &Link, session: &Session) -> Result<()> {
        let mut compound = Compound::new();
        compound.op(&ArgOp::DestroySession(DestroySession4Args { sessionid: session.id }));
        // Whatever the answer: a session that the server does not know has ended.
        self.bare(link, session.minor, &compound)?;
        let mut compound = Compound::new();
        compound.op(&ArgOp::DestroyClientId(DestroyClientId4Args { clientid: session.client }));
        self.bare(link, session.minor, &compound)?.ok(OpNum4::DestroyClientId)
    }
}

fn addresses(server: &str) -> std::io::Result<Vec<SocketAddr>> {
    let with_port = server.to_socket_addrs();
    let found = match with_port {
        Ok(found) => found.collect(),
        Err(_) => {
            let host = server.trim_start_matches('[').trim_end_matches(']');
            (host, PORT).to_socket_addrs()?.collect::<Vec<_>>()
        }
    };
    if found.is_empty() { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_port_has_the_usual_one() {
        assert_eq!(addresses("127.0.0.1").unwrap(), [SocketAddr::from(([127, 0, 0, 1], PORT))]);
        assert_eq!(addresses("127.0.0.1:99").unwrap(), [SocketAddr::from(([127, 0, 0, 1], 99))]);
        assert_eq!(addresses("[::1]").unwrap()[0].port(), PORT);
        assert_eq!(addresses("::1").unwrap()[0].port(), PORT);
        assert_eq!(addresses("[::1]:99").unwrap()[0].port(), 99);
    }
}
