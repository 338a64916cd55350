//! Real file systems for tests: images on loop devices, mounted below a temporary directory.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod neighbour;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A mounted file system, unmounted when dropped.
pub(crate) struct Disk {
    pub(crate) dir: TempDir,
    pub(crate) mount: PathBuf,
}

/// Runs a program; what it needs and lacks is told by name.
pub(crate) fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output();
    let done = done.unwrap_or_else(|e| panic!("this test needs the program {program}: {e}"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{program} {}: {said}", args.join(" "));
}

/// Unmounts, as soon as nobody uses it: the children that other tests fork at this moment hold our descriptors until they
/// have become another program.
pub(crate) fn unmount(at: &str) {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let done = Command::new("umount").arg(at).output().expect("this test needs the program umount");
        if done.status.success() {
            return;
        }
        assert!(Instant::now() < patience, "umount {at}: {}", String::from_utf8_lossy(&done.stderr));
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn must_be_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test mounts file systems and acts as other users: run it as root"
    );
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

impl Disk {
    fn at(dir: TempDir) -> Self {
        let mount = dir.path().join("mount");
        std::fs::create_dir(&mount).unwrap();
        Self { dir, mount }
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// A fresh file system of a kind, by `mkfs` and a loop device.
    pub(crate) fn make(kind: &str, mkfs_args: &[&str]) -> Self {
        must_be_root();
        let disk = Self::at(tempfile::tempdir().unwrap());
        let image = disk.image();
        std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let quiet: &[&str] = if kind == "ext4" { &["-F"] } else { &[] };
        let args = [quiet, &["-q"], mkfs_args, &[text(&image)]].concat();
        run(&format!("mkfs.{kind}"), &args);
        run("mount", &["-o", "loop", text(&image), text(&disk.mount)]);
        disk
    }

    /// A copy of its image as it is at this moment: what a power cut would have left. Not mounted.
    pub(crate) fn copy_image(&self) -> Self {
        let copy = Self::at(tempfile::tempdir().unwrap());
        run("cp", &["--sparse=always", text(&self.image()), text(&copy.image())]);
        copy
    }

    /// Mounts a copy, which replays its journal.
    pub(crate) fn mounted(self, options: &str) -> Self {
        run("mount", &["-o", &format!("loop{options}"), text(&self.image()), text(&self.mount)]);
        self
    }

    /// Both at once.
    pub(crate) fn cut(of: &Self, options: &str) -> Self {
        of.copy_image().mounted(options)
    }

    /// How often the device below was told to put its cache on the medium (field 16 of Documentation/block/stat.rst).
    pub(crate) fn flushes(&self) -> u64 {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut lines = mounts.lines().map(|line| line.split(' '));
        let device = lines.find_map(|mut fields| {
            let device = fields.next()?;
            (fields.next()? == text(&self.mount)).then(|| device.trim_start_matches("/dev/"))
        });
        let stat = std::fs::read_to_string(format!("/sys/block/{}/stat", device.unwrap())).unwrap();
        stat.split_whitespace().nth(15).expect("a kernel of 5.5 or later").parse().unwrap()
    }

    pub(crate) fn tmpfs() -> Self {
        must_be_root();
        let disk = Self::at(tempfile::tempdir().unwrap());
        run("mount", &["-t", "tmpfs", "tmpfs", text(&disk.mount)]);
        disk
    }

    /// An overlay whose layers lie on `below`; `lower` is filled by the caller.
    pub(crate) fn overlay(below: &Self, fill: impl FnOnce(&Path)) -> Self {
        let disk = Self::at(tempfile::tempdir_in(&below.mount).unwrap());
        let layers = ["lower", "upper", "work"].map(|n| disk.dir.path().join(n));
        layers.iter().for_each(|l| std::fs::create_dir(l).unwrap());
        fill(&layers[0]);
        let [lower, upper, work] = layers.each_ref().map(|l| text(l));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        run("mount", &["-t", "overlay", "overlay", "-o", &options, text(&disk.mount)]);
        disk
    }

    /// A new empty directory on it.
    pub(crate) fn fresh(&self) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::Builder::new().prefix("export").tempdir_in(&self.mount).unwrap().keep();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily only when it must be: a failed case may still hold descriptors. A copy may not be mounted.
        let unmount = |args: &[&str]| Command::new("umount").args(args).arg(&self.mount).output();
        if !unmount(&[]).is_ok_and(|done| done.status.success()) {
            let _ = unmount(&["-l"]);
        }
    }
}
