//! Congestion control of the sockets: connections within this host are not paced.
//!
//! BBR sends at the rate that it has measured, by a timer. Within a host there is no queue that it could spare, and a
//! timer for each 64 KiB costs client and server more than the data does (`docs/design/hot-path.md`). Whether a
//! connection is paced is settled when it is established, before it is accepted, and cannot be taken back; it can begin
//! later. So the listener goes without, and connections of other hosts get the system's choice once they are accepted.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// One algorithm that paces, and what stands for it within a host.
#[derive(Clone, Copy, Debug)]
struct Names {
    paced: &'static [u8],
    unpaced: &'static [u8],
}

/// Of those in the kernel only BBR paces. Reno is in every kernel, and every user may choose it; what it does after a
/// loss does not matter where nothing is lost.
const NAMES: Names = Names { paced: b"bbr", unpaced: b"reno" };

/// What a listener's connections get.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacing {
    /// The system's choice, to be made for connections of other hosts; nothing when all keep the listener's.
    of_other_hosts: Option<&'static [u8]>,
}

impl Pacing {
    /// Has the listener's connections go unpaced until [`Pacing::settle`]. Another algorithm than the system's was
    /// chosen for the listener, and stays. (Reno may be a predecessor's doing, so it counts as the system's.)
    pub(crate) fn begin(listener: impl AsFd) -> Self {
        let system = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
        match system.and_then(|socket| in_use(&socket)) {
            Ok(system) => Self::begin_with(NAMES, listener, &system),
            Err(_) => Self::default(),
        }
    }

    fn begin_with(names: Names, listener: impl AsFd, system: &[u8]) -> Self {
        if system != names.paced {
            return Self::default();
        }
        let socket = SockRef::from(&listener);
        match in_use(&socket) {
            Ok(own) if own == names.paced && socket.set_tcp_congestion(names.unpaced).is_ok() => {}
            Ok(own) if own == names.unpaced => {}
            _ => return Self::default(),
        }
        Self { of_other_hosts: Some(names.paced) }
    }

    /// Makes the system's choice for a connection of another host.
    pub(crate) fn settle(self, stream: impl AsFd, local: SocketAddr, peer: SocketAddr) {
        let Some(name) = self.of_other_hosts else { return };
        if is_this_host(local, peer) {
            return;
        }
        if let Err(error) = SockRef::from(&stream).set_tcp_congestion(name) {
            // A route may have an algorithm of its own, which is then in use.
            tracing::debug!(%peer, %error, "a connection keeps its congestion control");
        }
    }
}

/// Has a connection that is about to be made to this host go unpaced. Errors leave it as it is.
pub(crate) fn unpace_towards(socket: &Socket, address: SocketAddr) {
    if address.ip().to_canonical().is_loopback() && in_use(socket).is_ok_and(|own| own == NAMES.paced) {
        let _ = socket.set_tcp_congestion(NAMES.unpaced);
    }
}

fn is_this_host(local: SocketAddr, peer: SocketAddr) -> bool {
    let [local, peer]: [IpAddr; 2] = [local, peer].map(|end| end.ip().to_canonical());
    peer.is_loopback() || peer == local
}

/// The algorithm's name, without the zeros that the kernel fills up with.
fn in_use(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut name = socket.tcp_congestion()?;
    name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    /// What every kernel has; which of them paces does not matter for who gets what.
    const STAND_IN: Names = Names { paced: b"cubic", unpaced: b"reno" };

    fn listener(algorithm: &[u8]) -> TcpListener {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        SockRef::from(&listener).set_tcp_congestion(algorithm).unwrap();
        listener
    }

    fn of(socket: &impl AsFd) -> Vec<u8> {
        in_use(&SockRef::from(socket)).unwrap()
    }

    #[test]
    fn connections_of_this_host_go_without_and_others_get_the_systems_choice() {
        let listener = listener(b"cubic");
        let pacing = Pacing::begin_with(STAND_IN, &listener, b"cubic");
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        let local = stream.local_addr().unwrap();
        pacing.settle(&stream, local, peer);
        assert_eq!(of(&stream), b"reno");
        pacing.settle(&stream, local, "192.0.2.1:700".parse().unwrap());
        assert_eq!(of(&stream), b"cubic");
        // A successor finds the listener as it was left.
        assert!(Pacing::begin_with(STAND_IN, &listener, b"cubic").of_other_hosts.is_some());
    }

    #[test]
    fn what_paces_nothing_and_what_was_chosen_for_the_listener_stay() {
        let unpaced_system = listener(b"cubic");
        assert!(Pacing::begin_with(NAMES, &unpaced_system, b"cubic").of_other_hosts.is_none());
        assert_eq!(of(&unpaced_system), b"cubic");
        let chosen = listener(b"cubic");
        let names = Names { paced: b"something else", unpaced: b"reno" };
        assert!(Pacing::begin_with(names, &chosen, b"something else").of_other_hosts.is_none());
        assert_eq!(of(&chosen), b"cubic");
    }

    #[test]
    fn this_host_is_loopback_and_an_address_that_calls_itself() {
        let is = |local: &str, peer: &str| is_this_host(local.parse().unwrap(), peer.parse().unwrap());
        assert!(is("127.0.0.1:2049", "127.0.0.1:700") && is("[::1]:2049", "[::1]:700"));
        assert!(is("[::ffff:127.0.0.1]:2049", "[::ffff:127.0.0.1]:700"));
        assert!(is("192.0.2.1:2049", "192.0.2.1:700"));
        assert!(!is("192.0.2.1:2049", "192.0.2.2:700") && !is("[2001:db8::1]:2049", "[2001:db8::2]:700"));
    }
}
