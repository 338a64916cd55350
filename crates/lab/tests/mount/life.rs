//! Mounting, asking, unmounting.

use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::{Mount, Relay, Trial};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("life::a_mount_says_what_it_is_and_goes_when_told", said_and_gone),
        Trial::new("life::statistics_tell_what_was_known_and_what_was_saved", counted),
        Trial::new("life::a_daemon_outlives_a_plain_umount_until_all_is_sent", plain_umount),
        Trial::new("life::what_changes_names_and_files_returns_before_the_server_hears_of_it", put_off),
        Trial::new("life::what_cannot_be_mounted_is_told_on_the_terminal", refused),
        Trial::new("life::a_read_only_mount_refuses_changes", read_only),
        Trial::new("life::a_term_signal_sends_what_is_left_and_unmounts", terminated),
        Trial::new("life::a_second_term_signal_gives_up_and_says_what_was_not_sent", given_up),
        Trial::new("life::what_is_bound_to_another_place_is_unmounted_there_alone", bound),
    ]
}

fn said_and_gone() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    let path = mount.path();
    let line = table.lines().find(|line| line.contains(&*path.to_string_lossy())).unwrap_or_default();
    ensure!(line.contains(" fuse.holdfast ") && line.contains("nosuid") && line.contains("nodev"), "{line}");
    std::fs::write(path.join("file"), "content")?;
    let stats = mount.stats()?;
    ensure!(stats["operations"].as_u64() > Some(0), "{stats}");
    mount.sync()?;
    ensure!(
        std::fs::read_to_string(served.share().join("file"))? == "content",
        "not on the server after sync"
    );
    let servers = mount.command()?.args(["mount", "servers", "show"]).arg(&path).output()?;
    ensure!(String::from_utf8_lossy(&servers.stdout).contains("in use"), "{servers:?}");
    mount.unmount(&[])?;
    let gone = mount.command()?.args(["mount", "stats"]).arg(&path).output()?;
    ensure!(!gone.status.success(), "statistics of what is not mounted");
    Ok(())
}

/// What is counted is what was done: so many files read, twice, and made.
fn counted() -> Result<()> {
    let served = Served::new()?;
    run_in(&served.share(), "mkdir old new; for i in $(seq 40); do echo $i >old/$i; done", &[])?;
    let (mount, plain) = (served.mount("nolocal")?, served.mount("cache=none")?);
    let looks = "python3 - <<'E'\nimport os\nfor i in range(1, 41):\n    for _ in range(2): open(f'old/{i}').read()\nE";
    let makes = "for i in $(seq 40); do echo $i >new/$i; done; cat new/* >/dev/null; sync new/40";
    run_in(&plain.path(), looks, &[])?;
    let stats = plain.stats()?;
    let of = |stats: &serde_json::Value, path: &str| stats.pointer(path).and_then(serde_json::Value::as_u64);
    let reads = of(&stats, "/reads/misses");
    ensure!(reads >= Some(80) && of(&stats, "/reads/percent") == Some(0), "nothing is known: {stats}");
    let (saved, calls) = (of(&stats, "/round_trips_saved"), of(&stats, "/round_trips"));
    ensure!(saved < Some(20) && calls > Some(200), "next to nothing is saved: {stats}");
    run_in(&mount.path(), &format!("{looks}\n{makes}"), &[])?;
    mount.sync()?;
    let stats = mount.stats()?;
    let reads = [of(&stats, "/reads/hits"), of(&stats, "/reads/misses")];
    ensure!(reads == [Some(40); 2], "what was made here was known, and what was there was not: {stats}");
    ensure!(of(&stats, "/reads/percent") == Some(50), "{stats}");
    ensure!(of(&stats, "/names/percent") >= Some(50) && of(&stats, "/opens/percent") >= Some(50), "{stats}");
    let (calls, saved) =
        (of(&stats, "/round_trips").unwrap_or(0), of(&stats, "/round_trips_saved").unwrap_or(0));
    // Made and written, each of 40, and opened and read, each of 80, by a few dozen calls.
    ensure!(calls < 150 && saved > 200, "{calls} calls, {saved} saved: {stats}");
    ensure!(of(&stats, "/changes/bytes_written") == Some(9 * 2 + 31 * 3), "{stats}");
    ensure!(of(&stats, "/changes/queued") >= Some(40) && of(&stats, "/held/promised") > Some(0), "{stats}");
    let (mean, longest) = (of(&stats, "/questions/mean_us"), of(&stats, "/questions/longest_us"));
    ensure!(mean > Some(0) && longest >= mean, "{stats}");
    ensure!(of(&stats, "/queue/changes") == Some(0), "all was sent: {stats}");
    let shown = mount.command()?.args(["mount", "stats"]).arg(mount.path()).output()?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    ensure!(shown.contains("reads: percent") && shown.contains("round trips saved"), "{shown}");
    Ok(())
}

