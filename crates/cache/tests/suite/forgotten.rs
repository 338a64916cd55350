//! A server that has forgotten what it executed, and has it or has lost it.

use crate::both_sides::knowing;
use crate::trouble::power_cut;
use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

const AB: Access = Access { read: true, write: true };

fn flags() -> OpenFlags {
    OpenFlags { access: AB, ..OpenFlags::default() }
}

/// A mount that knows all there is, of a server that is about to go: what it has on its disk is noted by the test.
fn leaving() -> World {
    let mut world = knowing(1);
    (world.alone, world.server.unwatched) = (true, true);
    // Everything is changed here.
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    world
}

fn create(world: &mut World, name: &[u8], data: &'static [u8]) -> (NodeId, Fh) {
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags(), now)).unwrap();
    write(world, made.1.fh, 0, data);
    (made.0.node, made.1.fh)
}

fn write(world: &mut World, fh: Fh, at: u64, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    world.ms += 7;
    world.run(0, |m, t, now| m.write(t, fh, at, &data, now)).unwrap();
}

fn close(world: &mut World, fh: Fh) {
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

/// The server hears first who has open what is to be removed.
fn open_there<T>(world: &mut World, mut what: impl FnMut(&mut World) -> Result<T, Errno>) -> T {
    let done = what(world);
    if !matches!(done, Err(Errno::ETIMEDOUT)) {
        return done.unwrap();
    }
    world.alone = false;
    let done = what(world).unwrap();
    world.alone = true;
    done
}

fn rename(world: &mut World, from: &[u8], to: &[u8]) {
    let (from, to) = ((NodeId::ROOT, from), (NodeId::ROOT, to));
    open_there(world, |w| w.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now)));
}

fn chmod(world: &mut World, node: NodeId, mode: u32) {
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
}

/// Everything is sent; the last transaction of it. What is heard of it is on no disk.
fn send(world: &mut World, is_heard: bool) -> u64 {
    let now = world.now();
    world.clients[0].machine.hold(false);
    let _ = world.clients[0].machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    let mut last = 0;
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        last = batch.txn;
        let results = world.server.batch(0, &batch);
        if is_heard {
            world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        }
        world.check(0);
    }
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    last
}

/// What the server has now, with power or without, is what it goes on with; the mount goes on alone.
fn goes(world: &mut World, loses_power: bool) {
    if loses_power {
        power_cut(world);
    }
    world.disk = None;
    // What was open there has ended with its session.
    world.server.opens.clear();
}

/// What is in the root there, by name, in this order.
fn names(world: &World) -> Vec<String> {
    let names = world.server.fs.inodes[&ROOT].entries.keys();
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn data(world: &World, name: &[u8]) -> Vec<u8> {
    let ino = world.server.fs.look(ROOT, name).unwrap().expect("it is there");
    world.server.fs.inodes[&ino].data.clone()
}

fn conflicts(world: &World) -> Vec<String> {
    world.clients[0].machine.conflicts().iter().map(|c| c.what.clone()).collect()
}

const BEFORE: [&str; 4] = ["f", "g", "s", "t"];

/// It is kept only as something is named by it, and need not be looked for.
#[test]
fn what_is_known_to_be_on_the_disk_and_was_removed_there_since_is_not_made_again() {
    for dies in [false, true] {
        let mut world = leaving();
        let (file, fh) = create(&mut world, b"n", b"ours");
        close(&mut world, fh);
        let first = send(&mut world, true);
        chmod(&mut world, file, 0o600);
        send(&mut world, true);
        let now = world.now();
        world.clients[0].machine.stable_done(first, &[], now);
        assert_eq!(world.clients[0].machine.done_through(), first - 1, "it is kept for its name");
        goes(&mut world, false);
        let ino = world.server.fs.remove(ROOT, b"n", false).unwrap();
        world.server.fs.inodes.remove(&ino);
        world.come_back(dies, true);
        assert_eq!(names(&world), BEFORE, "dies: {dies}");
    }
}

#[test]
fn what_is_in_doubt_is_looked_at_as_who_has_changed_it() {
    let mut world = leaving();
    make(&mut world, b"n", b"ours");
    unlink(&mut world, b"g");
    send(&mut world, true);
    let doubts = world.clients[0].machine.doubts();
    assert!(!doubts.is_empty() && doubts.iter().all(|doubt| doubt.caller.uid == 7), "{doubts:?}");
}

/// A step of a story: each is sent by itself, and heard of.
type Step = fn(&mut World);

fn open(world: &mut World, name: &[u8]) -> Fh {
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("{}", name.escape_ascii()) };
    world.run(0, |m, t, now| m.open(t, entry.node, flags(), now)).unwrap().fh
}

fn make(world: &mut World, name: &[u8], data: &'static [u8]) {
    let (_, fh) = create(world, name, data);
    close(world, fh);
}

fn fill(world: &mut World, name: &[u8], at: u64, data: &'static [u8]) {
    let fh = open(world, name);
    write(world, fh, at, data);
    close(world, fh);
}

