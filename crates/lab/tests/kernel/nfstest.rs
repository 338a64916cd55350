//! Programs of the suite NFStest over kernel mounts, where a checkout of it can be had (`NFSTEST_DIR`): POSIX calls, and
//! byte-range locks of several processes and mounts, and delegations, judged by what `tcpdump` saw on the wire.
//!
//! A case is a sentence that the suite prints, passed when it never fails; what does not pass is listed with its
//! reason in `expected/nfstest.toml`.

use crate::checkout;
use crate::fixture::{guest, kernels, run_in, serve_on};
use anyhow::{Result, ensure};
use holdfast_lab::kernel::target_dir;
use holdfast_lab::missing;
use holdfast_lab::{Expectations, FsType, Kernel, NfsVersion, Observation, SuiteOutcome, Trial, process};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// One of the suite's programs.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    /// What the guest does before.
    before: &'static str,
    arguments: &'static str,
    versions: &'static [NfsVersion],
    patience: Duration,
    judges_traces: bool,
    /// Some of what it judges depends on how fast the guest is.
    is_hasty: bool,
}

/// As many tests that failed are run once more, of a program that is hasty.
const RETRIED_MAX: usize = 4;

const PROGRAMS: [Program; 3] = [
    Program {
        name: "nfstest_posix",
        before: "",
        // Left out: its own bindings of mmap lose the upper half of an address, and the program dies of it.
        arguments: "--runtest ^mmap,munmap",
        versions: &[NfsVersion::V40, NfsVersion::V41, NfsVersion::V42],
        patience: Duration::from_secs(900),
        judges_traces: false,
        is_hasty: false,
    },
    Program {
        // It looks a tenth of a second after it had a helper lock whether that has ended, or blocks.
        name: "nfstest_lock",
        // Of clients whose mount point is given it mounts all but the first.
        before: "mkdir -p /mnt/s; mount -t nfs -o vers=$SECOND,port=$PORT,proto=tcp $SERVER:$EXPORT /mnt/s",
        arguments: "--unlock-delay 0.5 --client client=127.0.0.2:nfsversion=$SECOND:proto=tcp:port=$PORT:mtpoint=/mnt/s,\
                    client=127.0.0.3:nfsversion=$THIRD:proto=tcp:port=$PORT:mtpoint=/mnt/u",
        versions: &[NfsVersion::V40, NfsVersion::V41, NfsVersion::V42],
        patience: Duration::from_secs(1800),
        judges_traces: false,
        is_hasty: true,
    },
    Program {
        // What it reads out of a trace lacks a call now and then that was made, for what came later depends on it.
        name: "nfstest_delegation",
        before: "",
        // Each of its tcpdumps takes twice 192 MiB for packets unless told otherwise, and where they end slowly there are three
        // at a time: the guest would kill the suite for want of memory.
        arguments: "--tcpdump /usr/local/bin/tcpdump --tbsize 16k --trcdelay 1 \
                    --client nfsversion=$SECOND:proto=tcp:port=$PORT:mtpoint=/mnt/s",
        versions: &[NfsVersion::V41, NfsVersion::V42],
        patience: Duration::from_secs(1800),
        judges_traces: true,
        is_hasty: true,
    },
];

/// The cases: none without a checkout.
pub(crate) fn trials() -> Vec<Trial> {
    let Some(checkout) = checkout::named_by("NFSTEST_DIR") else { return Vec::new() };
    let mut trials = Vec::new();
    for at_hand in kernels() {
        for program in PROGRAMS {
            let checkout = checkout.clone();
            let run = move |kernel: &Kernel, version| conforms(&checkout, program, kernel, version);
            let cases = at_hand.trials(program.name, program.versions, run);
            // What failed is run once more.
            trials.extend(cases.into_iter().map(|case| case.limit(program.patience * 2)));
        }
    }
    trials
}

