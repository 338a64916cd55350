//! Removals go before anybody waits for them, and nothing else does.

use crate::world::World;
use holdfast_cache::*;

/// The first mount with this many files in a directory of its own, all of it on the server's disk; a batch of it is full with 32.
fn with_files(count: usize) -> (World, NodeId) {
    let mut world = World::new(1, true, 1);
    world.clients[0].machine.settings_mut().batch_ops_max = 32;
    world.have_root_alone();
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    for i in 0..count {
        made(&mut world, dir, &format!("f{i}"));
    }
    world.drain();
    (world, dir)
}

fn made(world: &mut World, dir: NodeId, name: &str) {
    let flags = OpenFlags { access: Access { read: false, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, name.as_bytes(), 0o644, flags, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(made.1.fh, now);
}

/// Removes one without any of the mount's threads at work. It waits for nothing.
fn remove(world: &mut World, dir: NodeId, i: usize) {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let step = machine.unlink(&mut Turn::new(Caller::new(7, 0)), dir, format!("f{i}").as_bytes(), now);
    assert!(matches!(step, Step::Done(())), "{step:?}");
}

fn take(world: &mut World) -> Option<Batch> {
    let now = world.now();
    world.clients[0].machine.take_batch(now)
}

fn executed(world: &mut World, batch: &Batch) {
    let (results, now) = (world.server.batch(0, batch), world.now());
    world.clients[0].machine.batch_done(batch.txn, results, 0, now);
    world.check(0);
}

#[test]
fn a_row_of_removals_goes_while_more_are_made_in_ever_longer_batches() {
    let (mut world, dir) = with_files(120);
    let mut lengths = Vec::new();
    let mut under_way: Option<Batch> = None;
    for i in 0..120 {
        remove(&mut world, dir, i);
        // The server takes as long as ten removals do here.
        if i % 10 == 9
            && let Some(batch) = under_way.take()
        {
            executed(&mut world, &batch);
        }
        if let Some(batch) = take(&mut world) {
            assert!(under_way.is_none() || batch.ops.len() == 32, "beside another only what is full");
            lengths.push(batch.ops.len());
            under_way = Some(batch);
        }
    }
    assert_eq!(lengths, [8, 16, 32, 32, 32]);
    executed(&mut world, &under_way.unwrap());
    world.drain();
    assert_eq!(world.clients[0].machine.take_reports(), []);
}

#[test]
fn what_stands_behind_removals_does_not_go_with_them() {
    let (mut world, dir) = with_files(8);
    (0..7).for_each(|i| remove(&mut world, dir, i));
    assert!(take(&mut world).is_none(), "too few");
    made(&mut world, dir, "young");
    remove(&mut world, dir, 7);
    assert!(take(&mut world).is_none(), "seven stand in front");
    world.drain();

    let (mut world, dir) = with_files(8);
    (0..8).for_each(|i| remove(&mut world, dir, i));
    made(&mut world, dir, "young");
    let batch = take(&mut world).expect("a batch");
    assert_eq!(batch.ops.len(), 8, "of the removals");
    executed(&mut world, &batch);
    assert!(take(&mut world).is_none(), "what was made may be removed again yet");
    world.drain();
}
