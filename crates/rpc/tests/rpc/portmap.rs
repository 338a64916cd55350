//! The port mapper.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_rpc::detached::Detached;
use holdfast_rpc::portmap::{Entry, Portmap, Transport};
use holdfast_rpc::{Auth, Limits, OutgoingCall};
use holdfast_wire::portmap::*;
use holdfast_xdr::{Encode, from_bytes, to_bytes};

const NFS: u32 = 100_003;
const NSM: u32 = 100_024;

fn entry(program: u32, version: u32, transport: Transport, address: &str) -> Entry {
    Entry { program, version, transport, address: address.parse().unwrap() }
}

struct Asker(Detached);

impl Asker {
    /// Somebody who calls from there. The server is reached at 127.0.0.1.
    fn from(&self, peer: &str) -> Self {
        Self(self.0.another(peer.parse().unwrap()))
    }

    /// The results; `None` when there is no answer, or one of failure.
    fn ask(&mut self, version: u32, procedure: u32, args: &impl Encode) -> Option<Vec<u8>> {
        let args = to_bytes(args);
        let call = OutgoingCall { program: PMAP_PROGRAM, version, procedure, auth: &Auth::None, args: &args };
        let replies = self.0.call(1, &call);
        replies.first().and_then(|reply| Detached::results(reply)).map(<[u8]>::to_vec)
    }

    fn is_done(&mut self, version: u32, procedure: u32, args: &impl Encode) -> bool {
        from_bytes(&self.ask(version, procedure, args).unwrap()).unwrap()
    }

    fn port(&mut self, prog: u32, vers: u32, prot: u32) -> u32 {
        let results = self.ask(PMAP_V2, PMAPPROC_GETPORT, &Mapping { prog, vers, prot, port: 0 });
        from_bytes(&results.unwrap()).unwrap()
    }

