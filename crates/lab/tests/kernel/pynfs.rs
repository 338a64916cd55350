//! The conformance suite pynfs, 4.0 and 4.1, where a checkout of it can be had (`PYNFS_DIR`).
//!
//! The suite is no part of Holdfast: the checkout is copied into the target folder and built there. What does not
//! pass is listed, each case with its reason, in `expected/pynfs-*.toml`; `docs/conformance.md` tells the story.

use crate::attendant::Attendant;
use crate::checkout;
use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    Expectations, FsType, LoopFs, NfsVersion, Observation, ServerUnderTest, SuiteOutcome, Trial, suites,
};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One run of the suite.
#[derive(Clone, Copy)]
struct Group {
    /// In the case's name and that of its list, after the version.
    name: &'static str,
    version: NfsVersion,
    /// What of the suite, as it takes it.
    arguments: &'static [&'static str],
    lease_seconds: u32,
    /// More arguments of `holdfast serve`.
    serve: &'static [&'static str],
    /// An export beside that one which lies elsewhere: its path, and the server that it lies on.
    referral: Option<(&'static str, &'static str)>,
    /// How often at least it has the server killed and started again.
    restarts: u32,
}

const GROUPS: [Group; 11] = [
    Group { name: "", version: NfsVersion::V40, arguments: &["--showomit", "all"], ..ALL },
    Group { name: "", version: NfsVersion::V41, arguments: &["--showomit", "all"], ..ALL },
    // The suite's 4.1 speaks minor version 2 unless told otherwise.
    Group { name: "-minor1", version: NfsVersion::V41, arguments: &["--minorversion=1", "all"], ..ALL },
    // Not in `all`. REBT8 has both flags; five cases change files on the server.
    Group {
        name: "-delegations",
        version: NfsVersion::V40,
        arguments: &[
            "delegations",
            "writedelegations",
            "noreboot",
            "noDELEG16",
            "noDELEG17",
            "noDELEG18",
            "noDELEG19",
            "noDELEG20",
        ],
        lease_seconds: DELEGATIONS_LEASE_SECONDS,
        serve: &["--local", "none"],
        ..ALL
    },
    Group {
        name: "-delegations-local",
        version: NfsVersion::V40,
        arguments: &["DELEG16", "DELEG17", "DELEG18", "DELEG19", "DELEG20"],
        ..ALL
    },
    Group { name: "-reboot", version: NfsVersion::V40, arguments: &["reboot"], restarts: 10, ..ALL },
    // A thousand clients come back one after the other, as slowly as the suite is, and must all be in time. Nobody waits for
    // a lease here, unless a case fails.
    Group {
        name: "-reboot",
        version: NfsVersion::V41,
        arguments: &["reboot", "noREBT1", "noREBT5"],
        lease_seconds: 900,
        restarts: 12,
        ..ALL
    },
    // Those of one client sleep for a lease. REBT5 begins to reclaim five seconds before the end of grace and takes ten:
    // grace must be long enough to be stretched by that.
    Group {
        name: "-reboot-one",
        version: NfsVersion::V41,
        arguments: &["REBT1", "REBT5"],
        lease_seconds: 20,
        restarts: 2,
        ..ALL
    },
    // In no flag of those above. Left out is what needs something set up that is not there, or pNFS; and two cases that pass
    // if a callback comes late, and only then (docs/conformance.md).
    Group {
        name: "-others",
        version: NfsVersion::V40,
        arguments: &[
            "everything",
            "noall",
            "noreboot",
            "nodelegations",
            "nowritedelegations",
            "nofslocations",
            // The root's own file system is another than the export's.
            "--usespecial=/share",
        ],
        restarts: 1,
        ..ALL
    },
    Group {
        name: "-referrals",
        version: NfsVersion::V40,
        arguments: &["fslocations", "--usespecial=/elsewhere"],
        referral: Some(("/elsewhere", "server.example:/elsewhere")),
        ..ALL
    },
    Group {
        name: "-others",
        version: NfsVersion::V41,
        arguments: &[
            "everything",
            "noall",
            "noreboot",
            "nopnfs",
            "noflex",
            "noblock",
            "noDSESS9002",
            "noDSESS9003",
            "--usespecial=/share",
        ],
        // A client of COUR7 that has nothing yet must not be kept waiting for so long by a busy machine.
        lease_seconds: 30,
        ..ALL
    },
];

/// DELEG8 says nothing for the holder of a recalled delegation while it comes again ten times, a second apart: with a
/// lease no longer than that, the holder's state ends as a whole, and not the delegation alone.
const ALL: Group = Group {
    name: "",
    version: NfsVersion::V41,
    arguments: &["all"],
    lease_seconds: 15,
    serve: &[],
    referral: None,
    restarts: 0,
};

