//! Locks: of processes, of open files, of whole files, between two mounts.

use crate::fixture::{Served, run_in};
use crate::sides::Side;
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::Trial;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const LEASE_SECONDS: u32 = 5;
/// Until a lock is seen to be free whose holder has ended, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("locks::of_every_kind_exclude_the_other_mount", || two_mounts("", EXCLUDE)),
        Trial::new("locks::end_with_the_process_the_open_file_and_the_close", || two_mounts("", ENDS)),
        Trial::new("locks::one_who_waits_is_woken_and_one_who_is_signalled_gives_up", || {
            two_mounts("", WAITS)
        }),
        Trial::new("locks::outlive_the_servers_death_and_end_with_their_holders::all", || {
            server_dies("nolocal")
        }),
        Trial::new("locks::outlive_the_servers_death_and_end_with_their_holders::none", || {
            server_dies("cache=none")
        }),
        Trial::new("locks::lost_to_another_mount_are_eio_until_given_back::all", || lost("nolocal")),
        Trial::new("locks::lost_to_another_mount_are_eio_until_given_back::delegations", || {
            lost("cache=delegations")
        }),
        Trial::new("locks::lost_to_another_mount_are_eio_until_given_back::none", || lost("cache=none")),
        Trial::new("locks::sqlite_from_two_mounts_loses_nothing::all", || two_mounts("", SQLITE)),
        Trial::new("locks::sqlite_from_two_mounts_loses_nothing::network", || two_mounts("nolocal", SQLITE)),
        Trial::new("locks::sqlite_from_two_mounts_loses_nothing::delegations", || {
            two_mounts("cache=delegations", SQLITE)
        }),
        Trial::new("locks::sqlite_from_two_mounts_loses_nothing::none", || two_mounts("cache=none", SQLITE)),
    ]
}

fn two_mounts(options: &str, script: &str) -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount(options)?, served.mount(options)?);
    let (first, second) = (one.path(), other.path());
    let (first, second) = (first.to_string_lossy(), second.to_string_lossy());
    run_in(&served.share(), &format!("python3 - \"$@\" <<'E'\n{PRELUDE}{script}\nE\n"), &[&first, &second])?;
    one.check_alive()?;
    other.check_alive()
}

/// What is held: ranges of one file by two processes, a whole file, and one by `flock`. Nobody else gets any of it from the
/// server that comes after, neither in its grace nor later.
fn server_dies(options: &str) -> Result<()> {
    let mut served = Served::with_lease(LEASE_SECONDS)?;
    for name in ["ranges", "whole", "flocked"] {
        std::fs::write(served.share().join(name), "content")?;
    }
    let (mount, elsewhere) = (served.mount(options)?, served.mount(options)?);
    let (one, two) = (Side::here(&mount.path())?, Side::here(&mount.path())?);
    let third = Side::here(&elsewhere.path())?;
    let of_one: [&[&str]; 2] = [&["lock", "ranges", "write", "0", "10"], &["flock", "flocked"]];
    let of_two: [&[&str]; 2] =
        [&["lock", "ranges", "write", "10", "10"], &["lock", "whole", "write", "0", "0"]];
    of_one.into_iter().try_for_each(|lock| one.shows(lock, "granted"))?;
    of_two.into_iter().try_for_each(|lock| two.shows(lock, "granted"))?;
    let is_kept_out = || of_one.into_iter().chain(of_two).try_for_each(|lock| third.shows(lock, "refused"));
    is_kept_out().context("before the server died")?;
    for death in ["first", "second"] {
        served.server.kill()?;
        std::thread::sleep(Duration::from_secs(1));
        served.server.restart()?;
        let restarted = Instant::now();
        // Grace is as long as a lease; and what was not reclaimed would be free a lease later at the latest.
        while restarted.elapsed() < Duration::from_secs(u64::from(2 * LEASE_SECONDS + 1)) {
            is_kept_out().with_context(|| format!("{:?} after the {death} death", restarted.elapsed()))?;
        }
    }
    let log = || format!("{}\n{}\n{}", mount.log(), elsewhere.log(), served.server.log());
    one.end()?;
    of_one.into_iter().try_for_each(|lock| third.shows_soon(lock, "granted", SOON)).with_context(log)?;
    third.shows(of_two[0], "refused")?;
    // Killed.
    drop(two);
    of_two.into_iter().try_for_each(|lock| third.shows_soon(lock, "granted", SOON)).with_context(log)?;
    third.end()?;
    mount.check_alive()?;
    elsewhere.check_alive()
}

