//! Directories listed while what is in them changes.

use crate::world::World;
use holdfast_cache::*;

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
    world.run(0, |m, t, now| m.opendir(t, dir, now)).unwrap().fh
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
fn what_the_server_has_made_and_not_said_yet_is_in_each_listing_and_what_it_has_removed_in_none() {
    let mut world = World::new(1, true, 1);
    // Each change is asked for.
    world.clients[0].machine.settings_mut().batches = false;
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let mut turn = Turn::new(Caller::new(7, 0));
    let create = |m: &mut Machine, t: &mut Turn, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now);
    let (ask, answer) = done_unheard(&mut world, &mut turn, create);
    let listed = |world: &mut World| world.list(0, NodeId::ROOT, false).unwrap().contains(&b"f"[..]);
    assert_eq!([(); 3].map(|()| listed(&mut world)), [true; 3]);
    let now = world.now();
    world.clients[0].machine.absorb(&mut turn, ask, answer, now);
    let Step::Done((_, opened)) = create(&mut world.clients[0].machine, &mut turn, now) else { panic!() };
    world.clients[0].machine.release(opened.fh, now);
    assert!(listed(&mut world));
    let mut turn = Turn::new(Caller::new(7, 0));
    let unlink = |m: &mut Machine, t: &mut Turn, now| m.unlink(t, NodeId::ROOT, b"f", now);
    let (ask, answer) = done_unheard(&mut world, &mut turn, unlink);
    assert_eq!([(); 3].map(|()| listed(&mut world)), [false; 3]);
    world.clients[0].machine.absorb(&mut turn, ask, answer, now);
    assert!(!listed(&mut world));
}

