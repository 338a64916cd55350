//! Universal addresses (RFC 5665): where a client of 4.0 says it is to be called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use holdfast_wire::nfs4::NetAddr4;
use holdfast_xdr::{from_bytes, to_bytes};

/// Ports below are for services of hosts, not for clients: none is called there.
const CLIENT_PORT_MIN: u16 = 1024;

/// The address that is meant, when it is one of TCP.
fn parse(location: &NetAddr4<'_>) -> Option<SocketAddr> {
    let text = std::str::from_utf8(location.addr).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    let ip = match location.netid {
        b"tcp" => IpAddr::V4(host.parse::<Ipv4Addr>().ok()?),
        b"tcp6" => IpAddr::V6(host.parse::<Ipv6Addr>().ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The address in the form in which the state engine keeps it, when it may be called: the peer's own, unless others
/// may be too, and no port of a service. Else nothing: a server that connects to wherever it is told would be a tool
/// for reaching hosts that its clients cannot reach.
pub(crate) fn keep(location: &NetAddr4<'_>, peer: IpAddr, may_be_other: bool) -> Vec<u8> {
    let is_its_own = |at: &SocketAddr| at.ip().to_canonical() == peer.to_canonical();
    match parse(location) {
        Some(at) if at.port() >= CLIENT_PORT_MIN && (may_be_other || is_its_own(&at)) => to_bytes(location),
        _ => Vec::new(),
    }
}

/// What [`keep`] made.
pub(crate) fn kept(address: &[u8]) -> Option<SocketAddr> {
    from_bytes::<NetAddr4<'_>>(address).ok().and_then(|location| parse(&location))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(netid: &[u8], addr: &[u8], peer: &str, may_be_other: bool) -> Option<String> {
        let kept_as = keep(&NetAddr4 { netid, addr }, peer.parse().unwrap(), may_be_other);
        kept(&kept_as).map(|at| at.to_string())
    }

    #[test]
    fn the_peers_own_address_is_called_by_either_family() {
        let own = |netid: &[u8], addr: &[u8], peer| called(netid, addr, peer, false);
        assert_eq!(own(b"tcp", b"192.0.2.1.8.1", "192.0.2.1").as_deref(), Some("192.0.2.1:2049"));
        assert_eq!(own(b"tcp", b"192.0.2.1.8.1", "::ffff:192.0.2.1").as_deref(), Some("192.0.2.1:2049"));
        assert_eq!(
            own(b"tcp6", b"2001:db8::7.255.254", "2001:db8::7").as_deref(),
            Some("[2001:db8::7]:65534")
        );
    }

    #[test]
    fn somebody_else_is_called_only_where_that_is_allowed() {
        assert_eq!(called(b"tcp", b"192.0.2.2.8.1", "192.0.2.1", false), None);
        assert_eq!(called(b"tcp", b"192.0.2.2.8.1", "192.0.2.1", true).as_deref(), Some("192.0.2.2:2049"));
    }

    #[test]
    fn neither_services_nor_nonsense_are_called() {
        for (netid, addr) in [
            (&b"tcp"[..], &b"192.0.2.1.0.22"[..]),
            (b"udp", b"192.0.2.1.8.1"),
            (b"tcp", b"192.0.2.1"),
            (b"tcp", b"192.0.2.1.256.1"),
            (b"tcp", b"2001:db8::7.8.1"),
            (b"tcp6", b"::1.8"),
            (b"tcp", b"\xff.\xff"),
            (b"", b""),
        ] {
            assert_eq!(called(netid, addr, "192.0.2.1", true), None, "{netid:?} {addr:?}");
        }
    }
}
