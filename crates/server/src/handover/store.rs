//! The service manager's store of descriptors (systemd, `FileDescriptorStoreMax=`): what one process leaves there the
//! next one is started with, so that `systemctl restart` is a planned restart too.

use std::env;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};

use anyhow::{Context, Result, bail};
use holdfast_base::limits::HANDOVER_STORED_MAX;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, sendmsg_addr, socket_with,
};

use super::arrival::Handed;
use super::{Frozen, boot_time, image, memory, sys};
use crate::ready;

/// The names of what is stored begin so; of a descriptor of the image its number follows.
const NAME: &str = "holdfast-";

/// The image.
const IMAGE: &str = "holdfast-image";

/// A listening socket that is kept all the time.
const LISTENER: &str = "holdfast-listener";

/// The first descriptor that a service manager passes.
const FIRST: RawFd = 3;

/// How many descriptors the service manager keeps for us, as far as their names fit into the environment of the next
/// process; `None` when it keeps none.
pub(crate) fn places() -> Option<usize> {
    env::var_os("NOTIFY_SOCKET")?;
    let places = env::var("FDSTORE").ok()?.parse().ok().filter(|places| *places > 0)?;
    Some(HANDOVER_STORED_MAX.min(places))
}

/// Whether it keeps any.
pub(crate) fn is_stored() -> bool {
    places().is_some()
}

/// Leaves everything there.
pub(super) fn deposit(frozen: Frozen, places: usize) -> Result<()> {
    let Frozen { image, outgoing, engine } = frozen;
    let count = outgoing.descriptors().count();
    if count + 1 > places {
        bail!(
            "{} descriptors are to be kept, and the service manager keeps {places} (FileDescriptorStoreMax=, \
             {HANDOVER_STORED_MAX} at most); `holdfast reload --upgrade` instead hands on any number",
            count + 1
        );
    }
    let socket = notifier()?;
    let manager = ready::manager().context("no service manager")??;
    let image = image::written(&image, engine.descriptor, &vec![-1; count])?;
    engine.end()?;
    let mut kept = 0;
    let mut keep_all = || {
        for fd in outgoing.descriptors() {
            keep(&socket, &manager, &format!("{NAME}{kept}"), fd)?;
            kept += 1;
        }
        // Last: without it the others are nothing.
        keep(&socket, &manager, IMAGE, image.as_fd())
    };
    keep_all().inspect_err(|_| {
        // Else connections would stay open, and locks taken, with nobody behind them.
        (0..kept).for_each(|n| forget(&format!("{NAME}{n}")));
    })
}

/// Has the service manager close what it keeps under a name.
fn forget(name: &str) {
    ready::notify(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
}

/// Has it close the listening sockets that it keeps: the configuration has others now.
pub(crate) fn forget_listeners() {
    if is_stored() {
        forget(LISTENER);
    }
}

fn keep(socket: &OwnedFd, manager: &SocketAddrUnix, name: &str, fd: BorrowedFd<'_>) -> Result<()> {
    // Without FDPOLL=0 a socket would be dropped from the store when its peer hangs up, and the next process would
    // not learn of it; so it learns by reading.
    let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}\n");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let text = [IoSlice::new(text.as_bytes())];
    sendmsg_addr(socket, manager, &text, &mut control, SendFlags::empty())
        .context("the service manager takes no descriptors")?;
    Ok(())
}

/// What a service manager started this process with.
#[derive(Default)]
pub(super) struct Passed {
    /// Of a process before this one; `None` when there is nothing of the kind. It is taken out of the store, so that it
    /// is never found twice.
    pub(super) handed: Option<Result<Handed>>,
    /// Listening sockets: of a `.socket` unit, or kept in the store over a crash.
    pub(super) listeners: Vec<OwnedFd>,
}

/// Takes what a service manager passed.
pub(super) fn passed() -> Passed {
    let mut passed = Passed::default();
    let variable = |name| env::var(name).ok();
    let process = variable("LISTEN_PID").and_then(|process| process.parse().ok());
    let count = variable("LISTEN_FDS").and_then(|count| count.parse().ok());
    let Some(count) = count.filter(|_| process == Some(std::process::id())) else { return passed };
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut found = Vec::new();
    for number in FIRST..FIRST.saturating_add(count) {
        let name = names.next().unwrap_or_default();
        let Some(fd) = sys::take(number) else { continue };
        match part_of_image(name) {
            Some(part) => {
                forget(name);
                found.push((part, fd));
            }
            _ if is_listener(&fd) => passed.listeners.push(fd),
            _ => tracing::warn!(
                number,
                name,
                "passed by the service manager, and no listening TCP socket: closed"
            ),
        }
    }
    if !found.is_empty() {
        passed.handed = Some(sorted(found));
    }
    passed
}

/// What a descriptor of this name is to an image. Units that pass sockets may have names that begin as ours do.
fn part_of_image(name: &str) -> Option<Part> {
    if name == IMAGE {
        return Some(Part::Image);
    }
    let digits = name.strip_prefix(NAME)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok().map(Part::Descriptor))?
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Image,
    Descriptor(usize),
}

fn is_listener(fd: &OwnedFd) -> bool {
    use rustix::net::sockopt::{socket_acceptconn, socket_domain};
    let is_inet =
        socket_domain(fd).is_ok_and(|domain| matches!(domain, AddressFamily::INET | AddressFamily::INET6));
    is_inet && socket_acceptconn(fd) == Ok(true)
}

/// Has the service manager keep the listening sockets even when this process is killed: who connects until the next one
/// serves waits instead of being refused, after which Linux clients would wait for three seconds.
pub(crate) fn keep_listeners(listeners: &[BorrowedFd<'_>]) {
    if places().is_none() {
        return;
    }
    let keep_all = || -> Result<()> {
        let socket = notifier()?;
        let manager = ready::manager().context("no service manager")??;
        // One that is kept already is not kept twice.
        listeners.iter().try_for_each(|fd| keep(&socket, &manager, LISTENER, *fd))
    };
    if let Err(error) = keep_all() {
        tracing::warn!("listening sockets are not kept over a crash: {error:#}");
    }
}

fn notifier() -> Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn sorted(found: Vec<(Part, OwnedFd)>) -> Result<Handed> {
    let mut image = None;
    let mut numbered = Vec::new();
    for (part, fd) in found {
        match part {
            Part::Descriptor(number) => numbered.push((number, fd)),
            Part::Image => image = Some(fd),
        }
    }
    let bytes = memory::read(image.context("there is no image")?)?;
    let (version, numbers, body) = image::head(&bytes).context("it is no image")?;
    let mut descriptors: Vec<_> = numbers.iter().map(|_| None).collect();
    for (number, fd) in numbered {
        if let Some(place) = descriptors.get_mut(number) {
            *place = Some(fd);
        }
    }
    let (image, engine) = image::decode(version, body, &mut descriptors)?;
    let age_ms = boot_time().saturating_sub(image.frozen_at) / 1_000_000;
    if age_ms > image.lease_ms {
        bail!("it is {} s old, longer than a lease", age_ms / 1000);
    }
    Ok(Handed { image, engine, descriptors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_give_are_parts_of_an_image() {
        assert_eq!(part_of_image("holdfast-image"), Some(Part::Image));
        assert_eq!(part_of_image("holdfast-17"), Some(Part::Descriptor(17)));
        let others = [LISTENER, "holdfast-nfs.socket", "holdfast-", "holdfast-+1", "holdfast", "17", ""];
        for other in others {
            assert_eq!(part_of_image(other), None, "{other}");
        }
    }
}
