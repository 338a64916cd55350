//! PostgreSQL over our mounts, a database that none of us wrote: while the server is killed nobody hears of it; and after a crash
//! of its own, or of the mount's daemon, it recovers, on this mount or on another, and has all that it said was committed.

mod clients;
mod cluster;

use crate::fixture::{Served, run_in};
use anyhow::{Context, Result, ensure};
use clients::{Bench, Clients, History};
use cluster::{Cluster, USER};
use holdfast_lab::{Scale, Trial};
use std::time::{Duration, Instant};

/// The cases: by the server's descriptors, over the network, and with what any server of NFSv4 promises.
pub(crate) fn trials() -> Vec<Trial> {
    type Case = fn(&str, &str) -> Result<()>;
    let cases: [(&str, Case); 3] = [
        ("with_the_server_killed_no_transaction_fails", server_killed),
        ("killed_it_recovers_on_another_mount_and_on_the_same", database_killed),
        ("with_the_daemon_killed_what_was_committed_is_there", daemon_killed),
    ];
    // How it is mounted, and how the second time.
    let ways = [
        ("local", "", ""),
        ("network", "nolocal", "nolocal"),
        ("mixed", "", "nolocal"),
        ("delegated", "cache=delegations", "cache=delegations"),
    ];
    let mut trials = Vec::new();
    for (way, first, second) in ways {
        for (name, run) in cases {
            trials.push(
                Trial::new(format!("postgres::{name}::{way}"), move || run(first, second)).limit(LIMIT),
            );
        }
    }
    trials
}

/// A server whose export is the user's that PostgreSQL runs as.
fn served() -> Result<Served> {
    let served = Served::new()?;
    std::os::unix::fs::chown(served.share(), Some(USER), Some(USER))?;
    Ok(served)
}

/// A server that is killed is away for so long.
const AWAY: Duration = Duration::from_secs(1);
/// Nothing is committed for so long: twice grace and a lease, and more.
const STUCK: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(20);
/// With delegations alone making it takes fifty thousand round trips.
const LIMIT: Duration = Duration::from_secs(900);

fn kill_server(served: &mut Served) -> Result<()> {
    served.server.kill()?;
    std::thread::sleep(AWAY);
    served.server.restart()
}

fn server_killed(first: &str, _: &str) -> Result<()> {
    let scale = Scale::from_env();
    let (seconds, stretch) = (scale.pick(25, 180), Duration::from_secs(scale.pick(5, 10)));
    let mut served = served()?;
    let mount = served.mount(first)?;
    let mut cluster = Cluster::find()?;
    // While it is made, too: by then some of its files have been written, and some not.
    let mut making = cluster.begin_init(&mount.path())?;
    std::thread::sleep(Duration::from_millis(700));
    kill_server(&mut served)?;
    making.succeeds().with_context(|| mount.log())?;
    cluster.start(&mount.path())?;
    let mut filling = Bench::fill(&cluster)?;
    std::thread::sleep(Duration::from_millis(700));
    kill_server(&mut served)?;
    filling.succeeds().with_context(|| mount.log())?;

    let mut bench = Bench::begin(&cluster, seconds)?;
    let mut kills = 0;
    while goes_on(&mut bench, stretch).with_context(|| format!("after {kills} kills\n{}", mount.log()))? {
        kill_server(&mut served)?;
        kills += 1;
    }
    let committed = bench.end().with_context(|| format!("after {kills} kills\n{}", cluster.log()))?;
    ensure!(kills > 1, "the load was over after {kills} kills");
    println!("     {committed} transactions, {kills} kills");
    let is_whole = |cluster: &Cluster| -> Result<()> {
        let count = cluster.balanced()?;
        ensure!(count == committed, "{committed} transactions were committed, {count} are there");
        cluster.check_indexes()
    };
    is_whole(&cluster)?;
    cluster.stop()?;
    mount.check_alive()?;
    mount.unmount(&[])?;
    // On the server itself it is the same.
    cluster.check_sums(&served.share())?;
    cluster.start(&served.share())?;
    is_whole(&cluster)?;
    cluster.stop()
}

