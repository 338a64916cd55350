//! Overlapping requests of one process, whose threads may wait for one lock while they ask for others: whatever the
//! process may believe to have, nobody else gets.

use holdfast_wire::nlm4::NlmStat4;

use crate::world::{Client, Process, Told, World};

const P: Process = Process(7);
const ALL: (u64, u64, bool) = (0, 0, true);

/// A has all of a file, and B waits for a part; A lets go.
struct Scene {
    world: World,
    fh: Vec<u8>,
    a: Client,
    b: Client,
    c: Client,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let fh = world.fh(&world.file("f"));
        let (mut a, b, c) = (world.client(1), world.client(2), world.client(3));
        assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
        Self { world, fh, a, b, c }
    }

    fn b_waits(&mut self, wanted: (u64, u64, bool)) {
        assert_eq!(self.b.wait(&self.fh, P, wanted), NlmStat4::Blocked);
    }

    fn a_unlocks(&mut self) {
        assert_eq!(self.a.unlock(&self.fh, P, ALL), NlmStat4::Granted);
    }

    fn told(&self) -> Told {
        let told = self.world.next_granted().expect("B is told");
        assert_eq!(told.call.peer, self.b.ip);
        told
    }

    /// C asks for a byte; it lets go of it at once.
    fn is_free(&mut self, byte: u64, exclusive: bool) -> bool {
        let wanted = (byte, 1, exclusive);
        let is_free = self.c.lock(&self.fh, P, wanted) == NlmStat4::Granted;
        assert_eq!(self.c.unlock(&self.fh, P, wanted), NlmStat4::Granted);
        is_free
    }
}

#[test]
fn a_shared_grant_weakens_no_exclusive_one_of_its_owner() {
    for shared_first in [false, true] {
        let mut scene = Scene::new();
        let (first, second) = ((0, 4, !shared_first), (2, 4, shared_first));
        scene.b_waits(first);
        scene.b_waits(second);
        scene.a_unlocks();
        let mut heard = Vec::new();
        while let Some(told) = scene.world.next_granted() {
            heard.push((told.args().lock.offset.0, told.args().exclusive));
            assert!(!scene.is_free(2, false) || heard.iter().all(|(_, exclusive)| !exclusive), "{heard:?}");
            told.answer(NlmStat4::Granted);
        }
        heard.sort_unstable();
        assert_eq!(heard, [(0, !shared_first), (2, shared_first)]);
    }
}

#[test]
fn what_was_asked_for_shared_before_a_grant_is_heard_of_is_exclusive_when_it_is() {
    let mut scene = Scene::new();
    scene.b_waits((0, 10, true));
    scene.a_unlocks();
    scene.told().lose();
    scene.world.work();
    assert_eq!(scene.b.lock(&scene.fh, P, (3, 2, false)), NlmStat4::Granted);
    assert!(!scene.is_free(3, false), "B may hear of the grant at any moment");
    scene.world.wait_ms(2000);
    scene.told().answer(NlmStat4::Granted);
    scene.world.work();
    assert!(!scene.is_free(3, false), "B has it");
}

#[test]
fn a_grant_that_may_be_known_and_was_made_shared_in_part_since_is_not_told_as_it_was() {
    let mut scene = Scene::new();
    scene.b_waits((1, 2, true));
    scene.a_unlocks();
    scene.told().lose_answer();
    scene.world.work();
    assert_eq!(scene.b.lock(&scene.fh, P, (1, 1, false)), NlmStat4::Granted);
    assert_eq!(scene.c.lock(&scene.fh, P, (1, 1, false)), NlmStat4::Granted);
    for _ in 0..100 {
        scene.world.wait_ms(1000);
        assert!(scene.world.next_granted().is_none(), "C shares the first byte");
    }
    // It never heard, and asks again.
    scene.b_waits((1, 2, true));
    assert_eq!(scene.c.unlock(&scene.fh, P, (1, 1, false)), NlmStat4::Granted);
    scene.told().answer(NlmStat4::Granted);
    scene.world.work();
    assert!(!scene.is_free(1, false) && !scene.is_free(2, false));
}

