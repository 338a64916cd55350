//! Listeners, the register of connections and their bounds, the clock that ends stuck ones, and the end of it all.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_base::limits;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::congestion::Pacing;
use crate::connection::Connection;
use crate::crew::Crew;
use crate::dispatch::Core;
use crate::driver::Driver;
use crate::handover::HandedConnection;
use crate::pool::Pool;
use crate::runtime::cores;
use crate::service::Program;
use crate::throttle::Throttle;

/// Length of a listener's queue of connections not accepted yet; the kernel cuts it to its own bound.
const BACKLOG: i32 = 1024;

/// How often connections are looked over.
const SWEEP: Duration = Duration::from_millis(250);

/// How long accepting pauses when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The bounds of a server; by default those of [`holdfast_base::limits`], which give the reasons.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is documented under its name in holdfast_base::limits")]
pub struct Limits {
    pub connections: usize,
    pub connections_per_address: usize,
    pub connection_idle_seconds: u32,
    pub calls_in_flight: usize,
    pub call_bytes_in_flight: usize,
    pub parked_calls: usize,
    pub parked_bytes: usize,
    pub output_bytes: usize,
    pub output_chunks: usize,
    pub output_stall_seconds: u32,
    pub record_seconds: u32,
    pub record_seconds_under_pressure: u32,
    pub transport_bytes: usize,
    pub pool_queue: usize,
    /// Threads of the offload pool.
    pub pool_threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_MAX,
            connections_per_address: limits::CONNECTIONS_PER_ADDRESS_MAX,
            connection_idle_seconds: limits::CONNECTION_IDLE_SECONDS,
            calls_in_flight: limits::CALLS_IN_FLIGHT_MAX,
            call_bytes_in_flight: limits::CALL_BYTES_IN_FLIGHT_MAX,
            parked_calls: limits::PARKED_CALLS_MAX,
            parked_bytes: limits::PARKED_BYTES_MAX,
            output_bytes: limits::OUTPUT_BYTES_MAX,
            output_chunks: limits::OUTPUT_CHUNKS_MAX,
            output_stall_seconds: limits::OUTPUT_STALL_SECONDS,
            record_seconds: limits::RECORD_SECONDS_MAX,
            record_seconds_under_pressure: limits::RECORD_SECONDS_UNDER_PRESSURE,
            transport_bytes: limits::TRANSPORT_BYTES_MAX,
            pool_queue: limits::POOL_QUEUE_MAX,
            pool_threads: (4 * cores()).max(limits::POOL_THREADS_MIN),
        }
    }
}

/// A server of RPC programs over TCP. Dropping it does not end it: [`Server::shutdown`] does.
pub struct Server {
    pub(crate) inner: Arc<Inner>,
    addresses: Vec<SocketAddr>,
    pub(crate) listeners: Vec<Arc<Listener>>,
    sweeping: JoinHandle<()>,
    pub(crate) accepting: Mutex<Vec<JoinHandle<()>>>,
}

/// What takes connections.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pacing: Pacing,
}

pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    crew: Arc<Crew>,
    register: Mutex<Register>,
    refused: Throttle,
    started: std::time::Instant,
}

#[derive(Default)]
struct Register {
    connections: FxHashMap<u64, Arc<Connection>>,
    /// By [`site_of`].
    per_address: FxHashMap<IpAddr, usize>,
}

/// A listening socket on `address`. `[::]` takes IPv6 only, so that `0.0.0.0` may be listened on beside it.
///
/// # Errors
/// Those of the system: the address is in use, not ours, or its family is not there.
pub fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted server must not wait for the connections of its predecessor to time out.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

impl Server {
    /// Serves `programs` on `listeners` (see [`listen`]; they may also come from a predecessor). To be called
    /// inside the runtime it shall run on ([`crate::runtime::runtime`]).
    ///
    /// # Errors
    /// When a listener cannot be used, or the pool's threads cannot be made.
    pub fn start(
        listeners: Vec<std::net::TcpListener>,
        programs: Vec<Arc<dyn Program>>,
        limits: Limits,
    ) -> io::Result<Self> {
        Self::go_on(listeners, programs, limits, Vec::new())
    }

