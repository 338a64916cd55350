//! Steps of the random histories that concern opens, and I/O by them.

use holdfast_base::{FileKey, Seqid};
use holdfast_state::*;

use super::reference::grace::Asked;
use super::reference::{FIRST_40, Open};
use super::world::*;
use super::{OWNER_NAMES, Run};

impl Run {
    pub(crate) fn open(&mut self, client: usize, owner: usize, file: usize) {
        // Mostly friendly, or nothing would ever be granted.
        let deny = if self.pick(6) == 0 { self.access(true) } else { NONE };
        let new = Open { client, owner, file, share: share(self.access(false), deny) };
        let is_holder = self.delegations.contains_key(&(client, file));
        let asked = if is_holder && self.pick(4) == 0 { Asked::Delegated } else { Asked::Anew };
        let _ = self.ask_open(new, asked);
    }

    /// Whether it is granted, and the backend has it; or why not.
    pub(crate) fn ask_open(&mut self, new: Open, asked: Asked) -> Result<bool, StateError> {
        let Open { client, owner, file, .. } = new;
        self.renew(client);
        let claim = match asked {
            Asked::Anew => Claim::New,
            Asked::Again => Claim::Reclaim(self.recorded(client)),
            Asked::Delegated => Claim::Delegated(self.delegations[&(client, file)].stateid),
        };
        let request = OpenRequest {
            client: self.ids[client],
            owner: OWNER_NAMES[owner].as_bytes(),
            file: FileKey(file as u128),
            share: new.share,
            claim,
        };
        let result = self.world.engine.open(&request, self.world.now);
        let expected = self.model.judge_open(new, asked);
        assert_eq!(result.as_ref().err().copied(), expected.err(), "{new:?} {asked:?}");
        if expected == Err(StateError::Grace) {
            self.count("new open: Grace");
        }
        let opened = result?;
        if let Backing::Needed(access) = opened.backing {
            let id = OpenId(self.next_open);
            self.next_open += 1;
            self.world.engine.attach(&opened.ticket, id, access).unwrap();
            self.descriptors.insert(id);
        }
        if self.pick(8) == 0 {
            // The backend refuses: nothing has happened.
            self.world.engine.open_undo(opened.ticket, self.world.now);
            return Ok(false);
        }
        let mut stateid = self.world.engine.open_commit(opened.ticket).unwrap();
        if let Some(before) = self.opens.get(&(client, owner, file)) {
            // What has been reclaimed already changes nothing, where it can be told from a new request.
            let is_there = client < FIRST_40 && asked == Asked::Again && self.model.opens.contains(&new);
            let seqid = if is_there { before.seqid } else { Seqid(before.seqid.0 + 1) };
            assert_eq!(stateid, StateId { seqid, ..*before }, "{new:?} {asked:?}");
        }
        if opened.is_confirm_needed {
            assert_eq!(asked, Asked::Anew, "who reclaims is known");
            stateid = self.world.engine.open_confirm(stateid, request.file, self.world.now).unwrap();
        }
        self.model.opens.push(new);
        self.opens.insert((client, owner, file), stateid);
        self.granted_to(client, asked);
        Ok(true)
    }

    pub(crate) fn downgrade(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.opens.get(&(client, owner, file)).copied() else { return };
        self.renew(client);
        let target = share(self.access(false), if self.pick(3) == 0 { self.access(true) } else { NONE });
        let (caller, key) = (self.caller(client), FileKey(file as u128));
        let result = self.world.engine.open_downgrade(caller, stateid, key, target, self.world.now);
        assert_eq!(
            result.is_ok(),
            self.model.downgrade(client, owner, file, target),
            "{target:?}: {result:?}"
        );
        if let Ok(stateid) = result {
            self.model.apply_downgrade(client, owner, file, target);
            self.opens.insert((client, owner, file), stateid);
        }
    }

    pub(crate) fn close(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.opens.remove(&(client, owner, file)) else { return };
        self.renew(client);
        let caller = self.caller(client);
        self.world.engine.close(caller, stateid, FileKey(file as u128), self.world.now).unwrap();
        self.model.close(client, owner, file);
        let left = &self.model.lock_states;
        self.locks.retain(|key, _| left.iter().any(|s| (s.client, s.owner, s.file) == *key));
    }

    pub(crate) fn io(&mut self, client: usize, owner: usize, file: usize) {
        let Some(stateid) = self.opens.get(&(client, owner, file)).copied() else { return };
        self.renew(client);
        let access = if self.pick(2) == 0 { R } else { W };
        let own = self.model.share(client, owner, file).unwrap();
        let expected = if (access, own.access) == (Access::READ, Access::WRITE) {
            self.model.judge_read_for_write((client, owner), file)
        } else {
            own.access.contains(access).then_some(()).ok_or(StateError::OpenMode)
        };
        let caller = self.caller(client);
        let result = self.world.io(caller, stateid, file as u128, access);
        assert_eq!(result.err(), expected.err(), "{access:?} of {own:?}");
        if let Ok(IoGrant::Open(id)) = result {
            assert!(self.descriptors.contains(&id));
        }
        let old = StateId { seqid: Seqid(stateid.seqid.0.wrapping_sub(1)), ..stateid };
        if old.seqid != Seqid(0) {
            assert_eq!(self.world.io(caller, old, file as u128, access), Err(StateError::OldStateid));
        }
    }

    pub(crate) fn anonymous_io(&mut self, file: usize) {
        self.is_asked = true;
        let access = self.access(false);
        let result =
            self.world.engine.check_io(FileKey(file as u128), access, IoBy::Anonymous, self.world.now);
        assert_eq!(result.err(), self.model.judge_io(file, access).err());
    }
}
