//! A scratch file system of a chosen type, on a loop device.

use crate::missing;
use crate::process::{capture, output};
use crate::scratch::Scratch;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A file-system type that the server is proven on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsType {
    /// ext4, with its journal as `mkfs` makes it.
    Ext4,
    /// XFS, with reflinks.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FsType {
    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
        }
    }

    fn force_flag(self) -> &'static str {
        match self {
            Self::Ext4 => "-F",
            Self::Xfs | Self::Btrfs => "-f",
        }
    }
}

/// A mounted loop file system, unmounted and removed when dropped.
#[derive(Debug)]
pub struct LoopFs {
    scratch: Scratch,
    fs_type: FsType,
}

impl LoopFs {
    /// Makes and mounts one. `bytes` is its size; the image is sparse, so only what is written costs disk.
    ///
    /// Errors with [`missing::Missing`] when the type's `mkfs` is not installed, and when the host's kernel
    /// cannot mount the type.
    pub fn new(fs_type: FsType, bytes: u64) -> Result<Self> {
        missing::superuser()?;
        let mkfs = missing::program(&format!("mkfs.{}", fs_type.name()), fs_type.package())?;
        let scratch = Scratch::new("loop")?;
        let image = scratch.path().join("image");
        File::create(&image)?.set_len(bytes)?;
        let args = ["-q".as_ref(), fs_type.force_flag().as_ref(), image.as_os_str()];
        capture(&mkfs.to_string_lossy(), &args)?;
        let filesystem = Self { scratch, fs_type };
        std::fs::create_dir(filesystem.path())?;
        filesystem.mount(&image)?;
        Ok(filesystem)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("fs")
    }

    /// The file behind it: what a test copies to see what a power cut would have left.
    pub fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    /// Its type.
    pub fn fs_type(&self) -> FsType {
        self.fs_type
    }

    fn mount(&self, image: &Path) -> Result<()> {
        let at = self.path();
        let args = ["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()];
        capture("mount", &args).with_context(|| {
            let name = self.fs_type.name();
            missing::Missing::new(
                format!("loop mounts of {name}"),
                "a kernel with loop devices and this type",
            )
        })?;
        Ok(())
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        let at = self.path();
        // A straggler's descriptor must not keep the mount, and with it the removal of its directory, alive.
        let ordinary = output("umount", &[at.as_os_str()]);
        if !ordinary.is_ok_and(|ended| ended.status.success()) {
            let _ = rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_file_system_is_of_its_type_and_leaves_nothing_behind() {
        if let Err(lack) = missing::superuser() {
            panic!("{lack}");
        }
        let filesystem = LoopFs::new(FsType::Ext4, 32 << 20).unwrap();
        let at = filesystem.path();
        let kind = capture("stat", &["-f", "-c", "%T", &at.to_string_lossy()]).unwrap();
        assert_eq!(kind.trim(), "ext2/ext3");
        std::fs::write(at.join("file"), "content").unwrap();
        drop(filesystem);
        assert!(!at.exists());
        assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&*at.to_string_lossy()));
    }
}