/// One mount is cut off for longer than a lease, with a lock held and data of the file waiting. The other takes the lock, and
/// writes. When the first is back nothing of what waited is sent, and whoever goes on is told, until the lock is given back.
fn lost(options: &str) -> Result<()> {
    let served = Served::with_lease(LEASE_SECONDS)?;
    std::fs::write(served.share().join("f"), "before")?;
    let server = (std::net::Ipv4Addr::LOCALHOST, served.server.port()).into();
    let relay = holdfast_lab::Relay::start(server, Duration::ZERO)?;
    let cut_off = holdfast_lab::Mount::new(relay.port(), &served.server.export(), options)?;
    let other = served.mount(options)?;
    let log = || format!("{}\n{}", cut_off.log(), served.server.log());
    let mut loser = python(LOSER, &cut_off.path())?;
    let taker = || run_in(&other.path(), &format!("python3 - <<'E'\n{TAKER}\nE\n"), &[]);
    loser.says("locked")?;
    relay.stall();
    loser.does("write")?;
    taker().with_context(log)?;
    relay.resume();
    loser.does("look")?;
    let told = loser.hears().with_context(log)?;
    ensure!(told == "refused", "it said {told}\n{}", log());
    ensure!(std::fs::read(served.share().join("f"))? == *b"theirs", "it was written over\n{}", log());
    let (since, named) = (Instant::now(), ": lock, which others may have had meanwhile");
    while !cut_off.log().contains(named) {
        ensure!(since.elapsed() < SOON, "the log does not name the file\n{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    loser.does("unlock")?;
    let told = loser.hears().with_context(log)?;
    ensure!(told == "goes on", "it said {told}\n{}", log());
    ensure!(std::fs::read(served.share().join("f"))? == *b"oursrs", "{}", log());
    loser.ends()?;
    cut_off.check_alive()?;
    other.check_alive()
}

/// A program that is told what to do by lines, and answers by lines.
struct Python {
    child: Child,
    told: BufReader<ChildStdout>,
    orders: ChildStdin,
}

fn python(program: &str, directory: &Path) -> Result<Python> {
    let mut command = Command::new("python3");
    command.args(["-c", program]).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("starting python3")?;
    let told = BufReader::new(child.stdout.take().context("it says nothing")?);
    let orders = child.stdin.take().context("it hears nothing")?;
    Ok(Python { child, told, orders })
}

impl Python {
    fn does(&mut self, what: &str) -> Result<()> {
        Ok(writeln!(self.orders, "{what}")?)
    }

    fn hears(&mut self) -> Result<String> {
        let mut line = String::new();
        self.told.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn says(&mut self, what: &str) -> Result<()> {
        let told = self.hears()?;
        ensure!(told == what, "it said {told:?}, and not {what:?}");
        Ok(())
    }

    fn ends(mut self) -> Result<()> {
        drop(self.orders);
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

const LOSER: &str = "
import fcntl, os, sys
fd = os.open('f', os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
assert os.pread(fd, 100, 0) == b'before'
def say(what): print(what, flush=True)
def refused(act):
    try: act()
    except OSError as e:
        assert e.errno == 5, e
        return True
    return False
say('locked')
assert sys.stdin.readline() == 'write\\n'
# Where it may, it is taken in; else it is waited for, and fails when the server is back.
was_told = refused(lambda: os.pwrite(fd, b'ours', 0))
assert sys.stdin.readline() == 'look\\n'
if not was_told:
    # Until it is known here that the lock was lost.
    was_told = refused(lambda: os.fsync(fd))
answers = [was_told, refused(lambda: os.pread(fd, 100, 0)), refused(lambda: os.pwrite(fd, b'again', 0))]
say('refused' if all(answers) else answers)
assert sys.stdin.readline() == 'unlock\\n'
fcntl.lockf(fd, fcntl.LOCK_UN)
now = os.pread(fd, 100, 0)
assert now == b'theirs', now
fcntl.lockf(fd, fcntl.LOCK_EX)
os.pwrite(fd, b'ours', 0); os.fsync(fd)
say('goes on')
fcntl.lockf(fd, fcntl.LOCK_UN)
# Somebody heard of what was lost: nobody is told again.
os.close(fd)
";

const TAKER: &str = "
import fcntl, os
fd = os.open('f', os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
os.ftruncate(fd, 0); os.pwrite(fd, b'theirs', 0); os.fsync(fd)
fcntl.lockf(fd, fcntl.LOCK_UN)
";

pub(crate) const PRELUDE: &str = "
import fcntl, os, struct, sys, time, signal, subprocess
one, two = sys.argv[1:]
open(one + '/f', 'w').write('x' * 100)
OFD_SETLK, OFD_SETLKW = 37, 38
def ofd(fd, kind, start=0, length=0, command=OFD_SETLK):
    fcntl.fcntl(fd, command, struct.pack('hhqqi4x', kind, 0, start, length, 0))
def refused(act):
    try: act()
    except OSError as e:
        assert e.errno in (11, 13), e
        return True
    return False
a = open(one + '/f', 'r+'); b = open(two + '/f', 'r+')
";

const EXCLUDE: &str = "
fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
assert refused(lambda: fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5))
assert refused(lambda: ofd(b.fileno(), fcntl.F_WRLCK, 9, 1))
fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
fcntl.lockf(a, fcntl.LOCK_UN); fcntl.lockf(b, fcntl.LOCK_UN)
fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)
assert refused(lambda: fcntl.flock(b, fcntl.LOCK_SH | fcntl.LOCK_NB))
fcntl.flock(a, fcntl.LOCK_SH); fcntl.flock(b, fcntl.LOCK_SH | fcntl.LOCK_NB)
fcntl.flock(a, fcntl.LOCK_UN); fcntl.flock(b, fcntl.LOCK_UN)
ofd(a.fileno(), fcntl.F_WRLCK, 0, 10)
c = open(one + '/f', 'r+')
assert refused(lambda: ofd(c.fileno(), fcntl.F_WRLCK, 0, 1))
assert refused(lambda: ofd(b.fileno(), fcntl.F_RDLCK, 0, 1))
";

const ENDS: &str = "
def soon(act):
    end = time.time() + 10
    while refused(act):
        assert time.time() < end, 'still held'
        time.sleep(0.02)
take = lambda: fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
drop = lambda: fcntl.lockf(b, fcntl.LOCK_UN)
holder = 'import fcntl,sys,time; f=open(sys.argv[1],\"r+\"); fcntl.lockf(f, fcntl.LOCK_EX); f.write(\"y\" * int(sys.argv[2])); f.flush(); print(1, flush=True); time.sleep(60)'
# What a killed process wrote under its lock may be on its way for longer than its open file lives.
for written in 0, 1 << 24, 0, 1 << 24:
    child = subprocess.Popen([sys.executable, '-c', holder, one + '/f', str(written)], stdout=subprocess.PIPE)
    child.stdout.readline(); assert refused(take)
    child.kill(); child.wait(); soon(take); drop()
    b.seek(0); assert written == 0 or b.read() == 'y' * written
fcntl.lockf(a, fcntl.LOCK_EX); open(one + '/f').close(); soon(take); drop()
r = open(one + '/f'); fcntl.lockf(a, fcntl.LOCK_EX); r.close(); soon(take); drop()
c = open(one + '/f', 'r+'); ofd(c.fileno(), fcntl.F_WRLCK); d = os.dup(c.fileno()); c.close()
assert refused(take); os.close(d); soon(take); drop()
c = open(one + '/f', 'r+'); fcntl.flock(c, fcntl.LOCK_EX)
assert refused(lambda: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB))
c.close(); soon(lambda: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB))
fcntl.flock(b, fcntl.LOCK_UN)
# On the same mount at once, though its close is told late, and though another open file takes over what the server knows.
for lock in lambda f: ofd(f.fileno(), fcntl.F_WRLCK), lambda f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB):
    for _ in range(50):
        e = open(one + '/f', 'r+'); c = open(one + '/f', 'r+'); lock(c); c.close(); lock(e); e.close()
";

const WAITS: &str = "
fcntl.lockf(a, fcntl.LOCK_EX)
taker = 'import fcntl,sys; f=open(sys.argv[1],\"r+\"); fcntl.lockf(f, fcntl.LOCK_EX); print(\"got\", flush=True)'
waiter = subprocess.Popen([sys.executable, '-c', taker, two + '/f'], stdout=subprocess.PIPE)
time.sleep(0.5); assert waiter.poll() is None
fcntl.lockf(a, fcntl.LOCK_UN); assert waiter.stdout.readline() == b'got\\n'; waiter.wait()
fcntl.lockf(a, fcntl.LOCK_EX)
class Alarm(Exception): pass
def ring(*_): raise Alarm
signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    fcntl.lockf(b, fcntl.LOCK_EX); assert False, 'got what is held'
except Alarm: pass
fcntl.lockf(a, fcntl.LOCK_UN); fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
";

const SQLITE: &str = "
import sqlite3
db = sqlite3.connect(one + '/db'); db.execute('create table t (who text, n integer)'); db.commit(); db.close()
writer = '''
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + \"/db\", timeout=120)
for n in range(40):
    db.execute(\"insert into t values (?, ?)\", (sys.argv[2], n)); db.commit()
'''
jobs = [(one, 'a'), (two, 'b'), (one, 'c'), (two, 'd')]
writers = [subprocess.Popen([sys.executable, '-c', writer, mount, who]) for mount, who in jobs]
assert all([w.wait() == 0 for w in writers])
for mount in one, two:
    db = sqlite3.connect(mount + '/db')
    assert db.execute('select count(*), count(distinct who), sum(n) from t').fetchone() == (160, 4, 4 * 780)
    assert db.execute('pragma integrity_check').fetchone() == ('ok',)
    db.close()
";
