//! Batches that are being executed while their client is asked to give back: it loses nothing before they end, so that what they do
//! comes before whatever the next holder does; and keeps nothing by sending more of them.

use std::collections::BTreeMap;

use holdfast_base::{Entropy, SeededEntropy};

use super::*;

impl World {
    fn begin_batch(&mut self, client: ClientId) -> Result<(), StateError> {
        let epoch = self.engine.caps_epoch(client).unwrap_or_default();
        self.engine.caps_executes(client, epoch, self.now)
    }

    fn end_batch(&mut self, client: ClientId, bytes: u64) {
        self.engine.caps_executed(client, bytes, self.now);
    }

    fn tick(&mut self) {
        self.engine.tick(self.now);
    }
}

#[test]
fn nobody_loses_anything_by_lease_or_recall_while_a_batch_of_his_is_being_executed() {
    let (mut world, a, b) = world_of_two();
    let epoch = world.engine.caps_epoch(a);
    world.acquire(a, FILE, CapSet::FILE_X);
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    world.begin_batch(a).unwrap();
    // A disk that hangs.
    world.pass(10 * LEASE_MS);
    world.tick();
    assert!(!world.is_clear(FILE, Deed::ReadData, Some(b)), "it comes behind what is being done");
    let now = world.now;
    assert_ne!(world.engine.caps_contend(FILE, CapSet::FILE_S, b, now), Contention::Clear);
    assert_eq!(world.engine.caps_epoch(a), epoch, "neither by its lease nor by the recall");
    assert!(world.engine.are_caps_in_doubt(a, now), "nor does it rely on it any more");
    assert_eq!(world.begin_batch(a), Err(StateError::Delay), "no other joins it");
    world.end_batch(a, 0);
    assert!(world.is_clear(FILE, Deed::ReadData, Some(b)), "at once");
    assert_eq!(world.engine.caps_epoch(a), epoch.map(|epoch| epoch + 1));
    world.begin_batch(a).unwrap();
    world.end_batch(a, 0);
}

#[test]
fn who_has_lost_what_it_held_is_to_hear_of_that_before_a_batch_of_its_is_begun() {
    let (mut world, a, b) = world_of_short_recalls();
    let epoch = world.engine.caps_epoch(a).unwrap();
    world.acquire(a, FILE, CapSet::FILE_X);
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    world.pass(RECALL_MS + 1);
    assert_eq!(world.engine.caps_executes(a, epoch, world.now), Err(StateError::Delay));
    world.tick();
    let begun = world.engine.caps_executes(a, epoch, world.now);
    assert_eq!(begun, Err(StateError::StaleClientid), "it was sent, or put off, before the loss");
    world.engine.caps_hello(a).unwrap();
    world.begin_batch(a).unwrap();
    world.end_batch(a, 0);
}

#[test]
fn a_batch_that_a_disk_keeps_waiting_is_a_flush_when_it_is_done() {
    let (mut world, a, b) = world_of_short_recalls();
    let epoch = world.engine.caps_epoch(a);
    world.acquire(a, FILE, CapSet::FILE_X);
    let [(_, keep, seq)] = world.recalled_by(FILE, Deed::ReadData, Some(b))[..] else { panic!() };
    world.begin_batch(a).unwrap();
    world.pass(RECALL_MS + 1);
    world.tick();
    assert_eq!(world.begin_batch(a), Err(StateError::Delay));
    world.end_batch(a, 0);
    world.tick();
    assert_eq!(world.engine.caps_epoch(a), epoch, "it has got on");
    world.begin_batch(a).unwrap();
    world.end_batch(a, 0);
    world.release(a, FILE, keep, seq);
    assert!(world.is_clear(FILE, Deed::ReadData, Some(b)));
    assert_eq!(world.engine.caps_epoch(a), epoch);
}

#[test]
fn what_could_not_be_asked_back_is_asked_again_while_a_batch_hangs() {
    let (mut world, a, b) = world_of_short_recalls();
    world.acquire(a, FILE, CapSet::FILE_X);
    let [(_, _, seq)] = world.recalled_by(FILE, Deed::ReadData, Some(b))[..] else { panic!() };
    world.begin_batch(a).unwrap();
    world.pass(RECALL_MS + 1);
    world.engine.caps_recall_answered(a, (FILE, seq), RecallAnswer::Unreachable, world.now);
    world.pass(RECALL_RETRY_MS);
    world.tick();
    let is_asked = |effect: &Effect| matches!(effect, Effect::CapRecall { client, .. } if *client == a);
    assert!(world.settle().iter().any(is_asked));
}

