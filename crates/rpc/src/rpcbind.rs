//! Telling a local rpcbind where our programs listen, for clients that ask port 111. Optional in every respect:
//! stock clients are told the port at mount, and failing to register is the caller's to warn about.
//!
//! The local socket speaks rpcbind version 4 (RFC 1833 section 2.1) and proves who we are; where there is none,
//! the port mapper of version 2 on 127.0.0.1 is asked, which knows IPv4 only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use holdfast_wire::portmap::{self as wire, MappingList, Rpcb, RpcbList};
use holdfast_xdr::{Encode, Reader, from_bytes, to_bytes};

use crate::auth::Auth;
use crate::callback::{CallError, OutgoingCall};
use crate::client::{Caller, call_datagram, call_once};
use crate::portmap::Transport;

/// Where rpcbind listens locally.
const LOCAL_SOCKET: &str = "/run/rpcbind.sock";
const PORTMAP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), wire::PMAP_PORT);

/// For all calls of one registration together: the server's start waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// For asking a program that stands where we want to, whether it lives.
const PROBE: Duration = Duration::from_millis(300);

/// A program version at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Over what.
    pub transport: Transport,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Why a registration failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// No rpcbind answers here.
    #[error("no rpcbind answers: {0}")]
    NoAnswer(CallError),
    /// It does not want this: we are not root.
    #[error("rpcbind refuses {0:?}")]
    Refused(Mapping),
}

/// Registers all mappings, but for those whose place another program has that lives: they are returned.
///
/// # Errors
/// [`RegisterError`]; what was registered before is then taken back.
pub async fn register(mappings: &[Mapping]) -> Result<Vec<Mapping>, RegisterError> {
    within(register_at(Path::new(LOCAL_SOCKET), PORTMAP, mappings)).await
}

/// Takes back those of the mappings that are ours.
///
/// # Errors
/// [`RegisterError::NoAnswer`]; that a mapping was not there is none.
pub async fn unregister(mappings: &[Mapping]) -> Result<(), RegisterError> {
    within(unregister_at(Path::new(LOCAL_SOCKET), PORTMAP, mappings)).await
}

async fn within<T>(work: impl Future<Output = Result<T, RegisterError>> + Send) -> Result<T, RegisterError> {
    let late = Err(RegisterError::NoAnswer(CallError::TimedOut));
    tokio::time::timeout(PATIENCE, work).await.unwrap_or(late)
}

async fn register_at(
    socket: &Path,
    portmap: SocketAddr,
    mappings: &[Mapping],
) -> Result<Vec<Mapping>, RegisterError> {
    let mut binder = Binder::connect(socket, portmap).await?;
    let present = binder.present().await?;
    let mut taken = Vec::new();
    let mut set = Vec::new();
    for mapping in mappings {
        match mapping.stands_in(&present) {
            Stands::Ours => continue,
            Stands::Nobodys => {}
            Stands::Anothers(at) if lives(mapping, at).await => {
                taken.push(*mapping);
                continue;
            }
            Stands::Anothers(_) => {
                binder.ask(wire::PMAPPROC_UNSET, mapping).await?;
            }
        }
        if !binder.ask(wire::PMAPPROC_SET, mapping).await? {
            for mapping in &set {
                binder.ask(wire::PMAPPROC_UNSET, mapping).await?;
            }
            return Err(RegisterError::Refused(*mapping));
        }
        set.push(*mapping);
    }
    Ok(taken)
}

async fn unregister_at(
    socket: &Path,
    portmap: SocketAddr,
    mappings: &[Mapping],
) -> Result<(), RegisterError> {
    let mut binder = Binder::connect(socket, portmap).await?;
    let present = binder.present().await?;
    for mapping in mappings.iter().filter(|m| m.stands_in(&present) == Stands::Ours) {
        binder.ask(wire::PMAPPROC_UNSET, mapping).await?;
    }
    Ok(())
}

/// Whether a program answers at a port of this host.
async fn lives(mapping: &Mapping, port: u16) -> bool {
    let ip: IpAddr = if mapping.address.is_ipv4() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        std::net::Ipv6Addr::LOCALHOST.into()
    };
    let (program, version) = (mapping.program, mapping.version);
    let null = OutgoingCall { program, version, procedure: 0, auth: &Auth::None, args: &[] };
    let answer = match mapping.transport {
        Transport::Tcp => call_once((ip, port).into(), &null, PROBE).await,
        Transport::Udp => call_datagram(None, (ip, port).into(), &null, PROBE).await,
    };
    // Slow is alive.
    !matches!(answer, Err(CallError::Closed))
}

/// A registration as rpcbind lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Present {
    program: u32,
    version: u32,
    netid: String,
    port: u16,
}

/// Who stands in a mapping's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Nobodys,
    Ours,
    /// Somebody at this port.
    Anothers(u16),
}

