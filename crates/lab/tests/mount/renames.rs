//! Renames with flags: names that change places, and names that are not taken from anybody.

use crate::fixture::{Served, run_in};
use anyhow::{Result, anyhow, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, Trial};
use std::path::Path;
use std::time::Duration;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("renames::with_flags_as_on_a_local_file_system", as_local),
        Trial::new("renames::an_exchange_is_seen_by_both_mounts_and_never_half", || both(SEEN)),
        Trial::new("renames::an_exchange_is_done_once_though_the_server_is_killed", killed),
        Trial::new("renames::what_cannot_be_exact_is_refused::delegated", || {
            refused(Target::Holdfast, "cache=delegations")
        }),
        Trial::new("renames::what_cannot_be_exact_is_refused::ganesha", || refused(Target::Ganesha, "")),
    ]
}

/// `renameat2(2)`, which Python does not have.
const FLAGS: &str = "
import ctypes, errno, os, sys
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
libc = ctypes.CDLL(None, use_errno=True)
def rename(one, other, flags):
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), flags):
        e = ctypes.get_errno(); raise OSError(e, os.strerror(e), one, None, other)
def fails(number, call, *arguments):
    try: call(*arguments)
    except OSError as e: assert e.errno == number, (arguments, e)
    else: assert False, arguments
def read(path): return open(path).read()
def write(path, text):
    with open(path, 'w') as file: file.write(text)
";

fn python(at: &Path, script: &str, arguments: &[&str]) -> Result<String> {
    run_in(at, &format!("python3 - \"$@\" <<'E'\n{FLAGS}\n{script}\nE\n"), arguments)
}

/// Also run on the file system below, for what it shows is Linux's to say.
const LOCAL: &str = "
def number(path): return os.lstat(path).st_ino
for place in '', 'd/':
    for d in 'd', 'd/e', 'd/e/in': os.makedirs(d, exist_ok=True)
    write('one', 'first'); write(place + 'two', 'second, longer')
    files = number('one'), number(place + 'two')
    rename('one', place + 'two', EXCHANGE)
    assert (read('one'), read(place + 'two')) == ('second, longer', 'first')
    assert (number(place + 'two'), number('one')) == files
    assert [os.stat(p).st_size for p in ('one', place + 'two')] == [14, 5]
    # What is open stays what it is, and what was written and not sent goes with the file.
    a, b = open('one', 'r+'), open(place + 'two', 'r+')
    a.write('SECOND'); a.flush(); b.write('FIRST'); b.flush()
    rename('one', place + 'two', EXCHANGE)
    assert (read('one'), read(place + 'two')) == ('FIRST', 'SECOND, longer')
    a.write('!'); a.close(); b.write('?'); b.close()
    assert (read('one'), read(place + 'two')) == ('FIRST?', 'SECOND! longer')
    # A file and a directory with something in it, which counts its directories.
    links = lambda: [os.stat(d).st_nlink for d in ('.', 'd')]
    before = links()
    rename('one', 'd/e', EXCHANGE)
    assert read('d/e') == 'FIRST?' and os.listdir('one') == ['in']
    if before[0] > 1: assert links() == [before[0] + 1, before[1] - 1], (before, links())
    assert os.stat('one/..').st_ino == number('.') and os.stat('one/in/../..').st_ino == number('.')
    ctime = os.stat('one').st_ctime_ns
    rename('d/e', 'one', EXCHANGE)
    assert links() == before and read('one') == 'FIRST?' and os.listdir('d/e') == ['in']
    assert os.stat('d/e').st_ctime_ns >= ctime and os.stat('d/e/..').st_ino == number('d')
    # Two directories of which neither lies in the other; a link and a file; names of one file.
    os.mkdir('f'); write('f/g', 'g')
    rename('f', 'd/e', EXCHANGE); assert os.listdir('f') == ['in'] and read('d/e/g') == 'g'
    rename('f', 'd/e', EXCHANGE); fails(errno.EINVAL, rename, 'd', 'd/e', EXCHANGE)
    fails(errno.EINVAL, rename, 'd/e', 'd', EXCHANGE)
    os.symlink('nowhere', 's'); rename('s', 'one', EXCHANGE)
    assert os.readlink('one') == 'nowhere' and read('s') == 'FIRST?'
    os.link('s', 'hard'); rename('s', 'hard', EXCHANGE); rename('hard', 'one', EXCHANGE)
    assert read('one') == read('s') == 'FIRST?' and os.stat('s').st_nlink == 2 and os.readlink('hard') == 'nowhere'
    # Made this moment, and never sent.
    write('n1', '1'); write('n2', '2'); rename('n1', 'n2', EXCHANGE); os.unlink('n1'); assert read('n2') == '1'
    fails(errno.ENOENT, rename, 'n2', 'n1', EXCHANGE); fails(errno.ENOENT, rename, 'n1', 'n2', EXCHANGE)
    # Not over anything.
    fails(errno.EEXIST, rename, 'n2', 'one', NOREPLACE); fails(errno.EEXIST, rename, 'n2', 'd', NOREPLACE)
    rename('n2', 'd/n3', NOREPLACE); assert read('d/n3') == '1' and not os.path.exists('n2')
    rename('d/e', 'e', NOREPLACE); assert os.listdir('e') == ['in']
    fails(errno.EINVAL, rename, 'one', 's', NOREPLACE | EXCHANGE)
    assert sorted(os.listdir()) == sorted(['d', 'e', 'f', 'hard', 'one', 's'] + ([] if place else ['two']))
    os.system('rm -r *')
