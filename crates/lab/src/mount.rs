//! Our own mount under test: `holdfast mount`, driven as a person would.

use crate::process::{self, tail};
use crate::scratch::Scratch;
use crate::server::holdfast_binary;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long a daemon may take to end once its mount is gone.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A mount by `holdfast mount`. Dropped, it is taken away, by force where need be.
#[derive(Debug)]
pub struct Mount {
    scratch: Scratch,
    daemon: u32,
}

impl Mount {
    /// Mounts an export of a server on this host, with these options (as `-o` takes them; may be empty).
    ///
    /// Errors with what the command said, and with its log.
    pub fn new(port: u16, export: &str, options: &str) -> Result<Self> {
        Self::of(&format!("127.0.0.1:{port}:{export}"), options)
    }

    /// Mounts what has this name, on whatever host.
    ///
    /// Errors as [`Mount::new`].
    pub fn of(source: &str, options: &str) -> Result<Self> {
        let scratch = Scratch::new("mount")?;
        std::fs::create_dir(scratch.path().join("mnt"))?;
        let mut mount = Self { scratch, daemon: 0 };
        mount.begin(source, options)?;
        Ok(mount)
    }

    /// Takes away what is left of it, whose daemon has died, and mounts the same there again.
    ///
    /// Errors with what the commands said.
    pub fn again(&mut self, port: u16, export: &str, options: &str) -> Result<()> {
        self.unmount(&["-f"])?;
        self.begin(&format!("127.0.0.1:{port}:{export}"), options)
    }

    fn begin(&mut self, source: &str, options: &str) -> Result<()> {
        let options = if options.is_empty() { "rw" } else { options };
        let level = std::env::var("HOLDFAST_LOG").unwrap_or_else(|_| "info".to_owned());
        let mut command = self.command()?;
        let output =
            command.args(["--log", &level, "mount", source, "-o", options]).arg(self.path()).output()?;
        self.expect(&output, "mount")?;
        self.daemon = self.find_daemon()?;
        Ok(())
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// The daemon's process id.
    pub fn daemon(&self) -> u32 {
        self.daemon
    }

    /// What the daemon logged.
    pub fn log(&self) -> String {
        let runtime = self.runtime();
        let logs = std::fs::read_dir(&runtime).into_iter().flatten().flatten().map(|entry| entry.path());
        let texts = logs.filter(|path| path.extension().is_some_and(|e| e == "log"));
        texts.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
    }

    /// `holdfast mount stats --json`.
    ///
    /// Errors when the daemon does not answer.
    pub fn stats(&self) -> Result<serde_json::Value> {
        let output = self.command()?.args(["mount", "stats", "--json"]).arg(self.path()).output()?;
        self.expect(&output, "mount stats")?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Calls to the server so far.
    ///
    /// Errors as [`Mount::stats`].
    pub fn round_trips(&self) -> Result<u64> {
        self.stats()?["round_trips"].as_u64().context("no round_trips in the statistics")
    }

    /// `holdfast mount sync`.
    ///
    /// Errors with what the command said.
    pub fn sync(&self) -> Result<()> {
        let output = self.command()?.args(["mount", "sync"]).arg(self.path()).output()?;
        self.expect(&output, "mount sync")
    }

    /// `holdfast umount`, with more arguments; the daemon has ended when it returns.
    ///
    /// Errors with what the command said.
    pub fn unmount(&self, arguments: &[&str]) -> Result<()> {
        let output = self.command()?.arg("umount").args(arguments).arg(self.path()).output()?;
        self.expect(&output, "umount")?;
        // It may have said why the daemon lives on: another process has the mount in a namespace of its own.
        self.wait_end().with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Waits for the daemon's end.
    ///
    /// Errors when it lives on.
    pub fn wait_end(&self) -> Result<()> {
        let started = Instant::now();
        while is_alive(self.daemon) {
            ensure!(started.elapsed() < END_PATIENCE, "the daemon lives on\n{}", tail(&self.log(), 40));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Errors when the daemon has ended by itself, or has panicked.
    pub fn check_alive(&self) -> Result<()> {
        let log = self.log();
        ensure!(is_alive(self.daemon), "the daemon has ended\n{}", tail(&log, 40));
        ensure!(!log.contains("panicked"), "the daemon panicked\n{}", tail(&log, 40));
        Ok(())
    }

    /// Bytes of memory that the daemon holds resident.
    ///
    /// Errors when it is gone.
    pub fn resident_bytes(&self) -> Result<u64> {
        process::resident_bytes(self.daemon)
    }

    /// The command, with a runtime directory of its own.
    ///
    /// Errors when the binary is missing.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(holdfast_binary()?);
        command.env("HOLDFAST_RUNTIME_DIR", self.runtime());
        Ok(command)
    }

    fn runtime(&self) -> PathBuf {
        self.scratch.path().join("run")
    }

    fn find_daemon(&self) -> Result<u32> {
        let names = std::fs::read_dir(self.runtime())?.flatten().map(|entry| entry.file_name());
        let mut daemons = names.into_iter().filter_map(|name| {
            let name = name.to_string_lossy().into_owned();
            name.strip_suffix(".sock")?.rsplit_once('-')?.1.parse().ok()
        });
        // One that was killed has left its socket.
        let daemon = daemons.find(|daemon| is_alive(*daemon));
        daemon.with_context(|| format!("no control socket\n{}", tail(&self.log(), 40)))
    }

    fn expect(&self, output: &Output, what: &str) -> Result<()> {
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "holdfast {what} ended with {}: {}\n{}",
            output.status,
            said.trim(),
            tail(&self.log(), 40)
        );
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !is_alive(self.daemon) && !is_mounted(&self.path()) {
            return;
        }
        // What a test left unsent is of no concern any more.
        let forced = self
            .command()
            .and_then(|mut command| Ok(command.arg("umount").arg("-f").arg(self.path()).output()?));
        if forced.is_err() || self.wait_end().is_err() {
            let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
            if let Some(pid) = i32::try_from(self.daemon).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    std::fs::read_to_string("/proc/self/mounts").is_ok_and(|table| table.contains(&*path.to_string_lossy()))
}

fn is_alive(pid: u32) -> bool {
    // Nobody waits for a daemon whose parent has gone, but the init of this host.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}
