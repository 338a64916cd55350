//! One file system below the export: its identity, what it can do, and how it is told apart from others.

use std::hash::Hasher as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::Timestamp;
use holdfast_vfs::{FsId, FsLimits, FsResult};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat};
use rustix::io::Errno;
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::commit::Committer;
use crate::errors::fs_error;
use crate::sys;

/// The kinds of file systems that something here depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsKind {
    Ext4,
    Xfs,
    Btrfs,
    Tmpfs,
    Overlay,
    Other,
}

/// File systems that hold no files but the kernel's own doors: what is read and written there acts on this host, with
/// what the server itself may do, so they are not handed out even when `/` is exported. As in `linux/magic.h`: proc,
/// sysfs, cgroup, cgroup2, debugfs, tracefs, devpts, securityfs, bpf, pstore, efivarfs, configfs, nsfs, binfmt_misc,
/// selinuxfs, mqueue.
const KERNEL_INTERFACES: [u64; 16] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x1cd1,
    0x7363_6673,
    0xcafe_4a11,
    0x6165_676c,
    0xde5e_81e4,
    0x6265_6570,
    0x6e73_6673,
    0x4249_4e4d,
    0xf97c_ff8c,
    0x1980_0202,
];

/// Other file systems that one host alone has at a time, as in `linux/magic.h` and their own headers: zfs, f2fs, bcachefs, jfs,
/// nilfs2, exfat, ntfs3, vfat, hfsplus, udf, iso9660, squashfs, erofs, reiserfs, hfs, ubifs, jffs2, minix. FUSE is not among them: behind it may be anything.
const OF_ONE_HOST: [u64; 18] = [
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
    0x3153_464a,
    0x3434,
    0x2011_bab0,
    0x7366_746e,
    0x4d44,
    0x482b,
    0x1501_3346,
    0x9660,
    0x7371_7368,
    0xe0f5_e1e2,
    0x5265_4973,
    0x4244,
    0x2405_1905,
    0x72b6,
    0x137f,
];

impl FsKind {
    fn from_magic(magic: u64) -> Self {
        match magic {
            0xef53 => Self::Ext4,
            0x5846_5342 => Self::Xfs,
            0x9123_683e => Self::Btrfs,
            0x0102_1994 | 0x8584_58f6 => Self::Tmpfs,
            0x794c_7630 => Self::Overlay,
            _ => Self::Other,
        }
    }

    /// Whether `statfs` derives its id from the UUID on the disk.
    pub(crate) const fn has_lasting_fsid(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Btrfs)
    }

    /// Whether every kind of change, once the kernel has multigrain times, takes a new one. tmpfs is not among
    /// them: its unlink gives the directory the time of the removed file, which nobody may have looked at (seen
    /// on 6.18). An overlay is what lies below it.
    const fn steps_every_time(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Btrfs)
    }

    /// Whether an entry's number in a directory (`d_ino`) is that of exactly one object for as long as somebody
    /// holds it, the names of mount points apart. Not among them: btrfs, where subvolumes count for themselves;
    /// tmpfs, whose numbers may wrap; an overlay, which lists what lies below.
    pub(crate) const fn numbers_are_unique(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs)
    }

    /// Whether a descriptor for neither reading nor writing stands in nobody's way there, as was tried.
    pub(crate) const fn opens_for_neither(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Tmpfs)
    }

    /// Whether somebody beyond this kernel may have to be asked: nothing is known of kinds that are not named here.
    pub(crate) const fn may_be_remote(self) -> bool {
        matches!(self, Self::Other)
    }

    /// Whether access lists are named among the extended attributes wherever there are any: an overlay names what lies below it
    /// does, and of others nothing is known.
    pub(crate) const fn names_lists(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Btrfs | Self::Tmpfs)
    }

    /// Whether nothing of it ever waits for a disk.
    pub(crate) const fn is_in_memory(self) -> bool {
        matches!(self, Self::Tmpfs)
    }
}

/// How handles of objects on it are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    /// The kernel's, wrapped.
    Kernel,
    /// Rows of our own table.
    Table,
}

