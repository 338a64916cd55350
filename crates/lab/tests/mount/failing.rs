//! Servers that go away, and come back or not.

use crate::fixture::{Served, run_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Scale, Trial};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than [`STUCK`].
pub(crate) const LIMIT: Duration = Duration::from_secs(360);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("failing::a_server_killed_under_load_and_restarted_shows_no_error", || killed(""))
            .limit(LIMIT),
        Trial::new("failing::the_same_with_nothing_cached", || killed("cache=none")).limit(LIMIT),
        Trial::new("failing::those_who_wait_for_a_killed_daemon_are_freed", daemon_killed),
        Trial::new("failing::a_killed_client_loses_nothing_that_was_fsynced", client_killed),
    ]
}

/// Files, directories, renames and appends, each checked; ends with a listing that must be whole.
pub(crate) const LOAD: &str = "
for i in $(seq 1 $1); do
    mkdir d$i; echo one $i >d$i/a; mv d$i/a d$i/b; echo two >>d$i/b; cp d$i/b d$i/c; ln d$i/c d$i/e; rm d$i/c
    [ \"$(cat d$i/b d$i/e | wc -l)\" = 4 ]; sync d$i/b
done
[ \"$(find . -type f | wc -l)\" = $((2 * $1)) ]
";

/// A load under which nothing happens for so long does not end: twice grace and a lease, and more.
const STUCK: Duration = Duration::from_secs(240);

/// Lets a load work between two kills: for a while, and until it has got on with something, as recovery may take longer on a
/// busy machine. Whether it still works then.
pub(crate) fn has_worked(load: &mut Child, share: &Path, kills: u32) -> Result<bool> {
    let (there, since) = (std::fs::read_dir(share)?.count(), Instant::now());
    let pause = Duration::from_millis(if kills == 0 { 300 } else { 1500 });
    let has_moved = || anyhow::Ok(std::fs::read_dir(share)?.count() > there);
    while load.try_wait()?.is_none() && (since.elapsed() < pause || !has_moved()?) {
        ensure!(since.elapsed() < STUCK, "after {kills} kills nothing goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(load.try_wait()?.is_none())
}

pub(crate) fn killed(options: &str) -> Result<()> {
    let mut served = Served::new()?;
    let mount = served.mount(options)?;
    let rounds = Scale::from_env().pick(60, 600);
    let mut load = bash(&mount.path(), LOAD, &[&rounds.to_string()])?;
    let mut kills = 0;
    while has_worked(&mut load, &served.share(), kills).with_context(|| mount.log())? {
        served.server.kill()?;
        std::thread::sleep(Duration::from_millis(200));
        served.server.restart()?;
        kills += 1;
    }
    let output = load.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "after {kills} kills: {said}\n{}", mount.log());
    ensure!(kills > 0, "the load was over before the first kill");
    mount.check_alive()?;
    mount.unmount(&[])?;
    run_in(&served.share(), "[ \"$(cat d*/b d*/e | wc -l)\" = $((4 * $1)) ]", &[&rounds.to_string()])
        .map(drop)
}

pub(crate) fn bash(directory: &Path, script: &str, arguments: &[&str]) -> Result<Child> {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script, "script"]).args(arguments).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().context("starting bash")
}

/// Waits until a mount relies on nothing any more.
fn wait_for_lapse(mount: &holdfast_lab::Mount) -> Result<()> {
    let started = Instant::now();
    while !mount.log().contains("no word with the server for a lease") {
        ensure!(started.elapsed() < Duration::from_secs(30), "its promises stand\n{}", mount.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn ends_within(child: &mut Child, time: Duration) -> Result<std::process::ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        ensure!(started.elapsed() < time, "it has not ended after {time:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A thread of the daemon waits, in the kernel, for a directory that a process has locked, and the process for the daemon:
/// neither would end when the daemon is killed, were there not somebody who watches over it.
fn daemon_killed() -> Result<()> {
    let served = Served::with_lease(3)?;
    run_in(&served.share(), "mkdir d; touch d/a d/b", &[])?;
    let server = (std::net::Ipv4Addr::LOCALHOST, served.server.port()).into();
    let relay = holdfast_lab::Relay::start(server, Duration::ZERO)?;
    let mount = holdfast_lab::Mount::new(relay.port(), &served.server.export(), "")?;
    run_in(&mount.path(), "ls -l d; cat d/a; ls -l d", &[])?;
    relay.stall();
    let place = mount.path();
    let mut waiting = bash(Path::new("/"), "mkdir $1/d/new", &[&place.to_string_lossy()])?;
    wait_for_lapse(&mount)?;
    let started = Instant::now();
    while !has_stuck_thread(mount.daemon())? {
        ensure!(
            started.elapsed() < Duration::from_secs(30),
            "no thread of the daemon waits for the directory"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    ensure!(waiting.try_wait()?.is_none(), "it did not wait");
    run_in(&served.share(), "kill -KILL $1", &[&mount.daemon().to_string()])?;
    let status = ends_within(&mut waiting, Duration::from_secs(30)).context("the daemon was killed")?;
    ensure!(!status.success(), "it was done");
    mount.wait_end()?;
    ensure!(std::fs::read_dir(&place).is_err(), "the mount works without its daemon");
    Ok(())
}

/// Whether a thread that tells the kernel what not to believe waits uninterruptibly.
fn has_stuck_thread(daemon: u32) -> Result<bool> {
    for task in std::fs::read_dir(format!("/proc/{daemon}/task"))?.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        if status.starts_with("Name:\tinvalidate") && status.contains("State:\tD") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn client_killed() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let work =
        "for i in $(seq 1 50); do echo $i >f$i; sync f$i; done; for i in $(seq 1 50); do echo $i >g$i; done";
    run_in(&mount.path(), work, &[])?;
    run_in(&served.share(), "kill -KILL $1", &[&mount.daemon().to_string()])?;
    mount.wait_end()?;
    let whole = "for i in $(seq 1 50); do [ \"$(cat f$i)\" = $i ]; if [ -e g$i ]; then [ \"$(cat g$i)\" = $i ]; fi; done";
    run_in(&served.share(), whole, &[]).map(drop)
}
