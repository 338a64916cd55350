//! Processes of the server's own host beside kernel clients: what they open is given back first, and the locks of either
//! keep the other out.

use crate::delegations::SURELY_OLDER;
use crate::fixture::{Served, guest, kernels, scripts, serve, start_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Guest, Kernel, NfsVersion, Trial};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
/// A recall, a flush and an open on a busy machine; a client that is not recalled keeps what it has for minutes.
const OPENED_WITHIN: Duration = Duration::from_secs(20);
/// So long who is not to be let in is watched.
const STILL_OUT: Duration = Duration::from_secs(2);

/// Kinds of lock: the guest's, and that of the host's process which it must exclude.
const PAIRS: [(&str, &str); 2] = [("flock", "flock"), ("posix", "ofd")];

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let versions = [NfsVersion::V40, NfsVersion::V42];
    for at_hand in kernels() {
        for local in ["lazy", "strict"] {
            let run = move |kernel: &Kernel, version| opened(kernel, version, local);
            let name = format!("beside::a_local_process_has_what_a_guest_wrote::{local}");
            trials.extend(at_hand.trials(&name, &versions, run));
        }
        trials.extend(at_hand.trials("beside::locks_keep_each_other_out", &versions, locked));
        trials.extend(at_hand.trials("beside::who_waits_does_so_over_a_planned_restart", &versions, waits));
    }
    // Linux 6.1 asks for no delegations of directories.
    let [_, newest] = kernels();
    trials.extend(newest.trials(
        "beside::a_directory_is_not_delegated_where_local_processes_count_at_once",
        &[NfsVersion::V42],
        listed,
    ));
    trials
}

fn start(served: &Served, kernel: &Kernel, version: NfsVersion, script: &str) -> Result<Guest> {
    let begin = "act() { python3 $SCRIPTS/delegations.py \"$@\"; }\n\
                 locks() { python3 $SCRIPTS/local_locks.py \"$@\"; }\n";
    let guest = guest(kernel, "512M", PATIENCE);
    start_in(guest, served, &format!("{begin}{script}"), &[("VERSION", version.as_str())])
}

/// A guest has written a file and closed it, without asking, and keeps another that it has read. A local process reads the first
/// and writes the second.
fn opened(kernel: &Kernel, version: NfsVersion, local: &str) -> Result<()> {
    let mut served = serve(1 << 30, &["--local", local])?;
    let directory = served.server.directory().to_path_buf();
    std::fs::write(directory.join("read"), "before")?;
    let script = "lab_mount $VERSION /mnt\n\
                  act read /mnt/read; act read /mnt/read; act unasked /mnt /mnt/read\n\
                  act write /mnt/written 'by someone'\n\
                  act rewrite /mnt /mnt/written 'by the guest'; echo kept; lab_wait opened\n\
                  act returned /mnt 2; act read /mnt/read; umount /mnt";
    let guest = start(&served, kernel, version, script)?;
    guest.wait_for("kept\n", PATIENCE)?;
    let begun = Instant::now();
    let seen = std::fs::read_to_string(directory.join("written"))?;
    let read_after = begun.elapsed();
    std::fs::write(directory.join("read"), "by the host")?;
    let written_after = begun.elapsed() - read_after;
    guest.signal("opened")?;
    let said = guest.wait()?.success()?;
    println!(
        "{version} {} {local}: a local process read after {read_after:?}, and wrote after {written_after:?}",
        kernel.label()
    );
    ensure!(seen == "by the guest", "the local process read {seen:?}");
    ensure!(said.contains(": by the host\n"), "the guest still sees what it had read: {said}");
    ensure!(read_after < OPENED_WITHIN && written_after < OPENED_WITHIN, "the local process waited so long");
    served.server.check_alive()
}

/// What is kept of a directory cannot be taken back before a local process changes it, but soon after.
fn listed(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let delegated = |local: &str| -> Result<usize> {
        let mut served = serve(1 << 30, &["--local", local])?;
        let folder = served.server.directory().join("folder");
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("old"), "")?;
        std::thread::sleep(SURELY_OLDER);
        let script =
            "lab_mount $VERSION /mnt; act listed /mnt/folder; echo listed; lab_wait counted; umount /mnt";
        let guest = start(&served, kernel, version, script)?;
        guest.wait_for("listed\n", PATIENCE)?;
        let locks: Vec<Value> =
            serde_json::from_str(&served.server.ask(&["locks", "--kind", "delegation", "--json"])?)?;
        guest.signal("counted")?;
        guest.wait()?.success()?;
        served.server.check_alive()?;
        Ok(locks.iter().filter(|lock| lock.to_string().contains("directory")).count())
    };
    let (lazy, strict) = (delegated("lazy")?, delegated("strict")?);
    ensure!(lazy == 1, "the guest does not ask for a delegation: {lazy} where it may have one");
    ensure!(strict == 0, "{strict} directories are delegated where local processes count at once");
    Ok(())
}

