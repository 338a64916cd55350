//! What state costs those who wait for it: how long an open waits for the recall of a delegation, and how long a client
//! with state stands still when its server is started again, planned or killed, alone and among many. Nobody else
//! publishes these, so there is no rival.

mod client;
mod print;
mod recall;
mod restart;
mod worker;

use crate::volume::{FsKind, Volume};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// What `state` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct StateArguments {
    /// Restarts of each kind
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    restarts: u64,
    /// Clients with a session, an open and a lock each, for the planned restarts among many
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=16_000))]
    clients: u64,
}

/// Measures and prints.
///
/// Errors when a server cannot be started, or does not do what it should.
pub(crate) fn run(arguments: &StateArguments, scratch: &Path) -> Result<()> {
    let volume = Volume::new(FsKind::Xfs, scratch, 0)?;
    let export = volume.export();
    let (restarts, clients) = (usize::try_from(arguments.restarts)?, usize::try_from(arguments.clients)?);
    let place = |name: &str| -> Result<PathBuf> {
        let place = scratch.join(name);
        std::fs::create_dir(&place)?;
        Ok(place)
    };
    // Each with a server of its own, for clients that are gone would be waited for in grace.
    recall::measure(&export, &place("recalls")?)?;
    restart::measure(restarts, &export, &place("restarts")?)?;
    restart::among_many(clients, restarts, &export, &place("among-many")?)
}
