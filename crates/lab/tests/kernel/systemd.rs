//! A real systemd, the first process of a namespace in a guest, that has nothing but the unit of `dist/`: what its store of
//! descriptors does for clients when the server is restarted, killed and stopped.

use crate::fixture::{guest, kernels, scripts};
use anyhow::{Result, ensure};
use holdfast_lab::kernel::checkout;
use holdfast_lab::server::holdfast_binary;
use holdfast_lab::{Kernel, Trial, missing};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(180);
const SYSTEMD: &str = "/lib/systemd/systemd";

/// The cases. Debian's kernel alone: the newest is built without namespaces of processes.
pub(crate) fn trials() -> Vec<Trial> {
    let [debians, _] = kernels();
    vec![debians.trial("systemd::a_restart_goes_on_a_kill_refuses_nobody_and_a_stop_lets_go", serves)]
}

fn serves(kernel: &Kernel) -> Result<()> {
    missing::file(Path::new(SYSTEMD), "apt-get install systemd")?;
    let (scripts, binary, dist) = (scripts(), holdfast_binary()?, checkout().join("dist"));
    let paths = [("SCRIPTS", &scripts), ("BINARY", &binary), ("DIST", &dist)];
    let paths = paths.map(|(name, path)| (name, path.to_string_lossy()));
    let env: Vec<(&str, &str)> = paths.iter().map(|(name, path)| (*name, &**path)).collect();
    let said = guest(kernel, "1G", PATIENCE).run_script(". $SCRIPTS/under_systemd.sh", &env)?.success()?;
    println!("{}: {}", kernel.label(), said.trim().replace('\n', "; "));
    ensure!(said.contains("all is done"), "{said}");
    Ok(())
}
