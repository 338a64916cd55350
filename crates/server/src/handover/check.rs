//! The question that a running server asks the program which is to take its place, and the answer.

use std::env;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Result;

use super::arrival::VARIABLE;
use super::image::READ;
use crate::config::Config;

/// What the variable says to a program that is only asked.
pub(super) const ASKED: &str = "asked";

const WORDS: &str = "holdfast understands handovers ";
const STATE: &str = "holdfast keeps its state in ";

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
    let state_dir = crate::state_dir::chosen(config.state_dir.clone())?;
    println!("{STATE}{}", state_dir.display());
    println!("{WORDS}{} to {}", READ.start(), READ.end());
    Ok(())
}

/// The state directory in an answer, if it is another than this: what is handed over goes on with its records.
pub(super) fn another_state_dir<'a>(told: &'a str, served: &Path) -> Option<&'a str> {
    let other = told.lines().find_map(|line| line.split_once(STATE))?.1;
    // A name that is no text is not told as it is, and cannot be compared.
    let is_it = served.to_str().is_none() || is_same(Path::new(other), served);
    (!is_it).then_some(other)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|one| real(other) == Some(one))
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
    fn a_state_directory_is_another_when_it_is_not_the_same_place() {
        let dir = tempfile::tempdir().unwrap();
        let (here, link) = (dir.path().join("here"), dir.path().join("link"));
        fs::create_dir(&here).unwrap();
        std::os::unix::fs::symlink(&here, &link).unwrap();
        let told = |path: &Path| format!("running\n{STATE}{}\n{WORDS}1 to 1\n", path.display());
        assert_eq!(another_state_dir(&told(&here), &here), None);
        assert_eq!(another_state_dir(&told(&link), &here), None);
        let other = dir.path().join("other");
        assert_eq!(another_state_dir(&told(&other), &here), other.to_str());
        assert_eq!(another_state_dir(&format!("{WORDS}1 to 1\n"), &here), None, "an older program");
    }

    #[test]
    fn an_answer_is_found_among_other_lines_and_nothing_else_is_one() {
        assert_eq!(versions("running\nholdfast understands handovers 1 to 3\n"), Some(1..=3));
        assert_eq!(versions("test holdfast understands handovers 2 to 2"), Some(2..=2));
        for other in ["", "nfs 127.0.0.1:2049 ready", "holdfast understands handovers x to 1"] {
            assert_eq!(versions(other), None, "{other}");
        }
    }
}
