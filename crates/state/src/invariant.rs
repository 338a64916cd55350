//! That every table agrees with every other: run after each step in tests.

mod caps;
mod delegations;

use std::collections::BTreeMap;

use holdfast_base::limits::CLIENTS_UNCONFIRMED_MAX;
use rustc_hash::FxHashMap;

use crate::client::{Sites, Unconfirmed};
use crate::engine::{Engine, Kind, Standing, StateKey};
use crate::file::{File, Holder};
use crate::lock_room::Account;
use crate::lock_set::LockKind;
use crate::names::Dialect;
use crate::owner::OwnerKind;
use crate::share::{Access, ShareSums};

/// Verifies every cross-reference, and that nobody waits for what could be had.
///
/// # Errors
/// The first contradiction, in words.
pub fn check(engine: &Engine) -> Result<(), String> {
    agrees(engine)?;
    delegations::nobody_waits_in_vain(engine)
}

/// Verifies every cross-reference. Somebody may wait for what can be had: it comes so from a former process that knew of
/// somebody outside in the way, whom this one has not met.
pub(crate) fn agrees(engine: &Engine) -> Result<(), String> {
    tally(engine)?;
    clients(engine)?;
    sessions(engine)?;
    owners(engine)?;
    states(engine)?;
    files(engine)?;
    delegations::check(engine)?;
    caps::check(engine)
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn tally(engine: &Engine) -> Result<(), String> {
    let taken = crate::census::Tally::taken(engine);
    require(taken == engine.tally, || format!("{taken:?}, counted {:?}", engine.tally))
}

fn clients(engine: &Engine) -> Result<(), String> {
    let table = &engine.clients;
    let mut unconfirmed = Unconfirmed::default();
    for (id, client) in table.by_id.iter().filter(|(_, client)| !client.is_confirmed) {
        unconfirmed.add(client.site, *id);
    }
    require(unconfirmed == table.unconfirmed, || {
        format!("{unconfirmed:?} unconfirmed, noted {:?}", table.unconfirmed)
    })?;
    let mut sites = Sites::default();
    table.by_id.values().for_each(|client| sites.add(client.site));
    require(sites == table.sites, || format!("{sites:?}, noted {:?}", table.sites))?;
    require(unconfirmed.len() <= CLIENTS_UNCONFIRMED_MAX, || format!("{} unconfirmed", unconfirmed.len()))?;
    for (id, client) in &table.by_id {
        let records = table.records(client.dialect(), client.identity.name.as_bytes());
        let by_name = if client.is_confirmed { records.confirmed } else { records.unconfirmed };
        require(by_name == Some(*id), || format!("client {id} is not found by name"))?;
        let holds = !client.sessions.is_empty() || !client.states.is_empty() || client.owners() > 0;
        require(client.is_confirmed || !holds, || format!("unconfirmed client {id} holds something"))?;
        let states = client.states.iter().filter_map(|key| engine.states.get(key.0));
        require(states.clone().count() == client.states.len(), || {
            format!("client {id} has a state that is gone")
        })?;
        let count = |standing: Standing| states.clone().filter(|state| state.standing == standing).count();
        let revoked = (count(Standing::AdminRevoked), count(Standing::DelegationRevoked));
        let counted = (client.revoked as usize, client.delegations_revoked as usize);
        require(revoked == counted, || format!("client {id}: {revoked:?} revoked, counted {counted:?}"))?;
        let mut lost = BTreeMap::<_, u32>::new();
        for state in states.filter(|state| state.standing.is_revoked()) {
            *lost.entry((state.owner, state.file)).or_default() += 1;
        }
        require(lost == client.lost, || format!("client {id} has lost {lost:?}, noted {:?}", client.lost))?;
    }
    let named = table.by_name.iter().flat_map(|names| names.values());
    let named: usize =
        named.map(|r| usize::from(r.confirmed.is_some()) + usize::from(r.unconfirmed.is_some())).sum();
    require(named == table.by_id.len(), || "a name leads to no client".to_owned())
}

fn sessions(engine: &Engine) -> Result<(), String> {
    for (id, session) in engine.sessions.iter() {
        let client = engine.clients.by_id.get(&session.client);
        require(client.is_some_and(|c| c.sessions.contains(&id)), || format!("session {id} is nobody's"))?;
        let is_aside = client.is_some_and(|client| client.has_locks_aside);
        require(session.is_held_up == is_aside, || format!("session {id} is held up, or its locks are not"))?;
        let flaw = session.slots.flaw();
        require(flaw.is_none(), || format!("session {id}: {flaw:?}"))?;
    }
    let slots: usize = engine.sessions.iter().map(|(_, session)| session.slots.len()).sum();
    require(slots == engine.sessions.slots(), || "slots are miscounted".to_owned())?;
    let listed: usize = engine.clients.by_id.values().map(|client| client.sessions.len()).sum();
    require(listed == engine.sessions.len(), || "a client lists a session that is gone".to_owned())
}

fn owners(engine: &Engine) -> Result<(), String> {
    let mut states: FxHashMap<_, u32> = FxHashMap::default();
    for owner in engine.states.iter().filter_map(|(_, state)| state.owner) {
        *states.entry(owner).or_default() += 1;
    }
    for (key, owner) in engine.owners.iter() {
        let key = crate::engine::OwnerKey(key);
        let found = engine.find_owner(owner.client, owner.kind, owner.name.as_bytes());
        require(found == Some(key), || format!("owner {:?} is not found by name", owner.name))?;
        let count = states.remove(&key).unwrap_or(0);
        require(count == owner.states, || {
            format!("owner {:?} counts {}, has {count}", owner.name, owner.states)
        })?;
        let is_40 = engine.dialect_of(owner.client) == Some(Dialect::V40);
        require(is_40 == owner.sequence.is_some(), || {
            format!("owner {:?} of the wrong dialect", owner.name)
        })?;
        require(is_40 || count > 0, || format!("owner {:?} of 4.1 owns nothing", owner.name))?;
        let closed = owner.last_closed.and_then(|state| engine.states.get(state.0));
        let is_closed = closed.is_some_and(|state| state.standing == Standing::Closed);
        require(owner.last_closed.is_none() || is_closed, || {
            format!("owner {:?} closed nothing", owner.name)
        })?;
    }
    require(states.is_empty(), || "a state has no owner".to_owned())?;
    let named: usize = engine.clients.by_id.values().map(crate::client::ClientIncarnation::owners).sum();
    require(named == engine.owners.len(), || "a client names an owner that is gone".to_owned())
}

fn states(engine: &Engine) -> Result<(), String> {
    let mut good = 0;
    for (key, state) in engine.states.iter() {
        let key = StateKey(key);
        let client = engine.clients.by_id.get(&state.client);
        require(client.is_some_and(|c| c.states.contains(&key)), || format!("state {key:?} is nobody's"))?;
        let Some(owner) = state.owner else {
            require(matches!(state.kind, Kind::Delegation(_)), || format!("state {key:?} has no owner"))?;
            continue;
        };
        let of = engine.owners.get(owner.0).ok_or_else(|| format!("state {key:?} has no owner"))?;
        let kind = if matches!(state.kind, Kind::Open(_)) { OwnerKind::Open } else { OwnerKind::Lock };
        require(of.kind == kind && of.client == state.client, || format!("state {key:?}: wrong owner"))?;
        if state.standing != Standing::Good {
            continue;
        }
        good += 1;
        let indexed = engine.by_owner_file.get(&(owner, state.file));
        require(indexed == Some(&key), || format!("state {key:?} is not found by owner and file"))?;
        match &state.kind {
            Kind::Delegation(_) => return Err(format!("delegation {key:?} has an owner")),
            Kind::Open(open) => {
                require(open.share == open.union(), || format!("open {key:?} is not its OPENs' union"))?;
                let granted = open.obtained.union().access;
                require(open.descriptors.access().contains(granted), || {
                    format!("open {key:?} has no descriptor for what it may do")
                })?;
                require(!granted.is_none() || !open.pending.is_empty(), || {
                    format!("open {key:?} stands for nothing")
                })?;
                require(open.looked.alike <= open.looked.granted, || {
                    format!("open {key:?} was looked at more often than it was granted")
                })?;
                require(open.looked.granted > 0 || granted.is_none(), || {
                    format!("open {key:?} has an OPEN that was not counted")
                })?;
                for lock in &open.locks {
                    let made_from = engine.states.get(lock.0).map(|lock| &lock.kind);
                    let is_its = matches!(made_from, Some(Kind::Lock(lock)) if lock.open == key);
                    require(is_its, || format!("open {key:?} lists a lock state that is not its own"))?;
                }
            }
            Kind::Lock(lock) => {
                let open =
                    engine.open_of(lock.open).map_err(|_| format!("lock state {key:?} has no open"))?;
                require(open.locks.contains(&key), || {
                    format!("lock state {key:?} is not listed by its open")
                })?;
            }
        }
    }
    require(good == engine.by_owner_file.len(), || "the index by owner and file has strangers".to_owned())
}

fn files(engine: &Engine) -> Result<(), String> {
    let mut opens = 0;
    for (key, file) in &engine.files {
        require(!file.is_idle(), || format!("file {key} is kept for nothing"))?;
        opens += file.opens.len();
        let mut sums = ShareSums::default();
        for open in &file.opens {
            let state = engine.states.get(open.0).filter(|s| s.file == *key && s.standing == Standing::Good);
            let Some(Kind::Open(open)) = state.map(|state| &state.kind) else {
                return Err(format!("file {key} lists an open that is not its own"));
            };
            sums.add(open.share);
        }
        file.foreign_shares.iter().for_each(|(_, share)| sums.add(*share));
        require(sums == file.sums, || format!("file {key}: shares do not add up"))?;
        shares_agree(engine, file)?;
        locks_agree(engine, file).map_err(|what| format!("file {key}: {what}"))?;
    }
    let denying = engine
        .files
        .values()
        .filter(|file| !file.held_by_opens(&ShareSums::default()).deny.is_none())
        .count();
    lock_ranges_add_up(engine)?;
    require(denying == engine.denying, || "files with deny modes are miscounted".to_owned())?;
    let waiting = engine.files.iter().filter(|(_, file)| !file.waiters.is_empty());
    let is_listed = waiting.clone().all(|(key, _)| engine.waiting.contains(key));
    require(is_listed && waiting.count() == engine.waiting.len(), || {
        "files with waiters are misfiled".to_owned()
    })?;
    let is_good_open = |state: &crate::engine::State| {
        matches!(state.kind, Kind::Open(_)) && state.standing == Standing::Good
    };
    let expected = engine.states.iter().filter(|(_, state)| is_good_open(state)).count();
    require(opens == expected, || format!("{opens} opens listed by files, {expected} there"))
}

fn lock_ranges_add_up(engine: &Engine) -> Result<(), String> {
    let mut account = Account::default();
    for (key, file) in &engine.files {
        let mut in_file = 0;
        for (holder, ranges) in file.locks.iter() {
            in_file += ranges.len();
            let payer = engine.payer(holder).ok_or_else(|| format!("{holder:?} is nobody's"))?;
            account.change(payer, 0, ranges.len());
        }
        require(in_file == file.lock_ranges, || format!("file {key}: ranges are miscounted"))?;
    }
    require(account == engine.lock_ranges, || {
        format!("{account:?} of ranges, counted {:?}", engine.lock_ranges)
    })
}

fn shares_agree(engine: &Engine, file: &File) -> Result<(), String> {
    for open in &file.opens {
        let Ok(open) = engine.open_of(*open) else { continue };
        let others = file.held_by_others(open.share, &ShareSums::default());
        require(!others.conflicts(open.share), || "two opens deny each other".to_owned())?;
    }
    Ok(())
}

fn locks_agree(engine: &Engine, file: &File) -> Result<(), String> {
    require(file.locks.is_sound(), || format!("locks out of form: {:?}", file.locks))?;
    for (holder, ranges) in file.locks.iter() {
        if let Holder::State(key) = holder {
            let state = engine.states.get(key.0);
            let is_lock =
                state.is_some_and(|s| matches!(s.kind, Kind::Lock(_)) && s.standing == Standing::Good);
            require(is_lock, || format!("{holder:?} holds locks and is no lock state"))?;
            let is_exclusive = ranges.iter().any(|(_, kind)| kind == LockKind::Write);
            require(!is_exclusive || file.locks_outlast_opens || may_write(engine, key), || {
                format!("{holder:?} excludes more than its open tells")
            })?;
        }
        for (range, kind) in ranges.iter() {
            let conflict = file.locks.conflict(Some(holder), range, kind);
            require(conflict.is_none(), || format!("{holder:?} and {conflict:?} hold one byte"))?;
        }
    }
    Ok(())
}

/// Whether the open that a lock state ends with is for writing.
fn may_write(engine: &Engine, key: StateKey) -> bool {
    let open = match engine.states.get(key.0).map(|state| &state.kind) {
        Some(Kind::Lock(lock)) => engine.open_of(lock.open),
        _ => return false,
    };
    open.is_ok_and(|open| open.obtained.union().access.contains(Access::WRITE))
}
