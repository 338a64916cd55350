//! The thread that gives back what is held for nothing: too many, too long unused, or not known to the machine.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use holdfast_base::limits::{DELEGATION_UNUSED_MS, DELEGATIONS_KEPT_MAX, DELEGATIONS_LOOK_MS};
use holdfast_cache::Handle;

use super::super::NfsServer;
use super::Delegations;
use crate::lease::Trust;

/// Starts it.
pub(super) fn start(delegations: &Arc<Delegations>, server: &Arc<NfsServer>) -> std::io::Result<()> {
    let of = Arc::downgrade(server);
    crate::lease::watch(server, delegations, move |delegations, trust| match trust {
        Trust::Over => lease_over(delegations, &of),
        // Opens bring delegations back one by one.
        Trust::Back => {}
    })?;
    let (delegations, server) = (Arc::clone(delegations), Arc::downgrade(server));
    let thread = std::thread::Builder::new().name("delegations".into());
    thread.spawn(move || run(&delegations, &server)).map(drop)
}

const LOOK_EVERY: Duration = Duration::from_millis(DELEGATIONS_LOOK_MS);

fn run(delegations: &Delegations, server: &Weak<NfsServer>) {
    let mut looked = Instant::now();
    loop {
        let next = LOOK_EVERY.saturating_sub(looked.elapsed());
        let Some((is_wished, keep)) = delegations.wait(next) else { return };
        if is_wished || looked.elapsed() >= LOOK_EVERY {
            let Some(server) = server.upgrade() else { return };
            look(delegations, &server, keep);
            looked = Instant::now();
        }
    }
}

impl Delegations {
    /// Waits until something is wished for, or so long; says whether, and how many should be left. Nothing at the end.
    fn wait(&self, at_most: Duration) -> Option<(bool, Option<usize>)> {
        let mut wish = self.wish.lock();
        if !wish.is_over && !wish.is_urgent() {
            let _ = self.wished.wait_for(&mut wish, at_most);
        }
        if wish.is_over {
            return None;
        }
        let is_wished = wish.is_urgent();
        if is_wished {
            wish.came = 0;
        }
        Some((is_wished, wish.keep.take()))
    }
}

/// The server was not heard of for a lease: what it has delegated it may have given others. Answers bring it back where
/// it has not. What the server wants back it has taken by now, or is told so once it can be.
fn lease_over(delegations: &Delegations, server: &Weak<NfsServer>) {
    let (Some(holder), Some(server)) = (delegations.holder(), server.upgrade()) else { return };
    holder.lost();
    let client = server.client();
    for (file, _) in client.delegations() {
        if client.is_recalled(&file) {
            holder.recalled(&Handle::new(file.as_bytes()), client.next_number());
        }
    }
}

fn look(delegations: &Delegations, server: &NfsServer, keep: Option<usize>) {
    let Some(holder) = delegations.holder() else { return };
    let client = server.client();
    let held = client.delegations().len();
    let surplus = surplus(held, keep);
    if surplus > 0 {
        tracing::debug!(held, surplus, "giving delegations back");
        for object in holder.unused(0).into_iter().take(surplus) {
            holder.recalled(&object, client.next_number());
        }
        return;
    }
    for object in holder.unused(DELEGATION_UNUSED_MS) {
        holder.recalled(&object, client.next_number());
    }
}

/// How many of those held go back: what the server asks for; a quarter when there are too many, so that not each one that
/// comes costs another.
fn surplus(held: usize, keep: Option<usize>) -> usize {
    match keep {
        Some(keep) => held.saturating_sub(keep),
        None if held > DELEGATIONS_KEPT_MAX => held - DELEGATIONS_KEPT_MAX * 3 / 4,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_goes_back_when_there_are_too_many_and_what_the_server_asks_for_at_once() {
        assert_eq!(surplus(DELEGATIONS_KEPT_MAX, None), 0);
        assert_eq!(surplus(DELEGATIONS_KEPT_MAX + 1, None), DELEGATIONS_KEPT_MAX / 4 + 1);
        assert_eq!(surplus(100, Some(10)), 90);
        assert_eq!(surplus(5, Some(10)), 0);
    }
}