fn conforms(checkout: &Path, program: Program, kernel: &Kernel, version: NfsVersion) -> Result<()> {
    if program.judges_traces {
        missing::program("tcpdump", "tcpdump")?;
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected/nfstest.toml");
    let expectations = Expectations::load(&list)?;
    let scope = format!("{}-{version}-{}", program.name, kernel.label());
    let run = || report_of(checkout, program, (kernel, version), program.arguments, &scope);
    let mut report = run()?;
    if report.contains("in create_rexec") {
        // The suite's helper has a second to start, which a busy machine may not grant it.
        println!("{scope}: once more, as the suite's helper did not start");
        report = run()?;
    }
    let mut verdicts = read(&report);
    ensure!(
        verdicts.len() > 10 && report.contains("Total time:"),
        "it did not come to its end: {}",
        process::tail(&report, 20)
    );
    let failing = verdicts.iter().filter(|(_, outcome)| **outcome == SuiteOutcome::Fail);
    let failed: BTreeSet<String> = failing.map(|((test, _), _)| test.clone()).collect();
    if program.is_hasty && (1..=RETRIED_MAX).contains(&failed.len()) {
        let tests = failed.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        println!("{scope}: once more {tests}");
        let arguments = format!("{} --runtest {tests}", program.arguments);
        let report = report_of(checkout, program, (kernel, version), &arguments, &format!("{scope}-again"))?;
        verdicts.retain(|(test, _), _| !failed.contains(test));
        verdicts.extend(read(&report));
    }
    expectations.judge(&scope, &by_sentence(&verdicts), |_| SuiteOutcome::Pass)
}

/// Those of NFSv4 over which the same kernel is another client to any server.
fn other_minor_versions(version: NfsVersion) -> [&'static str; 2] {
    match version {
        NfsVersion::V40 => ["4.1", "4.2"],
        NfsVersion::V41 => ["4.0", "4.2"],
        _ => ["4.0", "4.1"],
    }
}

/// What the program says, kept in the target folder too.
fn report_of(
    checkout: &Path,
    program: Program,
    (kernel, version): (&Kernel, NfsVersion),
    arguments: &str,
    kept_as: &str,
) -> Result<String> {
    let mut served = serve_on(FsType::Xfs, 4 << 30, &[])?;
    // It mounts by itself, calls sudo although it is root, and paints what it says to a terminal. Its other clients are mounts
    // of the same guest, in which it is to run what it would run there by ssh. It unmounts by force,
    // which has Linux drop the CLOSE and DELEGRETURN that are on their way; and it reads traces as soon as it has told
    // tcpdump to end, so what that has seen must be in the file by then.
    let script = format!(
        "cd /usr/local/bin\n\
         printf '#!/bin/sh\nexec \"$@\"\n' >sudo\n\
         printf '#!/bin/sh\ntest \"$1\" != -f || shift\nexec /usr/bin/umount \"$@\"\n' >umount\n\
         printf '#!/bin/sh\nexec /usr/bin/tcpdump -U --immediate-mode \"$@\"\n' >tcpdump\n\
         printf '#!/bin/sh\nwhile test \"${{1#-}}\" != \"$1\"; do shift; done\nshift\nexec sh -c \"$*\"\n' >ssh\n\
         chmod +x sudo umount tcpdump ssh\n{}\n\
         export PYTHONPATH=$SUITE; cd /run\n\
         /usr/bin/python3 $SUITE/test/{} --server $SERVER --port $PORT --export $EXPORT \
         --nfsversion $VERSION --mtpoint /mnt/t --tmpdir /run {arguments} 2>&1 | cat || true",
        program.before, program.name
    );
    let suite = checkout.to_string_lossy();
    let [second, third] = other_minor_versions(version);
    let env = [("VERSION", version.as_str()), ("SECOND", second), ("THIRD", third), ("SUITE", &*suite)];
    // The suite keeps what it has read of traces: with 1 GiB the kernel ended it, or its tcpdump, in the middle.
    let memory = if program.judges_traces { "3G" } else { "1G" };
    let report = run_in(guest(kernel, memory, program.patience), &mut served, &script, &env)?;
    let folder = target_dir().join("lab");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(format!("{kept_as}.txt")), &report)?;
    Ok(report)
}

/// By test and sentence, however often it was judged there: one failure fails it.
fn read(report: &str) -> BTreeMap<(String, String), SuiteOutcome> {
    let (mut verdicts, mut test) = (BTreeMap::new(), String::new());
    for line in report.lines().map(str::trim) {
        if let Some(running) = line.strip_prefix("TEST: Running test '") {
            running.trim_end_matches('\'').clone_into(&mut test);
        }
        let (outcome, sentence) = match (line.strip_prefix("PASS: "), line.strip_prefix("FAIL: ")) {
            (Some(sentence), _) => (SuiteOutcome::Pass, sentence),
            (_, Some(sentence)) => (SuiteOutcome::Fail, sentence),
            _ => continue,
        };
        // Counts of a sentence that was judged many times follow it in parentheses.
        let sentence = sentence.split(" (").next().unwrap_or(sentence);
        let known = verdicts.entry((test.clone(), sentence.to_owned())).or_insert(outcome);
        *known = (*known).max(outcome);
    }
    verdicts
}

/// Each sentence once, whichever tests it was judged in.
fn by_sentence(verdicts: &BTreeMap<(String, String), SuiteOutcome>) -> Vec<Observation> {
    let mut sentences = BTreeMap::new();
    for ((_, sentence), outcome) in verdicts {
        let known = sentences.entry(sentence.clone()).or_insert(*outcome);
        *known = (*known).max(*outcome);
    }
    let seen = |(code, outcome)| Observation { code, outcome, message: String::new() };
    sentences.into_iter().map(seen).collect()
}
