//! Every operation, as a server that is well answers it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_base::limits::AHEAD_REFUSALS_MAX;
use holdfast_client::{
    Attributes, CreateKind, CreateMode, Error, Io, LockArgs, OpenArgs, OpenTarget, Seek, Segment,
    SetAttributes, WantDelegation,
};
use holdfast_wire::nfs4::{NfsFtype4, NfsStat4, SetXattrOption4, StableHow4};

use super::world::World;

#[test]
fn what_is_written_is_read_and_stays_after_commit() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    let data: Vec<u8> = (0..300_000u32).flat_map(u32::to_be_bytes).collect();
    let data = Bytes::from(data);
    let written = client.write(cx, Io::open(&file), 5, data.clone(), StableHow4::Unstable).unwrap();
    let count = written.count as usize;
    assert_eq!(count as u32, client.limits().max_write, "a write is cut to what the server takes");
    assert_eq!(written.attributes.size, 5 + u64::from(written.count));
    let verifier = client.commit(cx, file.handle(), 0, 0).unwrap();
    assert_eq!(verifier, written.verifier);
    let most = client.limits().max_read;
    let read = client.read(cx, Io::open(&file), 5, most).unwrap();
    assert_eq!(read.data, data[..read.data.len()]);
    assert!(read.data.len() >= count.min(most as usize));
    let short = client.read(cx, Io::open(&file), 5 + count as u64 - 3, 100).unwrap();
    assert_eq!((short.data.len(), short.eof), (3, true));
    client.close(cx, &file).unwrap();
    assert_eq!(client.read(cx, Io::open(&file), 0, 1).unwrap_err(), Error::Lost);
    let on_disk = std::fs::read(world.directory.join("file")).unwrap();
    assert_eq!(on_disk[5..], data[..count]);
}

#[test]
fn small_files_are_read_together_and_what_is_refused_does_not_keep_those_behind_it() {
    let world = World::new();
    let user = world.client();
    let (client, cx, root) = (&user.client, user.cx(), &user.root);
    let file = |name: &str| {
        std::fs::write(world.directory.join(name), name).unwrap();
        let node = client.lookup(cx, root, name.as_bytes(), Attributes::STAT).unwrap();
        (node.handle, name.len() as u32)
    };
    // A directory cannot be read, and what is gone cannot be named.
    let (directory, gone) = ((root.clone(), 10), file("gone"));
    client.remove(cx, root, b"gone").unwrap();
    let files = [file("first"), directory.clone(), file("third"), gone, file("fifth")];
    let some = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let read = |files: &[_], within| client.read_some(cx, files, within).unwrap();
    let within = Duration::from_secs(60);
    assert_eq!(read(&files, within), [some("first"), None, some("third"), None, some("fifth")]);
    let all_refused = vec![directory.clone(); 10];
    assert_eq!(read(&all_refused, within), vec![None; AHEAD_REFUSALS_MAX], "it is given up");
    assert_eq!(read(&files, Duration::ZERO), [some("first"), None], "no time is left");
    assert_eq!(read(&[directory, file("last")], within), [None, some("last")]);
}

#[test]
fn names_come_and_go() {
    let world = World::new();
    let user = world.client();
    let (client, cx, root) = (&user.client, user.cx(), &user.root);
    let set = SetAttributes { mode: Some(0o750), ..SetAttributes::default() };
    let dir = client.create(cx, (root, b"dir"), CreateKind::Directory, &set, Attributes::STAT).unwrap();
    let seen = dir.attributes.unwrap();
    assert_eq!((seen.kind, seen.mode), (NfsFtype4::Dir, 0o750));
    assert_ne!(dir.dir.before, dir.dir.after);
    let link = CreateKind::Symlink(b"to/nowhere");
    let link = client.create(cx, (&dir.handle, b"link"), link, &set, Attributes::STAT).unwrap();
    assert_eq!(client.readlink(cx, &link.handle).unwrap(), &b"to/nowhere"[..]);
    let fifo = client.create(cx, (&dir.handle, b"fifo"), CreateKind::Fifo, &set, Attributes::STAT).unwrap();
    assert_eq!(fifo.attributes.unwrap().kind, NfsFtype4::Fifo);
    let (_, twice) = client.link(cx, &fifo.handle, (root, b"again"), Attributes::STAT).unwrap();
    let twice = twice.unwrap();
    assert_eq!(twice.links, 2);
    client.rename(cx, (&dir.handle, b"fifo"), (root, b"moved")).unwrap();
    let missing = client.lookup(cx, &dir.handle, b"fifo", Attributes::STAT).unwrap_err();
    assert_eq!(missing, Error::Nfs(NfsStat4::NoEnt));
    assert_eq!(client.lookup(cx, root, b"moved", Attributes::STAT).unwrap().attributes.fileid, twice.fileid);
    assert_eq!(client.remove(cx, root, b"dir").unwrap_err().status(), Some(NfsStat4::NotEmpty));
    client.remove(cx, &dir.handle, b"link").unwrap();
    client.remove(cx, root, b"dir").unwrap();
    let parent = client.lookup_parent(cx, root, Attributes::STAT);
    assert!(parent.is_ok(), "the pseudo root is above: {parent:?}");
    let again = client.create(cx, (root, b"moved"), CreateKind::Directory, &set, Attributes::STAT);
    assert_eq!(again.unwrap_err().status(), Some(NfsStat4::Exist));
}

