//! NFS-Ganesha from Debian's packages `nfs-ganesha` and `nfs-ganesha-vfs`.

use super::Ports;
use crate::volume::EXPORT_NAME;
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// How to start it: NFSv3 and 4 over one directory, its defaults for everything that bears on speed.
pub(super) fn command(export: &Path, scratch: &Path, ports: Ports) -> Result<Command> {
    let config = scratch.join("ganesha.conf");
    fs::write(&config, configuration(export, scratch, ports))?;
    let mut command = Command::new("ganesha.nfsd");
    command.args(["-F", "-N", "NIV_WARN", "-L", "/dev/stderr"]);
    command.arg("-f").arg(config).arg("-p").arg(scratch.join("ganesha.pid"));
    Ok(command)
}

/// What prints its version.
pub(super) fn version_command() -> Command {
    let mut command = Command::new("ganesha.nfsd");
    command.arg("-v");
    command
}

/// It listens on every address of the namespace, which are those of the loopback device: `Bind_addr` is refused
/// where no other device is up. NLM is off as it would need a statd; `Graceless` spares the wait of 90 s before the first open.
fn configuration(export: &Path, scratch: &Path, ports: Ports) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3, 4; NFS_Port = {nfs}; MNT_Port = {mount}; Enable_NLM = false; \
         Enable_RQUOTA = false; mount_path_pseudo = true; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{scratch}\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{export}\"; Pseudo = \"/{EXPORT_NAME}\"; Access_Type = RW; \
         Squash = None; SecType = sys; Protocols = 3, 4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
        nfs = ports.nfs.port(),
        mount = ports.mount.port(),
        scratch = scratch.display(),
        export = export.display(),
    )
}