impl Mapping {
    const fn netid(&self) -> &'static str {
        match (self.transport, self.address.is_ipv6()) {
            (Transport::Tcp, false) => "tcp",
            (Transport::Udp, false) => "udp",
            (Transport::Tcp, true) => "tcp6",
            (Transport::Udp, true) => "udp6",
        }
    }

    fn stands_in(&self, present: &[Present]) -> Stands {
        let is_it = |p: &&Present| {
            (p.program, p.version, p.netid.as_str()) == (self.program, self.version, self.netid())
        };
        match present.iter().find(is_it) {
            None => Stands::Nobodys,
            Some(p) if p.port == self.address.port() => Stands::Ours,
            Some(p) => Stands::Anothers(p.port),
        }
    }
}

struct Binder {
    caller: Caller,
    version: u32,
}

impl Binder {
    async fn connect(socket: &Path, portmap: SocketAddr) -> Result<Self, RegisterError> {
        if let Ok(caller) = Caller::connect_local(socket, PATIENCE).await {
            return Ok(Self { caller, version: wire::RPCB_V4 });
        }
        let caller = Caller::connect(portmap, PATIENCE).await;
        let caller = caller.map_err(|_| RegisterError::NoAnswer(CallError::Closed))?;
        Ok(Self { caller, version: wire::PMAP_V2 })
    }

    async fn call(&mut self, procedure: u32, args: &[u8]) -> Result<Vec<u8>, RegisterError> {
        let version = self.version;
        let call = OutgoingCall { program: wire::PMAP_PROGRAM, version, procedure, auth: &Auth::None, args };
        self.caller.call(&call, PATIENCE).await.map_err(RegisterError::NoAnswer)
    }

    /// What is registered.
    async fn present(&mut self) -> Result<Vec<Present>, RegisterError> {
        let results = self.call(wire::PMAPPROC_DUMP, &[]).await?;
        let present = if self.version == wire::PMAP_V2 { of_portmap(&results) } else { of_rpcbind(&results) };
        present.ok_or(RegisterError::NoAnswer(CallError::Garbled))
    }

    /// Asks for SET or UNSET; whether it was done.
    async fn ask(&mut self, procedure: u32, mapping: &Mapping) -> Result<bool, RegisterError> {
        if self.version == wire::PMAP_V2 && mapping.address.is_ipv6() {
            return Ok(true);
        }
        let args = if self.version == wire::PMAP_V2 { portmap_args(mapping) } else { rpcbind_args(mapping) };
        let results = self.call(procedure, &args).await?;
        Ok(Reader::new(&results).u32() == Ok(1))
    }
}

fn of_portmap(results: &[u8]) -> Option<Vec<Present>> {
    let MappingList { mappings } = from_bytes(results).ok()?;
    let present = mappings.iter().filter_map(|m| {
        let netid = if m.prot == wire::IPPROTO_UDP { "udp" } else { "tcp" };
        let port = u16::try_from(m.port).ok()?;
        Some(Present { program: m.prog, version: m.vers, netid: netid.into(), port })
    });
    Some(present.collect())
}

fn of_rpcbind(results: &[u8]) -> Option<Vec<Present>> {
    let RpcbList { entries } = from_bytes(results).ok()?;
    let present = entries.iter().filter_map(|e| {
        // Local sockets have other addresses, and are none of ours.
        let address = parse_universal(std::str::from_utf8(e.addr).ok()?)?;
        let netid = String::from_utf8_lossy(e.netid).into_owned();
        Some(Present { program: e.prog, version: e.vers, netid, port: address.port() })
    });
    Some(present.collect())
}

/// `struct mapping` (RFC 1833 section 3.1).
fn portmap_args(mapping: &Mapping) -> Vec<u8> {
    let prot = if mapping.transport == Transport::Udp { wire::IPPROTO_UDP } else { wire::IPPROTO_TCP };
    let (prog, vers, port) = (mapping.program, mapping.version, u32::from(mapping.address.port()));
    to_bytes(&wire::Mapping { prog, vers, prot, port })
}

/// `struct rpcb` (RFC 1833 section 2.1).
fn rpcbind_args(mapping: &Mapping) -> Vec<u8> {
    let addr = universal(mapping.address);
    let mut w = holdfast_xdr::Writer::new();
    let (prog, vers, netid) = (mapping.program, mapping.version, mapping.netid().as_bytes());
    // rpcbind puts the socket's peer in the owner's place.
    Rpcb { prog, vers, netid, addr: addr.as_bytes(), owner: b"superuser" }.encode(&mut w);
    w.into_vec()
}

