//! Attributes, and the change attribute above all.

use holdfast_base::Timestamp;

use super::TestBackend;
use super::world::{World, mode, name};
use crate::attrs::{AttrMask, FileKind, SetAttrs, SetTime};
use crate::error::FsError;
use crate::making::NewNode;
use crate::open::{File, RenameFlags};

pub(super) fn attributes_tell_what_was_set(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", &[7; 10_000]);
    let attrs = w.attrs(&file);
    assert_eq!((attrs.kind, attrs.size, attrs.nlink, attrs.mode), (FileKind::Regular, 10_000, 1, 0o644));
    assert!(attrs.ctime.seconds > 1_500_000_000);
    assert_eq!(attrs.fsid, w.attrs(&w.root).fsid);
    let before = w.attrs(&file);
    let change = w.b().setattr(&w.cx(), File::Stateless(&file), &mode(0o600), None).unwrap();
    assert_eq!(change.before.change, before.change);
    assert_eq!((change.before.size, change.before.mtime), (before.size, before.mtime));
    assert_eq!((change.after.mode, change.after.size), (0o600, 10_000));
    let dir = w.mkdir(&w.root, "dir", 0o700);
    assert_eq!(w.attrs(&dir).kind, FileKind::Directory);
    if w.b().limits(&file).unwrap().has_birth_time {
        assert!(attrs.btime.is_some());
    }
}

pub(super) fn a_mode_keeps_its_set_id_and_sticky_bits(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let dir = w.mkdir(&w.root, "dir", 0o755);
    for (object, bits) in [(&file, 0o4755), (&file, 0o6711), (&file, 0o000), (&dir, 0o1777), (&dir, 0o2770)] {
        w.set(object, &mode(bits)).unwrap();
        assert_eq!(w.attrs(object).mode, bits);
    }
    let (made, _) = w.b().make(&w.cx(), &w.root, name("sticky"), NewNode::Directory, &mode(0o3777)).unwrap();
    assert_eq!(made.attrs.mode, 0o3777);
}

pub(super) fn times_are_set_as_given_and_to_now(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let (a, m) = (
        Timestamp { seconds: 1_234_567_890, nanos: 123_456_700 },
        Timestamp { seconds: 2_000_000_000, nanos: 0 },
    );
    let set = SetAttrs { atime: Some(SetTime::At(a)), mtime: Some(SetTime::At(m)), ..SetAttrs::default() };
    w.set(&file, &set).unwrap();
    let got = w.attrs(&file);
    let delta = w.b().limits(&file).unwrap().time_delta_nanos.max(1);
    assert_eq!((got.atime.seconds, got.mtime), (a.seconds, m));
    assert_eq!(got.atime.nanos / delta, a.nanos / delta);
    w.set(&file, &SetAttrs { mtime: Some(SetTime::Now), ..SetAttrs::default() }).unwrap();
    let now = w.attrs(&file);
    assert!(now.mtime.seconds < 2_000_000_000 && now.mtime.seconds > 1_500_000_000);
    assert_eq!(now.atime.seconds, a.seconds, "the other time stays");
}

pub(super) fn size_cuts_and_extends_with_zeros(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"content");
    let size = |n| SetAttrs { size: Some(n), ..SetAttrs::default() };
    w.set(&file, &size(3)).unwrap();
    assert_eq!(w.read(&file), b"con");
    w.set(&file, &size(6)).unwrap();
    assert_eq!(w.read(&file), b"con\0\0\0");
    w.set(&file, &size(0)).unwrap();
    assert_eq!(w.attrs(&file).size, 0);
}

pub(super) fn size_is_refused_on_what_is_no_regular_file(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let (fifo, _) = w.b().make(&w.cx(), &w.root, name("fifo"), NewNode::Fifo, &mode(0o644)).unwrap();
    let size = SetAttrs { size: Some(1), ..SetAttrs::default() };
    assert_eq!(w.set(&dir, &size), Err(FsError::IsDir));
    assert_eq!(w.set(&fifo.handle, &size), Err(FsError::Invalid));
}

pub(super) fn a_guard_that_differs_changes_nothing(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let ctime = w.attrs(&file).ctime;
    let wrong = Timestamp { seconds: ctime.seconds - 1, nanos: ctime.nanos };
    let set = |guard| {
        w.b().setattr(&w.cx(), File::Stateless(&file), &mode(0o600), Some(guard)).map(|c| c.after.mode)
    };
    assert_eq!(set(wrong), Err(FsError::NotSync));
    assert_eq!(w.attrs(&file).mode, 0o644);
    assert_eq!(set(ctime), Ok(0o600));
}

/// Every step is followed by a look; the steps come as fast as they can, so that many fall into one tick.
pub(super) fn change_differs_after_every_change_somebody_could_see(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let look = |object| w.b().getattr(&w.cx(), object, AttrMask::CHANGE).unwrap().change;
    let mut seen = vec![look(&file)];
    for i in 0..100_u8 {
        match i % 3 {
            0 => w.write(&file, 0, &[i]),
            1 => w.set(&file, &mode(0o600 + u32::from(i % 2))).unwrap(),
            _ => w.set(&file, &SetAttrs { size: Some(u64::from(i)), ..SetAttrs::default() }).unwrap(),
        }
        seen.push(look(&file));
    }
    let mut names = vec![look(&w.root)];
    for i in 0..100 {
        let n = format!("name{}", i / 3);
        match i % 3 {
            0 => drop(w.touch(&w.root, &n)),
            1 => drop(w.b().rename(
                &w.cx(),
                (&w.root, name(&n)),
                (&w.root, name("renamed")),
                RenameFlags::Replace,
            )),
            _ => w.remove(&w.root, "renamed").unwrap(),
        }
        names.push(look(&w.root));
    }
    for values in [seen, names] {
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
    }
}

pub(super) fn change_stays_when_nothing_changed(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"content");
    // Whatever a first look settles.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let first = w.attrs(&file).change;
    w.read(&file);
    w.find(&w.root, "file").unwrap();
    assert_eq!(w.attrs(&file).change, first);
    w.b().shed(0);
    assert_eq!(w.attrs(&file).change, first);
}

pub(super) fn ids_of_objects_are_distinct_and_stable(t: TestBackend) {
    let w = World::new(t);
    let mut ids: Vec<u64> = (0..50).map(|i| w.attrs(&w.touch(&w.root, &format!("f{i}"))).fileid).collect();
    w.b().shed(0);
    for (i, id) in ids.iter().enumerate() {
        let attrs = w.find(&w.root, &format!("f{i}")).unwrap().attrs;
        assert_eq!((attrs.fileid, attrs.mounted_on_fileid), (*id, *id));
    }
    ids.push(w.attrs(&w.root).fileid);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 51);
}

pub(super) fn usage_and_limits_make_sense(t: TestBackend) {
    let w = World::new(t);
    let usage = w.b().usage(&w.cx(), &w.root).unwrap();
    assert!(usage.bytes_free <= usage.bytes_total && usage.bytes_available <= usage.bytes_free);
    assert!(usage.bytes_total > 0);
    let limits = w.b().limits(&w.root).unwrap();
    assert_eq!(limits.name_bytes_max, 255);
    assert!(limits.links_max > 1 && limits.file_bytes_max > 1 << 32);
    assert!(!limits.is_read_only);
    assert_eq!(limits.has_clone, limits.clone_block_bytes > 0);
}
