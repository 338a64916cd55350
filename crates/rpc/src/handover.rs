//! Holding a server still, and handing its sockets to another process that goes on with them: a planned restart
//! (`docs/design/handover.md`). What a client sent and we have not handled, and what we owe it and have not sent,
//! goes along as bytes, so the streams go on where they stood.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::limits::{HANDOVER_UNSENT_BYTES_MAX, TRANSPORT_BYTES_MAX};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::driver::Driver;
use crate::output::Output;
use crate::server::{Inner, Server};

/// How long replies that lie in the queues may take to leave, once no call is on its way. What peers do not take in
/// this time goes along.
const FLUSH: Duration = Duration::from_millis(20);

/// What a connection's task has read and not handled.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_at_end: bool,
}

/// One connection on its way to another process.
#[derive(Debug)]
pub struct HandedConnection {
    /// [`Connection::id`], which it keeps.
    pub id: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address the client connected to.
    pub local: SocketAddr,
    /// Its socket.
    pub socket: OwnedFd,
    /// Bytes that came and were not handled: whole records, and the beginning of one.
    pub unread: Vec<u8>,
    /// Whether the client will send no more.
    pub is_at_end: bool,
    /// Bytes of replies that were not sent, perhaps from the middle of one.
    pub unsent: Vec<u8>,
    /// The last transaction id of a call of ours.
    pub last_xid: u32,
}

/// All that a server serves with.
#[derive(Debug)]
pub struct Handed {
    /// Listening sockets, in the order of [`Server::addresses`]. Who connects meanwhile waits in them.
    pub listeners: Vec<OwnedFd>,
    /// Connections.
    pub connections: Vec<HandedConnection>,
    /// Numbers of those that cannot be handed over: they end with this process.
    pub lost: Vec<u64>,
}

/// Calls that did not come to their end in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{running} calls are still being executed and {waiting} wait for a client")]
pub struct StillBusy {
    /// On their way, most likely waiting for a disk.
    pub running: usize,
    /// Waiting for a peer.
    pub waiting: usize,
}

impl Server {
    /// Holds still: takes no connections, reads nothing more, and lets the calls that were read come to their end.
    /// When this returns no program is running anything for a client, and nothing is sent until
    /// [`Server::release`]; also after an error, which leaves calls on their way.
    ///
    /// # Errors
    /// [`StillBusy`] when calls run longer than `patience`.
    pub async fn hold(&self, patience: Duration) -> Result<(), StillBusy> {
        self.stop_accepting().await;
        let core = &self.inner.core;
        core.set_holding(true);
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_micros(200);
        loop {
            let connections = self.connections();
            for connection in &connections {
                connection.kick.kick();
                connection.release_deferred();
            }
            let busy = busy(&connections);
            if busy == StillBusy::default() && connections.iter().all(|c| is_at_rest(c)) {
                break;
            }
            if Instant::now() >= deadline {
                return if busy == StillBusy::default() { Ok(()) } else { Err(busy) };
            }
            core.programs.iter().for_each(|program| program.quiesce());
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        self.flush().await;
        Ok(())
    }

    async fn flush(&self) {
        let deadline = Instant::now() + FLUSH;
        while self.connections().iter().any(|c| c.output.chunks() > 0) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The listening sockets, in the order of [`Server::addresses`].
    #[must_use]
    pub fn listening(&self) -> Vec<BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.socket.as_fd()).collect()
    }

    /// What is to be handed over, of a server that holds still. The sockets are descriptors of their own; this server
    /// keeps its own until it ends or goes on.
    ///
    /// # Errors
    /// No descriptors are to be had.
    pub fn hand_over(&self) -> io::Result<Handed> {
        let listeners = self
            .listeners
            .iter()
            .map(|l| l.socket.as_fd().try_clone_to_owned())
            .collect::<io::Result<_>>()?;
        let mut left = TRANSPORT_BYTES_MAX;
        let (mut connections, mut lost) = (Vec::new(), Vec::new());
        for connection in self.connections() {
            match hand_over(&connection, left.min(HANDOVER_UNSENT_BYTES_MAX))? {
                Some(handed) => {
                    left -= (handed.unsent.len() + handed.unread.len()).min(left);
                    connections.push(handed);
                }
                None => lost.push(connection.id()),
            }
        }
        connections.sort_unstable_by_key(|c| c.id);
        Ok(Handed { listeners, connections, lost })
    }

