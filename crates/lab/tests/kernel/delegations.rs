//! Delegations between real kernel clients: held without a question, recalled when somebody else comes, and taken from
//! the dead.

use crate::fixture::{Served, guest, kernels, run_in, scripts, serve, start_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, NfsVersion, ServerUnderTest, Trial};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const FILES: usize = 1000;
/// Each is had open all the while.
const FILES_RECLAIMED: usize = 50;
const PATIENCE: Duration = Duration::from_secs(120);
/// The lease: after it, whoever asks is granted what a dead client held. Two of them are longer than one and all that is
/// allowed for besides.
const LEASE: Duration = Duration::from_secs(30);
/// Linux gives back what it was delegated and has not used for two thirds of a lease (`nfs_expire_unreferenced_delegations`): a
/// guest without much of a processor takes ten seconds to read all files once.
const LONG_LEASE: Duration = Duration::from_secs(120);
/// How often the dead client's neighbour begins to ask anew, by a process that has not been put off yet.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// Who was put off (DELAY) asks again after 0.1 s, then twice that, and so on (Linux, `nfs4_update_delay`), up to this
/// (`NFS4_POLL_RETRY_MAX`): when the lease ends it may just have gone to sleep.
const BACK_OFF: Duration = Duration::from_secs(15);
/// What the server may take beyond the lease to give away what a dead client held: it is asked each second, and looks each
/// second.
const OWN_SHARE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(200);
/// What a guest and its server may take for the rest, on a busy machine.
const BUSY: Duration = Duration::from_secs(10);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for at_hand in kernels() {
        let versions = [NfsVersion::V40, NfsVersion::V41, NfsVersion::V42];
        trials.extend(at_hand.trials("delegations::files_are_read_again_unasked", &versions, read_again));
        trials.extend(at_hand.trials("delegations::another_write_is_seen_at_once", &versions, recalled));
        trials.extend(at_hand.trials(
            "delegations::a_recall_finds_a_holder_that_was_cut_off",
            &versions,
            cut,
        ));
        trials.extend(at_hand.long_trials(
            "delegations::changes_of_name_and_attributes_by_another_guest_recall",
            &versions,
            changed,
        ));
        trials.extend(at_hand.long_trials(
            "delegations::a_dead_holder_is_waited_for_no_longer_than_a_lease",
            &versions,
            dead,
        ));
        trials.extend(at_hand.trials("delegations::are_had_back_after_a_kill", &versions, reclaimed));
        // In 4.0 nobody can say that it wants no delegation.
        trials.extend(at_hand.trials(
            "delegations::who_keeps_a_file_open_sees_under_a_lock_what_another_wrote",
            &[NfsVersion::V41, NfsVersion::V42],
            kept_open,
        ));
    }
    // Linux 6.1 asks for no delegations of directories.
    let [_, newest] = kernels();
    trials.extend(newest.trials(
        "delegations::a_directory_is_kept_until_a_local_process_changes_it",
        &[NfsVersion::V42],
        directory,
    ));
    trials.extend(newest.trials(
        "delegations::names_that_were_replaced_before_a_directory_is_delegated_are_seen",
        &[NfsVersion::V42],
        replaced,
    ));
    trials
}

/// By more than a directory has to be older than what a client knows.
pub(crate) const SURELY_OLDER: Duration = Duration::from_secs(3);

pub(crate) fn files_in(folder: &Path, count: usize) -> Result<()> {
    std::fs::create_dir(folder)?;
    for n in 0..count {
        let name = format!("file-{n:04}");
        std::fs::write(folder.join(&name), name.repeat(100))?;
    }
    Ok(())
}

