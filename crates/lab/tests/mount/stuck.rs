//! Processes that wait, in calls of all kinds, for a server that is gone: nobody who is killed stays, a mount that is to give up
//! does so in time, and one that is taken away by force leaves nothing behind.

use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result, bail, ensure};
use holdfast_lab::{Mount, ServerUnderTest, Trial};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A case, by how the server goes away and the options of the mount.
type Run = fn(Gone, &str) -> Result<()>;
const NONE: &str = "cache=none";
/// In which of these ways.
type Ways = &'static [(Gone, &'static str)];

/// The cases: of a server that hangs, and of one that has died.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: Run, gone: Gone, options: &'static str| {
        let (how, mode) = (gone.name(), if options.is_empty() { "all" } else { "none" });
        Trial::new(format!("stuck::{name}::{how}::{mode}"), move || run(gone, options))
    };
    let cases: [(&str, Run, Ways); 3] = [
        (
            "who_waits_for_the_server_is_freed_at_once_when_killed",
            freed,
            &[(Gone::Hangs, ""), (Gone::Dead, ""), (Gone::Hangs, NONE)],
        ),
        ("a_soft_mount_gives_up_every_call_in_time", soft, &[(Gone::Hangs, ""), (Gone::Dead, NONE)]),
        ("a_forced_unmount_frees_all_and_leaves_nothing", forced, &[(Gone::Hangs, "")]),
    ];
    let trials = cases.into_iter().flat_map(|(name, run, ways)| {
        ways.iter().map(move |&(gone, options)| trial(name, run, gone, options))
    });
    trials.collect()
}

/// How a server goes away.
#[derive(Clone, Copy, Debug)]
enum Gone {
    /// Its connections stay, and nothing is said.
    Hangs,
    Dead,
}

impl Gone {
    const fn name(self) -> &'static str {
        match self {
            Self::Hangs => "stopped",
            Self::Dead => "killed",
        }
    }

    fn away(self, server: &mut ServerUnderTest) -> Result<()> {
        match self {
            Self::Hangs => server.pause(),
            Self::Dead => server.kill(),
        }
    }

    fn back(self, server: &mut ServerUnderTest) -> Result<()> {
        match self {
            Self::Hangs => server.resume(),
            Self::Dead => server.restart(),
        }
    }
}

/// What `waiter.py` can wait in.
const CALLS: [&str; 9] = ["read", "fsync", "open", "stat", "readdir", "mkdir", "lock", "mapped", "exec"];
/// That of a lock which another has. It is begun while the server is there.
const HELD_LOCK: &str = "held lock";

/// Nothing of what is asked for is known to the mount before.
const FILES: &str = "
mkdir read fsync open stat readdir mkdir lock mapped exec; touch fsync/file open/unseen stat/unseen readdir/file lock/free lock/held
head -c 8M /dev/zero | tee read/big >mapped/big; cp /bin/true exec/program
";

/// Longer than any case takes: what was promised stays so.
const LEASE_SECONDS: u32 = 60;
/// For a process that was killed, on a busy machine: a lease is longer, and the server is not coming.
const AT_ONCE: Duration = Duration::from_secs(5);
/// For who gets on without the server, to end before it is looked who waits.
const MOMENT: Duration = Duration::from_millis(600);
/// `timeo` and `retrans` of the soft mounts, and the seconds which those make.
const SOFT: &str = "soft,timeo=10,retrans=1";
const SOFT_SECONDS: f64 = 2.0;
/// A busy machine's; and no whole time more.
const SOFT_LATE_SECONDS: f64 = 1.9;

const SIGBUS: i32 = 7;

