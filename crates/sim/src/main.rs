//! `holdfast-sim`: runs seeds, and says which of them show a defect.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use holdfast_sim::life::Plant;
use holdfast_sim::run::{Options, Outcome, run, run_mounts};

/// Runs worlds of servers, clients, networks and disks that fail; each seed is one.
#[derive(Parser)]
#[command(name = "holdfast-sim", version)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs for so many minutes, however many seeds that are.
    #[arg(long)]
    minutes: Option<u64>,
    /// Runs one seed and prints all that happened.
    #[arg(long)]
    seed: Option<u64>,
    /// Goes on after a seed that shows a defect.
    #[arg(long)]
    keep_going: bool,
    /// Plants a defect in the server, to see that it is noticed.
    #[arg(long, value_parser = plant)]
    plant: Option<Plant>,
    /// Runs worlds of Holdfast mounts.
    #[arg(long)]
    mounts: bool,
    /// Lines of the trace to print of a seed that shows a defect.
    #[arg(long, default_value_t = 80)]
    lines: usize,
}

impl Arguments {
    fn run(&self, seed: u64, is_told: bool) -> std::io::Result<Outcome> {
        let options = Options { plant: self.plant, is_told };
        if self.mounts { run_mounts(seed, options) } else { run(seed, options) }
    }

    /// The same seed again, as it is asked for.
    fn again(&self, seed: u64) -> String {
        let mounts = if self.mounts { " --mounts" } else { "" };
        format!("cargo run -p holdfast-sim --{mounts} --seed {seed}")
    }
}

fn plant(name: &str) -> Result<Plant, String> {
    let known = || Plant::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    Plant::ALL.iter().find(|(n, _)| *n == name).map(|(_, plant)| *plant).ok_or_else(known)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => one(seed, &arguments),
        None => many(&arguments),
    }
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    match arguments.run(seed, true) {
        Err(error) => failed(&error),
        Ok(outcome) => {
            outcome.lines.iter().for_each(|line| println!("{line}"));
            println!(
                "seed {seed}: digest {:016x}, {} events, {} lives, {} planned restarts",
                outcome.digest, outcome.events, outcome.lives, outcome.handovers
            );
            outcome.violations.iter().for_each(|violation| println!("{violation}"));
            if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn failed(error: &std::io::Error) -> ExitCode {
    eprintln!("the simulation cannot run: {error}");
    ExitCode::FAILURE
}

fn many(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let until = arguments.minutes.map(|minutes| began + Duration::from_secs(minutes * 60));
    let (mut seed, mut bad) = (arguments.from, Vec::new());
    let (mut events, mut lives, mut handovers, mut steps, mut reclaimed, mut kept) = (0, 0, 0, 0, 0, 0);
    let (mut faults, mut of_mounts) = (0, (0, 0, 0));
    loop {
        let is_over = until.map_or(seed - arguments.from >= arguments.seeds, |until| Instant::now() >= until);
        if is_over {
            break;
        }
        let outcome = match arguments.run(seed, false) {
            Ok(outcome) => outcome,
            Err(error) => return failed(&error),
        };
        (events, lives, steps) = (events + outcome.events, lives + outcome.lives, steps + outcome.steps);
        handovers += outcome.handovers;
        reclaimed += outcome.delegations_reclaimed;
        kept += outcome.reads_kept;
        faults += outcome.disk_faults;
        let (deeds, losses, had_back) = outcome.of_mounts;
        of_mounts = (of_mounts.0 + deeds, of_mounts.1 + losses, of_mounts.2 + had_back);
        if !outcome.violations.is_empty() {
            show(&outcome, arguments);
            bad.push(seed);
            if !arguments.keep_going {
                break;
            }
        }
        seed += 1;
    }
    let count = seed - arguments.from + u64::from(!bad.is_empty() && !arguments.keep_going);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{count} seeds from {} in {seconds:.1} s: {:.1} a second; {events} messages and faults, {steps} deeds, \
         {lives} lives of the server, {handovers} planned restarts, {reclaimed} delegations reclaimed, \
         {kept} reads of what was kept over CLOSE, {faults} operations that the disk failed",
        arguments.from,
        count as f64 / seconds
    );
    if arguments.mounts {
        let (deeds, losses, had_back) = of_mounts;
        println!(
            "of mounts {deeds} operations, {losses} losses of promises, {had_back} had back after a restart"
        );
    }
    if bad.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("seeds that show a defect: {bad:?}");
    ExitCode::FAILURE
}

/// Runs a seed again with words, and prints the last of them.
fn show(outcome: &Outcome, arguments: &Arguments) {
    let seed = outcome.seed;
    println!("seed {seed} shows a defect:");
    outcome.violations.iter().for_each(|violation| println!("  {violation}"));
    if arguments.lines > 0
        && let Ok(told) = arguments.run(seed, true)
    {
        let skipped = told.lines.len().saturating_sub(arguments.lines);
        told.lines.iter().skip(skipped).for_each(|line| println!("  {line}"));
        if told.digest != outcome.digest {
            println!("  (the second run of this seed went another way: the world is not deterministic)");
        }
    }
    println!("to run it again: {}", arguments.again(seed));
}
