//! A disk that can be cut off: a file system in an image, on a loop device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Enough for the smallest XFS there may be.
const BYTES: u64 = 320 << 20;

/// How long a server that was killed may keep the disk busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest that a disk hangs: a test whose client waits for it ends then, too.
const FROZEN_MOST: Duration = Duration::from_secs(30);

/// A mounted file system, unmounted when dropped.
pub(crate) struct Disk {
    /// Goes once the file system is unmounted.
    _dir: TempDir,
    image: PathBuf,
    mount: PathBuf,
    options: &'static str,
}

/// A disk that hangs. Nobody who waits for it can be killed: it goes on again however a test ends, or does not.
pub(crate) struct Frozen {
    end: Option<Sender<()>>,
    thaw: Option<JoinHandle<()>>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thaw.take().map(JoinHandle::join);
    }
}

/// A directory that is seen in another place, too, until dropped.
pub(crate) struct Bound<'a>(&'a Path);

impl<'a> Bound<'a> {
    pub(crate) fn new(from: &Path, at: &'a Path) -> Self {
        fs::create_dir_all(at).unwrap();
        run("mount", &["--bind", text(from), text(at)]);
        Self(at)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = try_run("umount", &["-l", text(self.0)]);
    }
}

fn try_run(program: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(args).output();
    let done = done.unwrap_or_else(|e| panic!("this test needs the program {program}: {e}"));
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("{program} {}: {said}", args.join(" "))) }
}

/// Runs a program, which must succeed.
pub(crate) fn run(program: &str, args: &[&str]) {
    try_run(program, args).unwrap_or_else(|said| panic!("{said}"));
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

impl Disk {
    /// A fresh file system of a kind.
    pub(crate) fn make(kind: &str) -> Self {
        Self::with(kind, &[], "loop").unwrap_or_else(|said| panic!("{said}"))
    }

    /// The same, made and mounted with options.
    ///
    /// # Errors
    /// What mount(8) says.
    pub(crate) fn with(kind: &str, features: &[&str], options: &'static str) -> Result<Self, String> {
        assert!(rustix::process::geteuid().is_root(), "this test mounts file systems: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
        let disk = Self { _dir: dir, image, mount, options };
        fs::create_dir(&disk.mount).unwrap();
        fs::File::create(&disk.image).unwrap().set_len(BYTES).unwrap();
        let force = if kind == "ext4" { "-F" } else { "-f" };
        run(&format!("mkfs.{kind}"), &[&["-q", force], features, &[text(&disk.image)]].concat());
        disk.attach()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// Has every write and force wait from now on, as on a disk that hangs, until what this gives is dropped, or for as long as
    /// any test may take.
    pub(crate) fn freeze(&self) -> Frozen {
        run("fsfreeze", &["-f", text(&self.mount)]);
        let (end, ended) = channel();
        let mount = self.mount.clone();
        let thaw = move || {
            let _: Result<(), _> = ended.recv_timeout(FROZEN_MOST);
            run("fsfreeze", &["-u", text(&mount)]);
        };
        Frozen { end: Some(end), thaw: Some(spawn(thaw)) }
    }

    fn attach(&self) -> Result<(), String> {
        try_run("mount", &["-o", self.options, text(&self.image), text(&self.mount)])
    }

    /// How often the device was told to put its cache on the medium (Documentation/block/stat.rst, field 16).
    pub(crate) fn flushes(&self) -> u64 {
        let stat = fs::read_to_string(self.device().join("stat")).unwrap();
        stat.split_whitespace().nth(15).expect("a kernel of 5.5 or later").parse().unwrap()
    }

    /// The device, as the kernel shows it.
    fn device(&self) -> PathBuf {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut fields = mounts.lines().map(|line| line.split(' '));
        let device = fields.find_map(|mut f| {
            let device = f.next()?;
            (f.next()? == text(&self.mount)).then(|| device.trim_start_matches("/dev/"))
        });
        Path::new("/sys/block").join(device.unwrap())
    }

    /// Keeps what a power cut at this moment would leave.
    pub(crate) fn keep_what_is_on_it(&self) {
        run("cp", &["--sparse=always", text(&self.image), text(&self.image.with_extension("kept"))]);
    }

    /// Puts what was kept in the disk's place, as the machine would find it when it comes up again.
    pub(crate) fn come_up(&self) {
        let began = Instant::now();
        let used = self.device().join("loop/backing_file");
        while let Err(said) = try_run("umount", &[text(&self.mount)]) {
            assert!(began.elapsed() < PATIENCE, "{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
        // A server that was killed may have had it mounted for itself, for a moment still. Of two file systems with one
        // identity the second is refused (XFS), or taken for the first (btrfs).
        while fs::read_to_string(&used).is_ok_and(|file| file.trim() == text(&self.image)) {
            assert!(began.elapsed() < PATIENCE, "the file system goes on being used");
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::rename(self.image.with_extension("kept"), &self.image).unwrap();
        self.attach().unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily when it must be: a failed case may leave a server for a moment.
        if try_run("umount", &[text(&self.mount)]).is_err() {
            let _ = try_run("umount", &["-l", text(&self.mount)]);
        }
    }
}