#[test]
fn an_owner_that_downgrades_what_it_was_just_granted_has_it_shared() {
    let mut scene = Scene::new();
    scene.b_waits((0, 10, true));
    scene.a_unlocks();
    let told = scene.told();
    // It heard, and its answer is slow.
    assert_eq!(scene.b.lock(&scene.fh, P, (0, 10, false)), NlmStat4::Granted);
    told.answer(NlmStat4::Granted);
    scene.world.work();
    assert!(scene.is_free(3, false) && !scene.is_free(3, true));
}

#[test]
fn who_waits_for_a_shared_lock_keeps_what_it_has_exclusively_until_it_hears() {
    let mut scene = Scene::new();
    scene.a_unlocks();
    assert_eq!(scene.b.lock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
    assert_eq!(scene.a.lock(&scene.fh, P, (5, 5, true)), NlmStat4::Granted);
    scene.b_waits((0, 10, false));
    scene.a_unlocks();
    let told = scene.told();
    assert!(!scene.is_free(0, false) && scene.is_free(7, false) && !scene.is_free(7, true));
    told.answer(NlmStat4::Granted);
    scene.world.work();
    assert!(scene.is_free(0, false) && !scene.is_free(0, true));
}

#[test]
fn who_cancels_a_shared_lock_has_exclusively_what_it_had() {
    let mut scene = Scene::new();
    scene.a_unlocks();
    assert_eq!(scene.b.lock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
    assert_eq!(scene.a.lock(&scene.fh, P, (5, 5, true)), NlmStat4::Granted);
    scene.b_waits((0, 10, false));
    scene.a_unlocks();
    scene.told().answer(NlmStat4::Denied);
    assert_eq!(scene.b.cancel(&scene.fh, P, (0, 10, false)), NlmStat4::Granted);
    scene.world.work();
    assert!(!scene.is_free(0, false) && scene.is_free(7, true));
}

#[test]
fn a_shared_lock_that_was_in_line_gives_way_to_an_exclusive_one_of_its_owner() {
    let mut scene = Scene::new();
    scene.a_unlocks();
    assert_eq!(scene.a.lock(&scene.fh, P, (5, 5, true)), NlmStat4::Granted);
    scene.b_waits((0, 10, false));
    assert_eq!(scene.b.lock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
    scene.a_unlocks();
    let told = scene.told();
    assert!(!scene.is_free(0, false), "B has it exclusively until it hears");
    told.answer(NlmStat4::Granted);
    scene.world.work();
    assert!(scene.is_free(0, false));
}

#[test]
fn of_a_grant_let_go_of_in_part_the_rest_is_free_when_its_client_refuses() {
    let mut scene = Scene::new();
    scene.b_waits((0, 10, true));
    scene.a_unlocks();
    let told = scene.told();
    assert_eq!(scene.b.unlock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
    assert!(scene.is_free(2, true) && !scene.is_free(7, true), "it may have heard");
    told.answer(NlmStat4::Denied);
    scene.world.work();
    assert!(scene.is_free(7, true), "it had not");
}

#[test]
fn of_a_grant_let_go_of_in_part_the_rest_is_its_client_s_when_it_had_heard() {
    for is_lost in [false, true] {
        let mut scene = Scene::new();
        scene.b_waits((0, 10, true));
        scene.a_unlocks();
        let told = scene.told();
        assert_eq!(scene.b.unlock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
        if is_lost {
            told.lose_answer();
        } else {
            told.answer(NlmStat4::Granted);
        }
        scene.world.wait_ms(1000);
        scene.world.wait_ms(60_000);
        assert!(scene.world.next_granted().is_none(), "it is not told of what it let go");
        assert!(scene.is_free(2, true) && !scene.is_free(7, true));
        assert_eq!(scene.world.lockd.counts(), (1, 0));
        assert_eq!(scene.b.unlock(&scene.fh, P, ALL), NlmStat4::Granted);
        assert!(scene.is_free(7, true));
    }
}

#[test]
fn who_cannot_have_heard_of_a_grant_it_let_go_of_in_part_gets_all_of_it_again() {
    let mut scene = Scene::new();
    scene.b_waits((0, 10, true));
    scene.a_unlocks();
    let told = scene.told();
    assert_eq!(scene.b.unlock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
    assert_eq!(scene.c.lock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
    told.lose();
    assert!(scene.world.next_granted().is_none(), "C has a part");
    assert_eq!(scene.c.unlock(&scene.fh, P, (0, 5, true)), NlmStat4::Granted);
    let told = scene.told();
    assert_eq!((told.args().lock.offset.0, told.args().lock.length.0), (0, 10));
    assert!(!scene.is_free(2, false));
}

#[test]
fn a_cancelled_grant_on_its_way_is_kept_until_it_has_arrived_or_is_lost() {
    for answer in [Some(NlmStat4::Denied), Some(NlmStat4::Granted), None] {
        let mut scene = Scene::new();
        scene.b_waits((0, 10, true));
        scene.a_unlocks();
        let told = scene.told();
        assert_eq!(scene.b.cancel(&scene.fh, P, (0, 10, true)), NlmStat4::Granted);
        assert!(!scene.is_free(3, true), "whoever asks for the same again may take the call for its own");
        match answer {
            Some(stat) => told.answer(stat),
            None => drop(told),
        }
        scene.world.work();
        scene.world.wait_ms(13_000);
        assert!(scene.world.next_granted().is_none());
        assert_eq!(scene.is_free(3, true), answer != Some(NlmStat4::Granted), "{answer:?}");
        // Linux before 6.4 answers so until it hears that its CANCEL arrived, and believes that it has nothing.
        scene.world.wait_ms(18_000);
        assert!(scene.is_free(3, true), "{answer:?}");
    }
}

#[test]
fn a_cancelled_grant_that_was_taken_for_the_next_wait_is_that_ones() {
    let mut scene = Scene::new();
    scene.b_waits((0, 10, true));
    scene.a_unlocks();
    let told = scene.told();
    assert_eq!(scene.b.cancel(&scene.fh, P, (0, 10, true)), NlmStat4::Granted);
    told.answer(NlmStat4::Granted);
    scene.world.work();
    assert_eq!(scene.b.wait(&scene.fh, P, (0, 10, true)), NlmStat4::Granted);
    scene.world.wait_ms(31_000);
    assert!(!scene.is_free(3, true));
}

#[test]
fn who_asks_again_for_what_it_cancelled_has_it_while_the_grant_is_on_its_way() {
    let mut scene = Scene::new();
    scene.b_waits((0, 10, true));
    scene.a_unlocks();
    let told = scene.told();
    assert_eq!(scene.b.cancel(&scene.fh, P, (0, 10, true)), NlmStat4::Granted);
    assert_eq!(scene.b.wait(&scene.fh, P, (0, 10, true)), NlmStat4::Granted);
    told.answer(NlmStat4::Denied);
    scene.world.work();
    assert!(!scene.is_free(3, true));
    assert_eq!(scene.world.lockd.counts(), (1, 0));
}

/// Linux compares no more than the range when it looks for who waits.
#[test]
fn nobody_hears_of_a_shared_lock_while_it_wants_the_same_range_exclusively() {
    let mut scene = Scene::new();
    scene.a_unlocks();
    assert_eq!(scene.a.lock(&scene.fh, P, (0, 10, true)), NlmStat4::Granted);
    assert_eq!(scene.c.lock(&scene.fh, P, (20, 1, true)), NlmStat4::Granted);
    scene.b_waits((0, 10, false));
    scene.b_waits((0, 10, true));
    assert_eq!(scene.a.lock(&scene.fh, P, (0, 10, false)), NlmStat4::Granted);
    scene.world.wait_ms(5000);
    assert!(scene.world.next_granted().is_none(), "shared, it could be had");
    assert_eq!(scene.b.wait(&scene.fh, P, (0, 10, false)), NlmStat4::Granted, "by asking");
    scene.a_unlocks();
    assert!(scene.told().args().exclusive);
}
