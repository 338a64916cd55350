//! Changes at random here, while nobody could be asked, and there: whatever either side has last written and not removed is
//! there in the end, and the mount sees what there is.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::World;
use crate::world::choice::config;
use crate::world::fs::{Fs, ROOT};
use bytes::Bytes;
use holdfast_cache::*;
use proptest::prelude::*;

const PATHS: [&str; 13] =
    ["f", "g", "n", "s", "t", "s/f", "s/g", "s/u", "t/f", "t/u", "n/f", "s/u/f", "t/u/f"];

/// One thing that somebody does.
#[derive(Clone, Debug)]
enum Step {
    /// Writes a file anew, making it where it is not.
    Save(u8),
    /// The same, as editors do: a new file, renamed over the old one.
    Replace(u8),
    Unlink(u8),
    Rename(u8, u8),
    Link(u8, u8),
    Mkdir(u8),
    Rmdir(u8),
    Chmod(u8),
    /// Removes a directory with all that is in it; done there alone.
    RemoveTree(u8),
}

/// What they do at once to what is there: nothing of it is as it was.
fn their_step() -> impl Strategy<Value = Step> {
    let file = || prop::sample::select(vec![0_u8, 1, 5, 8, 11]);
    prop_oneof![
        2 => file().prop_map(Step::Replace),
        2 => file().prop_map(Step::Unlink),
        2 => prop::sample::select(vec![3_u8, 4, 7]).prop_map(Step::RemoveTree),
        3 => step(),
    ]
}

/// The same, without changes of contents in place, and what was made is where it was made or nowhere.
fn their_plain_step() -> impl Strategy<Value = Step> {
    their_step().prop_filter("in place, or elsewhere", |step| {
        !matches!(step, Step::Save(_) | Step::Rename(..) | Step::Link(..))
    })
}

fn step() -> impl Strategy<Value = Step> {
    let p = || 0..u8::try_from(PATHS.len()).unwrap();
    prop_oneof![
        6 => p().prop_map(Step::Save),
        3 => p().prop_map(Step::Replace),
        3 => p().prop_map(Step::Unlink),
        5 => (p(), p()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (p(), p()).prop_map(|(from, to)| Step::Link(from, to)),
        2 => p().prop_map(Step::Mkdir),
        2 => p().prop_map(Step::Rmdir),
        1 => p().prop_map(Step::Chmod),
    ]
}

/// A file system by paths, as its own applications see it.
struct Side<'f>(&'f mut Fs);

type Done = Result<(), Errno>;

impl Side<'_> {
    fn at<'p>(&self, path: &'p str) -> Result<(u64, &'p [u8]), Errno> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at = ROOT;
        for part in above.split('/').filter(|part| !part.is_empty()) {
            at = self.0.look(at, part.as_bytes())?.ok_or(Errno::ENOENT)?;
        }
        (self.0.get(at)?.kind == Kind::Dir).then_some((at, name.as_bytes())).ok_or(Errno::ENOTDIR)
    }

    fn save(&mut self, path: &str, data: &str) -> Done {
        let (dir, name) = self.at(path)?;
        let ino = match self.0.look(dir, name)? {
            Some(ino) if self.0.get(ino)?.kind == Kind::Dir => return Err(Errno::EISDIR),
            Some(ino) => ino,
            None => self.0.make(dir, name, Kind::File, 0o644, 0)?,
        };
        self.0.get_mut(ino)?.data.clear();
        self.0.write(ino, 0, data.as_bytes())
    }

    fn rename(&mut self, from: &str, to: &str) -> Done {
        let (from, to) = (self.at(from)?, self.at(to)?);
        let ino = self.0.look(from.0, from.1)?.ok_or(Errno::ENOENT)?;
        let target = self.0.look(to.0, to.1)?;
        if target.is_some_and(|other| other == ino) {
            return Ok(());
        }
        self.0.rename(from, to, RenameMode::Replace)?;
        // As file systems do.
        self.0.touch(ino);
        Ok(())
    }

    /// The same, but for a new file that is there.
    fn half(&mut self, step: &Step, data: &str) -> Done {
        let Step::Replace(at) = step else { return self.apply(step, data) };
        let done = self.rename("tmp", PATHS[usize::from(*at)]);
        self.0.inodes.retain(|ino, node| *ino == ROOT || node.nlink > 0);
        done
    }

    fn remove_tree(&mut self, dir: u64, name: &[u8]) -> Done {
        let ino = self.0.look(dir, name)?.ok_or(Errno::ENOENT)?;
        let (is_dir, names) = (self.0.get(ino)?.kind == Kind::Dir, self.0.get(ino)?.entries.clone());
        for name in names.keys() {
            self.remove_tree(ino, name)?;
        }
        self.0.remove(dir, name, is_dir).map(drop)
    }

    fn apply(&mut self, step: &Step, data: &str) -> Done {
        let path = |i: &u8| PATHS[usize::from(*i)];
        let done = match step {
            Step::RemoveTree(at) => self.at(path(at)).and_then(|(dir, name)| self.remove_tree(dir, name)),
            Step::Save(at) => self.save(path(at), data),
            // By a name that is not ours: what they write in place has another time by that.
            Step::Replace(at) => self.save("temp", data).and_then(|()| self.rename("temp", path(at))),
            Step::Unlink(at) => {
                self.at(path(at)).and_then(|(dir, name)| self.0.remove(dir, name, false).map(drop))
            }
            Step::Rmdir(at) => {
                self.at(path(at)).and_then(|(dir, name)| self.0.remove(dir, name, true).map(drop))
            }
            Step::Rename(from, to) => self.rename(path(from), path(to)),
            Step::Link(from, to) => self.at(path(from)).and_then(|(dir, name)| {
                let ino = self.0.look(dir, name)?.ok_or(Errno::ENOENT)?;
                let (dir, name) = self.at(path(to))?;
                self.0.link(ino, dir, name)
            }),
            Step::Mkdir(at) => self
                .at(path(at))
                .and_then(|(dir, name)| self.0.make(dir, name, Kind::Dir, 0o755, 0).map(drop)),
            Step::Chmod(at) => self.at(path(at)).and_then(|(dir, name)| {
                let ino = self.0.look(dir, name)?.ok_or(Errno::ENOENT)?;
                self.0.get_mut(ino)?.mode = 0o700;
                Ok(())
            }),
        };
        self.0.inodes.retain(|ino, node| *ino == ROOT || node.nlink > 0);
        done
    }
}

