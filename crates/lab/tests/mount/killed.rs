//! Daemons that are killed: nobody waits for a lease for what they held, neither on the same mount nor on another one.

use crate::fixture::{Served, run_in};
use crate::sides::Side;
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::{Mount, Trial};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than anybody here waits.
const LEASE_SECONDS: u32 = 60;
/// For all that is asked for behind a death, on a busy machine: a part of a recall's time.
const AT_ONCE: Duration = Duration::from_secs(3);
/// So long nothing happens that would happen at once.
const WHILE: Duration = Duration::from_secs(5);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |options: &'static str, name: &str| {
        Trial::new(format!("killed::what_a_daemon_held_is_free_at_once::{name}"), move || freed(options))
    };
    vec![
        of("", "all"),
        of("nolocal", "network"),
        of("cache=delegations", "delegations"),
        of("cache=none", "none"),
        Trial::new("killed::what_one_held_that_was_still_sending_is_free_at_once", draining),
        Trial::new("killed::one_that_is_stopped_or_traced_keeps_what_it_holds", stopped),
        Trial::new("killed::one_that_keeps_a_journal_is_left_to_its_lease", offline),
    ]
}

fn signal(mount: &Mount, name: &str) -> Result<()> {
    run_in(Path::new("/"), "kill -$1 $2", &[name, &mount.daemon().to_string()]).map(drop)
}

/// Has a process of the mount lock something and make files that it has to itself.
fn holding(mount: &Mount) -> Result<Side> {
    let side = Side::here(&mount.path())?;
    side.shows(&["lock", "f", "write", "0", "10"], "granted")?;
    side.shows(&["lock", "f", "write", "10", "10"], "granted")?;
    let work = "mkdir d; for i in 1 2 3; do echo $i >d/$i; sync d/$i; done; ls -l d; echo unsent >d/unsent";
    run_in(&mount.path(), work, &[])?;
    Ok(side)
}

/// Another mount gets a lock, sees names and makes one, and so does the same one when it is mounted again.
fn freed(options: &str) -> Result<()> {
    let served = Served::with_lease(LEASE_SECONDS)?;
    std::fs::write(served.share().join("f"), "content of f, that can be locked")?;
    let (mut mount, elsewhere) = (served.mount(options)?, served.mount(options)?);
    let log = |mount: &Mount| format!("{}\n{}\n{}", mount.log(), elsewhere.log(), served.server.log());
    let _holder = holding(&mount)?;
    let (other, again) = (Side::here(&elsewhere.path())?, Side::here(&mount.path())?);
    other.shows(&["lock", "f", "write", "0", "10"], "refused")?;
    signal(&mount, "KILL")?;
    let killed = Instant::now();
    other.shows_soon(&["lock", "f", "write", "0", "10"], "granted", AT_ONCE).with_context(|| log(&mount))?;
    run_in(
        &elsewhere.path(),
        "[ \"$(cat d/[123] | tr -d '\\n')\" = 123 ]; echo theirs >d/theirs; sync d/theirs",
        &[],
    )?;
    let took = killed.elapsed();
    ensure!(took < AT_ONCE, "the other mount had it {took:?} behind the death\n{}", log(&mount));

    let begun = Instant::now();
    mount.again(served.server.port(), &served.server.export(), options)?;
    again.shows(&["lock", "f", "write", "0", "10"], "refused")?;
    again.shows(&["lock", "f", "write", "10", "10"], "granted").with_context(|| log(&mount))?;
    run_in(&mount.path(), "[ \"$(cat d/theirs)\" = theirs ]; echo ours >d/ours; sync d/ours", &[])?;
    let took_again = begun.elapsed();
    ensure!(took_again < AT_ONCE, "mounting again took {took_again:?}\n{}", log(&mount));
    println!("the other mount had it after {took:.1?}, the same one, mounted again, {took_again:.1?} later");
    again.end()?;
    other.end()?;
    mount.check_alive()?;
    elsewhere.check_alive()
}

/// One whose mount is gone goes on sending.
fn draining() -> Result<()> {
    let served = Served::with_lease(LEASE_SECONDS)?;
    let server = (std::net::Ipv4Addr::LOCALHOST, served.server.port()).into();
    let relay = holdfast_lab::Relay::start(server, Duration::ZERO)?;
    let mount = Mount::new(relay.port(), &served.server.export(), "nolocal")?;
    run_in(&mount.path(), "mkdir d; echo sent >d/file; sync d/file; ls -l d", &[])?;
    let elsewhere = served.mount("")?;
    let mut file = std::fs::File::options().write(true).open(mount.path().join("d/file"))?;
    relay.stall();
    file.write_all(b"unsent")?;
    drop(file);
    // Who asks first what is mounted there would wait for the server.
    rustix::mount::unmount(mount.path(), rustix::mount::UnmountFlags::DETACH)?;
    std::thread::sleep(Duration::from_secs(2));
    mount.check_alive()?;
    signal(&mount, "STOP")?;
    relay.resume();
    signal(&mount, "KILL")?;
    let killed = Instant::now();
    run_in(&elsewhere.path(), "echo theirs >d/theirs; sync d/theirs", &[])?;
    ensure!(killed.elapsed() < AT_ONCE, "it took {:?}\n{}", killed.elapsed(), mount.log());
    mount.wait_end()?;
    elsewhere.check_alive()
}

/// Nor is it dead because its guard is told so.
fn stopped() -> Result<()> {
    let served = Served::with_lease(LEASE_SECONDS)?;
    std::fs::write(served.share().join("f"), "content of f, that can be locked")?;
    let (mount, elsewhere) = (served.mount("")?, served.mount("")?);
    let holder = holding(&mount)?;
    mount.sync()?;
    let other = Side::here(&elsewhere.path())?;
    signal(&mount, "STOP")?;
    let guards = format!("/proc/{0}/task/{0}/children", mount.daemon());
    run_in(Path::new("/"), "guard=$(cat $1); [ \"$guard\" ]; kill -TERM $guard", &[&guards])?;
    let begun = Instant::now();
    while begun.elapsed() < WHILE {
        other.shows(&["lock", "f", "write", "0", "10"], "refused")?;
        std::thread::sleep(Duration::from_millis(100));
    }
    signal(&mount, "CONT")?;
    holder.shows(&["lock", "f", "write", "20", "5"], "granted")?;
    run_in(&mount.path(), "echo more >d/more; sync d/more; cat d/unsent", &[])?;
    ensure!(!mount.log().contains("was killed"), "{}", mount.log());
    other.end()?;
    holder.end()?;
    mount.check_alive()
}

/// The server remembers longer of who has not gone what the journal has still to be compared with.
fn offline() -> Result<()> {
    let served = Served::with_lease(LEASE_SECONDS)?;
    std::fs::write(served.share().join("f"), "content of f, that can be locked")?;
    let disk = Scratch::new("killed")?;
    let mount = served.mount(&format!("offline={}", disk.path().join("journal").display()))?;
    let elsewhere = served.mount("")?;
    let _holder = holding(&mount)?;
    let other = Side::here(&elsewhere.path())?;
    crate::offline::killed(&mount)?;
    let killed = Instant::now();
    while killed.elapsed() < WHILE {
        other.shows(&["lock", "f", "write", "0", "10"], "refused")?;
        std::thread::sleep(Duration::from_millis(100));
    }
    other.end()
}
