//! Callers that act on the server as another: what that one surely may is done at once, and shown as his; everything else is asked.

use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

const NOBODY: u32 = 65534;
const OTHER: u32 = 5;

/// A directory of that mode and owner, of which the mount has everything; with a file of another's in it.
fn planted(mode: u32, uid: u32) -> (World, NodeId) {
    let mut world = World::new(1, true, 1);
    world.server.squashed_to = Some(Caller::new(NOBODY, NOBODY));
    world.server.asked = Some(Vec::new());
    *world.clients[0].machine.settings_mut() = Settings::full();
    let dir = world.server.fs.make(ROOT, b"d", Kind::Dir, mode, uid).unwrap();
    world.server.fs.make(dir, b"others", Kind::File, 0o644, OTHER).unwrap();
    let Lookup::Found(entry) = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"d", now)).unwrap() else {
        panic!("it is there")
    };
    // The first one is asked, and brings what the next ones need.
    make(&mut world, entry.node, b"first");
    let fh = world.run(0, |m, t, now| m.opendir(t, entry.node, now)).unwrap().fh;
    let mut all = |_: &DirEntry| true;
    world.run(0, |m, t, now| m.readdir(t, fh, 0, true, &mut all, now)).unwrap();
    world.clients[0].machine.releasedir(fh);
    for name in [&b"first"[..], b"others"] {
        let node = found(&mut world, entry.node, name);
        world
            .run(0, |m, t, now| {
                m.setattr(t, node, &Changes { atime: Some(SetTime::Now), ..Changes::default() }, now)
            })
            .unwrap();
    }
    asked(&mut world);
    (world, entry.node)
}

fn asked(world: &mut World) -> Vec<Question> {
    world.server.asked.replace(Vec::new()).unwrap()
}

fn make(world: &mut World, dir: NodeId, name: &[u8]) -> NodeId {
    make_as(world, dir, name, 0o644)
}

