//! Names that are taken by a question from whatever has them by then: of which files that leaves the number of names unknown.

use crate::world::World;
use holdfast_cache::*;

fn caller() -> Turn {
    Turn::new(Caller::new(7, 0))
}

fn looked(world: &mut World, c: usize, dir: NodeId, name: &[u8]) -> NodeId {
    let found = world.run(c, |m, t, now| m.lookup(t, dir, name, now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("it is there") };
    entry.node
}

fn make(world: &mut World, c: usize, dir: NodeId, name: &[u8]) -> NodeId {
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (entry, opened) = world.run(c, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap();
    let now = world.now();
    world.clients[c].machine.release(opened.fh, now);
    entry.node
}

/// Goes on until the server is to be asked for a change, which it is not yet.
fn until_asked(world: &mut World, turn: &mut Turn, dir: NodeId, name: &[u8]) -> Box<Ask> {
    loop {
        let now = world.now();
        match world.clients[0].machine.unlink(turn, dir, name, now) {
            Step::Ask(ask) if ask.question.is_mutation() => return ask,
            Step::Ask(ask) => {
                let answer = world.perform(0, &ask);
                world.clients[0].machine.absorb(turn, *ask, answer, now);
            }
            Step::Wait(_) => world.pump(0),
            step => panic!("{step:?}"),
        }
    }
}

fn answered(world: &mut World, turn: &mut Turn, ask: Ask, (dir, name): (NodeId, &[u8])) {
    let answer = world.perform(0, &ask);
    let now = world.now();
    world.clients[0].machine.absorb(turn, ask, answer, now);
    let step = world.clients[0].machine.unlink(turn, dir, name, now);
    assert!(matches!(step, Step::Done(())), "{step:?}");
    world.check(0);
}

fn names_of(world: &mut World, file: NodeId) -> u32 {
    world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap().attrs.nlink
}

/// Two directories of another mount's, which has given all back, with files in them; the first one has one more name.
fn two_directories() -> (World, [NodeId; 2]) {
    let mut world = World::new(2, true, 1);
    for dir in [b"a", b"b"] {
        let made = world.run(1, |m, t, now| m.mkdir(t, NodeId::ROOT, dir, 0o755, now)).unwrap().node;
        let file = make(&mut world, 1, made, b"0");
        for name in [b"1", b"2", b"3"] {
            make(&mut world, 1, made, name);
        }
        world.run(1, |m, t, now| m.link(t, file, made, b"4", now)).unwrap();
    }
    world.drain();
    world.server.held.retain(|(_, c), _| *c != 1);
    let now = world.now();
    world.clients[1].machine.caps_lost(now);
    let dirs = [b"a", b"b"].map(|dir| looked(&mut world, 0, NodeId::ROOT, dir));
    for dir in dirs {
        // By then it has the directory to itself, and of what was in it before it has seen nothing.
        for name in [b"v", b"w"] {
            make(&mut world, 0, dir, name);
        }
    }
    world.drain();
    (world, dirs)
}

/// Removes a name; whether the server was asked to.
fn removes_by_question(world: &mut World, dir: NodeId, name: &[u8]) -> bool {
    let mut was_asked = false;
    let mut turn = caller();
    loop {
        let now = world.now();
        match world.clients[0].machine.unlink(&mut turn, dir, name, now) {
            Step::Done(()) => return was_asked,
            Step::Ask(ask) => {
                was_asked |= ask.question.is_mutation();
                let answer = world.perform(0, &ask);
                world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
            }
            Step::Wait(_) => world.pump(0),
            step @ Step::Failed(_) => panic!("{step:?}"),
        }
    }
}

#[test]
fn who_removes_in_one_directory_keeps_nobody_from_removing_in_batches_in_another() {
    let (mut world, [a, b]) = two_directories();
    for (one, other) in [(a, b), (b, a)] {
        let mut turn = caller();
        let taking = until_asked(&mut world, &mut turn, one, b"0");
        for name in [b"1", b"2"] {
            assert!(
                !removes_by_question(&mut world, other, name),
                "while a name of another directory is taken"
            );
        }
        answered(&mut world, &mut turn, *taking, (one, b"0"));
    }
}

/// Another file gets the name after it was looked up and before its removal is asked for, and is seen with it in between: alone, or before
/// more others than are remembered.
#[test]
fn what_has_got_a_name_since_that_was_looked_up_is_not_known_by_what_was_seen_before_it_was_taken() {
    for (replaces, others) in [(false, 0), (true, 0), (false, 1100)] {
        let mut world = World::new(2, true, 1);
        let others: Vec<_> = (0..others).map(|n| format!("other-{n}")).collect();
        for name in &others {
            world.server.fs.make(1, name.as_bytes(), Kind::File, 0o644, 7).unwrap();
        }
        for c in 0..2 {
            world.clients[c].machine.settings_mut().batches = false;
        }
        for name in [b"a", b"e", b"g"] {
            make(&mut world, 1, NodeId::ROOT, name);
        }
        let file = looked(&mut world, 1, NodeId::ROOT, b"a");
        world.run(1, |m, t, now| m.link(t, file, NodeId::ROOT, b"b", now)).unwrap();
        let mut turn = caller();
        let take = |m: &mut Machine, t: &mut Turn, now: Now| match replaces {
            false => m.unlink(t, NodeId::ROOT, b"e", now),
            true => m.rename(t, (NodeId::ROOT, b"g"), (NodeId::ROOT, b"e"), RenameMode::Replace, now),
        };
        for _ in 0..1 + usize::from(replaces) {
            let now = world.now();
            let step = take(&mut world.clients[0].machine, &mut turn, now);
            let Step::Ask(ask) = step else { panic!("{step:?}") };
            assert!(matches!(ask.question, Question::Lookup { .. }), "{ask:?}");
            let answer = world.perform(0, &ask);
            world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
        }
        let names = ((NodeId::ROOT, &b"a"[..]), (NodeId::ROOT, &b"e"[..]));
        world.run(1, |m, t, now| m.rename(t, names.0, names.1, RenameMode::Replace, now)).unwrap();
        let seen = looked(&mut world, 0, NodeId::ROOT, b"b");
        assert_eq!(names_of(&mut world, seen), 2);
        make(&mut world, 1, NodeId::ROOT, b"z");
        for name in &others {
            looked(&mut world, 0, NodeId::ROOT, name.as_bytes());
        }
        loop {
            let now = world.now();
            match take(&mut world.clients[0].machine, &mut turn, now) {
                Step::Done(()) => break,
                Step::Ask(ask) => {
                    let answer = world.perform(0, &ask);
                    world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
                }
                step => panic!("{step:?}"),
            }
        }
        assert_eq!(names_of(&mut world, seen), 1, "replaces: {replaces}, others: {}", others.len());
        world.check(0);
    }
}

/// Two processes remove the same name, and the later request is answered first.
#[test]
fn takings_of_one_name_that_end_in_the_other_order_leave_nothing_in_doubt() {
    let mut world = World::new(2, true, 1);
    for c in 0..2 {
        world.clients[c].machine.settings_mut().batches = false;
    }
    for name in [b"a", b"e"] {
        make(&mut world, 1, NodeId::ROOT, name);
    }
    let (mut first, mut second) = (caller(), caller());
    let asked = *until_asked(&mut world, &mut first, NodeId::ROOT, b"e");
    let asked_later = *until_asked(&mut world, &mut second, NodeId::ROOT, b"e");
    // Nothing is promised of the directory while they are on their way.
    make(&mut world, 1, NodeId::ROOT, b"z");
    let file = looked(&mut world, 0, NodeId::ROOT, b"a");
    answered(&mut world, &mut second, asked_later, (NodeId::ROOT, b"e"));
    let now = world.now();
    let gone = world.perform(0, &asked);
    world.clients[0].machine.absorb(&mut first, asked, gone, now);
    let step = world.clients[0].machine.unlink(&mut first, NodeId::ROOT, b"e", now);
    assert!(matches!(step, Step::Failed(Errno::ENOENT)), "{step:?}");
    assert_eq!(names_of(&mut world, file), 1, "it is asked for once");
    let asks = world.clients[0].asks;
    assert_eq!(names_of(&mut world, file), 1);
    assert_eq!(world.clients[0].asks, asks, "and known then");
}