/// The suite itself repeats what is answered by DELAY for ten seconds, and lets the holder of the recalled delegation speak
/// only then; DELEG6 half a lease after that. The holder's time to return is a lease, but 14 s where local processes are made
/// to wait for it.
const DELEGATIONS_LEASE_SECONDS: u32 = 40;

/// Lease-bound cases wait for the lease, so a run takes minutes.
const PATIENCE: Duration = Duration::from_secs(45 * 60);
const BUILDING: Duration = Duration::from_secs(5 * 60);

/// The cases: none without a checkout.
pub(crate) fn trials() -> Vec<Trial> {
    let Some(checkout) = checkout::named_by("PYNFS_DIR") else { return Vec::new() };
    GROUPS
        .map(|group| {
            let checkout = checkout.clone();
            let name = format!("pynfs::{}{}", group.version, group.name);
            Trial::new(name, move || conforms(&checkout, group)).limit(PATIENCE + BUILDING)
        })
        .into()
}

fn conforms(checkout: &Path, group: Group) -> Result<()> {
    let Group { version, name, .. } = group;
    let list = format!("expected/pynfs-{}{name}.toml", version.as_str());
    let expectations = Expectations::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(list))?;
    let suite = build(checkout, version)?.join(format!("nfs{}", version.as_str()));
    let filesystem = LoopFs::new(FsType::Ext4, 2 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let mut builder =
        ServerUnderTest::builder(&share).lease_seconds(group.lease_seconds).arguments(group.serve);
    if let Some(referral) = group.referral {
        let config = filesystem.path().join("config");
        std::fs::write(&config, exports(&share, referral))?;
        builder = builder.config(&config);
    }
    let mut server = builder.start()?;
    let report = suite.join(format!("report{name}.txt"));
    let restarts = run(&suite, &report, group, &mut server)?;
    server.check_alive()?;
    let seen = read(&report)?;
    let count = |outcome| seen.iter().filter(|case| case.outcome == outcome).count();
    println!(
        "pynfs {version}{name}: {} of {} pass, {} fail, {} warn, {} unsupported, {} skipped, {restarts} restarts",
        count(SuiteOutcome::Pass),
        seen.len(),
        count(SuiteOutcome::Fail),
        count(SuiteOutcome::Warn),
        count(SuiteOutcome::Unsupported),
        count(SuiteOutcome::Skip),
    );
    ensure!(restarts >= group.restarts, "the suite had the server killed {restarts} times only");
    expectations.judge(&format!("{version}{name}"), &seen, |_| SuiteOutcome::Pass)
}

/// The directory, and what lies elsewhere.
fn exports(share: &Path, (path, moved_to): (&str, &str)) -> String {
    let share = share.display();
    let all = "squash = \"none\"\nclients = [\"all\"]\n";
    format!(
        "[[export]]\nsource = \"{share}\"\npath = \"/share\"\n{all}\
         [[export]]\nsource = \"/nowhere\"\npath = \"{path}\"\nmoved_to = [\"{moved_to}\"]\n{all}"
    )
}

/// One copy a version. Its build calls `python3` by name.
fn build(checkout: &Path, version: NfsVersion) -> Result<PathBuf> {
    let mut build = python()?;
    build.args(["setup.py", "build"]);
    checkout::built(checkout, &format!("pynfs/{version}"), build)
}

/// Runs the suite, and does meanwhile what it asks to have done on the server; how often that was to kill it.
fn run(suite: &Path, report: &Path, group: Group, server: &mut ServerUnderTest) -> Result<u32> {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let mut attendant = Attendant::new()?;
    let output = File::create(report)?;
    let mut child = python()?
        .arg("-u")
        .arg(assets.join("pynfs_nodelay.py"))
        .args(["testserver.py", &format!("127.0.0.1:{}{}", server.port(), server.export())])
        .args(["--maketree", "--uid=0", "--gid=0", "-v", "--rundeps"])
        .arg(format!("--serverhelper=python3 {}", assets.join("pynfs_ask.py").display()))
        .arg(format!("--serverhelperarg={}", attendant.socket().display()))
        .args(group.arguments)
        .current_dir(suite)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    // Its exit status only tells that something failed; the report tells what.
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        let attended = attendant.attend(server);
        if attended.is_err() || Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            attended?;
            anyhow::bail!("pynfs did not end within {PATIENCE:?}; see {}", report.display());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(attendant.restarts())
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
