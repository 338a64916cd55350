//! Our own mounts, on this host: what applications do over `holdfast mount`, beside what they do on the file system
//! below; and what happens to them when servers and daemons go away.
//!
//! `cargo test -p holdfast-lab --test mount -- NAME` runs the cases whose names contain NAME; see `docs/testing.md`.

mod above;
mod adrift;
mod ahead;
mod apart;
mod crossed;
mod delegated;
mod demo;
mod direct;
mod everyday;
mod failing;
mod failover;
mod fixture;
mod foreign;
mod fsx;
mod full;
mod history;
mod installed;
mod killed;
mod life;
mod linux;
mod listed;
mod locks;
mod model;
mod moved;
mod nameless;
mod neighbours;
mod offline;
mod older;
mod pjdfstest;
mod pooled;
mod postgres;
mod remote_below;
mod renames;
mod rights;
mod room;
mod same_host;
mod sides;
mod sqlite;
mod squashed;
mod stuck;
mod two;
mod unprivileged;
mod unsent;
mod watched;
mod xfstests;

use std::process::ExitCode;

fn main() -> ExitCode {
    match apart::task().as_deref() {
        Some("history") => return history::work_apart(),
        Some("model") => return model::work_apart(),
        _ => {}
    }
    let cases = [
        above::trials(),
        adrift::trials(),
        ahead::trials(),
        crossed::trials(),
        delegated::trials(),
        demo::trials(),
        direct::trials(),
        everyday::trials(),
        failing::trials(),
        failover::trials(),
        foreign::trials(),
        fsx::trials(),
        full::trials(),
        history::trials(),
        installed::trials(),
        killed::trials(),
        life::trials(),
        linux::trials(),
        listed::trials(),
        locks::trials(),
        model::trials(),
        moved::trials(),
        nameless::trials(),
        neighbours::trials(),
        offline::trials(),
        older::trials(),
        pjdfstest::trials(),
        pooled::trials(),
        postgres::trials(),
        remote_below::trials(),
        renames::trials(),
        rights::trials(),
        room::trials(),
        same_host::trials(),
        sqlite::trials(),
        squashed::trials(),
        stuck::trials(),
        two::trials(),
        unprivileged::trials(),
        unsent::trials(),
        watched::trials(),
        xfstests::trials(),
    ];
    holdfast_lab::trial::run(cases.into_iter().flatten().collect())
}
