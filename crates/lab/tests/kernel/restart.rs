//! The server is killed under a working kernel client, which must notice nothing but a pause.

use crate::fixture::{Served, guest, kernels, serve, start_in};
use anyhow::{Result, bail, ensure};
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, NfsVersion, ServerUnderTest, Trial};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const BYTES: u64 = 16 << 20;
/// A client whom the server does not let go tries for ten.
const UNMOUNT_SECONDS_MAX: u64 = 6;
/// Files that may be spoilt by a COMMIT of the client's own before the test gives up.
const TRIES: u32 = 8;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for at_hand in kernels() {
        trials.extend(at_hand.trials(
            "restart::unstable_writes_are_sent_again",
            &NfsVersion::ALL,
            writes_are_sent_again,
        ));
        trials.extend(at_hand.trials(
            "restart::all_connections_of_a_mount_go_on",
            &[NfsVersion::V3, NfsVersion::V42],
            all_connections_go_on,
        ));
        let versions = [NfsVersion::V3, NfsVersion::V40, NfsVersion::V42];
        trials.extend(at_hand.trials(
            "restart::root_stays_squashed_and_unmounting_is_quick",
            &versions,
            squashes,
        ));
    }
    trials
}

/// A mount of four connections (`nconnect=4`, in 4.1 and later trunked into one session), used by as many processes.
fn all_connections_go_on(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let script = "lab_mount $VERSION /mnt nconnect=4\n\
                  python3 $SCRIPTS/many_connections.py /mnt 4 $OUT/.signal/restarted\n\
                  umount /mnt";
    let guest = start_in(guest(kernel, "512M", PATIENCE), &served, script, &[("VERSION", version.as_str())])?;
    guest.wait_for("working\n", PATIENCE)?;
    served.server.kill()?;
    served.server.restart()?;
    guest.signal("restarted")?;
    let said = guest.wait()?.success()?;
    println!("{version} {}: {}", kernel.label(), said.trim());
    served.server.check_alive()
}

/// The second file is made as soon as grace lets it be, the owner being squashed as it was before the kill; and the client that
/// unmounts is let go, though it has left a session behind.
fn squashes(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let filesystem = LoopFs::new(FsType::Ext4, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    std::fs::set_permissions(&share, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let server = ServerUnderTest::builder(&share).squash("root").start()?;
    let mut served = Served { server, filesystem };
    let script = "lab_mount $VERSION /mnt; touch /mnt/before; echo made; lab_wait restarted; touch /mnt/after\n\
                  began=$(date +%s); umount /mnt; echo $(($(date +%s) - began)) s to unmount";
    let guest = start_in(guest(kernel, "256M", PATIENCE), &served, script, &[("VERSION", version.as_str())])?;
    guest.wait_for("made\n", PATIENCE)?;
    served.server.kill()?;
    served.server.restart()?;
    guest.signal("restarted")?;
    let said = guest.wait()?.success()?;
    let seconds = said.lines().find_map(|line| line.strip_suffix(" s to unmount")?.parse::<u64>().ok());
    ensure!(seconds.is_some_and(|seconds| seconds < UNMOUNT_SECONDS_MAX), "{said}");
    let owner = |name: &str| -> Result<u32> { Ok(std::fs::metadata(share.join(name))?.uid()) };
    let (before, after) = (owner("before")?, owner("after")?);
    ensure!(before != 0 && before == after, "root became {before}, and after the restart {after}");
    served.server.check_alive()
}

/// The client has sent 16 MiB that no COMMIT has made stable when the server is killed; the answer to the COMMIT
/// after the restart carries another verifier, and the client sends the data again. To show that it does, and
/// over 4.x that its open outlives the restart, the file's content is taken away while the server is down.
fn writes_are_sent_again(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let script = "lab_mount $VERSION /mnt\n\
                  python3 $SCRIPTS/unstable_write.py /mnt/file $BYTES $OUT/.signal\n\
                  umount /mnt";
    let bytes = BYTES.to_string();
    let env = [("VERSION", version.as_str()), ("BYTES", &bytes)];
    let guest = start_in(guest(kernel, "512M", PATIENCE), &served, script, &env)?;
    let name = pause_before_any_commit(&guest, &served.server)?;

    let file = served.server.directory().join(name);
    served.server.kill()?;
    ensure!(std::fs::metadata(&file)?.len() == BYTES, "the client sent its data before the kill");
    std::fs::File::options().write(true).truncate(true).open(&file)?;
    served.server.restart()?;
    guest.signal("restarted")?;
    guest.wait()?.success()?;
    served.server.check_alive()
}

/// Stops the server at a moment when the client has sent a file and knows of no COMMIT of it; gives the file's
/// name. The client may send one whenever it likes, so it is asked once nothing more can be answered: after a
/// COMMIT that was answered it would be right not to send again.
fn pause_before_any_commit(guest: &Guest, server: &ServerUnderTest) -> Result<String> {
    for attempt in 0..TRIES {
        guest.wait_for(&format!("written {attempt}\n"), PATIENCE)?;
        server.pause()?;
        guest.signal(&format!("paused{attempt}"))?;
        guest.wait_for(&format!("answered {attempt}\n"), PATIENCE)?;
        if guest.has_said(&format!("commits {attempt}: 0\n")) {
            return Ok(format!("file{attempt}"));
        }
        server.resume()?;
        guest.signal(&format!("resumed{attempt}"))?;
    }
    bail!("the client sent a COMMIT by itself for each of {TRIES} files")
}
