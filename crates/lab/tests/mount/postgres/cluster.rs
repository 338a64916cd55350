//! A cluster of our own of Debian's PostgreSQL: its data directory is wherever it is told, its socket and its log are in a scratch
//! directory. Debian's cluster, where there is one, is left alone.

use anyhow::{Context, Result, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::{Missing, missing, process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whom it runs as, as it refuses root: nobody.
pub(super) const USER: u32 = 65534;
/// Where Debian puts one directory a version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Recovery from a crash, with a lease and grace to wait for.
const START_PATIENCE: Duration = Duration::from_secs(120);
const END_PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Each question is a process, here and there.
const ASK: Duration = Duration::from_millis(200);

/// Much goes to its files, and soon: little is kept in memory, its log goes round in files of a MiB, checkpoints are close.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "shared_buffers=8MB",
    "min_wal_size=4MB",
    "max_wal_size=16MB",
    "checkpoint_timeout=30s",
    "autovacuum_naptime=5s",
    "log_checkpoints=on",
    // Where one of its processes dies it ends, and says so.
    "restart_after_crash=off",
];

/// It, running or not.
pub(super) struct Cluster {
    programs: PathBuf,
    scratch: Scratch,
    running: Option<Child>,
}

/// One of its programs, at work; it says what it has to say into a file.
pub(super) struct Working {
    child: Child,
    said: PathBuf,
}

impl Working {
    /// Waits for its end.
    ///
    /// Errors with what it said, where it failed.
    pub(super) fn succeeds(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        ensure!(status.success(), "{status}: {}", process::tail(&said, 20));
        Ok(())
    }
}

impl Cluster {
    /// The newest version that Debian has installed.
    pub(super) fn find() -> Result<Self> {
        let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        let programs = versions
            .filter_map(|entry| {
                Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin")))
            })
            .filter(|(_, programs)| programs.join("postgres").is_file())
            .max()
            .ok_or_else(|| {
                Missing::new("PostgreSQL", "scripts/install-tests --soak, or apt-get install postgresql")
            })?
            .1;
        missing::program("setpriv", "util-linux")?;
        let scratch = Scratch::new("postgres")?;
        std::os::unix::fs::chown(scratch.path(), Some(USER), Some(USER))?;
        Ok(Self { programs, scratch, running: None })
    }

    /// One of its programs that only asks it.
    pub(super) fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.args(["-h", &self.scratch.path().to_string_lossy(), "-U", "postgres"]);
        command.env_remove("PGDATABASE").env("PGOPTIONS", "-c client_min_messages=warning");
        command.stdin(Stdio::null());
        command
    }

    /// A program that is to go on by itself, and what it says.
    pub(super) fn spawn(&self, mut command: Command, name: &str) -> Result<Working> {
        let said = self.scratch.path().join(name);
        let out = File::create(&said)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        Ok(Working { child, said })
    }

    /// One of its programs that works on files, in this directory, as the user.
    fn owner(&self, program: &str, place: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &USER.to_string(), "--regid", &USER.to_string(), "--clear-groups", "--"]);
        command.arg(self.programs.join(program)).args(["-D", "data"]).current_dir(place);
        command.env("LC_ALL", "C");
        command
    }

    /// Begins to make it in this directory. Its pages have checksums.
    pub(super) fn begin_init(&self, place: &Path) -> Result<Working> {
        let mut command = self.owner("initdb", place);
        command.args(["-U", "postgres", "-A", "trust", "-k", "-E", "UTF8", "--wal-segsize=1"]);
        self.spawn(command, "initdb")
    }

    /// Starts it in this directory, and waits until it answers.
    pub(super) fn start(&mut self, place: &Path) -> Result<()> {
        ensure!(self.running.is_none(), "it is running already");
        let log = File::options().create(true).append(true).open(self.log_file())?;
        let mut command = self.postgres(place);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = self.running.insert(command.spawn().context("starting setpriv")?).id();
        let started = Instant::now();
        while self.sql("select 1").is_err() {
            let ended = self.running.as_mut().and_then(|child| child.try_wait().transpose()).transpose()?;
            ensure!(ended.is_none(), "it ended by itself, {ended:?}, on {}\n{}", place.display(), self.log());
            ensure!(started.elapsed() < START_PATIENCE, "process {child} does not answer\n{}", self.log());
            std::thread::sleep(ASK);
        }
        Ok(())
    }

    fn postgres(&self, place: &Path) -> Command {
        let mut command = self.owner("postgres", place);
        command.arg("-k").arg(self.scratch.path());
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
    }

    /// That a second one in this directory sees that it is running, and does not start.
    pub(super) fn is_refused(&self, place: &Path) -> Result<()> {
        let output = self.postgres(place).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains("\"postmaster.pid\" already exists"),
            "on {}, where it runs already: {}, {said}",
            place.display(),
            output.status
        );
        Ok(())
    }

    /// Kills all of it (SIGKILL), as where its host dies; waits until nothing of it is left.
    pub(super) fn kill(&mut self) -> Result<()> {
        let mut first = self.running.take().context("it is not running")?;
        // Where it has ended by itself it has waited for the others.
        if first.try_wait()?.is_none() {
            let pid = first.id();
            // So that it starts no more of them while they are counted.
            signal(pid, rustix::process::Signal::STOP)?;
            let started = Instant::now();
            while !process::is_stopped(pid)? {
                ensure!(started.elapsed() < END_PATIENCE, "it goes on after SIGSTOP");
                std::thread::sleep(POLL);
            }
            let others = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            let others = others.split_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>()?;
            first.kill()?;
            for &other in &others {
                // It may just have ended.
                let _ = signal(other, rustix::process::Signal::KILL);
            }
            while others.iter().any(|&other| is_alive(other)) {
                ensure!(started.elapsed() < END_PATIENCE, "of its processes some live on: {others:?}");
                std::thread::sleep(POLL);
            }
        }
        first.wait()?;
        Ok(())
    }

    /// Ends it as an administrator would, with all written down.
    pub(super) fn stop(&mut self) -> Result<()> {
        let mut first = self.running.take().context("it is not running")?;
        signal(first.id(), rustix::process::Signal::INT)?;
        let status = first.wait()?;
        ensure!(status.success(), "it ended with {status}\n{}", self.log());
        Ok(())
    }

    /// What it answers, a line a row.
    pub(super) fn sql(&self, query: &str) -> Result<String> {
        let output =
            self.client("psql").args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", query, "postgres"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{query}: {said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Rows of the history. What moved is the same in all four tables.
    pub(super) fn balanced(&self) -> Result<u64> {
        let said = self.sql(
            "select sum(abalance) from pgbench_accounts; select sum(tbalance) from pgbench_tellers;
             select sum(bbalance) from pgbench_branches; select sum(delta) from pgbench_history;
             select count(*) from pgbench_history",
        )?;
        let numbers = said.lines().map(str::parse).collect::<Result<Vec<i64>, _>>().context(said)?;
        let [accounts, tellers, branches, history, count] = numbers[..] else {
            anyhow::bail!("{numbers:?}");
        };
        ensure!(
            accounts == tellers && tellers == branches && branches == history,
            "accounts, tellers, branches and history differ: {numbers:?}"
        );
        Ok(count.try_into()?)
    }

    /// By its own checker: every row of a table is in its indexes, and these are in order.
    pub(super) fn check_indexes(&self) -> Result<()> {
        let mut command = self.client("pg_amcheck");
        command.args(["--install-missing", "--heapallindexed", "postgres"]);
        self.spawn(command, "amcheck")?.succeeds().context("pg_amcheck")
    }

    /// By its own checker, while it is not running: the checksum of each page.
    pub(super) fn check_sums(&self, place: &Path) -> Result<()> {
        let mut command = self.owner("pg_checksums", place);
        command.arg("--check");
        self.spawn(command, "checksums")?.succeeds().context("pg_checksums")
    }

    /// What it logged last.
    pub(super) fn log(&self) -> String {
        process::tail(&std::fs::read_to_string(self.log_file()).unwrap_or_default(), 40)
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.path().join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.running.is_some() {
            let _ = self.kill();
        }
    }
}

/// Whether it may still do something: nobody may come to wait for one whose parent has gone.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn signal(pid: u32, signal: rustix::process::Signal) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(pid.try_into()?).context("a process without number")?;
    Ok(rustix::process::kill_process(pid, signal)?)
}
