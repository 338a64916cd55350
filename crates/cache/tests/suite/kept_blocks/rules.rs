//! One rule each.

use super::{die, find, go_away, keeping, make, read, truncate, write};
use crate::world::World;
use crate::world::fs::ROOT;
use holdfast_cache::*;

fn contents() -> Vec<u8> {
    (1..=90).collect()
}

/// A mount that has read a file which others have made; everything is where it belongs.
fn has_read(slots: u32) -> World {
    let mut world = keeping(5, slots);
    make(&mut world, 1, "f", &contents());
    world.drain();
    assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(contents()));
    on_disk(&mut world);
    world
}

/// All blocks are on the disk and in the records, and what they were read of on the server's.
fn on_disk(world: &mut World) {
    world.write_blocks(true);
    while let Some(out) = world.clients[0].machine.take_settling() {
        world.put_on_disk();
        world.clients[0].machine.settled_blocks(&out, true);
    }
    world.keep(0);
}

/// What a read asks of the server for data.
fn reads_asked(world: &mut World, name: &str, range: (u64, u32)) -> (Result<Vec<u8>, Errno>, usize) {
    world.server.asked = Some(Vec::new());
    let data = read(world, 0, name, range);
    let asked = world.server.asked.take().unwrap();
    (data, asked.iter().filter(|question| matches!(question, Question::Read { .. })).count())
}

fn ino(world: &World) -> u64 {
    world.server.fs.look(ROOT, b"f").unwrap().unwrap()
}

/// The server was killed; what the mount held it gives back.
fn server_restarts(world: &mut World) {
    let now = world.now();
    world.clients[1].machine.caps_lost(now);
    go_away(world);
    world.come_back(false, false);
}

#[test]
fn what_was_read_is_read_again_without_the_server_in_this_life_and_the_next() {
    let mut world = has_read(30);
    assert_eq!(reads_asked(&mut world, "f", (0, 200)), (Ok(contents()), 0), "nor where there is one");
    go_away(&mut world);
    for loses_power in [false, true] {
        assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(contents()));
        assert_eq!(read(&mut world, 0, "f", (30, 7)), Ok(contents()[30..37].to_vec()));
        die(&mut world, loses_power);
    }
    assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(contents()));
    write(&mut world, 0, "f", 20, &[99; 30]).unwrap();
    let mut now = contents();
    now[20..50].fill(99);
    world.keep(0);
    die(&mut world, true);
    assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(now.clone()), "over what is kept");
    world.come_back(false, false);
    world.drain();
    assert_eq!(world.server.fs.get(ino(&world)).unwrap().data, now);
    assert_eq!(reads_asked(&mut world, "f", (0, 200)).0, Ok(now));
}

#[test]
fn what_others_have_changed_is_not_shown_as_it_was_and_what_they_have_not_is_not_read_again() {
    let mut world = has_read(30);
    write(&mut world, 1, "f", 40, &[7; 4]).unwrap();
    let mut now = contents();
    now[40..44].fill(7);
    let (data, asked) = reads_asked(&mut world, "f", (0, 200));
    assert_eq!((data, asked > 0), (Ok(now.clone()), true));
    on_disk(&mut world);
    // Everything that was held is lost, nobody was there.
    let at = world.now();
    world.clients[0].machine.caps_lost(at);
    world.server.restart();
    assert_eq!(reads_asked(&mut world, "f", (0, 200)), (Ok(now.clone()), 0), "it is as it was");
    world.clients[0].machine.caps_lost(at);
    world.server.restart();
    world.server.fs.get_mut(ino(&world)).unwrap().data[0] = 200;
    now[0] = 200;
    assert_eq!(reads_asked(&mut world, "f", (0, 200)).0, Ok(now), "somebody was");
}

#[test]
fn nothing_is_read_from_here_of_what_was_not_held_when_the_server_went() {
    let mut world = has_read(30);
    let at = world.now();
    world.clients[0].machine.caps_lost(at);
    world.keep(0);
    go_away(&mut world);
    assert!(read(&mut world, 0, "f", (0, 200)).is_err());
    die(&mut world, false);
    assert!(read(&mut world, 0, "f", (0, 200)).is_err());
}

