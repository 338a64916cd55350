//! What a process finds when it starts in another's place.

use std::collections::HashSet;
use std::env;
use std::os::fd::{OwnedFd, RawFd};

use anyhow::{Context, Result};
use holdfast_rpc::handover::HandedConnection;
use holdfast_vfs::handover::Incoming;

use super::engine::Arriving;
use super::image::{self, Image};
use super::{boot_time, check, memory, store, sys};

/// Names the descriptor of the image in the environment of a program that takes this one's place: by process and
/// number, so that no process takes it for its own that merely inherited the environment.
pub(super) const VARIABLE: &str = "HOLDFAST_HANDOVER";

/// The variable's value.
pub(super) fn at(process: u32, number: RawFd) -> String {
    format!("{process}:{number}")
}

/// What there is to go on with.
pub(crate) struct Inheritance {
    pub(crate) image: Image,
    /// The state, until somebody waits for it.
    pub(crate) engine: Option<Arriving>,
    pub(crate) incoming: Incoming,
    pub(crate) listeners: Vec<OwnedFd>,
    pub(crate) connections: Vec<HandedConnection>,
}

impl Inheritance {
    fn new(Handed { mut image, engine, descriptors }: Handed) -> Self {
        let mut incoming = Incoming::new(descriptors);
        let (listeners, connections) = image::unpack(&mut image, &mut incoming);
        Self { image, engine: Some(engine), incoming, listeners, connections }
    }

    /// What the clock of leases shows now.
    pub(crate) fn clock_ms(&self) -> u64 {
        self.image.clock_ms + boot_time().saturating_sub(self.image.frozen_at) / 1_000_000
    }
}

/// What a predecessor left.
pub(super) struct Handed {
    pub(super) image: Image,
    pub(super) engine: Arriving,
    pub(super) descriptors: Vec<Option<OwnedFd>>,
}

/// What this process was started with.
pub(crate) struct Arrived {
    /// What a predecessor left, if one did.
    pub(crate) inheritance: Option<Inheritance>,
    /// Listening sockets that somebody keeps for us.
    pub(crate) listeners: Vec<OwnedFd>,
}

/// Takes what this process was started with. What cannot be read is closed: clients then come as after a crash. To be
/// called before this process opens anything.
pub(crate) fn receive() -> Arrived {
    let store::Passed { mut handed, listeners } = store::passed();
    if let Some(number) = of_this_process() {
        handed = Some(replaced(number));
    }
    let inheritance = handed.and_then(|handed| match handed {
        Ok(handed) => Some(Inheritance::new(handed)),
        Err(error) => {
            tracing::error!("what the server before this one left is given up, clients reclaim: {error:#}");
            None
        }
    });
    Arrived { inheritance, listeners }
}

/// Whether this program took another's place in this process.
pub(crate) fn is_in_place() -> bool {
    of_this_process().is_some()
}

fn of_this_process() -> Option<RawFd> {
    let value = env::var(VARIABLE).ok().filter(|value| value != check::ASKED)?;
    let (process, number) = value.split_once(':')?;
    (process.parse() == Ok(std::process::id())).then(|| number.parse().ok())?
}

fn replaced(number: RawFd) -> Result<Handed> {
    let bytes = memory::read(sys::take(number).context("there is no image")?)?;
    let (version, numbers, body) = image::head(&bytes).context("it is no image")?;
    // All of them first: those of an image that cannot be read must be closed.
    let mut descriptors = taken(numbers, sys::take);
    let (image, engine) = image::decode(version, body, &mut descriptors)?;
    Ok(Handed { image, engine, descriptors })
}

/// Takes each number once: a second owner of one would close what has come to be under it meanwhile.
fn taken<T>(numbers: Vec<RawFd>, take: impl Fn(RawFd) -> Option<T>) -> Vec<Option<T>> {
    let mut seen = HashSet::new();
    numbers.into_iter().map(|number| seen.insert(number).then(|| take(number))?).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_descriptor_gets_two_owners() {
        let take = |number| (number > 2).then_some(number);
        assert_eq!(taken(vec![57, 2, 4, 57], take), [Some(57), None, Some(4), None]);
    }
}
