//! A real systemd, the first process of a namespace, that has nothing but the unit of `dist/`: what its store of descriptors
//! does for clients when the server is restarted, killed and stopped. In a guest, with mounts of its kernel; and on this
//! host, whose speed is what clients feel.

use crate::fixture::{guest, kernels, scripts};
use anyhow::{Context, Result, ensure};
use holdfast_lab::kernel::checkout;
use holdfast_lab::process::tail;
use holdfast_lab::server::holdfast_binary;
use holdfast_lab::{Kernel, Scale, Trial, missing};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(180);
const SYSTEMD: &str = "/lib/systemd/systemd";
const RESTARTS: usize = 5;
const RESTARTS_SOAK: usize = 30;
/// What is promised, of the median: others are busy on this host as well.
const STILL_MS_PROMISED: u64 = 500;

/// The cases. Debian's kernel alone: the newest is built without namespaces of processes.
pub(crate) fn trials() -> Vec<Trial> {
    let [debians, _] = kernels();
    vec![
        debians.trial("systemd::a_restart_goes_on_a_kill_refuses_nobody_and_a_stop_lets_go", serves),
        Trial::new("systemd::a_restart_is_a_short_pause", restarts).limit(PATIENCE),
    ]
}

/// What the scripts need to know.
fn variables() -> Result<Vec<(&'static str, String)>> {
    missing::file(Path::new(SYSTEMD), "apt-get install systemd")?;
    let paths = [("SCRIPTS", scripts()), ("BINARY", holdfast_binary()?), ("DIST", checkout().join("dist"))];
    Ok(paths.into_iter().map(|(name, path)| (name, path.to_string_lossy().into_owned())).collect())
}

fn serves(kernel: &Kernel) -> Result<()> {
    let env = variables()?;
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let said = guest(kernel, "1G", PATIENCE).run_script(". $SCRIPTS/under_systemd.sh", &env)?.success()?;
    println!("{}: {}", kernel.label(), said.trim().replace('\n', "; "));
    ensure!(said.contains("all is done"), "{said}");
    Ok(())
}

fn restarts() -> Result<()> {
    missing::superuser()?;
    let times = Scale::from_env().pick(RESTARTS, RESTARTS_SOAK);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--cgroup", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]);
    command.args(["bash", "-eu", "-c", ". $SCRIPTS/restarts_here.sh"]);
    command.envs(variables()?).env("TIMES", times.to_string());
    command.env("PYTHON", missing::program("python3", "python3")?);
    let output = command.output().context("unshare")?;
    let (said, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {said}{}", output.status, tail(&complaints, 60));
    let still = |line: &str| line.split_once("still_ms=")?.1.split_whitespace().next()?.parse::<u64>().ok();
    let mut stills: Vec<u64> = said.lines().filter_map(still).collect();
    ensure!(
        stills.len() == times,
        "{} of {times} restarts went on with what was stored: {said}",
        stills.len()
    );
    stills.sort_unstable();
    let client = said.lines().find(|line| line.contains("calls")).context("the client said nothing")?;
    println!("the server stood still for {stills:?} ms; {client}");
    let median = stills[times / 2];
    ensure!(median < STILL_MS_PROMISED, "mostly for too long: {stills:?} ms");
    Ok(())
}
