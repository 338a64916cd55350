//! Two mounts whose calls wait for each other's promises. The kernel holds a directory's lock while a change of it is asked
//! for, and whoever has it forget a name waits for that lock: so what one mount gives back must not wait for its own calls,
//! which may wait for the other.

use crate::fixture::Served;
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::{Scale, Trial};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::new("crossed::two_who_change_one_directory_hardly_wait_for_each_other", change_one_directory)]
}

/// Far longer than any change takes, however busy the host; those who waited for each other did so for a lease of 10 s, until
/// the server took everything from both.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(8);

/// Looks at names, so that they are believed, and makes or removes one, for so many seconds. Says how many changes it was,
/// and how many microseconds the longest took.
pub(crate) const CHANGE: &str = "
import os, random, sys, time
os.chdir('shared'); chance = random.Random(); end = time.monotonic() + int(sys.argv[1]); longest = count = 0
while time.monotonic() < end:
    for n in range(4):
        try: os.readlink(f'n{n}')
        except FileNotFoundError: pass
    name, before = f'n{chance.randrange(4)}', time.monotonic()
    try: os.symlink(f'{sys.argv[2]}{count}', name) if chance.randrange(2) else os.unlink(name)
    except (FileExistsError, FileNotFoundError): pass
    longest = max(longest, time.monotonic() - before); count += 1
print(count, int(longest * 1e6))
";

fn change_one_directory() -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount("")?, served.mount("")?);
    std::fs::create_dir(one.path().join("shared"))?;
    let seconds = Scale::from_env().pick(8, 60).to_string();
    let start = |mount: &holdfast_lab::Mount, whose| {
        let mut python = Command::new("python3");
        python.args(["-c", CHANGE, &seconds, whose]).current_dir(mount.path()).stdout(Stdio::piped()).spawn()
    };
    let working = [start(&one, "a")?, start(&other, "b")?];
    for work in working {
        let output = work.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (count, longest) = said.trim().split_once(' ').with_context(|| format!("{output:?}"))?;
        let longest = Duration::from_micros(longest.parse()?);
        println!("     {count} changes, the longest took {longest:?}");
        ensure!(longest < WAIT_MAX, "a change took {longest:?}\n{}\n{}", one.log(), other.log());
    }
    for mount in [&one, &other] {
        ensure!(!mount.log().contains("promises were lost"), "promises were lost\n{}", mount.log());
        mount.check_alive()?;
    }
    Ok(())
}
