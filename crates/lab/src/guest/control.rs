//! The control directory of one guest: what its init reads, and the shim its kernel needs.

use super::slot::Slot;
use crate::kernel::Kernel;
use crate::process::capture;
use crate::scratch::Scratch;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const INIT: &str = include_str!("../../assets/guest-init");
const SHIM: &str = include_str!("../../assets/xstate-shim.c");
const PRELUDE: &str = include_str!("../../assets/prelude.sh");

/// What a guest is to run.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) script: &'a str,
    pub(super) env: &'a [(&'a str, &'a str)],
}

/// A scratch directory with everything that the guest's first process needs.
#[derive(Debug)]
pub(super) struct Control {
    scratch: Scratch,
    out: PathBuf,
    shim: Option<PathBuf>,
}

impl Control {
    /// Writes the files for `job`; `out` is the host directory that the guest may write.
    pub(super) fn new(kernel: &Kernel, slot: &Slot, out: Option<&Path>, job: &Job<'_>) -> Result<Self> {
        let scratch = Scratch::new("guest")?;
        let dir = scratch.path();
        let out = match out {
            Some(given) => fs::canonicalize(given).with_context(|| format!("{}", given.display()))?,
            None => dir.join("out"),
        };
        fs::create_dir_all(out.join(".signal"))?;
        fs::write(dir.join("init"), INIT)?;
        fs::set_permissions(dir.join("init"), PermissionsExt::from_mode(0o755))?;
        fs::write(dir.join("conf"), conf(kernel, slot, &out)?)?;
        fs::write(dir.join("script"), format!("{PRELUDE}\n{}", job.script))?;
        fs::write(dir.join("command"), command(slot, &out, job, dir))?;
        let shim = if kernel.wants_xstate_shim() { Some(build_shim(dir)?) } else { None };
        Ok(Self { scratch, out, shim })
    }

    pub(super) fn path(&self) -> &Path {
        self.scratch.path()
    }

    pub(super) fn out(&self) -> &Path {
        &self.out
    }

    pub(super) fn shim(&self) -> Option<&Path> {
        self.shim.as_deref()
    }

    pub(super) fn console(&self) -> PathBuf {
        self.path().join("console")
    }
}

fn conf(kernel: &Kernel, slot: &Slot, out: &Path) -> Result<String> {
    let modules = kernel.modules()?.map_or_else(String::new, |dir| quote(&dir.to_string_lossy()));
    Ok(format!(
        "NAME={}\nMODULES={modules}\nSERVER={}\nGUEST={}\nGUEST6={}\nOUT={}\n",
        slot.name(),
        slot.host(),
        slot.guest(),
        slot.guest6(),
        quote(&out.to_string_lossy()),
    ))
}

/// The environment is given whole: what the caller's holds must not change a test's course.
fn command(slot: &Slot, out: &Path, job: &Job<'_>, dir: &Path) -> String {
    let server = slot.host().to_string();
    let server6 = slot.host6().to_string();
    let guest = slot.guest().to_string();
    let out = out.to_string_lossy();
    let own = [
        ("HOME", "/root"),
        ("LANG", "C.UTF-8"),
        ("SERVER", server.as_str()),
        ("SERVER6", server6.as_str()),
        ("GUEST", guest.as_str()),
        ("OUT", &out),
    ];
    let mut text = String::new();
    for (name, value) in own.iter().chain(job.env) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "export {name}={}", quote(value));
    }
    let _ = writeln!(text, "cd /tmp\nexec bash {}", quote(&dir.join("script").to_string_lossy()));
    text
}

fn build_shim(dir: &Path) -> Result<PathBuf> {
    let (source, built) = (dir.join("xstate-shim.c"), dir.join("xstate-shim.so"));
    fs::write(&source, SHIM)?;
    let args = [
        "-O2".as_ref(),
        "-shared".as_ref(),
        "-fPIC".as_ref(),
        "-o".as_ref(),
        built.as_os_str(),
        source.as_os_str(),
        "-ldl".as_ref(),
    ];
    capture("gcc", &args).context("building the register-state shim")?;
    Ok(built)
}

/// Quotes for a POSIX shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_survives_the_shell() {
        for word in ["", "plain", "two words", "it's", "$HOME `id` \\ \"q\"", "line\nbreak"] {
            let shown = capture("sh", &["-c", &format!("printf %s {}", quote(word))]).unwrap();
            assert_eq!(shown, word);
        }
    }
}
