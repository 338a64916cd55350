//! Data that the server took and lost is written again, but never over newer data that is on its way.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

/// A file that is written by questions, as nothing guarantees it; `old` is in the server's memory alone.
fn written() -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    let (node, fh) = (made.0.node, made.1.fh);
    world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)).unwrap();
    world.clients[0].machine.settings_mut().write_back = false;
    write(&mut world, fh, b"old");
    (world, node, fh)
}

fn write(world: &mut World, fh: Fh, data: &'static [u8]) {
    world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(data), now)).unwrap();
}

/// An operation up to the question that changes the file.
fn asked<T: std::fmt::Debug>(
    world: &mut World,
    turn: &mut Turn,
    mut op: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
) -> Ask {
    loop {
        let now = world.now();
        match op(&mut world.clients[0].machine, turn, now) {
            Step::Ask(ask) if ask.question.is_mutation() => return *ask,
            Step::Ask(ask) => {
                let answer = world.perform(0, &ask);
                let now = world.now();
                world.clients[0].machine.absorb(turn, *ask, answer, now);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A COMMIT says that the server has lost what it had; what comes out then.
fn lost(world: &mut World, node: NodeId) -> Option<WriteOut> {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let mut turn = Turn::new(Caller::new(7, 0));
    assert!(matches!(machine.fsync(&mut turn, node, None, now), Step::Wait(_)), "it is on the disk already");
    let commit = machine.take_commit(now).expect("a COMMIT");
    world.server.verifier += 1;
    let verifier = world.server.verifier;
    let machine = &mut world.clients[0].machine;
    machine.commit_done(commit.id, Ok(verifier), now);
    machine.take_write(now)
}

#[test]
fn what_was_lost_comes_out_when_nothing_is_being_asked_for() {
    let (mut world, node, _) = written();
    let again = lost(&mut world, node).expect("it is written again");
    assert_eq!(&again.data[..], b"old");
}

#[test]
fn what_was_lost_is_not_written_over_what_is_being_written() {
    let (mut world, node, fh) = written();
    let mut turn = Turn::new(Caller::new(7, 0));
    let data = Bytes::from_static(b"new");
    let ask = asked(&mut world, &mut turn, |m, t, now| m.write(t, fh, 0, &data, now));
    let again = lost(&mut world, node);
    assert!(again.is_none(), "it could come to the server last: {again:?}");
    let (answer, now) = (world.perform(0, &ask), world.now());
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, ask, answer, now);
    let again = machine.take_write(now);
    assert!(again.is_none(), "there is newer data in its place: {again:?}");
    // That is kept for a server that loses its memory.
    let again = lost(&mut world, node).expect("it is written again");
    assert_eq!(&again.data[..], b"new");
}

#[test]
fn what_was_lost_is_written_again_when_the_newer_data_was_refused() {
    let (mut world, node, fh) = written();
    let mut turn = Turn::new(Caller::new(7, 0));
    let data = Bytes::from_static(b"new");
    let ask = asked(&mut world, &mut turn, |m, t, now| m.write(t, fh, 0, &data, now));
    assert!(lost(&mut world, node).is_none());
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, ask, Err(Errno::ENOSPC), now);
    let again = machine.take_write(now).expect("it is written again");
    assert_eq!(&again.data[..], b"old");
}

#[test]
fn what_was_lost_is_not_written_into_a_hole_that_is_being_made() {
    let (mut world, node, fh) = written();
    let mut turn = Turn::new(Caller::new(7, 0));
    let hole = AllocateMode::PunchHole;
    let ask = asked(&mut world, &mut turn, |m, t, now| m.allocate(t, fh, hole, (0, 100), now));
    assert!(lost(&mut world, node).is_none());
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, ask, Ok(Answer::Done), now);
    let again = machine.take_write(now);
    assert!(again.is_none(), "the hole would be filled: {again:?}");
}
