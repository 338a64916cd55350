//! The file system that all contenders serve, and what lies on it.

use crate::arena::run;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Its size; the image is sparse.
pub(crate) const VOLUME_BYTES: u64 = 4 << 30;
/// Files that GETATTR, LOOKUP and ACCESS go round.
pub(crate) const SMALL_FILES: usize = 256;
/// Bytes of each of the two files that READ and WRITE use.
pub(crate) const DATA_BYTES: u64 = 64 << 20;
/// The exported directory's name.
pub(crate) const EXPORT_NAME: &str = "share";
/// The folder of small files, below the export.
pub(crate) const SMALL: &str = "small";
/// The folder to be listed.
pub(crate) const LISTED: &str = "listed";
/// The folder that holds, new in each turn, the folders in which names are made and removed.
pub(crate) const CHANGING: &str = "changing";
/// The file that is read.
pub(crate) const READ_FILE: &str = "data-read";
/// The file that is written.
pub(crate) const WRITE_FILE: &str = "data-write";

/// Where the files lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FsKind {
    /// XFS on a loop device.
    Xfs,
    /// ext4 on a loop device.
    Ext4,
    /// Memory.
    Tmpfs,
}

impl FsKind {
    /// The kernel's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
            Self::Tmpfs => "tmpfs",
        }
    }
}

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Volume {
    mount_point: PathBuf,
}

impl Volume {
    /// Makes, mounts and fills one below `scratch`; the listed folder gets `listed_entries` files.
    ///
    /// Errors when the file system cannot be made or mounted.
    pub(crate) fn new(kind: FsKind, scratch: &Path, listed_entries: usize) -> Result<Self> {
        Self::with_more(kind, scratch, listed_entries, 0)
    }

    /// The same, where so many bytes more find room.
    ///
    /// Errors likewise.
    pub(crate) fn with_more(
        kind: FsKind,
        scratch: &Path,
        listed_entries: usize,
        more_bytes: u64,
    ) -> Result<Self> {
        let mount_point = scratch.join("fs");
        if kind == FsKind::Tmpfs {
            fs::create_dir(&mount_point)?;
            run("mount", &["-t", "tmpfs", "tmpfs", &mount_point.to_string_lossy()])?;
            return Self { mount_point }.filled(listed_entries);
        }
        let image = scratch.join("image");
        File::create(&image)?.set_len(VOLUME_BYTES + more_bytes)?;
        let volume = Self::on_image(kind, &image, scratch, listed_entries)?;
        // The loop device keeps it: so its space is free again however the run ends.
        fs::remove_file(&image)?;
        Ok(volume)
    }

    /// The same on an image that is there.
    ///
    /// Errors likewise, and for what has no image.
    pub(crate) fn on_image(
        kind: FsKind,
        image: &Path,
        scratch: &Path,
        listed_entries: usize,
    ) -> Result<Self> {
        let (mkfs, force) = match kind {
            FsKind::Xfs => ("mkfs.xfs", "-f"),
            FsKind::Ext4 => ("mkfs.ext4", "-F"),
            FsKind::Tmpfs => bail!("memory has no disk: take another --fs"),
        };
        let mount_point = scratch.join("fs");
        fs::create_dir(&mount_point)?;
        let (image, at) = (image.to_string_lossy(), mount_point.to_string_lossy().into_owned());
        run(mkfs, &["-q", force, &image])?;
        // What ext4 puts off when it is made, it would do while others are measured.
        let options = if kind == FsKind::Ext4 { "loop,noinit_itable" } else { "loop" };
        run("mount", &["-o", options, &image, &at])?;
        Self { mount_point }.filled(listed_entries)
    }

    fn filled(self, listed_entries: usize) -> Result<Self> {
        self.fill(listed_entries).context("filling the file system")?;
        Ok(self)
    }

    /// Its root.
    pub(crate) fn root(&self) -> &Path {
        &self.mount_point
    }

    /// The directory to export.
    pub(crate) fn export(&self) -> PathBuf {
        self.mount_point.join(EXPORT_NAME)
    }

    /// A directory on it beside the export.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.mount_point.join(name)
    }

    /// How often its device was told to keep what it has in its cache; 0 where there is no device.
    ///
    /// Errors when the kernel does not tell.
    pub(crate) fn flushes(&self) -> Result<u64> {
        let device = fs::metadata(&self.mount_point)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        if major == 0 {
            return Ok(0);
        }
        let told = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
        // The sixteenth (Documentation/block/stat.rst of Linux).
        Ok(told.split_whitespace().nth(15).context("a device without a count of flushes")?.parse()?)
    }

    /// Begins a turn: so many empty folders of changing names are there, nothing waits to be written back.
    pub(crate) fn begin_turn(&self, folders: usize) -> Result<()> {
        let changing = self.export().join(CHANGING);
        if changing.exists() {
            fs::remove_dir_all(&changing)?;
        }
        for folder in 0..folders {
            let folder = changing.join(folder.to_string());
            fs::create_dir_all(&folder)?;
            open_to_all(&folder)?;
        }
        rustix::fs::syncfs(File::open(&self.mount_point)?)?;
        Ok(())
    }

    fn fill(&self, listed_entries: usize) -> Result<()> {
        let export = self.export();
        for folder in [SMALL, LISTED] {
            fs::create_dir_all(export.join(folder))?;
        }
        for number in 0..SMALL_FILES {
            let path = export.join(SMALL).join(small_name(number));
            fs::write(&path, b"content")?;
            open_to_all(&path)?;
        }
        for number in 0..listed_entries {
            File::create(export.join(LISTED).join(format!("entry-{number:06}")))?;
        }
        // Not zeros, so that no file system has reason to be clever.
        let block: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for name in [READ_FILE, WRITE_FILE] {
            let mut file = File::create(export.join(name))?;
            for _ in 0..DATA_BYTES >> 20 {
                file.write_all(&block)?;
            }
            open_to_all(&export.join(name))?;
        }
        Ok(())
    }
}

/// Lets everybody do with a file or folder what the loads do: not all of them come from root.
fn open_to_all(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).with_context(|| path.display().to_string())
}

/// The name of a small file.
pub(crate) fn small_name(number: usize) -> String {
    format!("file-{number:03}")
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A server that was killed a moment ago may still be letting go of it.
        let at = self.mount_point.to_string_lossy().into_owned();
        if run("umount", &[&at]).is_err() {
            let _ = run("umount", &["--lazy", &at]);
        }
    }
}