/// A universal address (RFC 5665 section 5.2.3): the address, then the port's two bytes.
#[must_use]
pub fn universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// The address that a universal address names.
#[must_use]
pub fn parse_universal(text: &str) -> Option<SocketAddr> {
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse().ok()?, port))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn universal_addresses_end_in_the_ports_bytes() {
        assert_eq!(universal("192.0.2.1:2049".parse().unwrap()), "192.0.2.1.8.1");
        assert_eq!(universal("[::]:20490".parse().unwrap()), "::.80.10");
        for address in ["192.0.2.1:2049", "[::]:20490", "[2001:db8::1]:111"] {
            let address = address.parse().unwrap();
            assert_eq!(parse_universal(&universal(address)), Some(address));
        }
        assert_eq!(parse_universal("192.0.2.1.8.256"), None);
    }

    #[test]
    fn what_is_no_universal_address_is_none() {
        for text in ["", ".", "..", "1.2", "192.0.2.1", "a.b.c.d.e.f"] {
            assert_eq!(parse_universal(text), None, "{text}");
        }
    }

    /// A port mapper (version 2) that lists `list`, answers SET and UNSET with `answer`, and tells what it was asked
    /// for once its client is gone.
    async fn portmap(listener: TcpListener, list: Vec<wire::Mapping>, answer: bool) -> Vec<u32> {
        let mut procedures = Vec::new();
        let (mut stream, _) = listener.accept().await.unwrap();
        loop {
            let mut header = [0; 4];
            if stream.read_exact(&mut header).await.is_err() {
                return procedures;
            }
            let mut call = vec![0; (u32::from_be_bytes(header) & 0x7fff_ffff) as usize];
            stream.read_exact(&mut call).await.unwrap();
            let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
            procedures.push(word(20));
            let mut reply = holdfast_xdr::Writer::new();
            crate::message::begin_reply(&mut reply, word(0));
            if word(20) == wire::PMAPPROC_DUMP {
                MappingList { mappings: list.clone() }.encode(&mut reply);
            } else {
                answer.encode(&mut reply);
            }
            crate::message::seal(&mut reply, 0);
            stream.write_all(reply.as_slice()).await.unwrap();
        }
    }

    const NFS: Mapping = Mapping {
        program: 100_003,
        version: 3,
        transport: Transport::Tcp,
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2049),
    };

    const fn listed(port: u32) -> wire::Mapping {
        wire::Mapping { prog: 100_003, vers: 3, prot: wire::IPPROTO_TCP, port }
    }

    /// What came of registering or unregistering NFS, and what was asked for.
    async fn tried(
        list: Vec<wire::Mapping>,
        answer: bool,
        is_set: bool,
    ) -> (Result<Vec<Mapping>, RegisterError>, Vec<u32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(portmap(listener, list, answer));
        let socket = Path::new("/nonexistent");
        let result = if is_set {
            register_at(socket, address, &[NFS]).await
        } else {
            unregister_at(socket, address, &[NFS]).await.map(|()| Vec::new())
        };
        (result, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_mapping_is_set_where_nobody_stands_and_left_where_we_stand() {
        let (dump, set) = (wire::PMAPPROC_DUMP, wire::PMAPPROC_SET);
        assert_eq!(tried(vec![], true, true).await, (Ok(vec![]), vec![dump, set]));
        assert_eq!(tried(vec![listed(2049)], true, true).await, (Ok(vec![]), vec![dump]));
    }

    #[tokio::test]
    async fn another_programs_place_is_taken_only_when_it_is_dead() {
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = live.local_addr().unwrap().port();
        let list = vec![listed(u32::from(port))];
        let taken = tried(list.clone(), true, true).await;
        assert_eq!(taken, (Ok(vec![NFS]), vec![wire::PMAPPROC_DUMP]));
        drop(live);
        let expected = vec![wire::PMAPPROC_DUMP, wire::PMAPPROC_UNSET, wire::PMAPPROC_SET];
        assert_eq!(tried(list, true, true).await, (Ok(vec![]), expected));
    }

    #[tokio::test]
    async fn what_another_registered_is_not_taken_back() {
        let (dump, unset) = (wire::PMAPPROC_DUMP, wire::PMAPPROC_UNSET);
        assert_eq!(tried(vec![listed(2049)], true, false).await, (Ok(vec![]), vec![dump, unset]));
        assert_eq!(tried(vec![listed(2050)], true, false).await, (Ok(vec![]), vec![dump]));
        assert_eq!(tried(vec![], true, false).await, (Ok(vec![]), vec![dump]));
    }

    #[tokio::test]
    async fn a_refusal_and_a_missing_rpcbind_are_told_apart() {
        assert_eq!(tried(vec![], false, true).await.0, Err(RegisterError::Refused(NFS)));
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let nobody = register_at(Path::new("/nonexistent"), nobody, &[NFS]).await;
        assert_eq!(nobody, Err(RegisterError::NoAnswer(CallError::Closed)));
    }
}