/// What `statfs` and the kernel tell about a file system's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nature {
    pub(crate) kind: FsKind,
    pub(crate) magic: u64,
    pub(crate) statfs_id: u64,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) is_read_only: bool,
    pub(crate) name_bytes_max: u32,
    pub(crate) block_bytes: u32,
}

const ST_RDONLY: u64 = 1;

impl Nature {
    /// Whether it holds no files, but the kernel's own doors.
    pub(crate) fn is_kernel_interface(&self) -> bool {
        KERNEL_INTERFACES.contains(&self.magic)
    }

    /// Whether other hosts cannot change it either while this one has it: so that who vouches for this host's processes has vouched
    /// for everybody.
    pub(crate) fn is_of_this_host_alone(&self) -> bool {
        !self.kind.may_be_remote() || OF_ONE_HOST.contains(&self.magic)
    }

    /// Asks the kernel. `object` must be open, not merely `O_PATH`, for the UUID to be told.
    pub(crate) fn of(object: impl AsFd) -> FsResult<Self> {
        let st = rustix::fs::fstatfs(&object).map_err(fs_error)?;
        let vfs = rustix::fs::fstatvfs(&object).map_err(fs_error)?;
        let magic = st.f_type as u64 & 0xffff_ffff;
        Ok(Self {
            kind: FsKind::from_magic(magic),
            magic,
            statfs_id: vfs.f_fsid,
            uuid: sys::fs_uuid(&object).ok(),
            is_read_only: vfs.f_flag.bits() & ST_RDONLY != 0,
            name_bytes_max: u32::try_from(vfs.f_namemax).unwrap_or(255),
            block_bytes: u32::try_from(vfs.f_bsize).unwrap_or(4096),
        })
    }

    /// The identity that lasts, where there is one.
    pub(crate) fn lasting_id(&self) -> Option<FsId> {
        match self.uuid {
            // A tmpfs or overlay makes its UUID up at every mount.
            Some(uuid) if !matches!(self.kind, FsKind::Tmpfs | FsKind::Overlay) => Some(hash_id(&[&uuid])),
            _ if self.kind.has_lasting_fsid() => {
                Some(hash_id(&[&self.magic.to_le_bytes(), &self.statfs_id.to_le_bytes()]))
            }
            _ => None,
        }
    }
}

/// What tells an exported directory from others of its file system, and stays the same as long as it is there.
/// `None` where nothing does; handles are rows of a table there, and those lead below the directory only.
pub(crate) fn root_tag(top: impl AsFd, st: &Statx) -> Option<u64> {
    let magic = rustix::fs::fstatfs(&top).ok()?.f_type as u64 & 0xffff_ffff;
    let kind = FsKind::from_magic(magic);
    if !matches!(kind, FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs | FsKind::Tmpfs) {
        let handle = sys::name_to_handle(&top, c"").ok()?;
        return Some(hash_id(&[b"root", handle.as_bytes()]).major);
    }
    // Not the kernel's handle, whose form may change with a mount option (XFS). A snapshot copies the birth time:
    // btrfs tells subvolumes apart by their own id.
    let subvolume = if kind == FsKind::Btrfs { rustix::fs::fstatvfs(&top).ok()?.f_fsid } else { 0 };
    let born = if st.stx_mask & StatxFlags::BTIME.bits() == 0 {
        (0, 0)
    } else {
        (st.stx_btime.tv_sec, st.stx_btime.tv_nsec)
    };
    let parts = [st.stx_ino, subvolume, born.0 as u64, u64::from(born.1)].map(u64::to_le_bytes);
    Some(hash_id(&[b"root", &parts.concat()]).major)
}

/// A 128-bit id of some bytes; the same in every run.
pub(crate) fn hash_id(parts: &[&[u8]]) -> FsId {
    let mut hasher = SipHasher13::new();
    for part in parts {
        hasher.write(part);
    }
    let hash = hasher.finish128();
    FsId { major: hash.h1, minor: hash.h2 }
}

