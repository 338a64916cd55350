//! The server is killed under a working kernel client, which must notice nothing but a pause.

use crate::fixture::{guest, guest_env, kernels, serve};
use anyhow::{Result, ensure};
use holdfast_lab::{Kernel, NfsVersion, Trial};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const BYTES: u64 = 16 << 20;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    kernels()
        .iter()
        .flat_map(|at_hand| {
            at_hand.trials("restart::unstable_writes_are_sent_again", &NfsVersion::ALL, writes_are_sent_again)
        })
        .collect()
}

/// The client has sent 16 MiB that no COMMIT has made stable when the server is killed; the answer to the COMMIT
/// after the restart carries another verifier, and the client sends the data again. To show that it does, and
/// over 4.x that its open outlives the restart, the file's content is taken away while the server is down.
fn writes_are_sent_again(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let script = "lab_mount $VERSION /mnt\n\
                  (lab_wait restarted 100; echo go) | python3 $SCRIPTS/unstable_write.py /mnt/file $BYTES\n\
                  umount /mnt";
    let bytes = BYTES.to_string();
    let env = guest_env(&served, &[("VERSION", version.as_str()), ("BYTES", &bytes)]);
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let guest = guest(kernel, "512M", PATIENCE).start(script, &env)?;
    guest.wait_for("written", PATIENCE)?;

    let file = served.server.directory().join("file");
    served.server.kill()?;
    ensure!(std::fs::metadata(&file)?.len() == BYTES, "the client sent its data before the kill");
    std::fs::File::options().write(true).truncate(true).open(&file)?;
    served.server.restart()?;
    guest.signal("restarted")?;
    guest.wait()?.success()?;
    served.server.check_alive()
}
