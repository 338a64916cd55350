//! What the cases share: a server over a scratch file system, and mounts of it.

use anyhow::{Context, Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, LoopFs, Mount, ServerUnderTest, process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server over a fresh file system of its own. Fields drop in order: the server lets go before the unmounting.
pub(crate) struct Served {
    /// The server.
    pub(crate) server: ServerUnderTest,
    /// What it serves, a folder `share` of this file system.
    pub(crate) filesystem: LoopFs,
}

impl Served {
    /// Holdfast, over a fresh XFS.
    pub(crate) fn new() -> Result<Self> {
        Self::by(Target::Holdfast, FsType::Xfs)
    }

    /// Over a fresh file system of this type.
    pub(crate) fn by(target: Target, fs_type: FsType) -> Result<Self> {
        Self::sized(target, fs_type, 1 << 30)
    }

    /// Another server, with a lease of so many seconds, and with or without a grace of that length.
    pub(crate) fn foreign(target: Target, fs_type: FsType, (lease, has_grace): (u32, bool)) -> Result<Self> {
        let filesystem = LoopFs::new(fs_type, 1 << 30)?;
        let share = filesystem.path().join("share");
        std::fs::create_dir(&share)?;
        let builder = ServerUnderTest::builder(&share).target(target).lease_seconds(lease);
        let builder = if has_grace { builder.with_grace() } else { builder };
        Ok(Self { server: builder.start()?, filesystem })
    }

    /// Over a fresh file system of this type and of so many bytes.
    pub(crate) fn sized(target: Target, fs_type: FsType, bytes: u64) -> Result<Self> {
        let filesystem = LoopFs::new(fs_type, bytes)?;
        let share = filesystem.path().join("share");
        std::fs::create_dir(&share)?;
        let server = ServerUnderTest::builder(&share)
            .target(target)
            .environment("HOLDFAST_NO_SUPERVISE", "true")
            .start()?;
        Ok(Self { server, filesystem })
    }

    /// Holdfast over a fresh XFS, which delegates every directory: our mounts compare what they know of one with what they are told
    /// then, as Linux does not. With a lease of so many seconds.
    pub(crate) fn delegating(lease_seconds: u32) -> Result<Self> {
        let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
        let share = filesystem.path().join("share");
        std::fs::create_dir(&share)?;
        let config = filesystem.path().join("config.toml");
        std::fs::write(&config, "directory_delegations = \"always\"\n")?;
        let server = ServerUnderTest::builder(&share)
            .lease_seconds(lease_seconds)
            .arguments(&["--config", &config.to_string_lossy()])
            .environment("HOLDFAST_NO_SUPERVISE", "true")
            .start()?;
        Ok(Self { server, filesystem })
    }

    /// Holdfast over a fresh XFS, with a lease of so many seconds.
    pub(crate) fn with_lease(seconds: u32) -> Result<Self> {
        let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
        let share = filesystem.path().join("share");
        std::fs::create_dir(&share)?;
        let builder = ServerUnderTest::builder(&share).lease_seconds(seconds);
        let server = builder.environment("HOLDFAST_NO_SUPERVISE", "true").start()?;
        Ok(Self { server, filesystem })
    }

    /// A mount of it.
    pub(crate) fn mount(&self, options: &str) -> Result<Mount> {
        Mount::new(self.server.port(), &self.server.export(), options)
    }

    /// What is served, by its path on this host.
    pub(crate) fn share(&self) -> PathBuf {
        self.filesystem.path().join("share")
    }
}

/// In a mount namespace of its own: lets go of what other cases have mounted, which would not end as long as it lives. One that
/// ends just now takes its directory away, and what is mounted there with it.
pub(crate) const LET_GO: &str =
    "{ awk '$3 == \"fuse.holdfast\" {print $2}' /proc/self/mounts | xargs -r -n1 umount -l || true; }";

/// Runs a script of bash in a directory; what it says comes with its failure.
pub(crate) fn run_in(directory: &Path, script: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script, "script"]).args(arguments).current_dir(directory);
    let output = command.output().context("starting bash")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "the script ended with {}\n{}\n{}",
        output.status,
        process::tail(&said, 20),
        process::tail(&String::from_utf8_lossy(&output.stderr), 20)
    );
    Ok(said)
}
