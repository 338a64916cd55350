//! A planned restart: another process goes on.

use holdfast_nlm::handover::Image;
use holdfast_vfs::handover::Incoming;
use holdfast_wire::nlm4::NlmStat4;

use crate::world::{Process, World};

const P: Process = Process(7);
const ALL: (u64, u64, bool) = (0, 0, true);

/// The world after a handover, by way of the image's own form. The backend's locks need no descriptors here: nobody
/// local looks at the export.
fn handed_over(world: World) -> World {
    world.lockd.hold();
    let image = world.lockd.freeze(&mut holdfast_vfs::handover::Outgoing::default()).unwrap();
    let bytes = serde_json::to_vec(&image).unwrap();
    let engine = serde_json::to_vec(&world.manager.look(holdfast_state::Engine::freeze)).unwrap();
    let world = world.hand_over(&engine);
    let image: Image = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(world.lockd.thaw(image, &Incoming::default()), 0);
    world
}

#[test]
fn locks_and_those_who_wait_are_the_same_in_the_next_process() {
    let world = World::without_outsiders();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, ALL), NlmStat4::Blocked);
    drop((a, b));
    let world = handed_over(world);
    assert_eq!(world.lockd.untold(), 0, "nobody is told of a restart");
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(c.test(&fh, P, ALL), Err((7, 0, 0, true)));
    assert_eq!(a.unlock(&fh, P, ALL), NlmStat4::Granted);
    let told = world.next_granted().expect("B");
    assert_eq!(told.call.peer, b.ip);
    told.answer(NlmStat4::Granted);
    world.work();
    assert_eq!(c.lock(&fh, Process(8), ALL), NlmStat4::Denied);
    b.notify(b"client2", 9);
    assert_eq!((c.test(&fh, P, ALL), world.lockd.counts()), (Ok(()), (0, 0)));
}

#[test]
fn a_client_that_was_being_told_is_told_again() {
    let world = World::without_outsiders();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    drop(world.next_granted().expect("B"));
    drop((a, b));
    let world = handed_over(world);
    let told = world.next_granted().expect("B again");
    told.answer(NlmStat4::Granted);
    world.work();
    assert_eq!(world.lockd.counts(), (1, 0));
}
