//! A test runner whose cases are made at run time (kernel × version × script), and may say "not run". Each runs in a process
//! of its own, for as long as its limit at the longest (`crate::case`).
//!
//! It takes the arguments that `cargo test` users know: name filters, `--exact`, `--skip`, `--list`,
//! `--test-threads`; cases run in the order of the filters. A case that is not run is printed with its reason and counted apart; with
//! `HOLDFAST_SCALE=soak` it is a failure, for a soak run leaves nothing out. A filter that no case answers to is one, too:
//! a misspelt one would pass for ever.
//!
//! With `--again COUNT`, where no more cases than that have failed, each is run once more with nothing beside it. One that passes then
//! is unsteady: named at the end, and to be looked into, but the run judges a change, and not what else the machine did.

use crate::case;
use crate::scale::Scale;
use anyhow::{Result, anyhow};
use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Cases that run at once: a guest keeps one core busy, and the server wants the other.
const THREADS_DEFAULT: usize = 2;
/// How long a case may take that names no limit of its own: most take a tenth of it.
const LIMIT_DEFAULT: Duration = Duration::from_secs(240);
/// A soak run does so much more, and no case of it takes longer than the second of these.
const SOAK_LIMIT_FACTOR: u32 = 30;
const SOAK_LIMIT_MAX: Duration = Duration::from_secs(6 * 3600);
/// How often a long case is named, lest a run look dead.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// One case.
pub struct Trial {
    name: String,
    not_run: Option<String>,
    limit: Duration,
    body: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

impl Trial {
    /// A case that passes when `body` gives no error and does not panic.
    pub fn new(name: impl Into<String>, body: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), not_run: None, limit: LIMIT_DEFAULT, body: Box::new(body) }
    }

    /// A case that cannot be run here, and why.
    pub fn not_run(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), not_run: Some(why.into()), limit: LIMIT_DEFAULT, body: Box::new(|| Ok(())) }
    }
}

impl Trial {
    /// The same, which may take so long in a test run: more than any patience within it, for that knows better what it
    /// waited for.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it in a process of its own.
    fn run_apart(&self) -> Result<()> {
        let limit = Scale::from_env().pick(self.limit, (self.limit * SOAK_LIMIT_FACTOR).min(SOAK_LIMIT_MAX));
        case::run_apart(&self.name, limit)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    filters: Vec<String>,
    skips: Vec<String>,
    is_exact: bool,
    is_list: bool,
    threads: Option<usize>,
    again: usize,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    not_run: usize,
    failed: Vec<Trial>,
    /// Names of cases that failed, and passed when they were run again.
    unsteady: Vec<String>,
}

/// Runs the cases that the command line asks for, and gives the status for `main`.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    let idle = options.filters_of_nothing(trials.iter().map(|trial| trial.name.as_str()));
    if !idle.is_empty() {
        println!("\ntest result: FAILED. No case has this in its name: {}\n", idle.join(", "));
        return ExitCode::FAILURE;
    }
    let mut chosen: Vec<Trial> = trials.into_iter().filter(|trial| options.wants(&trial.name)).collect();
    chosen.sort_by_cached_key(|trial| (options.place_of(&trial.name), trial.name.clone()));
    if options.is_list {
        chosen.iter().for_each(|trial| println!("{}: test", trial.name));
        return ExitCode::SUCCESS;
    }
    if let (Some(place), [only]) = (case::place(), &chosen[..]) {
        return case::run_here(&place, &only.body);
    }
    let started = Instant::now();
    println!("\nrunning {} cases", chosen.len());
    let tally = run_all(chosen, options.threads.unwrap_or(THREADS_DEFAULT).max(1), &Trial::run_apart)
        .run_again(options.again, &Trial::run_apart);
    let verdict = if tally.failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; {} not run; finished in {:.0} s\n",
        tally.passed,
        tally.failed.len(),
        tally.not_run,
        started.elapsed().as_secs_f64()
    );
    tally
        .unsteady
        .iter()
        .for_each(|name| println!("unsteady: {name} failed, see above, and passed by itself"));
    tally.failed.iter().for_each(|trial| println!("failed: {}", trial.name));
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Tally {
    /// Runs what has failed once more, one after the other, if no more than `most` have.
    fn run_again(mut self, most: usize, way: Way<'_>) -> Self {
        if self.failed.len() > most {
            return self;
        }
        let failed = std::mem::take(&mut self.failed);
        for trial in failed {
            println!("     {} once more, by itself", trial.name);
            let name = trial.name.clone();
            let once_more = run_all(vec![trial], 1, way);
            self.passed += once_more.passed;
            if once_more.failed.is_empty() {
                self.unsteady.push(name);
            }
            self.failed.extend(once_more.failed);
        }
        self
    }
}

