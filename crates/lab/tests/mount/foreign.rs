//! Mounts of other people's servers: locks of every kind, and a restart under what is open, written and locked.

use crate::fixture::{Served, run_in};
use crate::linux;
use crate::locks::PRELUDE;
use crate::sides::Side;
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, Guest, Kernel, Mount, Trial};
use std::path::Path;
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::new("foreign::locks_of_every_kind::ganesha", || ganesha(false)?.then(locks)),
        Trial::new("foreign::a_file_is_data_throughout_where_the_server_cannot_say", holes),
        Trial::new("foreign::a_restart_under_what_is_open_written_and_locked::ganesha", || {
            ganesha(true)?.then(restart)
        }),
    ];
    let cases: [(&str, Case); 2] = [
        ("foreign::locks_of_every_kind::linux", locks),
        ("foreign::a_restart_under_what_is_open_written_and_locked::linux", restart),
    ];
    let kernel = Kernel::newest().map_err(|lack| lack.to_string());
    trials.extend(cases.into_iter().map(|(name, case)| match kernel.clone() {
        Ok(kernel) => Trial::new(name, move || served_by_linux(&kernel)?.then(case)),
        Err(lack) => Trial::not_run(name, lack),
    }));
    trials
}

/// The least that Linux takes, and its grace is as long.
const LEASE_SECONDS: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

type Case = fn(&Stranger) -> Result<()>;

/// A server that is not ours.
enum Stranger {
    Ganesha(std::cell::RefCell<Served>),
    Linux(Guest),
}

fn ganesha(has_grace: bool) -> Result<Stranger> {
    let served = Served::foreign(Target::Ganesha, FsType::Xfs, (LEASE_SECONDS, has_grace))?;
    Ok(Stranger::Ganesha(served.into()))
}

fn served_by_linux(kernel: &Kernel) -> Result<Stranger> {
    linux::served_again(kernel).map(Stranger::Linux)
}

impl Stranger {
    fn then(self, case: Case) -> Result<()> {
        case(&self)?;
        match self {
            Self::Ganesha(served) => served.into_inner().server.check_alive(),
            Self::Linux(guest) => {
                // Whether it was told to or not.
                guest.signal("restart")?;
                guest.signal("done")?;
                guest.wait()?.success().map(drop)
            }
        }
    }

    fn mount(&self, options: &str) -> Result<Mount> {
        match self {
            Self::Ganesha(served) => served.borrow().mount(options),
            Self::Linux(guest) => Mount::of(&format!("{}:/d", guest.address()), options),
        }
    }

    /// Linux's server has who may reclaim kept by a program (`nfsdcld`), which the guest has not: locks are lost, and that is told.
    const fn knows_its_clients(&self) -> bool {
        matches!(self, Self::Ganesha(_))
    }

    fn restart(&self) -> Result<()> {
        match self {
            Self::Ganesha(served) => {
                let mut served = served.borrow_mut();
                served.server.kill()?;
                // It tells its lives apart by the second in which they began: in the same one it gives its clients and sessions
                // the numbers of before, and who comes back to it cannot know.
                std::thread::sleep(Duration::from_secs(1));
                served.server.restart()
            }
            Self::Linux(guest) => {
                guest.signal("restart")?;
                guest.wait_for("serving again\n", PATIENCE)
            }
        }
    }
}

/// NFSv4.1 has no SEEK.
fn holes() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("vers=4.1,cache=none")?;
    let script = "
import errno, os
fd = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 1 << 20); os.pwrite(fd, b'x', 1 << 19); os.fsync(fd)
assert os.lseek(fd, 5, os.SEEK_DATA) == 5 and os.lseek(fd, 5, os.SEEK_HOLE) == 1 << 20
for how in os.SEEK_DATA, os.SEEK_HOLE:
    try: os.lseek(fd, 1 << 20, how); assert False
    except OSError as e: assert e.errno == errno.ENXIO, e
";
    run_in(&mount.path(), &format!("python3 - <<'E'\n{script}\nE\ncp --sparse=always f g; cmp f g"), &[])?;
    mount.check_alive()
}

fn locks(stranger: &Stranger) -> Result<()> {
    let (one, other) = (stranger.mount("")?, stranger.mount("")?);
    let (first, second) = (one.path(), other.path());
    let (first, second) = (first.to_string_lossy(), second.to_string_lossy());
    let script = format!("python3 - \"$@\" <<'E'\n{PRELUDE}{KINDS}\nE\n");
    run_in(Path::new("/"), &script, &[&first, &second])
        .with_context(|| format!("{}\n{}", one.log(), other.log()))?;
    one.check_alive()?;
    other.check_alive()
}

