//! Files without a name (`O_TMPFILE`), and the names that they get.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, ServerUnderTest, Trial};
use std::path::Path;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let types = [("ext4", FsType::Ext4), ("xfs", FsType::Xfs), ("btrfs", FsType::Btrfs)];
    let mut trials: Vec<_> = types
        .into_iter()
        .map(|(name, of)| {
            Trial::new(format!("nameless::as_on_a_local_file_system::{name}"), move || as_local(of))
        })
        .collect();
    trials.extend([
        Trial::new("nameless::what_gets_a_name_is_seen_whole_by_another_mount", both),
        Trial::new(
            "nameless::what_was_synced_and_named_outlives_the_client_and_the_rest_is_gone",
            client_killed,
        ),
        Trial::new("nameless::a_server_started_anew_makes_others", || restarted(BEFORE, killed)),
        Trial::new("nameless::a_planned_restart_keeps_them", || restarted(KEPT, ServerUnderTest::replace)),
        Trial::new("nameless::refused_where_nobody_has_them::delegated", || {
            refused(Target::Holdfast, "cache=delegations")
        }),
        Trial::new("nameless::refused_where_nobody_has_them::ganesha", || refused(Target::Ganesha, "")),
    ]);
    trials
}

/// `linkat(2)` of a descriptor, in both ways.
const NAMING: &str = "
import ctypes, errno, os, stat, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def linkat(fd, path, flags, to):
    if libc.linkat(fd, os.fsencode(path), -100, os.fsencode(to), flags):
        e = ctypes.get_errno(); raise OSError(e, os.strerror(e), path, None, to)
def by_proc(fd, to): linkat(-100, f'/proc/self/fd/{fd}', 0x400, to)
def by_itself(fd, to): linkat(fd, '', 0x1000, to)
def fails(number, call, *arguments):
    try: call(*arguments)
    except OSError as e: assert e.errno == number, (arguments, e)
    else: assert False, arguments
def nameless(at, flags=os.O_RDWR, mode=0o600): return os.open(at, os.O_TMPFILE | flags, mode)
def read(path): return open(path).read()
";

fn python(at: &Path, script: &str, arguments: &[&str]) -> Result<String> {
    run_in(at, &format!("python3 - \"$@\" <<'E'\n{NAMING}\n{script}\nE\n"), arguments)
}

/// Also run on the file system below, for what it shows is Linux's to say.
const LOCAL: &str = "
os.umask(0o022); os.mkdir('d')
for name in by_proc, by_itself:
    fd = nameless('d')
    made = os.fstat(fd); assert (made.st_nlink, made.st_size, stat.S_ISREG(made.st_mode)) == (0, 0, True), made
    assert os.write(fd, b'whole') == 5 and os.pread(fd, 9, 0) == b'whole'
    os.pwrite(fd, b'x' * 300000, 70000); os.ftruncate(fd, 370000); os.fsync(fd); os.fchmod(fd, 0o640)
    assert os.listdir('d') == [] and os.fstat(fd).st_size == 370000 and os.fstat(fd).st_nlink == 0
    name(fd, 'd/named'); assert os.listdir('d') == ['named']
    assert os.fstat(fd).st_nlink == os.stat('d/named').st_nlink == 1 and os.stat('d/named').st_mode & 0o777 == 0o640
    assert os.stat('d/named').st_ino == os.fstat(fd).st_ino == made.st_ino
    fails(errno.EEXIST, name, fd, 'd/named'); name(fd, 'twice'); assert os.fstat(fd).st_nlink == 2
    os.pwrite(fd, b'WHOLE', 0); os.close(fd)
    data = open('d/named', 'rb').read(); assert data[:5] == b'WHOLE' and data[70000:] == b'x' * 300000 and len(data) == 370000
    os.unlink('twice'); assert os.stat('d/named').st_nlink == 1; os.rename('d/named', 'named'); os.unlink('named')
    # Named before anything of it was sent, and into another directory than it was made in.
    fd = nameless('.', os.O_WRONLY); os.write(fd, b'later'); name(fd, 'd/f'); os.write(fd, b' on'); os.close(fd)
    assert read('d/f') == 'later on'; os.unlink('d/f')
    # Its last name goes, and it can have none any more.
    fd = nameless('d'); name(fd, 'd/f'); os.unlink('d/f'); fails(errno.ENOENT, name, fd, 'd/f'); os.close(fd)
    # Never to have one.
    fd = nameless('d', os.O_RDWR | os.O_EXCL); os.write(fd, b'x'); fails(errno.ENOENT, name, fd, 'd/f'); os.close(fd)
    # The mode counts for who opens it next.
    fd = nameless('d', os.O_RDWR, 0o444); os.write(fd, b'r'); name(fd, 'd/r'); os.close(fd)
    assert os.stat('d/r').st_mode & 0o777 == 0o444 and read('d/r') == 'r'; os.unlink('d/r')