/// What files contain that have a name.
fn contents(fs: &Fs) -> BTreeSet<String> {
    let files = fs.inodes.values().filter(|node| node.kind == Kind::File && node.nlink > 0);
    files.map(|node| String::from_utf8_lossy(&node.data).into_owned()).collect()
}

/// Names, with what they stand for and its mode.
fn named(fs: &Fs) -> Vec<String> {
    let mut out = Vec::new();
    tree(fs, ROOT, "", &mut out);
    let modes = fs.inodes.values().filter(|node| node.nlink > 0);
    let mut modes: Vec<_> = modes.map(|node| format!("{:o} {:?}", node.mode, node.data)).collect();
    modes.sort();
    out.extend(modes);
    out
}

/// The same tree by a mount and by the server, as lines.
fn tree(fs: &Fs, dir: u64, above: &str, out: &mut Vec<String>) {
    for (name, ino) in &fs.inodes[&dir].entries {
        let (node, path) = (&fs.inodes[ino], format!("{above}/{}", String::from_utf8_lossy(name)));
        match node.kind {
            Kind::Dir => {
                out.push(path.clone());
                tree(fs, *ino, &path, out);
            }
            _ => out.push(format!("{path}={}", String::from_utf8_lossy(&node.data))),
        }
    }
}

fn shown(world: &mut World, dir: NodeId, above: &str, out: &mut Vec<String>) {
    for name in world.list(0, dir, true).unwrap() {
        let path = format!("{above}/{}", String::from_utf8_lossy(&name));
        let found = world.run(0, |m, t, now| m.lookup(t, dir, &name, now)).unwrap();
        let Lookup::Found(entry) = found else { panic!("{path} is listed and is not there") };
        if entry.attrs.kind == Kind::Dir {
            out.push(path.clone());
            shown(world, entry.node, &path, out);
            continue;
        }
        let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
        let fh = world.run(0, |m, t, now| m.open(t, entry.node, flags, now)).unwrap().fh;
        let data = world.run(0, |m, t, now| m.read(t, fh, 0, 60, now)).unwrap().concat();
        let now = world.now();
        world.clients[0].machine.release(fh, now);
        out.push(format!("{path}={}", String::from_utf8_lossy(&data)));
    }
}

/// The mount's side.
fn parent<'p>(world: &mut World, path: &'p str) -> Result<(NodeId, &'p [u8]), Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut at = NodeId::ROOT;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        match world.run(0, |m, t, now| m.lookup(t, at, part.as_bytes(), now))? {
            Lookup::Found(entry) if entry.attrs.kind != Kind::Dir => return Err(Errno::ENOTDIR),
            Lookup::Found(entry) => at = entry.node,
            Lookup::Absent { .. } => return Err(Errno::ENOENT),
        }
    }
    Ok((at, name.as_bytes()))
}

