//! A link between two network namespaces that is longer and narrower than loopback: what of IP is sent at one end arrives at the
//! other, a chosen time later and no faster than chosen. For what a relay cannot stand in the midst of: servers that tell
//! their clients where others are. Each end is a TUN device, and this process carries the packets between the two.

use crate::namespace::Namespace;
use crate::tun::{self, PACKET_BYTES_MAX};
use crate::way::{Lane, NARROW_PIECE_BYTES, NARROW_PIECES_MAX, Way, sleep_exactly};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use std::io::{PipeReader, PipeWriter, pipe};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Bytes that wait or are under way in one direction; what comes then is dropped, as by a switch.
const NARROW_QUEUE_BYTES_MAX: usize = NARROW_PIECE_BYTES * NARROW_PIECES_MAX;

/// The same where there is no rate: more than a link of 10 Gbit/s holds in 50 ms.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Who chooses a TCP connection's pace, in the namespace of the thread that looks.
const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// A running link. Dropped, its devices are gone, and their addresses.
#[derive(Debug)]
pub struct Link {
    /// Closed, it ends the threads.
    stop: Option<PipeWriter>,
    carrying: Vec<JoinHandle<()>>,
}

impl Link {
    /// The address of the end in the namespace of who has made it (RFC 2544 section C.2.2 sets these aside for benches).
    pub const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
    /// The address of the other end.
    pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

    /// Joins the namespace of this thread with another. A namespace has one link at most.
    ///
    /// Errors with [`crate::Missing`] where there are no TUN devices, and when an end is there already.
    pub fn to(far: &Namespace, way: impl Into<Way>) -> Result<Self> {
        let way = way.into();
        let here = tun::open(Self::NEAR, Self::FAR)?;
        let there = far.within(|| tun::open(Self::FAR, Self::NEAR))??;
        // A new namespace has the machine's, which may pace.
        let congestion = std::fs::read_to_string(CONGESTION_FILE)?;
        far.within(|| std::fs::write(CONGESTION_FILE, congestion))?
            .context("choosing a congestion control")?;
        let (stopped, stop) = pipe()?;
        let mut link = Self { stop: Some(stop), carrying: Vec::new() };
        let (here, there) = (Arc::new(here), Arc::new(there));
        for (from, to) in [(&here, &there), (&there, &here)] {
            let lane = Arc::new(OneWay { lane: Lane::of(way), queued_bytes: AtomicUsize::new(0) });
            let (sender, receiver) = channel();
            let (from, to, stopped) = (Arc::clone(from), Arc::clone(to), stopped.try_clone()?);
            let taking = Arc::clone(&lane);
            link.carry("link-in", move || taking.take(&from, &stopped, &sender))?;
            link.carry("link-out", move || lane.give(&to, &receiver))?;
        }
        Ok(link)
    }

    fn carry(&mut self, name: &str, act: impl FnOnce() + Send + 'static) -> Result<()> {
        self.carrying.push(thread::Builder::new().name(name.into()).spawn(act)?);
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop = None;
        for thread in self.carrying.drain(..) {
            let _ = thread.join();
        }
    }
}

type Packet = (Instant, Vec<u8>);

struct OneWay {
    lane: Lane,
    queued_bytes: AtomicUsize,
}

impl OneWay {
    fn take(&self, from: &OwnedFd, stopped: &PipeReader, sender: &Sender<Packet>) {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            match rustix::io::read(from, &mut buffer) {
                Ok(count) => {
                    if self.has_room(count)
                        && sender.send((self.lane.due(), buffer[..count].to_vec())).is_err()
                    {
                        return;
                    }
                }
                Err(Errno::AGAIN) => {
                    let mut events =
                        [PollFd::new(from, PollFlags::IN), PollFd::new(stopped, PollFlags::empty())];
                    let polled = retry_on_intr(|| poll(&mut events, None));
                    if polled.is_err() || !events[1].revents().is_empty() {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether the queue takes a packet of so many bytes, which then are in it.
    fn has_room(&self, bytes: usize) -> bool {
        let most = if self.lane.is_narrow() { NARROW_QUEUE_BYTES_MAX } else { QUEUE_BYTES_MAX };
        // The other thread only takes away.
        if self.queued_bytes.load(Ordering::Relaxed) + bytes > most {
            return false;
        }
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn give(&self, to: &OwnedFd, receiver: &Receiver<Packet>) {
        sleep_exactly();
        while let Ok((due, packet)) = receiver.recv() {
            self.lane.pass(due, packet.len());
            self.queued_bytes.fetch_sub(packet.len(), Ordering::Relaxed);
            // What the other end does not take is lost, as anywhere.
            let _ = rustix::io::write(to, &packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::echoed_on_both;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    /// Two namespaces, their link, and where an echo listens at its far end.
    fn linked(way: impl Into<Way> + Send) -> (Namespace, Namespace, Link, SocketAddr) {
        let (near, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let link = near.within(|| Link::to(&far, way)).unwrap().unwrap();
        let listener = far.within(|| TcpListener::bind((Link::FAR, 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
            }
        });
        (near, far, link, address)
    }

    fn connect(near: &Namespace, address: SocketAddr) -> TcpStream {
        near.within(|| TcpStream::connect(address)).unwrap().unwrap()
    }

    #[test]
    fn a_round_trip_takes_as_much_longer_as_was_asked() {
        let (near, _far, _link, address) = linked(Duration::from_millis(20));
        let mut stream = connect(&near, address);
        let round_trip = |_| {
            let started = Instant::now();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            started.elapsed()
        };
        let quickest = (0..20).map(round_trip).min().unwrap();
        assert!((20..40).contains(&quickest.as_millis()), "{quickest:?}");
    }

    #[test]
    fn no_more_passes_than_it_lets_through_on_all_connections_together() {
        let way = Way { round_trip: Duration::ZERO, rate: Some(4 << 20) };
        let (near, _far, _link, address) = linked(way);
        let took = echoed_on_both([(), ()].map(|()| connect(&near, address)));
        assert!((500..1500).contains(&took.as_millis()), "{took:?} for 2 MiB at 4 MiB/s");
    }

    #[test]
    fn what_finds_its_queue_full_is_dropped() {
        let narrow = Way { round_trip: Duration::ZERO, rate: Some(1) };
        let lane = OneWay { lane: Lane::of(narrow), queued_bytes: AtomicUsize::new(0) };
        assert!(lane.has_room(NARROW_QUEUE_BYTES_MAX - 1) && lane.has_room(1));
        assert!(!lane.has_room(1));
    }

    #[test]
    fn its_ends_go_with_it() {
        let (near, far, link, address) = linked(Duration::ZERO);
        drop(connect(&near, address));
        assert!(near.within(|| Link::to(&far, Duration::ZERO)).unwrap().is_err(), "there is one already");
        drop(link);
        assert!(near.within(|| TcpStream::connect(address)).unwrap().is_err());
        near.within(|| Link::to(&far, Duration::ZERO)).unwrap().unwrap();
    }
}