/// Nothing comes through to the server while it is unmounted, so what is left then is the daemon's to send.
fn plain_umount() -> Result<()> {
    let served = Served::new()?;
    let (relay, mount) = over_a_relay(&served)?;
    run_in(&mount.path(), "ls; touch a; rm a; sync .", &[])?;
    relay.stall();
    run_in(&mount.path(), "for i in $(seq 1 200); do echo $i >f$i; done", &[])?;
    run_in(mount.path().parent().unwrap_or(&mount.path()), "umount mnt", &[])?;
    let there = std::fs::read_dir(served.share())?.count();
    ensure!(there < 200, "everything is on the server, though nothing came through");
    relay.resume();
    mount.wait_end()?;
    let left = run_in(&served.share(), "cat f* | wc -l", &[])?;
    ensure!(left.trim() == "200", "{left} files on the server");
    Ok(())
}

fn over_a_relay(served: &Served) -> Result<(Relay, Mount)> {
    let relay = Relay::start((Ipv4Addr::LOCALHOST, served.server.port()).into(), Duration::ZERO)?;
    let mount = Mount::new(relay.port(), &served.server.export(), "nolocal")?;
    Ok((relay, mount))
}

/// Each kind of change, in a directory that the mount has changed before, with nothing coming through to the server; then
/// the server has them all, in their order.
const CHANGES: &str = "
cd d; echo new >new; mkdir sub; mkfifo pipe; ln -s target link; ln new hard; chmod 600 kept; truncate -s 3 kept
mv kept moved; echo more >>old; mv old sub/old; rm gone; rmdir empty; touch -d @1000000000 moved; echo atomic >tmp; mv tmp name
";
const CHANGED: &str = "
cd d; [ \"$(cat new hard sub/old name)\" = $'new\\nnew\\nold\\nmore\\natomic' ]; [ -p pipe ]; [ \"$(readlink link)\" = target ]
[ \"$(stat -c '%a %s %Y' moved)\" = '600 3 1000000000' ]; [ \"$(stat -c %h hard)\" = 2 ]
[ \"$(ls -A | tr '\\n' ' ')\" = 'hard link moved name new pipe sub ' ]
";

fn put_off() -> Result<()> {
    let served = Served::new()?;
    let (relay, mount) = over_a_relay(&served)?;
    let before = "mkdir d; cd d; echo old >old; echo kept >kept; touch gone; mkdir empty; mv empty there; mv there empty; sync .";
    run_in(&mount.path(), before, &[])?;
    // The first change of a directory, and the first opening of a file to write, ask for the promise that makes the others
    // local; what was never read has to be.
    run_in(
        &mount.path(),
        "ls -lR >/dev/null; touch d/a; rm d/a; cat d/kept d/old >/dev/null; : >>d/kept; : >>d/old",
        &[],
    )?;
    mount.sync()?;
    let stats = mount.stats()?;
    let held = &stats["held"];
    ensure!(held["promised"].as_u64() > Some(0), "nothing is promised to it: {stats}");
    relay.stall();
    let asked = mount.round_trips()?;
    let begun = Instant::now();
    run_in(&mount.path(), CHANGES, &[])?;
    run_in(&mount.path(), CHANGED, &[]).context("as the mount shows it")?;
    let took = begun.elapsed();
    let queued = mount.stats()?["queue"]["changes"].as_u64().unwrap_or(0);
    println!("{queued} changes put off in {took:.1?}");
    ensure!(queued >= 10, "{queued} changes are queued: {}", mount.stats()?);
    let waited = mount.round_trips()? - asked;
    ensure!(waited <= 1, "{waited} answers were waited for, with nothing coming through");
    ensure!(!served.share().join("d/new").exists(), "the server has heard of it");
    relay.resume();
    mount.sync()?;
    run_in(&served.share(), CHANGED, &[]).context("as the server has it")?;
    let stats = mount.stats()?;
    ensure!(stats["queue"]["changes"].as_u64() == Some(0), "after sync: {stats}");
    mount.unmount(&[])
}

fn bound() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let beside = mount.path().with_file_name("beside");
    run_in(&mount.path(), "mkdir d ../beside; echo x >d/f; mount --bind d ../beside", &[])?;
    let begun = Instant::now();
    let unmounted = mount.command()?.arg("umount").arg(&beside).output()?;
    // It does not wait for the daemon, which has the mount to serve.
    ensure!(unmounted.status.success() && unmounted.stderr.is_empty(), "{unmounted:?}");
    ensure!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
    ensure!(!beside.join("f").exists(), "it is still bound");
    mount.check_alive()?;
    ensure!(std::fs::read_to_string(mount.path().join("d/f"))? == "x\n", "the mount is gone");
    mount.unmount(&[])
}

fn refused() -> Result<()> {
    let served = Served::new()?;
    let wrong = Mount::new(served.server.port(), "/nowhere", "");
    let error = wrong.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("/nowhere"), "{error}");
    let wrong = Mount::new(served.server.port(), &served.server.export(), "no-such-word");
    let error = wrong.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("no-such-word"), "{error}");
    Ok(())
}

