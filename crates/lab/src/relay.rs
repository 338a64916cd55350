//! A relay between a client and a server that makes the way longer, and narrower: what comes in at one end goes out at the other a
//! chosen time later, and no faster than chosen; and that can stall, and cut what is connected through it.

use crate::way::{Lane, NARROW_PIECE_BYTES, NARROW_PIECES_MAX, Way, sleep_exactly};
use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

/// Bytes read at once.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces under way in one direction of a connection: 64 MiB at most, more than a link of 10 Gbit/s holds in 50 ms.
const PIECES_MAX: usize = 256;

/// A running relay. Dropped, it cuts everything and stops listening.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    lanes: [Lane; 2],
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stalled: bool,
    is_over: bool,
    connections: Vec<(TcpStream, TcpStream)>,
}

impl Relay {
    /// Listens on a free port of the loopback address for connections to `server`.
    ///
    /// Errors when no port is to be had.
    pub fn start(server: SocketAddr, way: impl Into<Way>) -> Result<Self> {
        Self::start_on(IpAddr::from(Ipv4Addr::LOCALHOST), server, way)
    }

    /// The same on another address of this host: guests reach it by that of their link.
    ///
    /// Errors likewise.
    pub fn start_on(address: IpAddr, server: SocketAddr, way: impl Into<Way>) -> Result<Self> {
        let way = way.into();
        let listener = TcpListener::bind((address, 0)).context("a port for the relay")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            lanes: [Lane::of(way), Lane::of(way)],
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::Builder::new().name("relay".into()).spawn(move || accept(&listener, &accepting))?;
        Ok(Self { shared, address })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lets nothing through any more, while connections stay as they are: a server that hangs, a cable pulled out.
    pub fn stall(&self) {
        self.shared.state.lock().is_stalled = true;
    }

    /// Lets everything through again, what was held up first.
    pub fn resume(&self) {
        self.shared.state.lock().is_stalled = false;
        self.shared.changed.notify_all();
    }

    /// Cuts all connections; new ones are relayed.
    pub fn cut(&self) {
        for (one, other) in self.shared.state.lock().connections.drain(..) {
            // They may be closed already.
            let _ = one.shutdown(Shutdown::Both);
            let _ = other.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
        self.cut();
        // Wakes whoever accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.state.lock().is_over {
            return;
        }
        // A server that is away shows itself as it would without the relay: the connection ends at once.
        if let Ok(client) = client
            && let Err(error) = join(&client, shared)
        {
            eprintln!("relay: {error}");
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn join(client: &TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let Ok(server) = TcpStream::connect(shared.server) else { return client.shutdown(Shutdown::Both) };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    shared.state.lock().connections.push((client.try_clone()?, server.try_clone()?));
    for (direction, (from, to)) in [(client, &server), (&server, client)].into_iter().enumerate() {
        let is_narrow = shared.lanes[direction].is_narrow();
        let (sender, receiver) = sync_channel(if is_narrow { NARROW_PIECES_MAX } else { PIECES_MAX });
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (reading, writing) = (Arc::clone(shared), Arc::clone(shared));
        thread::Builder::new()
            .name("relay-in".into())
            .spawn(move || take(from, &sender, &reading.lanes[direction]))?;
        thread::Builder::new()
            .name("relay-out".into())
            .spawn(move || give(to, &receiver, &writing, direction))?;
    }
    Ok(())
}

type Piece = (Instant, Vec<u8>);

fn take(mut from: TcpStream, sender: &SyncSender<Piece>, lane: &Lane) {
    let mut buffer = vec![0; if lane.is_narrow() { NARROW_PIECE_BYTES } else { PIECE_BYTES }];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if sender.send((lane.due(), buffer[..count].to_vec())).is_err() {
                    return;
                }
            }
        }
    }
}

fn give(mut to: TcpStream, receiver: &Receiver<Piece>, shared: &Shared, direction: usize) {
    sleep_exactly();
    while let Ok((due, piece)) = receiver.recv() {
        shared.lanes[direction].pass(due, piece.len());
        let mut state = shared.state.lock();
        while state.is_stalled && !state.is_over {
            shared.changed.wait(&mut state);
        }
        drop(state);
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::echoed_on_both;
    use std::time::Duration;

    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || io::copy(&mut stream.try_clone().unwrap(), &mut stream));
            }
        });
        address
    }

    fn round_trip(stream: &mut TcpStream) -> Duration {
        let started = Instant::now();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        started.elapsed()
    }

    #[test]
    fn a_round_trip_takes_as_much_longer_as_was_asked() {
        let relay = Relay::start(echo(), Duration::from_millis(20)).unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        let quickest = (0..20).map(|_| round_trip(&mut stream)).min().unwrap();
        assert!((20..40).contains(&quickest.as_millis()), "{quickest:?}");
    }

    #[test]
    fn no_more_passes_than_the_way_lets_through_on_all_connections_together() {
        let way = Way { round_trip: Duration::ZERO, rate: Some(4 << 20) };
        let relay = Relay::start(echo(), way).unwrap();
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        let took = echoed_on_both([connect(), connect()]);
        assert!((500..1500).contains(&took.as_millis()), "{took:?} for 2 MiB at 4 MiB/s");
    }

    #[test]
    fn calls_that_follow_each_other_closely_share_the_way() {
        let relay = Relay::start(echo(), Duration::from_millis(200)).unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        let started = Instant::now();
        for _ in 0..100 {
            stream.write_all(b"x").unwrap();
        }
        stream.read_exact(&mut [0; 100]).unwrap();
        // One after the other they would take 20 s.
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn what_stalls_goes_on_and_what_is_cut_is_closed() {
        let relay = Relay::start(echo(), Duration::ZERO).unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        round_trip(&mut stream);
        relay.stall();
        stream.write_all(b"x").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(stream.read(&mut [0]).is_err(), "held up");
        relay.resume();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        relay.cut();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}
