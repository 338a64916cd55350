//! Locks of NFSv3 through the kernel's lock manager: against each other, against NFSv4's, against processes on the
//! server; waited for; lost with the client and kept over the server's death.

use crate::checkout;
use crate::fixture::{Served, guest, kernels, start_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, ServerUnderTest, Trial, Turn};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
/// Of a case, which may have to wait for another one's turn.
pub(crate) const LIMIT: Duration = Duration::from_secs(480);
/// Of the servers here; grace is as long.
const LEASE_SECONDS: u32 = 5;

/// What every script begins with, on a client of this name: a mount at `/mnt/three`.
pub(crate) fn begin(name: &str) -> String {
    begin_at(name, "/mnt/three")
}

/// The same, mounted elsewhere.
pub(crate) fn begin_at(name: &str, directory: &str) -> String {
    format!("hostname {name}\n{}", BEGIN.replace("DIRECTORY", directory))
}

/// Names are not looked up: the monitor would wait for a resolver that is not there.
const BEGIN: &str = "> /etc/resolv.conf; mkdir -p /run/sendsigs.omit.d DIRECTORY\n\
    rpcbind -w; rpc.statd --no-notify\n\
    mount -t nfs -o vers=3,proto=tcp,port=$PORT,mountproto=tcp,mountport=$PORT $SERVER:$EXPORT DIRECTORY\n\
    locks() { python3 $SCRIPTS/nlm_locks.py \"$@\"; }\n";

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for at_hand in kernels() {
        trials.extend([
            at_hand.trial("nlm::locks_exclude_across_versions_and_the_host", exclusion),
            at_hand.trial("nlm::a_clients_restart_frees_its_locks", client_restarts),
            at_hand.trial("nlm::locks_are_reclaimed_after_the_servers_death", server_restarts),
        ]);
        if let Some(checkout) = checkout::named_by("CTHON_DIR") {
            let run = move |kernel: &Kernel| connectathon(&checkout, kernel);
            trials.push(at_hand.trial("nlm::connectathons_lock_tests_pass", run));
        }
    }
    trials.into_iter().map(|trial| trial.limit(LIMIT)).collect()
}

/// One server at a time has port 111.
pub(crate) fn turn() -> Result<Turn> {
    Turn::at("portmap")
}