/// Has the server do what an operation changes, of which nobody hears yet.
fn done_unheard<T: std::fmt::Debug>(
    world: &mut World,
    turn: &mut Turn,
    operation: impl Fn(&mut Machine, &mut Turn, Now) -> Step<T>,
) -> (Ask, Result<Answer, Errno>) {
    loop {
        let now = world.now();
        let step = operation(&mut world.clients[0].machine, turn, now);
        let Step::Ask(ask) = step else { panic!("{step:?}") };
        let answer = world.perform(0, &ask);
        if ask.question.is_mutation() {
            return (*ask, answer);
        }
        world.clients[0].machine.absorb(turn, *ask, answer, now);
    }
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

/// Whether the kernel may keep what is read by an open, and go by what it keeps.
fn kept(world: &mut World, dir: NodeId) -> (Fh, bool, bool) {
    let opened = world.run(0, |m, t, now| m.opendir(t, dir, now)).unwrap();
    (opened.fh, opened.keeps, opened.keep_cache)
}

fn is_told_to_forget(world: &mut World, dir: NodeId) -> bool {
    let told = world.clients[0].machine.take_invalidations();
    told.iter().filter(|told| told.what == Forget::Listing(dir)).count() == 1
}

#[test]
fn the_kernel_keeps_a_listing_until_a_name_changes() {
    let (mut world, dir) = known();
    let (first, keeps, keep_cache) = kept(&mut world, dir);
    assert!(keeps && !keep_cache, "what it has may be of another time");
    let (second, keeps, keep_cache) = kept(&mut world, dir);
    assert!(keeps && keep_cache);
    assert!(!is_told_to_forget(&mut world, dir));
    make(&mut world, dir, "new");
    assert!(is_told_to_forget(&mut world, dir));
    rename(&mut world, dir, b"new", b"newer");
    assert!(!is_told_to_forget(&mut world, dir), "once is enough");
    // Who began before may add what he was given then.
    for before in [first, second] {
        let (third, keeps, keep_cache) = kept(&mut world, dir);
        assert!(!keeps && !keep_cache);
        world.clients[0].machine.releasedir(third);
        world.clients[0].machine.releasedir(before);
    }
    let (_, keeps, keep_cache) = kept(&mut world, dir);
    assert!(keeps && !keep_cache);
    let (_, keeps, keep_cache) = kept(&mut world, dir);
    assert!(keeps && keep_cache);
}

#[test]
fn a_listing_is_told_once_more_where_many_files_were_read() {
    let (mut world, dir) = known();
    let list = |world: &mut World| {
        let (fh, keeps, keep_cache) = kept(world, dir);
        assert!(keeps);
        if !keep_cache {
            world.run(0, |m, t, now| m.readdir(t, fh, 0, true, &mut |_| true, now)).unwrap();
        }
        world.clients[0].machine.releasedir(fh);
        keep_cache
    };
    assert!(!list(&mut world) && list(&mut world));
    let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    for i in 0..FILES / 4 {
        let name = format!("f{i}");
        let found = world.run(0, |m, t, now| m.lookup(t, dir, name.as_bytes(), now)).unwrap();
        let Lookup::Found(file) = found else { panic!("{name} is not there") };
        let opened = world.run(0, |m, t, now| m.open(t, file.node, flags, now)).unwrap();
        assert!(!opened.is_flushed, "nothing is to be told when it is closed");
        world.run(0, |m, t, now| m.read(t, opened.fh, 0, 10, now)).unwrap();
    }
    assert!(!list(&mut world), "one by one their attributes would be asked for");
    assert!(list(&mut world));
}

#[test]
fn who_has_read_what_the_kernel_kept_goes_on_where_that_ended() {
    let (mut world, dir) = known();
    let (first, ..) = kept(&mut world, dir);
    let all = rest(&mut world, first, 0);
    let (second, _, keep_cache) = kept(&mut world, dir);
    assert!(keep_cache);
    let (at, behind) = (all[FILES / 2].1, &all[FILES / 2 + 1..]);
    assert_eq!(rest(&mut world, second, at), behind);
    // What it is told from now on may have other positions.
    let (third, ..) = kept(&mut world, dir);
    world.drain();
    let (handle, now) = (world.clients[0].machine.handle_of(dir).unwrap(), world.now());
    world.clients[0].machine.recalled(&handle, CapSet::NONE, u64::MAX, now);
    assert_eq!(rest(&mut world, third, at), behind);
}

#[test]
fn a_listing_that_the_kernel_keeps_is_another_once_somebody_else_has_changed_it() {
    let mut world = World::new(2, true, 1);
    for c in 0..2 {
        *world.clients[c].machine.settings_mut() = Settings::full();
    }
    let mut names = std::collections::BTreeSet::new();
    for n in 0..20 {
        let name = format!("f{n}");
        let file = (Kind::File, Device::default());
        world.run(1, |m, t, now| m.mknod(t, NodeId::ROOT, name.as_bytes(), file, 0o644, now)).unwrap();
        names.insert(name.into_bytes());
        for _ in 0..4 {
            assert_eq!(world.list(0, NodeId::ROOT, n % 2 == 0).unwrap(), names);
        }
        assert!(world.clients[0].kernel.listings.contains_key(&NodeId::ROOT));
    }
}

/// All entries behind a position.
fn rest(world: &mut World, fh: Fh, mut offset: u64) -> Vec<(Name, u64)> {
    let mut all = Vec::new();
    loop {
        let part = some(world, fh, offset);
        let Some((_, last)) = part.last() else { return all };
        offset = *last;
        all.extend(part);
    }
}

/// The size that a listing from there on gives with a name, where it gives attributes.
fn listed_size(world: &mut World, (fh, from): (Fh, u64), name: &[u8]) -> Option<u64> {
    let mut size = None;
    let read = |m: &mut Machine, t: &mut Turn, now| {
        let mut take = |listed: &DirEntry| {
            if listed.name.as_bytes() == name {
                size = listed.entry.as_ref().map(|entry| entry.attrs.size);
            }
            true
        };
        m.readdir(t, fh, from, true, &mut take, now)
    };
    world.run(0, read).unwrap();
    size
}

fn written(world: &mut World, name: &[u8], data: &'static [u8]) -> NodeId {
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    let Lookup::Found(file) = found else { panic!("it is there: {found:?}") };
    let fh = world.run(0, |m, t, now| m.open(t, file.node, flags, now)).unwrap().fh;
    world.run(0, |m, t, now| m.write(t, fh, 0, &bytes::Bytes::from_static(data), now)).unwrap();
    file.node
}

/// The kernel would cut off what it has of the file behind that, which somebody may have mapped.
#[test]
fn a_listing_of_the_servers_shows_no_file_without_what_this_mount_has_not_sent() {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    make(&mut world, NodeId::ROOT, "f");
    world.drain();
    let file = written(&mut world, b"f", b"ours");
    let fh = open(&mut world, NodeId::ROOT);
    assert_eq!(listed_size(&mut world, (fh, 0), b"f"), Some(4), "what is sure is shown as it is here");
    // Somebody wants both: nothing covers them any more, and what was written has not gone out yet.
    let now = world.now();
    for node in [file, NodeId::ROOT] {
        let handle = world.clients[0].machine.handle_of(node).unwrap();
        world.clients[0].machine.recalled(&handle, CapSet::NONE, 1000, now);
    }
    let fh = open(&mut world, NodeId::ROOT);
    let mut turn = Turn::new(Caller::new(7, 0));
    let step = world.clients[0].machine.readdir(&mut turn, fh, 0, true, &mut |_| true, now);
    let Step::Ask(ask) = step else { panic!("{step:?}") };
    let answer = world.perform(0, &ask);
    world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
    let mut sizes = Vec::new();
    let mut take = |listed: &DirEntry| {
        let is_it = listed.name.as_bytes() == b"f";
        sizes.extend(listed.entry.as_ref().filter(|_| is_it).map(|entry| entry.attrs.size));
        true
    };
    let step = world.clients[0].machine.readdir(&mut turn, fh, 0, true, &mut take, now);
    assert!(matches!(step, Step::Done(())), "{step:?}");
    assert!(sizes.iter().all(|size| *size == 4), "{sizes:?}");
}

#[test]
fn what_was_listed_before_this_mount_has_written_a_file_is_not_shown_of_it_afterwards() {
    let mut world = World::new(1, false, 1);
    world.server.page = 100;
    for name in [b"f", b"g", b"h"] {
        world.server.fs.make(crate::world::fs::ROOT, name, Kind::File, 0o644, 7).unwrap();
    }
    let fh = open(&mut world, NodeId::ROOT);
    let first = some(&mut world, fh, 0);
    let (second, at) = (first[1].0.clone(), first[0].1);
    assert_eq!(listed_size(&mut world, (fh, at), second.as_bytes()), Some(0), "the server's");
    written(&mut world, second.as_bytes(), b"ours");
    let size = listed_size(&mut world, (fh, at), second.as_bytes());
    assert!(size.is_none_or(|size| size == 4), "{size:?}");
}

#[test]
fn a_listing_that_was_asked_for_before_a_name_was_changed_here_lacks_none() {
    let mut world = World::new(1, true, 1);
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    world.run(0, |m, t, now| m.mkdir(t, dir, b"c", 0o755, now)).unwrap();
    world.run(0, |m, t, now| m.lookup(t, dir, b"a", now)).unwrap();
    let fh = open(&mut world, dir);
    let mut names = Vec::new();
    let mut list = |m: &mut Machine, t: &mut Turn, now: Now| {
        names.clear();
        let mut take = |entry: &DirEntry| {
            names.push(entry.name.clone());
            true
        };
        m.readdir(t, fh, 0, false, &mut take, now)
    };
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let Step::Ask(asked) = list(&mut world.clients[0].machine, &mut turn, now) else { panic!("by question") };
    let answer = world.perform(0, &asked);
    rename(&mut world, dir, b"c", b"a");
    world.clients[0].machine.absorb(&mut turn, *asked, answer, now);
    world.go_on(0, turn, list).unwrap();
    assert_eq!(names, [Name::new(b"a")]);
}