fn cut(world: &mut World, name: &[u8], size: u64) {
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("{}", name.escape_ascii()) };
    let changes = Changes { size: Some(size), ..Changes::default() };
    world.ms += 7;
    world.run(0, |m, t, now| m.setattr(t, entry.node, &changes, now)).unwrap();
}

fn unlink(world: &mut World, name: &[u8]) {
    open_there(world, |w| w.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, name, now)));
}

fn link(world: &mut World, from: &[u8], to: &[u8]) {
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, from, now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("{}", from.escape_ascii()) };
    world.run(0, |m, t, now| m.link(t, entry.node, NodeId::ROOT, to, now)).unwrap();
}

/// The files in the root there, with what they contain.
fn files(world: &World) -> Vec<String> {
    let fs = &world.server.fs;
    let names = fs.inodes[&ROOT].entries.iter().filter(|(_, ino)| fs.inodes[*ino].kind == Kind::File);
    let line = |(name, ino): (&Vec<u8>, &u64)| {
        format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(&fs.inodes[ino].data))
    };
    names.map(line).collect()
}

/// Whatever so many steps have left on the server's disk, with their data or without it, all of them are done in the end, and
/// nobody is told of anything.
fn comes_to(what: &str, steps: &[Step], expected: &[&str]) {
    for (kept, dies) in (0..=steps.len()).flat_map(|kept| [(kept, false), (kept, true)]) {
        for has_data in [true, false] {
            let mut world = leaving();
            let before = world.server.fs.clone();
            world.disk = Some(world.server.clone());
            for (at, step) in steps.iter().enumerate() {
                step(&mut world);
                send(&mut world, true);
                if at + 1 == kept {
                    world.disk = Some(world.server.clone());
                }
            }
            if !has_data {
                // Names and times are on the disk before the data is.
                for (ino, node) in &mut world.disk.as_mut().unwrap().fs.inodes {
                    node.data = before.inodes.get(ino).map(|node| node.data.clone()).unwrap_or_default();
                }
            }
            goes(&mut world, true);
            world.come_back(dies, true);
            let of = format!("{what}: {kept} are on the disk, data: {has_data}, dies: {dies}");
            assert_eq!(files(&world), expected, "{of}");
            assert_eq!(conflicts(&world), [""; 0], "{of}");
            assert_eq!(names(&world).len(), expected.len() + 2, "{of}: {:?}", names(&world));
        }
    }
}

const F: &str = "f=before 0";
const G: &str = "g=before 1";

#[test]
fn data_that_a_server_has_lost_is_written_again_whatever_time_the_file_has_there() {
    let steps: [Step; 2] = [|w| fill(w, b"f", 0, b"AAAA"), |w| fill(w, b"f", 4, b"BBBBBB")];
    comes_to("two of one that was there", &steps, &["f=AAAABBBBBB", G]);
    let steps: [Step; 3] =
        [|w| make(w, b"n", b"one"), |w| fill(w, b"n", 3, b"two"), |w| fill(w, b"n", 1, b"N")];
    comes_to("of one that is made", &steps, &[F, G, "n=oNetwo"]);
    let longer: Step = |w| {
        make(w, b"n", b"one");
        cut(w, b"n", 5);
    };
    comes_to("one that is longer than its data", &[longer], &[F, G, "n=one\0\0"]);
    let steps: [Step; 2] = [longer, |w| fill(w, b"n", 6, b"two")];
    comes_to("and is written to behind that", &steps, &[F, G, "n=one\0\0\0two"]);
    let steps: [Step; 3] = [|w| fill(w, b"f", 0, b"AAAA"), |w| cut(w, b"f", 2), |w| fill(w, b"f", 4, b"B")];
    comes_to("one that was cut off", &steps, &["f=AA\0\0B", G]);
}

#[test]
fn names_that_a_server_has_lost_are_given_again_by_what_there_is_in_the_end() {
    let steps: [Step; 2] = [|w| rename(w, b"f", b"x"), |w| rename(w, b"x", b"f")];
    comes_to("there and back", &steps, &[F, G]);
    let steps: [Step; 3] = [|w| rename(w, b"f", b"x"), |w| rename(w, b"x", b"y"), |w| rename(w, b"y", b"z")];
    comes_to("on and on", &steps, &[G, "z=before 0"]);
    let steps: [Step; 3] = [|w| link(w, b"f", b"x"), |w| unlink(w, b"f"), |w| link(w, b"x", b"f")];
    comes_to("a link, and a link back", &steps, &[F, G, "x=before 0"]);
    let steps: [Step; 2] = [|w| rename(w, b"f", b"x"), |w| link(w, b"x", b"f")];
    comes_to("moved, and linked back", &steps, &[F, G, "x=before 0"]);
    let steps: [Step; 2] = [|w| make(w, b"n", b"ours"), |w| unlink(w, b"n")];
    comes_to("made and removed", &steps, &[F, G]);
    let steps: [Step; 3] = [|w| make(w, b"n", b"ours"), |w| rename(w, b"n", b"m"), |w| unlink(w, b"m")];
    comes_to("made, moved and removed", &steps, &[F, G]);
    let steps: [Step; 2] = [|w| unlink(w, b"f"), |w| make(w, b"f", b"ours")];
    comes_to("removed and made", &steps, &["f=ours", G]);
    let steps: [Step; 3] = [|w| make(w, b"n", b"1"), |w| rename(w, b"n", b"m"), |w| make(w, b"n", b"2")];
    comes_to("made where another was made", &steps, &[F, G, "m=1", "n=2"]);
}

