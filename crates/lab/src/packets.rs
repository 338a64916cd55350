//! What went over the wire to a server under test: kept where its case fails, for what a rare failure was can be told by nothing
//! else.

use crate::{kernel::target_dir, missing};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The files are filled in turn: so many, of so many millions of bytes.
const FILES: &str = "4";
const FILE_MB: &str = "500";
/// KiB that wait for a busy machine to write them.
const BUFFER_KIB: &str = "65536";

/// A tcpdump. Dropped, it ends, and what it has seen goes with it.
#[derive(Debug)]
pub struct Packets {
    tcpdump: Child,
    folder: PathBuf,
}

impl Packets {
    /// Begins to watch a TCP port on all networks of this host; `name` says what for, perhaps of several at once.
    ///
    /// Errors where there is no tcpdump, or no right to use it.
    pub fn of(port: u16, name: &str) -> Result<Self> {
        let program = missing::program("tcpdump", "tcpdump")?;
        let folder = target_dir().join("lab").join("packets").join(format!("{name}-{port}"));
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let mut command = Command::new(program);
        command
            .args(["-i", "any", "-s", "0", "-B", BUFFER_KIB, "-C", FILE_MB, "-W", FILES, "-Z", "root", "-w"]);
        command.arg(folder.join("pcap")).args(["tcp", "port", &port.to_string()]);
        let tcpdump = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(Self { tcpdump: tcpdump.context("starting tcpdump")?, folder })
    }

    /// Ends, and leaves what was seen where it is said to be.
    pub fn keep(mut self) -> PathBuf {
        // So that it writes what it has.
        let pid = rustix::process::Pid::from_child(&self.tcpdump);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.tcpdump.wait();
        std::mem::take(&mut self.folder)
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
        if self.folder != Path::new("") {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
