//! Steps of the random histories that concern restarts: the server dies, its clients come back, as they were or anew, and grace
//! comes to its end.

use std::sync::Arc;

use holdfast_base::SeededEntropy;
use holdfast_state::*;

use super::reference::grace::Asked;
use super::reference::promises::Callbacks;
use super::reference::{CLIENTS, FIRST_40, Open};
use super::world::*;
use super::{Run, SLOW};

impl Run {
    /// A new incarnation of a client.
    pub(crate) fn boot(&mut self, client: usize) {
        self.is_asked = true;
        self.incarnation = self.incarnation.wrapping_add(1);
        self.verifiers[client] = self.incarnation;
        let (name, verifier) = (format!("client {client}"), self.incarnation);
        self.ids[client] = if client < FIRST_40 {
            self.world.client(&name, verifier).0
        } else {
            self.world.client40(&name, verifier)
        };
        self.world.engine.callback_path(self.ids[client], true);
        self.model.seen[client] = self.world.now;
        self.is_back[client] = true;
        self.lost(client);
        self.model.begin_anew(client);
        self.settle();
        self.forgotten.clear();
    }

    /// Something that is likely to be granted.
    pub(crate) fn take_hold(&mut self, client: usize, owner: usize, file: usize) {
        match self.pick(4) {
            0 => {
                let share = share([R, RW, RW][self.pick(3)], NONE);
                let _ = self.ask_open(Open { client, owner, file, share }, Asked::Anew);
            }
            1 => self.delegate(client, file),
            _ => self.lock(client, owner, file),
        }
    }

    /// The server dies, and another takes its place that knows what is on record; of some, the sessions.
    pub(crate) fn crash(&mut self) {
        self.count(if self.model.is_grace() { "restarts in grace" } else { "restarts" });
        let (before, policy) = (self.world.engine.snapshot(), *self.world.engine.policy());
        let grace_ms = self.model.lease_ms * [1, 4][self.pick(2)];
        self.haste = [7, 6, SLOW, SLOW][self.pick(4)];
        (self.crashes, self.crashes_in) = (self.crashes + 1, None);
        let grace = Grace::Until(self.world.now.after_ms(grace_ms));
        let config = Config { lease_ms: self.model.lease_ms, ..config(1 + self.crashes, grace) };
        self.world.engine = Engine::new(config, Box::new(SeededEntropy(self.crashes)));
        self.world.engine.set_policy(policy);
        self.names_witness();
        self.opens.clear();
        self.locks.clear();
        self.delegations.clear();
        self.revoked.clear();
        self.descriptors.clear();
        self.tokens.clear();
        self.delegation_tokens.clear();
        self.is_back = [false; CLIENTS];
        self.records.crash();
        self.model.crash(grace_ms);
        for client in 0..CLIENTS {
            let is_on_record = self.records.knows(self.ids[client]);
            assert_eq!(is_on_record, self.model.recovery.is_on_record[client], "client {client} on record");
            self.recorded(client);
        }
        if self.pick(2) == 0 {
            self.take_in(before);
        }
        if self.pick(3) == 0 {
            // It hears of it late.
            self.asleep = Some(self.pick(CLIENTS));
        }
    }

    /// Sessions of those on record outlive the server.
    fn take_in(&mut self, mut before: Snapshot) {
        before.clients.retain(|client| self.records.knows(client.id));
        before.sessions.retain(|session| self.records.knows(session.client));
        assert_eq!(self.world.engine.restore(&before, self.world.now), 0);
        for image in before.clients {
            let client = self.ids.iter().position(|id| *id == image.id).unwrap();
            self.model.gone[client] = false;
            self.model.seen[client] = self.world.now;
        }
    }

    /// Whom the engine is to ask before anything changes hands.
    pub(crate) fn names_witness(&mut self) {
        self.world.engine.set_witness(Arc::new(self.records.clone()));
    }

    /// Whether a client may reclaim, by what the engine had put on record; and by the reference.
    pub(crate) fn recorded(&self, client: usize) -> Recorded {
        let recorded = self.records.recorded(self.ids[client]);
        let may_reclaim = self.model.recovery.may_reclaim[client];
        assert_eq!(recorded == Recorded::Yes, may_reclaim, "whether client {client} may reclaim");
        recorded
    }

    /// A client has been granted something.
    pub(crate) fn granted_to(&mut self, client: usize, asked: Asked) {
        self.records.will_hold(self.ids[client]);
        self.model.recovery.may_hold[client] = true;
        if asked == Asked::Anew && client >= FIRST_40 {
            // Nothing else shows that it has come to the end.
            self.records.agree(self.ids[client]);
            self.model.agree(client);
        }
    }

    /// A client hears of the restart: as a rule it is the same as before.
    pub(crate) fn come_back(&mut self, client: usize) {
        if self.pick(6) == 0 {
            return self.boot(client);
        }
        self.is_asked = true;
        self.is_back[client] = true;
        if self.model.gone[client] {
            self.make_known_again(client);
        } else {
            self.renew(client);
            let session = self.world.engine.snapshot().sessions;
            let session = session.into_iter().find(|session| session.client == self.ids[client]).unwrap().id;
            self.world.engine.sessions_mut().bind_connection(session, ConnId(1), Direction::Both).unwrap();
        }
        self.model.callbacks[client] = match self.pick(8) {
            0 => Callbacks::Fail,
            1 if client >= FIRST_40 => Callbacks::Untried,
            _ => Callbacks::Arrive,
        };
        if self.model.callbacks[client] != Callbacks::Untried {
            let is_up = self.model.callbacks[client] == Callbacks::Arrive;
            self.world.engine.callback_path(self.ids[client], is_up);
        }
        self.model.seen[client] = self.world.now;
        self.settle();
        self.forgotten.clear();
    }

    fn make_known_again(&mut self, client: usize) {
        let (name, verifier) = (format!("client {client}"), self.verifiers[client]);
        self.ids[client] = if client < FIRST_40 {
            let exchanged = self.world.exchange(&name, verifier).unwrap();
            self.world.create(exchanged.client, exchanged.next_seqid).unwrap();
            exchanged.client
        } else {
            self.world.client40(&name, verifier)
        };
        self.model.gone[client] = false;
        // With the sessions that outlived the restart it may have been on its way out.
        self.model.leaving.remove(&client);
        if !self.model.recovery.is_on_record[client] {
            self.model.put_on_record(client);
        }
    }

    /// What a second does to grace: it ends when nobody is waited for, or by an administrator's word, or is prolonged.
    pub(crate) fn tick_grace(&mut self) {
        let Some(until) = self.model.recovery.grace_until else { return };
        let is_everybody_done = self.model.is_everybody_done();
        if is_everybody_done || self.pick(40) == 0 {
            self.count(if is_everybody_done { "grace: all done" } else { "grace: ended early" });
            self.world.engine.set_grace(Grace::Over);
            self.end_grace();
        } else if self.pick(8) == 0 {
            let later = until.after_ms(5000);
            self.world.engine.set_grace(Grace::Until(later));
            self.model.recovery.grace_until = Some(later);
        }
    }

    /// Grace is over: who has not come to the end may not reclaim after the next crash either.
    pub(crate) fn end_grace(&mut self) {
        for client in FIRST_40..CLIENTS {
            if self.model.has_come_to_the_end(client) {
                self.records.finish(self.ids[client]);
            }
        }
        self.records.grace_ends();
        self.model.grace_ends();
    }

    pub(crate) fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }
}