/// One is always being executed, as of who has two incarnations.
#[test]
fn who_sends_batches_without_end_keeps_nothing_for_ever() {
    let (mut world, a, b) = world_of_short_recalls();
    let epoch = world.engine.caps_epoch(a);
    world.acquire(a, FILE, CapSet::FILE_X);
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    let since = world.now;
    world.begin_batch(a).unwrap();
    let mut running = 1;
    while world.engine.caps_epoch(a) == epoch {
        assert!(world.now.ms_since(since) <= RECALL_MS * (RECALL_STRETCH_MAX + 1));
        world.pass(RECALL_MS / 2);
        running += u32::from(world.begin_batch(a).is_ok());
        world.end_batch(a, 0);
        running -= 1;
        world.tick();
    }
    assert_eq!(running, 0);
    assert!(world.is_clear(FILE, Deed::ReadData, Some(b)));
}

/// What a random history has to show.
struct History {
    world: World,
    dice: SeededEntropy,
    a: ClientId,
    b: ClientId,
    running: u32,
    /// What is being asked back, and since when.
    since: BTreeMap<FileKey, Instant>,
    taken: u32,
    put_off: u32,
}

impl History {
    fn new(seed: u64) -> Self {
        let (world, a, b) = world_of_short_recalls();
        let dice = SeededEntropy(seed);
        Self { world, dice, a, b, running: 0, since: BTreeMap::new(), taken: 0, put_off: 0 }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.dice.u64() % sides
    }

    /// How long a recall may go on of who sends no byte that counts.
    fn is_over(&self) -> bool {
        let is_over = |since: &Instant| self.world.now.ms_since(*since) >= RECALL_MS * RECALL_STRETCH_MAX;
        self.since.values().any(is_over)
    }

    fn step(&mut self) {
        let (a, b, file) = (self.a, self.b, FileKey(u128::from(self.roll(3))));
        let epoch = self.world.engine.caps_epoch(a);
        let was_asked = self.world.engine.is_asked_back(a);
        match self.roll(8) {
            0 | 1 => drop(self.world.acquire(a, file, CapSet::FILE_X)),
            2 => {
                if self.world.is_clear(file, Deed::ReadData, Some(b)) {
                    self.since.remove(&file);
                } else {
                    self.since.entry(file).or_insert(self.world.now);
                }
            }
            3 if self.running < 3 => match self.world.begin_batch(a) {
                Ok(()) => {
                    assert!(!self.is_over(), "one is begun behind the end of a recall");
                    self.running += 1;
                }
                Err(why) => {
                    assert_eq!(why, StateError::Delay);
                    assert!(was_asked);
                    self.put_off += 1;
                }
            },
            4 | 5 if self.running > 0 => {
                self.world.end_batch(a, 0);
                self.running -= 1;
            }
            6 => {
                let grant = self.world.engine.caps_of(a, file);
                self.world.release(a, file, grant.held, grant.seq);
                self.since.remove(&file);
            }
            _ => {
                let ms = self.roll(RECALL_MS);
                self.world.pass(ms);
                self.world.engine.caps_alive(a, self.world.now);
                self.world.engine.caps_alive(b, self.world.now);
                self.world.tick();
                assert!(self.running > 0 || !self.is_over() || !self.world.engine.is_asked_back(a));
            }
        }
        self.world.settle();
        if self.world.engine.caps_epoch(a) != epoch {
            assert_eq!(self.running, 0, "what was being done would come behind the next holder's doing");
            self.taken += 1;
            self.world.engine.caps_hello(a).unwrap();
        }
        if !self.world.engine.is_asked_back(a) {
            self.since.clear();
        }
    }
}

#[test]
fn whatever_happens_nothing_is_taken_in_the_middle_of_a_batch_nor_a_batch_begun_behind_the_end() {
    let (mut taken, mut put_off) = (0, 0);
    for seed in 0..200 {
        let mut history = History::new(seed);
        (0..600).for_each(|_| history.step());
        (taken, put_off) = (taken + history.taken, put_off + history.put_off);
    }
    assert!(taken > 1000 && put_off > 100, "{taken} {put_off}");
}