assert os.listdir('d') == []
fails(errno.ENOENT, nameless, 'nowhere'); open('file', 'w').close(); fails(errno.ENOTDIR, nameless, 'file'); os.unlink('file')
with tempfile.TemporaryFile(dir='d') as f:
    assert os.listdir('d') == []; f.write(b'1' * 100000); f.seek(0); assert len(f.read()) == 100000
# What a directory hands on.
os.chown('d', 0, 7); os.chmod('d', 0o2777); fd = nameless('d'); assert os.fstat(fd).st_gid == 7; os.close(fd)
os.chmod('d', 0o777)
child = os.fork()
if not child:
    os.setgroups([]); os.setgid(1000); os.setuid(1000)
    fd = nameless('d', os.O_RDWR, 0o400); os.write(fd, b'mine'); by_proc(fd, 'd/mine'); os.close(fd)
    assert os.stat('d/mine').st_uid == 1000 and read('d/mine') == 'mine'; fails(errno.EACCES, nameless, '.')
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0; os.unlink('d/mine'); os.rmdir('d'); assert os.listdir() == []
";

/// What is handed on through a default access list, and what of the umask then counts, is as with files that are made with a
/// name.
const INHERITED: &str = "
os.umask(0o027)
fd = nameless('acl', os.O_RDWR, 0o666); by_proc(fd, 'acl/f'); os.close(fd)
os.close(os.open('acl/g', os.O_CREAT | os.O_RDWR, 0o666))
modes = [os.stat('acl/' + name).st_mode & 0o777 for name in 'fg']; assert modes[0] == modes[1], modes
";

fn as_local(of: FsType) -> Result<()> {
    let served = Served::by(Target::Holdfast, of)?;
    run_in(&served.share(), "chmod 755 .", &[])?;
    python(&served.share(), LOCAL, &[])?;
    for options in ["", "nolocal"] {
        let mount = served.mount(options)?;
        python(&mount.path(), LOCAL, &[])?;
        run_in(&served.share(), "mkdir acl; setfacl -d -m u::rwx,g::r-x,o::---,u:9:rw- acl", &[])?;
        python(&mount.path(), INHERITED, &[])?;
        let lists = "for f in f g; do getfacl -cn acl/$f; done | sort | uniq -c | awk '$2 != \"\" && $1 != 2'; rm -r acl";
        ensure!(run_in(&served.share(), lists, &[])?.is_empty(), "their access lists differ");
        mount.check_alive()?;
        let log = mount.log();
        ensure!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
        mount.unmount(&[])?;
    }
    ensure!(run_in(&served.share(), "ls -A", &[])?.is_empty(), "something is left");
    Ok(())
}

const SEEN: &str = "
one, two = sys.argv[1:]
for n in range(40):
    here, there = (one, two) if n % 2 else (two, one)
    os.listdir(there); assert not os.path.exists(there + '/f')
    fd = nameless(here); os.write(fd, b'a' * (n * 5000 + 1))
    assert os.listdir(there) == []
    by_proc(fd, here + '/f')
    assert os.listdir(there) == ['f'] and read(there + '/f') == 'a' * (n * 5000 + 1)
    os.pwrite(fd, b'b', 0); assert read(there + '/f')[0] == 'b' and os.stat(there + '/f').st_nlink == 1
    os.unlink(there + '/f'); assert os.fstat(fd).st_nlink == 0 and os.pread(fd, 1, 0) == b'b'; os.close(fd)
