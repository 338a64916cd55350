//! The server under test, driven by clients that nobody here wrote: the Linux kernel's (in guests), libnfs, and
//! `nfs-rs`; and suites that others wrote, over the kernel's mounts.
//!
//! `cargo test -p holdfast-lab --test kernel -- NAME` runs the cases whose names contain NAME; see
//! `docs/testing.md`. `HOLDFAST_SCALE=soak` makes them whole.

mod attendant;
mod beside;
mod boot;
mod conformance;
mod deadlock;
mod delegations;
mod fixture;
mod fsx;
mod nfstest;
mod nlm;
mod pjdfstest;
mod planned;
mod pressure;
mod pynfs;
mod reclaim;
mod referral;
mod restart;
mod restart_load;
mod sqlite;
mod systemd;
mod tree;
mod userspace;

use holdfast_lab::checkout;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cases = [
        beside::trials(),
        boot::trials(),
        conformance::trials(),
        deadlock::trials(),
        delegations::trials(),
        tree::trials(),
        pjdfstest::trials(),
        fsx::trials(),
        nlm::trials(),
        nfstest::trials(),
        sqlite::trials(),
        systemd::trials(),
        pynfs::trials(),
        reclaim::trials(),
        referral::trials(),
        restart::trials(),
        planned::trials(),
        pressure::trials(),
        restart_load::trials(),
        userspace::trials(),
    ];
    holdfast_lab::trial::run(cases.into_iter().flatten().collect())
}