fn serve_with_lease(lease: Duration) -> Result<Served> {
    let filesystem = LoopFs::new(FsType::Ext4, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let server = ServerUnderTest::builder(&share).lease_seconds(u32::try_from(lease.as_secs())?).start()?;
    Ok(Served { server, filesystem })
}

fn read_again(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve_with_lease(LONG_LEASE)?;
    files_in(&served.server.directory().join("many"), FILES)?;
    let script = "lab_mount $VERSION /mnt actimeo=1\n\
                  python3 $SCRIPTS/delegations.py again /mnt /mnt/many\n\
                  umount /mnt";
    let said =
        run_in(guest(kernel, "512M", PATIENCE), &mut served, script, &[("VERSION", version.as_str())])?;
    println!("{version} {}: {}", kernel.label(), said.trim());
    Ok(())
}

fn start(served: &Served, kernel: &Kernel, version: NfsVersion, script: &str) -> Result<Guest> {
    let begin = "act() { python3 $SCRIPTS/delegations.py \"$@\"; }\nlab_mount $VERSION /mnt\n";
    let guest = guest(kernel, "512M", PATIENCE);
    start_in(guest, served, &format!("{begin}{script}"), &[("VERSION", version.as_str())])
}

/// One guest keeps what it read and what it wrote; the other one's write and read go through it all the same.
fn recalled(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    std::fs::write(served.server.directory().join("read"), "before")?;
    let holder = start(
        &served,
        kernel,
        version,
        "act read /mnt/read; act read /mnt/read; act unasked /mnt /mnt/read\n\
         act write /mnt/written 'by someone'; act rewrite /mnt /mnt/written 'by the holder'\n\
         echo holding; lab_wait changed; act returned /mnt 2; act read /mnt/read; act read /mnt/written\n\
         echo seen; lab_wait done; umount /mnt",
    )?;
    let other = start(
        &served,
        kernel,
        version,
        "lab_wait act; act size /mnt/written; act read /mnt/written; act write /mnt/read 'by the other'\n\
         act write /mnt/written 'by the other too'\n\
         echo acted; lab_wait done; umount /mnt",
    )?;
    holder.wait_for("holding\n", PATIENCE)?;
    other.signal("act")?;
    other.wait_for("acted\n", PATIENCE)?;
    holder.signal("changed")?;
    holder.wait_for("seen\n", PATIENCE)?;
    ensure!(holder.has_said(": by the other\n"), "the holder still sees what it had read");
    ensure!(holder.has_said(": by the other too\n"), "the holder still sees what it had written");
    ensure!(other.has_said(": by the holder\n"), "the other did not see what the holder wrote");
    for guest in [holder, other] {
        guest.signal("done")?;
        let said = guest.wait()?.success()?;
        println!("{version} {}: {}", kernel.label(), said.trim().replace('\n', "; "));
    }
    served.server.check_alive()
}

/// The connections between the server and a holder are reset, that for callbacks among them, and the holder, who has nothing to
/// ask, does not notice. What another changes is recalled as soon as it can be told, and nothing is revoked.
fn cut(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    std::fs::write(served.server.directory().join("read"), "before")?;
    let holder = start(
        &served,
        kernel,
        version,
        "act read /mnt/read; act read /mnt/read; act unasked /mnt /mnt/read\n\
         echo holding; lab_wait changed; act returned /mnt 1; act read /mnt/read; umount /mnt",
    )?;
    let other = start(
        &served,
        kernel,
        version,
        "lab_wait act; act write /mnt/read 'by the other'; echo acted; lab_wait done; umount /mnt",
    )?;
    holder.wait_for("holding\n", PATIENCE)?;
    let connections = holder.cut()?;
    let cut = Instant::now();
    other.signal("act")?;
    other.wait_for("acted\n", PATIENCE)?;
    let waited = cut.elapsed();
    let clients = clients(&served.server)?;
    holder.signal("changed")?;
    other.signal("done")?;
    let said = holder.wait()?.success()?;
    other.wait()?.success()?;
    println!(
        "{version} {}: {connections} connections were reset, and {waited:.1?} later another had written",
        kernel.label()
    );
    ensure!(said.contains(": by the other\n"), "the holder still sees what it had read");
    let has_lost = |client: &Value| client["revoked"].as_u64() != Some(0);
    ensure!(!clients.iter().any(has_lost), "something was revoked: {clients:?}");
    served.server.check_alive()
}

/// One guest keeps files that it read and files that it wrote; another changes their modes, lengths and names, which each recalls,
/// and the first sees it.
fn changed(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    // Who makes a file is delegated it to write at once: it is somebody else.
    let made = Command::new("python3")
        .arg(scripts().join("delegations.py"))
        .arg("made")
        .arg(served.server.directory().join("files"))
        .status()
        .context("python3")?;
    ensure!(made.success(), "making the files: {made}");
    let holder = start(
        &served,
        kernel,
        version,
        "act held /mnt /mnt/files; echo holding; lab_wait changed\n\
         act returned /mnt 12; act seen /mnt/files; umount /mnt",
    )?;
    let other = start(&served, kernel, version, "lab_wait act; act done /mnt/files; umount /mnt")?;
    holder.wait_for("holding\n", PATIENCE)?;
    other.signal("act")?;
    let did = other.wait()?.success()?;
    holder.signal("changed")?;
    holder.wait()?.success()?;
    println!("{version} {}: {}", kernel.label(), did.trim().replace('\n', "; "));
    served.server.check_alive()
}

/// The server is killed and started again under a guest that goes by its delegations, and it still does: they were reclaimed.
fn reclaimed(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    files_in(&served.server.directory().join("many"), FILES_RECLAIMED)?;
    let script = "act reclaimed /mnt /mnt/many $OUT/.signal/restarted; umount /mnt";
    let holder = start(&served, kernel, version, script)?;
    holder.wait_for("holding\n", PATIENCE)?;
    served.server.kill()?;
    served.server.restart()?;
    holder.signal("restarted")?;
    let said = holder.wait()?.success()?;
    println!("{version} {}: {}", kernel.label(), said.trim().replace('\n', "; "));
    served.server.check_alive()
}

/// A guest keeps what a folder has for as long as attributes are kept, ten minutes, and sees a file made on the server's own
/// host all the same.
fn directory(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let folder = served.server.directory().join("folder");
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("old"), "")?;
    // What has changed since the guest came is not delegated, and the clocks of files are not exact.
    std::thread::sleep(SURELY_OLDER);
    let script = "lab_mount $VERSION /mnt actimeo=600\n\
                  python3 $SCRIPTS/delegations.py directory /mnt /mnt/folder $OUT/.signal/changed new\n\
                  umount /mnt";
    let env = [("VERSION", version.as_str())];
    let guest = start_in(guest(kernel, "512M", PATIENCE), &served, script, &env)?;
    guest.wait_for("listed\n", PATIENCE)?;
    std::fs::write(folder.join("new"), "")?;
    guest.signal("changed")?;
    let said = guest.wait()?.success()?;
    println!("{version} {}: {}", kernel.label(), said.trim().replace('\n', "; "));
    served.server.check_alive()
}

