//! Access lists: what has one is not judged by its mode, and the lists are asked for where there are any, once.

use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

const NOBODY: u32 = 65534;
const OWNER: u32 = 5;
const LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

struct Planted {
    world: World,
    dir: NodeId,
    file: NodeId,
    /// Of the file, at the server.
    ino: u64,
}

/// A directory open to all, with a file in it; `is_listed`: both have a list. The mount has everything of both.
fn planted(squashed_to: Option<u32>, is_listed: bool) -> Planted {
    let mut world = World::new(1, true, 1);
    world.server.squashed_to = squashed_to.map(|uid| Caller::new(uid, uid));
    world.server.asked = Some(Vec::new());
    *world.clients[0].machine.settings_mut() = Settings::full();
    let dir = world.server.fs.make(ROOT, b"d", Kind::Dir, 0o777, OWNER).unwrap();
    let ino = world.server.fs.make(dir, b"f", Kind::File, 0o666, OWNER).unwrap();
    if is_listed {
        world.server.listed.extend([dir, ino]);
    }
    let dir = found(&mut world, NodeId::ROOT, b"d");
    let file = found(&mut world, dir, b"f");
    create(&mut world, dir, b"first");
    let fh = world.run(0, |m, t, now| m.opendir(t, dir, now)).unwrap().fh;
    let mut all = |_: &DirEntry| true;
    world.run(0, |m, t, now| m.readdir(t, fh, 0, true, &mut all, now)).unwrap();
    world.clients[0].machine.releasedir(fh);
    let mode = Changes { mode: Some(0o666), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, file, &mode, now)).unwrap();
    world.drain();
    asked(&mut world);
    Planted { world, dir, file, ino }
}

fn asked(world: &mut World) -> Vec<Question> {
    world.server.asked.replace(Vec::new()).unwrap()
}

fn found(world: &mut World, dir: NodeId, name: &[u8]) -> NodeId {
    match world.run(0, |m, t, now| m.lookup(t, dir, name, now)).unwrap() {
        Lookup::Found(entry) => entry.node,
        Lookup::Absent { .. } => panic!("it is there"),
    }
}

fn create(world: &mut World, dir: NodeId, name: &[u8]) {
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (_, opened) = world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(opened.fh, now);
}

#[test]
fn who_acts_as_another_is_judged_by_the_server_where_there_is_a_list() {
    for (acts_as, is_listed, is_asked) in
        [(NOBODY, false, false), (NOBODY, true, true), (OWNER, true, false), (0, true, false)]
    {
        let Planted { mut world, dir, file, .. } = planted(Some(acts_as), is_listed);
        create(&mut world, dir, b"g");
        let questions = asked(&mut world);
        let made = questions.iter().any(|question| matches!(question, Question::Create { .. }));
        assert_eq!(made, is_asked, "{acts_as} {is_listed}: {questions:?}");
        let flags = OpenFlags { access: Access { read: false, write: true }, ..OpenFlags::default() };
        world.run(0, |m, t, now| m.open(t, file, flags, now)).unwrap();
        let questions = asked(&mut world);
        let opened = questions.iter().any(|question| matches!(question, Question::Open { .. }));
        assert_eq!(opened, is_asked, "{acts_as} {is_listed}: {questions:?}");
    }
}

#[test]
fn the_mode_of_what_has_a_list_is_set_at_the_server() {
    for is_listed in [false, true] {
        let Planted { mut world, file, .. } = planted(None, is_listed);
        let mode = Changes { mode: Some(0o600), ..Changes::default() };
        world.run(0, |m, t, now| m.setattr(t, file, &mode, now)).unwrap();
        let is_asked = asked(&mut world).iter().any(|question| matches!(question, Question::SetAttr { .. }));
        assert_eq!(is_asked, is_listed);
    }
}

#[test]
fn a_list_is_asked_for_where_there_is_one_and_not_again_before_it_may_have_changed() {
    let list = |p: &mut Planted| p.world.run(0, |m, t, now| m.getxattr(t, p.file, LIST, now));
    let mut none = planted(None, false);
    assert_eq!(list(&mut none), Err(Errno::ENODATA));
    assert_eq!(asked(&mut none.world), []);

    let mut p = planted(None, true);
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
    p.world.server.fs.get_mut(p.ino).unwrap().xattrs.insert(LIST.to_vec(), first.to_vec());
    for _ in 0..2 {
        assert_eq!(list(&mut p), Ok(first.clone()));
    }
    assert!(matches!(&asked(&mut p.world)[..], [Question::GetXattr { .. }]));
    // A mode is set through the list; so it is another one then.
    let mode = Changes { mode: Some(0o600), ..Changes::default() };
    p.world.run(0, |m, t, now| m.setattr(t, p.file, &mode, now)).unwrap();
    p.world.server.fs.get_mut(p.ino).unwrap().xattrs.insert(LIST.to_vec(), second.to_vec());
    assert_eq!(list(&mut p), Ok(second));
}