    /// As [`Server::start`], with the connections of a predecessor ([`Server::hold`]). One that cannot be used is
    /// closed: its client connects anew.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn go_on(
        listeners: Vec<std::net::TcpListener>,
        programs: Vec<Arc<dyn Program>>,
        limits: Limits,
        handed: Vec<HandedConnection>,
    ) -> io::Result<Self> {
        let mut addresses = Vec::new();
        let mut served = Vec::new();
        for listener in listeners {
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            let pacing = Pacing::begin(&listener);
            served.push(Arc::new(Listener { socket: TcpListener::from_std(listener)?, pacing }));
        }
        let crew = Crew::start(&tokio::runtime::Handle::current())?;
        let pool = Pool::start(limits.pool_threads, limits.pool_queue, Some(&crew));
        let pool = pool.inspect_err(|_| crew.finish())?;
        let core = Core::new(programs, pool, limits, Some(Arc::clone(&crew)));
        let inner = Arc::new(Inner {
            core,
            crew,
            register: Mutex::default(),
            refused: Throttle::default(),
            started: std::time::Instant::now(),
        });
        inner.take_over(handed);
        let sweeping = tokio::spawn(sweep(Arc::clone(&inner)));
        let server = Self { inner, addresses, listeners: served, sweeping, accepting: Mutex::default() };
        server.accept();
        Ok(server)
    }

    /// Takes connections from now on.
    pub(crate) fn accept(&self) {
        let task = |listener| tokio::spawn(accept(Arc::clone(&self.inner), Arc::clone(listener)));
        *self.accepting.lock() = self.listeners.iter().map(task).collect();
    }

    /// Takes no connections from now on; they wait in the kernel.
    pub(crate) async fn stop_accepting(&self) {
        let tasks = std::mem::take(&mut *self.accepting.lock());
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }

    /// What it listens on, in the order given, with the ports the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connections open now.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.inner.register.lock().connections.values().cloned().collect()
    }

    /// A look at it from elsewhere, which does not keep it alive.
    #[must_use]
    pub fn view(&self) -> ServerView {
        ServerView(Arc::downgrade(&self.inner))
    }

    /// The pool that calls are offloaded to, for other work that may wait.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.inner.core.pool
    }

    /// Ends the server: takes no more connections and calls, answers the calls on their way, those that wait for a
    /// disk included (but not those that wait for a peer: their clients ask again), and closes. What is not answered within `patience` is dropped.
    /// Returns how many connections that were.
    pub async fn shutdown(mut self, patience: Duration) -> usize {
        self.stop_accepting().await;
        self.listeners.clear();
        self.inner.core.set_draining();
        let deadline = tokio::time::Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let open = self.connections();
            if open.is_empty() {
                break;
            }
            if tokio::time::Instant::now() >= deadline {
                open.iter().for_each(|c| c.close());
                self.end();
                return open.len();
            }
            open.iter().for_each(|c| c.kick.kick());
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        self.end();
        0
    }

    fn end(&self) {
        self.sweeping.abort();
        self.inner.core.pool.close();
        self.inner.crew.finish();
    }
}

/// A look at a server: for administrators.
#[derive(Clone)]
pub struct ServerView(Weak<Inner>);

impl ServerView {
    /// Connections open now; none when the server is gone.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let inner = self.0.upgrade();
        inner.map(|inner| inner.register.lock().connections.values().cloned().collect()).unwrap_or_default()
    }
}

impl ServerView {
    /// Bytes that connections hold for calls and replies, and how many there may be before the greediest lose theirs.
    #[must_use]
    pub fn held_bytes(&self) -> (usize, usize) {
        let Some(inner) = self.0.upgrade() else { return (0, 0) };
        let held = self.connections().iter().map(|connection| connection.held_bytes()).sum();
        (held, inner.core.limits.transport_bytes)
    }
}

impl std::fmt::Debug for ServerView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerView").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Whom an address stands for: an IPv6 host has all addresses of its network's last 64 bits to itself.
#[must_use]
pub fn site_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
    }
}