fn look(world: &mut World, path: &str) -> Result<Option<Entry>, Errno> {
    let (dir, name) = parent(world, path)?;
    match world.run(0, |m, t, now| m.lookup(t, dir, name, now))? {
        Lookup::Found(entry) => Ok(Some(entry)),
        Lookup::Absent { .. } => Ok(None),
    }
}

fn save(world: &mut World, path: &str, data: &str) -> Done {
    let (dir, name) = parent(world, path)?;
    let flags =
        OpenFlags { access: Access { read: true, write: true }, truncate: true, ..OpenFlags::default() };
    let fh = match look(world, path)? {
        Some(entry) if entry.attrs.kind == Kind::Dir => return Err(Errno::EISDIR),
        Some(entry) => world.run(0, |m, t, now| m.open(t, entry.node, flags, now))?.fh,
        None => world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now))?.1.fh,
    };
    let data = Bytes::copy_from_slice(data.as_bytes());
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now))?;
    world.run(0, |m, t, now| m.flush(t, fh, now))?;
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    Ok(())
}

fn rename(world: &mut World, from: &str, to: &str) -> Done {
    let (from, to) = (parent(world, from)?, parent(world, to)?);
    world.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now))
}

fn apply(world: &mut World, step: &Step, data: &str) -> Done {
    let path = |i: &u8| PATHS[usize::from(*i)];
    match step {
        Step::Save(at) => save(world, path(at), data),
        Step::Replace(at) => rename(world, "tmp", path(at)),
        Step::Rename(from, to) => rename(world, path(from), path(to)),
        Step::Unlink(at) => {
            let (dir, name) = parent(world, path(at))?;
            world.run(0, |m, t, now| m.unlink(t, dir, name, now))
        }
        Step::Rmdir(at) => {
            let (dir, name) = parent(world, path(at))?;
            world.run(0, |m, t, now| m.rmdir(t, dir, name, now))
        }
        Step::RemoveTree(_) => Err(Errno::ETIMEDOUT),
        Step::Mkdir(at) => {
            let (dir, name) = parent(world, path(at))?;
            world.run(0, |m, t, now| m.mkdir(t, dir, name, 0o755, now)).map(drop)
        }
        Step::Link(from, to) => {
            let entry = look(world, path(from))?.ok_or(Errno::ENOENT)?;
            let (dir, name) = parent(world, path(to))?;
            world.run(0, |m, t, now| m.link(t, entry.node, dir, name, now)).map(drop)
        }
        Step::Chmod(at) => {
            let entry = look(world, path(at))?.ok_or(Errno::ENOENT)?;
            let changes = Changes { mode: Some(0o700), ..Changes::default() };
            world.run(0, |m, t, now| m.setattr(t, entry.node, &changes, now)).map(drop)
        }
    }
}

/// A mount that knows all that there is.
pub(crate) fn knowing(seed: u64) -> World {
    let mut world = World::new(1, true, seed);
    world.kept = Some(BTreeMap::new());
    world.clients[0].machine.follow();
    for (i, path) in ["f", "g", "s/", "t/", "s/u/", "s/f", "t/f", "s/u/f"].into_iter().enumerate() {
        match path.strip_suffix('/') {
            Some(path) => {
                let (dir, name) = parent(&mut world, path).unwrap();
                world.run(0, |m, t, now| m.mkdir(t, dir, name, 0o755, now)).map(drop).unwrap();
            }
            None => save(&mut world, path, &format!("before {i}")).unwrap(),
        }
    }
    world.drain();
    shown(&mut world, NodeId::ROOT, "", &mut Vec::new());
    world
}

/// What of that which was sent a server executes, before it goes.
#[derive(Clone, Copy, Debug)]
enum Goes {
    /// So many batches, and nobody heard of it.
    Unheard(usize),
    /// So many were heard of, and so many of those are on its disk, with their data or without it.
    Heard(usize, usize, bool),
}

