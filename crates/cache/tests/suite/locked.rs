//! Files that are locked through a mount: what is written under a lock ends with it.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

/// A file that the server has made, and that is open and locked.
fn locked() -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    let (node, fh) = (made.0.node, made.1.fh);
    let before = Bytes::from_static(b"before");
    world.run(0, |m, t, now| m.write(t, fh, 0, &before, now)).unwrap();
    world.run(0, |m, t, now| m.lock_wanted(t, node, now)).unwrap();
    (world, node, fh)
}

/// Something small is written under the lock, and on its way.
fn being_written(world: &mut World, node: NodeId, fh: Fh) -> WriteOut {
    let data = Bytes::from_static(b"under");
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let mut turn = Turn::new(Caller::new(7, 0));
    let Step::Wait(_) = machine.fsync(&mut turn, node, None, now) else { panic!("it was not to be sent") };
    assert!(machine.take_batch(now).is_none_or(|batch| carries_nothing(&batch)));
    machine.take_write(now).expect("it goes by WRITE, small as it is")
}

fn carries_nothing(batch: &Batch) -> bool {
    batch.ops.iter().all(|op| match op {
        Mutation::Write { data, .. } => data.is_empty(),
        _ => true,
    })
}

#[test]
fn a_write_on_its_way_when_the_lock_is_lost_does_not_come_out_again() {
    let (mut world, node, fh) = locked();
    let write = being_written(&mut world, node, fh);
    let (handle, now) = (write.object.clone(), world.now());
    let machine = &mut world.clients[0].machine;
    machine.locks_lost(&handle);
    machine.write_lost(write.id, now);
    assert!(machine.take_write(now).is_none(), "it comes out again");
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)), Err(Errno::EIO));
    let told = world.clients[0].machine.take_reports();
    let told: Vec<_> = told.iter().map(|report| (&report.what[..], report.node)).collect();
    let (lock, write) = ("lock, which others may have had meanwhile", "write under a lock that was lost");
    assert_eq!(told, [(lock, Some(node)), (write, Some(node))]);
}

#[test]
fn what_was_given_up_with_a_lock_is_told_once_though_its_write_is_refused_later() {
    let (mut world, node, fh) = locked();
    let write = being_written(&mut world, node, fh);
    let now = world.now();
    world.clients[0].machine.locks_lost(&write.object);
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)), Err(Errno::EIO));
    world.clients[0].machine.write_done(write.id, Err(Errno::EIO), now);
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)), Ok(()));
}

#[test]
fn what_the_server_had_when_the_lock_was_lost_is_not_sent_again_though_it_loses_it() {
    let (mut world, node, fh) = locked();
    let write = being_written(&mut world, node, fh);
    let (handle, now) = (write.object.clone(), world.now());
    let machine = &mut world.clients[0].machine;
    let done = Written { count: 5, stable: false, verifier: 1 };
    machine.write_done(write.id, Ok(done), now);
    machine.locks_lost(&handle);
    // It was restarted, as the next WRITE shows, which others may send.
    let again = being_written_by_another(&mut world, node, fh);
    let machine = &mut world.clients[0].machine;
    machine.write_done(again.id, Ok(Written { count: 1, stable: false, verifier: 2 }), now);
    assert!(machine.take_write(now).is_none(), "it comes out again");
}

/// One byte far behind.
fn being_written_by_another(world: &mut World, node: NodeId, fh: Fh) -> WriteOut {
    world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap();
    let data = Bytes::from_static(b"x");
    world.run(0, |m, t, now| m.write(t, fh, 100, &data, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let _ = machine.fsync(&mut Turn::new(Caller::new(7, 0)), node, None, now);
    machine.take_write(now).expect("a WRITE")
}

#[test]
fn what_was_written_under_a_lock_goes_by_write_though_the_file_is_closed() {
    let (mut world, node, fh) = locked();
    world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)).unwrap();
    let data = Bytes::from_static(b"under");
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.release(fh, now);
    let _ = machine.fsync(&mut Turn::new(Caller::new(7, 0)), node, None, now);
    assert!(machine.take_batch(now).is_none_or(|batch| carries_nothing(&batch)));
    assert_eq!(machine.take_write(now).expect("it goes by WRITE").data, data);
}
