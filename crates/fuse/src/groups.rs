//! What `/proc` knows of a caller: supplementary groups, which FUSE does not send, and whether it is being ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::{CALLER_GROUPS_MAX, FUSE_GROUP_CACHE_MAX, FUSE_GROUP_CACHE_MS};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

type Key = (u32, u32, u32);
type Known = (Instant, Arc<[u32]>);

/// Groups of callers, for a moment. A thread seldom changes its groups while its user and group stay.
#[derive(Default)]
pub(crate) struct GroupCache {
    known: Mutex<FxHashMap<Key, Known>>,
}

impl GroupCache {
    pub(crate) fn of(&self, pid: u32, uid: u32, gid: u32) -> Arc<[u32]> {
        let key = (pid, uid, gid);
        let now = Instant::now();
        let fresh = Duration::from_millis(FUSE_GROUP_CACHE_MS);
        if let Some((at, groups)) = self.known.lock().get(&key)
            && now.duration_since(*at) < fresh
        {
            return Arc::clone(groups);
        }
        let groups: Arc<[u32]> = read(pid).into();
        let mut known = self.known.lock();
        if known.len() >= FUSE_GROUP_CACHE_MAX {
            known.retain(|_, (at, _)| now.duration_since(*at) < fresh);
        }
        if known.len() < FUSE_GROUP_CACHE_MAX {
            known.insert(key, (now, Arc::clone(&groups)));
        }
        groups
    }
}

fn read(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    // The caller may be gone, or hidden from us.
    std::fs::read(format!("/proc/{pid}/status")).map(|status| parse(&status)).unwrap_or_default()
}

fn parse(status: &[u8]) -> Vec<u32> {
    let groups = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Groups:"));
    let numbers = groups.unwrap_or_default().split(u8::is_ascii_whitespace);
    numbers
        .filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok())
        .take(CALLER_GROUPS_MAX)
        .collect()
}

/// Whether the thread is past the point where signals reach it: it has given up its memory, and closes its files next.
///
/// Its flags are in `stat`, but a daemon was found hanging beside a process in the middle of an exec; and an exec that closes
/// files waits for the FLUSH on whose behalf this is asked. So `status` is read; that the other read hung is not proven.
pub(crate) fn is_exiting(pid: u32) -> bool {
    pid != 0 && std::fs::read(format!("/proc/{pid}/status")).is_ok_and(|status| parse_exiting(&status))
}

fn parse_exiting(status: &[u8]) -> bool {
    let mut lines = status.split(|b| *b == b'\n');
    !status.is_empty() && !lines.any(|line| line.starts_with(b"VmSize:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_status() {
        let status = b"Name:\tsh\nUid:\t0\t0\t0\t0\nGroups:\t4 24 1000 \nNStgid:\t1\n";
        assert_eq!(parse(status), [4, 24, 1000]);
        assert_eq!(parse(b"Groups:\t\n"), [] as [u32; 0]);
        assert_eq!(parse(b""), [] as [u32; 0]);
    }

    #[test]
    fn who_has_no_memory_any_more_is_exiting() {
        assert!(parse_exiting(b"Name:\tsh\nState:\tR (running)\nGroups:\t\nThreads:\t1\n"));
        assert!(!parse_exiting(b"Name:\tsh\nVmPeak:\t4 kB\nVmSize:\t4 kB\n"));
        assert!(!parse_exiting(b""));
        assert!(!is_exiting(std::process::id()));
    }

    #[test]
    fn own_groups_are_remembered() {
        let cache = GroupCache::default();
        let first = cache.of(std::process::id(), 0, 0);
        assert!(Arc::ptr_eq(&first, &cache.of(std::process::id(), 0, 0)));
        assert!(cache.of(0, 0, 0).is_empty());
    }
}
