//! The kernel's ABI of `/dev/fuse` (`include/uapi/linux/fuse.h`), as bytes: decoding of requests, encoding of replies
//! and notifications. No system call is made here, and no byte that is read can make it panic.
//!
//! Everything is in the machine's byte order, as the kernel writes it.

pub mod encode;
pub(crate) mod fields;
pub mod init;
pub mod opcode;
pub mod operation;

/// Major version of the ABI.
pub const MAJOR: u32 = 7;

/// The newest minor version that this crate knows (Linux 6.18).
pub const MINOR: u32 = 45;

/// The oldest minor version that is served: that of Linux 5.4; 5.10, the oldest kernel supported, has 7.32.
pub const MINOR_MIN: u32 = 31;

/// The first minor version with epochs of names (Linux 6.17).
pub const MINOR_WITH_EPOCHS: u32 = 44;

/// Bytes of a request's header.
pub const IN_HEADER_BYTES: usize = 40;

/// Bytes of a reply's header.
pub const OUT_HEADER_BYTES: usize = 16;

/// Bytes of WRITE's arguments, which lie before the data.
pub const WRITE_IN_BYTES: usize = 40;
