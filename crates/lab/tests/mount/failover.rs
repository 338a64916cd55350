//! Servers that take each other's place: over the same directory and state, at other addresses.

use crate::failing::{LIMIT, LOAD, bash, has_worked};
use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result, anyhow, ensure};
use holdfast_lab::{FsType, LoopFs, Mount, Scale, ServerUnderTest, Trial};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [("all", ""), ("delegations", ",cache=delegations"), ("none", ",cache=none")];
    let mut trials: Vec<_> = ways
        .into_iter()
        .map(|(way, options)| {
            Trial::new(format!("failover::a_peer_takes_over_under_load::{way}"), move || taken_over(options))
                .limit(LIMIT)
        })
        .collect();
    trials.extend(ways.into_iter().map(|(way, options)| {
        let name = format!("failover::who_works_hardly_waits_longer_than_for_the_peer_to_come::{way}");
        Trial::new(name, move || stalled(options)).limit(LIMIT)
    }));
    trials.extend([
        Trial::new("failover::a_server_named_while_all_are_away_is_gone_to", named_late),
        Trial::new("failover::what_was_fsynced_before_both_died_is_there", both_die),
        Trial::new("failover::servers_are_added_shown_and_removed", administered),
    ]);
    trials
}

/// A directory, the state of whoever serves it, and two who may: never both at a time.
struct Peers {
    first: ServerUnderTest,
    second: ServerUnderTest,
    state: PathBuf,
    filesystem: LoopFs,
}

impl Peers {
    /// The first one runs.
    fn new() -> Result<Self> {
        Self::with_lease(10)
    }

    fn with_lease(seconds: u32) -> Result<Self> {
        let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
        let (share, state) = (filesystem.path().join("share"), filesystem.path().join("state"));
        std::fs::create_dir(&share)?;
        let builder = ServerUnderTest::builder(&share).state_dir(&state).lease_seconds(seconds);
        // Started once, so that it has a port; what it found there was nobody's.
        let mut second = builder.clone().start()?;
        second.kill()?;
        let first = builder.start()?;
        Ok(Self { first, second, state, filesystem })
    }

    fn mount(&self, options: &str) -> Result<Mount> {
        let second = self.second.port();
        Mount::new(self.first.port(), "/share", &format!("server=127.0.0.1:{second}{options}"))
    }

    fn share(&self) -> PathBuf {
        self.filesystem.path().join("share")
    }

    /// The one that runs is killed, and after a while the other one starts.
    fn take_over(&mut self, from_first: bool) -> Result<()> {
        let (old, new) = match from_first {
            true => (&mut self.first, &mut self.second),
            false => (&mut self.second, &mut self.first),
        };
        old.kill()?;
        std::thread::sleep(Duration::from_millis(200));
        new.restart()
    }
}

/// Takeovers that are measured, after a first one that is not.
const MEASURED: usize = 4;

/// How much longer than for the peer to be ready who works may wait, most of the times: for a connection, for sessions
/// and promises, for the end of grace when all who are on record have said that they are done. Neither grace must be waited
/// for, which is as long as the lease, nor that the lease is to be renewed, which is after a third of it. An idle host takes a
/// small part of that, which the case prints.
const WAIT_MAX: Duration = Duration::from_secs(5);
const LEASE_SECONDS: u32 = 60;

fn stalled(options: &str) -> Result<()> {
    let mut peers = Peers::with_lease(LEASE_SECONDS)?;
    let mount = peers.mount(options)?;
    let (path, is_over) = (mount.path(), AtomicBool::new(false));
    let mut outages = Vec::new();
    let slow = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&path, &is_over));
        let done = (0..=MEASURED).try_for_each(|n| {
            std::thread::sleep(Duration::from_secs(1));
            let started = Instant::now();
            peers.take_over(n.is_multiple_of(2))?;
            outages.push((started, Instant::now()));
            // It is heard of by then; or the measuring says so.
            std::thread::sleep(Duration::from_secs(3));
            Ok(())
        });
        is_over.store(true, Ordering::SeqCst);
        let slow = worker.join().map_err(|_| anyhow!("the worker panicked"))?;
        done.and(slow)
    })?;
    let mut waits: Vec<Duration> = Vec::new();
    for (killed, ready) in outages.iter().skip(1) {
        let over = slow.iter().filter(|(from, to)| from < ready && to > killed).map(|(_, to)| *to).max();
        let over = over.with_context(|| format!("nobody waited for the peer\n{}", mount.log()))?;
        waits.push(over.saturating_duration_since(*ready));
    }
    println!("     waited after the peer was ready: {waits:.2?}");
    waits.sort_unstable();
    ensure!(waits[waits.len() / 2] < WAIT_MAX, "{waits:?}\n{}", mount.log());
    mount.unmount(&[])
}

