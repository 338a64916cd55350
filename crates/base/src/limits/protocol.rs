//! What the protocols allow in one message, name or list.

/// Bytes of an NFS file handle on the wire: NFSv3's maximum (RFC 1813 section 2.4), kept for NFSv4 as well so
/// that one format serves both.
pub const WIRE_HANDLE_BYTES_MAX: usize = 64;

/// Bytes of a backend's handle: what remains of a wire handle after version, export and signature.
pub const BACKEND_HANDLE_BYTES_MAX: usize = 52;

/// Bytes of one file name: what every Linux file system allows (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of a path in MOUNT, or of a symbolic link's text (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;

/// Bytes of data in one READ or WRITE: what Linux clients ask for at most (`NFS_MAX_FILE_IO_SIZE`).
pub const IO_BYTES_MAX: usize = 1 << 20;

/// Bytes of one RPC record, with room for a full WRITE and its compound around it.
pub const RECORD_BYTES_MAX: usize = IO_BYTES_MAX + (64 << 10);

/// Fragments of one record: senders use one, pynfs pieces of 2 KiB, 513 to a full WRITE; many more small ones would
/// make assembly quadratic.
pub const RECORD_FRAGMENTS_MAX: usize = 1024;

/// Bytes of an RPC credential or verifier (RFC 5531 section 8.2).
pub const AUTH_BYTES_MAX: usize = 400;

/// Groups in an AUTH_SYS credential (RFC 5531 section 14, appendix A).
pub const AUTH_SYS_GROUPS_MAX: usize = 16;

/// Groups of one caller after lookup on the server (`NGROUPS_MAX` is 65536; a list this long costs 100 us to
/// install and serves nobody).
pub const CALLER_GROUPS_MAX: usize = 1024;

/// Operations in one COMPOUND. Linux sends fewer than 16; pynfs and libnfs fewer than 100.
pub const COMPOUND_OPS_MAX: usize = 128;

/// Bytes of a COMPOUND's tag.
pub const COMPOUND_TAG_BYTES_MAX: usize = 1024;

/// Bytes of an open or lock owner (RFC 8881 section 3.3.7: `NFS4_OPAQUE_LIMIT`).
pub const OWNER_BYTES_MAX: usize = 1024;

/// Bytes of an extended attribute's value (Linux's `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;

/// Bytes of an extended attribute's name (Linux's `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Bytes of all extended attribute names of a file (Linux's `XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 65536;

/// Bytes of an NFSv4 file handle that is decoded at all (RFC 8881 section 3.1: `NFS4_FHSIZE`). Ours are
/// shorter; a longer one is answered with NFS4ERR_BADHANDLE rather than NFS4ERR_BADXDR.
pub const WIRE_HANDLE4_BYTES_MAX: usize = 128;

/// Bytes of a name or link text that is decoded at all: well above `PATH_BYTES_MAX`, so that a name too long
/// for the file system is answered with NAMETOOLONG and not taken for a broken message.
pub const WIRE_NAME_BYTES_MAX: usize = 8192;

/// Names in one `pathname4` (a referral's path); a path of `PATH_BYTES_MAX` made of short names.
pub const PATH_NAMES_MAX: usize = 1024;

/// Bytes of the values of one `fattr4`: an ACL of `ACES_MAX` entries and everything else fits.
pub const ATTR_BYTES_MAX: usize = 128 << 10;

/// Words of a `bitmap4` that are read; four are known today, and test suites ask for attributes around 1,000 to see
/// them refused. What is longer is an attack.
pub const BITMAP_WORDS_MAX: usize = 64;

/// Entries of one ACL: an extended attribute of 64 KiB holds no more on Linux file systems.
pub const ACES_MAX: usize = 1024;

/// Bytes of the `who` of an ACL entry, of an owner or group name.
pub const PRINCIPAL_BYTES_MAX: usize = 1024;

/// Bytes of a network id, a universal address, or a server name.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// Servers or locations in one list (fs_locations, COPY's sources).
pub const LOCATIONS_MAX: usize = 64;

/// Places of one export that clients are told, beside this server or instead: each is tried in turn by who finds no other, and a
/// client that is away for a minute tries no more.
pub const EXPORT_LOCATIONS_MAX: usize = 8;

/// Security flavors in one list (SECINFO, MOUNT, CREATE_SESSION's callback parameters).
pub const FLAVORS_MAX: usize = 32;

/// Bytes of a security mechanism's object identifier.
pub const OID_BYTES_MAX: usize = 64;

/// Algorithms offered, or handles given out, for SP4_SSV.
pub const SSV_ITEMS_MAX: usize = 64;

/// Bytes of a GSS context handle, a secret state verifier, or a digest.
pub const GSS_TOKEN_BYTES_MAX: usize = 4096;

/// Bytes of the layout-type-specific part of a layout, device address, layout update or return.
pub const LAYOUT_BODY_BYTES_MAX: usize = 64 << 10;

/// Layouts or devices in one list.
pub const LAYOUTS_MAX: usize = 256;

/// State ids in one TEST_STATEID: Linux asks for one, a migrating client for all it holds.
pub const TEST_STATEIDS_MAX: usize = 4096;

/// Errors in one LAYOUTERROR or layout return.
pub const DEVICE_ERRORS_MAX: usize = 64;

/// Sessions, and calls of each, in the referring call lists of CB_SEQUENCE.
pub const REFERRING_CALLS_MAX: usize = 128;

/// Changes in one CB_NOTIFY or CB_NOTIFY_DEVICEID.
pub const NOTIFY_CHANGES_MAX: usize = 1024;

/// Segments in one READ_PLUS reply.
pub const READ_PLUS_SEGMENTS_MAX: usize = 1024;

/// Entries a client decodes from one READDIR or LISTXATTRS reply: 1 MiB of the smallest.
pub const DIRECTORY_ENTRIES_MAX: usize = 65536;

/// Exports, or mounts, in one list of the MOUNT protocol.
pub const MOUNT_LIST_MAX: usize = 65536;

/// Bytes of the machine name in an AUTH_SYS credential (RFC 5531 appendix A).
pub const AUTH_SYS_NAME_BYTES_MAX: usize = 255;
