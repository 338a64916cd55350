//! The server is killed while a real kernel client reclaims what it held when it was killed before: opens and locks, which
//! come one after the other, so that some kills fall between the open of a file and its lock.

use crate::fixture::{LEVELS_OF_RESTARTS, Served, guest, kernels, start_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::process::tail;
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, NfsVersion, Scale, ServerUnderTest, Trial};
use serde_json::Value;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const FILES: usize = 200;
const ROUNDS: u32 = 4;
const ROUNDS_SOAK: u32 = 30;
/// Grace does not end under a client that has been killed at so often.
const LEASE_SECONDS: u32 = 30;
const POLL: Duration = Duration::from_millis(1);

/// The cases. 4.0 has no session that would hide the second restart, and no word for a client that wants no delegation, under
/// which it keeps its locks to itself.
pub(crate) fn trials() -> Vec<Trial> {
    let versions: &[NfsVersion] = match Scale::from_env() {
        Scale::Test => &[NfsVersion::V41],
        Scale::Soak => &[NfsVersion::V41, NfsVersion::V42],
    };
    let mut trials = Vec::new();
    for at_hand in kernels() {
        let name = "reclaim::a_kill_in_the_middle_of_it_takes_no_lock";
        trials.extend(at_hand.trials(name, versions, killed_in_the_middle));
    }
    trials
}

fn killed_in_the_middle(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let filesystem = LoopFs::new(FsType::Ext4, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let (name, levels) = LEVELS_OF_RESTARTS;
    let server = ServerUnderTest::builder(&share).lease_seconds(LEASE_SECONDS).environment(name, levels);
    let mut served = Served { server: server.with_grace().keep_listener().start()?, filesystem };
    let script = "lab_mount $VERSION /mnt\n\
                  python3 $SCRIPTS/many_locks.py /mnt $FILES $OUT/.signal\n\
                  umount /mnt";
    let files = FILES.to_string();
    let env = [("VERSION", version.as_str()), ("FILES", &files)];
    let guest = start_in(guest(kernel, "512M", PATIENCE), &served, script, &env)?;
    guest.wait_for("held\n", PATIENCE)?;
    let cut = cut_short(&mut served);
    let outcome = cut.and_then(|cut| judge(guest, &served).map(|()| cut));
    let cut = outcome.with_context(|| format!("the server said\n{}", tail(&served.server.log(), 60)))?;
    println!("{version} {}: killed with {cut:?} of {FILES} opens reclaimed", kernel.label());
    served.server.check_alive()
}

/// Kills the server, and each one that follows at another place of the client's reclaiming; how far that was each time.
fn cut_short(served: &mut Served) -> Result<Vec<usize>> {
    let rounds = Scale::from_env().pick(ROUNDS, ROUNDS_SOAK);
    let mut cut = Vec::new();
    served.server.kill()?;
    for round in 1..=rounds {
        served.server.restart()?;
        let enough = FILES * round as usize / (rounds as usize + 1);
        cut.push(reclaimed(&served.server, enough)?);
        served.server.kill()?;
    }
    served.server.restart()?;
    ensure!(cut.iter().any(|opens| *opens < FILES), "none was killed in the middle: {cut:?}");
    Ok(cut)
}

/// Waits until so many opens are there; how many are.
fn reclaimed(server: &ServerUnderTest, enough: usize) -> Result<usize> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let held = held(server, "open")?;
        if held >= enough {
            return Ok(held);
        }
        ensure!(Instant::now() < deadline, "{held} of {enough} opens are reclaimed");
        std::thread::sleep(POLL);
    }
}

fn held(server: &ServerUnderTest, kind: &str) -> Result<usize> {
    let listed: Vec<Value> = serde_json::from_str(&server.ask(&["locks", "--kind", kind, "--json"])?)?;
    Ok(listed.len())
}

/// What the client holds is what it held.
fn judge(guest: Guest, served: &Served) -> Result<()> {
    guest.signal("written")?;
    guest.wait_for("written\n", PATIENCE)?;
    let locks = held(&served.server, "lock")?;
    guest.signal("end")?;
    guest.wait()?.success()?;
    ensure!(locks == FILES, "the server has {locks} locks, the client {FILES}");
    Ok(())
}
