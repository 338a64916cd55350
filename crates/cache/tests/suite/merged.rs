//! What becomes of what was changed here, while nobody could be asked, and there.

use std::collections::BTreeMap;

use crate::world::World;
use crate::world::fs::ROOT;
use holdfast_cache::*;

const AB: Access = Access { read: true, write: true };

/// A mount that knows a directory with files, links and directories, and may do everything in it unasked; and the
/// directory's number.
fn settled() -> (World, NodeId, u64) {
    let mut world = World::new(1, true, 1);
    world.kept = Some(BTreeMap::new());
    world.clients[0].machine.follow();
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    for name in ["f", "g", "s/", "s/a", "s/u/", "t/"] {
        match name.strip_suffix('/') {
            Some(name) => mkdir(&mut world, dir, name),
            None => write(&mut world, dir, name, b"old", true),
        }
    }
    world.drain();
    // The server's change attributes are learnt.
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.server.restart();
    world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"d", now)).unwrap();
    let mut items = vec![(world.clients[0].machine.handle_of(dir).unwrap(), CapSet::ALL_X)];
    for _ in 0..2 {
        // Once to have them, and once more under what was granted.
        world.list(0, dir, true).unwrap();
        for name in ["f", "g", "s", "s/a", "s/u", "t"] {
            let node = find(&mut world, dir, name).unwrap();
            items.push((world.clients[0].machine.handle_of(node).unwrap(), CapSet::ALL_X));
        }
        acquire(&mut world, std::mem::take(&mut items));
        for name in ["s", "s/u", "t"] {
            let node = find(&mut world, dir, name).unwrap();
            world.list(0, node, true).unwrap();
        }
    }
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    world.alone = true;
    world.server.unwatched = true;
    let ino = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    (world, dir, ino)
}

/// Another caller's operation, with the server there or not, as the world is.
fn by_another<T>(
    world: &mut World,
    mut op: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
) -> Result<T, Errno> {
    let mut turn = Turn::new(Caller::new(8, 8));
    loop {
        let now = world.now();
        match op(&mut world.clients[0].machine, &mut turn, now) {
            Step::Done(done) => return Ok(done),
            Step::Failed(errno) => return Err(errno),
            Step::Ask(_) | Step::Wait(_) if world.alone => return Err(Errno::ETIMEDOUT),
            Step::Wait(_) => world.pump(0),
            Step::Ask(ask) => {
                let answer = world.perform(0, &ask);
                let now = world.now();
                world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
            }
        }
    }
}

#[test]
fn who_has_only_read_while_the_server_was_there_makes_files_without_it() {
    let reads: [fn(&mut World, NodeId); 2] = [
        |world, dir| {
            by_another(world, |m, t, now| m.opendir(t, dir, now)).unwrap();
        },
        |world, dir| {
            let node = find(world, dir, "f").unwrap();
            let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
            by_another(world, |m, t, now| m.open(t, node, flags, now)).unwrap();
        },
    ];
    for (n, read) in reads.into_iter().enumerate() {
        let (mut world, dir, _) = settled();
        world.clients[0].machine.hold(false);
        world.alone = false;
        read(&mut world, dir);
        // A word that does not come any more, as the server goes, is not held against anybody.
        let now = world.now();
        world.clients[0].machine.greeted();
        let ask = Ask { at: Generation(u64::MAX), caller: Caller::new(8, 8), question: Question::WhoAmI };
        let answer = Err(Errno::ETIMEDOUT);
        world.clients[0].machine.absorb(&mut Turn::new(Caller::new(8, 8)), ask, answer, now);
        world.clients[0].machine.hold(true);
        world.clients[0].machine.assume();
        world.alone = true;
        let flags = OpenFlags { access: AB, ..OpenFlags::default() };
        let made = by_another(&mut world, |m, t, now| m.create(t, dir, b"new", 0o644, flags, now));
        assert!(made.is_ok(), "{n}: {made:?}");
    }
}

