//! Data that went by WRITE, and that a server may have lost before it was committed: what others have done to the file meanwhile.

use crate::both_sides::knowing;
use crate::trouble::power_cut;
use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

const SIZE: usize = 200 << 10;

/// A file that was written as a whole, and has its time; the server has it in its memory, and on its disk as it was before.
fn written() -> World {
    let mut world = knowing(1);
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("it is there") };
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let fh = world.run(0, |m, t, now| m.open(t, entry.node, flags, now)).unwrap().fh;
    let ours = Bytes::from(vec![b'o'; SIZE]);
    world.run(0, |m, t, now| m.write(t, fh, 0, &ours, now)).unwrap();
    let now = world.now();
    let before = world.server.fs.clone();
    let fsync =
        |w: &mut World| w.clients[0].machine.fsync(&mut Turn::new(Caller::new(7, 0)), entry.node, None, now);
    assert!(matches!(fsync(&mut world), Step::Wait(_)));
    while let Some(out) = world.clients[0].machine.take_write(now) {
        let said = world.server.write(0, &out).expect("nobody is in its way");
        world.clients[0].machine.write_done(out.id, said, now);
    }
    // Its time goes behind it.
    let _ = world.clients[0].machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        let results = world.server.batch(0, &batch);
        world.clients[0].machine.batch_done(batch.txn, results, batch.txn, now);
    }
    world.disk = Some(world.server.clone());
    for (ino, node) in &mut world.disk.as_mut().unwrap().fs.inodes {
        node.data = before.inodes[ino].data.clone();
    }
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    (world.alone, world.server.unwatched) = (true, true);
    world
}

/// Somebody else writes it in place, or saves it as editors do.
fn changed_there(world: &mut World, saves: bool) {
    let fs = &mut world.server.fs;
    let mut ino = fs.look(ROOT, b"f").unwrap().unwrap();
    if saves {
        fs.remove(ROOT, b"f", false).unwrap();
        fs.inodes.remove(&ino);
        ino = fs.make(ROOT, b"f", Kind::File, 0o644, 0).unwrap();
    }
    fs.get_mut(ino).unwrap().data.clear();
    fs.write(ino, 0, b"theirs").unwrap();
    fs.get_mut(ino).unwrap().mtime = 99_999;
}

/// What there is of it, whether it is as we wrote it.
fn found(world: &World) -> Vec<(String, bool)> {
    let fs = &world.server.fs;
    let names = fs.inodes[&ROOT].entries.iter().filter(|(name, _)| name.starts_with(b"f"));
    let plain = |name: &[u8]| if name == b"f" { "f".into() } else { "aside".to_owned() };
    names.map(|(name, ino)| (plain(name), fs.inodes[ino].data == vec![b'o'; SIZE])).collect()
}

#[test]
fn what_a_server_has_lost_of_what_it_took_is_kept_beside_what_others_made_of_the_file() {
    for (saves, dies) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = written();
        power_cut(&mut world);
        world.disk = None;
        changed_there(&mut world, saves);
        world.come_back(dies, false);
        let both = [("aside".to_owned(), true), ("f".to_owned(), false)];
        let mut all = found(&world);
        all.sort();
        assert_eq!(all, both, "saves: {saves}, dies: {dies}");
        assert_eq!(world.clients[0].machine.conflicts().len(), 1, "saves: {saves}, dies: {dies}");
    }
}

#[test]
fn it_is_written_again_where_nobody_has_changed_the_file() {
    for dies in [false, true] {
        let mut world = written();
        power_cut(&mut world);
        world.disk = None;
        world.come_back(dies, false);
        assert_eq!(found(&world), [("f".to_owned(), true)], "dies: {dies}");
        assert!(world.clients[0].machine.conflicts().is_empty());
    }
}

#[test]
fn what_the_server_had_on_its_disk_others_have_changed_as_they_may() {
    for dies in [false, true] {
        let mut world = written();
        world.disk = None;
        changed_there(&mut world, false);
        world.come_back(dies, false);
        assert_eq!(found(&world), [("f".to_owned(), false)], "dies: {dies}");
        assert!(world.clients[0].machine.conflicts().is_empty());
    }
}
