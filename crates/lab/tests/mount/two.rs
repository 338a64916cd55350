//! Two mounts of one export see one truth.

use crate::failing::bash;
use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::Trial;
use std::path::Path;
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let scripts = [
        ("what_one_did_the_other_sees_at_once", SEEN),
        ("every_other_byte_of_a_page_from_two_mounts", BYTES),
        ("a_file_ends_where_the_other_has_cut_it", CUT),
        ("a_mapping_shows_what_the_other_has_written", MAPPED),
        ("what_both_append_at_once_is_there_once", APPENDED),
        ("a_listing_shows_what_the_other_has_changed", LISTED),
    ];
    let over = |(way, options): (&'static str, &'static str)| {
        scripts.map(|(name, script)| Trial::new(format!("two::{name}::{way}"), move || both(script, options)))
    };
    let mut trials: Vec<_> = [("here", ""), ("network", "nolocal")].into_iter().flat_map(over).collect();
    trials.extend([
        Trial::new("two::a_local_change_on_the_server_is_seen", local),
        Trial::new("two::who_has_lost_the_lease_is_answered_all_the_same", lease_lost),
        Trial::new("two::what_has_not_changed_costs_no_round_trip_the_second_time", no_round_trips),
        Trial::new("two::what_is_looked_at_again_is_opened_and_no_more", opened_and_no_more),
    ]);
    trials
}

fn both(script: &str, options: &str) -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount(options)?, served.mount(options)?);
    let (first, second) = (one.path(), other.path());
    let (first, second) = (first.to_string_lossy(), second.to_string_lossy());
    run_in(&served.share(), &format!("python3 - \"$@\" <<'E'\n{script}\nE\n"), &[&first, &second])
        .with_context(|| format!("{}\n{}\n{}", one.log(), other.log(), served.server.log()))?;
    one.check_alive()?;
    other.check_alive()
}

pub(crate) const SEEN: &str = "
import os, sys
one, two = sys.argv[1:]
for n in range(100):
    here, there = (one, two) if n % 2 else (two, one)
    name = f'/f{n}'
    assert not os.path.exists(there + name)
    open(here + name, 'w').write('a' * n)
    assert os.stat(there + name).st_size == n
    assert open(there + name).read() == 'a' * n
    open(there + name, 'a').write('b'); assert open(here + name).read() == 'a' * n + 'b'
    os.chmod(here + name, 0o600); assert os.stat(there + name).st_mode & 0o777 == 0o600
    os.rename(there + name, there + name + 'x'); assert not os.path.exists(here + name)
    assert name[1:] + 'x' in os.listdir(here)
    os.truncate(here + name + 'x', 1); assert os.stat(there + name + 'x').st_size == 1
    os.mkdir(there + '/d'); assert all(e.is_dir() == (e.name == 'd') for e in os.scandir(here))
    assert os.path.isdir(here + '/d'); os.rmdir(here + '/d')
    assert not os.path.exists(there + '/d')
    os.unlink(here + name + 'x'); assert os.listdir(there) == []
";

pub(crate) const BYTES: &str = "
import os, sys
one, two = [os.open(mount + '/f', os.O_RDWR | os.O_CREAT) for mount in sys.argv[1:]]
os.ftruncate(one, 4096)
for n in range(4096):
    os.pwrite(two if n % 2 else one, bytes([n % 251]), n)
want = bytes(n % 251 for n in range(4096))
assert os.pread(one, 4096, 0) == want
assert os.pread(two, 4096, 0) == want
os.close(one); os.close(two)
assert all(open(mount + '/f', 'rb').read() == want for mount in sys.argv[1:])
";

/// Reads that end before the end that Linux believes the file to have: it asks nobody where that is. Many are of opens that were
/// covered, and are not any more. No look may be behind; how many were is told all the same.
const CUT: &str = "
import os, random, sys
chance, behind = random.Random(1), []
def look(file, want, n):
    seen = os.pread(file, 10, 55)
    if seen != want: behind.append((n, want, seen))
