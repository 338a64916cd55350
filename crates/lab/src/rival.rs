//! Other people's servers, run beside ours: to tell a test's fault from the server's, and for benches.

use crate::missing;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// How to start NFS-Ganesha over a directory, NFSv4 only (its NFSv3 needs a portmapper), in the foreground.
///
/// Errors with [`missing::Missing`] when it is not installed.
pub(crate) fn ganesha_command(
    scratch: &Path,
    directory: &Path,
    port: u16,
    lease: (u32, bool),
) -> Result<Command> {
    let program = missing::program("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs")?;
    let config = scratch.join("ganesha.conf");
    std::fs::write(&config, ganesha_config(scratch, directory, port, lease))?;
    let mut command = Command::new(program);
    command
        .arg("-F")
        .args(["-N", "NIV_WARN"])
        .arg("-f")
        .arg(config)
        .args(["-L", "/dev/stderr"])
        .arg("-p")
        .arg(scratch.join("ganesha.pid"));
    Ok(command)
}

/// With a lease of so many seconds, and a grace of that length or none.
fn ganesha_config(scratch: &Path, directory: &Path, port: u16, (lease_s, has_grace): (u32, bool)) -> String {
    let graceless = !has_grace;
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false; \
         allow_set_io_flusher_fail = true; }}\n\
         NFSv4 {{ Lease_Lifetime = {lease_s}; Grace_Period = {lease_s}; Graceless = {graceless}; \
         RecoveryBackend = fs; RecoveryRoot = \"{}\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = \"/{name}\"; Access_Type = RW; Squash = None; \
         SecType = sys; Protocols = 4; FSAL {{ Name = VFS; }} }}\n",
        scratch.display(),
        directory.display(),
    )
}
