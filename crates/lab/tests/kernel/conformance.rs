//! Suites of system calls over the kernel's mounts, where a checkout of them can be had: Connectathon's
//! (`CTHON_DIR`, the edition of 2004) and nfs-conformance (`NFS_CONFORMANCE_DIR`), which took its place.
//!
//! What does not pass is listed with its reason in `expected/nfs-conformance.toml`; of Connectathon's everything has
//! to pass.

use crate::checkout;
use crate::fixture::{guest, kernels, run_in, serve_on};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{Expectations, FsType, Kernel, NfsVersion, Observation, SuiteOutcome, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SHARE_BYTES: u64 = 4 << 30;

/// The parts of Connectathon's suite. The mounts of v3 keep their locks to themselves: over NLM they have a case of their own.
const PARTS: &str = "basic general special lock";

/// More than the guests' ten minutes.
const LIMIT: Duration = Duration::from_secs(660);

/// The cases: none without a checkout.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for at_hand in kernels() {
        if let Some(checkout) = checkout::named_by("CTHON_DIR") {
            let run = move |kernel: &Kernel, version| connectathon(&checkout, kernel, version);
            trials.extend(at_hand.trials("connectathon", &NfsVersion::ALL, run));
        }
        if let Some(checkout) = checkout::named_by("NFS_CONFORMANCE_DIR") {
            let run = move |kernel: &Kernel, version| nfs_conformance(&checkout, kernel, version);
            trials.extend(at_hand.trials("nfs_conformance", &NfsVersion::ALL, run));
        }
    }
    trials.into_iter().map(|trial| trial.limit(LIMIT)).collect()
}

/// Connectathon's suite, built.
pub(crate) fn connectathon_suite(checkout: &Path) -> Result<PathBuf> {
    // Its C is of 1989, and one of its libraries is not named where it is needed.
    let script = "for part in basic general special lock; do\n\
                  make -C $part CC='cc -std=gnu89 -w' LIBS=-lm LOCKTESTS='tlocklfs tlock64' \
                  CFLAGS='-DLINUX -DHAVE_SOCKLEN_T -DGLIBC=22 -DMMAP -DSTDARG'\n\
                  done";
    let mut build = Command::new("sh");
    build.args(["-ec", script]);
    checkout::built(checkout, "suites/connectathon", build)
}

fn connectathon(checkout: &Path, kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let suite = connectathon_suite(checkout)?;
    let mut served = serve_on(FsType::Xfs, SHARE_BYTES, &[])?;
    let script = "lab_mount $VERSION /mnt; cd $SUITE; status=0\n\
                  export NFSTESTDIR=/mnt/test LOCKTESTS='tlocklfs tlock64' CIFS=no PATH=$PATH:.\n\
                  export CC='cc -std=gnu89 -w' LIBS= CFLAGS='-DLINUX -DHAVE_SOCKLEN_T -DGLIBC=22 -DMMAP -DSTDARG'\n\
                  export mntopts=\"$(grep ' /mnt ' /proc/mounts)\"\n\
                  for part in $PARTS; do\n\
                  rm -rf $NFSTESTDIR\n\
                  (cd $part; sh ./runtests -f) >/run/said 2>&1 || { status=1; echo \"$part:\"; tail -n 30 /run/said; }\n\
                  done\n\
                  cd /; umount /mnt; exit $status";
    let suite = suite.to_string_lossy();
    let env = [("VERSION", version.as_str()), ("SUITE", &*suite), ("PARTS", PARTS)];
    run_in(guest(kernel, "1G", Duration::from_secs(600)), &mut served, script, &env).map(drop)
}

fn nfs_conformance(checkout: &Path, kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected/nfs-conformance.toml");
    let expectations = Expectations::load(&list)?;
    let mut build = Command::new("make");
    build.arg("-j2");
    let suite = checkout::built(checkout, "suites/nfs-conformance", build)?;
    let mut served = serve_on(FsType::Xfs, SHARE_BYTES, &[])?;
    // Two of its cases are about mounts with options of their own. One compares the clock, in whole seconds, with times of files that the
    // server's kernel sets, by its last tick some milliseconds ago: not at the turn of a second.
    let script = "lab_clock; lab_mount $VERSION /mnt/usual; mkdir -p /mnt/usual/test\n\
                  lab_mount $VERSION /mnt/noac nosharecache,noac\n\
                  lab_mount $VERSION /mnt/soft nosharecache,soft,timeo=50\n\
                  cd $SUITE\n\
                  for source in op_*.c; do\n\
                  name=${source%.c}; status=0; on=usual\n\
                  case $name in op_noac) on=noac;; op_soft_timeout) on=soft;;\n\
                  op_utimensat) while [ $(date +%1N) -gt 4 ]; do sleep 0.1; done;; esac\n\
                  timeout 120 ./$name -d /mnt/$on/test >/run/said 2>&1 || status=$?\n\
                  echo \"$name $status $(grep -E 'SKIP|FAIL|BUG' /run/said | head -n 1)\"\n\
                  done\n\
                  cd /; umount /mnt/usual /mnt/noac /mnt/soft";
    let suite = suite.to_string_lossy();
    let env = [("VERSION", version.as_str()), ("SUITE", &*suite)];
    let report = run_in(guest(kernel, "1G", Duration::from_secs(600)), &mut served, script, &env)?;
    let seen: Vec<_> = report.lines().map(outcome_of).collect::<Result<_>>()?;
    ensure!(seen.len() > 60, "only {} cases", seen.len());
    expectations.judge(&format!("{version}-{}", kernel.label()), &seen, |_| SuiteOutcome::Pass)
}

/// A line `NAME STATUS COMPLAINT`; the statuses are those of automake's tests.
fn outcome_of(line: &str) -> Result<Observation> {
    let (code, rest) = line.split_once(' ').with_context(|| format!("no status in {line:?}"))?;
    let (status, message) = rest.split_once(' ').unwrap_or((rest, ""));
    let outcome = match status {
        "0" => SuiteOutcome::Pass,
        "77" => SuiteOutcome::Skip,
        _ => SuiteOutcome::Fail,
    };
    Ok(Observation { code: code.to_owned(), outcome, message: format!("status {status}: {message}") })
}
