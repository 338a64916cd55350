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
}
