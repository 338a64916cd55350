//! SQLite over our mounts, with each of its two kinds of journal, while servers, daemons and who uses it are killed: whatever it was
//! told is on the disk is there afterwards, and the database is whole.

use crate::failing::LIMIT;
use crate::fixture::{Served, run_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Mount, Scale, Trial};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    type Case = fn(&str, &str) -> Result<()>;
    let cases: [(&str, Case); 3] = [
        ("with_the_server_killed_nobody_hears_of_it", server_killed),
        ("with_the_daemon_killed_what_was_committed_is_there", daemon_killed),
        ("with_its_user_killed_another_mount_recovers_it_and_so_does_the_same", user_killed),
    ];
    let ways = [("", ""), ("_network", "nolocal")];
    let mut trials = Vec::new();
    for (way, options) in ways {
        for mode in ["delete", "wal"] {
            for (name, run) in cases {
                let name = format!("sqlite::{name}::{mode}{way}");
                trials.push(Trial::new(name, move || run(mode, options)).limit(LIMIT));
            }
        }
    }
    trials
}

/// Rows one after the other, each its own transaction, after those that are there. What was committed is written down elsewhere.
/// For a lock that is refused it waits so many seconds.
const WRITER: &str = "
import sqlite3, sys
mode, rows, committed, patience = sys.argv[1:]
with open(committed, 'a') as log:
    db = sqlite3.connect('db', timeout=int(patience))
    assert db.execute(f'pragma journal_mode={mode}').fetchone() == (mode,)
    db.execute('pragma synchronous=extra')
    db.execute('create table if not exists t (n integer primary key, text text)'); db.commit()
    there, = db.execute('select count(*) from t').fetchone()
    for n in range(there + 1, int(rows) + 1):
        db.execute('insert into t values (?, ?)', (n, 'x' * (n % 300))); db.commit()
        log.write(f'{n}\\n'); log.flush()
";

/// That so many rows are there, or a few more, and all as they were written.
const CHECKER: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + '/db', timeout=120)
assert db.execute('pragma integrity_check').fetchone() == ('ok',)
rows = db.execute('select n, length(text) from t order by n').fetchall()
assert rows == [(n, n % 300) for n in range(1, len(rows) + 1)], rows
assert int(sys.argv[2]) <= len(rows) <= int(sys.argv[3]), (len(rows), sys.argv[2:])
print(len(rows), 'rows')
";

/// Nothing is committed for so long: twice grace and a lease, and more.
const STUCK: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(20);

/// How many seconds a writer waits for a lock that somebody may still hold.
const PATIENT: u32 = 120;

/// Of one who is alone, no lock is refused. Nor may it wait once the daemon is gone: in its write-ahead log SQLite takes every error
/// of a lock for one that is held (`unixShmSystemLock`), ENOTCONN of a dead mount too, and would try again for all of its patience.
const ALONE: u32 = 0;

/// More than are written before it is killed.
const MANY: u32 = 10_000_000;

struct Writing {
    writer: Child,
    log: PathBuf,
    rows: u32,
}

/// The last row that is written down as committed.
fn committed(log: &Path) -> u32 {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines().last().and_then(|line| line.parse().ok()).unwrap_or_default()
}

impl Writing {
    fn begin(mount: &Mount, mode: &str, work: &Path, rows: u32, patience: u32) -> Result<Self> {
        let log = work.join("committed");
        let mut command = Command::new("python3");
        command.args(["-c", WRITER, mode, &rows.to_string()]).arg(&log).arg(patience.to_string());
        command.current_dir(mount.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let writer = command.spawn().context("starting python3")?;
        Ok(Self { writer, log, rows })
    }

    /// Waits until so many more rows are committed; false when it has ended.
    fn goes_on(&mut self, more: u32) -> Result<bool> {
        let (before, since) = (committed(&self.log), Instant::now());
        while self.writer.try_wait()?.is_none() && committed(&self.log) < before + more {
            ensure!(since.elapsed() < STUCK, "after {before} rows nothing goes on");
            std::thread::sleep(POLL);
        }
        Ok(self.writer.try_wait()?.is_none())
    }

    /// How it ended, with what it said, and how many rows it had committed.
    fn end(self) -> Result<(bool, String, u32)> {
        let output = self.writer.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.success(), said, committed(&self.log)))
    }
}