#[test]
fn in_a_directory_that_was_only_listed_files_are_made_without_the_server() {
    for (dies, hands_on) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new(1, true, 1);
        world.kept = Some(BTreeMap::new());
        world.clients[0].machine.follow();
        // Nothing is had exclusively.
        world.server.generous = false;
        let ino = world.server.fs.make(ROOT, b"d", Kind::Dir, 0o755, 7).unwrap();
        world.server.handing_on = Some(if hands_on { [ino].into() } else { [].into() });
        let dir = find(&mut world, NodeId::ROOT, "d").unwrap();
        let handle = world.clients[0].machine.handle_of(dir).unwrap();
        acquire(&mut world, vec![(handle, CapSet::ALL_S)]);
        world.list(0, dir, true).unwrap();
        if dies {
            world.keep(0);
            let (settings, now) = (*world.clients[0].machine.settings_mut(), world.now());
            let kept = world.kept.clone().unwrap();
            world.clients[0].machine = Machine::restore(&kept, settings, now).unwrap();
            world.clients[0].machine.follow();
        }
        world.clients[0].machine.hold(true);
        world.clients[0].machine.assume();
        world.alone = true;
        world.server.unwatched = true;
        let flags = OpenFlags { access: AB, ..OpenFlags::default() };
        let made = world.run(0, |m, t, now| m.create(t, dir, b"new", 0o644, flags, now));
        // What would be made of its mode nobody knows there.
        let expected = if hands_on { Err(Errno::ETIMEDOUT) } else { Ok(()) };
        assert_eq!(made.map(drop), expected, "dies: {dies}");
        if !hands_on {
            let (found, told) = merged(world, ino, dies);
            assert_eq!((found, told), (vec!["new=".to_owned()], Vec::new()), "dies: {dies}");
        }
    }
}

fn acquire(world: &mut World, items: Vec<(Handle, CapSet)>) {
    let question = Question::Acquire { items };
    let ask = Ask { at: Generation(u64::MAX), caller: Caller::new(7, 0), question };
    let answer = world.perform(0, &ask);
    let now = world.now();
    world.clients[0].machine.absorb(&mut Turn::new(Caller::new(7, 0)), ask, answer, now);
}

/// The directory of a path below one, and the name in it.
fn place<'p>(world: &mut World, dir: NodeId, path: &'p str) -> (NodeId, &'p str) {
    match path.rsplit_once('/') {
        Some((above, name)) => (find(world, dir, above).unwrap(), name),
        None => (dir, path),
    }
}

fn find(world: &mut World, dir: NodeId, path: &str) -> Option<NodeId> {
    let mut at = dir;
    for name in path.split('/') {
        match world.run(0, |m, t, now| m.lookup(t, at, name.as_bytes(), now)).unwrap() {
            Lookup::Found(entry) => at = entry.node,
            Lookup::Absent { .. } => return None,
        }
    }
    Some(at)
}

fn mkdir(world: &mut World, dir: NodeId, path: &str) {
    let (dir, name) = place(world, dir, path);
    world.run(0, |m, t, now| m.mkdir(t, dir, name.as_bytes(), 0o755, now)).unwrap();
}

fn write(world: &mut World, dir: NodeId, path: &str, data: &'static [u8], makes: bool) {
    let (dir, name) = place(world, dir, path);
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

fn remove(world: &mut World, dir: NodeId, path: &str) {
    let (dir, name) = place(world, dir, path);
    world.run(0, |m, t, now| m.unlink(t, dir, name.as_bytes(), now)).unwrap();
}

fn rmdir(world: &mut World, dir: NodeId, path: &str) {
    let (dir, name) = place(world, dir, path);
    world.run(0, |m, t, now| m.rmdir(t, dir, name.as_bytes(), now)).unwrap();
}

fn try_rename(world: &mut World, dir: NodeId, from: &str, to: &str) -> Result<(), Errno> {
    let (from, to) = (place(world, dir, from), place(world, dir, to));
    let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
    world.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now))
}

fn rename(world: &mut World, dir: NodeId, from: &str, to: &str) {
    try_rename(world, dir, from, to).unwrap();
}

fn link(world: &mut World, dir: NodeId, from: &str, to: &str) {
    let node = find(world, dir, from).unwrap();
    let (dir, name) = place(world, dir, to);
    world.run(0, |m, t, now| m.link(t, node, dir, name.as_bytes(), now)).unwrap();
}

