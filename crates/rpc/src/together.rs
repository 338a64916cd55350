//! Replies that are there at the same moment, because one force of a disk was what they all waited for, leave with one
//! write for each connection. One by one they would cost each a write here, a wake-up and a read at the client, and as
//! many again for what the client asks next.

use std::cell::RefCell;
use std::sync::Arc;

use holdfast_base::limits::{OUTPUT_FLUSH_BYTES, REPLIES_TOGETHER_CONNECTIONS_MAX};

use crate::connection::Ticket;

/// Replies of one connection, sealed; its calls count as in flight until they are sent.
struct Kept {
    replies: Vec<u8>,
    tickets: Vec<Ticket>,
}

thread_local! {
    /// What is kept while [`together`] runs on this thread.
    static KEPT: RefCell<Option<Vec<Kept>>> = const { RefCell::new(None) };
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
