//! What `O_DIRECT` over our mounts leaves in the server's memory: all of it, or with `direct=disk` nothing.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, Mount, Trial};
use std::path::Path;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::new("direct::what_ends_with_the_server_is_in_its_memory", || case("nolocal", MIB_PAGES)),
        Trial::new("direct::to_the_disk_of_a_server_of_nfs_4_1_it_is_written_and_read_rightly", || {
            served_by(Target::Holdfast, "nolocal,vers=4.1,direct=disk")
        }),
        Trial::new("direct::to_the_disk_of_another_server_it_is_written_and_read_rightly", || {
            served_by(Target::Ganesha, "direct=disk")
        }),
        Trial::new("direct::what_was_written_before_is_on_disk_with_what_ends_there", with_what_was_before),
    ];
    for (how, options) in [
        ("", "nolocal,direct=disk"),
        ("::delegations", "nolocal,direct=disk,cache=delegations"),
        ("::none", "nolocal,direct=disk,cache=none"),
    ] {
        let name = format!("direct::what_ends_at_the_disk_is_not_in_the_servers_memory{how}");
        trials.push(Trial::new(name, move || case(options, 0)));
    }
    trials
}

/// Pages of what is written.
const MIB_PAGES: u64 = 256;

/// Tells how many pages of a file are in memory.
pub(crate) const PAGES: &str = "
import os, subprocess, time
def pages(path):
    told = subprocess.run(['fincore', '-n', '-o', 'PAGES', path], capture_output=True, text=True, check=True)
    return int(told.stdout.split()[0]) if told.stdout.split() else 0
def left(path, expected):
    # What was written is dropped behind the reply.
    for _ in range(100):
        if expected is None or pages(path) == expected: break
        time.sleep(0.02)
    return pages(path)
";

/// Pages of a file below the mount that are in memory after a write of 1 MiB, after a read of it, and after one of what was written in
/// parts; what is written is read by others meanwhile, and theirs here.
const THROUGH: &str = "
import mmap, sys
below, expected = sys.argv[1], int(sys.argv[2]) if sys.argv[2] else None
MIB = 1 << 20
fd = os.open('f', os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
buffer, back = mmap.mmap(-1, MIB), mmap.mmap(-1, MIB)
buffer[:] = os.urandom(MIB)
assert os.pwrite(fd, buffer, 0) == MIB
after_write = left(below, expected)
def read():
    back[:] = bytes(MIB)
    assert os.preadv(fd, [back], 0) == MIB
    assert back[:] == buffer[:]
read()
print(after_write, left(below, expected))
part = mmap.mmap(-1, 65536)
for n in range(8):
    part[:] = os.urandom(65536); buffer[n * 65536:(n + 1) * 65536] = part[:]
    assert os.pwrite(fd, part, n * 65536) == 65536
read()
print(left(below, expected))
other = os.open('f', os.O_RDWR)
assert os.pread(other, MIB, 0) == buffer[:]
assert os.pwrite(other, b'theirs', 5) == 6; buffer[5:11] = b'theirs'
read()
buffer[:] = os.urandom(MIB)
assert os.pwrite(fd, buffer, 0) == MIB
assert os.pread(other, MIB, 0) == buffer[:]
with open(below, 'rb') as there: assert there.read() == buffer[:]
os.close(other); os.close(fd)
";

/// Runs it over a mount; what it has counted, which should be so many.
fn counted(mount: &Mount, below: &Path, expected: Option<u64>) -> Result<Vec<u64>> {
    let script = format!("python3 - \"$@\" <<'E'\n{PAGES}{THROUGH}\nE\n");
    let expected = expected.map(|pages| pages.to_string()).unwrap_or_default();
    let said = run_in(&mount.path(), &script, &[&below.to_string_lossy(), &expected])?;
    mount.check_alive()?;
    Ok(said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

fn case(options: &str, pages: u64) -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount(options)?;
    let counted = counted(&mount, &served.share().join("f"), Some(pages))?;
    ensure!(counted == [pages; 3], "pages in the server's memory: {counted:?} in place of {pages}");
    Ok(())
}

/// It may have no word for what is to leave its memory.
fn served_by(target: Target, options: &str) -> Result<()> {
    let served = match target {
        Target::Ganesha => Served::foreign(target, FsType::Xfs, (10, false))?,
        target => Served::by(target, FsType::Xfs)?,
    };
    let mount = served.mount(options)?;
    counted(&mount, &served.share().join("f"), None).map(drop)
}

/// What was kept back of a file, small as it is, goes to the disk as well where the next write is of the same place; and all of it is
/// there when the file is looked at below.
fn with_what_was_before() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("nolocal,direct=disk")?;
    let script = "
python3 - \"$@\" <<'E'
import mmap, os, sys
for n in range(50):
    with open(f'f{n}', 'wb', buffering=0) as f: f.write(b'before' * 1000)
    fd = os.open(f'f{n}', os.O_RDWR | os.O_DIRECT)
    block = mmap.mmap(-1, 4096); block[:] = bytes([n]) * 4096
    assert os.pwrite(fd, block, 0) == 4096
    with open(os.path.join(sys.argv[1], f'f{n}'), 'rb') as there:
        assert there.read() == block[:] + (b'before' * 1000)[4096:], n
    os.close(fd)
fd = os.open('log', os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_DIRECT)
for n in range(8): assert os.write(fd, block) == 4096
assert os.stat(os.path.join(sys.argv[1], 'log')).st_size == 8 * 4096
E
";
    run_in(&mount.path(), script, &[&served.share().to_string_lossy()])?;
    mount.check_alive()
}