#[test]
fn what_was_cut_off_is_zeros_when_the_file_gets_longer_again() {
    for is_away in [false, true] {
        for through in [19, 32, 0] {
            let mut world = has_read(30);
            if is_away {
                go_away(&mut world);
            } else {
                // Held exclusively, so that it is done here.
                write(&mut world, 0, "f", 0, &[1]).unwrap();
                world.drain();
            }
            truncate(&mut world, 0, "f", through).unwrap();
            truncate(&mut world, 0, "f", 70).unwrap();
            let mut now = contents();
            now.truncate(through as usize);
            now.resize(70, 0);
            assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(now.clone()), "{through} {is_away}");
            if is_away {
                world.come_back(false, false);
            }
            world.drain();
            on_disk(&mut world);
            assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(now.clone()), "{through} {is_away}, there");
            go_away(&mut world);
            die(&mut world, false);
            for at in (0..70).step_by(10) {
                if let Ok(data) = read(&mut world, 0, "f", (at, 10)) {
                    assert_eq!(data, now[at as usize..at as usize + 10], "{through} {is_away}, at {at}");
                }
            }
        }
    }
}

#[test]
fn what_is_written_here_and_has_gone_out_is_in_the_blocks() {
    let mut world = has_read(20);
    // Within a block, across two, two whole ones, and behind the end.
    for (at, len, byte) in [(3, 4, 101), (14, 5, 102), (32, 32, 103), (85, 60, 104)] {
        write(&mut world, 0, "f", at, &vec![byte; len]).unwrap();
        world.drain();
    }
    on_disk(&mut world);
    let now = world.server.fs.get(ino(&world)).unwrap().data.clone();
    assert_eq!((now.len(), now[3], now[18], now[40], now[144]), (145, 101, 102, 103, 104));
    assert_eq!(reads_asked(&mut world, "f", (0, 96)), (Ok(now[..96].to_vec()), 0), "without asking");
    go_away(&mut world);
    die(&mut world, true);
    assert_eq!(read(&mut world, 0, "f", (0, 96)), Ok(now[..96].to_vec()));
    if let Ok(data) = read(&mut world, 0, "f", (0, 200)) {
        assert_eq!(data, now);
    }
}

/// Others have written something that the server has not put on its disk, and the mount has read that. The server loses its
/// power, and those others are gone with theirs: the file is as it was before, under the change attribute of after.
fn server_loses_what_was_read(is_settled: bool) -> (World, Vec<u8>) {
    let mut world = keeping(5, 30);
    make(&mut world, 1, "f", &contents());
    world.drain();
    world.disk = Some(world.server.clone());
    write(&mut world, 1, "f", 0, &[200; 40]).unwrap();
    let mut now = contents();
    now[..40].fill(200);
    assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(now.clone()));
    world.write_blocks(true);
    if is_settled {
        on_disk(&mut world);
    }
    world.keep(0);
    let ino = ino(&world);
    let on_disk = world.disk.as_ref().unwrap().fs.get(ino).unwrap().data.clone();
    let (change, mtime) = world.server.fs.get(ino).map(|node| (node.change, node.mtime)).unwrap();
    let inode = world.server.fs.get_mut(ino).unwrap();
    inode.data.clone_from(&on_disk);
    (inode.change, inode.mtime) = (change, mtime);
    world.disk = None;
    (world, on_disk)
}

#[test]
fn what_the_server_has_lost_again_is_not_gone_on_with() {
    for dies in [false, true] {
        let (mut world, there) = server_loses_what_was_read(false);
        assert_eq!(there, contents());
        if dies {
            die(&mut world, false);
        }
        server_restarts(&mut world);
        assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(there), "{dies}");
        // What was known to be on its disk is.
        let (mut world, there) = server_loses_what_was_read(true);
        assert_ne!(there, contents());
        if dies {
            die(&mut world, false);
        }
        server_restarts(&mut world);
        assert_eq!(reads_asked(&mut world, "f", (0, 200)), (Ok(there), 0), "{dies}");
    }
}