/// Writes a few files anew and has each put on the disk; says from when to when each took that took long.
fn work(path: &Path, is_over: &AtomicBool) -> Result<Vec<(Instant, Instant)>> {
    let mut slow = Vec::new();
    let mut number = 0_u64;
    while !is_over.load(Ordering::SeqCst) {
        let started = Instant::now();
        let mut file = File::create(path.join(format!("f{}", number % 8)))?;
        file.write_all(b"content")?;
        file.sync_all()?;
        if started.elapsed() > Duration::from_millis(100) {
            slow.push((started, Instant::now()));
        }
        number += 1;
    }
    Ok(slow)
}

fn taken_over(options: &str) -> Result<()> {
    let mut peers = Peers::new()?;
    let mount = peers.mount(options)?;
    let rounds = Scale::from_env().pick(60, 600);
    let mut load = bash(&mount.path(), LOAD, &[&rounds.to_string()])?;
    let mut taken = 0_u32;
    while has_worked(&mut load, &peers.share(), taken).with_context(|| mount.log())? {
        peers.take_over(taken.is_multiple_of(2))?;
        taken += 1;
        ensure!(taken < 200, "the load does not end: {}", mount.log());
    }
    let output = load.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "after {taken} times: {said}\n{}", mount.log());
    ensure!(taken > 0, "the load was over before the first server was killed");
    mount.check_alive()?;
    mount.unmount(&[])?;
    run_in(&peers.share(), "[ \"$(cat d*/b d*/e | wc -l)\" = $((4 * $1)) ]", &[&rounds.to_string()]).map(drop)
}

/// Nothing queued is lost while the client lives, however long nobody serves: the server that is named then gets it.
fn named_late() -> Result<()> {
    let mut peers = Peers::new()?;
    let mount = Mount::new(peers.first.port(), "/share", "")?;
    run_in(&mount.path(), "for i in $(seq 1 300); do echo $i >f$i; done", &[])?;
    peers.first.kill()?;
    // These return before anybody has heard of them, as long as promises are held.
    let mut working = bash(&mount.path(), "for i in $(seq 301 600); do echo $i >f$i; done; sync f600", &[])?;
    peers.second.restart()?;
    std::thread::sleep(Duration::from_secs(1));
    ensure!(working.try_wait()?.is_none(), "it was done without a server");
    let name = format!("127.0.0.1:{}", peers.second.port());
    let started = Instant::now();
    let added = mount.command()?.args(["mount", "servers", "add", &name]).arg(mount.path()).output()?;
    ensure!(added.status.success(), "{added:?}");
    let output = working.wait_with_output()?;
    ensure!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), mount.log());
    ensure!(started.elapsed() < Duration::from_secs(30), "it took {:?} to be found", started.elapsed());
    mount.unmount(&[])?;
    let left = run_in(&peers.share(), "cat f* | sort -n | uniq | wc -l", &[])?;
    ensure!(left.trim() == "600", "{left} files\n{}", mount.log());
    Ok(())
}

/// The client dies with the server: what it was told to be on disk is.
fn both_die() -> Result<()> {
    let mut peers = Peers::new()?;
    let mount = peers.mount("")?;
    let work = "for i in $(seq 1 50); do echo $i >f$i; sync f$i; done; sync .; for i in $(seq 1 50); do echo $i >g$i; done";
    run_in(&mount.path(), work, &[])?;
    peers.first.kill()?;
    run_in(&peers.share(), "kill -KILL $1", &[&mount.daemon().to_string()])?;
    mount.wait_end()?;
    peers.second.restart()?;
    let whole = "for i in $(seq 1 50); do [ \"$(cat f$i)\" = $i ]; if [ -e g$i ]; then [ \"$(cat g$i)\" = $i ]; fi; done";
    let again = Mount::new(peers.second.port(), "/share", "")?;
    run_in(&again.path(), whole, &[])?;
    ensure!(peers.state.exists(), "the state lies elsewhere");
    Ok(())
}

fn administered() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let servers = |arguments: &[&str]| -> Result<(bool, String)> {
        let output =
            mount.command()?.args(["mount", "servers"]).args(arguments).arg(mount.path()).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    };
    let own = format!("127.0.0.1:{}", served.server.port());
    let (done, said) = servers(&["remove", &own])?;
    ensure!(!done && said.contains("only server"), "{said}");
    ensure!(servers(&["add", "127.0.0.1:1"])?.0, "not added");
    let (done, said) = servers(&["add", "127.0.0.1:1"])?;
    ensure!(!done && said.contains("already"), "{said}");
    let (_, said) = servers(&["show"])?;
    let lines: Vec<_> = said.lines().collect();
    ensure!(lines.iter().any(|line| line.contains(&own) && line.contains("in use")), "{said}");
    ensure!(lines.iter().any(|line| line.contains("127.0.0.1:1") && !line.contains("in use")), "{said}");
    std::fs::write(mount.path().join("file"), "content")?;
    // The one in use goes: what is left is tried, and does not answer; the way back is to name the first again.
    ensure!(servers(&["remove", &own])?.0, "not removed");
    ensure!(servers(&["add", &own])?.0, "not added again");
    mount.sync()?;
    ensure!(std::fs::read(served.share().join("file"))? == b"content", "not on the server");
    ensure!(servers(&["remove", "127.0.0.1:1"])?.0, "the other not removed");
    mount.check_alive()
}
