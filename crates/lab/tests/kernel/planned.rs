//! The server is replaced by another program three times under a load of real kernel clients, which must not notice:
//! no connection is made anew, nobody says who it is again, nothing is reclaimed.

use crate::fixture::{Served, guest, kernels, start_in};
use crate::restart_load::{LIMIT, LOADS, Load, Strikes, run};
use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::{FsType, Kernel, LoopFs, NfsVersion, Scale, ServerBuilder, ServerUnderTest, Trial};
use std::time::Duration;

const REPLACEMENTS: usize = 3;
const REPLACEMENTS_SOAK: usize = 10;
/// The longest that the server may stand still, on a machine that other tests use as well: less than would be noticed.
const STILL_MS_MAX: u64 = 5000;
/// What is promised on a machine of its own: where others are busy, too, one of several times shows it. In a soak run the
/// median has to.
const STILL_MS_PROMISED: u64 = 500;
/// What the median of a test run has to show.
const STILL_MS_MEDIAN_MAX: u64 = 2000;
/// The longest that a client may stand still after a kill, when it is not refused meanwhile. Refused once, it stands still for
/// three seconds, every time: of several tries one is enough, and in a soak run it is the median of more.
const STALL_S_MAX: f64 = 2.0;
/// The same of a client of 4.0 with a lock, which cannot say that it has reclaimed all: names are changed when grace has lasted for a lease
/// (of ten seconds here), and Linux asks again after pauses of its own.
const STALL_40_S_MAX: f64 = 20.0;
const STALL_TRIES: usize = 3;
const STALL_TRIES_SOAK: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);

/// What the client counts of its connections and of making itself known, before and after.
const AROUND: (&str, &str) =
    ("python3 $SCRIPTS/steady.py note /mnt /run/steady", "python3 $SCRIPTS/steady.py check /mnt /run/steady");

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let versions: &[NfsVersion] = match Scale::from_env() {
        Scale::Test => &[NfsVersion::V42],
        Scale::Soak => &[NfsVersion::V40, NfsVersion::V41, NfsVersion::V42],
    };
    for at_hand in kernels() {
        for load in &LOADS {
            let name = format!("restart::planned::{}", load.name);
            trials.extend(at_hand.trials(&name, versions, |kernel, version| replaced(kernel, version, load)));
        }
    }
    for at_hand in kernels() {
        trials.extend(at_hand.trials("restart::stall_after_kill", versions, stall_after_kill));
    }
    trials.into_iter().map(|trial| trial.limit(LIMIT)).collect()
}

/// A client that makes and removes a name without end, while the server is killed and started again: once as it comes,
/// once with the listening socket kept open meanwhile, as systemd does for `holdfast.socket`. Refused once, Linux waits
/// for three seconds before it connects again; not refused, it goes on as soon as it is served.
fn stall_after_kill(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let seconds_max = if version == NfsVersion::V40 { STALL_40_S_MAX } else { STALL_S_MAX };
    let alone = longest_pause(kernel, version, |server| server)?;
    let (tries, enough) =
        Scale::from_env().pick((STALL_TRIES, 1), (STALL_TRIES_SOAK, STALL_TRIES_SOAK / 2 + 1));
    let mut short = 0;
    for _ in 0..tries {
        let kept = longest_pause(kernel, version, |server| server.keep_listener())?;
        println!(
            "{} {version}: killed and started: {alone} s; with the listening socket kept: {kept} s",
            kernel.label()
        );
        let seconds: f64 = kept.parse().context("a number of seconds")?;
        short += usize::from(seconds < seconds_max);
        if short == enough {
            return Ok(());
        }
    }
    bail!("the client stands still for more than {seconds_max} s, but for {short} of {tries} times")
}

fn longest_pause(
    kernel: &Kernel,
    version: NfsVersion,
    how: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> Result<String> {
    let filesystem = LoopFs::new(FsType::Ext4, 256 << 20)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let server = how(ServerUnderTest::builder(&share)).start()?;
    let mut served = Served { server, filesystem };
    // Long enough mounted that the client's last connecting is long ago, as it is in life.
    let script = "lab_mount $VERSION /mnt; mkdir /mnt/heart; exec 9>/mnt/held; flock -x 9; sleep 4; echo beating\n\
                  python3 $SCRIPTS/heartbeat.py /mnt/heart $OUT/.signal/enough\n\
                  exec 9>&-; umount /mnt";
    let guest = start_in(guest(kernel, "512M", PATIENCE), &served, script, &[("VERSION", version.as_str())])?;
    guest.wait_for("beating\n", PATIENCE)?;
    std::thread::sleep(Duration::from_secs(1));
    served.server.kill()?;
    served.server.restart()?;
    std::thread::sleep(Duration::from_secs(10));
    guest.signal("enough")?;
    let said = guest.wait()?.success()?;
    let pause = said.split_once("longest pause ").and_then(|(_, rest)| rest.split_once(" s"));
    Ok(pause.context("no heartbeat")?.0.to_owned())
}

fn replaced(kernel: &Kernel, version: NfsVersion, load: &Load) -> Result<()> {
    let mut stills = Vec::new();
    let replace = |served: &mut Served| {
        served.server.replace()?;
        stills = stills_of(&served.server.log());
        Ok(())
    };
    let times = Scale::from_env().pick(REPLACEMENTS, REPLACEMENTS_SOAK);
    let shortest = run((kernel, version, load), Strikes::seldom(times, version), AROUND, replace)?;
    println!(
        "{} {version} {}: the server stood still for {stills:?} ms, and each guest at least once for no longer than {shortest:?}",
        load.name,
        kernel.label()
    );
    ensure!(stills.len() == times, "{} of {times} replacements went on with what was there", stills.len());
    ensure!(stills.iter().all(|ms| *ms < STILL_MS_MAX), "too long");
    stills.sort_unstable();
    let (least, median) = (stills.first().context("none")?, stills[stills.len() / 2]);
    ensure!(*least < STILL_MS_PROMISED, "always for too long: {least} ms at least");
    let median_max = Scale::from_env().pick(STILL_MS_MEDIAN_MAX, STILL_MS_PROMISED);
    ensure!(median < median_max, "too long mostly: {stills:?} ms");
    let promised = Duration::from_millis(STILL_MS_PROMISED);
    ensure!(
        shortest.iter().all(|pause| *pause < promised),
        "a client always paused for longer: {shortest:?}"
    );
    Ok(())
}

/// Milliseconds for which nothing was served, of each replacement.
fn stills_of(log: &str) -> Vec<u64> {
    let each = log.split("still_ms=").skip(1);
    each.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}
