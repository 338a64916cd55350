//! What the way itself moves, with no file system at its ends: one stream through a relay, each way.

use super::load::{Load, Scale, Told};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Relay, Way};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PIECE_BYTES: usize = 1 << 20;

/// Moves as many bytes as the loads that write and read in order do.
///
/// Errors of sockets.
pub(super) fn turn(way: Way, scale: &Scale, told: &mut Told<'_>) -> Result<()> {
    for load in [Load::Write, Load::Read].into_iter().filter(|load| scale.is_wanted(*load)) {
        told(load, stream(load == Load::Write, scale.data_bytes(), way)?, None);
    }
    Ok(())
}

/// From this end, or to it; over when the other end says that it has all.
fn stream(is_sent: bool, bytes: u64, way: Way) -> Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let relay = Relay::start(listener.local_addr()?, way)?;
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
    let mut near = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port()))?;
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

    #[test]
    fn bytes_cross_it_both_ways_and_take_the_time_of_the_way() {
        for is_sent in [false, true] {
            let took = stream(is_sent, 3 << 20, Duration::from_millis(40).into()).unwrap();
            assert!(took >= Duration::from_millis(20), "{took:?}");
        }
    }
}
