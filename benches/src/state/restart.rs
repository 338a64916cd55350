//! How long a client of 4.2 with state stands still while the server is started again, planned and killed.

use super::print::restarts;
use super::worker::Worker;
use crate::client::nfs41::Crowd;
use crate::growth::fill;
use crate::rival::{Contender, Server};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long clients work before a server is started again, and after.
const CALM: Duration = Duration::from_millis(500);
/// No restart takes longer, unless it failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Operations after which a client has surely gone on: some that were under way may have been answered before.
const GONE_ON: u64 = 30;
/// Between two looks at the server's log.
const LOOK: Duration = Duration::from_millis(5);
/// What a server needs besides those of the crowd's opens and locks, each connection twice for a moment.
const DESCRIPTORS_BESIDE: u64 = 5000;
/// The directory of the crowd's files.
const CROWD: &str = "crowd";

/// Planned and killed, on a server of their own in `at`.
///
/// Errors when a restart fails, or a client has lost something by it.
pub(super) fn measure(rounds: usize, export: &Path, at: &Path) -> Result<()> {
    let mut server = Contender::HoldfastAsync.start(export, at)?;
    planned("planned restart", &server, (rounds, at), || Ok(()))?;
    let mut stalls = Vec::new();
    for _ in 0..rounds {
        let worker = Worker::begin(server.ports.nfs)?;
        std::thread::sleep(CALM);
        server.kill();
        server = Contender::HoldfastAsync.start_again(export, at)?;
        worker.go_on(GONE_ON, PATIENCE)?;
        std::thread::sleep(CALM);
        let work = worker.end()?;
        ensure!(work.reclaims == 1, "{} reclaims after a kill", work.reclaims);
        stalls.push(work.stall);
    }
    restarts("SIGKILL and start: longest time between two operations done of a client with state", stalls);
    Ok(())
}

/// Planned, while so many clients with a session, an open and a lock each are there as well.
///
/// Errors as [`measure`]; also when one of them has lost something.
pub(super) fn among_many(clients: usize, rounds: usize, export: &Path, at: &Path) -> Result<()> {
    fill(&export.join(CROWD), Crowd::FILES as u64)?;
    let contender = contender_for(clients);
    let server = contender.start(export, at)?;
    let started = Instant::now();
    let mut crowd = Crowd::gather(server.ports.nfs, CROWD, clients).context("gathering clients")?;
    println!(
        "{}: {clients} clients on {} connections came within {:.1} s; the server has {} descriptors",
        contender.name(),
        crowd.connections(),
        started.elapsed().as_secs_f64(),
        std::fs::read_dir(format!("/proc/{}/fd", server.pid()))?.count()
    );
    crowd
        .check()
        .context("they took longer to come than a lease is long, or one has lost something since")?;
    let check = || crowd.check().context("after a planned restart");
    planned(&format!("planned restart among {clients} clients"), &server, (rounds, at), check)
}

/// Each open has a descriptor, and each lock too, unless no local process is to meet it. Where a process may not have so
/// many, the locks do without.
fn contender_for(clients: usize) -> Contender {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let wanted = 2 * clients as u64 + DESCRIPTORS_BESIDE;
    if most.is_none_or(|most| most >= wanted) { Contender::HoldfastAsync } else { Contender::HoldfastAlone }
}

/// The program is put in its own place, each time while another client works, and a look taken after.
fn planned(
    what: &str,
    server: &Server,
    (rounds, at): (usize, &Path),
    mut look: impl FnMut() -> Result<()>,
) -> Result<()> {
    let (mut stalls, mut stills, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let worker = Worker::begin(server.ports.nfs)?;
        std::thread::sleep(CALM);
        let before = server.cpu_time()?;
        stills.push(replaced(server, at)?);
        cpu.push(server.cpu_time()?.saturating_sub(before));
        worker.go_on(GONE_ON, PATIENCE)?;
        std::thread::sleep(CALM);
        let work = worker.end()?;
        ensure!((work.connections, work.reclaims) == (1, 0), "a client noticed a planned restart: {work:?}");
        stalls.push(work.stall);
        look()?;
    }
    restarts(&format!("{what}: longest time between two operations done of a client with state"), stalls);
    restarts(&format!("{what}: nothing was served, as the server says, for"), stills);
    restarts(&format!("{what}: processor time of the server from the word to serving again"), cpu);
    Ok(())
}

/// Asks for it and waits until it is done; gives how long nothing was served.
fn replaced(server: &Server, at: &Path) -> Result<Duration> {
    let stills = || -> Result<Vec<u64>> {
        let log = std::fs::read_to_string(at.join("log"))?;
        let each = log.split("still_ms=").skip(1);
        Ok(each.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect())
    };
    let before = stills()?.len();
    server.upgrade()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(ms) = stills()?.get(before) {
            return Ok(Duration::from_millis(*ms));
        }
        ensure!(Instant::now() < deadline, "not replaced after {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
}
