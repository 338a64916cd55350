//! What was written under a promise that is asked back and is not with the server yet: nobody sees the file without it, whatever
//! happens until then.

use crate::world::{World, server};
use bytes::Bytes;
use holdfast_cache::*;

/// Two mounts, and a file `f` that the first has written to under its own promise, and has still to send.
fn written() -> (World, NodeId, Handle) {
    let mut world = World::new(2, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.make_nameless(t, NodeId::ROOT, 0o644, flags, now)).unwrap();
    let (node, fh) = (made.0.node, made.1.fh);
    let data = Bytes::from_static(b"data");
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    // How many names it has is not known from this answer, as the data was still here.
    world.run(0, |m, t, now| m.link(t, node, NodeId::ROOT, b"f", now)).unwrap();
    assert_eq!(world.clients[0].machine.stats().dirty_bytes, 4);
    let handle = world.clients[0].machine.handle_of(node).unwrap();
    (world, node, handle)
}

fn ask(question: Question) -> Ask {
    Ask { at: Generation::default(), caller: Caller::new(7, 0), question }
}

/// The second mount looks at the file, and has to wait.
fn is_looked_at(world: &mut World, object: &Handle) {
    let look = Question::GetAttr { object: object.clone(), open: None, want: CapSet::ALL_S };
    assert!(world.server.answer(1, &ask(look)).is_err(), "it is asked back first");
}