#[test]
fn what_is_given_a_list_here_counts_as_listed_until_a_grant_says_otherwise() {
    let Planted { mut world, file, ino, .. } = planted(None, false);
    let value = Bytes::from_static(b"list");
    world.run(0, |m, t, now| m.setxattr(t, file, LIST, (&value, XattrMode::Either), now)).unwrap();
    assert_eq!(world.run(0, |m, t, now| m.getxattr(t, file, LIST, now)), Ok(value));
    assert!(world.server.fs.get(ino).unwrap().xattrs.contains_key(LIST));
    world.run(0, |m, t, now| m.removexattr(t, file, LIST, now)).unwrap();
    assert_eq!(world.run(0, |m, t, now| m.getxattr(t, file, LIST, now)), Err(Errno::ENODATA));
    world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap();
    asked(&mut world);
    assert_eq!(world.run(0, |m, t, now| m.getxattr(t, file, LIST, now)), Err(Errno::ENODATA));
    assert_eq!(asked(&mut world), [], "the grant said that there is none");
}

#[test]
fn the_umask_is_taken_away_here_where_no_list_is_handed_on() {
    let Planted { mut world, dir, .. } = planted(None, false);
    let node = world
        .run(0, |m, t, now| {
            t.umask = 0o077;
            m.mkdir(t, dir, b"sub", 0o777, now)
        })
        .unwrap()
        .node;
    assert!(!asked(&mut world).iter().any(|question| matches!(question, Question::Make { .. })));
    assert_eq!(world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap().attrs.mode, 0o700);
    world.drain();
    let at = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    let sub = world.server.fs.look(at, b"sub").unwrap().unwrap();
    assert_eq!(world.server.fs.get(sub).unwrap().mode, 0o700);
}

#[test]
fn a_list_whose_setting_was_given_up_is_not_believed_before_that_cannot_be_done_any_more() {
    let Planted { mut world, file, ino, .. } = planted(None, true);
    let list = |world: &mut World| world.run(0, |m, t, now| m.getxattr(t, file, LIST, now));
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
    world.server.fs.get_mut(ino).unwrap().xattrs.insert(LIST.to_vec(), first.to_vec());
    let told = world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap();
    assert!(told.valid, "the kernel goes by it from now on");
    assert_eq!(list(&mut world), Ok(first.clone()));

    let (now, mut turn) = (world.now(), Turn::new(Caller::new(OWNER, OWNER)));
    let machine = &mut world.clients[0].machine;
    let step = machine.setxattr(&mut turn, file, LIST, (&second, XattrMode::Either), now);
    let Step::Ask(ask) = step else { panic!("it is the server's to do") };
    machine.take_invalidations();
    machine.given_up(&ask);
    let forgotten = machine.take_invalidations();
    assert!(forgotten.iter().any(|one| matches!(one.what, Forget::Attrs(node) if node == file)));
    drop(turn);
    asked(&mut world);
    for _ in 0..2 {
        assert!(!world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap().valid);
        assert_eq!(list(&mut world), Ok(first.clone()));
    }
    let lists = |asked: &[Question]| asked.iter().filter(|q| matches!(q, Question::GetXattr { .. })).count();
    assert_eq!(lists(&asked(&mut world)), 2, "each is asked");
    // The server does it, and nobody here hears.
    world.server.fs.get_mut(ino).unwrap().xattrs.insert(LIST.to_vec(), second.to_vec());
    let (now, mut nobodys) = (world.now(), Turn::new(Caller::new(OWNER, OWNER)));
    world.clients[0].machine.absorb(&mut nobodys, *ask, Err(Errno::EIO), now);
    for _ in 0..2 {
        assert!(world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap().valid);
        assert_eq!(list(&mut world), Ok(second.clone()));
    }
    assert_eq!(lists(&asked(&mut world)), 1, "it is kept again");
}