#[test]
fn a_large_directory_is_listed_once_each_with_attributes_and_handles() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    for n in 0..500 {
        std::fs::write(world.directory.join(format!("file{n}")), vec![b'x'; n]).unwrap();
    }
    let (mut names, mut at, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let part = client.readdir(cx, &user.root, (at, verifier), 8 << 10, Attributes::ENTRY).unwrap();
        for entry in &part.entries {
            let handle = entry.attributes.handle.as_ref().unwrap();
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            assert_eq!(entry.attributes.size.to_string(), name["file".len()..]);
            assert_eq!(client.lookup(cx, &user.root, &entry.name, Attributes::STAT).unwrap().handle, *handle);
            names.push(name);
            at = entry.cookie;
        }
        verifier = part.verifier;
        if part.eof {
            break;
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 500);
}

#[test]
fn attributes_are_set_and_shown() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    let set = SetAttributes {
        size: Some(12_345),
        mode: Some(0o600),
        uid: Some(1234),
        gid: Some(4321),
        ..SetAttributes::default()
    };
    let now = client.setattr(cx, file.handle(), Some(&file), &set, Attributes::STAT_BIRTH).unwrap();
    assert_eq!((now.size, now.mode, now.uid, now.gid), (12_345, 0o600, 1234, 4321));
    let before = client.getattr(cx, file.handle(), Attributes::STAT).unwrap();
    let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    let after = client.setattr(cx, file.handle(), None, &set, Attributes::STAT).unwrap();
    assert_ne!(before.change, after.change);
    let space = client.statfs(cx, &user.root).unwrap();
    assert!(space.total >= space.free && space.free >= space.available && space.total > 0);
    assert_eq!(client.access(cx, file.handle(), 0x3f).unwrap() & 1, 1);
}

#[test]
fn creating_guarded_or_exclusively_finds_what_exists() {
    let world = World::new();
    let user = world.client();
    let file = user.open("new", Some(CreateMode::Exclusive), WantDelegation::No);
    assert_eq!(file.attributes.mode, 0o644);
    assert_ne!(file.dir.before, file.dir.after);
    let set = SetAttributes::default();
    for mode in [CreateMode::Guarded, CreateMode::Exclusive] {
        let args = OpenArgs {
            target: OpenTarget::Name(&user.root, b"new"),
            access: 1,
            deny: 0,
            create: Some(holdfast_client::Create { mode, set: &set }),
            delegation: WantDelegation::No,
            want: Attributes::STAT,
        };
        let refused = user.client.open(user.cx(), &args).unwrap_err();
        assert_eq!(refused.status(), Some(NfsStat4::Exist), "{mode:?}");
    }
    let by_handle = OpenArgs {
        target: OpenTarget::File(file.file.handle()),
        access: 1,
        deny: 0,
        create: None,
        delegation: WantDelegation::No,
        want: Attributes::STAT,
    };
    let again = user.client.open(user.cx(), &by_handle).unwrap();
    assert_eq!(again.attributes.fileid, file.attributes.fileid);
    user.client.downgrade(user.cx(), &file.file, 3).unwrap();
    let refused = user.client.downgrade(user.cx(), &file.file, 1).unwrap_err();
    assert_eq!(refused.status(), Some(NfsStat4::Inval), "no part was opened by itself");
    assert_eq!(file.file.access(), 3);
}

#[test]
fn holes_are_made_found_and_copied_over() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let (from, to) = (user.make("from"), user.make("to"));
    let data = Bytes::from(vec![7; 1 << 20]);
    let mut at = 0;
    while at < data.len() {
        let most = (client.limits().max_write as usize).min(data.len() - at);
        let part = data.slice(at..at + most);
        at +=
            client.write(cx, Io::open(&from), at as u64, part, StableHow4::FileSync).unwrap().count as usize;
    }
    client.deallocate(cx, Io::open(&from), 256 << 10, 256 << 10).unwrap();
    let hole = client.seek(cx, Io::open(&from), 0, Seek::Hole).unwrap();
    assert_eq!((hole.offset, hole.eof), (256 << 10, false));
    assert_eq!(client.seek(cx, Io::open(&from), hole.offset, Seek::Data).unwrap().offset, 512 << 10);
    client.allocate(cx, Io::open(&to), 0, 4096).unwrap();
    let copied = client.copy(cx, (Io::open(&from), 0), (Io::open(&to), 0), 1 << 20).unwrap();
    assert_eq!(copied.count, 1 << 20);
    let both = ["from", "to"].map(|name| std::fs::read(world.directory.join(name)).unwrap());
    assert!(both[0] == both[1]);
    let (segments, eof) = client.read_plus(cx, Io::open(&from), 0, 1 << 20).unwrap();
    let read: u64 = segments
        .iter()
        .map(|segment| match segment {
            Segment::Data(at, data) => {
                assert!(data.iter().all(|byte| *byte == 7) && !(256 << 10..512 << 10).contains(at));
                data.len() as u64
            }
            Segment::Hole(at, length) => {
                assert_eq!((*at, *length), (256 << 10, 256 << 10));
                *length
            }
        })
        .sum();
    assert!(read > 512 << 10 && (eof || read < 1 << 20), "{segments:?}");
    let beyond = client.seek(cx, Io::open(&from), 2 << 20, Seek::Data).unwrap_err();
    assert_eq!(beyond.status(), Some(NfsStat4::Nxio));
}

