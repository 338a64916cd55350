//! The MOUNT protocol, version 3 (RFC 1813 appendix I).

use holdfast_base::limits::{
    ADDRESS_BYTES_MAX, FLAVORS_MAX, MOUNT_LIST_MAX, WIRE_HANDLE_BYTES_MAX, WIRE_NAME_BYTES_MAX,
};
use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

/// The MOUNT program.
pub const MOUNT_PROGRAM: u32 = 100_005;
/// Its version.
pub const MOUNT_V3: u32 = 3;
/// Does nothing.
pub const MOUNTPROC3_NULL: u32 = 0;
/// [`DirPath`] to [`MountRes3`].
pub const MOUNTPROC3_MNT: u32 = 1;
/// Nothing to [`MountList`].
pub const MOUNTPROC3_DUMP: u32 = 2;
/// [`DirPath`] to nothing.
pub const MOUNTPROC3_UMNT: u32 = 3;
/// Nothing to nothing.
pub const MOUNTPROC3_UMNTALL: u32 = 4;
/// Nothing to [`Exports`].
pub const MOUNTPROC3_EXPORT: u32 = 5;

numbered! {
    /// `mountstat3`.
    MountStat3 {
        Ok = 0, "MNT3_OK", "Mounted.";
        Perm = 1, "MNT3ERR_PERM", "Not the owner.";
        NoEnt = 2, "MNT3ERR_NOENT", "No such directory.";
        Io = 5, "MNT3ERR_IO", "A hard I/O error.";
        Acces = 13, "MNT3ERR_ACCES", "The caller lacks the permission.";
        NotDir = 20, "MNT3ERR_NOTDIR", "Not a directory.";
        Inval = 22, "MNT3ERR_INVAL", "An invalid argument.";
        NameTooLong = 63, "MNT3ERR_NAMETOOLONG", "The path is too long.";
        NotSupp = 10004, "MNT3ERR_NOTSUPP", "Not supported.";
        ServerFault = 10006, "MNT3ERR_SERVERFAULT", "The server failed.";
    }
}

/// `dirpath`: the path to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DirPath<'a>(#[xdr(max = WIRE_NAME_BYTES_MAX)] pub &'a [u8]);

/// `mountres3_ok`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MountOk3<'a> {
    /// The root's handle.
    #[xdr(max = WIRE_HANDLE_BYTES_MAX)]
    pub fhandle: &'a [u8],
    /// Flavors allowed, the preferred first.
    #[xdr(max = FLAVORS_MAX)]
    pub auth_flavors: Vec<u32>,
}

/// `mountres3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountRes3<'a> {
    /// `MNT3_OK`.
    Ok(MountOk3<'a>),
    /// Why not; never `MountStat3::Ok`.
    Fail(MountStat3),
}

impl Encode for MountRes3<'_> {
    fn encode(&self, w: &mut holdfast_xdr::Writer) {
        match self {
            Self::Ok(ok) => {
                MountStat3::Ok.encode(w);
                ok.encode(w);
            }
            Self::Fail(status) => {
                debug_assert_ne!(*status, MountStat3::Ok);
                status.encode(w);
            }
        }
    }
}

impl<'a> Decode<'a> for MountRes3<'a> {
    fn decode(r: &mut holdfast_xdr::Reader<'a>) -> holdfast_xdr::Result<Self> {
        match MountStat3::decode(r)? {
            MountStat3::Ok => MountOk3::decode(r).map(Self::Ok),
            status => Ok(Self::Fail(status)),
        }
    }
}

/// `mountbody`: who mounted what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct MountEntry<'a> {
    /// The client.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub hostname: &'a [u8],
    /// The path.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub directory: &'a [u8],
}

/// `mountlist`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MountList<'a> {
    /// The mounts.
    #[xdr(max = MOUNT_LIST_MAX, chain)]
    pub mounts: Vec<MountEntry<'a>>,
}

/// `groupnode`: who may mount, a host or network by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Group<'a>(#[xdr(max = ADDRESS_BYTES_MAX)] pub &'a [u8]);

/// `exportnode`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Export<'a> {
    /// The path.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub dir: &'a [u8],
    /// Who may mount it; empty: everybody.
    #[xdr(max = MOUNT_LIST_MAX, chain)]
    pub groups: Vec<Group<'a>>,
}

/// `exports`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Exports<'a> {
    /// The exports.
    #[xdr(max = MOUNT_LIST_MAX, chain)]
    pub exports: Vec<Export<'a>>,
}