/// How a case is run.
type Way<'a> = &'a (dyn Fn(&Trial) -> Result<()> + Sync);

fn run_all(trials: Vec<Trial>, threads: usize, way: Way<'_>) -> Tally {
    let queue = Mutex::new(VecDeque::from(trials));
    let tally = Mutex::new(Tally::default());
    let running = Running::default();
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (all_done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| report_progress(&running, is_done));
        for _ in 0..threads {
            let worker_lives = all_done.clone();
            let (next, tally, running) = (&next, &tally, &running);
            scope.spawn(move || {
                while let Some(trial) = next() {
                    running.begin(&trial.name);
                    let name = trial.name.clone();
                    run_one(trial, tally, way);
                    running.end(&name);
                }
                drop(worker_lives);
            });
        }
        drop(all_done);
    });
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The cases under way, and since when.
#[derive(Debug, Default)]
struct Running(Mutex<BTreeMap<String, Instant>>);

impl Running {
    fn begin(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Instant::now());
    }

    fn end(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// Names, every minute, what has been under way for longer, until every worker is gone.
#[expect(clippy::needless_pass_by_value, reason = "the receiver must not outlive the report")]
fn report_progress(running: &Running, all_done: mpsc::Receiver<()>) {
    while all_done.recv_timeout(PROGRESS_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
        for (name, since) in &*running.0.lock().unwrap_or_else(PoisonError::into_inner) {
            if since.elapsed() >= PROGRESS_EVERY {
                println!("     {name} still runs ({})", seconds(since.elapsed()));
            }
        }
    }
}

fn run_one(trial: Trial, tally: &Mutex<Tally>, way: Way<'_>) {
    let started = Instant::now();
    let result = match &trial.not_run {
        Some(why) if Scale::from_env() == Scale::Soak => Err(anyhow!("not run: {why}")),
        Some(why) => {
            println!("test {} ... not run: {why}", trial.name);
            tally.lock().unwrap_or_else(PoisonError::into_inner).not_run += 1;
            return;
        }
        None => {
            println!("test {} ... started", trial.name);
            way(&trial)
        }
    };
    let took = started.elapsed();
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    match result {
        Ok(()) => {
            println!("test {} ... ok ({})", trial.name, seconds(took));
            tally.passed += 1;
        }
        Err(error) => {
            println!("test {} ... FAILED ({})\n{error:#}\n", trial.name, seconds(took));
            tally.failed.push(trial);
        }
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

impl Options {
    /// Flags of libtest that mean nothing here are passed over, so that `cargo test -- FLAG` works on all suites.
    fn parse(arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => options.is_exact = true,
                "--list" => options.is_list = true,
                "--skip" => options.skips.extend(arguments.next()),
                "--again" => {
                    options.again = arguments.next().and_then(|count| count.parse().ok()).unwrap_or_default();
                }
                "--test-threads" => options.threads = arguments.next().and_then(|count| count.parse().ok()),
                "--format" | "--color" | "--logfile" => drop(arguments.next()),
                flag if flag.starts_with("--test-threads=") => {
                    options.threads = flag.split_once('=').and_then(|(_, count)| count.parse().ok());
                }
                flag if flag.starts_with('-') => {}
                filter => options.filters.push(filter.to_owned()),
            }
        }
        options
    }

    /// The filters that none of these names answers to.
    fn filters_of_nothing<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<&str> {
        let names: Vec<&str> = names.collect();
        let is_idle = |filter: &&String| !names.iter().any(|name| self.matches(filter, name));
        self.filters.iter().filter(is_idle).map(String::as_str).collect()
    }

    fn matches(&self, filter: &str, name: &str) -> bool {
        if self.is_exact { name == filter } else { name.contains(filter) }
    }

    /// Cases run in the order of the filters that name them: what takes long is named first, lest all wait for it at the end.
    fn place_of(&self, name: &str) -> Option<usize> {
        self.filters.iter().position(|filter| self.matches(filter, name))
    }

    fn wants(&self, name: &str) -> bool {
        let matches = |filter: &String| self.matches(filter, name);
        (self.filters.is_empty() || self.filters.iter().any(matches)) && !self.skips.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Options {
        Options::parse(words.iter().map(|&word| word.to_owned()))
    }

    #[test]
    fn a_filter_chooses_by_part_of_the_name_and_exact_by_all_of_it() {
        assert!(options(&["tree"]).wants("tree::v3"));
        assert!(!options(&["tree", "--exact"]).wants("tree::v3"));
        assert!(!options(&["tree", "--skip", "v3"]).wants("tree::v3"));
        assert_eq!(options(&["--test-threads=3"]).threads, Some(3));
    }

    #[test]
    fn cases_run_in_the_order_of_the_filters_that_name_them() {
        let long_first = options(&["tree::", "fsx::", "tree::v4"]);
        let place = |name| long_first.place_of(name);
        assert_eq!([place("tree::v4.1"), place("fsx::v4.2")], [Some(0), Some(1)]);
        assert_eq!(options(&[]).place_of("boot"), None);
    }

    #[test]
    fn a_filter_that_no_case_answers_to_is_told() {
        let names = || ["tree::v3", "fsx::v4.1"].into_iter();
        assert_eq!(options(&["tree", "fxs"]).filters_of_nothing(names()), ["fxs"]);
        assert_eq!(options(&["tree", "--exact"]).filters_of_nothing(names()), ["tree"]);
        assert_eq!(options(&["tree", "--skip", "nothing"]).filters_of_nothing(names()), [""; 0]);
    }

    #[test]
    fn an_error_fails_and_the_rest_goes_on() {
        let tally = run_all(
            vec![
                Trial::new("error", || Err(anyhow!("no"))),
                Trial::new("good", || Ok(())),
                Trial::not_run("absent", "no kernel"),
            ],
            1,
            &|trial| (trial.body)(),
        );
        assert_eq!((tally.passed, tally.not_run, tally.failed.len()), (1, 1, 1));
    }

    /// Fails the first `times`.
    fn unsteady(name: &str, times: usize) -> Trial {
        let runs = std::sync::atomic::AtomicUsize::new(0);
        Trial::new(name, move || {
            let run = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if run < times { Err(anyhow!("not yet")) } else { Ok(()) }
        })
    }

    #[test]
    fn what_fails_twice_has_failed_and_so_has_what_fails_beside_others() {
        let way: Way<'_> = &|trial| (trial.body)();
        let verdict = |trials: Vec<Trial>, most| {
            let tally = run_all(trials, 1, way).run_again(most, way);
            (tally.passed, tally.unsteady.len(), tally.failed.len())
        };
        assert_eq!(verdict(vec![unsteady("once", 1), unsteady("never", 0)], 1), (2, 1, 0));
        assert_eq!(verdict(vec![unsteady("twice", 2)], 1), (0, 0, 1));
        assert_eq!(verdict(vec![unsteady("one", 1), unsteady("other", 1)], 1), (0, 0, 2));
        assert_eq!(verdict(vec![unsteady("once", 1)], 0), (0, 0, 1));
    }
}
