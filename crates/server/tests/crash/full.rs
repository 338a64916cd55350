//! The state directory on the exported file system, which a client has filled: who is on record goes on, who is not is turned
//! away and let in when there is room again, by the same server.

use std::fs::File;
use std::rc::Rc;

use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::NfsStat4;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::disk::Disk;
use crate::nfs4::Client;
use crate::server::World;

/// More clients than the records' file holds as it is, at a KiB of name each.
const CLIENTS_MAX: u32 = 20_000;

/// Takes all the room there is.
fn fill(world: &World) {
    let filler = File::create(world.files().join("filler")).unwrap();
    let mut at = 0;
    for bytes in [1 << 20, 1 << 16, 1 << 12] {
        while fallocate(&filler, FallocateFlags::empty(), at, bytes).is_ok() {
            at += bytes;
        }
    }
    assert!(statvfs(world.files()).unwrap().f_bavail < 16);
}

#[test]
fn a_full_state_directory_turns_new_clients_away_and_needs_no_restart() {
    let disk = Disk::make("ext4");
    let world = Rc::new(World::lasting(Some(disk.mount()), Point::BeforeSend, true));
    std::fs::write(world.files().join("file"), b"precious").unwrap();
    let mut known = Client::new(&world, "known", 1);
    assert_eq!(known.try_open(b"file"), NfsStat4::Ok);
    fill(&world);
    let name = |n: u32| format!("{n:01000}");
    let refused = (0..CLIENTS_MAX).find_map(|n| {
        let status = Client::try_introduce(&world, &name(n));
        (status != NfsStat4::Ok).then_some((n, status))
    });
    let (n, status) = refused.expect("there is room for all");
    assert_eq!(status, NfsStat4::Delay, "after {n}");
    assert_eq!(Client::try_introduce(&world, &name(n)), NfsStat4::Delay);
    assert_eq!(known.try_open(b"file"), NfsStat4::Ok, "who is on record goes on");
    std::fs::remove_file(world.files().join("filler")).unwrap();
    assert_eq!(Client::try_introduce(&world, &name(n)), NfsStat4::Ok);
    assert_eq!(world.kills(), 0, "nobody started it again");
}