/// A guest has looked names up, which others replace, remove and make. Linux (6.19 to 7.3) would take what it knows for current
/// from the moment that the directory is delegated to it; so it must not be.
fn replaced(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let folder = served.server.directory().join("folder");
    std::fs::create_dir(&folder)?;
    for name in ["replaced", "removed"] {
        std::fs::write(folder.join(name), "before")?;
    }
    std::thread::sleep(SURELY_OLDER);
    let script = "act known /mnt/folder replaced removed made; echo known; lab_wait changed\n\
                  act replaced /mnt/folder replaced removed made; umount /mnt";
    let guest = start(&served, kernel, version, script)?;
    guest.wait_for("known\n", PATIENCE)?;
    std::fs::write(folder.join("new"), "after")?;
    std::fs::rename(folder.join("new"), folder.join("replaced"))?;
    std::fs::remove_file(folder.join("removed"))?;
    std::fs::write(folder.join("made"), "after")?;
    guest.signal("changed")?;
    guest.wait()?.success()?;
    served.server.check_alive()
}

/// Two processes of a guest share one cache. While the first has the file open, the guest takes others' changes for its
/// own, and a delegation that the second one's OPEN brought would keep its lock from dropping what is cached.
fn kept_open(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    std::fs::write(served.server.directory().join("file"), "first.")?;
    let script = |role: &str, signal: &str| {
        format!(
            "lab_wait begin; python3 $SCRIPTS/kept_open.py {role} /mnt/file $OUT/.signal/{signal}\necho through; umount /mnt"
        )
    };
    let writer = start(&served, kernel, version, &script("write", "write"))?;
    let keeper = start(&served, kernel, version, &script("keep", "again"))?;
    writer.signal("begin")?;
    writer.wait_for("open\n", PATIENCE)?;
    keeper.signal("begin")?;
    keeper.wait_for("kept: first.\n", PATIENCE)?;
    writer.signal("write")?;
    writer.wait_for("written\n", PATIENCE)?;
    keeper.signal("again")?;
    for guest in [keeper, writer] {
        guest.wait_for("through\n", PATIENCE)?;
        let said = guest.wait()?.success()?;
        println!("{version} {}: {}", kernel.label(), said.trim().replace('\n', "; "));
        ensure!(!said.contains("read: first."), "what another wrote was not seen under a lock");
    }
    served.server.check_alive()
}

