//! Mounts that hold plain NFSv4 delegations: Holdfast's with `cache=delegations`. NFS-Ganesha over a local file system
//! has none to give; what is told of two mounts has to hold there all the same.

use crate::failing::bash;
use crate::fixture::{Served, run_in};
use crate::two::{BYTES, SEEN};
use anyhow::{Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, Mount, Relay, Trial};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

const OURS: &str = "cache=delegations";

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("delegated::reading_again_costs_no_round_trip", read_again),
        Trial::new("delegated::opening_again_by_descriptor_costs_no_round_trip", opened_again),
        Trial::new("delegated::two_mounts_see_one_truth::holdfast", || both(holdfast, OURS, SEEN)),
        Trial::new("delegated::two_mounts_see_one_truth::ganesha", || both(ganesha, "", SEEN)),
        Trial::new("delegated::every_other_byte::holdfast", || both(holdfast, OURS, BYTES)),
        Trial::new("delegated::every_other_byte::ganesha", || both(ganesha, "", BYTES)),
        Trial::new("delegated::beside_a_mount_with_capabilities", || both(holdfast, "", SEEN)),
        Trial::new("delegated::a_recall_sends_first_and_times_stay", recalled),
        Trial::new("delegated::a_look_however_soon_after_a_write_shows_it", || both(holdfast, OURS, SOON)),
        Trial::new("delegated::a_listing_known_is_listed_without_asking", listed),
        Trial::new("delegated::a_killed_server_loses_nothing_written", || crate::failing::killed(OURS))
            .limit(crate::failing::LIMIT),
        Trial::new("delegated::who_is_cut_off_for_a_lease_shows_nothing_old", cut_off),
        Trial::new("delegated::what_is_open_stays_open_when_it_is_recalled", open_while_recalled),
    ]
}

/// Holdfast, of which mounts ask delegations alone.
fn holdfast() -> Result<Served> {
    Served::delegating(10)
}

/// A server that delegates nothing, neither files nor directories.
fn ganesha() -> Result<Served> {
    Served::by(Target::Ganesha, FsType::Xfs)
}

pub(crate) const MANY: &str = "for i in $(seq 1 1000); do echo $i >f$i; done";

fn read_again() -> Result<()> {
    let served = holdfast()?;
    std::fs::create_dir(served.share().join("d"))?;
    run_in(&served.share().join("d"), MANY, &[])?;
    let mount = served.mount(OURS)?;
    let read = "cat d/f* | md5sum; stat -c %Y d/f* | md5sum; if [ -e d/absent ]; then exit 1; fi";
    let first = run_in(&mount.path(), read, &[])?;
    run_in(&mount.path(), read, &[])?;
    let before = mount.round_trips()?;
    let third = run_in(&mount.path(), read, &[])?;
    let took = mount.round_trips()? - before;
    ensure!(first == third, "other content");
    ensure!(took == 0, "{took} round trips the third time: {}", mount.stats()?);
    Ok(())
}

/// Files known by descriptor are opened again and read: no names are looked up, which not every server promises.
const REOPEN: &str = "
import os, sys
paths = [os.open(f'f{n}', os.O_PATH) for n in range(1, 1001)]
def read(n):
    fd = os.open(f'/proc/self/fd/{paths[n - 1]}', os.O_RDONLY)
    data = os.read(fd, 100); os.fstat(fd); os.close(fd)
    assert data == f'{n}\\n'.encode(), (n, data)
for _ in range(2):
    for n in range(1, 1001): read(n)
sys.stdout.write('read twice\\n'); sys.stdout.flush()
sys.stdin.readline()
for n in range(1, 1001): read(n)
sys.stdout.write('read again\\n'); sys.stdout.flush()
sys.stdin.readline()
";