fn check(place: &Path, least: u32, most: u32) -> Result<()> {
    let arguments = [&*place.to_string_lossy(), &least.to_string(), &most.to_string()];
    let script = format!("python3 - \"$@\" <<'E'\n{CHECKER}\nE\n");
    let said = run_in(Path::new("/"), &script, &arguments).with_context(|| place.display().to_string())?;
    println!("{}", said.trim());
    Ok(())
}

fn server_killed(mode: &str, options: &str) -> Result<()> {
    let mut served = Served::new()?;
    let (mount, work) = (served.mount(options)?, tempfile::tempdir()?);
    let mut writing = Writing::begin(&mount, mode, work.path(), Scale::from_env().pick(150, 3000), PATIENT)?;
    let mut kills = 0;
    while writing.goes_on(30).with_context(|| mount.log())? {
        served.server.kill()?;
        std::thread::sleep(Duration::from_millis(200));
        served.server.restart()?;
        kills += 1;
    }
    let rows = writing.rows;
    let (is_good, said, committed) = writing.end()?;
    ensure!(is_good, "after {kills} kills: {said}\n{}", mount.log());
    ensure!(kills > 0 && committed == rows, "{committed} rows of {rows} after {kills} kills");
    mount.check_alive()?;
    check(&mount.path(), rows, rows)?;
    mount.unmount(&[])?;
    check(&served.share(), rows, rows)
}

fn daemon_killed(mode: &str, options: &str) -> Result<()> {
    let served = Served::new()?;
    let (mount, work) = (served.mount(options)?, tempfile::tempdir()?);
    let mut writing = Writing::begin(&mount, mode, work.path(), Scale::from_env().pick(150, 3000), ALONE)?;
    ensure!(writing.goes_on(40)?, "it ended by itself: {}", writing.end()?.1);
    run_in(&served.share(), "kill -KILL $1", &[&mount.daemon().to_string()])?;
    mount.wait_end()?;
    // With an error, or of a signal: it has mapped a file.
    let (is_good, _, committed) = writing.end()?;
    ensure!(!is_good, "the daemon was gone, and nobody said so");
    let again = served.mount(options)?;
    // One more may be on the disk, of which nobody was told.
    check(&again.path(), committed, committed + 1)?;
    again.check_alive()?;
    again.unmount(&[])?;
    check(&served.share(), committed, committed + 1)
}

/// In the middle of a transaction, mostly: its journal is left to whoever comes next, and so are its locks to the kernel.
fn user_killed(mode: &str, options: &str) -> Result<()> {
    let served = Served::new()?;
    let (mounts, work) = ([served.mount(options)?, served.mount(options)?], tempfile::tempdir()?);
    let mut at = 0;
    for next in [1, 1, 0, 0] {
        let mut writing = Writing::begin(&mounts[at], mode, work.path(), MANY, PATIENT)?;
        let more = Scale::from_env().pick(30, 600);
        let goes_on = writing.goes_on(more).with_context(|| mounts[at].log())?;
        writing.writer.kill()?;
        let (_, said, committed) = writing.end()?;
        ensure!(goes_on, "it ended by itself: {said}");
        // One more may be on the disk, of which nobody was told.
        check(&mounts[next].path(), committed, committed + 1)
            .with_context(|| format!("from mount {at} to {next}"))?;
        at = next;
    }
    for mount in &mounts {
        mount.check_alive()?;
        mount.unmount(&[])?;
    }
    let committed = committed(&work.path().join("committed"));
    check(&served.share(), committed, committed + 1)
}
