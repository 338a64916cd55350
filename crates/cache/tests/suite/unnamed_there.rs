//! Files whose last name another mount takes, beside what is done to them here: nothing is put off of which the server may know no
//! more when it comes, and who still has them open is not forgotten.

use crate::world::World;
use bytes::Bytes;
use holdfast_base::CapSet;
use holdfast_cache::*;

const READ: Access = Access { read: true, write: false };
const BOTH: Access = Access { read: true, write: true };

fn flags(access: Access) -> OpenFlags {
    OpenFlags { access, ..OpenFlags::default() }
}

/// Two mounts, and a file `f` with data, which the second one has made and has open; and what the first one calls it.
fn shared() -> (World, NodeId, Fh) {
    let mut world = World::new(2, true, 1);
    world.server.is_shy = false;
    let made = world.run(1, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags(BOTH), now)).unwrap();
    let fh = made.1.fh;
    write(&mut world, 1, fh, b"data");
    world.drain();
    let found = look(&mut world, 0, b"f");
    (world, found, fh)
}

fn look(world: &mut World, c: usize, name: &[u8]) -> NodeId {
    match world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap() {
        Lookup::Found(found) => found.node,
        absent @ Lookup::Absent { .. } => panic!("{absent:?}"),
    }
}

fn write(world: &mut World, c: usize, fh: Fh, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    world.run(c, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
}

fn read(world: &mut World, c: usize, fh: Fh) -> Vec<u8> {
    world.run(c, |m, t, now| m.read(t, fh, 0, 64, now)).unwrap().concat()
}

fn unlink(world: &mut World, c: usize) {
    world.run(c, |m, t, now| m.unlink(t, NodeId::ROOT, b"f", now)).unwrap();
}

fn close(world: &mut World, c: usize, fh: Fh) {
    world.run(c, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[c].machine.release(fh, now);
}

fn nothing_failed(world: &mut World) {
    world.drain();
    for client in &mut world.clients {
        assert_eq!(client.machine.take_reports(), []);
    }
}

#[test]
fn who_opens_what_has_no_name_any_more_has_it_open_at_the_server() {
    for access in [READ, BOTH] {
        let (mut world, found, fh) = shared();
        unlink(&mut world, 1);
        // Its name was looked up before.
        let opened = world.run(0, |m, t, now| m.open(t, found, flags(access), now)).unwrap();
        close(&mut world, 1, fh);
        nothing_failed(&mut world);
        assert_eq!(read(&mut world, 0, opened.fh), b"data");
        if access.write {
            write(&mut world, 0, opened.fh, b"more");
        }
        nothing_failed(&mut world);
        close(&mut world, 0, opened.fh);
        nothing_failed(&mut world);
        assert!(world.server.opens.is_empty(), "{:?}", world.server.opens);
    }
}

/// What was promised with an answer that was not believed counts for nothing.
#[test]
fn so_has_who_opens_what_may_have_none() {
    let (mut world, found, fh) = shared();
    unlink(&mut world, 1);
    let (mut turn, mut other) = (Turn::new(Caller::new(7, 0)), Turn::new(Caller::new(7, 0)));
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let Step::Ask(ask) = machine.getattr(&mut turn, found, now) else { panic!("it is not known") };
    let changes = Changes { mode: Some(0o600), ..Changes::default() };
    let Step::Ask(change) = machine.setattr(&mut other, found, &changes, now) else { panic!("it is ours") };
    let answer = world.perform(0, &ask);
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut other, *change, Err(Errno::EPERM), now);
    machine.absorb(&mut turn, *ask, answer, now);
    let opened = world.run(0, |m, t, now| m.open(t, found, flags(READ), now)).unwrap();
    close(&mut world, 1, fh);
    nothing_failed(&mut world);
    assert_eq!(read(&mut world, 0, opened.fh), b"data");
}

/// Between the emptying and the open the name is taken, and of the open nobody knew then.
#[test]
fn so_has_who_emptied_it_as_he_opened_it() {
    let (mut world, found, fh) = shared();
    close(&mut world, 1, fh);
    nothing_failed(&mut world);
    let before = world.run(0, |m, t, now| m.open(t, found, flags(BOTH), now)).unwrap();
    // What is cut off under a lock is cut off by asking.
    world.run(0, |m, t, now| m.lock_wanted(t, found, now)).unwrap();
    let flags = OpenFlags { truncate: true, ..flags(BOTH) };
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let Step::Ask(ask) = world.clients[0].machine.open(&mut turn, found, flags, now) else { panic!() };
    assert!(matches!(ask.question, Question::SetAttr { .. }), "{ask:?}");
    let answer = world.perform(0, &ask);
    unlink(&mut world, 1);
    close(&mut world, 0, before.fh);
    nothing_failed(&mut world);
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, *ask, answer, now);
    let Step::Ask(ask) = machine.open(&mut turn, found, flags, now) else { panic!("it is gone, and opened") };
    // Others may have written since.
    assert!(matches!(ask.question, Question::Open { truncate: false, .. }), "{ask:?}");
}

#[test]
fn what_another_has_removed_is_changed_by_asking() {
    let (mut world, found, fh) = shared();
    close(&mut world, 1, fh);
    nothing_failed(&mut world);
    let chmod = |world: &mut World, mode| {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        world.run(0, |m, t, now| m.setattr(t, found, &changes, now))
    };
    // Who removes it knows what it is, and looks at nothing of it.
    look(&mut world, 1, b"f");
    chmod(&mut world, 0o640).unwrap();
    unlink(&mut world, 1);
    let ours = world.server.held.values().map(|held| CapSet(held.caps));
    assert!(ours.into_iter().any(|caps| caps.contains(CapSet::AUTH_X) && !caps.contains(CapSet::LINK_S)));
    assert_eq!(chmod(&mut world, 0o600).unwrap_err(), Errno::ESTALE);
    nothing_failed(&mut world);
}

#[test]
fn what_has_no_name_any_more_is_given_another_by_asking() {
    let (mut world, found, fh) = shared();
    let opened = world.run(0, |m, t, now| m.open(t, found, flags(READ), now)).unwrap();
    unlink(&mut world, 1);
    close(&mut world, 1, fh);
    nothing_failed(&mut world);
    // The other one has gone, and all is given to who is left.
    world.server.held.retain(|(_, c), _| *c == 0);
    world.ms += 5000;
    world.run(0, |m, t, now| m.open(t, found, flags(BOTH), now)).unwrap();
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"x", 0o755, now)).unwrap();
    world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"g", now)).unwrap();
    let ours = world.server.held.values().filter(|held| held.caps == CapSet::ALL_X.0);
    assert_eq!(ours.count(), 3, "{:?}", world.server.held);
    let named = world.run(0, |m, t, now| m.link(t, found, NodeId::ROOT, b"g", now));
    assert_eq!(named.unwrap_err(), Errno::ENOENT);
    nothing_failed(&mut world);
    assert_eq!(read(&mut world, 0, opened.fh), b"data");
}
