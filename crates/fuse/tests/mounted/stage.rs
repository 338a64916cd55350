//! A mount for one test, gone when the test is.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard};

use holdfast_fuse::{Config, MountOptions, Session, Unmount};

use crate::double::{Double, Manner};

/// The kernel's caches are every test's: who drops them waits for those that count on them.
static CACHES: RwLock<()> = RwLock::new(());

/// Has the kernel forget names and inodes that nobody uses.
pub(crate) fn drop_caches() {
    let _alone = CACHES.write();
    std::fs::write("/proc/sys/vm/drop_caches", "2").expect("root may do that");
}

pub(crate) struct Stage {
    pub(crate) double: Arc<Double>,
    pub(crate) session: Session,
    folder: tempfile::TempDir,
    undisturbed: Option<RwLockReadGuard<'static, ()>>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Manner::default(), &Config::default())
    }

    pub(crate) fn with(manner: Manner, config: &Config) -> Self {
        let mut options = MountOptions::new("double:/");
        options.allows_suid = true;
        options.allows_devices = true;
        Self::with_options(manner, config, &options)
    }

    pub(crate) fn with_options(manner: Manner, config: &Config, options: &MountOptions) -> Self {
        assert!(Path::new("/dev/fuse").exists(), "this machine has no /dev/fuse");
        assert!(rustix::process::geteuid().is_root(), "these tests mount: they must be run as root");
        let folder = tempfile::tempdir().expect("a folder");
        let double = Double::new(manner);
        let session = Session::mount(Arc::clone(&double) as _, folder.path(), options, config);
        Self { double, session: session.expect("mounted"), folder, undisturbed: None }
    }

    /// Nobody drops the kernel's caches while this test runs.
    pub(crate) fn undisturbed(mut self) -> Self {
        self.undisturbed = Some(CACHES.read());
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Unmounts and waits for the end. A child that another test has just forked holds what this one had open until it runs its
    /// program.
    pub(crate) fn finish(self) -> holdfast_fuse::End {
        let began = Instant::now();
        while let Err(e) = self.session.unmount(Unmount::Plain) {
            assert!(began.elapsed() < Duration::from_secs(30), "not unmounted: {e}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.session.wait_for(Duration::from_secs(30)).expect("over within half a minute")
    }

    /// How often an operation came.
    pub(crate) fn calls(&self, operation: &str) -> u64 {
        self.double.calls.lock().get(operation).copied().unwrap_or(0)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.undisturbed.take());
        if !self.session.is_gone() {
            let _ = self.session.unmount(Unmount::Force);
        }
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within half a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process of its own, ended with the test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn python(program: &str, path: &Path) -> Self {
        let child = Command::new("/usr/bin/python3").arg("-c").arg(program).arg(path).spawn();
        Self(child.expect("python3 starts"))
    }

    /// Kills it and says how long it took until it was gone.
    pub(crate) fn kill(&mut self) -> Duration {
        let before = Instant::now();
        self.0.kill().expect("killed");
        self.0.wait().expect("waited for");
        before.elapsed()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
