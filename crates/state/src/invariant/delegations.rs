//! Delegations and those who wait: that nobody holds what another excludes.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::{ClientId, FileKey};
use rustc_hash::FxHashMap;

use super::require;
use crate::deed::DelegationKind;
use crate::delegation::Delegation;
use crate::engine::{Engine, Kind, Standing, State, StateKey};
use crate::file::{File, Holder};
use crate::lock_set::LockKind;
use crate::share::Share;

pub(super) fn check(engine: &Engine) -> Result<(), String> {
    each(engine)?;
    for (key, file) in &engine.files {
        listed(engine, *key, &file.delegations).map_err(|what| format!("file {key}: {what}"))?;
        beside_each_other(engine, file).map_err(|what| format!("file {key}: {what}"))?;
    }
    for key in &engine.recalls {
        let recall = engine.delegation(*key).ok().and_then(|delegation| delegation.recall);
        require(recall.is_some(), || format!("{key:?} is listed as recalled and is not"))?;
    }
    waits(engine)
}

fn each(engine: &Engine) -> Result<(), String> {
    let mut by_client: FxHashMap<_, u32> = FxHashMap::default();
    let mut all = 0;
    for (key, state) in engine.states.iter() {
        let Kind::Delegation(delegation) = &state.kind else { continue };
        let key = StateKey(key);
        require(state.standing != Standing::Closed, || format!("delegation {key:?} is closed"))?;
        if state.standing != Standing::Good {
            continue;
        }
        all += 1;
        *by_client.entry(state.client).or_default() += 1;
        one(engine, key, delegation)?;
    }
    require(all == engine.delegations, || format!("{all} delegations, counted {}", engine.delegations))?;
    for (id, client) in &engine.clients.by_id {
        let held = by_client.remove(id).unwrap_or(0);
        require(held == client.delegations, || {
            format!("client {id} has {held} delegations, not as counted")
        })?;
    }
    let listed: usize = engine.files.values().map(|file| file.delegations.len()).sum();
    require(listed == all, || "a file lists a delegation that is gone".to_owned())
}

fn one(engine: &Engine, key: StateKey, delegation: &Delegation) -> Result<(), String> {
    require(delegation.kinds().next().is_some(), || format!("delegation {key:?} stands for nothing"))?;
    let is_recalled = delegation.recall.is_some();
    require(is_recalled == engine.recalls.contains(&key), || format!("{key:?}: recall is misfiled"))?;
    require(!is_recalled || delegation.offered.is_none(), || {
        format!("delegation {key:?} is recalled and offered more")
    })
}

/// A file lists its own delegations, one a client.
fn listed(engine: &Engine, file: FileKey, keys: &[StateKey]) -> Result<(), String> {
    let mut holders = BTreeSet::new();
    for key in keys {
        let state = engine.states.get(key.0).filter(|s| s.file == file && s.standing == Standing::Good);
        let Some(State { client, kind: Kind::Delegation(_), .. }) = state else {
            return Err(format!("{key:?} is no delegation of this file"));
        };
        require(holders.insert(*client), || format!("client {client} has two delegations"))?;
    }
    Ok(())
}

/// What is granted to different clients does not exclude each other. Offers may be in somebody's way still: they
/// exclude nobody until they are granted.
fn beside_each_other(engine: &Engine, file: &File) -> Result<(), String> {
    let delegations = || file.delegations.iter().filter_map(|key| engine.state(*key).ok());
    let granted = |state: &State| match &state.kind {
        Kind::Delegation(delegation) => delegation.granted,
        _ => None,
    };
    let of_files = || delegations().filter_map(granted).filter(|kind| !kind.is_directory());
    let is_write = |kind: DelegationKind| kind == DelegationKind::Write;
    require(!of_files().any(is_write) || of_files().count() == 1, || "a writer is not alone".to_owned())?;
    for state in delegations() {
        let Some(granted) = granted(state) else { continue };
        let is_in_way = |share: Share| share.deed().conflicts(granted);
        if is_in_way(file.sums.held()) {
            opens_agree(engine, file, state.client, granted)?;
        }
        require(!file.foreign_shares.iter().any(|(_, share)| is_in_way(*share)), || {
            "a foreign share breaks a promise".to_owned()
        })?;
        let breaks = |kind: LockKind| crate::foreign::deed(kind).conflicts(granted);
        for (holder, ranges) in file.locks.iter() {
            let is_others = match holder {
                Holder::Foreign(_) => true,
                Holder::State(key) => engine.state(key).is_ok_and(|of| of.client != state.client),
            };
            require(!is_others || !ranges.iter().any(|(_, kind)| breaks(kind)), || {
                format!("the lock of {holder:?} breaks a promise")
            })?;
        }
    }
    Ok(())
}

fn opens_agree(
    engine: &Engine,
    file: &File,
    holder: ClientId,
    granted: DelegationKind,
) -> Result<(), String> {
    for open in &file.opens {
        let (Ok(of), Ok(open)) = (engine.state(*open), engine.open_of(*open)) else { continue };
        let is_in_way = open.obtained.union().deed().conflicts(granted);
        require(of.client == holder || !is_in_way, || {
            format!("an open of {} breaks the promise to {holder}", of.client)
        })?;
    }
    Ok(())
}

pub(super) fn nobody_waits_in_vain(engine: &Engine) -> Result<(), String> {
    for key in engine.files.keys() {
        let due = engine.due_waiters(*key, None);
        require(due.is_empty(), || format!("{due:?} in line for file {key} wait in vain"))?;
    }
    Ok(())
}

/// The index of who waits agrees with the lines.
fn waits(engine: &Engine) -> Result<(), String> {
    let mut lines: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (key, file) in &engine.files {
        for waiter in &file.waiters {
            lines.entry(waiter.party.clone()).or_default().push(*key);
        }
    }
    lines.values_mut().for_each(|files| files.sort_unstable());
    let mut indexed = engine.waits.by_party.clone();
    indexed.values_mut().for_each(|files| files.sort_unstable());
    require(lines == indexed, || "the index of who waits is wrong".to_owned())
}
