//! Capabilities: that no two clients hold what excludes each other, and nobody beside what others have open, locked or
//! delegated.

use std::collections::BTreeMap;

use holdfast_base::{CapSet, FileKey};

use super::require;
use crate::caps::CapHold;
use crate::caps_names::NameKey;
use crate::deed::Deed;
use crate::engine::{Engine, Kind};

pub(super) fn check(engine: &Engine) -> Result<(), String> {
    let mut all = 0;
    for (file, holds) in &engine.caps.by_file {
        require(!holds.is_empty(), || format!("file {file}: nobody holds its capabilities"))?;
        all += holds.len();
        for hold in holds {
            one(engine, *file, hold)
                .map_err(|what| format!("file {file}, client {}: {what}", hold.client))?;
            let others = holds.iter().filter(|other| other.client != hold.client);
            for other in others.clone() {
                require(hold.all().fits(other.all()), || format!("file {file}: {hold:?} beside {other:?}"))?;
            }
            require(others.count() + 1 == holds.len(), || format!("file {file}: held twice by one"))?;
        }
    }
    require(all == engine.caps.objects, || format!("{all} held, counted {}", engine.caps.objects))?;
    let listed: usize = engine.caps.clients.values().map(|client| client.files.len()).sum();
    require(listed == all, || "a client lists capabilities that are gone".to_owned())?;
    for (client, file) in &engine.caps.recalls {
        let recall = engine.caps.hold(*client, *file).and_then(|hold| hold.recall);
        require(recall.is_some(), || format!("{client}, {file}: listed as recalled and is not"))?;
    }
    names(engine)?;
    for id in engine.caps.clients.keys() {
        let is_known = engine.clients.by_id.contains_key(id);
        require(is_known, || format!("client {id} is gone and holds capabilities"))?;
    }
    Ok(())
}

/// Names are held of, each by whom it is listed for, and nobody else has the directory to himself.
fn names(engine: &Engine) -> Result<(), String> {
    let names = &engine.caps.names;
    let mut counts = BTreeMap::new();
    for ((dir, client, name), place) in &names.holders {
        let wrong = |what: &str| format!("name {name} of {dir}, client {client}: {what}");
        let hold = engine.caps.hold(*client, *name).ok_or_else(|| wrong("is listed and not held"))?;
        require(CapSet::FILE_S.contains(hold.all()), || wrong("holds more than one can of a name"))?;
        let holds = engine.caps.by_file.get(dir).map(Vec::as_slice).unwrap_or_default();
        let is_shared = |other: &CapHold| other.client == *client || !other.all().contains(CapSet::FILE_X);
        require(holds.iter().all(is_shared), || wrong("another has the directory to himself"))?;
        require(names.by_age.contains(&(*client, *place, *name)), || wrong("has no place in time"))?;
        *counts.entry(*client).or_insert(0) += 1;
    }
    require(names.by_age.len() == names.holders.len(), || "names that are gone have places".to_owned())?;
    require(counts == names.by_client, || format!("{counts:?} names, counted {:?}", names.by_client))?;
    for NameKey { dir, name } in names.all() {
        let holds = engine.caps.by_file.get(&name).map(Vec::as_slice).unwrap_or_default();
        let is_listed = |hold: &CapHold| names.holders.contains_key(&(dir, hold.client, name));
        require(!holds.is_empty() && holds.iter().all(is_listed), || format!("name {name} is misfiled"))?;
    }
    Ok(())
}

fn one(engine: &Engine, file: FileKey, hold: &CapHold) -> Result<(), String> {
    require(!hold.all().is_empty(), || "holds nothing".to_owned())?;
    require(hold.held.sound() == hold.held, || format!("{:?} is unsound", hold.held))?;
    require(hold.granted_seq <= hold.seq && hold.seq <= engine.caps.seq, || "numbers run ahead".to_owned())?;
    let of = engine.caps.clients.get(&hold.client);
    require(of.is_some_and(|of| of.files.contains(&file)), || "its client does not list it".to_owned())?;
    let is_recalled = engine.caps.recalls.contains(&(hold.client, file));
    require(hold.recall.is_some() == is_recalled, || "recall is misfiled".to_owned())?;
    require(hold.recall.is_none_or(|recall| !recall.keep.contains(hold.held)), || {
        "a recall has nothing to ask for".to_owned()
    })?;
    beside_use(engine, file, hold)
}

fn beside_use(engine: &Engine, file: FileKey, hold: &CapHold) -> Result<(), String> {
    let Some(used) = engine.files.get(&file) else { return Ok(()) };
    for key in used.delegations.iter().chain(&used.opens) {
        let Some(state) = engine.states.get(key.0).filter(|state| state.client != hold.client) else {
            continue;
        };
        match &state.kind {
            Kind::Delegation(delegation) => {
                for kind in delegation.kinds() {
                    require(hold.all().fits(kind.stands_for()), || {
                        format!("{:?} beside a delegation {kind:?} of {}", hold.all(), state.client)
                    })?;
                }
            }
            Kind::Open(open) => {
                let is_passed_over = hold.is_beside_writers && open.share.deny.is_none();
                let deed = if is_passed_over { Deed::OpenRead } else { open.share.deed() };
                require(!deed.conflicts_with_caps(hold.all()), || {
                    format!("{:?} beside {deed:?} of {}", hold.all(), state.client)
                })?;
            }
            Kind::Lock(_) => {}
        }
    }
    Ok(())
}
