//! What the kernel says of memory: the machine's, and what the control groups that this process is in allow (cgroups of
//! version 1 and 2, its own and those above it).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_state::Memory;

/// Who bounds the memory there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The machine has no more.
    Machine,
    /// A control group, by its directory.
    Group(PathBuf),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Group(path) => write!(f, "control group {}", path.display()),
        }
    }
}

/// Of which version a hierarchy of control groups is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A hierarchy of control groups that knows of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// The group that is seen as the top, as the kernel names it.
    top: PathBuf,
    /// Where it is seen.
    mount_point: PathBuf,
}

/// Where figures are read.
pub(super) struct Figures {
    root: PathBuf,
    hierarchies: Vec<Hierarchy>,
}

impl Figures {
    /// From `proc` and `sys` below a directory.
    pub(super) fn below(root: &Path) -> Self {
        // What is mounted where does not change under a server; and with thousands of mounts the file is large.
        let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
        Self { root: root.to_owned(), hierarchies: mounts.lines().filter_map(hierarchy).collect() }
    }

    /// The memory there is, and who bounds it; `None` where the kernel does not say.
    pub(super) fn read(&self) -> Option<(Memory, Bound)> {
        let machine = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let kib = |name| figure(&machine, name).map(|kib| kib.saturating_mul(1024));
        let (total, available) = (kib("MemTotal:")?, kib("MemAvailable:")?);
        let (mut memory, mut bound) = (Memory { total, available }, Bound::Machine);
        let own = fs::read_to_string(self.root.join("proc/self/cgroup")).unwrap_or_default();
        for hierarchy in &self.hierarchies {
            let Some(group) = own.lines().find_map(|line| group_of(line, hierarchy.version)) else {
                continue;
            };
            for dir in self.up_from(hierarchy, Path::new(group)) {
                let Some(room) = room_in(&dir, hierarchy.version).filter(|room| room.total < total) else {
                    continue;
                };
                if room.total < memory.total {
                    memory.total = room.total;
                    bound = Bound::Group(dir);
                }
                memory.available = memory.available.min(room.available);
            }
        }
        Some((memory, bound))
    }

    /// The directories of a group and of those above it, as far as they are seen.
    fn up_from(&self, hierarchy: &Hierarchy, group: &Path) -> Vec<PathBuf> {
        let mount_point = hierarchy.mount_point.strip_prefix("/").unwrap_or(&hierarchy.mount_point);
        let top = self.root.join(mount_point);
        // Somebody else's view of groups: what is seen as the top is as near as one can look.
        let below = group.strip_prefix(&hierarchy.top).unwrap_or(Path::new(""));
        below.ancestors().map(|part| top.join(part)).collect()
    }
}

/// A line of `mountinfo`: ids, device, root, mount point, options, optional fields, `-`, type, source, options.
fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3).map(PathBuf::from);
    let (top, mount_point) = (mount.next()?, mount.next()?);
    let mut kind = kind.split(' ');
    let version = match kind.next()? {
        "cgroup2" => Version::V2,
        "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => Version::V1,
        _ => return None,
    };
    Some(Hierarchy { version, top, mount_point })
}

/// The group that a line of `/proc/self/cgroup` names, when it is of the hierarchy for memory.
fn group_of(line: &str, version: Version) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_it = match version {
        Version::V2 => number == "0" && controllers.is_empty(),
        Version::V1 => controllers.split(',').any(|name| name == "memory"),
    };
    is_it.then_some(path)
}

/// What a group allows, and what is left of that; `None` of one without a bound.
fn room_in(dir: &Path, version: Version) -> Option<Memory> {
    let text = |name: &str| fs::read_to_string(dir.join(name)).ok();
    // `max`, where there is no bound, is no number.
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let (total, used) = match version {
        // Beyond `high` all is slowed down and pressed to give back: not to be waited for.
        Version::V2 => (
            [number("memory.max"), number("memory.high")].into_iter().flatten().min()?,
            number("memory.current")?,
        ),
        Version::V1 => (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?),
    };
    let stat = text("memory.stat").unwrap_or_default();
    let of = |name| figure(&stat, name).unwrap_or(0);
    // The kernel drops its cache of files before it lets anybody want for memory. Of names and inodes it can drop as many
    // as nobody has open: half of them, let us say.
    let to_be_had = match version {
        Version::V2 => of("inactive_file") + of("active_file") + of("slab_reclaimable") / 2,
        Version::V1 => of("total_inactive_file") + of("total_active_file"),
    };
    Some(Memory { total, available: total.saturating_sub(used.saturating_sub(to_be_had)) })
}

/// The number behind a name at the begin of a line.
fn figure(text: &str, name: &str) -> Option<u64> {
    let fields = |line: &str| {
        let mut fields = line.split_whitespace();
        (fields.next() == Some(name)).then(|| fields.next()?.parse().ok()).flatten()
    };
    text.lines().find_map(fields)
}

#[cfg(test)]
mod tests;
