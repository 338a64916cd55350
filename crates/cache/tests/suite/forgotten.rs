//! A server that has forgotten what it executed, and has it or has lost it.

use crate::both_sides::knowing;
use crate::trouble::power_cut;
use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

const AB: Access = Access { read: true, write: true };

fn flags() -> OpenFlags {
    OpenFlags { access: AB, ..OpenFlags::default() }
}

/// A mount that knows all there is, of a server that is about to go: what it has on its disk is noted by the test.
fn leaving() -> World {
    let mut world = knowing(1);
    (world.alone, world.server.unwatched) = (true, true);
    world
}

fn create(world: &mut World, name: &[u8], data: &'static [u8]) -> (NodeId, Fh) {
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags(), now)).unwrap();
    write(world, made.1.fh, 0, data);
    (made.0.node, made.1.fh)
}

fn write(world: &mut World, fh: Fh, at: u64, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    world.ms += 7;
    world.run(0, |m, t, now| m.write(t, fh, at, &data, now)).unwrap();
}

fn close(world: &mut World, fh: Fh) {
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

fn chmod(world: &mut World, node: NodeId, mode: u32) {
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
}

/// Everything is sent; the last transaction of it. What is heard of it is on no disk.
fn send(world: &mut World, is_heard: bool) -> u64 {
    let now = world.now();
    let _ = world.clients[0].machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    let mut last = 0;
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        last = batch.txn;
        let results = world.server.batch(0, &batch);
        if is_heard {
            world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        }
        world.check(0);
    }
    last
}

/// What the server has now, with power or without, is what it goes on with; the mount goes on alone.
fn goes(world: &mut World, loses_power: bool) {
    if loses_power {
        power_cut(world);
    }
    world.disk = None;
    let machine = &mut world.clients[0].machine;
    machine.hold(true);
    machine.assume();
}

/// What is in the root there, by name, in this order.
fn names(world: &World) -> Vec<String> {
    let names = world.server.fs.inodes[&ROOT].entries.keys();
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

const BEFORE: [&str; 4] = ["f", "g", "s", "t"];

/// It is kept only as something is named by it, and need not be looked for.
#[test]
fn what_is_known_to_be_on_the_disk_and_was_removed_there_since_is_not_made_again() {
    for dies in [false, true] {
        let mut world = leaving();
        let (file, fh) = create(&mut world, b"n", b"ours");
        close(&mut world, fh);
        let first = send(&mut world, true);
        chmod(&mut world, file, 0o600);
        send(&mut world, true);
        let now = world.now();
        world.clients[0].machine.stable_done(first, &[], now);
        assert_eq!(world.clients[0].machine.done_through(), first - 1, "it is kept for its name");
        goes(&mut world, false);
        let ino = world.server.fs.remove(ROOT, b"n", false).unwrap();
        world.server.fs.inodes.remove(&ino);
        world.come_back(dies, true);
        assert_eq!(names(&world), BEFORE, "dies: {dies}");
    }
}
