//! Two mounts whose calls wait for each other's promises. The kernel holds a directory's lock while a change of it is asked
//! for, and whoever has it forget a name waits for that lock: so what one mount gives back must not wait for its own calls,
//! which may wait for the other.

use crate::failing::bash;
use crate::fixture::Served;
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::{Scale, Trial};
use std::time::Duration;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::new("crossed::two_who_change_one_directory_hardly_wait_for_each_other", change_one_directory)]
}

/// Far longer than any change takes, however busy the host; those who waited for each other did so for a lease of 10 s, until
/// the server took everything from both.
const WAIT_MAX: Duration = Duration::from_secs(8);

/// Looks at names, so that they are believed, and makes or removes one, for so many seconds. Says how many changes it was,
/// and how many microseconds the longest took.
const CHANGE: &str = r#"
cd shared; end=$((SECONDS + $1)); longest=0; count=0
while [ $SECONDS -lt $end ]; do
    for i in 0 1 2 3; do readlink n$i || true; done >/dev/null
    name=n$((RANDOM % 4)); before=${EPOCHREALTIME/./}
    if [ $((RANDOM % 2)) = 0 ]; then ln -s $2$count $name 2>/dev/null || true; else rm -f $name; fi
    took=$((${EPOCHREALTIME/./} - before)); count=$((count + 1))
    if [ $took -gt $longest ]; then longest=$took; fi
done
echo $count $longest >&2
"#;

fn change_one_directory() -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount("")?, served.mount("")?);
    std::fs::create_dir(one.path().join("shared"))?;
    let seconds = Scale::from_env().pick(8, 60).to_string();
    let start = |mount: &holdfast_lab::Mount, whose| bash(&mount.path(), CHANGE, &[&seconds, whose]);
    let working = [start(&one, "a")?, start(&other, "b")?];
    for work in working {
        let output = work.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
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
