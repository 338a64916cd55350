//! Mounts that work while the server is away, and come back to it.

use crate::fixture::{Served, run_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::{Mount, Trial};
use std::path::Path;
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new(
            "offline::what_was_changed_without_the_server_survives_the_daemon_and_goes_out_once",
            survives,
        ),
        Trial::new("offline::what_was_made_and_changed_on_both_sides_is_kept_twice_and_listed", conflicts),
        Trial::new(
            "offline::contents_of_large_files_are_read_and_written_over_without_the_server_in_this_life_and_the_next",
            contents,
        ),
        Trial::new(
            "offline::a_voyage_over_two_lives_ends_with_both_sides_whole_and_what_is_lost_of_ours_is_told",
            voyage,
        ),
        Trial::new("offline::directories_become_one_and_nothing_that_was_put_into_one_is_lost", directories),
    ]
}

/// A mount that keeps its journal in this directory.
fn mount(served: &Served, disk: &Path) -> Result<Mount> {
    served.mount(&format!("offline={}", disk.join("journal").display()))
}

/// One that keeps contents of files there, too.
fn mount_with_contents(served: &Served, disk: &Path) -> Result<Mount> {
    served.mount(&format!("offline={},offline_mib=256", disk.join("journal").display()))
}

/// Waits until the mount stands so with its server.
pub(crate) fn wait_standing(mount: &Mount, wanted: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        let standing = mount.stats()?["standing"].as_str().context("no standing")?.to_owned();
        if standing == wanted {
            return Ok(());
        }
        ensure!(
            started.elapsed() < Duration::from_secs(90),
            "it is {standing}, not {wanted}\n{}",
            mount.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Its daemon is, and it has ended.
pub(crate) fn killed(mount: &Mount) -> Result<()> {
    run_in(Path::new("/"), "kill -KILL $1", &[&mount.daemon().to_string()])?;
    mount.wait_end()
}

/// In a directory that is known as a whole.
const BEFORE: &str = "mkdir d; for i in 1 2 3 4; do echo old $i >d/f$i; done; ls -l d; cat d/*; sync d";

/// Each of these is done without the server, and at once.
const AWAY: &str = "
cat d/f1; echo new >d/n1; mkdir d/sub; echo deep >d/sub/n2; ln -s n1 d/link; mv d/n1 d/m1; echo more >>d/f2
rm d/f3; chmod 600 d/f4; sync d/m1 d/sub/n2 d/f2; ls d; mkdir known/k; echo known >known/k/n3; sync known/k/n3
! timeout 10 cat nobody-ever-asked-for-this
";

const AFTER: &str = "
[ \"$(ls d | tr '\\n' ' ')\" = 'f1 f2 f4 link m1 sub ' ]
[ \"$(cat d/m1)\" = new ]; [ \"$(cat d/sub/n2)\" = deep ]; [ \"$(readlink d/link)\" = n1 ]
[ \"$(cat d/f2)\" = $'old 2\\nmore' ]; [ \"$(stat -c %a d/f4)\" = 600 ]
[ \"$(cat known/k/n3)\" = known ]; [ \"$(ls known | tr '\\n' ' ')\" = 'k there ' ]
";

fn survives() -> Result<()> {
    let mut served = Served::new()?;
    let disk = Scratch::new("offline")?;
    run_in(&served.share(), "mkdir known; echo there >known/there", &[])?;
    let first = mount(&served, disk.path())?;
    run_in(&first.path(), BEFORE, &[])?;
    // This one the mount lists, and no more.
    run_in(&first.path(), "ls -l known", &[])?;
    first.sync()?;
    served.server.kill()?;
    wait_standing(&first, "away")?;
    let started = Instant::now();
    run_in(&first.path(), AWAY, &[]).with_context(|| first.log())?;
    ensure!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
    killed(&first)?;

    // Another life, the server still away; and one more.
    let second = mount(&served, disk.path())?;
    run_in(&second.path(), AFTER, &[]).with_context(|| second.log())?;
    run_in(&second.path(), "echo later >d/late; sync d/late", &[])?;
    killed(&second)?;
    let third = mount(&served, disk.path())?;
    ensure!(!served.share().join("d/late").exists(), "nobody was there to take it");
    served.server.restart()?;
    wait_standing(&third, "online")?;
    third.sync().with_context(|| third.log())?;
    run_in(&served.share(), "[ \"$(cat d/late)\" = later ]; rm d/late", &[])?;
    run_in(&served.share(), AFTER, &[]).with_context(|| third.log())?;
    third.check_alive()?;
    third.unmount(&[])
}

/// Done here while the server is away: a directory made, one filled, a file saved as editors do, a link, a directory moved.
const HERE: &str = "
mkdir d/n; echo ours >d/n/both; echo ours >d/n/mine; echo ours >d/s/u/kept; echo ours >d/tmp; mv d/tmp d/f1
ln d/f2 d/linked; rm d/f2; mv d/t d/n/t; sync d/n/both d/s/u/kept d/f1; ! mv d/n d/n/t/n
";

/// And there.
const THERE: &str = "
mkdir d/n; echo theirs >d/n/both; echo theirs >d/n/his; rm -r d/s; echo theirs >d/new; mv d/new d/f1
";

const UNITED: &str = "
[ \"$(cat d/n/both d/n/his d/f1 | uniq -c | tr -s ' ')\" = ' 3 theirs' ]; [ ! -e d/s ]; [ ! -e d/t ]; [ -d d/n/t ]
[ \"$(cat d/n/both-*Z d/n/mine d/s-*Z/u/kept d/f1-*Z | uniq -c | tr -s ' ')\" = ' 4 ours' ]
[ \"$(cat d/linked)\" = 'old 2' ]; [ ! -e d/f2 ]; [ \"$(stat -c %h d/linked)\" = 1 ]
";

fn directories() -> Result<()> {
    let mut served = Served::new()?;
    let disk = Scratch::new("offline")?;
    let first = mount(&served, disk.path())?;
    run_in(&first.path(), BEFORE, &[])?;
    run_in(&first.path(), "mkdir d/s d/s/u d/t; echo old >d/s/u/old; ls -lR d; sync d", &[])?;
    first.sync()?;
    served.server.kill()?;
    wait_standing(&first, "away")?;
    run_in(&first.path(), HERE, &[]).with_context(|| first.log())?;
    run_in(&served.share(), THERE, &[])?;
    served.server.restart()?;
    wait_standing(&first, "online")?;
    // What could not be done as it was asked for is told.
    let _ = first.sync();
    first.sync().with_context(|| first.log())?;
    run_in(&served.share(), UNITED, &[]).with_context(|| first.log())?;
    run_in(&first.path(), UNITED, &[]).with_context(|| first.log())?;
    let output = first.command()?.args(["mount", "conflicts"]).arg(first.path()).output()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    for path in ["d/n/both:", "d/s:", "d/f1:"] {
        ensure!(listed.lines().any(|line| line.starts_with(path)), "{path} is not in\n{listed}");
    }
    ensure!(listed.lines().count() == 3, "{listed}");
    first.check_alive()?;
    first.unmount(&[])
}

fn conflicts() -> Result<()> {
    let mut served = Served::new()?;
    let disk = Scratch::new("offline")?;
    let first = mount(&served, disk.path())?;
    run_in(&first.path(), BEFORE, &[])?;
    first.sync()?;
    served.server.kill()?;
    wait_standing(&first, "away")?;
    run_in(
        &first.path(),
        "echo ours >d/both; echo ours >d/f1; rm d/f3; echo ours >d/f4; sync d/both d/f1 d/f4",
        &[],
    )?;
    let theirs = "echo theirs >d/both; echo theirs >d/f1; echo theirs >d/f3; echo theirs >d/new";
    run_in(&served.share(), theirs, &[])?;
    served.server.restart()?;
    wait_standing(&first, "online")?;
    // What could not be done as it was asked for is told here as well.
    let _ = first.sync();
    let whole = "
        [ \"$(cat d/both d/f1 d/f3 d/new | sort | uniq -c | tr -s ' ')\" = ' 4 theirs' ]; [ \"$(cat d/f4)\" = ours ]
        [ \"$(cat d/both-*Z)\" = ours ]; [ \"$(cat d/f1-*Z)\" = ours ]; ls d | wc -l";
    let said = run_in(&served.share(), whole, &[]).with_context(|| first.log())?;
    ensure!(said.trim() == "8", "there are {said}");
    let output = first.command()?.args(["mount", "conflicts"]).arg(first.path()).output()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    for (path, ours) in [("d/both:", "both-"), ("d/f1:", "f1-"), ("d/f3:", "theirs is kept")] {
        let line = listed.lines().find(|line| line.starts_with(path));
        ensure!(line.is_some_and(|line| line.contains(ours)), "{path} is not in\n{listed}\n{}", first.log());
    }
    ensure!(listed.lines().count() == 3, "{listed}");
    // Whoever closes what has got another name is told so, once.
    run_in(&first.path(), "cat d/* >/dev/null || true; cat d/* | sort", &[])?;
    first.unmount(&[])
}

/// A file of 20 MiB that somebody else has made, and what becomes of it without the server.
const LARGE: &str = "mkdir big; head -c 20M /dev/urandom >big/f; sha256sum <big/f >big/sum";
const IS_WHOLE: &str = "[ \"$(sha256sum <big/f)\" = \"$(cat big/sum)\" ]";
/// Over a part of it, across blocks; and it is cut off and gets longer again.
const OVER: &str = "
printf 'over a part of it' | dd of=$1/big/f bs=1 seek=6553590 conv=notrunc status=none
truncate -s 15000000 $1/big/f; truncate -s 16000000 $1/big/f
";

/// So many of the mount's blocks.
fn blocks(mount: &Mount, of: &str) -> Result<u64> {
    let stats = mount.stats()?;
    stats["contents"][of].as_u64().with_context(|| format!("no {of}: {stats}"))
}

fn contents() -> Result<()> {
    let mut served = Served::new()?;
    let disk = Scratch::new("offline")?;
    run_in(&served.share(), LARGE, &[])?;
    let first = mount_with_contents(&served, disk.path())?;
    // As whom its callers act it knows.
    run_in(&first.path(), "mkdir d; echo own >d/own; echo more >>d/own", &[])?;
    run_in(&first.path(), &format!("ls -lR . >/dev/null; cat big/sum >/dev/null; {IS_WHOLE}"), &[])?;
    ensure!(blocks(&first, "blocks")? >= 320, "{}", first.stats()?);
    first.sync()?;
    // Half a second, and a tenth.
    std::thread::sleep(Duration::from_secs(3));
    served.server.kill()?;
    wait_standing(&first, "away")?;
    run_in(Path::new("/"), "sync; echo 3 >/proc/sys/vm/drop_caches", &[])?;
    run_in(&first.path(), IS_WHOLE, &[]).with_context(|| first.log())?;
    ensure!(blocks(&first, "read")? >= 320, "it came from the kernel: {}", first.stats()?);
    killed(&first)?;

    // Another life, the server still away.
    let second = mount_with_contents(&served, disk.path())?;
    run_in(&second.path(), IS_WHOLE, &[]).with_context(|| second.log())?;
    ensure!(blocks(&second, "lost")? == 0, "{}", second.stats()?);
    let copy = disk.path().join("copy");
    run_in(
        Path::new("/"),
        "mkdir -p $1/big; cp $2/f $1/big/f",
        &[&path(&copy)?, &path(&served.share().join("big"))?],
    )?;
    run_in(Path::new("/"), OVER, &[&path(&copy)?])?;
    run_in(Path::new("/"), OVER, &[&path(&second.path())?]).with_context(|| second.log())?;
    let same = "cmp $1/big/f $2/big/f";
    run_in(Path::new("/"), same, &[&path(&second.path())?, &path(&copy)?]).with_context(|| second.log())?;
    run_in(&second.path(), "sync big/f", &[])?;
    killed(&second)?;
    let third = mount_with_contents(&served, disk.path())?;
    run_in(Path::new("/"), same, &[&path(&third.path())?, &path(&copy)?]).with_context(|| third.log())?;
    served.server.restart()?;
    wait_standing(&third, "online")?;
    third.sync().with_context(|| third.log())?;
    run_in(Path::new("/"), same, &[&path(&served.share())?, &path(&copy)?]).with_context(|| third.log())?;
    run_in(Path::new("/"), same, &[&path(&third.path())?, &path(&copy)?]).with_context(|| third.log())?;
    third.check_alive()?;
    third.unmount(&[])
}

/// Made by others: two large files, one to be read here whole, and of the other the beginning.
const FOUND: &str = "mkdir v; head -c 3M /dev/urandom >v/whole; cp v/whole v/part";
const READ: &str = "
mkdir own; echo own >own/f; echo more >>own/f; ls -lR own v; cat v/whole >/dev/null
dd if=v/part of=/dev/null bs=64k count=1 iflag=direct status=none
";
/// Over a part of a file, which has its length still.
const PUT: &str = "printf '%s' \"$2\" | dd of=$1 bs=1 seek=$3 conv=notrunc status=none";

/// Everything that a traveller meets, with the options that he is told of first.
fn voyage() -> Result<()> {
    let mut served = Served::new()?;
    let disk = Scratch::new("offline")?;
    run_in(&served.share(), FOUND, &[])?;
    run_in(disk.path(), "cp $1/v/whole ours; cp $1/v/whole theirs", &[&path(&served.share())?])?;
    let put = |dir: &Path, name: &str, text: &str, at: &str| run_in(dir, PUT, &[name, text, at]).map(drop);
    let first = mount(&served, disk.path())?;
    run_in(&first.path(), READ, &[])?;
    first.sync()?;
    // What is kept of contents is forced, is settled at the server, and is in the journal.
    std::thread::sleep(Duration::from_secs(3));
    served.server.kill()?;
    wait_standing(&first, "away")?;
    put(&first.path(), "v/whole", "first", "1000000").with_context(|| first.log())?;
    put(&first.path(), "v/part", "first", "100").with_context(|| first.log())?;
    run_in(&first.path(), "echo made >own/made; sync v/whole v/part own/made", &[])
        .with_context(|| first.log())?;
    killed(&first)?;

    let second = mount(&served, disk.path())?;
    put(disk.path(), "ours", "first", "1000000")?;
    let kept = path(disk.path())?;
    let ours = [kept.as_str()];
    let same = "cmp v/whole $1/ours; [ \"$(cat own/made)\" = made ]";
    run_in(&second.path(), same, &ours).with_context(|| second.log())?;
    put(&second.path(), "v/whole", "second", "2000000").with_context(|| second.log())?;
    put(disk.path(), "ours", "second", "2000000")?;
    run_in(&second.path(), "echo more >>own/made; sync v/whole own/made", &[])
        .with_context(|| second.log())?;
    for (dir, name) in
        [(served.share(), "v/whole"), (served.share(), "v/part"), (disk.path().into(), "theirs")]
    {
        put(&dir, name, "theirs", "3000")?;
    }
    served.server.restart()?;
    wait_standing(&second, "online")?;
    second.sync().with_context(|| second.log())?;
    let both = "
        cmp v/whole $1/theirs; cmp v/part $1/theirs; cmp v/whole-*Z $1/ours; [ \"$(cat own/made)\" = $'made\\nmore' ]
        [ \"$(stat -c %s v/part-*Z)\" = 3145728 ]; [ \"$(head -c 105 v/part-*Z | tail -c 5)\" = first ]
        cmp -n 100 v/part-*Z $1/theirs; [ \"$(tail -c 1M v/part-*Z | tr -d '\\0' | wc -c)\" = 0 ]; [ $(ls v | wc -l) = 4 ]";
    run_in(&served.share(), both, &ours).with_context(|| second.log())?;
    run_in(&second.path(), both, &ours).with_context(|| second.log())?;
    let output = second.command()?.args(["mount", "conflicts"]).arg(second.path()).output()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = |start: &str| listed.lines().filter(|line| line.starts_with(start)).count();
    ensure!(listed.lines().count() == 2, "{listed}");
    ensure!(told("v/whole: changed here and there; ours is whole-") == 1, "{listed}");
    ensure!(told("v/part: changed here and there; ours is not whole: of 3145728 bytes ") == 1, "{listed}");
    let started = Instant::now();
    while !second.log().contains("ours is not whole: of 3145728 bytes") {
        ensure!(started.elapsed() < Duration::from_secs(20), "the log does not say it\n{}", second.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    second.check_alive()?;
    second.unmount(&[])
}

fn path(path: &Path) -> Result<String> {
    Ok(path.to_str().context("a path of letters")?.to_owned())
}