";

/// WHITEOUT is for file systems that lie under others, and FUSE has none.
const NOT_HERE: &str = "
write('one', '1'); fails(errno.EINVAL, rename, 'one', 'two', WHITEOUT); assert os.listdir() == ['one']; os.unlink('one')
";

fn as_local() -> Result<()> {
    let served = Served::by(Target::Holdfast, FsType::Ext4)?;
    python(&served.share(), LOCAL, &[])?;
    let mount = served.mount("")?;
    python(&mount.path(), LOCAL, &[])?;
    python(&mount.path(), NOT_HERE, &[])?;
    mount.check_alive()?;
    mount.unmount(&[])
}

fn both(script: &str) -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount("")?, served.mount("")?);
    let (first, second) = (one.path(), other.path());
    let (first, second) = (first.to_string_lossy(), second.to_string_lossy());
    python(&served.share(), script, &[&first, &second])?;
    one.check_alive()?;
    other.check_alive()
}

const SEEN: &str = "
import threading, time
one, two = sys.argv[1:]
os.mkdir(one + '/d')
for n in range(60):
    here, there = (one, two) if n % 2 else (two, one)
    a, b = '/a', '/d/b' if n % 3 else '/b'
    write(here + a, 'a' * n); write(there + b, 'b')
    assert (read(there + a), read(here + b)) == ('a' * n, 'b')
    file = open(there + a, 'r+')
    rename(here + a, here + b, EXCHANGE)
    seen = [read(mount + name) for mount in (there, here) for name in (a, b)]
    assert seen == ['b', 'a' * n] * 2, (n, a, b, seen)
    assert os.stat(there + a).st_size == 1
    file.write('A'); file.close(); assert read(here + b)[:1] == 'A'
    rename(there + a, there + b, EXCHANGE)
    assert (read(here + a)[:1], read(here + b)) == ('A', 'b')
    fails(errno.EEXIST, rename, here + a, here + b, NOREPLACE)
    fails(errno.EEXIST, rename, there + a, there + b, NOREPLACE)
    os.unlink(there + b); rename(here + a, here + b, NOREPLACE); assert os.path.exists(there + b)
    os.unlink(here + b); assert not os.path.exists(there + b)
    os.mkdir(here + '/x'); os.mkdir(here + '/x/y'); write(there + '/f', 'f')
    rename(there + '/f', there + '/x', EXCHANGE)
    assert os.listdir(here + '/f') == ['y'] and read(here + '/x') == 'f'
    os.rmdir(there + '/f/y'); os.rmdir(here + '/f'); os.unlink(there + '/x')
