//! Files that are open at a server which forgets what has no name: their last name is hidden until the last close. What may have
//! another name keeps its data.

use crate::world::World;
use crate::world::fs;
use bytes::Bytes;
use holdfast_base::CapSet;
use holdfast_cache::*;

/// Mounts of a server that forgets what has no name.
fn mounts(clients: usize, caps: bool) -> World {
    let mut world = World::new(clients, caps, 1);
    for client in &mut world.clients {
        client.machine.settings_mut().preserves_unlinked = false;
    }
    world
}

fn write(world: &mut World, fh: Fh, at: u64, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    world.run(0, |m, t, now| m.write(t, fh, at, &data, now)).unwrap();
}

fn unlink(world: &mut World, name: &[u8]) {
    world.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, name, now)).unwrap();
}

fn close(world: &mut World, fh: Fh) {
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

fn link(world: &mut World, c: usize, file: NodeId, name: &[u8]) {
    world.run(c, |m, t, now| m.link(t, file, NodeId::ROOT, name, now)).unwrap();
}

fn found(world: &mut World, c: usize, name: &[u8]) -> NodeId {
    match world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap() {
        Lookup::Found(entry) => entry.node,
        absent @ Lookup::Absent { .. } => panic!("{absent:?}"),
    }
}

/// What a mount reads under a name.
fn read(world: &mut World, c: usize, name: &[u8]) -> Vec<u8> {
    let node = found(world, c, name);
    let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    let opened = world.run(c, |m, t, now| m.open(t, node, flags, now)).unwrap();
    let read = world.run(c, |m, t, now| m.read(t, opened.fh, 0, 64, now)).unwrap();
    let now = world.now();
    world.clients[c].machine.release(opened.fh, now);
    read.concat()
}

fn hides(world: &World) -> bool {
    world.server.fs.names().contains(".holdfast-")
}

/// All that is there under this name, at whatever mount, and at the server in the end.
fn has(world: &mut World, name: &[u8], data: &[u8]) {
    for c in 0..world.clients.len() {
        assert_eq!(read(world, c, name), data, "mount {c}");
    }
    world.drain();
    let file = world.server.fs.look(fs::ROOT, name).unwrap().unwrap();
    assert_eq!(world.server.fs.inodes[&file].data, data);
    assert_eq!(world.server.fs.inodes[&file].nlink, 1);
    assert!(!hides(world), "{}", world.server.fs.names());
    assert_eq!(world.clients[0].machine.take_reports(), []);
    (0..world.clients.len()).for_each(|c| world.check(c));
}

#[test]
fn of_two_names_that_are_known_one_is_removed_and_nothing_is_hidden() {
    let mut world = mounts(2, true);
    let (file, fh) = world.made_and_open(b"f");
    link(&mut world, 0, file, b"g");
    world.drain();
    world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap();
    write(&mut world, fh, 0, b"data");
    unlink(&mut world, b"f");
    assert!(!hides(&world), "{}", world.server.fs.names());
    close(&mut world, fh);
    has(&mut world, b"g", b"data");
}

/// That it has one more name the server has said while data of it was waiting, and nothing of the answer was kept.
#[test]
fn what_may_have_another_name_keeps_its_data_when_the_hidden_one_goes() {
    let mut world = mounts(2, true);
    let (file, fh) = world.made_and_open(b"f");
    world.drain();
    write(&mut world, fh, 0, b"data");
    world.clients[0].machine.settings_mut().batches = false;
    link(&mut world, 0, file, b"g");
    unlink(&mut world, b"f");
    assert!(hides(&world), "{}", world.server.fs.names());
    close(&mut world, fh);
    has(&mut world, b"g", b"data");
}

/// It is replaced by another, and not removed.
#[test]
fn nor_does_it_lose_that_when_its_name_is_given_to_another() {
    let mut world = mounts(2, true);
    let (_, other) = world.made_and_open(b"new");
    close(&mut world, other);
    let (file, fh) = world.made_and_open(b"f");
    world.drain();
    write(&mut world, fh, 0, b"data");
    world.clients[0].machine.settings_mut().batches = false;
    link(&mut world, 0, file, b"g");
    let names = ((NodeId::ROOT, &b"new"[..]), (NodeId::ROOT, &b"f"[..]));
    world.run(0, |m, t, now| m.rename(t, names.0, names.1, RenameMode::Replace, now)).unwrap();
    assert!(hides(&world), "{}", world.server.fs.names());
    close(&mut world, fh);
    has(&mut world, b"g", b"data");
}

/// Through its descriptor.
#[test]
fn what_gets_a_name_while_it_is_hidden_keeps_its_data() {
    let mut world = mounts(2, true);
    let (file, fh) = world.made_and_open(b"f");
    world.drain();
    write(&mut world, fh, 0, b"data");
    unlink(&mut world, b"f");
    assert!(hides(&world), "{}", world.server.fs.names());
    link(&mut world, 0, file, b"g");
    close(&mut world, fh);
    has(&mut world, b"g", b"data");
}

/// The name is of another mount's giving, and without promises nobody hears of it; each write is asked for.
#[test]
fn what_a_server_without_promises_took_is_put_on_its_disk_though_a_name_is_hidden() {
    let mut world = mounts(2, false);
    let (_, fh) = world.made_and_open(b"f");
    let file = found(&mut world, 1, b"f");
    link(&mut world, 1, file, b"g");
    write(&mut world, fh, 0, b"data");
    unlink(&mut world, b"f");
    assert!(hides(&world), "{}", world.server.fs.names());
    close(&mut world, fh);
    world.ms += 10_000;
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let commit = machine.take_commit(now).expect("it is to be put on disk");
    // The server has lost it.
    machine.commit_done(commit.id, Ok(8), now);
    let again = machine.take_write(now).expect("it is written again");
    assert_eq!((again.offset, &again.data[..]), (0, &b"data"[..]));
    machine.write_lost(again.id, now);
    has(&mut world, b"g", b"data");
}

#[test]
fn what_has_surely_no_other_name_is_not_sent() {
    let mut world = mounts(1, true);
    let (_, fh) = world.made_and_open(b"f");
    world.drain();
    write(&mut world, fh, 0, b"data");
    unlink(&mut world, b"f");
    assert!(hides(&world), "{}", world.server.fs.names());
    close(&mut world, fh);
    assert_eq!(world.clients[0].machine.stats().bytes_elided, 4);
    world.drain();
    assert!(!hides(&world), "{}", world.server.fs.names());
    assert_eq!(world.clients[0].machine.take_reports(), []);
}

/// Somebody else has it open, who waits for what was written.
#[test]
fn what_was_asked_back_goes_out_though_the_hidden_name_is_the_last() {
    let mut world = mounts(1, true);
    let (node, fh) = world.made_and_open(b"f");
    world.drain();
    let file = world.server.fs.look(fs::ROOT, b"f").unwrap().unwrap();
    write(&mut world, fh, 0, b"data");
    unlink(&mut world, b"f");
    world.server.opens.insert(1 << 20, (file, 1));
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let handle = machine.handle_of(node).unwrap();
    let keep = CapSet::ALL_X.without(CapSet::FILE_X_ALONE);
    machine.recalled(&handle, keep, world.server.last_seq + 1, now);
    machine.release(fh, now);
    world.drain();
    assert_eq!(world.server.fs.inodes[&file].data, b"data");
    assert_eq!(world.clients[0].machine.take_reports(), []);
}
