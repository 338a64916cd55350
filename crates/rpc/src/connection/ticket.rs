//! What a call takes of its connection's bounds while it is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Connection;

/// A call's share in the bounds of its connection, given back when dropped.
pub(crate) struct Ticket {
    connection: Arc<Connection>,
    kind: TicketKind,
    bytes: usize,
    /// Whether it counts among [`Connection::sure`].
    is_sure: bool,
}

#[derive(Clone, Copy)]
enum TicketKind {
    InFlight,
    Parked,
}

impl Ticket {
    /// For a call on its way through the pool, which holds `bytes`.
    pub(crate) fn in_flight(connection: &Arc<Connection>, bytes: usize) -> Self {
        Self::new(connection, TicketKind::InFlight, bytes)
    }

    /// For a call that waits for a peer, and may hold `bytes`.
    pub(crate) fn parked(connection: &Arc<Connection>, bytes: usize) -> Self {
        Self::new(connection, TicketKind::Parked, bytes)
    }

    fn new(connection: &Arc<Connection>, kind: TicketKind, bytes: usize) -> Self {
        let ticket = Self { connection: Arc::clone(connection), kind, bytes, is_sure: false };
        let (calls, held) = ticket.counters();
        calls.fetch_add(1, Ordering::SeqCst);
        held.fetch_add(bytes, Ordering::SeqCst);
        ticket
    }

    fn counters(&self) -> (&AtomicUsize, &AtomicUsize) {
        let connection = &self.connection;
        match self.kind {
            TicketKind::InFlight => (&connection.in_flight, &connection.in_flight_bytes),
            TicketKind::Parked => (&connection.parked, &connection.parked_bytes),
        }
    }

    /// Has an orderly end of the connection wait for it.
    pub(crate) fn be_sure(&mut self) {
        if !std::mem::replace(&mut self.is_sure, true) {
            self.connection.sure.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// What the call holds.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (calls, held) = self.counters();
        calls.fetch_sub(1, Ordering::SeqCst);
        held.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.is_sure {
            self.connection.sure.fetch_sub(1, Ordering::SeqCst);
        }
        self.connection.resume_reading();
    }
}
