//! Values of the file attributes that are more than a number: ACLs, locations, labels, retention and
//! so on.

use holdfast_base::limits::{
    ACES_MAX, ADDRESS_BYTES_MAX, ATTR_BYTES_MAX, LAYOUT_BODY_BYTES_MAX, LAYOUTS_MAX, LOCATIONS_MAX,
    PRINCIPAL_BYTES_MAX,
};

use holdfast_xdr::{Decode, Encode};

use super::{Bitmap4, LayoutType4, NfsTime4, PathName4};

/// `fattr4`: which attributes, and their values in the order of the bits, not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Fattr4<'a> {
    /// Which attributes.
    pub mask: Bitmap4,
    /// Their values, one after the other.
    #[xdr(max = ATTR_BYTES_MAX)]
    pub values: &'a [u8],
}

/// `nfsace4`: one entry of an ACL (RFC 8881 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NfsAce4<'a> {
    /// One of `ACE4_*_ACE_TYPE`.
    pub ace_type: u32,
    /// Inheritance and audit flags.
    pub flag: u32,
    /// What is allowed or denied.
    pub access_mask: u32,
    /// For whom: a name, or `OWNER@` and the like.
    #[xdr(max = PRINCIPAL_BYTES_MAX)]
    pub who: &'a [u8],
}

/// Allows.
pub const ACE4_ACCESS_ALLOWED_ACE_TYPE: u32 = 0;
/// Denies.
pub const ACE4_ACCESS_DENIED_ACE_TYPE: u32 = 1;
/// Logs.
pub const ACE4_SYSTEM_AUDIT_ACE_TYPE: u32 = 2;
/// Raises an alarm.
pub const ACE4_SYSTEM_ALARM_ACE_TYPE: u32 = 3;
/// `aclsupport`: allow entries.
pub const ACL4_SUPPORT_ALLOW_ACL: u32 = 1;
/// `aclsupport`: deny entries.
pub const ACL4_SUPPORT_DENY_ACL: u32 = 2;
/// `aclsupport`: audit entries.
pub const ACL4_SUPPORT_AUDIT_ACL: u32 = 4;
/// `aclsupport`: alarm entries.
pub const ACL4_SUPPORT_ALARM_ACL: u32 = 8;
/// Inherited by files.
pub const ACE4_FILE_INHERIT_ACE: u32 = 0x01;
/// Inherited by directories.
pub const ACE4_DIRECTORY_INHERIT_ACE: u32 = 0x02;
/// Inherited one level only.
pub const ACE4_NO_PROPAGATE_INHERIT_ACE: u32 = 0x04;
/// Does not apply to the directory itself.
pub const ACE4_INHERIT_ONLY_ACE: u32 = 0x08;
/// Audit successes.
pub const ACE4_SUCCESSFUL_ACCESS_ACE_FLAG: u32 = 0x10;
/// Audit failures.
pub const ACE4_FAILED_ACCESS_ACE_FLAG: u32 = 0x20;
/// `who` is a group.
pub const ACE4_IDENTIFIER_GROUP: u32 = 0x40;
/// Was inherited.
pub const ACE4_INHERITED_ACE: u32 = 0x80;
/// Read data; list a directory.
pub const ACE4_READ_DATA: u32 = 0x0000_0001;
/// Write data; add a file.
pub const ACE4_WRITE_DATA: u32 = 0x0000_0002;
/// Append data; add a directory.
pub const ACE4_APPEND_DATA: u32 = 0x0000_0004;
/// Read named attributes.
pub const ACE4_READ_NAMED_ATTRS: u32 = 0x0000_0008;
/// Write named attributes.
pub const ACE4_WRITE_NAMED_ATTRS: u32 = 0x0000_0010;
/// Execute; search.
pub const ACE4_EXECUTE: u32 = 0x0000_0020;
/// Delete entries.
pub const ACE4_DELETE_CHILD: u32 = 0x0000_0040;
/// Read basic attributes.
pub const ACE4_READ_ATTRIBUTES: u32 = 0x0000_0080;
/// Write times and the like.
pub const ACE4_WRITE_ATTRIBUTES: u32 = 0x0000_0100;
/// Set retention.
pub const ACE4_WRITE_RETENTION: u32 = 0x0000_0200;
/// Set retention holds.
pub const ACE4_WRITE_RETENTION_HOLD: u32 = 0x0000_0400;
/// Delete the object.
pub const ACE4_DELETE: u32 = 0x0001_0000;
/// Read the ACL.
pub const ACE4_READ_ACL: u32 = 0x0002_0000;
/// Write the ACL and mode.
pub const ACE4_WRITE_ACL: u32 = 0x0004_0000;
/// Change the owner.
pub const ACE4_WRITE_OWNER: u32 = 0x0008_0000;
/// Use it for synchronization.
pub const ACE4_SYNCHRONIZE: u32 = 0x0010_0000;

/// The `acl` attribute.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Acl4<'a> {
    /// The entries, in the order they are applied.
    #[xdr(max = ACES_MAX)]
    pub aces: Vec<NfsAce4<'a>>,
}

/// `nfsacl41`: the `dacl` and `sacl` attributes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NfsAcl41<'a> {
    /// Whether inherited automatically, protected, defaulted.
    pub flag: u32,
    /// The entries, in the order they are applied.
    #[xdr(max = ACES_MAX)]
    pub aces: Vec<NfsAce4<'a>>,
}

/// `mode_masked4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ModeMasked4 {
    /// Mode bits to set or reset.
    pub value_to_set: u32,
    /// Which bits are meant.
    pub mask_bits: u32,
}

/// `mode_umask4` (RFC 8275).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ModeUmask4 {
    /// The mode that the application asked for.
    pub mode: u32,
    /// Its umask, which a default ACL overrides.
    pub umask: u32,
}

