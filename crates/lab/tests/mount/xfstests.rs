//! The suite xfstests over our mount, where a checkout of it can be had (`XFSTESTS_DIR`): its generic cases of the group
//! `quick`, those that it can run over FUSE.

use crate::fixture::Served;
use anyhow::{Context, Result, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::server::{Target, holdfast_binary};
use holdfast_lab::{
    Expectations, FsType, LoopFs, Observation, ServerUnderTest, SuiteOutcome, Trial, checkout, kernel,
    process, suites,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names cases to run instead of the group, by blanks (`generic/001 generic/013`); only what is expected of them counts.
const CASES: &str = "XFSTESTS_CASES";

/// Far above what the longest case takes on an idle machine: who is still at it then hangs.
const CASE_PATIENCE: Duration = Duration::from_secs(300);
/// The suite's own preparations, before its first case.
const START_PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// Some cases write until the file system is full.
const FILESYSTEM_BYTES: u64 = 4 << 30;

/// The whole group; what hangs in it is ended long before.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// The cases: none without a checkout.
pub(crate) fn trials() -> Vec<Trial> {
    let Some(checkout) = checkout::named_by("XFSTESTS_DIR") else { return Vec::new() };
    // The suite makes device files and sets set-id bits, and looks what they do.
    vec![Trial::new("xfstests::cached", move || conforms(&checkout, "cached", "dev,suid")).limit(LIMIT)]
}

fn conforms(checkout: &Path, way: &str, options: &str) -> Result<()> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected/mount-xfstests.toml");
    let mut expectations = Expectations::load(&list)?;
    let mut build = Command::new("make");
    build.stdout(Stdio::null());
    let suite = checkout::built(checkout, "suites/xfstests", build)?;
    let cases = match std::env::var(CASES) {
        Ok(named) => {
            let mut named: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
            // The order in which the suite runs them.
            named.sort();
            named.dedup();
            expectations.only(&named);
            named
        }
        Err(_) => quick(&suite)?,
    };
    let scratch = LoopFs::new(FsType::Xfs, FILESYSTEM_BYTES)?;
    let mut served = serving(&scratch)?;
    let run = Run { suite: &suite, served: &served, options };
    let seen = run.whole(&cases)?;
    served.server.check_alive()?;
    keep(way, &seen)?;
    // What a case needs and FUSE, or the file system below, does not have is the suite's to say: that a case which
    // was run is no longer is told by how many there are to be.
    let run: Vec<Observation> = seen.into_iter().filter(|case| case.outcome != SuiteOutcome::Skip).collect();
    println!("xfstests {way}: {} of {} cases run", run.len(), cases.len());
    expectations.judge(way, &run, |_| SuiteOutcome::Pass)
}

/// A server of two file systems, as the suite has it: one for what is to stay, and one that some cases leave full.
fn serving(scratch: &LoopFs) -> Result<Served> {
    let test = LoopFs::new(FsType::Xfs, FILESYSTEM_BYTES)?;
    let [test_share, scratch_share] = [test.path().join("share"), scratch.path().join("scratch")];
    for share in [&test_share, &scratch_share] {
        std::fs::create_dir(share)?;
    }
    let server = ServerUnderTest::builder(&test_share)
        .target(Target::Holdfast)
        .arguments(&[&*scratch_share.to_string_lossy()])
        .environment("HOLDFAST_NO_SUPERVISE", "true")
        .start()?;
    Ok(Served { server, filesystem: test })
}

/// The generic cases of the group, in the suite's order.
fn quick(suite: &Path) -> Result<Vec<String>> {
    let list = suite.join("tests/generic/group.list");
    let text = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let of_group = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let case = words.next()?;
        words.any(|group| group == "quick").then(|| format!("generic/{case}"))
    });
    let may_raise = may_raise_limits()?;
    let mut cases = of_group.collect::<Vec<_>>();
    cases.retain(|case| may_raise || !RAISE_A_LIMIT.contains(&case.as_str()));
    for (left_out, reason) in LEFT_OUT {
        println!("xfstests: {left_out} is left out: {reason}");
        cases.retain(|case| case != left_out);
    }
    Ok(cases)
}

/// Those that would come out now so, now so; they can be named.
const LEFT_OUT: [(&str, &str); 2] = [
    (
        "generic/504",
        "it looks for its flock in /proc/locks by the file's number: the server's lock is there, which bears that number only where \
         the server has given it before it made the file",
    ),
    (
        "generic/531",
        "it makes 200,000 files without a name, each of them a question: whether that takes less than a case may take is the machine's",
    ),
];

/// They put a hard limit back that they have lowered, which root may not everywhere (CAP_SYS_RESOURCE).
const RAISE_A_LIMIT: [&str; 2] = ["generic/394", "generic/564"];

