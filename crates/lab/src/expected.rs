//! What is expected of suites that others wrote, and the three-way rule.
//!
//! A list names the cases that do not pass, each with its reason. A new failure, a new pass, and an entry without
//! a reason all fail the run; so does an entry for a case that the run never saw, for it hides a typing error.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// How one case of a suite ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It passed.
    Pass,
    /// It failed.
    Fail,
    /// It passed with a complaint.
    Warn,
    /// The suite found that the server does not offer what it tests.
    Unsupported,
    /// The suite did not run it.
    Skip,
}

/// One case of a suite, as a run saw it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Observation {
    /// The suite's own name for the case.
    pub code: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What the suite said about it.
    #[serde(default)]
    pub message: String,
}

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The suite's own name for the case.
    pub code: String,
    /// How it ends.
    pub expected: Outcome,
    /// Why that is right or not yet otherwise.
    #[serde(default)]
    pub reason: String,
    /// The version or date since when it is so.
    #[serde(default)]
    pub since: String,
    /// The scopes (mounts) where it holds; empty means all.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The issue that will change it, where there is one.
    #[serde(default)]
    pub issue: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// How many cases the suite has, at least: one that stops half-way does not pass.
    #[serde(default)]
    cases: usize,
    #[serde(default)]
    case: Vec<Expectation>,
}

/// A list of cases that do not pass.
#[derive(Debug, Clone, Default)]
pub struct Expectations {
    cases: usize,
    entries: Vec<Expectation>,
}

impl Expectations {
    /// Reads a TOML list of `[[case]]` tables, and before them how many `cases` the suite has.
    ///
    /// Errors when it cannot be read, and when an entry lacks its reason or its `since`.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// As [`Expectations::load`], from a text.
    pub fn parse(text: &str) -> Result<Self> {
        let document: Document = toml::from_str(text)?;
        for entry in &document.case {
            if entry.reason.trim().is_empty() || entry.since.trim().is_empty() {
                bail!("the entry for {} has no reason or no since", entry.code);
            }
            if entry.expected == Outcome::Pass {
                bail!("the entry for {} expects a pass, which needs no entry", entry.code);
            }
        }
        Ok(Self { cases: document.cases, entries: document.case })
    }

    /// Leaves only what is said of these cases, for a run of nothing else.
    pub fn only(&mut self, codes: &[String]) {
        self.cases = 0;
        self.entries.retain(|entry| codes.contains(&entry.code));
    }

    /// Compares a run with the list; `normal` says how a case that is not listed is to end (a pass, or what the
    /// file system below shows).
    ///
    /// Errors with every difference: new failures, new passes, entries that the run never saw, and a run
    /// without any case, or with fewer than the suite has.
    pub fn judge(&self, scope: &str, seen: &[Observation], normal: impl Fn(&str) -> Outcome) -> Result<()> {
        if seen.is_empty() {
            bail!("{scope}: the suite reported no case at all");
        }
        if seen.len() < self.cases {
            bail!("{scope}: the suite reported {} cases of {}", seen.len(), self.cases);
        }
        let mut listed: BTreeMap<&str, &Expectation> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.holds_in(scope)) {
            if listed.insert(&entry.code, entry).is_some() {
                bail!("{scope}: {} is listed twice", entry.code);
            }
        }
        let mut differences = String::new();
        for case in seen {
            let entry = listed.remove(case.code.as_str());
            let expected = entry.map_or_else(|| normal(&case.code), |entry| entry.expected);
            if case.outcome != expected {
                describe(&mut differences, case, expected, entry);
            }
        }
        for code in listed.keys() {
            // Writing to a string cannot fail.
            let _ = writeln!(differences, "  {code}: listed, but the run has no such case");
        }
        if differences.is_empty() { Ok(()) } else { bail!("{scope}: not as expected:\n{differences}") }
    }
}

impl Expectation {
    fn holds_in(&self, scope: &str) -> bool {
        self.scopes.is_empty() || self.scopes.iter().any(|own| own == scope)
    }
}

fn describe(text: &mut String, case: &Observation, expected: Outcome, entry: Option<&Expectation>) {
    let kind = if case.outcome == Outcome::Pass { "new pass" } else { "new failure" };
    let why = entry.map_or_else(String::new, |entry| format!(" (listed: {})", entry.reason));
    let _ = writeln!(
        text,
        "  {}: {kind}: {:?} where {expected:?} was expected{why}: {}",
        case.code,
        case.outcome,
        case.message.lines().next().unwrap_or_default()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[[case]]\ncode = \"a\"\nexpected = \"fail\"\nreason = \"r\"\nsince = \"0.1\"\n\
                        scopes = [\"v3\"]\n";

    fn seen(cases: &[(&str, Outcome)]) -> Vec<Observation> {
        cases
            .iter()
            .map(|&(code, outcome)| Observation { code: code.into(), outcome, message: "m".into() })
            .collect()
    }

    fn judged(scope: &str, cases: &[(&str, Outcome)]) -> Result<(), String> {
        let list = Expectations::parse(LIST).unwrap();
        list.judge(scope, &seen(cases), |_| Outcome::Pass).map_err(|error| error.to_string())
    }

    #[test]
    fn a_run_that_is_as_listed_passes() {
        judged("v3", &[("a", Outcome::Fail), ("b", Outcome::Pass)]).unwrap();
        judged("v4.1", &[("a", Outcome::Pass), ("b", Outcome::Pass)]).unwrap();
    }

    #[test]
    fn a_new_failure_fails_the_run() {
        let error = judged("v3", &[("a", Outcome::Fail), ("b", Outcome::Fail)]).unwrap_err();
        assert!(error.contains("b: new failure"), "{error}");
        assert!(judged("v4.1", &[("a", Outcome::Fail)]).is_err(), "listed for v3 only");
    }

    #[test]
    fn a_new_pass_fails_the_run() {
        let error = judged("v3", &[("a", Outcome::Pass)]).unwrap_err();
        assert!(error.contains("a: new pass"), "{error}");
    }

    #[test]
    fn an_entry_without_a_reason_or_without_its_case_fails_the_run() {
        assert!(Expectations::parse(&LIST.replace("\"r\"", "\" \"")).is_err());
        let error = judged("v3", &[("b", Outcome::Pass)]).unwrap_err();
        assert!(error.contains("no such case"), "{error}");
    }

    #[test]
    fn a_run_without_cases_or_with_fewer_than_the_suite_has_fails() {
        assert!(judged("v4.1", &[]).is_err());
        let list = Expectations::parse(&format!("cases = 3\n{LIST}")).unwrap();
        let judged = |count: usize| {
            let cases = &[("a", Outcome::Fail), ("b", Outcome::Pass), ("c", Outcome::Pass)][..count];
            list.judge("v3", &seen(cases), |_| Outcome::Pass)
        };
        judged(3).unwrap();
        assert!(judged(2).unwrap_err().to_string().contains("2 cases of 3"));
    }
}