/// `change_policy4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ChangePolicy4 {
    /// One half.
    pub major: u64,
    /// The other half.
    pub minor: u64,
}

/// `fs_location4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FsLocation4<'a> {
    /// Names or addresses of the servers.
    #[xdr(max = LOCATIONS_MAX)]
    pub servers: Vec<Server4<'a>>,
    /// The file system's root there.
    pub rootpath: PathName4<'a>,
}

/// A server's name or address, for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Server4<'a> {
    /// The name.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub name: &'a [u8],
}

/// `fs_locations4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FsLocations4<'a> {
    /// The file system's root here.
    pub fs_root: PathName4<'a>,
    /// Where else it is.
    #[xdr(max = LOCATIONS_MAX)]
    pub locations: Vec<FsLocation4<'a>>,
}

/// `fs_locations_server4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct FsLocationsServer4<'a> {
    /// How far behind the data are, in seconds; negative when unknown.
    pub currency: i32,
    /// Flags and ranks by byte (`FSLI4BX_*`).
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub info: &'a [u8],
    /// The server's name.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub server: &'a [u8],
}

/// `fs_locations_item4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FsLocationsItem4<'a> {
    /// Servers with the same root path.
    #[xdr(max = LOCATIONS_MAX)]
    pub entries: Vec<FsLocationsServer4<'a>>,
    /// The root there.
    pub rootpath: PathName4<'a>,
}

/// `fs_locations_info4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FsLocationsInfo4<'a> {
    /// `FSLI4IF_VAR_SUB`.
    pub flags: u32,
    /// Seconds for which it holds.
    pub valid_for: i32,
    /// The root here.
    pub fs_root: PathName4<'a>,
    /// Where else it is.
    #[xdr(max = LOCATIONS_MAX)]
    pub items: Vec<FsLocationsItem4<'a>>,
}

/// `fs4_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct FsStatus4<'a> {
    /// Not here any more, or never was.
    pub absent: bool,
    /// What becomes of it.
    pub status: FsStatusType4,
    /// Where it comes from.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub source: &'a [u8],
    /// Which version it is.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub current: &'a [u8],
    /// Seconds since it was current.
    pub age: i32,
    /// Its version.
    pub version: NfsTime4,
}

/// `fs4_status_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum FsStatusType4 {
    /// Never changes.
    Fixed = 1,
    /// Replaced as a whole.
    Updated = 2,
    /// Snapshots, each whole.
    Versioned = 3,
    /// Can be written.
    Writable = 4,
    /// Only ever a pointer elsewhere.
    Referral = 5,
}

/// `threshold_item4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ThresholdItem4<'a> {
    /// For which layouts.
    pub layout_type: LayoutType4,
    /// Which thresholds.
    pub hintset: Bitmap4,
    /// Their values.
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub hintlist: &'a [u8],
}

/// `mdsthreshold4`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MdsThreshold4<'a> {
    /// One a layout type.
    #[xdr(max = LAYOUTS_MAX)]
    pub hints: Vec<ThresholdItem4<'a>>,
}

/// `layouthint4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutHint4<'a> {
    /// For which layouts.
    pub layout_type: LayoutType4,
    /// The hint.
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: &'a [u8],
}

/// `retention_get4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RetentionGet4 {
    /// Seconds; all ones for ever.
    pub duration: u64,
    /// Since when, if it has begun.
    pub begin_time: Option<NfsTime4>,
}

/// `retention_set4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RetentionSet4 {
    /// Begin now.
    pub enable: bool,
    /// Seconds.
    pub duration: Option<u64>,
}

/// `sec_label4` (RFC 7862 section 12.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SecLabel4<'a> {
    /// The label's format.
    pub lfs: u32,
    /// The policy.
    pub pi: u32,
    /// The label.
    #[xdr(max = PRINCIPAL_BYTES_MAX)]
    pub data: &'a [u8],
}

/// `change_attr_type4` (RFC 7862 section 12.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum ChangeAttrType4 {
    /// Only ever grows.
    MonotonicIncr = 0,
    /// Grows by one a change.
    VersionCounter = 1,
    /// The same, but not under pNFS.
    VersionCounterNoPnfs = 2,
    /// Is the metadata time.
    TimeMetadata = 3,
    /// Nothing is promised.
    Undefined = 4,
}

/// `open_arguments4` (RFC 9754 section 3): what OPEN understands here, each a set of the values' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenArguments4 {
    /// Values of share_access.
    pub share_access: Bitmap4,
    /// Values of share_deny.
    pub share_deny: Bitmap4,
    /// Wants.
    pub share_access_want: Bitmap4,
    /// Claims.
    pub open_claim: Bitmap4,
    /// Create modes.
    pub create_mode: Bitmap4,
}

/// `open_arguments4`, wants: any delegation.
pub const OPEN_ARGS_SHARE_ACCESS_WANT_ANY_DELEG: u32 = 3;
/// `open_arguments4`, wants: no delegation.
pub const OPEN_ARGS_SHARE_ACCESS_WANT_NO_DELEG: u32 = 4;
/// `open_arguments4`, wants: to cancel an earlier want.
pub const OPEN_ARGS_SHARE_ACCESS_WANT_CANCEL: u32 = 5;
/// `open_arguments4`, wants: a signal when there are resources.
pub const OPEN_ARGS_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL: u32 = 17;
/// `open_arguments4`, wants: a delegation pushed when nobody contends.
pub const OPEN_ARGS_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED: u32 = 18;
/// `open_arguments4`, wants: the timestamps with the delegation.
pub const OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS: u32 = 20;
/// `open_arguments4`, wants: an open state id or a delegation, not both.
pub const OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION: u32 = 21;