/// A process of the server's host.
fn local(action: &str, kind: &str, file: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(scripts().join("local_locks.py")).args([action, kind]).arg(file);
    command
}

fn is_granted(kind: &str, file: &Path) -> Result<bool> {
    let status = local("try", kind, file).status().context("python3")?;
    ensure!(matches!(status.code(), Some(0 | 1)), "local_locks.py: {status}");
    Ok(status.success())
}

/// A process of the host that has a lock until it is dropped, or told to give it back.
struct Holder {
    process: Child,
    release: PathBuf,
}

impl Holder {
    /// Waits until it has it.
    fn of(kind: &str, file: &Path, dir: &Path) -> Result<Self> {
        let release = dir.join(format!("release-{kind}"));
        let process = local("hold", kind, file).arg(&release).arg("local").spawn().context("python3")?;
        let holder = Self { process, release };
        let deadline = Instant::now() + PATIENCE;
        while is_granted(kind, file)? {
            ensure!(Instant::now() < deadline, "the host's process never got its lock");
        }
        Ok(holder)
    }

    fn release(mut self) -> Result<()> {
        std::fs::write(&self.release, "")?;
        ensure!(self.process.wait()?.success(), "the host's process ended badly");
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Ended already where all is well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How long after its holder the guest that waits for a lock has it.
fn granted_once_free(holder: Holder, guest: &Guest, kind: &str) -> Result<Duration> {
    let begun = Instant::now();
    holder.release()?;
    guest.wait_for(&format!("granted {kind}\n"), PATIENCE)?;
    Ok(begun.elapsed())
}

fn locked(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let file = served.server.directory().join("file");
    std::fs::write(&file, "")?;
    let of_pair = |(kind, _): &(&str, &str)| {
        format!(
            "locks hold {kind} /mnt/file $OUT/.signal/free-{kind} {kind}\n\
             lab_wait held-{kind}\n\
             if locks try {kind} /mnt/file; then echo {kind}: granted beside the host >&2; exit 1; fi\n\
             locks wait {kind} /mnt/file {kind}\n"
        )
    };
    let pairs: String = PAIRS.iter().map(of_pair).collect();
    let guest = start(&served, kernel, version, &format!("lab_mount $VERSION /mnt\n{pairs}umount /mnt"))?;
    for (kind, other) in PAIRS {
        guest.wait_for(&format!("held {kind}\n"), PATIENCE)?;
        ensure!(!is_granted(other, &file)?, "{other} of the host beside the guest's {kind}");
        guest.signal(&format!("free-{kind}"))?;
        guest.wait_for(&format!("freed {kind}\n"), PATIENCE)?;
        ensure!(
            is_granted(other, &file)?,
            "{other} of the host is refused when the guest's {kind} is given back"
        );
        let holder = Holder::of(other, &file, &served.filesystem.path())?;
        guest.signal(&format!("held-{kind}"))?;
        guest.wait_for(&format!("waits {kind}\n"), PATIENCE)?;
        std::thread::sleep(STILL_OUT);
        ensure!(
            !guest.has_said(&format!("granted {kind}\n")),
            "{kind} of the guest beside the host's {other}"
        );
        let waited = granted_once_free(holder, &guest, kind)?;
        println!("{version} {}: {kind} {waited:?} after {other} was free", kernel.label());
    }
    guest.wait()?.success()?;
    served.server.check_alive()
}

/// A guest waits for what a local process has locked, while another process takes the server's place: which must go on with
/// all there is, let nobody in, and tell the guest when the lock is free.
fn waits(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let file = served.server.directory().join("file");
    std::fs::write(&file, "")?;
    std::fs::write(served.server.directory().join("own"), "")?;
    let (kind, other) = PAIRS[0];
    let script = format!(
        "lab_mount $VERSION /mnt; python3 $SCRIPTS/steady.py note /mnt /run/steady\n\
         exec 8>/mnt/own; flock -x 8; locks wait {kind} /mnt/file {kind}\n\
         python3 $SCRIPTS/steady.py check /mnt /run/steady\n\
         echo through >&8; exec 8>&-; umount /mnt"
    );
    let holder = Holder::of(other, &file, &served.filesystem.path())?;
    let guest = start(&served, kernel, version, &script)?;
    guest.wait_for(&format!("waits {kind}\n"), PATIENCE)?;
    std::thread::sleep(STILL_OUT);
    served.server.replace()?;
    ensure!(served.server.log().contains("still_ms="), "what there was is given up");
    std::thread::sleep(STILL_OUT);
    ensure!(!guest.has_said(&format!("granted {kind}\n")), "the guest's {kind} beside the host's {other}");
    ensure!(!is_granted(other, &served.server.directory().join("own"))?, "the guest's own lock is lost");
    let waited = granted_once_free(holder, &guest, kind)?;
    println!("{version} {}: {kind} {waited:?} after {other} was free", kernel.label());
    guest.wait()?.success()?;
    served.server.check_alive()
}
