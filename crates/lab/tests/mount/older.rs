//! Our mounts on the oldest kernel that is supported: two in one guest, with a server of this host. It has no word that makes
//! it forget all names (Linux 6.17), so it is told none to believe in.

use crate::crossed::{CHANGE, WAIT_MAX};
use crate::everyday::{DATA, GIT, MAKE, NAMES, SQLITE};
use crate::fixture::Served;
use crate::two::{BYTES, SEEN};
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::{Guest, Kernel, Scale, Trial};
use std::time::Duration;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("older::everyday_work_and_one_truth_of_two", one_truth),
        Trial::new("older::two_who_change_one_directory_hardly_wait_for_each_other", change_one_directory),
    ]
}

const PATIENCE: Duration = Duration::from_secs(240);

/// Mounts at `/one` and `/other`, with the runtime directory that tells of them; and their end, without complaints.
const MOUNTED: &str = "
modprobe fuse; [ -e /dev/fuse ] || mknod /dev/fuse c 10 229
export HOLDFAST_RUNTIME_DIR=/tmp/run
for at in /one /other; do mkdir $at; \"$HOLDFAST_BIN\" --log info mount \"$SERVER:$PORT:$EXPORT\" $at; done
unmounted() {
    for at in /one /other; do \"$HOLDFAST_BIN\" umount $at; done
    if grep -e panicked -e 'promises were lost' /tmp/run/*.log >&2; then exit 1; fi
}
";

/// Runs a script in a guest with both mounts; what it said.
fn in_guest(served: &mut Served, script: &str) -> Result<String> {
    let binary = holdfast_lab::server::holdfast_binary()?;
    let (port, export) = (served.server.port().to_string(), served.server.export());
    let env =
        [("PORT", port.as_str()), ("EXPORT", export.as_str()), ("HOLDFAST_BIN", &*binary.to_string_lossy())];
    let guest = Guest::builder().kernel(Kernel::Debian61).memory("512M").timeout(PATIENCE);
    let outcome = guest.start(&format!("{MOUNTED}{script}\nunmounted"), &env).and_then(Guest::wait);
    served.server.check_alive()?;
    outcome?.success()
}

fn one_truth() -> Result<()> {
    let all = [("names", NAMES), ("sqlite", SQLITE), ("git", GIT), ("make", MAKE), ("data", DATA)];
    // Who starts many processes takes long in a guest.
    let (works, rounds, bytes) = Scale::from_env().pick((&all[..2], 10, 256), (&all[..], 100, 4096));
    let mut script = String::new();
    for (name, work) in works {
        script += &format!("mkdir /one/{name}; (cd /one/{name}; {work})\nrm -rf /other/{name}\n");
    }
    for work in [SEEN, BYTES] {
        let work =
            work.replace("range(100)", &format!("range({rounds})")).replace("4096", &bytes.to_string());
        script += &format!("python3 - /one /other <<'E'\n{work}\nE\n");
    }
    in_guest(&mut Served::new()?, &script).map(drop)
}

fn change_one_directory() -> Result<()> {
    let script = format!(
        "mkdir /one/shared
cat >/tmp/change <<'E'\n{CHANGE}\nE
(cd /one; python3 /tmp/change 8 a) >/tmp/a & one=$!
(cd /other; python3 /tmp/change 8 b) >/tmp/b & other=$!
wait $one; wait $other; cat /tmp/a /tmp/b"
    );
    let said = in_guest(&mut Served::new()?, &script)?;
    let lines: Vec<_> = said.lines().filter(|line| line.split(' ').count() == 2).collect();
    ensure!(lines.len() == 2, "{said}");
    for line in lines {
        let longest = line.split(' ').nth(1).context("no time")?;
        let longest = Duration::from_micros(longest.parse()?);
        println!("     {line}: changes, and microseconds the longest took");
        ensure!(longest < WAIT_MAX, "a change took {longest:?}\n{said}");
    }
    Ok(())
}
