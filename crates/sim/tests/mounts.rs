//! Seeds of Holdfast mounts: none shows a defect, each goes the same way every time, and planted defects are noticed.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use holdfast_sim::life::Plant;
use holdfast_sim::run::{Options, Outcome, run_mounts};

fn seed(seed: u64) -> Outcome {
    run_mounts(seed, Options::default()).unwrap()
}

fn assert_good(seeds: impl Iterator<Item = u64>) -> Vec<Outcome> {
    let all: Vec<_> = seeds.map(seed).collect();
    for Outcome { seed, violations, .. } in &all {
        assert!(
            violations.is_empty(),
            "seed {seed}: {violations:#?}\ncargo run -p holdfast-sim -- --mounts --seed {seed}"
        );
    }
    all
}

/// That a defect in the server is noticed in one of the first seeds, and what is said of it begins so.
fn assert_noticed(plant: Plant, oracle: &str) {
    let noticed = (0..60).find_map(|seed| {
        let outcome = run_mounts(seed, Options { plant: Some(plant), is_told: false }).unwrap();
        outcome.violations.into_iter().find(|violation| violation.starts_with(oracle))
    });
    assert!(noticed.is_some(), "{plant:?} goes unnoticed by \"{oracle}\"");
}

/// Else what is said of them would be said of nothing.
#[test]
fn no_seed_of_the_first_shows_a_defect_and_they_have_crashes_planned_restarts_and_promises_that_outlive_them()
{
    let all = assert_good(0..20);
    let sum = |of: fn(&Outcome) -> u64| all.iter().map(of).sum::<u64>();
    let (lives, handovers) = (sum(|of| of.lives), sum(|of| of.handovers));
    let (deeds, reclaimed) = (sum(|of| of.of_mounts.0 as u64), sum(|of| of.of_mounts.2 as u64));
    let told = format!("{lives} lives, {handovers} planned restarts, {deeds} deeds, {reclaimed} had back");
    assert!(lives >= 30 && handovers >= 5 && deeds >= 1_000 && reclaimed >= 20, "{told}");
}

/// `tests/regressions-mounts.txt`: a seed a line, then what it found.
#[test]
fn seeds_that_found_a_defect_stay_good() {
    let lines = include_str!("regressions-mounts.txt").lines();
    let seeds = lines.filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let all = assert_good(seeds.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()));
    assert!(!all.is_empty(), "none is listed");
}

#[test]
fn a_seed_is_one_world() {
    for n in 0..4 {
        let (first, second) = (seed(n), seed(n));
        assert_eq!(
            (first.digest, first.events, first.ms),
            (second.digest, second.events, second.ms),
            "seed {n}"
        );
    }
}

#[test]
fn changes_that_nobody_is_asked_about_are_noticed() {
    assert_noticed(Plant::Unguarded, "coherence: ");
}

#[test]
fn fsyncs_that_are_answered_before_the_disk_has_anything_are_noticed() {
    assert_noticed(Plant::AnswerBeforeCommit, "durability: ");
}

#[test]
fn promises_that_a_planned_restart_forgets_are_noticed() {
    assert_noticed(Plant::HandOverUnguarded, "coherence: ");
}
