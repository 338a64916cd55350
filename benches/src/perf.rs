//! Profiles of the servers during each operation, by `perf`.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Samples a second and thread; odd, so as not to beat with timers.
const FREQUENCY: &str = "1999";

/// Where profiles go.
#[derive(Debug)]
pub(crate) struct Perf {
    folder: PathBuf,
}

/// A profile under way.
#[derive(Debug)]
pub(crate) struct Watching {
    child: Child,
    data: PathBuf,
}

impl Perf {
    /// Profiles go into `folder`, which is made.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// Begins to sample a process.
    ///
    /// Errors when there is no `perf`.
    pub(crate) fn start(&self, pid: u32, label: &str) -> Result<Watching> {
        let data = self.folder.join(format!("{label}.data"));
        let child = Command::new("perf")
            .args(["record", "-q", "-F", FREQUENCY, "-g", "-p", &pid.to_string(), "-o"])
            .arg(&data)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting perf (package linux-perf)")?;
        // It attaches within this time; nothing tells when.
        std::thread::sleep(Duration::from_millis(300));
        Ok(Watching { child, data })
    }
}

impl Watching {
    /// Ends the sampling and writes two reports beside the data: functions by their own cost, and with what they
    /// call.
    ///
    /// Errors when perf cannot make it.
    pub(crate) fn finish(mut self) -> Result<()> {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::INT,
        )?;
        self.child.wait()?;
        self.report("own", &["--no-children"])?;
        self.report("with-callees", &["--children"])?;
        Ok(())
    }

    /// Threads are not told apart: a pool's work stands in one line.
    fn report(&self, kind: &str, arguments: &[&str]) -> Result<()> {
        Command::new("perf")
            .args(["report", "--stdio", "-g", "none", "--sort", "sym", "--percent-limit", "0.4"])
            .args(arguments)
            .arg("-i")
            .arg(&self.data)
            .stdout(File::create(self.data.with_extension(format!("{kind}.txt")))?)
            .stderr(Stdio::null())
            .status()?;
        Ok(())
    }
}
