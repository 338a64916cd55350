//! Names whose file has gone before the server was asked something of it: others may have removed it unasked, of whoever had lost
//! his promises. What the name stands for by then is asked for anew, and the file's end is nobody's failure.

use crate::world::World;
use crate::world::fs;
use holdfast_cache::*;

/// A mount of which the server thinks that it holds nothing; it has `e` open, and another file `g`.
fn forgotten() -> (World, Fh) {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    let fhs = [b"e", b"g"].map(|name| world.made_and_open(name).1);
    world.drain();
    let now = world.now();
    world.clients[0].machine.release(fhs[1], now);
    world.server.restart();
    (world, fhs[0])
}

/// Somebody else removes it, and may make another.
fn others_remove(world: &mut World, is_replaced: bool) {
    let now = world.now();
    world.server.fs.remove(fs::ROOT, b"e", false).unwrap();
    world.server.collect();
    if is_replaced {
        world.server.fs.make(fs::ROOT, b"e", Kind::File, 0o644, 7).unwrap();
    }
    world.clients[0].machine.caps_lost(now);
}

/// Runs one up to its first question of this kind, and has the file removed before that arrives; and then to its end.
fn overtaken<T: std::fmt::Debug>(
    world: &mut World,
    is_it: impl Fn(&Question) -> bool,
    is_replaced: bool,
    mut act: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
) -> Result<T, Errno> {
    let mut turn = Turn::new(Caller::new(7, 0));
    loop {
        let now = world.now();
        match act(&mut world.clients[0].machine, &mut turn, now) {
            Step::Ask(ask) if is_it(&ask.question) => {
                others_remove(world, is_replaced);
                let answer = world.perform(0, &ask);
                assert!(matches!(answer, Err(Errno::ESTALE)), "{answer:?}");
                world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
                return world.go_on(0, turn, act);
            }
            Step::Ask(ask) => {
                let answer = world.perform(0, &ask);
                world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
            }
            step => panic!("{step:?}"),
        }
    }
}

fn is_open(question: &Question) -> bool {
    matches!(question, Question::Open { .. })
}

#[test]
fn a_name_that_another_file_has_got_before_its_own_was_opened_is_removed() {
    for is_replaced in [false, true] {
        let (mut world, _) = forgotten();
        let removed =
            overtaken(&mut world, is_open, is_replaced, |m, t, now| m.unlink(t, NodeId::ROOT, b"e", now));
        assert_eq!(removed, if is_replaced { Ok(()) } else { Err(Errno::ENOENT) });
        assert_eq!(world.server.fs.look(fs::ROOT, b"e"), Ok(None));
    }
}

#[test]
fn or_is_given_to_the_file_that_is_renamed() {
    for is_replaced in [false, true] {
        let (mut world, _) = forgotten();
        let moved = world.server.fs.look(fs::ROOT, b"g").unwrap();
        let renamed = overtaken(&mut world, is_open, is_replaced, |m, t, now| {
            m.rename(t, (NodeId::ROOT, b"g"), (NodeId::ROOT, b"e"), RenameMode::Replace, now)
        });
        assert_eq!(renamed, Ok(()));
        assert_eq!(world.server.fs.look(fs::ROOT, b"e").unwrap(), moved);
        assert_eq!(world.server.fs.look(fs::ROOT, b"g"), Ok(None));
    }
}

#[test]
fn or_is_found() {
    for is_replaced in [false, true] {
        let (mut world, fh) = forgotten();
        let node = world.clients[0].machine.opens()[0].1.clone();
        // Its size is to be asked for, and its name is known.
        let now = world.now();
        world.clients[0].machine.recalled(&node, CapSet::ALL_S.without(CapSet::FILE_S), 1 << 40, now);
        let is_look = |question: &Question| matches!(question, Question::GetAttr { .. });
        let found =
            overtaken(&mut world, is_look, is_replaced, |m, t, now| m.lookup(t, NodeId::ROOT, b"e", now));
        let there = world.server.fs.look(fs::ROOT, b"e").unwrap();
        match found.unwrap() {
            Lookup::Found(entry) => assert_eq!(Some(entry.attrs.fileid), there),
            Lookup::Absent { .. } => assert_eq!(there, None),
        }
        let now = world.now();
        world.clients[0].machine.release(fh, now);
    }
}

/// A server that gives a name's file out again and again, and does not find it.
#[test]
fn but_of_one_file_it_is_heard_once() {
    let (mut world, _) = forgotten();
    let mut turn = Turn::new(Caller::new(7, 0));
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    let mut opens = 0;
    let failed = loop {
        let now = world.now();
        match world.clients[0].machine.unlink(&mut turn, NodeId::ROOT, b"e", now) {
            Step::Ask(ask) => {
                let is_it = is_open(&ask.question);
                opens += u32::from(is_it);
                let answer = if is_it { Err(Errno::ESTALE) } else { world.perform(0, &ask) };
                world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
            }
            Step::Failed(errno) => break errno,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!((failed, opens), (Errno::ESTALE, 2));
}
