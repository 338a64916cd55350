//! What the server asks for and tells by itself, handed to the machine.

use holdfast_cache::{Batch, CapSet, Handle, Reclaim, Reclaimed, Release};

use crate::caps::Promises;
use crate::volume::Shared;

impl Promises for Shared {
    fn recalled(&self, object: &Handle, keep: CapSet, seq: u64) {
        let mut machine = self.machine.lock();
        machine.recalled(object, keep, seq, self.now());
        self.look_for_work(machine);
    }

    fn stable(&self, through: u64) {
        let mut machine = self.machine.lock();
        machine.stable_done(through, &[], self.now());
        self.look_for_work(machine);
    }

    fn crossed(&self, object: &Handle) {
        let mut machine = self.machine.lock();
        machine.release_crossed(object);
        self.look_for_work(machine);
    }

    fn to_reclaim(&self) -> Vec<Reclaim> {
        let machine = self.machine.lock();
        if self.offline.is_some() { machine.claims() } else { machine.reclaim_list() }
    }

    fn in_question(&self) -> Vec<Reclaim> {
        // Who works without the server compares when the greeting is over.
        if self.offline.is_some() { Vec::new() } else { self.machine.lock().in_question() }
    }

    fn renewed(&self, reclaimed: Vec<Reclaimed>) {
        if self.offline.is_some() {
            return self.promises_renewed(reclaimed);
        }
        let mut machine = self.machine.lock();
        machine.reclaimed(reclaimed, self.now());
        self.look_for_work(machine);
    }

    fn given_up(&self) {
        if self.offline.is_some() {
            // Nobody may come to ask: whoever looks whether it is back greets it.
            return self.went_away();
        }
        self.renewed(Vec::new());
    }

    fn lapsed(&self) {
        // Who works without the server relies on what it last knew, and compares when it is back.
        if self.offline.is_some() {
            return;
        }
        let mut machine = self.machine.lock();
        machine.lapsed(self.now());
        self.look_for_work(machine);
    }

    fn regained(&self) {
        let mut machine = self.machine.lock();
        machine.regained();
        self.look_for_work(machine);
    }

    fn done_through(&self) -> u64 {
        self.done_with()
    }

    fn awaits(&self, batch: &Batch) -> bool {
        let machine = self.machine.lock();
        machine.awaits(batch) && !machine.is_superseded(batch)
    }

    fn is_due(&self, release: &Release) -> bool {
        self.machine.lock().is_of_this_life(release)
    }

    fn must_renew(&self) -> bool {
        self.offline.as_ref().is_some_and(|offline| offline.must_merge())
    }

    fn can_force(&self, can: bool) {
        self.machine.lock().settings_mut().forces = can;
    }

    fn resume(&self, executed_through: Option<u64>, stable_through: u64, is_known: bool) {
        let mut machine = self.machine.lock();
        machine.greeted();
        match &self.offline {
            Some(offline) if (!is_known || offline.must_sift()) && machine.has_sent() => {
                offline.forgotten();
                machine.hold(true);
                // What is on its way is looked for with the rest: sent to this server as well, it would be done beside that. What
                // was executed before stays so, as far as it is found.
                machine.resume(None, 0, self.now());
            }
            _ => {
                if !is_known {
                    machine.forgotten();
                }
                machine.resume(executed_through, stable_through, self.now());
            }
        }
        self.was_greeted(&machine);
        self.look_for_work(machine);
        self.came_back();
    }
}
