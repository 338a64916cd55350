//! The server has taken everything back: nobody can ask this mount any more for what it has changed.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

/// A mount that has its root to itself, and a new file in it that is open to be written.
fn mount() -> (World, Fh) {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    world.drain();
    (world, made.1.fh)
}

fn write(world: &mut World, fh: Fh, bytes: usize) {
    let data = Bytes::from(vec![7; bytes]);
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    assert!(machine.take_batch(now).is_none() && machine.take_write(now).is_none(), "it would wait");
}

#[test]
fn a_small_files_data_goes_out_at_once() {
    let (mut world, fh) = mount();
    write(&mut world, fh, 100);
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.caps_lost(now);
    assert!(machine.take_batch(now).is_some(), "others see nothing of it");
}

#[test]
fn so_does_a_large_ones() {
    let (mut world, fh) = mount();
    write(&mut world, fh, 100_000);
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.caps_lost(now);
    assert!(machine.take_write(now).is_some(), "others see nothing of it");
}

#[test]
fn so_does_a_name() {
    let (mut world, _) = mount();
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"x", 0o755, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    assert!(machine.take_batch(now).is_none(), "it would wait");
    machine.caps_lost(now);
    assert!(machine.take_batch(now).is_some(), "others see nothing of it");
}
