//! What becomes of what was changed here, while nobody could be asked, and there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod world;

use std::collections::BTreeMap;

use holdfast_cache::*;
use world::World;
use world::fs::ROOT;

const AB: Access = Access { read: true, write: true };

/// A mount that knows a directory with three files, and may do everything in it unasked; and the directory's number.
fn settled() -> (World, NodeId, u64) {
    let mut world = World::new(1, true, 1);
    world.kept = Some(BTreeMap::new());
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    for name in ["f", "g", "h"] {
        write(&mut world, dir, name, b"old", true);
    }
    world.drain();
    // The server's change attributes are learnt.
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.server.restart();
    world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"d", now)).unwrap();
    world.list(0, dir, true).unwrap();
    let mut items = vec![(world.clients[0].machine.handle_of(dir).unwrap(), CapSet::ALL)];
    for name in ["f", "g", "h"] {
        let node = find(&mut world, dir, name).unwrap();
        items.push((world.clients[0].machine.handle_of(node).unwrap(), CapSet::ALL));
    }
    let ask =
        Ask { at: Generation(u64::MAX), caller: Caller::new(7, 0), question: Question::Acquire { items } };
    let answer = world.perform(0, &ask);
    let now = world.now();
    world.clients[0].machine.absorb(&mut Turn::new(Caller::new(7, 0)), ask, answer, now);
    world.list(0, dir, true).unwrap();
    world.clients[0].machine.follow();
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    let ino = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    (world, dir, ino)
}

fn find(world: &mut World, dir: NodeId, name: &str) -> Option<NodeId> {
    match world.run(0, |m, t, now| m.lookup(t, dir, name.as_bytes(), now)).unwrap() {
        Lookup::Found(entry) => Some(entry.node),
        Lookup::Absent { .. } => None,
    }
}

