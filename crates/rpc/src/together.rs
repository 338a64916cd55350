//! Replies that are there at the same moment, because one force of a disk was what they all waited for, leave with one
//! write for each connection. One by one they would cost each a write here, a wake-up and a read at the client, and as
//! many again for what the client asks next. So do those of calls that take turns on a thread of the pool ([`Shelf`]).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::{
    OUTPUT_FLUSH_BYTES, REPLIES_TOGETHER_CONNECTIONS_MAX, TURN_REPLIES_MAX, TURN_REPLIES_US_MAX,
};
use parking_lot::Mutex;

use crate::connection::{Connection, Ticket};

/// Replies of one connection, sealed; its calls count as in flight until they are sent.
#[derive(Default)]
struct Kept {
    replies: Vec<u8>,
    tickets: Vec<Ticket>,
}

thread_local! {
    /// What is kept while [`together`] runs on this thread.
    static KEPT: RefCell<Option<Vec<Kept>>> = const { RefCell::new(None) };
    /// Where this thread may put replies instead of sending them.
    static SHELF: RefCell<Option<Arc<Shelf>>> = const { RefCell::new(None) };
    static USES_SHELF: Cell<bool> = const { Cell::new(false) };
}

/// A larger buffer is not kept for the next replies.
const SHELF_BYTES_KEPT: usize = 64 << 10;

/// Replies to one connection that a thread of the pool has not sent, as the next call may be of the same client. Whoever
/// sees that the thread hangs meanwhile may send them.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<OnShelf>);

#[derive(Default)]
struct OnShelf {
    kept: Kept,
    since: Option<Instant>,
}

/// The shelf of this thread.
pub(crate) fn has_shelf(shelf: &Arc<Shelf>) {
    SHELF.set(Some(Arc::clone(shelf)));
}

/// Whether replies made on this thread from now on go there. Who says so sees to it that they are sent.
pub(crate) fn use_shelf(is_used: bool) {
    USES_SHELF.set(is_used);
}

impl Shelf {
    /// Takes a reply, unless those of another connection are here.
    fn put(&self, reply: &[u8], ticket: Ticket) -> Result<(), Ticket> {
        let mut shelf = self.0.lock();
        let OnShelf { kept, since } = &mut *shelf;
        if kept.tickets.first().is_some_and(|first| !Arc::ptr_eq(first.connection(), ticket.connection())) {
            return Err(ticket);
        }
        since.get_or_insert_with(Instant::now);
        kept.replies.extend_from_slice(reply);
        kept.tickets.push(ticket);
        Ok(())
    }

    /// Whether what is here is to be sent now: enough of it, or for long enough, or no more is to come for this connection.
    pub(crate) fn must_go(&self, is_next: impl FnOnce(&Arc<Connection>) -> bool) -> bool {
        let shelf = self.0.lock();
        let (Some(first), Some(since)) = (shelf.kept.tickets.first(), shelf.since) else { return false };
        !is_next(first.connection())
            || shelf.kept.tickets.len() >= TURN_REPLIES_MAX
            || shelf.kept.replies.len() > OUTPUT_FLUSH_BYTES
            || since.elapsed() >= Duration::from_micros(TURN_REPLIES_US_MAX)
    }

    /// Sends what is here. From any thread.
    pub(crate) fn send(&self) {
        let mut kept = {
            let mut shelf = self.0.lock();
            shelf.since = None;
            std::mem::take(&mut shelf.kept)
        };
        if let Some(ticket) = kept.tickets.first() {
            ticket.connection().send(&kept.replies, None);
        }
        kept.tickets.clear();
        kept.replies.clear();
        let mut shelf = self.0.lock();
        if shelf.kept.tickets.is_empty() && kept.replies.capacity() <= SHELF_BYTES_KEPT {
            // The buffers serve again.
            shelf.kept = kept;
        }
    }
}

/// Runs what sends replies, and sends them when it is done: whatever it sends on this thread waits for its end, so it must
/// not wait for anything itself.
pub fn together(run: &mut dyn FnMut()) {
    struct Flush;
    impl Drop for Flush {
        fn drop(&mut self) {
            KEPT.take().into_iter().flatten().for_each(send_kept);
        }
    }
    if KEPT.with_borrow(Option::is_some) {
        return run();
    }
    KEPT.set(Some(Vec::new()));
    // Also when `run` panics: those who were answered are not to suffer for it.
    let _flush = Flush;
    run();
}

/// Sends a sealed reply, now or with others.
pub(crate) fn send(reply: &[u8], ticket: Ticket) {
    let Some(ticket) = put_on_shelf(reply, ticket) else { return };
    // Sending may end a connection, and with it much else: nothing is borrowed meanwhile.
    match KEPT.with_borrow_mut(|kept| keep(kept.as_mut(), reply, ticket)) {
        Next::Nothing => {}
        Next::Now(ticket) => {
            ticket.connection().send(reply, None);
            // Only now: the reply counts as output before the call stops to count as in flight.
            drop(ticket);
        }
        Next::Full(kept) => send_kept(kept),
    }
}

/// Gives the ticket back where the reply is to be sent otherwise.
fn put_on_shelf(reply: &[u8], ticket: Ticket) -> Option<Ticket> {
    if !USES_SHELF.get() {
        return Some(ticket);
    }
    SHELF.with_borrow(|shelf| match shelf {
        Some(shelf) => shelf.put(reply, ticket).err(),
        None => Some(ticket),
    })
}

enum Next {
    /// It is kept.
    Nothing,
    /// Nobody gathers: it is to be sent as it is.
    Now(Ticket),
    /// It is kept, and these are to make way.
    Full(Kept),
}

fn keep(all: Option<&mut Vec<Kept>>, reply: &[u8], ticket: Ticket) -> Next {
    let Some(all) = all else { return Next::Now(ticket) };
    let of_same =
        |kept: &Kept| kept.tickets.first().is_some_and(|t| Arc::ptr_eq(t.connection(), ticket.connection()));
    let Some(place) = all.iter().position(of_same) else {
        all.push(Kept { replies: reply.to_vec(), tickets: vec![ticket] });
        return if all.len() > REPLIES_TOGETHER_CONNECTIONS_MAX {
            Next::Full(all.remove(0))
        } else {
            Next::Nothing
        };
    };
    let kept = &mut all[place];
    kept.replies.extend_from_slice(reply);
    kept.tickets.push(ticket);
    if kept.replies.len() > OUTPUT_FLUSH_BYTES { Next::Full(all.remove(place)) } else { Next::Nothing }
}

fn send_kept(Kept { replies, tickets }: Kept) {
    if let Some(ticket) = tickets.first() {
        ticket.connection().send(&replies, None);
    }
    drop(tickets);
}
