//! The port mapper (RFC 1833: portmap version 2, rpcbind versions 3 and 4), for hosts on which no rpcbind runs:
//! clients of NFSv3 ask it for MOUNT, NLM and NSM, and no mount option takes its place for the latter two.
//!
//! It knows what it is given at the start, and what programs of this host register. Calls to third programs (CALLIT,
//! BCAST, INDIRECT) are never passed on.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_base::limits::PORTMAP_ENTRIES_MAX;
use holdfast_wire::portmap::{
    IPPROTO_TCP, IPPROTO_UDP, Mapping, MappingList, NC_TPI_CLTS, NC_TPI_COTS_ORD, PMAP_PROGRAM, PMAP_V2,
    PMAPPROC_CALLIT, PMAPPROC_DUMP, PMAPPROC_GETPORT, PMAPPROC_NULL, PMAPPROC_SET, PMAPPROC_UNSET, RPCB_V4,
    RPCBPROC_GETADDRLIST, RPCBPROC_GETTIME, RPCBPROC_GETVERSADDR, Rpcb, RpcbEntry, RpcbEntryList, RpcbList,
    UniversalAddress,
};
use holdfast_xdr::{Decode, Encode, Writer};
use parking_lot::Mutex;

use crate::connection::Connection;
use crate::rpcbind::{parse_universal, universal};
use crate::service::{Call, Outcome, Program};

/// A transport, without the address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    const fn protocol(self) -> u32 {
        match self {
            Self::Tcp => IPPROTO_TCP,
            Self::Udp => IPPROTO_UDP,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Where one version of a program is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Over what.
    pub transport: Transport,
    /// Where; an unspecified address stands for all of the host.
    pub address: SocketAddr,
}

impl Entry {
    const fn netid(&self) -> &'static str {
        match (self.transport, self.address.is_ipv6()) {
            (Transport::Tcp, false) => "tcp",
            (Transport::Udp, false) => "udp",
            (Transport::Tcp, true) => "tcp6",
            (Transport::Udp, true) => "udp6",
        }
    }

    fn is_of(&self, program: u32, version: u32, netid: &str) -> bool {
        self.program == program && self.version == version && self.netid() == netid
    }

    fn mapping(&self) -> Mapping {
        let (prog, vers, port) = (self.program, self.version, u32::from(self.address.port()));
        Mapping { prog, vers, prot: self.transport.protocol(), port }
    }

    /// Its address as the asker can use it: a wildcard is replaced by the address that he reached us by.
    fn reached_by(&self, reached: Option<IpAddr>) -> String {
        let ip = self.address.ip();
        let reached = reached.filter(|to| ip.is_unspecified() && to.is_ipv6() == ip.is_ipv6());
        universal(SocketAddr::new(reached.unwrap_or(ip), self.address.port()))
    }
}

/// The port mapper's program.
pub struct Portmap {
    own: Vec<Entry>,
    /// Of other programs on this host.
    registered: Mutex<Vec<Entry>>,
}

impl Portmap {
    /// A port mapper that knows these.
    #[must_use]
    pub fn new(own: Vec<Entry>) -> Arc<Self> {
        Arc::new(Self { own, registered: Mutex::default() })
    }

    fn all(&self) -> Vec<Entry> {
        let mut all = self.own.clone();
        all.extend(self.registered.lock().iter());
        all
    }

    /// The version asked for, or else any (RFC 1833 section 2.2.1): the program itself then tells which it has.
    fn find(&self, program: u32, version: u32, netid: &str, only_exact: bool) -> Option<Entry> {
        let all = self.all();
        let of_program = || all.iter().filter(|e| e.program == program && e.netid() == netid);
        let exact = of_program().find(|e| e.version == version);
        exact.or_else(|| if only_exact { None } else { of_program().next_back() }).copied()
    }