/// A file system that was met.
pub(crate) struct FileSystem {
    /// Constant: what its handles begin with.
    pub(crate) key: u64,
    pub(crate) id: FsId,
    pub(crate) nature: Nature,
    pub(crate) handles: HandleKind,
    /// The directory it was met at: its root, or the exported directory. Open for reading where that is allowed.
    pub(crate) top: OwnedFd,
    pub(crate) top_ino: u64,
    /// The mount it was met at, as `statx` counts them.
    pub(crate) top_mount: u64,
    /// The device that its top says it is on; no part of any identity.
    pub(crate) top_dev: u64,
    pub(crate) is_multigrain: bool,
    pub(crate) limits: FsLimits,
    pub(crate) committer: Committer,
    /// Whether it was seen to have no files without a name.
    lacks_nameless: AtomicBool,
    /// Guarded by itself: ids of btrfs subvolumes, which have device numbers of their own.
    subvolumes: RwLock<FxHashMap<u64, FsId>>,
    pub(crate) covered_ino: OnceLock<u64>,
    told_id: OnceLock<u64>,
}

/// What every look at an object asks for: [`FileSystem`]s need the mount and the device in any case.
pub(crate) const LOOK: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

pub(crate) fn dev_of(st: &Statx) -> u64 {
    u64::from(st.stx_dev_major) << 32 | u64::from(st.stx_dev_minor)
}

impl FileSystem {
    pub(crate) fn new(key: u64, id: FsId, nature: Nature, top: OwnedFd, st: &Statx) -> Self {
        let probe = Scratch::make(top.as_fd());
        let is_multigrain =
            nature.kind.steps_every_time() && probe.as_ref().is_some_and(Scratch::times_differ_within_a_tick);
        Self {
            key,
            id,
            nature,
            handles: handle_kind(top.as_fd()),
            limits: limits(&nature, top.as_fd()),
            committer: Committer::new(&nature, top.as_fd(), probe),
            top,
            top_ino: st.stx_ino,
            top_mount: st.stx_mnt_id,
            top_dev: dev_of(st),
            is_multigrain,
            lacks_nameless: AtomicBool::new(false),
            subvolumes: RwLock::default(),
            covered_ino: OnceLock::new(),
            told_id: OnceLock::new(),
        }
    }

    /// Its id as `statfs` tells it, asked once: the kernel counts up all that the file system holds each time. (btrfs has one for each
    /// subvolume.)
    pub(crate) fn told_id(&self) -> Option<u64> {
        if let Some(id) = self.told_id.get() {
            return Some(*id);
        }
        let id = rustix::fs::fstatvfs(&self.top).ok()?.f_fsid;
        Some(*self.told_id.get_or_init(|| id))
    }

    /// Whether a file that is to be named at once may be made without a name: where that is known, and where its log plays
    /// back with such a one in it.
    pub(crate) fn makes_nameless(&self) -> bool {
        self.committer.bears_nameless() && !self.lacks_nameless.load(Ordering::Relaxed)
    }

    /// Notes that it has no files without a name.
    pub(crate) fn note_no_nameless(&self) {
        self.lacks_nameless.store(true, Ordering::Relaxed);
    }

    /// Whether a file lies on it.
    pub(crate) fn holds(&self, file: BorrowedFd<'_>) -> bool {
        rustix::fs::fstat(file).is_ok_and(|st| {
            let (major, minor) = (rustix::fs::major(st.st_dev), rustix::fs::minor(st.st_dev));
            self.top_dev == u64::from(major) << 32 | u64::from(minor)
        })
    }

    /// The id that an object's attributes carry: of the file system, or of the btrfs subvolume.
    pub(crate) fn id_of(&self, object: BorrowedFd<'_>, dev: u64) -> FsId {
        if self.nature.kind != FsKind::Btrfs {
            return self.id;
        }
        if let Some(id) = self.subvolumes.read().get(&dev) {
            return *id;
        }
        let Ok(vfs) = rustix::fs::fstatvfs(object) else { return self.id };
        let id = hash_id(&[&self.id.major.to_le_bytes(), &vfs.f_fsid.to_le_bytes()]);
        self.subvolumes.write().insert(dev, id);
        id
    }
}

