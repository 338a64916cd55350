//! Locks of NFSv3, wired: the lock manager and status monitor, their sockets, and who tells clients where to find
//! them: a rpcbind of this host, or where there is none a port mapper of our own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_export::{GroupSource, Namespace};
use holdfast_manager::Manager;
use holdfast_nlm::{Lockd, NetPeers, Nlm4, Nsm, Parts, Start};
use holdfast_rpc::datagram::{self, DatagramServer};
use holdfast_rpc::portmap::{Entry, Portmap, Transport};
use holdfast_rpc::reply_cache::ReplyCache;
use holdfast_rpc::rpcbind::{self, Mapping, RegisterError};
use holdfast_rpc::{Limits, Program, Server};
use holdfast_store::Store;

use crate::config::Config;

/// Where port mappers listen.
const PORTMAP_PORT: u16 = 111;

/// Programs and versions over TCP that clients are told of.
const TCP_VERSIONS: [(u32, u32); 5] = [(100_003, 3), (100_003, 4), (100_005, 3), (100_021, 4), (100_024, 1)];

/// Those over UDP: clients' `sm-notify` prefers it.
const UDP_VERSIONS: [(u32, u32); 1] = [(100_024, 1)];

/// What the lock manager stands on.
pub(crate) struct Foundation<'a> {
    pub(crate) namespace: &'a Arc<Namespace>,
    pub(crate) manager: &'a Arc<Manager>,
    pub(crate) groups: &'a Arc<dyn GroupSource>,
    pub(crate) replies: &'a Arc<ReplyCache>,
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) epoch: u64,
    pub(crate) start: Start,
}

/// The lock manager; it works from [`announce`] on. To be called inside the runtime that calls to clients shall run on.
///
/// # Errors
/// When the records of hosts with locks cannot be read.
pub(crate) fn start(on: &Foundation<'_>) -> Result<Arc<Lockd>> {
    Lockd::new(Parts {
        namespace: Arc::clone(on.namespace),
        manager: Arc::clone(on.manager),
        groups: Arc::clone(on.groups),
        replies: Arc::clone(on.replies),
        store: Arc::clone(on.store),
        peers: Arc::new(NetPeers::new(tokio::runtime::Handle::current())),
        name: rustix::system::uname().nodename().to_bytes().to_vec(),
        epoch: on.epoch,
        start: on.start,
    })
    .context("records of hosts with NFSv3 locks")
}

/// The programs of the lock manager.
pub(crate) fn programs(lockd: &Arc<Lockd>) -> [Arc<dyn Program>; 2] {
    [Arc::new(Nlm4(Arc::clone(lockd))), Arc::new(Nsm(Arc::clone(lockd)))]
}

/// How clients find the programs. Dropped, the sockets close; [`Announced::withdraw`] besides tells rpcbind.
#[derive(Default)]
pub(crate) struct Announced {
    mappings: Vec<Mapping>,
    _datagrams: Option<DatagramServer>,
    portmap: Option<(Server, DatagramServer)>,
}

impl Announced {
    /// Takes back what rpcbind was told, and ends our own port mapper.
    pub(crate) async fn withdraw(self) {
        if !self.mappings.is_empty() {
            // That rpcbind went away meanwhile is no reason to complain at the end.
            let _ = rpcbind::unregister(&self.mappings).await;
        }
        if let Some((server, _)) = self.portmap {
            server.shutdown(std::time::Duration::ZERO).await;
        }
    }
}

