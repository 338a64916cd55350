//! What the engine says besides its answers, in each step of a random history: taken note of, and compared with the reference.

use std::collections::BTreeSet;

use holdfast_base::{ClientId, FileKey};
use holdfast_state::*;

use super::reference::line::{Had, Party, Wait as Waiting};
use super::reference::{CLIENTS, FILES, Lock};
use super::world::*;
use super::{OWNER_NAMES, Run};

impl Run {
    /// Clients that go after a tick: none that was not away, and none with state while courtesy has room.
    pub(crate) fn note_leaving(&mut self, away: &[usize]) {
        let max = self.world.engine.policy().courtesy_clients_max;
        // Who goes on the spot is known no more.
        let known = self.world.engine.report_clients(self.world.now);
        let is_known = |id: &ClientId| known.iter().any(|client| client.id == *id);
        let (leaving, expired) = std::mem::take(&mut self.forgotten).into_iter().partition(is_known);
        self.forgotten = expired;
        let leaving: Vec<ClientId> = leaving;
        for id in leaving {
            let client = self.ids.iter().position(|other| *other == id).unwrap();
            assert!(away.contains(&client), "client {client} is not away");
            assert!(away.len() > max || !self.model.holds(client), "client {client} had courtesy to expect");
            self.model.lose(client);
            self.model.leaving.insert(client);
        }
    }

    /// Takes note of what a step cost others, which the engine must have said.
    pub(crate) fn note_lost(&mut self) {
        self.model.let_in();
        for (client, file) in std::mem::take(&mut self.model.newly_revoked) {
            if self.model.is_grace() {
                self.count("delegation: revoked in grace");
            }
            if let Some(of) = self.delegations.remove(&(client, file)) {
                self.revoked.push((client, file, of.stateid));
            }
        }
        let mut lost = std::mem::take(&mut self.model.expired);
        lost.iter().for_each(|client| self.lost(*client));
        let mut forgotten: Vec<_> = std::mem::take(&mut self.forgotten)
            .into_iter()
            .map(|id| self.ids.iter().position(|other| *other == id).unwrap())
            .collect();
        lost.sort_unstable();
        forgotten.sort_unstable();
        // Told twice of one that was going when somebody wanted what it had.
        forgotten.dedup();
        assert_eq!(lost, forgotten, "clients expired on the spot");
        let granted = |list: &mut Vec<Had>| {
            let mut list = std::mem::take(list);
            list.sort_unstable_by_key(|(lock, last)| (lock.client, lock.file, lock.byte, *last, lock.kind));
            list
        };
        assert_eq!(granted(&mut self.granted), granted(&mut self.model.granted), "given to those who waited");
        // Of several clients that are lost together one may be told, for a moment, that it can have what another had.
        let waits: BTreeSet<_> = self.model.waits.iter().map(|w| (w.lock.party(), w.lock.file)).collect();
        let told = |list: &mut Vec<(Party, usize)>| {
            let mut list = std::mem::take(list);
            list.retain(|told| waits.contains(told));
            list.sort_unstable();
            list
        };
        assert_eq!(told(&mut self.told), told(&mut self.model.told), "told that they may have it");
        self.compare_lines();
    }

    /// Who waits for what, in which order.
    fn compare_lines(&self) {
        for file in 0..FILES {
            let all = self.world.engine.report_file(FileKey(file as u128));
            let line = all.into_iter().filter_map(|holding| match (holding.held, holding.holder) {
                (Held::Waiting(range, kind), HolderReport::Foreign(owner)) => {
                    Some((None, owner.id as usize, range, kind))
                }
                (Held::Waiting(range, kind), HolderReport::Nfs4 { client, owner, .. }) => {
                    let name = owner?;
                    let owner = OWNER_NAMES.iter().position(|of| of.as_bytes() == name.as_bytes())?;
                    Some((Some(client), owner, range, kind))
                }
                _ => None,
            });
            let waits = self.model.waits.iter().filter(|wait| wait.lock.file == file);
            let expected = waits.map(|Waiting { lock, last, .. }| {
                let range = bytes(lock.byte as u64, *last as u64);
                match lock.client.checked_sub(CLIENTS) {
                    Some(foreign) => (None, foreign, range, lock.kind),
                    None => (Some(self.ids[lock.client]), lock.owner, range, lock.kind),
                }
            });
            assert_eq!(line.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "the line of {file}");
        }
    }

    /// Does what the engine asks for.
    pub(crate) fn settle(&mut self) {
        for effect in self.world.engine.take_effects() {
            match effect {
                Effect::CloseFile(id) => assert!(self.descriptors.remove(&id), "{id:?} closed twice"),
                Effect::ReleaseLocks(token) => {
                    assert!(self.tokens.remove(&token), "{token:?} released twice");
                }
                Effect::DelegationEnded { token, .. } => {
                    assert!(self.delegation_tokens.remove(&token), "{token:?} ended twice");
                }
                Effect::ForeignGranted { owner, file, range, kind } => {
                    let (client, file) = (CLIENTS + owner.id as usize, file.0 as usize);
                    let lock = Lock { client, owner: 0, file, byte: range.first() as usize, kind };
                    self.granted.push((lock, range.last() as usize));
                }
                Effect::NotifyLock { client, file, owner } => {
                    let client = self.ids.iter().position(|id| *id == client).unwrap();
                    let owner =
                        OWNER_NAMES.iter().position(|name| name.as_bytes() == owner.as_bytes()).unwrap();
                    self.told.push(((client, owner), file.0 as usize));
                }
                Effect::ForgetClient(client) => {
                    self.records.forget(&[client]);
                    self.forgotten.push(client);
                }
                Effect::PersistClient(image) | Effect::ClientReturned(image) => self.records.persist(&image),
                Effect::ReclaimDone(client) => self.records.agree(client),
                Effect::RevocationsAcknowledged { client } => self.world.engine.record_losses(client),
                _ => {}
            }
        }
    }

    pub(crate) fn check(&self, when: &str) {
        if let Err(what) = invariant::check(&self.world.engine) {
            panic!("{when}: {what}");
        }
    }
}
