//! Mounting, asking, unmounting.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::{Mount, Trial};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("life::a_mount_says_what_it_is_and_goes_when_told", said_and_gone),
        Trial::new("life::a_daemon_outlives_a_plain_umount_until_all_is_sent", plain_umount),
        Trial::new("life::what_cannot_be_mounted_is_told_on_the_terminal", refused),
        Trial::new("life::a_read_only_mount_refuses_changes", read_only),
        Trial::new("life::a_term_signal_sends_what_is_left_and_unmounts", terminated),
        Trial::new("life::what_is_bound_to_another_place_is_unmounted_there_alone", bound),
    ]
}

fn said_and_gone() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    let path = mount.path();
    let line = table.lines().find(|line| line.contains(&*path.to_string_lossy())).unwrap_or_default();
    ensure!(line.contains(" fuse.holdfast ") && line.contains("nosuid") && line.contains("nodev"), "{line}");
    std::fs::write(path.join("file"), "content")?;
    let stats = mount.stats()?;
    ensure!(stats["operations"].as_u64() > Some(0), "{stats}");
    mount.sync()?;
    ensure!(
        std::fs::read_to_string(served.share().join("file"))? == "content",
        "not on the server after sync"
    );
    let servers = mount.command()?.args(["mount", "servers", "show"]).arg(&path).output()?;
    ensure!(String::from_utf8_lossy(&servers.stdout).contains("in use"), "{servers:?}");
    mount.unmount(&[])?;
    let gone = mount.command()?.args(["mount", "stats"]).arg(&path).output()?;
    ensure!(!gone.status.success(), "statistics of what is not mounted");
    Ok(())
}

fn plain_umount() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    run_in(&mount.path(), "for i in $(seq 1 200); do echo $i >f$i; done", &[])?;
    run_in(mount.path().parent().unwrap_or(&mount.path()), "umount mnt", &[])?;
    mount.wait_end()?;
    let left = run_in(&served.share(), "cat f* | wc -l", &[])?;
    ensure!(left.trim() == "200", "{left} files on the server");
    Ok(())
}

fn bound() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let beside = mount.path().with_file_name("beside");
    run_in(&mount.path(), "mkdir d ../beside; echo x >d/f; mount --bind d ../beside", &[])?;
    let begun = Instant::now();
    let unmounted = mount.command()?.arg("umount").arg(&beside).output()?;
    // It does not wait for the daemon, which has the mount to serve.
    ensure!(unmounted.status.success() && unmounted.stderr.is_empty(), "{unmounted:?}");
    ensure!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
    ensure!(!beside.join("f").exists(), "it is still bound");
    mount.check_alive()?;
    ensure!(std::fs::read_to_string(mount.path().join("d/f"))? == "x\n", "the mount is gone");
    mount.unmount(&[])
}

fn refused() -> Result<()> {
    let served = Served::new()?;
    let wrong = Mount::new(served.server.port(), "/nowhere", "");
    let error = wrong.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("/nowhere"), "{error}");
    let wrong = Mount::new(served.server.port(), &served.server.export(), "no-such-word");
    let error = wrong.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("no-such-word"), "{error}");
    Ok(())
}

fn read_only() -> Result<()> {
    let served = Served::new()?;
    std::fs::write(served.share().join("file"), "content")?;
    let mount = served.mount("ro")?;
    ensure!(std::fs::read_to_string(mount.path().join("file"))? == "content", "other content");
    let error = std::fs::write(mount.path().join("file"), "x").err().and_then(|error| error.raw_os_error());
    ensure!(error == Some(30), "writing said {error:?}");
    mount.unmount(&[])
}

fn terminated() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    run_in(&mount.path(), "for i in $(seq 1 200); do echo $i >f$i; done", &[])?;
    run_in(&served.share(), "kill -TERM $1", &[&mount.daemon().to_string()])?;
    mount.wait_end()?;
    let left = run_in(&served.share(), "cat f* | wc -l", &[])?;
    ensure!(left.trim() == "200", "{left} files on the server");
    Ok(())
}
