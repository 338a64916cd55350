//! Calls of ours to clients: to their lock managers and status monitors, whose ports their own port mappers tell.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::{
    NLM_CALLS_MAX, NLM_CALLS_PER_SITE_MAX, NLM_PORTS_MAX, NLM_RESULTS_MAX, NLM_RESULTS_PER_SITE_MAX,
};
use holdfast_rpc::client::{Caller, call_datagram, call_once_from};
use holdfast_rpc::rpcbind::{parse_universal, universal};
use holdfast_rpc::server::site_of;
use holdfast_rpc::{Auth, CallError, OutgoingCall};
use holdfast_wire::nlm4::{NLM_PROGRAM, NlmProc4};
use holdfast_wire::portmap::{
    IPPROTO_TCP, IPPROTO_UDP, Mapping, PMAP_PORT, PMAP_PROGRAM, PMAP_V2, PMAPPROC_GETPORT, RPCB_V4,
    RPCBPROC_GETADDR, Rpcb, UniversalAddress,
};
use holdfast_xdr::{from_bytes, to_bytes};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::runtime::Handle;

/// For one call, looking for its port included.
const PATIENCE: Duration = Duration::from_secs(10);

/// For one attempt over one transport.
const ATTEMPT: Duration = Duration::from_secs(4);

/// For an answer by UDP: too short for the datagram to be sent twice, for what is done twice is answered otherwise.
const DATAGRAM_ATTEMPT: Duration = Duration::from_millis(450);

/// How long a port is believed.
const PORT_LIFE: Duration = Duration::from_secs(60);

/// A call to a client's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCall {
    /// The client.
    pub peer: IpAddr,
    /// The address of ours that it knows us by.
    pub from: IpAddr,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// The encoded arguments.
    pub args: Vec<u8>,
}

/// Why a call has no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// What went wrong.
    pub why: CallError,
    /// The peer may have run the call all the same.
    pub may_have_run: bool,
}

/// Told the encoded results, or why there are none, once, on any thread; it must not wait.
pub type Answered = Box<dyn FnOnce(Result<Vec<u8>, NoAnswer>) + Send>;

/// The way to clients' programs.
pub trait Peers: Send + Sync {
    /// Calls, and sends what is to be run once at most. Does not wait. Too many calls at once are answered with
    /// [`CallError::Busy`].
    fn call(&self, call: PeerCall, answered: Answered);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PortKey {
    peer: IpAddr,
    program: u32,
    version: u32,
    protocol: u32,
}

struct Ports {
    portmap_port: u16,
    known: Mutex<FxHashMap<PortKey, (u16, Instant)>>,
    /// Calls that we have reason to make.
    own: Places,
    /// Results that callers want by a call of ours: whoever asks has us make one, and must not be in the way of others.
    results: Places,
}

/// Calls under way, bounded in all and to each site.
struct Places {
    max: usize,
    per_site_max: usize,
    taken: Mutex<FxHashMap<IpAddr, usize>>,
}

impl Places {
    fn new(max: usize, per_site_max: usize) -> Self {
        Self { max, per_site_max, taken: Mutex::default() }
    }

    /// Takes a place; whether there was one.
    fn enter(&self, peer: IpAddr) -> bool {
        let mut taken = self.taken.lock();
        let own = taken.get(&site_of(peer)).copied().unwrap_or(0);
        if own >= self.per_site_max || taken.values().sum::<usize>() >= self.max {
            return false;
        }
        taken.insert(site_of(peer), own + 1);
        true
    }

    fn leave(&self, peer: IpAddr) {
        let mut taken = self.taken.lock();
        if let Some(own) = taken.get_mut(&site_of(peer)) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&site_of(peer));
            }
        }
    }
}

impl PeerCall {
    /// Whether it carries the result of a call of the peer's.
    fn is_result(&self) -> bool {
        let results = NlmProc4::TestRes.as_u32()..=NlmProc4::GrantedRes.as_u32();
        self.program == NLM_PROGRAM && results.contains(&self.procedure)
    }
}

/// Clients over the network: TCP first, then UDP.
pub struct NetPeers {
    runtime: Handle,
    ports: Arc<Ports>,
}

impl NetPeers {
    /// Calls run on this runtime.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self::with_portmap_port(runtime, PMAP_PORT)
    }

    /// The same where the clients' port mappers listen elsewhere: for tests.
    #[must_use]
    pub fn with_portmap_port(runtime: Handle, portmap_port: u16) -> Self {
        let own = Places::new(NLM_CALLS_MAX, NLM_CALLS_PER_SITE_MAX);
        let results = Places::new(NLM_RESULTS_MAX, NLM_RESULTS_PER_SITE_MAX);
        let ports = Ports { portmap_port, known: Mutex::default(), own, results };
        Self { runtime, ports: Arc::new(ports) }
    }
}

impl Peers for NetPeers {
    fn call(&self, call: PeerCall, answered: Answered) {
        let ports = Arc::clone(&self.ports);
        if !ports.places(&call).enter(call.peer) {
            return answered(Err(NoAnswer { why: CallError::Busy, may_have_run: false }));
        }
        self.runtime.spawn(async move {
            let mut is_sent = false;
            let result = tokio::time::timeout(PATIENCE, ports.call(&call, &mut is_sent)).await;
            ports.places(&call).leave(call.peer);
            answered(result.unwrap_or(Err(CallError::TimedOut)).map_err(|why| {
                // Then it says that it has not.
                let was_refused = matches!(why, CallError::Denied(_) | CallError::NotRun(_));
                NoAnswer { why, may_have_run: is_sent && !was_refused }
            }));
        });
    }
}