#[test]
fn extended_attributes_are_kept_by_name() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    let handle = file.handle();
    client.setxattr(cx, handle, (b"colour", b"red"), SetXattrOption4::Create).unwrap();
    client.setxattr(cx, handle, (b"size", b"big"), SetXattrOption4::Either).unwrap();
    assert_eq!(client.getxattr(cx, handle, b"colour").unwrap(), &b"red"[..]);
    let taken = client.setxattr(cx, handle, (b"colour", b"blue"), SetXattrOption4::Create).unwrap_err();
    assert_eq!(taken.status(), Some(NfsStat4::Exist));
    let mut names = client.listxattrs(cx, handle).unwrap();
    names.sort();
    assert_eq!(names, [&b"colour"[..], b"size"]);
    client.removexattr(cx, handle, b"colour").unwrap();
    let gone = client.getxattr(cx, handle, b"colour").unwrap_err();
    assert_eq!(gone.status(), Some(NfsStat4::NoXattr));
}

/// As of a server that forks for each connection, and locks through what its children inherit.
#[test]
fn owners_who_hold_nothing_any_more_are_forgotten_at_both_ends_while_the_file_stays_open() {
    const OWNERS: u32 = 300;
    let world = World::new();
    let user = world.client();
    let file = user.make("mutex");
    let (client, cx) = (&user.client, user.cx());
    for owner in 0..OWNERS {
        let owner = owner.to_be_bytes();
        let args = LockArgs { owner: &owner, range: ByteRange::ALL, exclusive: true };
        client.lock(cx, &file, &args).unwrap();
        client.unlock(cx.cancel, file.handle(), &owner, ByteRange::ALL).unwrap();
    }
    let freed = || {
        let metrics = world.server.ask(&["status", "--prometheus"]).unwrap();
        let line = metrics.lines().find(|line| line.contains("FREE_STATEID") && line.contains("_total"));
        line.and_then(|line| line.rsplit(' ').next()).map_or(0, |count| count.parse::<u32>().unwrap())
    };
    let started = Instant::now();
    while freed() < OWNERS - 17 {
        assert!(started.elapsed() < Duration::from_secs(20), "{} of {OWNERS} are forgotten", freed());
        std::thread::sleep(Duration::from_millis(50));
    }
    // One who was forgotten begins anew, and what others hold is not touched.
    let (first, last) = (0_u32.to_be_bytes(), (OWNERS - 1).to_be_bytes());
    let lock = |owner| LockArgs { owner, range: ByteRange::ALL, exclusive: true };
    client.lock(cx, &file, &lock(&first)).unwrap();
    assert!(client.lock(cx, &file, &lock(&last)).is_err());
    client.unlock(cx.cancel, file.handle(), &first, ByteRange::ALL).unwrap();
    client.lock(cx, &file, &lock(&last)).unwrap();
}

#[test]
fn locks_of_one_owner_are_in_the_way_of_another_until_unlocked() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    let range = |first, last| ByteRange::from_bounds(first, last).unwrap();
    let lock = |owner, range| LockArgs { owner, range, exclusive: true };
    client.lock(cx, &file, &lock(b"one", range(0, 99))).unwrap();
    let refused = client.lock(cx, &file, &lock(b"two", range(50, 60))).unwrap_err();
    assert_eq!(refused.status(), Some(NfsStat4::Denied));
    let conflict = client.lock_test(cx, file.handle(), &lock(b"two", range(50, 60))).unwrap().unwrap();
    assert_eq!((conflict.range, conflict.exclusive, conflict.is_own), (range(0, 99), true, true));
    assert_eq!(conflict.owner, &b"one"[..]);
    client.unlock(cx.cancel, file.handle(), b"one", range(50, 60)).unwrap();
    client.lock(cx, &file, &lock(b"two", range(50, 60))).unwrap();
    assert!(client.holds_locks(file.handle(), b"one"));
    client.close(cx, &file).unwrap();
    assert!(!client.holds_locks(file.handle(), b"one"));
    let file = user.make("file");
    client.lock(cx, &file, &lock(b"three", ByteRange::ALL)).unwrap();
}
