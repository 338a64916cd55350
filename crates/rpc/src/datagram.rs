//! Programs over UDP: for the port mapper and NSM, whose callers insist on it. A thread a socket, one call after the
//! other. Calls and replies are small, and an address gets so many answers a second and no more: whoever writes
//! another's address on his datagrams gains nothing by us.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_base::limits::{
    DATAGRAM_CALL_BYTES_MAX, DATAGRAM_REPLY_BYTES_MAX, DATAGRAM_SOURCES_MAX, DATAGRAMS_PER_SOURCE_SECOND_MAX,
};
use holdfast_xdr::Writer;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::auth::AuthCache;
use crate::connection::Connection;
use crate::dispatch::{self, Core};
use crate::pool::Pool;
use crate::record::Record;
use crate::server::{Limits, site_of};
use crate::service::Program;

/// A UDP socket on `address`. `[::]` takes IPv6 only, so that `0.0.0.0` may be bound beside it.
///
/// # Errors
/// Those of the system: the address is in use, not ours, or its family is not there.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A server of RPC programs over UDP. Dropped, it ends, at once but for a call that is being answered.
///
/// Programs see calls in [`crate::Mode::Pool`], may wait, and must answer by [`crate::Outcome::Reply`] or one of the
/// failures; what they would send later is not sent.
pub struct DatagramServer {
    addresses: Vec<SocketAddr>,
    /// Written to, it ends the threads.
    end: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl DatagramServer {
    /// Serves `programs` on `sockets` (see [`bind`]).
    ///
    /// # Errors
    /// When a socket cannot be used, or a thread cannot be made.
    pub fn start(sockets: Vec<UdpSocket>, programs: &[Arc<dyn Program>]) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut server = Self { addresses: Vec::new(), end, threads: Vec::new() };
        for socket in sockets {
            // What has come may turn out to be damaged, and then there is nothing to read.
            socket.set_nonblocking(true)?;
            let local = socket.local_addr()?;
            server.addresses.push(local);
            let core = Core::new(programs.to_vec(), Pool::start(0, 0, None)?, Limits::default(), None);
            let end = Arc::clone(&server.end);
            let serve = move || Listener::new(core, socket, local).serve(&end);
            server.threads.push(std::thread::Builder::new().name("udp".into()).spawn(serve)?);
        }
        Ok(server)
    }

    /// What it listens on, in the order given, with the ports the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for DatagramServer {
    fn drop(&mut self) {
        // Its count is far from the end of what it can hold: this cannot fail.
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // A panic of its was caught where it can be told; nothing is left to do about another.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for DatagramServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramServer").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

struct Listener {
    core: Arc<Core>,
    socket: UdpSocket,
    local: SocketAddr,
    auths: AuthCache,
    rates: Rates,
}

impl Listener {
    fn new(core: Arc<Core>, socket: UdpSocket, local: SocketAddr) -> Self {
        Self { core, socket, local, auths: AuthCache::default(), rates: Rates::default() }
    }

    fn serve(mut self, end: &OwnedFd) {
        // One byte more than is taken, to tell what is too long.
        let mut buf = vec![0; DATAGRAM_CALL_BYTES_MAX + 1];
        let mut reply = Writer::new();
        while self.has_come(end) {
            // Errors are those of earlier datagrams: a port that nobody listens on.
            let Ok((n, peer)) = self.socket.recv_from(&mut buf) else { continue };
            if n <= DATAGRAM_CALL_BYTES_MAX && self.rates.may_answer(peer.ip(), Instant::now()) {
                self.answer(&buf[..n], peer, &mut reply);
            }
        }
    }

    /// Waits for a datagram; false when this is the end.
    fn has_come(&self, end: &OwnedFd) -> bool {
        let mut waited = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        // Interrupted, it looks once more.
        let _ = poll(&mut waited, None);
        waited[1].revents().is_empty()
    }

    fn answer(&mut self, call: &[u8], peer: SocketAddr, reply: &mut Writer) {
        let connection = Connection::of_datagram(&self.core, peer, self.local);
        let record = Record::borrowed(call);
        if !dispatch::handle_datagram(&connection, record, &mut self.auths, reply) {
            return;
        }
        if reply.len() > DATAGRAM_REPLY_BYTES_MAX + 4 {
            tracing::debug!(%peer, bytes = reply.len(), "a reply is too long for UDP");
            return;
        }
        // Without the record's header. An answer that cannot be sent is one that was lost.
        let _ = self.socket.send_to(&reply.as_slice()[4..], peer);
    }
}

/// Calls of the present second by site.
struct Rates {
    since: Instant,
    counts: FxHashMap<IpAddr, u32>,
}

impl Default for Rates {
    fn default() -> Self {
        Self { since: Instant::now(), counts: FxHashMap::default() }
    }
}

impl Rates {
    fn may_answer(&mut self, ip: IpAddr, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.counts.clear();
        }
        let site = site_of(ip.to_canonical());
        if self.counts.len() >= DATAGRAM_SOURCES_MAX && !self.counts.contains_key(&site) {
            return false;
        }
        let count = self.counts.entry(site).or_default();
        *count += 1;
        *count <= DATAGRAMS_PER_SOURCE_SECOND_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_answered_so_often_a_second_whatever_its_port() {
        let mut rates = Rates::default();
        let now = rates.since;
        let (a, b) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let answered = (0..1000).filter(|_| rates.may_answer(a, now)).count();
        assert_eq!(answered, DATAGRAMS_PER_SOURCE_SECOND_MAX as usize);
        assert!(rates.may_answer(b, now), "others are");
        assert!(rates.may_answer(a, now + Duration::from_secs(1)));
    }

    #[test]
    fn addresses_beyond_those_counted_are_not_answered() {
        let mut rates = Rates::default();
        let now = rates.since;
        let answered = (0..2 * DATAGRAM_SOURCES_MAX as u32)
            .filter(|n| rates.may_answer(IpAddr::from(n.to_be_bytes()), now))
            .count();
        assert_eq!((answered, rates.counts.len()), (DATAGRAM_SOURCES_MAX, DATAGRAM_SOURCES_MAX));
    }
}
