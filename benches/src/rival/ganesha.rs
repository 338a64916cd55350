//! NFS-Ganesha from Debian's packages `nfs-ganesha` and `nfs-ganesha-vfs`.

use super::Ports;
use crate::volume::EXPORT_NAME;
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What bears on speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settings {
    /// Its defaults.
    Default,
    /// What its manual pages offer to a server that is to be fast. What takes from its promises is left alone: the cache of
    /// replies, and that others' changes show after a while.
    Tuned,
}

impl Settings {
    fn core(self) -> &'static str {
        match self {
            Self::Default => "",
            // ganesha-core-config(8). Counters of each client and export are written with every call; the attributes that are
            // asked for after every READ serve clients of ESXi, and libraries behind Ganesha that do not tell the end of a file.
            Self::Tuned => "Enable_NFS_Stats = false; Getattrs_In_Complete_Read = false;",
        }
    }

    fn export(self) -> &'static str {
        match self {
            Self::Default => "",
            // ganesha-export-config(8): ten times the default, so that nothing expires while it is measured.
            Self::Tuned => "Attr_Expiration_Time = 600;",
        }
    }

    fn blocks(self) -> &'static str {
        match self {
            Self::Default => "",
            // ganesha-cache-config(8). By default it begins to take apart what it knows at 100,000 objects, which the directory
            // that is listed has by itself; parts and sizes of the table for as many, so that chains stay short and
            // threads seldom wait for each other; chunks of a directory's entries for the whole of it, fewer and larger.
            Self::Tuned => {
                "MDCACHE { Entries_HWMark = 1000000; Chunks_HWMark = 100000; NParts = 17; Cache_Size = 65521; \
                 Dir_Chunk = 1024; }\n"
            }
        }
    }
}

/// How to start it: NFSv3 and 4 over one directory.
pub(super) fn command(export: &Path, scratch: &Path, ports: Ports, settings: Settings) -> Result<Command> {
    let config = scratch.join("ganesha.conf");
    fs::write(&config, configuration(export, scratch, ports, settings))?;
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
fn configuration(export: &Path, scratch: &Path, ports: Ports, settings: Settings) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3, 4; NFS_Port = {nfs}; MNT_Port = {mount}; Enable_NLM = false; \
         Enable_RQUOTA = false; mount_path_pseudo = true; {core} }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{scratch}\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{export}\"; Pseudo = \"/{EXPORT_NAME}\"; Access_Type = RW; \
         Squash = None; SecType = sys; Protocols = 3, 4; Transports = TCP; {of_export} \
         FSAL {{ Name = VFS; }} }}\n{blocks}",
        nfs = ports.nfs.port(),
        mount = ports.mount.port(),
        scratch = scratch.display(),
        export = export.display(),
        core = settings.core(),
        of_export = settings.export(),
        blocks = settings.blocks(),
    )
}
