//! The port mapper: portmap version 2 and rpcbind versions 3 and 4 (RFC 1833).

use holdfast_base::limits::{ADDRESS_BYTES_MAX, MOUNT_LIST_MAX};
use holdfast_xdr::{Decode, Encode};

/// The port mapper's program.
pub const PMAP_PROGRAM: u32 = 100_000;
/// Where it listens.
pub const PMAP_PORT: u16 = 111;
/// Version: portmap.
pub const PMAP_V2: u32 = 2;
/// Version: rpcbind.
pub const RPCB_V3: u32 = 3;
/// Version: rpcbind.
pub const RPCB_V4: u32 = 4;
/// Does nothing; in every version.
pub const PMAPPROC_NULL: u32 = 0;
/// [`Mapping`] to a boolean.
pub const PMAPPROC_SET: u32 = 1;
/// [`Mapping`] (protocol and port ignored) to a boolean.
pub const PMAPPROC_UNSET: u32 = 2;
/// [`Mapping`] (port ignored) to a port as a `u32`, 0 when unknown.
pub const PMAPPROC_GETPORT: u32 = 3;
/// Nothing to [`MappingList`].
pub const PMAPPROC_DUMP: u32 = 4;
/// [`Rpcb`] to a boolean.
pub const RPCBPROC_SET: u32 = 1;
/// [`Rpcb`] to a boolean.
pub const RPCBPROC_UNSET: u32 = 2;
/// [`Rpcb`] to a [`UniversalAddress`], empty when unknown.
pub const RPCBPROC_GETADDR: u32 = 3;
/// Nothing to [`RpcbList`].
pub const RPCBPROC_DUMP: u32 = 4;
/// [`Rpcb`] to a [`UniversalAddress`] of exactly that version; version 4.
pub const RPCBPROC_GETVERSADDR: u32 = 9;
/// A call to another program through the port mapper, in every version: never served, as it lends our address to
/// whoever asks.
pub const PMAPPROC_CALLIT: u32 = 5;
/// Nothing to the time in seconds, a `u32`.
pub const RPCBPROC_GETTIME: u32 = 6;
/// [`Rpcb`] to [`RpcbEntryList`]; version 4.
pub const RPCBPROC_GETADDRLIST: u32 = 11;
/// [`RpcbEntry`]'s semantics: a connection with orderly release.
pub const NC_TPI_COTS_ORD: u32 = 3;
/// [`RpcbEntry`]'s semantics: datagrams.
pub const NC_TPI_CLTS: u32 = 1;
/// [`Mapping`]'s protocol: TCP.
pub const IPPROTO_TCP: u32 = 6;
/// [`Mapping`]'s protocol: UDP.
pub const IPPROTO_UDP: u32 = 17;

/// `mapping`: portmap's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Mapping {
    /// The program.
    pub prog: u32,
    /// Its version.
    pub vers: u32,
    /// The protocol.
    pub prot: u32,
    /// The port.
    pub port: u32,
}

/// `pmaplist`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MappingList {
    /// The entries.
    #[xdr(max = MOUNT_LIST_MAX, chain)]
    pub mappings: Vec<Mapping>,
}

/// `rpcb`: rpcbind's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Rpcb<'a> {
    /// The program.
    pub prog: u32,
    /// Its version.
    pub vers: u32,
    /// The transport: `tcp`, `udp`, `tcp6`, `udp6`.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub netid: &'a [u8],
    /// The universal address.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub addr: &'a [u8],
    /// Who registered it.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub owner: &'a [u8],
}

/// `rpcblist`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RpcbList<'a> {
    /// The entries.
    #[xdr(max = MOUNT_LIST_MAX, chain)]
    pub entries: Vec<Rpcb<'a>>,
}

/// A universal address (RFC 5665): `h.h.h.h.p.p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct UniversalAddress<'a>(#[xdr(max = ADDRESS_BYTES_MAX)] pub &'a [u8]);

/// `rpcb_entry`: one way to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RpcbEntry<'a> {
    /// Its universal address.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub maddr: &'a [u8],
    /// The transport.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub netid: &'a [u8],
    /// [`NC_TPI_COTS_ORD`] or [`NC_TPI_CLTS`].
    pub semantics: u32,
    /// `inet` or `inet6`.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub protofmly: &'a [u8],
    /// `tcp` or `udp`.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub proto: &'a [u8],
}

/// `rpcb_entry_list`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RpcbEntryList<'a> {
    /// The entries.
    #[xdr(max = MOUNT_LIST_MAX, chain)]
    pub entries: Vec<RpcbEntry<'a>>,
}
