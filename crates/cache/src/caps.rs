//! Capabilities that come from a server.

use holdfast_base::CapSet;

/// Capabilities that came with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Everything held on the object from now on, not only what is new.
    pub caps: CapSet,
    /// Order of grants and recalls of this object for this client: the higher is the later.
    pub seq: u64,
    /// On a directory: what is made in it needs no look at a default ACL or at anything else the client cannot see,
    /// except the set-group-id bit, which it sees.
    pub plain: bool,
    /// On a directory: what is made in it gets its group, whatever its set-group-id bit says.
    pub group_of_directory: bool,
    /// It has an access list, or may have one: its mode alone does not say who may do what.
    pub listed: bool,
    /// Of a directory: it surely hands on no access list, as long as `AUTH_S` and `XATTR_S` are held. A server may not tell.
    pub hands_on_none: bool,
    /// Of a claim, of a server that began anew: the object was changed when the one before was dead already. A server may not tell.
    pub changed_since: bool,
}
