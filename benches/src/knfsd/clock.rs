//! CPU time of a guest: of all processes of this host that it consists of, by a control group that it is started in
//! (`cpuacct` of version 1, or `cpu.stat` of version 2).
//!
//! That is the kernel's work and the programs' alike, in nanoseconds, and what other work on this host does to the guest is
//! no part of it. The guest's own `/proc/stat` would count ticks of 10 ms of wall-clock time, others' turns among them.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long members of the group may take to be gone.
const GONE_PATIENCE: Duration = Duration::from_secs(5);

/// How a group tells its CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group; gone when dropped, as its members have to be.
#[derive(Debug)]
pub(super) struct GroupClock {
    /// Where this process belongs.
    own: PathBuf,
    group: PathBuf,
    version: Version,
}

impl GroupClock {
    /// Makes the group, below the one that this process is in: what rules this process rules the guest too.
    ///
    /// Errors where there are no control groups, or none may be made.
    pub(super) fn new() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let (version, own) = find(&mounts, &groups).context("no control group tells CPU time here")?;
        let group = own.join(format!("holdfast-bench-knfsd-{}", std::process::id()));
        fs::create_dir(&group).with_context(|| group.display().to_string())?;
        let clock = Self { own, group, version };
        clock.read()?;
        Ok(clock)
    }

    /// Runs something whose child processes are of the group; this process is of it only meanwhile.
    ///
    /// Errors when this process cannot be moved, and those of `start`.
    pub(super) fn within<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        enter(&self.group)?;
        let started = start();
        enter(&self.own)?;
        started
    }

    /// CPU time of all that were ever of the group.
    ///
    /// Errors when the group is gone.
    pub(super) fn read(&self) -> Result<Duration> {
        let nanoseconds = match self.version {
            Version::One => fs::read_to_string(self.group.join("cpuacct.usage"))?.trim().parse()?,
            Version::Two => usage_us(&fs::read_to_string(self.group.join("cpu.stat"))?)? * 1000,
        };
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for GroupClock {
    fn drop(&mut self) {
        let deadline = Instant::now() + GONE_PATIENCE;
        while fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn enter(group: &Path) -> Result<()> {
    // 0 is whoever writes it, whatever its number is there.
    fs::write(group.join("cgroup.procs"), "0").with_context(|| group.display().to_string())
}

fn usage_us(stat: &str) -> Result<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).context("no usage_usec")?;
    Ok(line.trim().parse()?)
}

/// The folder of the group that this process is in. A group's name may be one that is not to be seen here (that of
/// another namespace): then the hierarchy's root.
fn find(mounts: &str, groups: &str) -> Option<(Version, PathBuf)> {
    let lines = |kind: &'static str| {
        mounts.lines().filter_map(move |line| {
            let fields: Vec<_> = line.split(' ').collect();
            let [_, at, of, options, ..] = fields[..] else { return None };
            (of == kind).then_some((PathBuf::from(at), options))
        })
    };
    let below = |root: PathBuf, controller: &str| {
        let of = |line: &&str| line.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == controller));
        let name = groups.lines().find(of).and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or("/");
        let group = root.join(name.trim_start_matches('/'));
        if group.is_dir() { group } else { root }
    };
    let first = lines("cgroup").find(|(_, options)| options.split(',').any(|option| option == "cpuacct"));
    if let Some((root, _)) = first {
        return Some((Version::One, below(root, "cpuacct")));
    }
    lines("cgroup2").next().map(|(root, _)| (Version::Two, below(root, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_either_version() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let at = dir.path().display();
        let one = format!("cgroup {at} cgroup rw,cpu,cpuacct 0 0\ncgroup2 /elsewhere cgroup2 rw 0 0\n");
        let two = format!("proc /proc proc rw 0 0\ncgroup2 {at} cgroup2 rw 0 0\n");
        let groups = "7:memory:/a\n3:cpu,cpuacct:/a/b\n0::/a\n";
        assert_eq!(find(&one, groups), Some((Version::One, dir.path().join("a/b"))));
        assert_eq!(find(&two, groups), Some((Version::Two, dir.path().join("a"))));
        assert_eq!(find(&two, "0::/not/seen\n"), Some((Version::Two, dir.path().to_path_buf())));
        assert_eq!(find("proc /proc proc rw 0 0\n", groups), None);
    }

    #[test]
    fn version_two_tells_microseconds() {
        assert_eq!(usage_us("usage_usec 1500\nuser_usec 1000\n").unwrap(), 1500);
        assert!(usage_us("user_usec 1000\n").is_err());
    }
}
