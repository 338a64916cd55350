//! What was done without the server, and fsynced, is on this host's disk alone when the server is back: until all of it is on the
//! server's disk, or what has come in its place is.

use crate::both_sides::knowing;
use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

const AB: Access = Access { read: true, write: true };

/// A file of before is open, and was written without the server, which is back.
fn back() -> (World, NodeId, Fh) {
    let mut world = knowing(1);
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    world.alone = true;
    let (node, fh) = open(&mut world, b"f");
    write(&mut world, fh, b"ours, and fsynced");
    world.alone = false;
    world.clients[0].machine.hold(false);
    world.clients[0].machine.pledge();
    assert!(world.clients[0].machine.is_pledged());
    (world, node, fh)
}

fn open(world: &mut World, name: &[u8]) -> (NodeId, Fh) {
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("{}", name.escape_ascii()) };
    let flags = OpenFlags { access: AB, ..OpenFlags::default() };
    (entry.node, world.run(0, |m, t, now| m.open(t, entry.node, flags, now)).unwrap().fh)
}

fn write(world: &mut World, fh: Fh, data: &'static [u8]) {
    world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(data), now)).unwrap();
}

fn close(world: &mut World, fh: Fh) {
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

/// All that is queued is executed, and on no disk; the last transaction of it.
fn executed(world: &mut World) -> u64 {
    let now = world.now();
    let _ = world.clients[0].machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    let mut last = 0;
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        // What goes out is in the journal before.
        world.keep(0);
        let results = world.server.batch(0, &batch);
        world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        world.check(0);
        last = batch.txn;
    }
    assert!(last > 0, "something was sent");
    last
}

/// It is pledged as long as the server may lose it with its power, and not longer.
fn is_let_go_once_on_disk(world: &mut World, what: &str) {
    let last = executed(world);
    assert_eq!(world.clients[0].machine.stats().dirty_bytes, 0, "{what}");
    assert!(world.clients[0].machine.is_pledged(), "{what}: the server may lose it");
    let now = world.now();
    world.clients[0].machine.stable_done(last, &[], now);
    assert!(!world.clients[0].machine.is_pledged(), "{what}: the server has it on its disk");
}

/// The mutation that takes it along was not queued yet when the server came back.
#[test]
fn data_is_pledged_until_the_batch_that_has_taken_it_is_on_the_servers_disk() {
    let (mut world, _, fh) = back();
    close(&mut world, fh);
    is_let_go_once_on_disk(&mut world, "written");
}

/// What the journal has is gone with it; and what is there now has come in its place, and was not fsynced.
#[test]
fn what_is_done_to_it_before_it_is_there_takes_its_place() {
    for sent in [false, true] {
        let (mut world, _, fh) = back();
        if sent {
            executed(&mut world);
        }
        write(&mut world, fh, b"later");
        world.keep(0);
        close(&mut world, fh);
        is_let_go_once_on_disk(&mut world, "written over");
    }
    let (mut world, node, fh) = back();
    let changes = Changes { size: Some(0), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
    world.keep(0);
    close(&mut world, fh);
    is_let_go_once_on_disk(&mut world, "cut off");
}

#[test]
fn what_replaces_it_before_it_is_there_takes_its_place() {
    let (mut world, _, fh) = back();
    close(&mut world, fh);
    let names = ((NodeId::ROOT, &b"g"[..]), (NodeId::ROOT, &b"f"[..]));
    world.run(0, |m, t, now| m.rename(t, names.0, names.1, RenameMode::Replace, now)).unwrap();
    world.keep(0);
    is_let_go_once_on_disk(&mut world, "replaced");
}

/// Nobody has the file alone any more, so that the server is asked: it has taken both, and may lose them with its power.
#[test]
fn what_a_question_puts_in_its_place_is_pledged_until_it_is_committed() {
    let (mut world, node, fh) = back();
    let (handle, now) = (world.clients[0].machine.handle_of(node).unwrap(), world.now());
    let machine = &mut world.clients[0].machine;
    machine.settings_mut().batches = false;
    machine.recalled(&handle, CapSet::NONE, u64::MAX, now);
    let sent = machine.take_write(now).expect("it goes out");
    let said = world.server.write(0, &sent).expect("nobody is in its way");
    world.clients[0].machine.write_done(sent.id, said, now);
    let data = Bytes::from_static(b"later, and as long");
    let mut turn = Turn::new(Caller::new(7, 0));
    let later = |m: &mut Machine, t: &mut Turn, now| m.write(t, fh, 0, &data, now);
    let Step::Ask(ask) = later(&mut world.clients[0].machine, &mut turn, now) else { panic!("by question") };
    let answer = world.perform(0, &ask);
    assert!(matches!(answer, Ok(Answer::Written { stable: false, .. })), "{answer:?}");
    world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
    world.go_on(0, turn, later).unwrap();
    assert!(world.clients[0].machine.is_pledged(), "the server may lose it");
    world.drain();
    assert!(!world.clients[0].machine.is_pledged(), "the server has it on its disk");
}

/// Else the journal would never be let go of, as long as anything is done.
#[test]
fn what_has_nothing_to_do_with_it_is_not_waited_for() {
    let (mut world, _, fh) = back();
    close(&mut world, fh);
    let last = executed(&mut world);
    let (_, other) = open(&mut world, b"g");
    write(&mut world, other, b"not fsynced");
    world.keep(0);
    let now = world.now();
    world.clients[0].machine.stable_done(last, &[], now);
    assert!(!world.clients[0].machine.is_pledged());
    assert!(world.clients[0].machine.stats().dirty_bytes > 0);
}