fn symlink(world: &mut World, dir: NodeId, path: &str, text: &'static [u8]) {
    let (dir, name) = place(world, dir, path);
    let text = bytes::Bytes::from_static(text);
    world.run(0, |m, t, now| m.symlink(t, dir, name.as_bytes(), &text, now)).unwrap();
}

fn chmod(world: &mut World, dir: NodeId, path: &str, mode: u32) {
    let node = find(world, dir, path).unwrap();
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
}

/// In a former life or in this one, the server is back: what is there, and what is told of conflicts.
fn merged(mut world: World, dir: u64, dies: bool) -> (Vec<String>, Vec<String>) {
    world.come_back(dies, false);
    let mut found = Vec::new();
    show(&world, dir, "", &mut found);
    let told = world.clients[0].machine.conflicts().iter();
    let told = told.map(|c| {
        let aside = c.kept_as.as_ref().map(|n| format!(" ({})", plain(n.as_bytes())));
        format!("{}: {}{}", String::from_utf8_lossy(&c.path), c.what, aside.unwrap_or_default())
    });
    let told = told.collect();
    // What this mount sees is what there is.
    let names: Vec<_> = found.iter().filter(|line| !line.trim_end_matches('/').contains('/')).collect();
    let node = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"d", now)).unwrap();
    let Lookup::Found(node) = node else { panic!("it is there") };
    assert_eq!(world.list(0, node.node, true).unwrap().len(), names.len(), "{found:?}");
    (found, told)
}

/// A name without the time or the number that tells it from another.
fn plain(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).into_owned();
    match name.find("-1970").or_else(|| name.find("-K")) {
        Some(at) => format!("{}-T", &name[..at]),
        None => name,
    }
}

/// A line for each name below a directory, with what a file or link contains and a mode that is not the usual one.
fn show(world: &World, dir: u64, above: &str, out: &mut Vec<String>) {
    for (name, ino) in &world.server.fs.inodes[&dir].entries {
        let node = &world.server.fs.inodes[ino];
        let path = format!("{above}{}", plain(name));
        let mode = if [0o644, 0o755, 0o777].contains(&node.mode) {
            String::new()
        } else {
            format!(" {:o}", node.mode)
        };
        let text = String::from_utf8_lossy(&node.data);
        match node.kind {
            Kind::Dir => {
                let path = format!("{path}/");
                out.push(format!("{path}{mode}"));
                show(world, *ino, &path, out);
            }
            Kind::Symlink => out.push(format!("{path} -> {text}")),
            Kind::File => out.push(format!("{path}={text}{mode}")),
            other => out.push(format!("{path} {other:?}")),
        }
    }
}

/// Each row: what is done here, what there, what differs in the end from before, and what is told.
type Row = (
    &'static str,
    fn(&mut World, NodeId),
    fn(&mut World, u64),
    &'static [&'static str],
    &'static [&'static str],
);

/// What there is at the beginning.
const BEFORE: [&str; 6] = ["f=old", "g=old", "s/", "s/a=old", "s/u/", "t/"];

fn at<'p>(world: &World, dir: u64, path: &'p str) -> (u64, &'p [u8]) {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let step = |at, name: &str| world.server.fs.look(at, name.as_bytes()).unwrap().unwrap();
    (above.split('/').filter(|name| !name.is_empty()).fold(dir, step), name.as_bytes())
}

fn there(world: &mut World, dir: u64, path: &str, data: &[u8]) {
    let (dir, name) = at(world, dir, path);
    let fs = &mut world.server.fs;
    let ino = match fs.look(dir, name).unwrap() {
        Some(ino) => ino,
        None => fs.make(dir, name, Kind::File, 0o644, 0).unwrap(),
    };
    fs.get_mut(ino).unwrap().data.clear();
    fs.write(ino, 0, data).unwrap();
}

fn gone(world: &mut World, dir: u64, path: &str) {
    let (dir, name) = at(world, dir, path);
    let fs = &mut world.server.fs;
    let is_dir = fs.get(fs.look(dir, name).unwrap().unwrap()).unwrap().kind == Kind::Dir;
    let ino = fs.remove(dir, name, is_dir).unwrap();
    fs.inodes.remove(&ino);
}

