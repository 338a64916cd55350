//! What is measured: operations, clients, and how many connections and calls in flight.

use clap::ValueEnum;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// One operation under load. Those that change names come in the order in which they need each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// GETATTR of cached files.
    Getattr,
    /// LOOKUP of cached names.
    Lookup,
    /// ACCESS of cached files.
    Access,
    /// CREATE of an empty file (4.1: OPEN and CLOSE).
    Create,
    /// RENAME of what `Create` left, within its directory.
    Rename,
    /// REMOVE of what `Rename` left.
    Unlink,
    /// MKDIR.
    Mkdir,
    /// Whole listings with attributes (v3: and handles); counted in entries.
    Readdir,
    /// READ of 4 KiB at random, cached.
    Read4k,
    /// Unstable WRITE of 4 KiB at random.
    Write4k,
    /// READ of 1 MiB, in order, cached.
    Read1m,
    /// Unstable WRITE of 1 MiB, in order.
    Write1m,
}

impl Op {
    /// Every operation, in the order of a turn.
    pub(crate) const ALL: [Self; 12] = [
        Self::Getattr,
        Self::Lookup,
        Self::Access,
        Self::Create,
        Self::Rename,
        Self::Unlink,
        Self::Mkdir,
        Self::Readdir,
        Self::Read4k,
        Self::Write4k,
        Self::Read1m,
        Self::Write1m,
    ];

    /// As people and the client in C write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Getattr => "getattr",
            Self::Lookup => "lookup",
            Self::Access => "access",
            Self::Create => "create",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::Mkdir => "mkdir",
            Self::Readdir => "readdir",
            Self::Read4k => "read4k",
            Self::Write4k => "write4k",
            Self::Read1m => "read1m",
            Self::Write1m => "write1m",
        }
    }

    /// Whether a turn does a fixed number of them, not as many as the time allows: a fast server must not be
    /// punished with a larger directory.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Self::Create | Self::Rename | Self::Unlink | Self::Mkdir)
    }

    /// Bytes of data that one moves.
    pub(crate) fn data_bytes(self) -> u32 {
        match self {
            Self::Read4k | Self::Write4k => 4 << 10,
            Self::Read1m | Self::Write1m => 1 << 20,
            _ => 0,
        }
    }
}

/// Who sends the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClientKind {
    /// Our own, NFSv3: all calls that may go are sent with one write.
    Raw3,
    /// Our own, NFSv4.1, batching likewise.
    Raw41,
    /// libnfs, NFSv3: one write a call.
    Libnfs,
}

impl ClientKind {
    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw3 => "raw3",
            Self::Raw41 => "raw41",
            Self::Libnfs => "libnfs",
        }
    }
}

/// Connections and calls in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Shape {
    /// Connections.
    pub(crate) connections: usize,
    /// Calls in flight on each.
    pub(crate) depth: usize,
}

/// Connections, and calls in flight on each, that the clients are built for.
const CONNECTIONS_MAX: usize = 1000;
const DEPTH_MAX: usize = 64;
/// Large transfers in flight in all: more only measures how much memory they take.
const LARGE_IN_FLIGHT_MAX: usize = 16;

impl Shape {
    /// The shape as used for an operation: a listing goes on where it stands, so one a connection is under way;
    /// large transfers are held to a few in flight.
    pub(crate) fn for_op(self, op: Op) -> Self {
        if op == Op::Readdir {
            return Self { depth: 1, ..self };
        }
        if op.data_bytes() < 1 << 20 {
            return self;
        }
        let connections = self.connections.min(LARGE_IN_FLIGHT_MAX);
        Self { connections, depth: self.depth.min(LARGE_IN_FLIGHT_MAX / connections) }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.connections, self.depth)
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no CONNECTIONSxDEPTH (to {CONNECTIONS_MAX} and {DEPTH_MAX})");
        let (connections, depth) = text.split_once('x').ok_or_else(wrong)?;
        let (connections, depth) = (connections.parse().ok(), depth.parse().ok());
        let (connections, depth) = connections.zip(depth).ok_or_else(wrong)?;
        let is_within = (1..=CONNECTIONS_MAX).contains(&connections) && (1..=DEPTH_MAX).contains(&depth);
        if is_within { Ok(Self { connections, depth }) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_as_it_is_written() {
        let shape: Shape = "4x8".parse().unwrap();
        assert_eq!((shape.connections, shape.depth, shape.to_string()), (4, 8, "4x8".to_owned()));
        for wrong in ["", "4", "0x8", "4x0", "4x65", "1001x1", "ax8"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn large_transfers_and_listings_in_flight_are_few() {
        let shape = Shape { connections: 4, depth: 8 };
        assert_eq!(shape.for_op(Op::Readdir), Shape { connections: 4, depth: 1 });
        assert_eq!(shape.for_op(Op::Read1m), Shape { connections: 4, depth: 4 });
        assert_eq!(Shape { connections: 100, depth: 32 }.for_op(Op::Write1m).connections, 16);
        assert_eq!(shape.for_op(Op::Read4k), shape);
    }
}
