//! Seeds: none shows a defect, each goes the same way every time, and planted defects are noticed.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::Write as _;
use std::time::Instant;

use holdfast_sim::life::Plant;
use holdfast_sim::run::{Options, Outcome, run};

fn seed(seed: u64) -> Outcome {
    run(seed, Options::default()).unwrap()
}

fn assert_good(seeds: impl Iterator<Item = u64>) -> u64 {
    let mut count = 0;
    for outcome in seeds.map(seed) {
        count += 1;
        let Outcome { seed, violations, .. } = outcome;
        assert!(
            violations.is_empty(),
            "seed {seed}: {violations:#?}\ncargo run -p holdfast-sim -- --seed {seed}"
        );
    }
    count
}

/// The same of a hundred, and tells how fast they went: past the harness, which keeps what a test prints that passes.
fn assert_hundred_good(from: u64) {
    let began = Instant::now();
    let count = assert_good(from..from + 100);
    let seconds = began.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    let told = format!("measured: {count} seeds from {from} in {seconds:.1} s, {rate:.1} a second\n");
    std::io::stdout().write_all(told.as_bytes()).unwrap();
}

/// That an oracle notices a defect in one of the first seeds, and what it says begins so. Some are met in one world of a
/// hundred.
fn assert_noticed(plant: Plant, oracle: &str) {
    let noticed = (0..400).find_map(|seed| {
        let outcome = run(seed, Options { plant: Some(plant), is_told: false }).unwrap();
        outcome.violations.into_iter().find(|violation| violation.starts_with(oracle))
    });
    assert!(noticed.is_some(), "{plant:?} goes unnoticed by \"{oracle}\"");
}

#[test]
fn no_seed_of_the_first_shows_a_defect() {
    assert_hundred_good(0);
}

#[test]
fn no_seed_of_the_second_hundred_shows_a_defect() {
    assert_hundred_good(100);
}

#[test]
fn no_seed_of_the_third_hundred_shows_a_defect() {
    assert_hundred_good(200);
}

/// `tests/regressions.txt`: a seed a line, then what it found.
#[test]
fn seeds_that_found_a_defect_stay_good() {
    let lines = include_str!("regressions.txt").lines();
    let seeds = lines.filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let count = assert_good(seeds.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()));
    assert!(count > 0, "none is listed");
}

#[test]
fn a_seed_is_one_world() {
    for n in 0..20 {
        let (first, second) = (seed(n), seed(n));
        assert_eq!(
            (first.digest, first.events, first.ms),
            (second.digest, second.events, second.ms),
            "seed {n}"
        );
    }
    assert_ne!(seed(1).digest, seed(2).digest);
}

/// Else what is said of them below would be said of nothing.
#[test]
fn worlds_have_planned_restarts_and_crashes() {
    let (handovers, lives) =
        (0..20).map(seed).fold((0, 0), |sum, of| (sum.0 + of.handovers, sum.1 + of.lives));
    assert!(handovers >= 5 && lives >= 25, "{handovers} and {lives} in twenty seeds");
}

#[test]
fn worlds_have_delegations_that_are_had_back_after_a_crash() {
    let reclaimed: u64 = (0..100).map(seed).map(|of| of.delegations_reclaimed).sum();
    assert!(reclaimed >= 4, "{reclaimed} in a hundred seeds");
}

#[test]
fn worlds_have_reads_of_what_was_kept_over_close() {
    let kept: u64 = (0..100).map(seed).map(|of| of.reads_kept).sum();
    assert!(kept >= 100, "{kept} in a hundred seeds");
}

#[test]
fn worlds_have_disks_that_fail_and_are_full() {
    let faults: u64 = (0..100).map(seed).map(|of| of.disk_faults).sum();
    assert!(faults >= 100, "{faults} in a hundred seeds");
}

#[test]
fn an_open_whose_close_a_crash_leaves_unanswered_is_not_reclaimed() {
    let told = |seed| run(seed, Options { plant: None, is_told: true }).unwrap().lines;
    let is_given_up = |line: &String| line.ends_with("it was being closed");
    assert!((0..100).any(|seed| told(seed).iter().any(is_given_up)), "in none of a hundred seeds");
}

#[test]
fn telling_what_happens_changes_nothing() {
    let told = run(3, Options { plant: None, is_told: true }).unwrap();
    assert_eq!(told.digest, seed(3).digest);
    assert!(!told.lines.is_empty());
}

#[test]
fn replies_before_their_commit_are_noticed() {
    assert_noticed(Plant::AnswerBeforeCommit, "data: a read of block");
    assert_noticed(Plant::AnswerBeforeCommit, "exactly once: the directory of client");
}

#[test]
fn records_that_are_not_stored_are_noticed() {
    assert_noticed(Plant::ForgetRecords, "conflicting grants: ");
}

#[test]
fn reclaims_by_anyone_are_noticed() {
    assert_noticed(Plant::AnyoneReclaims, "reclaim: ");
}

#[test]
fn retries_that_run_twice_after_a_crash_are_noticed() {
    assert_noticed(Plant::NoJournal, "exactly once: client");
}

#[test]
fn leases_that_run_out_too_early_are_noticed() {
    assert_noticed(Plant::ShortLease, "conflicting grants: ");
}

#[test]
fn reads_of_old_data_are_noticed() {
    assert_noticed(Plant::StaleReads, "data: a read of block");
}

#[test]
fn a_change_attribute_that_writes_leave_as_it_was_is_noticed() {
    assert_noticed(Plant::KeepChange, "data: block");
    assert_noticed(Plant::KeepChange, "data: file");
    assert_noticed(Plant::KeepChange, "change attribute: ");
}

#[test]
fn replies_that_are_forgotten_are_noticed() {
    assert_noticed(Plant::ForgetReplies, "data: a read of block");
    assert_noticed(Plant::ForgetReplies, "exactly once: client");
}

#[test]
fn replies_that_never_come_are_noticed() {
    assert_noticed(Plant::SwallowReplies, "did not end: ");
}

#[test]
fn recalls_that_are_not_sent_are_noticed() {
    assert_noticed(Plant::DropRecalls, "conflicting grants: ");
    assert_noticed(Plant::DropRecallsOf40, "conflicting grants: ");
}

#[test]
fn directories_that_change_under_a_delegation_are_noticed() {
    assert_noticed(Plant::Unguarded, "conflicting grants: a delegated directory was changed");
    assert_noticed(Plant::DropRecalls, "conflicting grants: a delegated directory was changed");
}

#[test]
fn locks_of_nfsv3_that_a_restart_forgets_are_noticed() {
    assert_noticed(Plant::ForgetHosts, "conflicting grants: at ");
}

#[test]
fn state_that_a_planned_restart_hands_over_too_old_is_noticed() {
    assert_noticed(Plant::HandOverOldState, "conflicting grants: ");
}

#[test]
fn promises_that_a_planned_restart_forgets_are_noticed() {
    assert_noticed(Plant::HandOverUnguarded, "conflicting grants: ");
}

#[test]
fn a_planned_restart_that_clients_are_told_of_is_noticed() {
    assert_noticed(Plant::GoOnAsAfterCrash, "conflicting grants: at ");
}

#[test]
fn changes_of_directories_that_nobody_is_told_are_noticed() {
    assert_noticed(Plant::LoseNotices, "notifications: who is told");
}

#[test]
fn numbers_of_sessions_that_a_crash_takes_are_noticed() {
    assert_noticed(Plant::ForgetNumbers, "sessions: ");
}
