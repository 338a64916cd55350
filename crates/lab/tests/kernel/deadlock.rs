//! Two processes, each of which waits for the lock that the other one holds (`F_SETLKW` on two files): one of them is told
//! (`EDEADLK`), and the other one gets what it waits for, be they of one client or, in NFSv3, of two.
//!
//! Two clients of NFSv4 are not told: Linux names another lock-owner for each file that a process locks, and for the server
//! nobody of those who wait holds anything. There the first one to be signalled gives up, and the other one goes on.

use crate::fixture::{Served, guest, kernels, start_in};
use crate::nlm;
use anyhow::{Context, Result, ensure};
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, NfsVersion, ServerUnderTest, Trial, Turn};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
/// Of a case, which may have to wait for another one's turn at the port mapper.
const LIMIT: Duration = Duration::from_secs(480);
/// Who would wait for ever is told as soon as it asks, or gives up by itself; the rest is what a busy machine takes.
const TOLD: Duration = Duration::from_secs(25);
/// Of the one that gives up, where nobody is told.
const GIVES_UP_S: u32 = 5;
/// Who waits in 4.0, where nobody is called back, asks every 30 s at last (Linux, `NFS4_LOCK_MAXTIMEOUT`).
const GRANTED: Duration = Duration::from_secs(50);

const VERSIONS: [NfsVersion; 3] = [NfsVersion::V3, NfsVersion::V40, NfsVersion::V42];

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for at_hand in kernels() {
        trials.extend(at_hand.trials("deadlock::of_one_client_is_told", &VERSIONS, one_client));
        trials.extend(at_hand.trials(
            "deadlock::of_two_clients_is_told",
            &[NfsVersion::V3],
            |kernel, version| two_clients(kernel, [version, version], "EDEADLK"),
        ));
        let unseen = [[NfsVersion::V40; 2], [NfsVersion::V42; 2], [NfsVersion::V3, NfsVersion::V42]];
        for versions in unseen {
            let name =
                format!("deadlock::of_two_clients_ends_when_one_gives_up::{}_{}", versions[0], versions[1]);
            trials.push(at_hand.trial(&name, move |kernel| two_clients(kernel, versions, "gave up")));
        }
    }
    trials.into_iter().map(|trial| trial.limit(LIMIT)).collect()
}

/// A server, and its turn at the port mapper if one of these needs it, which must outlive it.
fn serve(versions: &[NfsVersion]) -> Result<(Option<Turn>, Served)> {
    let turn = if versions.contains(&NfsVersion::V3) { Some(nlm::turn()?) } else { None };
    let filesystem = LoopFs::new(FsType::Ext4, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    for name in ["one", "other"] {
        std::fs::write(share.join(name), "")?;
    }
    let builder = ServerUnderTest::builder(&share);
    let builder = if turn.is_some() { builder.with_portmap() } else { builder };
    let server = builder.start()?;
    Ok((turn, Served { server, filesystem }))
}

fn start(
    served: &Served,
    kernel: &Kernel,
    version: NfsVersion,
    (name, script): (&str, &str),
) -> Result<Guest> {
    let mount = match version {
        NfsVersion::V3 => format!("{}ln -s /mnt/three /mnt/at", nlm::begin(name)),
        _ => "lab_mount $VERSION /mnt/at".to_owned(),
    };
    let script = format!("{mount}\ncd /; python3 $SCRIPTS/deadlock.py {script} $OUT/.signal/go");
    start_in(guest(kernel, "512M", PATIENCE), served, &script, &[("VERSION", version.as_str())])
}

/// Waits until it has ended for one in this, and then until the other one is granted.
fn judge(guests: &[&Guest], sides: [&str; 2], end: &str) -> Result<()> {
    for guest in guests {
        guest.signal("go")?;
    }
    let asked = Instant::now();
    let has_said = |words: &str| guests.iter().any(|guest| guest.has_said(words));
    let last_words = || guests.iter().map(|guest| guest.last_words()).collect::<Vec<_>>().join("\n");
    while !has_said(&format!("ended: {end}")) {
        ensure!(asked.elapsed() < TOLD, "for nobody it ended in: {end}\n{}", last_words());
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = asked.elapsed();
    while !has_said("ended: granted") {
        ensure!(asked.elapsed() < GRANTED, "{sides:?}: the other one waits on\n{}", last_words());
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("     {sides:?}: {end} after {told:.1?}, the other one granted after {:.1?}", asked.elapsed());
    Ok(())
}

fn one_client(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let (_turn, mut served) = serve(&[version])?;
    let guest = start(&served, kernel, version, ("client-a", "both /mnt/at/one /mnt/at/other"))?;
    ["parent holds\n", "child holds\n"].into_iter().try_for_each(|words| guest.wait_for(words, PATIENCE))?;
    judge(&[&guest], [version.as_str(), "the same client"], "EDEADLK")?;
    guest.wait()?.success()?;
    served.server.check_alive()
}

fn two_clients(kernel: &Kernel, versions: [NfsVersion; 2], end: &str) -> Result<()> {
    let (_turn, mut served) = serve(&versions)?;
    let patience = if end == "EDEADLK" { 0 } else { GIVES_UP_S };
    let mine = format!("{patience} /mnt/at/one /mnt/at/other");
    let one = start(&served, kernel, versions[0], ("client-a", &mine))?;
    let other = start(&served, kernel, versions[1], ("client-b", "0 /mnt/at/other /mnt/at/one"))?;
    for guest in [&one, &other] {
        guest.wait_for("one holds\n", PATIENCE)?;
    }
    judge(&[&one, &other], versions.map(NfsVersion::as_str), end)?;
    for guest in [one, other] {
        guest.wait()?.success().context("a client")?;
    }
    served.server.check_alive()
}