/// A guest dies with delegations and a lock; its neighbour is granted what it asks for within a lease, and who asked before
/// goes on when it asks again.
fn dead(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve_with_lease(LEASE)?;
    for name in ["read", "locked"] {
        std::fs::write(served.server.directory().join(name), "before")?;
    }
    let lock = "python3 -c 'import fcntl,time;f=open(\"/mnt/locked\",\"r+\");fcntl.lockf(f,fcntl.LOCK_EX);\
                print(\"locked\",flush=True);time.sleep(WAIT)'";
    // What another has open is not delegated to who locks it, so its lock is the server's.
    let other = start(
        &served,
        kernel,
        version,
        &format!(
            "exec 3</mnt/locked; echo open; lab_wait held\n\
             act read /mnt/read; echo ready; lab_wait act\n\
             (for n in $(seq {}); do (act change /mnt/read other && echo granted) & sleep {}; done; wait) &\n\
             act write /mnt/written other\n{}\necho through; wait; exec 3<&-; umount /mnt",
            (LEASE + BUSY).as_secs(),
            ASKED_EVERY.as_secs(),
            lock.replace("WAIT", "0")
        ),
    )?;
    other.wait_for("open\n", PATIENCE)?;
    let holder = start(
        &served,
        kernel,
        version,
        &format!(
            "act read /mnt/read; act read /mnt/read; act unasked /mnt /mnt/read\n\
             act write /mnt/written held\n{}",
            lock.replace("WAIT", "600")
        ),
    )?;
    holder.wait_for("locked\n", PATIENCE)?;
    other.signal("held")?;
    other.wait_for("ready\n", PATIENCE)?;
    let id = who_holds_most(&served.server)?;
    let locks: Vec<Value> =
        serde_json::from_str(&served.server.ask(&["locks", "--kind", "lock", "--json"])?)?;
    ensure!(locks.len() == 1 && locks[0]["client"] == id, "the holder {id} is to have one lock: {locks:?}");
    drop(holder);
    let died = Instant::now();
    other.signal("act")?;
    let silent = silent_while_held(&served.server, &id)?;
    other.wait_for("granted\n", PATIENCE).context("the neighbour of a dead client, asking anew")?;
    let granted = died.elapsed();
    other.wait_for("through\n", PATIENCE).context("the neighbour of a dead client")?;
    let waited = died.elapsed();
    println!(
        "{version} {}: granted {granted:.1?} after a holder's death; who had asked, {waited:.1?}; the server let go of what had \
         been silent for {silent:.1?}",
        kernel.label()
    );
    other.wait()?.success()?;
    ensure!(
        silent < LEASE + OWN_SHARE,
        "held for a client silent for {silent:?}, and the lease is {LEASE:?}"
    );
    ensure!(granted < LEASE + ASKED_EVERY + BUSY, "granted after {granted:?}, and the lease is {LEASE:?}");
    ensure!(waited < LEASE + BACK_OFF + BUSY, "the neighbour waited {waited:?}, and the lease is {LEASE:?}");
    served.server.check_alive()
}

fn clients(server: &ServerUnderTest) -> Result<Vec<Value>> {
    Ok(serde_json::from_str(&server.ask(&["clients", "--json"])?)?)
}

/// The client that has most delegated, by the server's name for it.
fn who_holds_most(server: &ServerUnderTest) -> Result<String> {
    let clients = clients(server)?;
    let holder = clients.iter().max_by_key(|client| client["delegations"].as_u64());
    let id = holder.and_then(|client| client["id"].as_str()).with_context(|| format!("who? {clients:?}"))?;
    Ok(id.to_owned())
}

/// How long a client has been silent when the server is last seen to hold more than one delegation for it: what nobody asks for
/// it may keep.
fn silent_while_held(server: &ServerUnderTest, id: &str) -> Result<Duration> {
    let deadline = Instant::now() + PATIENCE;
    let (mut renewed, mut silent) = (None, Duration::ZERO);
    loop {
        let clients = clients(server)?;
        let holds = |client: &&Value| client["delegations"].as_u64() > Some(1);
        let Some(client) = clients.iter().find(|client| client["id"] == id).filter(holds) else {
            return Ok(silent);
        };
        // Told until the lease has run out.
        let idle = client["idle_ms"].as_u64().map(Duration::from_millis);
        renewed = renewed.or_else(|| Instant::now().checked_sub(idle?));
        silent = renewed.with_context(|| format!("no sign of life told: {client}"))?.elapsed();
        ensure!(Instant::now() < deadline, "still held after {silent:?} of silence");
        std::thread::sleep(POLL);
    }
}