for n in range(600):
    one, two = [mount + '/f' for mount in chance.sample(sys.argv[1:], 2)]
    file = os.open(one, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes([n % 255 + 1]) * 90, chance.choice([0, 40, 2157, 30000]))
    if chance.randrange(2): os.fstat(file)
    if chance.randrange(2): os.pread(file, 10, chance.choice([0, 50, 3000]))
    if chance.randrange(2): os.pwrite(file, b'y' * 70, 697)
    other = os.open(two, os.O_RDWR | chance.choice([0, os.O_TRUNC]))
    chance.choice([lambda: os.ftruncate(other, 0), lambda: os.truncate(two, 0)])()
    look(file, b'', n)
    os.pwrite(other, b'new' * 30, 0)
    look(file, b'ewnewnewne', n)
    os.close(other); os.close(file)
assert not behind, (len(behind), behind[:9])
";

/// Both have it open for writing, so that what is mapped is kept beside a writer: each write takes it.
const MAPPED: &str = "
import mmap, os, sys
one, two = [os.open(mount + '/f', os.O_RDWR | os.O_CREAT) for mount in sys.argv[1:]]
os.ftruncate(one, 8192)
view = mmap.mmap(one, 8192, access=mmap.ACCESS_READ)
for n in range(1, 200):
    want, place = bytes([n] * 8), n * 40
    os.pwrite(two, want, place)
    seen = view[place:place + 8]
    assert seen == want, (n, seen)
";

/// Shells and programs append to one log from both; lines are of 20 to 10,000 bytes, each of one `write`.
const APPENDED: &str = "
import os, random, subprocess, sys
APPENDER = r'''
import os, random, sys
at, who, go = sys.argv[1:]
chance = random.Random(who)
log = os.open(at + '/log', os.O_WRONLY | os.O_APPEND)
os.read(int(go), 1)
for n in range(300):
    line = f'{who} {n} '.encode().ljust(chance.choice([20, 100, 4090, 4096, 4097, 10000]), who.encode()) + b'\\n'
    assert os.write(log, line) == len(line)
    if n % 50 == 0: os.fsync(log)
'''
def whole(line):
    who, n, rest = line.split(b' ', 2)
    assert rest == who * len(rest), line
    return who.decode(), int(n), len(line)
mounts = sys.argv[1:]
open(mounts[0] + '/log', 'w').close()
waits, go = os.pipe()
begun = [subprocess.Popen([sys.executable, '-c', APPENDER, mount, who, str(waits)], pass_fds=[waits])
         for mount, who in zip(mounts, 'ab')]
os.write(go, b'go')
assert [one.wait() for one in begun] == [0, 0]
shells = [subprocess.Popen(['sh', '-c', f'for n in $(seq 1000 1040); do echo {who} $n {who * 40} >>{mount}/log; done'])
          for mount, who in zip(mounts, 'ab')]
assert [one.wait() for one in shells] == [0, 0]
for mount in mounts:
    seen = [whole(line) for line in open(mount + '/log', 'rb').read().splitlines()]
    for who in 'ab':
        mine = [n for at, n, _ in seen if at == who]
        assert mine == [*range(300), *range(1000, 1041)], (mount, who, len(mine))
";

/// How long a local change may go unnoticed on a busy machine.
const NOTICED: Duration = Duration::from_secs(20);

/// The kernel keeps listings; also while somebody holds a directory open, which `listdir` of a descriptor begins anew.
const LISTED: &str = "
import os, random, sys
chance, names, last = random.Random(1), set(), 0
mounts = [mount + '/d' for mount in sys.argv[1:]]
os.mkdir(mounts[0])
held = {mount: os.open(mount, os.O_RDONLY) for mount in mounts}
for n in range(500):
    here, there = chance.sample(mounts, 2)
    what = chance.randrange(4)
    if what == 0 and names:
        os.unlink(here + '/' + names.pop())
    elif what == 1 and names:
        old, last = names.pop(), last + 1
        os.rename(f'{here}/{old}', f'{here}/{last}'); names.add(str(last))
    elif what != 3:
        last += 1
        open(f'{here}/{last}', 'w').close(); names.add(str(last))
    for mount in chance.choices([here, there], k=chance.randrange(4)):
        seen = os.listdir(chance.choice([mount, held[mount]]))
        assert len(seen) == len(names) and set(seen) == names, (n, mount, names.symmetric_difference(seen))
    if not chance.randrange(10):
        os.close(held[here]); held[here] = os.open(here, os.O_RDONLY)
";

