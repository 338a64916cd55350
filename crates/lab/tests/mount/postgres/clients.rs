//! Who works with it: its own load, pgbench; and clients of ours that do the same, and remember of each transaction whether they
//! were told that it is committed.

use super::cluster::{Cluster, Working};
use anyhow::{Context, Result, anyhow, ensure};
use holdfast_lab::{Scale, process};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// As many as the cores that an ordinary host has.
const CLIENTS: u64 = 4;

/// `pgbench`, its own load: transfers, of which each changes three tables and adds to a fourth.
pub(super) struct Bench {
    child: Child,
    /// Seconds in which transactions were committed, as it has told each second.
    busy_seconds: Arc<AtomicU64>,
    told: JoinHandle<String>,
    reported: JoinHandle<String>,
}

/// Branches: each has a hundred thousand accounts of 100 bytes or more.
fn branches() -> u64 {
    Scale::from_env().pick(1, 4)
}

impl Bench {
    /// Begins to make its tables and to fill them.
    pub(super) fn fill(cluster: &Cluster) -> Result<Working> {
        let mut command = cluster.client("pgbench");
        command.args(["-i", "-q", "-s", &branches().to_string(), "postgres"]);
        cluster.spawn(command, "filling")
    }

    /// Begins the load, for so many seconds.
    pub(super) fn begin(cluster: &Cluster, seconds: u64) -> Result<Self> {
        let mut command = cluster.client("pgbench");
        command.args(["-n", "-P", "1", "-c", &CLIENTS.to_string(), "-T", &seconds.to_string(), "postgres"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting pgbench")?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let busy_seconds = Arc::new(AtomicU64::new(0));
        let busy = Arc::clone(&busy_seconds);
        let told = std::thread::spawn(move || {
            lines(err, |line| {
                // "progress: 3.0 s, 512.0 tps, lat 7.800 ms stddev 4.100, 0 failed"
                let rate =
                    line.split(", ").nth(1).and_then(|part| part.strip_suffix(" tps")?.parse::<f64>().ok());
                if rate.is_some_and(|rate| rate > 0.0) {
                    busy.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let reported = std::thread::spawn(move || lines(out, |_| ()));
        Ok(Self { child, busy_seconds, told, reported })
    }

    /// Seconds so far in which transactions were committed.
    pub(super) fn busy_seconds(&self) -> u64 {
        self.busy_seconds.load(Ordering::Relaxed)
    }

    /// Whether it still works.
    pub(super) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for its end: how many transactions were committed.
    ///
    /// Errors when one was not.
    pub(super) fn end(mut self) -> Result<u64> {
        let status = self.child.wait()?;
        let told = self.told.join().map_err(|_| anyhow!("its reader panicked"))?;
        let reported = self.reported.join().map_err(|_| anyhow!("its reader panicked"))?;
        let said = || format!("pgbench: {status}\n{}\n{reported}", process::tail(&told, 30));
        let number = |label: &str| -> Option<u64> {
            let rest = reported.lines().find_map(|line| line.strip_prefix(label))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        ensure!(status.success() && number("number of failed transactions:") == Some(0), "{}", said());
        number("number of transactions actually processed:").with_context(said)
    }
}

/// All lines of an output, each shown once it is there.
fn lines(from: Option<impl std::io::Read>, mut show: impl FnMut(&str)) -> String {
    let mut all = String::new();
    for line in from.map(BufReader::new).into_iter().flat_map(|reader| reader.lines()).map_while(Result::ok) {
        show(&line);
        all.push_str(&line);
        all.push('\n');
    }
    all
}

/// What clients were told of their transactions, over all of their lives.
#[derive(Default)]
pub(super) struct History {
    acknowledged: BTreeSet<u64>,
    /// Begun, and nobody was told how they ended.
    open: BTreeSet<u64>,
    next: u64,
}

impl History {
    /// Transactions of which clients were told that they are committed.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// What clients were told until they ended.
    pub(super) fn add(&mut self, told: Vec<Told>) {
        for Told { acknowledged, open } in told {
            self.next = self.next.max(open.or(acknowledged.last().copied()).unwrap_or_default());
            self.acknowledged.extend(acknowledged);
            self.open.extend(open);
        }
    }

    /// That all that was acknowledged is there, once, and else nothing but what was on its way when it died.
    pub(super) fn check(&mut self, cluster: &Cluster) -> Result<()> {
        let said = cluster.sql("select filler::bigint from pgbench_history order by 1")?;
        let there = said.lines().map(|line| line.trim().parse()).collect::<Result<Vec<u64>, _>>()?;
        ensure!(there.is_sorted_by(|one, next| one < next), "some transactions are there twice");
        let there: BTreeSet<u64> = there.into_iter().collect();
        let lost: Vec<_> = self.acknowledged.difference(&there).collect();
        ensure!(
            lost.is_empty(),
            "committed, and gone: {lost:?}, of {} ({} are there)",
            self.acknowledged.len(),
            there.len()
        );
        let known: BTreeSet<u64> = self.acknowledged.union(&self.open).copied().collect();
        let unknown: Vec<_> = there.difference(&known).collect();
        ensure!(unknown.is_empty(), "nobody asked for these: {unknown:?}");
        ensure!(cluster.balanced()? == there.len() as u64, "it changed while nobody worked");
        // From now on they are there, or not.
        self.acknowledged = there;
        self.open.clear();
        cluster.check_indexes()
    }
}

/// Clients at work, until it dies under them.
pub(super) struct Clients {
    threads: Vec<JoinHandle<Result<Told>>>,
    acknowledged: Arc<AtomicU64>,
}

/// What one client was told.
pub(super) struct Told {
    acknowledged: Vec<u64>,
    open: Option<u64>,
}

impl Clients {
    /// Begins with numbers that nobody has used.
    pub(super) fn begin(cluster: &Cluster, history: &History) -> Result<Self> {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let threads = (0..CLIENTS).map(|client| {
            let mut command = cluster.client("psql");
            command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "postgres"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let psql = command.spawn().context("starting psql")?;
            let (first, count) = (history.next + 1 + client, Arc::clone(&acknowledged));
            Ok(std::thread::spawn(move || work(psql, first, &count)))
        });
        let threads = threads.collect::<Result<_>>()?;
        Ok(Self { threads, acknowledged })
    }

    /// Transactions that they know to be committed.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Whether all of them still work.
    pub(super) fn are_running(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Waits until each has noticed that it has died.
    pub(super) fn end(self) -> Result<Vec<Told>> {
        let join =
            |thread: JoinHandle<Result<Told>>| thread.join().map_err(|_| anyhow!("a client panicked"))?;
        self.threads.into_iter().map(join).collect()
    }
}

/// One transaction after the other, until no answer comes.
fn work(mut psql: Child, first: u64, count: &AtomicU64) -> Result<Told> {
    let (mut to, from) = (psql.stdin.take().context("no input")?, psql.stdout.take().context("no output")?);
    let mut answers = BufReader::new(from).lines();
    let mut told = Told { acknowledged: Vec::new(), open: None };
    for id in (first..).step_by(CLIENTS as usize) {
        told.open = Some(id);
        if to.write_all(transfer(id).as_bytes()).is_err() {
            break;
        }
        match answers.next() {
            Some(Ok(answer)) if answer == id.to_string() => {}
            Some(Ok(answer)) => anyhow::bail!("transaction {id} was answered with {answer}"),
            None | Some(Err(_)) => break,
        }
        told.acknowledged.push(id);
        count.fetch_add(1, Ordering::Relaxed);
    }
    drop(to);
    psql.wait()?;
    Ok(told)
}

/// As pgbench does it, with a number; the last row is said when it is committed.
fn transfer(id: u64) -> String {
    // Scattered, and the same for the same number.
    let chance = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let (account, teller) = (1 + chance % (branches() * 100_000), 1 + chance % (branches() * 10));
    let (branch, delta) = (1 + chance % branches(), i64::try_from(chance % 9999).unwrap_or_default() - 5000);
    format!(
        "begin; update pgbench_accounts set abalance = abalance + {delta} where aid = {account};
         update pgbench_tellers set tbalance = tbalance + {delta} where tid = {teller};
         update pgbench_branches set bbalance = bbalance + {delta} where bid = {branch};
         insert into pgbench_history (tid, bid, aid, delta, mtime, filler)
         values ({teller}, {branch}, {account}, {delta}, current_timestamp, '{id}'); commit;
         select {id};\n"
    )
}
