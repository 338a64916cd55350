//! What Linux makes of exports that lie elsewhere (`fs_locations`): it goes there, whether a directory of it is walked into or
//! listed first.

use crate::fixture::kernels;
use anyhow::{Result, ensure};
use holdfast_lab::{Guest, Kernel, NfsVersion, ServerUnderTest, Trial};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Where Linux looks for the server of a referral, whatever it is told.
const PORT: u16 = 2049;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let versions = [NfsVersion::V40, NfsVersion::V41, NfsVersion::V42];
    kernels()
        .iter()
        .flat_map(|at_hand| at_hand.trials("referral::is_followed", &versions, followed))
        .collect()
}

const SCRIPT: &str = "
echo ready; lab_wait go
mount -t nfs -o vers=$VERSION,port=$PORT,soft,timeo=300 $SERVER:/ /mnt
ls -l /mnt >/dev/null
[ \"$(ls /mnt)\" = share ]
[ \"$(cat /mnt/share/file)\" = content ]; echo more >>/mnt/share/file; mkdir /mnt/share/made; sync -f /mnt/share
grep -q \" /mnt/share nfs4 \" /proc/mounts
umount /mnt/share; umount /mnt
";

fn followed(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let share = dir.path().join("share");
    std::fs::create_dir(&share)?;
    std::fs::write(share.join("file"), "content\n")?;
    let config = dir.path().join("config");
    write_config(&config, &share, "")?;
    let first = ServerUnderTest::builder(&share).config(&config).start()?;
    let (port, version) = (first.port().to_string(), version.as_str());
    let env = [("PORT", port.as_str()), ("VERSION", version)];
    let guest =
        Guest::builder().kernel(kernel.clone()).memory("512M").timeout(PATIENCE).start(SCRIPT, &env)?;
    guest.wait_for("ready", PATIENCE)?;
    let host = guest.server_address();
    write_config(&config, &share, &format!("moved_to = [\"{host}\"]"))?;
    first.reload()?;
    let second = ServerUnderTest::builder(&share).listen_on(&host.to_string()).port(PORT).start()?;
    guest.signal("go")?;
    guest.wait()?.success()?;
    ensure!(std::fs::read_to_string(share.join("file"))? == "content\nmore\n", "not written there");
    ensure!(share.join("made").is_dir(), "not made there");
    drop((first, second));
    Ok(())
}

fn write_config(config: &Path, share: &Path, more: &str) -> Result<()> {
    let share = share.display();
    let text = format!(
        "[[export]]\nsource = \"{share}\"\npath = \"/share\"\nsquash = \"none\"\nclients = [\"all\"]\n{more}\n"
    );
    Ok(std::fs::write(config, text)?)
}
