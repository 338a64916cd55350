//! Calls of ours to clients: to their lock managers and status monitors, whose ports their own port mappers tell.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::limits::{NLM_CALLS_MAX, NLM_PORTS_MAX};
use holdfast_rpc::client::{call_datagram, call_once_from};
use holdfast_rpc::rpcbind::{parse_universal, universal};
use holdfast_rpc::{Auth, CallError, OutgoingCall};
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

/// Told the encoded results, or why there are none, once, on any thread; it must not wait.
pub type Answered = Box<dyn FnOnce(Result<Vec<u8>, CallError>) + Send>;

/// The way to clients' programs.
pub trait Peers: Send + Sync {
    /// Calls. Does not wait. Too many calls at once are answered with [`CallError::Busy`].
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
    under_way: AtomicUsize,
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
        let ports = Ports { portmap_port, known: Mutex::default(), under_way: AtomicUsize::new(0) };
        Self { runtime, ports: Arc::new(ports) }
    }
}

impl Peers for NetPeers {
    fn call(&self, call: PeerCall, answered: Answered) {
        let ports = Arc::clone(&self.ports);
        if ports.under_way.fetch_add(1, Ordering::Relaxed) >= NLM_CALLS_MAX {
            ports.under_way.fetch_sub(1, Ordering::Relaxed);
            return answered(Err(CallError::Busy));
        }
        self.runtime.spawn(async move {
            let result = tokio::time::timeout(PATIENCE, ports.call(&call)).await;
            ports.under_way.fetch_sub(1, Ordering::Relaxed);
            answered(result.unwrap_or(Err(CallError::TimedOut)));
        });
    }
}

impl std::fmt::Debug for NetPeers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetPeers").finish_non_exhaustive()
    }
}

impl Ports {
    async fn call(&self, call: &PeerCall) -> Result<Vec<u8>, CallError> {
        match self.call_over(call, IPPROTO_TCP).await {
            Err(CallError::Closed | CallError::TimedOut) => self.call_over(call, IPPROTO_UDP).await,
            other => other,
        }
    }

    async fn call_over(&self, call: &PeerCall, protocol: u32) -> Result<Vec<u8>, CallError> {
        let key = PortKey { peer: call.peer, program: call.program, version: call.version, protocol };
        let port = self.port_of(key, call.from).await?;
        let outgoing = OutgoingCall {
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            auth: &Auth::None,
            args: &call.args,
        };
        let result = ask(protocol, (call.from, (call.peer, port).into()), &outgoing).await;
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
