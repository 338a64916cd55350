//! Who was let in when he opened a file goes on reading and writing whatever becomes of its mode, owner and access list, by whichever
//! mount, as POSIX has it.

use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result};
use holdfast_lab::Trial;
use std::path::Path;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("rights::what_is_open_goes_on_when_its_own_mount_changes_who_may", || goes_on("here")),
        Trial::new("rights::what_is_open_goes_on_when_another_mount_changes_who_may", || goes_on("there")),
    ]
}

fn goes_on(whence: &str) -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount("")?, served.mount("")?);
    let (first, second) = (one.path(), other.path());
    let paths = [&*first.to_string_lossy(), &*second.to_string_lossy(), whence];
    run_in(Path::new("/"), &format!("python3 - \"$@\" <<'E'\n{SCRIPT}\nE\n"), &paths)
        .with_context(|| format!("{}\n{}\n{}", one.log(), other.log(), served.server.log()))?;
    one.check_alive()?;
    other.check_alive()
}

/// Each file is in a directory of its own, so that the first mount has it alone when a user opens it.
const SCRIPT: &str = r#"
import errno, itertools, os, struct, sys, time
one, two, whence = sys.argv[1:]
ACCESS, USER = "system.posix_acl_access", 1000
entry = lambda tag, bits, who=-1: struct.pack("<HHI", tag, bits, who & 0xffffffff)
SHUT = struct.pack("<I", 2) + entry(1, 6) + entry(2, 0, USER) + entry(4, 0) + entry(16, 0) + entry(32, 0)
def owned(path): os.chmod(path, 0)
def shut(path): os.chmod(path, 0)
def taken(path): os.chmod(path, 0o600); os.chown(path, 0, 0)
def listed(path): os.setxattr(path, ACCESS, SHUT)
class User:
    """A process of his, that evaluates what it is told."""
    def __init__(self):
        (asked, self.ask), (self.told, tell) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.ask)
            os.setgroups([]); os.setresgid(USER, USER, USER); os.setresuid(USER, USER, USER)
            with os.fdopen(asked) as asked, os.fdopen(tell, 'w') as tell:
                for line in asked:
                    try: said = repr(eval(line))
                    except OSError as e: said = errno.errorcode[e.errno]
                    print(said, file=tell, flush=True)
            os._exit(0)
        os.close(asked); os.close(tell)
        self.ask, self.told = os.fdopen(self.ask, 'w'), os.fdopen(self.told)
    def __call__(self, what):
        print(what, file=self.ask, flush=True)
        return self.told.readline().strip()
    def end(self):
        self.ask.close(); self.told.close(); os.waitpid(self.pid, 0)
def steps(what, fd, size):
    """What is done before who may is changed, what is done after it, and what the file is then."""
    put = lambda letter: f'os.pwrite({fd}, b"{letter}" * {size}, 0)'
    look, sync, end = f'len(os.pread({fd}, {size}, 0))', f'os.fsync({fd})', f'os.close({fd})'
    return {
        'read': ([], [look, end], b'x' * size),
        'written_before': ([put('y')], [sync, end], b'y' * size),
        'written_after': ([], [put('z'), sync, end], b'z' * size),
        'both': ([put('y')], [put('z'), look, sync, end], b'z' * size),
        'appended': ([], [f'os.write({fd}, b"z" * {size})', sync, end], b'x' * size + b'z' * size),
        'cut': ([], [f'os.ftruncate({fd}, 3)', sync, end], b'xxx'),
        'closed': ([put('y')], [end], b'y' * size),
    }[what]
changes, sizes = [owned, shut, taken, listed], [10, 200_000]
kinds = ['read', 'written_before', 'written_after', 'both', 'appended', 'cut', 'closed']
cases = list(itertools.product(changes, sizes, kinds))
for n, (change, size, what) in enumerate(cases):
    os.mkdir(f'{one}/{n}')
    fd = os.open(f'{one}/{n}/f', os.O_CREAT | os.O_WRONLY)
    os.fchmod(fd, 0o666); os.fchown(fd, USER if change in (owned, taken) else 0, 0)
    os.write(fd, b'x' * size); os.close(fd)
os.sync()
# What was asked back a moment ago is not had alone.
time.sleep(3)
wrong = []
for n, (change, size, what) in enumerate(cases):
    user, path = User(), f'{one}/{n}/f'
    flags = {'read': 'os.O_RDONLY', 'both': 'os.O_RDWR', 'appended': 'os.O_WRONLY | os.O_APPEND'}.get(what, 'os.O_WRONLY')
    fd = user(f'os.open({path!r}, {flags})')
    before, after, want = steps(what, fd, size)
    said = [user(step) for step in before]
    change(path if whence == 'here' else f'{two}/{n}/f')
    said += [user(step) for step in after]
    user.end()
    data = open(f'{two}/{n}/f', 'rb').read()
    if data != want or not all(told == 'None' or told.isdigit() for told in said):
        wrong.append((change.__name__, size, what, said, len(data), data[:3]))
assert not wrong, '\n'.join(map(str, [len(wrong), *wrong]))
"#;
