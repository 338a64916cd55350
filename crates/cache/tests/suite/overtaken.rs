//! Results of batches that come in another order than the batches were executed in.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

const BOTH: Access = Access { read: true, write: true };

/// Sends all that is queued, as one batch, and has it executed; its result is kept back.
fn execute(world: &mut World) -> (u64, Vec<MutationResult>) {
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    (batch.txn, results)
}

fn tell(world: &mut World, (txn, results): (u64, Vec<MutationResult>)) {
    let now = world.now();
    world.clients[0].machine.batch_done(txn, results, 0, now);
    world.check(0);
}

fn create(world: &mut World) -> (NodeId, Fh) {
    let flags = OpenFlags { access: BOTH, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    (made.0.node, made.1.fh)
}

fn write(world: &mut World, fh: Fh, offset: u64, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    world.run(0, |m, t, now| m.write(t, fh, offset, &data, now)).unwrap();
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
}

fn read(world: &mut World, fh: Fh) -> Vec<u8> {
    let read = world.run(0, |m, t, now| {
        let mut whole = Vec::new();
        while whole.len() < 8 {
            match m.read(t, fh, whole.len() as u64, 8, now) {
                Step::Done(part) if part.iter().all(Bytes::is_empty) => break,
                Step::Done(part) => whole.extend(part.concat()),
                Step::Failed(errno) => return Step::Failed(errno),
                Step::Ask(ask) => return Step::Ask(ask),
                Step::Wait(on) => return Step::Wait(on),
            }
        }
        Step::Done(whole)
    });
    read.unwrap()
}

/// A mount that has its root to itself.
pub(crate) fn mount() -> World {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    world
}

#[test]
fn what_was_written_behind_a_truncation_is_read_though_that_is_not_heard_of() {
    let mut world = mount();
    let (node, fh) = create(&mut world);
    write(&mut world, fh, 0, b"old data");
    world.drain();
    let size = Changes { size: Some(0), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &size, now)).unwrap();
    let first = execute(&mut world);
    write(&mut world, fh, 2, b"data");
    let second = execute(&mut world);
    tell(&mut world, second);
    assert_eq!(read(&mut world, fh), b"\0\0data");
    tell(&mut world, first);
    assert_eq!(read(&mut world, fh), b"\0\0data");
}

#[test]
fn what_was_written_to_a_file_is_read_though_its_making_is_not_heard_of() {
    let mut world = mount();
    let (_, fh) = create(&mut world);
    let first = execute(&mut world);
    write(&mut world, fh, 2, b"data");
    let second = execute(&mut world);
    tell(&mut world, second);
    // By what handle is not known yet: it waits.
    let now = world.now();
    let early = world.clients[0].machine.read(&mut Turn::new(Caller::new(7, 0)), fh, 0, 8, now);
    assert!(matches!(early, Step::Wait(_)), "{early:?}");
    tell(&mut world, first);
    assert_eq!(read(&mut world, fh), b"\0\0data");
}
