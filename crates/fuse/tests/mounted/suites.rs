//! Suites that others wrote, over a mount of the double.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::Stage;

/// The program of a suite, as `scripts/install-suites` leaves it below the target folder.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let candidates = own.ancestors().map(|folder| folder.join("suites/bin").join(name));
    let found = candidates.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is missing: run scripts/install-suites"))
}

#[test]
fn fsx_finds_nothing() {
    const CONFIG: &str = "flen = 1048576\n[opsize]\nmax = 131072\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
        mapread = 10\nmapwrite = 10\ninvalidate = 1\ntruncate = 3\nfsync = 1\nfdatasync = 1\n\
        posix_fallocate = 1\npunch_hole = 2\nsendfile = 3\ncopy_file_range = 2\n";
    let stage = Stage::new();
    let work = tempfile::tempdir().unwrap();
    let config = work.path().join("fsx.toml");
    fs::write(&config, CONFIG).unwrap();
    let output = Command::new(program("fsx"))
        .args(["-S", "4209", "-N", "20000", "-f"])
        .arg(&config)
        .arg("-P")
        .arg(work.path())
        .arg(stage.path("file"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const PJDFSTEST: &str = "[features]\nposix_fallocate = {}\nutime_now = {}\nutimensat = {}\nrename_ctime = {}\n\
    [settings]\nnaptime = 0.02\nallow_remount = false\n\
    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";

/// What may end otherwise than on a local file system, and why.
const EXPECTED: &[(&str, &str)] = &[(
    "link::link_count_max",
    "the suite asks pathconf for LINK_MAX; the C library answers by file-system type and knows none for FUSE",
)];

#[test]
fn pjdfstest_finds_no_more_than_on_a_local_file_system() {
    let stage = Stage::new();
    let work = tempfile::tempdir().unwrap();
    let config = work.path().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).unwrap();
    let below = work.path().join("below");
    fs::create_dir(&below).unwrap();
    // Another file system than either, for what must not go across.
    let second = tempfile::tempdir_in("/dev/shm").unwrap();
    let local = pjdfstest(&config, &below, second.path());
    let mounted = pjdfstest(&config, stage.root(), second.path());
    assert!(local.len() > 100, "only {} cases", local.len());
    let differs: Vec<_> = mounted
        .iter()
        .filter(|(case, outcome)| local.get(*case) != Some(outcome))
        .map(|(case, outcome)| format!("{case}: {outcome}, locally {:?}", local.get(case)))
        .collect();
    let is_expected = |difference: &&String| EXPECTED.iter().any(|(case, _)| difference.starts_with(case));
    let unexpected: Vec<_> = differs.iter().filter(|difference| !is_expected(difference)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert_eq!(differs.len(), EXPECTED.len(), "one that was expected does not differ any more: {differs:#?}");
}

/// Cases and how they ended, the first word of it.
fn pjdfstest(config: &Path, at: &Path, second: &Path) -> BTreeMap<String, String> {
    let output = Command::new(program("pjdfstest"))
        .env("NO_COLOR", "1")
        .arg("-c")
        .arg(config)
        .arg("-p")
        .arg(at)
        .arg("-s")
        .arg(second)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(folder) = std::env::var_os("HOLDFAST_KEEP") {
        let name = format!("pjdfstest-{}.txt", at.file_name().unwrap().to_string_lossy());
        fs::write(Path::new(&folder).join(name), &text).unwrap();
    }
    let case = |line: &str| {
        let (case, word) = line.trim_end().rsplit_once(' ')?;
        matches!(word, "ok" | "FAILED" | "skipped").then(|| (case.trim().to_owned(), word.to_owned()))
    };
    text.lines().filter(|line| !line.starts_with('\t')).filter_map(case).collect()
}
