//! Files that the server makes before they are created (delegated inodes): what a mount shows right after a create is the number
//! that everybody sees later, and it never changes, whatever becomes of the server.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, Trial};
use std::path::Path;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let types = [("ext4", FsType::Ext4), ("xfs", FsType::Xfs), ("btrfs", FsType::Btrfs)];
    let mut trials: Vec<_> = types
        .into_iter()
        .map(|(name, of)| {
            let name = format!("pooled::the_number_shown_after_a_create_is_the_servers::{name}");
            Trial::new(name, move || shown(of))
        })
        .collect();
    trials.push(Trial::new(
        "pooled::numbers_stay_when_the_server_is_killed_and_no_two_files_share_one",
        killed,
    ));
    trials
}

/// A number above this one is of the mount's own making.
const MAKING: &str = "
import os, sys, time
OWN = 1 << 60
def make(name, data, mode=0o640):
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode); os.write(fd, data)
    number = os.fstat(fd).st_ino; os.close(fd)
    assert os.stat(name).st_ino == number
    return number
def sync():
    fd = os.open('.', os.O_RDONLY); os.fsync(fd); os.close(fd)
";

fn python(at: &Path, script: &str, arguments: &[&str]) -> Result<String> {
    run_in(at, &format!("python3 - \"$@\" <<'E'\n{MAKING}\n{script}\nE\n"), arguments)
}

const SHOWN: &str = "
share, other = sys.argv[1:]
os.umask(0o027); os.mkdir('d'); os.chmod('d', 0o2755); sync(); os.chdir('d'); os.stat('.'); os.listdir('.')
shown = {}
for n in range(300):
    shown[f'f{n}'] = make(f'f{n}', b'x' * n, 0o666)
    if n % 10 == 9: time.sleep(0.05)
    # A server that may have few files open keeps fewer.
    if n % 75 == 74: sync()
sync()
theirs = [name for name in shown if shown[name] < OWN]
assert len(theirs) >= 200, len(theirs)
for n in range(300):
    name = f'f{n}'; there = os.stat(f'{share}/d/{name}')
    if shown[name] < OWN: assert there.st_ino == shown[name], (name, there, shown[name])
    assert os.stat(name).st_ino == shown[name]
    assert (there.st_mode & 0o7777, there.st_size, there.st_nlink) == (0o640, n, 1), there
    assert open(f'{share}/d/{name}', 'rb').read() == b'x' * n
    assert abs(there.st_mtime - time.time()) < 60 and there.st_mtime_ns == os.stat(name).st_mtime_ns
for name in theirs: assert os.stat(f'{other}/d/{name}').st_ino == shown[name]
assert len(set(shown.values())) == 300
";

fn shown(of: FsType) -> Result<()> {
    let served = Served::by(Target::Holdfast, of)?;
    let (one, other) = (served.mount("")?, served.mount("")?);
    let (share, second) = (served.share(), other.path());
    python(&one.path(), SHOWN, &[&share.to_string_lossy(), &second.to_string_lossy()])?;
    one.check_alive()?;
    let log = one.log();
    ensure!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    other.unmount(&[])?;
    one.unmount(&[])
}

/// Some are made and not sent when the server dies, and more are made when it is there again.
const BEFORE: &str = "
os.mkdir('d'); sync(); os.chdir('d'); os.listdir('.')
for n in range(40):
    make(f'f{n}', b'%d' % n)
    if n % 5 == 4: time.sleep(0.05)
for n in range(40): print(f'f{n}', os.stat(f'f{n}').st_ino)
";

const AFTER: &str = "
before = dict(line.split() for line in sys.argv[1].splitlines()); os.chdir('d')
assert sum(int(number) < OWN for number in before.values()) >= 10, before
for n in range(40, 80): make(f'f{n}', b'%d' % n)
sync()
for n in range(80): assert open(f'f{n}').read() == str(n)
numbers = {name: os.stat(name).st_ino for name in os.listdir('.')}
assert len(numbers) == 80 == len(set(numbers.values())), numbers
for name in before: assert numbers[name] == int(before[name]), name
";

fn killed() -> Result<()> {
    let mut served = Served::with_lease(5)?;
    let mount = served.mount("")?;
    let before = python(&mount.path(), BEFORE, &[])?;
    served.server.kill()?;
    served.server.restart()?;
    python(&mount.path(), AFTER, &[&before])?;
    mount.check_alive()?;
    let names = run_in(&served.share(), "ls d | wc -l", &[])?;
    ensure!(names.trim() == "80", "others are there");
    mount.unmount(&[])
}
