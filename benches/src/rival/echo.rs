//! The echo server: reads records and answers each with one as long as it asks for. As many threads as there are processors, each
//! told by epoll of its share of the connections; one read for all calls that have come, one write for all their replies.
//!
//! A call is its number, the reply's length in bytes, and whatever makes it as long as wanted. The reply is the
//! number and zeros.

use crate::client::record::{self, Records};
use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::io::Write;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Bytes of a reply at most.
const REPLY_BYTES_MAX: usize = 2 << 20;
/// Connections that a thread is told of at once.
const EVENTS: usize = 256;

/// Serves on an address until the process ends.
///
/// Errors when it cannot be had.
pub(crate) fn serve(address: SocketAddrV4) -> Result<()> {
    let listener = TcpListener::bind(address).context("the echo server's address")?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let shares = (0..threads).map(|_| Share::start()).collect::<Result<Vec<_>>>()?;
    // In turn: so that few connections do not meet in one thread while others idle.
    for (stream, share) in listener.incoming().zip(shares.iter().cycle()) {
        share.take_in(stream?)?;
    }
    Ok(())
}

/// A thread's connections.
struct Share {
    ready: OwnedFd,
    /// By their number, which comes with what epoll tells of them; none where one has ended.
    connections: Mutex<Vec<Option<Connection>>>,
}

struct Connection {
    stream: TcpStream,
    records: Records,
}

impl Share {
    fn start() -> Result<Arc<Self>> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let share = Arc::new(Self { ready, connections: Mutex::new(Vec::new()) });
        let served = Arc::clone(&share);
        thread::spawn(move || served.serve());
        Ok(share)
    }

    fn take_in(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let data = epoll::EventData::new_u64(connections.len() as u64);
        epoll::add(&self.ready, &stream, data, epoll::EventFlags::IN)?;
        connections.push(Some(Connection { stream, records: Records::new() }));
        Ok(())
    }

    fn serve(&self) {
        let (mut events, mut replies) = (Vec::with_capacity(EVENTS), Vec::new());
        loop {
            events.clear();
            // A signal may end the wait: then there is nothing.
            let _ = epoll::wait(&self.ready, spare_capacity(&mut events), None);
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            for event in &events {
                let Some(place) = connections.get_mut(event.data.u64() as usize) else { continue };
                // A client that went away is no fault of ours.
                if !place.as_mut().is_some_and(|one| one.answer(&mut replies).unwrap_or(false)) {
                    *place = None;
                }
            }
        }
    }
}

impl Connection {
    /// Answers what has come; false at the end.
    fn answer(&mut self, replies: &mut Vec<u8>) -> Result<bool> {
        if self.records.read_from(&mut self.stream)? == 0 {
            return Ok(false);
        }
        replies.clear();
        while let Some(call) = self.records.next()? {
            let (xid, rest) = call.split_at_checked(4).context("a short call")?;
            let wanted = rest.first_chunk::<4>().context("a short call")?;
            let bytes = (u32::from_be_bytes(*wanted) as usize).clamp(4, REPLY_BYTES_MAX);
            replies.extend_from_slice(&record::mark(bytes));
            replies.extend_from_slice(xid);
            replies.resize(replies.len() + bytes - 4, 0);
        }
        self.stream.write_all(replies)?;
        Ok(true)
    }
}