#[test]
fn a_block_that_is_not_as_it_was_written_is_not_there() {
    let mut world = has_read(30);
    let store = world.store.as_mut().unwrap();
    store.slots.values_mut().for_each(|slot| slot[2] ^= 1);
    assert_eq!(read(&mut world, 0, "f", (0, 90)), Ok(contents()), "it is asked for");
    assert!(world.clients[0].machine.stats().blocks_lost > 0);
    on_disk(&mut world);
    world.store.as_mut().unwrap().slots.clear();
    go_away(&mut world);
    assert_eq!(read(&mut world, 0, "f", (0, 90)), Err(Errno::ETIMEDOUT));
}

#[test]
fn what_was_written_without_a_promise_and_is_known_again_is_compared() {
    let mut world = has_read(30);
    write(&mut world, 0, "f", 0, &vec![101; 70_000]).unwrap();
    // So much goes by WRITE, when nothing is held any more: the time is the server's.
    let at = world.now();
    world.clients[0].machine.caps_lost(at);
    world.server.restart();
    world.drain();
    assert_eq!(read(&mut world, 0, "f", (0, 200)).map(|data| data[79]), Ok(101));
    world.drain();
    go_away(&mut world);
    write(&mut world, 0, "f", 0, b"ours").unwrap();
    let there = ino(&world);
    let theirs = world.server.fs.get_mut(there).unwrap();
    (theirs.data, theirs.mtime) = (b"theirs".to_vec(), 77);
    world.come_back(false, false);
    world.drain();
    assert_eq!(world.server.fs.get(there).unwrap().data, b"theirs");
    assert_eq!(world.clients[0].machine.conflicts().len(), 1, "ours is beside it");
}

#[test]
fn what_is_switched_off_leaves_the_records_and_everything_is_asked_for() {
    let mut world = has_read(30);
    let blocks = |world: &World| world.kept.as_ref().unwrap().keys().filter(|key| key[0] == b'S').count();
    assert!(blocks(&world) > 3);
    world.clients[0].machine.keep_blocks(0);
    world.keep(0);
    assert_eq!(blocks(&world), 0);
    assert!(reads_asked(&mut world, "f", (0, 90)).1 > 0);
    assert!(world.clients[0].machine.take_blocks().is_empty());
    world.keep(0);
    assert_eq!(blocks(&world), 0);
}

#[test]
fn what_is_forgotten_leaves_nothing_behind_and_the_longest_unread_goes_first() {
    let mut world = has_read(6);
    assert_eq!(world.clients[0].machine.stats().blocks, 6);
    make(&mut world, 1, "g", &[3; 64]);
    world.drain();
    for _ in 0..6 {
        // What is read all the time stays.
        read(&mut world, 0, "f", (0, 16)).unwrap();
        read(&mut world, 0, "g", (0, 64)).unwrap();
        on_disk(&mut world);
    }
    assert_eq!(reads_asked(&mut world, "f", (0, 16)), (Ok(contents()[..16].to_vec()), 0));
    let node = find(&mut world, 0, "g").unwrap();
    world.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, b"g", now)).unwrap();
    world.clients[0].machine.forget(node, u64::MAX);
    world.drain();
    on_disk(&mut world);
    assert!(world.clients[0].machine.stats().blocks <= 6);
}

/// What others do to the file meanwhile.
fn changed_there(world: &mut World, byte: u8) {
    let ino = ino(world);
    let inode = world.server.fs.get_mut(ino).unwrap();
    inode.data.fill(byte);
    inode.mtime += 1_000_000;
}

