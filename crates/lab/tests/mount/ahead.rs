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

/// In each of many folders one reads what the other has just made there, and rewrites while it is read; the sizes stay.
const REWRITING: &str = "
import os, random, sys
random.seed(7)
mounts = ['.', sys.argv[1]]
FILES = 120
def put(mount, folder, n, version):
    with open(f'{mount}/{folder}/f{n}', 'r+b' if version else 'wb') as f: f.write(b'%08d' % version * (1 + n % 40))
for turn in range(40):
    folder, is_now = f'd{turn}', [0] * FILES
    writer, reader = random.sample(mounts, 2)
    os.mkdir(f'{writer}/{folder}')
    for n in range(FILES): put(writer, folder, n, 0)
    order = os.listdir(f'{reader}/{folder}')
    if turn % 2: random.shuffle(order)
    for place, name in enumerate(order):
        n = int(name[1:])
        if random.random() < 0.1:
            for m in (n, int(random.choice(order)[1:])):
                is_now[m] += 1
                put(writer, folder, m, is_now[m])
        seen = open(f'{reader}/{folder}/{name}', 'rb').read()
        assert seen == b'%08d' % is_now[n] * (1 + n % 40), (folder, place, name, seen[:8], is_now[n])
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
