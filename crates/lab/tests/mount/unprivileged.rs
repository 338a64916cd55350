//! Mounts as `/etc/fstab`, `mount(8)` and ordinary users make them.

use crate::fixture::{LET_GO, Served, run_in};
use crate::installed;
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Trial, Turn, missing};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("unprivileged::mount_and_umount_by_their_own_names", by_type),
        Trial::new("unprivileged::a_line_of_fstab", by_fstab),
        Trial::new("unprivileged::nobody_mounts_by_fusermount", by_nobody),
        Trial::new("unprivileged::nobody_takes_a_mount_of_a_dead_server_away", forced_by_nobody),
        Trial::new("unprivileged::what_the_daemon_of_nobody_held_is_free_at_once_when_it_is_killed", killed),
    ]
}

/// A user that every Debian has, and who is nobody here.
const NOBODY: u32 = 65534;

/// A directory of files for the way `mount(8)` looks for helpers, where everybody may look.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        let root = tempfile::tempdir_in("/tmp")?;
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755))?;
        for name in ["mnt", "run"] {
            std::fs::create_dir(root.path().join(name))?;
        }
        let here = root.path().display();
        let variables = [format!("PREFIX={here}"), format!("SBINDIR={here}/sbin"), "UNITDIR=".into()];
        installed::make("install", &variables)?;
        Ok(Self { root })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs a script in a mount namespace of its own, in which the installed helpers are in `/sbin`.
    fn in_namespace(&self, script: &str, arguments: &[&str]) -> Result<Output> {
        let prepared = format!(
            "set -eu\nmount --make-rprivate /\n{LET_GO}\nmkdir $HERE/work\n\
             mount -t overlay overlay -o lowerdir=$(readlink -f /sbin),upperdir=$HERE/sbin,workdir=$HERE/work $(readlink -f /sbin)\n\
             {script}"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", &prepared, "script"]).args(arguments);
        command.env("HERE", self.root.path()).env("HOLDFAST_RUNTIME_DIR", self.path("run"));
        command.output().context("unshare")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed half-way; the namespaces of those that did not are gone with what was in them.
        let _ = Command::new("umount").args(["-l"]).arg(self.path("mnt")).output();
    }
}

fn said(output: &Output) -> String {
    let both = [output.stdout.clone(), output.stderr.clone()].concat();
    format!("{}: {}", output.status, String::from_utf8_lossy(&both))
}

