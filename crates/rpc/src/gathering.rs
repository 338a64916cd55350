//! Replies that a thread of the pool makes one after the other for one connection are sent together: to send one is a
//! tenth of what a change of names costs. None waits for long: they are sent when the next job is another connection's,
//! when there is none, when [`KEPT_MAX`] has passed, and before anything on the thread waits for somebody else
//! ([`holdfast_base::waiting`]). What is left is that a job which waits for a disk holds up the replies of those, all
//! together done within `KEPT_MAX`, that the thread did just before.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::REPLIES_GATHERED_BYTES_MAX;
use holdfast_base::waiting;

use crate::connection::{Connection, Ticket};

/// How long a reply may be kept back while others are made.
const KEPT_MAX: Duration = Duration::from_micros(100);

#[derive(Default)]
struct Gathered {
    /// Only the pool's own threads gather.
    is_used: bool,
    since: Option<Instant>,
    replies: Vec<u8>,
    /// Their calls count as in flight until they are sent. All of one connection.
    tickets: Vec<Ticket>,
}

thread_local! {
    static GATHERED: RefCell<Gathered> = RefCell::default();
}

/// Has this thread gather, which from now on does jobs and nothing else.
pub(crate) fn begin() {
    GATHERED.with_borrow_mut(|gathered| gathered.is_used = true);
    waiting::let_go_before_waiting(flush);
}

/// Keeps a sealed reply, and its call's ticket, to be sent soon. Gives the ticket back where it is to be sent now.
pub(crate) fn keep(reply: &[u8], ticket: Ticket) -> Option<Ticket> {
    let is_kept = GATHERED.with_borrow(|gathered| {
        gathered.is_used && gathered.replies.len() + reply.len() <= REPLIES_GATHERED_BYTES_MAX
    });
    if !is_kept {
        // In the order in which they were made.
        flush();
        return Some(ticket);
    }
    make_way_for(Some(ticket.connection()));
    GATHERED.with_borrow_mut(|gathered| {
        gathered.since.get_or_insert_with(Instant::now);
        gathered.replies.extend_from_slice(reply);
        gathered.tickets.push(ticket);
    });
    None
}

/// Sends what is kept unless it is this connection's.
pub(crate) fn make_way_for(connection: Option<&Arc<Connection>>) {
    let is_same = GATHERED.with_borrow(|gathered| match gathered.tickets.first() {
        Some(ticket) => connection.is_some_and(|connection| Arc::ptr_eq(ticket.connection(), connection)),
        None => true,
    });
    if !is_same {
        flush();
    }
}

/// Sends what has been kept long enough.
pub(crate) fn look_at_clock() {
    let is_over =
        GATHERED.with_borrow(|gathered| gathered.since.is_some_and(|since| since.elapsed() >= KEPT_MAX));
    if is_over {
        flush();
    }
}

/// Whether anything is kept.
pub(crate) fn is_any_kept() -> bool {
    GATHERED.with_borrow(|gathered| !gathered.tickets.is_empty())
}

/// Sends what is kept.
pub(crate) fn flush() {
    // Nothing is borrowed while it is sent: that may end the connection, and with it much else.
    let taken = GATHERED.with_borrow_mut(|gathered| {
        gathered.since = None;
        (std::mem::take(&mut gathered.replies), std::mem::take(&mut gathered.tickets))
    });
    let (mut replies, mut tickets) = taken;
    if let Some(ticket) = tickets.first() {
        ticket.connection().send(&replies, None);
    }
    // Only now: the replies count as output before their calls stop to count as in flight.
    tickets.clear();
    replies.clear();
    GATHERED.with_borrow_mut(|gathered| {
        if gathered.tickets.is_empty() {
            (gathered.replies, gathered.tickets) = (replies, tickets);
        }
    });
}
