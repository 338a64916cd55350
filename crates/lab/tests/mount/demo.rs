//! What `make run` does, once the program is built: the first thing that a newcomer sees is a working mount.

use anyhow::{Context as _, Result, bail, ensure};
use holdfast_lab::kernel::checkout;
use holdfast_lab::server::holdfast_binary;
use holdfast_lab::{ServerUnderTest, Trial, process};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::new("demo::server_and_mount_come_up_work_and_end_with_the_script", demo)]
}

const PATIENCE: Duration = Duration::from_secs(60);

/// The script, in a directory of its own. Dropped, it ends as by Ctrl-C.
struct Demo {
    script: Child,
    port: u16,
    dir: TempDir,
}

impl Demo {
    fn start(port: u16) -> Result<Self> {
        let dir = TempDir::new()?;
        let said = File::create(dir.path().join("said"))?;
        let script = command(dir.path(), port)?.stdout(said.try_clone()?).stderr(said).spawn()?;
        Ok(Self { script, port, dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.path("said")).unwrap_or_default()
    }

    fn is_mounted(&self) -> Result<bool> {
        let mnt = self.path("mnt").display().to_string();
        Ok(std::fs::read_to_string("/proc/self/mounts")?.lines().any(|line| line.contains(&mnt)))
    }

    fn wait_mounted(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.said().contains("mounted at ./mnt") {
            ensure!(self.script.try_wait()?.is_none(), "it has ended:\n{}", self.said());
            ensure!(started.elapsed() < PATIENCE, "not mounted in time:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ctrl-C, as its terminal would.
    fn interrupt(&mut self) -> Result<ExitStatus> {
        rustix::process::kill_process_group(Pid::from_child(&self.script), Signal::INT)?;
        let started = Instant::now();
        loop {
            if let Some(status) = self.script.try_wait()? {
                return Ok(status);
            }
            if started.elapsed() > PATIENCE {
                bail!("it does not end:\n{}", self.said());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if matches!(self.script.try_wait(), Ok(None)) {
            let _ = self.interrupt();
        }
    }
}

fn command(dir: &Path, port: u16) -> Result<Command> {
    // Who runs the tests in the background has them ignore Ctrl-C, and no shell below could trap it.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(checkout().join("scripts/serve-demo"));
    command.env("HOLDFAST_BIN", holdfast_binary()?).env("DEMO_DIR", dir).env("PORT", port.to_string());
    command.env("HOLDFAST_RUNTIME_DIR", dir.join("run"));
    // Port 111 is others'.
    command.env("SERVE_OPTIONS", "--no-rpcbind").stdin(Stdio::null());
    command.process_group(0);
    Ok(command)
}

fn demo() -> Result<()> {
    // Its port stays ours while it does not run.
    let scratch = TempDir::new()?;
    let mut placeholder = ServerUnderTest::builder(scratch.path()).start()?;
    placeholder.kill()?;
    let mut demo = Demo::start(placeholder.port())?;
    demo.wait_mounted()?;
    ensure!(demo.is_mounted()?, "nothing is mounted:\n{}", demo.said());
    // What is there is seen, and what is written gets there.
    let read = std::fs::read_to_string(demo.path("mnt/link-to-numbers")).context("through the mount")?;
    ensure!(read.lines().count() == 1000, "{} lines", read.lines().count());
    std::fs::write(demo.path("mnt/inbox/note"), "from a newcomer")?;
    let sync = Command::new(holdfast_binary()?)
        .env("HOLDFAST_RUNTIME_DIR", demo.path("run"))
        .args(["mount", "sync"])
        .arg(demo.path("mnt"))
        .output()?;
    ensure!(sync.status.success(), "{sync:?}");
    ensure!(std::fs::read_to_string(demo.path("demo/inbox/note"))? == "from a newcomer", "not there");
    // The statistics that it names are there.
    let named = format!("{} mount stats mnt", holdfast_binary()?.display());
    ensure!(demo.said().lines().any(|line| line.trim() == named), "{named}:\n{}", demo.said());
    // A second one says what is in its way.
    let second = command(demo.dir.path(), demo.port)?.output()?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    ensure!(!second.status.success() && said.contains("already"), "{said}");
    let status = demo.interrupt()?;
    ensure!(status.code() == Some(130), "{status}\n{}", process::tail(&demo.said(), 20));
    ensure!(!demo.is_mounted()?, "still mounted:\n{}", demo.said());
    ensure!(TcpStream::connect(("127.0.0.1", demo.port)).is_err(), "the server lives on");
    // It comes up again over what it left.
    demo.script = command(demo.dir.path(), demo.port)?
        .stdout(File::create(demo.path("said"))?)
        .stderr(Stdio::null())
        .spawn()?;
    demo.wait_mounted()?;
    ensure!(std::fs::read_to_string(demo.path("mnt/inbox/note"))? == "from a newcomer", "gone");
    demo.interrupt()?;
    ensure!(!demo.is_mounted()?, "still mounted:\n{}", demo.said());
    Ok(())
}