# Of two who both take a free name one has it.
won = [0, 0]
for n in range(40):
    def take(which, mount):
        mine = f'{mount}/mine{which}'
        write(mine, str(which))
        try: rename(mine, mount + '/free', NOREPLACE); won[which] += 1
        except FileExistsError: os.unlink(mine)
    both = [threading.Thread(target=take, args=pair) for pair in enumerate((one, two))]
    for t in both: t.start()
    for t in both: t.join()
    assert sum(won) == n + 1, won
    os.unlink((one, two)[n % 2] + '/free')
# While names change places both are there, on the other mount as well.
write(one + '/p', 'p'); write(one + '/q', 'q'); over = threading.Event()
def swap():
    global swaps
    until = time.monotonic() + 3
    while swaps < 6 or swaps % 2 or time.monotonic() < until: rename(one + '/p', one + '/q', EXCHANGE); swaps += 1
    over.set()
swapping = threading.Thread(target=swap); swaps = looks = 0; swapping.start()
while not over.is_set():
    assert {read(two + '/p'), read(two + '/q')} <= {'p', 'q'}; looks += 1
swapping.join(); assert looks > 0
assert (read(one + '/p'), read(two + '/q')) == ('p', 'q')
";

/// Each exchange that was answered was done once: an even number of them leaves all as it was.
const TURNS: &str = "
import time
until = time.monotonic() + float(sys.argv[1]); turns = slow = 0
os.mkdir('d'); write('one', 'even'); write('d/other', 'odd')
while time.monotonic() < until:
    begun = time.monotonic()
    rename('one', 'd/other', EXCHANGE); turns += 1
    # A server is back after 60 ms on an idle machine; without a kill it is a hundredth of that or two.
    slow += time.monotonic() - begun > 0.03
    assert read('one') == ('odd' if turns % 2 else 'even'), turns
    assert read('d/other') == ('even' if turns % 2 else 'odd'), turns
print(turns, slow)
";

fn killed() -> Result<()> {
    let mut served = Served::with_lease(5)?;
    let mount = served.mount("")?;
    let path = mount.path();
    let said = std::thread::scope(|scope| -> Result<String> {
        let worker = scope.spawn(|| python(&path, TURNS, &["12"]));
        for n in 0..6_u64 {
            // Not in step with what it does.
            std::thread::sleep(Duration::from_millis(1100 + 37 * n));
            served.server.kill()?;
            served.server.restart()?;
        }
        worker.join().map_err(|_| anyhow!("the worker panicked"))?
    })?;
    let told: Vec<u64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(told[0] > 12 && told[1] > 0, "{told:?}: too few to have been interrupted\n{}", mount.log());
    println!("     {} exchanges, {} of them waited for a server", told[0], told[1]);
    let left = run_in(&served.share(), "cat one d/other", &[])?;
    ensure!(left == if told[0].is_multiple_of(2) { "evenodd" } else { "oddeven" }, "{left} after {told:?}");
    mount.unmount(&[])
}

/// NFS has one rename, which replaces.
const REFUSED: &str = "
write('one', '1'); write('two', '2')
fails(errno.EINVAL, rename, 'one', 'two', EXCHANGE)
fails(errno.EINVAL, rename, 'one', 'free', NOREPLACE)
fails(errno.EEXIST, rename, 'one', 'two', NOREPLACE)
assert sorted(os.listdir()) == ['one', 'two'] and read('one') == '1' and read('two') == '2'
";

fn refused(target: Target, options: &str) -> Result<()> {
    let served = Served::by(target, FsType::Ext4)?;
    let mount = served.mount(options)?;
    python(&mount.path(), REFUSED, &[])?;
    mount.unmount(&[])
}
