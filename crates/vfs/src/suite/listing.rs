//! Listing directories.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::Cookie;

use super::TestBackend;
use super::world::{World, name};
use crate::attrs::AttrMask;
use crate::error::FsError;
use crate::handle::Handle;
use crate::listing::{DirListing, Flow, ListEnd};
use crate::making::NewNode;

const MANY: usize = 700;

fn filled(w: &World) -> (Handle, BTreeSet<Vec<u8>>) {
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let names: BTreeSet<_> = (0..MANY).map(|i| format!("an entry with number {i}").into_bytes()).collect();
    for n in &names {
        w.touch(&dir, std::str::from_utf8(n).unwrap());
    }
    (dir, names)
}

/// All names, asked for in pieces.
fn in_pieces(w: &World, dir: &Handle, piece: usize) -> Vec<Vec<u8>> {
    let (mut all, mut from) = (Vec::new(), Cookie(0));
    loop {
        let (seen, end) = w.list(dir, from, piece);
        if let Some((_, next)) = seen.last() {
            from = *next;
        }
        all.extend(seen.into_iter().map(|(n, _)| n));
        if end == ListEnd::Eof {
            return all;
        }
    }
}

pub(super) fn a_listing_gives_every_entry_once(t: TestBackend) {
    let w = World::new(t);
    let empty = w.mkdir(&w.root, "empty", 0o755);
    assert_eq!(w.list(&empty, Cookie(0), 10), (vec![], ListEnd::Eof));
    let (dir, names) = filled(&w);
    for piece in [1, 7, 100, MANY, MANY + 1] {
        let seen = in_pieces(&w, &dir, piece);
        assert_eq!(seen.len(), MANY, "in pieces of {piece}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
    }
}

pub(super) fn a_listing_goes_on_from_any_cookie(t: TestBackend) {
    let w = World::new(t);
    let (dir, _) = filled(&w);
    let (all, end) = w.list(&dir, Cookie(0), MANY + 1);
    assert_eq!(end, ListEnd::Eof);
    for i in [0, 1, 13, 350, MANY - 2] {
        w.b().shed(0);
        let (rest, end) = w.list(&dir, all[i].1, MANY);
        assert_eq!(end, ListEnd::Eof);
        assert_eq!(rest, all[i + 1..], "after entry {i}");
    }
    assert_eq!(w.list(&dir, all[MANY - 1].1, 5), (vec![], ListEnd::Eof));
}

pub(super) fn cookies_stay_valid_while_other_entries_come_and_go(t: TestBackend) {
    let w = World::new(t);
    let (dir, names) = filled(&w);
    let (mut seen, mut from, mut round) = (BTreeMap::new(), Cookie(0), 0);
    loop {
        let (piece, end) = w.list(&dir, from, 50);
        for (n, next) in piece {
            from = next;
            *seen.entry(n).or_insert(0) += 1;
        }
        if end == ListEnd::Eof {
            break;
        }
        // What comes and goes beside what stays; removed entries are among those already listed.
        for i in 0..20 {
            w.touch(&dir, &format!("coming {round} {i}"));
            if round > 0 {
                w.remove(&dir, &format!("coming {} {i}", round - 1)).unwrap();
            }
        }
        round += 1;
    }
    assert!(round > 5);
    for n in &names {
        assert_eq!(seen.get(n), Some(&1), "{}", n.escape_ascii());
    }
    assert!(seen.values().all(|times| *times == 1), "an entry came twice");
}

pub(super) fn cookies_outlive_the_backend(mut t: TestBackend) {
    let Some(reopen) = t.reopen.take() else { return };
    let w = World::new(t);
    let (dir, mut names) = filled(&w);
    let (first, _) = w.list(&dir, Cookie(0), MANY / 2);
    let last = first.last().unwrap().clone();
    // The entry at the very place, and one that would come next, go meanwhile.
    let (next, _) = w.list(&dir, last.1, 1);
    for (gone, _) in [&last, &next[0]] {
        w.remove(&dir, std::str::from_utf8(gone).unwrap()).unwrap();
    }
    let World { t, .. } = w;
    let TestBackend { backend, abilities, keep, .. } = t;
    drop(backend);
    let w = World::new(TestBackend { backend: reopen(), abilities, reopen: None, neighbour: None, keep });
    let (rest, end) = w.list(&dir, last.1, MANY);
    assert_eq!(end, ListEnd::Eof);
    names.remove(&next[0].0);
    assert_eq!(first.len() + rest.len(), names.len(), "an entry is missing, or came twice");
    let seen: BTreeSet<_> = first.into_iter().chain(rest).map(|(name, _)| name).collect();
    assert_eq!(seen, names);
}

pub(super) fn listed_nodes_are_those_that_lookup_finds(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    w.file(&dir, "file", b"abc");
    w.mkdir(&dir, "below", 0o750);
    w.b().make(&w.cx(), &dir, name("link"), NewNode::Symlink(b"x"), &Default::default()).unwrap();
    let mut seen = 0;
    let listing = DirListing { dir: &dir, from: Cookie(0), want: Some(AttrMask::ALL) };
    let end = w.b().readdir(&w.cx(), listing, &mut |entry| {
        let node = entry.node.unwrap().unwrap();
        let found = w.find(&dir, std::str::from_utf8(entry.name).unwrap()).unwrap();
        assert_eq!(node.handle, found.handle);
        assert_eq!((node.attrs.kind, node.attrs.size), (found.attrs.kind, found.attrs.size));
        assert_eq!((node.attrs.fileid, node.attrs.change), (entry.fileid, found.attrs.change));
        seen += 1;
        Flow::Continue
    });
    assert_eq!((end.unwrap(), seen), (ListEnd::Eof, 3));
}

pub(super) fn cookies_are_in_range_and_bad_ones_are_refused_or_harmless(t: TestBackend) {
    let w = World::new(t);
    let (dir, _) = filled(&w);
    let (all, _) = w.list(&dir, Cookie(0), MANY);
    assert!(all.iter().all(|(_, c)| c.0 > 2 && i64::try_from(c.0).is_ok()));
    let distinct: BTreeSet<_> = all.iter().map(|(_, c)| c.0).collect();
    assert_eq!(distinct.len(), MANY);
    for bad in [1, 2, u64::MAX] {
        let listing = DirListing { dir: &dir, from: Cookie(bad), want: None };
        let end = w.b().readdir(&w.cx(), listing, &mut |_| Flow::Continue);
        assert_eq!(end.unwrap_err(), FsError::BadCookie, "{bad}");
    }
}

pub(super) fn a_listing_of_what_is_no_directory_says_so(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let listing = DirListing { dir: &file, from: Cookie(0), want: None };
    assert_eq!(w.b().readdir(&w.cx(), listing, &mut |_| Flow::Continue).unwrap_err(), FsError::NotDir);
}