/// The file of ours beside theirs, and what is told of it.
fn set_apart(world: &World) -> (Vec<u8>, String) {
    let names: Vec<_> = world.server.fs.inodes[&ROOT].entries.iter().collect();
    let apart: Vec<_> = names.iter().filter(|(name, _)| name.starts_with(b"f-")).collect();
    let [(_, ino)] = apart[..] else { panic!("{names:?}") };
    let told = world.clients[0].machine.conflicts().iter().map(|conflict| conflict.what.clone());
    (world.server.fs.get(**ino).unwrap().data.clone(), told.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_file_of_which_others_have_changed_theirs_is_set_apart_whole_in_this_life_and_the_next() {
    for dies in [false, true] {
        let mut world = has_read(30);
        go_away(&mut world);
        write(&mut world, 0, "f", 20, &[99; 30]).unwrap();
        let mut ours = contents();
        ours[20..50].fill(99);
        changed_there(&mut world, 7);
        if dies {
            world.keep(0);
            die(&mut world, true);
        }
        world.come_back(false, false);
        world.drain();
        assert_eq!(set_apart(&world), (ours, "changed here and there".into()), "dies: {dies}");
        assert_eq!(world.server.fs.get(ino(&world)).unwrap().data, [7; 90]);
        assert_eq!(read(&mut world, 0, "f", (0, 200)), Ok(vec![7; 90]), "dies: {dies}");
    }
}

#[test]
fn a_file_that_was_removed_there_is_set_apart_whole() {
    let mut world = has_read(30);
    go_away(&mut world);
    write(&mut world, 0, "f", 89, &[99; 9]).unwrap();
    let gone = ino(&world);
    world.server.fs.remove(ROOT, b"f", false).unwrap();
    world.server.fs.inodes.remove(&gone);
    world.come_back(false, false);
    world.drain();
    let ours = [&contents()[..89], &[99; 9]].concat();
    assert_eq!(set_apart(&world), (ours, "changed here, removed there".into()));
}

#[test]
fn what_was_cut_off_here_and_got_longer_again_is_zeros_in_the_file_that_is_set_apart_and_nothing_is_lost() {
    for through in [19, 32, 0] {
        let mut world = has_read(30);
        go_away(&mut world);
        truncate(&mut world, 0, "f", through).unwrap();
        truncate(&mut world, 0, "f", 70).unwrap();
        write(&mut world, 0, "f", 100, &[99; 3]).unwrap();
        changed_there(&mut world, 7);
        world.come_back(false, false);
        world.drain();
        let mut ours = contents();
        ours.truncate(through as usize);
        ours.resize(100, 0);
        ours.extend([99; 3]);
        assert_eq!(set_apart(&world), (ours, "changed here and there".into()), "{through}");
    }
}

#[test]
fn of_a_file_that_is_set_apart_what_is_lost_is_told_with_its_places() {
    let mut world = keeping(5, 30);
    make(&mut world, 1, "f", &contents());
    world.drain();
    for (at, len) in [(16, 16), (64, 16)] {
        read(&mut world, 0, "f", (at, len)).unwrap();
    }
    on_disk(&mut world);
    go_away(&mut world);
    write(&mut world, 0, "f", 40, &[99; 8]).unwrap();
    changed_there(&mut world, 7);
    world.come_back(false, false);
    world.drain();
    let mut ours = vec![0; 90];
    for known in [16..32, 64..80] {
        ours[known.clone()].copy_from_slice(&contents()[known]);
    }
    ours[40..48].fill(99);
    let (found, told) = set_apart(&world);
    assert_eq!(found, ours);
    let lost = "ours is not whole: of 90 bytes 50 are lost and are zeros: 0-15, 32-39, 48-63, 80-89";
    assert_eq!(told, format!("changed here and there; {lost}"));
    let logged = world.clients[0].machine.take_reports();
    assert!(logged.iter().any(|report| report.what.contains(lost)), "{logged:?}");
}

#[test]
fn a_file_that_was_cut_off_where_it_ended_is_not_taken_for_changed_there() {
    let mut world = has_read(30);
    write(&mut world, 0, "f", 0, &[1]).unwrap();
    world.drain();
    for _ in 0..2 {
        world.ms += 10_000;
        truncate(&mut world, 0, "f", 90).unwrap();
        world.drain();
    }
    go_away(&mut world);
    write(&mut world, 0, "f", 0, &[2]).unwrap();
    world.come_back(false, false);
    world.drain();
    assert_eq!(world.server.fs.get(ino(&world)).unwrap().data[0], 2);
    assert_eq!(world.clients[0].machine.conflicts(), []);
}
