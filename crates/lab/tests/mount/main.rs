//! Our own mounts, on this host: what applications do over `holdfast mount`, beside what they do on the file system
//! below; and what happens to them when servers and daemons go away.
//!
//! `cargo test -p holdfast-lab --test mount -- NAME` runs the cases whose names contain NAME; see `docs/testing.md`.

mod everyday;
mod failing;
mod fixture;
mod fsx;
mod life;
mod locks;
mod pjdfstest;
mod two;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cases = [
        everyday::trials(),
        failing::trials(),
        fsx::trials(),
        life::trials(),
        locks::trials(),
        pjdfstest::trials(),
        two::trials(),
    ];
    holdfast_lab::trial::run(cases.into_iter().flatten().collect())
}
