//! Files of which many places are written: what nobody wants to go is kept back until it is, and what touches goes together.

use bytes::Bytes;
use holdfast_base::limits::{EXTENTS_MAX, LARGE_EXTENT_BYTES, UNSYNCED_AGE_MS};
use holdfast_cache::*;

use crate::world::World;

const PAGE: u64 = 4096;

/// A file that is open, and known to the server as empty.
fn opened() -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    world.clients[0].machine.settings_mut().io_bytes = 1 << 20;
    world.have_root_alone();
    let (file, fh) = world.made_and_open(b"f");
    world.drain();
    (world, file, fh)
}

fn write(world: &mut World, fh: Fh, page: u64) {
    let data = Bytes::from(vec![page as u8; PAGE as usize]);
    world.run(0, |m, t, now| m.write(t, fh, page * PAGE, &data, now)).unwrap();
}

/// All that is to go now.
fn taken(world: &mut World) -> Vec<WriteOut> {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    std::iter::from_fn(|| machine.take_write(now)).collect()
}

fn answer(world: &mut World, writes: Vec<WriteOut>) {
    let now = world.now();
    for out in writes {
        let Ok(done) = world.server.write(0, &out) else { panic!("nobody else holds anything") };
        world.clients[0].machine.write_done(out.id, done, now);
    }
    world.check(0);
}

/// Waits for the file to be on disk; gives what is sent at once.
fn fsynced(world: &mut World, file: NodeId, fh: Fh) -> Vec<WriteOut> {
    let now = world.now();
    let waits = world.clients[0].machine.fsync(&mut Turn::new(Caller::new(7, 0)), file, Some(fh), now);
    assert!(matches!(waits, Step::Wait(_)));
    taken(world)
}

#[test]
fn pages_written_in_any_order_go_as_one_once_somebody_waits() {
    let (mut world, file, fh) = opened();
    // Every fifth page modulo a prime: no page follows the one before.
    for n in 0..97 {
        write(&mut world, fh, n * 5 % 97);
    }
    assert!(taken(&mut world).is_empty(), "nobody wants them");
    let writes = fsynced(&mut world, file, fh);
    let lengths: Vec<_> = writes.iter().map(|out| (out.offset, out.data.len())).collect();
    assert_eq!(lengths, [(0, 97 * PAGE as usize)]);
    assert!((0..97).all(|page| writes[0].data[page * PAGE as usize] == page as u8));
    answer(&mut world, writes);
    world.run(0, |m, t, now| m.fsync(t, file, Some(fh), now)).unwrap();
    world.check(0);
}

#[test]
fn what_is_large_goes_at_once_and_takes_along_what_follows() {
    let (mut world, file, fh) = opened();
    let pages = LARGE_EXTENT_BYTES as u64 / PAGE;
    // Apart from all others, and enough that it is not a small file.
    let apart = [500, 510];
    apart.iter().for_each(|page| write(&mut world, fh, *page));
    (100..180).step_by(2).for_each(|page| write(&mut world, fh, page));
    (101..179).step_by(2).for_each(|page| write(&mut world, fh, page));
    assert!(taken(&mut world).is_empty(), "none of them is large, though they touch");
    let whole = Bytes::from(vec![1; LARGE_EXTENT_BYTES]);
    world.run(0, |m, t, now| m.write(t, fh, (100 - pages) * PAGE, &whole, now)).unwrap();
    let writes = taken(&mut world);
    let lengths: Vec<_> =
        writes.iter().map(|out| (out.offset / PAGE, out.data.len() as u64 / PAGE)).collect();
    assert_eq!(lengths, [(100 - pages, pages + 79)]);
    answer(&mut world, writes);
    let rest = fsynced(&mut world, file, fh);
    assert_eq!(rest.iter().map(|out| out.offset / PAGE).collect::<Vec<_>>(), apart);
    answer(&mut world, rest);
}

#[test]
fn what_nobody_waits_for_goes_when_it_is_old() {
    let (mut world, _, fh) = opened();
    (0..100).step_by(2).for_each(|page| write(&mut world, fh, page));
    (200..300).step_by(2).for_each(|page| write(&mut world, fh, page));
    assert!(taken(&mut world).is_empty());
    world.ms += UNSYNCED_AGE_MS;
    loop {
        let writes = taken(&mut world);
        if writes.is_empty() {
            break;
        }
        answer(&mut world, writes);
    }
    assert_eq!(world.clients[0].machine.stats().dirty_bytes, 0, "all of it");
}

#[test]
fn a_file_of_very_many_pieces_is_sent_before_there_are_more() {
    let (mut world, file, fh) = opened();
    let now = world.now();
    let byte = Bytes::from_static(b"x");
    let mut turn = Turn::new(Caller::new(7, 0));
    let machine = &mut world.clients[0].machine;
    let mut place = 0;
    let stopped = loop {
        match machine.write(&mut turn, fh, place, &byte, now) {
            Step::Done(_) => place += 2,
            stopped => break stopped,
        }
        assert!(place <= 4 * EXTENTS_MAX as u64, "there is a bound");
        turn = Turn::new(Caller::new(7, 0));
    };
    assert!(matches!(stopped, Step::Wait(_)), "{stopped:?}");
    // All goes, old or not. The world would look at every piece at each step.
    while let Some(out) = machine.take_write(now) {
        machine.write_done(out.id, Ok(Written { count: 1, stable: true, verifier: 1 }), now);
    }
    assert_eq!(machine.stats().dirty_bytes, 0);
    assert!(matches!(machine.write(&mut turn, fh, place, &byte, now), Step::Done(1)));
    world.run(0, |m, t, now| m.fsync(t, file, Some(fh), now)).unwrap();
}

#[test]
fn who_replaces_a_file_by_one_that_is_still_written_holds_nobody_up() {
    let (mut world, _, old) = opened();
    let now = world.now();
    world.clients[0].machine.release(old, now);
    world.drain();
    let (_, fh) = world.made_and_open(b"new");
    write(&mut world, fh, 0);
    world
        .run(0, |m, t, now| {
            m.rename(t, (NodeId::ROOT, b"new"), (NodeId::ROOT, b"f"), RenameMode::Replace, now)
        })
        .unwrap();
    // So much that it does not go with its making any more, and each piece apart.
    (0..100).for_each(|page| write(&mut world, fh, 2 * page));
    let ms = world.ms;
    world.run(0, |m, t, now| m.fsync(t, NodeId::ROOT, None, now)).unwrap();
    assert!(
        world.ms - ms < UNSYNCED_AGE_MS,
        "who waits for the directory does not wait until the data is old"
    );
    world.check(0);
}
