//! `holdfast-counts`: how many instructions codec, compound engine and state engine take, against what is recorded in
//! `benches/counts.txt`. A change that costs more than [`TOLERANCE`] fails until the record is moved on purpose
//! (`--record`). `docs/bench.md` says how it is counted.

#[expect(clippy::expect_used, reason = "what is counted must go well, or nothing is worth counting")]
mod changes;
#[expect(clippy::expect_used, reason = "likewise")]
mod codec;
mod scenarios;
#[expect(clippy::expect_used, reason = "likewise")]
mod scene;
#[expect(clippy::expect_used, reason = "likewise")]
mod stateful;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

use scenarios::{ALL, FLAT, Scenario};

/// How much more, or less, of what is recorded passes.
const TOLERANCE: f64 = 0.03;
/// How much more something may cost among many clients: what hash tables and trees add where they are full.
const FLAT_MOST: f64 = 1.25;
/// Before anything is counted: caches are filled, buffers have their size.
const WARM_UPS: usize = 300;
/// So often is each done while it is counted.
const ROUNDS: usize = 200;

/// Counts instructions, and compares them with the record.
#[derive(Debug, Parser)]
#[command(name = "holdfast-counts")]
struct Arguments {
    /// Make what is counted the record
    #[arg(long)]
    record: bool,
    /// Run one scenario; what this program runs under valgrind
    #[arg(long, hide = true, value_name = "NAME")]
    run: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.run {
        Some(name) => run(name).map(|()| true),
        None => compare(arguments.record),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("holdfast-counts: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str) -> Result<()> {
    let scenario = ALL.iter().find(|s| s.name == name).with_context(|| format!("no scenario {name}"))?;
    let mut once = (scenario.prepare)();
    (0..WARM_UPS).for_each(|_| once());
    counted_from_here(&mut *once);
    Ok(())
}

/// What valgrind counts, by this name: nothing before, nothing after.
#[inline(never)]
fn counted_from_here(once: &mut dyn FnMut()) {
    (0..ROUNDS).for_each(|_| once());
}

/// Gives whether nothing got dearer, nor so much cheaper that the record says nothing any more.
fn compare(is_to_be_recorded: bool) -> Result<bool> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.txt");
    let counted = count_all()?;
    let is_flat = show_growth(&counted);
    if is_to_be_recorded {
        fs::write(&path, record_of(&counted)).with_context(|| path.display().to_string())?;
        println!("recorded in {}", path.display());
        return Ok(is_flat);
    }
    let recorded = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let recorded = read_record(&recorded)?;
    let compiler = compiler()?;
    if recorded.compiler != compiler {
        // Another compiler makes other code, which says nothing about a change of ours.
        println!("NOT COMPARED: recorded with {}, built with {compiler}", recorded.compiler);
        let version = recorded.compiler.split(' ').nth(1).unwrap_or_default();
        println!("To compare: rustup toolchain install {version} --profile minimal");
        println!("From now on with the compiler at hand: cargo xtask counts --record, with no other change.");
        // Where changes are judged they are to be compared.
        return Ok(is_flat && std::env::var_os("CI").is_none());
    }
    let mut is_well = true;
    for (scenario, now) in ALL.iter().zip(&counted) {
        let verdict = verdict(recorded.counts.get(scenario.name).copied(), *now);
        is_well &= matches!(verdict, Verdict::Same);
        println!("{}", verdict.line(scenario.name, *now));
    }
    for gone in recorded.counts.keys().filter(|name| ALL.iter().all(|s| s.name != name.as_str())) {
        println!("{gone}: recorded and not counted any more");
        is_well = false;
    }
    if !is_well {
        println!("If that is meant: cargo xtask counts --record, and say in the commit why.");
    }
    Ok(is_well && is_flat)
}

/// Shows what things cost among many clients in proportion; whether all are flat, which no record can make them.
fn show_growth(counted: &[f64]) -> bool {
    let of = |name: &str| ALL.iter().zip(counted).find(|(s, _)| s.name == name).map(|(_, now)| *now);
    let mut is_flat = true;
    for (few, many) in FLAT {
        // A name that stands for nothing is a mistake in the table.
        let growth = of(many).zip(of(few)).map_or(f64::INFINITY, |(many, few)| many / few);
        let words = if growth > FLAT_MOST { "  NOT FLAT" } else { "" };
        println!("{many:32}{growth:>9.2} x that of one{words}");
        is_flat &= growth <= FLAT_MOST;
    }
    is_flat
}

enum Verdict {
    Same,
    Dearer(f64),
    Cheaper(f64),
    New,
}

fn verdict(recorded: Option<f64>, now: f64) -> Verdict {
    let Some(recorded) = recorded else { return Verdict::New };
    let change = now - recorded;
    if change.abs() <= recorded * TOLERANCE {
        Verdict::Same
    } else if change > 0.0 {
        Verdict::Dearer(change / recorded)
    } else {
        Verdict::Cheaper(-change / recorded)
    }
}

impl Verdict {
    fn line(&self, name: &str, now: f64) -> String {
        let words = match self {
            Self::Same => String::new(),
            Self::Dearer(by) => format!("  DEARER by {:.1} %", by * 100.0),
            Self::Cheaper(by) => format!("  cheaper by {:.1} %: record it", by * 100.0),
            Self::New => "  not recorded yet".to_owned(),
        };
        format!("{name:32}{now:>10.0}{words}")
    }
}

/// Instructions of each scenario, once.
fn count_all() -> Result<Vec<f64>> {
    let scratch = tempfile::Builder::new().prefix("holdfast-counts-").tempdir()?;
    let workers = thread::available_parallelism().map_or(1, usize::from).min(ALL.len());
    let mut counted: Vec<(usize, Result<f64>)> = thread::scope(|scope| {
        let scratch = scratch.path();
        let work = |worker: usize| {
            let mine = (worker..ALL.len()).step_by(workers);
            mine.map(|n| (n, count(&ALL[n], &scratch.join(n.to_string())))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    ensure!(counted.len() == ALL.len(), "a thread that counts panicked");
    counted.sort_by_key(|(n, _)| *n);
    counted.into_iter().map(|(_, count)| count).collect()
}

fn count(scenario: &Scenario, file: &Path) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*counted_from_here*"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe()?)
        .args(["--run", scenario.name])
        // Which of memcpy's variants is taken is not to depend on the processor.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX2_Usable,-ERMS,-FSRM")
        .output()
        .context("starting valgrind, of the package of that name")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", scenario.name);
    let all = fs::read_to_string(file)?;
    let total = all.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    let total: f64 = total.context("callgrind wrote no total")?.trim().parse()?;
    if total < ROUNDS as f64 {
        bail!("{}: nothing was counted; is the program stripped?", scenario.name);
    }
    Ok(total / ROUNDS as f64)
}

fn compiler() -> Result<String> {
    let said =
        Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-V").output()?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

struct Record {
    compiler: String,
    counts: BTreeMap<String, f64>,
}

fn record_of(counted: &[f64]) -> String {
    let mut text = format!("# {}\n", compiler().unwrap_or_default());
    for (scenario, count) in ALL.iter().zip(counted) {
        let _ = writeln!(text, "{:32}{count:>10.0}", scenario.name);
    }
    text
}

fn read_record(text: &str) -> Result<Record> {
    let (head, rest) = text.split_once('\n').context("the record is empty")?;
    let compiler = head.strip_prefix("# ").context("the record's first line names the compiler")?.to_owned();
    let counts = rest.lines().map(|line| {
        let (name, count) = line.rsplit_once(' ').context("a line is a name and a number")?;
        Ok((name.trim().to_owned(), count.parse()?))
    });
    Ok(Record { compiler, counts: counts.collect::<Result<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_percent_pass_and_more_does_not_in_either_direction() {
        assert!(matches!(verdict(Some(10000.0), 10300.0), Verdict::Same));
        assert!(matches!(verdict(Some(10000.0), 9700.0), Verdict::Same));
        assert!(matches!(verdict(Some(10000.0), 10310.0), Verdict::Dearer(_)));
        assert!(matches!(verdict(Some(10000.0), 9690.0), Verdict::Cheaper(_)));
        assert!(matches!(verdict(Some(100.0), 104.0), Verdict::Dearer(_)));
        assert!(matches!(verdict(None, 1.0), Verdict::New));
    }

    #[test]
    fn what_grows_with_the_clients_is_told_whatever_is_recorded() {
        let count =
            |name: &str, many: f64| if FLAT.iter().any(|(_, of)| *of == name) { many } else { 1000.0 };
        let counted = |many: f64| ALL.iter().map(|s| count(s.name, many)).collect::<Vec<_>>();
        assert!(show_growth(&counted(1250.0)));
        assert!(!show_growth(&counted(1260.0)));
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        let counted: Vec<f64> = (0..ALL.len()).map(|n| n as f64 * 100.0).collect();
        let record = read_record(&record_of(&counted)).expect("it was just written");
        assert_eq!(record.compiler, compiler().expect("a compiler"));
        for (scenario, count) in ALL.iter().zip(counted) {
            assert_eq!(record.counts[scenario.name], count);
        }
    }

    #[test]
    fn every_scenario_runs() {
        for scenario in ALL {
            let mut once = (scenario.prepare)();
            (0..10).for_each(|_| once());
        }
    }
}