fn may_raise_limits() -> Result<bool> {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).context("no CapEff line")?;
    Ok(u64::from_str_radix(effective.trim(), 16)? & SYS_RESOURCE != 0)
}

/// Where and how cases are run.
struct Run<'a> {
    suite: &'a Path,
    served: &'a Served,
    options: &'a str,
}

impl Run<'_> {
    /// All of them, by as many runs of the suite as it takes: one ends with a case that hangs.
    fn whole(&self, cases: &[String]) -> Result<Vec<Observation>> {
        let mut seen = Vec::new();
        while seen.len() < cases.len() {
            let place = Place::new()?;
            let has_ended = self.some(&place, &cases[seen.len()..])?;
            let report = place.report()?;
            let mut part = suites::read_xfstests(&report);
            ensure!(!part.is_empty(), "the suite began no case:\n{report}");
            if let (false, Some(last)) = (has_ended, part.last_mut()) {
                last.outcome = SuiteOutcome::Fail;
                last.message = format!("did not end within {} s", CASE_PATIENCE.as_secs());
            }
            place.keep()?;
            seen.append(&mut part);
        }
        Ok(seen)
    }

    /// Runs the suite from the first of these cases on; whether it came to its end.
    fn some(&self, place: &Place, cases: &[String]) -> Result<bool> {
        let mut child = self.start(place, cases)?;
        let mut begun = 0;
        let mut since = Instant::now();
        while child.try_wait()?.is_none() {
            std::thread::sleep(POLL);
            let now_begun = suites::read_xfstests(&place.report()?).len();
            if now_begun != begun {
                (begun, since) = (now_begun, Instant::now());
            }
            if since.elapsed() > if begun == 0 { START_PATIENCE } else { CASE_PATIENCE } {
                end(&mut child)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn start(&self, place: &Place, cases: &[String]) -> Result<Child> {
        let source = |export: &str| format!("127.0.0.1:{}:{export}", self.served.server.port());
        let report = File::create(place.report_path())?;
        Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/xfstests.sh"))
            .args(cases)
            .env("SUITE", self.suite)
            .env("HERE", place.path())
            .env("HOLDFAST_BIN", holdfast_binary()?.canonicalize()?)
            .env("TEST_DEV", source(&self.served.server.export()))
            .env("SCRATCH_DEV", source("/scratch"))
            .env("OPTIONS", self.options)
            .stdin(Stdio::null())
            .stdout(report.try_clone()?)
            .stderr(report)
            .spawn()
            .context("unshare")
    }
}

/// Ends the suite with all that it started, and its mounts. The connections first: who waits in one of them in the kernel may
/// be past all signals.
fn end(child: &mut Child) -> Result<()> {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    for first in std::fs::read_to_string(children)?.split_whitespace() {
        let mounts = std::fs::read_to_string(format!("/proc/{first}/mountinfo"))?;
        for mount in mounts.lines().filter(|line| line.contains(" - fuse.holdfast ")) {
            // The third word is the device, MAJOR:MINOR; the minor is the connection's name.
            let device = mount.split(' ').nth(2).and_then(|device| device.split_once(':'));
            let (_, connection) = device.context("a line of mountinfo without a device")?;
            // It may be gone by itself.
            let root = format!("/proc/{first}/root/sys/fs/fuse/connections");
            let _ = std::fs::write(format!("{root}/{connection}/abort"), "1");
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// A folder for one run of the suite.
struct Place(Scratch);

impl Place {
    fn new() -> Result<Self> {
        let place = Self(Scratch::new("xfstests")?);
        std::fs::create_dir(place.path())?;
        Ok(place)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("here")
    }

    fn report_path(&self) -> PathBuf {
        self.0.path().join("report")
    }

    fn report(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(self.report_path())?).into_owned())
    }

    /// Leaves what the cases said, and the logs of the mounts, in the target folder.
    fn keep(&self) -> Result<()> {
        let folder = kernel::target_dir().join("lab/xfstests");
        std::fs::create_dir_all(&folder)?;
        let results = self.path().join("results/.");
        process::capture("cp", &["-r".as_ref(), results.as_os_str(), folder.as_os_str()])?;
        for entry in std::fs::read_dir(self.path().join("run"))?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
        Ok(())
    }
}

/// Leaves what was seen in the target folder, and prints why cases were not run.
fn keep(way: &str, seen: &[Observation]) -> Result<()> {
    let mut text = String::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for case in seen {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:?}\t{}\t{}", case.outcome, case.code, case.message);
        if case.outcome == SuiteOutcome::Skip {
            *reasons.entry(&case.message).or_default() += 1;
        }
    }
    for (reason, count) in reasons {
        println!("xfstests {way}: {count:>4} not run: {reason}");
    }
    let path = kernel::target_dir().join(format!("lab/mount-xfstests-{way}.txt"));
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}
