//! A disk that is slow for the server alone: its control group may read from the volume's device a few times a second.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::plan::Op;
use crate::rival::Server;
use crate::volume::{DATA_BYTES, Volume, WRITE_FILE};

/// Reads a second that the device gives.
const READS_A_SECOND: u32 = 4;
/// The group; gone when dropped.
pub(super) struct SlowDisk {
    group: PathBuf,
}

/// What memory does not have of what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// All of 4 KiB.
    All,
    /// All but the ends of 1 MiB.
    Middle,
}

/// Reads of what memory does not have, of the file that is otherwise written.
pub(super) struct Cold {
    file: File,
    missing: Missing,
    /// How long each waited.
    pub(super) waits: Vec<Duration>,
}

/// Where control groups rule devices.
enum Controller {
    /// In a hierarchy of its own.
    Own(PathBuf),
    /// With all others.
    Unified(PathBuf),
}

/// Finds it among the mounts.
fn find_controller() -> Result<Controller> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, at, kind, options, ..] = fields[..] else { continue };
        if kind == "cgroup" && options.split(',').any(|option| option == "blkio") {
            return Ok(Controller::Own(at.into()));
        }
        let controllers = fs::read_to_string(Path::new(at).join("cgroup.controllers")).unwrap_or_default();
        if kind == "cgroup2" && controllers.split_whitespace().any(|one| one == "io") {
            return Ok(Controller::Unified(at.into()));
        }
    }
    anyhow::bail!("no control group rules devices here")
}

impl SlowDisk {
    /// Makes the volume's device slow for a server.
    ///
    /// Errors where the kernel has no such control, or the volume no device.
    pub(super) fn under(volume: &Volume, server: &Server) -> Result<Self> {
        let device = fs::metadata(volume.root())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        ensure!(major != 0, "the volume lies on no device: take another --fs");
        let name = format!("holdfast-bench-{}", std::process::id());
        let (group, knob, line) = match find_controller()? {
            Controller::Own(root) => {
                let line = format!("{major}:{minor} {READS_A_SECOND}");
                (root.join(name), "blkio.throttle.read_iops_device", line)
            }
            Controller::Unified(root) => {
                // What is not passed on cannot be set below; it may be already, and then this fails.
                let _ = fs::write(root.join("cgroup.subtree_control"), "+io");
                let line = format!("{major}:{minor} riops={READS_A_SECOND}");
                (root.join(name), "io.max", line)
            }
        };
        fs::create_dir(&group).with_context(|| group.display().to_string())?;
        let disk = Self { group };
        disk.set(knob, &line)?;
        disk.set("cgroup.procs", &server.pid().to_string())?;
        Ok(disk)
    }

    fn set(&self, knob: &str, line: &str) -> Result<()> {
        let path = self.group.join(knob);
        fs::write(&path, line).with_context(|| format!("{line:?} into {}", path.display()))
    }
}

impl Missing {
    /// How figures call what is seen meanwhile.
    pub(super) const fn beside(self) -> &'static str {
        match self {
            Self::All => "a READ waits for a disk",
            Self::Middle => "a READ of 1 MiB waits for its middle",
        }
    }
}

impl Cold {
    /// Of the volume's file.
    ///
    /// Errors when it cannot be opened.
    pub(super) fn on(volume: &Volume, missing: Missing) -> Result<Self> {
        let file = File::open(volume.export().join(WRITE_FILE))?;
        Ok(Self { file, missing, waits: Vec::new() })
    }

    /// What reads it.
    pub(super) fn op(&self) -> Op {
        match self.missing {
            Missing::All => Op::Read4k,
            Missing::Middle => Op::Read1m,
        }
    }

    /// Drops it from memory. Were that not possible, the READs would be fast, and the figures say so.
    pub(super) fn forget(&self) {
        let file = &self.file;
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        if self.missing == Missing::Middle {
            // The ends of each, and nothing around them. The kernel drops pieces of its own choice, which may be as large
            // as what is read.
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
            for block in 0..DATA_BYTES >> 20 {
                for end in [block << 20, ((block + 1) << 20) - 1] {
                    let _ = file.read_at(&mut [0], end);
                }
            }
        }
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A group goes only without members; the server, which would be one, may be gone already.
        let parent = self.group.parent().unwrap_or(Path::new("/"));
        let members = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(parent.join("cgroup.procs"), member);
        }
        let _ = fs::remove_dir(&self.group);
    }
}
