//! How long an open waits for the recall of a delegation.

use super::client::Client;
use super::print::latencies;
use crate::rival::Contender;
use crate::volume::{SMALL_FILES, small_name};
use anyhow::{Context, Result, ensure};
use holdfast_wire::nfs4::{OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ};
use std::path::Path;
use std::time::Instant;

/// One client holds delegations of small files; another opens them for writing, one after the other. An open counts
/// when its file is delegated at that moment.
///
/// Errors when few are, or one was opened without its recall.
pub(super) fn measure(export: &Path, at: &Path) -> Result<()> {
    let server = Contender::HoldfastAsync.start(export, at)?;
    let mut holder = Client::connect(server.ports.nfs, "holder")?;
    let delegations = (0..SMALL_FILES)
        .map(|number| Ok(holder.open(&small_name(number), OPEN4_SHARE_ACCESS_READ)?.0))
        .collect::<Result<Vec<_>>>()?;
    let held = holder.held();
    let is_held = |number: usize| {
        let held = held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        delegations[number].is_some_and(|delegation| held.contains(&delegation))
    };
    // It ends with its connection, that is with the server.
    std::thread::spawn(move || holder.give_back());
    let mut other = Client::connect(server.ports.nfs, "other")?;
    let (mut took, mut put_off) = (Vec::new(), 0);
    for number in (0..SMALL_FILES).filter(|number| is_held(*number)) {
        let started = Instant::now();
        put_off +=
            other.open(&small_name(number), OPEN4_SHARE_ACCESS_BOTH).context("an open that recalls")?.1;
        took.push(started.elapsed());
        ensure!(!is_held(number), "{} was opened, and its delegation not recalled", small_name(number));
    }
    ensure!(took.len() > SMALL_FILES / 2, "{} of {SMALL_FILES} files were delegated", took.len());
    latencies(&format!("open that recalls a delegation (put off {put_off} times)"), took);
    Ok(())
}