/// Listed and read by the kernel from what it keeps.
fn opened_and_no_more() -> Result<()> {
    let served = Served::new()?;
    run_in(&served.share(), "mkdir d; for f in $(seq 60); do echo $f >d/$f; done", &[])?;
    let mount = served.mount("")?;
    let look = |times: &str| {
        let script = "python3 - \"$@\" <<'E'\nimport os, sys\nat, times = sys.argv[1], int(sys.argv[2])\n\
            for _ in range(times): assert len(os.listdir(at)) == 60 and open(at + '/7').read() == '7\\n'\nE\n";
        run_in(Path::new("/"), script, &[&mount.path().join("d").to_string_lossy(), times])
    };
    let asked = || mount.stats()?["operations"].as_u64().context("no operations in the statistics");
    look("3")?;
    let before = asked()?;
    look("50")?;
    let took = asked()? - before;
    ensure!((100..110).contains(&took), "{took} requests for 50 listings and 50 files");
    Ok(())
}

fn local() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let (here, there) = (mount.path().join("f"), served.share().join("f"));
    std::fs::write(&there, "one")?;
    ensure!(std::fs::read_to_string(&here)? == "one", "made locally");
    std::fs::write(&there, "second")?;
    // A lazy export's changes are noticed within milliseconds, by who gets a processor; what is not noticed is never seen.
    let written = Instant::now();
    loop {
        let seen = std::fs::read_to_string(&here)?;
        if seen == "second" {
            return Ok(());
        }
        ensure!(seen == "one" && written.elapsed() < NOTICED, "seen: {seen}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn no_round_trips() -> Result<()> {
    let served = Served::new()?;
    run_in(
        &served.share(),
        "for d in $(seq 40); do mkdir d$d; for f in $(seq 50); do echo $f >d$d/$f; done; done",
        &[],
    )?;
    let mount = served.mount("")?;
    let look = "find . -type f -not -path './.git/*' | sort | xargs cat | md5sum; ls -lR >/dev/null; grep -rl absent . || true
        if [ -e d1/absent ]; then exit 1; fi";
    // `find` asks for the room on the file system, which changes without anybody's leave: after a second it is asked anew.
    let asked = || -> Result<u64> {
        Ok(mount.round_trips()?
            - mount.stats()?["room"]["misses"].as_u64().context("no room in the statistics")?)
    };
    run_in(&mount.path(), look, &[])?;
    let before = asked()?;
    run_in(&mount.path(), look, &[])?;
    let took = asked()? - before;
    ensure!(took == 0, "{took} round trips the second time: {}", mount.stats()?);
    let commit = "git init -q .; git add .; git -c user.name=a -c user.email=a@localhost commit -qm all; git status >/dev/null";
    run_in(&mount.path(), commit, &[])?;
    mount.sync()?;
    let before = asked()?;
    ensure!(run_in(&mount.path(), "git status --porcelain", &[])?.is_empty(), "git sees changes");
    let took = asked()? - before;
    ensure!(took == 0, "git status took {took} round trips: {}", mount.stats()?);
    mount.unmount(&[])
}

/// The server has forgotten a mount that was stopped for longer than its lease. Those who ask it for something then are
/// faster than its recovery, and hear of none of it.
fn lease_lost() -> Result<()> {
    let served = Served::with_lease(3)?;
    run_in(&served.share(), "mkdir d; for i in $(seq 1 9); do echo $i >d/f$i; done; echo old >f", &[])?;
    let (near, far) = (served.mount("")?, served.mount("")?);
    run_in(&near.path(), "cat f d/f9", &[])?;
    let daemon = near.daemon().to_string();
    run_in(&served.share(), "kill -STOP $1", &[&daemon])?;
    let near_path = near.path().to_string_lossy().into_owned();
    // They begin elsewhere: who starts a process waits until it is in its directory.
    let readers: Result<Vec<_>> = (1..=8)
        .map(|n| bash(Path::new("/"), "[ \"$(cat $1/d/f$2)\" = $2 ]", &[&near_path, &n.to_string()]))
        .collect();
    let written = run_in(&far.path(), "echo new >f", &[]);
    // Nobody waited for it then; and what has lost its lease without being in anybody's way is kept.
    std::thread::sleep(Duration::from_secs(4));
    run_in(&served.share(), "kill -CONT $1", &[&daemon])?;
    written?;
    for reader in readers? {
        let output = reader.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "who asked at once: {said}\n{}", near.log());
    }
    ensure!(run_in(&near.path(), "cat f", &[])? == "new\n", "old content\n{}", near.log());
    near.check_alive()
}