fn write(world: &mut World, dir: NodeId, name: &str, data: &'static [u8], makes: bool) {
    let flags = OpenFlags { access: AB, truncate: !makes, ..OpenFlags::default() };
    let fh = if makes {
        world.run(0, |m, t, now| m.create(t, dir, name.as_bytes(), 0o644, flags, now)).unwrap().1.fh
    } else {
        let node = find(world, dir, name).unwrap();
        world.run(0, |m, t, now| m.open(t, node, flags, now)).unwrap().fh
    };
    world.run(0, |m, t, now| m.write(t, fh, 0, &bytes::Bytes::from_static(data), now)).unwrap();
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

fn remove(world: &mut World, dir: NodeId, name: &str) {
    world.run(0, |m, t, now| m.unlink(t, dir, name.as_bytes(), now)).unwrap();
}

fn rename(world: &mut World, dir: NodeId, from: &str, to: &str) {
    let mode = RenameMode::Replace;
    world.run(0, |m, t, now| m.rename(t, (dir, from.as_bytes()), (dir, to.as_bytes()), mode, now)).unwrap();
}

/// In a former life or in this one, the server is back: names with their contents, and what is told of conflicts.
fn merged(mut world: World, dir: u64, dies: bool) -> (Vec<(String, String)>, Vec<String>) {
    let now = world.now();
    if dies {
        world.keep(0);
        let settings = *world.clients[0].machine.settings_mut();
        let kept = world.kept.clone().unwrap();
        world.clients[0].machine = Machine::restore(&kept, settings, now).unwrap();
        world.clients[0].machine.follow();
    }
    world.check(0);
    world.server.restart();
    let claims = world.clients[0].machine.claims();
    let told: Vec<_> = claims.iter().map(|claim| world.server.reclaim(0, claim)).collect();
    let machine = &mut world.clients[0].machine;
    machine.merge(&told, now);
    machine.reclaimed(told, now);
    machine.hold(false);
    world.check(0);
    let _ = world.run(0, |m, t, now| m.sync(t, now));
    let entries = world.server.fs.inodes[&dir].entries.clone();
    let text = |ino: &u64| String::from_utf8_lossy(&world.server.fs.inodes[ino].data).into_owned();
    let named = |name: &[u8]| String::from_utf8_lossy(name).replace("19700101T", "T");
    let names =
        entries.iter().map(|(name, ino)| (named(name).split("-T").next().unwrap().to_owned(), text(ino)));
    let told = world.clients[0].machine.conflicts().iter();
    let told = told.map(|c| format!("{}: {}", String::from_utf8_lossy(&c.path), c.what));
    (names.collect(), told.collect())
}

/// Each row: what is done here, what there, what is there in the end, and what is told.
type Row = (
    &'static str,
    fn(&mut World, NodeId),
    fn(&mut World, u64),
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

fn there(world: &mut World, dir: u64, name: &str, data: &[u8]) {
    let fs = &mut world.server.fs;
    let ino = match fs.look(dir, name.as_bytes()).unwrap() {
        Some(ino) => ino,
        None => fs.make(dir, name.as_bytes(), Kind::File, 0o600, 0).unwrap(),
    };
    fs.get_mut(ino).unwrap().data.clear();
    fs.write(ino, 0, data).unwrap();
}

fn gone(world: &mut World, dir: u64, name: &str) {
    let ino = world.server.fs.remove(dir, name.as_bytes(), false).unwrap();
    world.server.fs.inodes.remove(&ino);
}

const ROWS: &[Row] = &[
    (
        "changed here",
        |w, d| write(w, d, "f", b"ours", false),
        |_, _| {},
        &[("f", "ours"), ("g", "old"), ("h", "old")],
        &[],
    ),
    (
        "changed on both sides",
        |w, d| write(w, d, "f", b"ours", false),
        |w, d| there(w, d, "f", b"theirs"),
        &[("f", "theirs"), ("f", "ours"), ("g", "old"), ("h", "old")],
        &["d/f: changed here and there"],
    ),
    (
        "changed here, removed there",
        |w, d| write(w, d, "f", b"ours", false),
        |w, d| gone(w, d, "f"),
        &[("f", "ours"), ("g", "old"), ("h", "old")],
        &["d/f: changed here, removed there"],
    ),
    (
        "removed here, changed there",
        |w, d| remove(w, d, "f"),
        |w, d| there(w, d, "f", b"theirs"),
        &[("f", "theirs"), ("g", "old"), ("h", "old")],
        &["d/f: removed here, changed there: theirs is kept"],
    ),
    (
        "removed on both sides",
        |w, d| remove(w, d, "f"),
        |w, d| gone(w, d, "f"),
        &[("g", "old"), ("h", "old")],
        &[],
    ),
    (
        "replaced here, changed there",
        |w, d| {
            write(w, d, "t", b"ours", true);
            rename(w, d, "t", "f");
        },
        |w, d| there(w, d, "f", b"theirs"),
        &[("f", "theirs"), ("f", "ours"), ("g", "old"), ("h", "old")],
        &["d/f: replaced here, changed there"],
    ),
    (
        "renamed here to a name made there",
        |w, d| rename(w, d, "f", "n"),
        |w, d| there(w, d, "n", b"theirs"),
        &[("f", "old"), ("g", "old"), ("h", "old"), ("n", "theirs")],
        &["d/f: renamed here, which failed there: EEXIST"],
    ),
    (
        "renamed here, changed there",
        |w, d| rename(w, d, "f", "n"),
        |w, d| there(w, d, "f", b"theirs"),
        &[("g", "old"), ("h", "old"), ("n", "theirs")],
        &[],
    ),
    (
        "made here",
        |w, d| write(w, d, "n", b"ours", true),
        |w, d| there(w, d, "g", b"theirs"),
        &[("f", "old"), ("g", "theirs"), ("h", "old"), ("n", "ours")],
        &[],
    ),
];

fn check(dies: bool) {
    for (what, here, over_there, names, told) in ROWS {
        let (mut world, dir, ino) = settled();
        here(&mut world, dir);
        world.server.fs.touch(ino);
        over_there(&mut world, ino);
        let (found, listed) = merged(world, ino, dies);
        let found: Vec<_> = found.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        assert_eq!(
            (&found[..], &listed[..]),
            (*names, &told.iter().map(|t| t.to_string()).collect::<Vec<_>>()[..]),
            "{what}, dies: {dies}"
        );
    }
}

#[test]
fn both_sides_are_kept_when_the_server_is_back() {
    check(false);
}

#[test]
fn and_when_another_life_of_the_client_meets_it() {
    check(true);
}
