//! Whole trees removed: how much of that a server hears, and that it is what was there.

use std::collections::BTreeMap;

use crate::world::World;
use crate::world::fs::ROOT;
use holdfast_cache::*;

/// A server with a tree of so many directories side by side, of so many files each; and a mount that has seen nothing of it.
fn planted(dirs: usize, files: usize) -> World {
    let mut world = World::new(1, true, 1);
    let fs = &mut world.server.fs;
    let top = fs.make(ROOT, b"top", Kind::Dir, 0o755, 7).unwrap();
    for dir in 0..dirs {
        let dir = fs.make(top, format!("d{dir}").as_bytes(), Kind::Dir, 0o755, 7).unwrap();
        for file in 0..files {
            fs.make(dir, format!("f{file}").as_bytes(), Kind::File, 0o644, 7).unwrap();
        }
    }
    world.server.page = 300;
    world.server.asked = Some(Vec::new());
    *world.clients[0].machine.settings_mut() = Settings::full();
    world
}

fn lookup(world: &mut World, dir: NodeId, name: &Name) -> NodeId {
    match world.run(0, |m, t, now| m.lookup(t, dir, name.as_bytes(), now)).unwrap() {
        Lookup::Found(entry) => entry.node,
        Lookup::Absent { .. } => panic!("{name:?} is there"),
    }
}

fn list(world: &mut World, dir: NodeId) -> Vec<(Name, Kind)> {
    let fh = world.run(0, |m, t, now| m.opendir(t, dir, now)).unwrap().fh;
    let (mut all, mut offset) = (Vec::new(), 0);
    loop {
        let mut part = Vec::new();
        let read = |m: &mut Machine, t: &mut Turn, now| {
            part.clear();
            let mut take = |entry: &DirEntry| {
                part.push((entry.name.clone(), entry.kind.unwrap(), entry.offset));
                true
            };
            m.readdir(t, fh, offset, true, &mut take, now)
        };
        world.run(0, read).unwrap();
        let Some(last) = part.last() else { break };
        offset = last.2;
        all.extend(part.into_iter().map(|(name, kind, _)| (name, kind)));
    }
    world.clients[0].machine.releasedir(fh);
    all
}

/// As `rm -r` does it.
fn remove_all(world: &mut World, dir: NodeId, name: &Name) {
    let node = lookup(world, dir, name);
    for (below, kind) in list(world, node) {
        if kind == Kind::Dir {
            remove_all(world, node, &below);
        } else {
            lookup(world, node, &below);
            world.run(0, |m, t, now| m.unlink(t, node, below.as_bytes(), now)).unwrap();
        }
    }
    world.run(0, |m, t, now| m.rmdir(t, dir, name.as_bytes(), now)).unwrap();
}

fn kind_of(question: &Question) -> &'static str {
    match question {
        Question::Lookup { .. } => "lookup",
        Question::List { .. } => "list",
        Question::Acquire { .. } => "acquire",
        Question::Remove { .. } => "remove",
        Question::GetAttr { .. } => "getattr",
        Question::WhoAmI => "whoami",
        _ => "other",
    }
}

/// How many questions of each kind there were; they are forgotten.
fn counted(world: &mut World) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for question in world.server.asked.replace(Vec::new()).unwrap() {
        *counts.entry(kind_of(&question)).or_default() += 1;
    }
    counts
}

#[test]
fn removing_a_tree_that_was_never_looked_at_asks_once_for_each_directory() {
    let mut world = planted(12, 6);
    remove_all(&mut world, NodeId::ROOT, &Name::new(b"top"));
    let counts = counted(&mut world);
    assert_eq!(counts["list"], 13, "{counts:?}");
    let others: usize = counts.values().sum::<usize>() - counts["list"];
    assert!(others <= 6, "until it is seen what is going on: {counts:?}");
    world.drain();
    assert_eq!(counted(&mut world), BTreeMap::new());
    assert!(world.server.fs.get(ROOT).unwrap().entries.is_empty());
}

#[test]
fn what_is_not_below_a_directory_that_is_being_cleared_is_listed_without_claims() {
    let mut world = planted(3, 2);
    let elsewhere = world.server.fs.make(ROOT, b"elsewhere", Kind::Dir, 0o755, 7).unwrap();
    world.server.fs.make(elsewhere, b"below", Kind::Dir, 0o755, 7).unwrap();
    let wishes = |world: &mut World| -> Vec<bool> {
        let asked = world.server.asked.replace(Vec::new()).unwrap();
        let lists = asked.iter().filter_map(|question| match question {
            Question::List { want, want_dir, .. } => Some(want.is_exclusive() || want_dir.is_exclusive()),
            _ => None,
        });
        lists.collect()
    };
    let top = lookup(&mut world, NodeId::ROOT, &Name::new(b"top"));
    assert_eq!(list(&mut world, top).len(), 3);
    remove_all(&mut world, top, &Name::new(b"d0"));
    assert_eq!(wishes(&mut world), [false, false], "nobody knows yet");
    let elsewhere = lookup(&mut world, NodeId::ROOT, &Name::new(b"elsewhere"));
    list(&mut world, elsewhere);
    let below = lookup(&mut world, elsewhere, &Name::new(b"below"));
    list(&mut world, below);
    assert_eq!(wishes(&mut world), [false, false], "other directories");
    remove_all(&mut world, top, &Name::new(b"d1"));
    assert_eq!(wishes(&mut world), [true], "the next beside it");
    world.ms += holdfast_base::limits::CLEARING_MS;
    let rest = lookup(&mut world, top, &Name::new(b"d2"));
    list(&mut world, rest);
    assert_eq!(wishes(&mut world), [false], "after a while it is over");
}

#[test]
fn what_was_just_asked_back_is_not_asked_for_with_each_removal_beside_it() {
    let mut world = planted(1, 40);
    let top = lookup(&mut world, NodeId::ROOT, &Name::new(b"top"));
    let dir = lookup(&mut world, top, &Name::new(b"d0"));
    let files = list(&mut world, dir);
    let there = |world: &World, above, name: &[u8]| world.server.fs.look(above, name).unwrap().unwrap();
    let there_dir = there(&world, there(&world, ROOT, b"top"), b"d0");
    for (name, _) in &files {
        let file = there(&world, there_dir, name.as_bytes());
        world.server.wants(1, file);
    }
    world.drain();
    counted(&mut world);
    let remove = |world: &mut World, name: &Name| {
        world.run(0, |m, t, now| m.unlink(t, dir, name.as_bytes(), now)).unwrap();
    };
    files[..20].iter().for_each(|(name, _)| remove(&mut world, name));
    let counts = counted(&mut world);
    assert_eq!(counts.get("acquire"), None, "{counts:?}");
    assert_eq!(counts["remove"], 20, "{counts:?}");
    world.ms += holdfast_base::limits::REACQUIRE_PAUSE_MS;
    files[20..].iter().for_each(|(name, _)| remove(&mut world, name));
    let counts = counted(&mut world);
    assert!(counts.values().sum::<usize>() <= 3, "all that are left with one question: {counts:?}");
}