fn read_only() -> Result<()> {
    let served = Served::new()?;
    std::fs::write(served.share().join("file"), "content")?;
    let mount = served.mount("ro")?;
    ensure!(std::fs::read_to_string(mount.path().join("file"))? == "content", "other content");
    let error = std::fs::write(mount.path().join("file"), "x").err().and_then(|error| error.raw_os_error());
    ensure!(error == Some(30), "writing said {error:?}");
    mount.unmount(&[])
}

/// By signals while it is mounted, and while the daemon outlives an `umount`.
fn given_up() -> Result<()> {
    for is_unmounted in [false, true] {
        // What is done while the server is silent is put off as long as its promises last. Each time another server: what a mount held
        // that gave up is asked back from the next one on.
        let served = Served::with_lease(120)?;
        let (relay, mount) = over_a_relay(&served)?;
        run_in(&mount.path(), "ls; touch a; rm a; sync .", &[])?;
        relay.stall();
        run_in(&mount.path(), "echo content >f; for i in $(seq 1 20); do : >f$i; done", &[])?;
        let signal = || run_in(&served.share(), "kill -TERM $1", &[&mount.daemon().to_string()]);
        if is_unmounted {
            run_in(mount.path().parent().unwrap_or(&mount.path()), "umount mnt", &[])?;
        }
        signal()?;
        let since = Instant::now();
        while !mount.log().contains("sending what is left") {
            ensure!(since.elapsed() < Duration::from_secs(20), "it does not begin to end\n{}", mount.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        // Longer than it would be one signal with the first.
        std::thread::sleep(Duration::from_millis(1200));
        signal()?;
        let asked = Instant::now();
        mount.wait_end()?;
        let (took, log) = (asked.elapsed(), mount.log());
        ensure!(took < Duration::from_secs(20), "it took {took:?}\n{log}");
        let told = log.lines().find(|line| line.contains("given up: ")).unwrap_or_default();
        ensure!(told.contains("were not sent") && !told.contains(" 0 changes"), "{told:?}\n{log}");
    }
    Ok(())
}

fn terminated() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    run_in(&mount.path(), "for i in $(seq 1 200); do echo $i >f$i; done", &[])?;
    run_in(&served.share(), "kill -TERM $1", &[&mount.daemon().to_string()])?;
    mount.wait_end()?;
    let left = run_in(&served.share(), "cat f* | wc -l", &[])?;
    ensure!(left.trim() == "200", "{left} files on the server");
    Ok(())
}