    /// Registers for a program of this host; false when somebody has it already.
    fn set(&self, entry: Entry) -> bool {
        let mut registered = self.registered.lock();
        let is_known = |e: &Entry| e.is_of(entry.program, entry.version, entry.netid());
        if self.own.iter().any(is_known) || entry.address.port() == 0 {
            return false;
        }
        if let Some(known) = registered.iter().find(|e| is_known(e)) {
            return *known == entry;
        }
        let has_room = registered.len() < PORTMAP_ENTRIES_MAX;
        if has_room {
            registered.push(entry);
        }
        has_room
    }

    /// Takes registrations back, never ours; whether there were any.
    fn unset(&self, is_meant: impl Fn(&Entry) -> bool) -> bool {
        let mut registered = self.registered.lock();
        let before = registered.len();
        registered.retain(|entry| !is_meant(entry));
        registered.len() < before
    }

    fn portmap(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        match call.procedure {
            PMAPPROC_DUMP => {
                // Version 2 knows no IPv6.
                let all = self.all();
                let mappings = all.iter().filter(|e| e.address.is_ipv4()).map(Entry::mapping).collect();
                MappingList { mappings }.encode(reply);
                return Outcome::Reply;
            }
            PMAPPROC_SET | PMAPPROC_UNSET | PMAPPROC_GETPORT => {}
            _ => return Outcome::NoProcedure,
        }
        let Ok(asked) = Mapping::decode(&mut call.args) else { return Outcome::Garbage };
        let transport = match asked.prot {
            IPPROTO_TCP => Some(Transport::Tcp),
            IPPROTO_UDP => Some(Transport::Udp),
            _ => None,
        };
        match call.procedure {
            PMAPPROC_GETPORT => {
                let found = transport.and_then(|t| self.find(asked.prog, asked.vers, t.name(), false));
                reply.u32(found.map_or(0, |entry| u32::from(entry.address.port())));
            }
            PMAPPROC_SET => {
                let entry = transport.zip(u16::try_from(asked.port).ok()).map(|(transport, port)| Entry {
                    program: asked.prog,
                    version: asked.vers,
                    transport,
                    address: ([0, 0, 0, 0], port).into(),
                });
                (may_register(call.connection) && entry.is_some_and(|entry| self.set(entry))).encode(reply);
            }
            _ => {
                let is_meant = |e: &Entry| e.program == asked.prog && e.version == asked.vers;
                (may_register(call.connection) && self.unset(is_meant)).encode(reply);
            }
        }
        Outcome::Reply
    }

    fn rpcbind(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        match call.procedure {
            PMAPPROC_DUMP => self.dump(call.connection, reply),
            RPCBPROC_GETTIME => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                // The protocol's time ends in 2106.
                reply.u32(since.as_secs() as u32);
            }
            PMAPPROC_SET | PMAPPROC_UNSET | PMAPPROC_GETPORT => return self.rpcb(call, reply),
            RPCBPROC_GETVERSADDR | RPCBPROC_GETADDRLIST if call.version == RPCB_V4 => {
                return self.rpcb(call, reply);
            }
            _ => return Outcome::NoProcedure,
        }
        Outcome::Reply
    }

    /// The procedures that take an `rpcb`. GETADDR has the number of version 2's GETPORT.
    fn rpcb(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let Ok(asked) = Rpcb::decode(&mut call.args) else { return Outcome::Garbage };
        let connection = call.connection;
        let netid = std::str::from_utf8(asked.netid).unwrap_or("?");
        let reached = reached_by(connection, &asked);
        match call.procedure {
            PMAPPROC_SET => {
                let is_set =
                    may_register(connection) && entry_of(&asked).is_some_and(|entry| self.set(entry));
                is_set.encode(reply);
            }
            PMAPPROC_UNSET => {
                let is_meant = |e: &Entry| {
                    e.program == asked.prog
                        && e.version == asked.vers
                        && (netid.is_empty() || e.netid() == netid)
                };
                (may_register(connection) && self.unset(is_meant)).encode(reply);
            }
            RPCBPROC_GETADDRLIST => self.list(&asked, reached, reply),
            procedure => {
                // Whoever names none means the transport he asks over.
                let own = own_netid(connection);
                let netid = if netid.is_empty() { own } else { netid };
                let only_exact = procedure == RPCBPROC_GETVERSADDR;
                let found = self.find(asked.prog, asked.vers, netid, only_exact);
                let address = found.map(|entry| entry.reached_by(reached)).unwrap_or_default();
                UniversalAddress(address.as_bytes()).encode(reply);
            }
        }
        Outcome::Reply
    }

    fn dump(&self, connection: &Connection, reply: &mut Writer) {
        let all = self.all();
        let reached = Some(connection.local().ip());
        let addresses: Vec<_> = all.iter().map(|entry| entry.reached_by(reached)).collect();
        let entries = all.iter().zip(&addresses).map(|(entry, address)| Rpcb {
            prog: entry.program,
            vers: entry.version,
            netid: entry.netid().as_bytes(),
            addr: address.as_bytes(),
            owner: b"superuser",
        });
        RpcbList { entries: entries.collect() }.encode(reply);
    }

    fn list(&self, asked: &Rpcb<'_>, reached: Option<IpAddr>, reply: &mut Writer) {
        let mut found = self.all();
        found.retain(|e| e.program == asked.prog && e.version == asked.vers);
        let addresses: Vec<_> = found.iter().map(|entry| entry.reached_by(reached)).collect();
        let entries = found.iter().zip(&addresses).map(|(entry, address)| RpcbEntry {
            maddr: address.as_bytes(),
            netid: entry.netid().as_bytes(),
            semantics: if entry.transport == Transport::Tcp { NC_TPI_COTS_ORD } else { NC_TPI_CLTS },
            protofmly: if entry.address.is_ipv6() { b"inet6" } else { b"inet" },
            proto: entry.transport.name().as_bytes(),
        });
        RpcbEntryList { entries: entries.collect() }.encode(reply);
    }
}