/// The server goes, with what is sent at that moment: done or not, heard of and lost.
fn go_away(world: &mut World, goes: Goes) {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    // Somebody waits for it.
    let _ = machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    let batches: Vec<_> = std::iter::from_fn(|| machine.take_batch(now)).collect();
    let before = world.server.fs.clone();
    let mut disk = before.clone();
    let (Goes::Unheard(executed) | Goes::Heard(executed, ..)) = goes;
    for (at, batch) in batches.iter().take(executed).enumerate() {
        let results = world.server.batch(0, batch);
        if let Goes::Heard(_, kept, _) = goes {
            world.clients[0].machine.batch_done(batch.txn, results, 0, now);
            if at < kept {
                disk = world.server.fs.clone();
            }
        }
    }
    if let Goes::Heard(.., has_data) = goes {
        for (ino, node) in disk.inodes.iter_mut().filter(|(_, node)| node.kind == Kind::File && !has_data) {
            node.data = before.inodes.get(ino).map(|node| node.data.clone()).unwrap_or_default();
        }
        // No number is given twice.
        world.server.fs = Fs { next: world.server.fs.next, ..disk };
    }
    let machine = &mut world.clients[0].machine;
    machine.hold(true);
    machine.assume();
}

/// `sent`: of so many steps here what they made was on its way when the server went.
fn nothing_is_lost(
    here: &[Step],
    over_there: &[Step],
    (sent, goes): (usize, Goes),
    (seed, dies, forgets): (u64, bool, bool),
) {
    let mut world = knowing(seed);
    (world.alone, world.server.unwatched) = (true, true);
    let mut ours = world.server.fs.clone();
    let mut is_whole = true;
    for (i, step) in here.iter().enumerate() {
        if i == sent {
            go_away(&mut world, goes);
        }
        world.ms += 7;
        let data = format!("ours {i}, {}", "x".repeat(i % 3));
        if let Step::Replace(_) = step {
            // Of what cannot be done as a whole the first half may be there.
            let begun = save(&mut world, "tmp", &data);
            if begun == Err(Errno::ETIMEDOUT) {
                is_whole = false;
                continue;
            }
            assert_eq!(begun, Side(&mut ours).save("tmp", &data));
        }
        let done = apply(&mut world, step, &data);
        if done != Err(Errno::ETIMEDOUT) {
            assert_eq!(done, Side(&mut ours).half(step, &data), "{step:?}");
        } else {
            is_whole = false;
        }
    }
    if sent >= here.len() {
        go_away(&mut world, goes);
    }
    // What of ours they have seen they may remove.
    let seen = contents(&world.server.fs);
    for (i, step) in over_there.iter().enumerate() {
        let _ = Side(&mut world.server.fs).apply(step, &format!("theirs {i} of {}", over_there.len()));
    }
    let (as_here, ours, theirs) = (named(&ours), contents(&ours), contents(&world.server.fs));
    world.come_back(dies, forgets);
    let left = contents(&world.server.fs);
    let told = world.clients[0].machine.conflicts().to_vec();
    for (text, other) in
        ours.iter().map(|text| (text, &theirs)).chain(theirs.iter().map(|text| (text, &ours)))
    {
        // What was sent before it was compared may undo what was done there.
        let is_to_be_there = match text.get(..1).unwrap_or_default() {
            "o" => ours.contains(text) && (!seen.contains(text) || theirs.contains(text)),
            "t" => sent == 0,
            "" => false,
            _ => sent == 0 && other.contains(text),
        };
        assert!(!is_to_be_there || left.contains(text), "{text:?} is lost; told: {told:?}\nleft: {left:?}");
    }
    for text in ours.iter().filter(|text| text.starts_with('o')) {
        let files = world.server.fs.inodes.values().filter(|n| n.nlink > 0 && n.data == text.as_bytes());
        assert!(files.count() <= 1, "{text:?} is there more than once; told: {told:?}");
    }
    if forgets && is_whole && over_there.is_empty() {
        assert_eq!(named(&world.server.fs), as_here, "nobody else was there; told: {told:?}");
        assert!(told.is_empty(), "{told:?}");
    }
    let (mut there, mut here) = (Vec::new(), Vec::new());
    tree(&world.server.fs, ROOT, "", &mut there);
    shown(&mut world, NodeId::ROOT, "", &mut here);
    there.sort();
    here.sort();
    assert_eq!(here, there, "what the mount sees, and what there is");
}

/// Found at random once, while this was made.
#[test]
fn a_file_renamed_over_one_that_was_replaced_there_meanwhile_and_replaced_itself() {
    let here = [Step::Save(6), Step::Rename(6, 0), Step::Replace(6)];
    for dies in [false, true] {
        nothing_is_lost(&here, &[Step::Replace(0)], (3, Goes::Unheard(0)), (0, dies, false));
    }
}

