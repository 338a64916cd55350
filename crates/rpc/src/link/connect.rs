//! Making the connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::congestion::unpace_towards;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

/// Ports that only the superuser gets and that no service is known by, as glibc's `bindresvport` has them.
const RESERVED_PORTS: std::ops::RangeInclusive<u16> = 600..=1023;

/// How a link is made.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// How long connecting may take.
    pub patience: Duration,
    /// How long what was sent may stay unacknowledged, and a silent connection may fail to answer the kernel's
    /// probes, before the link counts as broken.
    pub silence: Duration,
    /// From a port that only the superuser gets, where it can be had.
    pub reserved_port: bool,
}

impl Default for LinkOptions {
    fn default() -> Self {
        let (patience, silence) = (Duration::from_secs(10), Duration::from_secs(30));
        Self { patience, silence, reserved_port: false }
    }
}

/// Connects.
pub(super) fn open(address: SocketAddr, options: &LinkOptions) -> io::Result<TcpStream> {
    let until = Instant::now() + options.patience;
    if options.reserved_port
        && let Some(socket) = open_reserved(address, options, until)?
    {
        return Ok(socket);
    }
    let socket = prepared(address, options)?;
    connect(&socket, address, until)?;
    Ok(socket.into())
}

fn connect(socket: &Socket, address: SocketAddr, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.connect_timeout(&SockAddr::from(address), left)
}

/// From a reserved port; nothing when there is none for us.
fn open_reserved(
    address: SocketAddr,
    options: &LinkOptions,
    until: Instant,
) -> io::Result<Option<TcpStream>> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    for port in RESERVED_PORTS.rev() {
        let socket = prepared(address, options)?;
        match socket.bind(&SockAddr::from(SocketAddr::new(any, port))) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => continue,
            Err(_) => return Ok(None),
        }
        match connect(&socket, address, until) {
            Ok(()) => return Ok(Some(socket.into())),
            // The pair of ports was used a moment ago.
            Err(e) if matches!(e.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

fn prepared(address: SocketAddr, options: &LinkOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    unpace_towards(&socket, address);
    // Without them a server whose host died is never noticed by who only waits.
    let interval = (options.silence / 6).max(Duration::from_secs(1));
    let probes = TcpKeepalive::new().with_time(options.silence / 2).with_interval(interval).with_retries(3);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(options.silence))?;
    Ok(socket)
}
