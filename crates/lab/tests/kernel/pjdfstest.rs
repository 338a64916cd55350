//! The suite `pjdfstest` over the kernel's mounts, against the same suite on the file system below.
//!
//! What fails on the file system itself is not the server's; what the protocol dictates is listed, each case
//! with its reason, in `expected/pjdfstest.toml`.

use crate::fixture::{KernelAtHand, guest, kernels, run_in, serve};
use anyhow::{Context, Result};
use holdfast_lab::{Expectations, Kernel, NfsVersion, Observation, SuiteOutcome, Trial, process, suites};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const VERSIONS: [NfsVersion; 3] = [NfsVersion::V3, NfsVersion::V41, NfsVersion::V42];

/// Sleeps of 20 ms, longer than a tick of the coarse clock that stamps files. The two users exist everywhere.
const CONFIG: &str = "[features]\nposix_fallocate = {}\nutime_now = {}\nutimensat = {}\nrename_ctime = {}\n\
                      [settings]\nnaptime = 0.02\nallow_remount = false\n\
                      [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";

/// More than the guest's time, and what the suite takes below.
const LIMIT: Duration = Duration::from_secs(420);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let on = |at_hand: &KernelAtHand| at_hand.trials("pjdfstest", &VERSIONS, no_worse_than_below);
    kernels().iter().flat_map(on).map(|trial| trial.limit(LIMIT)).collect()
}

fn no_worse_than_below(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let program = suites::program("pjdfstest")?;
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected/pjdfstest.toml");
    let expectations = Expectations::load(&list)?;
    let work = tempfile::tempdir()?;
    let config = work.path().join("pjdfstest.toml");
    std::fs::write(&config, CONFIG)?;

    let mut served = serve(1 << 30, &[])?;
    let beside = served.filesystem.path().join("beside");
    std::fs::create_dir(&beside)?;
    let below = on_the_host(&program, &config, &beside, work.path())?;

    let script = "lab_mount $VERSION /mnt; mkdir /run/second; mount -t tmpfs second /run/second\n\
                  NO_COLOR=1 $PROGRAM -c $CONFIG -p /mnt -s /run/second || true\n\
                  umount /mnt";
    let (program, config) = (program.to_string_lossy(), config.to_string_lossy());
    let env = [("VERSION", version.as_str()), ("PROGRAM", &*program), ("CONFIG", &*config)];
    let report = run_in(guest(kernel, "512M", Duration::from_secs(300)), &mut served, script, &env)?;
    let seen = suites::read_pjdfstest(&report);
    keep(kernel, version, &seen)?;
    let missing = below.keys().filter(|code| !seen.iter().any(|case| case.code == **code)).count();
    anyhow::ensure!(missing == 0, "{missing} of {} cases did not run over the mount", below.len());
    let normal = |code: &str| below.get(code).copied().unwrap_or(SuiteOutcome::Pass);
    expectations.judge(&format!("{version}-{}", kernel.label()), &seen, normal)
}

/// Runs the suite on the served file system itself; its exit status only repeats that something failed.
fn on_the_host(
    program: &Path,
    config: &Path,
    directory: &Path,
    second: &Path,
) -> Result<BTreeMap<String, SuiteOutcome>> {
    let arguments = [
        "-c".as_ref(),
        config.as_os_str(),
        "-p".as_ref(),
        directory.as_os_str(),
        "-s".as_ref(),
        second.as_os_str(),
    ];
    let output = process::output(&program.to_string_lossy(), &arguments)?;
    let cases = suites::read_pjdfstest(&String::from_utf8_lossy(&output.stdout));
    anyhow::ensure!(cases.len() > 100, "only {} cases on the host", cases.len());
    Ok(cases.into_iter().map(|case| (case.code, case.outcome)).collect())
}

/// Leaves what was seen in the target folder, for whoever has to explain a difference.
fn keep(kernel: &Kernel, version: NfsVersion, seen: &[Observation]) -> Result<()> {
    let folder: PathBuf = holdfast_lab::kernel::target_dir().join("lab");
    std::fs::create_dir_all(&folder)?;
    let mut text = String::new();
    for case in seen {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:?}\t{}\t{}", case.outcome, case.code, case.message);
    }
    let path = folder.join(format!("pjdfstest-{version}-{}.txt", kernel.label()));
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}
