//! A disk that is slow for the server alone: its control group may read from the volume's device a few times a second.

use anyhow::{Context, Result, ensure};
use holdfast_xdr::Writer;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::Amount;
use crate::client::call::connect;
use crate::client::nfs3::Nfs3Load;
use crate::client::pump::{self, Lane, Load};
use crate::client::target::Target;
use crate::plan::{Op, Shape};
use crate::rival::Server;
use crate::volume::{DATA_BYTES, READ_FILE, Volume};

/// Reads a second that the device gives.
const READS_A_SECOND: u32 = 4;
/// The group; gone when dropped.
pub(super) struct SlowDisk {
    group: PathBuf,
    file: PathBuf,
}

/// What memory does not have of what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// All of 4 KiB.
    All,
    /// All but the ends of 1 MiB.
    Middle,
}

/// Somebody reads what is not in memory, again and again.
pub(super) struct Reading(JoinHandle<Result<Slow>>);

/// How it went for the client that reads.
pub(super) struct Slow {
    /// READs that it had answered.
    pub(super) reads: usize,
    /// Half of them took at most this long.
    pub(super) median_ms: f64,
    /// 99 in 100 of its GETATTRs, on the same connection, took at most this long.
    pub(super) own_p99_ms: f64,
}

/// Where control groups rule devices.
enum Controller {
    /// In a hierarchy of its own.
    Own(PathBuf),
    /// With all others.
    Unified(PathBuf),
}

/// Finds it among the mounts.
fn find_controller() -> Result<Controller> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, at, kind, options, ..] = fields[..] else { continue };
        if kind == "cgroup" && options.split(',').any(|option| option == "blkio") {
            return Ok(Controller::Own(at.into()));
        }
        let controllers = fs::read_to_string(Path::new(at).join("cgroup.controllers")).unwrap_or_default();
        if kind == "cgroup2" && controllers.split_whitespace().any(|one| one == "io") {
            return Ok(Controller::Unified(at.into()));
        }
    }
    anyhow::bail!("no control group rules devices here")
}

impl SlowDisk {
    /// Makes the volume's device slow for a server.
    ///
    /// Errors where the kernel has no such control, or the volume no device.
    pub(super) fn under(volume: &Volume, server: &Server) -> Result<Self> {
        let file = volume.export().join(READ_FILE);
        let device = fs::metadata(&file)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        ensure!(major != 0, "the volume lies on no device: take another --fs");
        let name = format!("holdfast-bench-{}", std::process::id());
        let (group, knob, line) = match find_controller()? {
            Controller::Own(root) => {
                let line = format!("{major}:{minor} {READS_A_SECOND}");
                (root.join(name), "blkio.throttle.read_iops_device", line)
            }
            Controller::Unified(root) => {
                // What is not passed on cannot be set below; it may be already, and then this fails.
                let _ = fs::write(root.join("cgroup.subtree_control"), "+io");
                let line = format!("{major}:{minor} riops={READS_A_SECOND}");
                (root.join(name), "io.max", line)
            }
        };
        fs::create_dir(&group).with_context(|| group.display().to_string())?;
        let disk = Self { group, file };
        disk.set(knob, &line)?;
        disk.set("cgroup.procs", &server.pid().to_string())?;
        Ok(disk)
    }

    fn set(&self, knob: &str, line: &str) -> Result<()> {
        let path = self.group.join(knob);
        fs::write(&path, line).with_context(|| format!("{line:?} into {}", path.display()))
    }

    /// For so long, one READ of what memory does not have is under way over a connection of its own, and one GETATTR
    /// beside it over the same.
    ///
    /// Errors when the server cannot be reached.
    pub(super) fn read_meanwhile(
        &self,
        server: &Server,
        target: &Target,
        time: Duration,
        missing: Missing,
    ) -> Result<Reading> {
        let (stream, file, target) = (connect(server.ports.nfs)?, File::open(&self.file)?, target.clone());
        let reading = move || {
            let shape = Shape { connections: 1, depth: 2 };
            let mut load = Cold {
                getattr: Nfs3Load::new(Op::Getattr, &target, shape),
                read: Nfs3Load::new(missing.op(), &target, shape),
                file,
                missing,
                began: Instant::now(),
                waits: Vec::new(),
            };
            let burst = pump::run(&[stream], shape.depth, Amount::For(time), &mut load)?;
            load.waits.sort_unstable();
            let median = load.waits.get(load.waits.len() / 2).context("no READ was answered")?;
            Ok(Slow {
                reads: load.waits.len(),
                median_ms: median.as_secs_f64() * 1e3,
                // READs are so few beside the GETATTRs that they are not among the 99.
                own_p99_ms: burst.p99_us / 1e3,
            })
        };
        Ok(Reading(std::thread::spawn(reading)))
    }
}

impl Missing {
    fn op(self) -> Op {
        match self {
            Self::All => Op::Read4k,
            Self::Middle => Op::Read1m,
        }
    }

    /// Drops it from memory. Were that not possible, the READs would be fast, and the figures say so.
    fn forget(self, file: &File) {
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        if self == Self::Middle {
            // The ends of each, and nothing around them. The kernel drops pieces of its own choice, which may be as large
            // as what is read.
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
            for block in 0..DATA_BYTES >> 20 {
                for end in [block << 20, ((block + 1) << 20) - 1] {
                    let _ = file.read_at(&mut [0], end);
                }
            }
        }
    }
}

impl Reading {
    /// Waits until it is over.
    ///
    /// Errors when a call failed.
    pub(super) fn end(self) -> Result<Slow> {
        self.0.join().map_err(|_| anyhow::anyhow!("the client that reads panicked"))?
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A group goes only without members; the server, which would be one, may be gone already.
        let parent = self.group.parent().unwrap_or(Path::new("/"));
        let members = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(parent.join("cgroup.procs"), member);
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// In the first place of a connection READs of what memory does not have, in the second GETATTRs.
struct Cold<'a> {
    getattr: Nfs3Load<'a>,
    read: Nfs3Load<'a>,
    file: File,
    missing: Missing,
    began: Instant,
    waits: Vec<Duration>,
}

impl Load for Cold<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        if lane.slot > 0 {
            return self.getattr.encode(lane, w);
        }
        self.missing.forget(&self.file);
        self.began = Instant::now();
        self.read.encode(lane, w);
    }

    fn looks_at(&self) -> usize {
        self.read.looks_at()
    }

    fn check(&mut self, lane: Lane, reply: &[u8]) -> Result<u64> {
        if lane.slot > 0 {
            return self.getattr.check(lane, reply);
        }
        self.waits.push(self.began.elapsed());
        self.read.check(lane, reply)
    }
}
