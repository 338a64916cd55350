//! The suite `pjdfstest` over our mount, against the same suite on the file system below.

use crate::fixture::Served;
use anyhow::{Context, Result};
use holdfast_lab::server::Target;
use holdfast_lab::{Expectations, FsType, Observation, SuiteOutcome, Trial, process, suites};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Sleeps of 20 ms, longer than a tick of the coarse clock that stamps files. The two users exist everywhere.
const CONFIG: &str = "[features]\nposix_fallocate = {}\nutime_now = {}\nutimensat = {}\nrename_ctime = {}\n\
                      [settings]\nnaptime = 0.02\nallow_remount = false\n\
                      [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";

const LIMIT: Duration = Duration::from_secs(480);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [
        ("cached", ""),
        ("network", "nolocal"),
        ("delegated", "cache=delegations"),
        ("uncached", "cache=none"),
    ];
    let trial = |(way, options): (&'static str, &'static str)| {
        Trial::new(format!("mount_pjdfstest::{way}"), move || no_worse_than_below(way, options)).limit(LIMIT)
    };
    ways.into_iter().map(trial).collect()
}

fn no_worse_than_below(way: &str, options: &str) -> Result<()> {
    let program = suites::program("pjdfstest")?;
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected/mount-pjdfstest.toml");
    let expectations = Expectations::load(&list)?;
    let work = tempfile::tempdir()?;
    let config = work.path().join("pjdfstest.toml");
    std::fs::write(&config, CONFIG)?;
    let served = Served::by(Target::Holdfast, FsType::Ext4)?;
    let beside = served.filesystem.path().join("beside");
    std::fs::create_dir(&beside)?;
    let run = |directory: &Path| -> Result<Vec<Observation>> {
        let place = ["-p".as_ref(), directory.as_os_str(), "-s".as_ref(), work.path().as_os_str()];
        let arguments = [&["-c".as_ref(), config.as_os_str()][..], &place].concat();
        // Its exit status only repeats that something failed.
        let output = process::output(&program.to_string_lossy(), &arguments)?;
        let cases = suites::read_pjdfstest(&String::from_utf8_lossy(&output.stdout));
        anyhow::ensure!(cases.len() > 100, "only {} cases in {}", cases.len(), directory.display());
        Ok(cases)
    };
    let below: BTreeMap<_, _> = run(&beside)?.into_iter().map(|case| (case.code, case.outcome)).collect();
    // The suite makes device files and sets set-id bits, and looks what they do.
    let options = [options, "dev,suid"].join(",");
    let mount = served.mount(options.trim_matches(','))?;
    let seen = run(&mount.path())?;
    keep(way, &seen)?;
    mount.check_alive()?;
    mount.unmount(&[])?;
    let normal = |code: &str| below.get(code).copied().unwrap_or(SuiteOutcome::Pass);
    expectations.judge(way, &seen, normal)
}

/// Leaves what was seen in the target folder, for whoever has to explain a difference.
fn keep(way: &str, seen: &[Observation]) -> Result<()> {
    let folder = holdfast_lab::kernel::target_dir().join("lab");
    std::fs::create_dir_all(&folder)?;
    let mut text = String::new();
    for case in seen {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:?}\t{}\t{}", case.outcome, case.code, case.message);
    }
    let path = folder.join(format!("mount-pjdfstest-{way}.txt"));
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}
