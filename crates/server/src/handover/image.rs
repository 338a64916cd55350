//! What one process writes down for the next.
//!
//! A head in a form that never changes, so that every program can at least close what it was given: eight bytes of
//! magic, the version, the count of descriptors and their numbers. Then the image in MessagePack with the names of
//! its fields: a newer program reads what an older one wrote as long as fields that came in between have defaults.

use std::os::fd::{OwnedFd, RawFd};

use anyhow::{Context, Result, bail};
use holdfast_base::limits::HANDOVER_IMAGE_BYTES_MAX;
use holdfast_rpc::handover::{Handed, HandedConnection};
use holdfast_vfs::handover::{FileImage, Incoming, Outgoing};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The version written, and the only one read. To be raised when a field changes its meaning.
pub(super) const VERSION: u32 = 1;

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

/// The image with its head. `numbers` are the descriptors' numbers in the process that is to read it.
pub(super) fn encode(image: &Image, numbers: &[RawFd]) -> Result<Vec<u8>> {
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(u32::try_from(numbers.len())?.to_be_bytes());
    numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    rmp_serde::encode::write_named(&mut bytes, image)
        .context("what is to be handed over cannot be written down")?;
    if bytes.len() > HANDOVER_IMAGE_BYTES_MAX {
        bail!("there are {} bytes to be handed over, which are too many", bytes.len());
    }
    Ok(bytes)
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

/// Reads what follows a head of this version.
pub(super) fn decode(version: u32, body: &[u8]) -> Result<Image> {
    if version != VERSION {
        bail!("it is of version {version}, and this program reads version {VERSION}");
    }
    rmp_serde::from_slice(body).context("it cannot be read")
}

#[cfg(test)]
#[path = "image/tests.rs"]
mod tests;