fn opened_again() -> Result<()> {
    use std::io::BufRead as _;
    let served = holdfast()?;
    run_in(&served.share(), MANY, &[])?;
    let mount = served.mount(OURS)?;
    let mut reader = std::process::Command::new("python3")
        .args(["-c", REOPEN])
        .current_dir(mount.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let (input, output) = (reader.stdin.take(), reader.stdout.take());
    let (Some(mut input), Some(output)) = (input, output) else { anyhow::bail!("no pipes") };
    let mut lines = std::io::BufReader::new(output).lines();
    let mut figures = Vec::new();
    for said in ["read twice", "read again"] {
        ensure!(lines.next().transpose()?.as_deref() == Some(said), "it did not say {said}: {}", mount.log());
        figures.push(mount.round_trips()?);
        writeln!(input)?;
    }
    ensure!(reader.wait()?.success(), "the reader failed");
    let took = figures[1] - figures[0];
    ensure!(took == 0, "{took} round trips: {}", mount.stats()?);
    mount.check_alive()
}

fn both(server: fn() -> Result<Served>, other_options: &str, script: &str) -> Result<()> {
    let served = server()?;
    let (one, other) = (served.mount(OURS)?, served.mount(other_options)?);
    let (first, second) = (one.path(), other.path());
    let (first, second) = (first.to_string_lossy(), second.to_string_lossy());
    run_in(&served.share(), &format!("python3 - \"$@\" <<'E'\n{script}\nE\n"), &[&first, &second])?;
    one.check_alive()?;
    other.check_alive()
}

fn mtime(path: &Path) -> Result<std::time::SystemTime> {
    Ok(std::fs::metadata(path)?.modified()?)
}

/// Data waits here while others can see its size; whoever reads it gets all of it; and the time shown stays.
fn recalled() -> Result<()> {
    let served = holdfast()?;
    let (one, other) = (served.mount(OURS)?, served.mount(OURS)?);
    recalled_between(&one, &other, Some(&served.share()))
}

/// With `below` it is looked there whether the data waits.
pub(crate) fn recalled_between(one: &Mount, other: &Mount, below: Option<&Path>) -> Result<()> {
    let (here, there) = (one.path().join("f"), other.path().join("f"));
    let text = "x".repeat(3_000);
    // With its close, in any process that has a copy of it, it would be on its way.
    let mut open = std::fs::File::create(&here)?;
    open.write_all(text.as_bytes())?;
    if let Some(below) = below {
        ensure!(std::fs::metadata(below.join("f"))?.len() == 0, "it did not wait");
    }
    ensure!(std::fs::metadata(&there)?.len() == 3_000, "the holder was not asked");
    let shown = mtime(&here)?;
    std::thread::sleep(Duration::from_millis(1200));
    ensure!(std::fs::read_to_string(&there)? == text, "the recall did not send all of it");
    ensure!(
        mtime(&here)? == shown,
        "the time that was shown has changed from {shown:?} to {:?}",
        mtime(&here)?
    );
    ensure!(mtime(&there)? == shown, "and the other's is another: {:?}", mtime(&there)?);
    one.check_alive()?;
    other.check_alive()
}

/// The holder is asked for each look: what it said to the one before is past.
const SOON: &str = "
import os, sys
one, two = sys.argv[1:]
for n in range(8):
    name = f'/soon{n}'
    fd = os.open(one + name, os.O_CREAT | os.O_RDWR)
    for size in range(0, 3000, 500):
        os.pwrite(fd, b'x' * size, 0)
        assert os.stat(two + name).st_size == size, (n, size)
        assert next(e for e in os.scandir(two) if e.name == name[1:]).stat().st_size == size, (n, size)
    os.close(fd)
";

fn listed() -> Result<()> {
    let served = holdfast()?;
    run_in(&served.share(), "mkdir d; touch d/$(seq -s ' d/' 1 300)", &[])?;
    let (mount, other) = (served.mount(OURS)?, served.mount(OURS)?);
    let list = "ls d | wc -l; if [ -e d/absent ]; then exit 1; fi";
    (0..2).try_for_each(|_| run_in(&mount.path(), list, &[]).map(drop))?;
    let before = mount.round_trips()?;
    let count = run_in(&mount.path(), list, &[])?;
    let took = mount.round_trips()? - before;
    ensure!(count.trim() == "300" && took == 0, "{count} entries, {took} round trips: {}", mount.stats()?);
    std::fs::write(other.path().join("d/new"), "x")?;
    ensure!(run_in(&mount.path(), "ls d | wc -l", &[])?.trim() == "301", "another's file is not listed");
    ensure!(std::fs::read(mount.path().join("d/new"))? == b"x", "nor there");
    Ok(())
}

/// A file open to be read without the server's knowing: others write it, and remove it; who has it open reads on.
const OPEN: &str = "
import os, sys
one, two = sys.argv[1:]
open(one + '/f', 'w').write('old')
for _ in range(3): open(one + '/f').read()
held = open(one + '/f')
assert held.read() == 'old'
open(two + '/f', 'r+').write('new')
held.seek(0); assert held.read() == 'new'
os.unlink(two + '/f'); assert not os.path.exists(one + '/f')
held.seek(0); assert held.read() == 'new'
";

fn open_while_recalled() -> Result<()> {
    both(holdfast, OURS, OPEN)
}

/// Others get what is delegated to a mount that is not heard of: it must not show what it has cached any more.
fn cut_off() -> Result<()> {
    let served = holdfast()?;
    std::fs::write(served.share().join("f"), "old")?;
    let relay = Relay::start((Ipv4Addr::LOCALHOST, served.server.port()).into(), Duration::ZERO)?;
    let one = Mount::new(relay.port(), &served.server.export(), OURS)?;
    let other = served.mount(OURS)?;
    let read = "cat f";
    (0..3).try_for_each(|_| run_in(&one.path(), read, &[]).map(drop))?;
    relay.stall();
    ensure!(run_in(&one.path(), read, &[])? == "old", "it is delegated as long as the lease holds");
    // Waits until the holder's lease is over.
    std::fs::write(other.path().join("f"), "new")?;
    // It begins elsewhere: who starts a process waits until it is in its directory.
    let mut reader = bash(Path::new("/"), "[ \"$(cat $1/f)\" = new ]", &[&one.path().to_string_lossy()])?;
    std::thread::sleep(Duration::from_secs(2));
    ensure!(reader.try_wait()?.is_none(), "it was shown without asking the server");
    relay.resume();
    ensure!(reader.wait_with_output()?.status.success(), "old content\n{}", one.log());
    one.check_alive()
}