fn made_there(world: &mut World, dir: u64, path: &str, kind: Kind) {
    let (dir, name) = at(world, dir, path);
    world.server.fs.make(dir, name, kind, 0o755, 0).unwrap();
}

fn moved_there(world: &mut World, dir: u64, from: &str, to: &str) {
    let (from, to) = (at(world, dir, from), at(world, dir, to));
    let ino = world.server.fs.look(from.0, from.1).unwrap().unwrap();
    world.server.fs.rename(from, to, RenameMode::Replace).unwrap();
    // As file systems do.
    world.server.fs.touch(ino);
}

/// As editors save: a new file, renamed over the old one.
fn saved_there(world: &mut World, dir: u64, path: &str) {
    let (above, name) = at(world, dir, path);
    let old = world.server.fs.look(above, name).unwrap().unwrap();
    there(world, dir, "tmp", b"theirs");
    moved_there(world, dir, "tmp", path);
    world.server.fs.inodes.remove(&old);
}

fn removed_there(world: &mut World, dir: u64) {
    ["s/a", "s/u", "s"].into_iter().for_each(|path| gone(world, dir, path));
}

mod full;

include!("merged/rows.rs");

fn check(rows: &[Row], dies: bool) {
    let mut wrong = String::new();
    for (what, here, over_there, names, told) in rows {
        let (mut world, dir, ino) = settled();
        here(&mut world, dir);
        world.server.fs.touch(ino);
        over_there(&mut world, ino);
        let (found, listed) = merged(world, ino, dies);
        let gone =
            BEFORE.iter().filter(|line| !found.contains(&line.to_string())).map(|line| format!("-{line}"));
        let new = found.iter().filter(|line| !BEFORE.contains(&line.as_str())).map(|line| format!("+{line}"));
        let differs: Vec<_> = gone.chain(new).collect();
        if differs != *names || listed != *told {
            wrong.push_str(&format!("{what}: {differs:?}\n    {listed:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "dies: {dies}\n{wrong}");
}

#[test]
fn both_sides_are_kept_when_the_server_is_back() {
    check(CONTENTS, false);
}

#[test]
fn and_when_another_life_of_the_client_meets_it() {
    check(CONTENTS, true);
}

#[test]
fn names_that_both_sides_gave_end_in_one_tree() {
    check(NAMES, false);
    check(NAMES, true);
}

#[test]
fn directories_become_one_and_what_was_put_into_one_that_is_gone_is_kept() {
    check(DIRECTORIES, false);
    check(DIRECTORIES, true);
}

#[test]
fn what_was_put_into_a_directory_that_is_gone_is_kept_though_its_name_was_forgotten() {
    for dies in [false, true] {
        let (mut world, dir, ino) = settled();
        write(&mut world, dir, "s/new", b"ours", true);
        write(&mut world, dir, "f", b"ours", false);
        // The server is back; what is above them is not as it was, so that no name in it is relied on any more.
        there(&mut world, ino, "other", b"theirs");
        world.server.restart();
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        let told: Vec<_> = machine.claims().iter().map(|claim| world.server.reclaim(0, claim)).collect();
        machine.merge(&told, Vec::new(), now);
        machine.reclaimed(told, now);
        // It goes again before anything was sent.
        machine.assume();
        removed_there(&mut world, ino);
        gone(&mut world, ino, "f");
        let (found, told) = merged(world, ino, dies);
        let new: Vec<_> = found.iter().filter(|line| !BEFORE.contains(&line.as_str())).collect();
        assert_eq!(new, ["f-T=ours", "other=theirs", "s-T/", "s-T/new=ours"], "dies: {dies}");
        let filled = "d/s: filled here, removed there (s-T)".to_string();
        assert!(told.contains(&filled), "{told:?}");
    }
}

#[test]
fn a_directory_is_not_moved_below_itself_while_nobody_can_be_asked() {
    let (mut world, dir, _) = settled();
    assert_eq!(try_rename(&mut world, dir, "s", "s/u/x"), Err(Errno::EINVAL));
    rename(&mut world, dir, "s/u", "t/u");
    assert_eq!(try_rename(&mut world, dir, "t", "t/u/t"), Err(Errno::EINVAL));
}
