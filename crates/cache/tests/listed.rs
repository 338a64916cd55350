//! Directories listed while what is in them changes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod world;

use holdfast_cache::*;
use world::World;

const FILES: usize = 300;

/// A directory that is known here, with so many files.
fn known() -> (World, NodeId) {
    let mut world = World::new(1, true, 1);
    *world.clients[0].machine.settings_mut() = Settings::full();
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    for i in 0..FILES {
        make(&mut world, dir, &format!("f{i}"));
    }
    (world, dir)
}

fn make(world: &mut World, dir: NodeId, name: &str) {
    let file = (Kind::File, Device::default());
    world.run(0, |m, t, now| m.mknod(t, dir, name.as_bytes(), file, 0o644, now)).unwrap();
}

fn rename(world: &mut World, dir: NodeId, from: &[u8], to: &[u8]) {
    world.run(0, |m, t, now| m.rename(t, (dir, from), (dir, to), RenameMode::Replace, now)).unwrap();
}

fn open(world: &mut World, dir: NodeId) -> Fh {
    world.run(0, |m, t, now| m.opendir(t, dir, now)).unwrap()
}

/// The next few entries behind a position.
fn some(world: &mut World, fh: Fh, offset: u64) -> Vec<(Name, u64)> {
    let mut part = Vec::new();
    let read = |m: &mut Machine, t: &mut Turn, now| {
        part.clear();
        let mut take = |entry: &DirEntry| {
            part.push((entry.name.clone(), entry.offset));
            part.len() < 7
        };
        m.readdir(t, fh, offset, false, &mut take, now)
    };
    world.run(0, read).unwrap();
    part
}

#[test]
fn a_listing_ends_though_all_that_it_shows_is_renamed() {
    let (mut world, dir) = known();
    let fh = open(&mut world, dir);
    let (mut shown, mut offset) = (0, 0);
    loop {
        let part = some(&mut world, fh, offset);
        let Some((_, last)) = part.last() else { break };
        offset = *last;
        for (name, _) in &part {
            rename(&mut world, dir, name.as_bytes(), b"other");
            rename(&mut world, dir, b"other", name.as_bytes());
        }
        shown += part.len();
        assert!(shown <= 2 * FILES, "it goes on and on");
    }
    assert_eq!(shown, FILES);
    // From the beginning it shows all there is.
    assert!(!some(&mut world, fh, 0).is_empty());
}

#[test]
fn a_listing_shows_a_name_that_another_file_has_taken_over() {
    let (mut world, dir) = known();
    let fh = open(&mut world, dir);
    let first = some(&mut world, fh, 0);
    make(&mut world, dir, "new");
    let last = format!("f{}", FILES - 1);
    rename(&mut world, dir, b"new", last.as_bytes());
    let (mut names, mut offset) = (Vec::new(), first.last().unwrap().1);
    loop {
        let part = some(&mut world, fh, offset);
        let Some((_, last)) = part.last() else { break };
        offset = *last;
        names.extend(part.into_iter().map(|(name, _)| name));
    }
    assert_eq!(names.iter().filter(|name| name.as_bytes() == last.as_bytes()).count(), 1);
    assert_eq!(first.len() + names.len(), FILES);
}