    /// Goes on after [`Server::hold`].
    pub fn release(&self) {
        let core = &self.inner.core;
        core.set_holding(false);
        core.programs.iter().for_each(|program| program.release());
        for connection in self.connections() {
            connection.output.unseal();
            connection.kick.kick();
        }
        self.accept();
    }
}

fn busy(connections: &[Arc<Connection>]) -> StillBusy {
    connections.iter().fold(StillBusy::default(), |sum, connection| {
        let (running, waiting) = connection.unanswered();
        StillBusy { running: sum.running + running, waiting: sum.waiting + waiting }
    })
}

fn is_at_rest(connection: &Connection) -> bool {
    connection.is_closed() || connection.unread.lock().is_some()
}

/// `None` when it cannot go along, as it is, or is about to be, closed.
fn hand_over(connection: &Connection, bytes_max: usize) -> io::Result<Option<HandedConnection>> {
    if connection.is_closed() {
        return Ok(None);
    }
    let unread = connection.unread.lock();
    let Some(unread) = unread.as_ref() else { return Ok(None) };
    let Some((socket, unsent)) = connection.output.seal(bytes_max)? else { return Ok(None) };
    let (last_xid, _) = connection.back.progress();
    Ok(Some(HandedConnection {
        id: connection.id(),
        peer: connection.peer(),
        local: connection.local(),
        socket,
        unread: unread.bytes.clone(),
        is_at_end: unread.is_at_end,
        unsent,
        last_xid,
    }))
}

impl Inner {
    /// Goes on with the connections of a predecessor. The programs know all of them before a call over any of them is
    /// run: it may have a program call another peer.
    pub(crate) fn take_over(self: &Arc<Self>, handed: Vec<HandedConnection>) {
        let adopted: Vec<_> = handed.into_iter().filter_map(|handed| self.resume_or_say(handed)).collect();
        for (driver, connection) in adopted {
            self.drive(driver, connection);
        }
    }

    fn resume_or_say(&self, handed: HandedConnection) -> Option<(Driver, Arc<Connection>)> {
        let (id, peer, local) = (handed.id, handed.peer, handed.local);
        let error = match self.resume(handed) {
            Ok(resumed) => return Some(resumed),
            Err(error) => error,
        };
        tracing::debug!(id, %peer, %error, "a connection handed over cannot be used");
        // What the programs went on with counts on it.
        let lost = Connection::adopted((&self.core, id), (peer, local), Output::new(None));
        lost.close();
        self.core.programs.iter().for_each(|program| program.connection_closed(&lost));
        None
    }

    fn resume(&self, handed: HandedConnection) -> io::Result<(Driver, Arc<Connection>)> {
        let core = &self.core;
        core.pass_connection_id(handed.id);
        let stream = TcpStream::from(handed.socket);
        stream.set_nonblocking(true)?;
        let (read, write) = tokio::net::TcpStream::from_std(stream)?.into_split();
        let output = Output::with_unsent(write, &handed.unsent);
        let connection = Connection::adopted((core, handed.id), (handed.peer, handed.local), output);
        connection.back.go_on_after(handed.last_xid);
        for program in &core.programs {
            program.connection_adopted(&connection);
        }
        let driver = Driver::new(Arc::clone(&connection), read).with_input(handed.unread, handed.is_at_end);
        Ok((driver, connection))
    }
}

#[cfg(test)]
#[path = "handover/tests.rs"]
mod tests;