/// What is renamed was made in a directory that is no more, as is that into which it is renamed.
#[test]
fn a_file_made_and_renamed_between_directories_that_were_removed_there() {
    for dies in [false, true] {
        let here = [Step::Save(6), Step::Save(9), Step::Rename(9, 5)];
        nothing_is_lost(
            &here,
            &[Step::RemoveTree(4), Step::RemoveTree(3)],
            (3, Goes::Unheard(0)),
            (0, dies, false),
        );
        let here = [Step::Rename(11, 5), Step::Save(11), Step::Save(0), Step::Save(11), Step::Save(11)];
        nothing_is_lost(&here, &[Step::RemoveTree(3)], (3, Goes::Unheard(0)), (0, dies, false));
    }
}

/// Each side removes another name of one file: the link was on its way, of what was there or was made.
#[test]
fn a_file_of_which_each_side_removes_another_name_has_one_left() {
    for dies in [false, true] {
        let here = [Step::Link(0, 6), Step::Save(0), Step::Unlink(0)];
        nothing_is_lost(&here, &[Step::RemoveTree(3)], (1, Goes::Unheard(1)), (0, dies, false));
        let here = [Step::Save(6), Step::Link(6, 9), Step::Unlink(6)];
        nothing_is_lost(&here, &[Step::RemoveTree(4)], (2, Goes::Unheard(1)), (0, dies, false));
    }
}

/// Found at random once: nothing of it was done, or it was and nobody heard.
#[test]
fn what_was_replaced_by_what_has_ended_since_ends_with_it() {
    let stories = [
        vec![Step::Rename(4, 2), Step::Mkdir(4)],
        vec![Step::Rename(0, 5), Step::Rename(5, 0)],
        vec![Step::Rename(5, 2), Step::Replace(2), Step::Unlink(2)],
        vec![Step::Rename(5, 2), Step::Replace(2), Step::Replace(0), Step::Replace(2)],
    ];
    for (here, executed) in stories.iter().flat_map(|here| (0..4).map(move |executed| (here, executed))) {
        for dies in [false, true] {
            nothing_is_lost(here, &[], (here.len(), Goes::Unheard(executed)), (0, dies, true));
        }
    }
}

/// Found at random once. That a name is absent is no sign that it was given and taken, where the taking is lost.
#[test]
fn a_link_whose_name_was_moved_on_is_made_again_with_the_move() {
    let stories = [
        vec![Step::Link(0, 2), Step::Rename(2, 5)],
        vec![Step::Link(1, 6), Step::Rename(6, 2), Step::Replace(3), Step::Save(3)],
    ];
    for (here, executed) in stories.iter().flat_map(|here| (0..4).map(move |executed| (here, executed))) {
        for dies in [false, true] {
            nothing_is_lost(here, &[], (2, Goes::Unheard(executed)), (0, dies, true));
        }
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn nothing_that_either_side_has_is_lost(
        here in prop::collection::vec(step(), 1..14), there in prop::collection::vec(their_step(), 1..10),
        seed in any::<u64>(), dies in any::<bool>()
    ) {
        nothing_is_lost(&here, &there, (0, Goes::Unheard(0)), (seed, dies, false));
    }

    #[test]
    fn nor_what_was_on_its_way_when_the_server_went(
        here in prop::collection::vec(step(), 1..14), there in prop::collection::vec(their_plain_step(), 1..10),
        sent in 1..8_usize, executed in 0..3_usize, seed in any::<u64>(), dies in any::<bool>()
    ) {
        nothing_is_lost(&here, &there, (sent, Goes::Unheard(executed)), (seed, dies, false));
    }

    #[test]
    fn all_is_as_it_was_here_when_the_server_has_forgotten_what_it_did_and_nobody_else_did_anything(
        here in prop::collection::vec(step(), 1..14), sent in 1..14_usize, executed in 0..6_usize,
        seed in any::<u64>(), dies in any::<bool>(), on_disk in prop::option::of((0..6_usize, any::<bool>()))
    ) {
        let heard = |(kept, has_data)| Goes::Heard(executed, kept, has_data);
        let goes = on_disk.map_or(Goes::Unheard(executed), heard);
        nothing_is_lost(&here, &[], (sent, goes), (seed, dies, true));
    }

    #[test]
    fn nor_is_anything_there_twice_when_the_server_has_forgotten_what_it_did(
        here in prop::collection::vec(step(), 1..14), there in prop::collection::vec(their_plain_step(), 0..6),
        sent in 1..12_usize, executed in 0..6_usize, seed in any::<u64>(), dies in any::<bool>(),
        on_disk in prop::option::of((0..6_usize, any::<bool>()))
    ) {
        let heard = |(kept, has_data)| Goes::Heard(executed, kept, has_data);
        let goes = on_disk.map_or(Goes::Unheard(executed), heard);
        nothing_is_lost(&here, &there, (sent, goes), (seed, dies, true));
    }
}
