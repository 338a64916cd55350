//! knfsd itself, in a guest of our own: its configuration, `rpc.mountd` and `rpc.nfsd` of Debian's package
//! `nfs-kernel-server`.

use crate::arena::{run, wait_for};
use crate::rival::Ports;
use crate::volume::{EXPORT_NAME, Volume};
use anyhow::{Context, Result};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long it may take to accept connections.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// Threads, which is the default of `rpc.nfsd`.
const THREADS: &str = "8";
/// Bytes of READ and WRITE at most. By itself it takes so many where memory is 4 GiB and more, fewer in a small guest.
const BLOCK: (&str, &str) = ("/proc/fs/nfsd/max_block_size", "1048576");
/// Where writing Y ends the grace period.
const END_GRACE: &str = "/proc/fs/nfsd/v4_end_grace";

/// It serves; stopped when dropped.
#[derive(Debug)]
pub(super) struct Knfsd {
    mountd: Child,
}

impl Knfsd {
    /// Starts it over a volume's exported directory, with NFSv3 and 4.
    ///
    /// Errors when a program fails; the message holds what it complained of.
    pub(super) fn start(volume: &Volume, sync: bool, ports: Ports) -> Result<Self> {
        // Paths of exports are below the volume, so that the export has the same name as with the others, and the
        // pseudo-root of NFSv4 lies on a file system that can be exported (the guest's own root cannot).
        let root = volume.root().display();
        fs::write("/etc/nfs.conf", format!("[exports]\nrootdir={root}\n"))?;
        fs::write("/etc/exports", export_line(sync))?;
        for table in ["etab", "rmtab"] {
            fs::write(format!("/var/lib/nfs/{table}"), "")?;
        }
        run("exportfs", &["-r"])?;
        let mountd = Command::new("rpc.mountd")
            .args(["--foreground", "--port", &ports.mount.port().to_string()])
            .stdin(Stdio::null())
            .spawn()
            .context("starting rpc.mountd")?;
        let server = Self { mountd };
        fs::write(BLOCK.0, BLOCK.1).context("the size of knfsd's transfers")?;
        run("rpc.nfsd", &["--port", &ports.nfs.port().to_string(), THREADS])?;
        for address in [ports.nfs, ports.mount] {
            wait_for(address, READY_PATIENCE)?;
        }
        // Nobody has anything to reclaim; where there is no grace period, this is refused.
        let _ = fs::write(END_GRACE, "Y");
        Ok(server)
    }
}

impl Drop for Knfsd {
    fn drop(&mut self) {
        // The next server needs its port; one that could not be stopped shows then.
        let _ = run("rpc.nfsd", &["0"]);
        let _ = self.mountd.kill();
        let _ = self.mountd.wait();
        // What the kernel was told of exports would keep the volume from being unmounted.
        let _ = run("exportfs", &["-f"]);
    }
}

/// `insecure`: our clients' ports are no privileged ones. `fsid`: a file system in memory has no other name.
fn export_line(sync: bool) -> String {
    let promise = if sync { "sync" } else { "async" };
    format!("/{EXPORT_NAME} *(rw,{promise},no_root_squash,no_subtree_check,insecure,fsid=1)\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_exports_differ_in_their_promise_alone() {
        let [sync, lazy] = [true, false].map(export_line);
        assert_eq!(sync.replace("(rw,sync,", "(rw,async,"), lazy);
        assert_ne!(sync, lazy);
    }
}
