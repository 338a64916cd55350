//! What the kernel tells of this process.

use std::fs;

use holdfast_admin::report::ProcessStatus;
use rustix::process::{Resource, getrlimit};

/// Memory, descriptors, threads, processor time; 0 for what cannot be read.
pub(super) fn status() -> ProcessStatus {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default()
    };
    ProcessStatus {
        resident_bytes: field("VmRSS:") * 1024,
        resident_peak_bytes: field("VmHWM:") * 1024,
        descriptors: fs::read_dir("/proc/self/fd").map_or(0, |dir| dir.count() as u64),
        descriptors_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        threads: field("Threads:"),
        cpu_ms: cpu_ms(&fs::read_to_string("/proc/self/stat").unwrap_or_default()),
    }
}

/// Processor time, in user and in kernel mode: fields 14 and 15 of `/proc/self/stat`, counted from behind the name,
/// which may have any bytes.
fn cpu_ms(stat: &str) -> u64 {
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let status = status();
        assert!(status.resident_bytes > 100_000 && status.resident_peak_bytes >= status.resident_bytes);
        assert!(status.threads >= 1 && status.descriptors >= 3 && status.descriptors_max >= 3);
    }

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "1 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_ms(stat), 300 * 1000 / rustix::param::clock_ticks_per_second());
    }
}
