//! What was done here and has not been sent: it goes out by itself after a while, is compared with what others have made meanwhile,
//! and who recalls it waits for it as long as it takes.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::{Mount, Relay, Trial, Way};
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("unsent::what_nobody_syncs_goes_out_by_itself_when_it_is_five_seconds_old", aged),
        Trial::new("unsent::of_a_name_that_a_local_process_makes_meanwhile_both_are_kept", both_kept),
        Trial::new("unsent::who_sends_much_when_it_is_recalled_has_longer_than_a_lease", given_time),
        Trial::new("unsent::who_unmounts_is_shown_how_much_is_left", with_progress),
    ]
}

/// Longer than the cases take, so that nothing is sent for the lease's sake.
const LEASE_SECONDS: u32 = 60;
/// From when on, and until when, what was not synced is to be on the server: it goes after 5 s, on a machine that may be busy.
const AGE: std::ops::Range<Duration> = Duration::from_millis(4500)..Duration::from_secs(9);
const POLL: Duration = Duration::from_millis(50);

/// A mount that may make names in `d`, and write to `d/old`, without asking.
fn promised() -> Result<(Served, Mount)> {
    let served = Served::with_lease(LEASE_SECONDS)?;
    let mount = served.mount("nolocal")?;
    run_in(
        &mount.path(),
        "ls; mkdir d; cd d; echo old >old; touch a; rm a; sync . old; ls -l; cat old; : >>old",
        &[],
    )?;
    mount.sync()?;
    Ok((served, mount))
}

/// Seen by the server's own directory, which asks the mount for nothing: who opened a file there would.
fn aged() -> Result<()> {
    let (served, mount) = promised()?;
    let (here, there) = (mount.path().join("d"), served.share().join("d"));
    let began = Instant::now();
    run_in(&here, "echo new >new; mkdir sub; ln -s target link; echo more >>old", &[])?;
    let is_sent = |name: &str| {
        let bytes = there.join(name).symlink_metadata().map(|seen| seen.len());
        bytes.is_ok_and(|bytes| match name {
            "old" => bytes == b"old\nmore\n".len() as u64,
            "new" => bytes == b"new\n".len() as u64,
            _ => true,
        })
    };
    let mut left = vec!["new", "sub", "link", "old"];
    while !left.is_empty() {
        let passed = began.elapsed();
        ensure!(passed < AGE.end, "after {passed:.1?} {left:?} are not there: {}", mount.stats()?["queue"]);
        left.retain(|name| !is_sent(name));
        ensure!(left.len() == 4 || began.elapsed() > AGE.start, "sent after {passed:.1?}, but for {left:?}");
        std::thread::sleep(POLL);
    }
    println!("all were there after {:.1?}", began.elapsed());
    mount.check_alive()
}

/// Opened on the mount, and not synced: the names that are not `name` itself.
fn others(directory: &Path, name: &str) -> Result<Vec<String>> {
    let names = std::fs::read_dir(directory)?.flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    Ok(names.filter(|other| other.starts_with(name) && other != name).collect())
}

fn both_kept() -> Result<()> {
    let (served, mount) = promised()?;
    let (here, there) = (mount.path().join("d"), served.share().join("d"));
    let mut ours = File::create_new(here.join("name"))?;
    ours.write_all(b"ours")?;
    ensure!(!there.join("name").exists(), "it is sent already");
    std::fs::write(there.join("name"), "theirs")?;
    let error = ours.sync_all().err().and_then(|error| error.raw_os_error());
    ensure!(error == Some(17), "fsync said {error:?}\n{}", mount.log());
    drop(ours);
    let kept = others(&there, "name")?;
    let [kept] = &kept[..] else { anyhow::bail!("beside theirs there are {kept:?}\n{}", mount.log()) };
    let time = kept.strip_prefix("name-").unwrap_or_default();
    let is_time = time.len() == 16 && time.ends_with('Z') && time.as_bytes()[8] == b'T';
    ensure!(is_time, "ours is kept as {kept}");
    for (place, name) in [&here, &there].into_iter().flat_map(|place| [(place, "name"), (place, kept)]) {
        let wanted = if name == "name" { "theirs" } else { "ours" };
        let seen = std::fs::read_to_string(place.join(name))?;
        ensure!(seen == wanted, "{} is {seen:?}", place.join(name).display());
    }
    let told = mount.command()?.args(["mount", "sync"]).arg(mount.path()).output()?;
    let said = format!("{}\n{}", String::from_utf8_lossy(&told.stderr), mount.log());
    ensure!(said.contains("d/name") && said.contains(&**kept), "it was not reported: {said}");
    mount.check_alive()
}

