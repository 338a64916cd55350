use tempfile::TempDir;

use super::*;

const GIB: u64 = 1 << 30;

/// A host with 16 GiB, of which 12 are available.
fn host(cgroup: &str, mountinfo: &str, files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let meminfo = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   12582912 kB\n";
    let always =
        [("proc/meminfo", meminfo), ("proc/self/cgroup", cgroup), ("proc/self/mountinfo", mountinfo)];
    for (name, text) in always.iter().chain(files) {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn read(root: &TempDir) -> (u64, u64, Bound) {
    let (memory, bound) = Figures::below(root.path()).read().unwrap();
    (memory.total, memory.available, bound)
}

fn group(root: &TempDir, path: &str) -> Bound {
    Bound::Group(root.path().join(path))
}

const V2: &str = "24 1 0:22 / /proc rw - proc proc rw\n\
                  30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn without_control_groups_the_machine_counts() {
    let root = host("", "24 1 0:22 / /proc rw - proc proc rw\n", &[]);
    assert_eq!(read(&root), (16 * GIB, 12 * GIB, Bound::Machine));
}

#[test]
fn groups_without_a_bound_leave_the_machine_s() {
    let files = [
        ("sys/fs/cgroup/a/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.high", "max\n"),
        ("sys/fs/cgroup/a/memory.current", "1000\n"),
    ];
    assert_eq!(read(&host("0::/a\n", V2, &files)), (16 * GIB, 12 * GIB, Bound::Machine));
}

#[test]
fn the_lower_of_max_and_high_bounds_and_what_the_kernel_can_drop_is_available() {
    let files = [
        ("sys/fs/cgroup/a/b/memory.max", "2147483648\n"),
        ("sys/fs/cgroup/a/b/memory.high", "1073741824\n"),
        ("sys/fs/cgroup/a/b/memory.current", "1000000000\n"),
        (
            "sys/fs/cgroup/a/b/memory.stat",
            "anon 5\nfile 1\ninactive_file 400000000\nactive_file 100000000\nslab_reclaimable 100000000\n",
        ),
    ];
    let root = host("1:name=systemd:/else\n0::/a/b\n", V2, &files);
    assert_eq!(read(&root), (GIB, GIB - 450_000_000, group(&root, "sys/fs/cgroup/a/b")));
}

#[test]
fn a_group_above_bounds_too_and_so_does_the_machine() {
    let files = [
        ("sys/fs/cgroup/a/b/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/a/b/memory.current", "1073741824\n"),
        ("sys/fs/cgroup/a/memory.max", "8589934592\n"),
        ("sys/fs/cgroup/a/memory.current", "8589934592\n"),
    ];
    let root = host("0::/a/b\n", V2, &files);
    assert_eq!(read(&root), (4 * GIB, 0, group(&root, "sys/fs/cgroup/a/b")), "the neighbours used it up");
    fs::write(root.path().join("sys/fs/cgroup/a/memory.current"), "0").unwrap();
    assert_eq!(read(&root).1, 3 * GIB);
    fs::write(root.path().join("proc/meminfo"), "MemTotal: 16777216 kB\nMemAvailable: 1024 kB\n").unwrap();
    assert_eq!(read(&root).1, 1 << 20);
}

#[test]
fn groups_of_version_1_count_as_seen_from_within_a_container() {
    // The container's group is seen as the top; `/proc/self/cgroup` names it as the host does.
    let mounts = "33 32 0:28 /docker/c /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  34 32 0:29 /docker/c /sys/fs/cgroup/memory ro master:1 - cgroup cgroup rw,memory\n";
    let files = [
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000000\n"),
        ("sys/fs/cgroup/memory/memory.stat", "cache 1\ntotal_inactive_file 5000\ntotal_active_file 600\n"),
        ("sys/fs/cgroup/memory/in/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/in/memory.usage_in_bytes", "400000000\n"),
    ];
    for own in ["4:memory:/docker/c/in\n2:cpu:/docker/c\n0::/\n", "4:memory:/docker/c\n", "4:memory:/../d\n"]
    {
        let root = host(own, mounts, &files);
        let expected = (GIB / 2, GIB / 2 - 500_000_000 + 5600, group(&root, "sys/fs/cgroup/memory/"));
        assert_eq!(read(&root), expected, "{own}");
    }
}

#[test]
fn this_machine_tells() {
    let (memory, _) = Figures::below(Path::new("/")).read().unwrap();
    assert!(memory.total > 1 << 20 && memory.available <= memory.total, "{memory:?}");
}

#[test]
fn where_nothing_tells_nothing_is_known() {
    assert_eq!(Figures::below(Path::new("/nowhere")).read(), None);
}
