//! The conformance suite pynfs, 4.0 and 4.1, where a checkout of it can be had (`PYNFS_DIR`).
//!
//! The suite is no part of Holdfast: the checkout is copied into the target folder and built there. What does not
//! pass is listed, each case with its reason, in `expected/pynfs-*.toml`; `docs/conformance.md` tells the story.

use crate::checkout;
use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    Expectations, FsType, LoopFs, NfsVersion, Observation, ServerUnderTest, SuiteOutcome, Trial, suites,
};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// DELEG8 says nothing for the holder of a recalled delegation while it comes again ten times, a second apart: with a
/// lease no longer than that, the holder's state ends as a whole, and not the delegation alone.
const LEASE_SECONDS: u32 = 15;

/// Lease-bound cases wait for the lease, so a run takes minutes.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// The cases: none without a checkout.
pub(crate) fn trials() -> Vec<Trial> {
    let Some(checkout) = checkout::named_by("PYNFS_DIR") else { return Vec::new() };
    [NfsVersion::V40, NfsVersion::V41]
        .map(|version| {
            let checkout = checkout.clone();
            Trial::new(format!("pynfs::{version}"), move || conforms(&checkout, version))
        })
        .into()
}

fn conforms(checkout: &Path, version: NfsVersion) -> Result<()> {
    let list = format!("expected/pynfs-{}.toml", version.as_str());
    let expectations = Expectations::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(list))?;
    let suite = build(checkout, version)?.join(format!("nfs{}", version.as_str()));
    let filesystem = LoopFs::new(FsType::Ext4, 2 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let mut server = ServerUnderTest::builder(&share).lease_seconds(LEASE_SECONDS).start()?;
    let (port, export) = (server.port(), server.export());
    let report = suite.join("report.txt");
    run(&suite, &report, &format!("127.0.0.1:{port}{export}"))?;
    server.check_alive()?;
    let seen = read(&report)?;
    let count = |outcome| seen.iter().filter(|case| case.outcome == outcome).count();
    println!(
        "pynfs {version}: {} of {} pass, {} fail, {} warn, {} unsupported, {} skipped",
        count(SuiteOutcome::Pass),
        seen.len(),
        count(SuiteOutcome::Fail),
        count(SuiteOutcome::Warn),
        count(SuiteOutcome::Unsupported),
        count(SuiteOutcome::Skip),
    );
    expectations.judge(&version.to_string(), &seen, |_| SuiteOutcome::Pass)
}

/// One copy a version. Its build calls `python3` by name.
fn build(checkout: &Path, version: NfsVersion) -> Result<PathBuf> {
    let mut build = python()?;
    build.args(["setup.py", "build"]);
    checkout::built(checkout, &format!("pynfs/{version}"), build)
}

fn run(suite: &Path, report: &Path, url: &str) -> Result<()> {
    let asset = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/pynfs_nodelay.py");
    let output = File::create(report)?;
    let mut child = python()?
        .arg("-u")
        .arg(asset)
        .args(["testserver.py", url, "--maketree", "--uid=0", "--gid=0"])
        .args(["-v", "--showomit", "--rundeps", "all"])
        .current_dir(suite)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    // Its exit status only tells that something failed; the report tells what.
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("pynfs did not end within {PATIENCE:?}; see {}", report.display());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn read(report: &Path) -> Result<Vec<Observation>> {
    let asset = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/pynfs_outcomes.py");
    let parsed = python()?.arg(asset).arg(report).output()?;
    let said = String::from_utf8_lossy(&parsed.stderr);
    ensure!(parsed.status.success(), "{}: {}", report.display(), said.trim());
    serde_json::from_slice(&parsed.stdout).context("what pynfs_outcomes.py printed")
}

/// The environment's interpreter, first in `PATH` as well.
fn python() -> Result<Command> {
    let python = suites::python()?;
    let folder = python.parent().context("no parent folder")?;
    let mut command = Command::new(&python);
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    Ok(command)
}