#[test]
fn that_a_directory_hands_on_no_list_costs_no_question_where_the_server_tells() {
    for (tells, lists, is_asked) in [(true, false, 0), (true, true, 1), (false, false, 1)] {
        let mut world = World::new(1, true, 1);
        world.server.asked = Some(Vec::new());
        // Others look at it as well: it is held, but not exclusively.
        world.server.generous = false;
        let at = world.server.fs.make(ROOT, b"d", Kind::Dir, 0o777, OWNER).unwrap();
        if !tells {
            world.server.handing_on = None;
        } else if lists {
            world.server.handing_on.as_mut().unwrap().insert(at);
        }
        let dir = found(&mut world, NodeId::ROOT, b"d");
        world.run(0, |m, t, now| m.getattr(t, dir, now)).unwrap();
        asked(&mut world);
        for _ in 0..2 {
            let list = world.run(0, |m, t, now| m.getxattr(t, dir, DEFAULT, now));
            assert_eq!(list, Err(Errno::ENODATA));
        }
        assert_eq!(asked(&mut world).len(), is_asked, "{tells} {lists}");
    }
}

#[test]
fn a_list_given_to_a_directory_here_is_not_denied() {
    let mut world = World::new(1, true, 1);
    world.server.asked = Some(Vec::new());
    let at = world.server.fs.make(ROOT, b"d", Kind::Dir, 0o777, OWNER).unwrap();
    let dir = found(&mut world, NodeId::ROOT, b"d");
    world.run(0, |m, t, now| m.getattr(t, dir, now)).unwrap();
    let list = |world: &mut World| world.run(0, |m, t, now| m.getxattr(t, dir, DEFAULT, now));
    assert_eq!(list(&mut world), Err(Errno::ENODATA));
    let value = Bytes::from_static(b"handed on");
    world.server.handing_on.as_mut().unwrap().insert(at);
    world.run(0, |m, t, now| m.setxattr(t, dir, DEFAULT, (&value, XattrMode::Either), now)).unwrap();
    assert_eq!(list(&mut world), Ok(value.clone()));
    world.run(0, |m, t, now| m.getattr(t, dir, now)).unwrap();
    assert_eq!(list(&mut world), Ok(value.clone()), "nor by what is held since");
    asked(&mut world);
    assert_eq!((list(&mut world), asked(&mut world)), (Ok(value), Vec::new()));
}

#[test]
fn a_list_that_is_not_there_is_removed_here() {
    for is_listed in [false, true] {
        let Planted { mut world, dir, file, .. } = planted(None, is_listed);
        for (node, name) in [(file, DEFAULT), (file, LIST), (dir, LIST)] {
            let removed = world.run(0, |m, t, now| m.removexattr(t, node, name, now));
            let is_there = is_listed && name == LIST;
            assert!(is_there || removed.is_ok(), "{is_listed} {node:?}: {removed:?}");
            assert_eq!(asked(&mut world).is_empty(), !is_there, "{is_listed} {node:?}");
        }
    }
}

/// As `posix_acl_xattr.h` has it: a tag, bits, and whose they are.
fn list(entries: &[(u16, u16)]) -> Bytes {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, bits) in entries {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&bits.to_le_bytes());
        list.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    list.into()
}

#[test]
fn a_list_that_says_no_more_than_a_mode_sets_that_here() {
    const PLAIN: &[(u16, u16)] = &[(0x01, 6), (0x04, 4), (0x20, 0)];
    const WITH_A_MASK: &[(u16, u16)] = &[(0x01, 6), (0x04, 4), (0x10, 7), (0x20, 0)];
    const NAMED: &[(u16, u16)] = &[(0x01, 6), (0x02, 7), (0x04, 4), (0x10, 7), (0x20, 0)];
    const TWICE: &[(u16, u16)] = &[(0x01, 6), (0x01, 6), (0x20, 0)];
    for (mode, is_listed, entries, is_set_here) in [
        (0o666, false, PLAIN, true),
        (0o1666, false, PLAIN, true),
        (0o2666, false, PLAIN, false),
        (0o666, true, PLAIN, false),
        (0o666, false, WITH_A_MASK, false),
        (0o666, false, NAMED, false),
        (0o666, false, TWICE, false),
    ] {
        let Planted { mut world, file, ino, .. } = planted(None, is_listed);
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        world.run(0, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
        asked(&mut world);
        let value = list(entries);
        let set =
            |m: &mut Machine, t: &mut Turn, now| m.setxattr(t, file, LIST, (&value, XattrMode::Either), now);
        world.run(0, set).unwrap();
        let questions = asked(&mut world);
        let is_asked = questions.iter().any(|question| matches!(question, Question::SetXattr { .. }));
        assert_eq!(is_asked, !is_set_here, "{mode:o} {is_listed} {entries:?}: {questions:?}");
        if is_set_here {
            assert_eq!(questions, [], "nor anything else");
            world.drain();
            assert_eq!(world.server.fs.inodes[&ino].mode, mode & 0o7000 | 0o640);
        }
    }
}
