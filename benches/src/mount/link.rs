//! What a way itself is like, with no file system at its ends: what one stream moves, each way, and how long an echo takes.

use super::load::{Load, Scale, Told};
use crate::report::Figure;
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Link, Namespace, Relay, Way};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PIECE_BYTES: usize = 1 << 20;
const ECHOES: usize = 200;

/// A way to a socket that listens at its far end.
pub(super) struct Road {
    far: TcpListener,
    near: SocketAddr,
    /// What is in between, while it is there.
    _relay: Option<Relay>,
    _link: Option<Link>,
}

impl Road {
    /// Plain loopback.
    ///
    /// Errors of sockets.
    pub(super) fn plain() -> Result<Self> {
        let far = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = far.local_addr()?;
        Ok(Self { far, near, _relay: None, _link: None })
    }

    /// By a relay of connections.
    ///
    /// Errors of sockets.
    pub(super) fn relayed(way: Way) -> Result<Self> {
        let plain = Self::plain()?;
        let relay = Relay::start(plain.near, way)?;
        let near = SocketAddr::from((Ipv4Addr::LOCALHOST, relay.port()));
        Ok(Self { near, _relay: Some(relay), ..plain })
    }

    /// By a link that carries packets to another network namespace.
    ///
    /// Errors of sockets, and where there are no TUN devices.
    pub(super) fn linked(way: Way) -> Result<Self> {
        let namespace = Namespace::new()?;
        let link = Link::to(&namespace, way)?;
        let far = namespace.within(|| TcpListener::bind((Link::FAR, 0)))??;
        let near = far.local_addr()?;
        Ok(Self { far, near, _relay: None, _link: Some(link) })
    }

    /// The median time of a byte there and back.
    ///
    /// Errors of sockets.
    pub(super) fn echo(&self) -> Result<Duration> {
        let listener = self.far.try_clone()?;
        let far = std::thread::spawn(move || -> Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            std::io::copy(&mut stream.try_clone()?, &mut stream)?;
            Ok(())
        });
        let mut near = TcpStream::connect(self.near)?;
        near.set_nodelay(true)?;
        let mut seconds = Vec::with_capacity(ECHOES);
        for _ in 0..ECHOES {
            let started = Instant::now();
            near.write_all(b".")?;
            near.read_exact(&mut [0])?;
            seconds.push(started.elapsed().as_secs_f64());
        }
        drop(near);
        far.join().map_err(|_| anyhow::anyhow!("the far end panicked"))?.context("the far end")?;
        let median = Figure::of(seconds).map_or(0.0, |figure| figure.median);
        Ok(Duration::try_from_secs_f64(median)?)
    }
}

/// Moves as many bytes as the loads that write and read in order do.
///
/// Errors of sockets.
pub(super) fn turn(road: &Road, scale: &Scale, told: &mut Told<'_>) -> Result<()> {
    for load in [Load::Write, Load::Read].into_iter().filter(|load| scale.is_wanted(*load)) {
        told(load, stream(load == Load::Write, scale.data_bytes(), road)?, None);
    }
    Ok(())
}

/// From this end, or to it; over when the other end says that it has all.
fn stream(is_sent: bool, bytes: u64, road: &Road) -> Result<Duration> {
    let listener = road.far.try_clone()?;
    let far = std::thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        if is_sent {
            take(&mut stream, bytes)?;
        } else {
            give(&mut stream, bytes)?;
        }
        stream.write_all(b".")?;
        stream.shutdown(Shutdown::Write)?;
        Ok(())
    });
    let mut near = TcpStream::connect(road.near)?;
    let started = Instant::now();
    if is_sent {
        give(&mut near, bytes)?;
    } else {
        take(&mut near, bytes)?;
    }
    near.read_exact(&mut [0])?;
    let took = started.elapsed();
    far.join().map_err(|_| anyhow::anyhow!("the far end panicked"))?.context("the far end")?;
    Ok(took)
}

fn give(stream: &mut TcpStream, bytes: u64) -> Result<()> {
    let piece = vec![0x5a; PIECE_BYTES];
    for _ in 0..bytes / PIECE_BYTES as u64 {
        stream.write_all(&piece)?;
    }
    Ok(())
}

fn take(stream: &mut TcpStream, bytes: u64) -> Result<()> {
    let whole = bytes / PIECE_BYTES as u64 * PIECE_BYTES as u64;
    let (mut piece, mut left) = (vec![0; PIECE_BYTES], whole);
    while left > 0 {
        let most = piece.len().min(usize::try_from(left)?);
        let count = stream.read(&mut piece[..most])?;
        ensure!(count > 0, "{left} bytes did not come");
        left -= count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_as_long_as_asked(road: &Road) {
        for is_sent in [false, true] {
            let took = stream(is_sent, 3 << 20, road).unwrap();
            assert!(took >= Duration::from_millis(20), "{took:?}");
        }
        assert!(road.echo().unwrap() >= Duration::from_millis(40));
    }

    #[test]
    fn bytes_cross_it_both_ways_and_take_the_time_of_the_way() {
        let way = Way::from(Duration::from_millis(40));
        is_as_long_as_asked(&Road::relayed(way).unwrap());
        // No end of a link among the machine's own interfaces.
        let apart = Namespace::new().unwrap();
        apart.within(|| is_as_long_as_asked(&Road::linked(way).unwrap())).unwrap();
    }
}