fn serve() -> Result<Served> {
    let filesystem = LoopFs::new(FsType::Ext4, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    std::fs::write(share.join("file"), "")?;
    let server = ServerUnderTest::builder(&share).with_portmap().lease_seconds(LEASE_SECONDS).start()?;
    Ok(Served { server, filesystem })
}

fn start(served: &Served, kernel: &Kernel, script: &str) -> Result<Guest> {
    start_with(served, kernel, script, &[])
}

fn start_with(served: &Served, kernel: &Kernel, script: &str, env: &[(&str, &str)]) -> Result<Guest> {
    start_in(guest(kernel, "512M", PATIENCE), served, &format!("{}{script}", begin("client-a")), env)
}

/// Whether a process of this host would get the whole file's lock.
fn is_free(file: &Path) -> Result<bool> {
    let script = crate::fixture::scripts().join("nlm_locks.py");
    let status = Command::new("python3").arg(script).arg("try").arg(file).status().context("python3")?;
    Ok(status.success())
}

/// The guest's process asks for its lock after it is monitored: waits until it has it.
fn wait_for_the_lock(file: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while is_free(file)? {
        ensure!(Instant::now() < deadline, "the guest never got its lock");
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The part of Connectathon's suite that is about locks: parent and child, 32 and 64 bits, 15 cases each.
fn connectathon(checkout: &Path, kernel: &Kernel) -> Result<()> {
    let _turn = turn()?;
    let suite = crate::conformance::connectathon_suite(checkout)?;
    let mut served = serve()?;
    let script = "mkdir /mnt/three/test; export NFSTESTDIR=/mnt/three/test LOCKTESTS='tlocklfs tlock64' PATH=$PATH:.\n\
                  grep ' /mnt/three ' /proc/mounts | grep -v local_lock=all; cd $SUITE/lock\n\
                  sh ./runtests -f >/run/said 2>&1 || { tail -n 30 /run/said; exit 1; }\n\
                  cat /run/said; cd /; umount /mnt/three";
    let suite = suite.to_string_lossy();
    let guest = start_with(&served, kernel, script, &[("SUITE", &suite)])?;
    let said = guest.wait()?.success()?;
    let passed = said.matches("PASS").count();
    ensure!(passed > 60, "only {passed} steps passed");
    served.server.check_alive()
}

fn exclusion(kernel: &Kernel) -> Result<()> {
    let _turn = turn()?;
    let mut served = serve()?;
    let file = served.server.directory().join("file");
    let script = "mkdir -p /mnt/four; mount -t nfs -o vers=4.2,proto=tcp,port=$PORT $SERVER:$EXPORT /mnt/four\n\
                  locks exclusion /mnt/three/file /mnt/four/file\n\
                  echo ready; lab_wait held; locks refused /mnt/three/file /mnt/four/file\n\
                  locks waiting /mnt/three/file; umount /mnt/three /mnt/four";
    let guest = start(&served, kernel, script)?;
    guest.wait_for("ready\n", PATIENCE)?;
    let held = crate::fixture::scripts().join("nlm_locks.py");
    let mut holder = Command::new("python3").arg(held).arg("hold").arg(&file).spawn().context("python3")?;
    let deadline = Instant::now() + PATIENCE;
    while is_free(&file)? {
        ensure!(Instant::now() < deadline, "the host's process never got its lock");
    }
    guest.signal("held")?;
    guest.wait_for("waits\n", PATIENCE)?;
    // The guest's process asks after it has said so.
    sleep(Duration::from_secs(2));
    ensure!(!guest.has_said("granted"), "the host's process holds the lock");
    holder.kill()?;
    holder.wait()?;
    guest.wait_for("granted\n", PATIENCE)?;
    guest.wait()?.success()?;
    served.server.check_alive()
}

/// The notice that a client sends after its own restart; that it did not really restart, the server cannot know.
fn client_restarts(kernel: &Kernel) -> Result<()> {
    let _turn = turn()?;
    let mut served = serve()?;
    let file = served.server.directory().join("file");
    let script = "locks hold /mnt/three/file & until [ -e /var/lib/nfs/sm/* ]; do sleep 0.1; done\n\
                  echo locked; lab_wait restart; sm-notify -f; echo told; lab_wait end";
    let guest = start(&served, kernel, script)?;
    guest.wait_for("locked\n", PATIENCE)?;
    wait_for_the_lock(&file).with_context(|| guest.last_words())?;
    guest.signal("restart")?;
    let deadline = Instant::now() + PATIENCE;
    while !is_free(&file)? {
        ensure!(Instant::now() < deadline, "the lock of a client that restarted is still held");
        sleep(Duration::from_millis(100));
    }
    guest.signal("end")?;
    guest.wait()?.success()?;
    served.server.check_alive()
}

fn server_restarts(kernel: &Kernel) -> Result<()> {
    let _turn = turn()?;
    let mut served = serve()?;
    let file = served.server.directory().join("file");
    let script = "locks hold /mnt/three/file & until [ -e /var/lib/nfs/sm/* ]; do sleep 0.1; done\n\
                  echo locked; lab_wait end";
    let guest = start(&served, kernel, script)?;
    guest.wait_for("locked\n", PATIENCE)?;
    wait_for_the_lock(&file).with_context(|| guest.last_words())?;
    served.server.kill()?;
    ensure!(is_free(&file)?, "a dead server's locks are gone");
    served.server.restart()?;
    let restarted = Instant::now();
    while is_free(&file)? {
        ensure!(restarted.elapsed() < PATIENCE, "the client never reclaimed its lock");
        sleep(Duration::from_millis(20));
    }
    println!("{}: reclaimed {:.2} s after the restart", kernel.label(), restarted.elapsed().as_secs_f64());
    sleep(Duration::from_secs(u64::from(2 * LEASE_SECONDS)));
    ensure!(!is_free(&file)?, "the lock is held after grace as well");
    guest.signal("end")?;
    guest.wait()?.success()?;
    served.server.check_alive()
}
