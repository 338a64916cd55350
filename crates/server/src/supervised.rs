//! The server's side of a parent that starts it again (`supervisor.rs`): it is started with the sockets that the one
//! before it listened on, and tells on which it listens.

use std::env;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use anyhow::Result;
use holdfast_base::limits::LISTENERS_KEPT_MAX;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::handover;

/// Names the parent, the number of the socket to it, and those of listening sockets.
pub(crate) const VARIABLE: &str = "HOLDFAST_SUPERVISED";

/// The socket to the parent. Never closed: a program that takes this one's place goes on with it.
static PARENT: OnceLock<OwnedFd> = OnceLock::new();

/// The variable's value.
pub(crate) fn value(parent: u32, socket: RawFd, listeners: impl Iterator<Item = RawFd>) -> String {
    let listeners: Vec<_> = listeners.map(|number| number.to_string()).collect();
    format!("{parent}:{socket}:{}", listeners.join(","))
}

/// Of a value for a child of this parent: the number of the socket, and those of listeners.
fn numbers(value: &str, parent: u32) -> Option<(RawFd, Vec<RawFd>)> {
    let mut parts = value.split(':');
    if parts.next()?.parse() != Ok(parent) {
        return None;
    }
    let socket = parts.next()?.parse().ok()?;
    let listeners = parts.next()?.split(',').filter(|number| !number.is_empty());
    Some((socket, listeners.map(str::parse).collect::<Result<_, _>>().ok()?))
}

/// What the parent keeps for us, if there is such a parent. `is_in_place`: this program took another's place in the same
/// process, and the numbers of listeners were for that one. Before this process opens anything. From now on it ends with
/// its parent, which whoever kills that one expects.
pub(crate) fn receive(is_in_place: bool) -> Vec<OwnedFd> {
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    let named = env::var(VARIABLE).ok().and_then(|value| numbers(&value, parent));
    let Some((socket, listeners)) = named else { return Vec::new() };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::warn!(%error, "this server would outlive the process that looks after it");
    } else if getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs()) != parent {
        // It died a moment before that was in force, and no signal comes.
        std::process::exit(128 + Signal::KILL.as_raw());
    }
    if let Some(socket) = handover::take(socket) {
        // Set once, as this is called once.
        let _ = PARENT.set(socket);
    }
    if is_in_place { Vec::new() } else { listeners.into_iter().filter_map(handover::take).collect() }
}

/// Tells the parent, if there is one, that this server is there and listens on these.
pub(crate) fn tell(listeners: &[BorrowedFd<'_>]) {
    let Some(parent) = PARENT.get() else { return };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_KEPT_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&listeners[..listeners.len().min(LISTENERS_KEPT_MAX)]));
    if let Err(error) = sendmsg(parent, &[IoSlice::new(b"ready")], &mut control, SendFlags::empty()) {
        tracing::warn!(%error, "listening sockets are not kept should this server be killed");
    }
}

/// The descriptor that a program which takes this one's place needs as well.
pub(crate) fn parent() -> Option<BorrowedFd<'static>> {
    use std::os::fd::AsFd as _;
    PARENT.get().map(|socket| socket.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_to_one_process_is_not_taken_for_anothers() {
        let value = value(17, 5, [7, 9].into_iter());
        assert_eq!(numbers(&value, 17), Some((5, vec![7, 9])));
        assert_eq!(numbers(&value, 18), None);
        assert_eq!(numbers(&super::value(17, 5, [].into_iter()), 17), Some((5, vec![])));
        assert_eq!(numbers("17", 17), None);
    }
}