/// Nobody else gets what is locked from the server that comes after, where it knows who had it, and what was written is there.
fn restart(stranger: &Stranger) -> Result<()> {
    let (mount, elsewhere) = (stranger.mount("nolocal")?, stranger.mount("")?);
    let log = || format!("{}\n{}", mount.log(), elsewhere.log());
    let (one, third) = (Side::here(&mount.path())?, Side::here(&elsewhere.path())?);
    for name in ["ranges", "flocked", "theirs"] {
        one.put(name, "before")?;
    }
    let of_one: [&[&str]; 2] = [&["lock", "ranges", "write", "0", "10"], &["flock", "flocked"]];
    let of_third: &[&str] = &["lock", "theirs", "write", "0", "0"];
    of_one.into_iter().try_for_each(|lock| one.shows(lock, "granted"))?;
    third.shows(of_third, "granted")?;
    let writer = "python3 -c 'import sys\nf = open(\"written\", \"w\"); f.write(\"before \"); f.flush()\n\
                  print(\"open\", flush=True); sys.stdin.readline()\nf.write(\"after\"); f.close()'";
    let script = format!("exec 3< <(sleep 0.5; echo go)\n{writer} <&3\ncat written");
    let written = std::thread::scope(|scope| -> Result<String> {
        let writer = scope.spawn(|| run_in(&mount.path(), &script, &[]));
        stranger.restart()?;
        let restarted = Instant::now();
        // Its grace is as long as a lease.
        while stranger.knows_its_clients()
            && restarted.elapsed() < Duration::from_secs(u64::from(LEASE_SECONDS + 2))
        {
            of_one.into_iter().try_for_each(|lock| third.shows(lock, "refused")).with_context(log)?;
            one.shows(of_third, "refused").with_context(log)?;
        }
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?
    })?;
    ensure!(written.ends_with("before after"), "{written}");
    let seen = run_in(&elsewhere.path(), "cat written ranges", &[])?;
    ensure!(seen == "before afterbefore", "{seen}");
    one.end()?;
    of_one.into_iter().try_for_each(|lock| third.shows_soon(lock, "granted", PATIENCE)).with_context(log)?;
    third.end()?;
    let are_lost = log().contains("lock, which others may have had meanwhile");
    ensure!(are_lost != stranger.knows_its_clients(), "lost: {are_lost}\n{}", log());
    mount.check_alive()?;
    elsewhere.check_alive()
}

const KINDS: &str = "
SH, EX, UN, NB = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN, fcntl.LOCK_NB
def posix(f, how, length=0, start=0): fcntl.lockf(f, how if how == UN else how | NB, length, start)
def flock(f, how): fcntl.flock(f, how if how == UN else how | NB)
def soon(act):
    end = time.time() + 10
    while refused(act):
        assert time.time() < end, 'still held'
        time.sleep(0.02)
KINDS = {SH: fcntl.F_RDLCK, EX: fcntl.F_WRLCK, UN: fcntl.F_UNLCK}
# Shared beside shared, upgraded when alone, and given down again.
for lock in posix, flock, lambda f, how: ofd(f.fileno(), KINDS[how]):
    lock(a, SH); lock(b, SH); assert refused(lambda: lock(a, EX)); assert refused(lambda: lock(b, EX))
    lock(b, UN); lock(a, EX); assert refused(lambda: lock(b, SH)); assert refused(lambda: lock(b, EX))
    lock(a, SH); lock(b, SH); lock(a, UN); lock(b, EX); assert refused(lambda: lock(a, SH)); lock(b, UN)
# Ranges: in the middle of one that is held.
posix(a, EX, 30, 0); posix(a, UN, 10, 10); posix(b, EX, 10, 10)
assert refused(lambda: posix(b, SH, 1, 9)); assert refused(lambda: posix(b, SH, 1, 20)); posix(a, UN); posix(b, UN)
# One process, two descriptors of different access, either first; all ends with the close of one.
for first, second in (os.O_RDONLY, os.O_RDWR), (os.O_RDWR, os.O_RDONLY), (os.O_WRONLY, os.O_RDONLY):
    x, y = os.open(one + '/f', first), os.open(one + '/f', second)
    for fd, access in ((x, first), (y, second), (x, first)):
        if access != os.O_WRONLY: posix(fd, SH, 10, 0)
        if access != os.O_RDONLY: posix(fd, EX, 10, 20); posix(fd, EX, 10, 0)
    assert refused(lambda: posix(b, EX, 10, 0)); assert refused(lambda: posix(b, EX, 10, 20))
    os.close(y); soon(lambda: posix(b, EX)); posix(b, UN); os.close(x)
# One process, several files.
files = [open(one + '/g%d' % n, 'w+') for n in range(4)]; theirs = [open(two + '/g%d' % n, 'r+') for n in range(4)]
for lock in posix, flock:
    for _ in range(3):
        for f in files: lock(f, EX)
        for f in theirs: assert refused(lambda: lock(f, SH))
        for f in files: lock(f, UN)
        for f in theirs: lock(f, EX); lock(f, UN)
# Whoever ends a descriptor ends what he locked through it, while others of the file live.
for _ in range(10):
    for lock in flock, lambda f, how: ofd(f.fileno(), KINDS[how]):
        c, d = open(one + '/f', 'r+'), open(one + '/f', 'r+')
        lock(c, EX); c.close(); lock(d, EX); assert refused(lambda: lock(b, SH)); d.close(); soon(lambda: lock(b, EX)); lock(b, UN)
";
