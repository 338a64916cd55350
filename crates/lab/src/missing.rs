//! What a test needs of the machine, checked before it starts, so that a lack is reported by its name.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something that a test needs and this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is missing: a program, a file, a kernel feature.
    pub what: String,
    /// What brings it, as a sentence that a person can act on.
    pub remedy: String,
}

impl Missing {
    /// Names a lack and its remedy.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missing: {} ({})", self.what, self.remedy)
    }
}

impl std::error::Error for Missing {}

/// Where programs are looked for beside `PATH`: an ordinary user's `PATH` often lacks the system directories.
const SYSTEM_DIRS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/usr/bin", "/sbin"];

/// Finds a program in `PATH` or the system directories.
///
/// Errors with [`Missing`], which names the program and the Debian package that brings it.
pub fn program(name: &str, package: &str) -> Result<PathBuf, Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Missing::new(format!("the program {name}"), format!("apt-get install {package}")))
}

/// Checks that a file is there; `remedy` says what makes it.
pub fn file(path: &Path, remedy: &str) -> Result<(), Missing> {
    if path.is_file() { Ok(()) } else { Err(Missing::new(path.display().to_string(), remedy)) }
}

/// Checks for the superuser's rights, which taps, namespaces and loop mounts need.
pub fn superuser() -> Result<(), Missing> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(Missing::new("the superuser's rights", "run the lab's tests as root"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let lack = program("no-such-program-here", "no-such-package").unwrap_err();
        assert!(lack.to_string().contains("no-such-program-here"));
        assert!(lack.to_string().contains("apt-get install no-such-package"));
    }

    #[test]
    fn a_program_outside_path_is_found_in_the_system_directories() {
        assert!(program("sh", "dash").unwrap().is_absolute());
    }
}
