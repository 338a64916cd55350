//! A file system that answers for another host, below what is served: what is done to it there nobody here sees, so nothing is
//! promised of it (`coherence.md`), and whoever reads through the server reads what is there.

use crate::fixture::{Served, run_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Mount, Trial, process};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("remote_below::nothing_is_delegated_of_it", || {
            looked_at("cache=delegations", "delegation")
        }),
        Trial::new("remote_below::no_capability_is_granted_of_it", || looked_at("", "capability")),
    ]
}

/// What is mounted somewhere, mounted here as well.
struct Bound(PathBuf);

impl Bound {
    fn new(of: &Path, at: PathBuf) -> Result<Self> {
        process::capture("mount", &[Path::new("--bind"), of, &at])?;
        Ok(Self(at))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // One that cannot be taken away is told by the case's file system, which cannot be unmounted then.
        let _ = process::capture("umount", &[Path::new("--lazy"), &self.0]);
    }
}

/// Of the file beside it there is a promise, of the one in it there is none; and what is written on the other host is seen.
fn looked_at(options: &str, kind: &str) -> Result<()> {
    let theirs = Served::new()?;
    std::fs::write(theirs.share().join("file"), "before")?;
    let remote = theirs.mount("")?;
    let served = Served::new()?;
    let below = served.share().join("below");
    std::fs::create_dir(&below)?;
    std::fs::write(served.share().join("file"), "beside")?;
    let _bound = Bound::new(&remote.path(), below)?;
    let mount = served.mount(options)?;
    let read = "exec 3<file 4<below/file; for i in 1 2 3; do cat file below/file; done";
    for round in ["before", "after", "later"] {
        std::fs::write(theirs.share().join("file"), round)?;
        let said = run_in(&mount.path(), read, &[]).with_context(|| mount.log())?;
        ensure!(said == format!("beside{round}").repeat(3), "{said:?} is read in the round {round:?}");
        let promised = promised(&served, kind)?;
        ensure!(
            promised.iter().any(|path| path.ends_with("share/file")),
            "none of the file beside: {promised:?}"
        );
        ensure!(!promised.iter().any(|path| path.contains("below/")), "promised: {promised:?}");
    }
    for mount in [&mount, &remote] {
        Mount::check_alive(mount)?;
    }
    Ok(())
}

/// The paths of what there is a promise of.
fn promised(served: &Served, kind: &str) -> Result<Vec<String>> {
    let held: Vec<Value> = serde_json::from_str(&served.server.ask(&["locks", "--kind", kind, "--json"])?)?;
    Ok(held.iter().filter_map(|held| Some(held["path"].as_str()?.to_owned())).collect())
}
