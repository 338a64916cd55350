//! The pseudo file system: the read-only directories above the exports (RFC 8881 section 7.3).

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;

use holdfast_base::{ChangeId, Timestamp};
use holdfast_vfs::{Attrs, Device, FileKind, FsId};
use siphasher::sip::SipHasher13;

use crate::export::Export;

/// The pseudo file system's identity; no backend derives this from a UUID.
pub const PSEUDO_FSID: FsId = FsId { major: 0x686f_6c64_6661_7374, minor: 0 };

/// What a name in a pseudo directory stands for.
#[derive(Clone, Debug)]
pub enum PseudoNode {
    /// Another pseudo directory, by its number.
    Directory(u64),
    /// An export's root.
    Export(Arc<Export>),
}

/// A directory of the pseudo file system.
#[derive(Clone, Debug)]
pub struct PseudoDir {
    /// Its number, derived from its path: the same after every restart.
    pub number: u64,
    /// The directory above; the root's is itself.
    pub parent: u64,
    /// What lies in it.
    pub entries: BTreeMap<Vec<u8>, PseudoNode>,
}

impl PseudoDir {
    /// Its attributes; `since` is the moment at which the namespace took its present shape.
    #[must_use]
    pub fn attrs(&self, since: Timestamp) -> Attrs {
        let below = self.entries.values().filter(|n| matches!(n, PseudoNode::Directory(_))).count();
        let nanos =
            since.seconds.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(since.nanos));
        Attrs {
            kind: FileKind::Directory,
            mode: 0o555,
            nlink: 2 + below as u32,
            uid: 0,
            gid: 0,
            size: 4096,
            used: 0,
            rdev: Device::default(),
            fsid: PSEUDO_FSID,
            fileid: self.number,
            mounted_on_fileid: self.number,
            atime: since,
            mtime: since,
            ctime: since,
            btime: None,
            change: ChangeId(nanos),
        }
    }
}

/// The number of the pseudo directory with this path.
#[must_use]
pub(crate) fn number_of(path: &[Vec<u8>]) -> u64 {
    let mut hasher = SipHasher13::new();
    for component in path {
        hasher.write(component);
        hasher.write_u8(b'/');
    }
    // File ids of 0 confuse clients, and numbers above i64::MAX some 32-bit tools.
    (hasher.finish() >> 1).max(1)
}