";

fn both() -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount("")?, served.mount("")?);
    let (first, second) = (one.path(), other.path());
    python(&served.share(), SEEN, &[&first.to_string_lossy(), &second.to_string_lossy()])?;
    one.check_alive()?;
    other.check_alive()
}

/// What the daemon is killed in the middle of.
const KILLED: &str = "
import signal
os.chdir(sys.argv[1])
fd = nameless('.'); os.write(fd, b'whole' * 100000); os.fsync(fd); by_proc(fd, 'named')
other = nameless('.'); os.write(other, b'other' * 100000); os.fsync(other)
late = nameless('.'); os.write(late, b'late')
os.kill(int(sys.argv[2]), signal.SIGKILL)
";

fn client_killed() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let (path, daemon) = (mount.path(), mount.daemon().to_string());
    python(&served.share(), KILLED, &[&path.to_string_lossy(), &daemon])?;
    mount.wait_end()?;
    let left = "assert os.listdir() == ['named'] and read('named') == 'whole' * 100000, os.listdir()";
    python(&served.share(), left, &[]).map(drop)
}

/// As a file that was removed while it is open, one without a name goes with the server that is killed.
const BEFORE: &str = "
os.chdir(sys.argv[1]); fd = nameless('.'); os.write(fd, b'lost'); os.fsync(fd)
print('made', flush=True); sys.stdin.readline()
try: os.pwrite(fd, b'lost', 0); os.fsync(fd)
except OSError as e: assert e.errno in (errno.ESTALE, errno.EIO), e
else: assert False, 'it is there still'
fails(errno.ESTALE, by_proc, fd, 'lost')
try: os.close(fd)
except OSError as e: assert e.errno in (errno.ESTALE, errno.EIO), e
fd = nameless('.'); os.write(fd, b'found'); os.fsync(fd); by_proc(fd, 'found'); os.close(fd)
assert os.listdir() == ['found'] and read('found') == 'found'
";

fn killed(server: &mut ServerUnderTest) -> Result<()> {
    server.kill()?;
    server.restart()
}

/// The next server gets what is open.
const KEPT: &str = "
os.chdir(sys.argv[1]); fd = nameless('.'); os.write(fd, b'kept'); os.fsync(fd); os.write(fd, b' and more')
print('made', flush=True); sys.stdin.readline()
assert os.pread(fd, 99, 0) == b'kept and more' and os.fstat(fd).st_nlink == 0; os.pwrite(fd, b'KEPT', 0); os.fsync(fd)
by_proc(fd, 'kept'); os.close(fd); assert os.listdir() == ['kept'] and read('kept') == 'KEPT and more'
";

/// A server goes, in some way, while a file is open that has no name, and there is one again.
fn restarted(script: &str, go: fn(&mut ServerUnderTest) -> Result<()>) -> Result<()> {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let mut served = Served::with_lease(5)?;
    let mount = served.mount("")?;
    let script = format!("{NAMING}\n{script}");
    let mut child = Command::new("python3")
        .args(["-c", &script])
        .arg(mount.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or_else(|| anyhow::anyhow!("no output"))?).read_line(&mut line)?;
    ensure!(line == "made\n", "it said {line:?}");
    go(&mut served.server)?;
    // Its input ends here.
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), mount.log());
    Ok(())
}

/// What programs fall back to is their own affair: here Python's.
const REFUSED: &str = "
fails(errno.EOPNOTSUPP, nameless, '.'); fails(errno.EOPNOTSUPP, nameless, '.')
with tempfile.TemporaryFile(dir='.') as f: f.write(b'x'); f.seek(0); assert f.read() == b'x'
";

fn refused(target: Target, options: &str) -> Result<()> {
    let served = Served::by(target, FsType::Ext4)?;
    run_in(&served.share(), "rm -rf lost+found", &[])?;
    let mount = served.mount(options)?;
    python(&mount.path(), REFUSED, &[])?;
    mount.unmount(&[])
}
