//! Programs of the suite NFStest over kernel mounts, where a checkout of it can be had (`NFSTEST_DIR`): POSIX calls, and
//! byte-range locks of several processes and mounts. Those of its programs that judge packet traces are not run.
//!
//! A case is a sentence that the suite prints, passed when it never fails; what does not pass is listed with its
//! reason in `expected/nfstest.toml`.

use crate::checkout;
use crate::fixture::{guest, kernels, run_in, serve_on};
use anyhow::{Result, ensure};
use holdfast_lab::{Expectations, FsType, Kernel, NfsVersion, Observation, SuiteOutcome, Trial, process};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Left out: its own bindings of mmap lose the upper half of an address, and the program dies of it.
const POSIX: &str = "nfstest_posix --runtest ^mmap,munmap";
const LOCK: &str = "nfstest_lock";

/// The cases: none without a checkout.
pub(crate) fn trials() -> Vec<Trial> {
    let Some(checkout) = checkout::named_by("NFSTEST_DIR") else { return Vec::new() };
    let mut trials = Vec::new();
    for at_hand in kernels() {
        for (name, program) in [("nfstest_posix", POSIX), ("nfstest_lock", LOCK)] {
            let checkout = checkout.clone();
            let versions = [NfsVersion::V40, NfsVersion::V42];
            let run = move |kernel: &Kernel, version| conforms(&checkout, program, kernel, version);
            trials.extend(at_hand.trials(name, &versions, run));
        }
    }
    trials
}

fn conforms(checkout: &Path, program: &str, kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected/nfstest.toml");
    let expectations = Expectations::load(&list)?;
    let mut served = serve_on(FsType::Xfs, 4 << 30, &[])?;
    // It mounts by itself, calls sudo although it is root, and paints what it says to a terminal.
    let script = "printf '#!/bin/sh\\nexec \"$@\"\\n' >/usr/local/bin/sudo; chmod +x /usr/local/bin/sudo\n\
                  export PYTHONPATH=$SUITE; cd /run\n\
                  /usr/bin/python3 $SUITE/test/$PROGRAM --server $SERVER --port $PORT --export $EXPORT \
                  --nfsversion $VERSION --mtpoint /mnt/t --tmpdir /run 2>&1 | cat || true";
    let suite = checkout.to_string_lossy();
    let env = [("VERSION", version.as_str()), ("SUITE", &*suite), ("PROGRAM", program)];
    let report = run_in(guest(kernel, "1G", Duration::from_secs(900)), &mut served, script, &env)?;
    let seen = read(&report);
    ensure!(
        seen.len() > 10 && report.contains("Total time:"),
        "it did not come to its end: {}",
        process::tail(&report, 20)
    );
    let name = program.split(' ').next().unwrap_or(program);
    expectations.judge(&format!("{name}-{version}-{}", kernel.label()), &seen, |_| SuiteOutcome::Pass)
}

/// Each sentence once, however often it was judged; one failure fails it.
fn read(report: &str) -> Vec<Observation> {
    let mut sentences = BTreeMap::new();
    for line in report.lines().map(str::trim) {
        let (outcome, sentence) = match (line.strip_prefix("PASS: "), line.strip_prefix("FAIL: ")) {
            (Some(sentence), _) => (SuiteOutcome::Pass, sentence),
            (_, Some(sentence)) => (SuiteOutcome::Fail, sentence),
            _ => continue,
        };
        // Counts of a sentence that was judged many times follow it in parentheses.
        let sentence = sentence.split(" (").next().unwrap_or(sentence);
        let known = sentences.entry(sentence.to_owned()).or_insert(outcome);
        *known = (*known).max(outcome);
    }
    let seen = |(code, outcome)| Observation { code, outcome, message: String::new() };
    sentences.into_iter().map(seen).collect()
}
