//! The server's disk is full when the mount is back with what was done without it: people are told what was lost, and of which file.

use super::*;

/// More than goes with the stream.
static MUCH: [u8; 100_000] = [7; 100_000];

#[test]
fn what_there_is_no_room_for_is_told_by_its_path() {
    for dies in [false, true] {
        let (mut world, dir, ino) = settled();
        write(&mut world, dir, "f", b"new", false);
        write(&mut world, dir, "s/a", &MUCH, false);
        write(&mut world, dir, "new", b"new", true);
        // What is above them is not as it was: no name in it is relied on any more.
        there(&mut world, ino, "other", b"theirs");
        world.server.is_full = true;
        world.come_back(dies, false);
        let machine = &mut world.clients[0].machine;
        let told = machine.conflicts().iter();
        let mut told: Vec<_> =
            told.map(|c| format!("{}: {}", String::from_utf8_lossy(&c.path), c.what)).collect();
        told.sort();
        let made = "d/new: made here, which failed there: ENOSPC";
        let written = |name: &str| format!("d/{name}: written here, which failed there: ENOSPC");
        assert_eq!(told, [written("f"), made.to_owned(), written("s/a")], "dies: {dies}");
        let mut told: Vec<_> = machine
            .take_reports()
            .iter()
            .map(|report| format!("{}: {}", String::from_utf8_lossy(&report.path), report.what))
            .collect();
        told.sort();
        told.dedup();
        assert_eq!(told, ["d/f: write", "d/new: create", "d/s/a: write"], "dies: {dies}");
    }
}
