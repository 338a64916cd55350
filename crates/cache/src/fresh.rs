//! An answer as the operation that asked for it may use it, once, whether or not anything of it could be kept.

use bytes::Bytes;

use crate::ask::Room;
use crate::attrs::Attrs;
use crate::ids::{Name, NodeId, OpenToken};

/// An answer in the machine's own words.
#[derive(Clone, Debug)]
pub(crate) enum Fresh {
    Looked(Option<(NodeId, Attrs)>),
    Attrs(Attrs),
    Listed(Vec<Row>, bool, u64),
    Acquired,
    Read(u64, Bytes, bool),
    Text(Bytes),
    Opened(Option<OpenToken>),
    Created(NodeId, Attrs, Option<OpenToken>),
    /// What was to be made was there, and is open.
    Found(NodeId, Attrs, Option<OpenToken>),
    Gone,
    Written(u32),
    Appended(u64, u32),
    Done,
    Sought(u64),
    Copied(u64),
    Value(Bytes),
    Names(Vec<Name>),
    Room(Room),
    Acts,
}

/// One entry of a listing that came from the server.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: Name,
    pub(crate) cookie: u64,
    pub(crate) node: Option<NodeId>,
    /// As the server told them with it.
    pub(crate) attrs: Option<Attrs>,
    pub(crate) brief: (Option<crate::attrs::Kind>, u64),
}
