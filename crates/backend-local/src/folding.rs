//! Directories in which names that differ in case are one. Clients' caches, and the index of what is promised of names, tell names
//! apart by their bytes; so nothing is promised of such directories, and everything in them is asked for.

use holdfast_vfs::FsResult;
use rustix::fs::{IFlags, OFlags, ioctl_getflags};
use rustix::io::Errno;

use crate::filesystem::{FsKind, Nature};
use crate::local::LocalBackend;
use crate::object::Object;

/// `FS_CASEFOLD_FL`.
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);

/// File systems that ignore case throughout, unless told otherwise where nobody sees it. As in `linux/magic.h` and their own
/// sources: FAT, exFAT, NTFS (both drivers), HFS, HFS+, APFS, SMB 1 and later.
const IGNORE_CASE: [u64; 9] =
    [0x4d44, 0x2011_bab0, 0x5346_544e, 0x7366_746e, 0x4244, 0x482b, 0x4253_5041, 0xff53_4d42, 0xfe53_4d42];

/// Whether directories of such a file system need not be looked at one by one: what they all do.
fn all_alike(nature: &Nature) -> Option<bool> {
    match nature.kind {
        // (XFS may be made so, `-n version=ci`, which its developers have given up.)
        FsKind::Xfs | FsKind::Btrfs => Some(false),
        FsKind::Ext4 | FsKind::Tmpfs | FsKind::Overlay => None,
        FsKind::Other => IGNORE_CASE.contains(&nature.magic).then_some(true),
    }
}

/// What its flags say of a directory. Who has none to tell has nothing like this.
fn by_flags(flags: Result<IFlags, Errno>) -> bool {
    match flags {
        Ok(flags) => flags.contains(CASEFOLD),
        Err(error) => !matches!(error, Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL),
    }
}

impl LocalBackend {
    /// Whether names in a directory that differ in case are one, or may be.
    pub(crate) fn ignores_case(&self, dir: &Object) -> FsResult<bool> {
        if let Some(all) = all_alike(&dir.fs.nature) {
            return Ok(all);
        }
        self.identity.as_server();
        let open = self.sparing(|| self.proc_fd.reopen(dir.fd(), OFlags::RDONLY | OFlags::DIRECTORY))?;
        Ok(by_flags(ioctl_getflags(&open)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_ignore_case_is_taken_to() {
        assert!(by_flags(Ok(CASEFOLD | IFlags::NODUMP)));
        assert!(!by_flags(Ok(IFlags::NODUMP)) && !by_flags(Ok(IFlags::empty())));
        assert!(!by_flags(Err(Errno::NOTTY)) && !by_flags(Err(Errno::OPNOTSUPP)));
        assert!(by_flags(Err(Errno::IO)), "nobody knows");
        let mut nature = Nature::of(std::fs::File::open("/proc").unwrap()).unwrap();
        assert_eq!(all_alike(&nature), None);
        nature.magic = 0x4d44;
        assert_eq!(all_alike(&nature), Some(true));
        nature.kind = FsKind::Xfs;
        assert_eq!(all_alike(&nature), Some(false));
    }
}
