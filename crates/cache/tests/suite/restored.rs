//! A client that dies and begins anew with what it kept on its disk.

use std::collections::BTreeMap;

use crate::world::choice::{config, op};
use crate::world::fs::ROOT;
use crate::world::{Model, Op, Out, World};
use holdfast_cache::*;
use proptest::prelude::*;

fn keeping(seed: u64) -> World {
    let mut world = World::new(1, true, seed);
    world.kept = Some(BTreeMap::new());
    world.clients[0].machine.follow();
    world.keep(0);
    world
}

/// The mount's daemon is killed, and started again with what it kept; the server takes it for somebody else, who knows
/// the incarnation's secret, and gives it back as much as it likes of what it held.
fn dies(world: &mut World, gives_back: u64) {
    let kept = world.kept.clone().unwrap();
    let now = world.now();
    let client = &mut world.clients[0];
    let settings = *client.machine.settings_mut();
    client.machine = Machine::restore(&kept, settings, now).expect("what was kept makes a machine");
    client.kernel = Default::default();
    client.fds.clear();
    client.replies.clear();
    // What was on its way to the daemon is not for the next one.
    (client.reading, client.pooling) = (Vec::new(), Vec::new());
    world.check(0);
    let opens: Vec<u64> = world.server.opens.keys().copied().collect();
    opens.into_iter().for_each(|open| world.server.close(OpenToken(open)));
    let claims = world.clients[0].machine.reclaim_list();
    world.server.restart();
    let mut told = Vec::new();
    for claim in &claims {
        if world.dice.roll(4) < gives_back {
            told.push(world.server.reclaim(0, claim));
        }
    }
    let executed = world.server.lanes.get(&0).map_or(0, |lane| lane.executed);
    let machine = &mut world.clients[0].machine;
    machine.reclaimed(told, now);
    machine.resume(Some(executed), 0, now);
    machine.follow();
    world.kept = Some(BTreeMap::new());
    world.keep(0);
    world.check(0);
}

/// What nobody can reach any more after everybody's files were closed.
fn close_all(model: &mut Model) {
    model.fds.clear();
    let gone: Vec<u64> =
        model.fs.inodes.iter().filter(|(_, inode)| inode.nlink == 0).map(|(ino, _)| *ino).collect();
    for ino in gone {
        model.fs.inodes.remove(&ino);
    }
}

fn goes_on(ops: &[Op], seed: u64, gives_back: u64, loses: bool) {
    let mut world = keeping(seed);
    world.loses = loses;
    let mut model = Model::default();
    for op in ops {
        let (shown, expected) = (world.apply(0, op), model.apply(0, op));
        assert_eq!(shown, expected, "{op:?}\n{}", model.canonical());
        // (Files without names end with whoever has them open; what was written to them fails late, and nobody reads it.)
        let is_named = model.fds.values().all(|(ino, ..)| model.fs.inodes[ino].nlink > 0);
        if is_named && world.dice.roll(6) == 0 {
            world.keep(0);
            dies(&mut world, gives_back);
            close_all(&mut model);
        }
    }
    world.drain();
    assert_eq!(world.server.fs.canonical(), model.fs.canonical(), "at the server");
}

/// The last thing that was kept is some operations old.
fn has_a_prefix(ops: &[Op], seed: u64) {
    let mut world = keeping(seed);
    let mut model = Model::default();
    let mut states = vec![model.fs.names()];
    for op in ops {
        let shown = world.apply(0, op);
        model.apply(0, op);
        let was_synced = matches!(op, Op::Sync | Op::Fsync { .. }) && shown == Out::Done;
        if matches!(op, Op::Sync) && was_synced {
            // Nothing before it may be lost.
            states.clear();
        }
        states.push(model.fs.names());
        if world.dice.roll(5) == 0 {
            world.keep(0);
            states.clear();
            states.push(model.fs.names());
        }
    }
    dies(&mut world, 0);
    world.drain();
    let left = world.server.fs.names();
    assert!(states.contains(&left), "what is left never was:\n{left}");
}

/// A mount that keeps what it does, and has written to a file whose last name that it knows of it has removed, by asking: another, `g`,
/// the server has told of while data of the file was waiting.
fn removed_by_a_guess() -> World {
    let mut world = keeping(1);
    world.have_root_alone();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    world.drain();
    let data = bytes::Bytes::from_static(b"xy");
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    world.clients[0].machine.settings_mut().batches = false;
    world.run(0, |m, t, now| m.link(t, made.0.node, NodeId::ROOT, b"g", now)).unwrap();
    world.clients[0].machine.settings_mut().batches = true;
    world.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, b"f", now)).unwrap();
    let data = bytes::Bytes::from_static(b"more");
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    world
}

fn contents(world: &World) -> Vec<Vec<u8>> {
    let files = world.server.fs.inodes.values().filter(|inode| inode.kind == Kind::File);
    files.map(|inode| inode.data.clone()).collect()
}

#[test]
fn what_may_have_another_name_is_sent_by_the_next_life() {
    let mut world = removed_by_a_guess();
    world.keep(0);
    dies(&mut world, 0);
    world.drain();
    assert_eq!(contents(&world), [b"more"]);
}

#[test]
fn what_may_have_another_name_is_set_apart_from_what_others_have_written_there() {
    for dies in [false, true] {
        let mut world = removed_by_a_guess();
        world.clients[0].machine.hold(true);
        world.alone = true;
        let there = world.server.fs.look(ROOT, b"g").unwrap().expect("it has got that name");
        world.server.fs.write(there, 0, b"theirs").unwrap();
        world.server.fs.get_mut(there).unwrap().mtime = 1_000_000;
        world.come_back(dies, false);
        let mut both = contents(&world);
        both.sort();
        assert_eq!(both, [b"more".to_vec(), b"theirs".to_vec()], "in the next life: {dies}");
    }
}

#[test]
fn what_is_not_followed_any_more_tells_nothing_and_goes_on() {
    let mut world = keeping(1);
    world.clients[0].machine.unfollow();
    for name in [b"a", b"b"] {
        world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, name, 0o755, now)).unwrap();
        assert_eq!(world.clients[0].machine.take_changes(), []);
    }
    world.drain();
    assert_eq!(world.server.fs.inodes.len(), 3);
    assert_eq!(world.clients[0].machine.take_changes(), []);
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_client_that_dies_and_kept_everything_goes_on(
        ops in prop::collection::vec(op(), 1..60), seed in any::<u64>(), gives_back in 0..5_u64
    ) {
        goes_on(&ops, seed, gives_back, false);
    }

    #[test]
    fn replies_lost_with_it_change_nothing(
        ops in prop::collection::vec(op(), 1..60), seed in any::<u64>(), gives_back in 0..5_u64
    ) {
        goes_on(&ops, seed, gives_back, true);
    }

    #[test]
    fn what_was_not_kept_is_lost_from_the_end(ops in prop::collection::vec(op(), 1..60), seed in any::<u64>()) {
        has_a_prefix(&ops, seed);
    }
}