fn by_type() -> Result<()> {
    let served = Served::new()?;
    let place = Place::new()?;
    let source = format!("127.0.0.1:{}:/share", served.server.port());
    let script = "
mount -t fuse.holdfast -o rw,_netdev,noatime $1 $HERE/mnt
findmnt -n -o FSTYPE,SOURCE,OPTIONS $HERE/mnt
echo content >$HERE/mnt/file
mount -o remount,ro $HERE/mnt
if touch $HERE/mnt/file; then exit 5; fi
mount -o remount,rw $HERE/mnt
touch $HERE/mnt/file
umount $HERE/mnt
if findmnt $HERE/mnt; then exit 3; fi
if mount -t fuse.holdfast -o cash=none $1 $HERE/mnt; then exit 4; fi
mount -t fuse.holdfast -s -o cash=none $1 $HERE/mnt
umount -f $HERE/mnt
mount -t holdfast $1 $HERE/mnt
[ \"$(cat $HERE/mnt/file)\" = content ]
umount $HERE/mnt
";
    let output = place.in_namespace(script, &[&source])?;
    let told = said(&output);
    ensure!(output.status.success(), "{told}");
    ensure!(told.contains("fuse.holdfast") && told.contains(&source) && told.contains("noatime"), "{told}");
    ensure!(told.contains("no such option"), "{told}");
    ensure!(std::fs::read_to_string(served.share().join("file"))? == "content\n", "not on the server");
    Ok(())
}

fn by_fstab() -> Result<()> {
    let served = Served::new()?;
    let place = Place::new()?;
    let mountpoint = place.path("mnt");
    let line = format!(
        "127.0.0.1:/share  {}  fuse.holdfast  _netdev,nofail,x-systemd.automount,port={},ro  0 0\n",
        mountpoint.display(),
        served.server.port()
    );
    std::fs::write(place.path("fstab"), line)?;
    std::fs::write(served.share().join("file"), "content")?;
    let script = "
mount -T $HERE/fstab $HERE/mnt
[ \"$(cat $HERE/mnt/file)\" = content ]
if touch $HERE/mnt/new; then exit 3; fi
umount $HERE/mnt
mount -T $HERE/fstab -a -t fuse.holdfast
[ \"$(cat $HERE/mnt/file)\" = content ]
umount -l $HERE/mnt
";
    let output = place.in_namespace(script, &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    Ok(())
}

/// What `/dev/fuse` allows while an ordinary user is to use it: one case at a time sees to it.
struct OpenDevice(u32, #[expect(dead_code, reason = "held as long")] Turn);

impl OpenDevice {
    fn new() -> Result<Self> {
        let turn = Turn::at("fuse-device")?;
        let mode = std::fs::metadata("/dev/fuse")?.mode() & 0o777;
        std::fs::set_permissions("/dev/fuse", std::fs::Permissions::from_mode(0o666))?;
        Ok(Self(mode, turn))
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let _ = std::fs::set_permissions("/dev/fuse", std::fs::Permissions::from_mode(self.0));
    }
}

/// A place that is nobody's, and the device open to all while it lives.
struct Nobody {
    place: Place,
    _device: OpenDevice,
}

impl Nobody {
    fn new() -> Result<Self> {
        missing::program("fusermount3", "fuse3")?;
        let place = Place::new()?;
        for name in ["mnt", "run"] {
            std::os::unix::fs::chown(place.path(name), Some(NOBODY), Some(NOBODY))?;
        }
        Ok(Self { place, _device: OpenDevice::new()? })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(arguments);
        command.env("HOLDFAST_RUNTIME_DIR", self.place.path("run")).env("HOME", "/nonexistent");
        command.current_dir("/");
        command
    }

    fn runs(&self, arguments: &[&str]) -> Result<Output> {
        self.command(arguments).output().context("setpriv")
    }

    /// The daemon's process, by its control socket.
    fn daemon(&self) -> Result<String> {
        let names = std::fs::read_dir(self.place.path("run"))?.flatten().map(|entry| entry.file_name());
        let daemon = names
            .into_iter()
            .find_map(|name| Some(name.to_str()?.strip_suffix(".sock")?.rsplit_once('-')?.1.to_owned()));
        daemon.context("no control socket")
    }

    fn log(&self) -> String {
        let logs = std::fs::read_dir(self.place.path("run")).into_iter().flatten().flatten();
        logs.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect()
    }

    /// `holdfast` with these arguments and the mount point.
    fn holdfast(&self, arguments: &[&str]) -> Result<Output> {
        let (binary, mountpoint) = (self.place.path("bin/holdfast"), self.place.path("mnt"));
        self.runs(&[&[text(&binary)?], arguments, &[text(&mountpoint)?]].concat())
    }
}

fn by_nobody() -> Result<()> {
    let served = Served::new()?;
    std::fs::set_permissions(served.share(), std::fs::Permissions::from_mode(0o777))?;
    std::fs::write(served.share().join("secret"), "of root")?;
    std::fs::set_permissions(served.share().join("secret"), std::fs::Permissions::from_mode(0o600))?;
    let nobody = Nobody::new()?;
    let mountpoint = nobody.place.path("mnt");
    let mounted = nobody.holdfast(&["mount", &format!("127.0.0.1:{}:/share", served.server.port())])?;
    ensure!(mounted.status.success(), "{}", said(&mounted));
    let use_it = "cd $0; echo mine >file; cat file; if cat secret; then exit 3; fi";
    let used = nobody.runs(&["bash", "-ec", use_it, text(&mountpoint)?])?;
    ensure!(used.status.success(), "{}", said(&used));
    // Without allow_other root itself is kept out.
    let error = std::fs::read_dir(&mountpoint).err().and_then(|error| error.raw_os_error());
    ensure!(error == Some(EACCES), "root was let in: {error:?}");
    let stats = nobody.holdfast(&["mount", "stats"])?;
    ensure!(stats.status.success(), "{}", said(&stats));
    let unmounted = nobody.holdfast(&["umount"])?;
    ensure!(unmounted.status.success(), "{}", said(&unmounted));
    let made = std::fs::metadata(served.share().join("file"))?;
    ensure!(made.uid() == NOBODY, "made as {}", made.uid());
    run_in(&served.share(), "[ \"$(cat file)\" = mine ]", &[]).map(drop)
}

/// An ordinary user can abort no connection: the daemon has to free who waits.
fn forced_by_nobody() -> Result<()> {
    let mut served = Served::new()?;
    std::fs::set_permissions(served.share(), std::fs::Permissions::from_mode(0o777))?;
    let nobody = Nobody::new()?;
    let mountpoint = nobody.place.path("mnt");
    let mounted = nobody.holdfast(&["mount", &format!("127.0.0.1:{}:/share", served.server.port())])?;
    ensure!(mounted.status.success(), "{}", said(&mounted));
    let inside = "cd $0; exec sleep 60";
    let mut user = nobody.command(&["bash", "-ec", inside, text(&mountpoint)?]).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    served.server.kill()?;
    let wait = "cat $0/absent";
    let mut waiting = nobody.command(&["bash", "-c", wait, text(&mountpoint)?]).spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    ensure!(waiting.try_wait()?.is_none(), "it did not wait");
    let started = Instant::now();
    let unmounted = nobody.holdfast(&["umount", "-f"])?;
    ensure!(
        started.elapsed() < Duration::from_secs(20),
        "it took {:?}: {}",
        started.elapsed(),
        said(&unmounted)
    );
    while waiting.try_wait()?.is_none() {
        ensure!(started.elapsed() < Duration::from_secs(40), "who waited waits");
        std::thread::sleep(Duration::from_millis(20));
    }
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    ensure!(!table.contains(text(&mountpoint)?), "it is still mounted: {}", said(&unmounted));
    user.kill()?;
    user.wait()?;
    Ok(())
}

/// Takes a lock that nobody else has, at once, and says so.
const LOCK: &str = "exec 3<>$0; flock -n 3; echo locked; read";

fn killed() -> Result<()> {
    let served = Served::with_lease(60)?;
    std::fs::set_permissions(served.share(), std::fs::Permissions::from_mode(0o777))?;
    let nobody = Nobody::new()?;
    let source = format!("127.0.0.1:{}:/share", served.server.port());
    let mounted = nobody.holdfast(&["mount", &source])?;
    ensure!(mounted.status.success(), "{}", said(&mounted));
    let (mountpoint, elsewhere) = (nobody.place.path("mnt"), served.mount("")?);
    let file = mountpoint.join("file");
    let made = nobody.runs(&["bash", "-c", "echo content >$0; sync $0", text(&file)?])?;
    ensure!(made.status.success(), "{}", said(&made));
    let mut holder = nobody.command(&["bash", "-ec", LOCK, text(&file)?]);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().context("it says nothing")?).read_line(&mut line)?;
    ensure!(line == "locked\n", "{line}");
    let theirs = std::fs::File::options().write(true).open(elsewhere.path().join("file"))?;
    let lock = || rustix::fs::fcntl_lock(&theirs, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    ensure!(lock().is_err(), "it was not locked");
    let daemon = nobody.daemon()?;
    run_in(Path::new("/"), "kill -KILL $1", &[&daemon])?;
    let dead = Instant::now();
    while lock().is_err() {
        ensure!(dead.elapsed() < Duration::from_secs(3), "it is still locked\n{}", nobody.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("it was free {:.1?} behind the death", dead.elapsed());
    drop(holder.stdin.take());
    holder.wait()?;
    let unmounted = nobody.holdfast(&["umount"])?;
    ensure!(unmounted.status.success(), "{}", said(&unmounted));
    elsewhere.check_alive()
}

/// As every Linux numbers it.
const EACCES: i32 = 13;

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