/// A process that makes one call.
struct Waiter {
    call: &'static str,
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Waiter {
    fn begin(call: &'static str, mount: &Path) -> Result<Self> {
        let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mount/waiter.py");
        let mut command = Command::new("python3");
        command.arg(program).arg(call).arg(mount).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("starting python3")?;
        let said = BufReader::new(process.stdout.take().context("no stdout")?);
        Ok(Self { call, process, said })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn ready(&mut self) -> Result<()> {
        let said = self.line()?;
        ensure!(said == "ready", "{} could not begin: {said:?}", self.call);
        Ok(())
    }

    fn go(&mut self) -> Result<()> {
        let stdin = self.process.stdin.as_mut().context("no stdin")?;
        Ok(stdin.write_all(b"go\n")?)
    }

    fn check_waits(&mut self) -> Result<()> {
        if let Some(status) = self.process.try_wait()? {
            let said = self.line()?;
            bail!("{} did not wait for the server: {status}, {said:?}", self.call);
        }
        Ok(())
    }

    fn end(&mut self, until: Instant) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > until {
                let place = std::fs::read_to_string(format!("/proc/{}/stack", self.process.id()));
                bail!("{} goes on waiting:\n{}", self.call, place.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// All are in the middle of their calls, and the server is gone. Dropped, the mount goes first: nothing waits for it then.
struct Stuck {
    mount: Mount,
    waiters: Vec<Waiter>,
    /// Has the lock.
    _holder: std::fs::File,
    served: Served,
    since: Instant,
}

fn stuck(gone: Gone, options: &str, calls: &[&'static str]) -> Result<Stuck> {
    let mut served = Served::with_lease(LEASE_SECONDS)?;
    run_in(&served.share(), FILES, &[])?;
    let mount = served.mount(&format!("nolocal,{options}"))?;
    let holder = std::fs::File::options().write(true).open(mount.path().join("lock/held"))?;
    rustix::fs::fcntl_lock(&holder, rustix::fs::FlockOperation::LockExclusive)?;
    let waiters: Result<Vec<_>> = calls.iter().map(|call| Waiter::begin(call, &mount.path())).collect();
    let mut waiters = waiters?;
    waiters.iter_mut().try_for_each(Waiter::ready)?;
    // Only this one has to be on its way before; the others must not be.
    for waiter in waiters.iter_mut().filter(|waiter| waiter.call == HELD_LOCK) {
        waiter.go()?;
        std::thread::sleep(MOMENT);
    }
    gone.away(&mut served.server)?;
    let since = Instant::now();
    waiters.iter_mut().filter(|waiter| waiter.call != HELD_LOCK).try_for_each(Waiter::go)?;
    std::thread::sleep(MOMENT);
    waiters.iter_mut().try_for_each(Waiter::check_waits).with_context(|| mount.log())?;
    Ok(Stuck { mount, waiters, _holder: holder, served, since })
}

fn all_calls() -> Vec<&'static str> {
    CALLS.into_iter().chain([HELD_LOCK]).collect()
}

fn freed(gone: Gone, options: &str) -> Result<()> {
    let mut stuck = stuck(gone, options, &all_calls())?;
    for waiter in &mut stuck.waiters {
        let killed = Instant::now();
        waiter.process.kill()?;
        waiter.end(killed + AT_ONCE)?;
        println!("{} was freed after {:.1?}", waiter.call, killed.elapsed());
    }
    let (served, mount) = (&mut stuck.served, &stuck.mount);
    gone.back(&mut served.server)?;
    std::fs::write(mount.path().join("after"), "it works")?;
    mount.sync()?;
    ensure!(served.share().join("after").exists(), "what was written when it was back is not there");
    mount.check_alive()
}

/// Locks are waited for, also by who does not wait for servers.
fn soft(gone: Gone, options: &str) -> Result<()> {
    let options = format!("{SOFT},{options}");
    let mut stuck = stuck(gone, &options, &CALLS)?;
    let (mount, until) = (&stuck.mount, stuck.since + Duration::from_secs_f64(SOFT_SECONDS) + AT_ONCE * 2);
    let mut wrong = Vec::new();
    for waiter in &mut stuck.waiters {
        let status = waiter.end(until).with_context(|| mount.log())?;
        let said = waiter.line()?;
        println!("{}: {said:?}, {status}", waiter.call);
        // There is no call to tell of an error in a program's own memory.
        if waiter.call == "mapped" && status.signal() == Some(SIGBUS) {
            continue;
        }
        let (error, took) = said.split_once(' ').unwrap_or((&said, "0"));
        let took: f64 = took.parse()?;
        // The first call that lists gives `.` and `..`.
        let seconds = if waiter.call == "readdir" { SOFT_SECONDS * 2.0 } else { SOFT_SECONDS };
        let is_in_time = took > SOFT_SECONDS - 0.5 && took < seconds + SOFT_LATE_SECONDS;
        if error != "ETIMEDOUT" || !is_in_time {
            wrong.push(format!("{}: {said} {status}", waiter.call));
        }
    }
    ensure!(wrong.is_empty(), "{wrong:?}\n{}", mount.log());
    mount.check_alive()
}

fn forced(gone: Gone, options: &str) -> Result<()> {
    let mut stuck = stuck(gone, options, &all_calls())?;
    let (mount, begun) = (&stuck.mount, Instant::now());
    // That something was not sent is told, and no success then.
    let output = mount.command()?.args(["umount", "-f"]).arg(mount.path()).output()?;
    ensure!(begun.elapsed() < AT_ONCE, "it took {:?}: {output:?}", begun.elapsed());
    stuck.waiters.iter_mut().try_for_each(|waiter| waiter.end(begun + AT_ONCE).map(drop))?;
    mount.wait_end()?;
    println!("{}; all had ended after {:.1?}", output.status, begun.elapsed());
    ensure!(begun.elapsed() < AT_ONCE, "the daemon took {:?} to end", begun.elapsed());
    let place = mount.path().to_string_lossy().into_owned();
    ensure!(!std::fs::read_to_string("/proc/self/mounts")?.contains(&place), "it is still mounted");
    Ok(())
}