fn size_next_door(world: &mut World) -> u64 {
    match world.run(1, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap() {
        Lookup::Found(entry) => entry.attrs.size,
        Lookup::Absent { .. } => panic!("it has its name"),
    }
}

/// The first mount asks for attributes, of which it knows the size itself.
fn asked(world: &mut World, node: NodeId) -> (Turn, Box<Ask>) {
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    match world.clients[0].machine.getattr(&mut turn, node, now) {
        Step::Ask(ask) => (turn, ask),
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_server_that_begins_anew_has_others_wait_for_it_as_before() {
    let (mut world, _, handle) = written();
    is_looked_at(&mut world, &handle);
    world.deliver();
    world.restart();
    is_looked_at(&mut world, &handle);
    assert_eq!(size_next_door(&mut world), 4);
}

#[test]
fn so_it_does_where_a_reply_alone_had_told_of_it() {
    let (mut world, node, handle) = written();
    let (mut turn, ask) = asked(&mut world, node);
    is_looked_at(&mut world, &handle);
    let (answer, now) = (world.perform(0, &ask), world.now());
    world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
    world.restart();
    (0..20).for_each(|_| world.pump(0));
    let held = world.server.held.iter().find(|((ino, by), _)| server::handle(*ino) == handle && *by == 0);
    assert_eq!(held.map(|(_, held)| CapSet(held.caps)), Some(CapSet::ALL_S), "given back unasked");
    assert_eq!(size_next_door(&mut world), 4);
}

#[test]
fn and_where_the_result_of_its_making_had() {
    let mut world = World::new(2, true, 1);
    world.have_root_alone();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    let [MutationResult::Done { made: Some(Born { handle, .. }), .. }] = &results[..] else { panic!() };
    world.clients[0].machine.batch_lost(batch.txn);
    let data = Bytes::from_static(b"data");
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    is_looked_at(&mut world, handle);
    let now = world.now();
    let again = world.clients[0].machine.take_batch(now).expect("it was lost");
    let told = world.server.batch(0, &again);
    world.clients[0].machine.batch_done(again.txn, told, 0, now);
    world.restart();
    is_looked_at(&mut world, handle);
    assert_eq!(size_next_door(&mut world), 4);
}

#[test]
fn attributes_from_before_are_not_shown_to_its_writer() {
    let (mut world, node, handle) = written();
    let (mut turn, ask_before) = asked(&mut world, node);
    let answer = world.perform(0, &ask_before);
    let access = Access { read: true, write: true };
    let open = Question::Open { object: handle, access, truncate: false, want: CapSet::NONE };
    assert!(world.server.answer(1, &ask(open)).is_err(), "it is asked back first");
    world.deliver();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, *ask_before, answer, now);
    let step = machine.getattr(&mut turn, node, now);
    assert!(matches!(step, Step::Wait(_)), "the size in it is not the file's: {step:?}");
    let asked_again = (0..50).find_map(|_| {
        world.pump(0);
        let now = world.now();
        match world.clients[0].machine.getattr(&mut turn, node, now) {
            Step::Ask(ask) => Some(ask),
            _ => None,
        }
    });
    let answer = world.perform(0, &asked_again.expect("all of it is there"));
    assert!(matches!(answer, Ok(Answer::Attrs { attrs: Attrs { size: 4, .. }, .. })), "{answer:?}");
}

/// The second mount is about to write the file: the first gives up all it was promised of it, and sends its data before.
fn given_up(world: &mut World, handle: Handle) {
    let access = Access { read: true, write: true };
    let open = Question::Open { object: handle, access, truncate: false, want: CapSet::NONE };
    assert!(world.server.answer(1, &ask(open)).is_err(), "it is asked back first");
    world.deliver();
    (0..20).for_each(|_| world.pump(0));
    assert_eq!(world.clients[0].machine.stats().dirty_bytes, 0);
}

#[test]
fn a_link_made_before_the_data_came_shows_the_data_to_its_writer() {
    let (mut world, node, handle) = written();
    let link = |m: &mut Machine, t: &mut Turn, now| m.link(t, node, NodeId::ROOT, b"g", now);
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let Step::Ask(linking) = link(&mut world.clients[0].machine, &mut turn, now) else {
        panic!("by question")
    };
    let answer = world.perform(0, &linking);
    given_up(&mut world, handle);
    let now = world.now();
    world.clients[0].machine.absorb(&mut turn, *linking, answer, now);
    let entry = world.go_on(0, turn, link).unwrap();
    assert_eq!((entry.node, entry.attrs.size, entry.attrs.nlink), (node, 4, 2));
}

#[test]
fn a_file_found_where_one_was_to_be_made_shows_the_data_to_its_writer() {
    let (mut world, node, handle) = written();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let create = |m: &mut Machine, t: &mut Turn, now: Now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now);
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let Step::Ask(asked) = create(&mut world.clients[0].machine, &mut turn, now) else {
        panic!("by question")
    };
    let answer = world.perform(0, &asked);
    assert!(matches!(answer, Ok(Answer::Created { made: false, .. })), "{answer:?}");
    given_up(&mut world, handle);
    let now = world.now();
    world.clients[0].machine.absorb(&mut turn, *asked, answer, now);
    let (entry, _) = world.go_on(0, turn, create).unwrap();
    assert_eq!((entry.node, entry.attrs.size), (node, 4));
}

#[test]
fn a_change_of_the_mode_leaves_what_was_written_since_it_began() {
    let mut world = World::new(1, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    let (node, fh) = (made.0.node, made.1.fh);
    // Data goes beside the stream, and modes by question.
    world.clients[0].machine.settings_mut().batches = false;
    world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(b"data"), now)).unwrap();
    let mode = Changes { mode: Some(0o600), ..Changes::default() };
    let change = |m: &mut Machine, t: &mut Turn, now: Now| m.setattr(t, node, &mode, now);
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let step = change(&mut world.clients[0].machine, &mut turn, now);
    assert!(matches!(step, Step::Wait(Wait::Written)), "{step:?}");
    let out = world.clients[0].machine.take_write(now).expect("what was written before");
    world.run(0, |m, t, now| m.write(t, fh, 4, &Bytes::from_static(b"more"), now)).unwrap();
    let Ok(written) = world.server.write(0, &out) else { panic!("nobody else has it") };
    world.clients[0].machine.write_done(out.id, written, now);
    world.go_on(0, turn, change).unwrap();
    world.drain();
    let shown = world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap().attrs;
    assert_eq!((shown.mode, shown.size), (0o600, 8));
}