/// Programs of this host register, and only those of the superuser: a privileged port shows it, as rpcbind has it.
fn may_register(connection: &Connection) -> bool {
    connection.peer().ip().is_loopback() && connection.peer().port() < 1024
}

fn own_netid(connection: &Connection) -> &'static str {
    match (connection.is_datagram(), connection.peer().is_ipv6()) {
        (false, false) => "tcp",
        (true, false) => "udp",
        (false, true) => "tcp6",
        (true, true) => "udp6",
    }
}

/// The address of ours that the asker uses. A datagram does not show it; then the asker may have said it.
fn reached_by(connection: &Connection, asked: &Rpcb<'_>) -> Option<IpAddr> {
    let ip = connection.local().ip();
    if !ip.is_unspecified() {
        return Some(ip);
    }
    let said = std::str::from_utf8(asked.addr).ok().and_then(parse_universal)?.ip();
    (!said.is_unspecified()).then_some(said)
}

fn entry_of(asked: &Rpcb<'_>) -> Option<Entry> {
    let transport = match asked.netid {
        b"tcp" | b"tcp6" => Transport::Tcp,
        b"udp" | b"udp6" => Transport::Udp,
        _ => return None,
    };
    let address = std::str::from_utf8(asked.addr).ok().and_then(parse_universal)?;
    let entry = Entry { program: asked.prog, version: asked.vers, transport, address };
    (entry.netid().as_bytes() == asked.netid).then_some(entry)
}

impl Program for Portmap {
    fn number(&self) -> u32 {
        PMAP_PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (PMAP_V2, RPCB_V4)
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        match call.procedure {
            PMAPPROC_NULL => return Outcome::Reply,
            // RFC 1833 section 3.2: when it does not succeed nothing is answered.
            PMAPPROC_CALLIT => return Outcome::Silent,
            _ => {}
        }
        // Lists are much longer than what asks for them: not for whoever a datagram says it is.
        let is_list = call.procedure == PMAPPROC_DUMP || call.procedure == RPCBPROC_GETADDRLIST;
        if is_list && call.connection.is_datagram() && !call.connection.peer().ip().is_loopback() {
            return Outcome::Silent;
        }
        match call.version {
            PMAP_V2 => self.portmap(call, reply),
            _ => self.rpcbind(call, reply),
        }
    }
}

impl std::fmt::Debug for Portmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Portmap").field("own", &self.own).finish_non_exhaustive()
    }
}