/// Lets the load work between two kills: for a while, and until it has got on with something: the first second that is told of
/// may be one from before. Whether it still works then.
fn goes_on(bench: &mut Bench, stretch: Duration) -> Result<bool> {
    let (since, before) = (Instant::now(), bench.busy_seconds());
    while bench.is_running()? && (since.elapsed() < stretch || bench.busy_seconds() < before + 2) {
        ensure!(since.elapsed() < STUCK, "nothing goes on");
        std::thread::sleep(POLL);
    }
    bench.is_running()
}

/// Lets clients commit so many transactions.
fn commits(clients: &Clients, more: u64) -> Result<()> {
    let (since, before) = (Instant::now(), clients.acknowledged());
    while clients.acknowledged() < before + more {
        ensure!(since.elapsed() < STUCK, "of {more} transactions only {}", clients.acknowledged() - before);
        ensure!(clients.are_running(), "clients ended by themselves");
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// A load under which it is killed.
fn transactions() -> u64 {
    Scale::from_env().pick(200, 500)
}

fn database_killed(first: &str, second: &str) -> Result<()> {
    let served = served()?;
    let mounts = [served.mount(first)?, served.mount(second)?];
    let mut cluster = Cluster::find()?;
    cluster.begin_init(&mounts[0].path())?.succeeds()?;
    cluster.start(&mounts[0].path())?;
    Bench::fill(&cluster)?.succeeds()?;
    let mut history = History::default();
    // Another mount, the same again, and back.
    for next in [1, 1, 0, 0].repeat(Scale::from_env().pick(1, 5)) {
        let clients = Clients::begin(&cluster, &history)?;
        commits(&clients, transactions()).with_context(|| cluster.log())?;
        cluster.is_refused(&mounts[next].path())?;
        cluster.kill()?;
        history.add(clients.end()?);
        cluster.start(&mounts[next].path())?;
        history.check(&cluster).with_context(|| format!("it was started on mount {next}"))?;
    }
    println!("     {} transactions", history.acknowledged());
    cluster.stop()?;
    for mount in &mounts {
        mount.check_alive()?;
        mount.unmount(&[])?;
    }
    is_whole_at_the_server(&served, (cluster, history))
}

fn daemon_killed(first: &str, second: &str) -> Result<()> {
    let served = served()?;
    let mut mount = served.mount(first)?;
    let mut cluster = Cluster::find()?;
    cluster.begin_init(&mount.path())?.succeeds()?;
    cluster.start(&mount.path())?;
    Bench::fill(&cluster)?.succeeds()?;
    let mut history = History::default();
    for options in [second, first].repeat(Scale::from_env().pick(1, 5)) {
        let clients = Clients::begin(&cluster, &history)?;
        commits(&clients, transactions()).with_context(|| cluster.log())?;
        run_in(&served.share(), "kill -KILL $1", &[&mount.daemon().to_string()])?;
        mount.wait_end()?;
        // It may have noticed by itself; what is left of it has lost its files.
        cluster.kill()?;
        history.add(clients.end()?);
        mount = served.mount(options)?;
        cluster.start(&mount.path())?;
        history.check(&cluster)?;
    }
    println!("     {} transactions", history.acknowledged());
    cluster.stop()?;
    mount.check_alive()?;
    mount.unmount(&[])?;
    is_whole_at_the_server(&served, (cluster, history))
}

/// What the mounts have left is whole where it is served from.
fn is_whole_at_the_server(served: &Served, (mut cluster, mut history): (Cluster, History)) -> Result<()> {
    cluster.check_sums(&served.share())?;
    cluster.start(&served.share())?;
    history.check(&cluster)?;
    cluster.stop()
}
