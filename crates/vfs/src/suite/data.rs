//! Reading, writing, and making it durable.

use std::io::{Read as _, Seek as _, SeekFrom};

use super::TestBackend;
use super::world::{BOTH, READ, WRITE, World, at, mode, name};
use crate::attrs::{AttrMask, SetAttrs};
use crate::data::{Touched, WriteAt};
use crate::error::FsError;
use crate::making::NewNode;
use crate::open::File;

pub(super) fn what_was_written_is_read(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"hello");
    w.write(&file, 3, b"p!!");
    assert_eq!(w.read(&file), b"help!!");
    let open = w.open(&file, BOTH);
    let open = File::Open(&file, &open);
    w.b().write(&w.cx(), open, at(0), b"H").unwrap();
    assert_eq!(w.read_as(&w.me, open).unwrap(), b"Help!!");
    assert_eq!(w.read(&file), b"Help!!");
}

pub(super) fn reading_tells_the_end(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"0123456789");
    let read = |offset, bytes| {
        let mut data = vec![0; bytes];
        let read = w.b().read(&w.cx(), File::Stateless(&file), offset, &mut data).unwrap();
        (data[..read.bytes].to_vec(), read.is_eof)
    };
    assert_eq!(read(0, 4), (b"0123".to_vec(), false));
    assert_eq!(read(6, 4), (b"6789".to_vec(), true));
    assert_eq!(read(6, 5), (b"6789".to_vec(), true));
    assert_eq!(read(10, 5), (vec![], true));
    assert_eq!(read(1 << 40, 5), (vec![], true));
    assert_eq!(read(u64::MAX - 3, 5), (vec![], true));
    assert_eq!(read(3, 0), (vec![], false));
}

pub(super) fn writing_beyond_the_end_leaves_zeros(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"ab");
    w.write(&file, 5, b"cd");
    assert_eq!(w.read(&file), b"ab\0\0\0cd");
}

pub(super) fn writing_tells_the_change_when_asked(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let before = w.attrs(&file);
    let asked = WriteAt { want_change: true, ..at(0) };
    let written = w.b().write(&w.cx(), File::Stateless(&file), asked, b"abc").unwrap();
    let change = written.change.unwrap();
    assert_eq!((change.before.size, change.before.change), (0, before.change));
    assert_eq!(change.after.size, 3);
    assert_ne!(change.after.change, before.change);
    assert_eq!(w.attrs(&file).change, change.after.change);
}

pub(super) fn reading_and_writing_need_a_regular_file(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let made = |n, what| w.b().make(&w.cx(), &w.root, name(n), what, &mode(0o666)).unwrap().0.handle;
    let (link, fifo) = (made("link", NewNode::Symlink(b"x")), made("fifo", NewNode::Fifo));
    for (object, error) in [(dir, FsError::IsDir), (link, FsError::IsSymlink), (fifo, FsError::WrongKind)] {
        let file = File::Stateless(&object);
        assert_eq!(w.b().read(&w.cx(), file, 0, &mut [0; 4]).unwrap_err(), error);
        assert_eq!(w.b().write(&w.cx(), file, at(0), b"x").unwrap_err(), error);
        assert_eq!(w.b().open(&w.cx(), &object, READ).map(drop).unwrap_err(), error);
    }
}

pub(super) fn an_open_file_outlives_its_name(t: TestBackend) {
    let keeps_handles = t.abilities.keeps_handles_of_open_removed;
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"content");
    let open = w.open(&file, BOTH);
    w.remove(&w.root, "file").unwrap();
    assert_eq!(w.read_as(&w.me, File::Open(&file, &open)).unwrap(), b"content");
    w.b().write(&w.cx(), File::Open(&file, &open), at(7), b"!").unwrap();
    if keeps_handles {
        let attrs = w.attrs(&file);
        assert_eq!((attrs.nlink, attrs.size), (0, 8));
    }
    drop(open);
    assert_eq!(w.b().getattr(&w.cx(), &file, AttrMask::STAT), Err(FsError::Stale));
}

pub(super) fn spans_name_the_same_bytes(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"0123456789");
    let span = |offset, bytes| w.b().read_span(&w.cx(), File::Stateless(&file), offset, bytes).unwrap();
    for (offset, bytes, want, is_eof) in
        [(2, 3, &b"234"[..], false), (7, 3, b"789", true), (7, 9, b"789", true), (20, 9, b"", true)]
    {
        let Some(span) = span(offset, bytes) else { return };
        let mut from = std::fs::File::from(span.fd.try_clone().unwrap());
        from.seek(SeekFrom::Start(span.offset)).unwrap();
        let mut data = vec![0; span.bytes];
        from.read_exact(&mut data).unwrap();
        assert_eq!((&data[..], span.is_eof), (want, is_eof));
    }
}

pub(super) fn an_open_for_reading_does_not_write(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"content");
    let open = w.open(&file, READ);
    let written = w.b().write(&w.cx(), File::Open(&file, &open), at(0), b"x");
    assert_eq!(written.unwrap_err(), FsError::Access);
    let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
    let set = w.b().setattr(&w.cx(), File::Open(&file, &open), &cut, None);
    assert_eq!(set.unwrap_err(), FsError::Access);
    let open = w.open(&file, WRITE);
    w.b().write(&w.cx(), File::Open(&file, &open), at(0), b"C").unwrap();
    assert_eq!(w.read(&file), b"Content");
}

pub(super) fn commits_succeed_for_everything_that_was_touched(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let file = w.file(&dir, "file", &[1; 100_000]);
    let (link, _) = w.b().make(&w.cx(), &dir, name("link"), NewNode::Symlink(b"x"), &mode(0o777)).unwrap();
    let gone = w.touch(&dir, "gone");
    w.remove(&dir, "gone").unwrap();
    let touched =
        [(w.root, false), (dir, false), (file, true), (file, false), (link.handle, false), (gone, true)];
    let touched = touched.map(|(handle, data)| Touched { handle, data });
    let mut results = vec![Err(FsError::Io); touched.len()];
    w.b().commit(&touched, &mut results);
    assert_eq!(results, vec![Ok(()); touched.len()]);
    assert_eq!(w.b().commit_domain(&dir), w.b().commit_domain(&file));
    // Again, with nothing left to do.
    w.b().commit(&touched[..3], &mut results[..3]);
    assert_eq!(results[..3], vec![Ok(()); 3]);
    w.b().commit(&[], &mut []);
}

pub(super) fn the_write_verifier_stays_while_nothing_is_lost(t: TestBackend) {
    let w = World::new(t);
    let verifier = w.b().write_verifier();
    let file = w.file(&w.root, "file", b"content");
    let mut results = [Ok(())];
    w.b().commit(&[Touched { handle: file, data: true }], &mut results);
    assert_eq!(w.b().write_verifier(), verifier);
}

pub(super) fn large_offsets_work_and_impossible_ones_are_refused(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    w.write(&file, 5 << 30, b"far");
    assert_eq!(w.attrs(&file).size, (5 << 30) + 3);
    let mut data = [9; 5];
    let read = w.b().read(&w.cx(), File::Stateless(&file), (5 << 30) - 2, &mut data).unwrap();
    assert_eq!((read.bytes, &data), (5, b"\0\0far"));
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64] {
        let written = w.b().write(&w.cx(), File::Stateless(&file), at(offset), b"xy");
        assert_eq!(written.unwrap_err(), FsError::TooBig, "{offset:x}");
    }
}