fn make_as(world: &mut World, dir: NodeId, name: &[u8], mode: u32) -> NodeId {
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (entry, opened) = world.run(0, |m, t, now| m.create(t, dir, name, mode, flags, now)).unwrap();
    let data = Bytes::from_static(b"data");
    world.run(0, |m, t, now| m.write(t, opened.fh, 0, &data, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(opened.fh, now);
    entry.node
}

fn found(world: &mut World, dir: NodeId, name: &[u8]) -> NodeId {
    match world.run(0, |m, t, now| m.lookup(t, dir, name, now)).unwrap() {
        Lookup::Found(entry) => entry.node,
        Lookup::Absent { .. } => panic!("it is there"),
    }
}

fn owner(world: &mut World, node: NodeId) -> u32 {
    world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap().attrs.uid
}

#[test]
fn what_the_other_may_is_done_at_once_and_is_his() {
    let (mut world, dir) = planted(0o700, NOBODY);
    let nodes: Vec<_> = (0..20u8).map(|n| make(&mut world, dir, &[b'f', n + b'a'])).collect();
    for node in &nodes {
        assert_eq!(owner(&mut world, *node), NOBODY);
    }
    let mode = Changes { mode: Some(0o600), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, nodes[0], &mode, now)).unwrap();
    world.run(0, |m, t, now| m.unlink(t, dir, b"fb", now)).unwrap();
    world.run(0, |m, t, now| m.rename(t, (dir, b"fc"), (dir, b"gc"), RenameMode::Replace, now)).unwrap();
    world.run(0, |m, t, now| m.link(t, nodes[3], dir, b"linked", now)).unwrap();
    assert_eq!(asked(&mut world), []);
    world.drain();
    let at_server = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    let names = world.server.fs.get(at_server).unwrap().entries.clone();
    assert_eq!(names.len(), 22, "{names:?}");
    let made = world.server.fs.get(names[&b"fa"[..]]).unwrap();
    assert_eq!((made.uid, made.mode, &made.data[..]), (NOBODY, 0o600, &b"data"[..]));
}

#[test]
fn what_the_other_may_not_is_asked() {
    let (mut world, dir) = planted(0o755, OTHER);
    make(&mut world, dir, b"f");
    assert!(matches!(&asked(&mut world)[..], [Question::Create { .. }, ..]));
    world.run(0, |m, t, now| m.unlink(t, dir, b"first", now)).unwrap();
    assert!(asked(&mut world).iter().any(|question| matches!(question, Question::Remove { .. })));
}

#[test]
fn in_a_sticky_directory_others_names_are_the_servers_to_judge() {
    let (mut world, dir) = planted(0o1777, OTHER);
    make(&mut world, dir, b"own");
    world.run(0, |m, t, now| m.unlink(t, dir, b"own", now)).unwrap();
    assert_eq!(asked(&mut world), []);
    world
        .run(0, |m, t, now| m.rename(t, (dir, b"others"), (dir, b"moved"), RenameMode::Replace, now))
        .unwrap();
    assert!(asked(&mut world).iter().any(|question| matches!(question, Question::Rename { .. })));
    world.run(0, |m, t, now| m.unlink(t, dir, b"moved", now)).unwrap();
    assert!(asked(&mut world).iter().any(|question| matches!(question, Question::Remove { .. })));
}

#[test]
fn owners_set_ids_and_devices_are_asked_and_so_is_opening_what_only_the_caller_may() {
    let (mut world, dir) = planted(0o777, OTHER);
    let node = make(&mut world, dir, b"f");
    assert_eq!(asked(&mut world), []);
    for changes in
        [Changes { uid: Some(7), ..Changes::default() }, Changes { mode: Some(0o4755), ..Changes::default() }]
    {
        world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
        assert!(matches!(asked(&mut world).last(), Some(Question::SetAttr { .. })), "{changes:?}");
    }
    make_as(&mut world, dir, b"set-id", 0o2755);
    assert!(asked(&mut world).iter().any(|question| matches!(question, Question::Create { .. })));
    let device = (Kind::Char, Device { major: 1, minor: 3 });
    world.run(0, |m, t, now| m.mknod(t, dir, b"null", device, 0o666, now)).unwrap();
    assert!(asked(&mut world).iter().any(|question| matches!(question, Question::Make { .. })));
    let others = found(&mut world, dir, b"others");
    asked(&mut world);
    let open = |world: &mut World, write| {
        let flags = OpenFlags { access: Access { read: true, write }, ..OpenFlags::default() };
        let fh = world.run(0, |m, t, now| m.open(t, others, flags, now)).unwrap().fh;
        let now = world.now();
        world.clients[0].machine.release(fh, now);
        asked(world)
    };
    open(&mut world, false);
    assert_eq!(open(&mut world, false), [], "everybody may read it");
    assert!(open(&mut world, true).iter().any(|question| matches!(question, Question::Open { .. })));
}

fn has_asked_who(world: &mut World) -> bool {
    asked(world).iter().any(|question| matches!(question, Question::WhoAmI))
}

#[test]
fn who_somebody_is_at_a_server_that_is_greeted_is_asked_anew_and_what_is_said_counts_at_once() {
    let (mut world, dir) = planted(0o777, OTHER);
    let before = make(&mut world, dir, b"before");
    assert!(!has_asked_who(&mut world));
    world.server.squashed_to = Some(Caller::new(77, 77));
    world.clients[0].machine.greeted();
    let after = make(&mut world, dir, b"after");
    assert!(has_asked_who(&mut world));
    assert_eq!((owner(&mut world, before), owner(&mut world, after)), (NOBODY, 77));
    make(&mut world, dir, b"again");
    assert!(!has_asked_who(&mut world), "once");
    // What was asked before the greeting and is answered after it is of the server that was.
    let machine = &mut world.clients[0].machine;
    machine.greeted();
    let (now, mut turn) = (Now::default(), Turn::new(Caller::new(7, 0)));
    let Step::Ask(ask) = machine.mkdir(&mut turn, dir, b"late", 0o755, now) else { panic!("it asks") };
    assert!(matches!(ask.question, Question::WhoAmI));
    machine.greeted();
    machine.absorb(&mut turn, *ask, Ok(Answer::Acts(Acting::As(Caller::new(1, 1)))), now);
    let Step::Ask(ask) = machine.mkdir(&mut turn, dir, b"late", 0o755, now) else { panic!("it asks again") };
    assert!(matches!(ask.question, Question::WhoAmI));
}

#[test]
fn while_there_is_nobody_to_ask_what_was_said_before_is_good() {
    let (mut world, dir) = planted(0o777, OTHER);
    let machine = &mut world.clients[0].machine;
    machine.follow();
    machine.take_changes();
    machine.hold(true);
    machine.greeted();
    let away = make(&mut world, dir, b"away");
    assert!(!has_asked_who(&mut world));
    assert_eq!(owner(&mut world, away), NOBODY);
    world.clients[0].machine.hold(false);
    make(&mut world, dir, b"back");
    assert!(has_asked_who(&mut world));
}

#[test]
fn who_was_refused_what_it_surely_might_is_asked_about_again() {
    for (errno, is_asked) in [(Errno::EACCES, true), (Errno::ENOSPC, false)] {
        let (mut world, dir) = planted(0o777, OTHER);
        world.drain();
        let first = found(&mut world, dir, b"first");
        make(&mut world, dir, b"f");
        let machine = &mut world.clients[0].machine;
        world.ms += 10_000;
        let now = Now { mono: holdfast_base::Instant(world.ms), ..Now::default() };
        let batch = machine.take_batch(now).unwrap();
        machine.batch_done(batch.txn, vec![MutationResult::Failed(errno)], 0, now);
        asked(&mut world);
        let mode = Changes { mode: Some(0o600), ..Changes::default() };
        world.run(0, |m, t, now| m.setattr(t, first, &mode, now)).unwrap();
        assert_eq!(has_asked_who(&mut world), is_asked, "{errno:?}");
    }
}