/// Each is written to another name, and renamed over the old one.
#[test]
fn a_file_that_was_saved_again_and_again_ends_as_it_was_saved_last() {
    let steps: [Step; 4] = [
        |w| make(w, b"tmp", b"first"),
        |w| rename(w, b"tmp", b"f"),
        |w| make(w, b"tmp", b"second"),
        |w| rename(w, b"tmp", b"f"),
    ];
    comes_to("twice", &steps, &["f=second", G]);
    let read: Step = |w| {
        rename(w, b"tmp", b"f");
        open(w, b"f");
    };
    comes_to("while somebody reads", &[steps[0], read, steps[2], steps[3]], &["f=second", G]);
    comes_to("and removed", &[steps[0], steps[1], |w| unlink(w, b"f")], &[G]);
    comes_to("and made", &[steps[0], steps[1], |w| unlink(w, b"f"), |w| make(w, b"f", b"2")], &["f=2", G]);
}

/// Nothing is lost, but the server does not know any more what it has done.
#[test]
fn what_was_made_and_removed_while_it_is_open_does_not_come_back() {
    for dies in [false, true] {
        let mut world = leaving();
        create(&mut world, b"n", b"ours");
        send(&mut world, true);
        unlink(&mut world, b"n");
        send(&mut world, true);
        goes(&mut world, false);
        world.come_back(dies, true);
        assert_eq!((names(&world), conflicts(&world)), (BEFORE.map(String::from).to_vec(), vec![]), "{dies}");
    }
}

#[test]
fn what_others_have_saved_meanwhile_is_not_replaced_unseen() {
    for dies in [false, true] {
        let mut world = leaving();
        world.disk = Some(world.server.clone());
        make(&mut world, b"tmp", b"ours");
        rename(&mut world, b"tmp", b"f");
        send(&mut world, true);
        goes(&mut world, true);
        let fs = &mut world.server.fs;
        let old = fs.remove(ROOT, b"f", false).unwrap();
        fs.inodes.remove(&old);
        let theirs = fs.make(ROOT, b"f", Kind::File, 0o644, 0).unwrap();
        fs.write(theirs, 0, b"theirs").unwrap();
        world.come_back(dies, true);
        let all = files(&world);
        assert_eq!((all.len(), &all[0][..]), (3, "f=theirs"), "{all:?}");
        assert!(all[1].starts_with("f-") && all[1].ends_with("=ours"), "{all:?}");
    }
}

#[test]
fn what_others_have_written_meanwhile_is_not_written_over() {
    for (dies, loses_power) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = leaving();
        world.disk = Some(world.server.clone());
        fill(&mut world, b"f", 0, b"ours");
        send(&mut world, true);
        goes(&mut world, loses_power);
        let fs = &mut world.server.fs;
        let ino = fs.look(ROOT, b"f").unwrap().unwrap();
        fs.get_mut(ino).unwrap().mtime = 99_999;
        fs.write(ino, 0, b"theirs").unwrap();
        world.come_back(dies, true);
        assert!(data(&world, b"f").starts_with(b"theirs"), "{:?}", files(&world));
        let told = conflicts(&world);
        assert!(told.len() == 1 && told[0].starts_with("changed here and there"), "{told:?}");
    }
}

#[test]
fn a_mode_that_a_server_has_lost_is_set_again_unless_others_have_set_another() {
    for (dies, theirs) in [(false, None), (true, None), (false, Some(0o400)), (true, Some(0o400))] {
        let mut world = leaving();
        world.disk = Some(world.server.clone());
        let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
        let Lookup::Found(entry) = found else { panic!("it is there") };
        for mode in [0o640, 0o660] {
            chmod(&mut world, entry.node, mode);
            send(&mut world, true);
        }
        goes(&mut world, true);
        let ino = world.server.fs.look(ROOT, b"f").unwrap().unwrap();
        if let Some(theirs) = theirs {
            world.server.fs.get_mut(ino).unwrap().mode = theirs;
        }
        world.come_back(dies, true);
        assert_eq!(world.server.fs.inodes[&ino].mode, theirs.unwrap_or(0o660), "dies: {dies}");
        let told = theirs.map(|_| "attributes set here and there: theirs are kept".to_owned());
        assert_eq!(conflicts(&world), Vec::from_iter(told), "dies: {dies}");
    }
}
