//! The question that a running server asks the program which is to take its place, and the answer.

use std::env;
use std::ops::RangeInclusive;

use anyhow::Result;

use super::arrival::VARIABLE;
use super::image::VERSION;
use crate::config::Config;

/// What the variable says to a program that is only asked.
pub(super) const ASKED: &str = "asked";

const WORDS: &str = "holdfast understands handovers ";

/// Whether this process was started to answer.
pub(crate) fn is_asked() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == ASKED)
}

/// Answers, after a look at the configuration that would be served.
///
/// # Errors
/// What would keep it from being served.
pub(crate) fn answer(config: &Config) -> Result<()> {
    crate::exports::check(config)?;
    println!("{WORDS}{VERSION} to {VERSION}");
    Ok(())
}

/// The versions in an answer.
pub(super) fn versions(told: &str) -> Option<RangeInclusive<u32>> {
    let (low, high) = told.lines().find_map(|line| line.split_once(WORDS))?.1.split_once(" to ")?;
    Some(low.parse().ok()?..=high.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_among_other_lines_and_nothing_else_is_one() {
        assert_eq!(versions("running\nholdfast understands handovers 1 to 3\n"), Some(1..=3));
        assert_eq!(versions("test holdfast understands handovers 2 to 2"), Some(2..=2));
        for other in ["", "nfs 127.0.0.1:2049 ready", "holdfast understands handovers x to 1"] {
            assert_eq!(versions(other), None, "{other}");
        }
    }
}