/// Listens on UDP beside `addresses`, where NFS is served over TCP, and sees to it that clients find all of it. What
/// does not succeed is a warning.
pub(crate) async fn announce(config: &Config, addresses: &[SocketAddr], lockd: &Arc<Lockd>) -> Announced {
    // Not before there is a server to reclaim from: clients hear of the restart now.
    if let Err(error) = lockd.start_worker() {
        tracing::error!(%error, "no thread for NFSv3's locks: nobody who waits for one is granted it");
    }
    let datagrams = listen_udp(addresses, lockd);
    let udp: &[SocketAddr] = datagrams.as_ref().map(DatagramServer::addresses).unwrap_or_default();
    let mappings: Vec<Mapping> = mappings(Transport::Tcp, addresses, &TCP_VERSIONS)
        .chain(mappings(Transport::Udp, udp, &UDP_VERSIONS))
        .collect();
    if config.rpcbind == Some(false) {
        return Announced { _datagrams: datagrams, ..Announced::default() };
    }
    match rpcbind::register(&mappings).await {
        Ok(taken) => {
            for Mapping { program, version, transport, .. } in &taken {
                tracing::warn!(
                    program,
                    version,
                    ?transport,
                    "rpcbind has another program of this host in its place: clients of NFSv3 will find that one (a \
                     rpc.statd, or the lock manager of this host's own NFS mounts, is in the way of locks)"
                );
            }
            let mappings = mappings.into_iter().filter(|m| !taken.contains(m)).collect();
            Announced { mappings, _datagrams: datagrams, portmap: None }
        }
        Err(RegisterError::NoAnswer(_)) => {
            let portmap = serve_portmap(&mappings).inspect_err(|error| {
                tracing::warn!(
                    "no rpcbind runs, and port {PORTMAP_PORT} cannot be listened on ({error}): clients of NFSv3 \
                     name NFS's port themselves, and cannot lock (mount with nolock)"
                );
            });
            Announced { mappings: Vec::new(), _datagrams: datagrams, portmap: portmap.ok() }
        }
        Err(error) => {
            tracing::warn!(
                "not registered with rpcbind ({error}): clients of NFSv3 name the port themselves, and cannot lock \
                 (mount with nolock)"
            );
            Announced { _datagrams: datagrams, ..Announced::default() }
        }
    }
}

fn mappings<'a>(
    transport: Transport,
    addresses: &'a [SocketAddr],
    versions: &'a [(u32, u32)],
) -> impl Iterator<Item = Mapping> + 'a {
    let at = move |&address: &SocketAddr| {
        versions.iter().map(move |&(program, version)| Mapping { program, version, transport, address })
    };
    addresses.iter().flat_map(at)
}

/// NSM over UDP, on the ports that NFS has over TCP.
fn listen_udp(addresses: &[SocketAddr], lockd: &Arc<Lockd>) -> Option<DatagramServer> {
    let programs: [Arc<dyn Program>; 1] = [Arc::new(Nsm(Arc::clone(lockd)))];
    let sockets: io::Result<Vec<_>> = addresses.iter().map(|&address| datagram::bind(address)).collect();
    let server = sockets.and_then(|sockets| DatagramServer::start(sockets, &programs));
    server
        .inspect_err(|error| {
            tracing::warn!("not listening on UDP ({error}): clients' restarts are heard of by TCP alone");
        })
        .ok()
}

/// A port mapper of our own, on both transports.
fn serve_portmap(mappings: &[Mapping]) -> io::Result<(Server, DatagramServer)> {
    let own = |m: &Mapping| {
        let &Mapping { program, version, transport, address } = m;
        Entry { program, version, transport, address }
    };
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let mut tcp = Vec::new();
    let mut udp = Vec::new();
    for ip in any {
        let address = SocketAddr::new(ip, PORTMAP_PORT);
        match holdfast_rpc::server::listen(address).and_then(|l| Ok((l, datagram::bind(address)?))) {
            Ok((listener, socket)) => {
                tcp.push(listener);
                udp.push(socket);
            }
            // A host without IPv6.
            Err(error) if ip.is_ipv6() => tracing::debug!(%error, "the port mapper listens on IPv4 only"),
            Err(error) => return Err(error),
        }
    }
    let entries = mappings.iter().map(own).chain(itself(&any));
    let programs: Vec<Arc<dyn Program>> = vec![Portmap::new(entries.collect())];
    // Its calls never wait.
    let limits =
        Limits { pool_threads: 1, connections: 256, connections_per_address: 64, ..Limits::default() };
    let datagrams = DatagramServer::start(udp, &programs)?;
    Ok((Server::start(tcp, programs, limits)?, datagrams))
}

fn itself(any: &[IpAddr]) -> impl Iterator<Item = Entry> + '_ {
    let of = |ip: &IpAddr| {
        let address = SocketAddr::new(*ip, PORTMAP_PORT);
        let versions = (2..=4).flat_map(|version| [(version, Transport::Tcp), (version, Transport::Udp)]);
        versions.map(move |(version, transport)| Entry { program: 100_000, version, transport, address })
    };
    any.iter().flat_map(of)
}
