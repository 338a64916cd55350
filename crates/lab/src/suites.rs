//! Suites that others wrote: where their programs are, and how their reports read.

use crate::expected::{Observation, Outcome};
use crate::kernel::target_dir;
use crate::missing::{self, Missing};
use std::path::PathBuf;

const REMEDY: &str = "scripts/install-suites";

/// A program that `scripts/install-suites` installs (`pjdfstest`, `fsx`).
///
/// Errors with [`Missing`] when it is not there.
pub fn program(name: &str) -> Result<PathBuf, Missing> {
    let path = target_dir().join("suites/bin").join(name);
    missing::file(&path, REMEDY).map(|()| path)
}

/// The Python interpreter that has the package `nfs-rs`.
///
/// Errors with [`Missing`] when it is not there.
pub fn python() -> Result<PathBuf, Missing> {
    let path = target_dir().join("suites/python/bin/python");
    missing::file(&path, REMEDY).map(|()| path)
}

/// Reads what the crate `pjdfstest` prints: a line a case (name, then `ok`, `FAILED` or `skipped`), and below a
/// case that failed or was skipped, indented, why.
pub fn read_pjdfstest(report: &str) -> Vec<Observation> {
    let mut cases: Vec<Observation> = Vec::new();
    for line in report.lines() {
        if let Some(detail) = line.strip_prefix('\t') {
            if let Some(case) = cases.last_mut().filter(|case| case.message.is_empty()) {
                detail.trim().clone_into(&mut case.message);
            }
        } else if let Some((code, word)) = line.trim_end().rsplit_once(' ') {
            let outcome = match word {
                "ok" => Outcome::Pass,
                "FAILED" => Outcome::Fail,
                "skipped" => Outcome::Skip,
                _ => continue,
            };
            cases.push(Observation { code: code.trim().to_owned(), outcome, message: String::new() });
        }
    }
    cases
}

/// Reads what xfstests' `check` prints: a line a case, complete once it has ended, and below that of one that failed, indented,
/// the difference to what it was to say.
///
/// A case that has only begun reads as failed.
pub fn read_xfstests(report: &str) -> Vec<Observation> {
    let mut cases: Vec<Observation> = Vec::new();
    let mut is_explained = true;
    for line in report.lines() {
        if let Some((code, rest)) = xfstests_case(line) {
            let (outcome, message) = xfstests_outcome(rest.trim());
            is_explained = outcome != Outcome::Fail;
            cases.push(Observation { code: code.to_owned(), outcome, message });
        } else if let (Some(case), Some(said)) = (cases.last_mut(), line.strip_prefix("    +")) {
            // The first line that was not to be said, behind the heading of the difference.
            if !is_explained && !said.starts_with("++ ") {
                case.message = format!("{}: {}", case.message, said.trim());
                is_explained = true;
            }
        }
    }
    cases
}

/// The name at the beginning of a case's line, `generic/` and a number, and what follows it.
fn xfstests_case(line: &str) -> Option<(&str, &str)> {
    let number = line.strip_prefix("generic/")?;
    let digits = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    Some(line.split_at("generic/".len() + digits))
}

fn xfstests_outcome(said: &str) -> (Outcome, String) {
    if let Some((_, reason)) = said.split_once("[not run]") {
        return (Outcome::Skip, reason.trim().to_owned());
    }
    // A pass says how long it took, and nothing else.
    let seconds = said.strip_suffix('s').is_some_and(|number| number.trim().parse::<u64>().is_ok());
    if seconds { (Outcome::Pass, String::new()) } else { (Outcome::Fail, said.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pjdfstest_report_reads_as_cases_with_their_first_complaint() {
        let report = "chmod::a    ok\nchmod::b     FAILED\n\tassertion failed\n\tmore\nchmod::c   skipped\n\
                      \trequires features: chflags\n\nSummary: 1 failed, 1 skipped, 1 passed, 3 total\n";
        let cases = read_pjdfstest(report);
        let told: Vec<_> =
            cases.iter().map(|case| (case.code.as_str(), case.outcome, case.message.as_str())).collect();
        assert_eq!(
            told,
            [
                ("chmod::a", Outcome::Pass, ""),
                ("chmod::b", Outcome::Fail, "assertion failed"),
                ("chmod::c", Outcome::Skip, "requires features: chflags"),
            ]
        );
    }

    #[test]
    fn an_xfstests_report_reads_as_cases_with_their_first_difference() {
        let report = "FSTYP         -- fuse\n\ngeneric/001        4s\n\
                      generic/003       [not run] atime related mount options have no effect on fuse\n\
                      generic/013       [failed, exit status 1]- output mismatch (see out.bad)\n\
                      \x20   --- tests/generic/013.out\n    +++ out.bad\n    @@ -1,2 +1,3 @@\n     QA output\n\
                      \x20   +cp: no space: really\n    +more\ngeneric/020 _check_dmesg: something found\n\n\
                      generic/1013       \nRan: generic/001 generic/013\n";
        let cases = read_xfstests(report);
        let told: Vec<_> =
            cases.iter().map(|case| (case.code.as_str(), case.outcome, case.message.as_str())).collect();
        assert_eq!(
            told,
            [
                ("generic/001", Outcome::Pass, ""),
                ("generic/003", Outcome::Skip, "atime related mount options have no effect on fuse"),
                (
                    "generic/013",
                    Outcome::Fail,
                    "[failed, exit status 1]- output mismatch (see out.bad): cp: no space: really"
                ),
                ("generic/020", Outcome::Fail, "_check_dmesg: something found"),
                ("generic/1013", Outcome::Fail, ""),
            ]
        );
    }
}