impl std::fmt::Debug for NetPeers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetPeers").finish_non_exhaustive()
    }
}

impl Ports {
    fn places(&self, call: &PeerCall) -> &Places {
        if call.is_result() { &self.results } else { &self.own }
    }

    async fn call(&self, call: &PeerCall, is_sent: &mut bool) -> Result<Vec<u8>, CallError> {
        match self.call_over(call, IPPROTO_TCP, is_sent).await {
            // What may have arrived is not sent another way as well.
            Err(CallError::Closed | CallError::TimedOut) if !*is_sent => {
                self.call_over(call, IPPROTO_UDP, is_sent).await
            }
            other => other,
        }
    }

    async fn call_over(
        &self,
        call: &PeerCall,
        protocol: u32,
        is_sent: &mut bool,
    ) -> Result<Vec<u8>, CallError> {
        let key = PortKey { peer: call.peer, program: call.program, version: call.version, protocol };
        let port = self.port_of(key, call.from).await?;
        let outgoing = OutgoingCall {
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            auth: &Auth::None,
            args: &call.args,
        };
        let result = send(protocol, (call.from, (call.peer, port).into()), &outgoing, is_sent).await;
        if result.is_err() {
            self.known.lock().remove(&key);
        }
        result
    }

    async fn port_of(&self, key: PortKey, from: IpAddr) -> Result<u16, CallError> {
        let known = self.known.lock().get(&key).copied();
        if let Some((port, at)) = known
            && at.elapsed() < PORT_LIFE
        {
            return Ok(port);
        }
        let at = (key.peer, self.portmap_port).into();
        let port = if key.peer.is_ipv4() {
            get_port(key, (from, at)).await?
        } else {
            get_addr(key, (from, at)).await?
        };
        if port == 0 {
            return Err(CallError::Closed);
        }
        let mut known = self.known.lock();
        if known.len() >= NLM_PORTS_MAX {
            known.clear();
        }
        known.insert(key, (port, Instant::now()));
        Ok(port)
    }
}

/// Sends a call, once.
async fn send(
    protocol: u32,
    (from, to): (IpAddr, SocketAddr),
    call: &OutgoingCall<'_>,
    is_sent: &mut bool,
) -> Result<Vec<u8>, CallError> {
    if protocol == IPPROTO_UDP {
        *is_sent = true;
        return call_datagram(Some(from), to, call, DATAGRAM_ATTEMPT).await;
    }
    // Linux's lock manager hears a monitor of its own host from such a port only.
    let connected = if to.ip().is_loopback() {
        Caller::connect_reserved(from, to, ATTEMPT).await
    } else {
        Caller::connect_from(Some(from), to, ATTEMPT).await
    };
    let mut caller = connected.map_err(|_| CallError::Closed)?;
    *is_sent = true;
    caller.call(call, ATTEMPT).await
}

/// Asks what may be asked any number of times.
async fn ask(
    protocol: u32,
    (from, to): (IpAddr, SocketAddr),
    call: &OutgoingCall<'_>,
) -> Result<Vec<u8>, CallError> {
    match protocol {
        IPPROTO_UDP => call_datagram(Some(from), to, call, ATTEMPT).await,
        _ => call_once_from(Some(from), to, call, ATTEMPT).await,
    }
}

/// Asks a port mapper over UDP, and over TCP when it does not answer.
async fn ask_portmap(
    way: (IpAddr, SocketAddr),
    version: u32,
    procedure: u32,
    args: &[u8],
) -> Result<Vec<u8>, CallError> {
    let call = OutgoingCall { program: PMAP_PROGRAM, version, procedure, auth: &Auth::None, args };
    match ask(IPPROTO_TCP, way, &call).await {
        Err(CallError::Closed | CallError::TimedOut) => ask(IPPROTO_UDP, way, &call).await,
        other => other,
    }
}

async fn get_port(key: PortKey, way: (IpAddr, SocketAddr)) -> Result<u16, CallError> {
    let args = to_bytes(&Mapping { prog: key.program, vers: key.version, prot: key.protocol, port: 0 });
    let results = ask_portmap(way, PMAP_V2, PMAPPROC_GETPORT, &args).await?;
    let port = from_bytes::<u32>(&results).map_err(|_| CallError::Garbled)?;
    u16::try_from(port).map_err(|_| CallError::Garbled)
}

async fn get_addr(key: PortKey, way: (IpAddr, SocketAddr)) -> Result<u16, CallError> {
    let netid: &[u8] = if key.protocol == IPPROTO_UDP { b"udp6" } else { b"tcp6" };
    let addr = universal((key.peer, 0).into());
    let asked = Rpcb { prog: key.program, vers: key.version, netid, addr: addr.as_bytes(), owner: b"" };
    let results = ask_portmap(way, RPCB_V4, RPCBPROC_GETADDR, &to_bytes(&asked)).await?;
    let UniversalAddress(found) = from_bytes(&results).map_err(|_| CallError::Garbled)?;
    let found = std::str::from_utf8(found).map_err(|_| CallError::Garbled)?;
    Ok(parse_universal(found).map_or(0, |address| address.port()))
}
