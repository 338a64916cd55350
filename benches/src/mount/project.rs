//! A project that people work in: built, cleaned, and looked through by git.

use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each is compiled by itself.
const UNITS: usize = 200;
/// What git looks at beside them.
const PAGES: usize = 2_000;
const PAGES_PER_DIRECTORY: usize = 40;
const MAKEFILE: &str = "objects := $(patsubst %.c,%.o,$(wildcard unit-*.c))\n\
    all: program\n\
    program: $(objects)\n\t$(CC) -o $@ $^\n\
    %.o: %.c shared.h\n\t$(CC) -O1 -c -o $@ $<\n\
    clean:\n\trm -f program $(objects)\n";

/// Its files, unless they are there.
///
/// Errors of the system.
pub(super) fn lay_out(at: &Path) -> Result<()> {
    if at.exists() {
        return Ok(());
    }
    fs::create_dir(at)?;
    fs::write(at.join("Makefile"), MAKEFILE)?;
    fs::write(at.join(".gitignore"), "*.o\nprogram\n")?;
    let mut declared = String::from("#include <stdio.h>\n#include <string.h>\n");
    for number in 0..UNITS {
        writeln!(declared, "int unit_{number}(int n);")?;
        let calls = (number + 1..UNITS.min(number + 4)).map(|next| format!("unit_{next}(n - 1)"));
        let sum = calls.fold(String::from("n"), |sum, call| sum + " + " + &call);
        let main =
            if number == 0 { "int main(void) { return printf(\"%d\\n\", unit_0(3)) < 0; }\n" } else { "" };
        let text = format!(
            "#include \"shared.h\"\nint unit_{number}(int n) {{ return n <= 0 ? (int)strlen(\"unit\") : {sum}; }}\n{main}"
        );
        fs::write(at.join(format!("unit-{number}.c")), text)?;
    }
    fs::write(at.join("shared.h"), declared)?;
    for number in 0..PAGES {
        let directory = at.join(format!("pages-{}", number / PAGES_PER_DIRECTORY));
        if number % PAGES_PER_DIRECTORY == 0 {
            fs::create_dir(&directory)?;
        }
        fs::write(directory.join(format!("page-{number}.txt")), format!("page {number}\n").repeat(20))?;
    }
    Ok(())
}

/// Builds it, on two processors.
///
/// Errors when that fails.
pub(super) fn build(at: &Path) -> Result<()> {
    let said = run(at, "make", &["-s", "-j2"])?;
    ensure!(said.is_empty(), "make said {said}");
    run(at, "./program", &[]).map(drop)
}

/// Removes what was built.
///
/// Errors when that fails.
pub(super) fn clean(at: &Path) -> Result<()> {
    run(at, "make", &["-s", "clean"])?;
    ensure!(!at.join("unit-0.o").exists(), "the objects are left");
    Ok(())
}

/// Has git know all of it, and look once.
///
/// Errors when git fails.
pub(super) fn commit(at: &Path) -> Result<()> {
    run(at, "git", &["init", "-q"])?;
    run(at, "git", &["add", "."])?;
    run(at, "git", &["commit", "-q", "-m", "all of it"])?;
    status(at)
}

/// Has git look whether anything has changed; nothing has.
///
/// Errors when git fails, or sees changes.
pub(super) fn status(at: &Path) -> Result<()> {
    let said = run(at, "git", &["status", "--porcelain"])?;
    ensure!(said.is_empty(), "git sees changes: {said}");
    Ok(())
}

/// Has `grep` count the lines with this word in all files below `at`. How many files it says that of.
///
/// Errors when that fails, or none has it.
pub(super) fn grep(at: &Path, word: &str) -> Result<usize> {
    run(at, "grep", &["-rc", "--", word, "."]).map(|said| said.lines().count())
}

fn run(at: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    const SOMEBODY: [(&str, &str); 6] = [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_AUTHOR_NAME", "bench"),
        ("GIT_AUTHOR_EMAIL", "bench@localhost"),
        ("GIT_COMMITTER_NAME", "bench"),
        ("GIT_COMMITTER_EMAIL", "bench@localhost"),
    ];
    let mut command = Command::new(program);
    let output = command.args(arguments).envs(SOMEBODY).current_dir(at).output();
    let output = output.with_context(|| format!("{program} cannot be run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?} ended with {}: {said}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_laid_out_can_be_built_and_cleaned_and_git_finds_it_unchanged() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path().join("project");
        lay_out(&at).unwrap();
        build(&at).unwrap();
        clean(&at).unwrap();
        commit(&at).unwrap();
        status(&at).unwrap();
        assert!(grep(&at.join("pages-0"), "page").is_ok_and(|files| files == PAGES_PER_DIRECTORY));
        assert!(grep(&at.join("pages-0"), "nobody has this word").is_err());
        fs::write(at.join("shared.h"), "").unwrap();
        assert!(status(&at).is_err(), "a change is seen");
    }
}