async fn accept(inner: Arc<Inner>, listener: Arc<Listener>) {
    loop {
        match listener.socket.accept().await {
            Ok((stream, peer)) => {
                if let Err(error) = inner.adopt(stream, peer, listener.pacing) {
                    tracing::debug!(%peer, %error, "a connection was gone before it was served");
                }
            }
            Err(error) => {
                // A connection that failed while waiting says nothing about the next; a lack of descriptors does.
                if inner.refused.may_log() {
                    tracing::warn!(%error, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Inner {
    fn adopt(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, pacing: Pacing) -> io::Result<()> {
        let local = stream.local_addr().unwrap_or_else(|_| (Ipv4Addr::UNSPECIFIED, 0).into());
        stream.set_nodelay(true)?;
        pacing.settle(&stream, local, peer);
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(60))
            .with_interval(Duration::from_secs(10))
            .with_retries(6);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        if !self.make_room(site_of(peer.ip().to_canonical())) {
            return Ok(());
        }
        let (read, write) = stream.into_split();
        let connection = Connection::new(&self.core, peer, local, Some(write));
        self.drive(Driver::new(Arc::clone(&connection), read), connection);
        Ok(())
    }

    /// Registers a connection and runs its task.
    pub(crate) fn drive(self: &Arc<Self>, driver: Driver, connection: Arc<Connection>) {
        let mut register = self.register.lock();
        *register.per_address.entry(site_of(connection.peer().ip())).or_default() += 1;
        register.connections.insert(connection.id(), Arc::clone(&connection));
        drop(register);
        let inner = Arc::clone(self);
        self.crew.spawn(async move {
            driver.run().await;
            inner.forget(&connection);
        });
    }

    /// Whether a connection from `ip` may be taken. When all are taken, the one longest idle makes room.
    fn make_room(&self, ip: IpAddr) -> bool {
        let limits = &self.core.limits;
        let register = self.register.lock();
        let of_address = register.per_address.get(&ip).copied().unwrap_or(0);
        if of_address >= limits.connections_per_address {
            if self.refused.may_log() {
                tracing::warn!(%ip, connections = of_address, "refusing connections: too many from this address");
            }
            return false;
        }
        if register.connections.len() < limits.connections {
            return true;
        }
        let now = self.core.tick();
        let idle = |c: &&Arc<Connection>| {
            c.is_quiet()
                && now - c.active_at.load(Ordering::Relaxed).min(now) >= limits.connection_idle_seconds
        };
        let oldest = register.connections.values().filter(idle);
        let oldest = oldest.min_by_key(|c| c.active_at.load(Ordering::Relaxed)).cloned();
        drop(register);
        if self.refused.may_log() {
            tracing::warn!(%ip, closed = ?oldest, "all connections are taken");
        }
        // It leaves the register a moment later: the bound may be passed by those accepted meanwhile, and each
        // of those closed another one.
        oldest.inspect(|c| c.close()).is_some()
    }

    fn forget(&self, connection: &Arc<Connection>) {
        let mut register = self.register.lock();
        register.connections.remove(&connection.id());
        let ip = site_of(connection.peer().ip());
        if let Some(n) = register.per_address.get_mut(&ip) {
            *n -= 1;
            if *n == 0 {
                register.per_address.remove(&ip);
            }
        }
        drop(register);
        for program in &self.core.programs {
            program.connection_closed(connection);
        }
    }

    fn sweep(&self) {
        let core = &self.core;
        let before = core.tick();
        core.set_tick(u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX).saturating_add(1));
        let ticks = core.tick().saturating_sub(before);
        let connections: Vec<_> = self.register.lock().connections.values().cloned().collect();
        let held: usize = connections.iter().map(|c| c.held_bytes()).sum();
        let is_under_pressure = held > core.limits.transport_bytes;
        let is_relief = core.is_under_pressure() && !is_under_pressure;
        core.set_under_pressure(is_under_pressure, connections.len());
        if is_under_pressure {
            relieve(&connections, held - core.limits.transport_bytes);
        }
        for connection in &connections {
            connection.excuse_partial(ticks);
            if let Some(reason) = overdue(connection) {
                tracing::debug!(?connection, reason, "dropping a connection");
                connection.close();
            } else if is_relief {
                connection.kick.kick();
            }
        }
    }
}

/// Closes those that leave most of their replies to us, until `excess` bytes are gone: whoever holds little is not
/// to suffer for them.
fn relieve(connections: &[Arc<Connection>], mut excess: usize) {
    let left_lying = |c: &Arc<Connection>| c.left_lying(c.core.limits.record_seconds_under_pressure);
    let mut slow: Vec<_> = connections.iter().filter_map(|c| Some((left_lying(c)?, c))).collect();
    slow.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (bytes, connection) in slow {
        if excess == 0 {
            return;
        }
        tracing::debug!(
            ?connection,
            bytes,
            "dropping a connection: memory is short and it takes few replies"
        );
        connection.close();
        excess = excess.saturating_sub(bytes);
    }
}

/// Why a connection has waited too long, if it has.
fn overdue(connection: &Connection) -> Option<&'static str> {
    let core = &connection.core;
    let limits = &core.limits;
    let is_since = |since: u32, seconds: u32| since != 0 && core.tick().saturating_sub(since) > seconds;
    let record_seconds =
        if core.is_under_pressure() { limits.record_seconds_under_pressure } else { limits.record_seconds };
    if is_since(connection.partial_since.load(Ordering::Relaxed), record_seconds) {
        return Some("half a record");
    }
    is_since(connection.blocked_since.load(Ordering::Relaxed), limits.output_stall_seconds)
        .then_some("it takes no replies")
}

async fn sweep(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        if !inner.core.is_holding() {
            inner.sweep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_cannot_pass_its_bound_by_taking_other_addresses_of_its_network() {
        let of = |ip: &str| site_of(ip.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