/// Whether handles of this file system can be made and opened again by us.
fn handle_kind(top: BorrowedFd<'_>) -> HandleKind {
    let round_trip = sys::name_to_handle(top, c"")
        .and_then(|handle| sys::open_by_handle(top, &handle, libc::O_PATH).map(|_| handle.kind));
    match round_trip {
        Ok(kind) if u16::try_from(kind).is_ok() => HandleKind::Kernel,
        _ => HandleKind::Table,
    }
}

/// Whether attributes of the `user.` namespace can be kept, which tmpfs learned late and some mounts forbid.
fn has_xattrs(top: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    !matches!(rustix::fs::fgetxattr(top, "user.holdfast.probe", &mut value), Err(Errno::OPNOTSUPP))
}

fn limits(nature: &Nature, top: BorrowedFd<'_>) -> FsLimits {
    use FsKind::{Btrfs, Ext4, Overlay, Tmpfs, Xfs};
    let known = nature.kind != FsKind::Other;
    FsLimits {
        name_bytes_max: nature.name_bytes_max.min(255),
        links_max: match nature.kind {
            Ext4 => 65_000,
            Btrfs => 65_535,
            _ => i32::MAX as u32,
        },
        file_bytes_max: match nature.kind {
            Ext4 => 16 << 40,
            _ => i64::MAX as u64,
        },
        time_delta_nanos: 1,
        has_xattrs: has_xattrs(top),
        has_birth_time: known,
        has_clone: matches!(nature.kind, Xfs | Btrfs),
        has_sparse: matches!(nature.kind, Ext4 | Xfs | Btrfs | Tmpfs | Overlay),
        change_is_version_counter: false,
        is_read_only: nature.is_read_only,
        clone_block_bytes: if matches!(nature.kind, Xfs | Btrfs) { nature.block_bytes } else { 0 },
    }
}

/// A nameless file on a file system: to try things on, and to force its journal with.
pub(crate) struct Scratch(OwnedFd);

impl Scratch {
    /// Makes one; `None` where that is not possible or not allowed.
    pub(crate) fn make(top: BorrowedFd<'_>) -> Option<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(top, ".", flags, Mode::from_raw_mode(0o600)).ok().map(Self)
    }

    /// Changes the inode, so that forcing it forces everything the journal holds.
    pub(crate) fn change(&self, odd: bool) -> rustix::io::Result<()> {
        rustix::fs::fchmod(&self.0, Mode::from_raw_mode(if odd { 0o400 } else { 0o600 }))
    }

    pub(crate) fn force(&self) -> rustix::io::Result<()> {
        rustix::fs::fsync(&self.0)
    }

    fn ctime(&self) -> Option<Timestamp> {
        let st = rustix::fs::statx(&self.0, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
        Some(Timestamp { seconds: st.stx_ctime.tv_sec, nanos: st.stx_ctime.tv_nsec })
    }

    /// Whether two changes with a look between them get different ctimes however close they are: five of them
    /// take a few microseconds, a tick takes one to ten milliseconds, so at most one could differ by chance.
    fn times_differ_within_a_tick(&self) -> bool {
        let mut seen = self.ctime();
        (0..5).all(|i| {
            let changed = self.change(i % 2 == 0).is_ok();
            let now = self.ctime();
            let differs = changed && now.is_some() && now != seen;
            seen = now;
            differs
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(magic: u64) -> Nature {
        Nature {
            kind: FsKind::from_magic(magic),
            magic,
            statfs_id: 0,
            uuid: None,
            is_read_only: false,
            name_bytes_max: 255,
            block_bytes: 4096,
        }
    }

    #[test]
    fn what_other_hosts_may_change_is_not_of_this_host_alone() {
        // NFS, Ceph, FUSE, Lustre, SMB, 9P, GFS2, OCFS2, and what nobody has heard of.
        for magic in [
            0x6969,
            0x00c3_6400,
            0x6573_5546,
            0x0bd0_0bd0,
            0xfe53_4d42,
            0x0102_1997,
            0x0116_1970,
            0x7461_636f,
            1,
        ] {
            assert!(!of(magic).is_of_this_host_alone(), "{magic:#x}");
        }
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0x4d44] {
            assert!(of(magic).is_of_this_host_alone(), "{magic:#x}");
        }
    }
}
