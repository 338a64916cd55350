//! Chores of the house, run as `cargo xtask CHORE`.
#![forbid(unsafe_code)]

mod counts;
mod house;
mod layers;
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask layers | house | tests ARGUMENTS | counts [--record]
  layers   fail when a crate imports one of its own layer or above
  house    sizes of files and functions, unwraps and unfinished notes
  tests    build what `cargo test ARGUMENTS` runs, and run several of its programs at once
  counts   fail when codec or engines take more instructions than is recorded; --record moves the record";

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
        Some("tests") => tests::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("counts") => counts::run(&root, std::env::args().nth(2).as_deref()),
        _ => bail!("{USAGE}"),
    }
}
