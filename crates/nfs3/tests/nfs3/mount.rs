//! MOUNT.

use holdfast_export::ClientRule;
use holdfast_wire::mount3::*;
use holdfast_wire::nfs3::{Fh3, NfsStat3, Proc3};
use holdfast_xdr::to_bytes;

use crate::world::*;

fn mount(w: &mut World, path: &str) -> Result<Vec<u8>, MountStat3> {
    w.xid += 1;
    let reply = w.raw(MOUNT_PROGRAM, MOUNTPROC3_MNT, &to_bytes(&DirPath(path.as_bytes()))).unwrap();
    match decode::<MountRes3<'_>>(&reply) {
        MountRes3::Ok(ok) => {
            assert_eq!(ok.auth_flavors, [1]);
            Ok(ok.fhandle.to_vec())
        }
        MountRes3::Fail(status) => Err(status),
    }
}

fn call(w: &mut World, procedure: u32, args: &[u8]) -> Vec<u8> {
    w.xid += 1;
    w.raw(MOUNT_PROGRAM, procedure, args).unwrap()
}

#[test]
fn the_root_exports_and_directories_below_them_can_be_mounted() {
    let mut w = World::new();
    let d = w.mkdir("d");
    w.create("file");
    assert_eq!(mount(&mut w, "/"), Ok(w.handle_at(b"/")));
    assert_eq!(mount(&mut w, ""), Ok(w.handle_at(b"/")));
    assert_eq!(mount(&mut w, "/more"), Ok(w.handle_at(b"/more")));
    assert_eq!(mount(&mut w, "/data"), Ok(w.root()));
    assert_eq!(mount(&mut w, "/data/d/"), Ok(d.clone()));
    assert_eq!(mount(&mut w, "//data/./d"), Ok(d));
    assert_eq!(mount(&mut w, "/data/absent"), Err(MountStat3::NoEnt));
    assert_eq!(mount(&mut w, "/absent"), Err(MountStat3::NoEnt));
    assert_eq!(mount(&mut w, "/data/file/x"), Err(MountStat3::NotDir));
    assert_eq!(mount(&mut w, "/data/../data"), Err(MountStat3::Inval));
    assert_eq!(mount(&mut w, &"x/".repeat(2100)), Err(MountStat3::NameTooLong));
}

#[test]
fn a_host_that_the_rules_leave_out_is_refused_by_name() {
    let mut w = World::with(|o| o.clients = vec!["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(mount(&mut w, "/data"), Err(MountStat3::Acces));
    assert_eq!(mount(&mut w, "/data/below"), Err(MountStat3::Acces));
    assert_eq!(mount(&mut w, "/absent"), Err(MountStat3::NoEnt));
}

#[test]
fn a_mount_that_would_block_runs_on_the_pool() {
    let mut w = World::new();
    let d = w.mkdir("d");
    w.fs.block_every(1);
    assert_eq!(mount(&mut w, "/data/d"), Ok(d));
}

#[test]
fn dump_lists_what_is_mounted_until_it_is_unmounted() {
    let mut w = World::new();
    mount(&mut w, "/data").unwrap();
    mount(&mut w, "/more").unwrap();
    mount(&mut w, "/data").unwrap();
    let entry = |directory| MountEntry { hostname: b"127.0.0.1", directory };
    let reply = call(&mut w, MOUNTPROC3_DUMP, b"");
    assert_eq!(decode::<MountList<'_>>(&reply).mounts, [entry(b"/more"), entry(b"/data")]);
    assert_eq!(call(&mut w, MOUNTPROC3_UMNT, &to_bytes(&DirPath(b"/data"))), b"");
    let reply = call(&mut w, MOUNTPROC3_DUMP, b"");
    assert_eq!(decode::<MountList<'_>>(&reply).mounts, [entry(b"/more")]);
    assert_eq!(call(&mut w, MOUNTPROC3_UMNTALL, b""), b"");
    let reply = call(&mut w, MOUNTPROC3_DUMP, b"");
    assert_eq!(decode::<MountList<'_>>(&reply).mounts, []);
}

#[test]
fn the_memory_of_mounts_is_bounded() {
    let mut w = World::new();
    for i in 0..holdfast_base::limits::MOUNTS_REMEMBERED_MAX + 10 {
        // As many spellings of one path as needed.
        mount(&mut w, &format!("{}data", "/".repeat(i + 1))).unwrap();
    }
    let reply = call(&mut w, MOUNTPROC3_DUMP, b"");
    let list = decode::<MountList<'_>>(&reply);
    assert_eq!(list.mounts.len(), holdfast_base::limits::MOUNTS_REMEMBERED_MAX);
    assert_eq!(list.mounts[0].directory.len(), 4 + 11, "the oldest went");
}

#[test]
fn export_lists_what_the_peer_may_mount_and_who_else_may() {
    let rules = || vec!["192.0.2.0/24".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
    let mut w = World::with(|o| o.clients = rules());
    let reply = call(&mut w, MOUNTPROC3_EXPORT, b"");
    let groups = || vec![Group(b"192.0.2.0/24"), Group(b"127.0.0.0/8")];
    let expected = [&b"/data"[..], b"/more/other"].map(|dir| Export { dir, groups: groups() });
    assert_eq!(decode::<Exports<'_>>(&reply).exports, expected);
    let mut open = World::with(|o| o.clients.push(ClientRule::All));
    let reply = call(&mut open, MOUNTPROC3_EXPORT, b"");
    assert!(decode::<Exports<'_>>(&reply).exports.iter().all(|e| e.groups.is_empty()));
    let mut closed = World::with(|o| o.clients = vec!["192.0.2.0/24".parse().unwrap()]);
    let reply = call(&mut closed, MOUNTPROC3_EXPORT, b"");
    assert_eq!(decode::<Exports<'_>>(&reply).exports, []);
}

#[test]
fn null_answers_and_an_unknown_procedure_does_not() {
    let mut w = World::new();
    assert_eq!(call(&mut w, MOUNTPROC3_NULL, b""), b"");
    assert_eq!(w.raw(MOUNT_PROGRAM, 9, b""), None);
}

#[test]
fn what_lies_on_another_server_is_neither_mounted_nor_listed_and_its_handles_are_stale() {
    let mut w = World::with(|o| o.moved_to = vec!["192.0.2.7".parse().unwrap()]);
    assert_eq!(mount(&mut w, "/data"), Err(MountStat3::NoEnt));
    let listed = call(&mut w, MOUNTPROC3_EXPORT, b"");
    assert!(decode::<Exports<'_>>(&listed).exports.is_empty());
    let root = w.root();
    let reply = w.call(Proc3::GetAttr, &Fh3(&root));
    assert_eq!(status(&reply), NfsStat3::Stale);
}