/// Bytes a second, and what is to be sent so: much longer than a lease.
const SLOW: u64 = 1 << 20;
const MUCH_BYTES: usize = 7 << 20;
const SHORT_LEASE_SECONDS: u32 = 3;

fn far_away(served: &Served) -> Result<(Relay, Mount)> {
    let way = Way { round_trip: Duration::ZERO, rate: Some(SLOW) };
    let relay = Relay::start((Ipv4Addr::LOCALHOST, served.server.port()).into(), way)?;
    let mount = Mount::new(relay.port(), &served.server.export(), "nolocal")?;
    Ok((relay, mount))
}

/// Who recalls waits until all is there, and nothing is taken from who is at it.
fn given_time() -> Result<()> {
    let served = Served::with_lease(SHORT_LEASE_SECONDS)?;
    let (_relay, slow) = far_away(&served)?;
    let other = served.mount("nolocal")?;
    run_in(&slow.path(), "ls; touch f; sync f; ls -l; cat f; : >>f", &[])?;
    let data: Vec<u8> = (0..MUCH_BYTES).map(|at| (at / 4096 % 251) as u8).collect();
    let mut file = File::options().write(true).open(slow.path().join("f"))?;
    file.write_all(&data)?;
    let left = slow.stats()?["queue"]["bytes_not_sent"].as_u64();
    ensure!(left > Some(MUCH_BYTES as u64 * 3 / 4), "{left:?} bytes are left to be sent");
    let began = Instant::now();
    let seen = std::fs::read(other.path().join("f"))?;
    let took = began.elapsed();
    ensure!(seen == data, "{} bytes were seen after {took:.1?}\n{}", seen.len(), slow.log());
    ensure!(took.as_secs_f64() > f64::from(SHORT_LEASE_SECONDS) * 1.5, "it was there after {took:.1?}");
    println!("sent in {took:.1?}");
    ensure!(slow.stats()?["recalls"].as_u64() > Some(0), "nothing was recalled: {}", slow.stats()?);
    file.sync_all()?;
    let log = served.server.log();
    ensure!(!log.contains("a recall was not followed in time"), "something was taken from it\n{log}");
    [&slow, &other].into_iter().try_for_each(Mount::check_alive)
}

/// Sent while who unmounts waits: some three seconds of it.
const SOME_BYTES: u64 = 3 << 20;

/// On a terminal, which `script` is, and on none.
fn with_progress() -> Result<()> {
    let served = Served::with_lease(LEASE_SECONDS)?;
    let (_relay, on_terminal) = far_away(&served)?;
    let (_other_relay, on_none) = far_away(&served)?;
    let write = "ls; touch $1; sync $1; cat $1; : >>$1; head -c $2 /dev/zero | dd of=$1 bs=64k conv=notrunc status=none";
    let unmounting = |mount: &Mount, name: &str, is_terminal: bool| {
        run_in(&mount.path(), write, &[name, &SOME_BYTES.to_string()])?;
        let mut command = mount.command()?;
        let program = command.get_program().to_string_lossy().into_owned();
        let unmount = format!("{program} umount {}", mount.path().display());
        if is_terminal {
            let mut script = Command::new("script");
            script.args(["-qec", &unmount, "/dev/null"]);
            script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command = script;
        } else {
            command.arg("umount").arg(mount.path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        anyhow::Ok(command.spawn()?)
    };
    let both = [unmounting(&on_terminal, "a", true)?, unmounting(&on_none, "b", false)?];
    let [shown, told] = both.map(|child| child.wait_with_output());
    let (shown, told) = (shown?, told?);
    ensure!(shown.status.success() && told.status.success(), "{shown:?}\n{told:?}");
    let bars = String::from_utf8_lossy(&shown.stdout).into_owned();
    let bars: Vec<&str> = bars.split('\r').filter(|bar| bar.starts_with("sending [")).collect();
    let filled = |bar: &&str| bar.matches('#').count();
    ensure!(bars.len() > 3 && bars.iter().all(|bar| bar.contains("MiB left")), "{bars:?}");
    ensure!(bars.first().map(filled) < bars.last().map(filled), "it did not grow: {bars:?}");
    let lines = String::from_utf8_lossy(&told.stderr).into_owned();
    ensure!(lines.lines().count() < 10 && lines.starts_with("sending: "), "{lines:?}");
    ensure!(lines.ends_with('\n') && lines.contains("MiB left") && !lines.contains('\r'), "{lines:?}");
    for (mount, name) in [(&on_terminal, "a"), (&on_none, "b")] {
        ensure!(served.share().join(name).metadata()?.len() == SOME_BYTES, "{name} is not whole");
        mount.wait_end()?;
    }
    Ok(())
}
