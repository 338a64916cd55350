//! Small files that are read before anybody asks for them: a directory that is read for the first time costs few round trips, and
//! nothing is shown as it was read ahead once another mount has changed it. (Of a server on this host nothing is: hence `nolocal`.)

use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::{Mount, Trial};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("ahead::files_that_are_read_for_the_first_time_cost_few_round_trips", few_round_trips),
        Trial::new("ahead::what_another_mount_rewrites_is_seen_by_who_reads_ahead", rewritten),
    ]
}

/// Files in each of two directories, one of which a caller reads who is in a group by which alone he may.
const MAKING: &str = "
for d in d e; do
    mkdir $d; for i in $(seq 1 400); do printf '%0*d' $((i * 7)) $i >$d/f$i; done
done
chgrp 77 e/*; chmod 640 e/*; chmod 755 . d e
";

fn few_round_trips() -> Result<()> {
    let served = Served::new()?;
    run_in(&served.share(), MAKING, &[])?;
    let sums = |script: &str, mount: &Mount| run_in(&mount.path(), script, &[]);
    let mount = served.mount("nolocal")?;
    for (dir, who) in [("d", ""), ("e", "setpriv --reuid 65534 --regid 65534 --groups 77")] {
        let script = format!("{who} sh -c 'for i in $(seq 1 400); do cat {dir}/f$i; done | md5sum'");
        let listed = format!("ls -l {dir} >/dev/null");
        run_in(&mount.path(), &listed, &[])?;
        let before = mount.round_trips()?;
        let seen = sums(&script, &mount)?;
        let trips = mount.round_trips()? - before;
        ensure!(seen == run_in(&served.share(), &script, &[])?, "other contents than the server's");
        println!("     {dir}: 400 files, {trips} round trips");
        ensure!(trips <= 120, "{trips} round trips: {}", mount.stats()?);
    }
    let stats = mount.stats()?;
    let of = |name: &str| stats["read_ahead"][name].as_u64().with_context(|| format!("no {name}: {stats}"));
    ensure!(of("files")? >= 700 && of("used")? >= 700, "{stats}");
    mount.check_alive()?;
    mount.unmount(&[])
}

/// Both read all, one after the other, each time after one of them has rewritten some; the sizes stay.
const REWRITING: &str = "
import os, random, sys
random.seed(7)
mounts = ['.', sys.argv[1]]
os.mkdir('d')
def put(mount, n, version):
    with open(f'{mount}/d/f{n}', 'r+b' if version else 'wb') as f: f.write(b'%08d' % version * (1 + n % 40))
is_now = {n: 0 for n in range(120)}
for n in is_now: put(mounts[0], n, 0)
for version in range(1, 60):
    writer, reader = random.sample(mounts, 2)
    for n in random.sample(sorted(is_now), random.choice([1, 5, 120])):
        put(writer, n, version); is_now[n] = version
    order = os.listdir(f'{reader}/d')
    if version % 2: random.shuffle(order)
    for name in order:
        n = int(name[1:])
        if random.random() < 0.02: put(writer, n, version + 1000); is_now[n] = version + 1000
        seen = open(f'{reader}/d/{name}', 'rb').read()
        assert seen == b'%08d' % is_now[n] * (1 + n % 40), (version, name, seen[:8], is_now[n])
";

fn rewritten() -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount("nolocal")?, served.mount("nolocal")?);
    let second = other.path();
    run_in(&one.path(), &format!("python3 - \"$@\" <<'E'\n{REWRITING}\nE\n"), &[&second.to_string_lossy()])?;
    for mount in [one, other] {
        let stats = mount.stats()?;
        ensure!(stats["read_ahead"]["used"].as_u64().is_some_and(|used| used > 100), "{stats}");
        mount.check_alive()?;
        mount.unmount(&[])?;
    }
    Ok(())
}
