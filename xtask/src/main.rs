//! Chores of the house, run as `cargo xtask CHORE`.
#![forbid(unsafe_code)]

mod house;
mod layers;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask layers | house
  layers   fail when a crate imports one of its own layer or above
  house    sizes of files and functions, unwraps and unfinished notes";

fn main() -> ExitCode {
    let chore = std::env::args().nth(1);
    match run(chore.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Option<&str>) -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    match chore {
        Some("layers") => layers::check(&root),
        Some("house") => house::report(&root),
        _ => bail!("{USAGE}"),
    }
}
