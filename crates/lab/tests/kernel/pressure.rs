//! A server whose host runs out of memory asks real kernel clients for what they need least (CB_RECALL_ANY) and to use fewer
//! slots (CB_RECALL_SLOT): they do as they are asked, and go on.

use crate::fixture::{Served, guest, kernels, start_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{FsType, Kernel, LoopFs, NfsVersion, Scale, ServerUnderTest, Trial};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const FILES: usize = 300;
/// Of so many that the client is not using, Linux keeps none; not all at once, for the server asks for half.
const GIVEN_BACK: usize = FILES / 2;
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);
/// Long enough that no client gives anything back for not having used it.
const LEASE_SECONDS: u32 = 120;
const MIB_TOTAL: u64 = 8192;

/// The cases. 4.0 has no such calls.
pub(crate) fn trials() -> Vec<Trial> {
    let versions: &[NfsVersion] = match Scale::from_env() {
        Scale::Test => &[NfsVersion::V42],
        Scale::Soak => &[NfsVersion::V41, NfsVersion::V42],
    };
    let mut trials = Vec::new();
    for at_hand in kernels() {
        let name = "pressure::clients_give_back_what_they_are_asked_for";
        trials.extend(at_hand.trials(name, versions, short_of_memory));
    }
    trials
}

/// Has the server's host be one with so many MiB of memory available.
fn tell(meminfo: &Path, available: u64) -> Result<()> {
    let text = format!("MemTotal: {} kB\nMemAvailable: {:>9} kB\n", MIB_TOTAL << 10, available << 10);
    // In place, as the server sees this very file, and of one length, so that it never sees half of it.
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(meminfo)?;
    std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0)?;
    Ok(())
}

/// How often something happened, or how much there is of something, by the name that `holdfast status` gives it.
fn count(server: &ServerUnderTest, list: &str, name: &str) -> Result<u64> {
    let status: Value = serde_json::from_str(&server.ask(&["status", "--json"])?)?;
    let entry = status[list].as_array().and_then(|all| all.iter().find(|entry| entry["name"] == name));
    entry.and_then(|entry| entry["count"].as_u64()).with_context(|| format!("no \"{name}\" in {status}"))
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{what}");
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn short_of_memory(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let filesystem = LoopFs::new(FsType::Ext4, 1 << 30)?;
    let (share, meminfo) = (filesystem.path().join("share"), filesystem.path().join("meminfo"));
    std::fs::create_dir(&share)?;
    tell(&meminfo, MIB_TOTAL)?;
    crate::delegations::files_in(&share.join("many"), FILES)?;
    let server = ServerUnderTest::builder(&share).lease_seconds(LEASE_SECONDS).meminfo(&meminfo).start()?;
    let mut served = Served { server, filesystem };
    let script = "lab_mount $VERSION /mnt\n\
                  python3 $SCRIPTS/pressure.py /mnt /mnt/many $OUT/.signal $LEAST\n\
                  umount /mnt";
    let least = GIVEN_BACK.to_string();
    let env = [("VERSION", version.as_str()), ("LEAST", &least)];
    let guest = start_in(guest(kernel, "512M", PATIENCE), &served, script, &env)?;
    guest.wait_for("holding\n", PATIENCE)?;
    let held = count(&served.server, "state", "read delegations")?;
    ensure!(held >= FILES as u64, "{held} of {FILES} files are delegated");

    tell(&meminfo, 0)?;
    guest.signal("short")?;
    guest.wait_for("given back\n", PATIENCE)?;
    let left = count(&served.server, "state", "read delegations")?;
    ensure!(left <= (FILES - GIVEN_BACK) as u64, "{left} of {held} delegations are left");
    let asked = |name| count(&served.server, "events", name);
    ensure!(asked("clients asked to give back what they need least")? >= 1, "nobody was asked");
    until(
        "no session was asked to use fewer slots",
        || Ok(asked("sessions asked to use fewer slots")? >= 1),
    )?;
    guest.signal("asked")?;
    guest.wait_for("worked\n", PATIENCE)?;
    let clients: Value = serde_json::from_str(&served.server.ask(&["clients", "--json"])?)?;
    ensure!(clients[0]["back_channel"] == "up", "the client did not answer: {clients}");
    ensure!(clients[0]["revoked"] == 0, "something was taken from the client: {clients}");

    tell(&meminfo, MIB_TOTAL)?;
    // What is read anew is delegated anew.
    guest.signal("easy")?;
    guest.wait_for("delegated again\n", PATIENCE)?;
    let said = guest.wait()?.success()?;
    println!("{version} {}: {}; {left} of {held} left", kernel.label(), said.trim().replace('\n', "; "));
    served.server.check_alive()
}
