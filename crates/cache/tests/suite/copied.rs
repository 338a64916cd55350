//! Copies that are as well made here.

use bytes::Bytes;
use holdfast_base::limits::SMALL_FILE_BYTES;
use holdfast_cache::*;

use crate::stores::READ;
use crate::world::World;

fn write(world: &mut World, fh: Fh, length: u64) {
    let data = Bytes::from(vec![7; usize::try_from(length).unwrap()]);
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
}

#[test]
fn a_small_file_is_copied_here_into_one_that_may_be_changed_here_and_what_is_behind_an_end_at_once() {
    let mut world = World::new(2, true, 1);
    world.have_root_alone();
    let ((_, small), (_, large)) = (world.made_and_open(b"small"), world.made_and_open(b"large"));
    let (target, to) = world.made_and_open(b"target");
    write(&mut world, small, 1000);
    write(&mut world, large, SMALL_FILE_BYTES + 1);
    let read_only = world.run(0, |m, t, now| m.open(t, target, READ, now)).unwrap().fh;
    let here = |world: &World, from, to, length| world.clients[0].machine.copied_here(from, to, length);
    assert_eq!(here(&world, (small, 0), to, u64::MAX), Some(1000));
    assert_eq!(here(&world, (small, 990), to, 1 << 40), Some(10));
    assert_eq!(here(&world, (small, 10), to, 20), Some(20));
    assert_eq!(here(&world, (small, 1000), to, 20), Some(0));
    assert_eq!(here(&world, (large, SMALL_FILE_BYTES + 9), to, 20), Some(0));
    assert_eq!(here(&world, (large, 0), to, 20), None, "the server need not send it");
    assert_eq!(here(&world, (small, 0), read_only, 20), None);
    // Others read the target, and so it is changed at the server; then the source, of which this mount knows the end no more.
    world.drain();
    look(&mut world, b"target");
    assert_eq!(here(&world, (small, 0), to, 20), None);
    let theirs = look(&mut world, b"small");
    let both = OpenFlags { access: Access { read: true, write: true }, ..READ };
    let fh = world.run(1, |m, t, now| m.open(t, theirs, both, now)).unwrap().fh;
    world.run(1, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(b"theirs"), now)).unwrap();
    assert_eq!(here(&world, (small, 1000), to, 20), None);
}

/// Another mount looks at a file.
fn look(world: &mut World, name: &[u8]) -> NodeId {
    let found = world.run(1, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("it is there") };
    world.run(1, |m, t, now| m.getattr(t, entry.node, now)).unwrap();
    entry.node
}
