//! What one process writes down for the next.
//!
//! A head in a form that never changes, so that every program can at least close what it was given: eight bytes of
//! magic, the version, the count of descriptors and their numbers. Then, since version 2, which of them is the file of the
//! state engine (`engine.rs`), and the image in MessagePack with the names of its fields: a newer program reads what an
//! older one wrote as long as fields that came in between have defaults.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{OwnedFd, RawFd};

use anyhow::{Context, Result, bail};
use holdfast_rpc::handover::{Handed, HandedConnection};
use holdfast_vfs::handover::{FileImage, Incoming, Outgoing};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::engine::Arriving;
use super::memory;

/// The version written. To be raised when a field changes its meaning.
pub(super) const VERSION: u32 = 3;

/// The versions read. In the first the state engine was within the image; the third tells which features mounts were told of, without
/// which a program would go on with mounts that send it what it does not know.
pub(super) const READ: RangeInclusive<u32> = 1..=VERSION;

const MAGIC: [u8; 8] = *b"HOLDFAST";

/// Everything that goes on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Image {
    /// The number of the start that state ids and client ids carry.
    pub(crate) epoch: u64,
    /// What the clock of leases showed at `frozen_at`.
    pub(crate) clock_ms: u64,
    /// The lease in force.
    pub(crate) lease_ms: u64,
    /// When serving stopped, and when this was written: nanoseconds of the machine's clock since it started.
    pub(crate) held_at: u64,
    pub(crate) frozen_at: u64,
    /// Descriptors of the listening sockets.
    pub(crate) listeners: Vec<u32>,
    pub(crate) connections: Vec<ConnectionImage>,
    /// Numbers of connections that do not come along.
    pub(crate) lost: Vec<u64>,
    /// Open files, to be named by their place here.
    pub(crate) files: Vec<FileImage>,
    /// Write verifiers by export.
    pub(crate) verifiers: Vec<(u32, [u8; 8])>,
    /// Answered calls, oldest first: key and results.
    pub(crate) replies: Vec<(ByteBuf, ByteBuf)>,
    /// In images of version 1; later ones have it in a file beside them.
    #[serde(default, skip_serializing)]
    pub(crate) engine: Option<holdfast_state::Frozen>,
    pub(crate) nfs4: holdfast_nfs4::Image,
    #[serde(default)]
    pub(crate) nlm: holdfast_nlm::handover::Image,
    #[serde(default)]
    pub(crate) caps: holdfast_caps::Image,
    /// What is owed to the records, and what became of requests that a crash cut short.
    #[serde(default)]
    pub(crate) records: crate::durable::Image,
}

/// One connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConnectionImage {
    id: u64,
    peer: std::net::SocketAddr,
    local: std::net::SocketAddr,
    socket: u32,
    unread: ByteBuf,
    is_at_end: bool,
    unsent: ByteBuf,
    last_xid: u32,
}

impl ConnectionImage {
    fn new(connection: HandedConnection, outgoing: &mut Outgoing) -> Self {
        Self {
            id: connection.id,
            peer: connection.peer,
            local: connection.local,
            socket: outgoing.add(connection.socket),
            unread: connection.unread.into(),
            is_at_end: connection.is_at_end,
            unsent: connection.unsent.into(),
            last_xid: connection.last_xid,
        }
    }

    /// `None` when its socket did not arrive.
    fn arrive(self, incoming: &mut Incoming) -> Option<HandedConnection> {
        Some(HandedConnection {
            id: self.id,
            peer: self.peer,
            local: self.local,
            socket: incoming.take(self.socket)?,
            unread: self.unread.into_vec(),
            is_at_end: self.is_at_end,
            unsent: self.unsent.into_vec(),
            last_xid: self.last_xid,
        })
    }
}

/// Puts the sockets among what leaves; gives listeners, connections, and those that are lost.
pub(crate) fn pack(handed: Handed, outgoing: &mut Outgoing) -> (Vec<u32>, Vec<ConnectionImage>, Vec<u64>) {
    let listeners = handed.listeners.into_iter().map(|fd| outgoing.add(fd)).collect();
    let connections = handed.connections.into_iter().map(|c| ConnectionImage::new(c, outgoing)).collect();
    (listeners, connections, handed.lost)
}

/// Takes the sockets out of what came. Connections without theirs are added to the lost.
pub(crate) fn unpack(image: &mut Image, incoming: &mut Incoming) -> (Vec<OwnedFd>, Vec<HandedConnection>) {
    let listeners = image.listeners.iter().filter_map(|number| incoming.take(*number)).collect();
    let mut arrived = Vec::new();
    for connection in std::mem::take(&mut image.connections) {
        let id = connection.id;
        match connection.arrive(incoming) {
            Some(connection) => arrived.push(connection),
            None => image.lost.push(id),
        }
    }
    (listeners, arrived)
}

/// A file with the image and its head. `numbers` are the descriptors' numbers in the process that is to read it, and
/// `engine` is the place among them of the state engine's file.
pub(super) fn written(image: &Image, engine: u32, numbers: &[RawFd]) -> Result<File> {
    let mut head = Vec::from(MAGIC);
    head.extend(VERSION.to_be_bytes());
    head.extend(u32::try_from(numbers.len())?.to_be_bytes());
    numbers.iter().for_each(|number| head.extend(number.to_be_bytes()));
    head.extend(engine.to_be_bytes());
    let file = memory::file("holdfast-image")?;
    memory::write(&file, &head, image).context("what is to be handed over cannot be written down")?;
    Ok(file)
}

/// The head: its version, the descriptors' numbers, and what follows. `None` for what is no image.
pub(super) fn head(bytes: &[u8]) -> Option<(u32, Vec<RawFd>, &[u8])> {
    let word = |at: &[u8]| at.first_chunk::<4>().map(|word| u32::from_be_bytes(*word));
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (version, count) = (word(rest)?, word(rest.get(4..)?)? as usize);
    let (numbers, body) = rest.get(8..)?.split_at_checked(count.checked_mul(4)?)?;
    let numbers = numbers.as_chunks::<4>().0.iter().map(|n| RawFd::from_be_bytes(*n)).collect();
    Some((version, numbers, body))
}

/// Reads what follows a head of this version. `descriptors` are all that came; the state engine's file is taken out.
pub(super) fn decode(
    version: u32,
    body: &[u8],
    descriptors: &mut [Option<OwnedFd>],
) -> Result<(Image, Arriving)> {
    let (low, high) = READ.into_inner();
    match version {
        1 => {
            let mut image: Image = unpacked(body)?;
            let engine = image.engine.take().context("it has no state")?;
            let engine = Arriving::from_image(engine, image.lease_ms)?;
            Ok((image, engine))
        }
        2 | VERSION => {
            let (place, body) = body.split_first_chunk().context("it ends too soon")?;
            let place = descriptors.get_mut(u32::from_be_bytes(*place) as usize);
            let file = place.and_then(Option::take).context("the state did not come with it")?;
            // Read while this thread reads the rest.
            let engine = Arriving::from_file(file)?;
            Ok((unpacked(body)?, engine))
        }
        _ => bail!("it is of version {version}, and this program reads versions {low} to {high}"),
    }
}

/// A value out of MessagePack.
pub(super) fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes).context("it cannot be read")
}

#[cfg(test)]
#[path = "image/tests.rs"]
mod tests;
