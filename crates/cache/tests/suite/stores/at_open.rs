//! Who opens a file to read it has the kernel given what is kept of it.

use super::*;

fn open_and_given(world: &mut World, node: NodeId, flags: OpenFlags) -> (Fh, Option<(NodeId, Whole)>) {
    let mut given = None;
    let opened = world.run(0, |m, t, now| {
        let step = m.open(t, node, flags, now);
        if let Step::Done(opened) = &step {
            given = m.store_at_open(opened, now);
        }
        step
    });
    (opened.unwrap().fh, given)
}

#[test]
fn who_opens_to_read_what_was_sent_has_it_with_the_open_and_the_next_one_has_it_already() {
    let (mut world, node) = sent();
    let (fh, given) = open_and_given(&mut world, node, READ);
    let (of, whole) = given.expect("the kernel has not all of it");
    assert_eq!((of, &whole.data[..]), (node, &b"before"[..]));
    assert!(world.clients[0].machine.waits_for_store(node));
    world.clients[0].machine.stored(node, true);
    assert!(!world.clients[0].machine.waits_for_store(node));
    assert_eq!(world.clients[0].machine.stats().stores, 1);
    close(&mut world, fh);
    let (fh, given) = open_and_given(&mut world, node, READ);
    assert_eq!(given, None, "it has it");
    close(&mut world, fh);
    assert_eq!(stored(&told(&mut world), node), None, "nor when that goes");
}

#[test]
fn what_may_be_changed_or_is_open_already_or_not_sent_is_not_given_with_the_open() {
    let (mut world, node) = sent();
    for (first, second) in [(BOTH, READ), (READ, READ)] {
        let (fh, given) = open_and_given(&mut world, node, first);
        assert_eq!(given.is_some(), first == READ);
        if given.is_some() {
            world.clients[0].machine.stored(node, true);
        }
        let (other, given) = open_and_given(&mut world, node, second);
        assert_eq!(given, None);
        close(&mut world, other);
        close(&mut world, fh);
    }
    let fh = open(&mut world, node, BOTH);
    write(&mut world, fh, 0, b"after!");
    close(&mut world, fh);
    let (fh, given) = open_and_given(&mut world, node, READ);
    assert_eq!(given, None, "it is on its way");
    close(&mut world, fh);
    send(&mut world);
    world.invalidate(0);
    let (_, given) = open_and_given(&mut world, node, READ);
    assert_eq!(given.expect("it is there").1.data, b"after!"[..]);
}

#[test]
fn nobody_else_opens_what_is_given_with_an_open_nor_sets_its_size() {
    let (mut world, node) = sent();
    let (_, given) = open_and_given(&mut world, node, READ);
    assert!(given.is_some());
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let machine = &mut world.clients[0].machine;
    let size = Changes { size: Some(2), ..Changes::default() };
    for flags in [READ, BOTH] {
        let step = machine.open(&mut turn, node, flags, now);
        assert!(matches!(step, Step::Wait(Wait::Stored)), "{step:?}");
    }
    let step = machine.setattr(&mut turn, node, &size, now);
    assert!(matches!(step, Step::Wait(Wait::Stored)), "{step:?}");
    let seen = machine.progress();
    machine.stored(node, true);
    assert_ne!(machine.progress(), seen, "who waits is told");
    let step = machine.setattr(&mut turn, node, &size, now);
    assert!(!matches!(step, Step::Wait(_) | Step::Failed(_)), "{step:?}");
}

#[test]
fn what_was_read_past_the_kernels_pages_or_was_not_taken_is_given_at_the_next_open() {
    let (mut world, node) = sent();
    let past = world.run(0, |m, t, now| m.open(t, node, READ, now)).unwrap().fh;
    let read = world.run(0, |m, t, now| {
        t.reads_into(ReadInto::Memory);
        m.read(t, past, 0, 64, now)
    });
    assert_eq!(read.unwrap().concat(), b"before");
    close(&mut world, past);
    for is_taken in [false, true] {
        let (fh, given) = open_and_given(&mut world, node, READ);
        assert!(given.is_some());
        world.clients[0].machine.stored(node, is_taken);
        close(&mut world, fh);
    }
    assert_eq!(open_and_given(&mut world, node, READ).1, None);
}