    fn address(&mut self, version: u32, procedure: u32, (prog, vers, netid): (u32, u32, &[u8])) -> String {
        let asked = Rpcb { prog, vers, netid, addr: b"", owner: b"" };
        let results = self.ask(version, procedure, &asked).unwrap();
        String::from_utf8(from_bytes::<UniversalAddress<'_>>(&results).unwrap().0.to_vec()).unwrap()
    }
}

fn portmap() -> Asker {
    let own = vec![
        entry(NFS, 3, Transport::Tcp, "0.0.0.0:2049"),
        entry(NFS, 4, Transport::Tcp, "0.0.0.0:2049"),
        entry(NFS, 3, Transport::Tcp, "[::]:2049"),
        entry(NSM, 1, Transport::Udp, "192.0.2.1:2050"),
    ];
    Asker(Detached::new(vec![Portmap::new(own)], Limits::default()).unwrap())
}

#[test]
fn version_2_tells_ports_by_program_version_and_protocol() {
    let mut asker = portmap();
    assert_eq!(asker.port(NFS, 3, IPPROTO_TCP), 2049);
    assert_eq!(asker.port(NFS, 3, IPPROTO_UDP), 0);
    assert_eq!(asker.port(NSM, 1, IPPROTO_UDP), 2050);
    assert_eq!(asker.port(NFS, 2, IPPROTO_TCP), 2049, "the program tells which versions it has");
    assert_eq!(asker.port(100_099, 1, IPPROTO_TCP), 0);
    let list: MappingList = from_bytes(&asker.ask(PMAP_V2, PMAPPROC_DUMP, &()).unwrap()).unwrap();
    let ports: Vec<_> = list.mappings.iter().map(|m| (m.prog, m.vers, m.prot, m.port)).collect();
    assert_eq!(ports, [(NFS, 3, 6, 2049), (NFS, 4, 6, 2049), (NSM, 1, 17, 2050)], "no IPv6");
}

#[test]
fn versions_3_and_4_tell_addresses_as_the_asker_reaches_them() {
    let mut asker = portmap();
    for version in [RPCB_V3, RPCB_V4] {
        assert_eq!(asker.address(version, RPCBPROC_GETADDR, (NFS, 3, b"tcp")), "127.0.0.1.8.1");
        assert_eq!(asker.address(version, RPCBPROC_GETADDR, (NFS, 3, b"")), "127.0.0.1.8.1", "as he asks");
        assert_eq!(asker.address(version, RPCBPROC_GETADDR, (NFS, 3, b"tcp6")), "::.8.1");
        assert_eq!(asker.address(version, RPCBPROC_GETADDR, (NSM, 1, b"udp")), "192.0.2.1.8.2");
        assert_eq!(asker.address(version, RPCBPROC_GETADDR, (NSM, 1, b"tcp")), "");
        let list = asker.ask(version, RPCBPROC_DUMP, &()).unwrap();
        let list: RpcbList<'_> = from_bytes(&list).unwrap();
        assert_eq!((list.entries.len(), list.entries[2].netid), (4, &b"tcp6"[..]));
    }
    assert_eq!(asker.address(RPCB_V4, RPCBPROC_GETADDR, (NFS, 2, b"tcp")), "127.0.0.1.8.1");
    assert_eq!(asker.address(RPCB_V4, RPCBPROC_GETVERSADDR, (NFS, 2, b"tcp")), "", "exactly that version");
    let asked = Rpcb { prog: NFS, vers: 3, netid: b"", addr: b"", owner: b"" };
    let list = asker.ask(RPCB_V4, RPCBPROC_GETADDRLIST, &asked).unwrap();
    let list: RpcbEntryList<'_> = from_bytes(&list).unwrap();
    let ways: Vec<_> = list.entries.iter().map(|e| (e.netid, e.protofmly, e.semantics)).collect();
    assert_eq!(ways, [(&b"tcp"[..], &b"inet"[..], 3), (b"tcp6", b"inet6", 3)]);
    assert_eq!(asker.ask(RPCB_V3, RPCBPROC_GETVERSADDR, &asked), None, "version 4 has it");
}

#[test]
fn the_superuser_of_this_host_registers_and_nobody_else() {
    let mut asker = portmap();
    let mapping = Mapping { prog: 100_099, vers: 1, prot: IPPROTO_UDP, port: 700 };
    for stranger in ["192.0.2.1:700", "127.0.0.1:1024", "[2001:db8::1]:700"] {
        let mut stranger = asker.from(stranger);
        assert!(!stranger.is_done(PMAP_V2, PMAPPROC_SET, &mapping));
        let rpcb = Rpcb { prog: 100_099, vers: 1, netid: b"udp", addr: b"0.0.0.0.2.188", owner: b"" };
        assert!(!stranger.is_done(RPCB_V4, RPCBPROC_SET, &rpcb));
    }
    assert_eq!(asker.port(100_099, 1, IPPROTO_UDP), 0);
    let mut local = asker.from("127.0.0.1:700");
    assert!(local.is_done(PMAP_V2, PMAPPROC_SET, &mapping));
    assert!(local.is_done(PMAP_V2, PMAPPROC_SET, &mapping), "once more the same");
    assert!(!local.is_done(PMAP_V2, PMAPPROC_SET, &Mapping { port: 701, ..mapping }), "it is taken");
    assert_eq!(asker.port(100_099, 1, IPPROTO_UDP), 700);
    assert!(!asker.from("192.0.2.1:700").is_done(PMAP_V2, PMAPPROC_UNSET, &mapping));
    assert!(local.is_done(PMAP_V2, PMAPPROC_UNSET, &mapping));
    assert!(!local.is_done(PMAP_V2, PMAPPROC_UNSET, &mapping), "there is none any more");
    assert_eq!(asker.port(100_099, 1, IPPROTO_UDP), 0);
}

#[test]
fn what_is_ours_is_neither_replaced_nor_taken_back() {
    let asker = portmap();
    let mut local = asker.from("127.0.0.1:700");
    let nfs = Mapping { prog: NFS, vers: 3, prot: IPPROTO_TCP, port: 999 };
    assert!(!local.is_done(PMAP_V2, PMAPPROC_SET, &nfs));
    assert!(!local.is_done(PMAP_V2, PMAPPROC_UNSET, &nfs));
    assert_eq!(local.port(NFS, 3, IPPROTO_TCP), 2049);
}

#[test]
fn registrations_are_bounded() {
    let asker = portmap();
    let mut local = asker.from("127.0.0.1:700");
    let set = |local: &mut Asker, prog: u32| {
        local.is_done(PMAP_V2, PMAPPROC_SET, &Mapping { prog, vers: 1, prot: IPPROTO_TCP, port: 9 })
    };
    let taken = (0..1000).filter(|n| set(&mut local, 200_000 + n)).count();
    assert_eq!(taken, holdfast_base::limits::PORTMAP_ENTRIES_MAX);
}

#[test]
fn calls_are_not_passed_on_to_other_programs() {
    let mut asker = portmap();
    let callit = Mapping { prog: NFS, vers: 3, prot: 0, port: 0 };
    for version in [PMAP_V2, RPCB_V3, RPCB_V4] {
        assert_eq!(asker.ask(version, PMAPPROC_CALLIT, &callit), None);
    }
}

#[test]
fn lists_are_not_for_datagrams_from_elsewhere() {
    // Over a real socket, as only those are datagrams; this host may have them.
    let program: Arc<dyn holdfast_rpc::Program> =
        Portmap::new(vec![entry(NFS, 3, Transport::Tcp, "0.0.0.0:2049")]);
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let socket = holdfast_rpc::datagram::bind(any).unwrap();
    let server = holdfast_rpc::DatagramServer::start(vec![socket], &[program]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = OutgoingCall {
        program: PMAP_PROGRAM,
        version: PMAP_V2,
        procedure: PMAPPROC_DUMP,
        auth: &Auth::None,
        args: &[],
    };
    let patience = std::time::Duration::from_secs(5);
    let list =
        runtime.block_on(holdfast_rpc::client::call_datagram(None, server.addresses()[0], &call, patience));
    assert_eq!(from_bytes::<MappingList>(&list.unwrap()).unwrap().mappings.len(), 1);
}
